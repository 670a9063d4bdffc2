//! Manual triggers and backfills: their own ids, their own lane, and what the same key is answered.

use super::rig::{Rig, at, cron, every};
use crate::kernel::{
    id::{Kind, OccurrenceId, ScheduleId},
    occurrence::{Lane, OccurrenceNo},
    record::Record,
    refusal::RefusalCode,
    shard::{Backfilled, CommandError, Request, Triggered},
    time::UnixMs,
};

fn keyed(key: &str) -> Request {
    Request { discriminator: key.as_bytes().to_vec(), is_keyed: true }
}

fn fresh(n: u8) -> Request {
    Request { discriminator: vec![n; 16], is_keyed: false }
}

fn trigger(rig: &mut Rig, id: ScheduleId, request: Request, now: UnixMs) -> Triggered {
    rig.call(|shard, turn| shard.trigger(&id.into(), request, now, turn)).unwrap()
}

fn backfill(
    rig: &mut Rig,
    id: ScheduleId,
    window: (UnixMs, UnixMs),
    request: Request,
    now: UnixMs,
) -> Result<Backfilled, CommandError> {
    rig.call(|shard, turn| shard.backfill(&id.into(), window, request, now, turn))
}

#[test]
fn a_manual_trigger_runs_now_in_the_strict_lane_and_moves_no_cursor() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &cron("0 9 * * *", "UTC"), at("08:00:00"));
    let made = trigger(&mut rig, id, keyed("go"), at("08:10:00"));
    let expected = OccurrenceId::of(id, 1, at("08:10:00"), Kind::Manual, b"go");
    assert_eq!(made, Triggered { occurrence_id: expected, is_new: true });
    rig.live(at("08:10:00"));
    let manual = rig.shard.occurrence(OccurrenceNo(0)).unwrap();
    assert_eq!((manual.kind, manual.lane, manual.available_at), (Kind::Manual, Lane::Strict, at("08:10:00")));
    let schedule = rig.shard.read(&id.into(), at("08:10:00")).unwrap().0;
    assert_eq!((schedule.last_run_at, schedule.next_run_at), (None, Some(at("09:00:00"))));
    rig.live(at("09:00:00"));
    assert_eq!(rig.history(id), ["08:10:00 ENQUEUED strict", "09:00:00 ENQUEUED strict"]);
}

#[test]
fn the_same_key_within_a_day_is_the_same_occurrence_and_two_without_are_two() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &cron("0 9 * * *", "UTC"), at("08:00:00"));
    let first = trigger(&mut rig, id, keyed("go"), at("08:10:00"));
    let records = rig.log.len();
    rig.crash(records, at("08:10:01"));
    let again = trigger(&mut rig, id, keyed("go"), at("08:11:00"));
    assert_eq!((again.occurrence_id, again.is_new), (first.occurrence_id, false));
    let (one, two) = (trigger(&mut rig, id, fresh(1), at("08:12:00")), trigger(&mut rig, id, fresh(2), at("08:12:00")));
    assert_ne!(one.occurrence_id, two.occurrence_id);
    let next_day = trigger(&mut rig, id, keyed("go"), at("08:10:00").plus(86_400_000));
    assert!(next_day.is_new && next_day.occurrence_id != first.occurrence_id);
}

#[test]
fn a_manual_occurrence_is_never_judged_however_late_the_queue_is_back() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &cron("0 9 * * *", "UTC"), at("08:00:00"));
    rig.shard.queue_away(None, "cut".into(), at("08:09:00"));
    trigger(&mut rig, id, fresh(1), at("08:10:00"));
    rig.work_off(at("08:40:00"));
    rig.shard.queue_ready();
    rig.live(at("08:40:00"));
    assert_eq!(rig.history(id), ["08:10:00 ENQUEUED strict"]);
}

#[test]
fn a_backfill_runs_what_ran_again_under_its_own_ids() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &cron("0 * * * *", "UTC"), at("08:00:00"));
    rig.live(at("09:30:00"));
    let window = (at("08:59:00"), at("09:01:00"));
    let asked = backfill(&mut rig, id, window, keyed("again"), at("09:30:00")).unwrap();
    assert_eq!(asked, Backfilled { occurrences: 1, is_new: true });
    rig.live(at("09:30:00"));
    let mut history = rig.history(id);
    history.sort_unstable();
    assert_eq!(history, ["09:00:00 ENQUEUED catchup", "09:00:00 ENQUEUED strict"]);
    let made = rig.shard.occurrence(OccurrenceNo(1)).unwrap();
    let expected = OccurrenceId::of(id, 1, at("09:00:00"), Kind::Backfill, b"again");
    assert_eq!((made.id, made.kind, made.available_at), (expected, Kind::Backfill, at("09:30:00")));
    let again = backfill(&mut rig, id, window, keyed("again"), at("09:40:00")).unwrap();
    assert_eq!(again, Backfilled { occurrences: 1, is_new: false });
    let other = backfill(&mut rig, id, (at("08:00:00"), at("09:01:00")), keyed("again"), at("09:40:00"));
    assert_eq!(other, Err(CommandError::KeyTaken { version: 1 }), "the key stands for another window");
}

#[test]
fn a_large_backfill_is_expanded_in_order_a_part_a_turn_and_across_a_crash() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &every(1_000, at("08:00:00")), at("08:00:00"));
    rig.call(|shard, turn| shard.pause(&id.into(), at("08:00:00"), turn)).unwrap();
    let window = (at("04:00:00"), at("08:00:00"));
    let asked = backfill(&mut rig, id, window, fresh(1), at("08:00:00")).unwrap();
    assert_eq!(asked.occurrences, 14_400);
    rig.advance(at("08:00:00"));
    let made = rig.history(id).len();
    assert!((1..14_400).contains(&made), "{made} in one turn");
    let records = rig.log.len();
    rig.crash(records, at("08:00:01"));
    rig.shard.queue_ready();
    for second in 1..60 {
        rig.work_off(at("08:00:00").plus(second * 1_000));
        rig.land(at("08:00:00").plus(second * 1_000));
    }
    let history = rig.history(id);
    assert_eq!(history.len(), 4_096, "a page looks at no more");
    assert_eq!((history[0].as_str(), history[1].as_str()), ("04:00:00 ENQUEUED catchup", "04:00:01 ENQUEUED catchup"));
    assert_eq!(rig.shard.counters().materialized as usize + made, 14_400);
}

#[test]
fn what_is_not_expanded_ends_with_a_pause_as_one_range() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &cron("0 9 * * *", "UTC"), at("08:00:00"));
    rig.shard.queue_away(None, "cut".into(), at("08:00:00"));
    let day_ms = 86_400_000;
    let window = (at("08:00:00").minus(10 * day_ms), at("08:00:00"));
    assert_eq!(backfill(&mut rig, id, window, fresh(1), at("08:00:01")).unwrap().occurrences, 10);
    rig.advance(at("08:00:02"));
    let paused = rig.call(|shard, turn| shard.pause(&id.into(), at("08:00:03"), turn)).unwrap();
    let [range] = paused.receipt.ranges[..] else { panic!("one range: {:?}", paused.receipt) };
    assert_eq!((range.kind, range.count), (Kind::Backfill, 10));
    rig.shard.queue_ready();
    rig.live(at("08:30:00"));
    assert_eq!(rig.history(id), ["09:00:00..09:00:00 Canceled(Paused) x10"]);
}

#[test]
fn a_window_that_cannot_be_is_refused_with_its_field() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &every(1_000, at("08:00:00")), at("08:00:00"));
    let mut refused = |from: UnixMs, to: UnixMs| match backfill(&mut rig, id, (from, to), fresh(1), at("08:00:00")) {
        Err(CommandError::Refused(refusal)) => (refusal.code, refusal.field),
        other => panic!("{other:?}"),
    };
    let eight = at("08:00:00");
    assert_eq!(refused(eight, eight), (RefusalCode::Invalid, "to".to_owned()));
    assert_eq!(refused(eight.minus(1), eight.plus(1)), (RefusalCode::Invalid, "to".to_owned()));
    assert_eq!(refused(eight.minus(200_000_000), eight), (RefusalCode::TooMany, "to".to_owned()));
    rig.cancel(id, at("08:00:01"));
    let canceled = rig.call(|shard, turn| shard.trigger(&id.into(), fresh(1), at("08:00:02"), turn));
    assert_eq!(canceled.unwrap_err(), CommandError::Canceled);
}

#[test]
fn an_empty_backfill_is_answered_and_leaves_nothing_behind() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &cron("0 9 * * *", "UTC"), at("08:00:00"));
    let window = (at("07:00:00"), at("08:00:00"));
    assert_eq!(backfill(&mut rig, id, window, fresh(1), at("08:00:00")).unwrap().occurrences, 0);
    rig.records();
    rig.live(at("08:30:00"));
    assert!(!rig.records().iter().any(|record| matches!(record, Record::BackfillExpanded(_))));
}
