//! Placeholder of the calendar's types.

/// A cron rule as a user wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CronSpec {
    /// The expression.
    pub expr: String,
    /// The IANA zone.
    pub zone: String,
    /// What happens to a wall time that comes twice.
    pub fold: FoldChoice,
    /// What happens to a wall time that does not exist.
    pub gap: Gap,
    /// How the two day fields combine.
    pub day_match: DayMatch,
}

/// What happens to a wall time that comes twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FoldChoice {
    /// Both for a cadence, once for an appointment.
    #[default]
    Auto,
    /// Only the first.
    Once,
    /// Both.
    Both,
}

/// What happens to a wall time that does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Gap {
    /// It is skipped.
    #[default]
    Skip,
    /// It fires at the first instant after the gap.
    Shift,
}

/// How the two day fields combine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DayMatch {
    /// Either.
    #[default]
    Or,
    /// Both.
    And,
}

/// Placeholder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CalendarError;
