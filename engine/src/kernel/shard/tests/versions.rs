//! Update, pause, resume, a second life: what belongs to the old version, what to the new, and what the receipt says.

use super::rig::{Rig, at, cron, every, on, spec};
use crate::kernel::{
    id::ScheduleId,
    occurrence::{OccurrenceNo, Reason},
    policy::Misfire,
    refusal::RefusalCode,
    schedule::{RangeDisposition, Rule, ScheduleState, Spec},
    shard::{CommandError, Config, Creation, Pending, Receipted, Target},
    time::UnixMs,
};

fn update(rig: &mut Rig, id: ScheduleId, spec: &Spec, pending: Pending, now: UnixMs) -> Receipted {
    let target = Target::from(id);
    let version = rig.shard.read(&target, now).unwrap().0.version;
    rig.call(|shard, turn| shard.update(&target, spec, version, pending, now, turn)).unwrap()
}

fn pause(rig: &mut Rig, id: ScheduleId, now: UnixMs) -> Receipted {
    rig.call(|shard, turn| shard.pause(&id.into(), now, turn)).unwrap()
}

fn resume(rig: &mut Rig, id: ScheduleId, now: UnixMs) -> Receipted {
    rig.call(|shard, turn| shard.resume(&id.into(), now, turn)).unwrap()
}

#[test]
fn an_update_fires_nothing_retroactively() {
    // Last fired on Friday 11:30; on Thursday the rule moves to 11:00.
    let mut rig = Rig::new(on("2026-05-08", "11:00:00"));
    let id = rig.create(1, &cron("30 11 * * 5", "UTC"), on("2026-05-08", "11:00:00"));
    rig.live(on("2026-05-14", "23:49:00"));
    let updated = update(&mut rig, id, &cron("0 11 * * 5", "UTC"), Pending::Cancel, on("2026-05-14", "23:49:00"));
    assert_eq!((updated.schedule.version, updated.receipt.canceled.len()), (2, 0));
    assert_eq!(updated.schedule.next_run_at, Some(on("2026-05-15", "11:00:00")));
    rig.live(on("2026-05-15", "10:59:00"));
    assert_eq!(rig.history(id), ["11:30:00 ENQUEUED strict"]);
    rig.live(on("2026-05-15", "12:00:00"));
    assert_eq!(rig.history(id)[1..], ["11:00:00 ENQUEUED strict"]);
}

#[test]
fn what_was_materialised_ahead_is_superseded_and_named() {
    let mut rig = Rig::new(at("22:00:00"));
    let id = rig.create(1, &cron("0 23 * * *", "UTC"), at("22:00:00"));
    rig.advance(at("22:59:59"));
    let ahead = rig.shard.occurrence(OccurrenceNo(0)).unwrap();
    let updated = update(&mut rig, id, &cron("0 5 * * *", "UTC"), Pending::Cancel, at("22:59:59"));
    assert_eq!((updated.receipt.canceled, updated.receipt.kept), (vec![ahead.id], vec![]));
    rig.live(at("23:30:00"));
    assert_eq!(rig.handed, []);
    let gone = rig.shard.occurrence(OccurrenceNo(0)).unwrap();
    assert_eq!((gone.reason, gone.version), (Some(Reason::Superseded), 1));
    assert_eq!(updated.schedule.next_run_at, Some(on("2026-05-05", "05:00:00")));
}

#[test]
fn the_lead_shows_nowhere_an_instant_of_the_new_rule_within_it_fires() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &every(1_000, at("08:00:00")), at("08:00:00"));
    rig.work_off(at("08:00:00.200"));
    assert_eq!(rig.history(id).len(), 2, "08:00:01 and 08:00:02 are materialised");
    let updated = update(&mut rig, id, &every(1_000, at("08:00:00.500")), Pending::Cancel, at("08:00:00.200"));
    assert_eq!(updated.receipt.canceled.len(), 2);
    assert_eq!(updated.schedule.next_run_at, Some(at("08:00:00.500")));
    rig.live(at("08:00:01.600"));
    let states: Vec<String> = rig.history(id).iter().map(|line| line[9..].to_owned()).collect();
    assert_eq!(
        states[..4],
        ["ENQUEUED strict", "CANCELED strict", "ENQUEUED strict", "CANCELED strict"],
        "{:?}",
        rig.history(id)
    );
}

#[test]
fn what_is_due_and_kept_goes_on_under_the_old_version_with_its_payload() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &every(10_000, at("08:00:00")), at("08:00:00"));
    rig.advance(at("08:00:08"));
    rig.shard.queue_away(None, "cut".into(), at("08:00:09"));
    rig.advance(at("08:00:31"));
    let mut new = every(60_000, at("08:00:00"));
    new.payload = b"new".to_vec();
    let updated = update(&mut rig, id, &new, Pending::Keep, at("08:00:31"));
    assert_eq!((updated.receipt.kept.len(), updated.receipt.canceled.len()), (3, 0), "08:00:10, :20 and :30");
    rig.shard.queue_ready();
    rig.work_off(at("08:00:31"));
    assert_eq!(rig.handed.len(), 3);
    for number in rig.handed.clone() {
        let entry = rig.shard.entry(number);
        assert_eq!((entry.version, entry.payload), (1, &b"hi"[..]));
    }
    rig.land(at("08:00:31"));
    rig.live(at("08:01:00"));
    assert_eq!(rig.history(id)[3..], ["08:01:00 ENQUEUED strict"]);
}

#[test]
fn what_is_kept_and_late_is_judged_by_the_old_policy_at_the_update() {
    let mut rig = Rig::new(at("08:00:00"));
    let mut old = cron("* * * * *", "UTC");
    old.misfire = Misfire::CatchUp { limit: 2 };
    let id = rig.create(1, &old, at("08:00:00"));
    let records = rig.log.len();
    rig.crash(records, at("08:10:30"));
    let mut new = cron("0 * * * *", "UTC");
    new.misfire = Misfire::Skip;
    update(&mut rig, id, &new, Pending::Keep, at("08:10:30"));
    rig.shard.queue_ready();
    rig.live(at("08:10:31"));
    assert_eq!(
        rig.history(id),
        ["08:01:00..08:08:00 Missed x8", "08:09:00 ENQUEUED catchup", "08:10:00 ENQUEUED catchup"]
    );
}

#[test]
fn due_and_not_materialised_is_one_range_of_the_reason() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &cron("* * * * *", "UTC"), at("08:00:00"));
    let records = rig.log.len();
    rig.crash(records, at("08:10:30"));
    let updated = update(&mut rig, id, &cron("0 * * * *", "UTC"), Pending::Cancel, at("08:10:30"));
    let [range] = updated.receipt.ranges[..] else { panic!("one range") };
    assert_eq!((range.disposition, range.count), (RangeDisposition::Canceled(Reason::Superseded), 10));
    assert_eq!((range.first, range.last), (at("08:01:00"), at("08:10:00")));
}

#[test]
fn a_call_that_changes_nothing_makes_no_version_and_a_stale_one_is_told() {
    let mut rig = Rig::new(at("08:00:00"));
    let minutely = cron("* * * * *", "UTC");
    let id = rig.create(1, &minutely, at("08:00:00"));
    let stored = rig.shard.read(&id.into(), at("08:00:01")).unwrap().0.spec;
    let records = rig.log.len();
    let same = update(&mut rig, id, &stored, Pending::Cancel, at("08:00:01"));
    assert_eq!((same.schedule.version, rig.log.len()), (1, records));
    let stale = rig.call(|shard, turn| {
        shard.update(&id.into(), &cron("0 * * * *", "UTC"), 7, Pending::Cancel, at("08:00:02"), turn)
    });
    assert_eq!(stale.unwrap_err(), CommandError::VersionMismatch { expected: 7, current: 1 });
    let past = rig.call(|shard, turn| {
        shard.update(&id.into(), &spec(Rule::At(at("07:00:00"))), 1, Pending::Cancel, at("08:00:02"), turn)
    });
    assert!(matches!(past, Err(CommandError::Refused(refusal)) if refusal.code == RefusalCode::NeverFires));
    assert_eq!(rig.log.len(), records);
}

#[test]
fn paused_instants_are_no_misfires_and_never_fire() {
    let mut rig = Rig::new(at("00:30:00"));
    let id = rig.create(1, &cron("0 2 * * *", "UTC"), at("00:30:00"));
    let paused = pause(&mut rig, id, at("01:00:00"));
    assert_eq!((paused.schedule.state, paused.schedule.version), (ScheduleState::Paused, 2));
    assert_eq!(paused.schedule.next_run_at, None);
    rig.live(at("07:00:00"));
    assert_eq!(pause(&mut rig, id, at("07:10:00")).schedule.version, 2, "repeated");
    let resumed = resume(&mut rig, id, at("07:49:00"));
    assert_eq!((resumed.schedule.state, resumed.schedule.version), (ScheduleState::Active, 3));
    assert_eq!(resumed.schedule.next_run_at, Some(on("2026-05-05", "02:00:00")));
    assert_eq!(resumed.receipt.ranges[0].disposition, RangeDisposition::Canceled(Reason::Paused));
    assert_eq!(resume(&mut rig, id, at("07:50:00")).receipt.ranges, [], "repeated");
    rig.live(at("08:00:00"));
    assert_eq!(rig.history(id), ["02:00:00..02:00:00 Canceled(Paused) x1"]);
}

#[test]
fn a_pause_survives_a_crash_and_an_update_while_paused_stays_paused() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &cron("* * * * *", "UTC"), at("08:00:00"));
    pause(&mut rig, id, at("08:00:30"));
    let updated = update(&mut rig, id, &cron("*/2 * * * *", "UTC"), Pending::Cancel, at("08:03:30"));
    assert_eq!(updated.schedule.state, ScheduleState::Paused);
    let records = rig.log.len();
    rig.crash(records, at("08:09:00"));
    rig.shard.queue_ready();
    rig.live(at("08:09:00"));
    resume(&mut rig, id, at("08:09:30"));
    rig.live(at("08:10:00"));
    assert_eq!(
        rig.history(id),
        [
            "08:01:00..08:03:00 Canceled(Paused) x3",
            "08:04:00..08:08:00 Canceled(Paused) x3",
            "08:10:00 ENQUEUED strict"
        ]
    );
}

#[test]
fn a_completed_schedule_that_gets_a_future_is_active_again() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &spec(Rule::At(at("08:30:00"))), at("08:00:00"));
    rig.live(at("09:00:00"));
    assert_eq!(rig.shard.read(&id.into(), at("09:00:00")).unwrap().0.state, ScheduleState::Completed);
    let again = update(&mut rig, id, &spec(Rule::At(at("10:00:00"))), Pending::Cancel, at("09:00:00"));
    assert_eq!((again.schedule.state, again.schedule.version), (ScheduleState::Active, 2));
    rig.live(at("11:00:00"));
    assert_eq!(rig.history(id), ["08:30:00 ENQUEUED strict", "10:00:00 ENQUEUED strict"]);
}

#[test]
fn a_key_that_was_deleted_begins_a_new_life_with_other_ids() {
    let mut rig = Rig::new(at("20:00:00"));
    let threes = every(180_000, at("20:30:00"));
    let id = rig.create(1, &threes, at("20:00:00"));
    rig.live(at("20:31:00"));
    rig.cancel(id, at("20:31:00"));
    let creation = Creation { id, spec: every(180_000, at("20:31:10")), is_keyed: true };
    let again = rig.call(|shard, turn| shard.create(&creation, at("20:31:10"), turn)).unwrap();
    assert_eq!((again.version, again.state), (2, ScheduleState::Active));
    let taken = rig.call(|shard, turn| shard.create(&creation, at("20:31:11"), turn));
    assert_eq!(taken.unwrap_err(), CommandError::KeyTaken { version: 2 });
    rig.live(at("20:35:00"));
    let last = rig.history(id);
    assert_eq!(last.last().map(String::as_str), Some("20:34:10 ENQUEUED strict"));
    let records = rig.log.len();
    rig.crash(records, at("20:35:00"));
    assert_eq!(rig.history(id), last);
}

#[test]
fn what_is_canceled_for_a_month_is_forgotten_and_its_version_is_the_floor() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &cron("0 9 * * *", "UTC"), at("08:00:00"));
    rig.live(at("09:30:00"));
    for minute in 0..4 {
        let now = at("10:00:00").plus(minute * 60_000);
        update(&mut rig, id, &cron(&format!("{minute} 8 * * *"), "UTC"), Pending::Cancel, now);
    }
    rig.cancel(id, at("11:00:00"));
    let later = on("2026-06-04", "08:00:00");
    let other = rig.create(2, &cron("0 9 * * *", "UTC"), later);
    rig.cancel(other, later);
    assert_eq!(rig.shard.read(&id.into(), later), None, "31 days are over");
    let creation = Creation { id, spec: cron("0 9 * * *", "UTC"), is_keyed: true };
    let again = rig.call(|shard, turn| shard.create(&creation, later, turn)).unwrap();
    assert_eq!(again.version, 6, "above the five that were");
    let records = rig.log.len();
    rig.crash(records, later);
    assert_eq!(rig.shard.read(&id.into(), later).unwrap().0.version, 6);
}

#[test]
fn a_foreign_tenant_finds_nothing_and_changes_nothing() {
    let mut rig = Rig::with(Config::default(), at("08:00:00"));
    let id = rig.create(1, &cron("* * * * *", "UTC"), at("08:00:00"));
    let foreign = Target { id, tenant: Some("other".into()) };
    let now = at("08:00:10");
    let records = rig.log.len();
    assert_eq!(rig.shard.read(&foreign, now), None);
    assert!(rig.shard.history(&foreign, None, (UnixMs::MIN, UnixMs::MAX), None, 10).is_none());
    let refused = [
        rig.call(|shard, turn| shard.pause(&foreign, now, turn)).unwrap_err(),
        rig.call(|shard, turn| shard.resume(&foreign, now, turn)).unwrap_err(),
        rig.call(|shard, turn| shard.cancel(&foreign, now, turn)).unwrap_err(),
        rig.call(|shard, turn| shard.update(&foreign, &cron("0 * * * *", "UTC"), 1, Pending::Cancel, now, turn))
            .unwrap_err(),
    ];
    assert!(refused.iter().all(|error| *error == CommandError::NotFound), "{refused:?}");
    assert_eq!(rig.log.len(), records);
    let own = Target { id, tenant: Some("acme".into()) };
    assert!(rig.shard.read(&own, now).is_some());
}

#[test]
fn what_may_stand_in_a_queue_that_was_not_read_back_is_not_judged_by_an_update_that_keeps_it() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &every(30_000, at("08:00:00")), at("08:00:00"));
    rig.advance(at("08:00:29"));
    let (stream, occurrence) = (rig.stream(OccurrenceNo(0)), rig.shard.occurrence(OccurrenceNo(0)).unwrap());
    rig.advance(at("08:00:30"));
    assert_eq!(rig.handed, [OccurrenceNo(0)], "it lands, and the process dies before it hears so");
    let records = rig.log.len();
    rig.crash(records, at("08:10:00"));
    let updated = update(&mut rig, id, &every(60_000, at("08:00:00")), Pending::Keep, at("08:10:00"));
    assert_eq!(updated.receipt.kept[0], occurrence.id);
    let entry = crate::kernel::occurrence::EntryId { generation: 1, counter: 1 };
    rig.turn(|shard, turn| shard.found(stream, &[(occurrence.id, 1, entry)], 1, at("08:10:01"), turn));
    rig.shard.queue_ready();
    rig.advance(at("08:10:01"));
    assert_eq!(
        rig.history(id)[..3],
        ["08:00:30 ENQUEUED strict", "08:01:00..08:09:30 Missed x18", "08:10:00 SCHEDULED catchup"]
    );
}

#[test]
fn the_same_request_in_the_same_millisecond_is_one_occurrence() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &cron("0 9 * * *", "UTC"), at("08:00:00"));
    let request = || crate::kernel::shard::Request { discriminator: vec![1; 16], is_keyed: false };
    let mut ask = || rig.call(|shard, turn| shard.trigger(&id.into(), request(), at("08:00:01"), turn)).unwrap();
    let (first, second) = (ask(), ask());
    assert_eq!((first.is_new, second.is_new, first.occurrence_id), (true, false, second.occurrence_id));
}
