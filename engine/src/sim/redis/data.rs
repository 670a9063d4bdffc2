//! The data set and what commands do to it: a pure function of the data, the command and the time.

use std::collections::BTreeMap;

use redis::Value;

use super::{
    resp::{Words, bulk, error, int},
    streams::StreamKey,
};

/// A command's words.
pub(in crate::sim) type Command = Words;

/// The fields of an entry: names and values in turn.
pub(in crate::sim) type EntryFields = Vec<Vec<u8>>;

/// What stands under a key.
#[derive(Clone, Debug)]
pub(super) enum Key {
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    Stream(StreamKey),
    Text,
}

/// Everything that a server holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Data {
    pub(super) keys: BTreeMap<Vec<u8>, Key>,
}

pub(super) const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// Whether a command may change data.
pub(super) fn is_write(command: &Command) -> bool {
    matches!(
        name(command).as_str(),
        "XADD"
            | "XDEL"
            | "XSETID"
            | "XTRIM"
            | "XACK"
            | "XREADGROUP"
            | "XAUTOCLAIM"
            | "XGROUP"
            | "HSET"
            | "DEL"
            | "FLUSHALL"
            | "SET"
    )
}

/// Whether a command is refused when memory is short.
pub(super) fn takes_memory(command: &Command) -> bool {
    matches!(name(command).as_str(), "XADD" | "XSETID" | "HSET" | "XGROUP" | "SET")
}

/// A command's name.
pub(super) fn name(command: &Command) -> String {
    command.first().map(|word| String::from_utf8_lossy(word).to_ascii_uppercase()).unwrap_or_default()
}

impl Data {
    /// Runs a command.
    pub(super) fn run(&mut self, command: &Command, now_ms: u64) -> Value {
        let words: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
        match (name(command).as_str(), &words[1..]) {
            ("HSET", [key, pairs @ ..]) => self.set_fields(key, pairs),
            ("HGETALL", [key]) => match self.keys.get(*key) {
                None => Value::Array(Vec::new()),
                Some(Key::Hash(hash)) => {
                    Value::Array(hash.iter().flat_map(|(name, value)| [bulk(name), bulk(value)]).collect())
                }
                Some(_) => error(WRONG_TYPE),
            },
            ("SET", [key, _]) => {
                self.keys.insert(key.to_vec(), Key::Text);
                Value::Okay
            }
            ("DEL", keys) => int(keys.iter().filter(|key| self.keys.remove(**key).is_some()).count()),
            ("FLUSHALL", []) => {
                self.keys.clear();
                Value::Okay
            }
            ("XADD", [key, rest @ ..]) => self.add(key, rest),
            ("XSETID", [key, id]) => self.set_id(key, id),
            ("XINFO", [what, key]) if what.eq_ignore_ascii_case(b"STREAM") => self.describe(key),
            ("XINFO", [what, key]) if what.eq_ignore_ascii_case(b"GROUPS") => self.describe_groups(key),
            ("XLEN", [key]) => self.with(key, int(0), |stream| int(stream.entries.len())),
            ("XRANGE", [key, from, to, rest @ ..]) => self.range(key, from, to, rest),
            ("XDEL", [key, ids @ ..]) => self.delete(key, ids),
            ("XTRIM", [key, _minid, _exact, id]) => self.trim(key, id),
            ("XACK", [key, group, ids @ ..]) => self.acknowledge(key, group, ids),
            ("XPENDING", [key, group]) => self.pending(key, group),
            ("XGROUP", [what, key, group, rest @ ..]) if what.eq_ignore_ascii_case(b"CREATE") => {
                self.create_group(key, group, rest)
            }
            ("XGROUP", [what, key, group]) if what.eq_ignore_ascii_case(b"DESTROY") => self.destroy_group(key, group),
            ("XREADGROUP", [_group, group, consumer, _count, count, _streams, rest @ ..]) => {
                self.read_group(group, consumer, count, rest, now_ms)
            }
            ("XAUTOCLAIM", [key, group, consumer, idle_ms, start, _count, count]) => {
                self.autoclaim(key, (group, consumer), (idle_ms, start, count), now_ms)
            }
            (other, _) => error(&format!("ERR unknown command '{other}'")),
        }
    }

    fn set_fields(&mut self, key: &[u8], pairs: &[&[u8]]) -> Value {
        let hash = self.keys.entry(key.to_vec()).or_insert_with(|| Key::Hash(BTreeMap::new()));
        let Key::Hash(hash) = hash else { return error(WRONG_TYPE) };
        let (pairs, _) = pairs.as_chunks::<2>();
        int(pairs.iter().filter(|[name, value]| hash.insert(name.to_vec(), value.to_vec()).is_none()).count())
    }

    /// Asks a stream; `missing` where there is none.
    pub(super) fn with(&mut self, key: &[u8], missing: Value, ask: impl FnOnce(&mut StreamKey) -> Value) -> Value {
        match self.keys.get_mut(key) {
            None => missing,
            Some(Key::Stream(stream)) => ask(stream),
            Some(_) => error(WRONG_TYPE),
        }
    }

    /// Every stream.
    pub(super) fn streams(&self) -> impl Iterator<Item = (&Vec<u8>, &StreamKey)> {
        self.keys.iter().filter_map(|(key, value)| match value {
            Key::Stream(stream) => Some((key, stream)),
            Key::Hash(_) | Key::Text => None,
        })
    }
}
