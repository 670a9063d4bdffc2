//! `storm`: one tenant owes many late occurrences after an outage while others' strict work goes on, and what it does
//! to that: the same rate is measured before the outage and in the storm.

use std::time::Duration;

use clap::Args;
use countwheel::{
    NewSchedule,
    engine::{Quotas, TenantSettings},
    kernel::{id::OccurrenceId, time::UnixMs},
};

use crate::{
    bed::{Bed, QueueKind, Setup, queue_name},
    check::{Differences, compare},
    cpu, drain,
    error::BenchError,
    lags::Quantiles,
    ledger::{self, Ledger},
    make,
    report::Report,
    rules::{Made, PERIOD_MS, Tile},
    wall,
};

/// What is owed is late by more than this when the engine is back.
const MAX_LATENESS: Duration = Duration::from_millis(500);
/// Before the first strict instant of a phase: the lead, and a moment more.
const QUIET_MS: i64 = 3_500;
/// The engine is away until so long after what is owed was due.
const OUTAGE_MS: i64 = 2_000;
/// From the engine's return to the first strict instant of the storm; a whole second, as cron rules have it.
const BACK_MS: i64 = 4_000;
/// Who owes.
const DEBTOR: &str = "debtor";

#[derive(Args)]
pub(crate) struct Options {
    /// How many occurrences are owed.
    #[arg(long, default_value_t = 200_000)]
    owed: usize,
    /// Strict occurrences of the others, a second.
    #[arg(long, default_value_t = 2_315)]
    rate: usize,
    /// For how long each phase is measured.
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    /// The debtor's catch-up rate.
    #[arg(long, default_value_t = 1_000)]
    catch_up_per_second: u32,
    #[command(flatten)]
    pub(crate) setup: Setup,
}

/// Strict work of one phase.
struct Phase {
    made: Vec<Made>,
    expected: Vec<OccurrenceId>,
    to: UnixMs,
}

/// Runs the experiment.
pub(crate) async fn run(options: &Options) -> Result<Report, BenchError> {
    let setup = &options.setup;
    let bed = Bed::make(setup).await?;
    let mut report = Report::new("storm", setup.queue, bed.engine.health().shards, 2 * firing(options));
    let quotas = Quotas { catch_up_per_second: Some(options.catch_up_per_second), ..Quotas::default() };
    bed.engine.set_tenant(DEBTOR, TenantSettings { weight: 1, quotas }).await?;

    let pace = make::rate_per_s(&bed.engine, (options.owed / 100).clamp(256, 4_000), setup).await?;
    let calm = prepare(&bed, options, wall::whole_second_in(6.0 + 1.6 * firing(options) as f64 / pace)).await?;
    wall::sleep_until(calm.to.plus(1_500)).await;
    let undisturbed = ledger::read(&bed.engine, &calm.made).await?;
    if setup.queue == QueueKind::Local {
        // What no worker took would be handed out again after the outage.
        drain::drain(&bed.engine, setup.queues, calm.expected.len()).await?;
    }

    let owed_at = wall::whole_second_in(8.0 + 1.6 * (options.owed + firing(options)) as f64 / pace);
    owe(&bed, options, owed_at).await?;
    let stormy = prepare(&bed, options, owed_at.plus(OUTAGE_MS + BACK_MS)).await?;
    let late_ms = wall::now().since(owed_at);
    if late_ms > 0 {
        return Err(BenchError::TooSlow { late_ms });
    }
    let bed = bed.reopen(setup, wall::sleep_until(owed_at.plus(OUTAGE_MS))).await?;
    let (before, engine) = (bed.totals().written, cpu::process());
    wall::sleep_until(stormy.to.plus(1_500)).await;
    let (caught_up, written) = (bed.totals().caught_up, bed.totals().written.since(before));
    let cpu_us = (cpu::process() - engine).as_secs_f64() * 1e6 / (firing(options).max(1) as f64);
    let waiting: u64 = bed.engine.backlog()?.buckets.iter().map(|bucket| bucket.catch_up).sum();
    let disturbed = ledger::read(&bed.engine, &stormy.made).await?;

    let lags = Quantiles::of(disturbed.lags_ns.clone());
    let undisturbed_lags = Quantiles::of(undisturbed.lags_ns.clone());
    report.set_lags(["p50_ms", "p99_ms", "max_ms"], lags);
    report.set_lags(["undisturbed_p50_ms", "undisturbed_p99_ms", "undisturbed_max_ms"], undisturbed_lags);
    report.set("storm_ratio", lags.p99_ms / undisturbed_lags.p99_ms.max(1.0));
    report.set("owed", options.owed);
    report.set("caught_up", caught_up);
    report.set("still_owed", waiting);
    report.set("missed", bed.totals().missed);
    report.set("throughput_per_s", disturbed.enqueued.len() as f64 / f64::from(options.seconds.max(1)));
    report.set("limit_per_s", None::<f64>);
    report.set("ratio", None::<f64>);
    report.set("engine_cpu_us_per_occurrence", cpu_us);
    report.set("server_cpu_us_per_occurrence", None::<f64>);
    report.set_log(written, firing(options).max(1) as f64);
    // The two counts are read moments apart: what passed between them stands in neither.
    let found = caught_up + waiting + u64::from(options.catch_up_per_second);
    settle_accounts(&mut report, [(calm, undisturbed), (stormy, disturbed)], options.owed as u64, found);
    bed.engine.clone().stop().await?;
    report.note("lag: enqueued_at (the queue's answer, whole ms) - scheduled_for, of the strict work of both phases");
    report.note("storm_ratio: p99 in the storm / p99 before it, which is taken as 1 ms where it is less");
    Ok(report)
}

/// Strict work must be there once, on time; what is owed must be caught up or wait for it.
fn settle_accounts(report: &mut Report, phases: [(Phase, Ledger); 2], owed: u64, found: u64) {
    let mut all = Differences { absent: owed.saturating_sub(found), ..Differences::default() };
    let mut early = 0;
    for (phase, ledger) in phases {
        let of_phase = compare(phase.expected, ledger.enqueued);
        all.absent += of_phase.absent;
        all.duplicates += of_phase.duplicates;
        all.unexpected += of_phase.unexpected;
        early += ledger.early;
    }
    report.set_differences(all, early);
}

/// How many strict schedules fire in a phase: each fires once in ten seconds.
fn firing(options: &Options) -> usize {
    let count = options.rate * (PERIOD_MS / 1_000).unsigned_abs() as usize;
    count.min(options.rate * options.seconds as usize)
}

/// Makes what is owed: one-off work that is due while the engine is away.
async fn owe(bed: &Bed, options: &Options, at: UnixMs) -> Result<(), BenchError> {
    eprintln!("{} occurrences are made for {at}, when the engine is away", options.owed);
    let (queues, payload) = (options.setup.queues.max(1), vec![b' '; options.setup.payload_bytes]);
    let describe = move |index: usize| {
        let new = NewSchedule::at(at).tenant(DEBTOR).queue(queue_name(index % queues));
        new.payload(payload.clone()).max_lateness(MAX_LATENESS)
    };
    make::make_all(&bed.engine, options.owed, describe).await?;
    Ok(())
}

/// Makes the strict work of a phase that begins at `from`.
async fn prepare(bed: &Bed, options: &Options, from: UnixMs) -> Result<Phase, BenchError> {
    let setup = options.setup.clone();
    let count = options.rate * (PERIOD_MS / 1_000).unsigned_abs() as usize;
    let to = from.plus(i64::from(options.seconds) * 1_000);
    eprintln!("strict work of {} a second is made, due from {from} to {to}", options.rate);
    let tile = move |index| Tile { from, to, count, index };
    let made = make::make_all(&bed.engine, firing(options), move |index| tile(index).schedule(&setup)).await?;
    let made: Vec<Made> = made.into_iter().map(|(made, _)| made).collect();
    let tiles = (0..).map(tile).zip(&made);
    let expected = tiles.flat_map(|(tile, made)| tile.instants().map(|at| made.occurrence(at))).collect();
    let late_ms = wall::now().since(from.minus(QUIET_MS));
    if late_ms > 0 {
        return Err(BenchError::TooSlow { late_ms });
    }
    Ok(Phase { made, expected, to })
}
