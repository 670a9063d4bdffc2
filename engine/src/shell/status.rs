//! What a shard tells about itself, for health, readiness and metrics: renewed a few times a second, read by anyone.

use std::sync::{Arc, Mutex};

use countwheel_wal::State;

use super::metrics::{ClockSteps, ShardMetrics};
use crate::kernel::time::UnixMs;

/// A shard as of a moment ago.
#[derive(Clone, Debug)]
pub struct ShardStatus {
    /// Engine time.
    pub now: UnixMs,
    /// Why the queue takes nothing, a sentence each.
    pub queue_troubles: Vec<String>,
    /// Since when the oldest occurrence has waited that is due and not handed over.
    pub oldest_due: Option<UnixMs>,
    /// How much the queue accepted a second, over the last seconds.
    pub enqueued_per_second: f64,
    /// When the shard wants time at the latest.
    pub next_wake: Option<UnixMs>,
    /// Whether the log takes writes.
    pub log_state: State,
    /// How far the wall clock is behind engine time.
    pub clock_behind_ms: i64,
    /// Whether a forward step waits to be believed.
    pub clock_suspect: bool,
    /// Clock steps that were seen.
    pub clock_steps: ClockSteps,
    /// What it counts.
    pub metrics: ShardMetrics,
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
        } else if let Some(late_ms) = self.oldest_due.map(|at| now.since(at)).filter(|ms| *ms > Self::OVERDUE_MS) {
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
