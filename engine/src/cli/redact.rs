//! How a URL is shown without what is secret in it.

/// The URL without user, password and parameters: `redis://***@host:6379/0`.
pub(crate) fn redacted(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("://") else {
        // What has no scheme is not a URL we know the parts of: nothing of it is shown but its end.
        return url.rsplit_once('@').map_or_else(|| url.to_owned(), |(_, host)| format!("***@{host}"));
    };
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://***@{host}"),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_secret_is_shown() {
        for (url, shown) in [
            ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
            ("redis://:s3cret@host:6379", "redis://***@host:6379"),
            ("redis://user:s3cret@host", "redis://***@host"),
            ("redis://user:s3@cret/x@host", "redis://***@host"),
            ("redis+unix:///run/redis.sock?user=u&pass=s3cret", "redis+unix:///run/redis.sock"),
            ("user:s3cret@host:6379", "***@host:6379"),
            ("", ""),
        ] {
            assert_eq!(redacted(url), shown, "{url}");
        }
    }
}
