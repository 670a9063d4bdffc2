//! What becomes of an occurrence while another of its schedule runs, with real concurrent claims.

use super::rig::{Rig, at, cron, every};
use crate::kernel::{
    attempt::FailureClass,
    id::ScheduleId,
    occurrence::{Reason, State},
    policy::{Misfire, Overlap},
    record::{Record, Skipped, Waited},
    shard::{ClaimRefusal, Pending, Request},
};

fn minutely(overlap: Overlap) -> (Rig, ScheduleId) {
    let mut rig = Rig::tracked(at("08:00:00"));
    let mut spec = every(60_000, at("08:00:00"));
    spec.overlap = overlap;
    let id = rig.create(1, &spec, at("08:00:00"));
    rig.go(at("08:01:00"));
    (rig, id)
}

#[test]
fn allow_runs_beside_each_other() {
    let (mut rig, _) = minutely(Overlap::Allow);
    let first = rig.claim(0, at("08:01:50")).unwrap();
    rig.go(at("08:02:00"));
    let second = rig.claim(1, at("08:02:00")).unwrap();
    assert!(rig.complete(&first, at("08:02:01")).is_ok() && rig.complete(&second, at("08:02:01")).is_ok());
}

#[test]
fn skip_if_running_skips_what_comes_due_while_one_runs() {
    let (mut rig, id) = minutely(Overlap::SkipIfRunning);
    let first = rig.claim(0, at("08:01:50")).unwrap();
    rig.records();
    rig.work_off(at("08:02:00"));
    assert!(rig.records().contains(&Record::Skipped(Skipped { occurrence: 1 })));
    assert_eq!(rig.claim(1, at("08:02:01")), Err(ClaimRefusal::SkippedOverlap));
    rig.complete(&first, at("08:02:02")).unwrap();
    rig.go(at("08:03:00"));
    assert_eq!(rig.history(id)[1..3], ["08:02:00 SKIPPED_OVERLAP strict", "08:03:00 ENQUEUED strict"]);
}

#[test]
fn it_is_asked_again_at_the_claim() {
    // Both were released while none ran.
    let (mut rig, _) = minutely(Overlap::SkipIfRunning);
    rig.go(at("08:02:00"));
    let [first, second] = rig.claim_as("w1", &[0, 1], at("08:02:01"))[..] else { panic!("two answers") };
    assert!(first.is_ok());
    assert_eq!((second, rig.state(1)), (Err(ClaimRefusal::SkippedOverlap), State::SkippedOverlap));
}

#[test]
fn queue_one_lets_one_wait_and_skips_the_others() {
    let (mut rig, id) = minutely(Overlap::QueueOne);
    let mut run = rig.claim(0, at("08:01:50")).unwrap();
    rig.records();
    for now in ["08:02:00", "08:02:15", "08:02:40", "08:03:00", "08:03:15"] {
        rig.go(at(now));
        rig.beat(&run, at(now)).unwrap();
    }
    assert!(rig.records().contains(&Record::Waited(Waited { occurrence: 1, for_permit: false })));
    assert_eq!((rig.state(1), rig.occurrence(1).reason), (State::Scheduled, Some(Reason::Waiting)));
    assert_eq!(rig.state(2), State::SkippedOverlap);
    rig.complete(&run, at("08:03:20")).unwrap();
    rig.go(at("08:03:20"));
    assert_eq!(rig.history(id)[1], "08:02:00 ENQUEUED strict", "80 s late, and not judged for it");
    run = rig.claim(1, at("08:03:21")).unwrap();
    assert!(rig.complete(&run, at("08:03:22")).is_ok());
}

#[test]
fn who_waits_still_waits_after_a_crash() {
    let (mut rig, _) = minutely(Overlap::QueueOne);
    let run = rig.claim(0, at("08:01:50")).unwrap();
    rig.go(at("08:02:00"));
    let records = rig.log.len();
    rig.crash(records, at("08:30:00"));
    rig.shard.queue_ready();
    rig.go(at("08:30:00"));
    assert_eq!((rig.state(1), rig.handed.len()), (State::Scheduled, 0), "nor is it missed");
    rig.complete(&run, at("08:30:01")).unwrap();
    rig.go(at("08:30:01"));
    assert_eq!(rig.state(1), State::Enqueued);
}

#[test]
fn a_manual_one_is_skipped_behind_one_that_waits_for_a_worker() {
    let (mut rig, id) = minutely(Overlap::QueueOne);
    let request = Request { discriminator: b"now".to_vec(), is_keyed: true };
    rig.call(|shard, turn| shard.trigger(&id.into(), request, at("08:01:30"), turn)).unwrap();
    rig.go(at("08:01:30"));
    assert_eq!((rig.state(0), rig.state(1)), (State::Enqueued, State::SkippedOverlap));
}

#[test]
fn a_retry_is_never_skipped_it_waits_and_is_handed_over_again_as_the_same_attempt() {
    let (mut rig, _) = minutely(Overlap::SkipIfRunning);
    let first = rig.claim(0, at("08:01:57")).unwrap();
    let enqueued_at = rig.occurrence(0).enqueued_at;
    rig.fail(&first, FailureClass::Transient, at("08:01:58")).unwrap();
    // The back-off is over when the next instant comes: both are released, and the new one is claimed first.
    rig.go(at("08:02:00"));
    rig.records();
    let second = rig.claim(1, at("08:02:01")).unwrap();
    assert_eq!(rig.claim(0, at("08:02:02")), Err(ClaimRefusal::Waiting));
    assert_eq!(rig.records().last(), Some(&Record::Waited(Waited { occurrence: 0, for_permit: false })));
    rig.go(at("08:02:10"));
    assert_eq!((rig.state(0), rig.occurrence(0).reason), (State::Scheduled, Some(Reason::Waiting)));
    rig.complete(&second, at("08:02:11")).unwrap();
    rig.go(at("08:02:11"));
    assert_eq!((rig.state(0), rig.occurrence(0).enqueued_at), (State::Enqueued, enqueued_at));
    assert_eq!(rig.claim(0, at("08:02:12")).unwrap().attempt, 2);
}

#[test]
fn what_is_caught_up_runs_one_after_another_oldest_first_and_all_of_it() {
    let mut rig = Rig::tracked(at("08:00:00"));
    let mut spec = cron("* * * * *", "UTC");
    (spec.overlap, spec.misfire) = (Overlap::SkipIfRunning, Misfire::CatchUp { limit: 3 });
    let id = rig.create(1, &spec, at("08:00:00"));
    let records = rig.log.len();
    rig.crash(records, at("08:10:30"));
    rig.shard.queue_ready();
    let mut order = Vec::new();
    for second in 0..6 {
        let now = at("08:10:30").plus(second * 1_000);
        rig.go(now);
        let waiting: Vec<u64> = (0..3).filter(|number| rig.state(*number) == State::Enqueued).collect();
        assert!(waiting.len() <= 1, "one at a time: {waiting:?}");
        for number in waiting {
            order.push(rig.occurrence(number).scheduled_for);
            let run = rig.claim(number, now).unwrap();
            assert_eq!(rig.complete(&run, now), Ok(State::Succeeded));
        }
    }
    assert_eq!(order, [at("08:08:00"), at("08:09:00"), at("08:10:00")]);
    assert_eq!(rig.history(id)[1..4].iter().filter(|line| line.contains("SUCCEEDED catchup")).count(), 3);
}

#[test]
fn what_runs_of_an_older_version_is_in_the_way_too() {
    let (mut rig, id) = minutely(Overlap::Allow);
    rig.claim(0, at("08:01:50")).unwrap();
    let mut alone = every(60_000, at("08:00:00"));
    alone.overlap = Overlap::SkipIfRunning;
    rig.call(|shard, turn| shard.update(&id.into(), &alone, 1, Pending::Cancel, at("08:01:51"), turn)).unwrap();
    rig.go(at("08:02:00"));
    assert!(rig.history(id).contains(&"08:02:00 SKIPPED_OVERLAP strict".to_owned()), "{:?}", rig.history(id));
}
