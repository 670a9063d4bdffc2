//! Segments made ahead of time, so that a commit neither allocates nor waits for metadata, and `install`, which gives one
//! its place in the log.
//!
//! A spare owns all its space from the start and reads as zeros. Where nothing was ever written, a commit also has to
//! wait until the file system has noted that something was: that is dear for a small batch and cheap for a large one,
//! while zeros written ahead cost what they weigh. So they are written for small batches only.

use std::io;
use std::path::PathBuf;

use crate::crash_point::crash_point;
use crate::fs::{File, Fs, write_all_at, write_zeros_at};
use crate::identity::LogKey;
use crate::name::Layout;
use crate::options::SyncPolicy;
use crate::segment::SegmentHeader;
use crate::write_error::WriteError;

/// Zeros are written and synced in steps, so that a commit beside it never waits behind more.
pub(crate) const STEP_BYTES: u64 = 512 << 10;

/// A batch of up to this many bytes is written faster over zeros, by more than the zeros cost (measured on ext4: 88
/// and 123 us at 4 KiB; 181 and 311 us at 136 KiB, where the zeros take 110).
pub(crate) const SMALL_FRAME_BYTES: u64 = 64 << 10;

/// A file of zeros that is no segment yet.
pub(crate) struct Spare {
    pub(crate) file: Box<dyn File>,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// Up to here zeros were written; behind it the file only has the space.
    pub(crate) filled_bytes: u64,
}

/// Where the appender gets its next segment from.
pub(crate) trait SpareSource {
    fn take(&mut self) -> Result<Spare, WriteError>;

    /// A batch was written: what the next ones will be like.
    fn advance(&mut self, frame_bytes: u64) {
        let _ = frame_bytes;
    }

    /// Takes back a spare that could not be installed for want of space.
    fn put_back(&mut self, spare: Spare);
}

/// Makes a spare with all its space; where the file system cannot do that, by filling it. What there is of it is
/// removed again if the disk is full.
pub(crate) fn make_spare(fs: &dyn Fs, path: PathBuf, bytes: u64, sync: SyncPolicy) -> Result<Spare, WriteError> {
    let file = fs.create_new(&path).map_err(WriteError::io("created", &path))?;
    let mut spare = Spare { file, path, bytes, filled_bytes: 0 };
    let taken = match spare.file.allocate(bytes) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => fill(&mut spare, sync),
        allocated => allocated.map_err(WriteError::io("allocated", &spare.path)),
    };
    let synced = taken.and_then(|()| match sync {
        SyncPolicy::Always => spare.file.sync_all().map_err(WriteError::sync(&spare.path)),
        SyncPolicy::Os => Ok(()),
    });
    match synced {
        Ok(()) => Ok(spare),
        Err(error) => Err(discard(fs, &spare, error)),
    }
}

/// Makes a spare and writes all its zeros.
pub(crate) fn make_filled(fs: &dyn Fs, path: PathBuf, bytes: u64, sync: SyncPolicy) -> Result<Spare, WriteError> {
    let mut spare = make_spare(fs, path, bytes, sync)?;
    match fill(&mut spare, sync) {
        Ok(()) => Ok(spare),
        Err(error) => Err(discard(fs, &spare, error)),
    }
}

/// Writes the next zeros, if there is room for more.
pub(crate) fn fill_step(spare: &mut Spare, sync: SyncPolicy) -> Result<(), WriteError> {
    let step = STEP_BYTES.min(spare.bytes - spare.filled_bytes);
    write_zeros_at(&*spare.file, spare.filled_bytes, step).map_err(WriteError::io("written", &spare.path))?;
    if sync == SyncPolicy::Always {
        spare.file.sync_data().map_err(WriteError::sync(&spare.path))?;
    }
    spare.filled_bytes += step;
    Ok(())
}

fn fill(spare: &mut Spare, sync: SyncPolicy) -> Result<(), WriteError> {
    while spare.filled_bytes < spare.bytes {
        fill_step(spare, sync)?;
    }
    Ok(())
}

/// Removes a spare for which there is no space. Cutting it gives the space back even where removing the name fails.
fn discard(fs: &dyn Fs, spare: &Spare, error: WriteError) -> WriteError {
    if matches!(error, WriteError::Broken { .. }) {
        return error;
    }
    let cut = spare.file.set_len(0);
    let removed = fs.remove_file(&spare.path);
    cut.and(removed).map_err(WriteError::io("removed", &spare.path)).err().unwrap_or(error)
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
    crash_point("segment.header_synced");
    fs.rename(&spare.path, &path).map_err(WriteError::io("renamed", &spare.path))?;
    crash_point("segment.renamed");
    if sync == SyncPolicy::Always {
        fs.sync_dir(&layout.wal).map_err(WriteError::sync(&layout.wal))?;
    }
    crash_point("segment.dirsynced");
    Ok(())
}
