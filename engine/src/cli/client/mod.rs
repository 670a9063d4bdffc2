//! The command line as a client of a running server: what is asked, and how answers are shown.
//!
//! It is thin on purpose: what a value may be is for the server to say, whose refusals name field and remedy. Tables
//! are for people; `--json` prints what the server answered.

mod connect;
mod error;
mod http;
mod import;
mod lists;
mod local;
pub(crate) mod occurrence;
pub(crate) mod piles;
pub(crate) mod queue;
pub(crate) mod schedule;
mod show;
mod spec;
pub(crate) mod tenant;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use self::error::ClientError;
use super::report::{failed, misused};

/// Prints text on stdout. A reader that went away has seen enough.
fn print(text: &str) -> Result<(), ClientError> {
    let mut out = io::stdout().lock();
    let printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    printed.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => ClientError::ReaderGone,
        _ => ClientError::Output(error),
    })
}

/// The end of a command: what is said, and the code.
fn conclude(done: Result<(), ClientError>, json: bool) -> ExitCode {
    match done {
        Ok(()) | Err(ClientError::ReaderGone) => ExitCode::SUCCESS,
        Err(error @ ClientError::Usage(_)) => misused(error),
        Err(error) => {
            if let (true, ClientError::Refused { body, .. }) = (json, &error) {
                let _ = print(&format!("{body}\n"));
            }
            failed(error)
        }
    }
}
