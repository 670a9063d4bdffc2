//! Why an experiment could not be carried out. A bad figure is not among it.

use countwheel::error::{CallError, OpenError};

/// Why an experiment could not be carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum BenchError {
    #[error("the engine did not open: {0}")]
    Open(#[from] OpenError),
    #[error("the engine refused a call: {0}")]
    Call(#[from] CallError),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("redis: {0}")]
    Redis(#[from] redis::RedisError),
    #[error("redis answered {0}, which is no entry of a stream")]
    Reply(String),
    #[error("making the schedules took until {late_ms} ms after the last moment: repeat with a longer --ahead-seconds")]
    TooSlow { late_ms: i64 },
    #[error("{expr:?} in {zone} means {found} to the engine and {expected} to chrono-tz")]
    OtherInstant { expr: String, zone: String, found: String, expected: String },
    #[error("a part of the harness ended early: {0}")]
    Ended(String),
}
