//! What a preview shows and warns of.

use super::{ZONES, at, spec};
use countwheel::kernel::calendar::{
    Basis, CronRule, DayMatch, FoldChoice, Gap, Interval, Warning,
    preview::{Preview, Previewed, Window, preview},
};

fn look(expr: &str, zone: &str, fold: FoldChoice, gap: Gap) -> Preview {
    let rule = CronRule::new(&spec(expr, zone, fold, gap), &ZONES).unwrap();
    preview(Previewed::Cron(&rule), &window(3))
}

fn window(count: usize) -> Window {
    Window { from: at("2026-06-01T00:00:00Z"), start_at: None, end_at: None, count }
}

fn dated(warnings: &[Warning]) -> Vec<(&'static str, String)> {
    let day = |warning: &Warning| warning.at.map_or(String::new(), |at| at.to_string()[..10].to_owned());
    warnings.iter().map(|warning| (warning.code.as_str(), day(warning))).collect()
}

fn codes(expr: &str, fold: FoldChoice, gap: Gap) -> Vec<(&'static str, String)> {
    dated(&look(expr, "America/New_York", fold, gap).warnings)
}

fn on(code: &'static str, days: [&str; 2]) -> Vec<(&'static str, String)> {
    days.map(|day| (code, day.to_owned())).into()
}

const SPRING: [&str; 2] = ["2027-03-14", "2028-03-12"];
const AUTUMN: [&str; 2] = ["2026-11-01", "2027-11-07"];

#[test]
fn gaps_and_folds_are_named_with_their_dates() {
    let (auto, skip) = (FoldChoice::Auto, Gap::Skip);
    assert_eq!(codes("30 2 * * *", auto, skip), on("gap_skipped", SPRING));
    assert_eq!(codes("30 2 * * *", auto, Gap::Shift), on("gap_shifted", SPRING));
    assert_eq!(codes("30 1 * * *", auto, skip), on("fold_once", AUTUMN));
    assert_eq!(codes("30 1 * * *", FoldChoice::Both, skip), on("fold_twice", AUTUMN));
    assert_eq!(codes("0 9 * * *", auto, skip), []);
}

#[test]
fn a_cadence_that_goes_on_is_no_surprise_and_one_that_pauses_is() {
    assert_eq!(codes("*/15 * * * *", FoldChoice::Auto, Gap::Skip), []);
    assert_eq!(codes("*/15 * * * *", FoldChoice::Once, Gap::Skip), on("fold_once", AUTUMN));
    let pausing = look("*/15 * * * *", "America/New_York", FoldChoice::Once, Gap::Skip);
    assert!(pausing.warnings[0].message.contains("nothing fires for 75 min"), "{}", pausing.warnings[0].message);
    let lord_howe = look("15 * * * *", "Australia/Lord_Howe", FoldChoice::Auto, Gap::Skip);
    assert_eq!(dated(&lord_howe.warnings)[0].0, "gap_skipped", "an hour and a half passes without a fire");
}

#[test]
fn a_warning_says_what_happens_in_one_sentence() {
    let message = &look("30 2 * * *", "America/New_York", FoldChoice::Auto, Gap::Skip).warnings[0].message;
    let expected = "02:30:00 does not exist on 2027-03-14 in America/New_York \
                    (the clocks go from 02:00:00 to 03:00:00) and is skipped";
    assert_eq!(message, expected);
}

#[test]
fn a_rule_that_never_fires_says_so() {
    for expr in ["0 0 30 2 *", "30 2 * 3 SUN#2"] {
        let preview = look(expr, "America/New_York", FoldChoice::Auto, Gap::Skip);
        assert_eq!((preview.next.len(), preview.warnings[0].code.as_str()), (0, "never_fires"), "{expr}");
    }
}

#[test]
fn day_fields_steps_and_old_names_are_explained() {
    let codes = |expr, zone| dated(&look(expr, zone, FoldChoice::Auto, Gap::Skip).warnings);
    let plain = |code| vec![(code, String::new())];
    assert_eq!(codes("0 0 */2 * MON", "UTC"), plain("day_fields_or"));
    assert_eq!(codes("0 0 1 1 1", "UTC"), plain("day_fields_or"));
    assert_eq!(codes("*/59 * * * *", "UTC"), plain("uneven_step"));
    assert_eq!(codes("*/20 * * * *", "UTC"), []);
    assert_eq!(codes("0 0 * * *", "MST"), plain("fixed_offset_zone"));
    let both = CronRule::new(
        &countwheel::kernel::calendar::CronSpec {
            day_match: DayMatch::And,
            ..spec("0 0 1-7 * MON", "UTC", FoldChoice::Auto, Gap::Skip)
        },
        &ZONES,
    )
    .unwrap();
    let preview = preview(Previewed::Cron(&both), &window(2));
    assert_eq!(preview.warnings, []);
    assert_eq!(preview.next[0].local, "2026-07-06T00:00:00");
}

#[test]
fn instants_are_shown_as_the_zone_reads_them_and_kept_in_their_window() {
    let kathmandu = look("30 9 * * *", "Asia/Kathmandu", FoldChoice::Auto, Gap::Skip);
    let first = &kathmandu.next[0];
    assert_eq!((first.local.as_str(), first.offset.as_str()), ("2026-06-01T09:30:00", "+05:45"));
    let grid = Interval::new(at("2026-06-01T00:00:00Z"), 1_500).unwrap();
    let bounds =
        Window { start_at: Some(at("2026-06-01T00:01:00Z")), end_at: Some(at("2026-06-01T00:01:03Z")), ..window(10) };
    let shown: Vec<String> =
        preview(Previewed::Interval(grid), &bounds).next.into_iter().map(|fire| fire.local + &fire.offset).collect();
    assert_eq!(shown, ["2026-06-01T00:01:00+00:00", "2026-06-01T00:01:01.500+00:00"]);
    let paced = preview(Previewed::Paced(grid, Basis::Completion), &bounds);
    assert_eq!((paced.next.len(), paced.next[0].at), (1, at("2026-06-01T00:01:00Z")), "the others follow runs");
    assert_eq!(paced.warnings[0].code.as_str(), "follows_runs");
    assert!(paced.warnings[0].message.contains("1500 ms after the run before has come to its end"));
    let once = preview(Previewed::At(at("2026-05-31T00:00:00Z")), &window(10));
    assert_eq!((once.next.len(), once.warnings[0].code.as_str()), (0, "never_fires"));
}
