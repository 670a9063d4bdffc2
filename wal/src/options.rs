//! What a log can be told when it is opened.

use std::time::Duration;

use crate::error::OpenError;
use crate::frame::{BLOCK_BYTES, HEADER_BYTES, MAX_BODY_BYTES};
use crate::segment::MAX_SEGMENT_BYTES;

/// How soon queued records must be on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Somebody waits for them: commit now.
    Prompt,
    /// They may wait this long for company.
    Within(Duration),
}

/// When a batch counts as durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncPolicy {
    /// When `fdatasync` has returned: it survives the machine.
    #[default]
    Always,
    /// When the operating system has it: it survives the process, not the machine. For tests and throw-away use.
    Os,
}

/// What becomes of segments that no kept snapshot needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Archive {
    /// They are deleted: nobody will ask what happened.
    Delete,
    /// They are compressed and kept for a time.
    Keep {
        /// At least so long.
        retention: Duration,
    },
}

impl Archive {
    /// Kept at least so long.
    #[must_use]
    pub const fn keep(retention: Duration) -> Self {
        Self::Keep { retention }
    }
}

impl Default for Archive {
    fn default() -> Self {
        Self::Keep { retention: Duration::from_hours(30 * 24) }
    }
}

/// What a log is opened with; `Options::default()` says what suits most.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Bytes of a segment file, a multiple of 4096 from 16 KiB to 4 GiB; 64 MiB.
    pub segment_bytes: u64,
    /// Bytes of disk kept aside for when it is full; 0 keeps none; 256 MiB.
    pub reserve_bytes: u64,
    /// Bytes of records that may be queued before an append is refused; 64 MiB.
    pub queue_bytes: usize,
    /// When a batch counts as durable; [`SyncPolicy::Always`].
    pub sync: SyncPolicy,
    /// How long the log is idle before a marker batch vouches for the last records; 50 ms.
    pub marker_after: Duration,
    /// How long to wait before a full disk is tried again; 1 s.
    pub space_retry: Duration,
    /// Written into every batch, for the owner's use; the log keeps the highest it has seen; 0.
    pub generation: u64,
    /// Written into every batch: the number of this stream among its owner's; 0.
    pub shard: u16,
    /// What becomes of segments that no kept snapshot needs; kept for 30 days.
    pub archive: Archive,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            reserve_bytes: 256 << 20,
            queue_bytes: 64 << 20,
            sync: SyncPolicy::Always,
            marker_after: Duration::from_millis(50),
            space_retry: Duration::from_secs(1),
            generation: 0,
            shard: 0,
            archive: Archive::default(),
        }
    }
}

impl Options {
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let bytes = self.segment_bytes;
        if !bytes.is_multiple_of(BLOCK_BYTES as u64) || !(4 * BLOCK_BYTES as u64..=MAX_SEGMENT_BYTES).contains(&bytes) {
            return Err(OpenError::SegmentBytes { bytes });
        }
        Ok(())
    }

    /// The segment that is made while a log opens, when somebody waits for it, is no longer than needed.
    pub(crate) fn first_segment_bytes(&self) -> u64 {
        const FIRST_BYTES: u64 = 2 * MAX_BODY_BYTES as u64;
        self.segment_bytes.min(FIRST_BYTES)
    }

    /// The longest body a batch of this log may have: block 0, one batch, a marker and a SEAL fit into a segment.
    pub(crate) fn body_limit_bytes(&self) -> usize {
        let room = self.segment_bytes.saturating_sub(3 * BLOCK_BYTES as u64) as usize;
        room.saturating_sub(HEADER_BYTES).min(MAX_BODY_BYTES)
    }
}
