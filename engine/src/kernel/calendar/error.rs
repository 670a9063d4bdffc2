//! Why a rule, a zone or a time is refused, in one sentence that names the place, the figure and the remedy.

use super::fields::CronField;

/// Why a calendar refuses what it was given. [`CalendarError::code`] is the stable word for programs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CalendarError {
    /// The expression is not cron as this engine reads it.
    #[error(transparent)]
    InvalidCron(#[from] CronError),
    /// The loaded release of the zone rules has no such name.
    #[error("unknown zone {zone:?}: {remedy}")]
    UnknownZone {
        /// The name as given, cut to a printable length.
        zone: String,
        /// What to write instead.
        remedy: String,
    },
    /// The loaded rules of a zone cannot be read.
    #[error("the rules of zone {zone:?} cannot be read: {why}; install another release of the zone data")]
    UnreadableZone {
        /// The name.
        zone: String,
        /// What the reader said.
        why: String,
    },
    /// No date can ever match.
    #[error("{expr:?} can never fire: no year has a day that matches; change day-of-month, month or day-of-week")]
    NeverFires {
        /// The expression.
        expr: String,
    },
    /// A local time that is not written as one.
    #[error("{text:?} is not a local time: {why}; write it as 2026-11-01T01:30:00 without an offset")]
    InvalidLocalTime {
        /// The text, cut to a printable length.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A local time that the zone's clocks jump over.
    #[error(
        "{local} does not exist in {zone}: the clocks go from {gap_from} to {gap_to}; \
         give gap \"shift\" for the first instant after the gap ({shifted}), or another time"
    )]
    LocalTimeInGap {
        /// The local time.
        local: String,
        /// The zone.
        zone: String,
        /// The first local time that is missing.
        gap_from: String,
        /// The first local time after the gap.
        gap_to: String,
        /// The instant that `shift` means.
        shifted: String,
    },
    /// A local time that the zone's clocks show twice.
    #[error("{local} happens twice in {zone}: give fold \"first\" ({first}) or \"second\" ({second}), or another time")]
    LocalTimeAmbiguous {
        /// The local time.
        local: String,
        /// The zone.
        zone: String,
        /// The first instant.
        first: String,
        /// The second instant.
        second: String,
    },
    /// An instant outside 1970 to 2199.
    #[error("{text} is outside the years 1970 to 2199 that the calendar covers; give an instant within them")]
    OutsideCalendar {
        /// The instant or local time.
        text: String,
    },
    /// An instant that is not written as one.
    #[error("{text:?} is not an instant from 1970 on: write it as 2026-11-01T05:30:00Z")]
    InvalidInstant {
        /// The text.
        text: String,
    },
    /// A duration that is not written as one.
    #[error("{text:?} is not a duration: {why}; write it as 500ms, 30s, 5m, 24h, 1d or 1h30m")]
    InvalidDuration {
        /// The text, cut to a printable length.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

impl CalendarError {
    /// The stable code of the outside interfaces.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::InvalidCron(_) => "invalid_cron",
            Self::UnknownZone { .. } | Self::UnreadableZone { .. } => "unknown_zone",
            Self::NeverFires { .. } => "never_fires",
            Self::InvalidLocalTime { .. }
            | Self::LocalTimeInGap { .. }
            | Self::LocalTimeAmbiguous { .. }
            | Self::OutsideCalendar { .. }
            | Self::InvalidInstant { .. }
            | Self::InvalidDuration { .. } => "invalid",
        }
    }

    /// Whether the zone, and not the expression or the time, is at fault.
    #[must_use]
    pub const fn is_about_the_zone(&self) -> bool {
        matches!(self, Self::UnknownZone { .. } | Self::UnreadableZone { .. })
    }
}

/// Why an expression is no cron expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CronError {
    /// Nothing but blanks.
    #[error("the expression is empty: give 5 fields (minute hour day-of-month month day-of-week), or 6 with seconds")]
    Empty,
    /// Longer than any sensible expression.
    #[error("the expression has {bytes} bytes: at most 256 characters are allowed; use ranges and steps")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Something outside printable ASCII.
    #[error(
        "the expression has the {kind} character U+{:04X}: only printable ASCII is allowed; type it again",
        *.character as u32
    )]
    ForeignCharacter {
        /// The character.
        character: char,
        /// `control` or `non-ASCII`.
        kind: &'static str,
    },
    /// Neither 5 nor 6 fields.
    #[error(
        "expected 5 or 6 fields (minute hour day-of-month month day-of-week, seconds first if 6), found {found}{hint}"
    )]
    FieldCount {
        /// How many there are.
        found: usize,
        /// A guess at what was meant, or nothing.
        hint: &'static str,
    },
    /// Written in another scheduler's language.
    #[error("{text:?} is not a cron expression: {remedy}")]
    NotCron {
        /// What stands there.
        text: String,
        /// What to do instead.
        remedy: &'static str,
    },
    /// One field is wrong.
    #[error("{}: {fault}", .field.name())]
    Field {
        /// The field.
        field: CronField,
        /// What is wrong with it.
        fault: FieldFault,
    },
}

/// What is wrong with a field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldFault {
    /// `1,,2`
    #[error("empty list item in '{text}'; remove the extra comma")]
    EmptyItem {
        /// The whole field.
        text: String,
    },
    /// A character that no item of this field has.
    #[error("illegal character '{character}' in '{item}'; {remedy}")]
    IllegalCharacter {
        /// The character.
        character: char,
        /// The item.
        item: String,
        /// What may stand here.
        remedy: String,
    },
    /// A value below or above the field.
    #[error("{value} is out of range {low}-{high}; {remedy}")]
    OutOfRange {
        /// The value as written.
        value: String,
        /// The smallest that is allowed.
        low: u32,
        /// The largest that is allowed.
        high: u32,
        /// What to write instead.
        remedy: String,
    },
    /// `22-2`
    #[error("range {item} is reversed (allowed {low}-{high}, smaller first); write {remedy}")]
    Reversed {
        /// The range.
        item: String,
        /// The smallest value of the field.
        low: u32,
        /// The largest value of the field.
        high: u32,
        /// The list that means it.
        remedy: String,
    },
    /// A step that is missing, zero, no number, or not after `*` or a range.
    #[error("{what} in '{item}'; {remedy}")]
    Step {
        /// What is wrong.
        what: String,
        /// The item.
        item: String,
        /// What to write instead.
        remedy: String,
    },
    /// Anything else.
    #[error("'{item}' is not valid: {why}")]
    Invalid {
        /// The item.
        item: String,
        /// What is wrong and what to write instead.
        why: String,
    },
}
