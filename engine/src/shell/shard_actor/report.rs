//! What a shard tells about itself, now and then: its status, and what it counts.

use std::{sync::Arc, time::Duration};

use super::{ShardActor, millis};
use crate::shell::{
    metrics::{ClockSteps, LogMetrics, RelayMetrics, RunMetrics},
    status::ShardStatus,
};

/// The status that `/metrics` and `/readyz` read is renewed at most this often.
const STATUS_EVERY_MS: i64 = 100;

impl ShardActor {
    pub(super) fn publish_status(&mut self, boottime_ms: i64) {
        let has_trouble = self.shard.queue_troubles().next().is_some();
        let is_new = has_trouble != self.had_trouble;
        if !is_new && boottime_ms.saturating_sub(self.status_at_ms) < STATUS_EVERY_MS {
            return;
        }
        self.had_trouble = has_trouble;
        self.status_at_ms = boottime_ms;
        let reading = self.clock.reading();
        let queue_troubles: Vec<String> = self.shard.queue_troubles().map(str::to_owned).collect();
        self.refresh_metrics(!queue_troubles.is_empty());
        self.pace.look(boottime_ms, self.shard.counters().enqueued);
        self.tenants.choose(boottime_ms);
        let Some(journal) = &self.journal else { return };
        self.status.set(ShardStatus {
            now: self.time.now(),
            queue_troubles,
            oldest_due: self.metrics.backlog.oldest,
            enqueued_per_second: self.pace.per_second(),
            next_wake: self.shard.next_wake(),
            log_state: journal.state(),
            clock_behind_ms: self.time.behind_ms(reading),
            clock_suspect: self.time.is_suspect(),
            clock_steps: {
                let (forward, backward) = self.time.steps();
                ClockSteps { forward, backward }
            },
            metrics: self.metrics.clone(),
        });
    }

    /// Takes over what others count.
    fn refresh_metrics(&mut self, away: bool) {
        let Some(journal) = &self.journal else { return };
        let (counters, log) = (self.shard.counters(), journal.log().stats());
        let [active, paused, completed, canceled] = self.shard.schedules_by_state();
        let now = self.time.now();
        let backlog = self.shard.backlog(now);
        self.metrics.schedules_active = active;
        self.metrics.schedules_paused = paused;
        self.metrics.schedules_completed = completed;
        self.metrics.schedules_canceled = canceled;
        self.metrics.materialized_total = counters.materialized;
        self.metrics.succeeded_total = counters.completed;
        self.metrics.missed_total = counters.missed;
        self.metrics.canceled_total = counters.canceled;
        self.metrics.uniqueness_conflicts_total = counters.conflicts;
        self.metrics.unclaimed_total =
            self.shard.unclaimed().map(|(queue, count)| (queue.map(str::to_owned), count)).collect();
        self.metrics.outbox_backlog = self.shard.outbox_len() as u64;
        self.metrics.due_backlog = backlog.len();
        self.metrics.backlog = backlog;
        self.metrics.by_tenant =
            Arc::new(self.tenants.snapshot(|tenant| self.shard.tenant_name(tenant), self.shard.throttled()));
        self.metrics.oldest_due = backlog.oldest.map_or(Duration::ZERO, |at| millis(now.since(at)));
        self.metrics.runs = RunMetrics {
            claims_total: counters.claimed,
            retries_total: counters.retries,
            leases_expired_total: counters.expired,
            stale_tokens_total: counters.stale_tokens,
            dead_total: counters.dead,
            held_total: counters.held,
            skipped_total: counters.skipped,
        };
        self.metrics.snapshots = self.snapshots.metrics();
        self.metrics.relay = RelayMetrics { away, ..self.backend.queue().metrics() };
        self.metrics.log = LogMetrics {
            syncs_total: log.batches,
            record_bytes_total: log.record_bytes,
            written_bytes_total: log.written_bytes,
            sync_total: Duration::from_secs_f64(log.commit_seconds_sum),
            sync_max: Duration::from_secs_f64(log.commit_seconds_max),
        };
    }
}
