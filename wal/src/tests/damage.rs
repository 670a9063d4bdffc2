//! Damage at rest: refused with a place, or harmless; never a shorter log without a word.

use std::path::{Path, PathBuf};

use super::world::{STAMP, World, layout, run_with, segment_path};
use crate::OpenError;
use crate::sim::{Rng, SimFs};

/// A log of several segments that ends with a marker, or with a SEAL.
fn durable_log(ends_with_seal: bool) -> (SimFs, u64) {
    let fs = SimFs::new();
    run_with(&fs, (2, 10), false);
    let mut world = World::open(&fs).unwrap();
    for _ in 0..3 {
        world.commit(2).unwrap();
    }
    while world.appender.needs_marker() {
        world.appender.mark(STAMP).unwrap();
        if world.appender.needs_marker() {
            world.commit(1).unwrap();
        }
    }
    if ends_with_seal {
        world.appender.finish(STAMP).unwrap();
    }
    (fs.restart(), world.durable())
}

fn segments(fs: &SimFs) -> Vec<(PathBuf, Vec<u8>)> {
    let files = fs.files().into_iter().filter(|(path, _)| path.starts_with(layout().wal));
    files.map(|(path, bytes)| (path, bytes.to_vec())).collect()
}

/// Opens a damaged copy: true if it was refused. A log that opens shows all records.
fn is_refused(damaged: &SimFs, last: u64, what: &dyn Fn() -> String) -> bool {
    match World::open(damaged) {
        Ok(world) => {
            assert_eq!(world.recovered.last.0, last, "{}: silently dropped", what());
            false
        }
        Err(OpenError::Corrupt(_) | OpenError::Identity { .. } | OpenError::NewerFormat { .. }) => true,
        Err(other) => panic!("{}: {other}", what()),
    }
}

fn flip(fs: &SimFs, path: &Path, bytes: &[u8], bit: u64) -> SimFs {
    let damaged = fs.restart();
    let mut bytes = bytes.to_vec();
    bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    damaged.overwrite(path, &bytes).unwrap();
    damaged
}

fn sample_flips(ends_with_seal: bool, seed: u64, samples: u64) {
    let (fs, last) = durable_log(ends_with_seal);
    let mut rng = Rng::new(seed);
    let files: Vec<_> =
        fs.files().into_iter().filter(|(path, bytes)| !bytes.is_empty() && !path.ends_with("LOCK")).collect();
    let wal: Vec<_> = files.iter().filter(|(path, _)| !path.starts_with(layout().quarantine)).collect();
    let bits: u64 = wal.iter().map(|(_, bytes)| bytes.len() as u64 * 8).sum();
    let mut refused = 0;
    for _ in 0..samples {
        let mut bit = rng.below(bits);
        let (path, bytes) = wal
            .iter()
            .find(|(_, bytes)| {
                let here = bytes.len() as u64 * 8;
                let is_here = bit < here;
                bit -= if is_here { 0 } else { here };
                is_here
            })
            .unwrap();
        let what = || format!("seed {seed}, {} bit {bit}", path.display());
        refused += u64::from(is_refused(&flip(&fs, path, bytes, bit), last, &what));
    }
    println!("seed {seed}: {samples} flips, {refused} refused, {} harmless, 0 dropped", samples - refused);
    assert!(refused > samples / 2);
}

#[test]
fn no_flipped_bit_of_a_durable_log_drops_a_record_in_silence() {
    sample_flips(false, 77, 10_000);
    sample_flips(true, 78, 10_000);
}

#[test]
fn every_flipped_bit_of_the_headers_of_a_durable_segment_is_refused() {
    let (fs, last) = durable_log(false);
    let (path, bytes) = segments(&fs).swap_remove(0);
    for bit in (0..104 * 8).chain(4_096 * 8..(4_096 + 104) * 8) {
        let what = || format!("bit {bit}");
        assert!(is_refused(&flip(&fs, &path, &bytes, bit), last, &what), "{}", what());
    }
}

#[test]
fn zeroed_and_misdirected_blocks_among_durable_records_are_refused() {
    let (fs, last) = durable_log(false);
    let files = segments(&fs);
    let (last_path, _) = files.last().unwrap().clone();
    let mut refused = 0;
    for (path, bytes) in &files {
        let used = bytes.rchunks(4_096).skip_while(|block| block.iter().all(|&byte| byte == 0)).count();
        for block in 0..used {
            // The marker itself is the one thing that nothing vouches for, and it holds no record.
            let is_marker = *path == last_path && block + 1 == used;
            for other in (0..used).map(Some).chain([None]) {
                let mut damaged_bytes = bytes.clone();
                match other {
                    None => damaged_bytes[block * 4_096..(block + 1) * 4_096].fill(0),
                    Some(other) => damaged_bytes.copy_within(other * 4_096..(other + 1) * 4_096, block * 4_096),
                }
                if damaged_bytes == *bytes {
                    continue;
                }
                let damaged = fs.restart();
                damaged.overwrite(path, &damaged_bytes).unwrap();
                let what = || format!("{} block {block} from {other:?}", path.display());
                let was_refused = is_refused(&damaged, last, &what);
                assert!(was_refused || is_marker, "{}", what());
                refused += u64::from(was_refused);
            }
        }
    }
    println!("{refused} refused");
    assert!(refused > 20);
}

/// The file keeps its length in a crash; whatever makes it shorter is damage.
#[test]
fn a_last_segment_cut_at_any_length_is_refused_and_one_zeroed_from_there_on_is_torn() {
    let fs = SimFs::new();
    let mut world = World::open(&fs).unwrap();
    world.commit(2).unwrap();
    world.commit(4).unwrap();
    let path = segment_path(1);
    let bytes = fs.read(&path).unwrap();
    for length in 8_192..=bytes.len() {
        let cut = fs.restart();
        cut.overwrite(&path, &bytes[..length]).unwrap();
        let what = || format!("length {length}");
        assert_eq!(is_refused(&cut, 6, &what), length < bytes.len(), "length {length}");
        let mut zeroed_bytes = bytes.clone();
        zeroed_bytes[length..].fill(0);
        let zeroed = fs.restart();
        zeroed.overwrite(&path, &zeroed_bytes).unwrap();
        let opened = World::open(&zeroed).unwrap_or_else(|error| panic!("length {length}: {error}"));
        let is_whole = zeroed_bytes == bytes;
        assert_eq!(opened.recovered.last.0, if is_whole { 6 } else { 2 }, "length {length}");
    }
}

#[test]
fn garbage_behind_the_last_batch_is_cut_without_allocating_for_its_lengths() {
    for seed in 0..300 {
        let fs = SimFs::new();
        let mut world = World::open(&fs).unwrap();
        world.commit(2).unwrap();
        let path = segment_path(1);
        let mut bytes = fs.read(&path).unwrap();
        Rng::new(seed).fill(&mut bytes[8_192..12_288]);
        if seed % 2 == 0 {
            bytes[8_192..8_196].copy_from_slice(b"CWB1");
            bytes[8_204..8_208].copy_from_slice(&[0xff; 4]);
        }
        let torn = fs.restart();
        torn.overwrite(&path, &bytes).unwrap();
        let opened = World::open(&torn).unwrap();
        assert_eq!(opened.recovered.last.0, 2, "seed {seed}");
        let cut = torn.read(&opened.recovered.torn.unwrap().quarantined).unwrap();
        assert!(bytes[8_192..12_288].starts_with(&cut) && cut.len() > 4_000, "seed {seed}");
    }
}
