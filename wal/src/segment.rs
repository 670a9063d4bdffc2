//! What block 0 of a segment says: which log, which place in it, and what came before.
//!
//! ```text
//!   0 u8[8] magic "CWWAL\r\n\x1a"   8 u16 format_version   10 u16 min_reader_version   12 zeros
//!  16 u8[16] log_id                32 u64 segment_seq     40 u64 first_lsn            48 u64 first_batch_seq
//!  56 predecessor: u64 segment_seq, u64 last_lsn, u64 bytes, u32 last_head_crc        84 zeros
//!  88 u64 created_wall_ms          96 u64 bytes        104 zeros     4092 u32 crc32c(log_key || bytes 0..4092)
//! ```
//!
//! `bytes` is how long the file was made; it gets shorter only behind a SEAL, when the log is closed. Without a
//! predecessor its fields are zeros. Magic, versions and checksum keep their places in every later format,
//! so that a newer segment is refused by name and never mistaken for a damaged one.

use crate::frame::{BLOCK_BYTES, FORMAT_VERSION, u16_at, u32_at, u64_at};
use crate::identity::{LogId, LogKey};
use crate::lsn::Lsn;

const MAGIC: [u8; 8] = *b"CWWAL\r\n\x1a";
const CRC_AT: usize = BLOCK_BYTES - 4;

/// Segments longer than this are not ours; it bounds what a name on disk can make us read.
pub(crate) const MAX_SEGMENT_BYTES: u64 = 4 << 30;

/// What a segment says about the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Predecessor {
    pub(crate) segment_seq: u64,
    pub(crate) last_lsn: Lsn,
    /// Up to the end of its SEAL batch.
    pub(crate) bytes: u64,
    /// Of its SEAL batch.
    pub(crate) last_head_crc: u32,
}

/// The fields of block 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) log_id: LogId,
    pub(crate) segment_seq: u64,
    pub(crate) first_lsn: Lsn,
    pub(crate) first_batch_seq: u64,
    pub(crate) predecessor: Option<Predecessor>,
    pub(crate) created_wall_ms: u64,
    /// How long the file was made.
    pub(crate) bytes: u64,
}

/// Why a block is not a segment header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentFault {
    NoMagic,
    Checksum { expected: u32, found: u32 },
    Newer(u16),
}

impl SegmentHeader {
    /// The header of a log's first segment.
    pub(crate) const fn first(log_id: LogId, created_wall_ms: u64, bytes: u64) -> Self {
        Self {
            log_id,
            segment_seq: 1,
            first_lsn: Lsn::FIRST,
            first_batch_seq: 1,
            predecessor: None,
            created_wall_ms,
            bytes,
        }
    }

    pub(crate) fn encode(&self, key: &LogKey) -> [u8; BLOCK_BYTES] {
        let mut out = [0; BLOCK_BYTES];
        out[0..8].copy_from_slice(&MAGIC);
        out[8..10].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[10..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[16..32].copy_from_slice(&self.log_id.0);
        out[32..40].copy_from_slice(&self.segment_seq.to_le_bytes());
        out[40..48].copy_from_slice(&self.first_lsn.0.to_le_bytes());
        out[48..56].copy_from_slice(&self.first_batch_seq.to_le_bytes());
        if let Some(predecessor) = self.predecessor {
            out[56..64].copy_from_slice(&predecessor.segment_seq.to_le_bytes());
            out[64..72].copy_from_slice(&predecessor.last_lsn.0.to_le_bytes());
            out[72..80].copy_from_slice(&predecessor.bytes.to_le_bytes());
            out[80..84].copy_from_slice(&predecessor.last_head_crc.to_le_bytes());
        }
        out[88..96].copy_from_slice(&self.created_wall_ms.to_le_bytes());
        out[96..104].copy_from_slice(&self.bytes.to_le_bytes());
        let crc = key.crc(&out[..CRC_AT]);
        out[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub(crate) fn decode(block: &[u8; BLOCK_BYTES], key: &LogKey) -> Result<Self, SegmentFault> {
        if block[0..8] != MAGIC {
            return Err(SegmentFault::NoMagic);
        }
        let found = u32_at(block, CRC_AT);
        let expected = key.crc(&block[..CRC_AT]);
        if found != expected {
            return Err(SegmentFault::Checksum { expected, found });
        }
        let min_reader_version = u16_at(block, 10);
        if min_reader_version > FORMAT_VERSION {
            return Err(SegmentFault::Newer(u16_at(block, 8)));
        }
        let mut log_id = LogId([0; 16]);
        log_id.0.copy_from_slice(&block[16..32]);
        let predecessor = (u64_at(block, 56) != 0).then(|| Predecessor {
            segment_seq: u64_at(block, 56),
            last_lsn: Lsn(u64_at(block, 64)),
            bytes: u64_at(block, 72),
            last_head_crc: u32_at(block, 80),
        });
        Ok(Self {
            log_id,
            segment_seq: u64_at(block, 32),
            first_lsn: Lsn(u64_at(block, 40)),
            first_batch_seq: u64_at(block, 48),
            predecessor,
            created_wall_ms: u64_at(block, 88),
            bytes: u64_at(block, 96),
        })
    }

    /// What the first batch of this segment names as the batch before it.
    pub(crate) fn prev_head_crc(&self) -> u32 {
        self.predecessor.map_or(0, |predecessor| predecessor.last_head_crc)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_block_0_is_covered() {
        let key = LogKey::new([3; 16]);
        let predecessor = Predecessor { segment_seq: 8, last_lsn: Lsn(99), bytes: 8192, last_head_crc: 5 };
        let header = SegmentHeader {
            log_id: LogId([7; 16]),
            segment_seq: 9,
            first_lsn: Lsn(100),
            first_batch_seq: 41,
            predecessor: Some(predecessor),
            created_wall_ms: 1_793_511_000_000,
            bytes: 64 << 20,
        };
        let block = header.encode(&key);
        assert_eq!(SegmentHeader::decode(&block, &key), Ok(header));
        for bit in 0..BLOCK_BYTES * 8 {
            let mut flipped = block;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::decode(&flipped, &key).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_newer_segment_is_refused_by_name() {
        let key = LogKey::new([3; 16]);
        let mut block = SegmentHeader::first(LogId([7; 16]), 0, 8192).encode(&key);
        block[8] = 2;
        block[10] = 2;
        let crc = key.crc(&block[..CRC_AT]);
        block[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(SegmentHeader::decode(&block, &key), Err(SegmentFault::Newer(2)));
    }
}
