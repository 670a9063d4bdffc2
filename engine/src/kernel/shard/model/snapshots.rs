//! Snapshots that are written while everything goes on: whatever crash comes, one that was whole and the log behind it
//! give what the whole log gives.

use std::sync::Arc;

use super::{check, script::Script, world::World};
use crate::kernel::{
    calendar::ZoneSet,
    gate::Lsn,
    record::Opened,
    shard::{Config, Shard, Turn},
};

/// What was written of snapshots.
#[derive(Default)]
pub(super) struct Snapshots {
    writing: Option<(Lsn, Vec<Vec<u8>>)>,
    whole: Option<(Lsn, Vec<Vec<u8>>)>,
}

impl Snapshots {
    /// A shard is cut, or swept for a while; now and then a snapshot is given up.
    pub(super) fn step(&mut self, shard: &mut Shard, script: &mut Script<'_>) {
        let Some((lsn, chunks)) = &mut self.writing else {
            self.writing = Some((shard.begin_snapshot(), Vec::new()));
            return;
        };
        if script.chance(8) {
            shard.drop_snapshot();
            self.writing = None;
            return;
        }
        let mut chunk = Vec::new();
        let is_whole = shard.sweep(1 + script.below(30), &mut chunk);
        chunks.push(chunk);
        if is_whole {
            assert!(!shard.is_sweeping());
            self.whole = Some((*lsn, std::mem::take(chunks)));
            self.writing = None;
        }
    }

    /// The process died; what its log has lost, a snapshot must not vouch for.
    pub(super) fn crash(&mut self, durable: Lsn) {
        self.writing = None;
        self.whole.take_if(|(lsn, _)| *lsn > durable);
    }

    /// The shard that the last whole snapshot and the log behind it give.
    pub(super) fn restored(&self, world: &World) -> Option<Shard> {
        let (lsn, chunks) = self.whole.as_ref()?;
        let mut shard = Shard::new(world.config.clone(), Arc::clone(&world.zones));
        for chunk in chunks {
            shard.restore(chunk).expect("what a shard wrote, a shard reads");
        }
        assert!(!shard.is_restoring() && shard.lsn() == *lsn);
        let behind = usize::try_from(lsn.0).expect("a short log");
        for (kind, body) in &world.log[behind..] {
            shard.replay(*kind, body).expect("what a shard wrote, a shard reads");
        }
        Some(shard)
    }
}

/// A snapshot that is written at once gives the shard back.
pub(super) fn at_the_end(world: &mut World) {
    let mut snapshots = Snapshots::default();
    while snapshots.whole.is_none() {
        snapshots.step(&mut world.shard, &mut Script::new(&[]));
    }
    let again = snapshots.restored(world).expect("it is whole");
    check::same(&world.shard, &again);
}

/// Bytes as a snapshot: refused, or a shard that can be opened, goes on, and is the same when it is restored from a
/// snapshot of its own.
///
/// # Panics
/// When it is neither.
pub fn restore_anything(bytes: &[u8], zones: &Arc<ZoneSet>) {
    let fresh = || Shard::new(Config::default(), Arc::clone(zones));
    let mut shard = fresh();
    if shard.restore(bytes).is_err() || shard.is_restoring() {
        return;
    }
    let mut now = shard.log_time();
    let mut turn = Turn::default();
    shard.open(Opened::default(), now);
    shard.queue_ready();
    for _ in 0..3 {
        now = now.plus(60_000);
        shard.set_durable(shard.lsn());
        shard.set_elapsed(now.0);
        shard.advance(now, &mut turn);
    }
    let mut image = Vec::new();
    shard.begin_snapshot();
    while !shard.sweep(1_000, &mut image) {}
    let mut again = fresh();
    again.restore(&image).expect("what a shard wrote, a shard reads");
    check::same(&shard, &again);
}

/// The bytes of a snapshot of what `seed` grows into.
#[cfg(test)]
pub(in crate::kernel::shard) fn grown(seed: u64, zones: &Arc<ZoneSet>) -> Vec<u8> {
    let bytes = super::script::grow(seed);
    let mut script = Script::new(&bytes);
    let mut world = World::new(&mut script, zones);
    while !script.is_over() {
        world.step(&mut script);
    }
    let mut image = Vec::new();
    world.shard.begin_snapshot();
    while !world.shard.sweep(1_000, &mut image) {}
    image
}
