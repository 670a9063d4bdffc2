//! Snapshots: what their owner remembers behind some record, so that opening need not show every record before it.
//!
//! A snapshot is written beside the log while that goes on, read back from the disk, and only then gets its name. The
//! two newest are kept. Segments whose records are all in the *older* of them leave `wal/`: into the archive, or away.

mod archive;
mod format;
mod keep;
mod load;
mod write;

pub(crate) use self::archive::{archived, read_archived};
pub(crate) use self::keep::snapshots;
pub use self::load::Replay;
pub(crate) use self::load::{load, load_from};
pub(crate) use self::write::Keeper;
#[cfg(test)]
pub(crate) use self::write::SnapshotFile;
pub use self::write::{SnapshotError, SnapshotWriter, Snapshotted};
