//! Intervals that follow their runs: what each next instant counts from.

use super::rig::{IN_PROCESS, Rig, at, every, on, spec};
use crate::kernel::{
    attempt::{FailureClass, Resolution},
    calendar::Basis,
    id::ScheduleId,
    occurrence::{Lane, OccurrenceNo, Reason, State},
    policy::{Effect, Misfire},
    record::{Record, RunsSucceeded},
    refusal::RefusalCode,
    schedule::{RangeDisposition, Rule, ScheduleState, Spec},
    shard::{CommandError, Config, Creation, Granted, Pending, Receipted, Request, Turn},
    tenant::{QueueSettings, Revised},
    time::UnixMs,
};

const MINUTE_MS: i64 = 60_000;

/// Every ten minutes, from 08:00:00 on.
fn following(basis: Basis) -> Spec {
    spec(Rule::Every { every_ms: 10 * MINUTE_MS, anchor: Some(at("08:00:00")), basis })
}

/// A schedule whose first instant, 08:10:00, has landed.
fn landed(spec: &Spec) -> (Rig, ScheduleId) {
    let mut rig = Rig::tracked(at("08:00:00"));
    let id = rig.create(1, spec, at("08:00:00"));
    assert_eq!(next(&mut rig, id), Some(at("08:10:00")), "every after the anchor");
    rig.live(at("08:10:00"));
    assert_eq!(next(&mut rig, id), None, "it waits for what it has made");
    (rig, id)
}

/// The instant that the schedule waits for, and has made nothing for.
fn next(rig: &mut Rig, id: ScheduleId) -> Option<UnixMs> {
    let now = rig.shard.log_time();
    rig.shard.read(&id.into(), now).expect("there is such a schedule").0.next_run_at
}

fn state(rig: &mut Rig, id: ScheduleId) -> ScheduleState {
    let now = rig.shard.log_time();
    rig.shard.read(&id.into(), now).expect("there is such a schedule").0.state
}

fn update(rig: &mut Rig, id: ScheduleId, spec: &Spec, pending: Pending, now: UnixMs) -> Receipted {
    let version = rig.shard.read(&id.into(), now).expect("there is such a schedule").0.version;
    rig.call(|shard, turn| shard.update(&id.into(), spec, version, pending, now, turn)).unwrap()
}

fn pause(rig: &mut Rig, id: ScheduleId, now: UnixMs) -> Receipted {
    rig.call(|shard, turn| shard.pause(&id.into(), now, turn)).unwrap()
}

fn resume(rig: &mut Rig, id: ScheduleId, now: UnixMs) -> Receipted {
    rig.call(|shard, turn| shard.resume(&id.into(), now, turn)).unwrap()
}

/// A worker claims an occurrence and holds its lease until it is about to answer.
fn work(rig: &mut Rig, number: u64, from: UnixMs, until: UnixMs) -> Granted {
    let run = rig.claim(number, from).unwrap();
    let mut now = from.plus(20_000);
    while now < until {
        rig.beat(&run, now).unwrap();
        now = now.plus(20_000);
    }
    run
}

#[test]
fn by_completion_the_next_comes_so_long_after_the_end_and_retries_are_part_of_the_run() {
    let (mut rig, id) = landed(&following(Basis::Completion));
    let run = work(&mut rig, 0, at("08:12:00"), at("08:14:00"));
    let outcome = rig.fail(&run, FailureClass::Transient, at("08:14:00")).unwrap();
    assert_eq!((outcome.state, next(&mut rig, id)), (State::RetryWait, None));
    rig.go(at("08:20:00"));
    assert_eq!(rig.state(0), State::Enqueued, "its next attempt");
    let again = work(&mut rig, 0, at("08:21:00"), at("08:25:00"));
    rig.records();
    rig.complete(&again, at("08:25:00")).unwrap();
    let done = RunsSucceeded { occurrences: vec![(0, 1)], result_refs: vec![(0, "s3://out".into())] };
    assert_eq!(rig.records(), [Record::RunsSucceeded(done)], "the end itself sets the next instant");
    assert_eq!(next(&mut rig, id), Some(at("08:35:00")));
    rig.live(at("08:40:00"));
    assert_eq!(rig.history(id), ["08:10:00 SUCCEEDED strict", "08:35:00 ENQUEUED strict"]);
}

#[test]
fn by_start_the_first_claim_counts_and_the_next_does_not_wait_for_the_end() {
    let (mut rig, id) = landed(&following(Basis::Start));
    let run = rig.claim(0, at("08:12:00")).unwrap();
    assert_eq!(next(&mut rig, id), Some(at("08:22:00")));
    rig.fail(&run, FailureClass::Transient, at("08:12:10")).unwrap();
    rig.live(at("08:20:00"));
    let again = work(&mut rig, 0, at("08:20:00"), at("08:20:40"));
    assert_eq!(next(&mut rig, id), Some(at("08:22:00")), "a retry's claim moves nothing");
    rig.complete(&again, at("08:20:40")).unwrap();
    assert_eq!(next(&mut rig, id), Some(at("08:22:00")), "nor does its end");
    rig.live(at("08:22:00"));
    assert_eq!((next(&mut rig, id), rig.state(1)), (None, State::Enqueued));
}

#[test]
fn by_start_what_ends_without_a_claim_counts_from_its_end() {
    let mut spec = following(Basis::Start);
    spec.retry.deadline_ms = Some(20_000);
    let (mut rig, id) = landed(&spec);
    assert!(rig.claim(0, at("08:11:00")).is_err(), "past its deadline");
    assert_eq!((rig.state(0), next(&mut rig, id)), (State::Dead, Some(at("08:21:00"))));
}

#[test]
fn an_attempt_that_nobody_answers_for_is_over_with_the_last_lease() {
    let mut spec = following(Basis::Completion);
    spec.retry.max_attempts = 1;
    let (mut rig, id) = landed(&spec);
    rig.claim(0, at("08:12:00")).unwrap();
    rig.work_off(at("08:12:30"));
    assert_eq!((rig.state(0), next(&mut rig, id)), (State::Dead, Some(at("08:22:30"))));
}

#[test]
fn what_is_held_waits_for_its_decision() {
    let mut spec = following(Basis::Completion);
    (spec.effect, spec.review_owner) = (Effect::NonIdempotent, Some("ops".into()));
    let (mut rig, id) = landed(&spec);
    rig.claim(0, at("08:12:00")).unwrap();
    rig.live(at("09:00:00"));
    assert_eq!((rig.state(0), next(&mut rig, id), state(&mut rig, id)), (State::Held, None, ScheduleState::Active));
    let renamed = Spec { name: Some("a name".into()), ..spec };
    update(&mut rig, id, &renamed, Pending::Cancel, at("09:00:30"));
    assert_eq!(next(&mut rig, id), None, "whatever becomes of the schedule meanwhile");
    rig.resolve(0, Resolution::Retry, at("09:01:00")).unwrap();
    rig.go(at("09:01:00"));
    assert_eq!(next(&mut rig, id), None, "it is to run once more");
    let run = work(&mut rig, 0, at("09:02:00"), at("09:03:00"));
    rig.complete(&run, at("09:03:00")).unwrap();
    assert_eq!(next(&mut rig, id), Some(at("09:13:00")));
}

#[test]
fn a_replay_of_what_is_dead_moves_nothing() {
    let (mut rig, id) = landed(&following(Basis::Completion));
    let run = work(&mut rig, 0, at("08:12:00"), at("08:13:00"));
    rig.fail(&run, FailureClass::Permanent, at("08:13:00")).unwrap();
    assert_eq!(next(&mut rig, id), Some(at("08:23:00")), "the death sets it");
    rig.replay(0, at("08:15:00")).unwrap();
    assert_eq!(next(&mut rig, id), Some(at("08:23:00")));
    rig.live(at("08:16:00"));
    let run = rig.claim(0, at("08:16:00")).unwrap();
    rig.complete(&run, at("08:16:20")).unwrap();
    assert_eq!(next(&mut rig, id), Some(at("08:23:00")));
    rig.live(at("08:23:00"));
    assert_eq!(rig.history(id), ["08:10:00 SUCCEEDED strict", "08:23:00 ENQUEUED strict"]);
}

#[test]
fn a_manual_run_sets_nothing_and_is_not_waited_for() {
    let (mut rig, id) = landed(&following(Basis::Completion));
    let run = rig.claim(0, at("08:12:00")).unwrap();
    let request = Request { discriminator: b"now".to_vec(), is_keyed: false };
    rig.call(|shard, turn| shard.trigger(&id.into(), request, at("08:12:10"), turn)).unwrap();
    rig.live(at("08:12:11"));
    let manual = rig.claim(1, at("08:12:12")).unwrap();
    rig.complete(&run, at("08:12:20")).unwrap();
    assert_eq!(next(&mut rig, id), Some(at("08:22:20")));
    rig.complete(&manual, at("08:12:30")).unwrap();
    assert_eq!(next(&mut rig, id), Some(at("08:22:20")));
}

#[test]
fn an_instant_that_comes_while_the_process_is_down_is_one_late_instant() {
    for (policy, next_at) in [(Misfire::FireOnce, None), (Misfire::Skip, Some(at("12:10:00")))] {
        let mut spec = following(Basis::Completion);
        spec.misfire = policy;
        let mut rig = Rig::tracked(at("08:00:00"));
        let id = rig.create(1, &spec, at("08:00:00"));
        let records = rig.log.len();
        rig.crash(records, at("12:00:00"));
        rig.shard.queue_ready();
        rig.live(at("12:00:00"));
        assert_eq!(next(&mut rig, id), next_at, "{policy}: MISSED is an end, and what is admitted has none yet");
        if policy == Misfire::Skip {
            assert_eq!(rig.history(id), ["08:10:00..08:10:00 Missed x1"]);
            continue;
        }
        assert_eq!(rig.history(id), ["08:10:00 ENQUEUED catchup"]);
        let run = work(&mut rig, 0, at("12:01:00"), at("12:02:00"));
        rig.complete(&run, at("12:02:00")).unwrap();
        assert_eq!(next(&mut rig, id), Some(at("12:12:00")), "not four hours of them");
    }
}

#[test]
fn wherever_the_process_dies_the_next_instant_is_the_one_that_the_last_record_set() {
    let (mut rig, id) = landed(&following(Basis::Completion));
    let mut known = vec![(rig.log.len(), next(&mut rig, id))];
    let run = work(&mut rig, 0, at("08:12:00"), at("08:13:00"));
    known.push((rig.log.len(), next(&mut rig, id)));
    rig.complete(&run, at("08:13:00")).unwrap();
    known.push((rig.log.len(), next(&mut rig, id)));
    assert_eq!(known.iter().map(|(_, next)| *next).collect::<Vec<_>>(), [None, None, Some(at("08:23:00"))]);
    for (records, known) in known.into_iter().rev() {
        rig.crash(records, at("08:13:30"));
        assert_eq!(next(&mut rig, id), known, "after {records} records");
    }
}

#[test]
fn in_process_a_restart_ends_the_attempt_and_the_next_follows_the_one_after_it() {
    let config = Config { is_embedded: true, ..Config::default() };
    let mut rig = Rig::with(config, at("08:00:00"));
    let id = rig.create(1, &following(Basis::Completion), at("08:00:00"));
    rig.live(at("08:10:00"));
    rig.claim_as(IN_PROCESS, &[0], at("08:11:00"))[0].unwrap();
    let records = rig.log.len();
    rig.crash(records, at("08:20:00"));
    rig.shard.queue_ready();
    rig.live(at("08:30:00"));
    rig.go(at("08:30:02"));
    assert_eq!((rig.state(0), next(&mut rig, id)), (State::Enqueued, None), "its retry");
    let run = rig.claim_as(IN_PROCESS, &[0], at("08:30:50"))[0].unwrap();
    rig.complete(&run, at("08:31:00")).unwrap();
    assert_eq!(next(&mut rig, id), Some(at("08:41:00")));
}

#[test]
fn an_update_that_leaves_the_rule_alone_leaves_the_next_instant_where_it_is() {
    let (mut rig, id) = landed(&following(Basis::Completion));
    let run = work(&mut rig, 0, at("08:12:00"), at("08:13:00"));
    rig.complete(&run, at("08:13:00")).unwrap();
    let renamed = Spec { name: Some("a name".into()), ..following(Basis::Completion) };
    update(&mut rig, id, &renamed, Pending::Cancel, at("08:20:00"));
    assert_eq!(next(&mut rig, id), Some(at("08:23:00")));
    rig.advance(at("08:22:59"));
    assert_eq!(rig.state(1), State::Scheduled, "made ahead");
    let updated = update(&mut rig, id, &following(Basis::Completion), Pending::Keep, at("08:22:59"));
    assert_eq!(updated.receipt.canceled, [rig.occurrence(1).id]);
    assert_eq!(next(&mut rig, id), Some(at("08:23:00")), "that it was made ahead shows nowhere");
    rig.live(at("08:23:00"));
    assert_eq!((rig.occurrence(2).version, rig.state(2)), (3, State::Enqueued));
}

#[test]
fn a_new_distance_counts_from_the_same_end() {
    let (mut rig, id) = landed(&following(Basis::Completion));
    let run = work(&mut rig, 0, at("08:12:00"), at("08:13:00"));
    rig.complete(&run, at("08:13:00")).unwrap();
    let every_ms = |minutes: i64| {
        let anchor = Some(at("08:00:00"));
        spec(Rule::Every { every_ms: minutes * MINUTE_MS, anchor, basis: Basis::Completion })
    };
    update(&mut rig, id, &every_ms(60), Pending::Cancel, at("08:20:00"));
    assert_eq!(next(&mut rig, id), Some(at("09:13:00")));
    update(&mut rig, id, &every_ms(3), Pending::Cancel, at("08:21:00"));
    assert_eq!(next(&mut rig, id), Some(at("08:22:00")), "08:16 and 08:19 are over: the first multiple after the call");
    let moved = Spec {
        rule: Rule::Every { every_ms: 3 * MINUTE_MS, anchor: Some(at("10:00:00")), basis: Basis::Start },
        ..every_ms(3)
    };
    update(&mut rig, id, &moved, Pending::Cancel, at("08:21:30"));
    assert_eq!(next(&mut rig, id), Some(at("10:03:00")), "another anchor begins anew");
}

#[test]
fn a_new_version_waits_for_what_runs_of_the_old_one() {
    let (mut rig, id) = landed(&following(Basis::Completion));
    let run = rig.claim(0, at("08:12:00")).unwrap();
    let hourly = spec(Rule::Every { every_ms: 60 * MINUTE_MS, anchor: Some(at("08:00:00")), basis: Basis::Completion });
    let updated = update(&mut rig, id, &hourly, Pending::Cancel, at("08:12:10"));
    assert_eq!((updated.receipt.kept.len(), updated.schedule.next_run_at), (1, None));
    assert_eq!(updated.schedule.state, ScheduleState::Active);
    rig.fail(&run, FailureClass::Transient, at("08:12:20")).unwrap();
    assert_eq!(rig.occurrence(0).reason, Some(Reason::Superseded), "it was called off");
    assert_eq!(next(&mut rig, id), Some(at("09:12:20")), "its end, and the new distance");
}

#[test]
fn an_anchor_that_is_to_come_stands_whatever_ends_before_it() {
    let (mut rig, id) = landed(&following(Basis::Completion));
    let run = rig.claim(0, at("08:12:00")).unwrap();
    let anchor = Some(at("10:00:00"));
    let later = spec(Rule::Every { every_ms: 10 * MINUTE_MS, anchor, basis: Basis::Completion });
    update(&mut rig, id, &later, Pending::Cancel, at("08:12:10"));
    rig.complete(&run, at("08:12:20")).unwrap();
    assert_eq!(next(&mut rig, id), Some(at("10:10:00")));
}

#[test]
fn what_was_due_and_is_canceled_by_an_update_ended_then() {
    let (mut rig, id) = landed(&following(Basis::Completion));
    let renamed = Spec { name: Some("a name".into()), ..following(Basis::Completion) };
    let updated = update(&mut rig, id, &renamed, Pending::Cancel, at("08:15:00"));
    assert_eq!((updated.receipt.canceled.len(), updated.schedule.next_run_at), (1, Some(at("08:25:00"))));
}

#[test]
fn what_is_due_and_kept_is_waited_for() {
    let (mut rig, id) = landed(&following(Basis::Completion));
    let renamed = Spec { name: Some("a name".into()), ..following(Basis::Completion) };
    let updated = update(&mut rig, id, &renamed, Pending::Keep, at("08:15:00"));
    assert_eq!((updated.receipt.kept.len(), updated.schedule.next_run_at), (1, None));
    let run = rig.claim(0, at("08:16:00")).unwrap();
    rig.complete(&run, at("08:16:10")).unwrap();
    assert_eq!(next(&mut rig, id), Some(at("08:26:10")));
}

#[test]
fn an_interval_that_begins_to_follow_its_runs_waits_for_all_of_them() {
    let mut rig = Rig::tracked(at("08:00:00"));
    let id = rig.create(1, &every(MINUTE_MS, at("08:00:00")), at("08:00:00"));
    rig.live(at("08:02:00"));
    let runs = [rig.claim(0, at("08:02:10")).unwrap(), rig.claim(1, at("08:02:10")).unwrap()];
    update(&mut rig, id, &following(Basis::Completion), Pending::Cancel, at("08:02:20"));
    rig.complete(&runs[1], at("08:02:30")).unwrap();
    assert_eq!(next(&mut rig, id), None);
    rig.complete(&runs[0], at("08:02:34")).unwrap();
    assert_eq!(next(&mut rig, id), Some(at("08:12:34")));
    let (mut rig, id) = landed(&following(Basis::Completion));
    rig.claim(0, at("08:12:00")).unwrap();
    update(&mut rig, id, &every(MINUTE_MS, at("08:00:00")), Pending::Cancel, at("08:12:10"));
    assert_eq!(next(&mut rig, id), Some(at("08:13:00")), "a grid waits for nothing");
}

#[test]
fn an_instant_that_falls_into_a_pause_is_canceled_and_the_next_follows_the_resume() {
    let (mut rig, id) = landed(&following(Basis::Completion));
    let run = rig.claim(0, at("08:12:00")).unwrap();
    rig.complete(&run, at("08:12:10")).unwrap();
    pause(&mut rig, id, at("08:15:00"));
    assert_eq!((next(&mut rig, id), state(&mut rig, id)), (None, ScheduleState::Paused));
    let resumed = resume(&mut rig, id, at("08:20:00"));
    assert_eq!(resumed.receipt.ranges, [], "nothing was due");
    assert_eq!(next(&mut rig, id), Some(at("08:22:10")));
    pause(&mut rig, id, at("08:21:00"));
    let resumed = resume(&mut rig, id, at("11:00:00"));
    let [range] = &resumed.receipt.ranges[..] else { panic!("one range: {:?}", resumed.receipt) };
    assert_eq!(range.disposition, RangeDisposition::Canceled(Reason::Paused));
    assert_eq!((range.first, range.last, range.count), (at("08:22:10"), at("08:22:10"), 1), "one, not a whole grid");
    assert_eq!(next(&mut rig, id), Some(at("11:10:00")));
}

#[test]
fn a_run_that_ends_within_a_pause_is_counted_from_when_it_is_over() {
    let (mut rig, id) = landed(&following(Basis::Completion));
    let run = rig.claim(0, at("08:12:00")).unwrap();
    pause(&mut rig, id, at("08:12:10"));
    rig.complete(&run, at("08:12:20")).unwrap();
    assert_eq!(next(&mut rig, id), None, "nothing of it is decided");
    resume(&mut rig, id, at("08:13:00"));
    assert_eq!(next(&mut rig, id), Some(at("08:22:20")));
}

#[test]
fn it_is_active_while_something_is_open_and_until_its_end() {
    let spec = Spec { end_at: Some(at("08:25:00")), ..following(Basis::Completion) };
    let (mut rig, id) = landed(&spec);
    let run = rig.claim(0, at("08:11:00")).unwrap();
    assert_eq!(state(&mut rig, id), ScheduleState::Active);
    rig.complete(&run, at("08:11:10")).unwrap();
    rig.live(at("08:21:10"));
    let run = rig.claim(1, at("08:21:11")).unwrap();
    assert_eq!(state(&mut rig, id), ScheduleState::Active);
    rig.complete(&run, at("08:21:12")).unwrap();
    assert_eq!((next(&mut rig, id), state(&mut rig, id)), (None, ScheduleState::Completed), "08:31:12 is past its end");
}

#[test]
fn an_update_near_the_end_is_judged_by_what_is_really_next() {
    let spec = Spec { end_at: Some(at("08:25:00")), ..following(Basis::Completion) };
    let (mut rig, id) = landed(&spec);
    let run = work(&mut rig, 0, at("08:12:00"), at("08:13:00"));
    rig.complete(&run, at("08:13:00")).unwrap();
    let renamed = Spec { name: Some("a name".into()), ..spec };
    let updated = update(&mut rig, id, &renamed, Pending::Cancel, at("08:21:00"));
    assert_eq!(updated.schedule.next_run_at, Some(at("08:23:00")), "though 08:30 would be past it");
}

#[test]
fn a_new_life_waits_for_what_runs_of_the_old_one() {
    let (mut rig, id) = landed(&following(Basis::Completion));
    let run = rig.claim(0, at("08:12:00")).unwrap();
    rig.cancel(id, at("08:12:10"));
    let spec = spec(Rule::Every { every_ms: 10 * MINUTE_MS, anchor: None, basis: Basis::Completion });
    let creation = Creation { id, spec, is_keyed: true };
    let made = rig.call(|shard, turn| shard.create(&creation, at("08:12:15"), turn)).unwrap();
    assert_eq!((made.version, made.next_run_at), (2, None));
    rig.complete(&run, at("08:12:20")).unwrap();
    assert_eq!(next(&mut rig, id), Some(at("08:22:20")));
}

#[test]
fn an_anchor_that_is_long_past_says_where_the_first_one_lies() {
    let mut rig = Rig::tracked(at("08:04:00"));
    let id = rig.create(1, &following(Basis::Completion), on("2026-05-06", "09:17:00"));
    assert_eq!(next(&mut rig, id), Some(on("2026-05-06", "09:20:00")));
    let mut later = following(Basis::Start);
    later.rule = Rule::Every { every_ms: MINUTE_MS, anchor: Some(on("2026-05-07", "00:00:00")), basis: Basis::Start };
    let id = rig.create(2, &later, on("2026-05-06", "09:17:00"));
    assert_eq!(next(&mut rig, id), Some(on("2026-05-07", "00:01:00")), "nor is there anything before it");
}

#[test]
fn a_window_spreads_it_and_what_is_next_still_counts_from_the_end() {
    let spec = Spec { flexible_window_ms: 300_000, ..following(Basis::Completion) };
    let mut rig = Rig::tracked(at("08:00:00"));
    let id = rig.create(1, &spec, at("08:00:00"));
    rig.live(at("08:15:00"));
    assert_eq!((rig.state(0), rig.occurrence(0).lane), (State::Enqueued, Lane::Flexible));
    let run = rig.claim(0, at("08:15:01")).unwrap();
    rig.complete(&run, at("08:15:02")).unwrap();
    assert_eq!(next(&mut rig, id), Some(at("08:25:02")));
}

#[test]
fn only_a_queue_whose_runs_are_followed_can_be_waited_for() {
    let mut rig = Rig::new(at("08:00:00"));
    for basis in [Basis::Completion, Basis::Start] {
        let creation = Creation { id: ScheduleId([1; 16]), spec: following(basis), is_keyed: false };
        let refused = rig.call(|shard, turn| shard.create(&creation, at("08:00:00"), turn));
        let Err(CommandError::Refused(refusal)) = refused else { panic!("{refused:?}") };
        assert_eq!((refusal.code, refusal.field.as_str()), (RefusalCode::Invalid, "rule.basis"));
    }
    let id = rig.create(2, &every(MINUTE_MS, at("08:00:00")), at("08:00:00"));
    let changed = following(Basis::Start);
    let refused = rig.call(|shard, turn| shard.update(&id.into(), &changed, 1, Pending::Cancel, at("08:00:01"), turn));
    assert!(matches!(refused, Err(CommandError::Refused(refusal)) if refusal.field == "rule.basis"));
}

#[test]
fn once_nobody_follows_its_queue_any_more_it_counts_from_the_hand_over() {
    let (mut rig, id) = landed(&following(Basis::Completion));
    let settings = QueueSettings { tracked: false, ..QueueSettings::default() };
    let set = Revised { revision: 1, settings };
    rig.turn(|shard, turn| assert!(shard.set_queue("mail", set, at("08:11:00"), turn).0 > 0));
    let run = rig.claim(0, at("08:12:00")).unwrap();
    rig.complete(&run, at("08:12:10")).unwrap();
    rig.live(at("08:22:10"));
    assert_eq!((rig.state(1), next(&mut rig, id)), (State::Enqueued, Some(at("08:32:10"))));
}

#[test]
fn what_consumers_acknowledged_without_a_claim_ended_then() {
    let (mut rig, id) = landed(&following(Basis::Completion));
    let stream = rig.stream(OccurrenceNo(0));
    let entry = crate::kernel::occurrence::EntryId { generation: 1, counter: 1 };
    rig.turn(|shard, turn: &mut Turn| shard.settled(stream, entry, at("08:14:00"), turn));
    assert_eq!(next(&mut rig, id), Some(at("08:24:00")));
}

#[test]
fn there_is_nothing_to_backfill_and_the_evidence_says_what_is_counted_from() {
    let (mut rig, id) = landed(&following(Basis::Completion));
    let request = Request { discriminator: b"again".to_vec(), is_keyed: false };
    let window = (at("08:00:00"), at("08:10:00"));
    let refused = rig.call(|shard, turn| shard.backfill(&id.into(), window, request, at("08:11:00"), turn));
    assert!(matches!(refused, Err(CommandError::Refused(refusal)) if refusal.field == "rule.basis"));
    let occurrence = rig.occurrence(0).id;
    let (evidence, _) = rig.shard.evidence_of(occurrence, None, at("08:11:00")).unwrap();
    let expression = "every 600000 ms after completion, from 2026-05-04T08:00:00.000Z";
    assert_eq!(evidence.schedule_expression.as_deref(), Some(expression));
}
