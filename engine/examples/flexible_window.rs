//! A flexible window: a hundred schedules of one instant spread over it, each always at its own place.

use std::{sync::Arc, time::Duration};

use countwheel::{
    Engine, NewSchedule,
    kernel::{
        id::{Kind, OccurrenceId},
        time::UnixMs,
    },
    shell::clock::Clock,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let now = UnixMs::parse_rfc3339("2026-05-04T08:00:00Z").expect("an instant");
    let clock = Arc::new(Clock::standing(now));
    let engine = Engine::builder(dir.path()).shards(1).reserve_bytes(0).clock(clock).open().await?;
    let window = Duration::from_secs(600);
    let mut minutes = [0_u32; 10];
    for _ in 0..100 {
        let new = NewSchedule::cron("0 9 * * *", "UTC")?.queue("sync").flexible_window(window);
        let made = engine.create(new).await?.schedule;
        let scheduled_for = made.next[0];
        // Anyone can compute where in the window an occurrence falls: it follows from its id.
        let id = OccurrenceId::of(made.id, made.version, scheduled_for, Kind::Regular, b"");
        let available_at = id.available_at(scheduled_for, 600_000);
        minutes[usize::try_from(available_at.since(scheduled_for) / 60_000)?] += 1;
    }
    println!("a hundred runs of 09:00 by the minute after it: {minutes:?}");
    engine.stop().await?;
    Ok(())
}
