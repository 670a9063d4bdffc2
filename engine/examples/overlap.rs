//! The overlap policies: a job that rings every ten seconds and takes thirty-five, with two workers that claim at once.

use std::{sync::Arc, time::Duration};

use countwheel::{
    Engine, NewSchedule, Run, Worker,
    engine::HistoryFilter,
    kernel::{
        occurrence::{HistoryItem, State},
        policy::Overlap,
        time::UnixMs,
    },
    shell::clock::Clock,
};

/// Rings in a minute.
const RINGS: i64 = 6;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    for (word, overlap) in
        [("ALLOW", Overlap::Allow), ("SKIP_IF_RUNNING", Overlap::SkipIfRunning), ("QUEUE_ONE", Overlap::QueueOne)]
    {
        println!("{word}: {}", minute(overlap).await?);
    }
    Ok(())
}

/// A minute of the job's life.
async fn minute(overlap: Overlap) -> Result<String, Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let clock = Arc::new(Clock::standing(UnixMs(1_793_534_400_000)));
    let engine = Engine::builder(dir.path()).shards(1).reserve_bytes(0).clock(Arc::clone(&clock)).open().await?;
    let job = NewSchedule::every(Duration::from_secs(10)).queue("reports").overlap(overlap);
    let id = engine.create(job.end_at(engine.now().plus(RINGS * 10_000 + 1))).await?.schedule.id;
    let mut workers = [engine.worker("reports").await?, engine.worker("reports").await?];
    let (mut running, mut most): (Vec<(UnixMs, Run)>, usize) = (Vec::new(), 0);
    for _ in 0..40 {
        while let Some(run) = next_of_any(&mut workers).await {
            running.push((engine.now().plus(35_000), run));
        }
        most = most.max(running.len());
        clock.step(5_000, 5_000);
        let (over, rest) = running.into_iter().partition(|(until, _)| *until <= engine.now());
        running = rest;
        for (_, run) in over {
            run.complete().await?;
        }
    }
    let items = engine.occurrences(id, HistoryFilter::default(), 100, None).await?.items;
    let count = |state| {
        let is = |item: &&HistoryItem| matches!(item, HistoryItem::Occurrence(one) if one.state == state);
        items.iter().filter(is).count()
    };
    engine.stop().await?;
    let (ran, skipped) = (count(State::Succeeded), count(State::SkippedOverlap));
    Ok(format!("{ran} ran, {skipped} skipped, {most} at a time"))
}

/// What a worker has at once.
async fn next_of_any(workers: &mut [Worker]) -> Option<Run> {
    for worker in workers {
        if let Ok(run) = tokio::time::timeout(Duration::from_millis(20), worker.next()).await {
            return run;
        }
    }
    None
}
