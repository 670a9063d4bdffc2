//! Elapsed time: the grid `anchor + n * every`, unaffected by zones and restarts, and what an interval may count from.

use crate::kernel::time::UnixMs;

/// What an interval counts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Basis {
    /// Its grid, whatever runs.
    #[default]
    Slot,
    /// The moment at which the last regular occurrence came to its end, whatever end that was.
    Completion,
    /// The moment at which the last regular occurrence was claimed for the first time, or came to its end unclaimed.
    Start,
}

impl Basis {
    /// The word users write and see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Slot => "slot",
            Self::Completion => "completion",
            Self::Start => "start",
        }
    }
}

/// A grid in both directions from its anchor: the anchor says where it lies, not where it begins (`start_at` does).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Interval {
    anchor: UnixMs,
    every_ms: i64,
}

impl Interval {
    /// A grid, or none when `every_ms` is not positive.
    #[must_use]
    pub const fn new(anchor: UnixMs, every_ms: i64) -> Option<Self> {
        if every_ms > 0 { Some(Self { anchor, every_ms }) } else { None }
    }

    /// A point of the grid.
    #[must_use]
    pub const fn anchor(self) -> UnixMs {
        self.anchor
    }

    /// The distance between two points.
    #[must_use]
    pub const fn every_ms(self) -> i64 {
        self.every_ms
    }

    /// The first point strictly after `after`, up to the last instant that can be written.
    #[must_use]
    pub fn next(self, after: UnixMs) -> Option<UnixMs> {
        let next = self.index_at(after) + 1;
        let at = i128::from(self.anchor.0) + next * i128::from(self.every_ms);
        i64::try_from(at).ok().map(UnixMs).filter(|at| *at <= UnixMs::MAX)
    }

    /// The first point strictly after both `after` and the anchor.
    #[must_use]
    pub fn next_behind_anchor(self, after: UnixMs) -> Option<UnixMs> {
        self.next(after.max(self.anchor))
    }

    /// The last point in `(after, through]`.
    #[must_use]
    pub fn latest(self, after: UnixMs, through: UnixMs) -> Option<UnixMs> {
        let at = i128::from(self.anchor.0) + self.index_at(through) * i128::from(self.every_ms);
        i64::try_from(at).ok().map(UnixMs).filter(|at| *at > after)
    }

    /// How many points lie in `(after, through]`.
    #[must_use]
    pub fn count(self, after: UnixMs, through: UnixMs) -> u64 {
        u64::try_from((self.index_at(through) - self.index_at(after)).max(0)).unwrap_or(u64::MAX)
    }

    /// The index of the last point at or before `at`.
    fn index_at(self, at: UnixMs) -> i128 {
        (i128::from(at.0) - i128::from(self.anchor.0)).div_euclid(i128::from(self.every_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_has_no_drift_and_no_beginning() {
        let grid = Interval::new(UnixMs(1_000), 300).unwrap();
        assert_eq!(grid.next(UnixMs(1_000)), Some(UnixMs(1_300)));
        assert_eq!(grid.next(UnixMs(1_299)), Some(UnixMs(1_300)));
        assert_eq!(grid.next(UnixMs(0)), Some(UnixMs(100)));
        assert_eq!(grid.next_behind_anchor(UnixMs(0)), Some(UnixMs(1_300)));
        assert_eq!(grid.next_behind_anchor(UnixMs(1_300)), Some(UnixMs(1_600)));
        assert_eq!(grid.latest(UnixMs(1_000), UnixMs(1_950)), Some(UnixMs(1_900)));
        assert_eq!(grid.latest(UnixMs(1_900), UnixMs(1_950)), None);
        assert_eq!(grid.count(UnixMs(1_000), UnixMs(1_900)), 3);
        assert_eq!(grid.count(UnixMs(1_900), UnixMs(1_000)), 0);
    }

    #[test]
    fn the_ends_of_time_do_not_overflow() {
        let grid = Interval::new(UnixMs(i64::MIN), i64::MAX).unwrap();
        assert_eq!(grid.next(UnixMs(i64::MAX)), None);
        assert_eq!(grid.count(UnixMs(i64::MIN), UnixMs(i64::MAX)), 2);
        assert_eq!(Interval::new(UnixMs(0), 0), None);
    }
}
