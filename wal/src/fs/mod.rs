//! What the log asks of a file system, and two small protocols on top of it.
//!
//! The trait is object safe and used as `Arc<dyn Fs>` at the edge; [`OsFs`] is the real one, [`crate::sim::SimFs`] the
//! one that loses unsynced bytes. Errors are `std::io::Error`; "no space" is recognised by [`is_no_space`].

mod atomic;
mod lock;
mod os;

pub use self::atomic::write_file_atomically;
pub use self::lock::{DirLock, LockError};
pub use self::os::OsFs;

use std::io;
use std::path::Path;

/// A file system.
pub trait Fs: Send + Sync {
    /// Opens an existing regular file for reading; never follows a symbolic link.
    ///
    /// # Errors
    /// What the system says.
    fn open(&self, path: &Path) -> io::Result<Box<dyn File>>;

    /// Opens an existing regular file for reading and writing; never follows a symbolic link.
    ///
    /// # Errors
    /// What the system says.
    fn open_for_writing(&self, path: &Path) -> io::Result<Box<dyn File>>;

    /// Makes a file for reading and writing that must not exist yet, for the owner alone.
    ///
    /// # Errors
    /// What the system says.
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn File>>;

    /// Renames within one file system, replacing what is there.
    ///
    /// # Errors
    /// What the system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// What the system says.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Makes a directory for the owner alone; `false` if it was there already.
    ///
    /// # Errors
    /// What the system says.
    fn create_dir(&self, path: &Path) -> io::Result<bool>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// What the system says.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// What is in a directory, in no particular order; symbolic links are named as such, not followed.
    ///
    /// # Errors
    /// What the system says.
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>>;

    /// Takes the lock file at `path`, which is held until the answer is dropped.
    ///
    /// # Errors
    /// [`LockError::Held`] if this or another process has it.
    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>, LockError>;
}

/// An open file.
pub trait File: Send + Sync {
    /// Reads at an offset; 0 at the end.
    ///
    /// # Errors
    /// What the system says.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes at an offset; may write less than asked for.
    ///
    /// # Errors
    /// What the system says.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize>;

    /// Makes the contents durable (`fdatasync`).
    ///
    /// # Errors
    /// What the system says; after an error nothing may be taken for durable any more.
    fn sync_data(&self) -> io::Result<()>;

    /// Makes contents and metadata durable (`fsync`).
    ///
    /// # Errors
    /// See [`File::sync_data`].
    fn sync_all(&self) -> io::Result<()>;

    /// Cuts or extends the file.
    ///
    /// # Errors
    /// What the system says.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Asks that from now on writes of whole blocks from aligned memory go to the disk past the page cache; whoever
    /// reads the file through the cache sees them all the same. A wish: it may come to nothing.
    fn bypass_cache(&self) {}

    /// Asks that what is read from now on comes from the disk, not from memory. A wish: it may come to nothing.
    fn forget_cached(&self) {}

    /// Takes `len` bytes of space for the file (`fallocate`) and makes it that long.
    ///
    /// # Errors
    /// What the system says.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// How long the file is.
    ///
    /// # Errors
    /// What the system says.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no bytes.
    ///
    /// # Errors
    /// What the system says.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name; bytes that are no UTF-8 are replaced, which makes it no name of ours.
    pub name: String,
    /// What stands behind it.
    pub kind: EntryKind,
}

/// What a name in a directory stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link, wherever it points.
    Symlink,
    /// A socket, a device, or the like.
    Other,
}

/// Whether an error says that the disk or the quota is full.
#[must_use]
pub fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Why [`write_all_at`] stopped, and how far it came.
#[derive(Debug)]
pub(crate) struct PartialWrite {
    pub(crate) written_bytes: usize,
    pub(crate) source: io::Error,
}

/// Writes all of `bytes`, going on after short and interrupted writes.
pub(crate) fn write_all_at(file: &dyn File, bytes: &[u8], offset: u64) -> Result<(), PartialWrite> {
    let mut written_bytes = 0;
    while written_bytes < bytes.len() {
        match file.write_at(&bytes[written_bytes..], offset + written_bytes as u64) {
            Ok(0) => return Err(PartialWrite { written_bytes, source: io::ErrorKind::WriteZero.into() }),
            Ok(count) => written_bytes += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(PartialWrite { written_bytes, source }),
        }
    }
    Ok(())
}

/// Reads until `buf` is full or the file ends; returns how many bytes there were.
pub(crate) fn read_full_at(file: &dyn File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut read_bytes = 0;
    while read_bytes < buf.len() {
        match file.read_at(&mut buf[read_bytes..], offset + read_bytes as u64) {
            Ok(0) => break,
            Ok(count) => read_bytes += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read_bytes)
}

/// Writes `zeros` bytes of zeros from `offset` on.
pub(crate) fn write_zeros_at(file: &dyn File, offset: u64, zeros: u64) -> io::Result<()> {
    #[repr(align(4096))]
    struct Chunk([u8; 64 << 10]);
    static CHUNK: Chunk = Chunk([0; 64 << 10]);
    let mut done = 0;
    while done < zeros {
        let count = (zeros - done).min(CHUNK.0.len() as u64);
        write_all_at(file, &CHUNK.0[..count as usize], offset + done).map_err(|partial| partial.source)?;
        done += count;
    }
    Ok(())
}
