//! Bodies of the fuzz targets, which a seeded test runs too.

use crate::frame::{BLOCK_BYTES, HEADER_BYTES, MAX_BODY_BYTES, u32_at};
use crate::identity::{Identity, LogId, LogKey};
use crate::lsn::Lsn;
use crate::scan::{look_behind, walk};
use crate::segment::SegmentHeader;
use crate::snapshot::format::{CHUNK_HEADER_BYTES, HEADER_BYTES as SNAPSHOT_HEADER_BYTES, read};

const LOG_ID: [u8; 16] = *b"fuzzed log id 16";

/// Scans `bytes` as a segment, as they are and with mended checksums, so that what is behind a checksum is met too.
/// Whatever they are, the scan ends, within them, and allocates nothing that their lengths ask for.
pub fn scan_bytes(bytes: &[u8]) {
    let identity = identity();
    let _ = Identity::decode(bytes);
    if let Some(block) = bytes.first_chunk::<BLOCK_BYTES>() {
        let _ = SegmentHeader::decode(block, &identity.key);
    }
    scan(bytes, &identity);
    scan(&mended(bytes, &identity.key), &identity);
}

/// Reads `bytes` as a snapshot, as they are and with mended checksums. Whatever they are, no chunk is shown that is not
/// in them.
pub fn snapshot_bytes(bytes: &[u8]) {
    let identity = identity();
    read_snapshot(bytes, &identity);
    read_snapshot(&mended_snapshot(bytes, &identity.key), &identity);
}

fn identity() -> Identity {
    let (log_id, key) = (LogId(LOG_ID), LogKey::new(*b"fuzzed log key16"));
    Identity { log_id, key, created_wall_ms: 0, newest_segment_seq: 1 }
}

/// Returns how many chunks were shown.
fn read_snapshot(bytes: &[u8], identity: &Identity) -> u64 {
    let (mut chunks, mut shown_bytes) = (0, 0);
    let mut source = bytes;
    let found = read(&mut source, identity, Lsn(9), &mut |chunk| {
        chunks += 1;
        shown_bytes += chunk.len() as u64;
        Ok(())
    });
    assert!(shown_bytes + chunks * CHUNK_HEADER_BYTES as u64 <= bytes.len() as u64);
    if let Ok((_, size)) = found {
        assert_eq!((size.chunks, size.body_bytes, size.file_bytes), (chunks, shown_bytes, bytes.len() as u64));
    }
    chunks
}

/// Gives the header and every chunk that the lengths lead to the checksums they should have.
fn mended_snapshot(bytes: &[u8], key: &LogKey) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.len() < SNAPSHOT_HEADER_BYTES {
        return bytes;
    }
    bytes[0..12].copy_from_slice(b"CWSNAP\r\n\x01\0\x01\0");
    bytes[16..32].copy_from_slice(&LOG_ID);
    bytes[32..40].copy_from_slice(&9_u64.to_le_bytes());
    let crc = key.crc(&bytes[..SNAPSHOT_HEADER_BYTES - 4]);
    bytes[SNAPSHOT_HEADER_BYTES - 4..SNAPSHOT_HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    let (mut at, mut number) = (SNAPSHOT_HEADER_BYTES, 0_u64);
    while at + CHUNK_HEADER_BYTES <= bytes.len() {
        let length = u32_at(&bytes, at) as usize;
        let head = [&bytes[at..at + 4], &number.to_le_bytes()].concat();
        let body = bytes.get(at + CHUNK_HEADER_BYTES..(at + CHUNK_HEADER_BYTES).saturating_add(length));
        let (head_crc, body_crc) = (key.crc(&head), body.map(|body| key.crc(body)));
        bytes[at + 4..at + 8].copy_from_slice(&head_crc.to_le_bytes());
        let Some(body_crc) = body_crc.filter(|_| length > 0) else { break };
        bytes[at + 8..at + 12].copy_from_slice(&body_crc.to_le_bytes());
        at += CHUNK_HEADER_BYTES + length;
        number += 1;
    }
    bytes
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

    #[test]
    fn reading_anything_as_a_snapshot_ends() {
        let seed = 98;
        println!("seed {seed}");
        let (mut rng, mut deepest) = (Rng::new(seed), 0);
        for _ in 0..2_000 {
            let mut bytes = vec![0; SNAPSHOT_HEADER_BYTES];
            for _ in 0..rng.below(5) {
                let length = rng.below(40) as u32;
                bytes.extend_from_slice(&length.to_le_bytes());
                bytes.resize(bytes.len() + 8 + length as usize, 5);
            }
            for _ in 0..rng.below(4) {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] = rng.next() as u8;
            }
            snapshot_bytes(&bytes);
            deepest = deepest.max(read_snapshot(&mended_snapshot(&bytes, &identity().key), &identity()));
        }
        assert!(deepest > 2, "mended bytes get behind the checksums");
    }
}
