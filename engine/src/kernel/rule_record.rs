//! What the log remembers of when a schedule fires.

use bincode::{Decode, Encode};

/// When a schedule fires, as the log keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum RuleBody {
    /// The original expression and zone, with every option resolved.
    Cron {
        /// The expression as it was given.
        expr: String,
        /// The zone as it was given.
        zone: String,
        /// Whether a wall time that comes twice fires twice.
        fold_both: bool,
        /// Whether a wall time that does not exist fires at the gap's end.
        gap_shift: bool,
        /// Whether both day fields must match.
        day_and: bool,
    },
    /// A grid of elapsed time.
    Every {
        /// The distance.
        every_ms: i64,
        /// An instant of the grid.
        anchor_ms: i64,
    },
    /// One instant.
    At {
        /// The instant.
        at_ms: i64,
        /// How the user gave it, where that was a wall time.
        local: Option<LocalBody>,
    },
    /// Elapsed time since the last run.
    After {
        /// How long after it.
        every_ms: i64,
        /// What the first one counts from.
        anchor_ms: i64,
        /// Whether a run counts from its first claim; otherwise from its end.
        from_start: bool,
    },
}

/// A wall time as a user gave it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct LocalBody {
    /// `2026-11-01T01:30:00`.
    pub local: String,
    /// The zone.
    pub zone: String,
    /// Where a fold was named: whether the second pass was meant.
    pub second: Option<bool>,
    /// Whether `shift` was given.
    pub shift: bool,
}
