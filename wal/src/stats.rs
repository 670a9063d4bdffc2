//! What a log has done since it was opened.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bucket `i` of [`Stats::commit_buckets`] counts commits of less than `2^(i + 4)` microseconds; the last, all others.
pub const COMMIT_BUCKETS: usize = 20;

/// What a log has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Batches written, markers and SEALs included; with [`crate::SyncPolicy::Always`] each was one sync.
    pub batches: u64,
    /// Segments begun after the first.
    pub segments: u64,
    /// Bytes written to segments, headers and padding included.
    pub written_bytes: u64,
    /// Records made durable.
    pub records: u64,
    /// Their bytes as encoded.
    pub record_bytes: u64,
    /// Commits of records: one write and one sync each, and what a rotation took.
    pub commits: u64,
    /// How long they took together.
    pub commit_seconds_sum: f64,
    /// How long the slowest took.
    pub commit_seconds_max: f64,
    /// How long they took, by powers of two; see [`COMMIT_BUCKETS`].
    pub commit_buckets: [u64; COMMIT_BUCKETS],
}

/// The counters behind [`Stats`]; written by the writer alone.
#[derive(Default)]
pub(crate) struct Meter {
    pub(crate) batches: AtomicU64,
    pub(crate) segments: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) records: AtomicU64,
    pub(crate) record_bytes: AtomicU64,
    commits: AtomicU64,
    commit_ns_sum: AtomicU64,
    commit_ns_max: AtomicU64,
    commit_buckets: [AtomicU64; COMMIT_BUCKETS],
}

impl Meter {
    pub(crate) fn add_commit(&self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = (u64::BITS - (ns >> 14).leading_zeros()) as usize;
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.commit_ns_sum.fetch_add(ns, Ordering::Relaxed);
        self.commit_ns_max.fetch_max(ns, Ordering::Relaxed);
        self.commit_buckets[bucket.min(COMMIT_BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            batches: read(&self.batches),
            segments: read(&self.segments),
            written_bytes: read(&self.written_bytes),
            records: read(&self.records),
            record_bytes: read(&self.record_bytes),
            commits: read(&self.commits),
            commit_seconds_sum: read(&self.commit_ns_sum) as f64 / 1e9,
            commit_seconds_max: read(&self.commit_ns_max) as f64 / 1e9,
            commit_buckets: std::array::from_fn(|index| read(&self.commit_buckets[index])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_counted_in_the_bucket_of_its_power_of_two() {
        let meter = Meter::default();
        for us in [1, 17, 33, 1_000, 100_000_000] {
            meter.add_commit(Duration::from_micros(us));
        }
        let stats = meter.stats();
        let filled: Vec<usize> = (0..COMMIT_BUCKETS).filter(|&index| stats.commit_buckets[index] > 0).collect();
        assert_eq!(filled, [0, 1, 2, 6, COMMIT_BUCKETS - 1]);
        assert_eq!((stats.commits, stats.commit_seconds_max), (5, 100.0));
    }
}
