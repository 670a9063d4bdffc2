//! The examples run, and say what they are there to show. Cargo builds them beside the tests.

use std::process::Command;

fn said(example: &str) -> String {
    let tests = std::env::current_exe().expect("a test has a path");
    let target = tests.ancestors().nth(2).expect("tests lie in target/PROFILE/deps");
    let path = target.join("examples").join(example);
    let run = Command::new(&path).output();
    let run = run.unwrap_or_else(|error| panic!("{}: {error}: run `cargo build --examples`", path.display()));
    assert!(run.status.success(), "{example}: {}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8(run.stdout).expect("an example writes text")
}

#[test]
fn the_misfire_policies_decide_one_outage_three_ways() {
    let said = said("misfire_policies");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines,
        ["SKIP: 1 run, 9 missed", "FIRE_ONCE: 1 run, 9 missed", "CATCH_UP(3): 3 run, 7 missed"],
        "{said}"
    );
}

#[test]
fn receipts_tell_what_each_call_changed() {
    let said = said("receipts");
    for line in [
        "pause: v2 paused, 0 canceled, 0 kept, 0 ranges",
        "pause again: v2 paused",
        "resume: v3 active",
        "update: v4 active",
        "update of version 3 again: version 4 stands, not 3",
        "cancel: v4 canceled",
    ] {
        assert!(said.contains(line), "{line:?} is missing: {said}");
    }
}

#[test]
fn nights_on_which_clocks_change_are_shown() {
    let said = said("dst_night");
    for line in [
        "spring forward: 30 2 * * * after 2026-03-08T05:00:00.000Z: 2026-03-09T06:30:00.000Z",
        "2026-11-01T05:30:00.000Z, 2026-11-02T06:30:00.000Z",
        "2026-11-01T05:30:00.000Z, 2026-11-01T06:30:00.000Z, 2026-11-02T06:30:00.000Z",
        "2026-11-01T05:30:00.000Z, 2026-11-01T06:00:00.000Z, 2026-11-01T06:30:00.000Z",
    ] {
        assert!(said.contains(line), "{line:?} is missing: {said}");
    }
}

#[test]
fn a_flexible_window_spreads_and_a_virtual_clock_passes_a_year() {
    let spread = said("flexible_window");
    let counts = spread.split(['[', ']']).nth(1).expect("a list");
    let counts: Vec<u32> = counts.split(", ").map(|count| count.parse().expect("a count")).collect();
    assert_eq!(counts.iter().sum::<u32>(), 100);
    assert!(counts.iter().all(|count| *count < 40), "{spread}");
    let year = said("virtual_clock");
    assert_eq!(year.lines().count(), 12, "{year}");
    assert!(year.starts_with("2026-01-30T17:00:00.000Z\n2026-02-27T17:00:00.000Z\n"), "{year}");
}

#[test]
fn a_small_tenant_does_not_wait_for_a_large_one() {
    let said = said("fairness");
    let place: u32 = said.split_whitespace().nth(8).and_then(|word| word.parse().ok()).expect("a number");
    assert!((10..200).contains(&place), "{said}");
}

#[test]
fn the_overlap_policies_decide_between_workers_that_claim_at_once() {
    assert_eq!(
        said("overlap"),
        "ALLOW: 6 ran, 0 skipped, 4 at a time\nSKIP_IF_RUNNING: 2 ran, 4 skipped, 1 at a time\nQUEUE_ONE: 3 ran, 3 skipped, 1 at a time\n"
    );
}

#[test]
fn what_must_not_repeat_is_held_until_a_person_decides() {
    let said = said("held");
    for line in [
        "HELD: lease_expired_outcome_unknown",
        "a late answer: the token holds no lease",
        "owner Some(\"treasury\"), result Some(\"tx-4711\")",
        "resolved: SUCCEEDED",
    ] {
        assert!(said.contains(line), "{line:?} is missing: {said}");
    }
}
