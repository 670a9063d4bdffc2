//! The logs of a data directory, read record by record without a lock; they may be in use.

use std::path::{Path, PathBuf};

use countwheel_wal::{Corruption, Ending, Inspection, OsFs, read_past};
use indicatif::ProgressBar;

use crate::{
    error::OpenError,
    kernel::{gate::Lsn, id::ScheduleId, shard::chronicle::Chronicle, time::UnixMs},
    shell::{directory::shard_paths, tzdata::TzdataError},
};

/// So many records pass between two words of progress.
const STEP: u64 = 1 << 16;

/// Why nothing can be told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum PastError {
    /// Nobody's data is there.
    #[error("{}: it holds no IDENTITY: give a server's data directory with --data", dir.display())]
    NoData {
        /// The directory.
        dir: PathBuf,
    },
    /// The zone rules that were given cannot be used.
    #[error(transparent)]
    Zones(#[from] TzdataError),
    /// The directory is not whole.
    #[error(transparent)]
    Directory(#[from] OpenError),
    /// A log cannot be read, or its records cannot be followed.
    #[error("{}: {source}", dir.display())]
    Log {
        /// The shard's directory.
        dir: PathBuf,
        /// The log's own words.
        source: countwheel_wal::OpenError,
    },
}

/// A data directory's logs, one a shard.
#[derive(Debug)]
pub(super) struct Logs {
    shards: Vec<PathBuf>,
}

/// How much of a shard's past its log holds.
#[derive(Debug)]
pub(super) struct Covered {
    /// The shard.
    pub(super) shard: u16,
    /// Its directory.
    pub(super) dir: PathBuf,
    /// Its first record and its last; (0, 0) if there is none.
    pub(super) records: (u64, u64),
    /// Engine time of both.
    pub(super) span: Option<(UnixMs, UnixMs)>,
    /// How the log ends.
    pub(super) ending: &'static str,
    /// What keeps the rest of it from being read.
    pub(super) damage: Option<Box<Corruption>>,
    /// The first record and the file's name of each segment.
    segments: Vec<(u64, String)>,
}

impl Logs {
    pub(super) fn open(dir: &Path) -> Result<Self, PastError> {
        if !dir.join("IDENTITY").is_file() {
            return Err(PastError::NoData { dir: dir.to_path_buf() });
        }
        Ok(Self { shards: shard_paths(dir)? })
    }

    pub(super) fn shards(&self) -> impl Iterator<Item = u16> {
        0..u16::try_from(self.shards.len()).unwrap_or(u16::MAX)
    }

    /// The shard that a schedule lives in.
    pub(super) fn shard_of(&self, schedule: ScheduleId) -> u16 {
        let shards = u16::try_from(self.shards.len()).unwrap_or(u16::MAX);
        schedule.slot().shard(shards)
    }

    /// Shows a shard's whole log to a chronicle.
    pub(super) fn follow(&self, shard: u16, chronicle: &mut Chronicle) -> Result<Covered, PastError> {
        let dir = &self.shards[usize::from(shard)];
        let mut covered = Covered {
            shard,
            dir: dir.clone(),
            records: (0, 0),
            span: None,
            ending: "no record yet",
            damage: None,
            segments: Vec::new(),
        };
        // A server that is just being made: its shards come one after another.
        if !dir.join("wal").is_dir() {
            return Ok(covered);
        }
        // Hidden where nobody looks at a terminal.
        let progress = ProgressBar::new_spinner();
        let read = read_past(&OsFs, dir, &mut |entry: countwheel_wal::Entry<'_>| {
            if entry.lsn.0 % STEP == 0 {
                progress.set_message(format!("shard {shard}: record {}", entry.lsn));
                progress.tick();
            }
            chronicle.take(Lsn(entry.lsn.0), entry.kind, entry.body).map_err(|error| error.to_string())
        });
        progress.finish_and_clear();
        covered.fill(read.map_err(|source| PastError::Log { dir: dir.clone(), source })?);
        covered.span = chronicle.span();
        Ok(covered)
    }
}

impl Covered {
    fn fill(&mut self, read: Inspection) {
        let first = read.segments.first().map_or(0, |segment| segment.first_lsn.0);
        self.records = (first.min(read.last.0), read.last.0);
        self.segments = read
            .segments
            .iter()
            .map(|segment| (segment.first_lsn.0, segment.path.file_name().unwrap_or_default().to_string_lossy().into()))
            .collect();
        self.ending = match &read.ending {
            Ending::Empty => "no segment yet",
            Ending::Sealed => "closed",
            Ending::Open => "in use, or its process was killed",
            Ending::Torn { .. } => "in use, or its last write was cut short",
            Ending::Damaged(_) => "damaged behind its last record",
            _ => "of an unknown end",
        };
        if let Ending::Damaged(damage) = read.ending {
            self.damage = Some(damage);
        }
    }

    /// The segment that holds a record.
    pub(super) fn segment(&self, lsn: Lsn) -> &str {
        let behind = self.segments.partition_point(|(first, _)| *first <= lsn.0);
        behind.checked_sub(1).map_or("", |place| &self.segments[place].1)
    }
}
