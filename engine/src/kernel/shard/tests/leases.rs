//! A lease is over at its end: by elapsed time, whether or not a timer has run, and through restarts.

use super::rig::{Rig, at, every};
use crate::kernel::{
    attempt::{AttemptResult, Failure},
    occurrence::State,
    policy::Overlap,
    shard::{ClaimRefusal, RunError},
};

fn one_landed() -> Rig {
    let mut rig = Rig::tracked(at("08:00:00"));
    rig.create(1, &every(600_000, at("08:00:10")), at("08:00:00"));
    rig.go(at("08:00:10"));
    rig
}

#[test]
fn a_worker_that_stalls_is_overtaken_and_its_late_answer_changes_nothing() {
    let mut rig = one_landed();
    let first = rig.claim(0, at("08:00:10")).unwrap();
    rig.go(at("08:00:40"));
    assert_eq!(rig.state(0), State::RetryWait);
    rig.go(at("08:00:50"));
    let second = rig.claim(0, at("08:00:50")).unwrap();
    assert!(second.token > first.token && second.attempt == 2);
    assert_eq!(rig.complete(&first, at("08:00:51")), Err(RunError::StaleLease));
    assert_eq!(rig.beat(&first, at("08:00:51")), Err(RunError::StaleLease));
    assert_eq!(rig.state(0), State::Running);
    assert_eq!(rig.complete(&second, at("08:00:52")), Ok(State::Succeeded));
    let counters = rig.shard.counters();
    assert_eq!((counters.claimed, counters.expired, counters.completed, counters.stale_tokens), (2, 1, 1, 2));
    let results: Vec<_> = rig.occurrence(0).attempts.iter().filter_map(|attempt| attempt.result).collect();
    assert_eq!(results, [AttemptResult::Failed(Failure::LeaseExpired), AttemptResult::Succeeded]);
}

#[test]
fn a_lease_is_over_at_its_end_though_no_timer_ran() {
    let mut rig = one_landed();
    let run = rig.claim(0, at("08:00:10")).unwrap();
    assert_eq!(rig.shard.next_lapse_ms(), Some(at("08:00:40").0));
    assert_eq!(rig.complete(&run, at("08:00:40")), Err(RunError::StaleLease));
    assert_eq!(rig.state(0), State::Running, "nothing has looked yet");
    assert_eq!(rig.claim(0, at("08:00:40")), Err(ClaimRefusal::Waiting), "its retry is another entry");
    assert_eq!(rig.state(0), State::RetryWait);
}

#[test]
fn heartbeats_extend_a_lease_and_leave_nothing_in_the_log() {
    let mut rig = one_landed();
    let run = rig.claim(0, at("08:00:10")).unwrap();
    let records = rig.log.len();
    for beat in ["08:00:35", "08:01:00", "08:01:25"] {
        assert!(rig.beat(&run, at(beat)).is_ok());
        rig.advance(at(beat));
    }
    assert_eq!((rig.log.len(), rig.state(0)), (records, State::Running));
    rig.advance(at("08:01:55"));
    assert_eq!(rig.state(0), State::RetryWait);
}

#[test]
fn a_restart_gives_a_lease_its_whole_length_again() {
    let mut rig = one_landed();
    let run = rig.claim(0, at("08:00:10")).unwrap();
    let records = rig.log.len();
    rig.crash(records, at("08:05:00"));
    rig.advance(at("08:05:29"));
    assert_eq!(rig.state(0), State::Running);
    assert_eq!(rig.complete(&run, at("08:05:29")), Ok(State::Succeeded));
    rig.crash(records, at("08:05:00"));
    rig.advance(at("08:05:30"));
    assert_eq!(rig.state(0), State::RetryWait);
}

#[test]
fn a_worker_that_was_killed_does_not_count_as_running_for_ever() {
    let mut rig = Rig::tracked(at("08:00:00"));
    let mut alone = every(60_000, at("08:00:00"));
    alone.overlap = Overlap::SkipIfRunning;
    alone.retry.max_attempts = 1;
    let id = rig.create(1, &alone, at("08:00:00"));
    rig.go(at("08:01:00"));
    rig.claim(0, at("08:01:45")).unwrap();
    rig.go(at("08:02:00"));
    assert_eq!(rig.state(1), State::SkippedOverlap, "it runs, as far as anybody knows");
    rig.go(at("08:02:15"));
    rig.go(at("08:03:00"));
    assert_eq!(
        rig.history(id)[..3],
        ["08:01:00 DEAD strict", "08:02:00 SKIPPED_OVERLAP strict", "08:03:00 ENQUEUED strict"]
    );
}
