//! What snapshots make superfluous: the third newest and older, and segments whose records are all in the older of the
//! two that are kept.
//!
//! Each step may be the last before a crash. What is removed is removed oldest first, so that what is left of the log is
//! without a gap, and only after everything that takes its place is durable.

use super::archive::{archive_segment, retire};
use super::write::SnapshotError;
use crate::error::OpenError;
use crate::fs::{EntryKind, Fs};
use crate::identity::Identity;
use crate::lsn::Lsn;
use crate::name::{Layout, Name, SnapshotName};
use crate::options::Archive;
use crate::read::foreign;

/// So many snapshots are kept: one may turn out damaged.
const KEEP: usize = 2;

/// The names in `snap/`: where snapshots end, ascending, and unfinished files.
pub(crate) fn snapshots(fs: &dyn Fs, layout: &Layout) -> Result<(Vec<Lsn>, Vec<std::path::PathBuf>), OpenError> {
    let (mut whole, mut temporary) = (Vec::new(), Vec::new());
    let entries = match fs.list(&layout.snap) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        listed => listed.map_err(OpenError::io("listed", &layout.snap))?,
    };
    for entry in entries {
        let path = layout.snap.join(&entry.name);
        match (SnapshotName::parse(&entry.name), entry.kind) {
            (SnapshotName::Snapshot(lsn), EntryKind::File) => whole.push(lsn),
            (SnapshotName::Temporary, EntryKind::File) => temporary.push(path),
            (_, kind) => return Err(foreign(&path, kind)),
        }
    }
    whole.sort_unstable();
    Ok((whole, temporary))
}

/// Removes what is superfluous; says how many segments left the log.
pub(super) fn keep(
    fs: &dyn Fs,
    layout: &Layout,
    identity: &Identity,
    archive: Archive,
    wall_ms: u64,
) -> Result<u64, SnapshotError> {
    let mut whole = Vec::new();
    for entry in fs.list(&layout.snap).map_err(SnapshotError::io("listed", &layout.snap))? {
        if let (SnapshotName::Snapshot(lsn), EntryKind::File) = (SnapshotName::parse(&entry.name), entry.kind) {
            whole.push(lsn);
        }
    }
    whole.sort_unstable();
    let superfluous = whole.len().saturating_sub(KEEP);
    // The first snapshot must not let go of what it was made from: it may turn out damaged.
    let Some(&oldest_kept) = whole.get(superfluous).filter(|_| whole.len() >= KEEP) else { return Ok(0) };
    let pruned = prune(fs, layout, identity, archive, oldest_kept)?;
    for &lsn in &whole[..superfluous] {
        retire(fs, layout, archive, lsn)?;
    }
    if superfluous > 0 {
        fs.sync_dir(&layout.snap).map_err(SnapshotError::io("synced", &layout.snap))?;
    }
    super::archive::expire(fs, layout, archive, wall_ms)?;
    Ok(pruned)
}

/// Lets segments go that hold no record behind `through`. The one that is written to is always the last.
fn prune(
    fs: &dyn Fs,
    layout: &Layout,
    identity: &Identity,
    archive: Archive,
    through: Lsn,
) -> Result<u64, SnapshotError> {
    let mut segments = Vec::new();
    for entry in fs.list(&layout.wal).map_err(SnapshotError::io("listed", &layout.wal))? {
        if let (Name::Segment(lsn), EntryKind::File) = (Name::parse(&entry.name), entry.kind) {
            segments.push(lsn);
        }
    }
    segments.sort_unstable();
    let going = segments.windows(2).take_while(|pair| pair[1] <= through.next()).count();
    for pair in segments.windows(2).take(going) {
        let path = layout.segment(pair[0]);
        if let Archive::Keep { .. } = archive {
            archive_segment(fs, layout, identity, pair[0])?;
        }
        fs.remove_file(&path).map_err(SnapshotError::io("removed", &path))?;
    }
    if going > 0 {
        fs.sync_dir(&layout.wal).map_err(SnapshotError::io("synced", &layout.wal))?;
    }
    Ok(going as u64)
}
