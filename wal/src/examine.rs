//! What a log's directory holds, told without opening, locking or changing it; the log may be in use.

use std::path::{Path, PathBuf};

use crate::error::{Corruption, OpenError};
use crate::fs::Fs;
use crate::identity::{Identity, LogId};
use crate::lsn::Lsn;
use crate::name::Layout;
use crate::read::{SegmentSummary, Tail, check_names, read_identity, read_past as read_past_of, survey};
use crate::scan::Entry;
use crate::snapshot::{Replay, archived, load_from, read_archived, snapshots};
use crate::source::FileSource;

/// A log that is written to while it is read may look damaged once. Damage that stays looks the same twice.
const ATTEMPTS: usize = 5;

/// What a log's directory holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The log's id.
    pub log_id: LogId,
    /// When it was made, in milliseconds since 1970.
    pub created_wall_ms: u64,
    /// Its segments up to the first damage, in order.
    pub segments: Vec<SegmentSummary>,
    /// The last good record.
    pub last: Lsn,
    /// How it ends, unless it is damaged.
    pub ending: Ending,
    /// The last records of the snapshots that are kept, ascending.
    pub snapshots: Vec<Lsn>,
    /// Spares and unfinished files.
    pub temporary: Vec<PathBuf>,
    /// What lies among the segments and is none of the log's; it keeps the log from being opened.
    pub foreign: Vec<PathBuf>,
    /// Bytes that recoveries and repairs have cut off.
    pub quarantined: Vec<PathBuf>,
}

/// How a log ends.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// There is no segment yet.
    Empty,
    /// It was closed.
    Sealed,
    /// It is in use, or its last process was killed between two writes.
    Open,
    /// It is in use, or its last write was cut short: the next open cuts it off.
    Torn {
        /// The segment.
        path: PathBuf,
        /// Where the unfinished batch starts.
        offset: u64,
        /// Where it ends.
        until: u64,
    },
    /// A person has to look.
    Damaged(Box<Corruption>),
}

/// Reads a whole log and says what is there, damage included.
///
/// # Errors
/// It cannot be read at all: no identity, a newer format, a failing disk.
pub fn inspect(fs: &dyn Fs, dir: &Path) -> Result<Inspection, OpenError> {
    read_again(fs, dir, false, &mut |_: Entry<'_>| Ok(()))
}

/// Reads what there is of a log's past, the archive included: from its first record on, or from the oldest snapshot behind
/// which no record is missing. Shows every good record once and in order, and says what is there, damage included: what
/// lies behind a damage is not shown. The log may be in use.
///
/// # Errors
/// [`OpenError::Visitor`] where a record was refused, [`OpenError::Snapshot`] where a snapshot was, and whatever
/// [`inspect`] says.
pub fn read_past(fs: &dyn Fs, dir: &Path, replay: &mut dyn Replay) -> Result<Inspection, OpenError> {
    read_again(fs, dir, true, replay)
}

fn read_again(fs: &dyn Fs, dir: &Path, with_archive: bool, replay: &mut dyn Replay) -> Result<Inspection, OpenError> {
    let layout = Layout::new(dir);
    let identity = read_identity(fs, &layout)?
        .ok_or_else(|| OpenError::Identity { path: layout.identity(), found: "missing".to_owned() })?;
    let mut once = Once { fs, layout, identity, with_archive, shown: Lsn::NONE };
    let mut before = None;
    for attempt in 1.. {
        let is_last = attempt == ATTEMPTS;
        let inspection = match once.read(replay) {
            // It has just left for the archive, or the archive.
            Err(OpenError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound && !is_last => continue,
            read => read?,
        };
        let Ending::Damaged(damage) = &inspection.ending else { return Ok(inspection) };
        if is_last || before.as_ref() == Some(damage) {
            return Ok(inspection);
        }
        before = Some(damage.clone());
    }
    unreachable!("the last attempt answers")
}

/// One log that is read until it looks the same twice. What was good stays as it was, and is not shown again.
struct Once<'a> {
    fs: &'a dyn Fs,
    layout: Layout,
    identity: Identity,
    with_archive: bool,
    shown: Lsn,
}

impl Once<'_> {
    fn read(&mut self, replay: &mut dyn Replay) -> Result<Inspection, OpenError> {
        let (fs, layout, identity, with_archive) =
            (self.fs, &self.layout.clone(), &{ self.identity }, self.with_archive);
        // In this order, what leaves the log for the archive meanwhile is seen in both.
        let found = survey(fs, layout)?;
        let there = archived(fs, layout).map_err(OpenError::io("listed", &layout.archive))?;
        let (kept, _) = snapshots(fs, layout)?;
        let first = found.segments.first().copied().unwrap_or(Lsn::FIRST);
        let archive = if with_archive { without_gap(&there.segments, first) } else { &[] };
        let begins = archive.first().map_or(first, |(first, _)| *first);
        let mut base = Lsn::NONE;
        if begins > Lsn::FIRST {
            base = begins.previous();
            if with_archive {
                base = self.show_base(base.max(self.shown), &there.snapshots, &kept, replay)?;
            } else if kept.last().is_none_or(|kept| *kept < base) {
                // Nothing vouches for what was before: the log has lost its beginning.
                base = Lsn::NONE;
            }
        }
        let shown = &mut self.shown;
        let mut visit = |entry: Entry<'_>| {
            if entry.lsn <= *shown {
                return Ok(());
            }
            *shown = entry.lsn;
            replay.record(entry)
        };
        let mut segments = Vec::new();
        let read = read_past_of(fs, layout, identity, (archive, &found), base, &mut segments, &mut visit);
        let ending = match read {
            Ok(None) => Ending::Empty,
            Ok(Some(end)) => match end.tail {
                Tail::Sealed => Ending::Sealed,
                Tail::Open => Ending::Open,
                Tail::Torn { until } => {
                    Ending::Torn { path: layout.segment(end.header.first_lsn), offset: end.walked.end, until }
                }
            },
            Err(OpenError::Corrupt(damage)) => Ending::Damaged(damage),
            Err(error) => return Err(error),
        };
        let quarantined = match fs.list(&layout.quarantine) {
            Ok(entries) => entries.into_iter().map(|entry| layout.quarantine.join(entry.name)).collect(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(OpenError::io("listed", &layout.quarantine)(error)),
        };
        Ok(Inspection {
            log_id: identity.log_id,
            created_wall_ms: identity.created_wall_ms,
            last: segments.last().map_or(Lsn::NONE, |segment: &SegmentSummary| segment.last_lsn),
            segments,
            ending,
            snapshots: kept,
            temporary: found.temporary,
            foreign: found.foreign.into_iter().map(|(path, _)| path).collect(),
            quarantined,
        })
    }

    /// Shows the oldest snapshot that holds everything up to `needed`, unless records behind it were shown already.
    fn show_base(
        &mut self,
        needed: Lsn,
        archived: &[Lsn],
        kept: &[Lsn],
        replay: &mut dyn Replay,
    ) -> Result<Lsn, OpenError> {
        if self.shown >= needed && self.shown > Lsn::NONE {
            return Ok(self.shown);
        }
        for &at in archived.iter().filter(|at| **at >= needed) {
            let path = self.layout.archived_snapshot(at);
            let bytes = read_archived(self.fs, &path)?;
            if load_from(&path, &mut bytes.as_slice(), &self.identity, at, replay)?.is_none() {
                self.shown = at;
                return Ok(at);
            }
        }
        for &at in kept.iter().filter(|at| **at >= needed) {
            let path = self.layout.snapshot(at);
            let file = self.fs.open(&path).map_err(OpenError::io("opened", &path))?;
            let mut source = FileSource::with_window(file, Vec::new()).map_err(OpenError::io("measured", &path))?;
            if load_from(&path, &mut source, &self.identity, at, replay)?.is_none() {
                self.shown = at;
                return Ok(at);
            }
        }
        // The reader will say which record is missing.
        Ok(Lsn::NONE)
    }
}

/// The archived segments behind which nothing is missing up to `first`.
fn without_gap(archived: &[(Lsn, Lsn)], first: Lsn) -> &[(Lsn, Lsn)] {
    let until = archived.partition_point(|(begins, _)| *begins < first);
    let (mut from, mut next) = (until, first);
    while from > 0 && archived[from - 1].1.next() == next {
        from -= 1;
        next = archived[from].0;
    }
    &archived[from..until]
}

/// Reads a whole log and checks every byte of it that is in use.
///
/// # Errors
/// [`OpenError::Corrupt`] where it is damaged, [`OpenError::Foreign`] where there is something else among the segments,
/// and whatever [`inspect`] says.
pub fn verify(fs: &dyn Fs, dir: &Path) -> Result<Inspection, OpenError> {
    let inspection = inspect(fs, dir)?;
    if let Ending::Damaged(damage) = inspection.ending {
        return Err(OpenError::Corrupt(damage));
    }
    check_names(&survey(fs, &Layout::new(dir))?)?;
    Ok(inspection)
}
