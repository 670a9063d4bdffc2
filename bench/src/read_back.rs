//! Reading Redis streams: page by page afterwards, or blocking while entries arrive.

use countwheel::kernel::{id::OccurrenceId, time::UnixMs};
use redis::{Connection, FromRedisValue, Value};

use crate::error::BenchError;

/// Entries a page.
const PAGE: usize = 2_000;

/// The three fields of an entry.
pub(crate) struct Entry {
    pub(crate) id: Vec<u8>,
    pub(crate) occurrence_id: Vec<u8>,
    pub(crate) meta: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

impl Entry {
    /// Its occurrence.
    pub(crate) fn occurrence(&self) -> Result<OccurrenceId, BenchError> {
        let text = String::from_utf8_lossy(&self.occurrence_id);
        text.parse().map_err(|_| BenchError::Reply(text.into_owned()))
    }

    /// `available_at`, the sixth word of `meta`.
    pub(crate) fn available_at(&self) -> Result<UnixMs, BenchError> {
        let meta = String::from_utf8_lossy(&self.meta);
        let word = meta.split(' ').nth(5).and_then(|word| word.parse().ok());
        word.map(UnixMs).ok_or_else(|| BenchError::Reply(meta.into_owned()))
    }
}

/// How many entries the streams hold together.
pub(crate) fn count(link: &mut Connection, streams: &[String]) -> Result<u64, BenchError> {
    let mut lengths = redis::pipe();
    for stream in streams {
        lengths.cmd("XLEN").arg(stream);
    }
    let lengths: Vec<u64> = lengths.query(link)?;
    Ok(lengths.iter().sum())
}

/// Hands every entry of `stream` to `each`, oldest first.
pub(crate) fn read_all(
    link: &mut Connection,
    stream: &str,
    mut each: impl FnMut(Entry) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let mut from = b"-".to_vec();
    loop {
        let page = redis::cmd("XRANGE").arg(stream).arg(&from).arg("+").arg("COUNT").arg(PAGE).query::<Value>(link)?;
        let entries = entries(page)?;
        let Some(last) = entries.last() else { return Ok(()) };
        from.clear();
        from.push(b'(');
        from.extend_from_slice(&last.id);
        for entry in entries {
            each(entry)?;
        }
    }
}

/// What arrives in any of the streams behind the `(key, last id)` given, waiting at most half a second for it. The ids
/// move on. `arrived` is called once between the answer and looking into it.
pub(crate) fn wait_for_more(
    link: &mut Connection,
    streams: &mut [(String, Vec<u8>)],
    arrived: impl FnOnce(),
) -> Result<Vec<Entry>, BenchError> {
    let mut read = redis::cmd("XREAD");
    read.arg("COUNT").arg(PAGE).arg("BLOCK").arg(500).arg("STREAMS");
    for (key, _) in streams.iter() {
        read.arg(key);
    }
    for (_, last) in streams.iter() {
        read.arg(last);
    }
    let answer: Value = read.query(link)?;
    arrived();
    let mut all = Vec::new();
    let Value::Array(answers) = answer else { return Ok(all) };
    for answer in answers {
        let (key, entries_of): (String, Value) =
            FromRedisValue::from_redis_value(answer).map_err(redis::RedisError::from)?;
        let entries = entries(entries_of)?;
        if let (Some(last), Some(stream)) = (entries.last(), streams.iter_mut().find(|(name, _)| *name == key)) {
            stream.1.clone_from(&last.id);
        }
        all.extend(entries);
    }
    Ok(all)
}

fn entries(page: Value) -> Result<Vec<Entry>, BenchError> {
    let Value::Array(entries) = page else { return Err(BenchError::Reply(format!("{page:?}"))) };
    entries.into_iter().map(entry).collect()
}

fn entry(value: Value) -> Result<Entry, BenchError> {
    let shown = || BenchError::Reply("something else".into());
    let Value::Array(parts) = value else { return Err(shown()) };
    let Ok([Value::BulkString(id), Value::Array(fields)]) = <[Value; 2]>::try_from(parts) else {
        return Err(shown());
    };
    let Ok([_, occurrence_id, _, meta, _, payload]) = <[Value; 6]>::try_from(fields) else { return Err(shown()) };
    match (occurrence_id, meta, payload) {
        (Value::BulkString(occurrence_id), Value::BulkString(meta), Value::BulkString(payload)) => {
            Ok(Entry { id, occurrence_id, meta, payload })
        }
        _ => Err(shown()),
    }
}
