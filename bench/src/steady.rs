//! `steady`: a constant rate, spread evenly over the milliseconds, and how precisely each occurrence comes.

use std::time::Duration;

use clap::Args;
use countwheel::kernel::{id::OccurrenceId, time::UnixMs};

use crate::{
    bed::{Bed, QueueKind, Setup},
    check::{Differences, compare},
    cpu,
    drain::{self, Delivery},
    error::BenchError,
    lags::Quantiles,
    ledger, make,
    report::Report,
    rules::{Made, PERIOD_MS, Tile},
    seen, wall,
};

/// Before the first instant: the lead, and a moment of quiet after the schedules were made.
const QUIET_MS: i64 = 3_500;
/// What has not come so long after the last instant is absent.
const GRACE_MS: i64 = 10_000;

#[derive(Args)]
pub(crate) struct Options {
    /// Occurrences a second.
    #[arg(long, default_value_t = 2_315)]
    rate: usize,
    /// For how long.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    #[command(flatten)]
    pub(crate) setup: Setup,
}

/// Runs the experiment.
pub(crate) async fn run(options: &Options) -> Result<Report, BenchError> {
    let setup = &options.setup;
    let bed = Bed::make(setup).await?;
    let (tiles, made) = prepare(&bed, options).await?;
    let expected: Vec<OccurrenceId> =
        tiles.iter().zip(&made).flat_map(|(tile, made)| tile.instants().map(|at| made.occurrence(at))).collect();
    let mut report = Report::new("steady", setup.queue, bed.engine.health().shards, expected.len());
    let Some(Tile { from, to, .. }) = tiles.first().copied() else { return Ok(report) };

    let watched = watch(&bed, setup, (from, to), expected.len()).await?;
    let ledger = ledger::read(&bed.engine, &made).await?;
    let occurrences = expected.len().max(1) as f64;
    report.set("seconds", options.seconds);
    report.set_lags(["p50_ms", "p99_ms", "max_ms"], Quantiles::of(ledger.lags_ns.clone()));
    let seen_lags = watched.deliveries.iter().map(|delivery| delivery.lag_ns).collect();
    report.set_lags(["seen_p50_ms", "seen_p99_ms", "seen_max_ms"], Quantiles::of(seen_lags));
    report.set("throughput_per_s", ledger.enqueued.len() as f64 / f64::from(options.seconds.max(1)));
    report.set("limit_per_s", None::<f64>);
    report.set("ratio", None::<f64>);
    report.set("engine_cpu_us_per_occurrence", watched.engine.as_secs_f64() * 1e6 / occurrences);
    let server = watched.server.map(|server| server.as_secs_f64() * 1e6 / occurrences);
    report.set("server_cpu_us_per_occurrence", server);
    report.set_log(watched.written, occurrences);
    report.set("fsyncs_per_s", watched.written.fsyncs as f64 / f64::from(options.seconds.max(1)));

    let early = watched.deliveries.iter().filter(|delivery| delivery.lag_ns < 0).count() as u64;
    let delivered = watched.deliveries.iter().map(|delivery| delivery.occurrence_id).collect();
    let recorded = compare(expected.clone(), ledger.enqueued);
    let found = compare(expected, delivered);
    let found = Differences { absent: found.absent.max(recorded.absent), ..found };
    report.set_differences(found, early.max(ledger.early));
    bed.engine.clone().stop().await?;
    explain(&mut report, setup.queue);
    Ok(report)
}

/// Makes the schedules: each fires once in ten seconds, together evenly.
async fn prepare(bed: &Bed, options: &Options) -> Result<(Vec<Tile>, Vec<Made>), BenchError> {
    let setup = options.setup.clone();
    let count = options.rate * (PERIOD_MS / 1_000).unsigned_abs() as usize;
    let rate = make::rate_per_s(&bed.engine, 1_000, &setup).await?;
    let from = wall::whole_second_in(6.0 + 1.6 * count as f64 / rate);
    let to = from.plus(i64::from(options.seconds) * 1_000);
    eprintln!("schedules for {} a second are made, due from {from} to {to}", options.rate);
    let tile = move |index| Tile { from, to, count, index };
    // In less than ten seconds the later tiles have no instant: such a schedule would be refused.
    let firing = count.min(options.rate * options.seconds as usize);
    let made = make::make_all(&bed.engine, firing, move |index| tile(index).schedule(&setup)).await?;
    let late_ms = wall::now().since(from.minus(QUIET_MS));
    if late_ms > 0 {
        return Err(BenchError::TooSlow { late_ms });
    }
    Ok(((0..firing).map(tile).collect(), made.into_iter().map(|(made, _)| made).collect()))
}

/// What a consumer saw, and what it cost meanwhile.
struct Watched {
    deliveries: Vec<Delivery>,
    engine: Duration,
    server: Option<Duration>,
    written: crate::bed::Written,
}

async fn watch(bed: &Bed, setup: &Setup, (from, to): (UnixMs, UnixMs), expected: usize) -> Result<Watched, BenchError> {
    let last = to.plus(GRACE_MS);
    let consumer = bed.redis.as_ref().map(|redis| seen::watch(redis, &bed.streams(setup.queues), expected, last));
    let consumer = consumer.transpose()?;
    wall::sleep_until(from.minus(QUIET_MS / 2 + 500)).await;
    let server = || bed.redis.as_ref().map(|redis| redis.cpu());
    let before = (cpu::process(), server(), bed.totals().written);
    let (deliveries, of_consumer) = match consumer {
        Some(consumer) => {
            let seen = tokio::task::spawn_blocking(move || consumer.join()).await;
            let seen = seen.ok().and_then(Result::ok).ok_or_else(|| BenchError::Ended("the consumer".into()))??;
            (seen.deliveries, seen.cpu)
        }
        None => (drain::drain(&bed.engine, setup.queues, expected).await?, Duration::ZERO),
    };
    // What is deferred is written, and said.
    wall::sleep_until(to.plus(1_500)).await;
    let engine = cpu::process().saturating_sub(before.0).saturating_sub(of_consumer);
    let server = server().zip(before.1).map(|(after, before)| after.saturating_sub(before));
    Ok(Watched { deliveries, engine, server, written: bed.totals().written.since(before.2) })
}

fn explain(report: &mut Report, queue: QueueKind) {
    report.note(
        "p50, p99, max: enqueued_at (the queue's answer, whole ms) - scheduled_for, of every occurrence's history",
    );
    match queue {
        QueueKind::Redis => {
            report.note("seen: CLOCK_REALTIME when a blocking XREAD on a connection of its own had the entry");
            report.note("engine cpu: the process without the consumer's thread, idle ticks included");
        }
        QueueKind::Local => {
            report.note("seen: CLOCK_REALTIME when an in-process worker had the occurrence, which it then completes;");
            report.note("  engine cpu, log bytes and fsyncs include workers and completions");
        }
    }
}
