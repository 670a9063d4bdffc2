//! A clock that moves only when it is told to: a year of month-ends in a moment.

use std::sync::Arc;

use countwheel::{Engine, NewSchedule, kernel::time::UnixMs, shell::clock::Clock};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let begin = UnixMs::parse_rfc3339("2026-01-01T00:00:00Z").expect("an instant");
    let clock = Arc::new(Clock::standing(begin));
    let engine = Engine::builder(dir.path()).shards(1).reserve_bytes(0).clock(Arc::clone(&clock)).open().await?;
    let month_end = NewSchedule::cron("0 18 LW * *", "Europe/Berlin")?.queue("closing");
    let mut next = engine.create(month_end).await?.schedule.next_run_at;
    let mut worker = engine.worker("closing").await?;
    for _ in 0..12 {
        let Some(at) = next else { break };
        let ahead_ms = at.since(engine.now());
        clock.step(ahead_ms, ahead_ms);
        let Some(run) = worker.next().await else { break };
        println!("{}", run.scheduled_for());
        let id = run.schedule_id();
        run.complete().await?;
        next = engine.schedule(id).await?.schedule.next_run_at;
    }
    engine.stop().await?;
    Ok(())
}
