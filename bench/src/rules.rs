//! The schedules of the experiments: cron rules in many zones that mean one instant, and grids that tile a second.
//!
//! What they should give is computed here from the instants alone (zones by `chrono-tz`), not by asking the engine.

use std::time::Duration;

use chrono::{DateTime, Datelike, Timelike};
use chrono_tz::Tz;
use countwheel::{
    NewSchedule,
    kernel::{
        calendar::CronSpec,
        changes::NewRule,
        id::{Kind, OccurrenceId, ScheduleId},
        time::UnixMs,
    },
};

use crate::bed::{Setup, queue_name};

/// Zones with offsets of whole minutes, on every continent.
const ZONES: [Tz; 12] = [
    Tz::Europe__Berlin,
    Tz::America__New_York,
    Tz::Asia__Kolkata,
    Tz::Asia__Tokyo,
    Tz::Australia__Sydney,
    Tz::America__Sao_Paulo,
    Tz::Africa__Nairobi,
    Tz::Europe__London,
    Tz::America__Los_Angeles,
    Tz::Asia__Kathmandu,
    Tz::Pacific__Auckland,
    Tz::UTC,
];

/// Sets of further months that a rule may name.
const MONTH_SETS: usize = 128;

/// How many rules are distinct, in [`on_one_instant`].
pub(crate) const DISTINCT_RULES: usize = ZONES.len() * MONTH_SETS;

/// The period of the grids and cadences of [`tiling`].
pub(crate) const PERIOD_MS: i64 = 10_000;

/// Every so many of [`tiling`]'s schedules is a cron rule.
const CRON_EVERY: usize = 20;

/// A schedule as it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    pub(crate) id: ScheduleId,
    pub(crate) version: u32,
}

impl Made {
    /// The id of its occurrence at `instant`.
    pub(crate) fn occurrence(self, instant: UnixMs) -> OccurrenceId {
        OccurrenceId::of(self.id, self.version, instant, Kind::Regular, b"")
    }
}

/// Cron rules that match `instant`, a whole second, and then nothing for weeks.
pub(crate) struct OneInstant {
    /// Second, minute, hour, day of the month, month on the clocks of each zone.
    fields: Vec<([u32; 4], u32)>,
}

impl OneInstant {
    pub(crate) fn new(instant: UnixMs) -> Self {
        let utc = DateTime::from_timestamp_millis(instant.0).expect("an instant of this year");
        let fields = ZONES.iter().map(|zone| {
            let local = utc.with_timezone(zone);
            ([local.second(), local.minute(), local.hour(), local.day()], local.month())
        });
        Self { fields: fields.collect() }
    }

    /// The `index`th rule; [`DISTINCT_RULES`] of them differ.
    pub(crate) fn cron(&self, index: usize) -> CronSpec {
        let zone = index % ZONES.len();
        let ([second, minute, hour, day], month) = self.fields[zone];
        let set = index / ZONES.len() % MONTH_SETS;
        let others = (1..=12).filter(|&other| other != month).enumerate();
        let mut months: Vec<u32> = others.filter(|(place, _)| set >> place & 1 == 1).map(|(_, other)| other).collect();
        months.push(month);
        months.sort_unstable();
        let months: Vec<String> = months.iter().map(u32::to_string).collect();
        CronSpec::new(format!("{second} {minute} {hour} {day} {} *", months.join(",")), ZONES[zone].name())
    }
}

/// A cron rule that is not due while anybody measures.
pub(crate) fn far_away(index: usize, now: UnixMs) -> CronSpec {
    let day_ms = 86_400_000;
    OneInstant::new(UnixMs((now.0 + 40 * day_ms) / 1_000 * 1_000)).cron(index)
}

/// Adds tenant, queue and payload to the `index`th rule.
pub(crate) fn schedule(rule: NewRule, index: usize, setup: &Setup) -> NewSchedule {
    // Not in step with the rules, so that every tenant and queue has all of them.
    let mixed = index.wrapping_mul(0x9e37_79b9) >> 7;
    let mut payload = format!("{{\"job\":{index}}}").into_bytes();
    payload.resize(setup.payload_bytes, b' ');
    NewSchedule::new(rule)
        .tenant(format!("tenant-{}", mixed % setup.tenants.max(1)))
        .queue(queue_name(mixed / 31 % setup.queues.max(1)))
        .payload(payload)
}

/// One of `count` schedules that together fire evenly: each once in [`PERIOD_MS`] within `[from, to)`.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    pub(crate) from: UnixMs,
    pub(crate) to: UnixMs,
    pub(crate) count: usize,
    pub(crate) index: usize,
}

impl Tile {
    /// Grids at even distances, and every twentieth one a cron rule on a whole second.
    pub(crate) fn schedule(self, setup: &Setup) -> NewSchedule {
        let rule = if self.is_cron() {
            let second = self.first().0 / 1_000 % (PERIOD_MS / 1_000);
            let expr = format!("{second}-59/{} * * * * *", PERIOD_MS / 1_000);
            NewRule::from(CronSpec::new(expr, ZONES[self.index / CRON_EVERY % ZONES.len()].name()))
        } else {
            let every = Duration::from_millis(PERIOD_MS.unsigned_abs());
            NewRule::Every { every, anchor: Some(self.first()), basis: None }
        };
        schedule(rule, self.index, setup).start_at(self.from).end_at(self.to)
    }

    /// Its instants.
    pub(crate) fn instants(self) -> impl Iterator<Item = UnixMs> {
        let first = self.first().0;
        (0..).map(move |round| UnixMs(first + round * PERIOD_MS)).take_while(move |at| *at < self.to)
    }

    const fn is_cron(self) -> bool {
        self.index.is_multiple_of(CRON_EVERY)
    }

    fn first(self) -> UnixMs {
        let offset_ms = self.index as i64 * PERIOD_MS / self.count as i64;
        let offset_ms = if self.is_cron() { offset_ms / 1_000 * 1_000 } else { offset_ms };
        self.from.plus(offset_ms)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_thousand_rules_and_more_are_distinct_and_name_the_local_month() {
        let rules = OneInstant::new(UnixMs::parse_rfc3339("2026-11-30T20:15:07Z").expect("an instant"));
        let all: BTreeSet<_> = (0..DISTINCT_RULES).map(|i| rules.cron(i)).map(|c| (c.expr, c.zone)).collect();
        assert_eq!(all.len(), DISTINCT_RULES);
        const { assert!(DISTINCT_RULES > 1_000) };
        assert_eq!(rules.cron(0).expr, "7 15 21 30 11 *");
        assert_eq!(rules.cron(4).expr, "7 15 7 1 12 *", "Sydney is in December already");
        assert_eq!(rules.cron(ZONES.len() * 5).expr, "7 15 21 30 1,3,11 *");
    }

    #[test]
    fn tiles_cover_a_period_evenly_and_stay_within_their_window() {
        let (from, to) = (UnixMs(1_000_000), UnixMs(1_030_000));
        let tile = |index| Tile { from, to, count: 1_000, index };
        let all: Vec<_> = (0..1_000).flat_map(|index| tile(index).instants()).collect();
        assert_eq!(all.len(), 3_000);
        assert!(all.iter().all(|at| (from..to).contains(at)));
        assert_eq!(tile(999).instants().next(), Some(from.plus(9_990)));
        assert_eq!(tile(120).instants().next(), Some(from.plus(1_000)), "a cron rule fires on whole seconds");
    }
}
