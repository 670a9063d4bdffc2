//! `workers`: processes that claim over HTTP and are killed at random, until every occurrence has come to its end.
//!
//! A worker tells each occurrence's effect to the harness under the occurrence's id, as a handler would write it under
//! an idempotency key: what counts is that there is one for each, whatever the number of attempts.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use clap::Args;
use serde::Deserialize;
use serde_json::json;

use crate::{
    bed::{QueueKind, Setup, queue_name},
    error::BenchError,
    report::Report,
    runs::{Lease, complete, import, parent},
    server::{Client, Server},
};

/// No progress for so long: what is absent stays so.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a lease of a killed worker holds its runs up.
const LEASE_MS: u64 = 2_000;

#[derive(Args)]
pub(crate) struct Options {
    /// How many occurrences must come to their end.
    #[arg(long, default_value_t = 200_000)]
    pub(crate) occurrences: usize,
    /// How many worker processes there are at a time.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) processes: u16,
    /// How long a worker lives on average before it is killed.
    #[arg(long, default_value_t = 700)]
    pub(crate) life_ms: u64,
    /// How many are killed in all, at most.
    #[arg(long, default_value_t = 60)]
    pub(crate) kills: u32,
    /// Where the kills' dice begin.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) setup: Setup,
}

/// A worker process.
#[derive(Args)]
pub(crate) struct ChildOptions {
    #[arg(long)]
    url: String,
    #[arg(long)]
    name: String,
    #[arg(long)]
    queues: usize,
}

/// A worker's process; dropped, it is killed.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How often each occurrence's effect was told.
type Effects = Arc<Mutex<HashMap<String, u32>>>;

/// Runs the experiment.
pub(crate) fn run(options: &Options) -> Result<Report, BenchError> {
    let setup = &options.setup;
    let mut report = Report::new("workers", QueueKind::Local, setup.shards.unwrap_or(0), options.occurrences);
    let dir = tempfile::Builder::new().prefix("countwheel-bench-").tempdir_in(parent(setup)?)?;
    let server = Server::start(&dir.path().join("data"), setup.shards)?;
    let client = server.client();
    let retry = json!({ "max_attempts": 50, "base": "100ms", "cap": "1s" });
    import(&client, options.occurrences, setup, &retry)?;
    let effects = Effects::default();
    let started = Instant::now();
    let mut dice = Dice(options.seed | 1);
    let mut workers: Vec<Worker> = Vec::new();
    let (mut kills, mut born) = (0, 0);
    let (mut ended, mut moved) = (0, Instant::now());
    while ended < options.occurrences && moved.elapsed() < PATIENCE {
        while workers.len() < usize::from(options.processes) {
            workers.push(spawn(&server, born, setup.queues, &effects)?);
            born += 1;
        }
        std::thread::sleep(Duration::from_millis(dice.below(2 * options.life_ms / u64::from(options.processes) + 1)));
        if kills < options.kills {
            drop(workers.swap_remove(dice.below(workers.len() as u64) as usize));
            kills += 1;
        }
        let now = succeeded(&client)?;
        if now != ended {
            (ended, moved) = (now, Instant::now());
        }
    }
    drop(workers);
    let effects = effects.lock().unwrap_or_else(PoisonError::into_inner);
    let told: u64 = effects.values().map(|times| u64::from(*times)).sum();
    report.set("kills", kills);
    report.set("seconds", started.elapsed().as_secs_f64());
    report.set("succeeded", ended);
    report.set("effects", effects.len());
    report.set("attempts_with_an_effect", told);
    report.set_absent((options.occurrences - effects.len().min(ended).min(options.occurrences)) as u64);
    report
        .note("effects: distinct occurrence ids under which workers acted; at least once is what is promised of each");
    Ok(report)
}

fn spawn(server: &Server, number: usize, queues: usize, effects: &Effects) -> Result<Worker, BenchError> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["worker-child", "--url", server.url(), "--name", &format!("worker-{number}")])
        .args(["--queues", &queues.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().ok_or_else(|| BenchError::Ended("a worker has no stdout".into()))?;
    let effects = Arc::clone(effects);
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            // What a kill cut off is no effect.
            if line.len() == 36 {
                *effects.lock().unwrap_or_else(PoisonError::into_inner).entry(line).or_default() += 1;
            }
        }
    });
    Ok(Worker(child))
}

fn succeeded(client: &Client) -> Result<usize, BenchError> {
    let page = client.get_text("/metrics")?;
    let line = page.lines().find(|line| line.starts_with("countwheel_occurrences_succeeded_total "));
    let figure = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    figure
        .map(|figure| figure as usize)
        .ok_or_else(|| BenchError::Ended("/metrics does not count what succeeded".into()))
}

#[derive(Deserialize)]
struct Claimed {
    runs: Vec<Lease>,
}

/// A worker's life: claims, acts, says so, completes; until it is killed.
pub(crate) fn child(options: &ChildOptions) -> Result<(), BenchError> {
    let client = Client::new(&options.url);
    let mut stdout = std::io::stdout().lock();
    for turn in 0.. {
        let body = json!({ "worker": options.name, "max": 100, "lease_ms": LEASE_MS, "wait_ms": 100 });
        let path = format!("/v1/queues/{}/claim", queue_name(turn % options.queues.max(1)));
        let Claimed { runs } = client.post(&path, &body)?;
        for run in &runs {
            writeln!(stdout, "{}", run.occurrence_id)?;
        }
        stdout.flush()?;
        if !runs.is_empty() {
            complete(&client, &runs)?;
        }
    }
    Ok(())
}

/// Xorshift: enough to choose whom to kill.
struct Dice(u64);

impl Dice {
    const fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        if bound == 0 { 0 } else { self.0 % bound }
    }
}
