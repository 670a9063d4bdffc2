//! A power cut at every operation, in every way, and again during the recovery: nothing acknowledged is lost.

use super::world::{World, check, layout, run};
use crate::OpenError;
use crate::sim::{Crash, Rng, SimFs};

const STEPS: u64 = 7;

/// The workload stops before operation `stop`; answers with the disk, what is durable, and what was submitted.
fn stopped(seed: u64, stop: u64) -> (SimFs, u64, u64) {
    let fs = SimFs::new();
    fs.stop_before(stop);
    let outcome = run(&fs, seed, STEPS);
    (fs, outcome.durable, outcome.submitted)
}

/// Every crash of the workload, and every crash of the recovery from it. Returns how many recoveries were checked.
fn explore(seed: u64) -> u64 {
    let whole = SimFs::new();
    assert!(run(&whole, seed, STEPS).error.is_none());
    let mut states = 0;
    for stop in 0..=whole.operations() {
        let (fs, durable, submitted) = stopped(seed, stop);
        for (index, policy) in Crash::ALL.into_iter().enumerate() {
            let image = || fs.crash(policy, seed ^ stop);
            let what = || format!("seed {seed}, stop {stop}, {policy:?}");
            let first = image();
            let mut world = check(&first, durable, submitted, &what);
            states += 1;
            world.commit(2).unwrap();
            check(&first.crash(Crash::DropAll, 0), world.durable(), world.submitted, &what);
            states += 1;
            states += crash_recovery(&image, index as u64, durable, submitted, &what);
        }
    }
    states
}

fn crash_recovery(
    image: &dyn Fn() -> SimFs,
    index: u64,
    durable: u64,
    submitted: u64,
    what: &dyn Fn() -> String,
) -> u64 {
    for stop in 0.. {
        let fs = image();
        fs.stop_before(stop);
        if World::open(&fs).is_ok() {
            return stop;
        }
        let policy = Crash::ALL[((index + stop) % 8) as usize];
        let nested = || format!("{}, then stop {stop}, {policy:?}", what());
        check(&fs.crash(policy, stop), durable, submitted, &nested);
    }
    unreachable!("recovery ends")
}

#[test]
fn no_crash_at_any_operation_nor_one_in_the_recovery_loses_anything() {
    let states: u64 = (1..=2).map(explore).sum();
    println!("{states} crash states explored, seeds 1 to 2");
    assert!(states >= 10_000, "{states}");
}

/// Opens what somebody took something away from: true if that was refused, else nothing acknowledged is missing.
fn is_found_out(fs: &SimFs, durable: u64, what: &dyn Fn() -> String) -> bool {
    match World::open(fs) {
        Ok(world) => {
            let last = world.recovered.last.0;
            assert!(last >= durable, "{}: {last} shown, {durable} durable", what());
            false
        }
        Err(OpenError::Corrupt(_)) => true,
        Err(other) => panic!("{}: {other}", what()),
    }
}

#[test]
fn newest_segments_that_vanish_or_are_cut_after_any_crash_never_take_anything_acknowledged_in_silence() {
    let seed = 3;
    println!("seed {seed}");
    let whole = SimFs::new();
    assert!(run(&whole, seed, STEPS).error.is_none());
    let (mut tried, mut refused) = (0, 0);
    for stop in 0..=whole.operations() {
        let (fs, durable, _) = stopped(seed, stop);
        for policy in [Crash::DropAll, Crash::KeepAll, Crash::Subset] {
            let image = fs.crash(policy, stop);
            let files = image.files().into_iter().filter(|(path, _)| path.extension().is_some_and(|it| it == "wal"));
            let segments: Vec<_> = files.filter(|(path, _)| path.starts_with(layout().wal)).collect();
            for kept in 0..segments.len() {
                let damaged = image.restart();
                segments[kept..].iter().for_each(|(path, _)| damaged.lose(path).unwrap());
                let what = || format!("stop {stop}, {policy:?}, {kept} segments kept");
                tried += 1;
                refused += u64::from(is_found_out(&damaged, durable, &what));
            }
            let Some((path, bytes)) = segments.last() else { continue };
            for kept in (0..bytes.len()).step_by(4_096) {
                let damaged = image.restart();
                damaged.overwrite(path, &bytes[..kept]).unwrap();
                let what = || format!("stop {stop}, {policy:?}, {kept} bytes kept");
                tried += 1;
                refused += u64::from(is_found_out(&damaged, durable, &what));
            }
        }
    }
    println!("{tried} tried, {refused} refused");
    assert!(refused > 1_000, "{refused}");
}

/// Set `WAL_SEEDS` to explore more of them.
#[test]
#[ignore = "minutes"]
fn many_workloads_survive_every_crash() {
    let seeds = std::env::var("WAL_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(10);
    let states: u64 = (100..100 + seeds).map(explore).sum();
    println!("{states} crash states explored, seeds 100 to {}", 99 + seeds);
}

/// One disk that lives through `cycles` crashes.
fn live_through(seed: u64, cycles: u64) {
    let mut rng = Rng::new(seed);
    let mut fs = SimFs::new();
    let (mut durable, mut submitted) = (0, 0);
    for cycle in 0..cycles {
        fs.stop_before(rng.below(60));
        match World::open(&fs) {
            Err(_) => {}
            Ok(mut world) => {
                while world.step(&mut rng).is_ok() {}
                (durable, submitted) = (world.durable(), world.submitted);
            }
        }
        let policy = Crash::ALL[rng.below(8) as usize];
        let image = fs.crash(policy, rng.next());
        let what = || format!("seed {seed}, cycle {cycle}, {policy:?}");
        let world = check(&image.restart(), durable, submitted, &what);
        // What recovery has shown is durable from then on, also if this very recovery is what crashes next.
        (durable, submitted) = (world.recovered.last.0, world.recovered.last.0);
        fs = if rng.one_in(2) { image } else { world.fs.restart() };
    }
}

#[test]
fn disks_that_crash_again_and_again_lose_nothing() {
    let (disks, cycles) = (100, 25);
    println!("seeds 1000 to {}, {} crash/recover cycles", 999 + disks, disks * cycles);
    for seed in 1_000..1_000 + disks {
        live_through(seed, cycles);
    }
}

#[test]
fn an_unfinished_write_of_every_shape_is_cut_and_kept_aside() {
    let seed = 4;
    for crash_seed in 0..500 {
        let fs = SimFs::new();
        let mut world = World::open(&fs).unwrap();
        world.commit(5).unwrap();
        fs.stop_before(fs.operations() + 1);
        world.commit(3).unwrap_err();
        for policy in Crash::ALL {
            let what = || format!("seed {seed}, crash seed {crash_seed}, {policy:?}");
            check(&fs.crash(policy, crash_seed), 5, 8, &what);
        }
    }
}
