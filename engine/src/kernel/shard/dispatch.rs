//! What the queue says: accepted, returned, found again, lost, away, back.

use std::collections::BTreeMap;

use super::{Lag, QueueState, Shard, StreamAway, Turn, Urgency, occurrences::Holder, stream_number};
use crate::kernel::{
    id::OccurrenceId,
    occurrence::{EntryId, Lane, OccurrenceNo, State, Stream},
    record::{Enqueued, Lost, Record, runs_of},
    time::UnixMs,
};

/// A queue's acceptance may wait this long for the disk: what a crash takes of it is read back from the queue.
const ENQUEUED_WITHIN_MS: i64 = 1_000;

impl Shard {
    /// The queue accepted `numbers` under consecutive ids from `first` on.
    pub fn landed(
        &mut self,
        (stream, first, added): (Stream, EntryId, u64),
        numbers: &[OccurrenceNo],
        at: UnixMs,
        now: UnixMs,
        turn: &mut Turn,
    ) {
        let mut rest = numbers;
        while !rest.is_empty() {
            let stale = rest.iter().take_while(|number| self.is_stale_landing(**number)).count();
            let (skipped, behind) = rest.split_at(stale);
            for &number in skipped {
                self.heard_of_claimed(number);
            }
            let fresh = behind.iter().take_while(|number| !self.is_stale_landing(**number)).count();
            let (piece, behind) = behind.split_at(fresh);
            let before = (numbers.len() - behind.len() - piece.len()) as u64;
            let first = EntryId { counter: first.counter.saturating_add(before), ..first };
            let added = added.saturating_sub(behind.len() as u64);
            self.record_landing((stream, first, added), piece, at, now, turn);
            rest = behind;
        }
    }

    /// Whether a worker claimed it before the queue's answer was heard, and that attempt is over: what lands next under
    /// its number is another entry.
    fn is_stale_landing(&self, number: OccurrenceNo) -> bool {
        self.occurrences.row(number).is_some_and(|row| {
            let is_open = matches!(row.state, State::Scheduled | State::Enqueued | State::RetryWait);
            is_open && row.is_tracked && row.holder != Holder::Queue
        })
    }

    /// The queue has answered for an entry that was claimed before.
    fn heard_of_claimed(&mut self, number: OccurrenceNo) {
        if self.occurrences.row(number).is_some_and(|row| row.holder == Holder::Claimed) {
            self.occurrences.hold(number, Holder::Nobody);
        }
    }

    fn record_landing(
        &mut self,
        (stream, first, added): (Stream, EntryId, u64),
        numbers: &[OccurrenceNo],
        at: UnixMs,
        now: UnixMs,
        turn: &mut Turn,
    ) {
        if numbers.is_empty() {
            return;
        }
        for &number in numbers {
            // It may have been counted among the lost while it was on its way.
            self.resend.remove(&number);
            if let Some(row) = self.occurrences.row(number)
                && row.state == State::Scheduled
                && row.enqueued_at.is_none()
            {
                let lag_ms = at.since(if row.lane == Lane::Strict { row.scheduled_for } else { row.available_at });
                turn.lags.push(Lag { tenant: row.tenant, lane: row.lane, lag_ms });
                self.counters.enqueued += 1;
            }
        }
        let base = now.max(self.log_time);
        let plain: Vec<u64> = numbers.iter().map(|number| number.0).collect();
        let record = Enqueued {
            stream: stream_number(stream),
            generation: first.generation,
            first_counter: first.counter,
            added,
            at: at.since(base),
            runs: runs_of(&plain),
        };
        self.record(Record::Enqueued(record), now, turn);
        turn.urge(Urgency::Within(ENQUEUED_WITHIN_MS));
        let counter = first.counter.saturating_add(numbers.len() as u64 - 1);
        turn.recorded.push((self.lsn, stream, EntryId { counter, ..first }));
    }

    /// The queue proves that it does not hold `numbers`: they wait again, and are judged again if they were before.
    pub fn returned(&mut self, numbers: &[OccurrenceNo]) {
        for &number in numbers {
            self.put_back(number, Holder::Queue);
            self.heard_of_claimed(number);
        }
    }

    /// Back to where it waited before `from` had it.
    fn put_back(&mut self, number: OccurrenceNo, from: Holder) {
        let Some(row) = self.occurrences.row(number).filter(|row| row.holder == from) else { return };
        let state = row.state;
        self.occurrences.hold(number, Holder::Nobody);
        match state {
            State::Scheduled => self.enter_outbox(number, self.durable),
            State::Enqueued | State::RetryWait => self.enter_line(number, self.durable),
            State::Running
            | State::Succeeded
            | State::Dead
            | State::Held
            | State::Missed
            | State::SkippedOverlap
            | State::Canceled => {}
        }
    }

    /// Read back behind what the log remembers: these had landed before the process died.
    pub fn found(
        &mut self,
        stream: Stream,
        entries: &[(OccurrenceId, u32, EntryId)],
        added: u64,
        now: UnixMs,
        turn: &mut Turn,
    ) {
        let mut known = self.read_back.take().unwrap_or_else(|| self.open_by_id());
        let mut run: Vec<OccurrenceNo> = Vec::new();
        let mut first = EntryId::default();
        let mut last = EntryId::default();
        for &(id, attempt, entry) in entries {
            // An entry of an attempt that was made already is not the one that is looked for.
            let number = known.get(&id).copied().filter(|number| self.runs.made(*number).saturating_add(1) == attempt);
            let Some(number) = number else {
                self.counters.conflicts += 1;
                continue;
            };
            known.remove(&id);
            let follows = last.generation == entry.generation && last.counter.checked_add(1) == Some(entry.counter);
            if !run.is_empty() && !follows {
                self.record_landing((stream, first, added), &run, now, now, turn);
                run.clear();
            }
            if run.is_empty() {
                first = entry;
            }
            run.push(number);
            last = entry;
        }
        if !run.is_empty() {
            self.record_landing((stream, first, added), &run, now, now, turn);
        }
        self.read_back = Some(known);
    }

    /// What may stand in the queue without the log knowing its place: not yet enqueued, or to be sent again.
    fn open_by_id(&self) -> BTreeMap<OccurrenceId, OccurrenceNo> {
        let open = self.occurrences.iter();
        let is_open = |state| matches!(state, State::Scheduled | State::RetryWait);
        open.filter(|(number, row)| is_open(row.state) || self.resend.contains(number))
            .map(|(number, row)| (row.id, number))
            .collect()
    }

    /// Somebody else removed entries. On a tracked queue what nobody has claimed must not be among them: it is looked
    /// for, however long ago it was enqueued.
    pub fn shortened(&mut self, stream: Stream, now: UnixMs, turn: &mut Turn) {
        let all = Lost { stream: stream_number(stream), survived: None, since: self.since_ever(now) };
        if self.settings.is_tracked(stream.queue.0) && !self.lost_rows(&all).is_empty() {
            self.shortened.insert(stream);
            turn.read_back.push(stream);
        }
    }

    fn since_ever(&self, now: UnixMs) -> i64 {
        UnixMs(0).since(now.max(self.log_time))
    }

    /// The stream lost what it had accepted behind `survived`: it is sent again, as far back as the window reaches.
    pub fn lost(&mut self, stream: Stream, survived: Option<EntryId>, now: UnixMs, turn: &mut Turn) {
        let lost = Lost {
            stream: stream_number(stream),
            survived: survived.map(|entry| (entry.generation, entry.counter)),
            since: if self.shortened.remove(&stream) {
                self.since_ever(now)
            } else {
                now.minus(self.config.resend_window_ms).since(now.max(self.log_time))
            },
        };
        self.record(Record::Lost(lost), now, turn);
        turn.urge(Urgency::Prompt);
        self.resend.extend(self.lost_rows(&lost));
        self.read_back = None;
    }

    /// Everything was fenced and looked at: hand-over goes on, what was lost first.
    pub fn queue_ready(&mut self) {
        if matches!(self.queue, QueueState::Fenced { .. }) {
            return;
        }
        self.queue = QueueState::Ready;
        self.read_back = None;
        self.streams_away.clear();
        self.unread_below = OccurrenceNo(0);
        self.unparking = self.parked.len();
        for number in std::mem::take(&mut self.resend) {
            if self.occurrences.row(number).is_some_and(|row| row.state == State::Enqueued) {
                self.counters.resent += 1;
                self.enter_line(number, self.durable);
            }
        }
        for number in std::mem::take(&mut self.withheld) {
            self.put_back(number, Holder::Withheld);
        }
    }

    /// The queue, or one stream of it, takes nothing for now.
    pub fn queue_away(&mut self, stream: Option<Stream>, reason: String, now: UnixMs) {
        match (stream, &mut self.queue) {
            (Some(stream), _) => {
                let since = self.streams_away.get(&stream).map_or(now, |away| away.since);
                self.streams_away.insert(stream, StreamAway { since, reason });
            }
            (None, QueueState::Away { reason: old, .. }) => *old = reason,
            (None, QueueState::Ready) => self.queue = QueueState::Away { since: now, reason },
            (None, QueueState::Fenced { .. }) => {}
        }
    }

    /// Another engine owns the streams: this one hands nothing over any more.
    pub fn queue_fenced(&mut self, reason: String) {
        self.queue = QueueState::Fenced { reason };
    }

    /// The queue has seen our generation or a higher one under another owner.
    pub fn generation_needed(&mut self, at_least: u64, now: UnixMs, turn: &mut Turn) {
        if matches!(self.queue, QueueState::Fenced { .. }) {
            return;
        }
        self.raise_generation(at_least, now, turn);
    }
}
