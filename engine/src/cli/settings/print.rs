//! The effective settings as TOML: what holds, and where each was said. Secrets in URLs are not shown.

use std::fmt::Write as _;

use super::{
    layers::{Given, Layers},
    table::{Fallback, Setting, Shape},
};
use crate::cli::redact::redacted;

/// Where the comments begin.
const COMMENT_COLUMN: usize = 36;

impl Layers {
    /// A TOML file that says the same, but for what is secret in a URL.
    pub(crate) fn to_toml(&self) -> String {
        let mut text =
            String::from("# The effective configuration: a flag wins over COUNTWHEEL_..., that over the file.\n");
        for key in Setting::ALL {
            let (left, right) = match (self.value(key), key.fallback()) {
                (Some(given), _) => (format!("{} = {}", key.name(), written(key, given)), given.origin.to_string()),
                (None, Fallback::Unset(meaning)) => (format!("# {}", key.name()), format!("not set: {meaning}")),
                (None, Fallback::Value(text)) => (format!("# {}", key.name()), format!("not set: {text}")),
            };
            let _ = writeln!(text, "{left:COMMENT_COLUMN$} # {}", right.replace(['\n', '\r'], " "));
        }
        text
    }
}

fn written(key: Setting, given: &Given) -> String {
    match key.shape() {
        Shape::Number | Shape::Flag => given.text.clone(),
        Shape::Text if key == Setting::Redis => quoted(&redacted(&given.text)),
        Shape::Text => quoted(&given.text),
    }
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn what_is_shown_reads_back_and_shows_no_password() {
        let said =
            [(Setting::Redis, "redis://u:s3cret@host:1/2"), (Setting::Shards, "4"), (Setting::Data, "it's \"here\"")];
        let flags = said.map(|(key, text)| (key, text.to_owned()));
        let layers = Layers::read(BTreeMap::from(flags), |_| None, None).unwrap();
        let text = layers.to_toml();
        assert!(!text.contains("s3cret") && text.contains("redis://***@host:1/2"), "{text}");
        let table: toml::Table = toml::from_str(&text).unwrap();
        assert_eq!(table["data"].as_str(), Some("it's \"here\""));
        assert_eq!(table["shards"].as_integer(), Some(4));
        assert_eq!(table["adopt_redis"].as_bool(), Some(false));
        assert!(!table.contains_key("tokens") && text.contains("# tokens"), "{text}");
    }
}
