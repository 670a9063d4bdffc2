//! Entries that no worker has asked for: what consumers acknowledge all the same is theirs, and done.
//!
//! A worker acknowledges an entry after its claim was answered, and every answer that lets it do so has been recorded
//! before: what is still ENQUEUED at an acknowledged entry, and never had a claim, was taken by somebody who does not
//! claim. Each stream's entries are kept in their order, so that an acknowledgement costs what it covers and not a walk
//! over all that is under way; there are never more of them than the stream holds.

use std::collections::{BTreeMap, VecDeque};

use super::{Shard, Turn, Urgency, stream_number};
use crate::kernel::{
    occurrence::{EntryId, OccurrenceNo, QueueNo, State, Stream},
    record::{Record, Settled},
    time::UnixMs,
};

/// So many queues are counted by name, however many there are.
const NAMED: usize = 20;

/// What may be acknowledged without a claim. Derived: rebuilt when a shard is opened.
#[derive(Debug, Default)]
pub(super) struct Unclaimed {
    /// By stream number, ascending. An entry that was claimed since stays until the acknowledgements have passed it.
    entries: BTreeMap<u32, VecDeque<(EntryId, OccurrenceNo)>>,
    by_queue: BTreeMap<u32, u64>,
    /// Of queues beyond [`NAMED`].
    other: u64,
}

impl Unclaimed {
    /// The queue holds `number` at `entry`.
    pub(super) fn note(&mut self, stream: u32, entry: EntryId, number: OccurrenceNo) {
        let entries = self.entries.entry(stream).or_default();
        // What stood at this id or above it was lost, and is read back or sent again.
        while entries.back().is_some_and(|(last, _)| *last >= entry) {
            entries.pop_back();
        }
        entries.push_back((entry, number));
    }

    /// Forgets everything up to `through`, and tells what that was.
    fn take_through(&mut self, stream: u32, through: EntryId) -> impl Iterator<Item = (EntryId, OccurrenceNo)> {
        let entries = self.entries.entry(stream).or_default();
        let count = entries.partition_point(|(entry, _)| *entry <= through);
        entries.drain(..count)
    }

    fn count(&mut self, queue: QueueNo, done: u64) {
        let is_named = self.by_queue.len() < NAMED || self.by_queue.contains_key(&queue.0);
        let count = if is_named { self.by_queue.entry(queue.0).or_default() } else { &mut self.other };
        *count = count.saturating_add(done);
    }
}

impl Shard {
    /// Every consumer acknowledged everything in `stream` up to an entry. What was never claimed of it is done.
    pub fn settled(&mut self, stream: Stream, through: EntryId, now: UnixMs, turn: &mut Turn) {
        let number = stream_number(stream);
        let passed: Vec<_> = self.unclaimed.take_through(number, through).collect();
        let done = passed.iter().filter(|(entry, number)| self.is_unclaimed_at(*number, *entry)).count() as u64;
        if done > 0 {
            self.unclaimed.count(stream.queue, done);
            self.counters.unclaimed += done;
            let EntryId { generation, counter } = through;
            self.record(Record::Settled(Settled { stream: number, generation, counter }), now, turn);
            turn.urge(Urgency::Within(1_000));
        }
    }

    /// How many occurrences of tracked queues consumers acknowledged without a claim, by queue; without a name, those of
    /// all queues for which there was no room.
    pub fn unclaimed(&self) -> impl Iterator<Item = (Option<&str>, u64)> {
        let named =
            self.unclaimed.by_queue.iter().map(|(queue, count)| (Some(self.queue_name(QueueNo(*queue))), *count));
        named.chain((self.unclaimed.other > 0).then_some((None, self.unclaimed.other)))
    }

    /// The queue accepted `number` at `entry`: if somebody has to claim it there, that is remembered.
    pub(super) fn note_unclaimed(&mut self, number: OccurrenceNo, entry: EntryId) {
        if !self.config.is_embedded && self.is_unclaimed_at(number, entry) {
            let row = self.occurrences.row(number).expect("it is at its entry");
            self.unclaimed.note(stream_number(row.stream()), entry, number);
        }
    }

    /// What the log remembers of it, when the shard comes up.
    pub(super) fn rebuild_unclaimed(&mut self) {
        let placed = self.occurrences.iter().filter_map(|(number, row)| Some((row.entry?, number)));
        let mut placed: Vec<_> = placed.filter(|(entry, number)| self.is_unclaimed_at(*number, *entry)).collect();
        placed.sort_unstable();
        for (entry, number) in placed {
            self.note_unclaimed(number, entry);
        }
    }

    fn is_unclaimed_at(&self, number: OccurrenceNo, entry: EntryId) -> bool {
        let stands = self
            .occurrences
            .row(number)
            .is_some_and(|row| row.state == State::Enqueued && row.is_tracked && row.entry == Some(entry));
        stands && self.runs.of(number).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(generation: u64, counter: u64) -> EntryId {
        EntryId { generation, counter }
    }

    #[test]
    fn acknowledgements_take_what_they_cover_and_no_more() {
        let mut unclaimed = Unclaimed::default();
        for counter in 1..=4 {
            unclaimed.note(0, at(1, counter), OccurrenceNo(counter));
        }
        unclaimed.note(0, at(2, 1), OccurrenceNo(5));
        assert_eq!(unclaimed.take_through(1, at(9, 9)).count(), 0, "another stream");
        let taken: Vec<_> = unclaimed.take_through(0, at(1, 2)).map(|(_, number)| number.0).collect();
        assert_eq!(taken, [1, 2]);
        assert_eq!(unclaimed.take_through(0, at(1, 1)).count(), 0, "they never go back");
        assert_eq!(unclaimed.take_through(0, at(2, 0)).count(), 2);
        assert_eq!(unclaimed.take_through(0, at(2, 1)).count(), 1);
    }

    #[test]
    fn what_was_lost_and_read_back_takes_its_old_place() {
        let mut unclaimed = Unclaimed::default();
        for counter in 1..=4 {
            unclaimed.note(0, at(1, counter), OccurrenceNo(counter));
        }
        unclaimed.note(0, at(1, 3), OccurrenceNo(3));
        assert_eq!(unclaimed.take_through(0, at(1, 4)).map(|(_, number)| number.0).collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn the_number_of_names_is_bounded() {
        let mut unclaimed = Unclaimed::default();
        for queue in 0..30 {
            unclaimed.count(QueueNo(queue), 2);
        }
        unclaimed.count(QueueNo(0), 1);
        assert_eq!((unclaimed.by_queue.len(), unclaimed.by_queue[&0], unclaimed.other), (NAMED, 3, 20));
    }
}
