//! What a call says of a schedule: everything may be left out. A create puts it onto the defaults, an update onto the
//! schedule as it stands, and a repeated create compares it with that.

use std::time::Duration;

use super::{
    calendar::{Basis, CronError, CronRule, CronSpec, DayMatch, FoldChoice, Gap, LocalFold},
    policy::{Effect, Misfire, Overlap, Retry},
    schedule::{AtLocal, Rule},
    time::UnixMs,
};

/// A rule as it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewRule {
    /// Cron in a zone.
    Cron(NewCron),
    /// An interval; `anchor` defaults to the one the schedule has, else to `start_at`, else to the time of creation.
    Every {
        /// 1 s to 366 days.
        every: Duration,
        /// An instant of the grid.
        anchor: Option<UnixMs>,
        /// What it counts from. Default [`Basis::Slot`].
        basis: Option<Basis>,
    },
    /// One instant.
    At(UnixMs),
    /// One wall time.
    AtLocal {
        /// `2026-11-01T01:30:00`.
        local: String,
        /// The IANA zone.
        zone: String,
        /// Which reading of a repeated wall time is meant.
        fold: Option<LocalFold>,
        /// What to do about a missing wall time.
        gap: Option<Gap>,
    },
}

/// A cron rule as it is asked for; what is left out has its default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCron {
    /// 5 or 6 fields, or a nickname.
    pub expr: String,
    /// A zone name of the loaded release.
    pub zone: String,
    /// For wall times that happen twice.
    pub fold: Option<FoldChoice>,
    /// For wall times that do not happen.
    pub gap: Option<Gap>,
    /// For rules that restrict both day fields.
    pub day_match: Option<DayMatch>,
}

impl NewCron {
    /// The rule, with defaults where nothing is said.
    #[must_use]
    pub fn spec(&self) -> CronSpec {
        CronSpec {
            expr: self.expr.clone(),
            zone: self.zone.clone(),
            fold: self.fold.unwrap_or_default(),
            gap: self.gap.unwrap_or_default(),
            day_match: self.day_match.unwrap_or_default(),
        }
    }
}

/// Everything is said.
impl From<CronSpec> for NewRule {
    fn from(spec: CronSpec) -> Self {
        let CronSpec { expr, zone, fold, gap, day_match } = spec;
        Self::Cron(NewCron { expr, zone, fold: Some(fold), gap: Some(gap), day_match: Some(day_match) })
    }
}

impl NewRule {
    /// The same, with what it leaves out as it stands in `rule`, if that is the same but for it.
    #[must_use]
    pub fn completed_by(&self, rule: &Rule, at_local: Option<&AtLocal>) -> Self {
        match (self, rule, at_local) {
            (Self::Cron(new), Rule::Cron(known), _) if (&new.expr, &new.zone) == (&known.expr, &known.zone) => {
                Self::Cron(NewCron {
                    fold: new.fold.or(Some(known.fold)),
                    gap: new.gap.or(Some(known.gap)),
                    day_match: new.day_match.or(Some(known.day_match)),
                    ..new.clone()
                })
            }
            (Self::Every { every, anchor, basis }, Rule::Every { every_ms, basis: known, .. }, _)
                if every.as_millis() == u128::from(every_ms.unsigned_abs()) =>
            {
                Self::Every { every: *every, anchor: *anchor, basis: basis.or(Some(*known)) }
            }
            (Self::AtLocal { local, zone, fold, gap }, _, Some(known))
                if (local, zone) == (&known.local, &known.zone) =>
            {
                Self::AtLocal {
                    local: local.clone(),
                    zone: zone.clone(),
                    fold: fold.or(known.fold),
                    gap: gap.or(known.gap),
                }
            }
            _ => self.clone(),
        }
    }
}

/// What is said of a schedule; `None` is what is left as it is. Where a value may itself be absent, `Some(None)` says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Where its occurrences go. A new schedule's is `default`.
    pub queue: Option<String>,
    /// For people. A new schedule has none.
    pub name: Option<Option<String>>,
    /// When it fires; replaced as a whole.
    pub rule: Option<NewRule>,
    /// Instants before this are not the schedule's. A new schedule has no such bound.
    pub start_at: Option<Option<UnixMs>>,
    /// Instants from this on are not the schedule's. A new schedule has no such bound.
    pub end_at: Option<Option<UnixMs>>,
    /// Opaque bytes for the handler, at most 64 KiB. A new schedule's are none.
    pub payload: Option<Vec<u8>>,
    /// What becomes of missed instants. A new schedule's is [`Misfire::FireOnce`].
    pub misfire: Option<MisfireChange>,
    /// An instant later than this when it could enter the queue is a misfire. A new schedule's is 60 s.
    pub max_lateness: Option<Duration>,
    /// What becomes of an occurrence while another runs. A new schedule's is [`Overlap::Allow`].
    pub overlap: Option<Overlap>,
    /// Spreads `available_at` over this long after each instant, at most 24 h. A new schedule has none.
    pub flexible_window: Option<Option<Duration>>,
    /// How failed attempts are repeated. A new schedule's is [`Retry::default`].
    pub retry: Option<RetryChanges>,
    /// Whether running twice does harm. A new schedule's is [`Effect::Idempotent`].
    pub effect: Option<Effect>,
    /// Who decides about what is held. A new schedule has none.
    pub review_owner: Option<Option<String>>,
}

/// What is said of the misfire policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MisfireChange {
    /// This policy.
    Policy(Misfire),
    /// The policy stays `CATCH_UP` and admits this many.
    Limit(u32),
}

/// What is said of retries, field by field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryChanges {
    /// Attempts in all.
    pub max_attempts: Option<u32>,
    /// The largest back-off before the second attempt.
    pub base: Option<Duration>,
    /// The largest back-off of all.
    pub cap: Option<Duration>,
    /// No attempt begins later than this after `available_at`.
    pub deadline: Option<Option<Duration>>,
    /// At most this many retries of the schedule a UTC day.
    pub budget: Option<Option<u32>>,
}

impl RetryChanges {
    /// Every field back to its default.
    #[must_use]
    pub const fn reset() -> Self {
        let default = Retry { max_attempts: 5, base_ms: 1_000, cap_ms: 600_000, deadline_ms: None, budget: None };
        Self {
            max_attempts: Some(default.max_attempts),
            base: Some(Duration::from_millis(default.base_ms)),
            cap: Some(Duration::from_millis(default.cap_ms)),
            deadline: Some(None),
            budget: Some(None),
        }
    }
}

/// A schedule to be made: whose it is, when it fires, and whatever is not to have its default.
#[derive(Clone, Debug)]
pub struct NewSchedule {
    /// Whose it is. Default `default`.
    pub tenant: String,
    /// When it fires.
    pub rule: NewRule,
    /// Everything else; a rule in here is ignored.
    pub rest: Changes,
}

impl NewSchedule {
    /// A schedule with this rule and every default.
    #[must_use]
    pub fn new(rule: NewRule) -> Self {
        Self { tenant: "default".into(), rule, rest: Changes::default() }
    }

    /// Fires when `expr` (5 fields, or 6 with seconds first) matches the wall clock of `zone`.
    ///
    /// # Errors
    /// An expression that is not cron, naming field, value and remedy. The zone is checked when the schedule is made.
    pub fn cron(expr: &str, zone: &str) -> Result<Self, CronError> {
        CronRule::check(expr)?;
        Ok(Self::new(CronSpec::new(expr, zone).into()))
    }

    /// Fires every `every` of elapsed time, counted from its creation.
    #[must_use]
    pub fn every(every: Duration) -> Self {
        Self::new(NewRule::Every { every, anchor: None, basis: None })
    }

    /// What an interval counts from: its grid, or its runs' ends or first claims (on tracked queues alone). Other rules
    /// count from nothing and stay as they are.
    #[must_use]
    pub fn basis(mut self, counts_from: Basis) -> Self {
        if let NewRule::Every { basis, .. } = &mut self.rule {
            *basis = Some(counts_from);
        }
        self
    }

    /// Fires once.
    #[must_use]
    pub fn at(at: UnixMs) -> Self {
        Self::new(NewRule::At(at))
    }

    /// Whose it is.
    #[must_use]
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = tenant.into();
        self
    }

    /// Where its occurrences go.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.rest.queue = Some(queue.into());
        self
    }

    /// A name for people.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.rest.name = Some(Some(name.into()));
        self
    }

    /// Opaque bytes for the handler.
    #[must_use]
    pub fn payload(mut self, payload: impl Into<Vec<u8>>) -> Self {
        self.rest.payload = Some(payload.into());
        self
    }

    /// Instants before `at` are not the schedule's.
    #[must_use]
    pub fn start_at(mut self, at: UnixMs) -> Self {
        self.rest.start_at = Some(Some(at));
        self
    }

    /// Instants from `at` on are not the schedule's.
    #[must_use]
    pub fn end_at(mut self, at: UnixMs) -> Self {
        self.rest.end_at = Some(Some(at));
        self
    }

    /// Spreads `available_at` over `window` after each instant.
    #[must_use]
    pub fn flexible_window(mut self, window: Duration) -> Self {
        self.rest.flexible_window = Some(Some(window));
        self
    }

    /// What becomes of missed instants.
    #[must_use]
    pub fn misfire(mut self, misfire: Misfire) -> Self {
        self.rest.misfire = Some(MisfireChange::Policy(misfire));
        self
    }

    /// An instant later than this is a misfire.
    #[must_use]
    pub fn max_lateness(mut self, lateness: Duration) -> Self {
        self.rest.max_lateness = Some(lateness);
        self
    }

    /// What becomes of an occurrence while another of the schedule runs.
    #[must_use]
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.rest.overlap = Some(overlap);
        self
    }

    /// How failed attempts are repeated.
    #[must_use]
    pub fn retry(mut self, retry: RetryChanges) -> Self {
        self.rest.retry = Some(retry);
        self
    }

    /// Running twice does harm: what nobody can say to be safe is HELD until `review_owner` has decided. The misfire
    /// policy has to be said too.
    #[must_use]
    pub fn non_idempotent(mut self, review_owner: impl Into<String>) -> Self {
        self.rest.effect = Some(Effect::NonIdempotent);
        self.rest.review_owner = Some(Some(review_owner.into()));
        self
    }
}
