//! A claim that is repeated under its id is answered what it was granted, as long as the leases of that last.

use super::rig::{Rig, at, every};
use crate::kernel::{
    occurrence::State,
    shard::{Granted, RunError},
    time::UnixMs,
};

fn three_landed() -> Rig {
    let mut rig = Rig::tracked(at("08:00:00"));
    for id in 1..=3 {
        rig.create(id, &every(600_000, at("08:00:10")), at("08:00:00"));
    }
    rig.go(at("08:00:10"));
    rig.claim_id = Some("c-1");
    rig
}

fn repeat(rig: &mut Rig, worker: &str, id: &str, now: UnixMs) -> Vec<Granted> {
    rig.shard.set_elapsed(now.0);
    rig.shard.claimed_before("mail", worker, id).0
}

fn claim(rig: &mut Rig, numbers: &[u64], now: UnixMs) -> Vec<Granted> {
    rig.claim_as("w1", numbers, now).into_iter().map(Result::unwrap).collect()
}

#[test]
fn a_repeated_claim_gets_its_runs_and_nobody_elses_does() {
    let mut rig = three_landed();
    let granted = claim(&mut rig, &[2, 0], at("08:00:10"));
    rig.claim_id = Some("c-2");
    claim(&mut rig, &[1], at("08:00:10"));
    assert_eq!(repeat(&mut rig, "w1", "c-1", at("08:00:20")), granted);
    assert_eq!(repeat(&mut rig, "w2", "c-1", at("08:00:20")), [], "another worker's");
    assert_eq!(repeat(&mut rig, "w1", "c-3", at("08:00:20")), [], "another claim");
    assert_eq!(rig.shard.claimed_before("post", "w1", "c-1").0, [], "another queue");
}

#[test]
fn a_repeated_claim_gets_the_present_ends_of_its_leases_and_only_what_still_runs() {
    let mut rig = three_landed();
    let granted = claim(&mut rig, &[0, 1, 2], at("08:00:10"));
    let later = rig.beat(&granted[1], at("08:00:30")).unwrap().lease_expires_at;
    rig.complete(&granted[0], at("08:00:31")).unwrap();
    let again = repeat(&mut rig, "w1", "c-1", at("08:00:32"));
    assert_eq!(again, [Granted { lease_expires_at: later, ..granted[1] }, granted[2]]);
    assert_eq!(repeat(&mut rig, "w1", "c-1", at("08:00:40")), [again[0]], "though no timer ran");
    rig.advance(at("08:01:00"));
    assert_eq!(repeat(&mut rig, "w1", "c-1", at("08:01:00")), []);
    assert_eq!(rig.state(1), State::RetryWait);
}

#[test]
fn a_claims_id_outlives_a_crash_and_its_leases_run_anew() {
    let mut rig = three_landed();
    let granted = claim(&mut rig, &[0, 1], at("08:00:10"));
    rig.complete(&granted[0], at("08:00:20")).unwrap();
    let records = rig.log.len();
    rig.crash(records, at("08:00:30"));
    let again = repeat(&mut rig, "w1", "c-1", at("08:00:30"));
    assert_eq!(again, [Granted { lease_expires_at: at("08:01:00"), ..granted[1] }]);
    assert_eq!(rig.complete(&again[0], at("08:00:59")), Ok(State::Succeeded));
    assert_eq!(rig.complete(&granted[1], at("08:00:59")), Ok(State::Succeeded), "it is the same lease");
}

#[test]
fn a_later_claim_of_the_same_occurrence_takes_it_from_the_claim_before() {
    let mut rig = three_landed();
    let first = claim(&mut rig, &[0], at("08:00:10")).remove(0);
    rig.go(at("08:00:40"));
    rig.go(at("08:00:50"));
    rig.claim_id = Some("c-2");
    let second = claim(&mut rig, &[0], at("08:00:50")).remove(0);
    assert_eq!(repeat(&mut rig, "w1", "c-1", at("08:00:50")), []);
    assert_eq!(repeat(&mut rig, "w1", "c-2", at("08:00:50")), [second]);
    assert_eq!(rig.complete(&first, at("08:00:51")), Err(RunError::StaleLease));
}
