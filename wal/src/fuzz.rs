//! Bodies of the fuzz targets, which a seeded test runs too.

use crate::frame::{BLOCK_BYTES, HEADER_BYTES, MAX_BODY_BYTES, u32_at};
use crate::identity::{Identity, LogId, LogKey};
use crate::scan::{look_behind, walk};
use crate::segment::SegmentHeader;

const LOG_ID: [u8; 16] = *b"fuzzed log id 16";

/// Scans `bytes` as a segment, as they are and with mended checksums, so that what is behind a checksum is met too.
/// Whatever they are, the scan ends, within them, and allocates nothing that their lengths ask for.
pub fn scan_bytes(bytes: &[u8]) {
    let identity = Identity {
        log_id: LogId(LOG_ID),
        key: LogKey::new(*b"fuzzed log key16"),
        created_wall_ms: 0,
        newest_segment_seq: 1,
    };
    let _ = Identity::decode(bytes);
    if let Some(block) = bytes.first_chunk::<BLOCK_BYTES>() {
        let _ = SegmentHeader::decode(block, &identity.key);
    }
    scan(bytes, &identity);
    scan(&mended(bytes, &identity.key), &identity);
}

fn scan(bytes: &[u8], identity: &Identity) {
    let header = SegmentHeader::first(identity.log_id, 0, bytes.len() as u64);
    let mut records = 0;
    let visit = &mut |_: crate::Entry<'_>| {
        records += 1;
        Ok(())
    };
    let mut source = bytes;
    let walked =
        walk(&mut source, identity, &header, visit).expect("a slice can be read and the visitor never refuses");
    assert!(walked.end <= bytes.len().max(BLOCK_BYTES) as u64);
    assert!(walked.records <= records && records <= bytes.len() as u64 / 2);
    let behind = look_behind(&mut source, identity, None, walked.end).expect("a slice can be read");
    assert!(behind.nonzero_until.is_none_or(|until| until <= bytes.len() as u64));
}

/// Gives every block from the second on the magic, id and checksums of a batch header, wherever its lengths allow.
fn mended(bytes: &[u8], key: &LogKey) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let mut at = BLOCK_BYTES;
    while at + HEADER_BYTES <= bytes.len() {
        let body_bytes = u32_at(&bytes, at + 12) as usize;
        let body = at + HEADER_BYTES;
        if body_bytes <= MAX_BODY_BYTES
            && let Some(body) = bytes.get(body..body + body_bytes)
        {
            let body_crc = crc32c::crc32c(body);
            bytes[at + 20..at + 24].copy_from_slice(&body_crc.to_le_bytes());
        }
        bytes[at..at + 4].copy_from_slice(b"CWB1");
        bytes[at + 64..at + 80].copy_from_slice(&LOG_ID);
        let head_crc = key.crc(&bytes[at + 8..at + HEADER_BYTES]);
        bytes[at + 4..at + 8].copy_from_slice(&head_crc.to_le_bytes());
        at += BLOCK_BYTES;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::Rng;

    #[test]
    fn a_scan_of_anything_ends() {
        let golden = include_bytes!("../tests/golden/v1/00000000000000000001.wal");
        let seed = 99;
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        for _ in 0..2_000 {
            let mut bytes = golden.to_vec();
            bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
            for _ in 0..rng.below(20) {
                if !bytes.is_empty() {
                    // Mostly in the headers, where the lengths are.
                    let at = rng.below(bytes.len() as u64) as usize;
                    let at = if rng.one_in(3) { at } else { at / BLOCK_BYTES * BLOCK_BYTES + at % HEADER_BYTES };
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte = rng.next() as u8;
                    }
                }
            }
            scan_bytes(&bytes);
        }
    }
}
