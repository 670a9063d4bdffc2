//! `burst`: many schedules due on one instant, and how long the last of them takes into the queue.

use std::time::Duration;

use clap::Args;
use countwheel::kernel::{changes::NewRule, id::OccurrenceId, time::UnixMs};

use crate::{
    bed::{Bed, QueueKind, Setup, Totals},
    check::{Differences, compare},
    cpu, drain,
    error::BenchError,
    lags::Quantiles,
    ledger::{self, Ledger},
    limit::{self, Fields},
    make, read_back,
    report::Report,
    rules::{DISTINCT_RULES, Made, OneInstant, schedule},
    wall,
};

/// Materialising begins the lead (2 s) before the instant; the first reading is taken this long before that.
const BEFORE_LEAD_MS: i64 = 2_300;
/// The last reading before the instant.
const BEFORE_DUE_MS: i64 = 15;
/// How often the processor times are read during the burst.
const LOOK: Duration = Duration::from_millis(20);
/// No progress for so long: what is absent stays so.
const PATIENCE_MS: i64 = 30_000;

#[derive(Args)]
pub(crate) struct Options {
    /// How many schedules are due.
    #[arg(long, default_value_t = 500_000)]
    pub(crate) triggers: usize,
    /// How far ahead the instant is when the first schedule is made; measured unless given.
    #[arg(long)]
    pub(crate) ahead_seconds: Option<f64>,
    /// How often Redis' own limit is measured, with each number of connections.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) limit_rounds: u16,
    #[command(flatten)]
    pub(crate) setup: Setup,
}

/// Whose the schedules are, if not everybody's in turn: first one tenant's, then those of many small ones.
#[derive(Clone, Copy)]
pub(crate) struct Crowd {
    /// How many schedules the large tenant has.
    pub(crate) large: usize,
    pub(crate) small_tenants: usize,
    /// How many schedules each small tenant has.
    pub(crate) each: usize,
}

impl Crowd {
    /// Whose the `index`th schedule is.
    fn tenant(self, index: usize) -> String {
        index
            .checked_sub(self.large)
            .map_or_else(|| "large".into(), |small| format!("small-{}", small / self.each.max(1)))
    }

    /// How long the small tenants waited, against what would be fair at this throughput.
    fn report(self, small: &Ledger, throughput_per_s: f64, report: &mut Report) {
        let small = Quantiles::of(small.lags_ns.clone());
        let fair_share_ms = ((self.small_tenants + 1) * self.each) as f64 * 1e3 / throughput_per_s;
        report.set_lags(["small_p50_ms", "small_p99_ms", "small_max_ms"], small);
        report.set("fair_share_ms", fair_share_ms);
        report.set("small_ratio", small.p99_ms / fair_share_ms);
    }
}

/// Runs the experiment.
pub(crate) async fn run(options: &Options) -> Result<Report, BenchError> {
    measure("burst", options, None).await
}

/// Runs a burst as an experiment of another name, with schedules of a crowd.
pub(crate) async fn measure(name: &'static str, options: &Options, crowd: Option<Crowd>) -> Result<Report, BenchError> {
    let setup = &options.setup;
    let bed = Bed::make(setup).await?;
    let mut report = Report::new(name, setup.queue, bed.engine.health().shards, options.triggers);
    let (due, made) = prepare(&bed, options, crowd, &mut report).await?;
    let watched = watch(&bed, setup, due, made.len()).await?;

    let ledger = ledger::read(&bed.engine, &made).await?;
    let lags = Quantiles::of(ledger.lags_ns.clone());
    let last = due.plus(lags.max_ms as i64);
    let occurrences = made.len().max(1) as f64;
    report.set_lags(["p50_ms", "p99_ms", "max_ms"], lags);
    report.set("first_ms", lags.min_ms);
    // The engine stamps whole milliseconds: the last landed within the one after.
    let throughput = ledger.enqueued.len() as f64 / ((lags.max_ms + 1.0) / 1e3);
    report.set("throughput_per_s", throughput);
    if let Some(crowd) = crowd {
        let small = ledger::read(&bed.engine, &made[crowd.large..]).await?;
        crowd.report(&small, throughput, &mut report);
    }
    watched.report(last, occurrences, &mut report);
    report.set_log(watched.after.written.since(watched.before_lead.totals.written), occurrences);
    report.set("missed", watched.after.missed);

    let expected: Vec<OccurrenceId> = made.iter().map(|made| made.occurrence(due)).collect();
    let recorded = compare(expected.clone(), ledger.enqueued);
    let (delivered, fields) = collect(&bed, setup, expected.len(), &mut report).await?;
    let found = worse(compare(expected, delivered), recorded);
    report.set_differences(found, ledger.early.max(watched.early));
    let Bed { engine, redis, .. } = &bed;
    engine.clone().stop().await?;
    let limit = redis.as_ref().filter(|_| options.limit_rounds > 0);
    let limit = limit.map(|redis| limit::measure(redis, &fields, options.limit_rounds)).transpose()?;
    report.set("limit_per_s", limit.as_ref().map(|limit| limit.per_s));
    report.set("ratio", limit.as_ref().map(|limit| throughput / limit.per_s));
    report.set("limit_rounds_per_s", limit.map(|limit| limit.rounds));
    explain(&mut report, setup.queue, options.limit_rounds > 0);
    Ok(report)
}

/// Makes the schedules and settles on the instant.
async fn prepare(
    bed: &Bed,
    options: &Options,
    crowd: Option<Crowd>,
    report: &mut Report,
) -> Result<(UnixMs, Vec<Made>), BenchError> {
    let setup = options.setup.clone();
    let ahead_s = match options.ahead_seconds {
        Some(ahead_s) => ahead_s,
        None => {
            let rate = make::rate_per_s(&bed.engine, (options.triggers / 100).clamp(256, 4_000), &setup).await?;
            8.0 + 1.6 * options.triggers as f64 / rate
        }
    };
    let due = wall::whole_second_in(ahead_s);
    eprintln!("{} schedules are made for {due}, {ahead_s:.0} s from now", options.triggers);
    let rules = OneInstant::new(due);
    let started = std::time::Instant::now();
    let checked = OneInstant::new(due);
    let all = make::make_all(&bed.engine, options.triggers, move |index| {
        let new = schedule(NewRule::from(rules.cron(index)), index, &setup);
        match crowd {
            Some(crowd) => new.tenant(crowd.tenant(index)),
            None => new,
        }
    });
    let all = all.await?;
    report.set("creates_per_s", all.len() as f64 / started.elapsed().as_secs_f64());
    report.set("distinct_rules", DISTINCT_RULES.min(all.len()));
    for (index, (_, next)) in all.iter().enumerate() {
        if *next != Some(due) {
            let cron = checked.cron(index);
            let found = next.map_or_else(|| "nothing".to_owned(), |next| next.to_string());
            return Err(BenchError::OtherInstant {
                expr: cron.expr,
                zone: cron.zone,
                found,
                expected: due.to_string(),
            });
        }
    }
    let late_ms = wall::now().since(due.minus(BEFORE_LEAD_MS));
    if late_ms > 0 {
        return Err(BenchError::TooSlow { late_ms });
    }
    Ok((due, all.into_iter().map(|(made, _)| made).collect()))
}

/// Processor times and the engine's figures at one moment.
struct Reading {
    at: UnixMs,
    engine: Duration,
    server: Option<Duration>,
    totals: Totals,
}

impl Reading {
    fn take(bed: &Bed) -> Self {
        Self {
            at: wall::now(),
            engine: cpu::process(),
            server: bed.redis.as_ref().map(|redis| redis.cpu()),
            totals: bed.totals(),
        }
    }
}

/// What was read before, during and after the burst.
struct Watched {
    before_lead: Reading,
    before_due: Reading,
    during: Vec<Reading>,
    after: Totals,
    early: u64,
}

/// Waits for the instant and until everything has landed; the harness does nothing else meanwhile.
async fn watch(bed: &Bed, setup: &Setup, due: UnixMs, expected: usize) -> Result<Watched, BenchError> {
    let link = bed.redis.as_ref().map(|redis| redis::Client::open(redis.url())?.get_connection());
    let mut link = link.transpose()?;
    let streams = bed.streams(setup.queues);
    wall::sleep_until(due.minus(BEFORE_LEAD_MS)).await;
    let before_lead = Reading::take(bed);
    wall::sleep_until(due.minus(BEFORE_DUE_MS)).await;
    let there = link.as_mut().map_or(Ok(0), |link| read_back::count(link, &streams))?;
    let before_due = Reading::take(bed);
    let early = if before_due.at < due { there.max(before_due.totals.enqueued) } else { 0 };
    let mut during: Vec<Reading> = Vec::new();
    let mut moved_at = due;
    loop {
        tokio::time::sleep(LOOK).await;
        let reading = Reading::take(bed);
        let enqueued = reading.totals.enqueued;
        if during.last().is_none_or(|before| before.totals.enqueued < enqueued) {
            moved_at = reading.at.max(due);
        }
        let patience_is_over = reading.at.since(moved_at) > PATIENCE_MS;
        during.push(reading);
        if enqueued >= expected as u64 || patience_is_over {
            break;
        }
    }
    // What is deferred (`Enqueued`, a second) is written, and said.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    Ok(Watched { before_lead, before_due, during, after: bed.totals(), early })
}

impl Watched {
    /// Processor times up to the first reading at or after `last`, when everything had landed.
    fn report(&self, last: UnixMs, occurrences: f64, report: &mut Report) {
        let end = self.during.iter().find(|reading| reading.at > last).or(self.during.last());
        let end = end.unwrap_or(&self.before_due);
        let us = |duration: Duration| duration.as_secs_f64() * 1e6 / occurrences;
        let start = &self.before_due;
        report.set("engine_cpu_us_per_occurrence", us(end.engine - start.engine));
        report.set("relay_cpu_us_per_occurrence", us(self.after.relay - start.totals.relay));
        let server = end.server.zip(start.server).map(|(end, start)| us(end - start));
        report.set("server_cpu_us_per_occurrence", server);
        report.set("ahead_cpu_us_per_occurrence", us(start.engine - self.before_lead.engine));
    }
}

/// Reads back what was delivered; for Redis also as the fields that its limit is measured with.
async fn collect(
    bed: &Bed,
    setup: &Setup,
    expected: usize,
    report: &mut Report,
) -> Result<(Vec<OccurrenceId>, Fields), BenchError> {
    let mut delivered = Vec::with_capacity(expected);
    let mut fields = Fields::default();
    if let Some(redis) = &bed.redis {
        let mut link = redis::Client::open(redis.url())?.get_connection()?;
        for stream in bed.streams(setup.queues) {
            read_back::read_all(&mut link, &stream, |entry| {
                delivered.push(entry.occurrence()?);
                fields.push(&entry);
                Ok(())
            })?;
        }
    } else {
        let started = std::time::Instant::now();
        let drained = drain::drain(&bed.engine, setup.queues, expected).await?;
        report.set("drained_and_completed_per_s", drained.len() as f64 / started.elapsed().as_secs_f64());
        delivered.extend(drained.iter().map(|delivery| delivery.occurrence_id));
    }
    Ok((delivered, fields))
}

/// The queue and the engine's own history were compared apart: the worse counts.
fn worse(delivered: Differences, recorded: Differences) -> Differences {
    Differences {
        absent: delivered.absent.max(recorded.absent),
        duplicates: delivered.duplicates.max(recorded.duplicates),
        unexpected: delivered.unexpected.max(recorded.unexpected),
    }
}

fn explain(report: &mut Report, queue: QueueKind, has_limit: bool) {
    report.note("lag: enqueued_at (the queue's answer, whole ms) - scheduled_for, of every occurrence's own history");
    report.note("throughput: occurrences / (instant to last answer), so the way to the first one is in it");
    report.note(
        "engine cpu: the whole process from 15 ms before the instant to the first reading (every 20 ms) after the",
    );
    report.note(
        "  last answer: shards, relays or embedded queue, log writers, and these readings; ahead cpu: the 2.3 s before",
    );
    if queue == QueueKind::Redis && has_limit {
        report.note(
            "limit: the same entries, encoded beforehand, sent again as plain pipelined XADD (2,048 a write, 3 in",
        );
        report
            .note("  flight) over 1 and 2 TCP connections to the same server; the better median of the rounds counts");
    }
}
