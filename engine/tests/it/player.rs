//! Plays the shard's part towards a queue: releases, hears, and releases again what came back.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    time::{Duration, Instant},
};

use countwheel::{
    kernel::{
        id::{Kind, OccurrenceId, ScheduleId},
        occurrence::{Entry, EntryId, Lane, OccurrenceNo, QueueNo, Stream},
        time::UnixMs,
    },
    shell::queue::{Queue, QueueEvent, Remembered},
};

/// Longer than anything takes on a busy machine; nothing waits for it when all is well.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// When everything is available.
pub(crate) const AT: UnixMs = UnixMs(1_793_511_000_000);

pub(crate) type Clock = Arc<dyn Fn() -> UnixMs + Send + Sync>;
pub(crate) type Wake = Arc<dyn Fn() + Send + Sync>;

pub(crate) fn stream(queue: u32, lane: Lane) -> Stream {
    Stream { queue: QueueNo(queue), lane }
}

/// The occurrence that a number stands for in these tests.
pub(crate) fn occurrence_id(number: OccurrenceNo) -> OccurrenceId {
    OccurrenceId::of(ScheduleId([9; 16]), 1, UnixMs(i64::try_from(number.0).unwrap()), Kind::Regular, b"")
}

/// A shard that knows what it released and what became of it.
pub(crate) struct Player<Q> {
    pub(crate) queue: Q,
    woken: Receiver<()>,
    streams: Vec<Stream>,
    payload: Vec<u8>,
    numbers: BTreeMap<OccurrenceId, OccurrenceNo>,
    /// Where everything is that landed or was found.
    pub(crate) landed: BTreeMap<OccurrenceNo, (Stream, EntryId)>,
    /// What came back and waits for `Ready`.
    pub(crate) held: BTreeSet<OccurrenceNo>,
    /// How many entries each stream is said to have had in its life.
    pub(crate) remembered: BTreeMap<Stream, Remembered>,
    pub(crate) ready: bool,
    /// How often it became ready.
    pub(crate) readies: usize,
    pub(crate) away: Vec<(Option<Stream>, String)>,
    pub(crate) fenced: Option<String>,
    pub(crate) generation: u64,
    pub(crate) lost: Vec<(Stream, Option<EntryId>)>,
    pub(crate) found: usize,
    /// What somebody else removed entries from.
    pub(crate) shortened: Vec<Stream>,
    /// Up to where every group has acknowledged each stream.
    pub(crate) settled: BTreeMap<Stream, EntryId>,
    /// Whether `recorded` is told of everything that landed.
    pub(crate) records: bool,
    /// Whether what came back is released again by itself.
    pub(crate) releases: bool,
}

/// The clock and the waker for a queue, and the other end of the waker.
pub(crate) fn wires() -> (Clock, Wake, Receiver<()>) {
    let (sender, woken): (Sender<()>, _) = channel();
    let wake = move || {
        let _ = sender.send(());
    };
    (Arc::new(|| AT), Arc::new(wake), woken)
}

impl<Q: Queue> Player<Q> {
    pub(crate) fn new(queue: Q, woken: Receiver<()>) -> Self {
        Self {
            queue,
            woken,
            streams: Vec::new(),
            payload: b"payload".to_vec(),
            numbers: BTreeMap::new(),
            landed: BTreeMap::new(),
            held: BTreeSet::new(),
            remembered: BTreeMap::new(),
            ready: false,
            readies: 0,
            away: Vec::new(),
            fenced: None,
            generation: 0,
            lost: Vec::new(),
            found: 0,
            shortened: Vec::new(),
            settled: BTreeMap::new(),
            records: true,
            releases: true,
        }
    }

    pub(crate) fn declare(&mut self, stream: Stream, remembered: Remembered) {
        self.streams.push(stream);
        self.remembered.insert(stream, remembered);
        self.queue.declare(stream, &format!("q{}", stream.queue.0), stream.lane, remembered);
    }

    pub(crate) fn start(&mut self, generation: u64) {
        self.generation = generation;
        self.queue.start(generation);
    }

    /// Declares a strict stream a queue, starts, and waits until all of them are there.
    pub(crate) fn begin(&mut self, queues: u32) {
        for queue in 0..queues {
            self.declare(stream(queue, Lane::Strict), Remembered::default());
        }
        self.start(1);
        self.wait("ready", |player| player.ready);
    }

    pub(crate) fn stream_of(&self, number: OccurrenceNo) -> Stream {
        stream_of(&self.streams, number)
    }

    pub(crate) fn stage(&mut self, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers.into_iter().map(OccurrenceNo) {
            self.queue.stage(&entry(&self.streams, &self.payload, number));
        }
    }

    pub(crate) fn release(&mut self, numbers: impl IntoIterator<Item = u64>) {
        let numbers: Vec<_> = numbers.into_iter().map(OccurrenceNo).collect();
        for &number in &numbers {
            self.numbers.insert(occurrence_id(number), number);
        }
        self.hand_over(&numbers);
    }

    fn hand_over(&mut self, numbers: &[OccurrenceNo]) {
        let Self { queue, streams, payload, .. } = self;
        queue.release(AT, numbers, &|number| entry(streams, payload, number));
    }

    /// Hears what happened and does what a shard does about it.
    pub(crate) fn hear(&mut self) {
        let mut events = Vec::new();
        self.queue.poll(&mut events);
        for event in events {
            self.react(event);
        }
    }

    fn react(&mut self, event: QueueEvent) {
        match event {
            QueueEvent::Landed { stream, first, numbers, added, at } => {
                assert_eq!(at, AT);
                for (counter, number) in (first.counter..).zip(numbers) {
                    assert_eq!(stream, self.stream_of(number));
                    self.land(number, stream, EntryId { counter, ..first }, added);
                }
            }
            QueueEvent::Returned { numbers } => {
                for number in numbers {
                    assert!(!self.landed.contains_key(&number), "{number:?} landed and came back");
                    assert!(self.held.insert(number), "{number:?} came back twice");
                }
                if self.ready && self.away.is_empty() {
                    self.release_held();
                }
            }
            QueueEvent::Found { stream, entries, added } => {
                for (occurrence, attempt, id) in entries {
                    assert_eq!(attempt, 1);
                    self.found += 1;
                    if let Some(&number) = self.numbers.get(&occurrence) {
                        self.held.remove(&number);
                        self.land(number, stream, id, added);
                    }
                }
            }
            QueueEvent::Lost { stream, survived } => {
                self.lost.push((stream, survived));
                let gone: Vec<_> = self
                    .landed
                    .iter()
                    .filter(|(_, (on, id))| *on == stream && Some(*id) > survived)
                    .map(|(number, _)| *number)
                    .collect();
                for number in gone {
                    self.landed.remove(&number);
                    self.held.insert(number);
                }
            }
            QueueEvent::Shortened { stream } => {
                self.shortened.push(stream);
                self.queue.read_back(stream);
            }
            QueueEvent::Settled { stream, through } => {
                let before = self.settled.insert(stream, through);
                assert!(before < Some(through), "told {through} after {before:?}");
            }
            QueueEvent::Ready => {
                self.ready = true;
                self.readies += 1;
                self.away.clear();
                self.release_held();
            }
            QueueEvent::Away(away) => {
                self.ready &= away.stream.is_some();
                self.away.push((away.stream, away.reason));
            }
            QueueEvent::GenerationNeeded { at_least } => {
                assert!(at_least > self.generation);
                self.ready = false;
                self.start(at_least);
            }
            QueueEvent::Fenced { reason } => {
                self.ready = false;
                self.fenced = Some(reason);
            }
        }
    }

    fn land(&mut self, number: OccurrenceNo, stream: Stream, id: EntryId, added: u64) {
        let before = self.landed.insert(number, (stream, id));
        assert!(before.is_none(), "{number:?} landed twice: {before:?} and {id}");
        assert!(!self.held.contains(&number), "{number:?} landed after it came back");
        let remembered = self.remembered.entry(stream).or_default();
        remembered.last = remembered.last.max(Some(id));
        remembered.added = added;
        if self.records {
            self.queue.recorded(stream, id);
        }
    }

    pub(crate) fn release_held(&mut self) {
        if !self.releases {
            return;
        }
        let away: Vec<_> = self.away.iter().filter_map(|(stream, _)| *stream).collect();
        let held: Vec<_> =
            self.held.iter().copied().filter(|number| !away.contains(&self.stream_of(*number))).collect();
        self.held.retain(|number| !held.contains(number));
        if !held.is_empty() {
            self.hand_over(&held);
        }
    }

    /// Hears until `condition` holds.
    #[track_caller]
    pub(crate) fn wait(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let started = Instant::now();
        loop {
            self.hear();
            if condition(self) {
                return;
            }
            assert!(
                started.elapsed() < PATIENCE,
                "never came: {what}; landed {}, held {}, ready {}, away {:?}, fenced {:?}",
                self.landed.len(),
                self.held.len(),
                self.ready,
                self.away,
                self.fenced
            );
            let _ = self.woken.recv_timeout(Duration::from_millis(100));
        }
    }

    #[track_caller]
    pub(crate) fn wait_for_landed(&mut self, count: usize) {
        self.wait(&format!("{count} landed"), |player| player.landed.len() == count && player.held.is_empty());
    }

    /// Waits until a reason with this word was given.
    #[track_caller]
    pub(crate) fn wait_for_reason(&mut self, word: &str) -> String {
        self.wait(&format!("a reason with {word:?}"), |player| player.away.iter().any(|(_, why)| why.contains(word)));
        self.away.iter().find(|(_, why)| why.contains(word)).unwrap().1.clone()
    }

    /// What landed in a stream, in its order.
    pub(crate) fn landed_in(&self, stream: Stream) -> Vec<u64> {
        let mut all: Vec<_> = self.landed.iter().filter(|(_, (on, _))| *on == stream).collect();
        all.sort_by_key(|(_, (_, id))| *id);
        all.into_iter().map(|(number, _)| number.0).collect()
    }
}

/// The first attempt of an occurrence; numbers go to the streams in turn.
fn entry<'a>(streams: &[Stream], payload: &'a [u8], number: OccurrenceNo) -> Entry<'a> {
    Entry {
        number,
        stream: stream_of(streams, number),
        occurrence_id: occurrence_id(number),
        schedule_id: ScheduleId([9; 16]),
        version: 1,
        kind: Kind::Regular,
        scheduled_for: AT,
        available_at: AT,
        attempt: 1,
        tenant_number: 0,
        tenant: "acme",
        payload,
    }
}

fn stream_of(streams: &[Stream], number: OccurrenceNo) -> Stream {
    streams[usize::try_from(number.0).unwrap() % streams.len()]
}
