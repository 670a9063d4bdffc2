//! Segments made ahead of time: written full of zeros and synced, so that a commit neither allocates nor waits for
//! metadata, and `install`, which gives one its place in the log.

use std::io;
use std::path::PathBuf;

use crate::fs::{File, Fs, write_all_at, write_zeros_at};
use crate::identity::LogKey;
use crate::name::Layout;
use crate::options::SyncPolicy;
use crate::segment::SegmentHeader;
use crate::write_error::WriteError;

/// Written and synced in steps, so that a commit beside it never waits behind more.
pub(crate) const STEP_BYTES: u64 = 1 << 20;

/// A file of zeros that is no segment yet.
pub(crate) struct Spare {
    pub(crate) file: Box<dyn File>,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

/// Where the appender gets its next segment from.
pub(crate) trait SpareSource {
    fn take(&mut self) -> Result<Spare, WriteError>;

    /// The active segment is filled up to `end` of its `bytes`: the sooner it is full, the sooner a spare is needed.
    fn advance(&mut self, end: u64, bytes: u64) {
        let _ = (end, bytes);
    }

    /// Takes back a spare that could not be installed for want of space.
    fn put_back(&mut self, spare: Spare);
}

/// Makes a spare: takes all its space at once, and then fills it as fast as `pace` lets it, which is told how many
/// bytes are filled and says whether to go on. What there is of it is removed again if the disk is full or it may not.
pub(crate) fn make_spare(
    fs: &dyn Fs,
    path: PathBuf,
    bytes: u64,
    sync: SyncPolicy,
    pace: &dyn Fn(u64) -> bool,
) -> Result<Spare, WriteError> {
    let file = fs.create_new(&path).map_err(WriteError::io("created", &path))?;
    let spare = Spare { file, path, bytes };
    match fill(&spare, sync, pace) {
        Ok(()) => Ok(spare),
        Err(error) => {
            if !matches!(error, WriteError::Broken { .. }) {
                // Cutting it gives the space back even where removing the name fails.
                let cut = spare.file.set_len(0);
                let removed = fs.remove_file(&spare.path);
                cut.and(removed).map_err(WriteError::io("removed", &spare.path))?;
            }
            Err(error)
        }
    }
}

fn fill(spare: &Spare, sync: SyncPolicy, pace: &dyn Fn(u64) -> bool) -> Result<(), WriteError> {
    match spare.file.allocate(spare.bytes) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
        allocated => allocated.map_err(WriteError::io("allocated", &spare.path))?,
    }
    let mut done = 0;
    while done < spare.bytes {
        if !pace(done) {
            return Err(WriteError::Stopped);
        }
        let step = STEP_BYTES.min(spare.bytes - done);
        write_zeros_at(&*spare.file, done, step).map_err(WriteError::io("written", &spare.path))?;
        done += step;
        if sync == SyncPolicy::Always {
            spare.file.sync_data().map_err(WriteError::sync(&spare.path))?;
        }
    }
    if sync == SyncPolicy::Always {
        spare.file.sync_all().map_err(WriteError::sync(&spare.path))?;
    }
    Ok(())
}

/// Writes block 0 and gives the spare its name: after this returns, the segment is part of the log.
pub(crate) fn install(
    fs: &dyn Fs,
    layout: &Layout,
    key: &LogKey,
    spare: &Spare,
    header: &SegmentHeader,
    sync: SyncPolicy,
) -> Result<(), WriteError> {
    let path = layout.segment(header.first_lsn);
    write_all_at(&*spare.file, &header.encode(key), 0)
        .map_err(|partial| WriteError::io("written", &spare.path)(partial.source))?;
    if sync == SyncPolicy::Always {
        spare.file.sync_data().map_err(WriteError::sync(&spare.path))?;
    }
    fs.rename(&spare.path, &path).map_err(WriteError::io("renamed", &spare.path))?;
    if sync == SyncPolicy::Always {
        fs.sync_dir(&layout.wal).map_err(WriteError::sync(&layout.wal))?;
    }
    Ok(())
}
