//! What the engine counts: plain numbers that each shard owns and hands out as copies, and a histogram of durations.
//!
//! Nothing here is shared while it is written: a shard adds to its own [`ShardMetrics`] and publishes a clone of it;
//! who reads adds the clones up. Totals only grow within a process and start at 0 with it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::tenant_metrics::TenantMetrics;
use crate::kernel::{occurrence::Lane, shard::DueBacklog};

/// Everything that is counted, at one moment.
#[derive(Clone, Debug, Default)]
pub struct MetricsSnapshot {
    /// The engine's version.
    pub version: &'static str,
    /// The IANA release in use.
    pub tz_release: String,
    /// Whether the clock is a rehearsal's.
    pub rehearsal: bool,
    /// What `/readyz` says.
    pub ready: bool,
    /// How far engine time stands ahead of the wall clock (it stands still until the clock has caught up).
    pub engine_clock_behind: Duration,
    /// Steps of the wall clock that were seen.
    pub clock_steps_total: ClockSteps,
    /// How many logs are in each state, in the order of [`countwheel_wal::State::NAMES`].
    pub log_states: [u64; countwheel_wal::State::NAMES.len()],
    /// One for each shard, in order.
    pub shards: Vec<ShardMetrics>,
}

impl MetricsSnapshot {
    /// All shards as one.
    #[must_use]
    pub fn sum(&self) -> ShardMetrics {
        let mut sum = ShardMetrics::default();
        for shard in &self.shards {
            sum.add(shard);
        }
        sum
    }
}

/// Steps of the wall clock by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockSteps {
    /// It jumped ahead.
    pub forward: u64,
    /// It jumped back.
    pub backward: u64,
}

/// What one shard counts.
#[derive(Clone, Debug, Default)]
pub struct ShardMetrics {
    /// Schedules with a future.
    pub schedules_active: u64,
    /// Schedules that are paused.
    pub schedules_paused: u64,
    /// Schedules without one.
    pub schedules_completed: u64,
    /// Schedules that were ended and are kept for their history.
    pub schedules_canceled: u64,
    /// Schedules that the loaded zone rules cannot decide.
    pub schedules_in_error: u64,
    /// Occurrences written to the log.
    pub materialized_total: u64,
    /// Occurrences that the queue accepted, by lane.
    pub enqueued_total: ByLane<u64>,
    /// Occurrences that a worker completed.
    pub succeeded_total: u64,
    /// Instants that the misfire policy did not admit.
    pub missed_total: u64,
    /// Occurrences and instants that ended with their schedule.
    pub canceled_total: u64,
    /// Occurrences of tracked queues that consumers acknowledged without a claim, by queue; without a name, those of
    /// queues for which a shard had no room.
    pub unclaimed_total: BTreeMap<Option<String>, u64>,
    /// Instants that were materialised when they already had been.
    pub uniqueness_conflicts_total: u64,
    /// `enqueued_at` minus `scheduled_for` (flexible: minus `available_at`), by lane.
    pub lag: ByLane<DurationHistogram>,
    /// How long before `available_at` an occurrence was durable; late ones count as 0.
    pub materialization_lead: DurationHistogram,
    /// Occurrences available and not handed to the queue.
    pub due_backlog: u64,
    /// The same by lane and by how long it has been available.
    pub backlog: DueBacklog,
    /// Lags and throttling by tenant.
    pub by_tenant: Arc<TenantMetrics>,
    /// Now minus the earliest `available_at` of the due backlog.
    pub oldest_due: Duration,
    /// Occurrences materialised and not yet handed to the queue.
    pub outbox_backlog: u64,
    /// What became of runs.
    pub runs: RunMetrics,
    /// The queue.
    pub relay: RelayMetrics,
    /// The log.
    pub log: LogMetrics,
    /// Snapshots.
    pub snapshots: SnapshotMetrics,
}

/// What a shard counts of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunMetrics {
    /// Attempts begun.
    pub claims_total: u64,
    /// Attempts that failed and are followed by another.
    pub retries_total: u64,
    /// Leases that ended without an answer.
    pub leases_expired_total: u64,
    /// Answers under a token that held no lease.
    pub stale_tokens_total: u64,
    /// Occurrences that became DEAD.
    pub dead_total: u64,
    /// Occurrences that became HELD.
    pub held_total: u64,
    /// Occurrences that the overlap policy did not admit.
    pub skipped_total: u64,
}

impl RunMetrics {
    fn add(&mut self, other: &Self) {
        self.claims_total += other.claims_total;
        self.retries_total += other.retries_total;
        self.leases_expired_total += other.leases_expired_total;
        self.stale_tokens_total += other.stale_tokens_total;
        self.dead_total += other.dead_total;
        self.held_total += other.held_total;
        self.skipped_total += other.skipped_total;
    }
}

/// What a shard counts of its queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct RelayMetrics {
    /// How long the queue has been away in all, the present absence included.
    pub away_total: Duration,
    /// Whether it is away now.
    pub away: bool,
    /// Batches sent.
    pub batches_total: u64,
    /// Entries that landed.
    pub landed_total: u64,
    /// Entries that were handed over and came back.
    pub returned_total: u64,
    /// Times that a stream had lost what it had accepted.
    pub lost_total: u64,
    /// Connections made.
    pub connects_total: u64,
    /// Consumer groups that have work and did not move for an hour.
    pub stuck_groups: u64,
    /// Entries read back that somebody else had written.
    pub foreign_total: u64,
    /// Entries removed, since every group had acknowledged them.
    pub trimmed_total: u64,
    /// Processor time of the threads that talk to it.
    pub cpu_total: Duration,
}

/// What a shard counts of its log.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogMetrics {
    /// Batches made durable.
    pub syncs_total: u64,
    /// Bytes of records.
    pub record_bytes_total: u64,
    /// Bytes written, frames and padding included.
    pub written_bytes_total: u64,
    /// Time spent in syncs.
    pub sync_total: Duration,
    /// The longest sync.
    pub sync_max: Duration,
}

/// What a shard counts of its snapshots.
#[derive(Clone, Copy, Debug, Default)]
pub struct SnapshotMetrics {
    /// Snapshots written.
    pub written_total: u64,
    /// Snapshots that failed, to be tried again.
    pub failed_total: u64,
    /// Segments that left the log for a snapshot.
    pub pruned_segments_total: u64,
    /// Bytes of the newest one.
    pub bytes: u64,
    /// How long the newest one took.
    pub took: Duration,
}

impl SnapshotMetrics {
    fn add(&mut self, other: &Self) {
        self.written_total += other.written_total;
        self.failed_total += other.failed_total;
        self.pruned_segments_total += other.pruned_segments_total;
        self.bytes += other.bytes;
        self.took = self.took.max(other.took);
    }
}

impl ShardMetrics {
    /// Adds what another shard counts: totals and gauges add up, extremes stay extremes.
    pub fn add(&mut self, other: &Self) {
        self.schedules_active += other.schedules_active;
        self.schedules_paused += other.schedules_paused;
        self.schedules_completed += other.schedules_completed;
        self.schedules_canceled += other.schedules_canceled;
        self.schedules_in_error += other.schedules_in_error;
        self.materialized_total += other.materialized_total;
        self.succeeded_total += other.succeeded_total;
        self.missed_total += other.missed_total;
        self.canceled_total += other.canceled_total;
        self.uniqueness_conflicts_total += other.uniqueness_conflicts_total;
        for (queue, count) in &other.unclaimed_total {
            *self.unclaimed_total.entry(queue.clone()).or_default() += count;
        }
        for lane in Lane::ALL {
            *self.enqueued_total.of_mut(lane) += other.enqueued_total.of(lane);
            self.lag.of_mut(lane).add(other.lag.of(lane));
        }
        self.materialization_lead.add(&other.materialization_lead);
        self.due_backlog += other.due_backlog;
        self.backlog.add(&other.backlog);
        Arc::make_mut(&mut self.by_tenant).add(&other.by_tenant);
        self.oldest_due = self.oldest_due.max(other.oldest_due);
        self.outbox_backlog += other.outbox_backlog;
        self.runs.add(&other.runs);
        self.relay.add(&other.relay);
        self.snapshots.add(&other.snapshots);
        self.log.add(&other.log);
    }
}

impl RelayMetrics {
    fn add(&mut self, other: &Self) {
        self.away_total += other.away_total;
        self.away |= other.away;
        self.batches_total += other.batches_total;
        self.landed_total += other.landed_total;
        self.returned_total += other.returned_total;
        self.lost_total += other.lost_total;
        self.connects_total += other.connects_total;
        self.stuck_groups += other.stuck_groups;
        self.foreign_total += other.foreign_total;
        self.trimmed_total += other.trimmed_total;
        self.cpu_total += other.cpu_total;
    }
}

impl LogMetrics {
    fn add(&mut self, other: &Self) {
        self.syncs_total += other.syncs_total;
        self.record_bytes_total += other.record_bytes_total;
        self.written_bytes_total += other.written_bytes_total;
        self.sync_total += other.sync_total;
        self.sync_max = self.sync_max.max(other.sync_max);
    }
}

/// One value for each lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByLane<T> {
    strict: T,
    flexible: T,
    catch_up: T,
}

impl<T> ByLane<T> {
    /// The value of `lane`.
    #[must_use]
    pub const fn of(&self, lane: Lane) -> &T {
        match lane {
            Lane::Strict => &self.strict,
            Lane::Flexible => &self.flexible,
            Lane::CatchUp => &self.catch_up,
        }
    }

    /// The value of `lane`, to change.
    pub const fn of_mut(&mut self, lane: Lane) -> &mut T {
        match lane {
            Lane::Strict => &mut self.strict,
            Lane::Flexible => &mut self.flexible,
            Lane::CatchUp => &mut self.catch_up,
        }
    }
}

/// Buckets an octave of durations is cut into: a quantile is at most 1/16 too high.
const PARTS: u64 = 16;
const PARTS_BITS: u32 = PARTS.trailing_zeros();
/// Durations from 2^37 us (38 hours) on share the last bucket.
const TOP_BITS: u32 = 37;
const BUCKETS: usize = ((TOP_BITS - PARTS_BITS + 1) as usize) * PARTS as usize;

/// A histogram of durations in microseconds with a bounded relative error: buckets double every [`PARTS`].
///
/// It has a fixed size (4.4 KB on the heap), adding costs a few instructions, and there is nothing to lock: one owner
/// adds, others get clones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurationHistogram {
    counts: Box<[u64]>,
    count: u64,
    sum_us: u64,
    max_us: u64,
}

impl Default for DurationHistogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS].into_boxed_slice(), count: 0, sum_us: 0, max_us: 0 }
    }
}

impl DurationHistogram {
    /// Counts one duration.
    pub fn record(&mut self, duration: Duration) {
        self.record_us(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    }

    /// Counts one duration in microseconds.
    pub fn record_us(&mut self, us: u64) {
        self.counts[bucket_of(us)] += 1;
        self.count += 1;
        self.sum_us = self.sum_us.saturating_add(us);
        self.max_us = self.max_us.max(us);
    }

    /// Adds everything that `other` counted.
    pub fn add(&mut self, other: &Self) {
        for (mine, others) in self.counts.iter_mut().zip(&other.counts) {
            *mine += others;
        }
        self.count += other.count;
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
        self.max_us = self.max_us.max(other.max_us);
    }

    /// How many were counted.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// All of them together.
    #[must_use]
    pub const fn sum(&self) -> Duration {
        Duration::from_micros(self.sum_us)
    }

    /// The longest, exactly; zero if there is none.
    #[must_use]
    pub const fn max(&self) -> Duration {
        Duration::from_micros(self.max_us)
    }

    /// The duration that `percent` of all (0 to 100) do not exceed: never too low, at most 1/16 too high.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Duration {
        let wanted = (self.count as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration::from_micros(last_us_of(bucket).min(self.max_us));
            }
        }
        self.max()
    }

    /// How many were certainly not longer than `limit` (rounded down to a bucket's end).
    #[must_use]
    pub fn count_up_to(&self, limit: Duration) -> u64 {
        let limit_us = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        self.counts.iter().enumerate().take_while(|(bucket, _)| last_us_of(*bucket) <= limit_us).map(|(_, n)| n).sum()
    }
}

/// Below [`PARTS`] each microsecond has its bucket; above, the leading bit picks the octave and the next four the part.
fn bucket_of(us: u64) -> usize {
    if us < PARTS {
        return us as usize;
    }
    let octave = us.ilog2() - PARTS_BITS;
    let part = (us >> octave) - PARTS;
    ((u64::from(octave + 1) * PARTS + part) as usize).min(BUCKETS - 1)
}

/// The longest duration that falls into `bucket`.
fn last_us_of(bucket: usize) -> u64 {
    let (octave, part) = (bucket as u64 / PARTS, bucket as u64 % PARTS);
    match octave {
        0 => part,
        _ if bucket == BUCKETS - 1 => u64::MAX,
        _ => ((PARTS + part + 1) << (octave - 1)) - 1,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_have_no_holes_and_no_overlap() {
        let mut expected_first = 0;
        for bucket in 0..BUCKETS - 1 {
            let last = last_us_of(bucket);
            assert_eq!(bucket_of(expected_first), bucket, "first of {bucket}");
            assert_eq!(bucket_of(last), bucket, "last of {bucket}");
            expected_first = last + 1;
        }
        assert_eq!(bucket_of(expected_first), BUCKETS - 1);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn an_empty_histogram_says_zero() {
        let empty = DurationHistogram::default();
        assert_eq!((empty.percentile(99.0), empty.max(), empty.count()), (Duration::ZERO, Duration::ZERO, 0));
        assert_eq!(empty.count_up_to(Duration::MAX), 0);
    }

    #[test]
    fn shards_add_up_and_extremes_stay_extremes() {
        let mut one = ShardMetrics { due_backlog: 2, oldest_due: Duration::from_secs(3), ..ShardMetrics::default() };
        one.lag.of_mut(Lane::Strict).record_us(100);
        let mut two = ShardMetrics { due_backlog: 5, oldest_due: Duration::from_secs(1), ..ShardMetrics::default() };
        two.relay.away = true;
        two.lag.of_mut(Lane::Strict).record_us(7_000);
        *two.enqueued_total.of_mut(Lane::CatchUp) = 9;
        let sum = MetricsSnapshot { shards: vec![one, two], ..MetricsSnapshot::default() }.sum();
        assert_eq!((sum.due_backlog, sum.oldest_due, sum.relay.away), (7, Duration::from_secs(3), true));
        assert_eq!((sum.lag.of(Lane::Strict).count(), *sum.enqueued_total.of(Lane::CatchUp)), (2, 9));
        assert_eq!(sum.lag.of(Lane::Strict).max(), Duration::from_micros(7_000));
    }

    proptest! {
        #[test]
        fn a_percentile_is_never_too_low_and_at_most_a_sixteenth_too_high(
            mut all in prop::collection::vec(0_u64..1 << 36, 1..200),
            percent in 0.0_f64..=100.0,
        ) {
            let mut histogram = DurationHistogram::default();
            for us in &all {
                histogram.record_us(*us);
            }
            all.sort_unstable();
            let rank = ((all.len() as f64 * percent / 100.0).ceil() as usize).max(1);
            let exact = all[rank - 1];
            let told = histogram.percentile(percent).as_micros() as u64;
            prop_assert!(told >= exact, "{told} is below {exact}");
            prop_assert!(told <= exact + exact / PARTS, "{told} is far above {exact}");
        }
    }
}
