//! `countwheel-bench`: the load harness. One experiment a subcommand, on the real engine, disk and Redis.
//!
//! Exit 1 when anything is absent, early or delivered twice; figures alone never fail it. What a figure contains is
//! said beside it.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod bed;
mod burst;
mod check;
mod cpu;
mod drain;
mod error;
mod fairness;
mod lags;
mod ledger;
mod limit;
mod make;
mod read_back;
mod report;
mod rules;
mod runs;
mod seen;
mod server;
mod sim;
mod steady;
mod storm;
mod wall;
mod workers;

use error::BenchError;

/// The load harness: every experiment makes its own data directory and, where asked, its own redis-server.
#[derive(Parser)]
#[command(name = "countwheel-bench", version)]
struct Cli {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Subcommand)]
enum Experiment {
    /// Many schedules due on one instant.
    Burst(burst::Options),
    /// One tenant's burst beside many small tenants.
    Fairness(fairness::Options),
    /// One tenant's catch-up after an outage beside others' steady work.
    Storm(storm::Options),
    /// Claiming and completing what waits in the embedded queue.
    Runs(runs::Options),
    /// Worker processes that are killed at random, until everything has come to its end.
    Workers(workers::Options),
    #[command(hide = true)]
    WorkerChild(workers::ChildOptions),
    /// Simulated worlds: any number of seeds, no disk, no Redis, no waiting.
    Sim(sim::Options),
    /// A steady rate, spread evenly over the milliseconds.
    Steady(steady::Options),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Experiment::WorkerChild(options) = &cli.experiment {
        return match workers::child(options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&error),
        };
    }
    if let Experiment::Sim(options) = &cli.experiment {
        return if sim::run(options) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let outcome = runtime.map_err(BenchError::from).and_then(|runtime| {
        runtime.block_on(async {
            match cli.experiment {
                Experiment::Burst(options) => Ok((burst::run(&options).await?, options.setup.json)),
                Experiment::Fairness(options) => Ok((fairness::run(&options).await?, options.setup.json)),
                Experiment::Storm(options) => Ok((storm::run(&options).await?, options.setup.json)),
                Experiment::Runs(options) => Ok((runs::run(&options).await?, options.setup.json)),
                Experiment::Workers(options) => Ok((workers::run(&options)?, options.setup.json)),
                Experiment::WorkerChild(_) | Experiment::Sim(_) => unreachable!("it was run above"),
                Experiment::Steady(options) => Ok((steady::run(&options).await?, options.setup.json)),
            }
        })
    });
    match outcome {
        Ok((report, json)) => {
            report.print(json);
            if report.is_whole() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => failed(&error),
    }
}

fn failed(error: &BenchError) -> ExitCode {
    eprintln!("countwheel-bench: {error}");
    ExitCode::FAILURE
}
