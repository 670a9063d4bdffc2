//! Who a log is: its id, the key that its checksums start from, and how far its segments go at least.
//!
//! ```text
//!  0 u8[4] magic "CWID"   4 u16 version   6 zeros
//!  8 u8[16] log_id       24 u8[16] log_key
//! 40 u64 created_wall_ms 48 u64 newest_segment_seq (0: the log has not begun)
//! 56 u32 crc32c(bytes 0..56)
//! ```
//!
//! The file is written when the directory is made, and anew for each segment: after the segment has its name, before
//! it takes its first batch. So no segment with records is newer than `newest_segment_seq` says, and a log whose last
//! segment is older has lost one, which is refused.

use std::fmt;

use crate::frame::{u16_at, u32_at, u64_at};

const MAGIC: [u8; 4] = *b"CWID";
const VERSION: u16 = 1;
/// How long the file is.
pub(crate) const IDENTITY_BYTES: usize = 60;
const CRC_AT: usize = IDENTITY_BYTES - 4;

/// The random id of a log; every segment and batch carries it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LogId(pub [u8; 16]);

/// Sixteen random bytes that every header checksum starts from, so that nobody who only chooses the bytes of records
/// can make them look like a header.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogKey {
    bytes: [u8; 16],
    crc: u32,
}

impl LogKey {
    pub(crate) fn new(bytes: [u8; 16]) -> Self {
        Self { bytes, crc: crc32c::crc32c(&bytes) }
    }

    /// CRC-32C over the key and then `bytes`.
    pub(crate) fn crc(&self, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(self.crc, bytes)
    }
}

/// The key stays out of logs and panics.
impl fmt::Debug for LogKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogKey(..)")
    }
}

impl fmt::Debug for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The contents of `IDENTITY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) log_id: LogId,
    pub(crate) key: LogKey,
    pub(crate) created_wall_ms: u64,
    /// This segment was there, and no later one holds records; 0 before the first.
    pub(crate) newest_segment_seq: u64,
}

/// Why bytes are not an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdentityFault {
    Length(usize),
    NoMagic,
    Checksum { expected: u32, found: u32 },
    Newer(u16),
}

impl Identity {
    pub(crate) fn encode(&self) -> [u8; IDENTITY_BYTES] {
        let mut out = [0; IDENTITY_BYTES];
        out[0..4].copy_from_slice(&MAGIC);
        out[4..6].copy_from_slice(&VERSION.to_le_bytes());
        out[8..24].copy_from_slice(&self.log_id.0);
        out[24..40].copy_from_slice(&self.key.bytes);
        out[40..48].copy_from_slice(&self.created_wall_ms.to_le_bytes());
        out[48..56].copy_from_slice(&self.newest_segment_seq.to_le_bytes());
        let crc = crc32c::crc32c(&out[..CRC_AT]);
        out[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, IdentityFault> {
        if bytes.len() != IDENTITY_BYTES {
            return Err(IdentityFault::Length(bytes.len()));
        }
        if bytes[0..4] != MAGIC {
            return Err(IdentityFault::NoMagic);
        }
        let (expected, found) = (crc32c::crc32c(&bytes[..CRC_AT]), u32_at(bytes, CRC_AT));
        if expected != found {
            return Err(IdentityFault::Checksum { expected, found });
        }
        if u16_at(bytes, 4) != VERSION {
            return Err(IdentityFault::Newer(u16_at(bytes, 4)));
        }
        let (mut log_id, mut key) = ([0; 16], [0; 16]);
        log_id.copy_from_slice(&bytes[8..24]);
        key.copy_from_slice(&bytes[24..40]);
        Ok(Self {
            log_id: LogId(log_id),
            key: LogKey::new(key),
            created_wall_ms: u64_at(bytes, 40),
            newest_segment_seq: u64_at(bytes, 48),
        })
    }

    /// Whether there must be a segment.
    pub(crate) const fn has_begun(&self) -> bool {
        self.newest_segment_seq > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_an_identity_is_covered() {
        let identity = Identity {
            log_id: LogId([1; 16]),
            key: LogKey::new([2; 16]),
            created_wall_ms: 1_793_511_000_000,
            newest_segment_seq: 3,
        };
        let bytes = identity.encode();
        assert_eq!(Identity::decode(&bytes), Ok(identity));
        for bit in 0..IDENTITY_BYTES * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Identity::decode(&flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn the_key_is_not_shown() {
        assert_eq!(format!("{:?}", LogKey::new([0xab; 16])), "LogKey(..)");
    }
}
