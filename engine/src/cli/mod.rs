//! The command line: which command was asked for, and with which code the process ends.
//!
//! 0 is fine, 1 means that the check or the start failed, 2 that the command line was wrong. Errors are one line:
//! `countwheel: what: why: what to do`.

mod demo;
pub mod preview;
mod preview_batch;
mod redact;
mod report;
mod serve;
mod start;
mod values;
pub mod wal_command;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "countwheel", version, about = "Schedules become durable occurrences in a queue, on time")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show it working for a few seconds: schedules, two workers, nothing to install
    Demo(demo::DemoArgs),
    /// Show the next instants of a cron expression in a zone
    Preview(preview::PreviewArgs),
    /// Run the server: HTTP API and metrics
    Serve(serve::ServeArgs),
    /// Look at, check or repair a log
    Wal(wal_command::WalArgs),
    /// The engine that `demo --crash` kills
    #[command(hide = true)]
    DemoEngine(demo::child::ChildArgs),
}

/// Reads the command line and does what it says.
#[must_use]
pub fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Demo(args) => demo::run(args),
        Command::Preview(args) => preview::run(&args),
        Command::Serve(args) => serve::run(args),
        Command::Wal(args) => wal_command::run(args),
        Command::DemoEngine(args) => demo::child::run(args),
    }
}
