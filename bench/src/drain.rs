//! Taking everything out of the embedded queue by in-process workers, and completing it.

use std::{sync::Arc, time::Duration};

use countwheel::{Engine, Run, kernel::id::OccurrenceId};
use tokio::sync::Semaphore;

use crate::{bed::queue_name, error::BenchError, wall};

/// How many completions wait for the disk at once: fewer than a shard's mailbox takes.
const COMPLETING: usize = 512;

/// Nothing for so long: it is not coming any more.
const PATIENCE: Duration = Duration::from_secs(10);

/// One occurrence that a worker got.
#[derive(Clone, Copy)]
pub(crate) struct Delivery {
    pub(crate) occurrence_id: OccurrenceId,
    /// From `available_at` until the worker had it.
    pub(crate) lag_ns: i64,
}

/// A worker a queue takes until `expected` occurrences are there or none comes for ten seconds; each is completed.
pub(crate) async fn drain(engine: &Engine, queues: usize, expected: usize) -> Result<Vec<Delivery>, BenchError> {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let completing = Arc::new(Semaphore::new(COMPLETING));
    let mut workers = tokio::task::JoinSet::new();
    for queue in 0..queues {
        let mut worker = engine.worker(&queue_name(queue)).await?;
        let (tell, completing) = (tell.clone(), Arc::clone(&completing));
        workers.spawn(async move {
            while let Some(run) = worker.next().await {
                let lag_ns = wall::now_ns() - run.available_at().0 * 1_000_000;
                let delivery = Delivery { occurrence_id: run.occurrence_id(), lag_ns };
                let Ok(permit) = Arc::clone(&completing).acquire_owned().await else { return };
                if tell.send(delivery).is_err() {
                    return;
                }
                tokio::spawn(async move {
                    complete(run).await;
                    drop(permit);
                });
            }
        });
    }
    drop(tell);
    let mut all = Vec::with_capacity(expected);
    while all.len() < expected {
        match tokio::time::timeout(PATIENCE, told.recv()).await {
            Ok(Some(delivery)) => all.push(delivery),
            Ok(None) | Err(_) => break,
        }
    }
    workers.abort_all();
    let _ = completing.acquire_many(u32::try_from(COMPLETING).unwrap_or(u32::MAX)).await;
    Ok(all)
}

/// An occurrence whose completion fails stays enqueued, which the engine's own figures show.
async fn complete(run: Run) {
    if let Err(error) = run.complete().await {
        eprintln!("countwheel-bench: a completion was refused: {error}");
    }
}
