//! The wall clock with nanoseconds, and waiting for an instant of it.

use std::time::Duration;

use countwheel::kernel::time::UnixMs;
use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_REALTIME` in nanoseconds.
pub(crate) fn now_ns() -> i64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// The same, in whole milliseconds.
pub(crate) fn now() -> UnixMs {
    UnixMs(now_ns() / 1_000_000)
}

/// The first whole second at least `seconds` from now.
pub(crate) fn whole_second_in(seconds: f64) -> UnixMs {
    let at = now().plus((seconds * 1_000.0) as i64);
    UnixMs((at.0 / 1_000 + 1) * 1_000)
}

/// Sleeps until `instant`; at once if it has passed. The harness sleeps like a stone: it wakes for nothing else.
pub(crate) async fn sleep_until(instant: UnixMs) {
    let ahead_ns = instant.0 * 1_000_000 - now_ns();
    if ahead_ns > 0 {
        tokio::time::sleep(Duration::from_nanos(ahead_ns.unsigned_abs())).await;
    }
}
