//! What the answers of Redis hold, read without trusting their shape.

use std::collections::BTreeMap;

use redis::Value;

use crate::kernel::{id::OccurrenceId, occurrence::EntryId};

use super::{link::text, wire::parse_id};

/// What `XINFO STREAM` says of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Top {
    /// The last id, whether or not its entry still stands (`last-generated-id`).
    pub(super) last: EntryId,
    /// How many entries were ever added (`entries-added`).
    pub(super) added: u64,
    /// How many stand in it now.
    pub(super) length: u64,
    /// How many consumer groups it has.
    pub(super) groups: u64,
}

impl Top {
    /// `None`: this is no such answer (before 7.0 there was no `entries-added`).
    pub(super) fn read(answer: &Value) -> Option<Self> {
        let fields = map(answer)?;
        Some(Self {
            last: id(fields.get("last-generated-id")?)?,
            added: count(fields.get("entries-added")?)?,
            length: count(fields.get("length")?)?,
            groups: count(fields.get("groups")?)?,
        })
    }
}

/// What `XINFO GROUPS` says of one consumer group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// Its name: bytes, as any key.
    pub(super) name: Vec<u8>,
    /// How many entries it was given and has not acknowledged.
    pub(super) pending: u64,
    /// The last entry it was given.
    pub(super) last_delivered: EntryId,
}

/// All consumer groups of a stream.
pub(super) fn groups(answer: &Value) -> Option<Vec<Group>> {
    let Value::Array(all) = answer else { return None };
    all.iter()
        .map(|one| {
            let fields = map(one)?;
            let Value::BulkString(name) = fields.get("name")? else { return None };
            Some(Group {
                name: name.clone(),
                pending: count(fields.get("pending")?)?,
                last_delivered: id(fields.get("last-delivered-id")?)?,
            })
        })
        .collect()
}

/// The first pending entry in the summary that `XPENDING key group` gives; `Some(None)`: none is pending.
pub(super) fn first_pending(answer: &Value) -> Option<Option<EntryId>> {
    let Value::Array(parts) = answer else { return None };
    match (parts.first()?, parts.get(1)?) {
        (Value::Int(0), _) | (_, Value::Nil) => Some(None),
        (_, first) => Some(Some(id(first)?)),
    }
}

/// One entry that was read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReadBack {
    /// Where it stands.
    pub(super) id: EntryId,
    /// Occurrence and attempt; `None` if somebody else wrote it.
    pub(super) names: Option<(OccurrenceId, u32)>,
}

/// A page of `XRANGE`.
pub(super) fn page(answer: &Value) -> Option<Vec<ReadBack>> {
    let Value::Array(entries) = answer else { return None };
    entries
        .iter()
        .map(|entry| {
            let Value::Array(parts) = entry else { return None };
            Some(ReadBack { id: id(parts.first()?)?, names: parts.get(1).and_then(names) })
        })
        .collect()
}

/// Occurrence and attempt from an entry's fields: `occurrence_id`, and the seventh word of `meta`.
fn names(fields: &Value) -> Option<(OccurrenceId, u32)> {
    let fields = map(fields)?;
    let occurrence = text(fields.get("occurrence_id")?)?.parse().ok()?;
    let mut words = text(fields.get("meta")?)?.split(' ');
    let layout = words.next()?;
    let attempt = words.nth(5)?.parse().ok()?;
    (layout == "1").then_some((occurrence, attempt))
}

/// A hash, or any answer of names and values in turn; names that are no text are left out.
pub(super) fn map(answer: &Value) -> Option<BTreeMap<&str, &Value>> {
    match answer {
        Value::Array(parts) => {
            let (pairs, []) = parts.as_chunks::<2>() else { return None };
            Some(pairs.iter().filter_map(|[name, value]| Some((text(name)?, value))).collect())
        }
        Value::Map(pairs) => Some(pairs.iter().filter_map(|(name, value)| Some((text(name)?, value))).collect()),
        _ => None,
    }
}

fn id(value: &Value) -> Option<EntryId> {
    parse_id(text(value)?.as_bytes())
}

fn count(value: &Value) -> Option<u64> {
    match value {
        Value::Int(count) => u64::try_from(*count).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn entry(id: &str, fields: &[&str]) -> Value {
        Value::Array(vec![bulk(id), Value::Array(fields.iter().map(|field| bulk(field)).collect())])
    }

    #[test]
    fn an_entry_is_recognised_by_occurrence_and_attempt() {
        let occurrence = OccurrenceId([7; 16]);
        let meta = "1 01010101-0101-0101-0101-010101010101 4 1 1793511000000 1793511000250 2 acme";
        let ours = ["occurrence_id", &occurrence.to_string(), "meta", meta, "payload", "x"];
        let answer = Value::Array(vec![entry("3-1", &ours), entry("9-9", &["hello", "world"])]);
        let at = |generation, counter| EntryId { generation, counter };
        assert_eq!(
            page(&answer).unwrap(),
            [ReadBack { id: at(3, 1), names: Some((occurrence, 2)) }, ReadBack { id: at(9, 9), names: None }]
        );
    }

    #[test]
    fn entries_of_another_layout_or_shape_are_nobodys() {
        let id = OccurrenceId([7; 16]).to_string();
        for meta in ["", "1", "2 s 4 1 1 1 2 acme", "1 s 4 1 1 1 x acme", "1 s 4 1 1 1"] {
            let answer = Value::Array(vec![entry("3-1", &["occurrence_id", &id, "meta", meta])]);
            assert_eq!(page(&answer).unwrap()[0].names, None, "{meta}");
        }
        assert_eq!(page(&Value::Array(vec![Value::Nil])), None);
        assert_eq!(page(&Value::Okay), None);
    }

    #[test]
    fn a_stream_before_entries_were_counted_is_not_understood() {
        let mut parts = vec![bulk("length"), Value::Int(2), bulk("last-generated-id"), bulk("4-2")];
        parts.extend([bulk("groups"), Value::Int(0)]);
        assert_eq!(Top::read(&Value::Array(parts.clone())), None);
        parts.extend([bulk("entries-added"), Value::Int(5)]);
        let last = EntryId { generation: 4, counter: 2 };
        assert_eq!(Top::read(&Value::Array(parts)), Some(Top { last, added: 5, length: 2, groups: 0 }));
    }

    #[test]
    fn nothing_pending_has_no_first() {
        let none = Value::Array(vec![Value::Int(0), Value::Nil, Value::Nil, Value::Nil]);
        assert_eq!(first_pending(&none), Some(None));
        let some = Value::Array(vec![Value::Int(2), bulk("1-2"), bulk("1-9"), Value::Nil]);
        assert_eq!(first_pending(&some), Some(Some(EntryId { generation: 1, counter: 2 })));
        assert_eq!(first_pending(&Value::Int(1)), None);
    }
}
