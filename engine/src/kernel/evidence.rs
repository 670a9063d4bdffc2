//! May this occurrence run, as far as anybody can show? Eighteen dimensions of evidence, and a pure decision over them
//! that fails closed: what is missing or contradictory holds the occurrence for a person.
//!
//! It guards the claims of schedules whose effect must not repeat. For the others it is shown and blocks nothing.

use bincode::{Decode, Encode};

use super::{
    id::{OccurrenceId, ScheduleId},
    lease::LeaseToken,
    occurrence::State,
    policy::Misfire,
    time::UnixMs,
};

/// Why an occurrence is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum HoldReason {
    /// Another claim's lease stands.
    ConcurrentLeaseClaim,
    /// The process that ran the last attempt ended; what the attempt did is unknown.
    OutcomeUnknown,
    /// The last attempt's lease ended without a word; what the attempt did is unknown.
    LeaseExpiredOutcomeUnknown,
    /// There is no key under which a repeated effect could be told.
    IdempotencyKeyMissing,
    /// The schedule has made its retries of the day.
    RetryBudgetExhausted,
    /// The schedule's next instant is before its last, or its rule is not known.
    TimelineInconsistent,
    /// It became available outside of its window.
    JitterOutOfWindow,
    /// It is a retry, and how long it was to wait is not known.
    BackoffUnknown,
    /// What becomes of missed instants is not known.
    MissedRunPolicyUnknown,
    /// Nobody is named who decides about what is held.
    ReviewOwnerMissing,
    /// It was admitted late, and nobody has looked at it.
    CatchUpReview,
}

impl HoldReason {
    /// All reasons, in the order in which they are given.
    pub const ALL: [Self; 11] = [
        Self::ConcurrentLeaseClaim,
        Self::OutcomeUnknown,
        Self::LeaseExpiredOutcomeUnknown,
        Self::IdempotencyKeyMissing,
        Self::RetryBudgetExhausted,
        Self::TimelineInconsistent,
        Self::JitterOutOfWindow,
        Self::BackoffUnknown,
        Self::MissedRunPolicyUnknown,
        Self::ReviewOwnerMissing,
        Self::CatchUpReview,
    ];

    /// The word users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ConcurrentLeaseClaim => "concurrent_lease_claim",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::LeaseExpiredOutcomeUnknown => "lease_expired_outcome_unknown",
            Self::IdempotencyKeyMissing => "idempotency_key_missing",
            Self::RetryBudgetExhausted => "retry_budget_exhausted",
            Self::TimelineInconsistent => "timeline_inconsistent",
            Self::JitterOutOfWindow => "jitter_out_of_window",
            Self::BackoffUnknown => "backoff_unknown",
            Self::MissedRunPolicyUnknown => "missed_run_policy_unknown",
            Self::ReviewOwnerMissing => "review_owner_missing",
            Self::CatchUpReview => "catch_up_review",
        }
    }

    /// When it is given, in a sentence: the table of docs/CONTRACT.md.
    #[must_use]
    pub const fn when(self) -> &'static str {
        match self {
            Self::ConcurrentLeaseClaim => "a lease of another claim stands",
            Self::OutcomeUnknown => "the engine restarted under an attempt of its own process, or the state is missing",
            Self::LeaseExpiredOutcomeUnknown => "the last attempt's lease ended without a result",
            Self::IdempotencyKeyMissing => "there is no occurrence id",
            Self::RetryBudgetExhausted => {
                "a first attempt, and the schedule's retries of the day are used up; or not known"
            }
            Self::TimelineInconsistent => {
                "`next_run_at` is not after `last_run_at`, or id, type, expression or (cron) time zone is missing"
            }
            Self::JitterOutOfWindow => "`available_at` is not within the window, or the window is not known",
            Self::BackoffUnknown => "it is a retry without a known back-off, or its number is not known",
            Self::MissedRunPolicyUnknown => "there is no misfire policy",
            Self::ReviewOwnerMissing => "there is no `review_owner`",
            Self::CatchUpReview => "the misfire policy admitted it late",
        }
    }

    const fn holds(self, evidence: &Evidence) -> bool {
        match self {
            Self::ConcurrentLeaseClaim => matches!(evidence.run_state, Some(State::Running)),
            Self::OutcomeUnknown => {
                evidence.run_state.is_none() || matches!(evidence.prior_outcome, PriorOutcome::Restarted)
            }
            Self::LeaseExpiredOutcomeUnknown => matches!(evidence.prior_outcome, PriorOutcome::LeaseExpired),
            Self::IdempotencyKeyMissing => evidence.idempotency_key.is_none(),
            Self::RetryBudgetExhausted => match evidence.retry_budget {
                // A budget of nothing is not used up, and a retry has taken its part of the budget already.
                Some(RetryBudget { limit: Some(limit), used }) => {
                    limit > 0 && used >= limit && matches!(evidence.attempt, None | Some(0 | 1))
                }
                Some(RetryBudget { limit: None, .. }) => false,
                None => true,
            },
            Self::TimelineInconsistent => !evidence.has_consistent_timeline(),
            Self::JitterOutOfWindow => match evidence.jitter_window {
                Some(Jitter { window_ms: 0, offset_ms }) => offset_ms != 0,
                Some(Jitter { window_ms, offset_ms }) => offset_ms < 0 || offset_ms.cast_unsigned() >= window_ms,
                None => true,
            },
            Self::BackoffUnknown => match evidence.attempt {
                Some(0 | 1) => false,
                Some(_) => evidence.backoff_ms.is_none(),
                None => true,
            },
            Self::MissedRunPolicyUnknown => evidence.missed_run_policy.is_none(),
            Self::ReviewOwnerMissing => match &evidence.review_owner {
                Some(owner) => owner.is_empty(),
                None => true,
            },
            Self::CatchUpReview => evidence.is_caught_up,
        }
    }
}

/// What kind of rule a schedule has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleType {
    /// Cron in a zone.
    Cron,
    /// A grid of elapsed time.
    Interval,
    /// One instant.
    OneOff,
}

impl ScheduleType {
    /// The word users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cron => "cron",
            Self::Interval => "interval",
            Self::OneOff => "one_off",
        }
    }
}

/// How far an occurrence was spread, and how far it might have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jitter {
    /// The window; 0 for none.
    pub window_ms: u64,
    /// `available_at` minus `scheduled_for`.
    pub offset_ms: i64,
}

/// How many retries a schedule may make a UTC day, and has made today.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryBudget {
    /// `None`: as many as it likes.
    pub limit: Option<u32>,
    /// So many were made.
    pub used: u32,
}

/// What is known of what the attempts so far did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PriorOutcome {
    /// There was none, or the last one's worker said that it failed.
    #[default]
    NoCommittedResult,
    /// The last one's lease ended without a word.
    LeaseExpired,
    /// The last one's process ended.
    Restarted,
}

/// What is known of one occurrence. `None` is missing, not "none".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// `job_id`: the schedule.
    pub job_id: Option<ScheduleId>,
    /// `schedule_type`.
    pub schedule_type: Option<ScheduleType>,
    /// `schedule_expression`: the rule as it was given.
    pub schedule_expression: Option<String>,
    /// `timezone`: of a cron rule.
    pub timezone: Option<String>,
    /// `last_run_at`: nominal.
    pub last_run_at: Option<UnixMs>,
    /// `next_run_at`: the schedule's next instant without an occurrence.
    pub next_run_at: Option<UnixMs>,
    /// `missed_run_policy`.
    pub missed_run_policy: Option<Misfire>,
    /// `jitter_window`.
    pub jitter_window: Option<Jitter>,
    /// `lease_id`: the last claim's token.
    pub lease_id: Option<LeaseToken>,
    /// `lease_owner`: the last claim's worker.
    pub lease_owner: Option<String>,
    /// `lease_expires_at`: of the last claim.
    pub lease_expires_at: Option<UnixMs>,
    /// `idempotency_key`: the occurrence.
    pub idempotency_key: Option<OccurrenceId>,
    /// `attempt`: the number that the next claim gets; where none is to come, the last.
    pub attempt: Option<u32>,
    /// `retry_budget`.
    pub retry_budget: Option<RetryBudget>,
    /// `backoff_state`: how long the retry had to wait.
    pub backoff_ms: Option<u64>,
    /// `run_state`.
    pub run_state: Option<State>,
    /// `result_ref`: of the last attempt, or of one that was answered too late.
    pub result_ref: Option<String>,
    /// `review_owner`.
    pub review_owner: Option<String>,
    /// What the last attempt did; not a dimension of its own: it follows from the attempts.
    pub prior_outcome: PriorOutcome,
    /// Whether the misfire policy admitted it late; not a dimension of its own: its lane says so.
    pub is_caught_up: bool,
    /// What a person settled: these reasons are not given again.
    pub settled: Vec<HoldReason>,
}

impl Evidence {
    const fn has_consistent_timeline(&self) -> bool {
        let is_known = self.job_id.is_some()
            && self.schedule_expression.is_some()
            && match self.schedule_type {
                Some(ScheduleType::Cron) => self.timezone.is_some(),
                Some(ScheduleType::Interval | ScheduleType::OneOff) => true,
                None => false,
            };
        let is_in_order = match (self.last_run_at, self.next_run_at) {
            (Some(last), Some(next)) => last.0 < next.0,
            _ => true,
        };
        is_known && is_in_order
    }
}

/// What the evidence allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It may run.
    Run,
    /// It was admitted late, a person has looked at it, and it may run.
    RunCatchUp,
    /// It may not, for these reasons.
    Hold(Vec<HoldReason>),
}

impl Decision {
    /// The word users see.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Run => "RUN",
            Self::RunCatchUp => "RUN_CATCH_UP",
            Self::Hold(_) => "HOLD",
        }
    }
}

/// May it run? Every reason that holds and that no person settled is given.
#[must_use]
pub fn decide(evidence: &Evidence) -> Decision {
    let holds = |reason: &HoldReason| reason.holds(evidence) && !evidence.settled.contains(reason);
    let reasons: Vec<HoldReason> = HoldReason::ALL.into_iter().filter(holds).collect();
    match (reasons.is_empty(), evidence.is_caught_up) {
        (true, false) => Decision::Run,
        (true, true) => Decision::RunCatchUp,
        (false, _) => Decision::Hold(reasons),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete() -> Evidence {
        Evidence {
            job_id: Some(ScheduleId([1; 16])),
            schedule_type: Some(ScheduleType::Cron),
            schedule_expression: Some("0 9 * * *".into()),
            timezone: Some("Europe/Berlin".into()),
            last_run_at: Some(UnixMs(1_000)),
            next_run_at: Some(UnixMs(2_000)),
            missed_run_policy: Some(Misfire::Skip),
            jitter_window: Some(Jitter { window_ms: 500, offset_ms: 499 }),
            idempotency_key: Some(OccurrenceId([2; 16])),
            attempt: Some(2),
            retry_budget: Some(RetryBudget { limit: Some(3), used: 2 }),
            backoff_ms: Some(700),
            run_state: Some(State::Enqueued),
            review_owner: Some("ops".into()),
            ..Evidence::default()
        }
    }

    fn without(change: impl FnOnce(&mut Evidence)) -> Vec<HoldReason> {
        let mut evidence = complete();
        change(&mut evidence);
        match decide(&evidence) {
            Decision::Hold(reasons) => reasons,
            Decision::Run | Decision::RunCatchUp => Vec::new(),
        }
    }

    #[test]
    fn complete_evidence_runs_and_each_gap_or_contradiction_has_its_reason() {
        use HoldReason::*;
        assert_eq!(decide(&complete()), Decision::Run);
        assert_eq!(without(|e| e.run_state = Some(State::Running)), [ConcurrentLeaseClaim]);
        assert_eq!(without(|e| e.run_state = None), [OutcomeUnknown]);
        assert_eq!(without(|e| e.prior_outcome = PriorOutcome::Restarted), [OutcomeUnknown]);
        assert_eq!(without(|e| e.prior_outcome = PriorOutcome::LeaseExpired), [LeaseExpiredOutcomeUnknown]);
        assert_eq!(without(|e| e.idempotency_key = None), [IdempotencyKeyMissing]);
        let spent = Some(RetryBudget { limit: Some(3), used: 3 });
        assert_eq!(without(|e| (e.retry_budget, e.attempt) = (spent, Some(1))), [RetryBudgetExhausted]);
        assert_eq!(without(|e| e.retry_budget = spent), [], "a retry has taken its part");
        assert_eq!(without(|e| e.retry_budget = None), [RetryBudgetExhausted]);
        assert_eq!(without(|e| e.next_run_at = Some(UnixMs(1_000))), [TimelineInconsistent], "next before last");
        assert_eq!(without(|e| e.job_id = None), [TimelineInconsistent]);
        assert_eq!(without(|e| e.schedule_type = None), [TimelineInconsistent]);
        assert_eq!(without(|e| e.schedule_expression = None), [TimelineInconsistent]);
        assert_eq!(without(|e| e.timezone = None), [TimelineInconsistent]);
        for offset_ms in [-1, 500, i64::MAX] {
            assert_eq!(without(|e| e.jitter_window = Some(Jitter { window_ms: 500, offset_ms })), [JitterOutOfWindow]);
        }
        assert_eq!(without(|e| e.jitter_window = Some(Jitter { window_ms: 0, offset_ms: 1 })), [JitterOutOfWindow]);
        assert_eq!(without(|e| e.jitter_window = None), [JitterOutOfWindow]);
        assert_eq!(without(|e| e.backoff_ms = None), [BackoffUnknown]);
        assert_eq!(without(|e| e.attempt = None), [BackoffUnknown]);
        assert_eq!(without(|e| e.missed_run_policy = None), [MissedRunPolicyUnknown]);
        assert_eq!(without(|e| e.review_owner = None), [ReviewOwnerMissing]);
        assert_eq!(without(|e| e.review_owner = Some(String::new())), [ReviewOwnerMissing]);
        assert_eq!(without(|e| e.is_caught_up = true), [CatchUpReview]);
    }

    #[test]
    fn nothing_known_gives_every_reason_that_rests_on_knowledge() {
        let Decision::Hold(reasons) = decide(&Evidence::default()) else { panic!("it fails closed") };
        assert_eq!(reasons.len(), 8, "{reasons:?}");
    }

    #[test]
    fn what_a_person_settled_is_not_asked_again_and_nothing_else_is() {
        let mut late = complete();
        (late.is_caught_up, late.settled) = (true, vec![HoldReason::CatchUpReview]);
        assert_eq!(decide(&late), Decision::RunCatchUp);
        late.prior_outcome = PriorOutcome::LeaseExpired;
        assert_eq!(decide(&late), Decision::Hold(vec![HoldReason::LeaseExpiredOutcomeUnknown]));
    }

    #[test]
    fn the_table_in_the_docs_is_the_one_in_the_code() {
        let docs = include_str!("../../../docs/CONTRACT.md");
        let (_, behind) = docs.split_once("<!-- evidence").expect("the table is marked");
        let (table, _) = behind.split_once("<!-- end -->").expect("its end is marked");
        let told: Vec<&str> = table.lines().filter(|line| line.starts_with("| `")).collect();
        let known = HoldReason::ALL.map(|reason| format!("| `{}` | {} |", reason.as_str(), reason.when()));
        assert_eq!(told, known);
    }
}
