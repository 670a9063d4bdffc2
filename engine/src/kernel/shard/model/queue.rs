//! A queue as a shard sees it: accepts in order, answers in its own time, is cut off, loses its end, and is read back.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::script::Script;
use crate::kernel::{
    id::OccurrenceId,
    occurrence::{EntryId, OccurrenceNo, Stream},
    shard::StreamMemory,
};

/// What the queue says.
#[derive(Debug)]
pub(super) enum Said {
    Landed { stream: Stream, first: EntryId, numbers: Vec<OccurrenceNo>, added: u64 },
    Returned(Vec<OccurrenceNo>),
    Found { stream: Stream, entries: Vec<(OccurrenceId, u32, EntryId)>, added: u64 },
    Lost { stream: Stream, survived: Option<EntryId> },
    Ready,
    Away(Option<Stream>),
    GenerationNeeded(u64),
}

/// What an entry is one of: an occurrence and the number of the attempt that its claim is to get.
pub(super) type Sent = (OccurrenceId, u32);

#[derive(Debug)]
struct Batch {
    stream: Stream,
    items: Vec<(OccurrenceNo, Sent)>,
    /// The first id, if it landed; the answer is still to come.
    landed: Option<EntryId>,
}

/// One FIFO. `entries` is what it holds.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) entries: Vec<(EntryId, Sent)>,
    counter: u64,
}

/// All streams of a shard.
#[derive(Debug, Default)]
pub(super) struct ModelQueue {
    pub(super) lines: BTreeMap<Stream, Line>,
    pub(super) said: VecDeque<Said>,
    generation: u64,
    is_up: bool,
    in_flight: VecDeque<Batch>,
    lossy: BTreeSet<Stream>,
    /// Some stream was said to be away.
    is_troubled: bool,
    /// Everything that was accepted, and neither lost since nor refused to a worker.
    pub(super) accepted: BTreeSet<Sent>,
}

impl ModelQueue {
    /// A new generation: what the log remembers is compared, what lies behind it is read back.
    pub(super) fn start(&mut self, generation: u64, memory: &[(Stream, StreamMemory)], script: &mut Script<'_>) {
        if script.chance(20) {
            self.said.push_back(Said::GenerationNeeded(generation + 3));
            return;
        }
        for (stream, memory) in memory {
            let line = self.lines.entry(*stream).or_default();
            line.counter = 0;
            let top = line.entries.last().map(|(id, _)| *id);
            assert!(top.is_none_or(|top| top.generation < generation), "generation {generation} is not above {top:?}");
            let stands = memory.last.is_none_or(|last| line.entries.iter().any(|(id, _)| *id == last));
            if !stands {
                let survived = line.entries.iter().rev().map(|(id, _)| *id).find(|id| Some(*id) < memory.last);
                self.said.push_back(Said::Lost { stream: *stream, survived });
            }
            let behind = line.entries.iter().filter(|(id, _)| Some(*id) > memory.last);
            let entries: Vec<_> = behind.map(|(id, (occurrence, attempt))| (*occurrence, *attempt, *id)).collect();
            let added = line.entries.len() as u64;
            for page in entries.chunks(3) {
                self.said.push_back(Said::Found { stream: *stream, entries: page.to_vec(), added });
            }
        }
        self.generation = generation;
        self.is_up = true;
        self.said.push_back(Said::Ready);
    }

    pub(super) fn release(&mut self, stream: Stream, items: Vec<(OccurrenceNo, Sent)>) {
        self.in_flight.push_back(Batch { stream, items, landed: None });
    }

    /// The first batch that has not landed does.
    pub(super) fn land(&mut self) {
        if !self.is_up {
            return;
        }
        let Some(batch) = self.in_flight.iter_mut().find(|batch| batch.landed.is_none()) else { return };
        let line = self.lines.entry(batch.stream).or_default();
        batch.landed = Some(EntryId { generation: self.generation, counter: line.counter + 1 });
        for (_, sent) in &batch.items {
            line.counter += 1;
            line.entries.push((EntryId { generation: self.generation, counter: line.counter }, *sent));
            assert!(self.accepted.insert(*sent), "{sent:?} is accepted twice without a loss or a refusal in between");
        }
    }

    /// The oldest batch is answered, if the queue is up.
    pub(super) fn answer(&mut self) {
        if !self.is_up || self.in_flight.is_empty() {
            return;
        }
        if self.in_flight[0].landed.is_none() {
            self.land();
        }
        self.tell_first();
    }

    /// Says what became of the oldest batch: the part that stands has landed, the rest comes back.
    fn tell_first(&mut self) {
        let Some(batch) = self.in_flight.pop_front() else { return };
        let line = self.lines.entry(batch.stream).or_default();
        let is_there = |at: usize| {
            let first = batch.landed?;
            let id = EntryId { counter: first.counter + at as u64, ..first };
            line.entries.iter().position(|(there, _)| *there == id)
        };
        let standing: Vec<usize> = (0..batch.items.len()).map_while(is_there).collect();
        let numbers: Vec<_> = batch.items.iter().map(|(number, _)| *number).collect();
        let (stayed, gone) = numbers.split_at(standing.len());
        if let (Some(first), Some(last)) = (batch.landed, standing.last()) {
            let added = *last as u64 + 1;
            self.said.push_back(Said::Landed { stream: batch.stream, first, numbers: stayed.to_vec(), added });
        }
        if !gone.is_empty() {
            self.said.push_back(Said::Returned(gone.to_vec()));
        }
    }

    /// The connection ends; some of what was under way has landed.
    pub(super) fn cut(&mut self, script: &mut Script<'_>) {
        if self.is_up {
            (0..script.below(self.in_flight.len() + 1)).for_each(|_| self.land());
            self.is_up = false;
            self.said.push_back(Said::Away(None));
        }
    }

    /// Fence, look, go on, in the same generation.
    pub(super) fn reconnect(&mut self) {
        if (self.is_up && !self.is_troubled) || self.generation == 0 {
            return;
        }
        self.is_troubled = false;
        for stream in std::mem::take(&mut self.lossy) {
            let survived = self.lines.get(&stream).and_then(|line| line.entries.last()).map(|(id, _)| *id);
            self.said.push_back(Said::Lost { stream, survived });
        }
        while !self.in_flight.is_empty() {
            self.tell_first();
        }
        self.is_up = true;
        self.said.push_back(Said::Ready);
    }

    /// A stream loses its end.
    pub(super) fn lose(&mut self, script: &mut Script<'_>) {
        let streams: Vec<Stream> = self.lines.keys().copied().collect();
        if streams.is_empty() {
            return;
        }
        self.cut(script);
        let stream = streams[script.below(streams.len())];
        let line = self.lines.entry(stream).or_default();
        let kept = line.entries.len() - script.below(line.entries.len() + 1);
        for (_, sent) in line.entries.drain(kept..) {
            self.accepted.remove(&sent);
        }
        self.lossy.insert(stream);
    }

    pub(super) fn stream_away(&mut self, script: &mut Script<'_>) {
        let streams: Vec<Stream> = self.lines.keys().copied().collect();
        if !streams.is_empty() && self.is_up {
            let stream = streams[script.below(streams.len())];
            self.is_troubled = true;
            self.said.push_back(Said::Away(Some(stream)));
        }
    }

    /// The process dies: some of what was under way still arrives; a queue in memory dies with it.
    pub(super) fn crash(&mut self, survives: bool, script: &mut Script<'_>) {
        let late = script.below(self.in_flight.len() + 1);
        if survives && self.is_up {
            (0..late).for_each(|_| self.land());
        }
        self.in_flight.clear();
        self.said.clear();
        self.lossy.clear();
        self.is_up = false;
        self.generation = 0;
        if !survives {
            self.lines.values_mut().for_each(|line| line.entries.clear());
            self.accepted.clear();
        }
    }

    /// Whether the queue still has to answer for this occurrence.
    pub(super) fn owes(&self, number: OccurrenceNo) -> bool {
        let told = |numbers: &[OccurrenceNo]| numbers.contains(&number);
        self.in_flight.iter().any(|batch| batch.items.iter().any(|(n, _)| *n == number))
            || self.said.iter().any(|said| match said {
                Said::Landed { numbers, .. } | Said::Returned(numbers) => told(numbers),
                _ => false,
            })
    }

    /// Whether an entry of the occurrence was accepted and counts.
    pub(super) fn holds(&self, id: OccurrenceId) -> bool {
        self.accepted.range((id, 0)..=(id, u32::MAX)).next().is_some()
    }

    /// A worker was refused the occurrence: an entry, perhaps an old one, is settled, and another may follow.
    pub(super) fn refused(&mut self, id: OccurrenceId) {
        self.accepted.retain(|(accepted, _)| *accepted != id);
    }

    /// Everything that workers can read, oldest first.
    pub(super) fn readable(&self) -> Vec<(Stream, EntryId, Sent)> {
        let lines = self.lines.iter();
        lines.flat_map(|(stream, line)| line.entries.iter().map(|(entry, sent)| (*stream, *entry, *sent))).collect()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.said.is_empty()
    }
}
