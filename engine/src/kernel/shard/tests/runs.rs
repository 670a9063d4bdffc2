//! From ENQUEUED to an end: claims and their checks, completions, calls that come while something runs.

use super::rig::{IN_PROCESS, Rig, at, cron, every};
use crate::kernel::{
    attempt::{AttemptResult, Failure, FailureClass},
    id::ScheduleId,
    occurrence::{EntryId, OccurrenceNo, Reason, State},
    policy::Overlap,
    record::{Claimed, Named, Record, RunsSucceeded},
    refusal::RefusalCode,
    shard::{ClaimRefusal, CommandError, Config, Creation, Pending, RunError},
};

/// One occurrence, landed at 08:00:10; the next is due at 08:10:10.
fn one_landed() -> (Rig, ScheduleId) {
    let mut rig = Rig::tracked(at("08:00:00"));
    let id = rig.create(1, &every(600_000, at("08:00:10")), at("08:00:00"));
    rig.go(at("08:00:10"));
    rig.records();
    (rig, id)
}

#[test]
fn a_claim_and_a_completion_are_a_record_each_and_the_history_shows_the_attempt() {
    let (mut rig, _) = one_landed();
    let run = rig.claim(0, at("08:00:11")).unwrap();
    assert_eq!((run.attempt, run.lease_expires_at, run.deadline), (1, at("08:00:41"), None));
    assert_eq!((run.token.lsn, run.token.index), (rig.shard.lsn(), 0));
    assert_eq!(rig.state(0), State::Running);
    assert_eq!(rig.complete(&run, at("08:00:12")), Ok(State::Succeeded));
    let claimed = Claimed { worker: 0, lease_ms: 30_000, is_in_process: false, occurrences: vec![(0, 1)] };
    let succeeded = RunsSucceeded { occurrences: vec![(0, 1)], result_refs: vec![(0, "s3://out".into())] };
    assert_eq!(
        rig.records(),
        [Record::WorkerNamed(Named { name: "w1".into() }), Record::Claimed(claimed), Record::RunsSucceeded(succeeded)]
    );
    let records = rig.log.len();
    rig.crash(records, at("08:00:13"));
    let [attempt] = &rig.occurrence(0).attempts[..] else { panic!("one attempt") };
    assert_eq!((attempt.number, &*attempt.worker, attempt.result), (1, "w1", Some(AttemptResult::Succeeded)));
    assert_eq!((attempt.started_at, attempt.finished_at), (at("08:00:11"), Some(at("08:00:12"))));
    assert_eq!(attempt.result_ref.as_deref(), Some("s3://out"));
}

#[test]
fn a_list_is_claimed_at_once_under_tokens_that_grow() {
    let mut rig = Rig::tracked(at("08:00:00"));
    rig.create(1, &every(1_000, at("08:00:00")), at("08:00:00"));
    rig.go(at("08:00:03"));
    let runs = rig.claim_as("w1", &[0, 1, 1, 2, 99], at("08:00:03"));
    let tokens: Vec<_> = runs.iter().flatten().map(|run| run.token).collect();
    assert_eq!(tokens.len(), 3);
    assert!(tokens.is_sorted_by(|a, b| a < b && a.lsn == b.lsn));
    assert_eq!((runs[2], runs[4]), (Err(ClaimRefusal::AlreadyRunning), Err(ClaimRefusal::NotFound)));
}

#[test]
fn of_two_workers_one_is_granted_it() {
    let (mut rig, _) = one_landed();
    assert!(rig.claim_as("w1", &[0], at("08:00:11"))[0].is_ok());
    assert_eq!(rig.claim_as("w2", &[0], at("08:00:11")), [Err(ClaimRefusal::AlreadyRunning)]);
    let records = rig.log.len();
    rig.crash(records, at("08:00:12"));
    assert_eq!(rig.claim_as("w2", &[0], at("08:00:13")), [Err(ClaimRefusal::AlreadyRunning)], "after a restart too");
}

#[test]
fn a_completion_said_twice_is_answered_the_same_and_recorded_once() {
    let (mut rig, _) = one_landed();
    let run = rig.claim(0, at("08:00:11")).unwrap();
    rig.complete(&run, at("08:00:12")).unwrap();
    let records = rig.log.len();
    assert_eq!(rig.complete(&run, at("09:00:12")), Ok(State::Succeeded));
    rig.crash(records, at("09:00:13"));
    assert_eq!(rig.complete(&run, at("09:00:14")), Ok(State::Succeeded));
    assert_eq!((rig.shard.counters().stale_tokens, rig.claim(0, at("09:00:15"))), (0, Err(ClaimRefusal::Finished)));
}

#[test]
fn tokens_that_hold_nothing_are_stale_whatever_they_say() {
    let (mut rig, _) = one_landed();
    let run = rig.claim(0, at("08:00:11")).unwrap();
    let mut forged = run;
    forged.token.index = 7;
    assert_eq!(rig.complete(&forged, at("08:00:12")), Err(RunError::StaleLease));
    assert_eq!(rig.fail(&forged, FailureClass::Permanent, at("08:00:12")), Err(RunError::StaleLease));
    assert_eq!(rig.beat(&forged, at("08:00:12")), Err(RunError::StaleLease));
    let mut unknown = run;
    unknown.occurrence_id = crate::kernel::id::OccurrenceId([9; 16]);
    assert_eq!(rig.complete(&unknown, at("08:00:12")), Err(RunError::StaleLease));
    assert_eq!(rig.state(0), State::Running);
    rig.complete(&run, at("08:00:12")).unwrap();
    assert_eq!(rig.beat(&run, at("08:00:13")), Err(RunError::StaleLease), "after its end");
    assert_eq!(rig.fail(&run, FailureClass::Transient, at("08:00:13")), Err(RunError::StaleLease));
    assert_eq!(rig.state(0), State::Succeeded);
}

#[test]
fn what_is_claimed_before_its_landing_is_heard_runs_and_a_retry_is_sent_after_it_is() {
    let mut rig = Rig::tracked(at("08:00:00"));
    rig.create(1, &every(600_000, at("08:00:10")), at("08:00:00"));
    rig.work_off(at("08:00:10"));
    let run = rig.claim(0, at("08:00:10")).unwrap();
    let schedule = rig.shard.read(&ScheduleId([1; 16]).into(), at("08:00:10")).unwrap().0;
    assert_eq!(schedule.last_run_at, Some(at("08:00:10")));
    rig.fail(&run, FailureClass::Transient, at("08:00:10")).unwrap();
    let landed = std::mem::take(&mut rig.handed);
    rig.work_off(at("08:00:20"));
    assert_eq!(rig.handed, [], "the queue still has to answer for the first entry");
    rig.handed = landed;
    let records = rig.log.len();
    rig.land(at("08:00:20"));
    assert_eq!(rig.log.len(), records, "its place is of no use any more");
    assert_eq!(rig.state(0), State::RetryWait);
    rig.work_off(at("08:00:21"));
    assert_eq!(rig.handed, [OccurrenceNo(0)]);
    assert_eq!(rig.shard.entry(OccurrenceNo(0)).attempt, 2);
    rig.land(at("08:00:21"));
    assert_eq!((rig.state(0), rig.claim(0, at("08:00:22")).unwrap().attempt), (State::Enqueued, 2));
}

#[test]
fn a_cancel_reaches_what_waits_anywhere_and_asks_what_runs_to_stop() {
    // (a) in the wheel, (b) in the log and not in the stream, (c) in the stream and unclaimed, (d) just claimed.
    let mut rig = Rig::tracked(at("08:00:00"));
    let id = rig.create(1, &every(1_000, at("08:00:00")), at("08:00:00"));
    rig.go(at("08:00:02"));
    rig.work_off(at("08:00:03"));
    let run = rig.claim(0, at("08:00:03")).unwrap();
    let states: Vec<State> = (0..4).map(|number| rig.state(number)).collect();
    assert_eq!(states, [State::Running, State::Enqueued, State::Scheduled, State::Scheduled]);
    let receipt = rig.cancel(id, at("08:00:03")).receipt;
    let ids = |numbers: &[u64]| numbers.iter().map(|number| rig.occurrence(*number).id).collect::<Vec<_>>();
    assert_eq!((receipt.cancel_requested, receipt.kept), (ids(&[0]), vec![]));
    let mut canceled = receipt.canceled;
    canceled.sort_unstable();
    assert_eq!(canceled, ids(&[1, 2, 3, 4]));
    rig.land(at("08:00:03"));
    for number in 1..4 {
        assert_eq!(rig.claim(number, at("08:00:04")), Err(ClaimRefusal::Canceled));
    }
    assert!(rig.beat(&run, at("08:00:05")).unwrap().cancel_requested);
    let stopped = rig.fail(&run, FailureClass::Canceled, at("08:00:06")).unwrap();
    assert_eq!((stopped.state, rig.occurrence(0).reason), (State::Canceled, Some(Reason::Canceled)));
    rig.live(at("08:01:00"));
    assert_eq!(rig.shard.counters().claimed, 1);
}

#[test]
fn what_runs_through_a_cancel_succeeds_if_it_completes_and_is_canceled_if_it_does_not() {
    for completes in [true, false] {
        let (mut rig, id) = one_landed();
        let run = rig.claim(0, at("08:00:11")).unwrap();
        rig.cancel(id, at("08:00:12"));
        let records = rig.log.len();
        rig.crash(records, at("08:00:13"));
        if completes {
            assert_eq!(rig.complete(&run, at("08:00:14")), Ok(State::Succeeded));
        } else {
            rig.fail(&run, FailureClass::Transient, at("08:00:14")).unwrap();
            assert_eq!((rig.state(0), rig.occurrence(0).reason), (State::Canceled, Some(Reason::Canceled)));
        }
    }
}

#[test]
fn an_update_and_a_pause_say_why_and_what_runs_is_kept() {
    let (mut rig, id) = one_landed();
    let run = rig.claim(0, at("08:00:11")).unwrap();
    let minutely = cron("* * * * *", "UTC");
    let updated =
        rig.call(|shard, turn| shard.update(&id.into(), &minutely, 1, Pending::Cancel, at("08:00:12"), turn)).unwrap();
    assert_eq!(updated.receipt.kept, [rig.occurrence(0).id]);
    assert!(!rig.beat(&run, at("08:00:13")).unwrap().cancel_requested, "it may end as it likes");
    assert_eq!(rig.fail(&run, FailureClass::Canceled, at("08:00:14")), Err(RunError::NotAskedToStop));
    rig.fail(&run, FailureClass::Permanent, at("08:00:14")).unwrap();
    assert_eq!((rig.state(0), rig.occurrence(0).reason), (State::Canceled, Some(Reason::Superseded)));
    rig.go(at("08:01:00"));
    rig.call(|shard, turn| shard.pause(&id.into(), at("08:01:01"), turn)).unwrap();
    assert_eq!(rig.claim(1, at("08:01:02")), Err(ClaimRefusal::Paused));
}

#[test]
fn an_update_that_keeps_what_is_due_leaves_runs_and_retries_as_they_are() {
    let mut rig = Rig::tracked(at("08:00:00"));
    let id = rig.create(1, &every(1_000, at("08:00:00")), at("08:00:00"));
    rig.go(at("08:00:02"));
    let failing = rig.claim(0, at("08:00:02")).unwrap();
    let minutely = cron("* * * * *", "UTC");
    let updated =
        rig.call(|shard, turn| shard.update(&id.into(), &minutely, 1, Pending::Keep, at("08:00:02"), turn)).unwrap();
    assert_eq!(updated.receipt.kept.len(), 2, "one runs and one waits for a worker");
    assert!(rig.claim(1, at("08:00:03")).is_ok());
    assert_eq!(rig.fail(&failing, FailureClass::Transient, at("08:00:03")).unwrap().state, State::RetryWait);
    rig.go(at("08:00:10"));
    assert_eq!(rig.claim(0, at("08:00:10")).unwrap().attempt, 2, "under the old version's policy");
}

#[test]
fn an_untracked_queue_ends_at_enqueued_and_promises_nothing_that_needs_claims() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &every(600_000, at("08:00:10")), at("08:00:00"));
    rig.go(at("08:00:10"));
    assert_eq!(rig.claim(0, at("08:00:11")), Err(ClaimRefusal::Finished));
    let mut alone = every(600_000, at("08:00:10"));
    alone.overlap = Overlap::SkipIfRunning;
    let creation = Creation { id: ScheduleId([2; 16]), spec: alone.clone(), is_keyed: false };
    let refused = rig.call(|shard, turn| shard.create(&creation, at("08:00:12"), turn));
    assert!(matches!(refused, Err(CommandError::Refused(r)) if r.code == RefusalCode::Invalid && r.field == "overlap"));
    let refused = rig.call(|shard, turn| shard.update(&id.into(), &alone, 1, Pending::Cancel, at("08:00:12"), turn));
    assert!(matches!(refused, Err(CommandError::Refused(_))));
}

#[test]
fn what_consumers_acknowledged_without_a_claim_is_done_and_never_sent_again() {
    let mut rig = Rig::tracked(at("08:00:00"));
    rig.create(1, &every(1_000, at("08:00:00")), at("08:00:00"));
    rig.go(at("08:00:01"));
    rig.go(at("08:00:02"));
    rig.go(at("08:00:03"));
    rig.claim(0, at("08:00:03")).unwrap();
    let stream = rig.stream(OccurrenceNo(0));
    let through = EntryId { generation: 1, counter: 2 };
    rig.turn(|shard, turn| shard.settled(stream, through, at("08:00:03"), turn));
    assert_eq!(rig.shard.counters().unclaimed, 1);
    assert_eq!(rig.claim(1, at("08:00:03")), Err(ClaimRefusal::Finished));
    assert!(rig.claim(2, at("08:00:03")).is_ok(), "it lies behind the entry");
    rig.turn(|shard, turn| shard.lost(stream, None, at("08:00:04"), turn));
    let records = rig.log.len();
    rig.crash(records, at("08:00:05"));
    rig.shard.queue_ready();
    rig.advance(at("08:00:05"));
    assert!(!rig.handed.contains(&OccurrenceNo(1)), "{:?}", rig.handed);
}

#[test]
fn what_was_claimed_once_is_sent_again_when_its_next_entry_is_acknowledged_without_a_claim() {
    let mut rig = Rig::tracked(at("08:00:00"));
    rig.create(1, &every(600_000, at("08:00:00")), at("08:00:00"));
    rig.go(at("08:10:00"));
    let run = rig.claim(0, at("08:10:00")).unwrap();
    rig.fail(&run, FailureClass::Transient, at("08:10:01")).unwrap();
    rig.go(at("08:11:00"));
    assert_eq!(rig.state(0), State::Enqueued, "its retry is another entry");
    let (stream, all) = (rig.stream(OccurrenceNo(0)), EntryId { generation: 9, counter: 0 });
    rig.turn(|shard, turn| shard.settled(stream, all, at("08:11:00"), turn));
    let records = rig.log.len();
    rig.crash(records, at("08:11:01"));
    rig.shard.queue_ready();
    rig.handed.clear();
    rig.turn(|shard, turn| shard.settled(stream, all, at("08:11:01"), turn));
    rig.turn(|shard, turn| shard.settled(stream, all, at("08:11:01"), turn));
    rig.advance(at("08:11:01"));
    assert_eq!(rig.handed, [OccurrenceNo(0)], "once, though it was said twice");
    assert_eq!((rig.shard.counters().unclaimed, rig.shard.unclaimed().count()), (0, 0));
    rig.land(at("08:11:01"));
    assert_eq!(rig.claim(0, at("08:11:02")).unwrap().attempt, 2);
}

#[test]
fn no_answer_settles_an_entry_that_the_opening_has_still_to_find() {
    let mut rig = Rig::tracked(at("08:00:00"));
    rig.create(1, &every(600_000, at("08:00:00")), at("08:00:00"));
    rig.advance(at("08:10:00"));
    assert_eq!(rig.handed, [OccurrenceNo(0)]);
    let (records, stream) = (rig.log.len(), rig.stream(OccurrenceNo(0)));
    rig.crash(records, at("08:10:01"));
    rig.advance(at("08:10:01"));
    assert_eq!(rig.claim(0, at("08:10:01")), Err(ClaimRefusal::NotHeard), "redis does not answer yet");
    let id = rig.occurrence(0).id;
    let entry = EntryId { generation: 1, counter: 1 };
    rig.turn(|shard, turn| shard.found(stream, &[(id, 1, entry)], 1, at("08:10:02"), turn));
    rig.shard.queue_ready();
    assert!(rig.claim(0, at("08:10:02")).is_ok());
}

#[test]
fn what_the_log_remembers_of_unclaimed_entries_is_settled_after_a_restart() {
    let mut rig = Rig::tracked(at("08:00:00"));
    rig.create(1, &every(1_000, at("08:00:00")), at("08:00:00"));
    rig.go(at("08:00:01"));
    rig.go(at("08:00:02"));
    let records = rig.log.len();
    rig.crash(records, at("08:00:02"));
    rig.shard.queue_ready();
    let (stream, first) = (rig.stream(OccurrenceNo(0)), EntryId { generation: 1, counter: 1 });
    rig.turn(|shard, turn| shard.settled(stream, first, at("08:00:02"), turn));
    assert_eq!(rig.claim(0, at("08:00:02")), Err(ClaimRefusal::Finished));
    assert!(rig.claim(1, at("08:00:02")).is_ok());
    let counted: Vec<_> = rig.shard.unclaimed().map(|(queue, count)| (queue.is_some(), count)).collect();
    assert_eq!(counted, [(true, 1)]);
}

#[test]
fn the_embedded_queue_is_handed_again_what_no_worker_had_claimed() {
    let mut rig = Rig::with(Config { is_embedded: true, ..Config::default() }, at("08:00:00"));
    rig.create(1, &every(1_000, at("08:00:00")), at("08:00:00"));
    rig.go(at("08:00:03"));
    let over_http = rig.claim(0, at("08:00:03")).unwrap();
    let in_process = rig.claim_as(IN_PROCESS, &[1], at("08:00:03"))[0].unwrap();
    let records = rig.log.len();
    rig.crash(records, at("08:00:03.500"));
    rig.shard.queue_ready();
    rig.advance(at("08:00:03.500"));
    assert!(rig.handed.contains(&OccurrenceNo(2)) && !rig.handed.contains(&OccurrenceNo(0)));
    assert_eq!(rig.state(1), State::RetryWait, "its worker is gone with the process");
    let last = rig.occurrence(1).attempts[0].result;
    assert_eq!(last, Some(AttemptResult::Failed(Failure::Restarted)));
    assert_eq!(rig.complete(&in_process, at("08:00:03.600")), Err(RunError::StaleLease));
    assert_eq!(rig.complete(&over_http, at("08:00:03.600")), Ok(State::Succeeded));
}

#[test]
fn a_worker_that_takes_nothing_fills_the_house_and_one_that_completes_makes_room() {
    let mut rig = Rig::with(Config { live_limit: 2, ..Config::default() }, at("08:00:00"));
    let id = rig.create(1, &every(1_000, at("08:00:00")), at("08:00:00"));
    rig.live(at("08:00:30"));
    assert_eq!(rig.history(id).len(), 2);
    let run = rig.claim(0, at("08:00:30")).unwrap();
    rig.fail(&run, FailureClass::Permanent, at("08:00:30")).unwrap();
    rig.advance(at("08:00:31"));
    assert!(rig.history(id).len() > 2, "what is dead takes no room");
    assert_eq!(rig.shard.pile(crate::kernel::shard::Pile::Dead, Some("acme"), None, 10).items.len(), 1);
}
