//! How an operator gives up what is behind a damaged place, so that the log opens again.
//!
//! A log is a sequence, so what can be kept of it is a prefix: everything before the damage. Everything from there on
//! is copied to `quarantine/` before anything is removed. Nothing of this ever happens by itself.

use std::path::{Path, PathBuf};

use crate::error::{Corruption, OpenError};
use crate::frame::BLOCK_BYTES;
use crate::fs::{EntryKind, Fs, read_full_at, write_file_atomically};
use crate::identity::Identity;
use crate::lsn::Lsn;
use crate::name::{Layout, Name};
use crate::read::{SegmentSummary, Survey, check_names, read_identity, read_segments, survey};
use crate::recover::{copy_prefix, quarantine, remove_temporary, write_identity};
use crate::scan::{Behind, look_behind};
use crate::segment::SegmentHeader;
use crate::source::{FileSource, Source};

/// What a repair did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repair {
    /// What was wrong; empty if there was nothing to do. An unfinished last batch is nothing: opening cuts it off.
    pub damages: Vec<Corruption>,
    /// The last record of the log as it is now.
    pub kept: Lsn,
    /// The first and the last record that are known to be given up, if any are. There may have been more.
    pub given_up: Option<(Lsn, Lsn)>,
    /// The copies of everything that was cut off or moved away.
    pub quarantined: Vec<PathBuf>,
}

/// Cuts a damaged log back to what is before the damage, so that it opens. Does nothing to a sound one.
///
/// # Errors
/// The log is in use, its identity is gone, it has a newer format, or the disk fails. What was done is done; it can be
/// run again.
pub fn repair(fs: &dyn Fs, dir: &Path) -> Result<Repair, OpenError> {
    let layout = Layout::new(dir);
    let _lock = fs.lock(&layout.root.join("LOCK"))?;
    let mut repair = Repair { damages: Vec::new(), kept: Lsn::NONE, given_up: None, quarantined: Vec::new() };
    loop {
        let identity = read_identity(fs, &layout)?
            .ok_or_else(|| OpenError::Identity { path: layout.identity(), found: "missing".to_owned() })?;
        let found = survey(fs, &layout)?;
        remove_temporary(fs, &layout, &found.temporary)?;
        let mut summaries = Vec::new();
        let read = check_names(&layout, &identity, &found)
            .and_then(|()| read_segments(fs, &layout, &identity, &found, &mut summaries, &mut |_| Ok(())));
        repair.kept = summaries.last().map_or(Lsn::NONE, |summary: &SegmentSummary| summary.last_lsn);
        let damage = match read {
            Ok(_) => return Ok(repair),
            Err(OpenError::Corrupt(damage)) => *damage,
            Err(error) => return Err(error),
        };
        // Every round removes a file or shortens one; the same damage twice would be a mistake of ours.
        assert!(!repair.damages.contains(&damage), "a repair repeats itself: {damage}");
        let act = Act { fs, layout: &layout, identity: &identity };
        act.mend(&damage, &found, &mut repair)?;
        repair.damages.push(damage);
    }
}

struct Act<'a> {
    fs: &'a dyn Fs,
    layout: &'a Layout,
    identity: &'a Identity,
}

impl Act<'_> {
    fn mend(&self, damage: &Corruption, found: &Survey, repair: &mut Repair) -> Result<(), OpenError> {
        if let Some((path, kind)) = found.foreign.first() {
            return self.move_away(path, *kind, damage, repair);
        }
        let name = damage.path.file_name().and_then(|name| name.to_str()).map(Name::parse);
        match name {
            Some(Name::Segment(first_lsn)) => self.cut_from(first_lsn, damage.offset, found, repair),
            // Every segment is missing: the log begins anew.
            _ => write_identity(self.fs, self.layout, &Identity { has_begun: false, ..*self.identity }),
        }
    }

    fn move_away(
        &self,
        path: &Path,
        kind: EntryKind,
        damage: &Corruption,
        repair: &mut Repair,
    ) -> Result<(), OpenError> {
        if kind != EntryKind::File {
            return Err(OpenError::Corrupt(Box::new(Corruption {
                expected: "only segments, and what is no file moved away by hand".to_owned(),
                ..damage.clone()
            })));
        }
        let file = self.fs.open(path).map_err(OpenError::io("opened", path))?;
        let mut bytes = vec![0; file.len().map_err(OpenError::io("measured", path))? as usize];
        let count = read_full_at(&*file, &mut bytes, 0).map_err(OpenError::io("read", path))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let copy = self.layout.quarantine.join(format!("foreign-{:08x}-{name}", crc32c::crc32c(&bytes[..count])));
        write_file_atomically(self.fs, &copy, &bytes[..count]).map_err(OpenError::io("written", &copy))?;
        self.remove(path)?;
        repair.quarantined.push(copy);
        Ok(())
    }

    /// Copies everything from `offset` of a segment on, later segments whole, then removes it, the last first.
    fn cut_from(&self, first_lsn: Lsn, offset: u64, found: &Survey, repair: &mut Repair) -> Result<(), OpenError> {
        let mut last_given_up = Lsn::NONE;
        let affected: Vec<Lsn> = found.segments.iter().copied().filter(|&lsn| lsn >= first_lsn).collect();
        for &lsn in &affected {
            let from = if lsn == first_lsn { offset } else { 0 };
            let behind = self.look(lsn, from)?;
            last_given_up = last_given_up.max(behind.last_lsn).max(if lsn > first_lsn { lsn } else { Lsn::NONE });
            if let Some(until) = behind.nonzero_until {
                let torn = quarantine(self.fs, self.layout, lsn, from, until)
                    .map_err(|error| error.on_open(&self.layout.root, until - from))?;
                repair.quarantined.push(torn.quarantined);
            }
        }
        let is_whole_log = affected.len() == found.segments.len() && offset == 0;
        if is_whole_log {
            write_identity(self.fs, self.layout, &Identity { has_begun: false, ..*self.identity })?;
        }
        for &lsn in affected.iter().rev() {
            if lsn > first_lsn || offset == 0 {
                self.remove(&self.layout.segment(lsn))?;
            } else {
                self.shorten(lsn, offset)?;
            }
        }
        let first_given_up = if offset == 0 { first_lsn } else { repair.kept.next() };
        if last_given_up >= first_given_up {
            let (first, last) = repair.given_up.unwrap_or((first_given_up, last_given_up));
            repair.given_up = Some((first.min(first_given_up), last.max(last_given_up)));
        }
        Ok(())
    }

    fn look(&self, lsn: Lsn, from: u64) -> Result<Behind, OpenError> {
        let path = self.layout.segment(lsn);
        let file = self.fs.open(&path).map_err(OpenError::io("opened", &path))?;
        let mut source = FileSource::with_window(file, Vec::new()).map_err(OpenError::io("measured", &path))?;
        look_behind(&mut source, self.identity, None, from).map_err(OpenError::io("read", &path))
    }

    fn shorten(&self, lsn: Lsn, end: u64) -> Result<(), OpenError> {
        let path = self.layout.segment(lsn);
        let file = self.fs.open(&path).map_err(OpenError::io("opened", &path))?;
        let mut source = FileSource::with_window(file, Vec::new()).map_err(OpenError::io("measured", &path))?;
        let block = source.at(0, BLOCK_BYTES).map_err(OpenError::io("read", &path))?;
        // The walk went beyond block 0, so it is sound; what it says is copied with the rest anyway.
        let header = block.first_chunk().and_then(|block| SegmentHeader::decode(block, &self.identity.key).ok());
        let header =
            header.unwrap_or(SegmentHeader { first_lsn: lsn, ..SegmentHeader::first(self.identity.log_id, 0) });
        copy_prefix(self.fs, self.layout, &header, end, end + BLOCK_BYTES as u64)
            .map(drop)
            .map_err(|error| error.on_open(&self.layout.root, end))
    }

    fn remove(&self, path: &Path) -> Result<(), OpenError> {
        self.fs.remove_file(path).map_err(OpenError::io("removed", path))?;
        self.fs.sync_dir(&self.layout.wal).map_err(OpenError::io("synced", &self.layout.wal))
    }
}
