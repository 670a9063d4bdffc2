//! The real file system: `pread`, `pwrite`, `fdatasync`; files for the owner alone, no link followed.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, Mode, OFlags};

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
        Ok(Box::new(OsFile(open(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?)))
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
struct OsFile(fs::File);

impl File for OsFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(buf, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(&self.0, FallocateFlags::empty(), 0, len)?)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
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
    Ok(Box::new(OsFile(file)))
}

pub(super) fn open_lock_file(path: &Path) -> io::Result<fs::File> {
    open(path, OFlags::RDWR | OFlags::CREATE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

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
