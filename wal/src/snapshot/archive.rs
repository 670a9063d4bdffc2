//! The archive: segments and snapshots that the log needs no more, compressed, for whoever asks what happened.
//!
//! `{first_lsn}-{last_lsn}.wal.zst` is a segment's used bytes, `{lsn}.snap.zst` a snapshot's, each as one zstd stream
//! with a checksum. Both were written by the log before; compressing adds no claim of its own. The archive is read by
//! `explain` and `history`, never to open a log.
//!
//! Where the beginning of the archive has expired, its records say little without what was there before them. So a
//! snapshot is kept now and then: everything behind it can be told.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::write::SnapshotError;
use crate::crash_point::crash_point;
use crate::error::OpenError;
use crate::fs::{EntryKind, File, Fs, read_full_at, write_all_at};
use crate::identity::Identity;
use crate::lsn::Lsn;
use crate::name::{ArchiveName, Layout};
use crate::options::Archive;
use crate::scan::walk;
use crate::segment::{MAX_SEGMENT_BYTES, SegmentHeader};
use crate::source::{FileSource, Source};

/// Level 3 of zstd: a segment of 64 MiB takes a fifth of a second.
const LEVEL: i32 = 3;
/// Snapshots in the archive are at least this part of the retention apart.
const SNAPSHOTS_A_RETENTION: u32 = 4;

/// What is in the archive, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Archived {
    /// First and last record of each segment.
    pub(crate) segments: Vec<(Lsn, Lsn)>,
    /// Where each snapshot ends.
    pub(crate) snapshots: Vec<Lsn>,
    pub(crate) temporary: Vec<PathBuf>,
}

/// Lists the archive; names that are not ours are left alone.
pub(crate) fn archived(fs: &dyn Fs, layout: &Layout) -> io::Result<Archived> {
    let mut archived = Archived::default();
    let entries = match fs.list(&layout.archive) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        listed => listed?,
    };
    for entry in entries {
        match (ArchiveName::parse(&entry.name), entry.kind) {
            (ArchiveName::Segment(first, last), EntryKind::File) => archived.segments.push((first, last)),
            (ArchiveName::Snapshot(lsn), EntryKind::File) => archived.snapshots.push(lsn),
            (ArchiveName::Temporary, EntryKind::File) => archived.temporary.push(layout.archive.join(&entry.name)),
            _ => {}
        }
    }
    archived.segments.sort_unstable();
    archived.snapshots.sort_unstable();
    Ok(archived)
}

/// Puts a sealed segment into the archive, durably; does nothing if it is there.
pub(super) fn archive_segment(
    fs: &dyn Fs,
    layout: &Layout,
    identity: &Identity,
    first: Lsn,
) -> Result<(), SnapshotError> {
    let path = layout.segment(first);
    let file = fs.open(&path).map_err(SnapshotError::io("opened", &path))?;
    let mut source = FileSource::with_window(file, Vec::new()).map_err(SnapshotError::io("measured", &path))?;
    let invalid = || SnapshotError::io("read", &path)(io::ErrorKind::InvalidData.into());
    let block = source.at(0, crate::frame::BLOCK_BYTES).map_err(SnapshotError::io("read", &path))?;
    let header = block.first_chunk().and_then(|block| SegmentHeader::decode(block, &identity.key).ok());
    let header = header.ok_or_else(invalid)?;
    // What is damaged stays where it is: a person has to look, and nothing is made of it.
    let walked = walk(&mut source, identity, &header, &mut |_| Ok(())).map_err(|_| invalid())?;
    if walked.stop != crate::scan::Stop::Sealed {
        return Err(invalid());
    }
    let last = walked.chain.next_lsn.previous();
    compress(fs, layout, &path, walked.end, &layout.archived_segment(first, last))
}

/// A snapshot that is not kept any more goes into the archive, if one is wanted there, or away.
pub(super) fn retire(fs: &dyn Fs, layout: &Layout, archive: Archive, lsn: Lsn) -> Result<(), SnapshotError> {
    let path = layout.snapshot(lsn);
    if let Archive::Keep { retention } = archive {
        let there = archived(fs, layout).map_err(SnapshotError::io("listed", &layout.archive))?;
        let created = created_of(fs, &path)?;
        let latest = match there.snapshots.last() {
            Some(latest) => created_of_archived(fs, layout, *latest)?,
            None => None,
        };
        let apart = retention / SNAPSHOTS_A_RETENTION;
        if latest.is_none_or(|latest| created.saturating_sub(latest) >= millis(apart)) {
            let file = fs.open(&path).map_err(SnapshotError::io("opened", &path))?;
            let bytes = file.len().map_err(SnapshotError::io("measured", &path))?;
            drop(file);
            compress(fs, layout, &path, bytes, &layout.archived_snapshot(lsn))?;
        }
    }
    fs.remove_file(&path).map_err(SnapshotError::io("removed", &path))
}

/// Lets go of what is older than the retention, as long as a snapshot tells what was before the rest.
pub(super) fn expire(fs: &dyn Fs, layout: &Layout, archive: Archive, wall_ms: u64) -> Result<(), SnapshotError> {
    let Archive::Keep { retention } = archive else { return Ok(()) };
    let there = archived(fs, layout).map_err(SnapshotError::io("listed", &layout.archive))?;
    let end = wall_ms.saturating_sub(millis(retention));
    // The latest snapshot that is older than the retention is the base of everything that is younger.
    let mut base = None;
    for &lsn in &there.snapshots {
        if created_of_archived(fs, layout, lsn)?.is_some_and(|created| created < end) {
            base = Some(lsn);
        }
    }
    let Some(base) = base else { return Ok(()) };
    let segments = there.segments.iter().filter(|(_, last)| *last <= base);
    let segments = segments.map(|(first, last)| layout.archived_segment(*first, *last));
    let snapshots = there.snapshots.iter().filter(|lsn| **lsn < base).map(|lsn| layout.archived_snapshot(*lsn));
    let mut is_any = false;
    for path in snapshots.chain(segments) {
        fs.remove_file(&path).map_err(SnapshotError::io("removed", &path))?;
        is_any = true;
    }
    if is_any {
        fs.sync_dir(&layout.archive).map_err(SnapshotError::io("synced", &layout.archive))?;
    }
    Ok(())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn created_of(fs: &dyn Fs, path: &Path) -> Result<u64, SnapshotError> {
    let file = fs.open(path).map_err(SnapshotError::io("opened", path))?;
    let mut head = [0; 48];
    let count = read_full_at(&*file, &mut head, 0).map_err(SnapshotError::io("read", path))?;
    Ok(if count == head.len() { crate::frame::u64_at(&head, 40) } else { 0 })
}

/// When an archived snapshot was made; `None` if it cannot be told.
fn created_of_archived(fs: &dyn Fs, layout: &Layout, lsn: Lsn) -> Result<Option<u64>, SnapshotError> {
    let path = layout.archived_snapshot(lsn);
    let file = fs.open(&path).map_err(SnapshotError::io("opened", &path))?;
    let mut head = [0; 48];
    let decoder = zstd::stream::read::Decoder::new(FileReader { file, offset: 0 });
    let read = decoder.and_then(|mut decoder| decoder.read_exact(&mut head));
    Ok(read.ok().map(|()| crate::frame::u64_at(&head, 40)))
}

/// Writes the first `bytes` of `from` as a zstd stream to `to`: temporary file, sync, read back, rename, sync.
fn compress(fs: &dyn Fs, layout: &Layout, from: &Path, bytes: u64, to: &Path) -> Result<(), SnapshotError> {
    if fs.open(to).is_ok() {
        return Ok(());
    }
    let mut name = to.file_name().unwrap_or_default().to_os_string();
    name.push(".tmp");
    let tmp = layout.archive.join(name);
    match fs.remove_file(&tmp) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(SnapshotError::io("removed", &tmp)(error)),
        _ => {}
    }
    let source = fs.open(from).map_err(SnapshotError::io("opened", from))?;
    let file = fs.create_new(&tmp).map_err(SnapshotError::io("created", &tmp))?;
    let written = write_compressed(source, bytes, &*file).map_err(SnapshotError::io("written", &tmp));
    let settled = written
        .and_then(|()| file.sync_all().map_err(SnapshotError::io("synced", &tmp)))
        .and_then(|()| {
            file.forget_cached();
            check_same(fs, from, bytes, &tmp)
        })
        .map(|()| crash_point("archive.verified"))
        .and_then(|()| fs.rename(&tmp, to).map_err(SnapshotError::io("renamed", &tmp)));
    if settled.is_err() {
        // Space is what may be missing.
        let _ = fs.remove_file(&tmp);
    }
    settled?;
    fs.sync_dir(&layout.archive).map_err(SnapshotError::io("synced", &layout.archive))
}

fn write_compressed(source: Box<dyn File>, bytes: u64, file: &dyn File) -> io::Result<()> {
    let mut encoder = zstd::stream::write::Encoder::new(FileWriter { file, offset: 0 }, LEVEL)?;
    encoder.include_checksum(true)?;
    let mut reader = FileReader { file: source, offset: 0 }.take(bytes);
    let copied = io::copy(&mut reader, &mut encoder)?;
    if copied < bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    encoder.finish().map(drop)
}

fn check_same(fs: &dyn Fs, from: &Path, bytes: u64, tmp: &Path) -> Result<(), SnapshotError> {
    let compressed = fs.open(tmp).map_err(SnapshotError::io("opened", tmp))?;
    let source = fs.open(from).map_err(SnapshotError::io("opened", from))?;
    let mut plain = zstd::stream::read::Decoder::new(FileReader { file: compressed, offset: 0 })
        .map_err(SnapshotError::io("read", tmp))?;
    let mut source = FileReader { file: source, offset: 0 }.take(bytes);
    let (mut one, mut other) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    let mut offset = 0;
    loop {
        let count = fill(&mut source, &mut one).map_err(SnapshotError::io("read", from))?;
        let found = fill(&mut plain, &mut other).map_err(SnapshotError::io("read", tmp))?;
        if one[..count] != other[..found] {
            let (expected, found) = (format!("the bytes of {}", from.display()), "others".to_owned());
            return Err(SnapshotError::ReadBack { path: tmp.to_path_buf(), offset, expected, found });
        }
        if count == 0 {
            return Ok(());
        }
        offset += count as u64;
    }
}

fn fill(reader: &mut impl Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut count = 0;
    while count < buf.len() {
        match reader.read(&mut buf[count..])? {
            0 => break,
            more => count += more,
        }
    }
    Ok(count)
}

/// The bytes of what lies in the archive; at most as many as a segment has.
pub(crate) fn read_archived(fs: &dyn Fs, path: &Path) -> Result<Vec<u8>, OpenError> {
    let file = fs.open(path).map_err(OpenError::io("opened", path))?;
    let mut plain = Vec::new();
    zstd::stream::read::Decoder::new(FileReader { file, offset: 0 })
        .and_then(|decoder| decoder.take(MAX_SEGMENT_BYTES).read_to_end(&mut plain))
        .map_err(OpenError::io("read", path))?;
    Ok(plain)
}

/// A file as a stream of bytes.
struct FileReader {
    file: Box<dyn File>,
    offset: u64,
}

impl Read for FileReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buf, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

struct FileWriter<'f> {
    file: &'f dyn File,
    offset: u64,
}

impl Write for FileWriter<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        write_all_at(self.file, buf, self.offset).map_err(|partial| partial.source)?;
        self.offset += buf.len() as u64;
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
