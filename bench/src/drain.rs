//! Taking everything out of the embedded queue by workers of this process, and completing it.

use std::time::Duration;

use countwheel::{
    Engine,
    engine::{Claim, ClaimedRun, runs::Speaking},
    error::CallError,
    kernel::id::OccurrenceId,
};

use crate::{bed::queue_name, error::BenchError, wall};

/// Nothing for so long: it is not coming any more.
const PATIENCE: Duration = Duration::from_secs(10);

/// One occurrence that a worker got.
#[derive(Clone, Copy)]
pub(crate) struct Delivery {
    pub(crate) occurrence_id: OccurrenceId,
    /// From `available_at` until the worker had it, its lease being durable.
    pub(crate) lag_ns: i64,
}

/// A worker a queue claims until `expected` occurrences are there or none comes for ten seconds; each is completed.
pub(crate) async fn drain(engine: &Engine, queues: usize, expected: usize) -> Result<Vec<Delivery>, BenchError> {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let mut workers = tokio::task::JoinSet::new();
    for queue in 0..queues {
        let (engine, tell) = (engine.clone(), tell.clone());
        let claim = Claim { max: 1_000, wait: PATIENCE, ..Claim::new(format!("drain-{queue}")) };
        workers.spawn(async move {
            loop {
                let runs = match engine.claim(&queue_name(queue), &claim).await {
                    Ok(runs) => runs,
                    Err(CallError::Overloaded) => continue,
                    Err(error) => return eprintln!("countwheel-bench: a claim was refused: {error}"),
                };
                let had_at_ns = wall::now_ns();
                complete(&engine, &runs).await;
                let deliveries = runs.iter().map(|run| Delivery {
                    occurrence_id: run.occurrence_id,
                    lag_ns: had_at_ns - run.available_at.0 * 1_000_000,
                });
                if tell.send(deliveries.collect::<Vec<_>>()).is_err() {
                    return;
                }
            }
        });
    }
    drop(tell);
    let mut all = Vec::with_capacity(expected);
    while all.len() < expected {
        match tokio::time::timeout(PATIENCE, told.recv()).await {
            Ok(Some(deliveries)) => all.extend(deliveries),
            Ok(None) | Err(_) => break,
        }
    }
    workers.abort_all();
    Ok(all)
}

/// An occurrence whose completion fails comes again when its lease is over, which the engine's own figures show.
pub(crate) async fn complete(engine: &Engine, runs: &[ClaimedRun]) {
    let done = runs.iter().map(|run| Speaking::new(run.occurrence_id, run.lease_token, None)).collect();
    match engine.complete(done).await {
        Ok(answers) => answers.iter().filter_map(|answer| answer.as_ref().err()).for_each(|error| {
            eprintln!("countwheel-bench: a completion was refused: {error}");
        }),
        Err(error) => eprintln!("countwheel-bench: completions were refused: {error}"),
    }
}
