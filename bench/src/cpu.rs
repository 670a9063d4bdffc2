//! Processor time, of the process and of a thread.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Processor time of this process: the engine's threads (shards, relays, log writers) and the harness.
pub(crate) fn process() -> Duration {
    read(ClockId::ProcessCPUTime)
}

/// Processor time of the calling thread.
pub(crate) fn thread() -> Duration {
    read(ClockId::ThreadCPUTime)
}

fn read(clock: ClockId) -> Duration {
    let spent = clock_gettime(clock);
    Duration::new(spent.tv_sec.unsigned_abs(), u32::try_from(spent.tv_nsec).unwrap_or(0))
}
