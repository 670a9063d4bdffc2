//! A segmented, checksummed write-ahead log with group commit and provable recovery.
//!
//! Bytes in, bytes out: a record is a kind and some bytes, its position is an [`Lsn`]. Once [`Log::durable`] has
//! reached a record, every later open shows it, in order and bit for bit; an open that cannot promise that refuses,
//! with the file, the offset, what was expected and what was found.
//!
//! ```text
//!  append ---> queue ---> batch ---> one write, one fdatasync ---> durable
//!                                      segment | segment | segment + spare
//! ```
//!
//! It is not a database, not replicated, and knows nothing of what its records mean. It deletes segments only where two
//! snapshots, given by whoever knows what the records mean, make them superfluous.
//!
//! ```
//! use std::sync::Arc;
//! use countwheel_wal::{Log, Options, OsFs, Records, Urgency};
//!
//! # let dir = tempfile::tempdir()?;
//! # let dir = dir.path();
//! let mut options = Options::default();
//! options.segment_bytes = 1 << 20;
//! options.reserve_bytes = 0;
//! let open = |seen: &mut Vec<Vec<u8>>| {
//!     Log::open(dir, Arc::new(OsFs), options.clone(), Arc::new(|| {}), &mut |entry| {
//!         seen.push(entry.body.to_vec());
//!         Ok(())
//!     })
//! };
//! let (log, _) = open(&mut Vec::new())?;
//! let mut records = Records::new();
//! records.push(1, b"struck");
//! log.append(&records, Urgency::Prompt)?;
//! log.close()?;
//!
//! let mut seen = Vec::new();
//! open(&mut seen)?;
//! assert_eq!(seen, [b"struck"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod lsn;
mod records;

mod frame;
mod identity;
mod name;
mod segment;

mod scan;
mod source;

mod read;
mod recover;

mod aligned;
mod appender;
mod batch;
mod spare;
mod write_error;

mod health;
mod log;
mod queue;
mod stats;
mod stepped;
mod stock;
mod writer;

mod snapshot;

mod examine;
mod repair;

mod crash_point;

mod error;
mod options;

pub mod fs;
pub mod fuzz;
pub mod sim;

#[cfg(test)]
mod tests;

#[doc(hidden)]
pub use self::crash_point::crash_point;
pub use self::error::{AppendError, CloseError, Corruption, OpenError};
pub use self::examine::{Ending, Inspection, inspect, read_past, verify};
pub use self::fs::{DirLock, File, Fs, LockError, OsFs, write_file_atomically};
pub use self::health::State;
pub use self::identity::LogId;
pub use self::log::Log;
pub use self::lsn::Lsn;
pub use self::options::{Archive, Options, SyncPolicy, Urgency};
pub use self::read::SegmentSummary;
pub use self::records::{IGNORABLE, Records};
pub use self::recover::{Recovered, Torn};
pub use self::repair::{Repair, WholeSegment, repair};
pub use self::scan::Entry;
pub use self::snapshot::{Replay, SnapshotError, SnapshotWriter, Snapshotted};
pub use self::stats::{COMMIT_BUCKETS, Stats};
