//! The simulation is only worth something if it really loses what was not synced.

use super::*;

fn written(fs: &SimFs) -> Box<dyn File> {
    fs.create_dir(Path::new("/d")).unwrap();
    fs.sync_dir(Path::new("/")).unwrap();
    let file = fs.create_new(Path::new("/d/f")).unwrap();
    file.write_at(b"old", 0).unwrap();
    file
}

#[test]
fn a_crash_keeps_what_was_synced_and_a_name_needs_its_directory_synced() {
    let fs = SimFs::new();
    let file = written(&fs);
    file.sync_data().unwrap();
    assert!(fs.crash(Crash::DropAll, 0).files().is_empty());
    assert!(fs.crash(Crash::DirOld, 0).files().is_empty());
    fs.sync_dir(Path::new("/d")).unwrap();
    file.write_at(b"new", 0).unwrap();
    let read = |policy| fs.crash(policy, 0).read(Path::new("/d/f")).unwrap();
    assert_eq!(read(Crash::DropAll), b"old");
    assert_eq!(read(Crash::DirNewDataOld), b"old");
    assert_eq!(read(Crash::KeepAll), b"new");
    assert_eq!(fs.read(Path::new("/d/f")).unwrap(), b"new");
}

#[test]
fn a_failed_sync_shows_what_is_not_on_the_disk_and_the_next_one_says_nothing() {
    let fs = SimFs::new();
    let file = written(&fs);
    fs.sync_dir(Path::new("/d")).unwrap();
    fs.fail_operation(fs.operations(), io::ErrorKind::Other);
    assert!(file.sync_data().is_err());
    assert!(file.sync_data().is_ok());
    assert_eq!(fs.restart().read(Path::new("/d/f")).unwrap(), b"old");
    assert_eq!(fs.crash(Crash::KeepAll, 0).read(Path::new("/d/f")).unwrap(), b"old", "a torn page cache may be kept");
    assert_eq!(fs.crash(Crash::DropAll, 0).read(Path::new("/d/f")).unwrap(), b"");
}

#[test]
fn a_full_disk_takes_what_fits_and_space_comes_back() {
    let fs = SimFs::new();
    let file = written(&fs);
    fs.set_capacity_bytes(Some(5));
    assert_eq!(file.write_at(b"123", 3).unwrap(), 2);
    assert_eq!(file.write_at(b"3", 5).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(file.write_at(b"x", 0).unwrap(), 1, "what is allocated can be overwritten");
    fs.set_capacity_bytes(None);
    fs.set_write_budget_bytes(Some(1));
    assert_eq!(file.write_at(b"xy", 0).unwrap(), 1);
    assert_eq!(file.write_at(b"y", 0).unwrap_err().kind(), io::ErrorKind::StorageFull);
}

#[test]
fn one_seed_is_one_disk() {
    let fs = SimFs::new();
    let file = written(&fs);
    file.write_at(&[7; 10_000], 100).unwrap();
    for policy in Crash::ALL {
        assert_eq!(fs.crash(policy, 5).files(), fs.crash(policy, 5).files());
    }
}
