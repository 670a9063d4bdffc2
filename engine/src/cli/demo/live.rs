//! The demo in one process: an engine with the embedded queue, a few schedules, two workers, a table.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};

use actix_web::rt::{spawn, time::sleep};
use tokio::signal::ctrl_c;

use super::{
    DemoError,
    board::Board,
    certificate::Certificate,
    home::Home,
    look,
    plan::{Plan, QUEUE},
};
use crate::{
    cli::{
        report::say,
        start::{self, Start},
    },
    engine::Engine,
    error::CallError,
    kernel::id::OccurrenceId,
};

/// How many workers take occurrences.
const WORKERS: usize = 2;
/// How long after the last instant the rest may take (the flexible window is a second of it).
const GRACE_MS: i64 = 5_000;

/// How often each occurrence was handed out.
type HandedOut = Rc<RefCell<BTreeMap<OccurrenceId, u64>>>;

/// Shows it and counts.
pub(crate) async fn run(seconds: u16) -> Result<Certificate, DemoError> {
    let home = Home::new().map_err(DemoError::Home)?;
    say(format_args!("an engine with the embedded queue in {}, four schedules, two workers\n", home.path().display()));
    let engine = start::open(Start { data: home.data(), ..Start::default() }).await?;
    let shown = tokio::select! {
        shown = show(&engine, seconds) => shown,
        _ = ctrl_c() => Err(DemoError::Interrupted),
    };
    engine.stop().await?;
    shown
}

async fn show(engine: &Engine, seconds: u16) -> Result<Certificate, DemoError> {
    let plan = Plan::live(engine.now(), seconds);
    look::make_missing(engine, &plan).await?;
    let handed_out = HandedOut::default();
    for _ in 0..WORKERS {
        spawn(work(engine.clone(), handed_out.clone()));
    }
    let mut board = Board::new();
    loop {
        sleep(board.interval()).await;
        let lines = look::lines(engine, &plan).await?;
        let now = engine.now();
        board.show(plan.from, now, &lines);
        let mut certificate = Certificate::of(&lines);
        if (now >= plan.end_at && certificate.is_settled()) || now >= plan.end_at.plus(GRACE_MS) {
            certificate.handed_out_twice = handed_out.borrow().values().filter(|times| **times > 1).count() as u64;
            return Ok(certificate);
        }
    }
}

/// Takes occurrences and completes them until the engine stops.
async fn work(engine: Engine, handed_out: HandedOut) {
    let worked: Result<(), CallError> = async {
        let mut worker = engine.worker(QUEUE).await?;
        while let Some(run) = worker.next().await {
            *handed_out.borrow_mut().entry(run.occurrence_id()).or_default() += 1;
            sleep(Duration::from_millis(10)).await;
            run.complete().await?;
        }
        Ok(())
    }
    .await;
    if let Err(error) = worked {
        tracing::warn!(%error, "a worker ended");
    }
}
