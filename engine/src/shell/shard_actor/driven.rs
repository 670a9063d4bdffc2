//! An actor's body, driven by hand: no arbiter, no mailbox, no timer. Whoever drives it gives it turns, messages and its
//! disk's turns, in any order.

use countwheel_wal::{Lsn, SnapshotError, SnapshotWriter};
use futures_util::FutureExt;

use super::{Journal, ShardActor};
use crate::{
    kernel::{shard::Shard, time::UnixMs},
    shell::ask::Ask,
};

impl ShardActor {
    /// What the arbiter calls first.
    pub(crate) fn start_by_hand(&mut self) {
        self.begin();
    }

    /// A turn, as after a pulse.
    pub(crate) fn pulse(&mut self) {
        self.turn();
    }

    /// A message.
    pub(crate) fn ask(&mut self, ask: Ask) {
        self.take(ask);
    }

    /// Whether a turn was asked for since this was last called.
    pub(crate) fn was_signaled(&self) -> bool {
        self.signal.notified().now_or_never().is_some()
    }

    /// When the alarm rings, by the wall clock; `None`: in a second.
    pub(crate) fn rings_at(&self) -> Option<UnixMs> {
        self.alarm.set_for()
    }

    /// The log writes what is due; whoever waits for it is told.
    pub(crate) fn step_log(&self) -> bool {
        let has_stepped = self.journal.as_ref().is_some_and(|journal| journal.log().step());
        if has_stepped {
            self.signal.notify_one();
        }
        has_stepped
    }

    /// How long until the log has something to write.
    pub(crate) fn log_due_in_ms(&self) -> Option<u64> {
        let wait = self.journal.as_ref()?.log().next_step_in()?;
        u64::try_from(wait.as_millis()).ok()
    }

    /// How the log is.
    pub(crate) fn log_state(&self) -> Option<countwheel_wal::State> {
        self.journal.as_ref().map(Journal::state)
    }

    /// Engine time.
    pub(crate) const fn engine_time(&self) -> UnixMs {
        self.time.now()
    }

    pub(crate) const fn shard(&self) -> &Shard {
        &self.shard
    }

    pub(crate) const fn shard_mut(&mut self) -> &mut Shard {
        &mut self.shard
    }

    /// The last record that is durable.
    pub(crate) fn durable(&self) -> u64 {
        self.journal.as_ref().map_or(0, |journal| journal.durable().0)
    }

    /// Begins a snapshot, as far as the log allows one.
    pub(crate) fn cut(&mut self) -> Option<Snapshotting> {
        let journal = self.journal.as_mut().filter(|_| !self.shard.is_sweeping())?;
        if journal.is_blocked() || journal.state() != countwheel_wal::State::Running {
            return None;
        }
        let at = Lsn(self.shard.lsn().0);
        let writer = journal.log().snapshot(at).ok()?;
        self.shard.begin_snapshot();
        Some(Snapshotting { writer, at, is_swept: false })
    }

    /// Goes on with a snapshot; it is over when nothing is given back.
    pub(crate) fn sweep(
        &mut self,
        mut snapshot: Snapshotting,
        rows: usize,
    ) -> Result<Option<Snapshotting>, SnapshotError> {
        let done = self.sweep_on(&mut snapshot, rows);
        if !matches!(done, Ok(false)) {
            self.shard.drop_snapshot();
        }
        match done? {
            true => snapshot.writer.finish().map(|_| None),
            false => Ok(Some(snapshot)),
        }
    }

    /// Whether all of it is swept, and durable up to its cut.
    fn sweep_on(&mut self, snapshot: &mut Snapshotting, rows: usize) -> Result<bool, SnapshotError> {
        if !snapshot.is_swept {
            let mut chunk = Vec::new();
            snapshot.is_swept = self.shard.sweep(rows, &mut chunk);
            if !chunk.is_empty() {
                snapshot.writer.write(&chunk)?;
            }
        }
        let durable = self.journal.as_ref().map(Journal::durable);
        Ok(snapshot.is_swept && durable.is_some_and(|durable| durable.0 >= snapshot.at.0))
    }
}

/// A snapshot that is being written.
pub(crate) struct Snapshotting {
    writer: SnapshotWriter,
    at: Lsn,
    is_swept: bool,
}
