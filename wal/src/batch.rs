//! One batch in memory: room for the header, the records, and later the padding, in one buffer that is written as is.

use crate::aligned::AlignedBuf;
use crate::frame::{BatchHeader, HEADER_BYTES, frame_bytes};
use crate::identity::LogKey;

/// Records that will be written together.
#[derive(Debug)]
pub(crate) struct Batch {
    buf: AlignedBuf,
    body_bytes: usize,
    records: u32,
}

impl Batch {
    pub(crate) fn new() -> Self {
        Self { buf: AlignedBuf::zeros(HEADER_BYTES), body_bytes: 0, records: 0 }
    }

    /// Adds `records` records that are encoded in `bytes`.
    pub(crate) fn push(&mut self, bytes: &[u8], records: u32) {
        debug_assert_eq!(self.buf.len(), HEADER_BYTES + self.body_bytes, "a framed batch takes no more records");
        self.buf.extend_from_slice(bytes);
        self.body_bytes += bytes.len();
        self.records += records;
    }

    pub(crate) const fn records(&self) -> u32 {
        self.records
    }

    pub(crate) const fn body_bytes(&self) -> usize {
        self.body_bytes
    }

    pub(crate) const fn frame_bytes(&self) -> usize {
        frame_bytes(self.body_bytes)
    }

    /// Ready to take records again, with the allocation kept.
    pub(crate) fn clear(&mut self) {
        self.buf.resize(HEADER_BYTES);
        self.body_bytes = 0;
        self.records = 0;
    }

    /// Completes `header` with lengths and checksum, writes it in front and zeros behind. May be done again.
    pub(crate) fn frame(&mut self, header: &mut BatchHeader, key: &LogKey) -> (&[u8], u32) {
        self.buf.resize(self.frame_bytes());
        header.body_len = self.body_bytes as u32;
        header.record_count = self.records;
        header.body_crc = crc32c::crc32c(&self.buf[HEADER_BYTES..HEADER_BYTES + self.body_bytes]);
        let head_crc = header.encode(key, &mut self.buf[..HEADER_BYTES]);
        (&self.buf, head_crc)
    }
}
