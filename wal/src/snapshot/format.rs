//! The bytes of a snapshot file, and how they are read without believing any of them.
//!
//! ```text
//! header  0 u8[8] magic "CWSNAP\r\n"   8 u16 format_version   10 u16 min_reader_version   12 zeros
//!        16 u8[16] log_id             32 u64 lsn             40 u64 created_wall_ms       48 zeros
//!        60 u32 crc32c(log_key || bytes 0..60)
//! chunk   0 u32 length (1 to 4 MiB)    4 u32 crc32c(log_key || length || number)     8 u32 crc32c(log_key || body)
//!        12 body
//! end     a chunk of length 0, whose body is: u64 chunks, u64 bytes of their bodies, u8[16] xxh3-128 of everything
//!         before the end
//! ```
//!
//! Integers are little-endian; chunks are numbered from 0, so that one that is missing, doubled or elsewhere is found.
//! Magic, versions and checksum keep their places in every later format.

use std::io;

use xxhash_rust::xxh3::Xxh3;

use crate::frame::{FORMAT_VERSION, MAX_BODY_BYTES, u16_at, u32_at, u64_at};
use crate::identity::{Identity, LogId, LogKey};
use crate::lsn::Lsn;
use crate::source::Source;

const MAGIC: [u8; 8] = *b"CWSNAP\r\n";
pub(crate) const HEADER_BYTES: usize = 64;
const CRC_AT: usize = HEADER_BYTES - 4;
pub(crate) const CHUNK_HEADER_BYTES: usize = 12;
const END_BYTES: usize = 32;
/// The longest chunk.
pub(crate) const MAX_CHUNK_BYTES: usize = MAX_BODY_BYTES;

/// What the first bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) log_id: LogId,
    pub(crate) lsn: Lsn,
    pub(crate) created_wall_ms: u64,
}

/// How much a snapshot holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) chunks: u64,
    pub(crate) body_bytes: u64,
    pub(crate) file_bytes: u64,
}

/// Why a file is not a snapshot that can be used.
#[derive(Debug)]
pub(crate) enum Fault {
    Io(io::Error),
    Newer(u16),
    Damaged {
        offset: u64,
        expected: String,
        found: String,
    },
    /// Whoever reads it refused a chunk that is as it was written.
    Refused(String),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn damaged(offset: u64, expected: impl Into<String>, found: impl Into<String>) -> Fault {
    Fault::Damaged { offset, expected: expected.into(), found: found.into() }
}

impl Header {
    pub(crate) fn encode(&self, key: &LogKey) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0..8].copy_from_slice(&MAGIC);
        out[8..10].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[10..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[16..32].copy_from_slice(&self.log_id.0);
        out[32..40].copy_from_slice(&self.lsn.0.to_le_bytes());
        out[40..48].copy_from_slice(&self.created_wall_ms.to_le_bytes());
        let crc = key.crc(&out[..CRC_AT]);
        out[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8], key: &LogKey) -> Result<Self, Fault> {
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(damaged(0, "a snapshot's header", format!("a file of {} bytes", bytes.len())));
        };
        if bytes[0..8] != MAGIC {
            return Err(damaged(0, "a snapshot's header", "other bytes"));
        }
        let (found, expected) = (u32_at(bytes, CRC_AT), key.crc(&bytes[..CRC_AT]));
        if found != expected {
            return Err(damaged(0, format!("header checksum {expected:08x}"), format!("{found:08x}")));
        }
        if u16_at(bytes, 10) > FORMAT_VERSION {
            return Err(Fault::Newer(u16_at(bytes, 8)));
        }
        let mut log_id = LogId([0; 16]);
        log_id.0.copy_from_slice(&bytes[16..32]);
        Ok(Self { log_id, lsn: Lsn(u64_at(bytes, 32)), created_wall_ms: u64_at(bytes, 40) })
    }
}

/// Turns chunks into the bytes of a file.
pub(crate) struct Encoder {
    key: LogKey,
    hash: Xxh3,
    size: Size,
}

impl Encoder {
    pub(crate) fn begin(header: &Header, key: LogKey, out: &mut Vec<u8>) -> Self {
        let mut encoder = Self { key, hash: Xxh3::new(), size: Size::default() };
        encoder.put(&header.encode(&key), out);
        encoder
    }

    /// `body` has 1 to [`MAX_CHUNK_BYTES`] bytes.
    pub(crate) fn chunk(&mut self, body: &[u8], out: &mut Vec<u8>) {
        self.put(&chunk_header(&self.key, self.size.chunks, body, body.len()), out);
        self.put(body, out);
        self.size.chunks += 1;
        self.size.body_bytes += body.len() as u64;
    }

    pub(crate) fn end(mut self, out: &mut Vec<u8>) -> Size {
        let mut body = [0; END_BYTES];
        body[0..8].copy_from_slice(&self.size.chunks.to_le_bytes());
        body[8..16].copy_from_slice(&self.size.body_bytes.to_le_bytes());
        body[16..32].copy_from_slice(&self.hash.digest128().to_le_bytes());
        self.put(&chunk_header(&self.key, self.size.chunks, &body, 0), out);
        self.put(&body, out);
        self.size
    }

    fn put(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.hash.update(bytes);
        self.size.file_bytes += bytes.len() as u64;
        out.extend_from_slice(bytes);
    }
}

fn chunk_header(key: &LogKey, number: u64, body: &[u8], length: usize) -> [u8; CHUNK_HEADER_BYTES] {
    let length = (length as u32).to_le_bytes();
    let mut out = [0; CHUNK_HEADER_BYTES];
    out[0..4].copy_from_slice(&length);
    out[4..8].copy_from_slice(&head_crc(key, length, number).to_le_bytes());
    out[8..12].copy_from_slice(&key.crc(body).to_le_bytes());
    out
}

fn head_crc(key: &LogKey, length: [u8; 4], number: u64) -> u32 {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&length);
    bytes[4..].copy_from_slice(&number.to_le_bytes());
    key.crc(&bytes)
}

/// Reads a whole snapshot of the log that ends at `lsn` and shows its chunks as they are found right. What was shown
/// before an error is void.
pub(crate) fn read(
    source: &mut dyn Source,
    identity: &Identity,
    lsn: Lsn,
    show: &mut dyn FnMut(&[u8]) -> Result<(), String>,
) -> Result<(Header, Size), Fault> {
    let head = source.at(0, HEADER_BYTES)?;
    let header = Header::decode(head, &identity.key)?;
    if (header.log_id, header.lsn) != (identity.log_id, lsn) {
        let expected = format!("a snapshot of log {} up to record {lsn}", identity.log_id);
        return Err(damaged(0, expected, format!("one of log {} up to record {}", header.log_id, header.lsn)));
    }
    let mut hash = Xxh3::new();
    hash.update(head);
    let mut size = Size { file_bytes: HEADER_BYTES as u64, ..Size::default() };
    loop {
        let at = size.file_bytes;
        let Some(head) = source.at(at, CHUNK_HEADER_BYTES)?.first_chunk::<CHUNK_HEADER_BYTES>().copied() else {
            return Err(damaged(at, format!("chunk {}", size.chunks), "the end of the file"));
        };
        let (found, length) = (u32_at(&head, 4), u32_at(&head, 0));
        let expected = head_crc(&identity.key, length.to_le_bytes(), size.chunks);
        if found != expected {
            return Err(damaged(at, format!("chunk checksum {expected:08x}"), format!("{found:08x}")));
        }
        let is_end = length == 0;
        let length = if is_end { END_BYTES } else { length as usize };
        if length > MAX_CHUNK_BYTES {
            return Err(damaged(at, format!("a chunk of at most {MAX_CHUNK_BYTES} bytes"), format!("{length}")));
        }
        let body = source.at(at + CHUNK_HEADER_BYTES as u64, length)?;
        if body.len() < length {
            return Err(damaged(at, format!("a chunk of {length} bytes"), format!("{}", body.len())));
        }
        let (found, expected) = (identity.key.crc(body), u32_at(&head, 8));
        if found != expected {
            return Err(damaged(at, format!("body checksum {expected:08x}"), format!("{found:08x}")));
        }
        if is_end {
            check_end(body, &hash, size)?;
            size.file_bytes += (CHUNK_HEADER_BYTES + END_BYTES) as u64;
            if source.len() != size.file_bytes {
                let found = format!("{}", source.len());
                return Err(damaged(size.file_bytes, format!("a file of {} bytes", size.file_bytes), found));
            }
            return Ok((header, size));
        }
        hash.update(&head);
        hash.update(body);
        show(body).map_err(Fault::Refused)?;
        size.chunks += 1;
        size.body_bytes += length as u64;
        size.file_bytes += (CHUNK_HEADER_BYTES + length) as u64;
    }
}

fn check_end(body: &[u8], hash: &Xxh3, size: Size) -> Result<(), Fault> {
    let told = (u64_at(body, 0), u64_at(body, 8));
    if told != (size.chunks, size.body_bytes) {
        let found = format!("{} chunks of {} bytes", size.chunks, size.body_bytes);
        return Err(damaged(size.file_bytes, format!("{} chunks of {} bytes", told.0, told.1), found));
    }
    let found = hash.digest128();
    if body[16..32] != found.to_le_bytes() {
        return Err(damaged(size.file_bytes, "the hash that was written", format!("{found:032x}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        let (log_id, key) = (LogId([7; 16]), LogKey::new([3; 16]));
        Identity { log_id, key, created_wall_ms: 0, newest_segment_seq: 1 }
    }

    fn file(chunks: &[&[u8]]) -> Vec<u8> {
        let (identity, mut out) = (identity(), Vec::new());
        let header = Header { log_id: identity.log_id, lsn: Lsn(9), created_wall_ms: 5 };
        let mut encoder = Encoder::begin(&header, identity.key, &mut out);
        for chunk in chunks {
            encoder.chunk(chunk, &mut out);
        }
        let size = encoder.end(&mut out);
        assert_eq!(size.file_bytes, out.len() as u64);
        out
    }

    fn shown(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Fault> {
        let mut shown = Vec::new();
        let mut show = |chunk: &[u8]| {
            shown.push(chunk.to_vec());
            Ok(())
        };
        let mut source = bytes;
        read(&mut source, &identity(), Lsn(9), &mut show).map(|_| shown)
    }

    #[test]
    fn what_was_written_is_read() {
        for chunks in [&[][..], &[&b"a"[..]], &[b"one", b"two", b"three"]] {
            assert_eq!(shown(&file(chunks)).unwrap(), chunks);
        }
    }

    #[test]
    fn every_bit_of_it_is_covered_and_every_cut_is_seen() {
        let bytes = file(&[b"one", b"two"]);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(shown(&flipped).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(shown(&bytes[..length]).is_err(), "cut to {length}");
        }
        let mut longer = bytes;
        longer.push(0);
        assert!(shown(&longer).is_err());
    }

    #[test]
    fn chunks_that_are_missing_doubled_or_swapped_are_found() {
        let bytes = file(&[b"one", b"two"]);
        let (first, second) = (HEADER_BYTES..HEADER_BYTES + 15, HEADER_BYTES + 15..HEADER_BYTES + 30);
        let (head, end) = (&bytes[..HEADER_BYTES], &bytes[HEADER_BYTES + 30..]);
        let (first, second) = (&bytes[first], &bytes[second]);
        for parts in [vec![first], vec![second], vec![first, first, second], vec![second, first], vec![]] {
            let made = [&[head], &parts[..], &[end]].concat().concat();
            assert!(shown(&made).is_err());
        }
    }
}
