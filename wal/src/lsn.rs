//! Which record is meant: its position in the log.

use std::fmt;

/// The position of a record in the log, counted from 1; 0 stands before the first record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl Lsn {
    /// Before the first record: nothing is durable yet.
    pub const NONE: Self = Self(0);
    /// The first record of a log.
    pub const FIRST: Self = Self(1);

    /// The position `count` records further on, saturating.
    #[must_use]
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }

    /// The position right after this one, saturating.
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// The position right before this one; [`Lsn::NONE`] has none and stays.
    #[must_use]
    pub const fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
