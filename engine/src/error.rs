//! What can go wrong with a call, and what the caller does about it: retry, correct the call, or call a person.

use std::path::PathBuf;

use crate::kernel::calendar::CalendarError;

/// Why an engine did not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process, or another engine in this one, holds the directory.
    #[error("{path}: the data directory is locked by {holder}: stop that engine or choose another directory")]
    Locked {
        /// The directory.
        path: PathBuf,
        /// Who holds it, as far as the lock file says.
        holder: String,
    },
    /// The directory was made for something else.
    #[error("{path}: {what}: {remedy}")]
    Refused {
        /// The directory or file.
        path: PathBuf,
        /// What it is and what was expected.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// A shard's log does not open.
    #[error("shard {shard}: {source}")]
    Log {
        /// The shard.
        shard: u16,
        /// The log's own words: segment, offset, expected, found, and the command to go on.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Reading or writing failed.
    #[error("{path}: {source}: check that the path exists, is writable and has space")]
    Io {
        /// What was read or written.
        path: PathBuf,
        /// The system's word.
        source: std::io::Error,
    },
    /// The zone rules could not be loaded.
    #[error("zone rules: {0}")]
    Zones(String),
    /// A setting is out of its range.
    #[error("{setting}: {problem}")]
    Setting {
        /// The builder's setter.
        setting: &'static str,
        /// Value, range and remedy.
        problem: String,
    },
}

/// A part of a schedule that was refused; correct the call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct Refusal {
    /// Why, as a stable word.
    pub code: RefusalCode,
    /// The path of the input: `rule.cron`.
    pub field: String,
    /// Value, problem and remedy in one sentence.
    pub message: String,
}

/// Why a part of a schedule was refused, as a stable word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalCode {
    /// The cron expression is malformed.
    InvalidCron,
    /// The zone is not a name of the loaded release.
    UnknownZone,
    /// The rule has no instant at all, or none in its bounds.
    NeverFires,
    /// A one-off's instant is not in the future.
    InThePast,
    /// The flexible window is longer than the shortest gap between instants.
    WindowTooLong,
    /// Anything else.
    Invalid,
}

impl RefusalCode {
    /// The word that users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidCron => "invalid_cron",
            Self::UnknownZone => "unknown_zone",
            Self::NeverFires => "never_fires",
            Self::InThePast => "in_the_past",
            Self::WindowTooLong => "window_too_long",
            Self::Invalid => "invalid",
        }
    }
}

/// Why a call to a running engine failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// Correct the call.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// There is no such schedule.
    #[error("there is no schedule with this id")]
    NotFound,
    /// Too much is under way; retry in a moment.
    #[error("the shard has too many calls waiting: retry in a moment")]
    Overloaded,
    /// The disk is full; firing goes on as long as the reserve lasts.
    #[error("the disk is full: free space in the data directory, then retry")]
    DiskFull,
    /// A write to the log failed; this engine answers nothing any more until it is restarted.
    #[error("the log can no longer be trusted after a failed write ({0}): check the disk, then restart the engine")]
    Poisoned(String),
    /// The engine is stopping.
    #[error("the engine is stopping")]
    Stopping,
}

impl From<CalendarError> for Refusal {
    fn from(error: CalendarError) -> Self {
        let _ = error;
        Self { code: RefusalCode::Invalid, field: String::new(), message: String::new() }
    }
}
