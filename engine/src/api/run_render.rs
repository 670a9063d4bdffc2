//! How runs, and what became of them, look to workers and to people.

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde::Serialize;

use super::{
    errors::ApiError,
    render::{Id, Instant, MisfireBody},
};
use crate::{
    engine::{
        ClaimedRun,
        runs::{Beat, Outcome},
    },
    kernel::{
        attempt::{Attempt, AttemptResult, FailureClass},
        evidence::{Decision, Evidence, HoldReason, Jitter, RetryBudget, ScheduleType},
        id::{OccurrenceId, ScheduleId},
        lease::LeaseToken,
        occurrence::State,
    },
};

/// `{runs}`
#[derive(Serialize)]
pub(crate) struct ClaimedBody<'a> {
    runs: Vec<RunBody<'a>>,
}

impl<'a> From<&'a Vec<ClaimedRun>> for ClaimedBody<'a> {
    fn from(runs: &'a Vec<ClaimedRun>) -> Self {
        Self { runs: runs.iter().map(RunBody::from).collect() }
    }
}

/// An attempt that a worker was granted.
#[derive(Serialize)]
pub(crate) struct RunBody<'a> {
    occurrence_id: Id<OccurrenceId>,
    schedule_id: Id<ScheduleId>,
    version: u32,
    tenant: &'a str,
    kind: &'static str,
    scheduled_for: Instant,
    available_at: Instant,
    attempt: u32,
    payload: Option<&'a str>,
    payload_base64: Option<String>,
    lease_token: Id<LeaseToken>,
    lease_expires_at: Instant,
    deadline: Option<Instant>,
}

impl<'a> From<&'a ClaimedRun> for RunBody<'a> {
    fn from(run: &'a ClaimedRun) -> Self {
        let payload = std::str::from_utf8(&run.payload).ok();
        Self {
            occurrence_id: Id(run.occurrence_id),
            schedule_id: Id(run.schedule_id),
            version: run.version,
            tenant: &run.tenant,
            kind: run.kind.as_str(),
            scheduled_for: Instant(run.scheduled_for),
            available_at: Instant(run.available_at),
            attempt: run.attempt,
            payload,
            payload_base64: payload.is_none().then(|| BASE64.encode(&run.payload)),
            lease_token: Id(run.lease_token),
            lease_expires_at: Instant(run.lease_expires_at),
            deadline: run.deadline.map(Instant),
        }
    }
}

/// `{results}`: each what a single call would have answered, or `{error}`.
#[derive(Serialize)]
pub(crate) struct ResultsBody<T> {
    pub(crate) results: Vec<Answered<T>>,
}

/// What is answered about one of several runs.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Answered<T> {
    Told(T),
    Refused(ApiError),
}

/// What a heartbeat answers.
#[derive(Serialize)]
pub(crate) struct BeatBody {
    lease_expires_at: Instant,
    cancel_requested: bool,
}

impl From<Beat> for BeatBody {
    fn from(beat: Beat) -> Self {
        Self { lease_expires_at: Instant(beat.lease_expires_at), cancel_requested: beat.cancel_requested }
    }
}

/// What a completion answers.
#[derive(Serialize)]
pub(crate) struct CompletedBody {
    state: &'static str,
}

impl From<State> for CompletedBody {
    fn from(state: State) -> Self {
        Self { state: state.as_str() }
    }
}

/// What a failure answers.
#[derive(Serialize)]
pub(crate) struct FailedBody {
    state: &'static str,
    retry_at: Option<Instant>,
}

impl From<Outcome> for FailedBody {
    fn from(outcome: Outcome) -> Self {
        Self { state: outcome.state.as_str(), retry_at: outcome.retry_at.map(Instant) }
    }
}

/// One try at an occurrence.
#[derive(Serialize)]
pub(crate) struct AttemptBody<'a> {
    attempt: u32,
    worker: &'a str,
    started_at: Instant,
    finished_at: Option<Instant>,
    lease_expires_at: Instant,
    result: Option<&'static str>,
    class: Option<&'static str>,
    message: Option<&'a str>,
    result_ref: Option<&'a str>,
}

impl<'a> From<&'a Attempt> for AttemptBody<'a> {
    fn from(attempt: &'a Attempt) -> Self {
        Self {
            attempt: attempt.number,
            worker: &attempt.worker,
            started_at: Instant(attempt.started_at),
            finished_at: attempt.finished_at.map(Instant),
            lease_expires_at: Instant(attempt.lease_expires_at),
            result: attempt.result.map(AttemptResult::as_str),
            class: attempt.result.and_then(AttemptResult::class).map(FailureClass::as_str),
            message: attempt.message.as_deref(),
            result_ref: attempt.result_ref.as_deref(),
        }
    }
}

/// `{evidence, decision, reasons}`
#[derive(Serialize)]
pub(crate) struct EvidencedBody<'a> {
    evidence: EvidenceBody<'a>,
    decision: &'static str,
    reasons: Vec<&'static str>,
}

impl<'a> EvidencedBody<'a> {
    pub(crate) fn new(evidence: &'a Evidence, decision: &Decision) -> Self {
        let reasons = match decision {
            Decision::Hold(reasons) => reasons.iter().copied().map(HoldReason::as_str).collect(),
            Decision::Run | Decision::RunCatchUp => Vec::new(),
        };
        Self { evidence: evidence.into(), decision: decision.as_str(), reasons }
    }
}

/// The dimensions of the evidence: `null` is what is not known, or does not apply.
#[derive(Serialize)]
struct EvidenceBody<'a> {
    job_id: Option<Id<ScheduleId>>,
    schedule_type: Option<&'static str>,
    schedule_expression: Option<&'a str>,
    timezone: Option<&'a str>,
    last_run_at: Option<Instant>,
    next_run_at: Option<Instant>,
    missed_run_policy: Option<MisfireBody>,
    jitter_window: Option<JitterBody>,
    lease_id: Option<Id<LeaseToken>>,
    lease_owner: Option<&'a str>,
    lease_expires_at: Option<Instant>,
    idempotency_key: Option<Id<OccurrenceId>>,
    attempt: Option<u32>,
    retry_budget: Option<RetryBudgetBody>,
    backoff_state: Option<BackoffBody>,
    run_state: Option<&'static str>,
    result_ref: Option<&'a str>,
    review_owner: Option<&'a str>,
}

#[derive(Serialize)]
struct JitterBody {
    window_ms: u64,
    offset_ms: i64,
}

#[derive(Serialize)]
struct RetryBudgetBody {
    limit: Option<u32>,
    used: u32,
}

#[derive(Serialize)]
struct BackoffBody {
    delay_ms: u64,
}

impl<'a> From<&'a Evidence> for EvidenceBody<'a> {
    fn from(evidence: &'a Evidence) -> Self {
        let jitter = |Jitter { window_ms, offset_ms }| JitterBody { window_ms, offset_ms };
        let budget = |RetryBudget { limit, used }| RetryBudgetBody { limit, used };
        Self {
            job_id: evidence.job_id.map(Id),
            schedule_type: evidence.schedule_type.map(ScheduleType::as_str),
            schedule_expression: evidence.schedule_expression.as_deref(),
            timezone: evidence.timezone.as_deref(),
            last_run_at: evidence.last_run_at.map(Instant),
            next_run_at: evidence.next_run_at.map(Instant),
            missed_run_policy: evidence.missed_run_policy.map(MisfireBody::of),
            jitter_window: evidence.jitter_window.map(jitter),
            lease_id: evidence.lease_id.map(Id),
            lease_owner: evidence.lease_owner.as_deref(),
            lease_expires_at: evidence.lease_expires_at.map(Instant),
            idempotency_key: evidence.idempotency_key.map(Id),
            attempt: evidence.attempt,
            retry_budget: evidence.retry_budget.map(budget),
            backoff_state: evidence.backoff_ms.map(|delay_ms| BackoffBody { delay_ms }),
            run_state: evidence.run_state.map(State::as_str),
            result_ref: evidence.result_ref.as_deref(),
            review_owner: evidence.review_owner.as_deref(),
        }
    }
}

#[cfg(test)]
#[path = "run_render_tests.rs"]
mod tests;
