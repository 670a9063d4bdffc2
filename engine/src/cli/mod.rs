//! The command line: which command was asked for, and with which code the process ends.
//!
//! 0 is fine, 1 means that the check or the start failed, 2 that the command line was wrong. Errors are one line:
//! `countwheel: what: why: what to do`.

mod client;
mod demo;
mod past;
pub mod preview;
mod preview_batch;
mod redact;
mod report;
mod serve;
mod settings;
mod start;
mod token;
mod usage;
mod values;
pub mod wal_command;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::usage::Told;

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
    /// Make, read, change and end schedules of a running server
    Schedule(client::schedule::ScheduleArgs),
    /// Read and set a tenant's weight and quotas on a running server
    Tenant(client::tenant::TenantArgs),
    /// Read and set a queue's properties on a running server
    Queue(client::queue::QueueArgs),
    /// Occurrences of a running server that have failed for good
    Dead(client::piles::DeadArgs),
    /// Occurrences of a running server that wait for a person's decision
    Held(client::piles::HeldArgs),
    /// Look at one occurrence of a running server
    Occurrence(client::occurrence::OccurrenceArgs),
    /// One occurrence's life, from the log of a data directory
    Explain(past::explain::ExplainArgs),
    /// A schedule's life, from the log of a data directory
    History(past::history::HistoryArgs),
    /// Make a token for the server's tokens file
    Token(token::TokenArgs),
    /// Look at, check or repair a log
    Wal(wal_command::WalArgs),
    /// The engine that `demo --crash` kills
    #[command(hide = true)]
    DemoEngine(demo::child::ChildArgs),
}

/// Reads the command line and does what it says.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            return match usage::told(&error) {
                Told::Answer(text) => {
                    report::say(text.trim_end());
                    ExitCode::SUCCESS
                }
                Told::Refusal(line) => report::misused(line),
            };
        }
    };
    match cli.command {
        Command::Demo(args) => demo::run(args),
        Command::Preview(args) => preview::run(&args),
        Command::Serve(args) => serve::run(args),
        Command::Schedule(args) => client::schedule::run(args),
        Command::Tenant(args) => client::tenant::run(args),
        Command::Queue(args) => client::queue::run(args),
        Command::Dead(args) => client::piles::dead(&args),
        Command::Held(args) => client::piles::held(&args),
        Command::Occurrence(args) => client::occurrence::run(&args),
        Command::Explain(args) => past::explain::run(&args),
        Command::History(args) => past::history::run(&args),
        Command::Token(args) => token::run(args),
        Command::Wal(args) => wal_command::run(args),
        Command::DemoEngine(args) => demo::child::run(args),
    }
}
