//! What must hold of runs after every step, and at the end.

use std::collections::BTreeSet;

use crate::kernel::{
    occurrence::State,
    shard::{
        Shard,
        occurrences::{Holder, OccurrenceRow},
        runs::Run,
    },
};

/// What is counted and found by an occurrence's state follows from it.
pub(super) fn derived_state(shard: &Shard) {
    let is_live = |row: &OccurrenceRow| match row.state {
        State::Scheduled | State::Running | State::RetryWait => true,
        State::Enqueued => row.is_tracked,
        _ => false,
    };
    let rows = || shard.occurrences.iter();
    assert_eq!(shard.live(), rows().filter(|(_, row)| is_live(row)).count());
    for (number, row) in rows() {
        let is_unsettled =
            matches!(row.state, State::Enqueued | State::Running | State::RetryWait | State::Held) && row.is_tracked;
        assert_eq!(shard.runs.unsettled_of(row.schedule).any(|other| other == number), is_unsettled, "{row:?}");
        let (dead, held) = (shard.runs.dead(Some(row.tenant), None), shard.runs.held(Some(row.tenant), None));
        assert_eq!(dead.filter(|dead| dead.number == number).count(), usize::from(row.state == State::Dead));
        assert_eq!(held.filter(|held| held.number == number).count(), usize::from(row.state == State::Held));
        let lapses = shard.runs.of(number).and_then(|run| run.lapses_at_ms);
        match row.state {
            State::Running => assert!(lapses.is_some(), "a lease without an end: {row:?}"),
            State::RetryWait => {
                let is_held = !matches!(row.holder, Holder::Nobody | Holder::Claimed);
                assert_eq!(lapses.is_none(), is_held, "{row:?} waits for {lapses:?}");
            }
            _ => assert_eq!(lapses, None, "{row:?}"),
        }
    }
    for (number, run) in shard.runs.iter() {
        assert!(run.made <= run.allowed || run.made == 0, "{number:?} had more attempts than allowed: {run:?}");
        assert!(run.attempts.iter().map(|attempt| attempt.number).is_sorted_by(|a, b| a < b));
        let open = run.attempts.iter().filter(|attempt| attempt.result.is_none()).count();
        let is_running = shard.occurrences.row(number).is_some_and(|row| row.state == State::Running);
        assert_eq!(open, usize::from(is_running), "{run:?}");
    }
    let expected: BTreeSet<_> = shard.runs.iter().filter_map(|(n, run)| Some((run.lapses_at_ms?, n))).collect();
    assert!(shard.runs.lapses().eq(expected), "each lease and back-off is found once");
    let mut under_ids: Vec<_> = shard.runs.iter().filter_map(|(n, run)| Some((run.claim.as_deref()?, n))).collect();
    under_ids.sort_unstable();
    assert!(shard.runs.by_claim().iter().eq(under_ids.iter().copied()), "each run is found by its claim");
    let is_running = |n| shard.occurrences.row(n).is_some_and(|row| row.state == State::Running);
    assert!(under_ids.iter().all(|(_, n)| is_running(*n)), "a claim's id ends with its runs: {under_ids:?}");
}

/// A run as the log remembers it.
pub(super) fn bare(run: &Run) -> Run {
    let mut run = run.clone();
    (run.lapses_at_ms, run.is_orphan) = (None, false);
    for attempt in &mut run.attempts {
        attempt.lease_expires_at = attempt.started_at;
    }
    run
}

/// Once workers and people behave, everything has come to its end.
pub(super) fn ends(shard: &Shard) {
    for (_, row) in shard.occurrences.iter().filter(|(_, row)| row.is_tracked) {
        let is_open = matches!(row.state, State::Enqueued | State::Running | State::RetryWait | State::Held);
        assert!(!is_open, "{row:?} comes to no end");
    }
}
