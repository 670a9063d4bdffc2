//! Laws that hold for every rule, and a naive walk over UTC that must agree. `PROPTEST_CASES` makes it longer.

use std::fmt::Write as _;

use chrono::{DateTime, Datelike, Duration, NaiveDateTime, Timelike, Utc};
use chrono_tz::Tz;
use proptest::{collection::btree_set, option, prelude::*, sample::select};

use super::{ZONES, at, instants};
use countwheel::kernel::{
    calendar::{CronRule, CronSpec, DayMatch, FoldChoice, Gap},
    time::UnixMs,
};

/// Clock changes of every size: an instant near each, in zones on which both implementations agree.
const CHANGES: &[(&str, &str)] = &[
    ("America/New_York", "2024-03-10T07:00:00Z"),
    ("America/New_York", "2026-11-01T06:00:00Z"),
    ("Europe/Berlin", "2026-03-29T01:00:00Z"),
    ("Europe/Berlin", "2025-10-26T01:00:00Z"),
    ("Australia/Lord_Howe", "2026-04-04T15:00:00Z"),
    ("Australia/Lord_Howe", "2026-10-03T15:30:00Z"),
    ("Antarctica/Troll", "2026-03-29T01:00:00Z"),
    ("Antarctica/Troll", "2026-10-25T01:00:00Z"),
    ("Antarctica/Casey", "2016-10-21T16:00:00Z"),
    ("Antarctica/Casey", "2018-03-10T17:00:00Z"),
    ("Pacific/Apia", "2011-12-30T10:00:00Z"),
    ("Pacific/Kwajalein", "1993-08-21T12:00:00Z"),
    ("America/Sao_Paulo", "2018-11-04T03:00:00Z"),
    ("America/Sao_Paulo", "2019-02-17T02:00:00Z"),
    ("America/Nuuk", "2024-03-31T01:00:00Z"),
    ("America/Santiago", "2025-09-07T04:00:00Z"),
    ("Asia/Gaza", "2024-04-20T00:00:00Z"),
    ("Asia/Pyongyang", "2018-05-04T15:00:00Z"),
    ("UTC", "2024-02-29T00:00:00Z"),
];

/// A rule as sets, so that the naive walk never reads an expression.
#[derive(Clone, Debug)]
struct Sets {
    seconds: Option<Vec<u32>>,
    minutes: Option<Vec<u32>>,
    hours: Option<Vec<u32>>,
    days: Option<Vec<Day>>,
    months: Option<Vec<u32>>,
    weekdays: Option<Vec<Weekday>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Day {
    Plain(u32),
    Nearest(u32),
    Last,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Weekday {
    Plain(u32),
    Nth(u32, u32),
    Last(u32),
}

impl Sets {
    fn expr(&self) -> String {
        let plain =
            |set: &Option<Vec<u32>>| set.as_ref().map_or("*".into(), |set| join(set, |value| value.to_string()));
        let mut expr = String::new();
        if self.seconds != Some(vec![0]) {
            write!(expr, "{} ", plain(&self.seconds)).unwrap();
        }
        let days = self.days.as_ref().map_or("?".into(), |days| {
            join(days, |day| match day {
                Day::Plain(day) => day.to_string(),
                Day::Nearest(day) => format!("{day}w"),
                Day::Last => "L".into(),
            })
        });
        let weekdays = self.weekdays.as_ref().map_or("*".into(), |weekdays| {
            join(weekdays, |weekday| match weekday {
                Weekday::Plain(day) => ["SUN", "mon", "Tue", "WED", "THU", "FRI", "6"][*day as usize].into(),
                Weekday::Nth(day, nth) => format!("{}#{nth}", if *day == 0 { 7 } else { *day }),
                Weekday::Last(day) => format!("{day}L"),
            })
        });
        write!(expr, "{} {} {days} {} {weekdays}", plain(&self.minutes), plain(&self.hours), plain(&self.months))
            .unwrap();
        expr
    }

    fn matches(&self, wall: NaiveDateTime, day_match: DayMatch) -> bool {
        let within = |set: &Option<Vec<u32>>, value| set.as_ref().is_none_or(|set| set.contains(&value));
        let day = self.days.as_ref().map(|days| days.iter().any(|day| day.matches(wall)));
        let weekday = self.weekdays.as_ref().map(|days| days.iter().any(|day| day.matches(wall)));
        let date = match (day, weekday, day_match) {
            (Some(day), Some(weekday), DayMatch::Or) => day || weekday,
            (day, weekday, _) => day.unwrap_or(true) && weekday.unwrap_or(true),
        };
        let time = within(&self.seconds, wall.second()) && within(&self.minutes, wall.minute());
        date && time && within(&self.hours, wall.hour()) && within(&self.months, wall.month())
    }
}

fn join<T>(items: &[T], show: impl Fn(&T) -> String) -> String {
    items.iter().map(show).collect::<Vec<_>>().join(",")
}

impl Day {
    fn matches(self, wall: NaiveDateTime) -> bool {
        let is_last = |date: NaiveDateTime| (date + Duration::days(1)).month() != date.month();
        match self {
            Self::Plain(day) => wall.day() == day,
            Self::Last => is_last(wall),
            Self::Nearest(day) => {
                // The days of this month by their distance, the nearest Monday to Friday first.
                let Some(middle) = wall.with_day(day) else { return false };
                let candidates = [0, -1, 1, -2, 2].map(|days| middle + Duration::days(days));
                let working =
                    |date: &NaiveDateTime| date.month() == wall.month() && date.weekday().number_from_monday() <= 5;
                candidates.into_iter().find(working).is_some_and(|date| date.day() == wall.day())
            }
        }
    }
}

impl Weekday {
    fn matches(self, wall: NaiveDateTime) -> bool {
        let is = |day| wall.weekday().num_days_from_sunday() == day;
        match self {
            Self::Plain(day) => is(day),
            Self::Nth(day, nth) => is(day) && wall.day().div_ceil(7) == nth,
            Self::Last(day) => is(day) && (wall + Duration::days(7)).month() != wall.month(),
        }
    }
}

/// Every instant in `(after, through]`, a step at a time, asking chrono-tz what the clock shows.
fn naive_walk(sets: &Sets, zone: Tz, both: bool, gap: Gap, day_match: DayMatch, after: i64, through: i64) -> Vec<i64> {
    let step = if sets.seconds == Some(vec![0]) { 60 } else { 1 };
    let wall = |at_s: i64| DateTime::<Utc>::from_timestamp(at_s, 0).unwrap().with_timezone(&zone).naive_local();
    let shown_before = |at_s: i64| {
        // A clock set back by less than a day and a bit shows this wall time for the second time.
        let now = wall(at_s);
        (1..=30 * 12).any(|ago| {
            let back = (wall(at_s - ago * 300).and_utc().timestamp() - (at_s - ago * 300))
                - (now.and_utc().timestamp() - at_s);
            back > 0 && wall(at_s - back) == now
        })
    };
    let first = after.div_euclid(step) * step + step;
    let mut found = Vec::new();
    let mut before = wall(first - step);
    for at_s in (first..=through).step_by(step as usize) {
        let now = wall(at_s);
        let regular = sets.matches(now, day_match) && (both || !shown_before(at_s));
        let shifted = gap == Gap::Shift && {
            let expected = before + Duration::seconds(step);
            let missing = (now - expected).num_seconds() / step;
            (0..missing).any(|n| sets.matches(expected + Duration::seconds(n * step), day_match))
        };
        before = now;
        if regular || shifted {
            found.push(at_s * 1_000);
        }
    }
    found
}

fn some_of(low: u32, high: u32) -> impl Strategy<Value = Option<Vec<u32>>> {
    let set = btree_set(low..=high, 1..5).prop_map(|set| set.into_iter().collect());
    option::weighted(0.6, set)
}

fn sets(seconds: bool) -> impl Strategy<Value = Sets> {
    let seconds = if seconds { some_of(0, 59).boxed() } else { Just(Some(vec![0])).boxed() };
    let day = prop_oneof![4 => (1_u32..=31).prop_map(Day::Plain), 1 => (1_u32..=31).prop_map(Day::Nearest), 1 => Just(Day::Last)];
    let weekday = prop_oneof![
        4 => (0_u32..7).prop_map(Weekday::Plain),
        1 => (0_u32..7, 1_u32..=5).prop_map(|(day, nth)| Weekday::Nth(day, nth)),
        1 => (0_u32..7).prop_map(Weekday::Last),
    ];
    let most_months = btree_set(1_u32..=12, 6..12).prop_map(|set| set.into_iter().collect());
    (
        seconds,
        some_of(0, 59),
        some_of(0, 23),
        option::weighted(0.2, btree_set(day, 1..6).prop_map(|set| set.into_iter().collect())),
        option::weighted(0.15, most_months),
        option::weighted(0.2, btree_set(weekday, 1..5).prop_map(|set| set.into_iter().collect())),
    )
        .prop_map(|(seconds, minutes, hours, days, months, weekdays)| Sets {
            seconds,
            minutes,
            hours,
            days,
            months,
            weekdays,
        })
}

fn options() -> impl Strategy<Value = (FoldChoice, Gap, DayMatch)> {
    (
        select(vec![FoldChoice::Once, FoldChoice::Both]),
        select(vec![Gap::Skip, Gap::Shift]),
        select(vec![DayMatch::Or, DayMatch::And]),
    )
}

fn rule_of(sets: &Sets, zone: &str, (fold, gap, day_match): (FoldChoice, Gap, DayMatch)) -> CronRule {
    let spec = CronSpec { fold, gap, day_match, ..CronSpec::new(sets.expr(), zone) };
    CronRule::new(&spec, &ZONES).unwrap_or_else(|error| panic!("{error}: {spec:?}"))
}

fn check_against_naive_walk(
    sets: &Sets,
    change: usize,
    options: (FoldChoice, Gap, DayMatch),
    back_ms: i64,
    hours: i64,
) {
    let (zone, near) = CHANGES[change];
    let rule = rule_of(sets, zone, options);
    let after = at(near).minus(back_ms);
    let through = after.plus(hours * 3_600_000);
    let (fold, gap, day_match) = options;
    let both = fold == FoldChoice::Both;
    let (after_s, through_s) = (after.0.div_euclid(1_000), through.0.div_euclid(1_000));
    let naive = naive_walk(sets, zone.parse().unwrap(), both, gap, day_match, after_s, through_s);
    let mut ours = instants(&rule, after, naive.len() + 1);
    ours.retain(|at| *at <= through);
    let ours: Vec<i64> = ours.into_iter().map(|at| at.0).collect();
    assert_eq!(ours, naive, "{:?} from {after}", rule.spec());
    assert_eq!(rule.count(after, through), naive.len() as u64, "{:?} from {after}", rule.spec());
    assert_eq!(rule.latest(after, through), naive.last().map(|at| UnixMs(*at)), "{:?} from {after}", rule.spec());
}

/// The naive walks are slow: a quarter of the usual number of cases.
fn fewer_cases() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig { cases: usual.cases.div_ceil(4), ..usual }
}

proptest! {
    #![proptest_config(fewer_cases())]

    #[test]
    fn a_naive_walk_over_utc_minutes_agrees(
        sets in sets(false),
        change in 0..CHANGES.len(),
        options in options(),
        back_ms in 0_i64..100_000_000,
    ) {
        check_against_naive_walk(&sets, change, options, back_ms, 40);
    }

    #[test]
    fn a_naive_walk_over_utc_seconds_agrees(
        sets in sets(true),
        change in 0..CHANGES.len(),
        options in options(),
        back_ms in 0_i64..5_400_000,
    ) {
        check_against_naive_walk(&sets, change, options, back_ms, 2);
    }

}

proptest! {
    #[test]
    fn next_grows_and_windows_add_up(
        sets in sets(true),
        zone in select(ZONES.names().map(str::to_owned).collect::<Vec<_>>()),
        options in options(),
        from in 0_i64..4_102_444_800_000,
        cuts in (1_i64..40_000_000_000, 1_i64..40_000_000_000),
    ) {
        let rule = rule_of(&sets, &zone, options);
        let (a, b, c) = (UnixMs(from), UnixMs(from + cuts.0), UnixMs(from + cuts.0 + cuts.1));
        let found = instants(&rule, a, 50);
        prop_assert!(found.iter().zip(std::iter::once(&a).chain(&found)).all(|(next, before)| next > before));
        for (index, at) in found.iter().enumerate() {
            prop_assert_eq!(rule.count(a, *at), index as u64 + 1, "{:?} up to {}", rule.spec(), at);
            prop_assert_eq!(rule.latest(a, *at), Some(*at));
            prop_assert_eq!(rule.next(at.minus(1)), Some(*at));
        }
        prop_assert_eq!(rule.count(a, c), rule.count(a, b) + rule.count(b, c));
        let (whole, parts) = (rule.latest(a, c), rule.latest(b, c).or_else(|| rule.latest(a, b)));
        prop_assert_eq!(whole, parts);
        prop_assert_eq!(whole.is_some(), rule.count(a, c) > 0);
    }

    #[test]
    fn any_text_is_answered_without_a_panic(expr in "[ -~]{0,40}|[-0-9*/,#LW? A-Z]{1,60}", zone in "\\PC{0,20}", from: i64) {
        let _ = CronRule::new(&CronSpec::new("* * * * *", zone), &ZONES);
        if let Ok(rule) = CronRule::new(&CronSpec::new(expr, "Europe/Berlin"), &ZONES) {
            let next = rule.next(UnixMs(from));
            prop_assert!(next.is_none_or(|next| next > UnixMs(from)));
        }
    }
}
