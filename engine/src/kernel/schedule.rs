//! A schedule describes the future: whose it is, where it goes, by which rule, under which policies.

use std::time::Duration;

use super::{
    calendar::{CronError, CronRule, CronSpec, Gap, LocalFold},
    id::{OccurrenceId, ScheduleId},
    time::UnixMs,
};

/// When a schedule fires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A cron expression in an IANA zone.
    Cron(CronSpec),
    /// Elapsed time on the grid `anchor + n * every_ms`, unaffected by zones and restarts.
    Every {
        /// 1 s to 366 days.
        every_ms: i64,
        /// An instant of the grid; `None` only before the schedule is made: the time of its creation.
        anchor: Option<UnixMs>,
    },
    /// One instant.
    At(UnixMs),
}

/// A schedule as its user described it, every default resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Whose it is.
    pub tenant: String,
    /// The name of the handler that its occurrences go to.
    pub queue: String,
    /// For people.
    pub name: Option<String>,
    /// When it fires.
    pub rule: Rule,
    /// The wall time and zone that an `at` was given as, kept for showing: `2026-11-01T01:30:00`, `Europe/Berlin`.
    pub at_local: Option<AtLocal>,
    /// Instants before this are not the schedule's.
    pub start_at: Option<UnixMs>,
    /// Instants from this on are not the schedule's.
    pub end_at: Option<UnixMs>,
    /// Opaque bytes for the handler, at most 64 KiB.
    pub payload: Vec<u8>,
    /// Spreads `available_at` over this many milliseconds after `scheduled_for`; 0 for none.
    pub flexible_window_ms: u64,
    /// An instant later than this when it could enter the queue is a misfire.
    pub max_lateness_ms: u64,
}

/// A one-off's wall time as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtLocal {
    /// `2026-11-01T01:30:00`.
    pub local: String,
    /// The IANA zone.
    pub zone: String,
    /// Which reading of a repeated wall time was meant, where that was said.
    pub fold: Option<LocalFold>,
    /// What to do about a missing wall time, where that was said.
    pub gap: Option<Gap>,
}

/// A schedule to be made. Everything but tenant, queue and rule has a default.
#[derive(Clone, Debug)]
pub struct NewSchedule {
    /// Whose it is. Default `default`.
    pub tenant: String,
    /// Where its occurrences go. Default `default`.
    pub queue: String,
    /// For people. Default none.
    pub name: Option<String>,
    /// When it fires.
    pub rule: NewRule,
    /// Instants before this are not the schedule's. Default none.
    pub start_at: Option<UnixMs>,
    /// Instants from this on are not the schedule's. Default none.
    pub end_at: Option<UnixMs>,
    /// Opaque bytes for the handler, at most 64 KiB. Default empty.
    pub payload: Vec<u8>,
    /// Spreads `available_at` over this long after each instant, at most 24 h. Default none.
    pub flexible_window: Option<Duration>,
    /// An instant later than this when it could enter the queue is a misfire. Default 60 s.
    pub max_lateness: Duration,
}

/// A rule as it is asked for.
#[derive(Clone, Debug)]
pub enum NewRule {
    /// Cron in a zone.
    Cron(CronSpec),
    /// A grid; `anchor` defaults to `start_at`, else to the time of creation.
    Every {
        /// 1 s to 366 days.
        every: Duration,
        /// An instant of the grid.
        anchor: Option<UnixMs>,
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

impl NewSchedule {
    /// A schedule with this rule and every default.
    #[must_use]
    pub fn new(rule: NewRule) -> Self {
        Self {
            tenant: "default".into(),
            queue: "default".into(),
            name: None,
            rule,
            start_at: None,
            end_at: None,
            payload: Vec::new(),
            flexible_window: None,
            max_lateness: Duration::from_secs(60),
        }
    }

    /// Fires when `expr` (5 fields, or 6 with seconds first) matches the wall clock of `zone`.
    ///
    /// # Errors
    /// An expression that is not cron, naming field, value and remedy. The zone is checked when the schedule is made.
    pub fn cron(expr: &str, zone: &str) -> Result<Self, CronError> {
        CronRule::check(expr)?;
        Ok(Self::new(NewRule::Cron(CronSpec::new(expr, zone))))
    }

    /// Fires every `every` of elapsed time, counted from its creation.
    #[must_use]
    pub fn every(every: Duration) -> Self {
        Self::new(NewRule::Every { every, anchor: None })
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
        self.queue = queue.into();
        self
    }

    /// Opaque bytes for the handler.
    #[must_use]
    pub fn payload(mut self, payload: impl Into<Vec<u8>>) -> Self {
        self.payload = payload.into();
        self
    }

    /// Spreads `available_at` over `window` after each instant.
    #[must_use]
    pub fn flexible_window(mut self, window: Duration) -> Self {
        self.flexible_window = Some(window);
        self
    }
}

/// What a schedule is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScheduleState {
    /// It has a future, or an occurrence that has not entered its queue.
    Active,
    /// No future instant, and nothing left to enqueue.
    Completed,
    /// DELETE ended it; its history stays.
    Canceled,
}

impl ScheduleState {
    /// The word users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Completed => "completed",
            Self::Canceled => "canceled",
        }
    }
}

/// A schedule as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Its id.
    pub id: ScheduleId,
    /// Grows with each change.
    pub version: u32,
    /// What it is doing.
    pub state: ScheduleState,
    /// As resolved at creation.
    pub spec: Spec,
    /// When it was created.
    pub created_at: UnixMs,
    /// When it last changed.
    pub updated_at: UnixMs,
    /// The largest `scheduled_for` of a regular occurrence that was enqueued.
    pub last_run_at: Option<UnixMs>,
    /// The earliest instant not yet enqueued.
    pub next_run_at: Option<UnixMs>,
    /// The next instants, at most five, earliest first.
    pub next: Vec<UnixMs>,
    /// Now minus the earliest `available_at` neither enqueued nor disposed of, else 0.
    pub overdue_ms: u64,
    /// Why nothing of it can be decided (its zone or expression is not in the loaded rules), if so.
    pub error: Option<String>,
}

/// What a call changed of a schedule's occurrences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// The version after the call.
    pub version: u32,
    /// Occurrences that will not run any more, at most 1,000.
    pub canceled: Vec<OccurrenceId>,
    /// Occurrences that could no longer be reached, at most 1,000.
    pub kept: Vec<OccurrenceId>,
    /// Occurrences that run and were asked to stop.
    pub cancel_requested: Vec<OccurrenceId>,
    /// Instants disposed of as a range.
    pub ranges: Vec<InstantRange>,
    /// How many ids were left off the lists above.
    pub truncated: u64,
}

/// Instants of a rule that were disposed of together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstantRange {
    /// Why.
    pub disposition: RangeDisposition,
    /// The first instant.
    pub first: UnixMs,
    /// The last instant.
    pub last: UnixMs,
    /// How many, once counted.
    pub count: Option<u64>,
}

/// What became of a range of instants that never got an occurrence each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeDisposition {
    /// The misfire policy did not admit them.
    Missed,
    /// They were due and not materialised when the schedule was canceled.
    Canceled,
}
