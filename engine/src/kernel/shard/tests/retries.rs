//! What follows a failed attempt: back-off, its bounds, dead letters, replay.

use super::rig::{Rig, at, every, on};
use crate::kernel::{
    attempt::{Death, Failure, FailureClass},
    occurrence::{OccurrenceNo, Reason, State},
    policy::Retry,
    record::{Record, RunFailed, Then},
    retry::backoff_ms,
    schedule::Spec,
    shard::{ClaimRefusal, Pile, ReviewRefusal},
    time::UnixMs,
};

fn one_landed(describe: impl Fn(&mut Spec)) -> Rig {
    let mut rig = Rig::tracked(at("08:00:00"));
    let mut spec = every(600_000, at("08:00:10"));
    describe(&mut spec);
    rig.create(1, &spec, at("08:00:00"));
    rig.go(at("08:00:10"));
    rig
}

/// Claims and fails until there is no attempt to be had; how many there were.
fn fail_until_dead(rig: &mut Rig, mut now: UnixMs) -> u32 {
    let mut attempts = 0;
    while let Ok(run) = rig.claim(0, now) {
        attempts += 1;
        rig.fail(&run, FailureClass::Transient, now).unwrap();
        now = now.plus(700_000);
        rig.go(now);
    }
    attempts
}

#[test]
fn what_is_tried_again_waits_since_its_back_off_ended_not_since_its_instant() {
    let mut rig = one_landed(|_| ());
    let run = rig.claim(0, at("08:00:11")).unwrap();
    let due = rig.fail(&run, FailureClass::Transient, at("08:00:30")).unwrap().retry_at.unwrap();
    rig.shard.queue_away(None, "away".into(), at("08:00:30"));
    rig.advance(due.plus(500));
    assert_eq!(rig.shard.due_backlog(due.plus(500)), (1, Some(due)));
}

#[test]
fn a_transient_failure_waits_its_back_off_and_is_another_entry_of_the_same_occurrence() {
    let mut rig = one_landed(|_| ());
    let run = rig.claim(0, at("08:00:11")).unwrap();
    rig.records();
    let outcome = rig.fail(&run, FailureClass::Transient, at("08:00:12")).unwrap();
    let delay_ms = backoff_ms(run.occurrence_id, 1, &Retry::default());
    let due = at("08:00:12").plus(delay_ms.cast_signed());
    assert_eq!((outcome.state, outcome.retry_at), (State::RetryWait, Some(due)));
    let failed = RunFailed {
        occurrence: 0,
        failure: Failure::Reported(FailureClass::Transient),
        message: Some("it broke".into()),
        then: Then::Retry { delay_ms },
    };
    assert_eq!(rig.records(), [Record::RunFailed(failed)]);
    assert_eq!(rig.fail(&run, FailureClass::Transient, at("08:00:12")), Ok(outcome), "said twice");
    rig.advance(due.minus(1));
    assert_eq!(rig.handed, []);
    rig.advance(due);
    assert_eq!(rig.handed, [OccurrenceNo(0)]);
    assert_eq!(rig.shard.entry(OccurrenceNo(0)).attempt, 2);
    rig.land(due);
    assert_eq!((rig.state(0), rig.claim(0, due).unwrap().attempt), (State::Enqueued, 2));
}

#[test]
fn a_back_off_that_a_restart_interrupts_is_waited_out_once_more_at_most() {
    let mut rig = one_landed(|_| ());
    let run = rig.claim(0, at("08:00:11")).unwrap();
    rig.fail(&run, FailureClass::Transient, at("08:00:12")).unwrap();
    let delay_ms = backoff_ms(run.occurrence_id, 1, &Retry::default()).cast_signed();
    let records = rig.log.len();
    rig.crash(records, at("08:00:12.100"));
    rig.shard.queue_ready();
    rig.advance(at("08:00:12.100").plus(delay_ms - 1));
    assert_eq!(rig.handed, []);
    rig.advance(at("08:00:12.100").plus(delay_ms));
    assert_eq!(rig.handed, [OccurrenceNo(0)]);
}

#[test]
fn a_permanent_failure_is_dead_at_once() {
    let mut rig = one_landed(|_| ());
    let run = rig.claim(0, at("08:00:11")).unwrap();
    rig.fail(&run, FailureClass::Permanent, at("08:00:12")).unwrap();
    assert_eq!((rig.state(0), rig.occurrence(0).reason), (State::Dead, Some(Reason::Dead(Death::Permanent))));
    assert_eq!(rig.claim(0, at("08:00:13")), Err(ClaimRefusal::Finished));
}

#[test]
fn attempts_end_with_max_attempts_and_a_replay_grants_as_many_again_under_the_same_id() {
    let mut rig = one_landed(|spec| spec.retry.max_attempts = 3);
    let id = rig.occurrence(0).id;
    assert_eq!(fail_until_dead(&mut rig, at("08:00:11")), 3);
    assert_eq!(rig.occurrence(0).reason, Some(Reason::Dead(Death::MaxAttempts)));
    let records = rig.log.len();
    rig.crash(records, at("10:00:00"));
    rig.shard.queue_ready();
    let [dead] = &rig.shard.pile(Pile::Dead, Some("acme"), None, 10).items[..] else { panic!("one is dead") };
    assert_eq!((dead.id, dead.attempt_count), (id, 3));
    assert_eq!(rig.replay(0, at("10:00:01")), Ok(State::Enqueued));
    assert_eq!(rig.replay(0, at("10:00:01")), Err(ReviewRefusal::State(State::Enqueued)), "said twice");
    rig.go(at("10:00:01"));
    let run = rig.claim(0, at("10:00:02")).unwrap();
    assert_eq!((run.occurrence_id, run.attempt), (id, 4), "numbers go on");
    rig.fail(&run, FailureClass::Transient, at("10:00:03")).unwrap();
    rig.go(at("10:20:00"));
    assert_eq!(fail_until_dead(&mut rig, at("10:20:00")), 2);
    assert_eq!(rig.occurrence(0).attempt_count, 6);
}

#[test]
fn a_replay_that_a_crash_interrupts_is_handed_over_after_it() {
    let mut rig = one_landed(|spec| spec.retry.max_attempts = 1);
    fail_until_dead(&mut rig, at("08:00:11"));
    rig.replay(0, at("09:00:00")).unwrap();
    let records = rig.log.len();
    rig.crash(records, at("09:00:01"));
    rig.shard.queue_ready();
    rig.advance(at("09:00:01"));
    assert!(rig.handed.contains(&OccurrenceNo(0)));
}

#[test]
fn nothing_of_a_deleted_schedule_is_replayed_and_an_old_version_is() {
    let mut rig = one_landed(|spec| spec.retry.max_attempts = 1);
    let schedule = rig.occurrence(0).schedule_id;
    fail_until_dead(&mut rig, at("08:00:11"));
    rig.call(|shard, turn| shard.pause(&schedule.into(), at("09:00:00"), turn)).unwrap();
    assert_eq!(rig.replay(0, at("09:00:01")), Ok(State::Enqueued));
    rig.go(at("09:00:01"));
    let run = rig.claim(0, at("09:00:01")).unwrap();
    rig.fail(&run, FailureClass::Permanent, at("09:00:02")).unwrap();
    rig.cancel(schedule, at("09:00:03"));
    assert_eq!(rig.replay(0, at("09:00:04")), Err(ReviewRefusal::ScheduleCanceled));
    assert_eq!(rig.state(0), State::Dead, "a delete leaves it where it is");
}

#[test]
fn no_attempt_begins_after_the_deadline_and_one_that_runs_is_not_cut() {
    let mut rig = one_landed(|spec| spec.retry.deadline_ms = Some(20_000));
    let run = rig.claim(0, at("08:00:29")).unwrap();
    assert_eq!(run.deadline, Some(at("08:00:30")));
    assert!(rig.beat(&run, at("08:00:40")).is_ok());
    let outcome = rig.fail(&run, FailureClass::Transient, at("08:00:41")).unwrap();
    assert_eq!((outcome.state, rig.occurrence(0).reason), (State::Dead, Some(Reason::Dead(Death::Deadline))));
    rig.replay(0, at("09:00:00")).unwrap();
    rig.go(at("09:00:00"));
    let run = rig.claim(0, at("09:00:19")).unwrap();
    assert_eq!(run.deadline, Some(at("09:00:20")), "who asks for it again gives it its time again");
}

#[test]
fn a_claim_past_the_deadline_finds_it_dead() {
    let mut rig = one_landed(|spec| spec.retry.deadline_ms = Some(20_000));
    assert_eq!(rig.claim(0, at("08:00:30.001")), Err(ClaimRefusal::Finished));
    assert_eq!((rig.state(0), rig.occurrence(0).attempt_count), (State::Dead, 0));
}

#[test]
fn a_retry_budget_counts_the_utc_day_and_nothing_refills_it() {
    let mut rig = Rig::tracked(at("08:00:00"));
    let mut spec = every(3_600_000, at("08:00:00"));
    spec.retry.budget = Some(1);
    let id = rig.create(1, &spec, at("08:00:00"));
    let fail_one = |rig: &mut Rig, number: u64, now: UnixMs| {
        rig.go(now);
        let run = rig.claim(number, now).unwrap();
        rig.fail(&run, FailureClass::Transient, now).unwrap().state
    };
    assert_eq!(fail_one(&mut rig, 0, at("09:00:00")), State::RetryWait);
    assert_eq!(fail_one(&mut rig, 1, at("10:00:00")), State::Dead);
    assert_eq!(rig.occurrence(1).reason, Some(Reason::Dead(Death::RetryBudgetExhausted)));
    let records = rig.log.len();
    rig.crash(records, at("10:30:00"));
    rig.shard.queue_ready();
    let mut renamed = spec.clone();
    renamed.name = Some("again".into());
    let pending = crate::kernel::shard::Pending::Keep;
    rig.call(|shard, turn| shard.update(&id.into(), &renamed, 1, pending, at("10:30:01"), turn)).unwrap();
    assert_eq!(fail_one(&mut rig, 2, at("11:00:00")), State::Dead, "nor does a restart or an update");
    let mut day = Rig::tracked(at("22:00:00"));
    day.create(1, &spec, at("22:00:00"));
    assert_eq!(fail_one(&mut day, 0, at("23:00:00")), State::RetryWait);
    day.live(on("2026-05-05", "01:00:00"));
    assert_eq!(fail_one(&mut day, 1, on("2026-05-05", "01:00:00")), State::RetryWait, "a new day");
}

#[test]
fn what_is_dead_for_a_month_goes_when_another_dies() {
    let mut rig = one_landed(|spec| spec.retry.max_attempts = 1);
    fail_until_dead(&mut rig, at("08:00:11"));
    let id = rig.occurrence(0).id;
    let later = on("2026-06-04", "08:00:00");
    rig.go(later);
    rig.go(later);
    let waiting = (1..3).find(|number| rig.state(*number) == State::Enqueued).unwrap();
    let run = rig.claim(waiting, later).unwrap();
    rig.fail(&run, FailureClass::Permanent, later).unwrap();
    assert_eq!(rig.shard.look_up(id).occurrence, None);
    assert_eq!(rig.shard.pile(Pile::Dead, Some("acme"), None, 10).items.len(), 1);
}
