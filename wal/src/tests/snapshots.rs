//! Snapshots: the newest that is whole, what is kept and what goes, and every way in which one can be wrong.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::world::{Shown, World, check, layout, options, segment_path};
use crate::sim::{Rng, SimFs};
use crate::{Archive, Ending, Log, Lsn, OpenError, Options, OsFs, Records, SnapshotError, State, Urgency, read_past};

/// Commits until `snapshots` snapshots were taken, several segments apart.
fn world(snapshots: u64) -> (SimFs, World) {
    let fs = SimFs::new();
    let mut world = World::open(&fs).unwrap();
    let mut rng = Rng::new(snapshots);
    for _ in 0..snapshots {
        for _ in 0..9 {
            world.commit(3).unwrap();
        }
        world.snapshot(&mut rng).unwrap();
    }
    world.commit(2).unwrap();
    (fs, world)
}

fn files_in(fs: &SimFs, dir: &std::path::Path) -> Vec<String> {
    let files = fs.files().into_iter().filter(|(path, _)| path.parent() == Some(dir));
    files.map(|(path, _)| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn an_open_begins_from_the_newest_snapshot_and_reads_nothing_before_it() {
    let (fs, world) = world(3);
    let records = world.durable() - 81;
    let again = World::open(&fs.restart()).unwrap();
    assert_eq!(again.recovered.snapshot, Some(Lsn(81)));
    assert!(again.recovered.records < records + 27, "{:?}", again.recovered);
    assert_eq!(again.durable(), world.durable());
}

#[test]
fn two_snapshots_are_kept_and_segments_before_the_older_one_leave_the_log() {
    let (fs, _) = world(4);
    let kept = files_in(&fs, &layout().snap);
    assert_eq!(kept, ["00000000000000000081.snap", "00000000000000000108.snap"]);
    let first: u64 = files_in(&fs, &layout().wal).first().unwrap()[..20].parse().unwrap();
    assert!(first > 60 && first <= 82, "the segment behind 81 is needed: {first}");
    assert!(!files_in(&fs, &layout().archive).is_empty());
}

#[test]
fn the_first_snapshot_lets_nothing_go() {
    let (fs, _) = world(1);
    assert_eq!(files_in(&fs, &layout().wal).first().unwrap(), "00000000000000000001.wal");
    assert_eq!(files_in(&fs, &layout().archive), Vec::<String>::new());
}

#[test]
fn a_damaged_newest_snapshot_is_passed_over_and_nothing_is_missing() {
    let (fs, world) = world(3);
    let path = layout().snapshot(Lsn(81));
    let bytes = fs.read(&path).unwrap();
    let mut rng = Rng::new(5);
    for _ in 0..300 {
        let bit = rng.below(bytes.len() as u64 * 8);
        let mut flipped = bytes.to_vec();
        flipped[(bit / 8) as usize] ^= 1 << (bit % 8);
        let damaged = fs.restart();
        damaged.overwrite(&path, &flipped).unwrap();
        let again = check(&damaged, world.durable(), world.durable(), &|| format!("bit {bit}"));
        assert_eq!(again.recovered.snapshot, Some(Lsn(54)));
        assert_eq!(again.recovered.damaged_snapshots, [path.clone()]);
    }
    for length in [0, 10, 64, bytes.len() - 1] {
        let damaged = fs.restart();
        damaged.overwrite(&path, &bytes[..length]).unwrap();
        check(&damaged, world.durable(), world.durable(), &|| format!("cut to {length}"));
    }
}

#[test]
fn without_a_whole_snapshot_the_log_is_read_from_its_beginning() {
    let (fs, world) = world(1);
    fs.overwrite(&layout().snapshot(Lsn(27)), b"nothing").unwrap();
    let again = check(&fs.restart(), world.durable(), world.durable(), &|| "one damaged".to_owned());
    assert_eq!(again.recovered.snapshot, None);
}

#[test]
fn without_a_whole_snapshot_a_log_whose_beginning_has_gone_is_refused() {
    let (fs, _) = world(3);
    for lsn in [54, 81] {
        fs.overwrite(&layout().snapshot(Lsn(lsn)), b"nothing").unwrap();
    }
    let refused = World::open(&fs.restart()).map(|_| ()).unwrap_err();
    assert!(matches!(&refused, OpenError::Corrupt(_)), "{refused}");
    assert!(refused.to_string().contains("expected no segment before it"), "{refused}");
}

#[test]
fn a_snapshot_that_has_seen_more_than_the_log_holds_is_a_witness_against_it() {
    let (earlier, _) = world(2);
    let (later, _) = world(3);
    // The same bytes were written up to there, but for the log's own id: it must be refused by name first.
    earlier.overwrite(&layout().snapshot(Lsn(81)), &later.read(&layout().snapshot(Lsn(81))).unwrap()).unwrap();
    let again = World::open(&earlier.restart()).unwrap();
    assert_eq!(again.recovered.snapshot, Some(Lsn(54)), "another log's snapshot is none of ours");

    let (fs, mut world) = world(2);
    let image = fs.restart();
    world.commit(3).unwrap();
    world.snapshot(&mut Rng::new(1)).unwrap();
    let newest = layout().snapshot(Lsn(world.durable()));
    image.overwrite(&newest, &fs.read(&newest).unwrap()).unwrap();
    let refused = World::open(&image).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("which a snapshot has seen"), "{refused}");
}

#[test]
fn a_segment_that_is_missing_behind_the_snapshot_is_refused() {
    let (fs, _) = world(3);
    let behind: Vec<u64> = files_in(&fs, &layout().wal).iter().map(|name| name[..20].parse().unwrap()).collect();
    let needed = behind.iter().copied().rfind(|first| *first <= 82).unwrap();
    let damaged = fs.restart();
    damaged.lose(&segment_path(needed)).unwrap();
    assert!(matches!(World::open(&damaged), Err(OpenError::Corrupt(_))));
}

#[test]
fn what_is_not_ours_among_snapshots_is_refused_and_what_is_unfinished_goes() {
    let (fs, world) = world(2);
    fs.overwrite(&layout().unfinished_snapshot(Lsn(99)), b"half").unwrap();
    let image = fs.restart();
    check(&image, world.durable(), world.durable(), &|| "unfinished".to_owned());
    assert_eq!(files_in(&image, &layout().snap).len(), 2);
    image.overwrite(&layout().snap.join("notes.txt"), b"mine").unwrap();
    assert!(matches!(World::open(&image), Err(OpenError::Foreign { .. })));
}

#[test]
fn the_past_is_read_from_archive_and_log_without_a_gap() {
    let (fs, world) = world(6);
    let archived = files_in(&fs, &layout().archive);
    let begins = |name: &String| name[..20].parse::<u64>().unwrap();
    let mut shown = Shown::default();
    let read = read_past(&fs, std::path::Path::new(super::world::ROOT), &mut shown).unwrap();
    assert!(!matches!(read.ending, Ending::Damaged(_)), "{read:?}");
    assert_eq!(shown.last(), world.durable(), "from {archived:?}");
    assert!(archived.iter().any(|name| name.ends_with(".wal.zst") && begins(name) > 1), "{archived:?}");
    // Without the archive, from the older of the kept snapshots on.
    for name in &archived {
        fs.lose(&layout().archive.join(name)).unwrap();
    }
    let mut shown = Shown::default();
    read_past(&fs, std::path::Path::new(super::world::ROOT), &mut shown).unwrap();
    assert_eq!((shown.last(), shown.snapshot()), (world.durable(), Lsn(135)));
}

#[test]
fn the_archive_expires_and_a_snapshot_stands_for_what_has_gone() {
    let dir = tempfile::tempdir().unwrap();
    let options = || Options { archive: Archive::Keep { retention: Duration::from_millis(40) }, ..small() };
    let (log, _) = Log::open(dir.path(), Arc::new(OsFs), options(), Arc::new(|| {}), &mut |_| Ok(())).unwrap();
    let mut last = Lsn::NONE;
    for _ in 0..8 {
        last = append(&log, 60);
        let mut writer = log.snapshot(last).unwrap();
        writer.write(format!("up to {last}").as_bytes()).unwrap();
        writer.finish().unwrap();
        std::thread::sleep(Duration::from_millis(15));
    }
    #[derive(Default)]
    struct Past(Lsn, Vec<String>, u64);
    impl crate::Replay for Past {
        fn restart(&mut self, at: Lsn) -> Result<(), String> {
            self.0 = at;
            Ok(())
        }
        fn chunk(&mut self, bytes: &[u8]) -> Result<(), String> {
            self.1.push(String::from_utf8_lossy(bytes).into_owned());
            Ok(())
        }
        fn record(&mut self, _: crate::Entry<'_>) -> Result<(), String> {
            self.2 += 1;
            Ok(())
        }
    }
    let mut past = Past::default();
    read_past(&OsFs, dir.path(), &mut past).unwrap();
    assert!(past.0 > Lsn::NONE && past.0 < Lsn(361), "the beginning has gone, the rest has not: {}", past.0);
    assert_eq!(past.1, [format!("up to {}", past.0)]);
    assert_eq!(past.0.0 + past.2, last.0);
}

fn small() -> Options {
    Options { segment_bytes: 64 << 10, ..options() }
}

fn append(log: &Log, count: u64) -> Lsn {
    let mut records = Records::new();
    for _ in 0..count {
        records.push(1, &[7; 1_000]);
    }
    let last = log.append(&records, Urgency::Prompt).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while log.durable() < last {
        assert!(Instant::now() < deadline, "{:?}", log.state());
        std::thread::sleep(Duration::from_millis(1));
    }
    last
}

#[test]
fn one_snapshot_at_a_time_and_only_of_records_that_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let mut shown = Vec::new();
        let mut replay = Collect(&mut shown);
        Log::open_from(dir.path(), Arc::new(OsFs), small(), Arc::new(|| {}), &mut replay).map(|(log, _)| (log, shown))
    };
    let (log, _) = open().unwrap();
    assert!(matches!(log.snapshot(Lsn(1)), Err(SnapshotError::Position { .. })), "there is no record 1");
    let last = append(&log, 10);
    let mut writer = log.snapshot(last).unwrap();
    assert!(matches!(log.snapshot(last), Err(SnapshotError::Busy)));
    assert!(matches!(writer.write(&[]), Err(SnapshotError::Chunk { bytes: 0 })));
    assert!(matches!(writer.write(&vec![0; (4 << 20) + 1]), Err(SnapshotError::Chunk { .. })));
    writer.write(b"given up").unwrap();
    drop(writer);
    let names = || std::fs::read_dir(dir.path().join("snap")).unwrap().count();
    assert_eq!(names(), 0, "what is given up leaves nothing");
    let mut writer = log.snapshot(last).unwrap();
    writer.write(b"all of it").unwrap();
    let done = writer.finish().unwrap();
    assert_eq!((done.at, log.newest_snapshot(), names()), (last, last, 1));
    assert!(matches!(log.snapshot(last), Err(SnapshotError::Position { .. })), "it is there already");
    log.close().unwrap();
    let (_log, shown) = open().unwrap();
    assert_eq!(shown, [b"all of it".to_vec()]);
    let refused = Log::open(dir.path(), Arc::new(OsFs), small(), Arc::new(|| {}), &mut |_| Ok(()));
    assert!(refused.is_err(), "it is open");
}

struct Collect<'a>(&'a mut Vec<Vec<u8>>);

impl crate::Replay for Collect<'_> {
    fn restart(&mut self, _: Lsn) -> Result<(), String> {
        self.0.clear();
        Ok(())
    }

    fn chunk(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.0.push(bytes.to_vec());
        Ok(())
    }

    fn record(&mut self, _: crate::Entry<'_>) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn whoever_takes_records_only_is_told_that_there_is_a_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Log::open(dir.path(), Arc::new(OsFs), small(), Arc::new(|| {}), &mut |_| Ok(()));
    let (log, _) = open().unwrap();
    let last = append(&log, 3);
    let mut writer = log.snapshot(last).unwrap();
    writer.write(b"x").unwrap();
    writer.finish().unwrap();
    log.close().unwrap();
    let refused = open().map(|_| ()).unwrap_err();
    assert!(matches!(refused, OpenError::Snapshot { .. }), "{refused}");
}

/// Whatever operation of a snapshot fails, the log goes on, and the snapshots before are there.
#[test]
fn a_snapshot_that_fails_at_any_operation_leaves_the_log_and_the_one_before() {
    let (fs, _) = world(2);
    let mut tried = 0;
    for stop in 0.. {
        let image = fs.restart();
        let mut world = World::open(&image).unwrap();
        world.commit(3).unwrap();
        let failing = image.operations() + stop;
        let kind = if stop % 2 == 0 { ErrorKind::StorageFull } else { ErrorKind::Other };
        image.fail_operation(failing, kind);
        let written = world.snapshot(&mut Rng::new(3));
        let was_reached = image.operations() > failing;
        assert!(was_reached || written.is_ok());
        if !was_reached {
            break;
        }
        tried += 1;
        world.commit(2).unwrap();
        check(&image.crash(crate::sim::Crash::DropAll, 0), world.durable(), world.submitted, &|| format!("at {stop}"));
    }
    println!("{tried} operations failed");
    assert!(tried > 10);
}

#[test]
fn a_poisoned_log_takes_no_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = Log::open(dir.path(), Arc::new(OsFs), small(), Arc::new(|| {}), &mut |_| Ok(())).unwrap();
    let last = append(&log, 2);
    let mut records = Records::new();
    records.push(1, b"not durable for a while");
    let ahead = log.append(&records, Urgency::Within(Duration::from_secs(3_600))).unwrap();
    assert!(ahead > last && log.state() == State::Running);
    let mut writer = log.snapshot(ahead).unwrap();
    writer.write(b"x").unwrap();
    let waiting = std::thread::spawn(move || writer.finish());
    std::thread::sleep(Duration::from_millis(30));
    assert!(!waiting.is_finished(), "it waits for its records");
    drop(log);
    assert!(matches!(waiting.join().unwrap(), Err(SnapshotError::LogEnded)));
}
