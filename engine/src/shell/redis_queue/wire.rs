//! How commands and entries become bytes of the Redis protocol (RESP).
//!
//! An entry is encoded in two pieces, since its id is known last: its fields ahead of time ([`push_fields`]), and in
//! front of them, when it is sent, the command with key and id ([`Head`]). Nothing here goes through `format!`: a
//! burst encodes half a million of these.
//!
//! ```text
//! *10 XADD <key> NOMKSTREAM <generation>-<counter>          head
//!     occurrence_id <uuid> meta <meta> payload <bytes>      fields
//! meta = 1 <schedule_id> <version> <kind> <scheduled_for ms> <available_at ms> <attempt> <tenant>
//! ```

use uuid::Uuid;

use crate::kernel::occurrence::{Entry, EntryId};

const CRLF: &[u8] = b"\r\n";

/// How long a hyphenated UUID is.
const UUID_BYTES: usize = 36;

/// A number's decimal text and CRLF behind `mark` (`$` a string of so many bytes, `*` an array of so many parts).
fn push_length(out: &mut Vec<u8>, mark: u8, length: usize) {
    out.push(mark);
    out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    out.extend_from_slice(CRLF);
}

/// A bulk string.
fn push_bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    push_length(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(CRLF);
}

/// A whole command.
pub(super) fn push_command(out: &mut Vec<u8>, parts: &[&[u8]]) {
    push_length(out, b'*', parts.len());
    for part in parts {
        push_bulk(out, part);
    }
}

/// Commands that are sent in one go; as many answers come back.
#[derive(Default)]
pub(crate) struct Commands {
    /// What goes over the wire.
    pub(super) bytes: Vec<u8>,
    /// How many answers it asks for.
    pub(super) count: usize,
}

impl Commands {
    /// One more command.
    pub(crate) fn add(&mut self, parts: &[&[u8]]) {
        push_command(&mut self.bytes, parts);
        self.count += 1;
    }
}

/// The three fields of an entry, as they stand behind its id.
pub(super) fn push_fields(out: &mut Vec<u8>, entry: &Entry<'_>) {
    let mut uuid = [0; UUID_BYTES];
    out.extend_from_slice(b"$13\r\noccurrence_id\r\n$36\r\n");
    out.extend_from_slice(hyphenated(entry.occurrence_id.0, &mut uuid));
    out.extend_from_slice(b"\r\n$4\r\nmeta\r\n");

    let mut digits = std::array::from_fn::<_, 4, _>(|_| itoa::Buffer::new());
    let [version, scheduled_for, available_at, attempt] = &mut digits;
    let version = version.format(entry.version).as_bytes();
    let scheduled_for = scheduled_for.format(entry.scheduled_for.0).as_bytes();
    let available_at = available_at.format(entry.available_at.0).as_bytes();
    let attempt = attempt.format(entry.attempt).as_bytes();
    let kind = [b'0' + entry.kind.byte()];
    let words: [&[u8]; 8] = [
        b"1",
        hyphenated(entry.schedule_id.0, &mut uuid),
        version,
        &kind,
        scheduled_for,
        available_at,
        attempt,
        entry.tenant.as_bytes(),
    ];
    push_length(out, b'$', words.iter().map(|word| word.len()).sum::<usize>() + words.len() - 1);
    for (place, word) in words.into_iter().enumerate() {
        if place > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(word);
    }
    out.extend_from_slice(b"\r\n$7\r\npayload\r\n");
    push_bulk(out, entry.payload);
}

fn hyphenated(id: [u8; 16], text: &mut [u8; UUID_BYTES]) -> &[u8] {
    Uuid::from_bytes(id).hyphenated().encode_lower(text).as_bytes()
}

/// What stands before the fields of every entry of one stream in one generation.
pub(super) struct Head {
    key: Vec<u8>,
    /// `<generation>-`
    generation: Vec<u8>,
    /// Everything up to the counter, for counters of so many digits.
    bytes: Vec<u8>,
    digits: usize,
}

impl Head {
    pub(super) fn new(key: &[u8], generation: u64) -> Self {
        let mut text = itoa::Buffer::new().format(generation).as_bytes().to_vec();
        text.push(b'-');
        let mut head = Self { key: key.to_vec(), generation: text, bytes: Vec::new(), digits: 0 };
        head.fit(1);
        head
    }

    fn fit(&mut self, digits: usize) {
        self.digits = digits;
        self.bytes.clear();
        push_length(&mut self.bytes, b'*', 10);
        push_bulk(&mut self.bytes, b"XADD");
        push_bulk(&mut self.bytes, &self.key);
        push_bulk(&mut self.bytes, b"NOMKSTREAM");
        push_length(&mut self.bytes, b'$', self.generation.len() + digits);
        self.bytes.extend_from_slice(&self.generation);
    }

    /// The command up to and with the id `<generation>-<counter>`.
    pub(super) fn push(&mut self, out: &mut Vec<u8>, counter: u64) {
        let mut digits = itoa::Buffer::new();
        let text = digits.format(counter).as_bytes();
        if text.len() != self.digits {
            self.fit(text.len());
        }
        out.extend_from_slice(&self.bytes);
        out.extend_from_slice(text);
        out.extend_from_slice(CRLF);
    }
}

/// An id's text.
pub(super) fn id_text(id: EntryId) -> Vec<u8> {
    id.to_string().into_bytes()
}

/// Reads `<generation>-<counter>`.
pub(super) fn parse_id(text: &[u8]) -> Option<EntryId> {
    let (generation, counter) = std::str::from_utf8(text).ok()?.split_once('-')?;
    Some(EntryId { generation: generation.parse().ok()?, counter: counter.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{
        id::{Kind, OccurrenceId, ScheduleId},
        occurrence::{Lane, OccurrenceNo, QueueNo, Stream},
        time::UnixMs,
    };

    #[test]
    fn an_entry_is_one_command_with_three_fields() {
        let mut out = Vec::new();
        let mut head = Head::new(b"cw:{billing.3}:strict", 7);
        head.push(&mut out, 12);
        push_fields(
            &mut out,
            &Entry {
                number: OccurrenceNo(1),
                stream: Stream { queue: QueueNo(0), lane: Lane::Strict },
                occurrence_id: OccurrenceId([0xab; 16]),
                schedule_id: ScheduleId([0x01; 16]),
                version: 4,
                kind: Kind::Manual,
                scheduled_for: UnixMs(1_793_511_000_000),
                available_at: UnixMs(1_793_511_000_250),
                attempt: 2,
                tenant_number: 0,
                tenant: "acme",
                payload: b"a\r\n\0b",
            },
        );
        let meta = "1 01010101-0101-0101-0101-010101010101 4 1 1793511000000 1793511000250 2 acme";
        let expected = format!(
            "*10\r\n$4\r\nXADD\r\n$21\r\ncw:{{billing.3}}:strict\r\n$10\r\nNOMKSTREAM\r\n$4\r\n7-12\r\n\
             $13\r\noccurrence_id\r\n$36\r\nabababab-abab-abab-abab-abababababab\r\n\
             $4\r\nmeta\r\n${}\r\n{meta}\r\n$7\r\npayload\r\n$5\r\na\r\n\0b\r\n",
            meta.len()
        );
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_head_follows_the_width_of_the_counter() {
        let mut head = Head::new(b"k", 10);
        for counter in [9, 10, 99, 100, 9, u64::MAX] {
            let mut out = Vec::new();
            head.push(&mut out, counter);
            let id = format!("10-{counter}");
            let tail = format!("NOMKSTREAM\r\n${}\r\n{id}\r\n", id.len());
            assert!(out.ends_with(tail.as_bytes()), "{counter}");
        }
    }

    #[test]
    fn an_id_reads_back_and_nothing_else_does() {
        let id = EntryId { generation: 3, counter: u64::MAX };
        assert_eq!(parse_id(&id_text(id)), Some(id));
        for bad in ["", "1", "1-", "-1", "1-2-3", "a-1", "1-18446744073709551616", "1 -2"] {
            assert_eq!(parse_id(bad.as_bytes()), None, "{bad}");
        }
    }
}
