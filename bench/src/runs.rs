//! `runs`: claiming and completing what waits in the embedded queue, in process or over HTTP, in batches; and how long
//! a single claim takes, beside the disk's own time for a commit.

use std::{
    io::Write as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use clap::{Args, ValueEnum};
use countwheel::{
    engine::{Claim, ClaimedRun},
    error::CallError,
    kernel::changes::NewRule,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    bed::{Bed, QueueKind, Setup, queue_name},
    drain,
    error::BenchError,
    lags::Quantiles,
    make,
    report::Report,
    rules::{OneInstant, schedule},
    server::{Client, Server},
    wall,
};

/// How many single claims are timed.
const SOLO: usize = 500;
/// Lines of one import.
const IMPORTED_AT_ONCE: usize = 5_000;
/// No run for so long: none is coming.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long after the instant everything is in the queue, at the latest.
const SETTLED: Duration = Duration::from_secs(60);

#[derive(Args)]
pub(crate) struct Options {
    /// How many occurrences are claimed and completed.
    #[arg(long, default_value_t = 500_000)]
    pub(crate) occurrences: usize,
    /// How workers reach the engine.
    #[arg(long, value_enum, default_value = "process")]
    pub(crate) via: Via,
    /// How many runs a claim asks for.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) batch: u16,
    /// How many workers claim at a time.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) workers: u16,
    #[command(flatten)]
    pub(crate) setup: Setup,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Via {
    /// By the engine's handle.
    Process,
    /// By the real server's API.
    Http,
}

/// What workers did.
struct Worked {
    took: Duration,
    done: usize,
    claims_ns: Vec<i64>,
}

/// Runs the experiment.
pub(crate) async fn run(options: &Options) -> Result<Report, BenchError> {
    let setup = Setup { queue: QueueKind::Local, ..options.setup.clone() };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let shards = setup.shards.unwrap_or(u16::try_from(cores).unwrap_or(1));
    let mut report = Report::new("runs", QueueKind::Local, shards, options.occurrences);
    report.set("via", if options.via == Via::Http { "http" } else { "process" });
    report.set("batch", options.batch);
    report.set("workers", options.workers);
    let (worked, solo, commits) = match options.via {
        Via::Process => in_process(options, &setup, &mut report).await?,
        Via::Http => over_http(options, &setup)?,
    };
    let seconds = worked.took.as_secs_f64();
    report.set("throughput_per_s", worked.done as f64 / seconds);
    report
        .set_lags(["batch_claim_p50_ms", "batch_claim_p99_ms", "batch_claim_max_ms"], Quantiles::of(worked.claims_ns));
    let (solo, commits) = (Quantiles::of(solo), Quantiles::of(commits));
    report.set_lags(["claim_p50_ms", "claim_p99_ms", "claim_max_ms"], solo);
    report.set_lags(["commit_p50_ms", "commit_p99_ms", "commit_max_ms"], commits);
    report.set("claim_p99_in_commits", solo.p99_ms / commits.p99_ms.max(f64::MIN_POSITIVE));
    report.set_absent(options.occurrences.saturating_sub(worked.done) as u64);
    report.note(
        "a run is claimed and completed, each durable before its answer; claim_*: one run a claim, one claim at a time",
    );
    report.note("commit_*: 4 KiB written and synced beside the data directory, between the single claims");
    Ok(report)
}

async fn in_process(
    options: &Options,
    setup: &Setup,
    report: &mut Report,
) -> Result<(Worked, Vec<i64>, Vec<i64>), BenchError> {
    let bed = Bed::make(setup).await?;
    let all = options.occurrences + SOLO;
    let rate = make::rate_per_s(&bed.engine, (all / 100).clamp(256, 4_000), setup).await?;
    let due = wall::whole_second_in(8.0 + 1.6 * all as f64 / rate);
    let rules = OneInstant::new(due);
    let told = setup.clone();
    make::make_all(&bed.engine, all, move |index| schedule(NewRule::from(rules.cron(index)), index, &told)).await?;
    wall::sleep_until(due).await;
    let began = Instant::now();
    while (bed.totals().enqueued as usize) < all && began.elapsed() < SETTLED {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let written = bed.totals().written;
    let left = Arc::new(Left::new(options.occurrences));
    let started = Instant::now();
    let mut workers = tokio::task::JoinSet::new();
    for worker in 0..usize::from(options.workers) {
        let (engine, left) = (bed.engine.clone(), Arc::clone(&left));
        let (queues, max) = (setup.queues, usize::from(options.batch));
        workers.spawn(async move {
            let (mut claims_ns, mut done, mut queue) = (Vec::new(), 0, worker);
            while !left.is_over() {
                let max = left.take(max);
                if max == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    continue;
                }
                let asked = Instant::now();
                let claim = Claim { max, ..Claim::new(format!("worker-{worker}")) };
                let runs: Vec<ClaimedRun> = match engine.claim(&queue_name(queue % queues), &claim).await {
                    Ok(runs) => runs,
                    Err(CallError::Overloaded) => Vec::new(),
                    Err(error) => {
                        eprintln!("countwheel-bench: a claim was refused: {error}");
                        return (claims_ns, done);
                    }
                };
                if runs.is_empty() {
                    queue += 1;
                } else {
                    claims_ns.push(nanos(asked));
                    drain::complete(&engine, &runs).await;
                    done += runs.len();
                }
                left.settle(max, runs.len());
            }
            (claims_ns, done)
        });
    }
    let (mut claims_ns, mut done) = (Vec::new(), 0);
    for (claims, by_one) in workers.join_all().await {
        claims_ns.extend(claims);
        done += by_one;
    }
    let worked = Worked { took: started.elapsed(), done, claims_ns };
    report.set_log(bed.totals().written.since(written), worked.done.max(1) as f64);
    let (mut solo, mut commits) = (Vec::new(), Vec::new());
    let mut probe = Probe::new(bed.dir())?;
    for number in 0..SOLO {
        let asked = Instant::now();
        let runs = bed.engine.claim(&queue_name(number % setup.queues), &Claim::new("solo")).await?;
        if runs.is_empty() {
            continue;
        }
        solo.push(nanos(asked));
        drain::complete(&bed.engine, &runs).await;
        commits.push(probe.commit()?);
    }
    bed.engine.clone().stop().await?;
    Ok((worked, solo, commits))
}

/// What is still to be claimed, shared by the workers so that no more than that is.
struct Left {
    unclaimed: AtomicUsize,
    undone: AtomicUsize,
    since: Instant,
}

impl Left {
    fn new(occurrences: usize) -> Self {
        Self { unclaimed: occurrences.into(), undone: occurrences.into(), since: Instant::now() }
    }

    fn is_over(&self) -> bool {
        self.undone.load(Relaxed) == 0 || self.since.elapsed() > SETTLED + PATIENCE
    }

    /// Up to `max` of it, to be settled.
    fn take(&self, max: usize) -> usize {
        self.unclaimed.fetch_update(Relaxed, Relaxed, |left| Some(left.saturating_sub(max))).unwrap_or(0).min(max)
    }

    /// Of `taken`, so many were claimed and completed; the rest is for others.
    fn settle(&self, taken: usize, done: usize) {
        self.unclaimed.fetch_add(taken - done, Relaxed);
        self.undone.fetch_sub(done, Relaxed);
    }
}

#[derive(Deserialize)]
struct Claimed {
    runs: Vec<Lease>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Lease {
    pub(crate) occurrence_id: String,
    lease_token: String,
}

#[derive(Deserialize)]
struct Results {
    results: Vec<Value>,
}

fn over_http(options: &Options, setup: &Setup) -> Result<(Worked, Vec<i64>, Vec<i64>), BenchError> {
    let dir = tempfile::Builder::new().prefix("countwheel-bench-").tempdir_in(parent(setup)?)?;
    let server = Server::start(&dir.path().join("data"), setup.shards)?;
    let all = options.occurrences + SOLO;
    import(&server.client(), all, setup, &json!({}))?;
    let left = Left::new(options.occurrences);
    let started = Instant::now();
    let by_worker: Vec<Result<(Vec<i64>, usize), BenchError>> = std::thread::scope(|scope| {
        let work = |worker: usize| {
            let client = server.client();
            let (mut claims_ns, mut done, mut queue) = (Vec::new(), 0, worker);
            while !left.is_over() {
                let max = left.take(usize::from(options.batch));
                if max == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                let asked = Instant::now();
                let runs = claim(&client, queue % setup.queues, max)?;
                if runs.is_empty() {
                    queue += 1;
                } else {
                    claims_ns.push(nanos(asked));
                    done += complete(&client, &runs)?;
                }
                left.settle(max, runs.len());
            }
            Ok((claims_ns, done))
        };
        let workers: Vec<_> = (0..usize::from(options.workers)).map(|n| scope.spawn(move || work(n))).collect();
        let ended = |_| Err(BenchError::Ended("a worker's thread".into()));
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(ended)).collect()
    });
    let took = started.elapsed();
    let (mut claims_ns, mut done) = (Vec::new(), 0);
    for worked in by_worker {
        let (claims, by_one) = worked?;
        claims_ns.extend(claims);
        done += by_one;
    }
    let (mut solo, mut commits) = (Vec::new(), Vec::new());
    let (client, mut probe) = (server.client(), Probe::new(dir.path())?);
    for number in 0..SOLO {
        let asked = Instant::now();
        let runs = claim(&client, number % setup.queues, 1)?;
        if runs.is_empty() {
            continue;
        }
        solo.push(nanos(asked));
        complete(&client, &runs)?;
        commits.push(probe.commit()?);
    }
    Ok((Worked { took, done, claims_ns }, solo, commits))
}

pub(crate) fn parent(setup: &Setup) -> Result<std::path::PathBuf, BenchError> {
    if let Some(parent) = &setup.data {
        return Ok(parent.clone());
    }
    let own = std::env::current_exe()?;
    Ok(own.parent().map_or_else(std::env::temp_dir, std::path::Path::to_path_buf))
}

/// One-off schedules that are due together, and a wait until they are in the queue.
pub(crate) fn import(client: &Client, count: usize, setup: &Setup, retry: &Value) -> Result<(), BenchError> {
    let due = wall::now().plus(4_000 + count as i64 / 20);
    let payload = "x".repeat(setup.payload_bytes);
    // This client reads no answer before it has sent all lines: fewer of them than connections hold.
    for first in (0..count).step_by(IMPORTED_AT_ONCE) {
        let mut lines = Vec::new();
        for index in first..count.min(first + IMPORTED_AT_ONCE) {
            let tenant = format!("tenant-{}", index % setup.tenants.max(1));
            let (queue, rule) = (queue_name(index % setup.queues.max(1)), json!({ "at": due.to_string() }));
            let line = json!({ "tenant": tenant, "queue": queue, "rule": rule, "payload": payload, "retry": retry });
            serde_json::to_writer(&mut lines, &line).map_err(|error| BenchError::Ended(error.to_string()))?;
            lines.push(b'\n');
        }
        let answers = client.send_text("/v1/schedules/import", "application/x-ndjson", &lines)?;
        let is_refusal = |line: &&[u8]| line.windows(8).any(|part| part == b"\"error\":");
        if let Some(refused) = answers.split(|byte| *byte == b'\n').find(is_refusal) {
            return Err(BenchError::Ended(format!("import: {}", String::from_utf8_lossy(refused))));
        }
    }
    let late_ms = wall::now().since(due);
    if late_ms > 0 {
        return Err(BenchError::TooSlow { late_ms });
    }
    std::thread::sleep(Duration::from_millis(3_000 + late_ms.unsigned_abs()));
    Ok(())
}

fn claim(client: &Client, queue: usize, max: usize) -> Result<Vec<Lease>, BenchError> {
    let body = json!({ "worker": "bench", "max": max, "lease_ms": 60_000 });
    let claimed: Claimed = client.post(&format!("/v1/queues/{}/claim", queue_name(queue)), &body)?;
    Ok(claimed.runs)
}

pub(crate) fn complete(client: &Client, runs: &[Lease]) -> Result<usize, BenchError> {
    let answer: Results = client.post("/v1/runs/complete", &json!({ "runs": runs }))?;
    let refused = answer.results.iter().find(|result| result.get("error").is_some());
    if let Some(refused) = refused {
        eprintln!("countwheel-bench: a completion was refused: {refused}");
    }
    Ok(answer.results.iter().filter(|result| result.get("error").is_none()).count())
}

fn nanos(since: Instant) -> i64 {
    i64::try_from(since.elapsed().as_nanos()).unwrap_or(i64::MAX)
}

/// A file that is written and synced as the log is: what the disk alone takes.
struct Probe(std::fs::File);

impl Probe {
    fn new(dir: &std::path::Path) -> Result<Self, BenchError> {
        let mut file = std::fs::File::create(dir.join("probe"))?;
        file.write_all(&vec![0; 4 << 20])?;
        file.sync_all()?;
        std::io::Seek::rewind(&mut file)?;
        Ok(Self(file))
    }

    fn commit(&mut self) -> Result<i64, BenchError> {
        let began = Instant::now();
        self.0.write_all(&[1; 4_096])?;
        self.0.sync_data()?;
        Ok(nanos(began))
    }
}
