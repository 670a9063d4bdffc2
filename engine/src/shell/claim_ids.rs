//! Claims under the caller's own id: a claim that is repeated because its answer was lost gets the same runs.
//!
//! Kept in memory, so that a restart of the engine forgets it: the runs of a lost answer then come again when their
//! leases end.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use hashbrown::HashMap;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::run_ask::ClaimedRun;

/// So much of payloads is kept; beyond it the claims whose leases end first are forgotten early.
const KEEP_BYTES: usize = 256 << 20;
/// What a run weighs beside its payload.
const RUN_BYTES: usize = 256;

/// Whose claim, of which queue, under which id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClaimKey {
    pub(crate) worker: Arc<str>,
    pub(crate) queue: Arc<str>,
    pub(crate) id: String,
}

/// Whoever has it makes the claim; others who repeat it wait.
pub(crate) type ClaimTurn = Arc<OwnedMutexGuard<()>>;

#[derive(Debug)]
struct Kept {
    /// Its place in [`Table::by_end`].
    place: (i64, u64),
    bytes: usize,
    runs: Vec<ClaimedRun>,
}

#[derive(Debug, Default)]
struct Table {
    by_key: HashMap<ClaimKey, Kept>,
    /// By the end of their leases in elapsed time.
    by_end: BTreeMap<(i64, u64), ClaimKey>,
    next: u64,
    bytes: usize,
    turns: HashMap<ClaimKey, Weak<AsyncMutex<()>>>,
}

/// All claims that carry an id, of one engine.
#[derive(Debug, Default)]
pub(crate) struct ClaimIds(Mutex<Table>);

impl ClaimIds {
    /// Waits until nobody else makes the claim.
    pub(crate) async fn turn(&self, key: &ClaimKey) -> ClaimTurn {
        let turn = self.table().turn(key);
        Arc::new(turn.lock_owned().await)
    }

    /// What the claim was granted, while its leases last.
    pub(crate) fn runs(&self, key: &ClaimKey, elapsed_ms: i64) -> Option<Vec<ClaimedRun>> {
        let mut table = self.table();
        table.forget(elapsed_ms);
        table.by_key.get(key).map(|kept| kept.runs.clone())
    }

    /// The claim was granted leases that end then.
    pub(crate) fn granted(&self, key: ClaimKey, runs: Vec<ClaimedRun>, ends_at_ms: i64) {
        self.table().keep(key, runs, ends_at_ms);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn turn(&mut self, key: &ClaimKey) -> Arc<AsyncMutex<()>> {
        if let Some(turn) = self.turns.get(key).and_then(Weak::upgrade) {
            return turn;
        }
        if self.turns.len() == self.turns.capacity() {
            self.turns.retain(|_, turn| turn.strong_count() > 0);
        }
        let turn = Arc::default();
        self.turns.insert(key.clone(), Arc::downgrade(&turn));
        turn
    }

    fn keep(&mut self, key: ClaimKey, runs: Vec<ClaimedRun>, ends_at_ms: i64) {
        self.remove(&key);
        let bytes = runs.iter().map(|run| run.payload.len() + RUN_BYTES).sum();
        let place = (ends_at_ms, self.next);
        self.next += 1;
        self.bytes += bytes;
        self.by_end.insert(place, key.clone());
        self.by_key.insert(key, Kept { place, bytes, runs });
        self.forget(i64::MIN);
    }

    /// What is over by then goes, and more where there is too much.
    fn forget(&mut self, elapsed_ms: i64) {
        while let Some(((ends_at_ms, _), key)) = self.by_end.first_key_value()
            && (*ends_at_ms <= elapsed_ms || self.bytes > KEEP_BYTES)
        {
            let key = key.clone();
            self.remove(&key);
        }
    }

    fn remove(&mut self, key: &ClaimKey) {
        if let Some(gone) = self.by_key.remove(key) {
            self.by_end.remove(&gone.place);
            self.bytes -= gone.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{
        gate::Lsn,
        id::{Kind, OccurrenceId, ScheduleId},
        lease::LeaseToken,
        time::UnixMs,
    };

    fn key(id: usize) -> ClaimKey {
        ClaimKey { worker: "w".into(), queue: "mail".into(), id: id.to_string() }
    }

    fn run(payload: usize) -> ClaimedRun {
        ClaimedRun {
            occurrence_id: OccurrenceId([1; 16]),
            schedule_id: ScheduleId([2; 16]),
            version: 1,
            tenant: "acme".into(),
            kind: Kind::Regular,
            scheduled_for: UnixMs(5),
            available_at: UnixMs(5),
            attempt: 1,
            payload: vec![0; payload],
            lease_token: LeaseToken { shard: 0, lsn: Lsn(7), index: 0 },
            lease_expires_at: UnixMs(9),
            deadline: None,
        }
    }

    #[test]
    fn what_was_granted_is_kept_until_its_leases_end() {
        let ids = ClaimIds::default();
        ids.granted(key(1), vec![run(1)], 1_000);
        ids.granted(key(2), vec![run(1), run(2)], 500);
        assert_eq!(ids.runs(&key(2), 499).map(|runs| runs.len()), Some(2));
        assert_eq!((ids.runs(&key(2), 500), ids.runs(&key(1), 999).is_some()), (None, true));
        assert_eq!(ids.runs(&key(1), 1_000), None);
        let table = ids.table();
        assert_eq!((table.by_end.len(), table.bytes), (0, 0));
    }

    #[test]
    fn memory_is_bounded_by_what_payloads_weigh() {
        let ids = ClaimIds::default();
        for id in 0..40 {
            ids.granted(key(id), vec![run(8 << 20)], 1_000 + id as i64);
        }
        assert!(ids.table().bytes <= KEEP_BYTES);
        assert!(ids.runs(&key(0), 0).is_none() && ids.runs(&key(39), 0).is_some(), "the first to end go first");
    }

    #[tokio::test]
    async fn one_at_a_time_makes_a_claim_and_turns_leave_nothing_behind() {
        let ids = ClaimIds::default();
        let first = ids.turn(&key(1)).await;
        let again = key(1);
        let waiting = tokio::time::timeout(std::time::Duration::from_millis(1), ids.turn(&again));
        assert!(waiting.await.is_err());
        drop(first);
        ids.turn(&key(1)).await;
        for id in 0..10_000 {
            drop(ids.turn(&key(id)).await);
        }
        assert!(ids.table().turns.len() < 100, "{}", ids.table().turns.len());
    }
}
