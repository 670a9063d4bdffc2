//! The settings that stand in a TOML file, with the line of each.

use std::{collections::BTreeMap, fmt, fs, path::Path};

use serde::{Deserialize, Deserializer, de};
use toml::Spanned;

use super::{
    error::SettingError,
    layers::{Given, Origin},
    table::Setting,
};

/// The file, as it is written. A key that is not here is refused, and the known ones are listed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    data: Option<Spanned<String>>,
    listen: Option<Spanned<String>>,
    tokens: Option<Spanned<String>>,
    tls_cert: Option<Spanned<String>>,
    tls_key: Option<Spanned<String>>,
    redis: Option<Spanned<String>>,
    redis_prefix: Option<Spanned<String>>,
    adopt_redis: Option<Spanned<bool>>,
    shards: Option<Spanned<i64>>,
    tzdata: Option<Spanned<String>>,
    lead: Option<Spanned<String>>,
    horizon: Option<Spanned<String>>,
    segment_bytes: Option<Spanned<Bytes>>,
    reserve_bytes: Option<Spanned<Bytes>>,
    snapshot_bytes: Option<Spanned<Bytes>>,
    archive: Option<Spanned<String>>,
    live_limit: Option<Spanned<i64>>,
    mailbox: Option<Spanned<i64>>,
}

/// `67108864` or `"64MiB"`, kept as text.
struct Bytes(String);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes or a text such as \"64MiB\"")
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Bytes, E> {
                Ok(Bytes(bytes.to_string()))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Bytes, E> {
                Ok(Bytes(text.to_owned()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// Reads the file.
pub(super) fn read(path: &Path) -> Result<BTreeMap<Setting, Given>, SettingError> {
    let text = fs::read_to_string(path).map_err(|source| SettingError::File { path: path.to_owned(), source })?;
    parse(path, &text)
}

fn parse(path: &Path, text: &str) -> Result<BTreeMap<Setting, Given>, SettingError> {
    let line_of = |offset: usize| text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count() + 1;
    let written: Written = toml::from_str(text).map_err(|error| SettingError::Syntax {
        path: path.to_owned(),
        line: line_of(error.span().map_or(0, |span| span.start)),
        problem: {
            let key = error.span().and_then(|span| key_before(text, span.start));
            let message = error.message().trim_end().replace('\n', ", ");
            key.map_or_else(|| message.clone(), |key| format!("{key}: {message}"))
        },
    })?;
    let mut given = BTreeMap::new();
    let mut take = |key: Setting, value: Option<(String, usize)>| {
        if let Some((text, offset)) = value {
            let origin = Origin::File { path: path.to_owned(), line: line_of(offset) };
            given.insert(key, Given { text, origin });
        }
    };
    take(Setting::Data, shown(written.data));
    take(Setting::Listen, shown(written.listen));
    take(Setting::Tokens, shown(written.tokens));
    take(Setting::TlsCert, shown(written.tls_cert));
    take(Setting::TlsKey, shown(written.tls_key));
    take(Setting::Redis, shown(written.redis));
    take(Setting::RedisPrefix, shown(written.redis_prefix));
    take(Setting::AdoptRedis, shown(written.adopt_redis));
    take(Setting::Shards, shown(written.shards));
    take(Setting::Tzdata, shown(written.tzdata));
    take(Setting::Lead, shown(written.lead));
    take(Setting::Horizon, shown(written.horizon));
    take(Setting::SegmentBytes, shown(written.segment_bytes));
    take(Setting::ReserveBytes, shown(written.reserve_bytes));
    take(Setting::SnapshotBytes, shown(written.snapshot_bytes));
    take(Setting::Archive, shown(written.archive));
    take(Setting::LiveLimit, shown(written.live_limit));
    take(Setting::Mailbox, shown(written.mailbox));
    Ok(given)
}

/// The key of the value that begins at `offset`, if one does.
fn key_before(text: &str, offset: usize) -> Option<&str> {
    let before = text.get(..offset)?;
    let line = before.rsplit('\n').next()?;
    let key = line.trim_end().strip_suffix('=')?.trim();
    (!key.is_empty()).then_some(key)
}

/// A value as text, and where it begins.
fn shown<T: fmt::Display>(value: Option<Spanned<T>>) -> Option<(String, usize)> {
    value.map(|value| (value.get_ref().to_string(), value.span().start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        parse(Path::new("c.toml"), text).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn values_are_read_with_their_lines() {
        let given =
            parse(Path::new("c.toml"), "# ours\nlisten = '127.0.0.1:1'\n\nshards = 4\nsegment_bytes = \"1MiB\"\n");
        let given = given.unwrap();
        let shown: Vec<String> =
            given.iter().map(|(key, given)| format!("{} {} {}", key.name(), given.text, given.origin)).collect();
        assert_eq!(
            shown,
            ["listen 127.0.0.1:1 c.toml line 2", "shards 4 c.toml line 4", "segment_bytes 1MiB c.toml line 5"]
        );
    }

    #[test]
    fn a_key_that_is_not_known_is_refused_with_the_known_ones() {
        let said = refused("listen = '127.0.0.1:1'\nshrads = 4\n");
        assert!(said.starts_with("c.toml line 2: unknown field `shrads`"), "{said}");
        assert!(Setting::ALL.iter().all(|key| said.contains(key.name())), "{said}");
    }

    #[test]
    fn what_is_no_toml_or_has_another_type_is_one_line() {
        for text in ["listen", "listen = 7", "shards = 'four'", "shards = 4\nshards = 5", "[data]\n", "a = '''\n\u{1}"]
        {
            let said = refused(text);
            assert!(said.starts_with("c.toml line ") && !said.contains('\n'), "{said}");
        }
        assert!(refused("segment_bytes = true").contains("64MiB"));
    }

    #[test]
    fn a_value_of_another_type_is_refused_by_its_key() {
        for (text, key) in [
            ("data = 'd'\nshards = 'four'", "line 2: shards: "),
            ("  listen=7 # here", "line 1: listen: "),
            ("adopt_redis = [1]", "line 1: adopt_redis: "),
            ("data = { a = 1 }", "line 1: data: "),
            ("segment_bytes = 1.5", "line 1: segment_bytes: "),
        ] {
            assert!(refused(text).starts_with(&format!("c.toml {key}")), "{text}: {}", refused(text));
        }
    }
}
