//! `countwheel demo`: a newcomer's first minute. Nothing to install, ends by itself, counts for itself.
//!
//! Both ways end with the same certificate: the instants that should have become occurrences, computed here from the
//! rules by arithmetic of their own, against the occurrences that the engine lists. The code is 0 only if none is
//! absent and none was early.

pub(crate) mod child;

mod board;
mod certificate;
mod crash;
mod home;
mod live;
mod look;
mod plan;

use std::{io, process::ExitCode};

use actix_web::rt::System;
use clap::Args;

use self::certificate::Certificate;
use super::report::{failed, log_to_stderr, say};
use crate::error::{CallError, OpenError};

/// Options of `demo`.
#[derive(Args)]
pub(crate) struct DemoArgs {
    /// Kill the engine in the middle of a burst and start it again
    #[arg(long)]
    crash: bool,
    /// How long the schedules fire
    #[arg(long, value_name = "N", default_value = "12", value_parser = clap::value_parser!(u16).range(6..=600))]
    seconds: u16,
}

/// Why a demo could not be shown to its end.
#[derive(Debug, thiserror::Error)]
enum DemoError {
    #[error("the temporary directory: {0}: set TMPDIR to a directory that is writable and has space")]
    Home(io::Error),
    #[error("the child engine: {0}: run the demo from an installed countwheel")]
    Child(io::Error),
    #[error("the child engine {0}: see its messages above")]
    ChildEnded(String),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("interrupted: run it again to see the certificate")]
    Interrupted,
}

/// Runs the command.
pub(crate) fn run(args: DemoArgs) -> ExitCode {
    log_to_stderr("warn");
    let certificate =
        if args.crash { crash::run(args.seconds) } else { System::new().block_on(live::run(args.seconds)) };
    match certificate {
        Ok(certificate) => conclude(&certificate),
        Err(error) => failed(error),
    }
}

fn conclude(certificate: &Certificate) -> ExitCode {
    for line in certificate.lines() {
        say(line);
    }
    if certificate.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
