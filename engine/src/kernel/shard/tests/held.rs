//! Effects that must not repeat: what nobody can vouch for is held for a person.

use super::rig::{IN_PROCESS, Rig, at, cron, every};
use crate::kernel::{
    attempt::{Death, FailureClass, Resolution},
    evidence::{Decision, HoldReason, PriorOutcome, decide},
    occurrence::{OccurrenceNo, Reason, State},
    policy::{Effect, Misfire},
    record::Record,
    schedule::Spec,
    shard::{ClaimRefusal, Config, Pending, Pile, ReviewRefusal, RunError},
};

fn payments(describe: impl Fn(&mut Spec)) -> Spec {
    let mut spec = every(600_000, at("08:00:10"));
    spec.effect = Effect::NonIdempotent;
    spec.review_owner = Some("ops".into());
    describe(&mut spec);
    spec
}

fn one_landed(describe: impl Fn(&mut Spec)) -> Rig {
    let mut rig = Rig::tracked(at("08:00:00"));
    rig.create(1, &payments(describe), at("08:00:00"));
    rig.go(at("08:00:10"));
    rig
}

#[test]
fn a_lease_that_expires_is_held_and_resolved_by_a_person_for_one_attempt() {
    let mut rig = one_landed(|_| ());
    let run = rig.claim(0, at("08:00:11")).unwrap();
    rig.go(at("08:00:41"));
    assert_eq!(rig.state(0), State::Held);
    assert_eq!(rig.occurrence(0).reason, Some(Reason::Held(HoldReason::LeaseExpiredOutcomeUnknown)));
    assert_eq!(rig.claim(0, at("08:00:42")), Err(ClaimRefusal::Held));
    let records = rig.log.len();
    rig.crash(records, at("08:05:00"));
    rig.shard.queue_ready();
    assert_eq!(rig.shard.pile(Pile::Held, Some("acme"), None, 10).items.len(), 1);
    assert_eq!(rig.resolve(0, Resolution::Retry, at("08:05:01")), Ok(State::Enqueued));
    rig.go(at("08:05:01"));
    let again = rig.claim(0, at("08:05:02")).unwrap();
    assert!(again.attempt == 2 && again.token > run.token);
    let outcome = rig.fail(&again, FailureClass::Transient, at("08:05:03")).unwrap();
    assert_eq!(outcome.state, State::Dead, "one attempt was granted");
}

#[test]
fn a_person_may_say_that_it_did_succeed_or_is_to_rest() {
    for (resolution, state, reason) in [
        (Resolution::Succeeded, State::Succeeded, None),
        (Resolution::Dead, State::Dead, Some(Reason::Dead(Death::Resolved))),
    ] {
        let mut rig = one_landed(|_| ());
        rig.claim(0, at("08:00:11")).unwrap();
        rig.go(at("08:00:41"));
        assert_eq!(rig.resolve(0, resolution, at("08:05:01")), Ok(state));
        assert_eq!(rig.occurrence(0).reason, reason);
        assert_eq!(rig.resolve(0, resolution, at("08:05:02")), Err(ReviewRefusal::State(state)));
        assert!(rig.shard.pile(Pile::Held, Some("acme"), None, 10).items.is_empty());
    }
}

#[test]
fn a_late_result_is_refused_and_kept_as_evidence() {
    let mut rig = one_landed(|_| ());
    let run = rig.claim(0, at("08:00:11")).unwrap();
    rig.go(at("08:00:41"));
    assert_eq!(rig.complete(&run, at("08:01:00")), Err(RunError::StaleLease));
    assert_eq!(rig.complete(&run, at("08:01:01")), Err(RunError::StaleLease));
    let late = rig.log.iter().filter(|record| matches!(record, Record::LateResult(_))).count();
    assert_eq!((rig.state(0), late), (State::Held, 1));
    let evidence = rig.shard.evidence(OccurrenceNo(0), at("08:01:02"));
    assert_eq!(evidence.result_ref.as_deref(), Some("s3://out"));
    assert_eq!((evidence.lease_id, evidence.prior_outcome), (Some(run.token), PriorOutcome::LeaseExpired));
}

#[test]
fn a_restart_under_an_in_process_attempt_holds_it() {
    let mut rig = Rig::with(Config { is_embedded: true, ..Config::default() }, at("08:00:00"));
    rig.create(1, &payments(|_| ()), at("08:00:00"));
    rig.go(at("08:00:10"));
    rig.claim_as(IN_PROCESS, &[0], at("08:00:11"))[0].unwrap();
    let records = rig.log.len();
    rig.crash(records, at("08:00:12"));
    rig.shard.queue_ready();
    rig.go(at("08:00:12"));
    assert_eq!(rig.occurrence(0).reason, Some(Reason::Held(HoldReason::OutcomeUnknown)));
}

#[test]
fn three_workers_after_a_six_hour_outage_with_an_unknown_outcome_run_nothing() {
    let mut rig = one_landed(|_| ());
    rig.claim(0, at("08:00:11")).unwrap();
    let records = rig.log.len();
    rig.crash(records, at("14:00:00"));
    rig.shard.queue_ready();
    rig.go(at("14:00:00"));
    rig.go(at("14:00:30"));
    let held: Vec<_> =
        rig.shard.pile(Pile::Held, Some("acme"), None, 10).items.into_iter().map(|held| held.holds).collect();
    assert_eq!(held, [vec![HoldReason::LeaseExpiredOutcomeUnknown], vec![HoldReason::CatchUpReview]]);
    for worker in ["w1", "w2", "w3"] {
        let answers = rig.claim_as(worker, &[0, 1], at("14:00:31"));
        assert_eq!(answers, [Err(ClaimRefusal::Held), Err(ClaimRefusal::Held)]);
    }
    rig.resolve(1, Resolution::Retry, at("14:05:00")).unwrap();
    let evidence = rig.shard.evidence(OccurrenceNo(1), at("14:05:00"));
    assert_eq!(decide(&evidence), Decision::RunCatchUp);
    rig.go(at("14:05:00"));
    assert!(rig.claim(1, at("14:05:01")).is_ok());
}

#[test]
fn an_exhausted_retry_budget_holds_the_failure_and_what_comes_due_next() {
    let mut rig = one_landed(|spec| spec.retry.budget = Some(1));
    for (claimed, failed) in [("08:00:11", "08:00:12"), ("08:01:11", "08:01:12")] {
        rig.go(at(claimed));
        let run = rig.claim(0, at(claimed)).unwrap();
        rig.fail(&run, FailureClass::Transient, at(failed)).unwrap();
    }
    assert_eq!(rig.occurrence(0).reason, Some(Reason::Held(HoldReason::RetryBudgetExhausted)));
    rig.go(at("08:10:10"));
    assert_eq!(rig.claim(1, at("08:10:11")), Err(ClaimRefusal::Held));
    assert_eq!(rig.occurrence(1).holds, [HoldReason::RetryBudgetExhausted]);
}

#[test]
fn without_a_review_owner_nothing_runs() {
    let mut rig = one_landed(|spec| spec.review_owner = None);
    assert_eq!(rig.claim(0, at("08:00:11")), Err(ClaimRefusal::Held));
    assert_eq!(rig.occurrence(0).holds, [HoldReason::ReviewOwnerMissing]);
}

#[test]
fn held_occurrences_stay_whatever_happens_to_their_schedule() {
    let mut rig = one_landed(|_| ());
    let id = rig.occurrence(0).schedule_id;
    rig.claim(0, at("08:00:11")).unwrap();
    rig.go(at("08:00:41"));
    // A daily calendar schedule becomes a five-minute interval: nothing of the old decision is used for the new one.
    let moved = payments(|spec| spec.rule = every(300_000, at("08:00:10")).rule);
    rig.call(|shard, turn| shard.update(&id.into(), &moved, 1, Pending::Cancel, at("08:01:00"), turn)).unwrap();
    assert_eq!(rig.state(0), State::Held);
    rig.cancel(id, at("08:02:00"));
    assert_eq!(rig.state(0), State::Held);
    assert_eq!(rig.resolve(0, Resolution::Retry, at("08:03:00")), Err(ReviewRefusal::ScheduleCanceled));
    assert_eq!(rig.resolve(0, Resolution::Succeeded, at("08:03:00")), Ok(State::Succeeded));
}

#[test]
fn an_idempotent_schedule_shows_evidence_and_is_held_by_none_of_it() {
    let mut rig = Rig::tracked(at("00:00:00"));
    let mut daily = cron("0 9 * * *", "Europe/Berlin");
    daily.misfire = Misfire::FireOnce;
    rig.create(1, &daily, at("00:00:00"));
    let records = rig.log.len();
    rig.crash(records, at("12:00:00"));
    rig.shard.queue_ready();
    rig.go(at("12:00:00"));
    let evidence = rig.shard.evidence(OccurrenceNo(0), at("12:00:00"));
    let reasons = vec![HoldReason::ReviewOwnerMissing, HoldReason::CatchUpReview];
    assert_eq!(decide(&evidence), Decision::Hold(reasons));
    assert_eq!(evidence.timezone.as_deref(), Some("Europe/Berlin"));
    assert!(rig.claim(0, at("12:00:01")).is_ok());
}
