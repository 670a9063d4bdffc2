//! The `countwheel` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    countwheel::cli::main()
}
