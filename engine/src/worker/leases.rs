//! Leases that are held: when each is to be extended, and when it can no longer be relied upon.
//!
//! All of it is measured on this machine's monotonic clock, from the moment before the engine was asked: neither a wall
//! clock that is wrong nor a slow answer makes a lease look longer than the engine's.

use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{
    engine_client::{Beat, EngineClient, Holding, NoAnswer},
    run::{Cancellation, CancellationCell},
    signal::Signal,
};
use crate::kernel::id::OccurrenceId;

/// So many leases are extended in one call.
const BEATS: usize = 1_000;
/// With nothing to do, it is looked whether the consumer has ended this often.
const IDLE: Duration = Duration::from_secs(1);

/// One lease.
#[derive(Debug)]
struct Lease {
    occurrence: OccurrenceId,
    ends_at: Instant,
    beat_at: Instant,
    cancellation: Arc<CancellationCell>,
}

/// By lease token.
#[derive(Debug, Default)]
pub(super) struct Leases {
    held: Mutex<BTreeMap<String, Lease>>,
    changed: Condvar,
}

impl Leases {
    /// A lease was granted to a claim that was sent at `asked_at`; what tells its handler to stop.
    pub(super) fn add(
        &self,
        token: &str,
        occurrence: OccurrenceId,
        asked_at: Instant,
        lease: Duration,
    ) -> Arc<CancellationCell> {
        let cancellation = Arc::new(CancellationCell::default());
        let held = Lease {
            occurrence,
            ends_at: asked_at + lease,
            beat_at: asked_at + lease / 3,
            cancellation: Arc::clone(&cancellation),
        };
        self.lock().insert(token.to_owned(), held);
        self.changed.notify_all();
        cancellation
    }

    /// Its end was told.
    pub(super) fn remove(&self, token: &str) {
        self.lock().remove(token);
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Extends what is held until the consumer has ended.
    pub(super) fn keep(&self, engine: &EngineClient, lease: Duration, ended: &Signal) {
        let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        while !ended.is_raised() {
            let due = self.wait_for_due(Instant::now(), lease_ms);
            if due.is_empty() {
                continue;
            }
            let asked_at = Instant::now();
            let answer = engine.heartbeat(&due);
            if let Err(error) = &answer {
                tracing::warn!(runs = due.len(), "no heartbeat: {error}");
            }
            self.hear(&due, answer, asked_at, Instant::now(), lease);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Lease>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is due at `now`; with nothing due it waits for the next, or for something new, and gives nothing.
    fn wait_for_due(&self, now: Instant, lease_ms: u64) -> Vec<Holding> {
        let held = self.lock();
        let due: Vec<_> = held
            .iter()
            .filter(|(_, lease)| lease.beat_at <= now)
            .take(BEATS)
            .map(|(token, lease)| Holding {
                occurrence_id: lease.occurrence.to_string(),
                lease_token: token.clone(),
                lease_ms,
            })
            .collect();
        if due.is_empty() {
            let next = held.values().map(|lease| lease.beat_at.saturating_duration_since(now)).min();
            drop(self.changed.wait_timeout(held, next.unwrap_or(IDLE).min(IDLE)));
        }
        due
    }

    /// Takes over what a call of heartbeats that was sent at `asked_at` brought.
    fn hear(
        &self,
        due: &[Holding],
        answer: Result<Vec<Beat>, NoAnswer>,
        asked_at: Instant,
        now: Instant,
        lease: Duration,
    ) {
        let beats = answer.unwrap_or_default();
        let beats = beats.into_iter().chain(std::iter::repeat(Beat::Unknown));
        let mut held = self.lock();
        for (holding, beat) in due.iter().zip(beats) {
            let Some(one) = held.get_mut(&holding.lease_token) else { continue };
            match beat {
                Beat::Extended { cancel_requested } => {
                    (one.ends_at, one.beat_at) = (asked_at + lease, asked_at + lease / 3);
                    if cancel_requested {
                        one.cancellation.set(Cancellation::Requested);
                    }
                }
                Beat::Stale => {
                    one.cancellation.set(Cancellation::LeaseLost);
                    held.remove(&holding.lease_token);
                }
                Beat::Unknown => {
                    // Often enough for several tries within a lease, and not so often that they are a load.
                    one.beat_at = now + (lease / 12).min(Duration::from_secs(5));
                    if one.ends_at <= now {
                        // An engine that was down gives the whole lease again: it may still be won back.
                        one.cancellation.set(Cancellation::LeaseLost);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(60);

    fn held(leases: &Leases, token: &str, at: Instant) -> Arc<CancellationCell> {
        leases.add(token, OccurrenceId([7; 16]), at, LEASE)
    }

    fn is(cell: &CancellationCell, expected: Option<Cancellation>) {
        let run = format!("{cell:?}");
        let shown = match expected {
            None => "CancellationCell(0)",
            Some(Cancellation::Requested) => "CancellationCell(1)",
            Some(Cancellation::LeaseLost) => "CancellationCell(2)",
        };
        assert_eq!(run, shown);
    }

    #[test]
    fn a_lease_is_extended_at_a_third_of_it_counted_from_the_question() {
        let (leases, start) = (Leases::default(), Instant::now());
        held(&leases, "a", start);
        let due = leases.wait_for_due(start + LEASE / 3, 60_000);
        assert_eq!((due.len(), due[0].lease_ms, &*due[0].lease_token), (1, 60_000, "a"));
        let asked_at = start + LEASE / 3;
        let extended = Ok(vec![Beat::Extended { cancel_requested: false }]);
        leases.hear(&due, extended, asked_at, asked_at + Duration::from_secs(9), LEASE);
        let lease = &leases.lock()["a"];
        assert_eq!((lease.beat_at, lease.ends_at), (asked_at + LEASE / 3, asked_at + LEASE));
    }

    #[test]
    fn a_handler_is_asked_to_stop_and_told_that_its_lease_is_over() {
        let (leases, start) = (Leases::default(), Instant::now());
        let (asked, stale) = (held(&leases, "a", start), held(&leases, "b", start));
        let due = leases.wait_for_due(start + LEASE, 60_000);
        let answer = Ok(vec![Beat::Extended { cancel_requested: true }, Beat::Stale]);
        leases.hear(&due, answer, start + LEASE, start + LEASE, LEASE);
        is(&asked, Some(Cancellation::Requested));
        is(&stale, Some(Cancellation::LeaseLost));
        assert_eq!(leases.len(), 1);
    }

    #[test]
    fn without_answers_a_lease_is_tried_until_its_end_and_beyond() {
        let (leases, start) = (Leases::default(), Instant::now());
        let cell = held(&leases, "a", start);
        let due = leases.wait_for_due(start + LEASE / 2, 60_000);
        let away = || Err(NoAnswer::Away("away".into()));
        leases.hear(&due, away(), start + LEASE / 2, start + LEASE / 2, LEASE);
        is(&cell, None);
        assert_eq!(leases.wait_for_due(start + LEASE / 2 + LEASE / 12, 60_000).len(), 1);
        leases.hear(&due, away(), start + LEASE, start + LEASE, LEASE);
        is(&cell, Some(Cancellation::LeaseLost));
        assert_eq!(leases.len(), 1, "the engine may have been down, and give it again");
        leases.hear(&due, Ok(Vec::new()), start + LEASE, start + LEASE, LEASE);
        assert_eq!(leases.len(), 1, "an answer that is too short says nothing");
    }
}
