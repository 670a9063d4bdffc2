//! A disk that is full or fails at any step: a full one costs time, a failing one ends the log, neither loses records.

use std::io::ErrorKind;

use super::world::{World, check, run};
use crate::sim::{Crash, Rng, SimFs};
use crate::write_error::WriteError;

/// Runs steps until the whole workload is done, calling `free` whenever there is no space.
fn persist(world: &mut World, rng: &mut Rng, steps: u64, free: &dyn Fn(&SimFs)) -> u64 {
    let mut refusals = 0;
    for _ in 0..steps {
        while let Err(error) = world.step(rng) {
            assert!(matches!(error, WriteError::NoSpace), "{error}");
            refusals += 1;
            free(&world.fs);
        }
    }
    while let Err(error) = world.retry() {
        assert!(matches!(error, WriteError::NoSpace), "{error}");
        free(&world.fs);
    }
    refusals
}

#[test]
fn a_disk_that_is_full_at_any_byte_loses_nothing_and_goes_on_when_there_is_space() {
    let seed = 21;
    println!("seed {seed}");
    let mut refused = 0;
    // Steps of a prime meet every offset within a sector; the workload writes less than 200 KB.
    for budget in (0..200_000).step_by(101) {
        let fs = SimFs::new();
        let mut world = World::open(&fs).unwrap();
        fs.set_write_budget_bytes(Some(budget));
        let free = |fs: &SimFs| {
            let full = fs.crash(Crash::Subset, budget);
            World::open(&full).unwrap();
            fs.set_write_budget_bytes(None);
        };
        refused += u64::from(persist(&mut world, &mut Rng::new(seed), 12, &free) > 0);
        assert_eq!(world.durable(), world.submitted);
        check(&fs.crash(Crash::DropAll, 0), world.durable(), world.submitted, &|| format!("budget {budget}"));
    }
    assert!(refused > 500, "{refused}");
}

#[test]
fn one_batch_that_finds_the_disk_full_at_each_of_its_bytes_is_written_later() {
    for budget in 0..=4_200 {
        let fs = SimFs::new();
        let mut world = World::open(&fs).unwrap();
        fs.set_write_budget_bytes(Some(budget));
        let first = world.commit(5);
        assert_eq!(first.is_err(), budget < 4_096, "budget {budget}: {first:?}");
        fs.set_write_budget_bytes(None);
        world.retry().unwrap();
        world.commit(1).unwrap();
        check(&fs.crash(Crash::DropAll, 0), 6, 6, &|| format!("budget {budget}"));
    }
}

#[test]
fn commits_that_found_no_space_leave_no_trace_when_the_process_ends_and_later_ones_stay() {
    let fs = SimFs::new();
    let mut world = World::open(&fs).unwrap();
    world.commit(1).unwrap();
    fs.set_write_budget_bytes(Some(1_000));
    for _ in 0..3 {
        assert!(matches!(if world.submitted == 1 { world.commit(1) } else { world.retry() }, Err(WriteError::NoSpace)));
    }
    fs.set_write_budget_bytes(None);
    world.retry().unwrap();
    world.commit(2).unwrap();
    check(&fs.restart(), 4, 4, &|| "after the disk was full".to_owned());
}

#[test]
fn space_refused_at_any_operation_ends_the_log_or_costs_a_retry() {
    let (seed, steps) = (33, 10);
    println!("seed {seed}");
    let whole = SimFs::new();
    persist(&mut World::open(&whole).unwrap(), &mut Rng::new(seed), steps, &|_| {});
    let (mut retried, mut ended) = (0, 0);
    let opened = {
        let fs = SimFs::new();
        World::open(&fs).unwrap();
        fs.operations()
    };
    for number in opened..whole.operations() {
        let fs = SimFs::new();
        let mut world = World::open(&fs).unwrap();
        fs.fail_operation(number, ErrorKind::StorageFull);
        let mut rng = Rng::new(seed);
        let mut taken = 0;
        let end = loop {
            match if taken < steps { world.step(&mut rng) } else { world.retry() } {
                Ok(()) if taken >= steps => break true,
                Ok(()) => taken += 1,
                Err(WriteError::NoSpace) => retried += 1,
                Err(_) => break false,
            }
        };
        ended += u64::from(!end);
        let what = || format!("no space at operation {number}");
        check(&fs.crash(Crash::DropAll, 0), world.durable(), world.submitted, &what);
    }
    println!("{retried} retried, {ended} ended");
    assert!(retried > 10 && ended > 10);
}

#[test]
fn a_failure_at_any_operation_loses_nothing_acknowledged_even_if_the_page_cache_lies() {
    let (seed, steps) = (8, 7);
    println!("seed {seed}");
    let whole = SimFs::new();
    assert!(run(&whole, seed, steps).error.is_none());
    let mut failures = 0;
    for number in 0..whole.operations() {
        let fs = SimFs::new();
        fs.fail_operation(number, ErrorKind::Other);
        let outcome = run(&fs, seed, steps);
        failures += u64::from(outcome.error.is_some());
        let what = || format!("operation {number} failed");
        for policy in Crash::ALL {
            check(&fs.crash(policy, number), outcome.durable, outcome.submitted, &what);
        }
        // A new process, the same machine: it acts on what it sees, and then the power fails.
        let restarted = fs.restart();
        let mut world = check(&restarted, outcome.durable, outcome.submitted, &what);
        for _ in 0..4 {
            world.commit(3).unwrap();
        }
        check(&restarted.crash(Crash::DropAll, 0), world.durable(), world.submitted, &what);
    }
    println!("{failures} failures");
    assert!(failures > 50, "{failures}");
}

#[test]
fn short_writes_are_continued() {
    let fs = SimFs::new();
    fs.limit_write_bytes(1_000);
    let outcome = run(&fs, 5, 10);
    assert!(outcome.error.is_none());
    check(&fs.crash(Crash::DropAll, 0), outcome.durable, outcome.submitted, &|| "short writes".to_owned());
}
