//! Entries that were acknowledged and that no worker had asked for.
//!
//! A worker acknowledges an entry after its claim was answered, and every answer that lets it do so has been recorded
//! before. So what is still ENQUEUED at an acknowledged entry was acknowledged without a claim. If it never had one, its
//! consumers do not claim: it is theirs, and done. If it had, its workers do claim, and the entry went by mistake (a
//! consumer was deleted with what it had read, say): it is sent again.

use std::collections::BTreeMap;

use super::{Shard, Turn, Urgency, occurrences::Holder, stream_number};
use crate::kernel::{
    occurrence::{EntryId, OccurrenceNo, QueueNo, Stream},
    record::{Record, Settled},
    time::UnixMs,
};

/// So many queues are counted by name, however many there are.
const NAMED: usize = 20;

/// How much was acknowledged without a claim.
#[derive(Debug, Default)]
pub(super) struct Unclaimed {
    by_queue: BTreeMap<u32, u64>,
    /// Of queues beyond [`NAMED`].
    other: u64,
}

impl Unclaimed {
    fn count(&mut self, queue: QueueNo, done: u64) {
        let is_named = self.by_queue.len() < NAMED || self.by_queue.contains_key(&queue.0);
        let count = if is_named { self.by_queue.entry(queue.0).or_default() } else { &mut self.other };
        *count = count.saturating_add(done);
    }
}

impl Shard {
    /// Every consumer acknowledged everything in `stream` up to an entry. What was never claimed of it is done.
    pub fn settled(&mut self, stream: Stream, through: EntryId, now: UnixMs, turn: &mut Turn) {
        let EntryId { generation, counter } = through;
        let settled = Settled { stream: stream_number(stream), generation, counter };
        self.send_again_what_went_by_mistake(&settled);
        turn.more |= !self.resends.is_empty();
        let done = self.settled_rows(&settled).len() as u64;
        if done > 0 {
            self.unclaimed.count(stream.queue, done);
            self.counters.unclaimed += done;
            self.record(Record::Settled(settled), now, turn);
            turn.urge(Urgency::Within(1_000));
        } else if let Some(entries) = self.entries.get_mut(settled.stream as usize) {
            // All of it was claimed, or has moved on: it is not looked at again.
            entries.forget_through(through);
        }
    }

    fn send_again_what_went_by_mistake(&mut self, settled: &Settled) {
        let is_lost = |number: &OccurrenceNo| {
            let row = self.occurrences.row(*number).expect("its entry is its own");
            row.holder == Holder::Nobody && self.runs.of(*number).is_some()
        };
        let lost: Vec<_> = self.acknowledged_rows(settled).filter(is_lost).collect();
        for number in lost {
            self.counters.resent += 1;
            self.enter_line(number, self.lsn);
        }
    }

    /// How many occurrences of tracked queues consumers acknowledged without a claim, by queue; without a name, those of
    /// all queues for which there was no room.
    pub fn unclaimed(&self) -> impl Iterator<Item = (Option<&str>, u64)> {
        let named =
            self.unclaimed.by_queue.iter().map(|(queue, count)| (Some(self.queue_name(QueueNo(*queue))), *count));
        named.chain((self.unclaimed.other > 0).then_some((None, self.unclaimed.other)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
