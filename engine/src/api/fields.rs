//! A strict reader of JSON objects: knows every field, names the path of what it refuses and says what to send instead.

use std::ops::RangeInclusive;

use super::{
    duration,
    json::Node,
    shape::Field,
    words::{self, Words},
};
use crate::{
    error::{Refusal, RefusalCode},
    kernel::{calendar::parse_duration_ms, time::UnixMs},
};

/// Longest piece of a client's text that is repeated in a message.
const SHOWN_CHARS: usize = 64;

/// A refusal with the code `invalid`.
pub(crate) fn invalid(field: impl Into<String>, message: impl Into<String>) -> Refusal {
    Refusal { code: RefusalCode::Invalid, field: field.into(), message: message.into() }
}

/// A client's text, quoted and escaped, cut where it is long.
pub(crate) fn quoted(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?} and so on", &text[..end]),
    }
}

/// What `null` means for a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Null {
    /// The same as leaving the field out.
    LeftOut,
    /// The field goes back to its default (RFC 7396).
    Reset,
}

/// The fields of one object, each taken once.
#[derive(Debug)]
pub(crate) struct Fields {
    path: String,
    given: Vec<(&'static str, Node)>,
    nulls: Vec<&'static str>,
    null: Null,
}

impl Fields {
    /// The fields of `node`, which stands at `path` (empty for the body itself) and may have only `known` fields.
    pub(crate) fn of(node: Node, path: &str, known: &'static [Field], null: Null) -> Result<Self, Refusal> {
        let Node::Object(entries) = node else {
            let whose = if path.is_empty() { "the body " } else { "" };
            return Err(invalid(path, format!("{whose}must be an object, not {}", node.described())));
        };
        let given = Vec::with_capacity(entries.len().min(known.len()));
        let mut fields = Self { path: path.to_owned(), given, nulls: Vec::new(), null };
        for (key, value) in entries {
            let Some(name) = known.iter().map(|field| field.name).find(|name| *name == key) else {
                return Err(fields.unknown(&key, known));
            };
            if fields.has(name) || fields.nulls.contains(&name) {
                return Err(invalid(fields.at(name), "is given twice: give it once"));
            }
            match value {
                Node::Null => fields.nulls.push(name),
                value => fields.given.push((name, value)),
            }
        }
        Ok(fields)
    }

    fn unknown(&self, key: &str, known: &[Field]) -> Refusal {
        let shown: String = key.chars().take(SHOWN_CHARS).collect();
        let names: Vec<&str> = known.iter().map(|field| field.name).collect();
        let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        invalid(self.at(&shown), format!("{} is not a field here: leave it out; there are {there}", quoted(key)))
    }

    /// Whether it is put onto something that stands: what is left out stays.
    pub(crate) fn merges(&self) -> bool {
        self.null == Null::Reset
    }

    /// Whether `null` was given for `name` and asks for the default.
    pub(crate) fn resets(&self, name: &str) -> bool {
        self.null == Null::Reset && self.nulls.contains(&name)
    }

    /// What was said under `names`, or `default` where `null` asks for it.
    pub(crate) fn or_reset<T>(&self, said: Option<T>, names: &[&str], default: T) -> Option<T> {
        said.or_else(|| names.iter().any(|name| self.resets(name)).then_some(default))
    }

    /// The path of the field `name`.
    pub(crate) fn at(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Whether `name` was given and not yet taken.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.given.iter().any(|(given, _)| *given == name)
    }

    fn take(&mut self, name: &str) -> Option<Node> {
        let index = self.given.iter().position(|(given, _)| *given == name)?;
        Some(self.given.swap_remove(index).1)
    }

    fn wrong(&self, name: &str, wanted: &str, got: &Node) -> Refusal {
        invalid(self.at(name), format!("must be {wanted}, not {}", got.described()))
    }

    /// A string.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, Refusal> {
        match self.take(name) {
            None => Ok(None),
            Some(Node::Text(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(name, "a string", &other)),
        }
    }

    /// A string that must be there.
    pub(crate) fn required_text(&mut self, name: &str) -> Result<String, Refusal> {
        self.text(name)?.ok_or_else(|| self.missing(name))
    }

    /// An instant that must be there.
    pub(crate) fn required_instant(&mut self, name: &str) -> Result<UnixMs, Refusal> {
        self.instant(name)?.ok_or_else(|| self.missing(name))
    }

    /// The refusal of a field that must be there and is not.
    pub(crate) fn missing(&self, name: &str) -> Refusal {
        invalid(self.at(name), "is required: add it")
    }

    /// An RFC 3339 instant.
    pub(crate) fn instant(&mut self, name: &str) -> Result<Option<UnixMs>, Refusal> {
        const WANTED: &str = "an RFC 3339 instant such as \"2026-11-01T05:30:00.000Z\"";
        match self.take(name) {
            None => Ok(None),
            Some(Node::Text(text)) => match UnixMs::parse_rfc3339(&text) {
                Some(instant) => Ok(Some(instant)),
                None => {
                    let message = format!("{} must be {WANTED}, in the years 1970 to 9999", quoted(&text));
                    Err(invalid(self.at(name), message))
                }
            },
            Some(other) => Err(self.wrong(name, WANTED, &other)),
        }
    }

    /// A whole number in `range`.
    pub(crate) fn whole(&mut self, name: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, Refusal> {
        let Some(node) = self.take(name) else { return Ok(None) };
        let wanted = format!("a whole number from {} to {}", range.start(), range.end());
        let Node::Number(number) = &node else { return Err(self.wrong(name, &wanted, &node)) };
        match number.as_u64() {
            Some(value) if range.contains(&value) => Ok(Some(value)),
            _ => Err(invalid(self.at(name), format!("{number} must be {wanted}"))),
        }
    }

    /// A whole number in `range` that must be there.
    pub(crate) fn required_whole(&mut self, name: &str, range: RangeInclusive<u64>) -> Result<u64, Refusal> {
        self.whole(name, range)?.ok_or_else(|| self.missing(name))
    }

    /// A list of as many items as `count` says.
    pub(crate) fn list(&mut self, name: &str, count: RangeInclusive<usize>) -> Result<Option<Vec<Node>>, Refusal> {
        let wanted = format!("an array of {} to {} items", count.start(), count.end());
        match self.take(name) {
            None => Ok(None),
            Some(Node::List(items)) if count.contains(&items.len()) => Ok(Some(items)),
            Some(Node::List(items)) => Err(invalid(self.at(name), format!("must be {wanted}, not of {}", items.len()))),
            Some(other) => Err(self.wrong(name, &wanted, &other)),
        }
    }

    /// A whole number that fits 32 bits; the engine knows its bounds.
    pub(crate) fn count(&mut self, name: &str) -> Result<Option<u32>, Refusal> {
        let number = self.whole(name, 0..=u64::from(u32::MAX))?;
        Ok(number.map(|number| u32::try_from(number).expect("the reader keeps to the range")))
    }

    /// `true` or `false`.
    pub(crate) fn truth(&mut self, name: &str) -> Result<Option<bool>, Refusal> {
        match self.take(name) {
            None => Ok(None),
            Some(Node::Bool(truth)) => Ok(Some(truth)),
            Some(other) => Err(self.wrong(name, "true or false", &other)),
        }
    }

    /// A duration in milliseconds, given as a string under `name` or as a whole number under `name_ms`, not both.
    pub(crate) fn duration_ms(
        &mut self,
        name: &str,
        name_ms: &str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, Refusal> {
        let Some(node) = self.take(name) else { return self.whole(name_ms, range) };
        if self.has(name_ms) {
            let message = format!("is given beside {}: give one of the two", self.at(name));
            return Err(invalid(self.at(name_ms), message));
        }
        let Node::Text(text) = node else {
            let wanted = format!("a duration such as \"30s\" (or {} in milliseconds)", self.at(name_ms));
            return Err(self.wrong(name, &wanted, &node));
        };
        let ms = parse_duration_ms(&text).map_err(|problem| invalid(self.at(name), problem.to_string()))?;
        let ms = ms.unsigned_abs();
        if range.contains(&ms) {
            return Ok(Some(ms));
        }
        let bounds = format!("{} to {}", duration::show_ms(*range.start()), duration::show_ms(*range.end()));
        Err(invalid(self.at(name), format!("{} is out of range: give {bounds}", quoted(&text))))
    }

    /// One of a choice of words.
    pub(crate) fn word<T: Copy>(&mut self, name: &str, words: Words<T>) -> Result<Option<T>, Refusal> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let meaning = words::meaning(words, &text);
        meaning.map(Some).map_err(|problem| invalid(self.at(name), format!("{} {problem}", quoted(&text))))
    }

    /// An object with `known` fields.
    pub(crate) fn object(&mut self, name: &str, known: &'static [Field]) -> Result<Option<Self>, Refusal> {
        let (path, null) = (self.at(name), self.null);
        self.take(name).map(|node| Self::of(node, &path, known, null)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::shape::Shape;

    const KNOWN: &[Field] = &[
        Field::new("base", Shape::Duration, ""),
        Field::new("base_ms", Shape::MS, ""),
        Field::new("at", Shape::Instant, ""),
        Field::new("n", Shape::COUNT, ""),
        Field::new("word", Shape::Text, ""),
    ];

    fn fields(json: &str) -> Fields {
        Fields::of(serde_json::from_str(json).unwrap(), "retry", KNOWN, Null::LeftOut).unwrap()
    }

    #[test]
    fn what_is_not_an_object_or_not_known_or_given_twice_is_named_by_its_path() {
        const ONE: &[Field] = &[Field::new("a", Shape::Text, "")];
        let node = |json: &str| serde_json::from_str(json).unwrap();
        let read = |json: &str, path: &str| Fields::of(node(json), path, ONE, Null::LeftOut).unwrap_err();
        assert_eq!(read("[]", "").to_string(), ": the body must be an object, not an array");
        assert_eq!(read("7", "rule").to_string(), "rule: must be an object, not a number (7)");
        assert_eq!(read(r#"{"b":1}"#, "rule").field, "rule.b");
        assert_eq!(read(r#"{"a":null,"a":1}"#, "").to_string(), "a: is given twice: give it once");
        let long = format!(r#"{{"{}":1}}"#, "x".repeat(10_000));
        assert_eq!(read(&long, "").field.len(), SHOWN_CHARS);
    }

    #[test]
    fn null_is_the_same_as_left_out() {
        let mut fields = fields(r#"{"base":null,"at":null,"n":null,"word":null}"#);
        assert_eq!(fields.duration_ms("base", "base_ms", 0..=9), Ok(None));
        assert_eq!(fields.instant("at"), Ok(None));
        assert_eq!(fields.whole("n", 0..=9), Ok(None));
        assert_eq!(fields.text("word"), Ok(None));
        assert_eq!(fields.or_reset(None, &["n"], 7), None);
    }

    #[test]
    fn in_a_merge_null_asks_for_the_default_and_what_is_left_out_does_not() {
        let node = serde_json::from_str(r#"{"n":null,"base_ms":null}"#).unwrap();
        let mut fields = Fields::of(node, "", KNOWN, Null::Reset).unwrap();
        assert_eq!(fields.whole("n", 0..=9), Ok(None));
        assert_eq!(fields.or_reset(None, &["n"], 7), Some(7));
        assert_eq!(fields.or_reset(None, &["base", "base_ms"], 7), Some(7));
        assert_eq!(fields.or_reset(Some(1), &["n"], 7), Some(1));
        assert_eq!(fields.or_reset(None, &["at"], 7), None);
    }

    #[test]
    fn a_duration_is_a_string_or_milliseconds_and_never_both() {
        let read = |json: &str| fields(json).duration_ms("base", "base_ms", 500..=60_000);
        assert_eq!(read(r#"{"base":"30s"}"#), Ok(Some(30_000)));
        assert_eq!(read(r#"{"base_ms":30000}"#), Ok(Some(30_000)));
        for (bad, field, part) in [
            (r#"{"base":"30s","base_ms":30000}"#, "retry.base_ms", "one of the two"),
            (r#"{"base":30}"#, "retry.base", "retry.base_ms in milliseconds"),
            (r#"{"base":"soon"}"#, "retry.base", "write it as 500ms"),
            (r#"{"base":"61s"}"#, "retry.base", "give 500ms to 1m"),
            (r#"{"base_ms":"30s"}"#, "retry.base_ms", "whole number from 500 to 60000, not a string"),
            (r#"{"base_ms":30.5}"#, "retry.base_ms", "30.5 must be a whole number"),
            (r#"{"base_ms":-1}"#, "retry.base_ms", "-1 must be"),
        ] {
            let refusal = read(bad).unwrap_err();
            assert_eq!(refusal.field, field, "{bad}");
            assert!(refusal.message.contains(part), "{bad}: {}", refusal.message);
        }
    }

    #[test]
    fn an_instant_is_rfc_3339_and_nothing_else() {
        assert!(fields(r#"{"at":"2026-11-01T01:30:00-04:00"}"#).instant("at").unwrap().is_some());
        for bad in [r#""tomorrow""#, r#""2026-11-01""#, "1793511000000", "true", r#""1969-12-31T23:59:59Z""#] {
            let refusal = fields(&format!(r#"{{"at":{bad}}}"#)).instant("at").unwrap_err();
            assert!(refusal.message.contains("RFC 3339"), "{bad}: {}", refusal.message);
        }
    }

    #[test]
    fn a_clients_text_is_escaped_and_cut_in_messages() {
        assert_eq!(quoted("a\n\u{1b}"), r#""a\n\u{1b}""#);
        assert!(quoted(&"x".repeat(100_000)).len() < 100);
        assert!(quoted(&"ü".repeat(100)).ends_with("and so on"));
    }
}
