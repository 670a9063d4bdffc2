//! Takes occurrences of one queue from the embedded queue, in process.

use std::{collections::VecDeque, sync::Arc};

use super::ask::{Ask, Taken};
use crate::{
    engine::Engine,
    error::CallError,
    kernel::{
        id::{OccurrenceId, ScheduleId},
        time::UnixMs,
    },
};

/// How many occurrences a worker takes ahead of its handler.
const TAKEN_AHEAD: usize = 64;

/// Takes occurrences of one queue from the embedded queue, in process. Several workers of one queue share its work.
#[derive(Debug)]
pub struct Worker {
    engine: Engine,
    queue: String,
    taken: VecDeque<(u16, Taken)>,
    next_shard: usize,
}

impl Worker {
    pub(crate) fn new(engine: Engine, queue: String) -> Self {
        Self { engine, queue, taken: VecDeque::new(), next_shard: 0 }
    }

    /// The next occurrence, as soon as there is one; `None` once the engine is stopping.
    pub async fn next(&mut self) -> Option<Run> {
        loop {
            if let Some((shard, taken)) = self.taken.pop_front() {
                return Some(Run { engine: self.engine.clone(), shard, taken });
            }
            let arrivals = self.engine.arrivals();
            let arrived = arrivals.notified();
            tokio::pin!(arrived);
            // From here on an arrival is not missed, even one between asking and waiting.
            arrived.as_mut().enable();
            match self.take().await {
                Ok(0) => {
                    let _ = tokio::time::timeout(std::time::Duration::from_secs(1), arrived).await;
                }
                Ok(_) => {}
                Err(CallError::Overloaded) => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
                Err(_) => return None,
            }
        }
    }

    /// Asks the shards in turn until one has something.
    async fn take(&mut self) -> Result<usize, CallError> {
        let shards = self.engine.shards();
        for step in 0..shards {
            let shard = (self.next_shard + step) % shards;
            let queue = self.queue.clone();
            let taken: Vec<Taken> =
                self.engine.ask(shard, |reply| Ask::Take { queue, max: TAKEN_AHEAD, reply }).await?;
            if !taken.is_empty() {
                self.next_shard = (shard + 1) % shards;
                let shard = u16::try_from(shard).expect("there are at most 16384 shards");
                let count = taken.len();
                self.taken.extend(taken.into_iter().map(|taken| (shard, taken)));
                return Ok(count);
            }
        }
        Ok(0)
    }
}

/// One occurrence that a worker took. Without [`Run::complete`] it comes again after the next start of the engine:
/// delivery is at least once, so a handler uses [`Run::occurrence_id`] as idempotency key.
#[derive(Debug)]
pub struct Run {
    engine: Engine,
    shard: u16,
    taken: Taken,
}

impl Run {
    /// The occurrence: the same however often it is delivered.
    #[must_use]
    pub const fn occurrence_id(&self) -> OccurrenceId {
        self.taken.occurrence_id
    }

    /// The schedule that made it.
    #[must_use]
    pub const fn schedule_id(&self) -> ScheduleId {
        self.taken.schedule_id
    }

    /// The schedule's version that made it.
    #[must_use]
    pub const fn version(&self) -> u32 {
        self.taken.version
    }

    /// Whose it is.
    #[must_use]
    pub fn tenant(&self) -> &str {
        &self.taken.tenant
    }

    /// The nominal instant.
    #[must_use]
    pub const fn scheduled_for(&self) -> UnixMs {
        self.taken.scheduled_for
    }

    /// When it could enter the queue.
    #[must_use]
    pub const fn available_at(&self) -> UnixMs {
        self.taken.available_at
    }

    /// The schedule's bytes.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.taken.payload
    }

    /// Records that it is done; durable when this returns.
    ///
    /// # Errors
    /// See [`CallError`]: until it returned without one, the occurrence may come again.
    pub async fn complete(self) -> Result<(), CallError> {
        let number = self.taken.number;
        self.engine.ask(usize::from(self.shard), |reply| Ask::Complete { number, reply }).await
    }
}

impl Engine {
    pub(crate) fn arrivals(&self) -> Arc<tokio::sync::Notify> {
        Arc::clone(&self.running().arrivals)
    }
}
