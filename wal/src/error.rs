//! What can go wrong, told by what to do about it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

use crate::fs::LockError;
use crate::lsn::Lsn;

/// Why a log was not opened. Nothing was changed that a second try would miss.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The segment size cannot be used.
    #[error("a segment of {bytes} bytes is not a multiple of 4096 from 16384 to 4294967296: choose another size")]
    SegmentBytes {
        /// What was asked for.
        bytes: u64,
    },
    /// Somebody else has the directory open.
    #[error(transparent)]
    Locked(#[from] LockError),
    /// The disk has no room for the segment that an open log needs.
    #[error("{path} has no room for {bytes} bytes: free some space, then start again")]
    NoSpace {
        /// The log's directory.
        path: PathBuf,
        /// What is needed.
        bytes: u64,
    },
    /// A newer version wrote this.
    #[error("{path} has format version {found} and this program reads up to {supported}: use a newer program")]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u16,
        /// Ours.
        supported: u16,
    },
    /// What is on disk is not what was written. A person has to look.
    #[error(
        "{0}: look at it with 'countwheel wal verify {dir}', and to give up everything from there on run 'countwheel \
         wal repair {dir}'",
        dir = .0.dir.display()
    )]
    Corrupt(Box<Corruption>),
    /// Something lies among the segments that the log did not put there.
    #[error("{path} is {found} among the segments of a log, which hold nothing else: move it away, then start again")]
    Foreign {
        /// What.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// `IDENTITY` is missing or damaged beside segments: nothing in them can be checked.
    #[error("{path} is {found} beside a log: put it back from a copy, since no batch can be checked without it")]
    Identity {
        /// The file.
        path: PathBuf,
        /// `missing` or `damaged: ...`.
        found: String,
    },
    /// A snapshot is as it was written, and whoever reads it refused it.
    #[error("{path} was refused: {reason}: use the version that wrote it")]
    Snapshot {
        /// The file.
        path: PathBuf,
        /// What the reader said.
        reason: String,
    },
    /// Whoever reads the records refused one.
    #[error("record {lsn} was refused: {reason}")]
    Visitor {
        /// Which one.
        lsn: Lsn,
        /// What the reader said.
        reason: String,
    },
    /// The system refused something.
    #[error("{path} could not be {what}: {source}")]
    Io {
        /// What was being done, as a participle: `read`, `synced`.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { what, path, source }
    }
}

/// A place in the log that cannot be what was written there, and that no crash explains.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{path} is damaged at byte {offset}, record {lsn}: expected {expected}, found {found}")]
pub struct Corruption {
    /// The file or directory.
    pub path: PathBuf,
    /// The log's directory.
    pub dir: PathBuf,
    /// Where in the file.
    pub offset: u64,
    /// The first record that cannot be read.
    pub lsn: Lsn,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

/// Why records were not queued. Nothing of them was.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The disk does not keep up, or is full: try again later, or refuse the work.
    #[error("{queued_bytes} of {limit_bytes} bytes wait to be written: try again later")]
    Full {
        /// What is queued already.
        queued_bytes: usize,
        /// [`crate::Options::queue_bytes`].
        limit_bytes: usize,
    },
    /// One record is longer than a batch: make it smaller.
    #[error("a record of {bytes} bytes is longer than the {limit_bytes} that fit into a batch: make it smaller")]
    RecordTooLarge {
        /// The largest of the records, as encoded.
        bytes: usize,
        /// What fits.
        limit_bytes: usize,
    },
    /// A write or a sync failed: this handle never writes again. Start anew and let recovery say what is durable.
    #[error("the log is poisoned ({reason}): restart, and recovery will say what is durable")]
    Poisoned {
        /// What failed.
        reason: Arc<str>,
    },
}

/// Why a log was not closed cleanly. What was durable is; the next open recovers as after a crash.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CloseError {
    /// See [`AppendError::Poisoned`].
    #[error("the log is poisoned ({reason}): restart, and recovery will say what is durable")]
    Poisoned {
        /// What failed.
        reason: Arc<str>,
    },
    /// The disk is full, so what was queued could not be written.
    #[error("the disk is full and records after {durable} were given up: free some space")]
    NoSpace {
        /// The last record that is durable.
        durable: Lsn,
    },
}
