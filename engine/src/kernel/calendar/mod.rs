//! When a rule says that something should happen: cron in a zone, fixed intervals, and local times.
//!
//! Everything here is a pure function of its arguments and of the [`ZoneSet`] it was given; `next(t) > t`, always.
//! It reads no file and no clock, and never adds 24 hours to find tomorrow. It is not: the walk that the reconciler
//! repeats, nor the policy for instants that were missed.

mod civil;
mod duration;
mod error;
mod fields;
mod intern;
mod interval;
mod item;
mod local;
mod parse;
pub mod preview;
mod rule;
mod spec;
mod timetable;
mod warning;
mod zone;
mod zone_hint;
mod zones;

pub use duration::parse_duration_ms;
pub use error::{CalendarError, CronError, FieldFault};
pub use fields::CronField;
pub use intern::{Calendar, Counter, CronId};
pub use interval::{Basis, Interval};
pub use local::{LocalFold, resolve_local};
pub use rule::CronRule;
pub use spec::{CronSpec, DayMatch, Fold, FoldChoice, Gap};
pub use warning::{Warning, WarningCode};
pub use zone::Zone;
pub use zones::ZoneSet;

/// The first instant past the calendar: nothing is scheduled at or after 2200-01-01T00:00:00Z.
pub const CALENDAR_END: crate::kernel::time::UnixMs = crate::kernel::time::UnixMs(zone::END_S * 1_000);
