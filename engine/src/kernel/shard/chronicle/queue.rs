//! What the queue says: accepted, lost, done without a word.

use super::{super::stream_of, Chronicle, ChronicleError, Step};
use crate::kernel::{
    occurrence::{EntryId, State},
    record::{Enqueued, Lost, Settled, numbers_of},
};

impl Chronicle {
    pub(super) fn enqueued(&mut self, enqueued: &Enqueued) -> Result<(), ChronicleError> {
        self.check_runs(&enqueued.runs)?;
        let (place, at, now) = (self.place(), self.instant(enqueued.at), self.now);
        let mut entry = EntryId { generation: enqueued.generation, counter: enqueued.first_counter };
        for number in numbers_of(&enqueued.runs) {
            // One that has ended and was not asked for has no row.
            if let Some(row) = self.occurrences.row_mut(number) {
                (row.entry, row.entry_at) = (Some(entry), at);
                let is_again = row.enqueued_at.is_some();
                row.note(place, || Step::Enqueued { at, entry, is_again });
                if matches!(row.state, State::Scheduled | State::RetryWait) {
                    row.enqueued_at = row.enqueued_at.or(Some(at));
                    self.occurrences.move_to(number, State::Enqueued, None, now);
                }
            }
            entry.counter = entry.counter.saturating_add(1);
        }
        Ok(())
    }

    /// What was accepted lately and stood behind the last entry that survived has no place any more.
    pub(super) fn lost(&mut self, lost: &Lost) {
        let (stream, since, place) = (stream_of(lost.stream), self.instant(lost.since), self.place());
        let survived = lost.survived.map(|(generation, counter)| EntryId { generation, counter });
        for (_, row) in self.occurrences.iter_mut() {
            let is_lost = row.state == State::Enqueued
                && !row.is_settled
                && row.stream() == stream
                && row.enqueued_at.is_some()
                && (row.entry.is_none() || row.entry_at >= since)
                && row.entry.is_none_or(|entry| Some(entry) > survived);
            if is_lost {
                row.entry = None;
                row.note(place, || Step::Lost);
            }
        }
    }

    /// What consumers acknowledged without ever asking for it is done.
    pub(super) fn settled(&mut self, settled: &Settled) {
        let (stream, place, now) = (stream_of(settled.stream), self.place(), self.now);
        let through = EntryId { generation: settled.generation, counter: settled.counter };
        let mut over = Vec::new();
        for (number, row) in self.occurrences.iter_mut() {
            let is_over = row.state == State::Enqueued
                && row.is_tracked
                && !row.has_run
                && row.stream() == stream
                && row.entry.is_some_and(|entry| entry <= through);
            if is_over {
                (row.is_tracked, row.is_settled) = (false, true);
                row.note(place, || Step::Settled);
                over.push(number);
            }
        }
        for number in over {
            self.occurrences.end_if_over(number, now);
        }
    }
}
