//! What changes a schedule that stands: update, pause, resume, cancel, each with its receipt.
//!
//! A call first brings its own schedule up to `now`: instants up to then belong to the old version, even if their timer
//! has not run; later ones to the new.

use super::{CommandError, Shard, Target, Turn, Urgency, misfire::Verdict, occurrences::Holder};
use crate::kernel::{
    gate::Lsn,
    id::OccurrenceId,
    occurrence::{OccurrenceNo, State},
    record::{self, Closing, RangeBody, Record, runs_of},
    refusal::RefusalCode,
    schedule::{Receipt, Schedule, ScheduleState, Spec},
    time::UnixMs,
};

/// At most this many ids a list of a receipt; the rest is counted.
const RECEIPT_IDS: usize = 1_000;
/// At most this many due instants get their occurrences in one call that keeps them.
const KEPT_A_CALL: usize = 10_000;

/// What an update does with what is due and has not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pending {
    /// It is canceled.
    #[default]
    Cancel,
    /// It goes on under the old version's policies.
    Keep,
}

/// A schedule after a call, and what the call changed of its occurrences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipted {
    /// As it stands now.
    pub schedule: Schedule,
    /// What that changed.
    pub receipt: Receipt,
}

/// What a call reaches of a schedule's pending work.
#[derive(Debug, Default)]
struct Reach {
    canceled: Vec<OccurrenceNo>,
    kept: Vec<OccurrenceNo>,
    /// What runs, and is only to end as it likes.
    running: Vec<OccurrenceNo>,
    /// What runs, and is asked to stop.
    stopping: Vec<OccurrenceNo>,
    /// What is canceled in the queue.
    withdrawn: Vec<OccurrenceNo>,
    closing: Closing,
}

type Answer = Result<(Receipted, Lsn), CommandError>;

impl Shard {
    /// Describes a schedule anew, if `version` still stands. A description that is the same changes nothing.
    ///
    /// # Errors
    /// See [`CommandError`].
    pub fn update(
        &mut self,
        target: &Target,
        spec: &Spec,
        version: u32,
        pending: Pending,
        now: UnixMs,
        turn: &mut Turn,
    ) -> Answer {
        let number = self.find_live(target)?;
        let row = self.schedule(number);
        if row.version != version {
            return Err(CommandError::VersionMismatch { expected: version, current: row.version });
        }
        if self.spec(number) == *spec {
            return Ok(self.unchanged(number, now));
        }
        let base = now.max(self.log_time);
        self.check_future(spec, Some(number), base).map_err(|mut refusal| {
            if refusal.code == RefusalCode::InThePast {
                refusal.code = RefusalCode::NeverFires;
            }
            refusal
        })?;
        self.check_followed(spec)?;
        if self.schedule(number).state() == ScheduleState::Completed {
            // It counts again.
            self.reserve_schedule(&spec.tenant)?;
        }
        let keeps_due = pending == Pending::Keep;
        if keeps_due {
            self.decide_due(number, base, turn)?;
        }
        let reach = self.reach(number, base, pending);
        let body = self.spec_body(spec, now, turn);
        let closing = reach.closing.clone();
        let record = record::Updated { schedule: number, spec: body, keeps_due, closing };
        self.record(Record::Updated(Box::new(record)), now, turn);
        Ok(self.receipted(number, reach, now, turn))
    }

    /// Nothing is decided any more until the schedule is resumed.
    ///
    /// # Errors
    /// See [`CommandError`].
    pub fn pause(&mut self, target: &Target, now: UnixMs, turn: &mut Turn) -> Answer {
        let number = self.find_live(target)?;
        if matches!(self.schedule(number).state(), ScheduleState::Paused | ScheduleState::Completed) {
            return Ok(self.unchanged(number, now));
        }
        let reach = self.reach(number, now.max(self.log_time), Pending::Cancel);
        let record = record::Paused { schedule: number, closing: reach.closing.clone() };
        self.record(Record::Paused(record), now, turn);
        Ok(self.receipted(number, reach, now, turn))
    }

    /// Goes on with the first instant after `now`; those that fell into the pause are canceled for it.
    ///
    /// # Errors
    /// See [`CommandError`].
    pub fn resume(&mut self, target: &Target, now: UnixMs, turn: &mut Turn) -> Answer {
        let number = self.find_live(target)?;
        if !self.schedule(number).is_paused {
            return Ok(self.unchanged(number, now));
        }
        let paused = self.undecided(number, now.max(self.log_time));
        self.record(Record::Resumed(record::Resumed { schedule: number, paused }), now, turn);
        let closing = Closing { due: paused, ..Closing::default() };
        Ok(self.receipted(number, Reach { closing, ..Reach::default() }, now, turn))
    }

    /// Ends a schedule. What may be with the queue already stays and is listed as kept.
    ///
    /// # Errors
    /// See [`CommandError`].
    pub fn cancel(&mut self, target: &Target, now: UnixMs, turn: &mut Turn) -> Answer {
        let number = self.find(target)?;
        if self.schedule(number).is_canceled {
            return Ok(self.unchanged(number, now));
        }
        let mut reach = self.reach(number, now.max(self.log_time), Pending::Cancel);
        reach.stopping = reach.running.drain(..).collect();
        let record = record::Canceled { schedule: number, closing: reach.closing.clone() };
        self.record(Record::Canceled(record), now, turn);
        Ok(self.receipted(number, reach, now, turn))
    }

    fn unchanged(&mut self, number: u32, now: UnixMs) -> (Receipted, Lsn) {
        let row = self.schedule(number);
        let (lsn, receipt) = (row.changed, Receipt { version: row.version, ..Receipt::default() });
        (Receipted { schedule: self.view(number, now), receipt }, lsn)
    }

    fn receipted(&mut self, number: u32, reach: Reach, now: UnixMs, turn: &mut Turn) -> (Receipted, Lsn) {
        turn.urge(Urgency::Prompt);
        self.rearm(number);
        let Reach { canceled, mut kept, running, stopping, withdrawn, closing } = reach;
        turn.withdrawn.extend(withdrawn);
        let ranges = closing.due.iter().chain(&closing.backfills);
        self.counters.canceled += canceled.len() as u64 + ranges.clone().map(|range| range.count).sum::<u64>();
        kept.extend(running);
        kept.sort_unstable();
        let over: usize = [&canceled, &kept, &stopping].map(|list| list.len().saturating_sub(RECEIPT_IDS)).iter().sum();
        let row = self.schedule(number);
        let shown = row.text.ranges.len().saturating_sub(ranges.count());
        let receipt = Receipt {
            version: row.version,
            canceled: self.ids(&canceled),
            kept: self.ids(&kept),
            cancel_requested: self.ids(&stopping),
            ranges: row.text.ranges[shown..].to_vec(),
            truncated: over as u64,
        };
        (Receipted { schedule: self.view(number, now), receipt }, self.lsn)
    }

    /// Decides what is due and has no occurrence by the policy that stands, as it would have been at this moment.
    fn decide_due(&mut self, number: u32, now: UnixMs, turn: &mut Turn) -> Result<(), CommandError> {
        if self.schedule(number).is_paused {
            return Ok(());
        }
        if let Verdict::Misfire(decision) = self.judge(number, self.schedule(number).version, now) {
            self.misfire(decision, now, turn);
        }
        for _ in 0..KEPT_A_CALL {
            let Some(next) = self.schedule(number).next.filter(|next| *next <= now) else { return Ok(()) };
            self.materialize_at(next, vec![number], now, turn);
        }
        Err(CommandError::Busy)
    }

    /// What a call at `now` ends, and what it cannot reach: after an opening that is every occurrence that could have
    /// been handed over before, until the queue has been read back.
    fn reach(&mut self, number: u32, now: UnixMs, pending: Pending) -> Reach {
        let mut reach = Reach::default();
        for occurrence in self.scheduled_of(number) {
            let row = self.occurrences.row(occurrence).expect("it was just found");
            // A queue whose runs are followed asks before it runs anything.
            let may_be_there = !row.is_tracked
                && (row.holder == Holder::Queue || (occurrence < self.unread_below && row.available_at <= now));
            let is_kept = pending == Pending::Keep && row.scheduled_for <= now;
            if may_be_there || is_kept { &mut reach.kept } else { &mut reach.canceled }.push(occurrence);
        }
        let kept_there = reach.kept.len();
        self.reach_unsettled(number, pending, &mut reach);
        // In a history the order is that of instants, in records that of numbers.
        let mut kept: Vec<u64> = reach.kept[..kept_there].iter().map(|number| number.0).collect();
        kept.sort_unstable();
        reach.closing.kept = runs_of(&kept);
        reach.closing.due = self.undecided(number, now);
        if pending == Pending::Cancel {
            reach.closing.backfills = self.unexpanded(number, now);
        }
        reach
    }

    /// The schedule's instants up to `now` that have neither an occurrence nor a disposition.
    fn undecided(&mut self, number: u32, now: UnixMs) -> Option<RangeBody> {
        let row = self.schedules.row(number).expect("found by the caller");
        let first = row.plan.next(row.decided_through, &mut self.calendar).filter(|first| *first <= now)?;
        let last = row.plan.latest(row.decided_through, now, &mut self.calendar)?;
        let count = row.plan.count(first, last, &self.calendar);
        Some(RangeBody { first: first.since(now), last: last.since(now), count })
    }

    /// What is left of each of the schedule's backfills.
    fn unexpanded(&mut self, number: u32, now: UnixMs) -> Vec<RangeBody> {
        let mut left = Vec::new();
        for job in self.backfills.values().filter(|job| job.schedule == number) {
            let (from, through) = (job.done_through, job.to.minus(1));
            let first = job.plan.next(from, &mut self.calendar).filter(|first| *first <= through);
            let last = job.plan.latest(from, through, &mut self.calendar);
            if let (Some(first), Some(last)) = (first, last) {
                let count = job.plan.count(first, last, &self.calendar);
                left.push(RangeBody { first: first.since(now), last: last.since(now), count });
            }
        }
        left
    }

    /// What a call does to what the queue follows.
    fn reach_unsettled(&self, schedule: u32, pending: Pending, reach: &mut Reach) {
        for occurrence in self.runs.unsettled_of(schedule) {
            match self.occurrences.row(occurrence).expect("what is unsettled has a row").state {
                State::Running => reach.running.push(occurrence),
                State::Enqueued | State::RetryWait if pending == Pending::Keep => reach.kept.push(occurrence),
                State::Enqueued | State::RetryWait => {
                    reach.canceled.push(occurrence);
                    reach.withdrawn.push(occurrence);
                }
                State::Scheduled
                | State::Succeeded
                | State::Dead
                | State::Held
                | State::Missed
                | State::SkippedOverlap
                | State::Canceled => {}
            }
        }
    }

    fn ids(&self, numbers: &[OccurrenceNo]) -> Vec<OccurrenceId> {
        let rows = numbers.iter().take(RECEIPT_IDS).filter_map(|number| self.occurrences.row(*number));
        rows.map(|row| row.id).collect()
    }
}
