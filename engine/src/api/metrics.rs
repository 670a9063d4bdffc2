//! How what the engine counts is written for Prometheus: text format 0.0.4, units in the names.

use std::{fmt::Write, time::Duration};

use crate::{
    kernel::{occurrence::Lane, shard::AGES_MS},
    shell::{
        metrics::{DurationHistogram, MetricsSnapshot, RunMetrics, ShardMetrics},
        tenant_metrics::TenantCounts,
    },
};

/// What `/metrics` answers with.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Upper ends of the lag buckets in milliseconds: from well on time to the default `max_lateness`.
const LAG_BUCKETS_MS: [u64; 14] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 60_000];

/// The whole page.
pub(crate) fn render(snapshot: &MetricsSnapshot) -> String {
    let sum = snapshot.sum();
    let mut page = Page(String::with_capacity(8 * 1024));
    engine(&mut page, snapshot);
    schedules(&mut page, &sum);
    occurrences(&mut page, &sum);
    runs(&mut page, &sum.runs);
    lag(&mut page, &sum);
    backlog(&mut page, &sum);
    tenants(&mut page, &sum);
    queue(&mut page, &sum);
    log(&mut page, &sum);
    page.0
}

fn engine(page: &mut Page, snapshot: &MetricsSnapshot) {
    page.family("build_info", Type::Gauge, "The running version; always 1.");
    page.sample("build_info", &[("version", snapshot.version)], 1);
    page.family("tz_release_info", Type::Gauge, "The IANA release of the zone rules in use; always 1.");
    page.sample("tz_release_info", &[("release", &snapshot.tz_release)], 1);
    page.gauge("rehearsal", "1 while the clock is a rehearsal's.", u64::from(snapshot.rehearsal));
    page.gauge("ready", "What /readyz says.", u64::from(snapshot.ready));
    page.gauge("shards", "Shards of the data directory.", snapshot.shards.len());
    page.gauge(
        "engine_clock_behind_seconds",
        "How far the wall clock is behind engine time, which stands still until it has caught up.",
        seconds(snapshot.engine_clock_behind),
    );
    page.family("clock_steps_total", Type::Counter, "Steps of the wall clock that were seen.");
    page.sample("clock_steps_total", &[("direction", "forward")], snapshot.clock_steps_total.forward);
    page.sample("clock_steps_total", &[("direction", "backward")], snapshot.clock_steps_total.backward);
    page.family("logs", Type::Gauge, "Logs of shards by state.");
    for (state, count) in countwheel_wal::State::NAMES.iter().zip(snapshot.log_states) {
        page.sample("logs", &[("state", state)], count);
    }
}

fn schedules(page: &mut Page, sum: &ShardMetrics) {
    page.family("schedules", Type::Gauge, "Schedules by state.");
    page.sample("schedules", &[("state", "active")], sum.schedules_active);
    page.sample("schedules", &[("state", "paused")], sum.schedules_paused);
    page.sample("schedules", &[("state", "completed")], sum.schedules_completed);
    page.sample("schedules", &[("state", "canceled")], sum.schedules_canceled);
    page.gauge(
        "schedules_in_error",
        "Schedules that the loaded zone rules cannot decide; nothing of them fires.",
        sum.schedules_in_error,
    );
}

fn occurrences(page: &mut Page, sum: &ShardMetrics) {
    page.counter("occurrences_materialized_total", "Occurrences written to the log.", sum.materialized_total);
    page.family("occurrences_enqueued_total", Type::Counter, "Occurrences that the queue accepted.");
    for lane in Lane::ALL {
        page.sample("occurrences_enqueued_total", &[("lane", lane.as_str())], *sum.enqueued_total.of(lane));
    }
    page.counter("occurrences_succeeded_total", "Occurrences that a worker completed.", sum.succeeded_total);
    page.counter("occurrences_missed_total", "Instants that the misfire policy did not admit.", sum.missed_total);
    page.counter("occurrences_canceled_total", "Occurrences that ended with their schedule.", sum.canceled_total);
    page.counter(
        "uniqueness_conflicts_total",
        "Instants that were materialised when they already had been; each stayed one occurrence.",
        sum.uniqueness_conflicts_total,
    );
    page.gauge("due_backlog", "Occurrences available and not handed to the queue.", sum.due_backlog);
    page.gauge("oldest_due_seconds", "How long the oldest of the due backlog has waited.", seconds(sum.oldest_due));
    page.gauge("outbox_backlog", "Occurrences materialised and not yet handed to the queue.", sum.outbox_backlog);
}

fn runs(page: &mut Page, runs: &RunMetrics) {
    page.counter("claims_total", "Attempts that workers were granted.", runs.claims_total);
    page.counter("retries_total", "Attempts that failed and are followed by another.", runs.retries_total);
    page.counter("leases_expired_total", "Leases that ended without an answer.", runs.leases_expired_total);
    page.counter(
        "stale_tokens_total",
        "Answers under a token that held no lease; they changed nothing.",
        runs.stale_tokens_total,
    );
    page.counter("occurrences_dead_total", "Occurrences that failed for good.", runs.dead_total);
    page.counter("occurrences_held_total", "Occurrences that were left to a person's decision.", runs.held_total);
    page.counter(
        "occurrences_skipped_overlap_total",
        "Occurrences that the overlap policy did not admit.",
        runs.skipped_total,
    );
}

fn lag(page: &mut Page, sum: &ShardMetrics) {
    const LAG: &str = "From the instant (flexible: from available_at) to the queue's acceptance.";
    page.family("schedule_lag_seconds", Type::Histogram, LAG);
    for lane in Lane::ALL {
        page.buckets("schedule_lag_seconds", lane, sum.lag.of(lane));
    }
    for (name, percent) in [("p50", 50.0), ("p95", 95.0), ("p99", 99.0)] {
        let family = format!("schedule_lag_{name}_seconds");
        page.family(&family, Type::Gauge, "Percentile of the schedule lag since the start.");
        for lane in Lane::ALL {
            page.sample(&family, &[("lane", lane.as_str())], seconds(sum.lag.of(lane).percentile(percent)));
        }
    }
    page.family("schedule_lag_max_seconds", Type::Gauge, "Longest schedule lag since the start.");
    for lane in Lane::ALL {
        page.sample("schedule_lag_max_seconds", &[("lane", lane.as_str())], seconds(sum.lag.of(lane).max()));
    }
    page.family(
        "materialization_lead_seconds",
        Type::Summary,
        "How long before it was available an occurrence was durable; too late counts as 0.",
    );
    // The lead is read from below: the 1st and 5th percentile are the occurrences that were nearly late.
    for (quantile, percent) in [("0.01", 1.0), ("0.05", 5.0), ("0.5", 50.0)] {
        let lead = sum.materialization_lead.percentile(percent);
        page.sample("materialization_lead_seconds", &[("quantile", quantile)], seconds(lead));
    }
    page.sample("materialization_lead_seconds_sum", &[], seconds(sum.materialization_lead.sum()));
    page.sample("materialization_lead_seconds_count", &[], sum.materialization_lead.count());
}

/// Upper ends of [`AGES_MS`] as people write them.
const AGES: [&str; AGES_MS.len() + 1] = ["1s", "10s", "1m", "10m", "1h", "more"];

fn backlog(page: &mut Page, sum: &ShardMetrics) {
    const HELP: &str = "Occurrences available and not handed to the queue, by lane and by how long: below `age`.";
    page.family("due_backlog_by_age", Type::Gauge, HELP);
    for (age, by_lane) in AGES.iter().zip(sum.backlog.by_age) {
        for (lane, count) in Lane::ALL.iter().zip(by_lane) {
            page.sample("due_backlog_by_age", &[("lane", lane.as_str()), ("age", age)], count);
        }
    }
}

/// Stands for all tenants, or queues, that have no label of their own: none has this name.
const OTHERS: &str = "_other";

fn tenants(page: &mut Page, sum: &ShardMetrics) {
    let by_tenant = &sum.by_tenant;
    let named = by_tenant.tenants.iter().map(|(name, counts)| (&**name, counts));
    let all: Vec<(&str, &TenantCounts)> = named.chain([(OTHERS, &by_tenant.other)]).collect();
    const LAG: &str = "Schedule lag by lane for the most active tenants; `_other`: all others together.";
    page.family("tenant_schedule_lag_seconds", Type::Summary, LAG);
    for (tenant, counts) in &all {
        for lane in Lane::ALL {
            let lag = counts.lag.of(lane);
            if lag.count() > 0 {
                page.quantiles("tenant_schedule_lag_seconds", &[("tenant", tenant), ("lane", lane.as_str())], lag);
            }
        }
    }
    page.family(
        "tenant_schedule_lag_max_seconds",
        Type::Gauge,
        "Longest schedule lag since the tenant has a name here.",
    );
    for (tenant, counts) in &all {
        for lane in Lane::ALL {
            let lag = counts.lag.of(lane);
            if lag.count() > 0 {
                let labels = [("tenant", *tenant), ("lane", lane.as_str())];
                page.sample("tenant_schedule_lag_max_seconds", &labels, seconds(lag.max()));
            }
        }
    }
    page.family("throttled_total", Type::Counter, "Times that a tenant's line had to wait for a rate.");
    for (tenant, counts) in &all {
        let TenantCounts { trigger_throttled_total: trigger, catch_up_throttled_total: catch_up, .. } = counts;
        for (rate, times) in [("trigger", trigger), ("catch_up", catch_up)] {
            page.sample("throttled_total", &[("tenant", tenant), ("rate", rate)], times);
        }
    }
}

fn queue(page: &mut Page, sum: &ShardMetrics) {
    let relay = &sum.relay;
    page.gauge("queue_away", "1 while a shard's queue takes nothing.", u64::from(relay.away));
    page.counter("queue_away_seconds_total", "How long queues were away, over all shards.", seconds(relay.away_total));
    page.counter("relay_batches_total", "Batches sent to the queue.", relay.batches_total);
    page.counter("relay_landed_total", "Entries that the queue accepted.", relay.landed_total);
    page.counter("relay_returned_total", "Entries handed over that came back.", relay.returned_total);
    page.counter("relay_lost_total", "Times that a stream had lost what it had accepted.", relay.lost_total);
    page.counter("relay_cpu_seconds_total", "Processor time spent on talking to the queue.", seconds(relay.cpu_total));
    page.counter("relay_trimmed_total", "Entries removed: every group had acknowledged them.", relay.trimmed_total);
    page.counter("relay_foreign_total", "Entries in our streams that somebody else had written.", relay.foreign_total);
    page.gauge("stuck_groups", "Consumer groups that have work and did not move for an hour.", relay.stuck_groups);
    const UNCLAIMED: &str = "Occurrences of tracked queues that consumers acknowledged without a claim.";
    page.family("acknowledged_unclaimed_total", Type::Counter, UNCLAIMED);
    for (queue, count) in &sum.unclaimed_total {
        page.sample("acknowledged_unclaimed_total", &[("queue", queue.as_deref().unwrap_or(OTHERS))], count);
    }
    page.counter("relay_connects_total", "Connections made to the queue.", relay.connects_total);
}

fn log(page: &mut Page, sum: &ShardMetrics) {
    let log = &sum.log;
    page.counter("log_syncs_total", "Batches of the log made durable.", log.syncs_total);
    page.counter("log_sync_seconds_total", "Time spent in syncs of the log.", seconds(log.sync_total));
    page.gauge("log_sync_max_seconds", "Longest sync of the log since the start.", seconds(log.sync_max));
    page.counter("log_record_bytes_total", "Bytes of records in the log.", log.record_bytes_total);
    page.counter(
        "log_written_bytes_total",
        "Bytes written to the log, frames and padding included.",
        log.written_bytes_total,
    );
    let snapshots = &sum.snapshots;
    page.counter("snapshots_total", "Snapshots written.", snapshots.written_total);
    page.counter("snapshots_failed_total", "Snapshots that failed and are tried again.", snapshots.failed_total);
    page.gauge("snapshot_bytes", "Bytes of the newest snapshots of all shards.", snapshots.bytes);
    page.gauge("snapshot_seconds", "How long the newest snapshot of the slowest shard took.", seconds(snapshots.took));
    page.counter(
        "log_pruned_segments_total",
        "Segments that left the log since snapshots hold what they held.",
        snapshots.pruned_segments_total,
    );
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

#[derive(Clone, Copy)]
enum Type {
    Counter,
    Gauge,
    Histogram,
    Summary,
}

impl Type {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
        }
    }
}

/// A page of text format; every name gets the prefix `countwheel_`.
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: Type, help: &str) {
        self.write(format_args!("# HELP countwheel_{name} {help}\n# TYPE countwheel_{name} {}\n", kind.as_str()));
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl std::fmt::Display) {
        self.family(name, Type::Gauge, help);
        self.sample(name, &[], value);
    }

    fn counter(&mut self, name: &str, help: &str, value: impl std::fmt::Display) {
        self.family(name, Type::Counter, help);
        self.sample(name, &[], value);
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.write(format_args!("countwheel_{name}"));
        for (index, (label, text)) in labels.iter().enumerate() {
            self.write(format_args!("{}{label}=\"{}\"", if index == 0 { '{' } else { ',' }, escaped(text)));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        self.write(format_args!("{end} {value}\n"));
    }

    fn quantiles(&mut self, name: &str, labels: &[(&str, &str)], histogram: &DurationHistogram) {
        for (quantile, percent) in [("0.5", 50.0), ("0.95", 95.0), ("0.99", 99.0)] {
            let labels = [labels, &[("quantile", quantile)]].concat();
            self.sample(name, &labels, seconds(histogram.percentile(percent)));
        }
        self.sample(&format!("{name}_sum"), labels, seconds(histogram.sum()));
        self.sample(&format!("{name}_count"), labels, histogram.count());
    }

    fn buckets(&mut self, name: &str, lane: Lane, histogram: &DurationHistogram) {
        let bucket = format!("{name}_bucket");
        for ms in LAG_BUCKETS_MS {
            let limit = Duration::from_millis(ms);
            let le = seconds(limit).to_string();
            self.sample(&bucket, &[("lane", lane.as_str()), ("le", &le)], histogram.count_up_to(limit));
        }
        self.sample(&bucket, &[("lane", lane.as_str()), ("le", "+Inf")], histogram.count());
        self.sample(&format!("{name}_sum"), &[("lane", lane.as_str())], seconds(histogram.sum()));
        self.sample(&format!("{name}_count"), &[("lane", lane.as_str())], histogram.count());
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        self.0.write_fmt(text).expect("a String takes everything");
    }
}

/// A label's value as the format wants it.
fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::shell::tenant_metrics::TenantMetrics;

    fn page() -> String {
        let mut shard = ShardMetrics { schedules_active: 3, due_backlog: 7, ..ShardMetrics::default() };
        shard.lag.of_mut(Lane::Strict).record_us(900);
        shard.lag.of_mut(Lane::Strict).record_us(80_000);
        *shard.enqueued_total.of_mut(Lane::Strict) = 2;
        shard.backlog.by_age[1] = [0, 0, 5];
        shard.runs = RunMetrics { claims_total: 1, retries_total: 2, leases_expired_total: 3, ..shard.runs };
        shard.runs = RunMetrics { stale_tokens_total: 4, dead_total: 5, held_total: 6, ..shard.runs };
        shard.runs = RunMetrics { skipped_total: 7, ..shard.runs };
        let mut acme = TenantCounts { trigger_throttled_total: 3, ..TenantCounts::default() };
        acme.lag.of_mut(Lane::Strict).record_us(80_000);
        shard.by_tenant =
            Arc::new(TenantMetrics { tenants: [("acme".into(), acme)].into(), ..TenantMetrics::default() });
        shard.unclaimed_total = [(Some("mail".into()), 4), (None, 2)].into();
        let snapshot = MetricsSnapshot {
            version: "0.1.0",
            tz_release: "20\"26c\n".into(),
            shards: vec![shard.clone(), ShardMetrics { runs: shard.runs, ..ShardMetrics::default() }],
            ..MetricsSnapshot::default()
        };
        render(&snapshot)
    }

    #[test]
    fn shards_are_summed_and_labels_escaped() {
        let page = page();
        for line in [
            "countwheel_shards 2",
            "countwheel_schedules{state=\"active\"} 3",
            "countwheel_due_backlog 7",
            "countwheel_occurrences_enqueued_total{lane=\"strict\"} 2",
            "countwheel_claims_total 2",
            "countwheel_retries_total 4",
            "countwheel_leases_expired_total 6",
            "countwheel_stale_tokens_total 8",
            "countwheel_occurrences_dead_total 10",
            "countwheel_occurrences_held_total 12",
            "countwheel_occurrences_skipped_overlap_total 14",
            "countwheel_tz_release_info{release=\"20\\\"26c\\n\"} 1",
            "countwheel_schedule_lag_seconds_bucket{lane=\"strict\",le=\"0.001\"} 1",
            "countwheel_schedule_lag_seconds_bucket{lane=\"strict\",le=\"0.1\"} 2",
            "countwheel_schedule_lag_seconds_bucket{lane=\"strict\",le=\"+Inf\"} 2",
            "countwheel_schedule_lag_seconds_count{lane=\"strict\"} 2",
            "countwheel_schedule_lag_max_seconds{lane=\"strict\"} 0.08",
            "countwheel_due_backlog_by_age{lane=\"catchup\",age=\"10s\"} 5",
            "countwheel_tenant_schedule_lag_seconds{tenant=\"acme\",lane=\"strict\",quantile=\"0.99\"} 0.08",
            "countwheel_tenant_schedule_lag_seconds_count{tenant=\"acme\",lane=\"strict\"} 1",
            "countwheel_throttled_total{tenant=\"acme\",rate=\"trigger\"} 3",
            "countwheel_acknowledged_unclaimed_total{queue=\"mail\"} 4",
            "countwheel_acknowledged_unclaimed_total{queue=\"_other\"} 2",
            "countwheel_throttled_total{tenant=\"_other\",rate=\"catch_up\"} 0",
        ] {
            assert!(page.lines().any(|there| there == line), "{line} is missing in\n{page}");
        }
    }

    #[test]
    fn every_sample_belongs_to_a_family_that_is_told_once_and_before_it() {
        let page = page();
        let mut families = Vec::new();
        for line in page.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let name = rest.split(' ').next().unwrap();
                assert!(!families.contains(&name), "{name} twice");
                families.push(name);
            } else if !line.starts_with('#') {
                let family = *families.last().unwrap();
                assert!(line.starts_with(family), "{line} under {family}");
                assert!(line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{line}");
            }
        }
        assert!(
            families
                .iter()
                .all(|family| !page.contains(&format!("# TYPE {family} counter")) || family.ends_with("_total"))
        );
    }
}
