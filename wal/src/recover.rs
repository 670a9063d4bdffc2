//! How a directory becomes a log that can be written to.
//!
//! [`crate::read`] says what is there; this module acts on it, in an order in which a crash anywhere leaves something
//! that the next recovery takes to the same records.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{info, warn};

use crate::appender::{Active, Appender, Start};
use crate::error::{Corruption, OpenError};
use crate::frame::BLOCK_BYTES;
use crate::fs::{Fs, PartialWrite, read_full_at, write_all_at, write_file_atomically, write_zeros_at};
use crate::identity::{Identity, LogId, LogKey};
use crate::lsn::Lsn;
use crate::name::Layout;
use crate::options::{Options, SyncPolicy};
use crate::read::{LogEnd, SegmentSummary, Tail, check_names, read_behind, read_identity, survey};
use crate::scan::{Chain, Entry};
use crate::segment::{Predecessor, SegmentHeader};
use crate::snapshot::{Replay, archived, load, snapshots};
use crate::spare::{install, make_filled};
use crate::write_error::WriteError;

/// What was found when a log was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// The log's id.
    pub log_id: LogId,
    /// The last record; all up to it are durable.
    pub last: Lsn,
    /// How many records were shown.
    pub records: u64,
    /// Batches, markers and SEALs included.
    pub batches: u64,
    /// Segments.
    pub segments: u64,
    /// Bytes of good batches and segment headers.
    pub bytes: u64,
    /// Whether the log was new or had been closed cleanly.
    pub is_clean: bool,
    /// Whether the disk was so full that the reserve had to be given up.
    pub used_reserve: bool,
    /// What was cut off, if the last write had been torn.
    pub torn: Option<Torn>,
    /// The highest generation in the batches; at least [`Options::generation`].
    pub generation: u64,
    /// When the last batch was written, in milliseconds since 1970; 0 in a new log.
    pub last_wall_ms: u64,
    /// The last record of the snapshot that was shown, if one was.
    pub snapshot: Option<Lsn>,
    /// Snapshots that were damaged and passed over.
    pub damaged_snapshots: Vec<PathBuf>,
    /// How long it took.
    pub took: Duration,
}

/// Bytes of an unfinished batch that were cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Torn {
    /// The segment.
    pub path: PathBuf,
    /// Where in it.
    pub offset: u64,
    /// How many, up to the last that is not zero.
    pub bytes: u64,
    /// Where the copy is.
    pub quarantined: PathBuf,
}

pub(crate) fn recover(
    fs: &Arc<dyn Fs>,
    layout: &Layout,
    options: &Options,
    wall_ms: u64,
    replay: &mut dyn Replay,
) -> Result<(Appender, Recovered, Identity), OpenError> {
    let started = Instant::now();
    let identity = load_or_make_identity(&**fs, layout, wall_ms)?;
    let found = survey(&**fs, layout)?;
    check_names(&found)?;
    let (whole, unfinished) = snapshots(&**fs, layout)?;
    let loaded = load(&**fs, layout, &identity, &whole, replay)?;
    let mut summaries = Vec::new();
    let visit = &mut |entry: Entry<'_>| replay.record(entry);
    let end = read_behind(&**fs, layout, &identity, &found, loaded.at, &mut summaries, visit)?;
    check_witness(layout, loaded.at, end.as_ref())?;
    remove_temporary(&**fs, &layout.wal, &found.temporary)?;
    remove_temporary(&**fs, &layout.snap, &unfinished)?;
    let there = archived(&**fs, layout).map_err(OpenError::io("listed", &layout.archive))?;
    remove_temporary(&**fs, &layout.archive, &there.temporary)?;
    let recovery = Recovery { fs, layout, options, identity, wall_ms, used_reserve: Cell::new(false) };
    let (active, chain, torn) = recovery.with_reserve(|| match &end {
        None => recovery.begin(SegmentHeader::first(identity.log_id, wall_ms, 0)),
        Some(end) if end.tail == Tail::Sealed => recovery.continue_behind(end),
        Some(end) => recovery.write_anew(end),
    })?;
    let identity = Identity { newest_segment_seq: active.header.segment_seq, ..identity };
    if identity != recovery.identity {
        write_identity(&**fs, layout, &identity)?;
    }
    let recovered = Recovered {
        log_id: identity.log_id,
        last: chain.next_lsn.previous(),
        records: summaries.iter().map(|summary| summary.records).sum(),
        batches: summaries.iter().map(|summary| summary.batches).sum(),
        segments: summaries.len() as u64,
        bytes: summaries.iter().map(|summary| summary.used_bytes).sum(),
        is_clean: end.as_ref().is_none_or(|end| end.tail == Tail::Sealed),
        used_reserve: recovery.used_reserve.get(),
        torn,
        generation: summaries.iter().map(|summary| summary.generation).max().unwrap_or(0).max(options.generation),
        last_wall_ms: summaries.last().map_or(0, |summary: &SegmentSummary| summary.last_wall_ms),
        snapshot: (loaded.at > Lsn::NONE).then_some(loaded.at),
        damaged_snapshots: loaded.damaged,
        took: started.elapsed(),
    };
    report(layout, &recovered);
    let vouched =
        end.map_or(Lsn::NONE, |end| if end.tail == Tail::Sealed { recovered.last } else { end.walked.vouched });
    let appender = Appender::new(Start {
        fs: Arc::clone(fs),
        layout: layout.clone(),
        identity,
        sync: options.sync,
        shard: options.shard,
        active,
        chain,
        vouched,
    });
    Ok((appender, recovered, identity))
}

/// A snapshot has seen what the log has lost.
fn check_witness(layout: &Layout, snapshot: Lsn, end: Option<&LogEnd>) -> Result<(), OpenError> {
    let last = end.map_or(Lsn::NONE, |end| end.walked.chain.next_lsn.previous());
    if last >= snapshot {
        return Ok(());
    }
    let path = end.map_or_else(|| layout.wal.clone(), |end| layout.segment(end.header.first_lsn));
    Err(OpenError::Corrupt(Box::new(Corruption {
        path,
        dir: layout.root.clone(),
        offset: end.map_or(0, |end| end.walked.end),
        lsn: last.next(),
        expected: format!("records up to {snapshot}, which a snapshot has seen"),
        found: format!("records up to {last}"),
    })))
}

/// Makes the directories of a log durably, its own included.
pub(crate) fn make_directories(fs: &dyn Fs, layout: &Layout) -> Result<(), OpenError> {
    make_directory(fs, &layout.root)?;
    let mut is_new = false;
    for path in layout.directories() {
        is_new |= fs.create_dir(&path).map_err(OpenError::io("made", &path))?;
    }
    if is_new {
        fs.sync_dir(&layout.root).map_err(OpenError::io("synced", &layout.root))?;
    }
    Ok(())
}

fn make_directory(fs: &dyn Fs, path: &Path) -> Result<(), OpenError> {
    let made = match (fs.create_dir(path), path.parent()) {
        (Err(error), Some(parent)) if error.kind() == std::io::ErrorKind::NotFound => {
            make_directory(fs, parent)?;
            fs.create_dir(path)
        }
        (made, _) => made,
    };
    if made.map_err(OpenError::io("made", path))?
        && let Some(parent) = path.parent()
    {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        fs.sync_dir(parent).map_err(OpenError::io("synced", parent))?;
    }
    Ok(())
}

/// Rows 1 to 3 of the table in [`crate::read`].
fn load_or_make_identity(fs: &dyn Fs, layout: &Layout, wall_ms: u64) -> Result<Identity, OpenError> {
    let loaded = read_identity(fs, layout)?;
    // A crash may have come between making a directory and syncing its name, or the sync of a new `IDENTITY` may have
    // failed.
    if loaded.is_none_or(|identity| !identity.has_begun())
        && let Some(parent) = layout.root.parent().filter(|parent| !parent.as_os_str().is_empty())
    {
        fs.sync_dir(parent).map_err(OpenError::io("synced", parent))?;
    }
    fs.sync_dir(&layout.root).map_err(OpenError::io("synced", &layout.root))?;
    if let Some(identity) = loaded {
        return Ok(identity);
    }
    if !survey(fs, layout)?.segments.is_empty() {
        return Err(OpenError::Identity { path: layout.identity(), found: "missing".to_owned() });
    }
    let mut random = [0; 32];
    getrandom::fill(&mut random)
        .map_err(|error| OpenError::io("made", &layout.identity())(std::io::Error::other(error.to_string())))?;
    let (mut log_id, mut key) = ([0; 16], [0; 16]);
    log_id.copy_from_slice(&random[..16]);
    key.copy_from_slice(&random[16..]);
    let identity =
        Identity { log_id: LogId(log_id), key: LogKey::new(key), created_wall_ms: wall_ms, newest_segment_seq: 0 };
    write_identity(fs, layout, &identity)?;
    Ok(identity)
}

pub(crate) fn write_identity(fs: &dyn Fs, layout: &Layout, identity: &Identity) -> Result<(), OpenError> {
    let path = layout.identity();
    write_file_atomically(fs, &path, &identity.encode()).map_err(OpenError::io("written", &path))
}

pub(crate) fn remove_temporary(fs: &dyn Fs, dir: &Path, paths: &[PathBuf]) -> Result<(), OpenError> {
    for path in paths {
        fs.remove_file(path).map_err(OpenError::io("removed", path))?;
    }
    if !paths.is_empty() {
        fs.sync_dir(dir).map_err(OpenError::io("synced", dir))?;
    }
    Ok(())
}

struct Recovery<'r> {
    fs: &'r Arc<dyn Fs>,
    layout: &'r Layout,
    options: &'r Options,
    identity: Identity,
    wall_ms: u64,
    used_reserve: Cell<bool>,
}

type Ready = (Active, Chain, Option<Torn>);

impl Recovery<'_> {
    /// Runs `act`; if the disk is full, gives up the reserve and runs it once more.
    fn with_reserve(&self, act: impl Fn() -> Result<Ready, WriteError>) -> Result<Ready, OpenError> {
        let on_open = |error: WriteError| error.on_open(&self.layout.root, self.options.segment_bytes);
        match act() {
            Err(WriteError::NoSpace) => {}
            other => return other.map_err(on_open),
        }
        let unfinished = survey(&**self.fs, self.layout)?.temporary;
        remove_temporary(&**self.fs, &self.layout.wal, &unfinished)?;
        let reserve = self.layout.reserve();
        if self.fs.remove_file(&reserve).is_err() {
            return Err(on_open(WriteError::NoSpace));
        }
        self.used_reserve.set(true);
        warn!(path = %reserve.display(), "the disk is full: the reserve was given up to open the log");
        act().map_err(on_open)
    }

    /// A segment of its own, empty.
    fn begin(&self, header: SegmentHeader) -> Result<Ready, WriteError> {
        let path = self.layout.unfinished(header.first_lsn);
        let sync = SyncPolicy::Always;
        let spare = make_filled(&**self.fs, path, self.options.first_segment_bytes(), sync)?;
        let header = SegmentHeader { bytes: spare.bytes, ..header };
        install(&**self.fs, self.layout, &self.identity.key, &spare, &header, sync)?;
        let active = Active {
            file: spare.file,
            path: self.layout.segment(header.first_lsn),
            header,
            bytes: spare.bytes,
            end: BLOCK_BYTES as u64,
            is_sealed: false,
        };
        Ok((active, Chain::at_start(&header), None))
    }

    /// Row 11. The SEAL is written once more: it may be what a failed sync left in the page cache only, and the next
    /// segment will stand on it. Meanwhile the file is as long as it was made, so that a crash which tears the SEAL
    /// leaves a torn end and no segment that was cut. A sealed segment without records gives its place, and so its name, to the next.
    fn continue_behind(&self, end: &LogEnd) -> Result<Ready, WriteError> {
        let path = self.layout.segment(end.header.first_lsn);
        let seal_at = end.walked.end - BLOCK_BYTES as u64;
        let file = self.fs.open_for_writing(&path).map_err(WriteError::io("opened", &path))?;
        let mut seal = [0; BLOCK_BYTES];
        read_full_at(&*file, &mut seal, seal_at).map_err(WriteError::io("read", &path))?;
        let was_cut = file.len().map_err(WriteError::io("measured", &path))? < end.header.bytes;
        if was_cut {
            file.set_len(end.header.bytes).map_err(WriteError::io("extended", &path))?;
            file.sync_all().map_err(WriteError::sync(&path))?;
        }
        write_all_at(&*file, &seal, seal_at).map_err(|partial| WriteError::io("written", &path)(partial.source))?;
        file.sync_all().map_err(WriteError::sync(&path))?;
        if was_cut {
            file.set_len(end.walked.end).map_err(WriteError::io("cut", &path))?;
        }
        let next = SegmentHeader {
            segment_seq: end.header.segment_seq.saturating_add(1),
            created_wall_ms: self.wall_ms,
            ..end.header
        };
        if end.walked.records == 0 {
            return self.begin(next);
        }
        self.begin(SegmentHeader {
            first_lsn: end.walked.chain.next_lsn,
            first_batch_seq: end.walked.chain.next_batch_seq,
            predecessor: Some(Predecessor {
                segment_seq: end.header.segment_seq,
                last_lsn: end.walked.chain.next_lsn.previous(),
                bytes: end.walked.end,
                last_head_crc: end.walked.chain.prev_head_crc,
            }),
            ..next
        })
    }

    /// Rows 17 and 18.
    fn write_anew(&self, end: &LogEnd) -> Result<Ready, WriteError> {
        let torn = match end.tail {
            Tail::Torn { until } => {
                Some(quarantine(&**self.fs, self.layout, end.header.first_lsn, end.walked.end, until)?)
            }
            Tail::Open | Tail::Sealed => None,
        };
        let bytes = end.walked.end + self.options.first_segment_bytes();
        let bytes = bytes.min(self.options.segment_bytes).max(end.walked.end + 2 * BLOCK_BYTES as u64);
        let header = SegmentHeader { bytes, ..end.header };
        let active = copy_prefix(&**self.fs, self.layout, &self.identity.key, &header, end.walked.end)?;
        Ok((active, end.walked.chain, torn))
    }
}

/// Copies bytes of a segment to `quarantine/`, durably, under a name that the same bytes get again.
pub(crate) fn quarantine(
    fs: &dyn Fs,
    layout: &Layout,
    first_lsn: Lsn,
    offset: u64,
    until: u64,
) -> Result<Torn, WriteError> {
    let path = layout.segment(first_lsn);
    let file = fs.open(&path).map_err(WriteError::io("opened", &path))?;
    // The caller has seen that many bytes in the file.
    let mut bytes = vec![0; until.saturating_sub(offset) as usize];
    let count = read_full_at(&*file, &mut bytes, offset).map_err(WriteError::io("read", &path))?;
    bytes.truncate(count);
    let quarantined = layout.cut(first_lsn, offset, crc32c::crc32c(&bytes));
    write_file_atomically(fs, &quarantined, &bytes).map_err(WriteError::io("written", &quarantined))?;
    Ok(Torn { path, offset, bytes: count as u64, quarantined })
}

/// Puts a new file in the place of a segment: `header`, the batches up to `end`, then zeros.
pub(crate) fn copy_prefix(
    fs: &dyn Fs,
    layout: &Layout,
    key: &LogKey,
    header: &SegmentHeader,
    end: u64,
) -> Result<Active, WriteError> {
    let (path, tmp) = (layout.segment(header.first_lsn), layout.unfinished(header.first_lsn));
    let from = fs.open(&path).map_err(WriteError::io("opened", &path))?;
    let file = fs.create_new(&tmp).map_err(WriteError::io("created", &tmp))?;
    let written = |partial: PartialWrite| WriteError::io("written", &tmp)(partial.source);
    write_all_at(&*file, &header.encode(key), 0).map_err(written)?;
    let mut chunk = vec![0; end.min(1 << 20) as usize];
    let mut done = BLOCK_BYTES as u64;
    while done < end {
        let piece = chunk.len().min((end - done) as usize);
        let count = read_full_at(&*from, &mut chunk[..piece], done).map_err(WriteError::io("read", &path))?;
        if count < piece {
            let source = std::io::ErrorKind::UnexpectedEof.into();
            return Err(WriteError::Broken { what: "read", path, source });
        }
        write_all_at(&*file, &chunk[..piece], done).map_err(written)?;
        done += piece as u64;
    }
    write_zeros_at(&*file, end, header.bytes - end).map_err(WriteError::io("written", &tmp))?;
    file.sync_all().map_err(WriteError::sync(&tmp))?;
    fs.rename(&tmp, &path).map_err(WriteError::io("renamed", &tmp))?;
    fs.sync_dir(&layout.wal).map_err(WriteError::sync(&layout.wal))?;
    Ok(Active { file, path, header: *header, bytes: header.bytes, end, is_sealed: false })
}

fn report(layout: &Layout, recovered: &Recovered) {
    if let Some(torn) = &recovered.torn {
        warn!(
            path = %torn.path.display(),
            offset = torn.offset,
            bytes = torn.bytes,
            quarantined = %torn.quarantined.display(),
            "an unfinished batch was cut off"
        );
    }
    info!(
        dir = %layout.root.display(),
        last = recovered.last.0,
        records = recovered.records,
        snapshot = recovered.snapshot.map_or(0, |at| at.0),
        segments = recovered.segments,
        bytes = recovered.bytes,
        clean = recovered.is_clean,
        took_ms = recovered.took.as_millis() as u64,
        "the log is open"
    );
}
