//! Streams: adding, reading, removing, and what they say of themselves.

use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Included, Unbounded},
};

use redis::Value;

use super::{
    data::{Data, EntryFields, Key, WRONG_TYPE},
    groups::Group,
    resp::{bulk, error, int},
};
use crate::kernel::occurrence::EntryId;

const NO_SUCH_KEY: &str = "ERR no such key";
const INVALID_ID: &str = "ERR Invalid stream ID specified as stream command argument";

/// One stream.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamKey {
    pub(super) entries: BTreeMap<EntryId, EntryFields>,
    pub(super) last: EntryId,
    pub(super) max_deleted: EntryId,
    pub(super) added: u64,
    pub(super) groups: BTreeMap<Vec<u8>, Group>,
}

/// `<ms>-<seq>`, or `<ms>` alone with the given counter.
pub(super) fn id(text: &[u8], counter: u64) -> Option<EntryId> {
    let text = std::str::from_utf8(text).ok()?;
    let (generation, counter) = match text.split_once('-') {
        Some((generation, counter)) => (generation, counter.parse().ok()?),
        None => (text, counter),
    };
    Some(EntryId { generation: generation.parse().ok()?, counter })
}

pub(super) fn shown(id: EntryId) -> Value {
    bulk(id.to_string().as_bytes())
}

pub(super) fn entry(id: EntryId, fields: &EntryFields) -> Value {
    Value::Array(vec![shown(id), Value::Array(fields.iter().map(|field| bulk(field)).collect())])
}

impl Data {
    pub(super) fn add(&mut self, key: &[u8], rest: &[&[u8]]) -> Value {
        let (may_make, rest) = match rest {
            [first, rest @ ..] if first.eq_ignore_ascii_case(b"NOMKSTREAM") => (false, rest),
            rest => (true, rest),
        };
        let [text, fields @ ..] = rest else { return error("ERR wrong number of arguments for 'xadd' command") };
        let Some(id) = id(text, 0) else { return error(INVALID_ID) };
        if id == EntryId::default() {
            return error("ERR The ID specified in XADD must be greater than 0-0");
        }
        if !self.keys.contains_key(key) {
            if !may_make {
                return Value::Nil;
            }
            self.keys.insert(key.to_vec(), Key::Stream(StreamKey::default()));
        }
        self.with(key, Value::Nil, |stream| {
            if id <= stream.last {
                return error("ERR The ID specified in XADD is equal or smaller than the target stream top item");
            }
            stream.entries.insert(id, fields.iter().map(|field| field.to_vec()).collect());
            stream.last = id;
            stream.added += 1;
            shown(id)
        })
    }

    pub(super) fn set_id(&mut self, key: &[u8], text: &[u8]) -> Value {
        let Some(id) = id(text, 0) else { return error(INVALID_ID) };
        self.with(key, error(NO_SUCH_KEY), |stream| {
            if stream.entries.last_key_value().is_some_and(|(top, _)| id < *top) {
                return error("ERR The ID specified in XSETID is smaller than the target stream top item");
            }
            if id < stream.max_deleted {
                return error("ERR The ID specified in XSETID is smaller than current max_deleted_entry_id");
            }
            stream.last = id;
            Value::Okay
        })
    }

    /// The fields that the relay reads.
    pub(super) fn describe(&mut self, key: &[u8]) -> Value {
        self.with(key, error(NO_SUCH_KEY), |stream| {
            let added = i64::try_from(stream.added).unwrap_or(i64::MAX);
            Value::Array(vec![
                bulk(b"length"),
                int(stream.entries.len()),
                bulk(b"last-generated-id"),
                shown(stream.last),
                bulk(b"max-deleted-entry-id"),
                shown(stream.max_deleted),
                bulk(b"entries-added"),
                Value::Int(added),
                bulk(b"groups"),
                int(stream.groups.len()),
            ])
        })
    }

    pub(super) fn range(&mut self, key: &[u8], from: &[u8], to: &[u8], rest: &[&[u8]]) -> Value {
        let from = match from {
            b"-" => Some(Unbounded),
            [b'(', from @ ..] => id(from, 0).map(Excluded),
            from => id(from, 0).map(Included),
        };
        let to = match to {
            b"+" => Some(Unbounded),
            to => id(to, u64::MAX).map(Included),
        };
        let Some((from, to)) = from.zip(to) else { return error(INVALID_ID) };
        let count = match rest {
            [_, count] => std::str::from_utf8(count).ok().and_then(|count| count.parse().ok()),
            _ => None,
        };
        self.with(key, Value::Array(Vec::new()), |stream| {
            let entries = stream.entries.range((from, to)).take(count.unwrap_or(usize::MAX));
            Value::Array(entries.map(|(id, fields)| entry(*id, fields)).collect())
        })
    }

    pub(super) fn delete(&mut self, key: &[u8], ids: &[&[u8]]) -> Value {
        let ids: Option<Vec<EntryId>> = ids.iter().map(|text| id(text, 0)).collect();
        let Some(ids) = ids else { return error(INVALID_ID) };
        self.with(key, int(0), |stream| {
            let mut deleted = 0;
            for id in ids {
                if stream.entries.remove(&id).is_some() {
                    stream.max_deleted = stream.max_deleted.max(id);
                    deleted += 1;
                }
            }
            int(deleted)
        })
    }

    /// `XTRIM key MINID = id`
    pub(super) fn trim(&mut self, key: &[u8], text: &[u8]) -> Value {
        let Some(below) = id(text, 0) else { return error(INVALID_ID) };
        self.with(key, int(0), |stream| {
            let kept = stream.entries.split_off(&below);
            let gone = std::mem::replace(&mut stream.entries, kept);
            int(gone.len())
        })
    }

    /// A stream that a group is created on.
    pub(super) fn stream_or_new(&mut self, key: &[u8]) -> Result<&mut StreamKey, Value> {
        match self.keys.entry(key.to_vec()).or_insert_with(|| Key::Stream(StreamKey::default())) {
            Key::Stream(stream) => Ok(stream),
            Key::Hash(_) | Key::Text => Err(error(WRONG_TYPE)),
        }
    }
}
