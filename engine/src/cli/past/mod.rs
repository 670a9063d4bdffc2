//! What became of it: `countwheel explain` and `countwheel history`, from the logs of a data directory.
//!
//! Both only read: the directory may be a copy, or a running server's, whose log then grows meanwhile. They tell what
//! the log holds, and say how far it reaches.

pub(super) mod explain;
pub(super) mod history;

mod instants;
mod json;
mod logs;
mod verdict;
mod words;

use std::{
    io::{self, ErrorKind, Write as _},
    process::ExitCode,
};

use self::logs::PastError;
use super::report::{failed, misused};

/// Says why nothing can be told: the code 2 where the command line is to be corrected.
fn refuse(command: &str, error: &PastError) -> ExitCode {
    match error {
        PastError::NoData { .. } | PastError::Zones(_) => misused(format_args!("{command}: {error}")),
        _ => failed(format_args!("{command}: {error}")),
    }
}

/// Writes what a command has to say. Whoever went away has read enough.
fn print(write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>) -> ExitCode {
    let mut out = io::BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => failed(format_args!("standard output: {error}: write to a place with room")),
    }
}
