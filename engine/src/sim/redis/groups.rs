//! Consumer groups: who was given what, and who has acknowledged it.

use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Unbounded},
};

use redis::Value;

use super::{
    data::{Data, Key, WRONG_TYPE},
    resp::{bulk, error, int},
    streams::{StreamKey, entry, id, shown},
};
use crate::kernel::occurrence::EntryId;

const NEEDS_KEY: &str = "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to \
                         use the MKSTREAM option to create an empty stream automatically.";

/// One consumer group.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    pub(super) last_delivered: EntryId,
    pub(super) pending: BTreeMap<EntryId, Given>,
}

/// An entry that was given and not acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Given {
    consumer: Vec<u8>,
    at_ms: u64,
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn no_group(key: &[u8], group: &[u8], suffix: &str) -> Value {
    let (key, group) = (String::from_utf8_lossy(key), String::from_utf8_lossy(group));
    error(&format!("NOGROUP No such key '{key}' or consumer group '{group}'{suffix}"))
}

impl Data {
    fn group(&mut self, key: &[u8], group: &[u8], suffix: &str) -> Result<(&mut StreamKey, Vec<u8>), Value> {
        match self.keys.get_mut(key) {
            Some(Key::Stream(stream)) if stream.groups.contains_key(group) => Ok((stream, group.to_vec())),
            None | Some(Key::Stream(_)) => Err(no_group(key, group, suffix)),
            Some(Key::Hash(_) | Key::Text) => Err(error(WRONG_TYPE)),
        }
    }

    pub(super) fn create_group(&mut self, key: &[u8], group: &[u8], rest: &[&[u8]]) -> Value {
        let is_there = self.keys.contains_key(key);
        if !is_there && !rest.iter().any(|word| word.eq_ignore_ascii_case(b"MKSTREAM")) {
            return error(NEEDS_KEY);
        }
        let Some(from) = rest.first().and_then(|text| id(text, 0)) else {
            return error("ERR Invalid stream ID specified as stream command argument");
        };
        let stream = match self.stream_or_new(key) {
            Ok(stream) => stream,
            Err(error) => return error,
        };
        if stream.groups.contains_key(group) {
            return error("BUSYGROUP Consumer Group name already exists");
        }
        stream.groups.insert(group.to_vec(), Group { last_delivered: from, pending: BTreeMap::new() });
        Value::Okay
    }

    pub(super) fn destroy_group(&mut self, key: &[u8], group: &[u8]) -> Value {
        let missing = error(NEEDS_KEY);
        self.with(key, missing, |stream| int(usize::from(stream.groups.remove(group).is_some())))
    }

    pub(super) fn describe_groups(&mut self, key: &[u8]) -> Value {
        self.with(key, error("ERR no such key"), |stream| {
            let groups = stream.groups.iter().map(|(name, group)| {
                Value::Array(vec![
                    bulk(b"name"),
                    bulk(name),
                    bulk(b"pending"),
                    int(group.pending.len()),
                    bulk(b"last-delivered-id"),
                    shown(group.last_delivered),
                ])
            });
            Value::Array(groups.collect())
        })
    }

    pub(super) fn acknowledge(&mut self, key: &[u8], group: &[u8], ids: &[&[u8]]) -> Value {
        self.with(key, int(0), |stream| {
            let Some(group) = stream.groups.get_mut(group) else { return int(0) };
            int(ids.iter().filter_map(|text| group.pending.remove(&id(text, 0)?)).count())
        })
    }

    pub(super) fn pending(&mut self, key: &[u8], name: &[u8]) -> Value {
        let stream = match self.group(key, name, "") {
            Ok((stream, _)) => stream,
            Err(refusal) => return refusal,
        };
        let pending = &stream.groups[name].pending;
        let Some(((first, _), (last, _))) = pending.first_key_value().zip(pending.last_key_value()) else {
            return Value::Array(vec![int(0), Value::Nil, Value::Nil, Value::Nil]);
        };
        let mut by_consumer: BTreeMap<&[u8], usize> = BTreeMap::new();
        for given in pending.values() {
            *by_consumer.entry(&given.consumer).or_default() += 1;
        }
        let consumers = by_consumer.into_iter();
        let consumers =
            consumers.map(|(name, count)| Value::Array(vec![bulk(name), bulk(count.to_string().as_bytes())]));
        Value::Array(vec![int(pending.len()), shown(*first), shown(*last), Value::Array(consumers.collect())])
    }

    /// `keys... ids...`, as many of the one as of the other.
    pub(super) fn read_group(
        &mut self,
        name: &[u8],
        consumer: &[u8],
        count: &[u8],
        rest: &[&[u8]],
        now_ms: u64,
    ) -> Value {
        let count = number(count).and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
        let (keys, ids) = rest.split_at(rest.len() / 2);
        for key in keys {
            if let Err(refusal) = self.group(key, name, " in XREADGROUP with GROUP option") {
                return refusal;
            }
        }
        let mut answers = Vec::new();
        for (key, from) in keys.iter().zip(ids) {
            let Ok((stream, name)) = self.group(key, name, "") else { continue };
            let entries = match id(from, 0) {
                Some(from) => history(stream, &name, consumer, from, count),
                None => deliver(stream, &name, consumer, count, now_ms),
            };
            if !entries.is_empty() || *from != b">" {
                answers.push(Value::Array(vec![bulk(key), Value::Array(entries)]));
            }
        }
        if answers.is_empty() { Value::Nil } else { Value::Array(answers) }
    }

    pub(super) fn autoclaim(
        &mut self,
        key: &[u8],
        (name, consumer): (&[u8], &[u8]),
        (idle_ms, start, count): (&[u8], &[u8], &[u8]),
        now_ms: u64,
    ) -> Value {
        let (stream, name) = match self.group(key, name, "") {
            Ok(found) => found,
            Err(refusal) => return refusal,
        };
        let (Some(start), Some(idle_ms), Some(count)) = (id(start, 0), number(idle_ms), number(count)) else {
            return error("ERR Invalid stream ID specified as stream command argument");
        };
        let (mut claimed, mut deleted) = (Vec::new(), Vec::new());
        let StreamKey { groups, entries, .. } = stream;
        let pending = &mut groups.get_mut(&name).expect("it was just found").pending;
        let mut scanned = pending.range(start..).map(|(id, _)| *id).collect::<Vec<_>>().into_iter();
        let mut attempts = count.saturating_mul(10);
        let mut left = count;
        while left > 0
            && attempts > 0
            && let Some(id) = scanned.next()
        {
            attempts -= 1;
            let Some(fields) = entries.get(&id) else {
                pending.remove(&id);
                deleted.push(shown(id));
                left -= 1;
                continue;
            };
            let given = pending.get_mut(&id).expect("it was just found");
            if now_ms.saturating_sub(given.at_ms) >= idle_ms {
                *given = Given { consumer: consumer.to_vec(), at_ms: now_ms };
                claimed.push(entry(id, fields));
                left -= 1;
            }
        }
        let cursor = scanned.next().unwrap_or_default();
        Value::Array(vec![shown(cursor), Value::Array(claimed), Value::Array(deleted)])
    }
}

/// What a consumer was given and has not acknowledged.
fn history(stream: &StreamKey, name: &[u8], consumer: &[u8], from: EntryId, count: usize) -> Vec<Value> {
    let behind = stream.groups[name].pending.range((Excluded(from), Unbounded));
    let mine = behind.filter(|(_, given)| given.consumer == consumer).take(count);
    mine.map(|(id, _)| match stream.entries.get(id) {
        Some(fields) => entry(*id, fields),
        None => Value::Array(vec![shown(*id), Value::Nil]),
    })
    .collect()
}

/// What nobody of the group was given yet.
fn deliver(stream: &mut StreamKey, name: &[u8], consumer: &[u8], count: usize, now_ms: u64) -> Vec<Value> {
    let StreamKey { groups, entries, .. } = stream;
    let group = groups.get_mut(name).expect("it was just found");
    let behind = entries.range((Excluded(group.last_delivered), Unbounded)).take(count);
    let mut given = Vec::new();
    for (id, fields) in behind {
        group.pending.insert(*id, Given { consumer: consumer.to_vec(), at_ms: now_ms });
        group.last_delivered = *id;
        given.push(entry(*id, fields));
    }
    given
}
