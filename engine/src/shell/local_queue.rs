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
pub(crate) const TURNS: [Lane; 10] = {
    use Lane::{CatchUp, Flexible, Strict};
    [Strict, Strict, Flexible, Strict, Strict, Strict, Strict, CatchUp, Strict, Strict]
};

/// What the queue asks of tenants when it serves.
pub trait Tenants {
    /// How much more it gets than one of weight 1.
    fn weight(&self, tenant: u32) -> u32;

    /// How many runs more it may begin.
    fn run_room(&self, tenant: u32) -> usize;

    /// How many bytes an occurrence has for whoever claims it.
    fn weighs_bytes(&self, number: OccurrenceNo) -> usize;
}

/// All tenants are alike, and nothing is limited.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alike;

impl Tenants for Alike {
    fn weight(&self, _: u32) -> u32 {
        1
    }

    fn run_room(&self, _: u32) -> usize {
        usize::MAX
    }

    fn weighs_bytes(&self, _: OccurrenceNo) -> usize {
        0
    }
}

/// What waits in one lane of a queue: a line a tenant, served by deficit round robin. What was withdrawn stays in its
/// line, dead, until it comes up or the dead are as many as the living.
#[derive(Default)]
struct Lines {
    /// Number and ticket; alive if [`LocalQueue::tickets`] agrees. A line that was emptied is gone.
    by_tenant: HashMap<u32, VecDeque<(OccurrenceNo, Ticket)>>,
    /// Who is served next.
    round: VecDeque<u32>,
    /// How many more the first of the round gets before its turn is over; `None`: it has not begun.
    left: Option<u32>,
    /// The dead counted too.
    len: usize,
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
    lines: HashMap<Stream, Lines>,
    /// Every occurrence that waits: where, and under which ticket.
    tickets: HashMap<OccurrenceNo, (Stream, Ticket)>,
    last_ticket: u64,
    /// Where each queue stands in [`TURNS`].
    turns: HashMap<QueueNo, usize>,
    /// Queues that a claim found work in whose tenants have no room.
    skipped: Vec<QueueNo>,
    /// How many occurrences each queue was given since somebody asked.
    arrived: Vec<(QueueNo, usize)>,
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
            skipped: Vec::new(),
            arrived: Vec::new(),
            events: Vec::new(),
            now,
            wake,
        }
    }

    /// Takes up to `max` occurrences of a queue, in the order in which they are to be served; none behind the one with
    /// which they have more than `bytes`. Tenants without room are passed over.
    pub fn take(&mut self, queue: QueueNo, max: usize, bytes: usize, tenants: &dyn Tenants) -> Vec<OccurrenceNo> {
        let (mut taken, mut taken_bytes) = (Vec::new(), 0_usize);
        let mut room = Room { tenants, left: HashMap::new() };
        while taken.len() < max && taken_bytes <= bytes {
            let turn = self.turns.get(&queue).copied().unwrap_or_default();
            let mine = std::iter::once(TURNS[turn]).chain(Lane::ALL);
            let mut next = mine.filter_map(|lane| self.pop(Stream { queue, lane }, &mut room));
            let Some(number) = next.next() else { break };
            self.turns.insert(queue, (turn + 1) % TURNS.len());
            taken.push(number);
            taken_bytes = taken_bytes.saturating_add(tenants.weighs_bytes(number));
        }
        if taken.len() < max && taken_bytes <= bytes && self.waiting_in(queue) > 0 && !self.skipped.contains(&queue) {
            self.skipped.push(queue);
        }
        taken
    }

    /// Queues in which tenants were passed over since the last call.
    pub fn take_skipped(&mut self) -> Vec<QueueNo> {
        std::mem::take(&mut self.skipped)
    }

    /// How many occurrences each queue was given since the last call; a queue may stand there several times.
    pub fn take_arrived(&mut self) -> Vec<(QueueNo, usize)> {
        std::mem::take(&mut self.arrived)
    }

    /// An occurrence is not to be served any more; `false` if it did not wait.
    pub fn withdraw(&mut self, number: OccurrenceNo) -> bool {
        let Some((stream, _)) = self.tickets.remove(&number) else { return false };
        let tickets = &self.tickets;
        if let Some(lines) = self.lines.get_mut(&stream) {
            lines.living -= 1;
            if lines.len > 64 && lines.living * 2 < lines.len {
                lines.bury(|number, ticket| tickets.get(&number).is_some_and(|(_, valid)| *valid == ticket));
            }
        }
        true
    }

    /// The queue in which an occurrence waits.
    #[must_use]
    pub fn queue_of(&self, number: OccurrenceNo) -> Option<QueueNo> {
        self.tickets.get(&number).map(|(stream, _)| stream.queue)
    }

    /// How many occurrences wait in a stream.
    #[must_use]
    pub fn waiting(&self, stream: Stream) -> usize {
        self.lines.get(&stream).map_or(0, |lines| lines.living)
    }

    /// How many occurrences wait in a queue.
    #[must_use]
    pub fn waiting_in(&self, queue: QueueNo) -> usize {
        self.waiting_by_lane(queue).iter().sum()
    }

    /// How many occurrences wait in a queue, in the order of [`Lane::ALL`].
    #[must_use]
    pub fn waiting_by_lane(&self, queue: QueueNo) -> [usize; Lane::ALL.len()] {
        Lane::ALL.map(|lane| self.waiting(Stream { queue, lane }))
    }

    /// How many occurrences wait in all streams.
    #[must_use]
    pub fn waiting_in_all(&self) -> usize {
        self.tickets.len()
    }

    fn pop(&mut self, stream: Stream, room: &mut Room<'_>) -> Option<OccurrenceNo> {
        let lines = self.lines.get_mut(&stream).filter(|lines| lines.living > 0)?;
        for _ in 0..lines.round.len() {
            let tenant = *lines.round.front()?;
            if !room.has(tenant) {
                lines.pass_over();
                continue;
            }
            while let Some((number, ticket)) = lines.next_of(tenant) {
                if self.tickets.get(&number).is_some_and(|(_, valid)| *valid == ticket) {
                    self.tickets.remove(&number);
                    lines.served(tenant, room.tenants.weight(tenant));
                    room.used(tenant);
                    return Some(number);
                }
            }
            lines.leave(tenant);
        }
        None
    }

    fn push(&mut self, stream: Stream, tenant: u32, number: OccurrenceNo) {
        self.withdraw(number);
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.tickets.insert(number, (stream, ticket));
        self.lines.entry(stream).or_default().push(tenant, (number, ticket));
    }

    fn say(&mut self, event: QueueEvent) {
        self.events.push(event);
        (self.wake)();
    }
}

impl Lines {
    fn push(&mut self, tenant: u32, waiting: (OccurrenceNo, Ticket)) {
        let line = self.by_tenant.entry(tenant).or_insert_with(|| {
            self.round.push_back(tenant);
            VecDeque::new()
        });
        line.push_back(waiting);
        self.len += 1;
        self.living += 1;
    }

    /// The next of a tenant's line, dead or alive.
    fn next_of(&mut self, tenant: u32) -> Option<(OccurrenceNo, Ticket)> {
        let next = self.by_tenant.get_mut(&tenant)?.pop_front()?;
        self.len -= 1;
        Some(next)
    }

    /// The first of the round was given one; its turn may be over.
    fn served(&mut self, tenant: u32, weight: u32) {
        self.living -= 1;
        let left = self.left.unwrap_or(weight).saturating_sub(1);
        if self.by_tenant.get(&tenant).is_none_or(VecDeque::is_empty) {
            self.leave(tenant);
        } else if left == 0 {
            self.pass_over();
        } else {
            self.left = Some(left);
        }
    }

    /// The first of the round goes to its end.
    fn pass_over(&mut self) {
        self.round.rotate_left(1);
        self.left = None;
    }

    /// The first of the round has nothing left.
    fn leave(&mut self, tenant: u32) {
        self.by_tenant.remove(&tenant);
        self.round.pop_front();
        self.left = None;
    }

    /// Drops the dead.
    fn bury(&mut self, is_alive: impl Fn(OccurrenceNo, Ticket) -> bool) {
        self.by_tenant.retain(|_, line| {
            line.retain(|(number, ticket)| is_alive(*number, *ticket));
            !line.is_empty()
        });
        let first = self.round.front().copied();
        self.round.retain(|tenant| self.by_tenant.contains_key(tenant));
        if self.round.front().copied() != first {
            self.left = None;
        }
        self.len = self.by_tenant.values().map(VecDeque::len).sum();
    }
}

/// How many runs more each tenant may begin within one claim.
struct Room<'a> {
    tenants: &'a dyn Tenants,
    left: HashMap<u32, usize>,
}

impl Room<'_> {
    fn of(&mut self, tenant: u32) -> &mut usize {
        self.left.entry(tenant).or_insert_with(|| self.tenants.run_room(tenant))
    }

    fn has(&mut self, tenant: u32) -> bool {
        *self.of(tenant) > 0
    }

    fn used(&mut self, tenant: u32) {
        *self.of(tenant) -= 1;
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
            let Entry { stream, tenant_number, .. } = look_up(number);
            self.push(stream, tenant_number, number);
            match shares.iter_mut().find(|(other, _)| *other == stream) {
                Some((_, share)) => share.push(number),
                None => shares.push((stream, vec![number])),
            }
        }
        let at = (self.now)();
        for (stream, numbers) in shares {
            let lines = self.lines.entry(stream).or_default();
            let first = EntryId { generation: self.generation, counter: lines.added + 1 };
            lines.added += numbers.len() as u64;
            let added = lines.added;
            self.arrived.push((stream.queue, numbers.len()));
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

    /// Weights and rooms by tenant; 1 and any number for those behind.
    struct Set(&'static [(u32, usize)]);

    impl Tenants for Set {
        fn weight(&self, tenant: u32) -> u32 {
            self.0.get(tenant as usize).map_or(1, |(weight, _)| *weight)
        }

        fn run_room(&self, tenant: u32) -> usize {
            self.0.get(tenant as usize).map_or(usize::MAX, |(_, room)| *room)
        }

        fn weighs_bytes(&self, number: OccurrenceNo) -> usize {
            number.0 as usize
        }
    }

    fn release(queue: &mut LocalQueue, lane: Lane, numbers: impl IntoIterator<Item = u64>) {
        release_of(queue, 0, lane, numbers);
    }

    fn release_of(queue: &mut LocalQueue, tenant: u32, lane: Lane, numbers: impl IntoIterator<Item = u64>) {
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
            tenant_number: tenant,
            tenant: "acme",
            payload: b"",
        });
    }

    fn take(queue: &mut LocalQueue, max: usize) -> Vec<u64> {
        queue.take(QueueNo(0), max, 0, &Alike).into_iter().map(|number| number.0).collect()
    }

    fn take_as(queue: &mut LocalQueue, max: usize, tenants: &Set) -> Vec<u64> {
        queue.take(QueueNo(0), max, usize::MAX, tenants).into_iter().map(|number| number.0).collect()
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
    fn tenants_take_turns_by_their_weights() {
        let mut queue = queue();
        release_of(&mut queue, 0, Lane::Strict, 0..100);
        release_of(&mut queue, 1, Lane::Strict, 100..110);
        release_of(&mut queue, 2, Lane::Strict, 200..202);
        let weights = Set(&[(1, usize::MAX), (3, usize::MAX)]);
        assert_eq!(take_as(&mut queue, 12, &weights), [0, 100, 101, 102, 200, 1, 103, 104, 105, 201, 2, 106]);
        assert_eq!(take_as(&mut queue, 7, &weights), [107, 108, 3, 109, 4, 5, 6], "whoever is alone gets all");
    }

    #[test]
    fn nothing_is_taken_behind_the_one_that_has_too_many_bytes() {
        let mut queue = queue();
        release(&mut queue, Lane::Strict, 10..20);
        let everybody = Set(&[]);
        let mut take = |bytes| queue.take(QueueNo(0), 100, bytes, &everybody).len();
        assert_eq!((take(0), take(22), take(23), take(1_000)), (1, 2, 2, 5), "10; 11 12; 13 14; the rest");
        release(&mut queue, Lane::Strict, 20..22);
        queue.take(QueueNo(0), 100, 0, &everybody);
        assert!(queue.take_skipped().is_empty(), "no tenant was in the way");
    }

    #[test]
    fn a_tenant_without_room_is_passed_over_and_called_again() {
        let mut queue = queue();
        release_of(&mut queue, 0, Lane::Strict, 0..10);
        release_of(&mut queue, 1, Lane::Strict, 100..103);
        assert_eq!(take_as(&mut queue, 9, &Set(&[(1, 2)])), [0, 100, 1, 101, 102]);
        assert_eq!((queue.take_skipped(), queue.waiting_in(QueueNo(0))), (vec![QueueNo(0)], 8));
        assert_eq!(take_as(&mut queue, 9, &Set(&[(1, 0)])), [0; 0]);
        assert_eq!(take_as(&mut queue, 2, &Set(&[])), [2, 3]);
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
        assert!(queue.lines[&stream].len <= 64);
        assert_eq!(take(&mut queue, 9), [0]);
    }

    #[test]
    fn everything_lands_at_once_under_ids_that_have_no_holes() {
        let mut queue = queue();
        let stream = Stream { queue: QueueNo(0), lane: Lane::Strict };
        let numbers = |all: &[u64]| all.iter().copied().map(OccurrenceNo).collect::<Vec<_>>();
        release(&mut queue, Lane::Strict, [1, 2]);
        release(&mut queue, Lane::Strict, [3]);
        assert_eq!(queue.take_arrived(), [(QueueNo(0), 2), (QueueNo(0), 1)]);
        assert!(queue.take_arrived().is_empty());
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
