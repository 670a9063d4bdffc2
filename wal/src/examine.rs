//! What a log's directory holds, told without opening, locking or changing it; the log may be in use.

use std::path::{Path, PathBuf};

use crate::error::{Corruption, OpenError};
use crate::fs::Fs;
use crate::identity::{Identity, LogId};
use crate::lsn::Lsn;
use crate::name::Layout;
use crate::read::{SegmentSummary, Tail, check_names, read_identity, read_segments, survey};
use crate::scan::{Entry, Visit};

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
    read_records(fs, dir, &mut |_| Ok(()))
}

/// Reads a whole log, shows every good record once and in order, and says what is there, damage included: what lies
/// behind a damage is not shown.
///
/// # Errors
/// [`OpenError::Visitor`] where a record was refused, and whatever [`inspect`] says.
pub fn read_records(
    fs: &dyn Fs,
    dir: &Path,
    visit: &mut dyn FnMut(Entry<'_>) -> Result<(), String>,
) -> Result<Inspection, OpenError> {
    let layout = Layout::new(dir);
    let identity = read_identity(fs, &layout)?
        .ok_or_else(|| OpenError::Identity { path: layout.identity(), found: "missing".to_owned() })?;
    // Another attempt begins at the first record again: what was good stays as it was, and is not shown twice.
    let mut shown = Lsn::NONE;
    let mut visit = |entry: Entry<'_>| {
        if entry.lsn <= shown {
            return Ok(());
        }
        shown = entry.lsn;
        visit(entry)
    };
    let mut before = None;
    for _ in 1..ATTEMPTS {
        let inspection = read_once(fs, &layout, &identity, &mut visit)?;
        let Ending::Damaged(damage) = &inspection.ending else { return Ok(inspection) };
        if before.as_ref() == Some(damage) {
            return Ok(inspection);
        }
        before = Some(damage.clone());
    }
    read_once(fs, &layout, &identity, &mut visit)
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

fn read_once(
    fs: &dyn Fs,
    layout: &Layout,
    identity: &Identity,
    visit: &mut Visit<'_>,
) -> Result<Inspection, OpenError> {
    let found = survey(fs, layout)?;
    let mut segments = Vec::new();
    let read = read_segments(fs, layout, identity, &found, &mut segments, visit);
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
        temporary: found.temporary,
        foreign: found.foreign.into_iter().map(|(path, _)| path).collect(),
        quarantined,
    })
}
