//! A file system in memory that forgets what was not synced, in every way that real ones do.
//!
//! Each file has what is durable, what a reader sees, and the writes between the two; a directory likewise has names
//! that only a directory sync makes durable. [`SimFs::crash`] answers with the disk after a power cut,
//! [`SimFs::restart`] with the one that a new process finds when only the old one died. Faults are switched on in
//! between. Everything is deterministic: one seed, one disk.

mod crash;
mod disk;
mod rng;

pub use self::crash::Crash;
pub use self::rng::Rng;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::disk::{Disk, FileOp, Inode};
use crate::fs::{DirEntry, File, Fs, LockError};

/// A simulated file system; clones share it.
#[derive(Clone, Default)]
pub struct SimFs {
    disk: Arc<Mutex<Disk>>,
}

impl SimFs {
    /// An empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many operations have changed or synced something.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// The process dies before operation `number` (counted from 0 over the life of the disk): it and all later ones
    /// fail and change nothing.
    pub fn stop_before(&self, number: u64) {
        self.lock().faults.stop_before = Some(number);
    }

    /// Operation `number` fails with `kind`, once. A failed sync of a file marks its pages clean: a reader goes on to
    /// see what was written, later syncs succeed, and a crash loses it.
    pub fn fail_operation(&self, number: u64, kind: io::ErrorKind) {
        self.lock().faults.fail = Some((number, kind));
    }

    /// No write call takes more than this.
    pub fn limit_write_bytes(&self, bytes: usize) {
        self.lock().faults.write_limit_bytes = Some(bytes);
    }

    /// The disk is full when its files have this many bytes together; `None` is never.
    pub fn set_capacity_bytes(&self, bytes: Option<u64>) {
        self.lock().faults.capacity_bytes = bytes;
    }

    /// After this many more written bytes every write finds the disk full, wherever it goes, as on a file system that
    /// copies on write; `None` is never.
    pub fn set_write_budget_bytes(&self, bytes: Option<u64>) {
        self.lock().faults.write_budget_bytes = bytes;
    }

    /// What is on the disk after a power cut.
    #[must_use]
    pub fn crash(&self, policy: Crash, seed: u64) -> Self {
        Self::from_disk(crash::crash(&self.lock(), policy, &mut Rng::new(seed)))
    }

    /// What the next process sees when this one dies and the machine does not: everything, synced or not.
    #[must_use]
    pub fn restart(&self) -> Self {
        Self::from_disk(self.lock().restarted())
    }

    /// All files and what a reader sees in them, by path.
    #[must_use]
    pub fn files(&self) -> Vec<(PathBuf, Arc<Vec<u8>>)> {
        self.lock().files()
    }

    /// What a reader sees in a file.
    #[must_use]
    pub fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let disk = self.lock();
        disk.find(path).and_then(|inode| disk.file(inode)).map(|file| file.current.to_vec()).ok()
    }

    /// Puts bytes into a file durably, for damage at rest; the file is made where there is none.
    ///
    /// # Errors
    /// There is no such directory.
    pub fn overwrite(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.lock().overwrite(path, bytes)
    }

    /// Removes a file durably, for damage at rest.
    ///
    /// # Errors
    /// There is no such file.
    pub fn lose(&self, path: &Path) -> io::Result<()> {
        self.lock().lose(path)
    }

    fn from_disk(disk: Disk) -> Self {
        Self { disk: Arc::new(Mutex::new(disk)) }
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, inode: Inode) -> Box<dyn File> {
        Box::new(SimFile { fs: self.clone(), inode })
    }
}

impl fmt::Debug for SimFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimFs").field("operations", &self.operations()).finish_non_exhaustive()
    }
}

impl Fs for SimFs {
    fn open(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let disk = self.lock();
        let inode = disk.find(path)?;
        disk.file(inode)?;
        Ok(self.handle(inode))
    }

    fn open_for_writing(&self, path: &Path) -> io::Result<Box<dyn File>> {
        self.open(path)
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let mut disk = self.lock();
        disk.operate()?;
        let inode = disk.create(path, false)?;
        Ok(self.handle(inode))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut disk = self.lock();
        disk.operate()?;
        disk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.lock();
        disk.operate()?;
        disk.unlink(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<bool> {
        let mut disk = self.lock();
        if disk.find(path).and_then(|inode| disk.dir(inode)).is_ok() {
            return Ok(false);
        }
        disk.operate()?;
        disk.create(path, true).map(|_| true)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.lock();
        let inode = disk.find(path)?;
        // A failed sync leaves the names pending: directories are journalled.
        disk.operate()?;
        disk.sync_dir(inode)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let disk = self.lock();
        disk.list(disk.find(path)?)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>, LockError> {
        if !self.lock().locks.insert(path.to_path_buf()) {
            return Err(LockError::Held { path: path.to_path_buf(), holder: "this simulation".to_owned() });
        }
        Ok(Box::new(SimLock { fs: self.clone(), path: path.to_path_buf() }))
    }
}

struct SimLock {
    fs: SimFs,
    path: PathBuf,
}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.fs.lock().locks.remove(&self.path);
    }
}

struct SimFile {
    fs: SimFs,
    inode: Inode,
}

impl SimFile {
    fn sync(&self) -> io::Result<()> {
        let mut disk = self.fs.lock();
        match disk.operate() {
            Ok(()) => disk.sync_file(self.inode),
            Err(error) if disk.is_stopped() => Err(error),
            Err(error) => {
                disk.forget_pending(self.inode)?;
                Err(error)
            }
        }
    }
}

impl File for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let disk = self.fs.lock();
        let bytes = &disk.file(self.inode)?.current;
        let start = offset.min(bytes.len() as u64) as usize;
        let count = buf.len().min(bytes.len() - start);
        buf[..count].copy_from_slice(&bytes[start..start + count]);
        Ok(count)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        let mut disk = self.fs.lock();
        disk.operate()?;
        let count = disk.room_for_write(self.inode, offset, buf.len())?;
        if count == 0 && !buf.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        disk.change_file(self.inode, FileOp::Write { offset, bytes: buf[..count].into() })?;
        Ok(count)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut disk = self.fs.lock();
        disk.operate()?;
        disk.change_file(self.inode, FileOp::SetLen(len))
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut disk = self.fs.lock();
        disk.operate()?;
        let grown = len.saturating_sub(disk.file(self.inode)?.current.len() as u64);
        if grown > disk.free_bytes() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        disk.change_file(self.inode, FileOp::SetLen(len))
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.fs.lock().file(self.inode)?.current.len() as u64)
    }
}

#[cfg(test)]
mod tests;
