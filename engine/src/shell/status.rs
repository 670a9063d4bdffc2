//! What a shard tells about itself, for health, readiness and metrics: renewed a few times a second, read by anyone.

use std::sync::{Arc, Mutex};

use countwheel_wal::{State, Stats};

use crate::kernel::{occurrence::Lane, shard::Counters, time::UnixMs};

/// A shard as of a moment ago.
#[derive(Clone, Debug)]
pub struct ShardStatus {
    /// Engine time.
    pub now: UnixMs,
    /// Counts since the process began.
    pub counters: Counters,
    /// Why the queue takes nothing, a sentence each.
    pub queue_troubles: Vec<String>,
    /// Occurrences waiting to be handed over.
    pub outbox: usize,
    /// The earliest `available_at` among them.
    pub oldest_outbox: Option<UnixMs>,
    /// When the shard wants time at the latest.
    pub next_wake: Option<UnixMs>,
    /// The log's figures.
    pub log: Stats,
    /// Whether the log takes writes.
    pub log_state: State,
    /// How far the wall clock is behind engine time.
    pub clock_behind_ms: i64,
    /// Whether a forward step waits to be believed.
    pub clock_suspect: bool,
    /// How many clock steps were seen, and the last in ms.
    pub clock_steps: (u64, i64),
    /// Lags of what was enqueued.
    pub lags: LagHistograms,
    /// Schedules by state (active, completed, canceled), where they were counted.
    pub schedules: Option<[u64; 3]>,
}

impl ShardStatus {
    /// An occurrence that waits longer than this behind its time, or a shard that was not given time for as long, is
    /// said aloud.
    const OVERDUE_MS: i64 = 5_000;

    /// What keeps the shard from its work, a sentence each.
    pub(crate) fn troubles(&self, now: UnixMs) -> Vec<String> {
        let mut troubles = self.queue_troubles.clone();
        match &self.log_state {
            State::Running => {}
            State::OnReserve => troubles.push("the disk is full and the log lives on its reserve: free space".into()),
            State::Full => troubles.push("the disk is full and nothing can be logged: free space".into()),
            State::Poisoned(reason) => {
                troubles.push(format!("the log is poisoned ({reason}): check the disk, restart"))
            }
            other => troubles.push(format!("the log is {other:?}")),
        }
        if self.clock_suspect {
            troubles.push("the clock leapt ahead by more than an hour: waiting a minute before it is believed".into());
        }
        if self.clock_behind_ms > 1_000 {
            troubles.push(format!(
                "the clock is {} ms behind what was decided already: firing goes on when it has caught up",
                self.clock_behind_ms
            ));
        } else if let Some(late_ms) = self.oldest_outbox.map(|at| now.since(at)).filter(|ms| *ms > Self::OVERDUE_MS) {
            troubles.push(format!("an occurrence is overdue by {late_ms} ms"));
        }
        troubles
    }
}

/// A place where a shard leaves its status.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedStatus(Arc<Mutex<Option<ShardStatus>>>);

impl SharedStatus {
    pub(crate) fn set(&self, status: ShardStatus) {
        *self.0.lock().expect("no holder panics") = Some(status);
    }

    pub(crate) fn latest(&self) -> Option<ShardStatus> {
        self.0.lock().expect("no holder panics").clone()
    }
}

/// Lags by lane.
#[derive(Clone, Debug, Default)]
pub struct LagHistograms {
    lanes: [LagHistogram; 3],
}

impl LagHistograms {
    pub(crate) fn record(&mut self, lane: Lane, lag_ms: i64) {
        self.lanes[lane as usize].record(lag_ms);
    }

    /// One lane's lags.
    #[must_use]
    pub fn lane(&self, lane: Lane) -> &LagHistogram {
        &self.lanes[lane as usize]
    }

    /// Adds another shard's.
    pub fn merge(&mut self, other: &Self) {
        for (ours, theirs) in self.lanes.iter_mut().zip(&other.lanes) {
            ours.merge(theirs);
        }
    }
}

/// Lags in milliseconds, exact below 64 ms and within 1/32 above.
#[derive(Clone, Debug)]
pub struct LagHistogram {
    counts: Vec<u64>,
    count: u64,
    sum_ms: u64,
    max_ms: u64,
}

const EXACT: u64 = 64;
const STEPS: u64 = 32;

impl Default for LagHistogram {
    fn default() -> Self {
        Self { counts: vec![0; usize::try_from(EXACT + STEPS * 58).expect("small")], count: 0, sum_ms: 0, max_ms: 0 }
    }
}

impl LagHistogram {
    fn record(&mut self, lag_ms: i64) {
        let lag_ms = lag_ms.max(0).cast_unsigned();
        self.counts[slot(lag_ms)] += 1;
        self.count += 1;
        self.sum_ms = self.sum_ms.saturating_add(lag_ms);
        self.max_ms = self.max_ms.max(lag_ms);
    }

    fn merge(&mut self, other: &Self) {
        for (ours, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *ours += theirs;
        }
        self.count += other.count;
        self.sum_ms = self.sum_ms.saturating_add(other.sum_ms);
        self.max_ms = self.max_ms.max(other.max_ms);
    }

    /// How many lags were recorded.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Their sum in ms.
    #[must_use]
    pub const fn sum_ms(&self) -> u64 {
        self.sum_ms
    }

    /// The largest in ms.
    #[must_use]
    pub const fn max_ms(&self) -> u64 {
        self.max_ms
    }

    /// The lag that `per_mille` of a thousand do not exceed, in ms; 0 when nothing was recorded.
    #[must_use]
    pub fn quantile_ms(&self, per_mille: u64) -> u64 {
        let wanted = (self.count * per_mille).div_ceil(1_000).max(1);
        let mut seen = 0;
        for (slot, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && *count > 0 {
                return upper(slot as u64).min(self.max_ms);
            }
        }
        0
    }
}

fn slot(lag_ms: u64) -> usize {
    if lag_ms < EXACT {
        return usize::try_from(lag_ms).expect("below 64");
    }
    let power = u64::from(lag_ms.ilog2());
    let step = (lag_ms >> (power - 5)) - STEPS;
    usize::try_from(EXACT + (power - 6) * STEPS + step).expect("at most 64 powers")
}

fn upper(slot: u64) -> u64 {
    if slot < EXACT {
        return slot;
    }
    let (power, step) = ((slot - EXACT) / STEPS + 6, (slot - EXACT) % STEPS);
    ((STEPS + step + 1) << (power - 5)).wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact_when_small_and_close_when_large() {
        let mut lags = LagHistogram::default();
        for lag_ms in 1..=1_000 {
            lags.record(lag_ms);
        }
        assert_eq!((lags.count(), lags.max_ms(), lags.sum_ms()), (1_000, 1_000, 500_500));
        assert_eq!(lags.quantile_ms(50), 50);
        let median = lags.quantile_ms(500);
        assert!((500..=516).contains(&median), "{median}");
        assert_eq!(lags.quantile_ms(1_000), 1_000);
        assert_eq!(LagHistogram::default().quantile_ms(990), 0);
    }

    #[test]
    fn every_lag_falls_into_a_slot_that_covers_it() {
        for lag_ms in (0..5_000).chain([u64::from(u32::MAX), i64::MAX.cast_unsigned()]) {
            let slot = slot(lag_ms) as u64;
            assert!(upper(slot) >= lag_ms, "{lag_ms} in {slot}");
            assert!(slot == 0 || upper(slot - 1) < lag_ms, "{lag_ms} in {slot}");
        }
    }
}
