//! A schedule describes the future: whose it is, where it goes, by which rule, under which policies; and what a call
//! changed of it.

use bincode::{Decode, Encode};

use super::{
    calendar::{Basis, CronSpec, Gap, LocalFold},
    id::{Kind, OccurrenceId, ScheduleId},
    occurrence::Reason,
    policy::{Effect, Misfire, Overlap, Retry},
    time::UnixMs,
};

/// When a schedule fires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A cron expression in an IANA zone.
    Cron(CronSpec),
    /// Elapsed time, unaffected by zones and restarts: the grid `anchor + n * every_ms`, or so long after the last run.
    Every {
        /// 1 s to 366 days.
        every_ms: i64,
        /// An instant of the grid; `None` only before the schedule is made: the time of its creation. What follows its
        /// runs is first due `every_ms` after it.
        anchor: Option<UnixMs>,
        /// What `every_ms` counts from.
        basis: Basis,
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
    /// What becomes of missed instants.
    pub misfire: Misfire,
    /// What becomes of an occurrence while another runs.
    pub overlap: Overlap,
    /// How failed attempts are repeated.
    pub retry: Retry,
    /// Whether running twice does harm.
    pub effect: Effect,
    /// Who decides about what is held.
    pub review_owner: Option<String>,
}

impl Spec {
    /// A schedule of which only tenant and rule were said.
    #[must_use]
    pub fn new(tenant: impl Into<String>, rule: Rule) -> Self {
        Self {
            tenant: tenant.into(),
            queue: "default".into(),
            name: None,
            rule,
            at_local: None,
            start_at: None,
            end_at: None,
            payload: Vec::new(),
            flexible_window_ms: 0,
            max_lateness_ms: 60_000,
            misfire: Misfire::default(),
            overlap: Overlap::default(),
            retry: Retry::default(),
            effect: Effect::default(),
            review_owner: None,
        }
    }
}

impl Rule {
    /// Whether both are of one kind: what was decided for one kind of rule does not silently hold for another.
    #[must_use]
    pub const fn is_same_kind(&self, other: &Self) -> bool {
        matches!(
            (self, other),
            (Self::Cron(_), Self::Cron(_)) | (Self::Every { .. }, Self::Every { .. }) | (Self::At(_), Self::At(_))
        )
    }
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

/// What a schedule is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScheduleState {
    /// It has a future, or an occurrence that has not entered its queue.
    Active,
    /// Nothing of it is decided until it is resumed.
    Paused,
    /// No future instant, and nothing left to enqueue.
    Completed,
    /// DELETE ended it; its history stays.
    Canceled,
}

impl ScheduleState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Active, Self::Paused, Self::Completed, Self::Canceled];

    /// Its place in [`ScheduleState::ALL`].
    #[must_use]
    pub const fn place(self) -> usize {
        self as usize
    }

    /// The word users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Paused => "paused",
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
    /// The schedule's own instants, or a backfill's.
    pub kind: Kind,
    /// Why.
    pub disposition: RangeDisposition,
    /// The first instant.
    pub first: UnixMs,
    /// The last instant.
    pub last: UnixMs,
    /// How many.
    pub count: u64,
}

/// What became of a range of instants that never got an occurrence each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum RangeDisposition {
    /// The misfire policy did not admit them.
    Missed,
    /// A user's call reached them before they were materialised.
    Canceled(Reason),
}
