//! Which snapshot an open begins from: the newest that is whole.

use std::path::{Path, PathBuf};

use tracing::warn;

use super::format::{Fault, read};
use crate::error::OpenError;
use crate::frame::FORMAT_VERSION;
use crate::fs::Fs;
use crate::identity::Identity;
use crate::lsn::Lsn;
use crate::name::Layout;
use crate::scan::Entry;
use crate::source::{FileSource, Source};

/// What an open shows, in order: a snapshot's chunks, if there is one, then every record behind it. Nothing of it may be
/// acted on before the open has returned.
///
/// A closure that takes records is one; it refuses snapshots.
pub trait Replay {
    /// A snapshot that ends at `at` is shown from its beginning, or, at 0, none: whatever was shown before is void.
    ///
    /// # Errors
    /// A reason for not opening the log.
    fn restart(&mut self, at: Lsn) -> Result<(), String>;

    /// The next chunk of the snapshot, as it was written.
    ///
    /// # Errors
    /// A reason for not opening the log.
    fn chunk(&mut self, bytes: &[u8]) -> Result<(), String>;

    /// The next record.
    ///
    /// # Errors
    /// A reason for not opening the log.
    fn record(&mut self, entry: Entry<'_>) -> Result<(), String>;
}

impl<F: FnMut(Entry<'_>) -> Result<(), String>> Replay for F {
    fn restart(&mut self, at: Lsn) -> Result<(), String> {
        if at == Lsn::NONE { Ok(()) } else { Err(format!("a snapshot up to record {at} cannot be read here")) }
    }

    fn chunk(&mut self, _: &[u8]) -> Result<(), String> {
        Err("a snapshot cannot be read here".to_owned())
    }

    fn record(&mut self, entry: Entry<'_>) -> Result<(), String> {
        self(entry)
    }
}

/// What there was to begin from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Loaded {
    /// The last record in the snapshot that was shown; [`Lsn::NONE`] for none.
    pub(crate) at: Lsn,
    /// Snapshots that were damaged, the newest first.
    pub(crate) damaged: Vec<PathBuf>,
}

/// Shows the newest snapshot that is whole, of those in `snapshots` (ascending), to `replay`. What is damaged is passed
/// over; what is refused though it is as it was written, or has a newer format, is an error.
pub(crate) fn load(
    fs: &dyn Fs,
    layout: &Layout,
    identity: &Identity,
    snapshots: &[Lsn],
    replay: &mut dyn Replay,
) -> Result<Loaded, OpenError> {
    let mut loaded = Loaded::default();
    for &at in snapshots.iter().rev() {
        let path = layout.snapshot(at);
        let file = fs.open(&path).map_err(OpenError::io("opened", &path))?;
        let mut source = FileSource::with_window(file, Vec::new()).map_err(OpenError::io("measured", &path))?;
        match load_from(&path, &mut source, identity, at, replay)? {
            None => {
                loaded.at = at;
                return Ok(loaded);
            }
            Some(damage) => {
                warn!(path = %path.display(), damage, "a snapshot is damaged: the one before it is used");
                loaded.damaged.push(path);
            }
        }
    }
    if !snapshots.is_empty() {
        replay.restart(Lsn::NONE).map_err(|reason| OpenError::Snapshot { path: layout.snap.clone(), reason })?;
    }
    Ok(loaded)
}

/// Shows one snapshot; says how it is damaged, if it is.
pub(crate) fn load_from(
    path: &Path,
    source: &mut dyn Source,
    identity: &Identity,
    at: Lsn,
    replay: &mut dyn Replay,
) -> Result<Option<String>, OpenError> {
    let path = path.to_path_buf();
    if let Err(reason) = replay.restart(at) {
        return Err(OpenError::Snapshot { path, reason });
    }
    match read(source, identity, at, &mut |chunk| replay.chunk(chunk)) {
        Ok(_) => Ok(None),
        Err(Fault::Io(source)) => Err(OpenError::io("read", &path)(source)),
        Err(Fault::Newer(found)) => Err(OpenError::NewerFormat { path, found, supported: FORMAT_VERSION }),
        Err(Fault::Refused(reason)) => Err(OpenError::Snapshot { path, reason }),
        Err(Fault::Damaged { offset, expected, found }) => {
            Ok(Some(format!("at byte {offset}: expected {expected}, found {found}")))
        }
    }
}
