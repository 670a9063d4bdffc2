//! Records of runs that no shard wrote are refused, and logs of runs open at every place where they are cut.

use std::sync::Arc;

use super::{
    ZONES,
    rig::{Rig, at, every},
};
use crate::kernel::{
    attempt::{Death, Failure, FailureClass, Resolution},
    evidence::HoldReason,
    occurrence::State,
    policy::Effect,
    record::{
        Claimed, Died, Held, LateResult, Named, Record, Replayed, Resolved, RunFailed, RunsSucceeded, Settled, Skipped,
        Then, Waited,
    },
    shard::{Config, Shard},
};

/// One occurrence in each state, by number: SUCCEEDED, DEAD, HELD, RETRY_WAIT, RUNNING, ENQUEUED, SCHEDULED.
fn base() -> Rig {
    let mut rig = Rig::tracked(at("08:00:00"));
    let mut spec = every(1_000, at("08:00:00"));
    (spec.effect, spec.review_owner) = (Effect::NonIdempotent, Some("ops".into()));
    spec.retry.base_ms = 600_000;
    rig.create(1, &spec, at("08:00:00"));
    for second in 1..=6 {
        rig.go(at("08:00:00").plus(second * 1_000));
    }
    let runs: Vec<_> = rig.claim_as("w1", &[0, 1, 2, 3], at("08:00:06")).into_iter().flatten().collect();
    rig.complete(&runs[0], at("08:00:06")).unwrap();
    rig.fail(&runs[1], FailureClass::Permanent, at("08:00:06")).unwrap();
    rig.fail(&runs[3], FailureClass::Transient, at("08:00:06")).unwrap();
    rig.shard.queue_away(None, "cut".into(), at("08:00:06"));
    rig.advance(at("08:00:36"));
    rig.claim(4, at("08:00:37")).unwrap();
    rig
}

#[test]
fn the_base_has_one_of_each() {
    let rig = base();
    let states: Vec<State> = (0..7).map(|number| rig.state(number)).collect();
    assert_eq!(
        states,
        [
            State::Succeeded,
            State::Dead,
            State::Held,
            State::RetryWait,
            State::Running,
            State::Enqueued,
            State::Scheduled
        ]
    );
}

#[test]
fn records_of_runs_that_do_not_fit_are_refused() {
    let claimed = |worker, lease_ms, occurrences: &[(u64, u64)]| {
        Record::Claimed(Claimed { worker, lease_ms, is_in_process: true, occurrences: occurrences.to_vec() })
    };
    let succeeded = |occurrences: &[(u64, u64)]| {
        let result_refs = vec![(u64::MAX, String::new())];
        Record::RunsSucceeded(RunsSucceeded { occurrences: occurrences.to_vec(), result_refs })
    };
    let failed = |occurrence, then| {
        Record::RunFailed(RunFailed { occurrence, failure: Failure::LeaseExpired, message: None, then })
    };
    let held = |occurrence, reasons| Record::Held(Held { occurrence, reasons });
    let resolved = |occurrence| {
        let (reviewer, note) = (String::new(), String::new());
        Record::Resolved(Resolved { occurrence, resolution: Resolution::Retry, reviewer, note })
    };
    let late = |occurrence| Record::LateResult(LateResult { occurrence, result_ref: String::new() });
    let mut odd = vec![
        Record::WorkerNamed(Named { name: "w1".into() }),
        claimed(7, 1_000, &[(5, 1)]),
        claimed(0, 0, &[(5, 1)]),
        claimed(0, u64::MAX, &[(5, 1)]),
        claimed(0, 1_000, &[(5, 1), (u64::MAX, 1)]),
        claimed(0, 1_000, &[(5, u64::MAX)]),
        succeeded(&[(4, 1), (u64::MAX, 1)]),
        succeeded(&[(0, u64::MAX)]),
        held(5, vec![]),
        held(5, vec![HoldReason::OutcomeUnknown; 12]),
        Record::Settled(Settled { stream: 9, generation: 1, counter: 1 }),
    ];
    for number in [0, 1, 2, 4, u64::MAX] {
        odd.push(claimed(0, 1_000, &[(number, 1)]));
        odd.push(Record::Waited(Waited { occurrence: number, for_permit: true }));
        odd.push(Record::Skipped(Skipped { occurrence: number }));
        odd.push(Record::Died(Died { occurrence: number }));
        odd.push(held(number, vec![HoldReason::CatchUpReview]));
    }
    for number in [0, 1, 2, 3, 5, 6, u64::MAX] {
        odd.push(succeeded(&[(number, 1)]));
        odd.push(failed(number, Then::Canceled));
        odd.push(failed(number, Then::Dead(Death::Permanent)));
    }
    for number in [0, 2, 3, 4, 5, 6, u64::MAX] {
        odd.push(Record::Replayed(Replayed { occurrence: number }));
    }
    for number in [0, 1, 3, 4, 5, 6, u64::MAX] {
        odd.extend([resolved(number), late(number)]);
    }
    let log = base().log;
    for record in odd {
        let mut shard = Shard::new(Config::default(), Arc::clone(&ZONES));
        let mut replay = |record: &Record| {
            let mut body = Vec::new();
            record.encode(&mut body);
            shard.replay(record.kind(), &body)
        };
        log.iter().for_each(|fits| replay(fits).unwrap());
        assert!(replay(&record).is_err(), "{record:?} was believed");
    }
}

#[test]
fn a_log_of_runs_that_is_cut_at_any_place_opens_and_every_run_comes_to_an_end() {
    let log = base().log;
    for records in 0..=log.len() {
        let mut rig = Rig::tracked(at("08:00:00"));
        rig.log.clone_from(&log);
        rig.crash(records, at("08:01:00"));
        rig.shard.queue_ready();
        for minute in 0..12 {
            let now = at("08:01:00").plus(minute * 60_000);
            rig.go(now);
            rig.go(now);
            let open = unsettled(&rig);
            for number in open {
                let _ = rig.resolve(number, Resolution::Succeeded, now);
                if let Ok(run) = rig.claim(number, now) {
                    assert_eq!(rig.complete(&run, now), Ok(State::Succeeded));
                }
            }
        }
        assert_eq!(unsettled(&rig), Vec::<u64>::new(), "cut behind {records}");
    }
}

#[test]
fn a_delay_beyond_all_bounds_is_waited_out_and_nothing_overflows() {
    let mut rig = base();
    let then = Then::Retry { delay_ms: u64::MAX };
    let failure = Failure::Reported(FailureClass::Transient);
    rig.log.push(Record::RunFailed(RunFailed { occurrence: 4, failure, message: None, then }));
    let records = rig.log.len();
    rig.crash(records, at("08:01:00"));
    rig.shard.queue_ready();
    rig.go(at("09:00:00"));
    assert_eq!(rig.state(4), State::RetryWait);
}

/// What queues follow and has not ended.
fn unsettled(rig: &Rig) -> Vec<u64> {
    let open = [State::Enqueued, State::Running, State::RetryWait, State::Held];
    rig.shard.occurrences.iter().filter(|(_, row)| open.contains(&row.state)).map(|(number, _)| number.0).collect()
}
