//! Troubles that other schedulers had with cron and zones, each with its right answer.

use super::{at, instants, rule, spec};
use countwheel::kernel::calendar::{Calendar, CronRule, CronSpec, Fold, FoldChoice, Gap, Interval, ZoneSet};

/// The first instants after `after` are exactly `expected`.
fn expect(expr: &str, zone: &str, after: &str, expected: &[&str]) {
    expect_of(&rule(expr, zone), after, expected);
}

fn expect_of(rule: &CronRule, after: &str, expected: &[&str]) {
    let shown: Vec<String> = instants(rule, at(after), expected.len()).iter().map(ToString::to_string).collect();
    let expected: Vec<String> = expected.iter().map(|text| at(text).to_string()).collect();
    assert_eq!(shown, expected, "{} {} after {after}", rule.spec().expr, rule.spec().zone);
}

fn with_fold(expr: &str, zone: &str, fold: FoldChoice) -> CronRule {
    CronRule::new(&spec(expr, zone, fold, Gap::Skip), &super::ZONES).unwrap()
}

#[test]
fn row_1_a_missing_time_is_skipped_for_one_day_only() {
    expect("30 2 * * *", "America/New_York", "2026-03-08T06:30:00Z", &["2026-03-09T06:30:00Z"]);
}

#[test]
fn row_3_a_missing_midnight_does_not_hide_its_day() {
    for expr in ["0 0 1 4 11 *", "0 0 1 * * 0"] {
        expect(expr, "America/Sao_Paulo", "2018-11-04T02:00:00Z", &["2018-11-04T03:00:00Z"]);
    }
}

#[test]
fn row_4_the_day_after_a_missing_midnight_is_not_lost() {
    expect("0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00Z", &["2018-11-05T02:00:00Z"]);
    expect("0 0 * * *", "America/Santiago", "2025-09-06T12:00:00Z", &["2025-09-08T03:00:00Z"]);
}

#[test]
fn row_6_an_appointment_in_the_repeated_hour_fires_once() {
    let expected = ["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"];
    expect("30 1 * * *", "America/New_York", "2026-10-31T12:00:00Z", &expected);
}

#[test]
fn row_7_a_list_in_the_repeated_hour_fires_once_an_item() {
    let expected = ["2025-10-26T00:00:00Z", "2025-10-26T00:30:00Z", "2025-10-27T01:00:00Z", "2025-10-27T01:30:00Z"];
    expect("0,30 2 * * *", "Europe/Berlin", "2025-10-25T12:00:00Z", &expected);
}

#[test]
fn row_8_half_an_hour_is_repeated_or_missing_on_lord_howe() {
    let expected = ["2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"];
    expect("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00Z", &expected);
    expect("15 2 * * *", "Australia/Lord_Howe", "2026-10-02T20:00:00Z", &["2026-10-04T15:15:00Z"]);
}

#[test]
fn row_10_a_second_past_keeps_its_wall_time_across_the_change() {
    expect("1 0 18 * * *", "Europe/Dublin", "2025-03-29T18:00:01Z", &["2025-03-30T17:00:01Z"]);
    expect("1 0 18 * * *", "Europe/Dublin", "2025-10-25T17:00:01Z", &["2025-10-26T18:00:01Z"]);
}

#[test]
fn row_11_a_local_morning_is_not_a_utc_morning() {
    let expected = ["2025-10-28T00:00:00Z", "2025-10-29T00:00:00Z"];
    expect("0 0 8 * * *", "Asia/Shanghai", "2025-10-27T01:00:00Z", &expected);
}

#[test]
fn row_12_a_cadence_has_no_silent_hour_unless_asked_for() {
    let (quarters, minutes) = ("*/15 * * * *", "* * * * *");
    let (new_york, paris) = ("America/New_York", "Europe/Paris");
    let (before_ny, before_paris) = ("2026-11-01T05:40:00Z", "2020-10-25T00:58:30Z");
    expect(quarters, new_york, before_ny, &["2026-11-01T05:45:00Z", "2026-11-01T06:00:00Z", "2026-11-01T06:15:00Z"]);
    expect(minutes, paris, before_paris, &["2020-10-25T00:59:00Z", "2020-10-25T01:00:00Z"]);
    let once = with_fold(quarters, new_york, FoldChoice::Once);
    expect_of(&once, before_ny, &["2026-11-01T05:45:00Z", "2026-11-01T07:00:00Z"]);
    let once = with_fold(minutes, paris, FoldChoice::Once);
    expect_of(&once, before_paris, &["2020-10-25T00:59:00Z", "2020-10-25T02:00:00Z"]);
    let interval = Interval::new(at("2026-11-01T00:00:00Z"), 15 * 60_000).unwrap();
    let mut now = at(before_ny);
    for _ in 0..12 {
        let next = interval.next(now).unwrap();
        assert!(next.since(now) <= 15 * 60_000);
        now = next;
    }
}

#[test]
fn row_14_the_first_monday_after_the_change_runs_once() {
    let expected = ["2013-10-28T11:00:00Z", "2013-11-04T11:00:00Z"];
    expect("0 12 * * 1", "Europe/Amsterdam", "2013-10-27T00:00:00Z", &expected);
}

#[test]
fn row_15_a_gap_and_a_broken_rule_leave_the_others_alone() {
    let mut calendar = Calendar::new(super::ZONES.clone());
    let skipping = calendar.intern_stored(&CronSpec::new("0 2 * * *", "America/New_York"));
    let minutely = calendar.intern_stored(&CronSpec::new("* * * * *", "UTC"));
    let broken = calendar.intern_stored(&CronSpec::new("0 2 * *", "America/New_York"));
    let before = at("2025-03-09T06:30:00Z");
    assert_eq!(calendar.next(skipping, before), Some(at("2025-03-10T06:00:00Z")));
    assert_eq!(calendar.next(minutely, before), Some(at("2025-03-09T06:31:00Z")));
    assert_eq!(calendar.next(broken, before), None);
    assert!(calendar.error(broken).unwrap().to_string().contains("expected 5 or 6 fields"));
}

#[test]
fn row_16_a_day_of_the_month_and_a_day_of_the_week_stay_where_they_are() {
    expect("0 0 1 * *", "UTC", "2024-01-02T00:00:00Z", &["2024-02-01T00:00:00Z"]);
    expect("40 7 * * 5", "UTC", "2024-05-15T12:00:00Z", &["2024-05-17T07:40:00Z"]);
}

#[test]
fn row_18_impossible_dates_are_refused_and_two_day_fields_are_either() {
    let mut calendar = Calendar::new(super::ZONES.clone());
    for expr in ["0 0 30 2 *", "0 0 31 4,6 *", "0 0 31 2,4,6,9,11 *"] {
        assert_eq!(calendar.intern(&CronSpec::new(expr, "UTC")).unwrap_err().code(), "never_fires", "{expr}");
    }
    expect("0 0 1 1 1", "UTC", "2020-10-08T00:00:00Z", &["2021-01-01T00:00:00Z", "2021-01-04T00:00:00Z"]);
    expect("0 0 29 2 1", "UTC", "2023-05-05T00:00:00Z", &["2024-02-05T00:00:00Z", "2024-02-12T00:00:00Z"]);
}

#[test]
fn row_19_a_step_over_weekdays_is_a_step() {
    let expected = ["2026-01-03T00:00:00Z", "2026-01-04T00:00:00Z", "2026-01-06T00:00:00Z", "2026-01-08T00:00:00Z"];
    expect("0 0 * * */2", "UTC", "2026-01-01T23:59:00Z", &expected);
}

#[test]
fn gaps_of_every_length_are_crossed() {
    for (zone, expr, after, expected) in [
        ("Pacific/Apia", "0 10 * * *", "2011-12-29T20:00:01Z", "2011-12-30T20:00:00Z"),
        ("Pacific/Apia", "* * * * * *", "2011-12-30T09:59:59Z", "2011-12-30T10:00:00Z"),
        ("Antarctica/Casey", "0 0 * * SAT", "2016-10-20T00:00:00Z", "2016-10-28T13:00:00Z"),
        ("Antarctica/Troll", "30 1 * * *", "2026-03-28T12:00:00Z", "2026-03-29T23:30:00Z"),
        ("America/Nuuk", "30 23 30 3 *", "2024-03-30T00:00:00Z", "2025-03-31T00:30:00Z"),
    ] {
        expect(expr, zone, after, &[expected]);
    }
}

#[test]
fn shifted_instants_that_coincide_are_one() {
    let shift = |expr, zone| CronRule::new(&spec(expr, zone, FoldChoice::Auto, Gap::Shift), &super::ZONES).unwrap();
    let after = "2026-03-08T06:59:00Z";
    expect_of(&shift("30 2 * * *", "America/New_York"), after, &["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"]);
    expect_of(
        &shift("0,15,30 2,3 * * *", "America/New_York"),
        after,
        &["2026-03-08T07:00:00Z", "2026-03-08T07:15:00Z", "2026-03-08T07:30:00Z", "2026-03-09T06:00:00Z"],
    );
    let apia = shift("0 10 * * *", "Pacific/Apia");
    expect_of(&apia, "2011-12-29T20:00:00Z", &["2011-12-30T10:00:00Z", "2011-12-30T20:00:00Z"]);
    let both = shift("0,30 2,3 * * *", "America/New_York");
    let (from, to) = (at("2026-03-08T00:00:00Z"), at("2026-03-09T04:00:00Z"));
    assert_eq!(both.count(from, to), 2, "03:00 and 03:30; what was shifted to 03:00 is there already");
}

#[test]
fn instants_are_strictly_after_a_point_within_a_second() {
    use countwheel::kernel::time::UnixMs;
    let noon = at("2026-06-01T12:00:00Z");
    let daily = rule("0 12 * * *", "UTC");
    assert_eq!(daily.next(noon.minus(1)), Some(noon));
    assert_eq!(daily.next(noon), Some(noon.plus(86_400_000)));
    assert_eq!(daily.next(noon.plus(500)), Some(noon.plus(86_400_000)));
    assert_eq!(daily.next(UnixMs(-1)), Some(at("1970-01-01T12:00:00Z")));
    assert_eq!(daily.next(UnixMs(i64::MIN)), Some(at("1970-01-01T12:00:00Z")));
    assert_eq!(rule("0 0 * * *", "UTC").next(UnixMs(-1)), Some(UnixMs(0)));
    assert_eq!(daily.next(UnixMs(i64::MAX)), None);
    assert_eq!(daily.next(at("2199-12-31T12:00:00Z")), None);
    assert_eq!(daily.latest(UnixMs(i64::MIN), UnixMs(i64::MAX)), Some(at("2199-12-31T12:00:00Z")));
    assert_eq!(daily.count(UnixMs(i64::MIN), UnixMs(i64::MAX)), 84_006);
}

#[test]
fn the_second_pass_is_seen_from_inside_it() {
    let both = with_fold("0,30 1 * * *", "America/New_York", FoldChoice::Both);
    assert_eq!(both.fold(), Fold::Both);
    let expected = ["2026-11-01T06:30:00Z", "2026-11-02T06:00:00Z"];
    expect_of(&both, "2026-11-01T06:00:00Z", &expected);
    let once = with_fold("0,30 1 * * *", "America/New_York", FoldChoice::Once);
    expect_of(&once, "2026-11-01T06:00:00Z", &["2026-11-02T06:00:00Z"]);
}

#[test]
fn years_of_a_rule_that_fires_every_second_are_bounded_work() {
    let mut calendar = Calendar::new(super::ZONES.clone());
    let id = calendar.intern(&CronSpec::new("* * * * * *", "Europe/Berlin")).unwrap();
    let (from, to) = (at("2000-01-01T00:00:00Z"), at("2026-01-01T00:00:00Z"));
    assert_eq!(calendar.latest(id, from, to.plus(999)), Some(to));
    assert_eq!(calendar.count(id, from, to), 820_540_800);
    let yearly = calendar.intern(&CronSpec::new("0 0 29 2 *", "Europe/Berlin")).unwrap();
    assert_eq!(calendar.latest(yearly, from, to), Some(at("2024-02-28T23:00:00Z")));
    assert_eq!(calendar.latest(yearly, at("2024-02-28T23:00:00Z"), to), None);
}

#[test]
fn a_zone_that_is_not_loaded_is_refused_and_other_names_are_links() {
    let few = ZoneSet::new("2026f", [("UTC", super::ZONES.tzif("UTC").unwrap().to_vec())]);
    let error = CronRule::new(&CronSpec::new("* * * * *", "Europe/Berlin"), &few).unwrap_err();
    assert_eq!(error.code(), "unknown_zone");
    for name in ["Asia/Calcutta", "America/Coyhaique", "Navajo", "CET", "Etc/GMT+12", "Zulu"] {
        assert!(super::ZONES.zone(name).is_ok(), "{name}");
    }
    for name in ["Factory", "localtime", "posixrules", "posix/UTC", "right/UTC", "utc", "Etc/Unknown"] {
        assert!(super::ZONES.zone(name).is_err(), "{name}");
    }
}

/// The tables of docs/CONTRACT.md.
#[test]
fn the_tables_of_the_contract_hold() {
    let new_york = "America/New_York";
    gap_row("30 2 * * *", new_york, "2026-03-08T06:30:00Z", &["2026-03-09T06:30:00Z"], &["2026-03-08T07:00:00Z"]);
    let three = ["2026-03-08T07:00:00Z", "2026-03-08T07:30:00Z"];
    gap_row("0,30 2,3 * * *", new_york, "2026-03-08T06:30:00Z", &three, &three);
    let (after, skip, shift) = ("2018-11-03T12:00:00Z", "2018-11-05T02:00:00Z", "2018-11-04T03:00:00Z");
    gap_row("0 0 * * *", "America/Sao_Paulo", after, &[skip], &[shift]);
    let (after, skip, shift) = ("2026-10-03T15:00:00Z", "2026-10-04T15:15:00Z", "2026-10-03T15:30:00Z");
    gap_row("15 2 * * *", "Australia/Lord_Howe", after, &[skip], &[shift]);
    let (after, skip, shift) = ("2011-12-29T20:00:00Z", "2011-12-30T20:00:00Z", "2011-12-30T10:00:00Z");
    gap_row("0 10 * * *", "Pacific/Apia", after, &[skip], &[shift]);

    let first = "2026-11-01T05:30:00Z";
    fold_row("30 1 * * *", &[first, "2026-11-02T06:30:00Z"], &[first, "2026-11-01T06:30:00Z"], Fold::Once);
    fold_row("0,30 1 * * *", &[first, "2026-11-02T06:00:00Z"], &[first, "2026-11-01T06:00:00Z"], Fold::Once);
    let first = "2026-11-01T05:07:00Z";
    fold_row("7 * * * *", &[first, "2026-11-01T07:07:00Z"], &[first, "2026-11-01T06:07:00Z"], Fold::Both);
}

fn gap_row(expr: &str, zone: &str, after: &str, skip: &[&str], shift: &[&str]) {
    for (gap, expected) in [(Gap::Skip, skip), (Gap::Shift, shift)] {
        let rule = CronRule::new(&spec(expr, zone, FoldChoice::Auto, gap), &super::ZONES).unwrap();
        expect_of(&rule, after, expected);
    }
}

fn fold_row(expr: &str, once: &[&str], both: &[&str], auto: Fold) {
    let after = "2026-11-01T05:00:00Z";
    expect_of(&with_fold(expr, "America/New_York", FoldChoice::Once), after, once);
    expect_of(&with_fold(expr, "America/New_York", FoldChoice::Both), after, both);
    assert_eq!(with_fold(expr, "America/New_York", FoldChoice::Auto).fold(), auto, "{expr}");
}
