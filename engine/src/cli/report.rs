//! How a command tells people: errors as one line, events as a log on stderr.

use std::{
    fmt::Display,
    io::{IsTerminal, Write},
    process::ExitCode,
};

use tracing_subscriber::EnvFilter;

/// Prints `countwheel: ...` as one line on stderr and gives the code 1.
pub(crate) fn failed(error: impl Display) -> ExitCode {
    note(format_args!("countwheel: {}", error.to_string().replace(['\n', '\r'], " ")));
    ExitCode::FAILURE
}

/// The same for a call that has to be corrected: the code 2.
pub(crate) fn misused(error: impl Display) -> ExitCode {
    let _ = failed(error);
    ExitCode::from(2)
}

/// Prints a line on stderr. Nobody left to read it is no reason to stop: the code still says what came of it.
pub(crate) fn note(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Prints a line on stdout at once. A reader that went away is no reason to stop.
pub(crate) fn say(line: impl Display) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

/// Sends events to stderr, filtered by `RUST_LOG`, else by `default_filter`.
pub(crate) fn log_to_stderr(default_filter: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default_filter));
    // A second call (two commands in one process, in tests) keeps the first.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .try_init();
}
