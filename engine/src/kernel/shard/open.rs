//! How a shard comes up: replay every record, then open under a new generation and rebuild what is derived.

use super::{QueueState, Shard, Turn, Urgency, apply_runs::DAY_MS};
use crate::kernel::{
    gate::Lsn,
    occurrence::{OccurrenceNo, State},
    record::{InvalidRecord, Opened, Record},
    time::UnixMs,
    wheel::Timers,
};

/// Generations stay below this: nothing that an engine or its queue counts comes near, so it is damage or a prank.
pub(super) const GENERATIONS: u64 = 1 << 62;

/// Why a log record could not be replayed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The bytes are no record.
    #[error(transparent)]
    Invalid(#[from] InvalidRecord),
    /// The record does not fit what came before it.
    #[error(transparent)]
    Inconsistent(#[from] super::Inconsistent),
}

impl Shard {
    /// Takes the log's next record.
    ///
    /// # Errors
    /// Bytes that are no record, or a record that does not fit those before it.
    pub fn replay(&mut self, kind: u8, body: &[u8]) -> Result<(), ReplayError> {
        if self.is_restoring() {
            return Err(super::Inconsistent::new(self.lsn, "a record before the snapshot's end").into());
        }
        let record = Record::decode(kind, body)?;
        if let Record::Opened(opened) = &record
            && opened.generation >= GENERATIONS
        {
            return Err(super::Inconsistent::new(self.lsn, "the generation is out of range").into());
        }
        self.apply(&record)?;
        self.lsn = Lsn(self.lsn.0 + 1);
        Ok(())
    }

    /// Ends replay: writes the opening (its generation is made larger than the log's), and rebuilds timers and outbox.
    /// Whatever was replayed is durable.
    pub fn open(&mut self, mut opened: Opened, now: UnixMs) -> Turn {
        self.durable = self.lsn;
        let mut turn = Turn::default();
        opened.generation = self.opened.as_ref().map_or(1, |before| before.generation + 1);
        let generation = opened.generation;
        self.record(Record::Opened(opened), now, &mut turn);
        turn.urge(Urgency::Prompt);
        turn.start = Some((self.lsn, generation));
        self.queue = QueueState::Away { since: now, reason: "the queue is not connected yet".into() };
        self.rebuild(now);
        turn
    }

    /// Writes a higher generation, since the queue has seen this one under another owner.
    pub(super) fn raise_generation(&mut self, at_least: u64, now: UnixMs, turn: &mut Turn) {
        if at_least >= GENERATIONS {
            self.queue_fenced(format!(
                "the queue shows generation {at_least}, which no engine counts to: remove its owner key"
            ));
            return;
        }
        let mut opened = self.opened.clone().expect("a shard that talks to its queue was opened");
        opened.generation = at_least.max(opened.generation + 1);
        turn.urge(Urgency::Prompt);
        let generation = opened.generation;
        self.record(Record::Opened(opened), now, turn);
        turn.start = Some((self.lsn, generation));
    }

    fn rebuild(&mut self, now: UnixMs) {
        self.timers = Timers::new(now);
        for number in 0..self.schedules.end() {
            if self.schedules.row(number).is_some() {
                self.rearm(number);
            }
        }
        let mut waiting = Vec::new();
        let mut runs = Vec::new();
        for (number, row) in self.occurrences.iter() {
            match row.state {
                State::Scheduled => waiting.push(number),
                // The embedded queue lives in memory: what it held is handed to it again. So is what the queue had lost.
                State::Enqueued if row.is_tracked && self.config.is_embedded => drop(self.resend.insert(number)),
                State::Enqueued if row.entry.is_none() && !row.is_settled => drop(self.resend.insert(number)),
                State::Running | State::RetryWait => runs.push((number, row.state, row.tenant)),
                State::Enqueued
                | State::Succeeded
                | State::Dead
                | State::Held
                | State::Missed
                | State::SkippedOverlap
                | State::Canceled => {}
            }
        }
        for number in waiting {
            self.enter_outbox(number, self.lsn);
        }
        self.is_up = true;
        for (number, state, tenant) in runs {
            self.take_up(number, state, tenant, now);
        }
        self.tell_retries(now);
        if !self.config.is_embedded {
            self.unread_below = self.occurrences.next();
        }
    }

    /// A run goes on: a lease gets its whole length, unless its worker went with the process; a back-off is waited out
    /// once more.
    fn take_up(&mut self, number: OccurrenceNo, state: State, tenant: u32, now: UnixMs) {
        let Some(run) = self.runs.of_mut(number) else { return };
        if state == State::RetryWait {
            let delay_ms = run.delay_ms.unwrap_or(0);
            self.wait_out(number, delay_ms);
            return;
        }
        run.is_orphan = run.is_in_process;
        let lease_ms = if run.is_orphan { 0 } else { run.lease_ms };
        if let Some(attempt) = run.attempts.last_mut() {
            attempt.lease_expires_at = now.plus(lease_ms);
        }
        self.runs.set_lapse(number, Some(self.elapsed_ms.saturating_add(lease_ms)));
        self.permits.count_run(tenant);
    }

    /// Tells what of the day's retries is used up.
    fn tell_retries(&mut self, now: UnixMs) {
        let day = now.0.div_euclid(DAY_MS);
        for row in (0..self.schedules.end()).filter_map(|number| self.schedules.row(number)) {
            let retries = row.retries_on(day);
            if retries > 0 {
                self.permits.count_retries(row.tenant, day, retries);
            }
        }
    }
}
