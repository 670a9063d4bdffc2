//! What can go wrong with a call, and what the caller does about it: retry, correct the call, or call a person.

use std::path::PathBuf;

use crate::kernel::{occurrence::State, shard::CommandError};

pub use crate::kernel::{
    refusal::{Refusal, RefusalCode},
    shard::{ClaimRefusal, RunError},
};

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
    /// A thread could not be started.
    #[error("a thread could not be started: {source}: check the limits on threads and open files")]
    Thread {
        /// The system's word.
        source: std::io::Error,
    },
    /// A setting is out of its range.
    #[error("{setting}: {problem}")]
    Setting {
        /// The builder's setter.
        setting: &'static str,
        /// Value, range and remedy.
        problem: String,
    },
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
    /// The handle is bound to another tenant.
    #[error("there is no such tenant for this caller: name its own, or leave the name out")]
    ForeignTenant,
    /// There is no such occurrence.
    #[error("there is no occurrence with this id")]
    NoOccurrence,
    /// The occurrence's instant is past and nothing is kept of it in memory.
    #[error("no occurrence with this id is kept in memory any more: read it from the log with `countwheel explain`")]
    Archived,
    /// The schedule was canceled: nothing of it changes any more.
    #[error("the schedule is canceled: create it again")]
    Canceled,
    /// Another version stands than the call was made for: read it again, then decide.
    #[error("version {current} stands, not {expected}: read the schedule again, then repeat the call")]
    VersionMismatch {
        /// The version that the call named.
        expected: u32,
        /// The version that stands.
        current: u32,
    },
    /// The key stands for a schedule that is described otherwise.
    #[error("the key belongs to another description (of version {version}): update the schedule, or use another key")]
    IdempotencyConflict {
        /// The version that stands.
        version: u32,
    },
    /// The tenant has as many schedules as it may have.
    #[error("the tenant has as many schedules as its quota allows ({limit}): delete some, or raise quotas.schedules")]
    QuotaSchedules {
        /// The quota.
        limit: u64,
    },
    /// The handle is bound to another queue.
    #[error("this caller may claim from its own queue alone: leave the entry to others, and check the token")]
    ForeignQueue,
    /// A claim is refused; unless the queue was [not heard](ClaimRefusal::NotHeard) of, its entry is settled.
    #[error("the occurrence cannot be claimed: {0}")]
    NotClaimed(ClaimRefusal),
    /// What a worker said of its run changes nothing.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Nothing is to be decided about the occurrence.
    #[error("the occurrence is {}, not {}: there is nothing to decide", state.as_str(), needed.as_str())]
    WrongState {
        /// Where it stands.
        state: State,
        /// Where it would have to stand.
        needed: State,
    },
    /// Too much is under way; retry in a moment.
    #[error("the shard has too many calls waiting: retry in a moment")]
    Overloaded,
    /// The disk is full; firing goes on as long as the reserve lasts.
    #[error("the disk is full, or too full for the space that each shard keeps aside: free some, then repeat the call")]
    DiskFull,
    /// A write to the log failed; this engine answers nothing any more until it is restarted.
    #[error("the log can no longer be trusted after a failed write ({0}): check the disk, then restart the engine")]
    Poisoned(String),
    /// Occurrences of this engine go to Redis: read them there.
    #[error("this engine delivers to redis streams: in-process workers need the embedded queue")]
    NoLocalQueue,
    /// Another engine has taken the streams over: what this one knows is out of date.
    #[error("another engine has taken the streams over ({0}): ask that one, and stop this one")]
    Fenced(String),
    /// The engine is stopping.
    #[error("the engine is stopping")]
    Stopping,
}

/// What a shard refuses, as the caller of the engine sees it.
impl From<CommandError> for CallError {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::Refused(refusal) => Self::Refused(refusal),
            CommandError::NotFound => Self::NotFound,
            CommandError::Canceled => Self::Canceled,
            CommandError::VersionMismatch { expected, current } => Self::VersionMismatch { expected, current },
            CommandError::Busy => Self::Overloaded,
            CommandError::QuotaSchedules { limit } => Self::QuotaSchedules { limit },
            CommandError::KeyTaken { version } => Self::IdempotencyConflict { version },
        }
    }
}
