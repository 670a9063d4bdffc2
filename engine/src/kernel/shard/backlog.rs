//! What is due and was not handed over: how much of it, in which lane, for how long.

use super::Shard;
use crate::kernel::{
    occurrence::{Lane, OccurrenceNo, State},
    time::UnixMs,
};

/// What is late by less than each of these goes into its bucket, in milliseconds; the last bucket is for the rest.
pub const AGES_MS: [i64; 5] = [1_000, 10_000, 60_000, 600_000, 3_600_000];

/// What is due and not handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DueBacklog {
    /// How many occurrences, by how long they have been available ([`AGES_MS`]) and by lane (as in [`Lane::ALL`]).
    pub by_age: [[u64; 3]; AGES_MS.len() + 1],
    /// Since when the oldest has been due; instants that have no occurrence yet, since the queue is away, count too.
    pub oldest: Option<UnixMs>,
}

impl DueBacklog {
    pub(super) fn count(&mut self, lane: Lane, late_ms: i64, occurrences: usize) {
        let age = AGES_MS.partition_point(|limit_ms| *limit_ms <= late_ms);
        self.by_age[age][lane as usize] += occurrences as u64;
    }

    /// Another shard's added to it.
    pub fn add(&mut self, other: &Self) {
        for (mine, others) in self.by_age.as_flattened_mut().iter_mut().zip(other.by_age.as_flattened()) {
            *mine += others;
        }
        self.oldest = self.oldest.into_iter().chain(other.oldest).min();
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.by_age.as_flattened().iter().sum()
    }

    /// Whether nothing is due.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Shard {
    /// What is available by `now` and not handed over.
    #[must_use]
    pub fn backlog(&self, now: UnixMs) -> DueBacklog {
        let mut backlog = DueBacklog { oldest: self.oldest_due(now), ..DueBacklog::default() };
        let outbox = self.outbox.due(now);
        for (lane, at, count) in outbox.chain(self.due.by_at()).chain(self.catch_up.by_at()) {
            backlog.count(lane, now.since(at), count);
        }
        // One answers for all: what is sent again, or waits for its stream, came to wait at one moment.
        let resends = self.resends.front().map(|(_, number)| (*number, self.resends.len()));
        let withheld = self.withheld.first().map(|number| (*number, self.withheld.len()));
        for (number, count) in [resends, withheld].into_iter().flatten() {
            let (lane, at) = self.waits_since(number).unwrap_or((Lane::Strict, now));
            backlog.count(lane, now.since(at), count);
        }
        backlog
    }

    /// Its lane, and since when an occurrence could have been handed over: one that is tried again, from the end of its
    /// back-off on.
    fn waits_since(&self, number: OccurrenceNo) -> Option<(Lane, UnixMs)> {
        let row = self.occurrences.row(number)?;
        let retried = self.runs.of(number).filter(|_| row.state == State::RetryWait);
        let retry_at = retried.and_then(|run| {
            let failed_at = run.attempts.last()?.finished_at?;
            Some(failed_at.plus(i64::try_from(run.delay_ms?).unwrap_or(i64::MAX)))
        });
        Some((row.lane, retry_at.unwrap_or(row.available_at)))
    }

    /// How many occurrences wait to be handed over.
    #[must_use]
    pub fn outbox_len(&self) -> usize {
        self.outbox.len() + self.due.len() + self.catch_up.len() + self.resends.len() + self.withheld.len()
    }

    /// How many occurrences are available by `now` and not handed over, and since when the oldest has been.
    #[must_use]
    pub fn due_backlog(&self, now: UnixMs) -> (usize, Option<UnixMs>) {
        let backlog = self.backlog(now);
        (usize::try_from(backlog.len()).unwrap_or(usize::MAX), backlog.oldest)
    }

    fn oldest_due(&self, now: UnixMs) -> Option<UnixMs> {
        let lines = [self.outbox.next_at(), self.due.oldest(), self.catch_up.oldest()];
        let numbers = self.resends.front().map(|(_, number)| number).into_iter().chain(self.withheld.first());
        let numbers = numbers.filter_map(|number| self.waits_since(*number)).map(|(_, at)| at);
        let parked = self.parked.front().and_then(|schedule| self.schedule(*schedule).next);
        lines.into_iter().flatten().chain(numbers).chain(parked).min().filter(|at| *at <= now)
    }

    /// How often each tenant's due line, and its catch-up lines, had to wait for the rate.
    pub fn throttled(&self) -> impl Iterator<Item = (u32, [u64; 2])> {
        (0..).zip(&self.throttled).filter(|(_, counts)| **counts != [0; 2]).map(|(tenant, counts)| (tenant, *counts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_ends_before_its_limit() {
        let mut backlog = DueBacklog::default();
        backlog.count(Lane::Strict, 999, 1);
        backlog.count(Lane::Strict, 1_000, 2);
        backlog.count(Lane::CatchUp, 3_600_000, 4);
        assert_eq!(backlog.by_age, [[1, 0, 0], [2, 0, 0], [0; 3], [0; 3], [0; 3], [0, 0, 4]]);
        let other = DueBacklog { oldest: Some(UnixMs(7)), ..backlog };
        backlog.add(&other);
        assert_eq!((backlog.len(), backlog.oldest), (14, Some(UnixMs(7))));
    }
}
