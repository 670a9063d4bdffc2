//! Claims under the caller's own id: what was granted under it is found again for as long as its leases last.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Shard, claims::Granted};
use crate::kernel::{
    gate::Lsn,
    occurrence::{OccurrenceNo, State},
};

/// Whose claim, under which id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClaimKey {
    pub(super) worker: Arc<str>,
    pub(super) id: Arc<str>,
}

/// Derived: what runs under a claim's id.
#[derive(Debug, Default)]
pub(super) struct ByClaim(BTreeMap<Arc<ClaimKey>, BTreeSet<OccurrenceNo>>);

impl ByClaim {
    pub(super) fn insert(&mut self, key: &Arc<ClaimKey>, number: OccurrenceNo) {
        self.0.entry(Arc::clone(key)).or_default().insert(number);
    }

    pub(super) fn remove(&mut self, key: &ClaimKey, number: OccurrenceNo) {
        let Some(numbers) = self.0.get_mut(key) else { return };
        numbers.remove(&number);
        if numbers.is_empty() {
            self.0.remove(key);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn of(&self, key: &ClaimKey) -> impl Iterator<Item = OccurrenceNo> {
        self.0.get(key).into_iter().flatten().copied()
    }

    /// Everything that is found, for the checker.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&ClaimKey, OccurrenceNo)> {
        self.0.iter().flat_map(|(key, numbers)| numbers.iter().map(move |number| (&**key, *number)))
    }
}

impl Shard {
    /// What a worker was granted of a queue under a claim's id and still has a lease on, as it was answered first but with
    /// the present ends of the leases. The answer may leave once the LSN is durable.
    #[must_use]
    pub fn claimed_before(&self, queue: &str, worker: &str, claim_id: &str) -> (Vec<Granted>, Lsn) {
        let key = ClaimKey { worker: worker.into(), id: claim_id.into() };
        let mut rests_on = Lsn(0);
        let mut granted: Vec<_> = self
            .runs
            .by_claim()
            .of(&key)
            .filter_map(|number| {
                let row = self.occurrences.row(number)?;
                let granted = self.leased_again(number).filter(|_| self.queue_name(row.stream().queue) == queue)?;
                rests_on = rests_on.max(self.schedule(row.schedule).changed);
                Some(granted)
            })
            .collect();
        granted.sort_unstable_by_key(|granted| granted.token);
        (granted, rests_on)
    }

    /// A lease that stands, as it was granted.
    fn leased_again(&self, number: OccurrenceNo) -> Option<Granted> {
        let (row, run) = (self.occurrences.row(number)?, self.runs.of(number)?);
        let stands = row.state == State::Running && run.lapses_at_ms.is_some_and(|at_ms| at_ms > self.elapsed_ms);
        let (token, attempt) = run.token.zip(run.attempts.last()).filter(|_| stands)?;
        Some(Granted {
            attempt: run.made,
            token,
            lease_expires_at: attempt.lease_expires_at,
            ..self.to_be_granted(number)
        })
    }
}
