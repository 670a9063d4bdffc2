//! The bytes on disk, checked in: what is written today must be what was written then, and be read for ever.

use std::path::Path;

use super::world::{ROOT, STAMP, World, layout};
use crate::fs::Fs;
use crate::identity::{Identity, LogId, LogKey};
use crate::sim::SimFs;

const IDENTITY: &[u8] = include_bytes!("../../tests/golden/v1/IDENTITY");
const FIRST: &[u8] = include_bytes!("../../tests/golden/v1/00000000000000000001.wal");
const SECOND: &[u8] = include_bytes!("../../tests/golden/v1/00000000000000000007.wal");

/// Two segments: records 1 to 6 in two batches and a SEAL; 7 to 12 in two batches, a marker.
fn write_log(fs: &SimFs) {
    let mut world = World::open(fs).unwrap();
    for count in [4, 2, 6] {
        world.commit(count).unwrap();
    }
    world.appender.mark(STAMP).unwrap();
    world.appender.finish(STAMP).unwrap();
}

fn disk() -> SimFs {
    let fs = SimFs::new();
    fs.create_dir(Path::new(ROOT)).unwrap();
    for path in layout().directories() {
        fs.create_dir(&path).unwrap();
        fs.sync_dir(Path::new(ROOT)).unwrap();
    }
    fs.sync_dir(Path::new("/")).unwrap();
    fs
}

#[test]
fn the_writer_writes_the_golden_bytes() {
    let fs = disk();
    let identity = Identity {
        log_id: LogId(*b"golden log id 16"),
        key: LogKey::new(*b"golden log key16"),
        created_wall_ms: STAMP.wall_ms,
        newest_segment_seq: 0,
    };
    fs.overwrite(&layout().identity(), &identity.encode()).unwrap();
    write_log(&fs);
    if let Ok(dir) = std::env::var("WAL_WRITE_GOLDEN") {
        for (path, bytes) in fs.files() {
            std::fs::write(Path::new(&dir).join(path.file_name().unwrap()), &*bytes).unwrap();
        }
    }
    let golden = [
        (layout().identity(), IDENTITY),
        (super::world::segment_path(1), FIRST),
        (super::world::segment_path(7), SECOND),
    ];
    let written = fs.files();
    assert_eq!(written.len(), golden.len());
    for (path, bytes) in golden {
        assert!(fs.read(&path).unwrap() == bytes, "{} differs", path.display());
    }
}

#[test]
fn the_reader_reads_the_golden_bytes() {
    let fs = disk();
    fs.overwrite(&layout().identity(), IDENTITY).unwrap();
    fs.overwrite(&super::world::segment_path(1), FIRST).unwrap();
    fs.overwrite(&super::world::segment_path(7), SECOND).unwrap();
    let world = World::open(&fs).unwrap();
    let recovered = world.recovered;
    assert!(recovered.is_clean);
    assert_eq!((recovered.records, recovered.batches, recovered.segments), (12, 6, 2));
    assert_eq!((recovered.generation, recovered.last_wall_ms), (3, STAMP.wall_ms));
}
