//! Snapshots that are written while everything goes on: whatever crash comes, one that was whole and the log behind it
//! give what the whole log gives.

use std::sync::Arc;

use super::{check, script::Script, world::World};
use crate::kernel::{gate::Lsn, shard::Shard};

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
