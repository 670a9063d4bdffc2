//! The engine that `demo --crash` kills: makes what is missing of the plan, works, and tells its parent line by line.
//!
//! The lines: `made` once every schedule is acknowledged, `took ID` before an occurrence is worked on, `done ID` after
//! its completion is durable, `settled` when every instant of the plan has come to its end.

use std::{io::Write, path::PathBuf, process::ExitCode, time::Duration};

use actix_web::rt::{System, spawn, time::sleep};
use clap::Args;

use super::{
    DemoError,
    certificate::Certificate,
    look,
    plan::{Plan, QUEUE},
};
use crate::{
    cli::{
        report::{failed, log_to_stderr},
        start::{self, Start},
    },
    engine::Engine,
    kernel::time::UnixMs,
};

/// How many workers take occurrences.
const WORKERS: usize = 2;
/// How often the child looks whether all is settled.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Options of the child.
#[derive(Args)]
pub(crate) struct ChildArgs {
    /// Data directory
    #[arg(long)]
    data: PathBuf,
    /// The plan's beginning in milliseconds since 1970
    #[arg(long)]
    from_ms: i64,
    /// The plan's length
    #[arg(long)]
    seconds: u16,
}

/// Runs the child until all is settled.
pub(crate) fn run(args: ChildArgs) -> ExitCode {
    log_to_stderr("warn");
    match System::new().block_on(live(args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(error),
    }
}

async fn live(args: ChildArgs) -> Result<(), DemoError> {
    let plan = Plan::crash(UnixMs(args.from_ms), args.seconds);
    let engine = start::open(Start { data: args.data, ..Start::default() }).await?;
    look::make_missing(&engine, &plan).await?;
    tell(format_args!("made"));
    for _ in 0..WORKERS {
        spawn(work(engine.clone()));
    }
    loop {
        sleep(LOOK_EVERY).await;
        if engine.now() >= plan.end_at && Certificate::of(&look::lines(&engine, &plan).await?).is_settled() {
            break;
        }
    }
    engine.stop().await?;
    tell(format_args!("settled"));
    Ok(())
}

async fn work(engine: Engine) {
    let mut worker = match engine.worker(QUEUE).await {
        Ok(worker) => worker,
        Err(error) => return tracing::warn!(%error, "a worker did not begin"),
    };
    while let Some(run) = worker.next().await {
        let id = run.occurrence_id();
        tell(format_args!("took {id}"));
        match run.complete().await {
            Ok(()) => tell(format_args!("done {id}")),
            Err(error) => tracing::warn!(%id, %error, "not completed"),
        }
    }
}

/// A line to the parent, at once. Without a parent there is nothing to go on for.
fn tell(line: std::fmt::Arguments<'_>) {
    let mut stdout = std::io::stdout().lock();
    if writeln!(stdout, "{line}").and_then(|()| stdout.flush()).is_err() {
        std::process::exit(1);
    }
}
