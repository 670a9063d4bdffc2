//! What a power cut leaves of what was not synced.

use std::sync::Arc;

use super::disk::{DirNode, Disk, FileNode, FileOp, Node, write};
use super::rng::Rng;

/// What disks write in one piece.
const SECTOR_BYTES: usize = 512;

/// What becomes of pending changes when the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// All are lost.
    DropAll,
    /// All arrive.
    KeepAll,
    /// They arrive in order up to some change, and of that one the first sectors.
    Prefix,
    /// Each sector of each write arrives or does not; names arrive in order up to some change.
    Subset,
    /// As [`Crash::Subset`], and what does not arrive may have torn: random bytes.
    Garbage,
    /// Sizes arrive; each sector of each write arrives or is zeros.
    Zeros,
    /// All data arrive, no names.
    DirOld,
    /// All names arrive, no data.
    DirNewDataOld,
}

impl Crash {
    /// Every policy.
    pub const ALL: [Self; 8] = [
        Self::DropAll,
        Self::KeepAll,
        Self::Prefix,
        Self::Subset,
        Self::Garbage,
        Self::Zeros,
        Self::DirOld,
        Self::DirNewDataOld,
    ];
}

/// The disk that the next start finds.
pub(super) fn crash(disk: &Disk, policy: Crash, rng: &mut Rng) -> Disk {
    let cut = prefix_cut(disk, rng);
    let mut after = disk.restarted();
    for node in &mut after.nodes {
        match node {
            Node::File(file) => {
                *file = FileNode::at_rest(surviving_bytes(file, policy, cut, rng));
            }
            Node::Dir(dir) => {
                let names = surviving_names(dir, policy, cut, rng);
                *dir = DirNode { current: names.clone(), durable: names, pending: Vec::new() };
            }
        }
    }
    after
}

/// The pending change at which [`Crash::Prefix`] stops.
fn prefix_cut(disk: &Disk, rng: &mut Rng) -> u64 {
    let mut pending: Vec<u64> = disk
        .nodes
        .iter()
        .flat_map(|node| match node {
            Node::File(file) => file.pending.iter().map(|(sequence, _)| *sequence).collect::<Vec<_>>(),
            Node::Dir(dir) => dir.pending.iter().map(|(sequence, _)| *sequence).collect(),
        })
        .collect();
    pending.sort_unstable();
    if pending.is_empty() { 0 } else { pending[rng.below(pending.len() as u64) as usize] }
}

fn surviving_bytes(file: &FileNode, policy: Crash, cut: u64, rng: &mut Rng) -> Arc<Vec<u8>> {
    let mut survivors = Arc::clone(&file.durable);
    match policy {
        Crash::KeepAll | Crash::DirOld => return Arc::clone(&file.current),
        Crash::DropAll | Crash::DirNewDataOld => return survivors,
        _ if file.pending.is_empty() => return survivors,
        _ => {}
    }
    let bytes = Arc::make_mut(&mut survivors);
    match policy {
        Crash::DropAll | Crash::DirNewDataOld | Crash::KeepAll | Crash::DirOld => {}
        Crash::Prefix => {
            for (sequence, op) in file.pending.iter().filter(|(sequence, _)| *sequence <= cut) {
                match op {
                    FileOp::Write { offset, bytes: new } if *sequence == cut => {
                        let sectors = new.len().div_ceil(SECTOR_BYTES) as u64;
                        let kept = rng.below(sectors + 1) as usize * SECTOR_BYTES;
                        write(bytes, *offset as usize, &new[..kept.min(new.len())]);
                    }
                    op => op.apply(bytes),
                }
            }
        }
        Crash::Subset | Crash::Garbage => {
            for (_, op) in &file.pending {
                tear(bytes, op, policy, rng);
            }
        }
        Crash::Zeros => {
            for (_, op) in &file.pending {
                tear(bytes, op, policy, rng);
            }
            bytes.resize(file.current.len(), 0);
        }
    }
    survivors
}

/// One write, sector by sector.
fn tear(bytes: &mut Vec<u8>, op: &FileOp, policy: Crash, rng: &mut Rng) {
    let FileOp::Write { offset, bytes: new } = op else {
        if policy == Crash::Zeros || rng.one_in(2) {
            op.apply(bytes);
        }
        return;
    };
    let (start, end) = (*offset as usize, *offset as usize + new.len());
    let mut at = start;
    while at < end {
        let next = (at / SECTOR_BYTES + 1).saturating_mul(SECTOR_BYTES).min(end);
        let sector = &new[at - start..next - start];
        match rng.below(4) {
            0 | 1 => write(bytes, at, sector),
            2 if policy == Crash::Garbage => {
                let mut garbage = sector.to_vec();
                rng.fill(&mut garbage);
                write(bytes, at, &garbage);
            }
            _ if policy == Crash::Zeros => write(bytes, at, &vec![0; sector.len()]),
            _ => {}
        }
        at = next;
    }
}

fn surviving_names(
    dir: &DirNode,
    policy: Crash,
    cut: u64,
    rng: &mut Rng,
) -> std::collections::BTreeMap<String, super::Inode> {
    let mut names = dir.durable.clone();
    let survives = match policy {
        Crash::DropAll | Crash::DirOld => 0,
        Crash::KeepAll | Crash::DirNewDataOld | Crash::Zeros => dir.pending.len(),
        Crash::Prefix => dir.pending.iter().filter(|(sequence, _)| *sequence <= cut).count(),
        Crash::Subset | Crash::Garbage => rng.below(dir.pending.len() as u64 + 1) as usize,
    };
    for (_, op) in &dir.pending[..survives] {
        op.apply(&mut names);
    }
    names
}
