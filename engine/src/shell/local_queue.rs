//! The embedded queue: released occurrences wait in the shard, in memory, until somebody takes them.
//!
//! Everything lands at once. Nothing survives the process: the log is what is durable, and after a restart the shard
//! releases anew what had not been claimed.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use hashbrown::HashMap;

use super::queue::{Queue, QueueEvent, Remembered};
use crate::kernel::{
    occurrence::{Entry, EntryId, Lane, OccurrenceNo, QueueNo, Stream},
    time::UnixMs,
};

/// Whose turn it is, again and again: strict goes first, and every lane that waits has at least one turn in ten.
const TURNS: [Lane; 10] = {
    use Lane::{CatchUp, Flexible, Strict};
    [Strict, Strict, Flexible, Strict, Strict, Strict, Strict, CatchUp, Strict, Strict]
};

/// One line of waiting occurrences. What was withdrawn stays in it, dead, until it comes up or the dead are as many as
/// the living.
#[derive(Default)]
struct Line {
    /// Number and ticket; alive if [`LocalQueue::tickets`] agrees.
    waiting: VecDeque<(OccurrenceNo, Ticket)>,
    living: usize,
    /// How many entries were ever accepted: the counter of the last id.
    added: u64,
}

/// Tells two releases of one occurrence apart.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Ticket(u64);

/// A shard's queue in its own memory.
pub struct LocalQueue {
    generation: u64,
    lines: HashMap<Stream, Line>,
    /// Every occurrence that waits: where, and under which ticket.
    tickets: HashMap<OccurrenceNo, (Stream, Ticket)>,
    last_ticket: u64,
    /// Where each queue stands in [`TURNS`].
    turns: HashMap<QueueNo, usize>,
    events: Vec<QueueEvent>,
    now: Arc<dyn Fn() -> UnixMs + Send + Sync>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl LocalQueue {
    /// An empty queue. `now` is the engine's clock; `wake` is called when there is something to poll.
    #[must_use]
    pub fn new(now: Arc<dyn Fn() -> UnixMs + Send + Sync>, wake: Arc<dyn Fn() + Send + Sync>) -> Self {
        Self {
            generation: 0,
            lines: HashMap::new(),
            tickets: HashMap::new(),
            last_ticket: 0,
            turns: HashMap::new(),
            events: Vec::new(),
            now,
            wake,
        }
    }

    /// Takes up to `max` occurrences of a queue, in the order in which they are to be served.
    pub fn take(&mut self, queue: QueueNo, max: usize) -> Vec<OccurrenceNo> {
        let mut taken = Vec::new();
        while taken.len() < max {
            let turn = self.turns.get(&queue).copied().unwrap_or_default();
            let mine = std::iter::once(TURNS[turn]).chain(Lane::ALL);
            let Some(number) = mine.filter_map(|lane| self.pop(Stream { queue, lane })).next() else { break };
            self.turns.insert(queue, (turn + 1) % TURNS.len());
            taken.push(number);
        }
        taken
    }

    /// An occurrence is not to be served any more; `false` if it did not wait.
    pub fn withdraw(&mut self, number: OccurrenceNo) -> bool {
        let Some((stream, _)) = self.tickets.remove(&number) else { return false };
        let tickets = &self.tickets;
        if let Some(line) = self.lines.get_mut(&stream) {
            line.living -= 1;
            if line.waiting.len() > 64 && line.living * 2 < line.waiting.len() {
                line.waiting.retain(|(number, ticket)| tickets.get(number).is_some_and(|(_, valid)| valid == ticket));
            }
        }
        true
    }

    /// How many occurrences wait in a stream.
    #[must_use]
    pub fn waiting(&self, stream: Stream) -> usize {
        self.lines.get(&stream).map_or(0, |line| line.living)
    }

    /// How many occurrences wait in all streams.
    #[must_use]
    pub fn waiting_in_all(&self) -> usize {
        self.tickets.len()
    }

    fn pop(&mut self, stream: Stream) -> Option<OccurrenceNo> {
        let line = self.lines.get_mut(&stream)?;
        while let Some((number, ticket)) = line.waiting.pop_front() {
            if self.tickets.get(&number).is_some_and(|(_, valid)| *valid == ticket) {
                self.tickets.remove(&number);
                line.living -= 1;
                return Some(number);
            }
        }
        None
    }

    fn push(&mut self, stream: Stream, number: OccurrenceNo) {
        self.withdraw(number);
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.tickets.insert(number, (stream, ticket));
        let line = self.lines.entry(stream).or_default();
        line.waiting.push_back((number, ticket));
        line.living += 1;
    }

    fn say(&mut self, event: QueueEvent) {
        self.events.push(event);
        (self.wake)();
    }
}

impl Queue for LocalQueue {
    fn declare(&mut self, stream: Stream, _queue: &str, _lane: Lane, _remembered: Remembered) {
        self.lines.entry(stream).or_default();
    }

    fn start(&mut self, generation: u64) {
        self.generation = generation;
        self.say(QueueEvent::Ready);
    }

    fn stage(&mut self, _entry: &Entry<'_>) {}

    fn release<'a>(&mut self, _at: UnixMs, numbers: &[OccurrenceNo], look_up: &dyn Fn(OccurrenceNo) -> Entry<'a>) {
        let mut shares: Vec<(Stream, Vec<OccurrenceNo>)> = Vec::new();
        for &number in numbers {
            let stream = look_up(number).stream;
            self.push(stream, number);
            match shares.iter_mut().find(|(other, _)| *other == stream) {
                Some((_, share)) => share.push(number),
                None => shares.push((stream, vec![number])),
            }
        }
        let at = (self.now)();
        for (stream, numbers) in shares {
            let line = self.lines.entry(stream).or_default();
            let first = EntryId { generation: self.generation, counter: line.added + 1 };
            line.added += numbers.len() as u64;
            let added = line.added;
            self.say(QueueEvent::Landed { stream, first, numbers, added, at });
        }
    }

    fn forget_staged(&mut self, _at: UnixMs) {}

    fn recorded(&mut self, _stream: Stream, _through: EntryId) {}

    fn poll(&mut self, events: &mut Vec<QueueEvent>) {
        events.append(&mut self.events);
    }

    fn close(&mut self, _limit: Duration) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::id::{Kind, OccurrenceId, ScheduleId};

    fn queue() -> LocalQueue {
        let mut queue = LocalQueue::new(Arc::new(|| UnixMs(7)), Arc::new(|| ()));
        queue.start(3);
        queue.events.clear();
        queue
    }

    fn release(queue: &mut LocalQueue, lane: Lane, numbers: impl IntoIterator<Item = u64>) {
        let numbers: Vec<_> = numbers.into_iter().map(OccurrenceNo).collect();
        queue.release(UnixMs(5), &numbers, &|number| Entry {
            number,
            stream: Stream { queue: QueueNo(0), lane },
            occurrence_id: OccurrenceId([1; 16]),
            schedule_id: ScheduleId([2; 16]),
            version: 1,
            kind: Kind::Regular,
            scheduled_for: UnixMs(5),
            available_at: UnixMs(5),
            attempt: 1,
            tenant: "acme",
            payload: b"",
        });
    }

    fn take(queue: &mut LocalQueue, max: usize) -> Vec<u64> {
        queue.take(QueueNo(0), max).into_iter().map(|number| number.0).collect()
    }

    #[test]
    fn every_lane_that_waits_gets_at_least_a_tenth() {
        let mut queue = queue();
        release(&mut queue, Lane::CatchUp, 2_000..2_100);
        release(&mut queue, Lane::Flexible, 1_000..1_100);
        release(&mut queue, Lane::Strict, 0..100);
        let served: Vec<_> = (0..20).flat_map(|_| take(&mut queue, 3)).collect();
        let share = |from: u64| served.iter().filter(|number| (from..from + 1_000).contains(number)).count();
        assert_eq!((share(0), share(1_000), share(2_000)), (48, 6, 6), "{served:?}");
        assert_eq!(served[0], 0);
    }

    #[test]
    fn a_lane_that_is_alone_gets_everything_in_order() {
        let mut queue = queue();
        release(&mut queue, Lane::CatchUp, 0..30);
        assert_eq!(take(&mut queue, 100), (0..30).collect::<Vec<_>>());
        assert!(take(&mut queue, 1).is_empty());
    }

    #[test]
    fn what_is_withdrawn_is_not_served_until_it_is_released_again() {
        let mut queue = queue();
        let stream = Stream { queue: QueueNo(0), lane: Lane::Strict };
        release(&mut queue, Lane::Strict, [1, 2, 3]);
        assert!(queue.withdraw(OccurrenceNo(1)) && !queue.withdraw(OccurrenceNo(1)));
        assert_eq!(queue.waiting(stream), 2);
        release(&mut queue, Lane::Strict, [1]);
        assert_eq!(take(&mut queue, 9), [2, 3, 1]);
        assert!(!queue.withdraw(OccurrenceNo(2)), "it was taken");
        release(&mut queue, Lane::Strict, [2]);
        assert_eq!(take(&mut queue, 9), [2]);
        assert_eq!((queue.waiting(stream), queue.waiting_in_all()), (0, 0));
    }

    #[test]
    fn what_was_withdrawn_does_not_hold_memory() {
        let mut queue = queue();
        let stream = Stream { queue: QueueNo(0), lane: Lane::Strict };
        release(&mut queue, Lane::Strict, 0..100_000);
        for number in 1..100_000 {
            queue.withdraw(OccurrenceNo(number));
        }
        assert!(queue.lines[&stream].waiting.len() <= 64);
        assert_eq!(take(&mut queue, 9), [0]);
    }

    #[test]
    fn everything_lands_at_once_under_ids_that_have_no_holes() {
        let mut queue = queue();
        let stream = Stream { queue: QueueNo(0), lane: Lane::Strict };
        let numbers = |all: &[u64]| all.iter().copied().map(OccurrenceNo).collect::<Vec<_>>();
        release(&mut queue, Lane::Strict, [1, 2]);
        release(&mut queue, Lane::Strict, [3]);
        let mut events = Vec::new();
        queue.poll(&mut events);
        let landed = |counter, of: &[u64], added| QueueEvent::Landed {
            stream,
            first: EntryId { generation: 3, counter },
            numbers: numbers(of),
            added,
            at: UnixMs(7),
        };
        assert_eq!(events, [landed(1, &[1, 2], 2), landed(3, &[3], 3)]);
    }
}
