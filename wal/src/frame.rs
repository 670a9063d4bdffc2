//! What a batch looks like on disk: one header, one body, zeros up to the next block.
//!
//! ```text
//! batch, starting on a 4096-byte boundary; integers little-endian
//!   0 u32 magic "CWB1"        4 u32 head_crc = crc32c(log_key || bytes 8..104)
//!   8 u16 version            10 u16 flags (bit 0: SEAL, the last batch of its segment)
//!  12 u32 body_len           16 u32 record_count       20 u32 body_crc = crc32c(body)
//!  24 u64 segment_seq        32 u64 batch_seq (+1 each, across segments)
//!  40 u64 first_lsn          48 u64 durable_lsn (highest LSN whose sync had returned when this was encoded)
//!  56 u32 prev_head_crc      60 u32 prev_blocks (blocks back to the previous batch; 1 for the first of a segment)
//!  64 u8[16] log_id          80 u64 wall_ms            88 u64 generation
//!  96 u16 shard              98 zeros
//! 104 body, then zeros up to the next boundary
//! ```
//!
//! Two batches never share a block, so writing one cannot tear another. The header is checked before any length in
//! it is used; its checksum is keyed, so the bytes of a record cannot pose as a header.

use crate::identity::{LogId, LogKey};
use crate::lsn::Lsn;

/// Batches start on multiples of this.
pub(crate) const BLOCK_BYTES: usize = 4096;
/// The bytes before a batch's body.
pub(crate) const HEADER_BYTES: usize = 104;
/// No body is longer than this, whatever a header says.
pub(crate) const MAX_BODY_BYTES: usize = 4 << 20;
/// The version of batches and segments that this crate writes, and the newest it reads.
pub(crate) const FORMAT_VERSION: u16 = 1;

const MAGIC: [u8; 4] = *b"CWB1";
const FLAG_SEAL: u16 = 1;

const _: () = assert!(HEADER_BYTES < BLOCK_BYTES && MAX_BODY_BYTES.is_multiple_of(BLOCK_BYTES));

/// The bytes that a body of `body_bytes` takes with its header and padding.
pub(crate) const fn frame_bytes(body_bytes: usize) -> usize {
    (HEADER_BYTES + body_bytes).next_multiple_of(BLOCK_BYTES)
}

/// The fields of a batch header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub(crate) is_seal: bool,
    pub(crate) body_len: u32,
    pub(crate) record_count: u32,
    pub(crate) body_crc: u32,
    pub(crate) segment_seq: u64,
    pub(crate) batch_seq: u64,
    pub(crate) first_lsn: Lsn,
    pub(crate) durable_lsn: Lsn,
    pub(crate) prev_head_crc: u32,
    pub(crate) prev_blocks: u32,
    pub(crate) log_id: LogId,
    pub(crate) wall_ms: u64,
    pub(crate) generation: u64,
    pub(crate) shard: u16,
}

/// Why bytes are not a batch header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    /// All zeros: nothing was ever written here.
    Blank,
    /// Not even the magic.
    NoMagic,
    /// The keyed checksum does not fit.
    Checksum { expected: u32, found: u32 },
    /// The checksum fits and the version is one we do not know.
    Newer(u16),
    /// The checksum fits and a field that must be zero is not.
    Reserved,
}

impl BatchHeader {
    /// Writes the header into the first [`HEADER_BYTES`] of `out` and returns its `head_crc`.
    pub(crate) fn encode(&self, key: &LogKey, out: &mut [u8]) -> u32 {
        out[0..4].copy_from_slice(&MAGIC);
        out[8..10].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[10..12].copy_from_slice(&(if self.is_seal { FLAG_SEAL } else { 0 }).to_le_bytes());
        out[12..16].copy_from_slice(&self.body_len.to_le_bytes());
        out[16..20].copy_from_slice(&self.record_count.to_le_bytes());
        out[20..24].copy_from_slice(&self.body_crc.to_le_bytes());
        out[24..32].copy_from_slice(&self.segment_seq.to_le_bytes());
        out[32..40].copy_from_slice(&self.batch_seq.to_le_bytes());
        out[40..48].copy_from_slice(&self.first_lsn.0.to_le_bytes());
        out[48..56].copy_from_slice(&self.durable_lsn.0.to_le_bytes());
        out[56..60].copy_from_slice(&self.prev_head_crc.to_le_bytes());
        out[60..64].copy_from_slice(&self.prev_blocks.to_le_bytes());
        out[64..80].copy_from_slice(&self.log_id.0);
        out[80..88].copy_from_slice(&self.wall_ms.to_le_bytes());
        out[88..96].copy_from_slice(&self.generation.to_le_bytes());
        out[96..98].copy_from_slice(&self.shard.to_le_bytes());
        out[98..HEADER_BYTES].fill(0);
        let head_crc = key.crc(&out[8..HEADER_BYTES]);
        out[4..8].copy_from_slice(&head_crc.to_le_bytes());
        head_crc
    }

    /// Reads a header and its `head_crc`; no field is looked at before the checksum holds.
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES], key: &LogKey) -> Result<(Self, u32), HeaderFault> {
        if bytes[0..4] != MAGIC {
            return Err(if bytes.iter().all(|&byte| byte == 0) { HeaderFault::Blank } else { HeaderFault::NoMagic });
        }
        let found = u32_at(bytes, 4);
        let expected = key.crc(&bytes[8..]);
        if found != expected {
            return Err(HeaderFault::Checksum { expected, found });
        }
        let version = u16_at(bytes, 8);
        if version != FORMAT_VERSION {
            return Err(HeaderFault::Newer(version));
        }
        let flags = u16_at(bytes, 10);
        if flags & !FLAG_SEAL != 0 || bytes[98..].iter().any(|&byte| byte != 0) {
            return Err(HeaderFault::Reserved);
        }
        let mut log_id = LogId([0; 16]);
        log_id.0.copy_from_slice(&bytes[64..80]);
        let header = Self {
            is_seal: flags & FLAG_SEAL != 0,
            body_len: u32_at(bytes, 12),
            record_count: u32_at(bytes, 16),
            body_crc: u32_at(bytes, 20),
            segment_seq: u64_at(bytes, 24),
            batch_seq: u64_at(bytes, 32),
            first_lsn: Lsn(u64_at(bytes, 40)),
            durable_lsn: Lsn(u64_at(bytes, 48)),
            prev_head_crc: u32_at(bytes, 56),
            prev_blocks: u32_at(bytes, 60),
            log_id,
            wall_ms: u64_at(bytes, 80),
            generation: u64_at(bytes, 88),
            shard: u16_at(bytes, 96),
        };
        Ok((header, found))
    }

    /// The bytes from this header to the next batch.
    pub(crate) const fn frame_bytes(&self) -> usize {
        frame_bytes(self.body_len as usize)
    }
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> BatchHeader {
        BatchHeader {
            is_seal: false,
            body_len: 300,
            record_count: 2,
            body_crc: 0xdead_beef,
            segment_seq: 3,
            batch_seq: 77,
            first_lsn: Lsn(1_000),
            durable_lsn: Lsn(999),
            prev_head_crc: 0x1234_5678,
            prev_blocks: 2,
            log_id: LogId([7; 16]),
            wall_ms: 1_793_511_000_000,
            generation: 5,
            shard: 4,
        }
    }

    #[test]
    fn every_bit_of_a_header_is_covered() {
        let key = LogKey::new([9; 16]);
        let mut bytes = [0; HEADER_BYTES];
        let head_crc = header().encode(&key, &mut bytes);
        assert_eq!(BatchHeader::decode(&bytes, &key), Ok((header(), head_crc)));
        for bit in 0..HEADER_BYTES * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(BatchHeader::decode(&flipped, &key).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_header_under_another_key_is_no_header() {
        let mut bytes = [0; HEADER_BYTES];
        header().encode(&LogKey::new([9; 16]), &mut bytes);
        assert!(matches!(BatchHeader::decode(&bytes, &LogKey::new([8; 16])), Err(HeaderFault::Checksum { .. })));
    }
}
