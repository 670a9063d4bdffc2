//! Claims under the caller's own id that are under way: who repeats one waits until the first is answered.
//!
//! What was granted under an id is in the log: see [`crate::kernel::shard::Shard::claimed_before`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use hashbrown::HashMap;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Whose claim, of which queue, under which id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClaimKey {
    pub(crate) worker: Arc<str>,
    pub(crate) queue: Arc<str>,
    pub(crate) id: Arc<str>,
}

#[derive(Debug, Default)]
struct Turns(HashMap<ClaimKey, Weak<AsyncMutex<()>>>);

/// All claims under way that carry an id, of one engine.
#[derive(Debug, Default)]
pub(crate) struct ClaimIds(Mutex<Turns>);

impl ClaimIds {
    /// Waits until nobody else makes the claim; whoever has the guard makes it.
    pub(crate) async fn turn(&self, key: &ClaimKey) -> OwnedMutexGuard<()> {
        let turn = self.turns().of(key);
        turn.lock_owned().await
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turns {
    fn of(&mut self, key: &ClaimKey) -> Arc<AsyncMutex<()>> {
        if let Some(turn) = self.0.get(key).and_then(Weak::upgrade) {
            return turn;
        }
        if self.0.len() == self.0.capacity() {
            self.0.retain(|_, turn| turn.strong_count() > 0);
        }
        let turn = Arc::default();
        self.0.insert(key.clone(), Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: usize) -> ClaimKey {
        ClaimKey { worker: "w".into(), queue: "mail".into(), id: id.to_string().into() }
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
        assert!(ids.turns().0.len() < 100, "{}", ids.turns().0.len());
    }
}
