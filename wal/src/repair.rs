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
use crate::read::{SegmentSummary, Survey, foreign, read_identity, read_segments, survey};
use crate::recover::{copy_prefix, quarantine, remove_temporary, write_identity};
use crate::scan::{Behind, look_behind, walk};
use crate::segment::SegmentHeader;
use crate::source::{FileSource, Source};

/// What a repair did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repair {
    /// What was wrong; empty in a sound log. An unfinished last batch is nothing: opening cuts it off.
    pub damages: Vec<Corruption>,
    /// What lay among the segments and was none of the log's; it was moved away.
    pub foreign: Vec<PathBuf>,
    /// The last record of the log as it is now.
    pub kept: Lsn,
    /// The first and the last record that are known to be given up, if any are. There may have been more.
    pub given_up: Option<(Lsn, Lsn)>,
    /// The copies of everything that was cut off or moved away.
    pub quarantined: Vec<PathBuf>,
    /// Those of the copies that are whole segments.
    pub whole_segments: Vec<WholeSegment>,
}

/// A segment that has no damage itself and was given up for the damage before it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WholeSegment {
    /// Its copy, without the zeros at its end.
    pub copy: PathBuf,
    /// Its first record.
    pub first: Lsn,
    /// Its last.
    pub last: Lsn,
}

/// Cuts a damaged log back to what is before the damage, so that it opens. Does nothing to a sound one.
///
/// # Errors
/// The log is in use, its identity is gone, it has a newer format, or the disk fails. What was done is done; it can be
/// run again.
pub fn repair(fs: &dyn Fs, dir: &Path) -> Result<Repair, OpenError> {
    let layout = Layout::new(dir);
    let _lock = fs.lock(&layout.root.join("LOCK"))?;
    let mut repair = Repair::default();
    loop {
        let identity = read_identity(fs, &layout)?
            .ok_or_else(|| OpenError::Identity { path: layout.identity(), found: "missing".to_owned() })?;
        let found = survey(fs, &layout)?;
        remove_temporary(fs, &layout.wal, &found.temporary)?;
        let act = Act { fs, layout: &layout, identity: &identity };
        if let Some((path, kind)) = found.foreign.first() {
            act.move_away(path, *kind, &mut repair)?;
            continue;
        }
        let mut summaries = Vec::new();
        let read = read_segments(fs, &layout, &identity, &found, &mut summaries, &mut |_| Ok(()));
        repair.kept = summaries.last().map_or(Lsn::NONE, |summary: &SegmentSummary| summary.last_lsn);
        let damage = match read {
            Ok(_) => return Ok(repair),
            Err(OpenError::Corrupt(damage)) => *damage,
            Err(error) => return Err(error),
        };
        // Every round removes a file or shortens one; the same damage twice would be a mistake of ours.
        assert!(!repair.damages.contains(&damage), "a repair repeats itself: {damage}");
        act.mend(&damage, &found, &summaries, &mut repair)?;
        repair.damages.push(damage);
    }
}

struct Act<'a> {
    fs: &'a dyn Fs,
    layout: &'a Layout,
    identity: &'a Identity,
}

impl Act<'_> {
    fn mend(
        &self,
        damage: &Corruption,
        found: &Survey,
        summaries: &[SegmentSummary],
        repair: &mut Repair,
    ) -> Result<(), OpenError> {
        let name = damage.path.file_name().and_then(|name| name.to_str()).map(Name::parse);
        let cut = if let Some(Name::Segment(first_lsn)) = name { Some((first_lsn, damage.offset)) } else { None };
        if let Some((first_lsn, offset)) = cut {
            self.copy_from(first_lsn, offset, found, repair)?;
        }
        // What is removed must not be missed afterwards. Without a place in a segment, the newest are missing already.
        let is_kept = |it: &&SegmentSummary| cut.is_none_or(|(lsn, offset)| it.first_lsn < lsn || offset > 0);
        let newest_segment_seq = summaries.iter().rev().find(is_kept).map_or(0, |summary| summary.segment_seq);
        write_identity(self.fs, self.layout, &Identity { newest_segment_seq, ..*self.identity })?;
        match cut {
            Some((first_lsn, offset)) => self.cut_from(first_lsn, offset, found),
            None => Ok(()),
        }
    }

    fn move_away(&self, path: &Path, kind: EntryKind, repair: &mut Repair) -> Result<(), OpenError> {
        if kind != EntryKind::File {
            return Err(foreign(path, kind));
        }
        let file = self.fs.open(path).map_err(OpenError::io("opened", path))?;
        let mut bytes = vec![0; file.len().map_err(OpenError::io("measured", path))? as usize];
        let count = read_full_at(&*file, &mut bytes, 0).map_err(OpenError::io("read", path))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let copy = self.layout.quarantine.join(format!("foreign-{:08x}-{name}", crc32c::crc32c(&bytes[..count])));
        write_file_atomically(self.fs, &copy, &bytes[..count]).map_err(OpenError::io("written", &copy))?;
        self.remove(path)?;
        repair.foreign.push(path.to_path_buf());
        repair.quarantined.push(copy);
        Ok(())
    }

    /// Copies everything from `offset` of a segment on, later segments whole.
    fn copy_from(&self, first_lsn: Lsn, offset: u64, found: &Survey, repair: &mut Repair) -> Result<(), OpenError> {
        let mut last_given_up = Lsn::NONE;
        for lsn in found.segments.iter().copied().filter(|&lsn| lsn >= first_lsn) {
            let from = if lsn == first_lsn { offset } else { 0 };
            let behind = self.look(lsn, from)?;
            last_given_up = last_given_up.max(behind.last_lsn).max(if lsn > first_lsn { lsn } else { Lsn::NONE });
            if let Some(until) = behind.nonzero_until {
                let torn = quarantine(self.fs, self.layout, lsn, from, until)
                    .map_err(|error| error.on_open(&self.layout.root, until - from))?;
                if lsn > first_lsn
                    && let Some((first, last)) = self.records_if_whole(lsn)?
                {
                    repair.whole_segments.push(WholeSegment { copy: torn.quarantined.clone(), first, last });
                }
                repair.quarantined.push(torn.quarantined);
            }
        }
        let first_given_up = if offset == 0 { first_lsn } else { repair.kept.next() };
        if last_given_up >= first_given_up {
            let (first, last) = repair.given_up.unwrap_or((first_given_up, last_given_up));
            repair.given_up = Some((first.min(first_given_up), last.max(last_given_up)));
        }
        Ok(())
    }

    /// Removes what was copied, the last first.
    fn cut_from(&self, first_lsn: Lsn, offset: u64, found: &Survey) -> Result<(), OpenError> {
        for &lsn in found.segments.iter().rev().filter(|&&lsn| lsn >= first_lsn) {
            if lsn > first_lsn || offset == 0 {
                self.remove(&self.layout.segment(lsn))?;
            } else {
                self.shorten(lsn, offset)?;
            }
        }
        Ok(())
    }

    fn look(&self, lsn: Lsn, from: u64) -> Result<Behind, OpenError> {
        let path = self.layout.segment(lsn);
        look_behind(&mut self.source(&path)?, self.identity, None, from).map_err(OpenError::io("read", &path))
    }

    /// The first and the last record of a segment that is sound in itself, whatever lies before it.
    fn records_if_whole(&self, lsn: Lsn) -> Result<Option<(Lsn, Lsn)>, OpenError> {
        let path = self.layout.segment(lsn);
        let mut source = self.source(&path)?;
        let Some(header) = self.header(&mut source, &path)? else { return Ok(None) };
        let walked = walk(&mut source, self.identity, &header, &mut |_| Ok(()))
            .map_err(|error| OpenError::io("read", &path)(std::io::Error::other(error)))?;
        let rest = look_behind(&mut source, self.identity, None, walked.end).map_err(OpenError::io("read", &path))?;
        let is_whole = rest.nonzero_until.is_none() && walked.records > 0;
        Ok(is_whole.then(|| (header.first_lsn, walked.chain.next_lsn.previous())))
    }

    fn shorten(&self, lsn: Lsn, end: u64) -> Result<(), OpenError> {
        let path = self.layout.segment(lsn);
        // The walk went beyond block 0, so it was sound a moment ago.
        let header = self.header(&mut self.source(&path)?, &path)?;
        let header = header.ok_or_else(|| OpenError::io("read", &path)(std::io::ErrorKind::InvalidData.into()))?;
        let header = SegmentHeader { bytes: end + BLOCK_BYTES as u64, ..header };
        copy_prefix(self.fs, self.layout, &self.identity.key, &header, end)
            .map(drop)
            .map_err(|error| error.on_open(&self.layout.root, end))
    }

    fn source(&self, path: &Path) -> Result<FileSource, OpenError> {
        let file = self.fs.open(path).map_err(OpenError::io("opened", path))?;
        FileSource::with_window(file, Vec::new()).map_err(OpenError::io("measured", path))
    }

    fn header(&self, source: &mut FileSource, path: &Path) -> Result<Option<SegmentHeader>, OpenError> {
        let block = source.at(0, BLOCK_BYTES).map_err(OpenError::io("read", path))?;
        Ok(block.first_chunk().and_then(|block| SegmentHeader::decode(block, &self.identity.key).ok()))
    }

    fn remove(&self, path: &Path) -> Result<(), OpenError> {
        self.fs.remove_file(path).map_err(OpenError::io("removed", path))?;
        self.fs.sync_dir(&self.layout.wal).map_err(OpenError::io("synced", &self.layout.wal))
    }
}
