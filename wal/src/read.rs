//! What a log's directory holds, read from its first segment to its last without changing anything.
//!
//! Recovery as a table. "Last" is the segment with the highest name; D is where the walk over its batches stopped.
//!
//! | # | found | answer |
//! |---|---|---|
//! | 1 | `IDENTITY` missing, `wal/` empty | a new log |
//! | 2 | `IDENTITY` missing or damaged, segments there | refuse: nothing can be checked |
//! | 3 | `IDENTITY` says "not begun", `wal/` empty | a new log: a crash came before the first segment |
//! | 4 | `IDENTITY` names a segment newer than any that is there | refuse: the newest segments are missing |
//! | 5 | `*.tmp` in `wal/` | deleted: unfinished work |
//! | 6 | any other name, a directory, a symbolic link in `wal/` | refuse: a foreign file |
//! | 7 | block 0 damaged, of another log, or unlike its name | refuse |
//! | 8 | a format version above ours | refuse by name |
//! | 9 | no segment holds the record behind the snapshot, or predecessor does not fit | refuse: a segment is missing or foreign |
//! | 10 | not last, and not valid up to a SEAL with zeros behind it | refuse: damage among durable records |
//! | 11 | last ends with SEAL and zeros, or the file with it | clean: the next segment begins |
//! | 12 | last ends with SEAL and other bytes | refuse |
//! | 13 | D: valid checksum, wrong place or shape | refuse: no torn write looks like that |
//! | 14 | behind D: a header with `durable_lsn` >= the LSN expected at D | refuse: durable records are damaged |
//! | 15 | behind D: any other valid header | refuse: batches are written one at a time |
//! | 16 | D, and the file is shorter than it was made | refuse: it was cut |
//! | 17 | D and behind: zeros | open end: the prefix is everything |
//! | 18 | D and behind: anything else | torn: bytes go to quarantine, the prefix is everything |
//!
//! After 17 and 18 the prefix is written anew, since the page cache may show what a failed sync never put on disk.

use std::path::{Path, PathBuf};

use crate::error::{Corruption, OpenError};
use crate::frame::{BLOCK_BYTES, FORMAT_VERSION};
use crate::fs::{EntryKind, Fs, read_full_at};
use crate::identity::{IDENTITY_BYTES, Identity, IdentityFault};
use crate::lsn::Lsn;
use crate::name::{Layout, Name};
use crate::scan::{Behind, Cause, Chain, Defect, Entry, Stop, Visit, WalkError, Walked, look_behind, walk};
use crate::segment::{MAX_SEGMENT_BYTES, Predecessor, SegmentFault, SegmentHeader};
use crate::snapshot::read_archived;
use crate::source::{FileSource, Source};

/// What one segment holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentSummary {
    /// The file.
    pub path: PathBuf,
    /// Its length.
    pub file_bytes: u64,
    /// How much of it is used by good batches, block 0 included.
    pub used_bytes: u64,
    /// Its number; grows by one with each segment.
    pub segment_seq: u64,
    /// The first record it may hold.
    pub first_lsn: Lsn,
    /// The last good record it holds; the one before `first_lsn` if it holds none.
    pub last_lsn: Lsn,
    /// Good batches, markers and SEAL included.
    pub batches: u64,
    /// Good records.
    pub records: u64,
    /// Whether it ends with a SEAL.
    pub is_sealed: bool,
    /// When it was made, in milliseconds since 1970.
    pub created_wall_ms: u64,
    /// When its last good batch was written.
    pub last_wall_ms: u64,
    /// The highest generation in its batches.
    pub generation: u64,
}

/// The names in `wal/`.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// First LSNs of the segments, ascending.
    pub(crate) segments: Vec<Lsn>,
    pub(crate) temporary: Vec<PathBuf>,
    /// What must not be there, with what it is.
    pub(crate) foreign: Vec<(PathBuf, EntryKind)>,
}

/// How the last segment ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    Sealed,
    Open,
    /// Bytes of an unfinished batch up to here.
    Torn {
        until: u64,
    },
}

/// Where a log that was read ends.
#[derive(Debug)]
pub(crate) struct LogEnd {
    pub(crate) header: SegmentHeader,
    pub(crate) walked: Walked,
    pub(crate) tail: Tail,
}

pub(crate) fn read_identity(fs: &dyn Fs, layout: &Layout) -> Result<Option<Identity>, OpenError> {
    let path = layout.identity();
    let file = match fs.open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(OpenError::io("opened", &path)(error)),
    };
    let mut bytes = [0; IDENTITY_BYTES + 1];
    let count = read_full_at(&*file, &mut bytes, 0).map_err(OpenError::io("read", &path))?;
    match Identity::decode(&bytes[..count]) {
        Ok(identity) => Ok(Some(identity)),
        Err(IdentityFault::Newer(found)) => Err(OpenError::NewerFormat { path, found, supported: 1 }),
        Err(fault) => Err(OpenError::Identity { path, found: format!("damaged ({fault:?})") }),
    }
}

pub(crate) fn survey(fs: &dyn Fs, layout: &Layout) -> Result<Survey, OpenError> {
    let mut survey = Survey::default();
    for entry in fs.list(&layout.wal).map_err(OpenError::io("listed", &layout.wal))? {
        let path = layout.wal.join(&entry.name);
        match (Name::parse(&entry.name), entry.kind) {
            (Name::Segment(lsn), EntryKind::File) => survey.segments.push(lsn),
            (Name::Temporary, EntryKind::File) => survey.temporary.push(path),
            (_, kind) => survey.foreign.push((path, kind)),
        }
    }
    survey.segments.sort_unstable();
    survey.foreign.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(survey)
}

/// Row 6.
pub(crate) fn check_names(survey: &Survey) -> Result<(), OpenError> {
    match survey.foreign.first() {
        Some((path, kind)) => Err(foreign(path, *kind)),
        None => Ok(()),
    }
}

pub(crate) fn foreign(path: &Path, kind: EntryKind) -> OpenError {
    let found = match kind {
        EntryKind::File => "a file with another name",
        EntryKind::Dir => "a directory",
        EntryKind::Symlink => "a symbolic link",
        EntryKind::Other => "something that is no file",
    };
    OpenError::Foreign { path: path.to_path_buf(), found }
}

/// Reads every segment in order, shows every record, and says how the log ends, if it has a segment. `summaries` gets
/// what was read, also when the answer is an error.
pub(crate) fn read_segments(
    fs: &dyn Fs,
    layout: &Layout,
    identity: &Identity,
    survey: &Survey,
    summaries: &mut Vec<SegmentSummary>,
    visit: &mut Visit<'_>,
) -> Result<Option<LogEnd>, OpenError> {
    read_behind(fs, layout, identity, survey, Lsn::NONE, summaries, visit)
}

/// As [`read_segments`], for whoever knows what the records up to `base` came to: segments that hold only those are not
/// looked at, and need not be there.
pub(crate) fn read_behind(
    fs: &dyn Fs,
    layout: &Layout,
    identity: &Identity,
    survey: &Survey,
    base: Lsn,
    summaries: &mut Vec<SegmentSummary>,
    visit: &mut Visit<'_>,
) -> Result<Option<LogEnd>, OpenError> {
    read_past(fs, layout, identity, (&[], survey), base, summaries, visit)
}

/// As [`read_behind`], beginning with segments from the archive, which go before those in `survey`.
pub(crate) fn read_past(
    fs: &dyn Fs,
    layout: &Layout,
    identity: &Identity,
    (archive, survey): (&[(Lsn, Lsn)], &Survey),
    base: Lsn,
    summaries: &mut Vec<SegmentSummary>,
    visit: &mut Visit<'_>,
) -> Result<Option<LogEnd>, OpenError> {
    let mut reader = Reader { fs, layout, identity, base, predecessor: None, chain: None, window: Vec::new() };
    let mut visit = |entry: Entry<'_>| if entry.lsn <= base { Ok(()) } else { visit(entry) };
    let mut end = None;
    for &(first_lsn, last_lsn) in archive.iter().filter(|(_, last_lsn)| *last_lsn > base) {
        end = Some(reader.read_archived(first_lsn, last_lsn, summaries, &mut visit)?);
    }
    let needed = survey.segments.partition_point(|first_lsn| *first_lsn <= base.next()).saturating_sub(1);
    for (index, &first_lsn) in survey.segments.iter().enumerate().skip(needed) {
        let is_last = index + 1 == survey.segments.len();
        end = Some(reader.read_segment(first_lsn, is_last, summaries, &mut visit)?);
    }
    check_newest(layout, identity, end.as_ref())?;
    Ok(end)
}

/// Row 4.
fn check_newest(layout: &Layout, identity: &Identity, end: Option<&LogEnd>) -> Result<(), OpenError> {
    let last_seq = end.map_or(0, |end| end.header.segment_seq);
    if last_seq >= identity.newest_segment_seq {
        return Ok(());
    }
    let next_lsn = end.map_or(Lsn::FIRST, |end| end.walked.chain.next_lsn);
    let expected = format!("segments up to number {}", identity.newest_segment_seq);
    let found = if last_seq == 0 { "none".to_owned() } else { format!("none after number {last_seq}") };
    Err(corruption(layout, &layout.wal, 0, next_lsn, &expected, &found))
}

struct Reader<'r> {
    fs: &'r dyn Fs,
    layout: &'r Layout,
    identity: &'r Identity,
    /// What is in the records up to here is known.
    base: Lsn,
    predecessor: Option<Predecessor>,
    chain: Option<Chain>,
    window: Vec<u8>,
}

impl Reader<'_> {
    fn read_segment(
        &mut self,
        first_lsn: Lsn,
        is_last: bool,
        summaries: &mut Vec<SegmentSummary>,
        visit: &mut Visit<'_>,
    ) -> Result<LogEnd, OpenError> {
        let path = self.layout.segment(first_lsn);
        let file = self.fs.open(&path).map_err(OpenError::io("opened", &path))?;
        let mut source = FileSource::with_window(file, std::mem::take(&mut self.window))
            .map_err(OpenError::io("measured", &path))?;
        let end = self.read_source(&path, &mut source, (first_lsn, is_last), summaries, visit)?;
        self.window = source.into_window();
        Ok(end)
    }

    fn read_archived(
        &mut self,
        first_lsn: Lsn,
        last_lsn: Lsn,
        summaries: &mut Vec<SegmentSummary>,
        visit: &mut Visit<'_>,
    ) -> Result<LogEnd, OpenError> {
        let path = self.layout.archived_segment(first_lsn, last_lsn);
        let bytes = read_archived(self.fs, &path)?;
        self.read_source(&path, &mut bytes.as_slice(), (first_lsn, false), summaries, visit)
    }

    fn read_source(
        &mut self,
        path: &Path,
        source: &mut dyn Source,
        (first_lsn, is_last): (Lsn, bool),
        summaries: &mut Vec<SegmentSummary>,
        visit: &mut Visit<'_>,
    ) -> Result<LogEnd, OpenError> {
        let header = self.read_header(source, first_lsn, path)?;
        let walked = walk(source, self.identity, &header, visit).map_err(|error| match error {
            WalkError::Io(source) => OpenError::Io { what: "read", path: path.to_path_buf(), source },
            WalkError::Visitor { lsn, reason } => OpenError::Visitor { lsn, reason },
        })?;
        summaries.push(summary(path, source.len(), &header, &walked));
        let behind = look_behind(source, self.identity, Some(header.segment_seq), walked.end)
            .map_err(OpenError::io("read", path))?;
        let short = (source.len() < header.bytes).then_some((header.bytes, source.len()));
        let tail = judge(&walked, &behind, is_last, short)
            .map_err(|defect| self.refusal(path, walked.end, walked.chain.next_lsn, &defect))?;
        self.predecessor = Some(Predecessor {
            segment_seq: header.segment_seq,
            last_lsn: walked.chain.next_lsn.previous(),
            bytes: walked.end,
            last_head_crc: walked.chain.prev_head_crc,
        });
        self.chain = Some(walked.chain);
        Ok(LogEnd { header, walked, tail })
    }

    /// Rows 7 to 9.
    fn read_header(&self, source: &mut dyn Source, first_lsn: Lsn, path: &Path) -> Result<SegmentHeader, OpenError> {
        let file_bytes = source.len();
        if file_bytes > MAX_SEGMENT_BYTES {
            let defect = Defect::impossible(format!("at most {MAX_SEGMENT_BYTES} bytes"), format!("{file_bytes}"));
            return Err(self.refusal(path, 0, first_lsn, &defect));
        }
        let block = source.at(0, BLOCK_BYTES).map_err(OpenError::io("read", path))?;
        let Some(block) = block.first_chunk::<BLOCK_BYTES>() else {
            let defect = Defect::impossible("a segment header", format!("a file of {file_bytes} bytes"));
            return Err(self.refusal(path, 0, first_lsn, &defect));
        };
        let header = SegmentHeader::decode(block, &self.identity.key)
            .map_err(|fault| self.refusal(path, 0, first_lsn, &fault.into()))?;
        self.check_header(&header, first_lsn).map_err(|defect| self.refusal(path, 0, first_lsn, &defect))?;
        Ok(header)
    }

    fn check_header(&self, header: &SegmentHeader, first_lsn: Lsn) -> Result<(), Defect> {
        let differs = |what: &str, expected: &dyn std::fmt::Display, found: &dyn std::fmt::Display| {
            Err(Defect::impossible(format!("{what} {expected}"), format!("{what} {found}")))
        };
        if header.log_id != self.identity.log_id {
            return differs("log", &self.identity.log_id, &header.log_id);
        }
        if header.first_lsn != first_lsn {
            return differs("first record", &first_lsn, &header.first_lsn);
        }
        // What was before the first segment that is read is known from a snapshot.
        if self.chain.is_none() && self.base > Lsn::NONE && header.first_lsn <= self.base.next() {
            return Ok(());
        }
        if header.predecessor != self.predecessor {
            return Err(Defect::impossible(described(self.predecessor), described(header.predecessor)));
        }
        let next_lsn = self.chain.map_or(self.base.next(), |chain| chain.next_lsn);
        if header.first_lsn != next_lsn {
            return differs("first record", &next_lsn, &header.first_lsn);
        }
        let next_batch_seq = self.chain.map_or(1, |chain| chain.next_batch_seq);
        if header.first_batch_seq != next_batch_seq {
            return differs("first batch", &next_batch_seq, &header.first_batch_seq);
        }
        let before = self.predecessor.map_or(0, |predecessor| predecessor.segment_seq);
        if header.segment_seq <= before {
            return differs("segment after", &before, &header.segment_seq);
        }
        Ok(())
    }

    fn refusal(&self, path: &Path, offset: u64, lsn: Lsn, defect: &Defect) -> OpenError {
        match defect.cause {
            Cause::Newer(found) => {
                OpenError::NewerFormat { path: path.to_path_buf(), found, supported: FORMAT_VERSION }
            }
            Cause::Torn | Cause::Impossible => {
                corruption(self.layout, path, offset, lsn, &defect.expected, &defect.found)
            }
        }
    }
}

/// Rows 10 to 18. `short` says how long a file was made that is shorter, and how long it is.
fn judge(walked: &Walked, behind: &Behind, is_last: bool, short: Option<(u64, u64)>) -> Result<Tail, Defect> {
    let defect = match &walked.stop {
        Stop::Sealed if behind.nonzero_until.is_some() => {
            return Err(Defect::impossible("zeros behind the SEAL", "other bytes"));
        }
        Stop::Sealed => return Ok(Tail::Sealed),
        Stop::Defect(defect) => defect,
    };
    if !is_last || defect.cause != Cause::Torn {
        return Err(defect.clone());
    }
    if behind.proof >= walked.chain.next_lsn {
        let proof = format!("{} although records up to {} are durable", defect.found, behind.proof);
        return Err(Defect::impossible(defect.expected.clone(), proof));
    }
    if let Some((offset, header)) = behind.stray {
        let stray = format!("{}, and batch {} at byte {offset} behind it", defect.found, header.batch_seq);
        return Err(Defect::impossible(defect.expected.clone(), stray));
    }
    if let Some((made_bytes, file_bytes)) = short {
        let expected = format!("a SEAL, or a file of {made_bytes} bytes as it was made");
        return Err(Defect::impossible(expected, format!("a file of {file_bytes} bytes, cut short")));
    }
    Ok(behind.nonzero_until.map_or(Tail::Open, |until| Tail::Torn { until }))
}

fn summary(path: &Path, file_bytes: u64, header: &SegmentHeader, walked: &Walked) -> SegmentSummary {
    SegmentSummary {
        path: path.to_path_buf(),
        file_bytes,
        used_bytes: walked.end,
        segment_seq: header.segment_seq,
        first_lsn: header.first_lsn,
        last_lsn: walked.chain.next_lsn.previous(),
        batches: walked.batches,
        records: walked.records,
        is_sealed: walked.stop == Stop::Sealed,
        created_wall_ms: header.created_wall_ms,
        last_wall_ms: walked.last_wall_ms,
        generation: walked.generation,
    }
}

fn described(predecessor: Option<Predecessor>) -> String {
    match predecessor {
        None => "no segment before it".to_owned(),
        Some(Predecessor { segment_seq, last_lsn, bytes, last_head_crc }) => format!(
            "segment {segment_seq} before it (up to record {last_lsn}, {bytes} bytes, checksum {last_head_crc:08x})"
        ),
    }
}

fn corruption(layout: &Layout, path: &Path, offset: u64, lsn: Lsn, expected: &str, found: &str) -> OpenError {
    OpenError::Corrupt(Box::new(Corruption {
        path: path.to_path_buf(),
        dir: layout.root.clone(),
        offset,
        lsn,
        expected: expected.to_owned(),
        found: found.to_owned(),
    }))
}

impl From<SegmentFault> for Defect {
    fn from(fault: SegmentFault) -> Self {
        match fault {
            SegmentFault::NoMagic => Self::impossible("a segment header", "other bytes"),
            SegmentFault::Checksum { expected, found } => {
                Self::impossible(format!("header checksum {expected:08x}"), format!("{found:08x}"))
            }
            SegmentFault::Newer(version) => {
                Self { cause: Cause::Newer(version), ..Self::impossible("a version we know", format!("{version}")) }
            }
        }
    }
}
