//! Who holds a directory: one process, and in it one handle.

use std::fs::TryLockError;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::os::open_lock_file;

/// Why a directory was not locked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LockError {
    /// This or another process holds it.
    #[error("{path} is held by {holder}: stop it first, or use another directory")]
    Held {
        /// The lock file.
        path: PathBuf,
        /// `process PID` as the holder wrote it, for people only.
        holder: String,
    },
    /// The lock file cannot be opened or locked.
    #[error("{path} cannot be locked: {source}")]
    Io {
        /// The lock file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// The lock on a directory (`LOCK` in it), held until it is dropped or the process ends.
///
/// It belongs to the open file, so a second handle in one process is refused like a second process. The process id
/// in the file is for people: nothing reads it to decide.
#[derive(Debug)]
pub struct DirLock {
    _file: std::fs::File,
}

impl DirLock {
    /// Locks `dir`, which must exist.
    ///
    /// # Errors
    /// [`LockError::Held`] if somebody has it.
    pub fn acquire(dir: &Path) -> Result<Self, LockError> {
        Self::acquire_file(&dir.join("LOCK"))
    }

    pub(super) fn acquire_file(path: &Path) -> Result<Self, LockError> {
        let failed = |source| LockError::Io { path: path.to_path_buf(), source };
        let mut file = open_lock_file(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LockError::Held { path: path.to_path_buf(), holder: holder(&mut file) });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
        writeln!(file, "{}", std::process::id()).map_err(failed)?;
        Ok(Self { _file: file })
    }
}

fn holder(file: &mut std::fs::File) -> String {
    let mut text = String::new();
    let read = file.take(20).read_to_string(&mut text);
    match text.trim().parse::<u32>() {
        Ok(pid) if read.is_ok() => format!("process {pid}"),
        _ => "another process".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_in_one_process_is_refused_until_the_first_lets_go() {
        let dir = tempfile::tempdir().unwrap();
        let first = DirLock::acquire(dir.path()).unwrap();
        let refused = DirLock::acquire(dir.path()).unwrap_err().to_string();
        assert!(refused.contains(&format!("process {}", std::process::id())), "{refused}");
        drop(first);
        DirLock::acquire(dir.path()).unwrap();
    }
}
