//! What a log tells afterwards: a whole life, instants without an occurrence, and numbers that come again.

use super::rig::{LEASE_MS, Rig, at, every, on};
use crate::kernel::{
    attempt::{Death, Failure, FailureClass, Resolution},
    evidence::HoldReason,
    gate::Lsn,
    id::{Kind, OccurrenceId, ScheduleId},
    occurrence::{EntryId, Lane, Reason, State},
    policy::Effect,
    record::Then,
    schedule::{RangeDisposition, Spec},
    shard::{
        Pending, Request,
        chronicle::{Call, Chronicle, Life, Origin, Step, Story, Told},
        model::chronicle::agrees_about,
    },
    time::UnixMs,
};

fn log(rig: &Rig) -> Vec<(u8, Vec<u8>)> {
    let encoded = rig.log.iter().map(|record| {
        let mut body = Vec::new();
        record.encode(&mut body);
        (record.kind(), body)
    });
    encoded.collect()
}

fn follow(rig: &Rig, mut chronicle: Chronicle) -> Chronicle {
    for ((kind, body), lsn) in log(rig).iter().zip(1..) {
        chronicle.take(Lsn(lsn), *kind, body).expect("what a shard wrote can be followed");
    }
    chronicle
}

fn history(rig: &Rig, id: ScheduleId) -> Story {
    follow(rig, Chronicle::of_schedule(0, id, (UnixMs::MIN, UnixMs::MAX))).into_story().expect("it was created")
}

fn life(rig: &Rig, id: OccurrenceId) -> Life {
    let maker = follow(rig, Chronicle::of_maker(0, id)).maker().expect("it was made");
    let story = follow(rig, Chronicle::of_occurrence(0, id, maker)).into_story();
    story.expect("its schedule was created").occurrences.remove(0)
}

fn steps(life: Life) -> Vec<Step> {
    // The token stands for the record that granted it.
    let is_granted = |told: &Told<Step>| match &told.what {
        Step::Claimed { token, .. } => token.lsn == told.lsn,
        _ => true,
    };
    assert!(life.steps.iter().all(is_granted));
    life.steps.into_iter().map(|told| told.what).collect()
}

fn claimed(steps: &[Step], attempt: u32) -> Step {
    let of = |step: &&Step| matches!(step, Step::Claimed { attempt: of, .. } if *of == attempt);
    let Some(Step::Claimed { token, .. }) = steps.iter().find(of) else { panic!("attempt {attempt}: {steps:?}") };
    Step::Claimed { attempt, worker: "w1".into(), lease_ms: LEASE_MS, is_in_process: false, token: *token }
}

#[test]
fn a_life_is_told_from_its_making_to_the_success_after_a_person_had_to_decide() {
    let mut rig = Rig::tracked(at("08:00:00"));
    let mut spec = every(600_000, at("08:00:10"));
    spec.effect = Effect::NonIdempotent;
    spec.review_owner = Some("ops".into());
    rig.create(1, &spec, at("08:00:00"));
    rig.go(at("08:00:10"));
    let run = rig.claim(0, at("08:00:11")).unwrap();
    let failed = rig.fail(&run, FailureClass::Transient, at("08:00:12")).unwrap();
    rig.go(failed.retry_at.unwrap());
    let again = rig.claim(0, at("08:00:20")).unwrap();
    rig.go(at("08:00:50"));
    rig.complete(&again, at("08:01:00")).unwrap_err();
    rig.resolve(0, Resolution::Retry, at("08:02:00")).unwrap();
    rig.go(at("08:02:00"));
    let last = rig.claim(0, at("08:02:10")).unwrap();
    rig.complete(&last, at("08:02:20")).unwrap();
    let told = life(&rig, rig.occurrence(0).id);
    assert_eq!((told.state, told.attempt_count, told.ended_at), (State::Succeeded, 3, Some(at("08:02:20"))));
    let steps = steps(told);
    let enqueued = |counter, time: UnixMs, is_again| {
        let entry = EntryId { generation: 1, counter };
        Step::Enqueued { at: time, entry, is_again }
    };
    let failure = |attempt, failure, message: Option<&str>, then| {
        let message = message.map(str::to_owned);
        Step::Failed { attempt, failure, message, then }
    };
    let transient = Failure::Reported(FailureClass::Transient);
    let delay_ms = failed.retry_at.unwrap().since(at("08:00:12")).cast_unsigned();
    let (reviewer, note) = ("eve".to_owned(), "looked at the bank's list".to_owned());
    let expected = [
        Step::Materialized { lane: Lane::Strict, by: Origin::Rule },
        enqueued(1, at("08:00:10"), false),
        claimed(&steps, 1),
        failure(1, transient, Some("it broke"), Then::Retry { delay_ms }),
        enqueued(2, failed.retry_at.unwrap(), true),
        claimed(&steps, 2),
        failure(2, Failure::LeaseExpired, None, Then::Held(HoldReason::LeaseExpiredOutcomeUnknown)),
        Step::LateResult { result_ref: "s3://out".to_owned() },
        Step::Resolved { resolution: Resolution::Retry, reviewer, note },
        enqueued(3, at("08:02:00"), true),
        claimed(&steps, 3),
        Step::Succeeded { attempt: 3, result_ref: Some("s3://out".to_owned()) },
    ];
    assert_eq!(steps, expected);
}

#[test]
fn a_death_a_replay_and_a_pause_are_steps() {
    let mut rig = Rig::tracked(at("08:00:00"));
    let id = rig.create(1, &every(600_000, at("08:00:10")), at("08:00:00"));
    rig.go(at("08:00:10"));
    let run = rig.claim(0, at("08:00:11")).unwrap();
    rig.fail(&run, FailureClass::Permanent, at("08:00:12")).unwrap();
    rig.replay(0, at("08:01:00")).unwrap();
    rig.go(at("08:01:00"));
    let run = rig.claim(0, at("08:01:10")).unwrap();
    rig.call(|shard, turn| shard.pause(&id.into(), at("08:01:20"), turn)).unwrap();
    rig.fail(&run, FailureClass::Transient, at("08:01:30")).unwrap();
    let steps = steps(life(&rig, rig.occurrence(0).id));
    let reason = Reason::Paused;
    let [.., died, replayed, _, _, called_off, failed, canceled] = &steps[..] else { panic!("{steps:?}") };
    assert!(matches!(died, Step::Failed { then: Then::Dead(Death::Permanent), .. }), "{steps:?}");
    assert_eq!(
        (replayed, called_off, canceled),
        (&Step::Replayed, &Step::CalledOff { reason }, &Step::Canceled { reason })
    );
    assert!(matches!(failed, Step::Failed { attempt: 2, then: Then::Canceled, .. }), "{steps:?}");
}

#[test]
fn an_instant_that_never_got_an_occurrence_is_found_by_its_id() {
    let mut rig = Rig::tracked(at("08:00:00"));
    let id = rig.create(1, &every(60_000, at("08:00:00")), at("08:00:00"));
    rig.go(at("08:01:00"));
    let records = rig.log.len();
    rig.crash(records, at("09:00:30"));
    rig.shard.queue_ready();
    rig.go(at("09:00:30"));
    let missed = OccurrenceId::of(id, 1, at("08:30:00"), Kind::Regular, b"");
    let maker = follow(&rig, Chronicle::of_maker(0, missed)).maker().expect("a version that stood would have made it");
    assert_eq!((maker.schedule, maker.version, maker.kind), (id, 1, Kind::Regular));
    let story = follow(&rig, Chronicle::of_occurrence(0, missed, maker)).into_story().unwrap();
    assert!(story.occurrences.is_empty());
    let [told] = &story.ranges[..] else { panic!("{:?}", story.ranges) };
    assert_eq!((told.at, told.what.version), (at("09:00:30"), 1));
    assert_eq!((told.what.range.disposition, told.what.range.count), (RangeDisposition::Missed, 58));
    let strange = OccurrenceId::of(ScheduleId([9; 16]), 1, at("08:30:00"), Kind::Regular, b"");
    assert_eq!(follow(&rig, Chronicle::of_maker(0, strange)).maker(), None);
}

#[test]
fn versions_and_calls_stand_in_order_with_the_times_for_which_they_held() {
    let mut rig = Rig::tracked(at("08:00:00"));
    let id = rig.create(1, &every(60_000, at("08:00:00")), at("08:00:00"));
    let target = id.into();
    let request = || Request { discriminator: b"k".to_vec(), is_keyed: true };
    rig.call(|shard, turn| shard.pause(&target, at("08:01:30"), turn)).unwrap();
    rig.call(|shard, turn| shard.resume(&target, at("08:03:30"), turn)).unwrap();
    let made = rig.call(|shard, turn| shard.trigger(&target, request(), at("08:03:40"), turn)).unwrap();
    let window = (at("08:00:30"), at("08:02:30"));
    rig.call(|shard, turn| shard.backfill(&target, window, request(), at("08:03:50"), turn)).unwrap();
    let named = Spec { name: Some("new".into()), ..every(60_000, at("08:00:00")) };
    rig.call(|shard, turn| shard.update(&target, &named, 3, Pending::Keep, at("08:04:30"), turn)).unwrap();
    rig.cancel(id, at("08:05:30"));
    let story = history(&rig, id);
    let stood = story.versions.iter().map(|v| (v.version, v.from, v.until, v.is_paused, v.spec.name.is_some()));
    let expected = [
        (1, at("08:00:00"), Some(at("08:01:30")), false, false),
        (2, at("08:01:30"), Some(at("08:03:30")), true, false),
        (3, at("08:03:30"), Some(at("08:04:30")), false, false),
        (4, at("08:04:30"), Some(at("08:05:30")), false, true),
    ];
    assert_eq!(stood.collect::<Vec<_>>(), expected);
    let calls: Vec<_> = story.calls.iter().map(|told| (told.at, told.what.clone())).collect();
    let expected = [
        (at("08:00:00"), Call::Create { version: 1 }),
        (at("08:01:30"), Call::Pause { version: 2 }),
        (at("08:03:30"), Call::Resume { version: 3 }),
        (at("08:03:40"), Call::Trigger { occurrence: made.occurrence_id }),
        (at("08:03:50"), Call::Backfill { from: window.0, to: window.1, count: 2 }),
        (at("08:04:30"), Call::Update { version: 4, keeps_due: true }),
        (at("08:05:30"), Call::Cancel),
    ];
    assert_eq!(calls, expected);
    agrees_about(&rig.shard, &log(&rig), 0, 0);
    let later = follow(&rig, Chronicle::of_schedule(0, id, (at("08:04:00"), at("08:05:00")))).into_story().unwrap();
    assert_eq!((later.versions.len(), later.calls.len()), (4, 1), "calls outside of the window are left out");
    assert!(later.occurrences.iter().all(|life| life.scheduled_for >= at("08:04:00")));
}

#[test]
fn records_that_nobody_wrote_are_refused_or_followed_and_never_a_panic() {
    let mut rig = Rig::tracked(at("08:00:00"));
    let id = rig.create(1, &every(60_000, at("08:00:00")), at("08:00:00"));
    rig.go(at("08:01:00"));
    let run = rig.claim(0, at("08:01:01")).unwrap();
    rig.complete(&run, at("08:01:02")).unwrap();
    rig.go(at("08:20:00"));
    rig.call(|shard, turn| shard.pause(&id.into(), at("08:20:30"), turn)).unwrap();
    let whole = log(&rig);
    let mut refused = 0;
    for (place, (_, body)) in whole.iter().enumerate() {
        for (byte, bit) in (0..body.len()).flat_map(|byte| [0x01, 0x80, 0xff].map(|bit| (byte, bit))) {
            let mut chronicle = Chronicle::of_schedule(0, id, (UnixMs::MIN, UnixMs::MAX));
            let mut damaged = whole.clone();
            damaged[place].1[byte] ^= bit;
            let mut records = damaged.iter().zip(1..);
            refused += usize::from(records.any(|((kind, body), lsn)| chronicle.take(Lsn(lsn), *kind, body).is_err()));
            drop(chronicle.into_story());
        }
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn a_number_that_a_forgotten_schedule_had_means_the_next_one() {
    let mut rig = Rig::tracked(on("2026-05-04", "08:00:00"));
    let held_up = rig.create(1, &every(60_000, on("2026-05-04", "08:00:00")), on("2026-05-04", "08:00:00"));
    rig.go(on("2026-05-04", "08:01:00"));
    let run = rig.claim(0, on("2026-05-04", "08:01:01")).unwrap();
    rig.fail(&run, FailureClass::Permanent, on("2026-05-04", "08:01:02")).unwrap();
    rig.cancel(held_up, on("2026-05-04", "08:01:30"));
    let second = rig.create(2, &every(60_000, on("2026-05-04", "08:00:00")), on("2026-05-04", "08:01:40"));
    rig.cancel(second, on("2026-05-04", "08:01:50"));
    // The first one still has a DEAD occurrence, and waits until that is forgotten when another one dies; the second
    // one goes at once.
    for (id, day) in [(3, "2026-06-10"), (4, "2026-06-11"), (5, "2026-08-12")] {
        let now = on(day, "08:00:00");
        let made = rig.create(id, &every(60_000, now), now);
        rig.go(now.plus(60_000));
        if id == 4 {
            let newest = rig.shard.occurrences.next().0 - 1;
            let run = rig.claim(newest, now.plus(61_000)).unwrap();
            rig.fail(&run, FailureClass::Permanent, now.plus(62_000)).unwrap();
        }
        rig.cancel(made, now.plus(90_000));
    }
    let last = rig.create(6, &every(60_000, on("2026-08-13", "08:00:00")), on("2026-08-13", "08:00:00"));
    rig.live(on("2026-08-13", "08:03:00"));
    let end = rig.shard.schedules.end();
    assert!(end < 6, "a number came again, or this test tests nothing: {end}");
    for number in (0..end).filter(|number| rig.shard.schedules.row(*number).is_some()) {
        agrees_about(&rig.shard, &log(&rig), number, 0);
    }
    assert_eq!(history(&rig, last).occurrences.len(), 3);
    assert_eq!(history(&rig, second).versions.len(), 1, "its log is not forgotten");
}
