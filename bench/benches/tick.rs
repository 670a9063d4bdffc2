//! How late does a wait end? The engine's tick beside the runtime's own timer, to the same instants.

use std::time::Duration;

use countwheel::{kernel::time::UnixMs, shell::tick::Tick};
use rustix::time::{ClockId, clock_gettime};

const WAITS: usize = 1_000;

fn now_us() -> i64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
}

/// Waits of 2 to 9 ms that begin anywhere within a millisecond and end at the beginning of one.
fn instants() -> impl Iterator<Item = UnixMs> {
    (0..WAITS).map(|wait| UnixMs(now_us() / 1_000 + 2 + (wait % 8) as i64))
}

async fn lateness_of_tick() -> Vec<i64> {
    let tick = Tick::realtime().expect("a timerfd");
    let mut late_us = Vec::with_capacity(WAITS);
    for at in instants() {
        tick.arm_at(at).expect("armed");
        tick.fired().await.expect("fired");
        late_us.push(now_us() - at.0 * 1_000);
    }
    late_us
}

async fn lateness_of_sleep() -> Vec<i64> {
    let mut late_us = Vec::with_capacity(WAITS);
    for at in instants() {
        let wait_us = (at.0 * 1_000 - now_us()).max(0);
        tokio::time::sleep_until(tokio::time::Instant::now() + Duration::from_micros(wait_us as u64)).await;
        late_us.push(now_us() - at.0 * 1_000);
    }
    late_us
}

fn print(name: &str, mut late_us: Vec<i64>) {
    late_us.sort_unstable();
    let at = |percent: usize| late_us[(late_us.len() - 1) * percent / 100];
    println!("{name:<12} {:>6} {:>8} {:>8} {:>8}", at(0), at(50), at(99), at(100));
}

fn main() {
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    println!("{WAITS} waits, us late\n                min      p50      p99      max");
    print("tick", runtime.block_on(lateness_of_tick()));
    print("sleep_until", runtime.block_on(lateness_of_sleep()));
}
