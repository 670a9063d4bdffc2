//! Bytes that start on a block boundary in memory, so that a disk can be written to straight from them.

use std::ops::{Deref, DerefMut};

use crate::frame::BLOCK_BYTES;

/// A growing buffer whose first byte lies on a multiple of [`BLOCK_BYTES`].
#[derive(Debug)]
pub(crate) struct AlignedBuf {
    /// Up to a block of unused bytes, then ours; within its capacity it never moves.
    raw: Vec<u8>,
    start: usize,
}

impl AlignedBuf {
    /// `len` zeros.
    pub(crate) fn zeros(len: usize) -> Self {
        let mut buf = Self::with_room(len);
        buf.resize(len);
        buf
    }

    pub(crate) fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.raw.extend_from_slice(bytes);
    }

    /// Cuts it, or makes it longer with zeros.
    pub(crate) fn resize(&mut self, len: usize) {
        self.reserve(len.saturating_sub(self.len()));
        self.raw.resize(self.start + len, 0);
    }

    fn with_room(room_bytes: usize) -> Self {
        let mut raw: Vec<u8> = Vec::with_capacity(room_bytes + BLOCK_BYTES);
        let start = raw.as_ptr().addr().next_multiple_of(BLOCK_BYTES) - raw.as_ptr().addr();
        raw.resize(start, 0);
        Self { raw, start }
    }

    fn reserve(&mut self, more_bytes: usize) {
        if self.raw.capacity() - self.raw.len() < more_bytes {
            let mut grown = Self::with_room((self.len() + more_bytes).next_power_of_two());
            grown.raw.extend_from_slice(self);
            *self = grown;
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.raw[self.start..]
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.raw[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_aligned_and_whole_while_it_grows_and_shrinks() {
        let mut buf = AlignedBuf::zeros(3);
        let mut expected = vec![0; 3];
        for round in 0..2_000 {
            let piece = vec![round as u8; round % 700];
            buf.extend_from_slice(&piece);
            expected.extend_from_slice(&piece);
            if round % 50 == 0 {
                buf.resize(round);
                expected.resize(round, 0);
            }
            assert_eq!(buf.as_ptr().addr() % BLOCK_BYTES, 0);
            assert!(*buf == *expected, "round {round}");
        }
    }
}
