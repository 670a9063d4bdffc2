//! What people decide about occurrences: replaying what is DEAD, resolving what is HELD, and the evidence they look at.

use super::{Shard, Turn, Urgency, apply_runs::DAY_MS, lobby::is_caught_up, occurrences::OccurrenceRow};
use crate::kernel::{
    attempt::{AttemptResult, Failure, Resolution},
    calendar::Basis,
    evidence::{Evidence, Jitter, PriorOutcome, RetryBudget, ScheduleType},
    gate::Lsn,
    id::{Kind, OccurrenceId},
    occurrence::{Occurrence, OccurrenceNo, State},
    record::{Record, Replayed, Resolved, RuleBody},
    time::UnixMs,
};

/// A person's decision about a HELD occurrence.
#[derive(Clone, Debug)]
pub struct Decided {
    /// What.
    pub resolution: Resolution,
    /// Who.
    pub reviewer: String,
    /// Why.
    pub note: String,
}

/// Why a person's decision about an occurrence is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewRefusal {
    /// There is no such occurrence, or the caller may not see it.
    NotFound,
    /// It is in this state, which leaves nothing to decide.
    State(State),
    /// Its schedule was deleted.
    ScheduleCanceled,
}

/// What a person can be asked to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pile {
    /// What is DEAD: by tenant, those that died first first.
    Dead,
    /// What is HELD: by tenant, oldest first.
    Held,
}

/// Where a list of a pile goes on: behind this occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PilePlace {
    /// The shard's number of the tenant.
    pub tenant: u32,
    /// When it died; of what is HELD nothing.
    pub at: UnixMs,
    /// Its number.
    pub number: OccurrenceNo,
}

/// A part of a pile.
#[derive(Clone, Debug)]
pub struct PilePage {
    /// In the pile's order.
    pub items: Vec<Occurrence>,
    /// Where to go on; `None` at the end.
    pub next: Option<PilePlace>,
    /// The answer may leave once this is durable.
    pub lsn: Lsn,
}

impl Shard {
    /// Gives a DEAD occurrence its attempts anew, under the same id. The answer may leave once the LSN is durable.
    ///
    /// # Errors
    /// See [`ReviewRefusal`].
    pub fn replay_dead(
        &mut self,
        id: OccurrenceId,
        tenant: Option<&str>,
        now: UnixMs,
        turn: &mut Turn,
    ) -> Result<(Occurrence, Lsn), ReviewRefusal> {
        let number = self.seen_by(id, tenant)?;
        let row = self.occurrences.row(number).ok_or(ReviewRefusal::NotFound)?;
        if row.state != State::Dead {
            return Err(ReviewRefusal::State(row.state));
        }
        if self.schedule(row.schedule).is_canceled {
            return Err(ReviewRefusal::ScheduleCanceled);
        }
        self.record(Record::Replayed(Replayed { occurrence: number.0 }), now, turn);
        turn.urge(Urgency::Prompt);
        self.enter_line(number, self.lsn);
        Ok((self.occurrence(number).ok_or(ReviewRefusal::NotFound)?, self.lsn))
    }

    /// Decides about a HELD occurrence. The answer may leave once the LSN is durable.
    ///
    /// # Errors
    /// See [`ReviewRefusal`].
    pub fn resolve_held(
        &mut self,
        id: OccurrenceId,
        tenant: Option<&str>,
        decided: Decided,
        now: UnixMs,
        turn: &mut Turn,
    ) -> Result<(Occurrence, Lsn), ReviewRefusal> {
        let number = self.seen_by(id, tenant)?;
        let row = self.occurrences.row(number).ok_or(ReviewRefusal::NotFound)?;
        if row.state != State::Held {
            return Err(ReviewRefusal::State(row.state));
        }
        let Decided { resolution, reviewer, note } = decided;
        if resolution == Resolution::Retry && self.schedule(row.schedule).is_canceled {
            return Err(ReviewRefusal::ScheduleCanceled);
        }
        self.record(Record::Resolved(Resolved { occurrence: number.0, resolution, reviewer, note }), now, turn);
        turn.urge(Urgency::Prompt);
        match resolution {
            Resolution::Retry => self.enter_line(number, self.lsn),
            Resolution::Succeeded => self.counters.completed += 1,
            Resolution::Dead => self.counters.dead += 1,
        }
        turn.more |= self.lobby.is_stirred();
        Ok((self.occurrence(number).ok_or(ReviewRefusal::NotFound)?, self.lsn))
    }

    fn seen_by(&self, id: OccurrenceId, tenant: Option<&str>) -> Result<OccurrenceNo, ReviewRefusal> {
        let number = self.occurrences.number(id).ok_or(ReviewRefusal::NotFound)?;
        let row = self.occurrences.row(number).ok_or(ReviewRefusal::NotFound)?;
        let owner = self.tenants.name(row.tenant).map(|name| &**name);
        if tenant.is_some() && tenant != owner { Err(ReviewRefusal::NotFound) } else { Ok(number) }
    }

    /// What lies on a pile behind `after`, of one tenant or of all.
    #[must_use]
    pub fn pile(&self, pile: Pile, tenant: Option<&str>, after: Option<PilePlace>, limit: usize) -> PilePage {
        let mut page = PilePage { items: Vec::new(), next: None, lsn: Lsn(0) };
        let only = tenant.map(|name| self.tenants.number(name));
        let mut places = match (pile, only) {
            (_, Some(None)) => Vec::new(),
            (Pile::Dead, only) => self.runs.dead(only.flatten(), after).take(limit + 1).collect(),
            (Pile::Held, only) => self.runs.held(only.flatten(), after).take(limit + 1).collect(),
        };
        if places.len() > limit {
            places.truncate(limit);
            page.next = places.last().copied();
        }
        for place in places {
            let schedule = self.occurrences.row(place.number).expect("what lies on a pile has a row").schedule;
            page.lsn = page.lsn.max(self.schedule(schedule).changed);
            page.items.extend(self.occurrence(place.number));
        }
        page
    }

    /// The evidence about an occurrence, if the caller may see it, and the LSN that it rests on.
    #[must_use]
    pub fn evidence_of(&self, id: OccurrenceId, tenant: Option<&str>, now: UnixMs) -> Option<(Evidence, Lsn)> {
        let number = self.seen_by(id, tenant).ok()?;
        let schedule = self.occurrences.row(number)?.schedule;
        Some((self.evidence(number, now), self.schedule(schedule).changed))
    }

    pub(super) fn evidence(&self, number: OccurrenceNo, now: UnixMs) -> Evidence {
        let Some(row) = self.occurrences.row(number) else { return Evidence::default() };
        let schedule = self.schedule(row.schedule);
        let policies = self.policies_of(row.schedule, row.version);
        let (schedule_type, expression, timezone) = described(schedule.plan.body(&self.calendar));
        let run = self.runs.of(number);
        let last = run.and_then(|run| run.attempts.last());
        let review = run.and_then(|run| run.review.as_deref());
        let day = now.max(self.log_time).0.div_euclid(DAY_MS);
        let used = schedule.retries_on(day);
        Evidence {
            job_id: Some(schedule.id),
            schedule_type: Some(schedule_type),
            schedule_expression: Some(expression),
            timezone,
            last_run_at: schedule.last_run_at,
            next_run_at: schedule.next,
            missed_run_policy: Some(policies.misfire),
            jitter_window: self.jitter_of(row),
            lease_id: run.and_then(|run| run.token),
            lease_owner: last.map(|attempt| attempt.worker.to_string()),
            lease_expires_at: last.map(|attempt| attempt.lease_expires_at),
            idempotency_key: Some(row.id),
            attempt: Some(self.attempt_looked_at(number, row)),
            retry_budget: Some(RetryBudget { limit: policies.retry.budget, used }),
            // What a person asked for again has nothing to wait for.
            backoff_ms: run.and_then(|run| run.delay_ms.or(run.asked_at().map(|_| 0))),
            run_state: Some(row.state),
            result_ref: review
                .and_then(|review| review.late_result.clone())
                .or_else(|| last.and_then(|attempt| attempt.result_ref.clone())),
            review_owner: schedule.text.review_owner.clone(),
            prior_outcome: match last.and_then(|attempt| attempt.result) {
                Some(AttemptResult::Failed(Failure::LeaseExpired)) => PriorOutcome::LeaseExpired,
                Some(AttemptResult::Failed(Failure::Restarted)) => PriorOutcome::Restarted,
                _ => PriorOutcome::NoCommittedResult,
            },
            is_caught_up: is_caught_up(row),
            settled: review.map(|review| review.settled.clone()).unwrap_or_default(),
        }
    }

    /// The attempt that the evidence is about: the one to come, or where none is, the last.
    fn attempt_looked_at(&self, number: OccurrenceNo, row: &OccurrenceRow) -> u32 {
        let made = self.runs.made(number);
        match row.state {
            State::Scheduled | State::Enqueued | State::RetryWait | State::Held => made.saturating_add(1),
            State::Running
            | State::Succeeded
            | State::Dead
            | State::Missed
            | State::SkippedOverlap
            | State::Canceled => made.max(1),
        }
    }

    /// How far it was spread, and how far its version might have spread it; `None`: that is not known any more.
    fn jitter_of(&self, row: &OccurrenceRow) -> Option<Jitter> {
        if row.kind != Kind::Regular {
            return Some(Jitter { window_ms: 0, offset_ms: 0 });
        }
        let schedule = self.schedule(row.schedule);
        let window_ms = if schedule.version == row.version {
            schedule.flexible_window_ms
        } else {
            self.superseded.get(&(row.schedule, row.version))?.flexible_window_ms
        };
        Some(Jitter { window_ms, offset_ms: row.available_at.since(row.scheduled_for) })
    }
}

/// A rule's kind, its text and its zone.
fn described(rule: RuleBody) -> (ScheduleType, String, Option<String>) {
    match rule {
        RuleBody::Cron { expr, zone, .. } => (ScheduleType::Cron, expr, Some(zone)),
        RuleBody::Every { every_ms, anchor_ms } => {
            (ScheduleType::Interval, format!("every {every_ms} ms from {}", UnixMs(anchor_ms)), None)
        }
        RuleBody::After { every_ms, anchor_ms, from_start } => {
            let basis = if from_start { Basis::Start } else { Basis::Completion }.as_str();
            let text = format!("every {every_ms} ms after {basis}, from {}", UnixMs(anchor_ms));
            (ScheduleType::Interval, text, None)
        }
        RuleBody::At { at_ms, local } => {
            (ScheduleType::OneOff, UnixMs(at_ms).to_string(), local.map(|local| local.zone))
        }
    }
}
