//! A cancel and its receipt: in the wheel, in the outbox, with the queue, landed.

use super::rig::{Rig, at, cron, every};
use crate::kernel::{
    occurrence::{OccurrenceNo, State},
    record::{Canceled, Closing, Record},
    schedule::ScheduleState,
};

#[test]
fn in_the_wheel_nothing_is_left_and_nothing_runs() {
    let mut rig = Rig::new(at("22:00:00"));
    let id = rig.create(1, &cron("0 23 * * *", "UTC"), at("22:00:00"));
    let canceled = rig.cancel(id, at("22:30:00"));
    assert_eq!(canceled.schedule.state, ScheduleState::Canceled);
    assert_eq!((canceled.receipt.canceled, canceled.receipt.kept, canceled.receipt.ranges), (vec![], vec![], vec![]));
    assert_eq!(rig.shard.next_wake(), None);
    rig.live(at("23:30:00"));
    assert_eq!(rig.handed, []);
    assert_eq!(rig.shard.schedules_by_state(), [0, 0, 0, 1]);
}

#[test]
fn materialised_ahead_it_is_canceled_by_id_and_never_runs() {
    let mut rig = Rig::new(at("22:00:00"));
    let id = rig.create(1, &cron("0 23 * * *", "UTC"), at("22:00:00"));
    rig.advance(at("22:59:59"));
    let occurrence = rig.shard.occurrence(OccurrenceNo(0)).unwrap();
    let canceled = rig.cancel(id, at("22:59:59"));
    assert_eq!((canceled.receipt.canceled, canceled.receipt.kept), (vec![occurrence.id], vec![]));
    rig.live(at("23:30:00"));
    assert_eq!((rig.state(0), rig.handed.len()), (State::Canceled, 0));
}

#[test]
fn with_the_queue_it_is_kept_and_lands() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &every(1_000, at("08:00:00")), at("08:00:00"));
    rig.work_off(at("08:00:02"));
    assert_eq!(rig.handed.len(), 2, "two more are materialised ahead");
    let canceled = rig.cancel(id, at("08:00:02"));
    assert_eq!((canceled.receipt.kept.len(), canceled.receipt.canceled.len()), (2, 2));
    let closing = Closing { kept: vec![(0, 2)], ..Closing::default() };
    let record = Canceled { schedule: 0, closing };
    assert_eq!(rig.log.last(), Some(&Record::Canceled(record)));
    rig.land(at("08:00:02"));
    assert_eq!(
        rig.history(id),
        [
            "08:00:01 ENQUEUED strict",
            "08:00:02 ENQUEUED strict",
            "08:00:03 CANCELED strict",
            "08:00:04 CANCELED strict"
        ]
    );
}

#[test]
fn what_was_kept_and_came_back_is_still_delivered() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &every(10_000, at("08:00:00")), at("08:00:00"));
    rig.work_off(at("08:00:10"));
    rig.cancel(id, at("08:00:10"));
    rig.shard.returned(&std::mem::take(&mut rig.handed));
    rig.advance(at("08:00:11"));
    assert_eq!(rig.handed, [OccurrenceNo(0)]);
}

#[test]
fn before_the_queue_has_been_read_back_what_may_stand_there_is_kept() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &every(1_000, at("08:00:00")), at("08:00:00"));
    rig.advance(at("08:00:00"));
    rig.advance(at("08:00:01"));
    assert_eq!(rig.handed, [OccurrenceNo(0)]);
    let records = rig.log.len();
    rig.crash(records, at("08:00:01.500"));
    let canceled = rig.cancel(id, at("08:00:01.600"));
    assert_eq!((canceled.receipt.kept.len(), canceled.receipt.canceled.len()), (1, 2));
    assert_eq!(rig.state(0), State::Scheduled, "it runs, whether it had landed or not");
}

#[test]
fn once_more_it_is_the_same_answer_and_an_empty_receipt() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &every(1_000, at("08:00:00")), at("08:00:00"));
    rig.advance(at("08:00:00"));
    let first = rig.cancel(id, at("08:00:00.500"));
    let records = rig.log.len();
    let second = rig.cancel(id, at("08:00:00.900"));
    assert_eq!((second.schedule, rig.log.len()), (first.schedule, records));
    assert!(second.receipt.canceled.is_empty() && !first.receipt.canceled.is_empty());
}

#[test]
fn a_stream_that_takes_nothing_keeps_nothing_from_a_cancel() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &every(1_000, at("08:00:00")), at("08:00:00"));
    rig.advance(at("08:00:00"));
    let stream = rig.stream(OccurrenceNo(0));
    rig.shard.queue_away(Some(stream), "a foreign key".into(), at("08:00:00"));
    rig.advance(at("08:00:01"));
    assert_eq!(rig.handed, []);
    let canceled = rig.cancel(id, at("08:00:01"));
    assert_eq!(canceled.receipt.kept, []);
    rig.shard.queue_ready();
    rig.advance(at("08:00:02"));
    assert_eq!(rig.handed, []);
}
