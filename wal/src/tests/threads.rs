//! An open log with its threads on a disk that fills up or fails.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::world::{ROOT, World, records};
use crate::sim::{Crash, SimFs};
use crate::{AppendError, CloseError, Log, Lsn, Options, State, Urgency};

fn options() -> Options {
    Options { space_retry: Duration::from_millis(1), reserve_bytes: 32 << 10, ..super::world::options() }
}

fn open(fs: &SimFs, options: Options) -> Log {
    Log::open(Path::new(ROOT), Arc::new(fs.clone()), options, Arc::new(|| {}), &mut |_| Ok(())).unwrap().0
}

fn append(log: &Log, count: u64) -> Result<Lsn, AppendError> {
    log.append(&records(log.last().0 + 1..log.last().0 + 1 + count), Urgency::Prompt)
}

/// Nothing here depends on how long it takes.
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let mut turns = 0;
    while !is_so() {
        std::thread::sleep(Duration::from_micros(200));
        turns += 1;
        assert!(turns < 100_000, "never: {what}");
    }
}

fn used_bytes(fs: &SimFs) -> u64 {
    fs.files().iter().map(|(_, bytes)| bytes.len() as u64).sum()
}

#[test]
fn after_a_failed_sync_nothing_is_durable_any_more_and_no_append_succeeds() {
    for failing in 0..12 {
        let fs = SimFs::new();
        let log = open(&fs, Options { reserve_bytes: 0, ..options() });
        wait_for("the first spare", || fs.files().iter().any(|(path, _)| path.ends_with("wal/spare-1.tmp")));
        fs.fail_operation(fs.operations() + failing, std::io::ErrorKind::Other);
        let mut durable = Lsn::NONE;
        wait_for("poison", || {
            durable = log.durable();
            matches!(append(&log, 3), Err(AppendError::Poisoned { .. }))
        });
        let State::Poisoned(reason) = log.state() else { panic!("not poisoned") };
        let durable = log.durable();
        for _ in 0..5 {
            assert_eq!(append(&log, 1), Err(AppendError::Poisoned { reason: Arc::clone(&reason) }));
            assert_eq!(log.durable(), durable);
        }
        assert_eq!(log.close(), Err(CloseError::Poisoned { reason }));
        let world = World::open(&fs.crash(Crash::DropAll, failing)).unwrap();
        assert!(world.recovered.last >= durable);
    }
}

#[test]
fn a_full_disk_is_lived_through_on_the_reserve_then_waited_for_and_nothing_is_lost_or_reordered() {
    let fs = SimFs::new();
    let log = open(&fs, options());
    wait_for("the reserve", || fs.read(&Path::new(ROOT).join("reserve")).is_some_and(|bytes| bytes.len() == 32 << 10));
    fs.set_capacity_bytes(Some(used_bytes(&fs)));
    let mut states = vec![log.state()];
    wait_for("a full disk", || {
        let appended = append(&log, 3).unwrap();
        // One batch at a time: no state is over before it was looked at.
        wait_for("the batch", || log.durable() == appended || log.state() == State::Full);
        let state = log.state();
        if states.last() != Some(&state) {
            states.push(state);
        }
        states.last() == Some(&State::Full)
    });
    assert_eq!(states, [State::Running, State::OnReserve, State::Full]);
    let last = append(&log, 2).unwrap();
    assert!(log.durable() < last);
    fs.set_capacity_bytes(None);
    wait_for("everything queued to be written", || log.durable() == last);
    wait_for("the reserve to be made again", || log.state() == State::Running);
    assert_eq!(fs.read(&Path::new(ROOT).join("reserve")).unwrap().len(), 32 << 10);
    drop(log);
    assert_eq!(World::open(&fs.crash(Crash::DropAll, 0)).unwrap().recovered.last, last);
}

#[test]
fn a_log_that_needs_its_reserve_to_open_says_so_at_once() {
    let fs = SimFs::new();
    let log = open(&fs, options());
    wait_for("the reserve", || fs.read(&Path::new(ROOT).join("reserve")).is_some_and(|bytes| bytes.len() == 32 << 10));
    append(&log, 1).unwrap();
    log.close().unwrap();
    fs.set_capacity_bytes(Some(used_bytes(&fs)));
    let log = open(&fs, options());
    assert_eq!((log.state(), log.state().name()), (State::OnReserve, "on_reserve"));
    fs.set_capacity_bytes(None);
    wait_for("the reserve to be made again", || log.state() == State::Running);
}

#[test]
fn a_file_system_that_needs_space_to_overwrite_is_waited_for_too() {
    let fs = SimFs::new();
    let log = open(&fs, Options { reserve_bytes: 0, ..options() });
    wait_for("the first spare", || fs.files().iter().any(|(path, _)| path.ends_with("wal/spare-1.tmp")));
    fs.set_write_budget_bytes(Some(3_000));
    for _ in 0..3 {
        append(&log, 2).unwrap();
    }
    wait_for("a full disk", || log.state() == State::Full);
    fs.set_write_budget_bytes(None);
    wait_for("everything queued to be written", || log.durable() == log.last());
    wait_for("a running log", || log.state() == State::Running);
    drop(log);
    assert_eq!(World::open(&fs.crash(Crash::DropAll, 0)).unwrap().recovered.last, Lsn(6));
}

#[test]
fn a_full_queue_refuses_and_takes_again_when_it_is_written() {
    let fs = SimFs::new();
    let log = open(&fs, Options { queue_bytes: 6_000, reserve_bytes: 0, ..options() });
    wait_for("the first spare", || fs.files().iter().any(|(path, _)| path.ends_with("wal/spare-1.tmp")));
    fs.set_write_budget_bytes(Some(0));
    let mut refusal = None;
    wait_for("a refusal", || {
        refusal = append(&log, 3).err();
        refusal.is_some()
    });
    assert!(matches!(refusal, Some(AppendError::Full { limit_bytes: 6_000, .. })));
    let last = log.last();
    fs.set_write_budget_bytes(None);
    wait_for("everything queued to be written", || log.durable() == last);
    append(&log, 3).unwrap();
    log.close().unwrap();
    assert_eq!(World::open(&fs).unwrap().recovered.last, last.plus(3));
}

#[test]
fn closing_on_a_full_disk_says_what_is_durable() {
    let fs = SimFs::new();
    let log = open(&fs, Options { reserve_bytes: 0, ..options() });
    let first = append(&log, 1).unwrap();
    wait_for("the first record", || log.durable() == first);
    fs.set_write_budget_bytes(Some(0));
    append(&log, 1).unwrap();
    assert_eq!(log.close(), Err(CloseError::NoSpace { durable: first }));
}

#[test]
fn a_notification_that_panics_poisons_the_log() {
    let fs = SimFs::new();
    let notify = Arc::new(|| assert!(std::thread::current().name() != Some("wal-writer"), "told to"));
    let (log, _) = Log::open(Path::new(ROOT), Arc::new(fs), options(), notify, &mut |_| Ok(())).unwrap();
    append(&log, 1).unwrap();
    wait_for("poison", || matches!(log.state(), State::Poisoned(_)));
    assert!(append(&log, 1).is_err());
}

#[test]
fn the_generation_only_grows_and_is_found_again() {
    let fs = SimFs::new();
    let log = open(&fs, Options { generation: 4, ..options() });
    log.set_generation(9);
    log.set_generation(2);
    append(&log, 1).unwrap();
    log.close().unwrap();
    assert_eq!(World::open(&fs).unwrap().recovered.generation, 9);
}

/// A power cut while both threads are at work: what was seen durable is there.
#[test]
fn a_crash_under_load_keeps_what_was_durable() {
    for seed in 0..150 {
        let fs = SimFs::new();
        let log = open(&fs, Options { reserve_bytes: 0, ..options() });
        fs.stop_before(fs.operations() + seed % 50);
        let mut durable = Lsn::NONE;
        wait_for("the stop", || {
            durable = log.durable();
            append(&log, 1 + seed % 4).is_err()
        });
        let durable = log.durable().max(durable);
        let policy = Crash::ALL[(seed % 8) as usize];
        let world = World::open(&fs.crash(policy, seed)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(world.recovered.last >= durable, "seed {seed}");
        drop(log);
    }
}
