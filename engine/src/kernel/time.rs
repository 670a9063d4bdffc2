//! Instants: milliseconds since the Unix epoch, in UTC.

use std::fmt;

use chrono::{DateTime, SecondsFormat};

/// An instant in UTC, in whole milliseconds since the Unix epoch (POSIX time: leap seconds do not exist).
///
/// Arithmetic saturates: an instant past the end of `i64` is "never", not a wrapped past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMs(pub i64);

impl UnixMs {
    /// The earliest and the latest instant a schedule may speak of: 1970-01-01 and 9999-12-31T23:59:59.999Z.
    pub const MIN: Self = Self(0);
    /// See [`UnixMs::MIN`].
    pub const MAX: Self = Self(253_402_300_799_999);

    /// This instant moved by `ms` milliseconds, saturating.
    #[must_use]
    pub const fn plus(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// This instant moved back by `ms` milliseconds, saturating.
    #[must_use]
    pub const fn minus(self, ms: i64) -> Self {
        Self(self.0.saturating_sub(ms))
    }

    /// Milliseconds from `earlier` to this instant; negative when this one is the earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Reads RFC 3339 (any offset, up to nanoseconds; finer than a millisecond is cut off).
    #[must_use]
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        let instant = Self(DateTime::parse_from_rfc3339(text).ok()?.timestamp_millis());
        (Self::MIN..=Self::MAX).contains(&instant).then_some(instant)
    }
}

/// RFC 3339 in UTC with milliseconds: `2026-11-01T05:30:00.000Z`.
impl fmt::Display for UnixMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match DateTime::from_timestamp_millis(self.0) {
            Some(instant) => f.write_str(&instant.to_rfc3339_opts(SecondsFormat::Millis, true)),
            None => write!(f, "{} ms since 1970", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_shown_and_read_as_rfc_3339() {
        let instant = UnixMs(1_793_511_000_000);
        assert_eq!(instant.to_string(), "2026-11-01T05:30:00.000Z");
        assert_eq!(UnixMs::parse_rfc3339("2026-11-01T05:30:00.000Z"), Some(instant));
        assert_eq!(UnixMs::parse_rfc3339("2026-11-01T01:30:00-04:00"), Some(instant));
        assert_eq!(UnixMs::parse_rfc3339("2026-11-01 05:30"), None);
        assert_eq!(UnixMs::parse_rfc3339("1969-12-31T23:59:59Z"), None);
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(UnixMs(i64::MAX).plus(1), UnixMs(i64::MAX));
        assert_eq!(UnixMs(i64::MIN).minus(1), UnixMs(i64::MIN));
        assert_eq!(UnixMs(5).since(UnixMs(8)), -3);
    }
}
