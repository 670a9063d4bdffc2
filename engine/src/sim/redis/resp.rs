//! Bytes of the Redis protocol as commands, and answers as values.

use redis::Value;

/// The words of a command.
pub(in crate::sim) type Words = Vec<Vec<u8>>;

/// A command from text.
pub(in crate::sim) fn command(words: &[&[u8]]) -> Words {
    words.iter().map(|word| word.to_vec()).collect()
}

/// Takes the commands off a request; what is left is not whole.
pub(super) fn split(bytes: &[u8]) -> Vec<Words> {
    let (mut all, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let Some((words, next)) = one(bytes, at) else { break };
        all.push(words);
        at = next;
    }
    all
}

fn one(bytes: &[u8], at: usize) -> Option<(Words, usize)> {
    let (count, mut at) = number(bytes, at, b'*')?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let (length, start) = number(bytes, at, b'$')?;
        words.push(bytes.get(start..start + length)?.to_vec());
        at = start + length + 2;
    }
    Some((words, at))
}

fn number(bytes: &[u8], at: usize, mark: u8) -> Option<(usize, usize)> {
    let rest = bytes.get(at..)?;
    if *rest.first()? != mark {
        return None;
    }
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    Some((std::str::from_utf8(&rest[1..end]).ok()?.parse().ok()?, at + end + 2))
}

/// An error reply.
pub(super) fn error(text: &str) -> Value {
    redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).expect("an error reply is one line")
}

pub(super) fn bulk(bytes: &[u8]) -> Value {
    Value::BulkString(bytes.to_vec())
}

pub(super) fn int(count: usize) -> Value {
    Value::Int(i64::try_from(count).unwrap_or(i64::MAX))
}
