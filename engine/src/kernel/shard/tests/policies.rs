//! The three misfire policies beside each other, over the same outage.

use super::rig::{Rig, at, cron, every};
use crate::kernel::{policy::Misfire, record::Record, schedule::Spec};

/// A minutely schedule that missed 08:30 to 10:21, 112 instants, when the engine is back at 10:21:10.
fn after_the_outage(describe: impl Fn(&mut Spec)) -> Vec<String> {
    let mut rig = Rig::new(at("08:00:00"));
    let mut minutely = cron("* * * * *", "UTC");
    describe(&mut minutely);
    let id = rig.create(1, &minutely, at("08:00:00"));
    rig.live(at("08:29:30"));
    let records = rig.log.len();
    rig.crash(records, at("10:21:10"));
    rig.shard.queue_ready();
    rig.live(at("10:22:00"));
    let records = rig.log.len();
    let history = rig.history(id);
    rig.crash(records, at("10:22:00"));
    assert_eq!(rig.history(id), history, "replay gives the same");
    history[29..].to_vec()
}

#[test]
fn skip_runs_only_what_is_not_late() {
    assert_eq!(
        after_the_outage(|spec| spec.misfire = Misfire::Skip),
        ["08:30:00..10:20:00 Missed x111", "10:21:00 ENQUEUED strict", "10:22:00 ENQUEUED strict"]
    );
    assert_eq!(
        after_the_outage(|spec| (spec.misfire, spec.max_lateness_ms) = (Misfire::Skip, 5_000)),
        ["08:30:00..10:21:00 Missed x112", "10:22:00 ENQUEUED strict"]
    );
}

#[test]
fn fire_once_runs_the_latest() {
    assert_eq!(
        after_the_outage(|spec| spec.misfire = Misfire::FireOnce),
        ["08:30:00..10:20:00 Missed x111", "10:21:00 ENQUEUED catchup", "10:22:00 ENQUEUED strict"]
    );
}

#[test]
fn catch_up_runs_the_latest_few_oldest_first() {
    assert_eq!(
        after_the_outage(|spec| spec.misfire = Misfire::CatchUp { limit: 5 }),
        [
            "08:30:00..10:16:00 Missed x107",
            "10:17:00 ENQUEUED catchup",
            "10:18:00 ENQUEUED catchup",
            "10:19:00 ENQUEUED catchup",
            "10:20:00 ENQUEUED catchup",
            "10:21:00 ENQUEUED catchup",
            "10:22:00 ENQUEUED strict"
        ]
    );
}

#[test]
fn catch_up_takes_everything_that_is_less_than_its_limit() {
    let lines = after_the_outage(|spec| spec.misfire = Misfire::CatchUp { limit: 1_000 });
    assert_eq!(lines.len(), 113);
    assert!(lines[..112].iter().all(|line| line.ends_with("ENQUEUED catchup")), "{lines:?}");
}

#[test]
fn what_was_materialised_ahead_counts_among_the_latest() {
    let mut rig = Rig::new(at("08:00:00"));
    let mut secondly = every(1_000, at("08:00:00"));
    secondly.misfire = Misfire::CatchUp { limit: 3 };
    let id = rig.create(1, &secondly, at("08:00:00"));
    rig.work_off(at("08:00:00"));
    rig.shard.queue_away(None, "cut".into(), at("08:00:00.500"));
    // Nothing more is materialised: two occurrences wait, and are the latest of what is owed.
    rig.shard.queue_ready();
    let records = rig.log.len();
    rig.crash(records, at("08:01:03.500"));
    rig.shard.queue_ready();
    rig.live(at("08:01:03.500"));
    assert_eq!(
        rig.history(id)[..6],
        [
            "08:00:01 MISSED strict",
            "08:00:02 MISSED strict",
            "08:00:03..08:01:00 Missed x58",
            "08:01:01 ENQUEUED catchup",
            "08:01:02 ENQUEUED catchup",
            "08:01:03 ENQUEUED catchup"
        ]
    );
}

#[test]
fn a_day_of_missed_seconds_costs_one_record() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &cron("* * * * * *", "UTC"), at("08:00:00"));
    let records = rig.log.len();
    let now = at("08:00:00").plus(86_400_000);
    rig.crash(records, now);
    rig.shard.queue_ready();
    rig.records();
    rig.advance(now);
    let records = rig.records();
    let decisions = records.iter().filter(|record| matches!(record, Record::Misfired(_))).count();
    assert!(decisions == 1 && records.len() <= 2, "the decision, and what comes next: {records:?}");
    assert_eq!(rig.history(id)[0], "08:00:01..07:59:59 Missed x86399");
}

#[test]
fn skip_spares_waiting_members_that_are_not_late() {
    let mut rig = Rig::new(at("08:00:00"));
    let mut half = every(30_000, at("08:00:00"));
    half.misfire = Misfire::Skip;
    let id = rig.create(1, &half, at("08:00:00"));
    for now in ["08:00:30", "08:01:00", "08:01:30", "08:01:59"] {
        rig.work_off(at(now));
    }
    rig.shard.queue_away(None, "cut".into(), at("08:01:59"));
    rig.shard.returned(&std::mem::take(&mut rig.handed));
    rig.shard.queue_ready();
    rig.work_off(at("08:02:10"));
    rig.land(at("08:02:10"));
    assert_eq!(
        rig.history(id)[..4],
        ["08:00:30 MISSED strict", "08:01:00 MISSED strict", "08:01:30 ENQUEUED strict", "08:02:00 ENQUEUED strict"]
    );
}
