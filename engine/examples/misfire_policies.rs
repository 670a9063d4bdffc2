//! The three misfire policies over one outage: a minutely schedule each, the engine down from 08:05:30 to 08:15:10.
//!
//! The clock is virtual: nothing here waits for real time.

use std::sync::Arc;

use countwheel::{
    Engine, NewSchedule,
    engine::HistoryFilter,
    kernel::{
        id::ScheduleId,
        occurrence::{HistoryItem, State},
        policy::Misfire,
        time::UnixMs,
    },
    shell::clock::Clock,
};

type Outcome = Result<(), Box<dyn std::error::Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let dir = tempfile::tempdir()?;
    let at = |time: &str| UnixMs::parse_rfc3339(&format!("2026-05-04T{time}Z")).expect("an instant");

    let engine = open(dir.path(), at("08:05:00")).await?;
    let mut made = Vec::new();
    for misfire in [Misfire::Skip, Misfire::FireOnce, Misfire::CatchUp { limit: 3 }] {
        let schedule = NewSchedule::cron("* * * * *", "UTC")?.queue("reports").misfire(misfire);
        made.push((misfire, engine.create(schedule).await?.schedule.id));
    }
    engine.stop().await?;

    // Ten minutes later.
    let engine = open(dir.path(), at("08:15:10")).await?;
    for (misfire, id) in made {
        println!("{misfire}: {}", history(&engine, id).await?);
    }
    engine.stop().await?;
    Ok(())
}

async fn open(dir: &std::path::Path, at: UnixMs) -> Result<Engine, Box<dyn std::error::Error>> {
    Ok(Engine::builder(dir).shards(1).reserve_bytes(0).clock(Arc::new(Clock::standing(at))).open().await?)
}

/// What became of the ten instants, once nothing due is undecided.
async fn history(engine: &Engine, id: ScheduleId) -> Result<String, Box<dyn std::error::Error>> {
    loop {
        let page = engine.occurrences(id, HistoryFilter::default(), 100, None).await?;
        let mut ran = 0;
        let mut missed = 0;
        for item in &page.items {
            match item {
                HistoryItem::Occurrence(occurrence) if occurrence.state == State::Enqueued => ran += 1,
                HistoryItem::Occurrence(occurrence) => missed += u64::from(occurrence.state == State::Missed),
                HistoryItem::Range(range) => missed += range.count,
            }
        }
        if ran + missed >= 10 {
            return Ok(format!("{ran} run, {missed} missed"));
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}
