//! What a schedule's user decides beside its rule: about missed instants, overlapping runs, retries and repeated effects.

use std::fmt;

use bincode::{Decode, Encode};

/// What becomes of a backlog with a member later than `max_lateness`. Everything it admits travels in the catch-up lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub enum Misfire {
    /// Only the members within `max_lateness` run.
    Skip,
    /// The latest member runs.
    #[default]
    FireOnce,
    /// The latest `limit` members run, oldest first.
    CatchUp {
        /// 1 to 1,000.
        limit: u32,
    },
}

impl Misfire {
    /// The largest limit of [`Misfire::CatchUp`].
    pub const MAX_LIMIT: u32 = 1_000;

    /// The word users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Skip => "SKIP",
            Self::FireOnce => "FIRE_ONCE",
            Self::CatchUp { .. } => "CATCH_UP",
        }
    }
}

/// What becomes of an occurrence while another of its schedule runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub enum Overlap {
    /// Both run.
    #[default]
    Allow,
    /// It is skipped.
    SkipIfRunning,
    /// The first waits, later ones are skipped.
    QueueOne,
}

impl Overlap {
    /// The word users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "ALLOW",
            Self::SkipIfRunning => "SKIP_IF_RUNNING",
            Self::QueueOne => "QUEUE_ONE",
        }
    }
}

/// How often and when a failed attempt is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Retry {
    /// Attempts in all, 1 to 1,000,000.
    pub max_attempts: u32,
    /// The back-off before the second attempt is at most this...
    pub base_ms: u64,
    /// ...doubles with each one, and never exceeds this.
    pub cap_ms: u64,
    /// No attempt begins later than this after `available_at`.
    pub deadline_ms: Option<u64>,
    /// At most this many retries of the schedule a UTC day.
    pub budget: Option<u32>,
}

impl Default for Retry {
    fn default() -> Self {
        Self { max_attempts: 5, base_ms: 1_000, cap_ms: 600_000, deadline_ms: None, budget: None }
    }
}

/// Whether running twice does harm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub enum Effect {
    /// Running again does no harm.
    #[default]
    Idempotent,
    /// What may have run is held for a person.
    NonIdempotent,
}

impl Effect {
    /// The word users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idempotent => "idempotent",
            Self::NonIdempotent => "non_idempotent",
        }
    }
}

/// Everything that a schedule's user decided about its occurrences; shared by the schedules that decided alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Policies {
    /// What becomes of missed instants.
    pub misfire: Misfire,
    /// An instant later than this is a misfire.
    pub max_lateness_ms: u64,
    /// What becomes of an occurrence while another runs.
    pub overlap: Overlap,
    /// How failed attempts are repeated.
    pub retry: Retry,
    /// Whether running twice does harm.
    pub effect: Effect,
}

impl fmt::Display for Misfire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CatchUp { limit } => write!(f, "CATCH_UP({limit})"),
            Self::Skip | Self::FireOnce => f.write_str(self.as_str()),
        }
    }
}
