//! How records lie in the body of a batch: `kind u8`, length as a varint, then that many bytes.
//!
//! A record has no checksum of its own, since the batch has one. Bit 7 of the kind says that a reader which does not
//! know the kind may skip the record. The varint is LEB128 in its shortest form: anything else is malformed.

use thiserror::Error;

/// Set in a record's kind: a reader that does not know the kind may skip it.
pub const IGNORABLE: u8 = 0x80;

/// A buffer of encoded records, to be handed to the log in one piece.
///
/// ```
/// let mut records = countwheel_wal::Records::new();
/// records.push(1, b"hello");
/// assert_eq!((records.len(), records.byte_len()), (1, 7));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Records {
    bytes: Vec<u8>,
    count: usize,
    largest_bytes: usize,
}

impl Records {
    /// An empty buffer.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), count: 0, largest_bytes: 0 }
    }

    /// Adds one record behind the others.
    pub fn push(&mut self, kind: u8, body: &[u8]) {
        let start = self.bytes.len();
        self.bytes.push(kind);
        push_varint(&mut self.bytes, body.len() as u64);
        self.bytes.extend_from_slice(body);
        self.count += 1;
        self.largest_bytes = self.largest_bytes.max(self.bytes.len() - start);
    }

    /// How many records there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many bytes they take in a batch.
    #[must_use]
    pub const fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// How many bytes the largest of them takes in a batch.
    #[must_use]
    pub const fn largest_bytes(&self) -> usize {
        self.largest_bytes
    }

    /// Forgets the records and keeps the allocation.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
        self.largest_bytes = 0;
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Why the bytes of a body are not a row of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum MalformedRecord {
    #[error("a record that ends within its length")]
    NoLength,
    #[error("a record length that is not in its shortest form")]
    LongLength,
    #[error("a record of {length} bytes where {left} are left")]
    Overrun { length: u64, left: usize },
}

/// Splits the first record off `body`: its kind, its bytes, and what follows.
pub(crate) fn split_first(body: &[u8]) -> Result<(u8, &[u8], &[u8]), MalformedRecord> {
    let (&kind, rest) = body.split_first().ok_or(MalformedRecord::NoLength)?;
    let (length, rest) = split_varint(rest)?;
    if length > rest.len() as u64 {
        return Err(MalformedRecord::Overrun { length, left: rest.len() });
    }
    let (record, rest) = rest.split_at(length as usize);
    Ok((kind, record, rest))
}

fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn split_varint(bytes: &[u8]) -> Result<(u64, &[u8]), MalformedRecord> {
    let mut value = 0_u64;
    // Five groups of seven bits hold any length a body can have; a longer varint is never ours.
    for (index, &byte) in bytes.iter().take(5).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            let is_shortest = index == 0 || byte != 0;
            let rest = &bytes[index + 1..];
            return if is_shortest { Ok((value, rest)) } else { Err(MalformedRecord::LongLength) };
        }
    }
    Err(if bytes.len() < 5 { MalformedRecord::NoLength } else { MalformedRecord::LongLength })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_record_is_its_kind_its_length_and_its_bytes() {
        let mut records = Records::new();
        records.push(7, b"ab");
        records.push(IGNORABLE | 1, &[9; 200]);
        assert_eq!(records.bytes()[..4], [7, 2, b'a', b'b']);
        assert_eq!(records.bytes()[4..7], [0x81, 0xc8, 0x01]);
        assert_eq!((records.len(), records.byte_len(), records.largest_bytes()), (2, 207, 203));
    }

    #[test]
    fn lengths_that_lie_are_errors() {
        assert_eq!(split_first(&[]), Err(MalformedRecord::NoLength));
        assert_eq!(split_first(&[1]), Err(MalformedRecord::NoLength));
        assert_eq!(split_first(&[1, 0x80]), Err(MalformedRecord::NoLength));
        assert_eq!(split_first(&[1, 0x80, 0]), Err(MalformedRecord::LongLength));
        assert_eq!(split_first(&[1, 0xff, 0xff, 0xff, 0xff, 0xff, 1]), Err(MalformedRecord::LongLength));
        assert_eq!(split_first(&[1, 3, 0, 0]), Err(MalformedRecord::Overrun { length: 3, left: 2 }));
    }

    proptest! {
        #[test]
        fn what_is_pushed_is_split_off_again(bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20)) {
            let mut records = Records::new();
            for (index, body) in bodies.iter().enumerate() {
                records.push(index as u8, body);
            }
            let mut rest = records.bytes();
            for (index, body) in bodies.iter().enumerate() {
                let (kind, found, after) = split_first(rest).unwrap();
                prop_assert_eq!((kind, found), (index as u8, body.as_slice()));
                rest = after;
            }
            prop_assert!(rest.is_empty());
        }
    }
}
