//! Lateness: judged once, over a schedule's whole backlog, when it could enter the queue.

use super::rig::{Rig, at, cron, every, on};
use crate::kernel::{
    engine_time::{EngineTime, Reading},
    occurrence::{OccurrenceNo, Reason},
    record::{Canceled, Closing, Misfired, RangeBody, Record},
    schedule::{RangeDisposition, ScheduleState},
    shard::Config,
    time::UnixMs,
};

#[test]
fn two_hours_of_missed_minutes_are_one_record_and_one_run() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &cron("* * * * *", "UTC"), at("08:00:00"));
    rig.live(at("08:29:30"));
    let records = rig.log.len();
    rig.crash(records, at("10:21:10"));
    rig.shard.queue_ready();
    rig.records();
    rig.advance(at("10:21:10"));
    // 08:30 to 10:21 are 112 instants; the differences are from 10:21:10.
    let misfired = Misfired {
        schedule: 0,
        admitted: vec![-10_000],
        missed: Some(RangeBody { first: -6_670_000, last: -70_000, count: 111 }),
        missed_occurrences: vec![],
        through: -10_000,
    };
    assert_eq!(rig.records(), [Record::Misfired(misfired)]);
    rig.land(at("10:21:10"));
    assert_eq!(rig.history(id)[29..], ["08:30:00..10:20:00 Missed x111", "10:21:00 ENQUEUED catchup"]);
    assert_eq!(rig.shard.counters().missed, 111);
    rig.live(at("10:22:00"));
    assert_eq!(rig.history(id)[31..], ["10:22:00 ENQUEUED strict"]);
}

#[test]
fn a_stall_shorter_than_the_lateness_allowed_loses_nothing_and_drifts_by_nothing() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &every(1_000, at("08:00:00")), at("08:00:00"));
    rig.work_off(at("08:00:10.300"));
    rig.land(at("08:00:10.300"));
    let all: Vec<String> = (1..=10).map(|second| format!("08:00:{second:02} ENQUEUED strict")).collect();
    assert_eq!(rig.history(id)[..10], all);
}

#[test]
fn a_stall_longer_than_the_lateness_allowed_is_decided_as_a_whole() {
    let mut rig = Rig::new(at("08:00:00"));
    let mut strict = every(1_000, at("08:00:00"));
    strict.max_lateness_ms = 5_000;
    let id = rig.create(1, &strict, at("08:00:00"));
    rig.advance(at("08:00:10.300"));
    assert_eq!(rig.history(id)[..2], ["08:00:01..08:00:09 Missed x9", "08:00:10 SCHEDULED catchup"]);
}

#[test]
fn what_was_materialised_ahead_is_judged_like_the_rest() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &every(1_000, at("08:00:00")), at("08:00:00"));
    rig.advance(at("08:00:00"));
    rig.shard.queue_away(None, "away".into(), at("08:00:00.500"));
    rig.advance(at("08:00:01.500"));
    rig.records();
    rig.advance(at("08:05:00"));
    assert_eq!(rig.records(), [], "nothing is decided for a queue that is away longer than the lead");
    rig.shard.queue_ready();
    rig.advance(at("08:05:00"));
    let history = rig.history(id);
    assert_eq!(
        history[..4],
        [
            "08:00:01 MISSED strict",
            "08:00:02 MISSED strict",
            "08:00:03 MISSED strict",
            "08:00:04..08:04:59 Missed x296"
        ]
    );
    assert_eq!(history[4], "08:05:00 SCHEDULED catchup");
}

#[test]
fn a_late_member_keeps_the_younger_ones_back_so_that_the_latest_is_admitted() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &every(30_000, at("08:00:00")), at("08:00:00"));
    for now in ["08:00:30", "08:01:00", "08:01:30", "08:01:59"] {
        rig.work_off(at(now));
    }
    assert_eq!(rig.handed.len(), 3, "08:00:30 to 08:01:30; 08:02:00 is materialised");
    rig.shard.queue_away(None, "cut".into(), at("08:01:59"));
    rig.shard.returned(&std::mem::take(&mut rig.handed));
    rig.shard.queue_ready();
    rig.records();
    rig.advance(at("08:02:10"));
    // 08:00:30 and 08:01:00 are late by more than 60 s, 08:01:30 and 08:02:00 are not: FIRE_ONCE admits one of four.
    let misfired = Misfired {
        schedule: 0,
        admitted: vec![-10_000],
        missed: None,
        missed_occurrences: vec![(0, 3)],
        through: -10_000,
    };
    assert_eq!(rig.records(), [Record::Misfired(misfired)]);
    assert_eq!(rig.handed, [OccurrenceNo(3)]);
    rig.land(at("08:02:10"));
    assert_eq!(rig.history(id)[2..], ["08:01:30 MISSED strict", "08:02:00 ENQUEUED catchup"]);
}

#[test]
fn nothing_is_judged_before_the_queue_has_been_read_back() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &every(30_000, at("08:00:00")), at("08:00:00"));
    rig.advance(at("08:00:29"));
    let (stream, occurrence) = (rig.stream(OccurrenceNo(0)), rig.shard.occurrence(OccurrenceNo(0)).unwrap());
    rig.advance(at("08:00:30"));
    assert_eq!(rig.handed, [OccurrenceNo(0)], "it lands, and the process dies before it hears so");
    let records = rig.log.len();
    rig.crash(records, at("08:10:00"));
    rig.advance(at("08:10:00"));
    rig.advance(at("08:10:01"));
    assert_eq!(rig.history(id), ["08:00:30 SCHEDULED strict"]);
    let entry = crate::kernel::occurrence::EntryId { generation: 1, counter: 1 };
    rig.turn(|shard, turn| shard.found(stream, &[(occurrence.id, 1, entry)], 1, at("08:10:01"), turn));
    rig.shard.queue_ready();
    rig.advance(at("08:10:01"));
    assert_eq!(
        rig.history(id),
        ["08:00:30 ENQUEUED strict", "08:01:00..08:09:30 Missed x18", "08:10:00 SCHEDULED catchup"]
    );
}

#[test]
fn a_schedule_that_runs_is_not_run_again_when_another_is_made() {
    let mut rig = Rig::new(at("10:00:00"));
    let mut patient = cron("1 11 * * *", "UTC");
    patient.max_lateness_ms = 3_600_000;
    let first = rig.create(1, &patient, at("10:00:00"));
    rig.live(at("11:30:00"));
    let second = rig.create(2, &cron("0 12 * * *", "UTC"), at("11:30:00"));
    rig.live(at("12:30:00"));
    assert_eq!(rig.history(first), ["11:01:00 ENQUEUED strict"]);
    assert_eq!(rig.history(second), ["12:00:00 ENQUEUED strict"]);
}

#[test]
fn a_stop_longer_than_any_wheel_reaches_is_a_backlog_like_any_other() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &cron("0 9 * * *", "UTC"), at("08:00:00"));
    let records = rig.log.len();
    let now = on("2028-05-04", "08:00:00");
    rig.crash(records, now);
    rig.shard.queue_ready();
    rig.advance(now);
    assert_eq!(rig.history(id), ["09:00:00..09:00:00 Missed x730", "09:00:00 SCHEDULED catchup"]);
}

#[test]
fn a_backlog_from_before_the_end_is_decided_after_it() {
    let mut rig = Rig::new(at("08:00:00"));
    let mut short = cron("* * * * *", "UTC");
    short.end_at = Some(at("08:05:00"));
    let id = rig.create(1, &short, at("08:00:00"));
    let records = rig.log.len();
    rig.crash(records, at("09:00:00"));
    assert_eq!(rig.shard.read(&id.into(), at("09:00:00")).unwrap().0.state, ScheduleState::Active);
    rig.shard.queue_ready();
    rig.advance(at("09:00:00"));
    rig.land(at("09:00:00"));
    assert_eq!(rig.history(id), ["08:01:00..08:03:00 Missed x3", "08:04:00 ENQUEUED catchup"]);
    assert_eq!(rig.shard.read(&id.into(), at("09:00:00")).unwrap().0.state, ScheduleState::Completed);
}

#[test]
fn no_lateness_allowed_admits_each_instant_through_the_policy_and_loses_none() {
    let mut rig = Rig::new(at("08:00:00"));
    let mut exact = cron("* * * * *", "UTC");
    exact.max_lateness_ms = 0;
    let id = rig.create(1, &exact, at("08:00:00"));
    rig.advance(at("08:00:59"));
    rig.advance(at("08:01:00"));
    rig.advance(at("08:01:59"));
    rig.advance(at("08:02:00.001"));
    rig.land(at("08:02:00.001"));
    assert_eq!(rig.history(id), ["08:01:00 ENQUEUED strict", "08:02:00 ENQUEUED catchup"]);
}

#[test]
fn a_clock_set_back_fires_nothing_twice_and_one_set_forward_floods_nothing() {
    const TEN_MINUTES_MS: i64 = 600_000;
    let mut rig = Rig::new(at("12:00:00"));
    let id = rig.create(1, &cron("* * * * *", "UTC"), at("12:00:00"));
    let reading = |wall: UnixMs, boottime_ms| Reading { wall, boottime_ms };
    let mut time = EngineTime::new(UnixMs(0), None, reading(at("12:00:00"), 0));
    let mut elapsed_ms = 0;
    let mut run = |rig: &mut Rig, from: UnixMs, minutes: i64| {
        for second in 0..minutes * 60 {
            elapsed_ms += 1_000;
            let now = time.observe(reading(from.plus(second * 1_000), elapsed_ms));
            rig.work_off(now);
            rig.land(now);
        }
    };
    run(&mut rig, at("12:00:00"), 11);
    run(&mut rig, at("12:01:00"), 12);
    let until_back: Vec<String> = (1..=12).map(|m| format!("12:{m:02}:00 ENQUEUED strict")).collect();
    assert_eq!(rig.history(id)[..12], until_back);
    run(&mut rig, at("12:13:00").plus(TEN_MINUTES_MS), 2);
    assert_eq!(
        rig.history(id)[12..16],
        [
            "12:13:00 MISSED strict",
            "12:14:00..12:22:00 Missed x9",
            "12:23:00 ENQUEUED catchup",
            "12:24:00 ENQUEUED strict"
        ]
    );
}

#[test]
fn a_full_house_decides_nothing_until_there_is_room() {
    let config = Config { live_limit: 2, ..Config::default() };
    let mut rig = Rig::with(config, at("08:00:00"));
    let id = rig.create(1, &every(1_000, at("08:00:00")), at("08:00:00"));
    rig.live(at("08:00:30"));
    assert_eq!(rig.history(id).len(), 2, "workers take nothing");
    let run = rig.claim(0, at("08:05:00")).unwrap();
    rig.complete(&run, at("08:05:00")).unwrap();
    rig.advance(at("08:05:00"));
    assert_eq!(
        rig.history(id)[1..],
        ["08:00:02 ENQUEUED strict", "08:00:03..08:04:59 Missed x297", "08:05:00 SCHEDULED catchup"]
    );
}

#[test]
fn a_cancel_disposes_of_what_was_due_and_not_decided_as_one_range() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &cron("* * * * *", "UTC"), at("08:00:00"));
    let canceled = rig.cancel(id, at("08:10:30"));
    let due = Some(RangeBody { first: -570_000, last: -30_000, count: 10 });
    let closing = Closing { due, ..Closing::default() };
    assert_eq!(rig.log.last(), Some(&Record::Canceled(Canceled { schedule: 0, closing })));
    let [range] = canceled.receipt.ranges[..] else { panic!("one range") };
    assert_eq!((range.disposition, range.count), (RangeDisposition::Canceled(Reason::Canceled), 10));
}
