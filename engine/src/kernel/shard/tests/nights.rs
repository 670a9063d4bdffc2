//! The two nights of the year on which wall clocks jump, through the whole shard.

use super::rig::{Rig, cron, on};
use crate::kernel::{
    calendar::{FoldChoice, Gap},
    schedule::{Rule, Spec},
};

fn with(mut spec: Spec, fold: FoldChoice, gap: Gap) -> Spec {
    if let Rule::Cron(rule) = &mut spec.rule {
        (rule.fold, rule.gap) = (fold, gap);
    }
    spec
}

#[test]
fn a_wall_time_that_is_jumped_over_is_skipped_or_shifted() {
    let mut rig = Rig::new(on("2026-03-08", "06:30:00"));
    let skip = with(cron("30 2 * * *", "America/New_York"), FoldChoice::Once, Gap::Skip);
    let shift = with(cron("30 2 * * *", "America/New_York"), FoldChoice::Once, Gap::Shift);
    let skip = rig.create(1, &skip, on("2026-03-08", "06:30:00"));
    let shift = rig.create(2, &shift, on("2026-03-08", "06:30:00"));
    rig.live(on("2026-03-09", "12:00:00"));
    assert_eq!(rig.history(skip), ["06:30:00 ENQUEUED strict"]);
    assert_eq!(rig.history(shift), ["07:00:00 ENQUEUED strict", "06:30:00 ENQUEUED strict"]);
}

#[test]
fn a_wall_time_that_comes_twice_runs_once_or_twice() {
    let evening = on("2026-10-31", "12:00:00");
    let mut rig = Rig::new(evening);
    let once = with(cron("30 1 * * *", "America/New_York"), FoldChoice::Once, Gap::Skip);
    let both = with(cron("30 1 * * *", "America/New_York"), FoldChoice::Both, Gap::Skip);
    let once = rig.create(1, &once, evening);
    let both = rig.create(2, &both, evening);
    rig.live(on("2026-11-02", "12:00:00"));
    assert_eq!(rig.history(once), ["05:30:00 ENQUEUED strict", "06:30:00 ENQUEUED strict"]);
    assert_eq!(rig.history(both), ["05:30:00 ENQUEUED strict", "06:30:00 ENQUEUED strict", "06:30:00 ENQUEUED strict"]);
}

#[test]
fn an_outage_over_the_fold_counts_each_instant_once() {
    let evening = on("2026-10-25", "00:05:00");
    let mut rig = Rig::new(evening);
    let cadence = with(cron("*/15 * * * *", "Europe/Berlin"), FoldChoice::Both, Gap::Skip);
    let id = rig.create(1, &cadence, evening);
    let records = rig.log.len();
    rig.crash(records, on("2026-10-25", "02:20:00"));
    rig.shard.queue_ready();
    rig.advance(on("2026-10-25", "02:20:00"));
    assert_eq!(rig.history(id), ["00:15:00..02:00:00 Missed x8", "02:15:00 SCHEDULED catchup"]);
}
