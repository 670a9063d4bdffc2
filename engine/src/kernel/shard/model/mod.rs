//! Does a shard keep its promises whatever happens to it? The body that the property test, the fuzz target and longer
//! runs share.
//!
//! A script of bytes decides what happens: schedules come, change and go, time passes or stands, the queue answers, is cut off,
//! loses data, workers claim, answer, stall and die, and the process dies with a part of the log. After each turn the shard's derived state must follow from
//! its durable state; at the end every due instant of every schedule must have exactly one disposition, counted by
//! walking the rules anew.

pub(crate) mod check;
pub(in crate::kernel::shard) mod chronicle;
mod pace;
mod permits;
mod queue;
mod runs;
mod script;
pub(in crate::kernel::shard) mod snapshots;
pub(crate) mod timeline;
mod workers;
mod world;

use std::sync::Arc;

pub use self::snapshots::restore_anything;
use self::{script::Script, world::World};
use crate::kernel::calendar::ZoneSet;

/// Runs the script that `seed` grows into.
///
/// # Panics
/// When a promise is broken.
pub fn run_seed(seed: u64, zones: &Arc<ZoneSet>) {
    run_kernel(&script::grow(seed), zones);
}

/// Runs `script` against a shard, its log and its queue.
///
/// # Panics
/// When a promise is broken: an instant without a disposition or with two, an early or a doubled hand-over, a late one
/// in its own lane, state that replay does not give again, work that does not end.
pub fn run_kernel(script: &[u8], zones: &Arc<ZoneSet>) {
    let mut script = Script::new(script);
    let mut world = World::new(&mut script, zones);
    while !script.is_over() {
        world.step(&mut script);
        check::derived_state(&world);
    }
    world.settle();
    check::derived_state(&world);
    check::replay(&world);
    snapshots::at_the_end(&mut world);
    check::dispositions(&world);
    chronicle::agrees(&world);
    pace::explained(&world);
    check::queue(&world);
    runs::ends(&world.shard);
}
