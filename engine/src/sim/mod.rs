//! Whole engines in one thread, and everything around them simulated: clocks, disks, a Redis, workers, callers. A seed is
//! a world; the same seed is the same world.
//!
//! What runs is what runs in earnest: the kernel, the actor's body, the journal, the log's appender and recovery, the
//! relay. Only whoever waits is another: instead of threads, sockets and timers one loop gives everything its turn, in an
//! order and with delays that the seed draws. First faults, as many kinds as the seed has; then all is well; then an
//! onlooker that knows only what it saw judges (`check`).

mod calls;
mod chaos;
mod check;
mod node;
mod redis;
mod swarm;
#[cfg(test)]
mod tests;
mod trace;
mod workers;
mod workload;
mod world;

use std::sync::Arc;

pub use world::Outcome;

use crate::{kernel::calendar::ZoneSet, shell::tzdata};

/// What all worlds share: reading the zone rules takes longer than most worlds.
#[derive(Clone)]
pub struct Atlas(Arc<ZoneSet>);

impl Atlas {
    /// The zone rules that are built in.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(tzdata::bundled()))
    }
}

impl Default for Atlas {
    fn default() -> Self {
        Self::new()
    }
}

/// Runs the world of a seed; `is_shown` prints what happens.
///
/// # Panics
/// When a promise is broken.
#[must_use]
pub fn run(seed: u64, atlas: &Atlas, is_shown: bool) -> Outcome {
    world::World::new(seed, &atlas.0, is_shown).live()
}
