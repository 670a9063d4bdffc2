//! What an open log promises on a real disk: order, durability, group commit, rotation, closing.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::{LockError, Log, Lsn, OpenError, Options, OsFs, Records, Recovered, State, Urgency};

fn options() -> Options {
    Options { segment_bytes: 64 << 10, reserve_bytes: 1 << 20, ..Options::default() }
}

type Seen = Vec<(Lsn, u8, Vec<u8>)>;

fn open(dir: &Path) -> (Log, Recovered, Seen) {
    let mut seen = Vec::new();
    let visit = &mut |entry: crate::Entry<'_>| {
        seen.push((entry.lsn, entry.kind, entry.body.to_vec()));
        Ok(())
    };
    let (log, recovered) = Log::open(dir, Arc::new(OsFs), options(), Arc::new(|| {}), visit).unwrap();
    (log, recovered, seen)
}

fn record(number: u64) -> (u8, Vec<u8>) {
    ((number % 100) as u8, vec![number as u8; (number * 37 % 900) as usize])
}

fn append(log: &Log, numbers: impl IntoIterator<Item = u64>, urgency: Urgency) -> Lsn {
    let mut records = Records::new();
    for number in numbers {
        let (kind, body) = record(number);
        records.push(kind, &body);
    }
    log.append(&records, urgency).unwrap()
}

fn wait_until(log: &Log, lsn: Lsn) {
    while log.durable() < lsn {
        assert_eq!(log.state(), State::Running);
        std::thread::yield_now();
    }
}

fn assert_seen(seen: &[(Lsn, u8, Vec<u8>)], count: u64) {
    assert_eq!(seen.len() as u64, count);
    for (number, (lsn, kind, body)) in (1..).zip(seen) {
        assert_eq!((*lsn, (*kind, body.clone())), (Lsn(number), record(number)));
    }
}

#[test]
fn what_is_durable_is_shown_again_in_order_after_a_clean_stop_and_after_none() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("a/b/log");
    let mut next = 1;
    for round in 0..6 {
        let (log, recovered, seen) = open(&root);
        assert_seen(&seen, next - 1);
        assert_eq!(recovered.last, Lsn(next - 1));
        assert_eq!(recovered.is_clean, round % 2 == 0, "round {round}");
        let mut last = Lsn::NONE;
        for _ in 0..40 {
            last = append(&log, next..next + 10, Urgency::Prompt);
            next += 10;
        }
        assert_eq!((last, log.last()), (Lsn(next - 1), last));
        wait_until(&log, last);
        if round % 2 == 1 {
            log.close().unwrap();
        }
    }
}

#[test]
fn a_log_in_use_is_read_record_by_record_each_one_once() {
    let dir = tempfile::tempdir().unwrap();
    let (log, ..) = open(dir.path());
    let mut next = 1;
    for _ in 0..30 {
        // Several segments, and a batch that is on its way while the log is read.
        let last = append(&log, next..next + 50, Urgency::Prompt);
        next += 50;
        let mut seen: Seen = Vec::new();
        let read = crate::read_past(&OsFs, dir.path(), &mut |entry: crate::Entry<'_>| {
            seen.push((entry.lsn, entry.kind, entry.body.to_vec()));
            Ok(())
        });
        let read = read.unwrap();
        assert_seen(&seen, read.last.0);
        assert!(read.last <= last && !matches!(read.ending, crate::Ending::Damaged(_)), "{read:?}");
    }
    wait_until(&log, Lsn(next - 1));
    let refused = crate::read_past(&OsFs, dir.path(), &mut |entry: crate::Entry<'_>| Err(format!("no {}", entry.kind)));
    assert!(matches!(refused, Err(OpenError::Visitor { lsn: Lsn(1), .. })), "{refused:?}");
}

#[test]
fn closing_writes_what_was_deferred_and_leaves_no_temporary_file() {
    let dir = tempfile::tempdir().unwrap();
    let (log, ..) = open(dir.path());
    append(&log, 1..=5, Urgency::Within(Duration::from_secs(3_600)));
    assert_eq!(log.durable(), Lsn::NONE);
    log.close().unwrap();
    let names: Vec<_> = std::fs::read_dir(dir.path().join("wal")).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(names, ["00000000000000000001.wal"]);
    let (_log, recovered, seen) = open(dir.path());
    assert_seen(&seen, 5);
    assert!(recovered.is_clean);
}

#[test]
fn hastening_commits_what_was_deferred() {
    let dir = tempfile::tempdir().unwrap();
    let (log, ..) = open(dir.path());
    let last = append(&log, 1..=5, Urgency::Within(Duration::from_secs(3_600)));
    log.hasten();
    wait_until(&log, last);
}

#[test]
fn an_append_longer_than_a_batch_is_split_and_complete() {
    let dir = tempfile::tempdir().unwrap();
    let (log, ..) = open(dir.path());
    let last = append(&log, 1..=1_000, Urgency::Prompt);
    wait_until(&log, last);
    assert!(log.stats().segments > 3);
    drop(log);
    let (_log, _, seen) = open(dir.path());
    assert_seen(&seen, 1_000);
}

#[test]
fn every_advance_of_durable_is_announced() {
    let dir = tempfile::tempdir().unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let notify = Arc::new(move || {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    let (log, _) = Log::open(dir.path(), Arc::new(OsFs), options(), notify, &mut |_| Ok(())).unwrap();
    for number in 1..=5 {
        let before = calls.load(Ordering::SeqCst);
        wait_until(&log, append(&log, [number], Urgency::Prompt));
        while calls.load(Ordering::SeqCst) == before {
            std::thread::yield_now();
        }
    }
}

#[test]
fn appends_from_many_threads_are_numbered_without_gaps() {
    let dir = tempfile::tempdir().unwrap();
    let (log, ..) = open(dir.path());
    let mut lsns: Vec<Lsn> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| (0..50).map(|n| append(&log, [n], Urgency::Prompt)).collect::<Vec<_>>()))
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    lsns.sort_unstable();
    assert_eq!(lsns, (1..=200).map(Lsn).collect::<Vec<_>>());
    wait_until(&log, Lsn(200));
}

#[test]
fn a_second_handle_on_the_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (_log, ..) = open(dir.path());
    let refused = Log::open(dir.path(), Arc::new(OsFs), options(), Arc::new(|| {}), &mut |_| Ok(()));
    assert!(matches!(refused, Err(OpenError::Locked(LockError::Held { .. }))));
}

#[test]
fn a_visitor_that_refuses_a_record_keeps_the_log_closed() {
    let dir = tempfile::tempdir().unwrap();
    let (log, ..) = open(dir.path());
    append(&log, 1..=3, Urgency::Prompt);
    log.close().unwrap();
    let mut visit = |entry: crate::Entry<'_>| if entry.lsn == Lsn(2) { Err("no".to_owned()) } else { Ok(()) };
    let refused = Log::open(dir.path(), Arc::new(OsFs), options(), Arc::new(|| {}), &mut visit).unwrap_err();
    assert_eq!(refused.to_string(), "record 2 was refused: no");
}

#[test]
fn an_idle_log_vouches_for_its_last_records() {
    let dir = tempfile::tempdir().unwrap();
    let (log, ..) = open(dir.path());
    wait_until(&log, append(&log, 1..=3, Urgency::Prompt));
    while log.stats().batches < 2 {
        std::thread::yield_now();
    }
    drop(log);
    let (_log, recovered, _) = open(dir.path());
    assert_eq!((recovered.batches, recovered.records), (2, 3));
}

/// Readers go through the page cache and the writer past it: neither may disturb the other.
#[test]
fn a_log_in_use_can_be_verified_again_and_again() {
    let dir = tempfile::tempdir().unwrap();
    let (log, ..) = open(dir.path());
    let mut next = 1;
    for _ in 0..8 {
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| crate::verify(&OsFs, dir.path()).map(|found| found.last));
            for turn in 0..200 {
                if turn > 0 && reader.is_finished() {
                    break;
                }
                wait_until(&log, append(&log, next..next + 7, Urgency::Prompt));
                next += 7;
            }
            assert!(reader.join().unwrap().unwrap() < Lsn(next));
        });
    }
    log.close().unwrap();
    assert_seen(&open(dir.path()).2, next - 1);
}

#[test]
fn logs_that_are_opened_and_closed_empty_stay_one_segment() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let (log, recovered, _) = open(dir.path());
        assert!(recovered.is_clean && recovered.segments <= 1);
        log.close().unwrap();
    }
}
