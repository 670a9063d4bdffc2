//! What became of entries: from the answers while all is well, from the streams themselves after a take-over.

use std::{collections::BTreeSet, time::Instant};

use countwheel_wal::crash_point;
use redis::Value;

use super::{
    answer::page,
    batch::{Batch, Share},
    fence::Fenced,
    link::{Fault, Link},
    look::{Sight, compare, top_tells},
    relay::Relay,
    stats::add,
    stream::Standing,
    wire::id_text,
};
use crate::{
    kernel::occurrence::{EntryId, OccurrenceNo},
    shell::queue::QueueEvent,
};

/// How many entries are read back at once: about 5 ms of Redis' time.
const PAGE: usize = 1_000;

/// How to tell which of a stream's entries in flight landed.
enum Evidence {
    /// Those with a counter up to this.
    Top(u64),
    /// These were read back and reported as found; the others are not there.
    ReadBack(BTreeSet<EntryId>),
}

impl Relay {
    /// Waits for the answers to the oldest batch in flight.
    pub(super) fn receive_batch(&mut self, link: &mut Link) -> Result<(), Fault> {
        let Some(count) = self.in_flight.front().map(|batch| batch.count) else { return Ok(()) };
        let answers = link.receive_exec(count)?.ok_or(Fault::Changed)?;
        let Some(batch) = self.in_flight.pop_front() else { return Ok(()) };
        crash_point("relay.answered");
        self.settle(batch, answers)
    }

    fn settle(&mut self, batch: Batch, answers: Vec<Value>) -> Result<(), Fault> {
        let Some((fates, fault)) = batch.read(answers) else {
            for share in batch.shares {
                self.landed(share.stream.0 as usize, share.first, share.numbers);
            }
            return Ok(());
        };
        let mut refused = Vec::new();
        for (share, fates) in batch.shares.into_iter().zip(fates) {
            self.settle_each(share, &fates, &mut refused);
        }
        self.outbox.give_back(refused);
        Err(fault)
    }

    fn settle_each(&mut self, share: Share, fates: &[bool], refused: &mut Vec<OccurrenceNo>) {
        let mut counter = share.first.counter;
        let mut numbers = share.numbers.into_iter();
        for run in fates.chunk_by(|a, b| a == b) {
            let part: Vec<_> = numbers.by_ref().take(run.len()).collect();
            let first = EntryId { counter, ..share.first };
            counter += run.len() as u64;
            if run[0] {
                self.landed(share.stream.0 as usize, first, part);
            } else {
                refused.extend(part);
            }
        }
    }

    /// Reports consecutive entries as landed.
    fn landed(&mut self, at: usize, first: EntryId, numbers: Vec<OccurrenceNo>) {
        let count = numbers.len() as u64;
        if count == 0 {
            return;
        }
        let track = &mut self.tracks[at];
        track.known.last = Some(EntryId { counter: first.counter + count - 1, ..first });
        track.known.added += count;
        track.length += count;
        add(&self.gauges.entries_landed, numbers.len());
        let event =
            QueueEvent::Landed { stream: track.stream, first, numbers, added: track.known.added, at: (self.now)() };
        self.outbox.say(event);
        crash_point("relay.told");
        if track.length >= self.config.stream_max_len && track.standing == Standing::Open {
            self.shut_full(at);
        }
    }

    /// A stream is as long as it may grow.
    pub(super) fn shut_full(&mut self, at: usize) {
        let track = &self.tracks[at];
        let reason = format!(
            "{} holds {} entries, the limit is {}: consumers must acknowledge what they have done, or more of them are needed",
            track.shown(),
            track.length,
            self.config.stream_max_len
        );
        self.shut(at, Standing::Full, reason);
    }

    /// Looks at fenced streams: reports what was lost, reads back what is not known, settles what was in flight.
    pub(super) fn look(&mut self, link: &mut Link, fenced: &[Fenced]) -> Result<(), Fault> {
        let mut evidence: Vec<Option<Evidence>> = self.tracks.iter().map(|_| None).collect();
        for one in fenced {
            evidence[one.at] = Some(self.look_at(link, one)?);
        }
        for batch in std::mem::take(&mut self.in_flight) {
            for share in batch.shares {
                self.settle_share(share, &evidence);
            }
        }
        for one in fenced {
            let track = &mut self.tracks[one.at];
            track.known.added = one.added;
            track.length = one.before.map_or(0, |top| top.length);
            track.fresh = false;
            track.fences = 0;
            track.standing = Standing::Open;
            if track.length >= self.config.stream_max_len {
                self.shut_full(one.at);
            }
        }
        Ok(())
    }

    fn look_at(&mut self, link: &mut Link, fenced: &Fenced) -> Result<Evidence, Fault> {
        let &Fenced { at, before, added } = fenced;
        let track = &mut self.tracks[at];
        let doubted = std::mem::take(&mut track.is_doubted);
        let sight = if doubted { Sight::Lost { survived: None } } else { compare(track.known, before) };
        let length = before.map_or(0, |top| top.length);
        if sight == Sight::Whole && !track.fresh && !track.is_trimming && length < track.length {
            self.outbox.say(QueueEvent::Shortened { stream: track.stream });
        }
        track.is_trimming = false;
        if let Sight::Lost { survived } = sight {
            if let Some(held_back) = self.loss_gate.admit(Instant::now()) {
                let stream = track.shown();
                tracing::error!(shard = self.config.shard, %stream, ?survived, held_back, "redis lost entries");
            }
            add(&self.gauges.losses, 1);
            self.outbox.say(QueueEvent::Lost { stream: track.stream, survived });
            track.known.last = survived;
            track.known.added = 0;
            // What still stands is read back, also if this connection breaks before that and the loss is not seen again.
            track.fresh = true;
        }
        // A fence whose answer was lost looks like an entry that landed.
        if !track.fresh
            && track.fences <= 1
            && let Some(top) = top_tells(sight, before, self.generation)
        {
            return Ok(Evidence::Top(top));
        }
        if before.is_some_and(|top| top.length > 0) {
            self.read_back(link, at, added)
        } else {
            Ok(Evidence::ReadBack(BTreeSet::new()))
        }
    }

    /// Reports everything behind what is known, in pages.
    fn read_back(&mut self, link: &mut Link, at: usize, added: u64) -> Result<Evidence, Fault> {
        let mut ids = BTreeSet::new();
        // Where a reading that breaks off began, the next one begins too: it has to know all that stands there.
        let mut behind = self.tracks[at].known.last;
        loop {
            let track = &mut self.tracks[at];
            let from = behind.map_or_else(|| b"-".to_vec(), |last| [b"(".as_slice(), &id_text(last)].concat());
            let answer = link.ask(&[b"XRANGE", &track.key, &from, b"+", b"COUNT", PAGE.to_string().as_bytes()])?;
            let entries = page(&answer).ok_or_else(|| link.nonsense("XRANGE", &answer))?;
            let is_last_page = entries.len() < PAGE;
            behind = entries.last().map(|last| last.id).or(behind);
            ids.extend(entries.iter().map(|entry| entry.id));
            let all = entries.len();
            let found: Vec<_> = entries
                .into_iter()
                .filter_map(|entry| entry.names.map(|(id, attempt)| (id, attempt, entry.id)))
                .collect();
            add(&self.gauges.foreign_entries, all - found.len());
            add(&self.gauges.entries_found, found.len());
            if !found.is_empty() {
                self.outbox.say(QueueEvent::Found { stream: track.stream, entries: found, added });
            }
            if is_last_page {
                self.tracks[at].known.last = behind;
                return Ok(Evidence::ReadBack(ids));
            }
        }
    }

    fn settle_share(&mut self, share: Share, evidence: &[Option<Evidence>]) {
        let at = share.stream.0 as usize;
        let first = share.first;
        match &evidence[at] {
            Some(Evidence::Top(top)) => {
                let count = top.saturating_add(1).saturating_sub(first.counter);
                let count = usize::try_from(count).unwrap_or(usize::MAX).min(share.numbers.len());
                let mut landed = share.numbers;
                let returned = landed.split_off(count);
                self.landed(at, first, landed);
                self.outbox.give_back(returned);
            }
            Some(Evidence::ReadBack(ids)) => {
                let returned = share
                    .numbers
                    .into_iter()
                    .zip(first.counter..)
                    .filter(|(_, counter)| !ids.contains(&EntryId { counter: *counter, ..first }))
                    .map(|(number, _)| number)
                    .collect();
                self.outbox.give_back(returned);
            }
            // A foreign key stands in its place: nothing of ours does.
            None => self.outbox.give_back(share.numbers),
        }
    }
}
