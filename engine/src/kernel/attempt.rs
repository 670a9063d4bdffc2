//! One try at running an occurrence: who made it, how it ended, and what follows when it failed.

use std::sync::Arc;

use bincode::{Decode, Encode};

use super::{evidence::HoldReason, occurrence::Reason, policy::Effect, time::UnixMs};

/// An attempt as readers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// From 1; numbers go on after a replay.
    pub number: u32,
    /// As it named itself at the claim.
    pub worker: Arc<str>,
    /// When it was claimed.
    pub started_at: UnixMs,
    /// When it ended; `None` while it runs.
    pub finished_at: Option<UnixMs>,
    /// When the lease ends, or would have ended without a heartbeat that came after the last restart.
    pub lease_expires_at: UnixMs,
    /// How it ended.
    pub result: Option<AttemptResult>,
    /// What the worker, or the lease's end, said of it.
    pub message: Option<String>,
    /// Where the worker put its result.
    pub result_ref: Option<String>,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum AttemptResult {
    /// The worker completed it.
    Succeeded,
    /// It did not succeed.
    Failed(Failure),
}

impl AttemptResult {
    /// The word users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed(Failure::Reported(_)) => "failed",
            Self::Failed(Failure::LeaseExpired) => "lease_expired",
            Self::Failed(Failure::Restarted) => "restarted",
        }
    }

    /// What the worker said of its failure, where it said anything.
    #[must_use]
    pub const fn class(self) -> Option<FailureClass> {
        match self {
            Self::Failed(Failure::Reported(class)) => Some(class),
            Self::Succeeded | Self::Failed(Failure::LeaseExpired | Failure::Restarted) => None,
        }
    }
}

/// What a worker says of a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum FailureClass {
    /// Trying again is of no use.
    Permanent,
    /// Another attempt may succeed.
    Transient,
    /// It stopped because it was asked to.
    Canceled,
}

impl FailureClass {
    /// All classes.
    pub const ALL: [Self; 3] = [Self::Permanent, Self::Transient, Self::Canceled];

    /// The word users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Permanent => "permanent",
            Self::Transient => "transient",
            Self::Canceled => "canceled",
        }
    }
}

/// Why an attempt did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum Failure {
    /// The worker said so.
    Reported(FailureClass),
    /// The worker was silent until its lease ended: what it did is unknown.
    LeaseExpired,
    /// It ran in the engine's own process, which ended: what it did is unknown.
    Restarted,
}

/// Why an occurrence is DEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum Death {
    /// No attempt may begin any more.
    Deadline,
    /// A worker said that trying again is of no use.
    Permanent,
    /// Every attempt that was allowed was made.
    MaxAttempts,
    /// The schedule or its tenant has made its retries of the day.
    RetryBudgetExhausted,
    /// A person decided so.
    Resolved,
}

impl Death {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Deadline, Self::Permanent, Self::MaxAttempts, Self::RetryBudgetExhausted, Self::Resolved];

    /// The word users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::Permanent => "permanent",
            Self::MaxAttempts => "max_attempts",
            Self::RetryBudgetExhausted => "retry_budget_exhausted",
            Self::Resolved => "resolved",
        }
    }
}

/// What a person decides about a HELD occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum Resolution {
    /// Nothing was committed: it runs once more.
    Retry,
    /// It did succeed.
    Succeeded,
    /// It did not, and is not to run again.
    Dead,
}

impl Resolution {
    /// All decisions.
    pub const ALL: [Self; 3] = [Self::Retry, Self::Succeeded, Self::Dead];

    /// The word users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Succeeded => "succeeded",
            Self::Dead => "dead",
        }
    }
}

/// What matters of an attempt that did not succeed.
#[derive(Clone, Copy, Debug)]
pub struct Failed {
    /// Why it did not.
    pub failure: Failure,
    /// How many attempts were made, this one counted.
    pub attempts_made: u32,
    /// How many are allowed in all.
    pub attempts_allowed: u32,
    /// Whether running twice does harm.
    pub effect: Effect,
    /// Why it was called off while it ran, if it was.
    pub called_off: Option<Reason>,
    /// What the next attempt would wait for.
    pub delay_ms: u64,
    /// No attempt begins later than this.
    pub deadline: Option<UnixMs>,
    /// Now.
    pub now: UnixMs,
}

/// What follows a failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Follows {
    /// Another attempt after a while, if the retry budgets allow one.
    Retry {
        /// After this long.
        delay_ms: u64,
    },
    /// None.
    Dead(Death),
    /// A person decides.
    Held(HoldReason),
    /// It was called off.
    Canceled(Reason),
}

/// What follows a failed attempt: the order of the questions is the contract's.
#[must_use]
pub fn follows(failed: &Failed) -> Follows {
    let unknown = match failed.failure {
        Failure::Reported(_) => None,
        Failure::LeaseExpired => Some(HoldReason::LeaseExpiredOutcomeUnknown),
        Failure::Restarted => Some(HoldReason::OutcomeUnknown),
    };
    match (unknown, failed.called_off, failed.failure) {
        (Some(hold), _, _) if failed.effect == Effect::NonIdempotent => Follows::Held(hold),
        (_, Some(reason), _) => Follows::Canceled(reason),
        (_, None, Failure::Reported(FailureClass::Canceled)) => Follows::Canceled(Reason::Canceled),
        (_, None, Failure::Reported(FailureClass::Permanent)) => Follows::Dead(Death::Permanent),
        (_, None, Failure::Reported(FailureClass::Transient) | Failure::LeaseExpired | Failure::Restarted) => {
            again(failed)
        }
    }
}

fn again(failed: &Failed) -> Follows {
    let next_at = failed.now.plus(i64::try_from(failed.delay_ms).unwrap_or(i64::MAX));
    if failed.attempts_made >= failed.attempts_allowed {
        Follows::Dead(Death::MaxAttempts)
    } else if failed.deadline.is_some_and(|deadline| next_at > deadline) {
        Follows::Dead(Death::Deadline)
    } else {
        Follows::Retry { delay_ms: failed.delay_ms }
    }
}

/// What follows instead of a retry when a budget is used up.
#[must_use]
pub const fn out_of_budget(effect: Effect) -> Follows {
    match effect {
        Effect::Idempotent => Follows::Dead(Death::RetryBudgetExhausted),
        Effect::NonIdempotent => Follows::Held(HoldReason::RetryBudgetExhausted),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Failure::{LeaseExpired, Reported, Restarted},
        FailureClass::{Canceled, Permanent, Transient},
        *,
    };

    fn after(failure: Failure, change: impl FnOnce(&mut Failed)) -> Follows {
        let mut failed = Failed {
            failure,
            attempts_made: 2,
            attempts_allowed: 5,
            effect: Effect::Idempotent,
            called_off: None,
            delay_ms: 100,
            deadline: Some(UnixMs(1_100)),
            now: UnixMs(1_000),
        };
        change(&mut failed);
        follows(&failed)
    }

    #[test]
    fn what_follows_a_failure_is_a_table() {
        let again = Follows::Retry { delay_ms: 100 };
        for (failure, follows) in [
            (Reported(Transient), again.clone()),
            (LeaseExpired, again.clone()),
            (Restarted, again),
            (Reported(Permanent), Follows::Dead(Death::Permanent)),
            (Reported(Canceled), Follows::Canceled(Reason::Canceled)),
        ] {
            assert_eq!(after(failure, |_| ()), follows, "{failure:?}");
        }
        let spent = after(Reported(Transient), |failed| failed.attempts_made = 5);
        assert_eq!(spent, Follows::Dead(Death::MaxAttempts));
        let late = after(LeaseExpired, |failed| failed.delay_ms = 101);
        assert_eq!(late, Follows::Dead(Death::Deadline), "it would begin a millisecond too late");
    }

    #[test]
    fn what_was_called_off_is_not_tried_again() {
        for failure in [Reported(Transient), Reported(Permanent), Reported(Canceled), LeaseExpired, Restarted] {
            let follows = after(failure, |failed| failed.called_off = Some(Reason::Superseded));
            assert_eq!(follows, Follows::Canceled(Reason::Superseded), "{failure:?}");
        }
    }

    #[test]
    fn an_unknown_outcome_that_must_not_repeat_is_held_whatever_else_is_so() {
        let held = |failure, called_off| {
            after(failure, |failed| {
                (failed.effect, failed.called_off) = (Effect::NonIdempotent, called_off);
                failed.attempts_made = 5;
            })
        };
        for called_off in [None, Some(Reason::Canceled)] {
            assert_eq!(held(LeaseExpired, called_off), Follows::Held(HoldReason::LeaseExpiredOutcomeUnknown));
            assert_eq!(held(Restarted, called_off), Follows::Held(HoldReason::OutcomeUnknown));
        }
        assert_eq!(held(Reported(Permanent), None), Follows::Dead(Death::Permanent), "the worker knows the outcome");
        assert_eq!(out_of_budget(Effect::NonIdempotent), Follows::Held(HoldReason::RetryBudgetExhausted));
        assert_eq!(out_of_budget(Effect::Idempotent), Follows::Dead(Death::RetryBudgetExhausted));
    }
}
