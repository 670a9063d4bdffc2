//! The `countwheel` command.

use std::process::ExitCode;

use clap::Parser;
use countwheel::cli::preview::{self, PreviewArgs};

/// Durable occurrences in a queue, on time.
#[derive(Parser)]
#[command(name = "countwheel", version)]
enum Command {
    Preview(PreviewArgs),
}

fn main() -> ExitCode {
    match Command::parse() {
        Command::Preview(args) => preview::run(&args),
    }
}
