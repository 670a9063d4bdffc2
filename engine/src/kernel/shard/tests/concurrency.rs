//! A tenant runs no more at a time than it may: what is refused waits in the shard, and goes on when a permit is free.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use super::rig::{Rig, at, every};
use crate::kernel::{
    attempt::FailureClass,
    occurrence::{Reason, State},
    permits::{Draw, Permits},
    record::{Record, Waited},
    shard::{ClaimRefusal, Config},
    time::UnixMs,
};

/// So many permits to run are left for everybody together, in this shard and others.
#[derive(Clone)]
struct Left(Arc<AtomicUsize>);

impl Permits for Left {
    fn tenant_named(&mut self, _: &Arc<str>) {}
    fn queue_named(&mut self, _: &Arc<str>) {}
    fn take(&mut self, _: Draw, wanted: usize, _: UnixMs) -> usize {
        wanted
    }
    fn give_back(&mut self, _: Draw, _: usize) {}
    fn ready_at(&self, _: Draw, now: UnixMs) -> UnixMs {
        now.plus(1)
    }
    fn reserve_schedule(&mut self, _: &str) -> Result<(), u64> {
        Ok(())
    }
    fn end_reservations(&mut self) {}
    fn schedules_changed(&mut self, _: u32, _: i64) {}

    fn take_run(&mut self, _: u32) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }
    fn run_ended(&mut self, _: u32) {
        self.0.fetch_add(1, Relaxed);
    }
    fn run_room(&self, _: u32) -> usize {
        self.0.load(Relaxed)
    }
}

/// Three occurrences that wait for workers, and one permit.
fn three_for_one_permit() -> (Rig, Arc<AtomicUsize>) {
    let left = Arc::new(AtomicUsize::new(1));
    let permits = Box::new(Left(Arc::clone(&left)));
    let mut rig = Rig::permitted(Config::default(), permits, at("08:00:00"));
    let mut spec = every(600_000, at("08:00:00"));
    for id in 1..=3 {
        spec.name = Some(format!("number {id}"));
        rig.create(id, &spec, at("08:00:00"));
    }
    rig.go(at("08:10:00"));
    rig.records();
    (rig, left)
}

#[test]
fn one_over_the_limit_waits_and_is_handed_over_again_when_a_run_ends() {
    let (mut rig, _) = three_for_one_permit();
    let run = rig.claim(0, at("08:10:01")).unwrap();
    let enqueued_at = rig.occurrence(1).enqueued_at;
    for number in [1, 2] {
        assert_eq!(rig.claim(number, at("08:10:01")), Err(ClaimRefusal::TenantConcurrency));
    }
    assert_eq!(rig.records().last(), Some(&Record::Waited(Waited { occurrence: 2, for_permit: true })));
    assert_eq!((rig.state(1), rig.occurrence(1).reason), (State::Scheduled, Some(Reason::TenantConcurrency)));
    assert_eq!(rig.claim(1, at("08:10:02")), Err(ClaimRefusal::TenantConcurrency), "asked again with an old entry");
    rig.go(at("08:10:20"));
    assert_eq!(rig.state(1), State::Scheduled);
    rig.complete(&run, at("08:10:21")).unwrap();
    rig.go(at("08:10:21"));
    let states = [1, 2].map(|number| rig.state(number));
    assert_eq!(states, [State::Enqueued, State::Scheduled], "as many as there are permits");
    assert_eq!(rig.occurrence(1).enqueued_at, enqueued_at);
    let run = rig.claim(1, at("08:10:22")).unwrap();
    assert_eq!(run.attempt, 1, "the same attempt");
    rig.fail(&run, FailureClass::Permanent, at("08:10:23")).unwrap();
    rig.go(at("08:10:24"));
    assert!(rig.claim(2, at("08:20:00")).is_ok(), "ten minutes late, and not judged for it");
}

#[test]
fn a_permit_that_another_shard_gives_back_is_found_within_a_second() {
    let (mut rig, left) = three_for_one_permit();
    left.store(0, Relaxed);
    assert_eq!(rig.claim(0, at("08:10:01")), Err(ClaimRefusal::TenantConcurrency));
    rig.go(at("08:10:02"));
    assert_eq!(rig.state(0), State::Scheduled);
    left.store(1, Relaxed);
    rig.go(at("08:10:03"));
    assert_eq!(rig.state(0), State::Enqueued);
}

#[test]
fn who_waited_for_a_permit_still_waits_after_a_crash_and_is_not_missed() {
    let (mut rig, _) = three_for_one_permit();
    rig.claim(0, at("08:10:01")).unwrap();
    assert_eq!(rig.claim(1, at("08:10:01")), Err(ClaimRefusal::TenantConcurrency));
    let records = rig.log.len();
    // Whoever has no permits of its own is limited by nothing.
    rig.crash(records, at("08:30:00"));
    rig.shard.queue_ready();
    rig.go(at("08:30:00"));
    assert_eq!(rig.state(1), State::Enqueued);
}
