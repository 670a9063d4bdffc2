//! Two tenants on one instant: one has a hundred times as much to run, and the other does not wait for it.
//!
//! The clock is virtual, so everything is due at once and the order of what workers get is the engine's choice.

use std::sync::Arc;

use countwheel::{
    Engine, NewSchedule,
    kernel::{
        tenant::{Quotas, TenantSettings},
        time::UnixMs,
    },
    shell::clock::Clock,
};

const LARGE: usize = 1_000;
const SMALL: usize = 10;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let now = UnixMs::parse_rfc3339("2026-05-04T08:59:00Z").expect("an instant");
    let clock = Arc::new(Clock::standing(now));
    let engine = Engine::builder(dir.path()).shards(1).reserve_bytes(0).clock(Arc::clone(&clock)).open().await?;
    // The small tenant's turns count twice. A quota is there too: at most 100 schedules.
    let quotas = Quotas { schedules: Some(100), ..Quotas::default() };
    engine.set_tenant("small", TenantSettings { weight: 2, quotas }).await?;
    for (tenant, count) in [("large", LARGE), ("small", SMALL)] {
        for _ in 0..count {
            engine.create(NewSchedule::cron("0 9 * * *", "UTC")?.tenant(tenant).queue("mail")).await?;
        }
    }
    clock.step(60_000, 60_000);
    let mut worker = engine.worker("mail").await?;
    let mut last_small = 0;
    for place in 1..=LARGE + SMALL {
        let Some(run) = worker.next().await else { break };
        if run.tenant() == "small" {
            last_small = place;
        }
    }
    println!("the last of {SMALL} small runs was number {last_small} of {}", LARGE + SMALL);
    engine.stop().await?;
    Ok(())
}
