//! Making many schedules through the public handle, as many callers would.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use countwheel::{
    Engine, NewSchedule,
    error::CallError,
    kernel::{changes::NewRule, time::UnixMs},
};

use crate::{
    bed::Setup,
    error::BenchError,
    rules::{Made, far_away, schedule},
    wall,
};

/// So many callers wait at once: fewer than a shard's mailbox takes, enough that they share the syncs.
const CALLERS: usize = 256;

/// Makes `count` schedules; the `index`th is what `describe` says. Their first instants are told too.
pub(crate) async fn make_all(
    engine: &Engine,
    count: usize,
    describe: impl Fn(usize) -> NewSchedule + Send + Sync + 'static,
) -> Result<Vec<(Made, Option<UnixMs>)>, BenchError> {
    let describe = Arc::new(describe);
    let next = Arc::new(AtomicUsize::new(0));
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..CALLERS.min(count) {
        let (engine, describe, next) = (engine.clone(), Arc::clone(&describe), Arc::clone(&next));
        callers.spawn(async move {
            let mut made = Vec::new();
            loop {
                let index = next.fetch_add(1, Relaxed);
                if index >= count {
                    return Ok::<_, CallError>(made);
                }
                made.push((index, make(&engine, describe(index)).await?));
            }
        });
    }
    let mut all = Vec::with_capacity(count);
    while let Some(caller) = callers.join_next().await {
        all.extend(caller.map_err(|error| BenchError::Ended(error.to_string()))??);
    }
    all.sort_unstable_by_key(|(index, _)| *index);
    Ok(all.into_iter().map(|(_, made)| made).collect())
}

async fn make(engine: &Engine, new: NewSchedule) -> Result<(Made, Option<UnixMs>), CallError> {
    loop {
        match engine.create(new.clone()).await {
            Ok(described) => {
                let schedule = described.schedule;
                let made = Made { id: schedule.id, version: schedule.version };
                return Ok((made, schedule.next.first().copied()));
            }
            Err(CallError::Overloaded) => tokio::time::sleep(Duration::from_millis(2)).await,
            Err(error) => return Err(error),
        }
    }
}

/// How many schedules a second can be made: measured on some that are not due while anybody looks.
pub(crate) async fn rate_per_s(engine: &Engine, count: usize, setup: &Setup) -> Result<f64, BenchError> {
    let (now, setup) = (wall::now(), setup.clone());
    let started = Instant::now();
    make_all(engine, count, move |index| schedule(NewRule::from(far_away(index, now)), index, &setup)).await?;
    Ok(count as f64 / started.elapsed().as_secs_f64())
}
