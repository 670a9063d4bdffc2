//! An entry of a stream, read without trusting its shape.

use std::{collections::HashSet, sync::Arc};

use redis::Value;

use crate::kernel::{
    id::{Kind, OccurrenceId, ScheduleId},
    time::UnixMs,
};

/// Where an entry stands: key of the stream, id of the entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) key: Arc<str>,
    pub(super) id: Vec<u8>,
}

/// What an entry says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) occurrence_id: OccurrenceId,
    pub(super) schedule_id: ScheduleId,
    pub(super) version: u32,
    pub(super) kind: Kind,
    pub(super) scheduled_for: UnixMs,
    pub(super) available_at: UnixMs,
    pub(super) attempt: u32,
    pub(super) tenant: String,
    pub(super) payload: Vec<u8>,
}

/// What this consumer was given.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    pub(super) place: Place,
    pub(super) told: Told,
}

/// What stands at one place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    Told(Told),
    /// Somebody removed the entry; only the group still knows of it.
    Gone,
    /// Nothing that this version understands.
    Odd,
}

/// Entries, as XREADGROUP gives them for one stream and XAUTOCLAIM in its second part; `None`: this is no such answer.
pub(super) fn entries(answer: &Value, key: &Arc<str>) -> Option<Vec<(Place, Content)>> {
    let Value::Array(entries) = answer else { return None };
    let one = |entry: &Value| {
        let Value::Array(parts) = entry else { return None };
        let [Value::BulkString(id), fields] = parts.as_slice() else { return None };
        Some((Place { key: Arc::clone(key), id: id.clone() }, content(fields)))
    };
    entries.iter().map(one).collect()
}

/// What XREADGROUP answers: streams by key, each with its entries. Nil: nothing.
pub(super) fn streams(answer: &Value, keys: &HashSet<Arc<str>>) -> Option<Vec<(Place, Content)>> {
    let streams = match answer {
        Value::Nil => return Some(Vec::new()),
        Value::Array(streams) => streams,
        _ => return None,
    };
    let mut all = Vec::new();
    for stream in streams {
        let Value::Array(parts) = stream else { return None };
        let [Value::BulkString(key), of_key] = parts.as_slice() else { return None };
        let key = keys.get(std::str::from_utf8(key).ok()?)?;
        all.extend(entries(of_key, key)?);
    }
    Some(all)
}

fn content(fields: &Value) -> Content {
    match fields {
        Value::Nil => Content::Gone,
        Value::Array(fields) => told(fields).map_or(Content::Odd, Content::Told),
        _ => Content::Odd,
    }
}

fn told(fields: &[Value]) -> Option<Told> {
    let field = |name: &[u8]| {
        fields.chunks_exact(2).find_map(|pair| match pair {
            [Value::BulkString(key), Value::BulkString(value)] if key == name => Some(value.as_slice()),
            _ => None,
        })
    };
    let text = |name| std::str::from_utf8(field(name)?).ok();
    let occurrence_id = text(b"occurrence_id")?.parse().ok()?;
    let parts: Vec<&str> = text(b"meta")?.split(' ').collect();
    let ["1", schedule_id, version, kind, scheduled_for, available_at, attempt, tenant] = parts[..] else {
        return None;
    };
    Some(Told {
        occurrence_id,
        schedule_id: schedule_id.parse().ok()?,
        version: version.parse().ok()?,
        kind: match kind {
            "0" => Kind::Regular,
            "1" => Kind::Manual,
            "2" => Kind::Backfill,
            _ => return None,
        },
        scheduled_for: UnixMs(scheduled_for.parse().ok()?),
        available_at: UnixMs(available_at.parse().ok()?),
        attempt: attempt.parse().ok()?,
        tenant: tenant.to_owned(),
        payload: field(b"payload")?.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const META: &str = "1 3f0c2b1a-5d4e-4f60-8a7b-9c0d1e2f3a4b 2 0 1793511000000 1793511000500 3 acme";
    const ID: &str = "019c8f2a-1c40-8a3b-9d5e-0f6b7c8d9e10";

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn entry(id: &str, fields: &[&str]) -> Value {
        Value::Array(vec![bulk(id), Value::Array(fields.iter().map(|field| bulk(field)).collect())])
    }

    fn read(fields: &[&str]) -> Content {
        let all = entries(&Value::Array(vec![entry("7-1", fields)]), &"k".into()).expect("an answer");
        all.into_iter().next().expect("an entry").1
    }

    #[test]
    fn an_entry_is_read_as_the_engine_writes_it() {
        let Content::Told(told) = read(&["occurrence_id", ID, "meta", META, "payload", "{}"]) else { panic!("odd") };
        assert_eq!((told.occurrence_id.to_string().as_str(), told.version, told.attempt), (ID, 2, 3));
        assert_eq!((told.scheduled_for, told.available_at), (UnixMs(1_793_511_000_000), UnixMs(1_793_511_000_500)));
        assert_eq!(
            (told.tenant.as_str(), told.payload.as_slice(), told.kind),
            ("acme", b"{}".as_slice(), Kind::Regular)
        );
    }

    #[test]
    fn what_is_not_understood_is_odd_and_never_a_panic() {
        let later = META.replacen('1', "2", 1);
        for meta in [later.as_str(), "", "1", "1 2 3 4 5 6 7 8", &META.replace(" 0 ", " 9 "), &format!("{META} more")] {
            assert_eq!(read(&["occurrence_id", ID, "meta", meta, "payload", ""]), Content::Odd, "{meta}");
        }
        assert_eq!(read(&["occurrence_id", "x", "meta", META, "payload", ""]), Content::Odd);
        assert_eq!(read(&["occurrence_id", ID, "meta", META]), Content::Odd, "no payload");
        assert_eq!(read(&["occurrence_id"]), Content::Odd);
    }

    #[test]
    fn an_entry_that_was_removed_is_gone() {
        let answer = Value::Array(vec![Value::Array(vec![bulk("7-1"), Value::Nil])]);
        assert_eq!(entries(&answer, &"k".into()).expect("an answer")[0].1, Content::Gone);
    }

    #[test]
    fn streams_are_told_apart_and_answers_of_another_shape_are_none() {
        let keys: HashSet<Arc<str>> = ["a".into(), "b".into()].into();
        let of = |key: &str| Value::Array(vec![bulk(key), Value::Array(vec![entry("1-1", &[])])]);
        let all = streams(&Value::Array(vec![of("b"), of("a")]), &keys).expect("an answer");
        assert_eq!(all.iter().map(|(place, _)| &*place.key).collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!(streams(&Value::Nil, &keys), Some(Vec::new()));
        for odd in [Value::Int(1), Value::Array(vec![of("c")]), Value::Array(vec![Value::Nil])] {
            assert_eq!(streams(&odd, &keys), None);
        }
    }
}
