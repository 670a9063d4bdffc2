//! Occurrences that users ask for beside a schedule's own instants: manual triggers and backfills.

use std::collections::BTreeMap;

use super::{CommandError, Shard, Target, Turn, Urgency, plan::Plan, snapshot::cut::Fifo};
use crate::kernel::{
    gate::Lsn,
    id::{Kind, OccurrenceId, ScheduleId},
    image::AnswerImage,
    occurrence::OccurrenceNo,
    record::{BackfillExpanded, BackfillRequested, Record},
    refusal::{Refusal, RefusalCode},
    time::UnixMs,
};

/// At most this many instants a backfill.
pub const BACKFILL_LIMIT: u64 = 100_000;
/// A keyed request is answered the same for this long.
const REMEMBER_MS: i64 = 86_400_000;
/// At most this many instants of a backfill get their occurrences a turn.
const EXPANDED_A_TURN: usize = 1_000;

/// What tells two requests apart.
#[derive(Clone, Debug)]
pub struct Request {
    /// The caller's key, or 16 random bytes.
    pub discriminator: Vec<u8>,
    /// Whether the caller gave it.
    pub is_keyed: bool,
}

/// What a trigger made, or had made before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Triggered {
    /// The manual occurrence.
    pub occurrence_id: OccurrenceId,
    /// Whether this call made it.
    pub is_new: bool,
}

/// What a backfill makes, or was asked to make before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backfilled {
    /// How many occurrences.
    pub occurrences: u64,
    /// Whether this call asked for them.
    pub is_new: bool,
}

/// A backfill that is not expanded to its end.
#[derive(Debug)]
pub(super) struct BackfillJob {
    pub(super) schedule: u32,
    pub(super) version: u32,
    /// The rule as it was when the backfill was asked for.
    pub(super) plan: Plan,
    pub(super) discriminator: Vec<u8>,
    pub(super) done_through: UnixMs,
    pub(super) to: UnixMs,
    /// Its latest occurrence: the next one stands near to it.
    pub(super) near: Option<OccurrenceNo>,
}

/// What a keyed request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answered {
    Triggered(OccurrenceId),
    Backfilled { occurrences: u64, from: UnixMs, to: UnixMs },
}

impl Answered {
    pub(super) const fn image(self, base: UnixMs) -> AnswerImage {
        match self {
            Self::Triggered(id) => AnswerImage::Triggered(id.0),
            Self::Backfilled { occurrences, from, to } => {
                AnswerImage::Backfilled { occurrences, from: from.since(base), to: to.since(base) }
            }
        }
    }

    pub(super) const fn of(image: AnswerImage, base: UnixMs) -> Self {
        match image {
            AnswerImage::Triggered(id) => Self::Triggered(OccurrenceId(id)),
            AnswerImage::Backfilled { occurrences, from, to } => {
                Self::Backfilled { occurrences, from: base.plus(from), to: base.plus(to) }
            }
        }
    }

    pub(super) const fn kind(self) -> Kind {
        match self {
            Self::Triggered(_) => Kind::Manual,
            Self::Backfilled { .. } => Kind::Backfill,
        }
    }
}

pub(super) type RequestKey = (ScheduleId, Kind, Vec<u8>);

/// What keyed requests were answered in the last day.
#[derive(Debug, Default)]
pub(super) struct AnsweredRequests {
    by_key: BTreeMap<RequestKey, (Answered, UnixMs)>,
    by_age: Fifo<(UnixMs, RequestKey, Answered)>,
}

impl AnsweredRequests {
    pub(super) fn remember(&mut self, id: ScheduleId, key: &[u8], answer: Answered, now: UnixMs) {
        // Two for each one that comes: it never holds more than a day's and what came at once.
        for _ in 0..2 {
            if self.by_age.front().is_none_or(|(at, ..)| now.since(*at) < REMEMBER_MS) {
                break;
            }
            if let Some((at, key, _)) = self.by_age.pop_front()
                && self.by_key.get(&key).is_some_and(|(_, known_at)| *known_at == at)
            {
                self.by_key.remove(&key);
            }
        }
        self.restore(now, (id, answer.kind(), key.to_vec()), answer);
    }

    /// Puts an answer behind the others.
    pub(super) fn restore(&mut self, at: UnixMs, key: RequestKey, answer: Answered) {
        self.by_age.push_back((at, key.clone(), answer));
        self.by_key.insert(key, (answer, at));
    }

    pub(super) fn set_cut(&mut self, is_cut: bool) {
        self.by_age.set_cut(is_cut);
    }

    /// The next answer of the cut, the oldest first.
    pub(super) fn sweep(&mut self) -> Option<(UnixMs, RequestKey, Answered)> {
        self.by_age.sweep()
    }

    fn answer(&self, id: ScheduleId, kind: Kind, key: &[u8], now: UnixMs) -> Option<Answered> {
        let (answer, at) = self.by_key.get(&(id, kind, key.to_vec()))?;
        (now.since(*at) < REMEMBER_MS).then_some(*answer)
    }
}

impl Shard {
    /// Makes a manual occurrence at `now`, or answers what the same key was answered within a day.
    ///
    /// # Errors
    /// See [`CommandError`].
    pub fn trigger(
        &mut self,
        target: &Target,
        request: Request,
        now: UnixMs,
        turn: &mut Turn,
    ) -> Result<(Triggered, Lsn), CommandError> {
        let number = self.find_live(target)?;
        let (id, changed) = (self.schedule(number).id, self.schedule(number).changed);
        if request.is_keyed
            && let Some(Answered::Triggered(occurrence_id)) =
                self.answered.answer(id, Kind::Manual, &request.discriminator, now)
        {
            return Ok((Triggered { occurrence_id, is_new: false }, changed));
        }
        let Request { discriminator, is_keyed } = request;
        let base = now.max(self.log_time);
        let same = OccurrenceId::of(id, self.schedule(number).version, base, Kind::Manual, &discriminator);
        if self.occurrences.number(same).is_some() {
            return Ok((Triggered { occurrence_id: same, is_new: false }, changed));
        }
        let made = self.occurrences.next();
        let record = crate::kernel::record::Triggered { schedule: number, discriminator, is_keyed };
        self.record(Record::Triggered(record), now, turn);
        turn.urge(Urgency::Prompt);
        self.counters.materialized += 1;
        self.enter_outbox(made, self.lsn);
        let occurrence_id = self.occurrences.row(made).expect("it was just made").id;
        Ok((Triggered { occurrence_id, is_new: true }, self.lsn))
    }

    /// Asks for the instants of the rule in `[from, to)` again, or answers what the same key was answered within a day.
    ///
    /// # Errors
    /// A window that is empty, not past or too full, or see [`CommandError`].
    pub fn backfill(
        &mut self,
        target: &Target,
        (from, to): (UnixMs, UnixMs),
        request: Request,
        now: UnixMs,
        turn: &mut Turn,
    ) -> Result<(Backfilled, Lsn), CommandError> {
        let number = self.find_live(target)?;
        let base = now.max(self.log_time);
        let (id, changed) = (self.schedule(number).id, self.schedule(number).changed);
        if request.is_keyed
            && let Some(Answered::Backfilled { occurrences, from: known_from, to: known_to }) =
                self.answered.answer(id, Kind::Backfill, &request.discriminator, now)
        {
            if (known_from, known_to) != (from, to) {
                return Err(CommandError::KeyTaken { version: self.schedule(number).version });
            }
            return Ok((Backfilled { occurrences, is_new: false }, changed));
        }
        if self.schedule(number).plan.pace().is_some() {
            let message = "what follows its runs has no past instants to run again: trigger it instead".to_owned();
            return Err(Refusal::new(RefusalCode::Invalid, "rule.basis", message).into());
        }
        check_window(from, to, base)?;
        let count = self.schedule(number).plan.count(from, to.minus(1), &self.calendar);
        if count > BACKFILL_LIMIT {
            let message = format!("{count} instants lie in it, at most {BACKFILL_LIMIT} are allowed: split the window");
            return Err(Refusal::new(RefusalCode::TooMany, "to", message).into());
        }
        let Request { discriminator, is_keyed } = request;
        let (from, to) = (from.since(base), to.since(base));
        let record = BackfillRequested { schedule: number, from, to, count, discriminator, is_keyed };
        self.record(Record::BackfillRequested(record), now, turn);
        turn.urge(Urgency::Prompt);
        turn.more |= count > 0;
        Ok((Backfilled { occurrences: count, is_new: true }, self.lsn))
    }

    /// Gives the next instants of backfills their occurrences, as far as the catch-up lane takes them.
    pub(super) fn expand_backfills(&mut self, now: UnixMs, turn: &mut Turn) {
        if self.backfills.is_empty() || !self.takes_catch_up() {
            return;
        }
        let mut budget = EXPANDED_A_TURN;
        let numbers: Vec<u64> = self.backfills.keys().copied().collect();
        for number in numbers {
            let job = &self.backfills[&number];
            let tenant = self.schedule(job.schedule).tenant;
            let room = self.catch_up_room(tenant).min(budget);
            if room > 0 {
                budget -= self.expand(number, room, now, turn);
            }
            turn.more |= budget == 0;
        }
    }

    fn expand(&mut self, number: u64, room: usize, now: UnixMs, turn: &mut Turn) -> usize {
        let base = now.max(self.log_time);
        let job = &self.backfills[&number];
        let schedule_id = self.schedule(job.schedule).id;
        let mut instants = Vec::new();
        let mut looked_at = 0;
        let mut through = job.done_through;
        let mut at = job.plan.next(job.done_through, &mut self.calendar).filter(|at| *at < job.to);
        while let Some(instant) = at
            && looked_at < room
        {
            looked_at += 1;
            through = instant;
            // The same key a day later asks for the same occurrences: those that are there are not made twice.
            let id = OccurrenceId::of(schedule_id, job.version, instant, Kind::Backfill, &job.discriminator);
            if self.occurrences.number(id).is_none() {
                instants.push(instant.since(base));
            } else {
                self.counters.conflicts += 1;
            }
            at = job.plan.next(instant, &mut self.calendar).filter(|at| *at < job.to);
        }
        let first = self.occurrences.next();
        let record =
            BackfillExpanded { backfill: number, instants, through: through.since(base), is_done: at.is_none() };
        self.record(Record::BackfillExpanded(record), now, turn);
        turn.urge(Urgency::Prompt);
        for made in (first.0..self.occurrences.next().0).map(OccurrenceNo) {
            self.counters.materialized += 1;
            self.enter_outbox(made, self.lsn);
        }
        looked_at
    }
}

fn check_window(from: UnixMs, to: UnixMs, now: UnixMs) -> Result<(), Refusal> {
    let refuse = |field, message| Err(Refusal::new(RefusalCode::Invalid, field, message));
    if from >= to {
        return refuse("to", format!("{to} is not after from ({from}): give a later end"));
    }
    if to > now {
        return refuse("to", format!("{to} is after now ({now}): only what is past can be run again"));
    }
    Ok(())
}
