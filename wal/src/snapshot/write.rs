//! How a snapshot gets onto the disk: temporary file, sync, read back, rename, sync of the directory.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use thiserror::Error;
use tracing::{info, warn};

use super::format::{Encoder, Fault, Header, MAX_CHUNK_BYTES, Size, read};
use super::keep::keep;
use crate::crash_point::crash_point;
use crate::fs::{File, Fs, is_no_space, write_all_at};
use crate::identity::Identity;
use crate::lsn::Lsn;
use crate::name::Layout;
use crate::options::Archive;
use crate::source::FileSource;
use crate::writer::Shared;

/// Written in pieces of this size, each synced: a sync of the log beside it never waits behind more.
const PIECE_BYTES: usize = 4 << 20;
/// How long to wait until the log is asked again whether it is durable.
const DURABLE_RETRY: Duration = Duration::from_millis(2);

/// Why there is no new snapshot. The log and the snapshots before it are as they were.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Another one is being written.
    #[error("another snapshot is being written: finish or drop it first")]
    Busy,
    /// It is no newer than the one that is there, or speaks of records that do not exist.
    #[error(
        "a snapshot up to record {at} is not behind the one up to {newest} and within the {last} records there are"
    )]
    Position {
        /// Where it was to end.
        at: Lsn,
        /// Where the newest one ends.
        newest: Lsn,
        /// The last record.
        last: Lsn,
    },
    /// A chunk is empty or longer than 4 MiB.
    #[error("a chunk of {bytes} bytes: give 1 to {MAX_CHUNK_BYTES}")]
    Chunk {
        /// How long it is.
        bytes: usize,
    },
    /// The log was poisoned or is being closed, and will never say that the records of the snapshot are durable.
    #[error("the log ended before the records of the snapshot were durable")]
    LogEnded,
    /// There is no room for it.
    #[error("{path} has no room for a snapshot: free some space; it is tried again")]
    NoSpace {
        /// The file.
        path: PathBuf,
    },
    /// What was read back is not what was written.
    #[error("{path} was read back and is not what was written: at byte {offset} expected {expected}, found {found}")]
    ReadBack {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What should be there.
        expected: String,
        /// What is there.
        found: String,
    },
    /// The system refused something.
    #[error("{path} could not be {what}: {source}")]
    Io {
        /// What was being done, as a participle.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl SnapshotError {
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| if is_no_space(&source) { Self::NoSpace { path } } else { Self::Io { what, path, source } }
    }
}

/// A snapshot that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshotted {
    /// The last record that is in it.
    pub at: Lsn,
    /// Bytes of its file.
    pub bytes: u64,
    /// Segments that left the log for it.
    pub pruned: u64,
    /// How long it took from its beginning.
    pub took: Duration,
}

/// What snapshots of one log have in common.
pub(crate) struct Keeper {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) layout: Layout,
    pub(crate) identity: Identity,
    pub(crate) archive: Archive,
    /// Where the newest snapshot ends.
    pub(crate) newest: AtomicU64,
    pub(crate) is_busy: AtomicBool,
}

/// A snapshot that is being written; dropped before [`SnapshotWriter::finish`], it leaves nothing.
pub struct SnapshotWriter {
    file: Option<SnapshotFile>,
    keeper: Arc<Keeper>,
    shared: Arc<Shared>,
    started: Instant,
}

impl SnapshotWriter {
    pub(crate) fn begin(keeper: Arc<Keeper>, shared: Arc<Shared>, at: Lsn) -> Result<Self, SnapshotError> {
        let (newest, last) = (Lsn(keeper.newest.load(Ordering::Acquire)), shared.lock().queue.last());
        if at <= newest || at > last {
            return Err(SnapshotError::Position { at, newest, last });
        }
        if keeper.is_busy.swap(true, Ordering::AcqRel) {
            return Err(SnapshotError::Busy);
        }
        let mut writer = Self { file: None, keeper, shared, started: Instant::now() };
        let Keeper { fs, layout, identity, .. } = &*writer.keeper;
        writer.file = Some(SnapshotFile::begin(&**fs, layout, identity, at, writer.shared.time.wall_ms())?);
        Ok(writer)
    }

    /// Appends a chunk of 1 to 4 MiB, which is shown as one chunk again.
    ///
    /// # Errors
    /// See [`SnapshotError`]; the snapshot is not there then.
    pub fn write(&mut self, chunk: &[u8]) -> Result<(), SnapshotError> {
        let file = self.file.as_mut().ok_or(SnapshotError::Busy)?;
        file.write(chunk)
    }

    /// Ends the snapshot: once its records are durable and it was read back from the disk it gets its name, and what
    /// it makes superfluous goes.
    ///
    /// # Errors
    /// See [`SnapshotError`]. Where only what is superfluous could not be removed, that is told to the log's reader and
    /// tried again with the next snapshot.
    pub fn finish(mut self) -> Result<Snapshotted, SnapshotError> {
        let Some(file) = self.file.take() else { return Err(SnapshotError::Busy) };
        let at = file.at;
        let size = file.settle(&*self.keeper.fs, || self.wait_until_durable(at))?;
        self.keeper.newest.store(at.0, Ordering::Release);
        let pruned = self.keeper.keep(self.shared.time.wall_ms()).unwrap_or_else(|error| {
            warn!(%error, "what a snapshot made superfluous could not be removed");
            0
        });
        let took = self.started.elapsed();
        info!(at = at.0, bytes = size.file_bytes, pruned, took_ms = took.as_millis() as u64, "a snapshot is there");
        Ok(Snapshotted { at, bytes: size.file_bytes, pruned, took })
    }

    /// A snapshot must not vouch for what the log may lose.
    fn wait_until_durable(&self, at: Lsn) -> Result<(), SnapshotError> {
        while Lsn(self.shared.durable.load(Ordering::Acquire)) < at {
            if self.shared.health.poison().is_some() || self.shared.is_stopping() {
                return Err(SnapshotError::LogEnded);
            }
            std::thread::sleep(DURABLE_RETRY);
        }
        Ok(())
    }
}

impl Drop for SnapshotWriter {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            file.discard(&*self.keeper.fs);
        }
        self.keeper.is_busy.store(false, Ordering::Release);
    }
}

impl std::fmt::Debug for SnapshotWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SnapshotWriter").field("at", &self.file.as_ref().map(|file| file.at)).finish_non_exhaustive()
    }
}

impl Keeper {
    #[cfg(test)]
    pub(crate) fn for_tests(fs: Arc<dyn Fs>, layout: Layout, identity: Identity, archive: Archive) -> Self {
        let (newest, is_busy) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { fs, layout, identity, archive, newest, is_busy }
    }

    /// Removes what the newest snapshots make superfluous; says how many segments left the log.
    pub(crate) fn keep(&self, wall_ms: u64) -> Result<u64, SnapshotError> {
        keep(&*self.fs, &self.layout, &self.identity, self.archive, wall_ms)
    }
}

/// The file of a snapshot before it has its name; no thread, no clock.
pub(crate) struct SnapshotFile {
    pub(crate) at: Lsn,
    layout: Layout,
    identity: Identity,
    path: PathBuf,
    file: Box<dyn File>,
    encoder: Encoder,
    /// What is not written yet...
    piece: Vec<u8>,
    /// ...and where it goes.
    offset: u64,
}

impl SnapshotFile {
    pub(crate) fn begin(
        fs: &dyn Fs,
        layout: &Layout,
        identity: &Identity,
        at: Lsn,
        wall_ms: u64,
    ) -> Result<Self, SnapshotError> {
        let path = layout.unfinished_snapshot(at);
        match fs.remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(SnapshotError::io("removed", &path)(error));
            }
            _ => {}
        }
        let file = fs.create_new(&path).map_err(SnapshotError::io("created", &path))?;
        crash_point("snap.tmp_created");
        let mut piece = Vec::new();
        let header = Header { log_id: identity.log_id, lsn: at, created_wall_ms: wall_ms };
        let encoder = Encoder::begin(&header, identity.key, &mut piece);
        Ok(Self { at, layout: layout.clone(), identity: *identity, path, file, encoder, piece, offset: 0 })
    }

    pub(crate) fn write(&mut self, chunk: &[u8]) -> Result<(), SnapshotError> {
        if chunk.is_empty() || chunk.len() > MAX_CHUNK_BYTES {
            return Err(SnapshotError::Chunk { bytes: chunk.len() });
        }
        self.encoder.chunk(chunk, &mut self.piece);
        if self.piece.len() >= PIECE_BYTES {
            self.flush()?;
            self.file.sync_data().map_err(SnapshotError::io("synced", &self.path))?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SnapshotError> {
        write_piece(&*self.file, &self.piece, self.offset, &self.path)?;
        self.offset += self.piece.len() as u64;
        self.piece.clear();
        Ok(())
    }

    /// `durable` returns once the log has the records. On an error the file goes.
    pub(crate) fn settle(
        self,
        fs: &dyn Fs,
        durable: impl FnOnce() -> Result<(), SnapshotError>,
    ) -> Result<Size, SnapshotError> {
        let path = self.path.clone();
        let settled = self.settle_or_leave(fs, durable);
        if settled.is_err()
            && let Err(error) = fs.remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            warn!(path = %path.display(), %error, "an unfinished snapshot could not be removed");
        }
        settled
    }

    fn settle_or_leave(
        self,
        fs: &dyn Fs,
        durable: impl FnOnce() -> Result<(), SnapshotError>,
    ) -> Result<Size, SnapshotError> {
        let Self { at, layout, identity, path, file, encoder, mut piece, offset } = self;
        let size = encoder.end(&mut piece);
        let half = piece.len() / 2;
        write_piece(&*file, &piece[..half], offset, &path)?;
        crash_point("snap.half_written");
        write_piece(&*file, &piece[half..], offset + half as u64, &path)?;
        file.sync_all().map_err(SnapshotError::io("synced", &path))?;
        crash_point("snap.synced");
        file.forget_cached();
        drop(file);
        durable()?;
        read_back(fs, &identity, &path, at)?;
        crash_point("snap.verified");
        let name = layout.snapshot(at);
        fs.rename(&path, &name).map_err(SnapshotError::io("renamed", &path))?;
        crash_point("snap.renamed");
        fs.sync_dir(&layout.snap).map_err(SnapshotError::io("synced", &layout.snap))?;
        crash_point("snap.dirsynced");
        Ok(size)
    }

    fn discard(self, fs: &dyn Fs) {
        if let Err(error) = fs.remove_file(&self.path) {
            warn!(path = %self.path.display(), %error, "an unfinished snapshot could not be removed");
        }
    }
}

fn write_piece(file: &dyn File, piece: &[u8], offset: u64, path: &Path) -> Result<(), SnapshotError> {
    write_all_at(file, piece, offset).map_err(|partial| SnapshotError::io("written", path)(partial.source))
}

/// What is not what was written never gets its name.
fn read_back(fs: &dyn Fs, identity: &Identity, path: &Path, at: Lsn) -> Result<(), SnapshotError> {
    let file = fs.open(path).map_err(SnapshotError::io("opened", path))?;
    let mut source = FileSource::with_window(file, Vec::new()).map_err(SnapshotError::io("measured", path))?;
    let (offset, expected, found) = match read(&mut source, identity, at, &mut |_| Ok(())) {
        Ok(_) => return Ok(()),
        Err(Fault::Io(source)) => return Err(SnapshotError::io("read", path)(source)),
        Err(Fault::Damaged { offset, expected, found }) => (offset, expected, found),
        Err(Fault::Newer(version)) => (0, "our format".to_owned(), format!("version {version}")),
        Err(Fault::Refused(reason)) => (0, "chunks".to_owned(), reason),
    };
    Err(SnapshotError::ReadBack { path: path.to_path_buf(), offset, expected, found })
}
