//! Where scanned bytes come from: a slice, or a window that moves over a file.

use std::io;

use crate::fs::{File, read_full_at};

/// Read ahead by this much: it stays in the cache between the read and the checksum.
const CHUNK_BYTES: usize = 1 << 20;

/// Bytes at offsets.
pub(crate) trait Source {
    fn len(&self) -> u64;

    /// The `count` bytes at `offset`, or fewer where they end. `count` is bounded by the caller.
    fn at(&mut self, offset: u64, count: usize) -> io::Result<&[u8]>;
}

impl Source for &[u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn at(&mut self, offset: u64, count: usize) -> io::Result<&[u8]> {
        let start = offset.min(Source::len(self)) as usize;
        let end = start.saturating_add(count).min(<[u8]>::len(self));
        Ok(&self[start..end])
    }
}

/// A window over a file; it grows to the longest piece that was asked for, plus a chunk.
pub(crate) struct FileSource {
    file: Box<dyn File>,
    len: u64,
    window: Vec<u8>,
    window_start: u64,
    window_bytes: usize,
}

impl FileSource {
    /// Takes over the allocation of an earlier window.
    pub(crate) fn with_window(file: Box<dyn File>, window: Vec<u8>) -> io::Result<Self> {
        let len = file.len()?;
        Ok(Self { file, len, window, window_start: 0, window_bytes: 0 })
    }

    pub(crate) fn into_window(self) -> Vec<u8> {
        self.window
    }

    fn refill(&mut self, offset: u64, count: usize) -> io::Result<()> {
        let left = self.len.saturating_sub(offset);
        let wanted = (count as u64).max(CHUNK_BYTES as u64).min(left) as usize;
        let window_end = self.window_start + self.window_bytes as u64;
        let is_inside = (self.window_start..window_end).contains(&offset);
        let kept = if is_inside { (window_end - offset) as usize } else { 0 };
        let old = self.window_bytes - kept..self.window_bytes;
        if self.window.len() < wanted {
            let mut grown = vec![0; wanted];
            grown[..kept].copy_from_slice(&self.window[old]);
            self.window = grown;
        } else {
            self.window.copy_within(old, 0);
        }
        self.window_start = offset;
        self.window_bytes = kept;
        if kept < wanted {
            self.window_bytes += read_full_at(&*self.file, &mut self.window[kept..wanted], offset + kept as u64)?;
        }
        Ok(())
    }
}

impl Source for FileSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn at(&mut self, offset: u64, count: usize) -> io::Result<&[u8]> {
        let count = (count as u64).min(self.len.saturating_sub(offset)) as usize;
        let window_end = self.window_start + self.window_bytes as u64;
        if offset < self.window_start || offset + count as u64 > window_end {
            self.refill(offset, count)?;
        }
        let from = (offset - self.window_start) as usize;
        let to = (from + count).min(self.window_bytes);
        Ok(&self.window[from.min(to)..to])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::{Fs, OsFs, write_all_at};

    #[test]
    fn a_window_over_a_file_shows_what_a_slice_shows() {
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let dir = tempfile::tempdir().unwrap();
        let file = OsFs.create_new(&dir.path().join("f")).unwrap();
        write_all_at(&*file, &bytes, 0).unwrap();
        let mut source = FileSource::with_window(file, Vec::new()).unwrap();
        let mut slice = bytes.as_slice();
        for (offset, count) in
            [(0, 104), (0, 2_000_000), (4096, 104), (1_900_000, 1_000_000), (2_999_999, 10), (0, 5), (3_000_000, 5)]
        {
            assert_eq!(source.at(offset, count).unwrap(), slice.at(offset, count).unwrap(), "{offset} {count}");
        }
    }
}
