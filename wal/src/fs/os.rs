//! The real file system: `pread`, `pwrite`, `fdatasync`; files for the owner alone, no link followed.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FallocateFlags, Mode, OFlags};
use tracing::debug;

use super::{DirEntry, DirLock, EntryKind, File, Fs, LockError};

/// The file system of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsFs;

impl Fs for OsFs {
    fn open(&self, path: &Path) -> io::Result<Box<dyn File>> {
        open_regular(path, OFlags::RDONLY)
    }

    fn open_for_writing(&self, path: &Path) -> io::Result<Box<dyn File>> {
        open_regular(path, OFlags::RDWR)
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn File>> {
        Ok(Box::new(OsFile::new(open(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<bool> {
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        open(path, OFlags::RDONLY | OFlags::DIRECTORY)?.sync_all()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        fs::read_dir(path)?
            .map(|entry| {
                let entry = entry?;
                let kind = entry.file_type()?;
                let kind = if kind.is_file() {
                    EntryKind::File
                } else if kind.is_dir() {
                    EntryKind::Dir
                } else if kind.is_symlink() {
                    EntryKind::Symlink
                } else {
                    EntryKind::Other
                };
                Ok(DirEntry { name: entry.file_name().to_string_lossy().into_owned(), kind })
            })
            .collect()
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>, LockError> {
        Ok(Box::new(DirLock::acquire_file(path)?))
    }
}

#[derive(Debug)]
struct OsFile {
    file: fs::File,
    is_direct: AtomicBool,
}

impl OsFile {
    const fn new(file: fs::File) -> Self {
        Self { file, is_direct: AtomicBool::new(false) }
    }

    fn set_direct(&self, is_direct: bool) -> io::Result<()> {
        let mut flags = rustix::fs::fcntl_getfl(&self.file)?;
        flags.set(OFlags::DIRECT, is_direct);
        rustix::fs::fcntl_setfl(&self.file, flags)?;
        self.is_direct.store(is_direct, Ordering::Relaxed);
        Ok(())
    }
}

impl File for OsFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        match self.file.write_at(buf, offset) {
            // Not aligned as this disk wants it: the page cache takes anything.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput && self.is_direct.load(Ordering::Relaxed) => {
                self.set_direct(false)?;
                self.file.write_at(buf, offset)
            }
            written => written,
        }
    }

    fn forget_cached(&self) {
        // Only what is synced is let go of; that it is not done changes nothing but where bytes come from.
        let _ = rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed);
    }

    fn bypass_cache(&self) {
        if let Err(error) = self.set_direct(true) {
            debug!(%error, "the file system cannot write past the page cache");
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, len)?)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

fn open(path: &Path, flags: OFlags) -> io::Result<fs::File> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(fs::File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?))
}

/// `NONBLOCK` keeps a FIFO of that name from holding us up; regular files ignore it.
fn open_regular(path: &Path, flags: OFlags) -> io::Result<Box<dyn File>> {
    let file = open(path, flags | OFlags::NONBLOCK)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(Box::new(OsFile::new(file)))
}

pub(super) fn open_lock_file(path: &Path) -> io::Result<fs::File> {
    open(path, OFlags::RDWR | OFlags::CREATE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn what_is_written_past_the_page_cache_or_cannot_be_is_read_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let file = OsFs.create_new(&dir.path().join("f")).unwrap();
        file.allocate(16 << 10).unwrap();
        file.bypass_cache();
        let block = crate::aligned::AlignedBuf::zeros(4_096);
        let unaligned = [7; 1_001];
        assert_eq!(file.write_at(&block, 4_096).unwrap(), 4_096);
        assert_eq!(file.write_at(&unaligned[1..], 8_192).unwrap(), 1_000);
        file.sync_data().unwrap();
        let mut read = [1; 3];
        assert_eq!(file.read_at(&mut read, 8_190).unwrap(), 3);
        assert_eq!(read, [0, 0, 7]);
    }

    #[test]
    fn files_and_directories_are_for_the_owner_alone_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (inner, path, link) = (dir.path().join("d"), dir.path().join("d/f"), dir.path().join("d/l"));
        assert!(OsFs.create_dir(&inner).unwrap());
        assert!(!OsFs.create_dir(&inner).unwrap());
        let file = OsFs.create_new(&path).unwrap();
        file.allocate(8192).unwrap();
        assert_eq!(file.len().unwrap(), 8192);
        symlink(&path, &link).unwrap();
        assert!(OsFs.open(&link).is_err());
        assert_eq!(fs::metadata(&inner).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let mut entries = OsFs.list(&inner).unwrap();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        assert_eq!(entries.iter().map(|entry| entry.kind).collect::<Vec<_>>(), [EntryKind::File, EntryKind::Symlink]);
    }
}
