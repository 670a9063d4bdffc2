//! Every row of the recovery table, and the repair of every refusal.

use std::path::Path;
use std::sync::Arc;

use super::world::{ROOT, STAMP, World, layout, segment_path};
use crate::fs::Fs;
use crate::identity::{Identity, LogId};
use crate::segment::SegmentHeader;
use crate::sim::SimFs;
use crate::{Ending, Lsn, OpenError, OsFs, inspect, repair, verify};

/// Three segments: records 1 to 6 (SEAL), 7 to 12 (SEAL), 13 and 14 in two batches, open.
fn three_segments() -> SimFs {
    let fs = SimFs::new();
    let mut world = World::open(&fs).unwrap();
    for count in [4, 2, 5, 1, 1, 1] {
        world.commit(count).unwrap();
    }
    fs.restart()
}

fn identity(fs: &SimFs) -> Identity {
    Identity::decode(&fs.read(&layout().identity()).unwrap()).unwrap()
}

fn change(fs: &SimFs, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs.read(path).unwrap();
    change(&mut bytes);
    fs.overwrite(path, &bytes).unwrap();
}

/// It is refused at that place and nothing is changed; a repair keeps `kept` records, copies what it cuts, and
/// leaves a log that opens and takes records.
fn assert_refused_and_repaired(fs: &SimFs, path: &Path, offset: u64, found: &str, kept: u64) {
    let before = fs.files();
    let Err(OpenError::Corrupt(damage)) = World::open(&fs.restart()).map(|_| ()) else { panic!("not refused") };
    let text = damage.to_string();
    assert_eq!((damage.path.as_path(), damage.offset), (path, offset), "{text}");
    assert!(text.contains(found) && !text.contains("countwheel"), "{text}");
    let advice = OpenError::Corrupt(damage.clone()).to_string();
    assert!(advice.contains("countwheel wal verify /log") && advice.contains("countwheel wal repair /log"), "{advice}");
    assert!(matches!(verify(fs, Path::new(ROOT)), Err(OpenError::Corrupt(same)) if same == damage));
    assert_eq!(inspect(fs, Path::new(ROOT)).unwrap().ending, Ending::Damaged(damage.clone()));
    assert_eq!(fs.files(), before, "looking changes nothing");

    let repaired = repair(fs, Path::new(ROOT)).unwrap();
    assert_eq!((repaired.damages[0].clone(), repaired.kept), (*damage, Lsn(kept)));
    assert!(repaired.quarantined.iter().all(|copy| fs.read(copy).is_some()));
    let again = fs.restart();
    let mut world = World::open(&again).unwrap_or_else(|error| panic!("after the repair: {error}"));
    assert_eq!(world.recovered.last, Lsn(kept));
    world.commit(3).unwrap();
    assert!(repair(&fs.restart(), Path::new(ROOT)).unwrap().damages.is_empty(), "a sound log needs no repair");
}

#[test]
fn a_repair_names_the_whole_segments_that_it_gives_up_and_keeps_every_byte() {
    let fs = three_segments();
    change(&fs, &segment_path(1), |bytes| bytes[2 * 4_096 + 106] ^= 1);
    let cut: Vec<Vec<u8>> = [(1, 2 * 4_096), (7, 0), (13, 0)].map(|(lsn, from)| bytes_from(&fs, lsn, from)).into();
    let repaired = repair(&fs, Path::new(ROOT)).unwrap();
    assert_eq!((repaired.kept, repaired.given_up), (Lsn(4), Some((Lsn(5), Lsn(14)))));
    assert_eq!(repaired.quarantined.iter().map(|copy| fs.read(copy).unwrap()).collect::<Vec<_>>(), cut);
    let whole: Vec<_> = repaired.whole_segments.iter().map(|it| (&it.copy, it.first.0, it.last.0)).collect();
    assert_eq!(whole, [(&repaired.quarantined[1], 7, 12), (&repaired.quarantined[2], 13, 14)]);
}

/// Without the zeros at its end.
fn bytes_from(fs: &SimFs, first_lsn: u64, from: usize) -> Vec<u8> {
    let mut bytes = fs.read(&segment_path(first_lsn)).unwrap()[from..].to_vec();
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    bytes
}

#[test]
fn row_1_nothing_at_all_is_a_new_log() {
    let world = World::open(&SimFs::new()).unwrap();
    assert!(world.recovered.is_clean);
    assert_eq!((world.recovered.last, world.recovered.segments), (Lsn(0), 0));
}

#[test]
fn row_2_segments_without_a_sound_identity_are_refused() {
    let fs = three_segments();
    change(&fs, &layout().identity(), |bytes| bytes[20] ^= 1);
    assert!(
        matches!(World::open(&fs.restart()).map(|_| ()), Err(OpenError::Identity { found, .. }) if found.starts_with("damaged"))
    );
    assert!(matches!(repair(&fs, Path::new(ROOT)), Err(OpenError::Identity { .. })));
    fs.lose(&layout().identity()).unwrap();
    assert!(matches!(World::open(&fs).map(|_| ()), Err(OpenError::Identity { found, .. }) if found == "missing"));
}

#[test]
fn row_3_a_log_that_has_not_begun_begins() {
    let fs = three_segments();
    let newest_segment_seq = 0;
    fs.overwrite(&layout().identity(), &Identity { newest_segment_seq, ..identity(&fs) }.encode()).unwrap();
    for first_lsn in [1, 7, 13] {
        fs.lose(&segment_path(first_lsn)).unwrap();
    }
    let world = World::open(&fs).unwrap();
    assert_eq!(world.recovered.last, Lsn(0));
    assert_eq!(identity(&fs).newest_segment_seq, 1);
}

#[test]
fn row_4_a_log_that_has_begun_and_has_no_segment_is_refused() {
    let fs = three_segments();
    for first_lsn in [1, 7, 13] {
        fs.lose(&segment_path(first_lsn)).unwrap();
    }
    assert_refused_and_repaired(&fs, &layout().wal, 0, "found none", 0);
}

#[test]
fn row_4_a_log_without_its_newest_segments_is_refused_closed_or_not() {
    for is_closed in [false, true] {
        let fs = three_segments();
        if is_closed {
            World::open(&fs).unwrap().appender.finish(STAMP).unwrap();
        }
        let fs = fs.restart();
        fs.lose(&segment_path(13)).unwrap();
        assert_refused_and_repaired(
            &fs,
            &layout().wal,
            0,
            "expected segments up to number 3, found none after number 2",
            12,
        );
        let fs = three_segments();
        fs.lose(&segment_path(13)).unwrap();
        fs.lose(&segment_path(7)).unwrap();
        assert_refused_and_repaired(&fs, &layout().wal, 0, "found none after number 1", 6);
    }
}

/// Between the two moments in which a new segment gets its name and `IDENTITY` names it, nothing is acknowledged.
#[test]
fn row_4_an_identity_that_is_one_segment_behind_is_mended() {
    let fs = three_segments();
    let newest_segment_seq = 2;
    fs.overwrite(&layout().identity(), &Identity { newest_segment_seq, ..identity(&fs) }.encode()).unwrap();
    let world = World::open(&fs).unwrap();
    assert_eq!((world.recovered.last, identity(&fs).newest_segment_seq), (Lsn(14), 3));
}

#[test]
fn row_5_temporary_files_are_deleted() {
    let fs = three_segments();
    let spare = layout().spare(7);
    fs.overwrite(&spare, &[1, 2, 3]).unwrap();
    World::open(&fs).unwrap();
    assert_eq!(fs.read(&spare), None);
}

#[test]
fn row_6_other_names_are_refused_and_repair_moves_them_away() {
    let fs = three_segments();
    let path = layout().wal.join("13.wal");
    fs.overwrite(&path, b"not mine").unwrap();
    let before = fs.files();
    for refused in [World::open(&fs.restart()).map(|_| ()), verify(&fs, Path::new(ROOT)).map(|_| ())] {
        assert!(matches!(refused, Err(OpenError::Foreign { path: found, .. }) if found == path));
    }
    let found = inspect(&fs, Path::new(ROOT)).unwrap();
    assert_eq!((found.foreign, found.last, found.ending), (vec![path.clone()], Lsn(14), Ending::Open));
    assert_eq!(fs.files(), before, "looking changes nothing");
    let repaired = repair(&fs, Path::new(ROOT)).unwrap();
    assert_eq!((repaired.foreign, repaired.damages, repaired.kept), (vec![path], vec![], Lsn(14)));
    assert_eq!(fs.read(&repaired.quarantined[0]).unwrap(), b"not mine");
    assert_eq!(World::open(&fs.restart()).unwrap().recovered.last, Lsn(14));
}

#[test]
fn row_6_what_is_no_file_is_refused_and_left_to_a_person() {
    let fs = three_segments();
    let path = layout().wal.join("00000000000000000020.wal");
    fs.create_dir(&path).unwrap();
    for refused in [World::open(&fs.restart()).map(|_| ()), repair(&fs.restart(), Path::new(ROOT)).map(|_| ())] {
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("is a directory among the segments") && text.contains("move it away"), "{text}");
    }
}

#[test]
fn row_6_symbolic_links_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let options = super::world::options();
    let open =
        || crate::Log::open(dir.path(), Arc::new(OsFs), options.clone(), Arc::new(|| {}), &mut |_| Ok(())).map(|_| ());
    open().unwrap();
    let segment = dir.path().join("wal/00000000000000000001.wal");
    std::fs::rename(&segment, dir.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(dir.path().join("elsewhere"), &segment).unwrap();
    assert!(open().unwrap_err().to_string().contains("is a symbolic link"));
}

#[test]
fn row_7_a_damaged_block_0_is_refused() {
    let fs = three_segments();
    change(&fs, &segment_path(7), |bytes| bytes[50] ^= 1);
    assert_refused_and_repaired(&fs, &segment_path(7), 0, "header checksum", 6);
    let fs = three_segments();
    change(&fs, &segment_path(13), |bytes| bytes.truncate(100));
    assert_refused_and_repaired(&fs, &segment_path(13), 0, "a file of 100 bytes", 12);
}

#[test]
fn row_7_a_segment_of_another_log_or_place_is_refused() {
    let fs = three_segments();
    let key = identity(&fs).key;
    let foreign = SegmentHeader::first(LogId([9; 16]), 0, 20 << 10).encode(&key);
    change(&fs, &segment_path(1), |bytes| bytes[..4_096].copy_from_slice(&foreign));
    assert_refused_and_repaired(&fs, &segment_path(1), 0, "log 0909", 0);
    let fs = three_segments();
    let other = fs.read(&segment_path(1)).unwrap();
    fs.overwrite(&segment_path(13), &other).unwrap();
    assert_refused_and_repaired(&fs, &segment_path(13), 0, "expected first record 13, found first record 1", 12);
}

#[test]
fn row_8_a_newer_format_is_refused_by_name_and_not_repaired() {
    let fs = three_segments();
    let key = identity(&fs).key;
    change(&fs, &segment_path(13), |bytes| {
        bytes[8] = 2;
        bytes[10] = 2;
        let crc = key.crc(&bytes[..4_092]);
        bytes[4_092..4_096].copy_from_slice(&crc.to_le_bytes());
    });
    for refused in [World::open(&fs.restart()).map(|_| ()), repair(&fs, Path::new(ROOT)).map(|_| ())] {
        assert!(matches!(refused, Err(OpenError::NewerFormat { found: 2, supported: 1, .. })));
    }
    let fs = three_segments();
    change(&fs, &segment_path(13), |bytes| {
        bytes[4_096 + 8] = 9;
        let crc = key_crc(&identity(&fs), &bytes[4_096 + 8..4_096 + 104]);
        bytes[4_096 + 4..4_096 + 8].copy_from_slice(&crc.to_le_bytes());
    });
    assert!(matches!(World::open(&fs).map(|_| ()), Err(OpenError::NewerFormat { found: 9, .. })));
}

fn key_crc(identity: &Identity, bytes: &[u8]) -> u32 {
    identity.key.crc(bytes)
}

#[test]
fn row_9_a_missing_segment_is_refused() {
    let fs = three_segments();
    fs.lose(&segment_path(7)).unwrap();
    assert_refused_and_repaired(&fs, &segment_path(13), 0, "segment 2 before it", 6);
    let fs = three_segments();
    fs.lose(&segment_path(1)).unwrap();
    assert_refused_and_repaired(&fs, &segment_path(7), 0, "expected no segment before it", 0);
}

#[test]
fn row_10_damage_in_a_segment_that_is_not_the_last_is_refused() {
    let fs = three_segments();
    change(&fs, &segment_path(7), |bytes| bytes[2 * 4_096 + 106] ^= 1);
    assert_refused_and_repaired(&fs, &segment_path(7), 2 * 4_096, "expected body checksum", 11);
    let fs = three_segments();
    change(&fs, &segment_path(1), |bytes| bytes[3 * 4_096..].fill(0));
    assert_refused_and_repaired(&fs, &segment_path(1), 3 * 4_096, "found zeros", 6);
    let fs = three_segments();
    change(&fs, &segment_path(1), |bytes| bytes.truncate(2 * 4_096 + 50));
    assert_refused_and_repaired(&fs, &segment_path(1), 2 * 4_096, "the end of the file after 50 bytes", 4);
}

#[test]
fn row_11_a_sealed_end_is_clean_and_the_next_segment_begins() {
    let fs = three_segments();
    World::open(&fs).unwrap().appender.finish(STAMP).unwrap();
    let mut world = World::open(&fs.restart()).unwrap();
    assert!(world.recovered.is_clean);
    world.commit(1).unwrap();
    let found = verify(&world.fs, Path::new(ROOT)).unwrap();
    assert_eq!(
        found.segments.iter().map(|it| (it.first_lsn.0, it.is_sealed)).collect::<Vec<_>>(),
        [(1, true), (7, true), (13, true), (15, false)]
    );
    assert_eq!(found.ending, Ending::Open);
}

#[test]
fn row_12_bytes_behind_a_seal_are_refused() {
    let fs = three_segments();
    World::open(&fs).unwrap().appender.finish(STAMP).unwrap();
    let fs = fs.restart();
    change(&fs, &segment_path(13), |bytes| bytes.push(1));
    assert_refused_and_repaired(&fs, &segment_path(13), 4 * 4_096, "expected zeros behind the SEAL", 14);
}

#[test]
fn row_13_a_valid_batch_in_the_wrong_place_is_refused() {
    let fs = three_segments();
    change(&fs, &segment_path(13), |bytes| bytes.copy_within(4_096..8_192, 3 * 4_096));
    assert_refused_and_repaired(&fs, &segment_path(13), 3 * 4_096, "expected batch 9, found batch 7", 14);
}

#[test]
fn row_14_damage_that_a_later_batch_vouches_against_is_refused() {
    let fs = three_segments();
    change(&fs, &segment_path(13), |bytes| bytes[4_096 + 110] ^= 1);
    assert_refused_and_repaired(&fs, &segment_path(13), 4_096, "although records up to 13 are durable", 12);
}

#[test]
fn row_15_a_batch_behind_a_damaged_marker_is_refused() {
    let fs = SimFs::new();
    let mut world = World::open(&fs).unwrap();
    world.commit(1).unwrap();
    world.appender.mark(STAMP).unwrap();
    world.appender.finish(STAMP).unwrap();
    let fs = fs.restart();
    change(&fs, &segment_path(1), |bytes| bytes[2 * 4_096 + 10] ^= 1);
    assert_refused_and_repaired(&fs, &segment_path(1), 2 * 4_096, "and batch 3 at byte 12288 behind it", 1);
}

/// Where a cut leaves no other trace: on a boundary of blocks, between two batches or behind the last.
#[test]
fn row_16_a_last_segment_that_was_cut_is_refused_closed_or_not() {
    for is_closed in [false, true] {
        let whole = three_segments();
        if is_closed {
            World::open(&whole).unwrap().appender.finish(STAMP).unwrap();
        }
        let bytes = whole.restart().read(&segment_path(13)).unwrap();
        let blocks = bytes.len() / 4_096;
        assert_eq!(blocks, if is_closed { 4 } else { 5 });
        for kept in 1..blocks {
            let fs = whole.restart();
            change(&fs, &segment_path(13), |bytes| bytes.truncate(kept * 4_096));
            let end = (kept * 4_096).min(3 * 4_096) as u64;
            let found = format!("a file of {} bytes, cut short", kept * 4_096);
            assert_refused_and_repaired(&fs, &segment_path(13), end, &found, 11 + end / 4_096);
        }
    }
}

#[test]
fn row_17_an_open_end_shows_everything() {
    let fs = three_segments();
    assert_eq!(inspect(&fs, Path::new(ROOT)).unwrap().ending, Ending::Open);
    let world = World::open(&fs).unwrap();
    assert_eq!((world.recovered.last, world.recovered.torn.clone()), (Lsn(14), None));
    assert!(!world.recovered.is_clean);
}

#[test]
fn row_18_a_torn_batch_is_cut_and_kept_and_needs_no_repair() {
    let fs = three_segments();
    change(&fs, &segment_path(13), |bytes| bytes[2 * 4_096 + 104..2 * 4_096 + 204].fill(0));
    let torn = bytes_from(&fs, 13, 2 * 4_096);
    let ending = Ending::Torn { path: segment_path(13), offset: 2 * 4_096, until: 2 * 4_096 + torn.len() as u64 };
    assert_eq!(verify(&fs, Path::new(ROOT)).unwrap().ending, ending);
    assert!(repair(&fs, Path::new(ROOT)).unwrap().damages.is_empty());
    let world = World::open(&fs).unwrap();
    let cut = world.recovered.torn.unwrap();
    assert_eq!((world.recovered.last, cut.offset), (Lsn(13), 2 * 4_096));
    assert_eq!(fs.read(&cut.quarantined).unwrap(), torn);
    assert_eq!(inspect(&fs, Path::new(ROOT)).unwrap().quarantined, [cut.quarantined]);
}
