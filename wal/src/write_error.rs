//! What a failed write means: wait for space, stop, or never write again.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::error::OpenError;
use crate::fs::is_no_space;

#[derive(Debug, Error)]
pub(crate) enum WriteError {
    /// The disk is full; nothing of the write is left behind. Try again.
    #[error("no space is left")]
    NoSpace,
    /// The log is being closed.
    #[error("the log is being closed")]
    Stopped,
    /// Nothing that was not durable before may be taken for durable now.
    #[error("{path} could not be {what}: {source}")]
    Broken { what: &'static str, path: PathBuf, source: io::Error },
}

impl WriteError {
    /// For a write, a create or a rename: the disk may be full.
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| if is_no_space(&source) { Self::NoSpace } else { Self::Broken { what, path, source } }
    }

    /// For a sync: any error is the last, since pages may be marked clean that never reached the disk.
    pub(crate) fn sync(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Broken { what: "synced", path, source }
    }

    /// As an answer to whoever opens a log that needs `bytes` of space in `dir`.
    pub(crate) fn on_open(self, dir: &Path, bytes: u64) -> OpenError {
        match self {
            Self::NoSpace | Self::Stopped => OpenError::NoSpace { path: dir.to_path_buf(), bytes },
            Self::Broken { what, path, source } => OpenError::Io { what, path, source },
        }
    }
}
