//! What becomes of a run: its worker's heartbeats and answers, or the end of its lease; and what follows a failure.

use std::collections::BTreeMap;

use super::{Shard, Turn, Urgency, apply_runs::DAY_MS, occurrences::Holder};
use crate::kernel::{
    attempt::{self, AttemptResult, Failed, Failure, FailureClass, Follows},
    gate::Lsn,
    id::OccurrenceId,
    lease::LeaseToken,
    occurrence::{OccurrenceNo, State},
    record::{LateResult, Record, RunFailed, RunsSucceeded, Then, runs_of},
    retry::backoff_ms,
    time::UnixMs,
};

/// A result reference is at most this long.
pub const RESULT_REF_BYTES: usize = 1_024;
/// So much of a failure's message is kept.
const MESSAGE_CHARS: usize = 1_024;
/// A retry whose earlier entry the queue has not answered for is looked at again after this long.
const UNHEARD_MS: i64 = 100;

/// A worker speaks of its attempt.
#[derive(Clone, Debug)]
pub struct Speaking<Said> {
    /// The occurrence.
    pub occurrence: OccurrenceId,
    /// The token that its claim was granted.
    pub token: LeaseToken,
    /// What it says.
    pub said: Said,
}

/// What a worker says of a failed attempt.
#[derive(Clone, Debug)]
pub struct FailedRun {
    /// What kind of failure.
    pub class: FailureClass,
    /// For people.
    pub message: Option<String>,
}

/// The answer to a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// When the lease ends without another one.
    pub lease_expires_at: UnixMs,
    /// Whether the attempt is asked to stop.
    pub cancel_requested: bool,
}

/// Where an occurrence stands after its attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its state.
    pub state: State,
    /// When the next attempt may begin, if there is one to come.
    pub retry_at: Option<UnixMs>,
}

/// Why an answer changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Another claim, or the lease's end, came before it.
    #[error("the token holds no lease of this occurrence: it is over, or another claim has it: drop the work")]
    StaleLease,
    /// It says that it stopped, and was not asked to.
    #[error("class canceled is valid only after cancel_requested: give permanent or transient")]
    NotAskedToStop,
    /// The result is too long.
    #[error("result_ref is longer than {RESULT_REF_BYTES} bytes: put the result elsewhere and refer to it")]
    ResultTooLong,
}

type Answers<T> = (Vec<Result<T, RunError>>, Lsn);

impl Shard {
    /// How much time has passed, by a clock that only runs on; told before the shard opens and before each turn.
    /// Leases and back-offs run by it.
    pub const fn set_elapsed(&mut self, elapsed_ms: i64) {
        if elapsed_ms > self.elapsed_ms {
            self.elapsed_ms = elapsed_ms;
        }
    }

    /// When time must be given to the shard for a lease or a back-off that ends, in elapsed time.
    #[must_use]
    pub fn next_lapse_ms(&self) -> Option<i64> {
        self.runs.first_lapse().map(|(at_ms, _)| at_ms)
    }

    /// Extends leases. Nothing is logged: a restart gives every lease its whole length.
    pub fn heartbeat(&mut self, beats: &[Speaking<u64>], now: UnixMs) -> Answers<Beat> {
        let base = now.max(self.log_time);
        let mut rests_on = Lsn(0);
        let answers: Vec<_> = beats
            .iter()
            .map(|beat| {
                let number = self.leased(beat.occurrence, beat.token)?;
                let lease_ms = i64::try_from(beat.said).unwrap_or(i64::MAX).clamp(1, super::claims::LEASE_MS_AT_MOST);
                let expires_at = base.plus(lease_ms);
                let schedule = self.occurrences.row(number).expect("it is leased").schedule;
                rests_on = rests_on.max(self.schedule(schedule).changed);
                self.runs.set_lapse(number, Some(self.elapsed_ms.saturating_add(lease_ms)));
                let run = self.runs.of_mut(number).expect("it is leased");
                if let Some(attempt) = run.attempts.last_mut() {
                    attempt.lease_expires_at = expires_at;
                }
                Ok(Beat { lease_expires_at: expires_at, cancel_requested: run.stop_asked })
            })
            .collect();
        self.counters.stale_tokens += answers.iter().filter(|answer| answer.is_err()).count() as u64;
        (answers, rests_on)
    }

    /// The occurrence whose lease the token holds.
    fn leased(&self, id: OccurrenceId, token: LeaseToken) -> Result<OccurrenceNo, RunError> {
        let number = self.occurrences.number(id).ok_or(RunError::StaleLease)?;
        let run = self.runs.of(number).ok_or(RunError::StaleLease)?;
        let is_running = self.occurrences.row(number).is_some_and(|row| row.state == State::Running);
        let is_over = run.lapses_at_ms.is_none_or(|at_ms| at_ms <= self.elapsed_ms);
        if is_running && run.token == Some(token) && !is_over { Ok(number) } else { Err(RunError::StaleLease) }
    }

    /// Workers completed what they had claimed; each said where its result is, if anywhere. Repeated: the same answer.
    pub fn complete(&mut self, done: &[Speaking<Option<String>>], now: UnixMs, turn: &mut Turn) -> Answers<State> {
        let mut accepted = BTreeMap::new();
        let mut numbers = Vec::new();
        let mut result_refs = Vec::new();
        let mut answers = Vec::with_capacity(done.len());
        for speaking in done {
            let known = self.occurrences.number(speaking.occurrence);
            let before = known.and_then(|number| accepted.get(&(number, speaking.token)));
            let answer = if let Some(said) = before {
                if *said == &speaking.said { Ok(State::Succeeded) } else { Err(RunError::StaleLease) }
            } else if speaking.said.as_ref().is_some_and(|said| said.len() > RESULT_REF_BYTES) {
                Err(RunError::ResultTooLong)
            } else {
                match self.leased(speaking.occurrence, speaking.token) {
                    Ok(number) => {
                        result_refs.extend(speaking.said.clone().map(|said| (numbers.len() as u64, said)));
                        numbers.push(number.0);
                        accepted.insert((number, speaking.token), &speaking.said);
                        Ok(State::Succeeded)
                    }
                    Err(error) => self.too_late(speaking, error, now, turn),
                }
            };
            answers.push(answer);
        }
        if !numbers.is_empty() {
            self.counters.completed += numbers.len() as u64;
            let record = RunsSucceeded { occurrences: runs_of(&numbers), result_refs };
            self.record(Record::RunsSucceeded(record), now, turn);
            turn.urge(Urgency::Prompt);
        }
        turn.more |= self.lobby.is_stirred();
        (answers, self.lsn)
    }

    /// A completion under a token that holds no lease: said again, or too late. Of what is HELD it is kept.
    fn too_late(
        &mut self,
        speaking: &Speaking<Option<String>>,
        error: RunError,
        now: UnixMs,
        turn: &mut Turn,
    ) -> Result<State, RunError> {
        let number = self.occurrences.number(speaking.occurrence).ok_or(error)?;
        let state = self.occurrences.row(number).ok_or(error)?.state;
        let is_latest = self.runs.of(number).is_some_and(|run| run.token == Some(speaking.token));
        let attempt = self.runs.of(number).and_then(|run| run.attempts.last());
        let is_the_same = attempt.is_some_and(|attempt| {
            attempt.result == Some(AttemptResult::Succeeded) && attempt.result_ref == speaking.said
        });
        if is_latest && state == State::Succeeded && is_the_same {
            return Ok(State::Succeeded);
        }
        self.counters.stale_tokens += 1;
        if is_latest && state == State::Held {
            let result_ref = speaking.said.clone().unwrap_or_default();
            let review = self.runs.of(number).and_then(|run| run.review.as_ref());
            if review.is_none_or(|review| review.late_result.as_ref() != Some(&result_ref)) {
                self.record(Record::LateResult(LateResult { occurrence: number.0, result_ref }), now, turn);
                turn.urge(Urgency::Prompt);
            }
        }
        Err(error)
    }

    /// Workers' attempts failed. Repeated: the same answer.
    pub fn fail(&mut self, failed: &[Speaking<FailedRun>], now: UnixMs, turn: &mut Turn) -> Answers<Outcome> {
        let mut answers = Vec::with_capacity(failed.len());
        for Speaking { occurrence, token, said } in failed {
            answers.push(self.fail_leased(*occurrence, *token, said, now, turn));
        }
        turn.more |= self.lobby.is_stirred();
        (answers, self.lsn)
    }

    fn fail_leased(
        &mut self,
        id: OccurrenceId,
        token: LeaseToken,
        said: &FailedRun,
        now: UnixMs,
        turn: &mut Turn,
    ) -> Result<Outcome, RunError> {
        let failure = Failure::Reported(said.class);
        let number = match self.leased(id, token) {
            Ok(number) => number,
            Err(error) => return self.failed_before(id, token, failure).ok_or(error),
        };
        let run = self.runs.of(number).expect("it is leased");
        if said.class == FailureClass::Canceled && !run.stop_asked {
            return Err(RunError::NotAskedToStop);
        }
        let message = said.message.as_ref().map(|message| message.chars().take(MESSAGE_CHARS).collect());
        self.end_attempt(number, failure, message, now, turn);
        Ok(self.outcome(number))
    }

    /// The same failure was said before under the same token.
    fn failed_before(&mut self, id: OccurrenceId, token: LeaseToken, failure: Failure) -> Option<Outcome> {
        let number = self.occurrences.number(id)?;
        let run = self.runs.of(number).filter(|run| run.token == Some(token));
        let result = run.and_then(|run| run.attempts.last()?.result);
        if result == Some(AttemptResult::Failed(failure)) {
            return Some(self.outcome(number));
        }
        self.counters.stale_tokens += 1;
        None
    }

    fn outcome(&self, number: OccurrenceNo) -> Outcome {
        let state = self.occurrences.row(number).expect("it was just found").state;
        let run = self.runs.of(number).filter(|_| state == State::RetryWait);
        let retry_at = run.and_then(|run| {
            let delay_ms = i64::try_from(run.delay_ms?).unwrap_or(i64::MAX);
            Some(run.attempts.last()?.finished_at?.plus(delay_ms))
        });
        Outcome { state, retry_at }
    }

    /// Leases and back-offs whose end has come, at most a turn's worth.
    pub(super) fn run_lapses(&mut self, now: UnixMs, turn: &mut Turn) {
        for _ in 0..self.config.turn_limit {
            let Some((_, number)) = self.runs.first_lapse().filter(|(at_ms, _)| *at_ms <= self.elapsed_ms) else {
                return;
            };
            match self.occurrences.row(number).map(|row| row.state) {
                Some(State::Running) => self.lapse(number, now, turn),
                Some(State::RetryWait) => self.retry_is_due(number, now, turn),
                _ => self.runs.set_lapse(number, None),
            }
        }
        turn.more |= self.next_lapse_ms().is_some_and(|at_ms| at_ms <= self.elapsed_ms);
    }

    /// A lease is over at its end, whether or not a timer has run.
    pub(super) fn lapse_if_over(&mut self, number: OccurrenceNo, now: UnixMs, turn: &mut Turn) {
        let is_running = self.occurrences.row(number).is_some_and(|row| row.state == State::Running);
        let ends_at_ms = self.runs.of(number).and_then(|run| run.lapses_at_ms);
        if is_running && ends_at_ms.is_some_and(|at_ms| at_ms <= self.elapsed_ms) {
            self.lapse(number, now, turn);
        }
    }

    fn lapse(&mut self, number: OccurrenceNo, now: UnixMs, turn: &mut Turn) {
        let is_orphan = self.runs.of(number).is_some_and(|run| run.is_orphan);
        let failure = if is_orphan { Failure::Restarted } else { Failure::LeaseExpired };
        self.counters.expired += 1;
        self.end_attempt(number, failure, None, now, turn);
    }

    fn retry_is_due(&mut self, number: OccurrenceNo, now: UnixMs, turn: &mut Turn) {
        let row = self.occurrences.row(number).expect("what lapses is in the table");
        if row.holder == Holder::Claimed {
            self.runs.set_lapse(number, Some(self.elapsed_ms.saturating_add(UNHEARD_MS)));
            return;
        }
        let policies = self.policies_of(row.schedule, row.version);
        if self.deadline(number, row, &policies).is_some_and(|deadline| now > deadline) {
            self.die_late(number, now, turn);
            return;
        }
        self.runs.set_lapse(number, None);
        // An entry of this attempt must not be there before the log knows that the one before it failed.
        self.enter_line(number, self.lsn);
    }

    /// An attempt did not succeed: decides what follows, asking for the retry that it may need.
    fn end_attempt(
        &mut self,
        number: OccurrenceNo,
        failure: Failure,
        message: Option<String>,
        now: UnixMs,
        turn: &mut Turn,
    ) {
        let row = self.occurrences.row(number).expect("an attempt has an occurrence");
        let policies = self.policies_of(row.schedule, row.version);
        let run = self.runs.of(number).expect("an attempt has a run");
        let base = now.max(self.log_time);
        let follows = attempt::follows(&Failed {
            failure,
            attempts_made: run.made,
            attempts_allowed: run.allowed,
            effect: policies.effect,
            called_off: run.called_off,
            delay_ms: backoff_ms(row.id, run.made, &policies.retry),
            deadline: self.deadline(number, row, &policies),
            now: base,
        });
        let (schedule, tenant) = (row.schedule, row.tenant);
        let follows = match follows {
            Follows::Retry { .. } if !self.has_retry_left((schedule, tenant), policies.retry.budget, base) => {
                attempt::out_of_budget(policies.effect)
            }
            follows => follows,
        };
        let then = match follows {
            Follows::Retry { delay_ms } => Then::Retry { delay_ms },
            Follows::Dead(death) => Then::Dead(death),
            Follows::Held(reason) => Then::Held(reason),
            Follows::Canceled(_) => Then::Canceled,
        };
        self.count(then);
        self.record(Record::RunFailed(RunFailed { occurrence: number.0, failure, message, then }), now, turn);
        turn.urge(Urgency::Prompt);
        if let Then::Retry { delay_ms } = then {
            self.wait_out(number, delay_ms);
        }
    }

    /// The back-off of a retry begins.
    pub(super) fn wait_out(&mut self, number: OccurrenceNo, delay_ms: u64) {
        let delay_ms = i64::try_from(delay_ms).unwrap_or(i64::MAX);
        self.runs.set_lapse(number, Some(self.elapsed_ms.saturating_add(delay_ms)));
    }

    /// Takes one of the day's retries of a schedule and its tenant, if both have one left.
    fn has_retry_left(&mut self, (schedule, tenant): (u32, u32), budget: Option<u32>, now: UnixMs) -> bool {
        let made = self.schedule(schedule).retries_on(now.0.div_euclid(DAY_MS));
        budget.is_none_or(|budget| made < budget) && self.permits.take_retry(tenant, now)
    }

    const fn count(&mut self, then: Then) {
        let counter = match then {
            Then::Retry { .. } => &mut self.counters.retries,
            Then::Dead(_) => &mut self.counters.dead,
            Then::Held(_) => &mut self.counters.held,
            Then::Canceled => &mut self.counters.canceled,
        };
        *counter += 1;
    }
}
