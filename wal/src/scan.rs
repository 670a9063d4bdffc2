//! Which batches a segment holds, and why the walk stopped: bytes in, records and a verdict out.
//!
//! A walk goes from batch to batch as long as each is the one that must come next. Where that ends it says what it
//! expected, what it found, and whether a crash could have left that. [`look_behind`] then looks for evidence: a valid
//! header behind the stop could only have been written after the batch before it was synced.

use std::io;

use thiserror::Error;

use crate::frame::{BLOCK_BYTES, BatchHeader, FORMAT_VERSION, HEADER_BYTES, HeaderFault, MAX_BODY_BYTES};
use crate::identity::Identity;
use crate::lsn::Lsn;
use crate::records::split_first;
use crate::segment::SegmentHeader;
use crate::source::Source;

/// One record as recovery shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its position.
    pub lsn: Lsn,
    /// Its kind, as it was pushed.
    pub kind: u8,
    /// Its bytes, as they were pushed.
    pub body: &'a [u8],
    /// The wall clock, in milliseconds since 1970, when its batch was written.
    pub batch_wall_ms: u64,
}

/// Whoever reads the records; an error ends the walk.
pub(crate) type Visit<'v> = dyn FnMut(Entry<'_>) -> Result<(), String> + 'v;

/// What the next batch must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    pub(crate) next_lsn: Lsn,
    pub(crate) next_batch_seq: u64,
    pub(crate) prev_head_crc: u32,
    pub(crate) prev_blocks: u32,
}

impl Chain {
    /// At the start of a segment.
    pub(crate) fn at_start(header: &SegmentHeader) -> Self {
        Self {
            next_lsn: header.first_lsn,
            next_batch_seq: header.first_batch_seq,
            prev_head_crc: header.prev_head_crc(),
            prev_blocks: 1,
        }
    }

    /// Behind one more batch.
    pub(crate) fn step(&mut self, header: &BatchHeader, head_crc: u32) {
        self.next_lsn = header.first_lsn.plus(u64::from(header.record_count));
        self.next_batch_seq = header.batch_seq.saturating_add(1);
        self.prev_head_crc = head_crc;
        self.prev_blocks = (header.frame_bytes() / BLOCK_BYTES) as u32;
    }
}

/// How far a walk came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Walked {
    pub(crate) chain: Chain,
    /// Behind the last good batch.
    pub(crate) end: u64,
    pub(crate) batches: u64,
    pub(crate) records: u64,
    /// The `durable_lsn` of the last good batch.
    pub(crate) vouched: Lsn,
    pub(crate) last_wall_ms: u64,
    pub(crate) generation: u64,
    pub(crate) stop: Stop,
}

/// Why a walk ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Sealed,
    Defect(Defect),
}

/// What stood where the next batch should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Defect {
    pub(crate) cause: Cause,
    pub(crate) expected: String,
    pub(crate) found: String,
}

/// Whether a crash explains a defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The last write of a process that died may look like this.
    Torn,
    /// No torn write has valid checksums.
    Impossible,
    Newer(u16),
}

#[derive(Debug, Error)]
pub(crate) enum WalkError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("record {lsn} was refused: {reason}")]
    Visitor { lsn: Lsn, reason: String },
}

/// Walks the batches of one segment, from block 1 on.
pub(crate) fn walk(
    source: &mut dyn Source,
    identity: &Identity,
    segment: &SegmentHeader,
    visit: &mut Visit<'_>,
) -> Result<Walked, WalkError> {
    let mut walked = Walked {
        chain: Chain::at_start(segment),
        end: BLOCK_BYTES as u64,
        batches: 0,
        records: 0,
        vouched: Lsn::NONE,
        last_wall_ms: segment.created_wall_ms,
        generation: 0,
        stop: Stop::Sealed,
    };
    loop {
        let (header, head_crc) = match next_header(source, identity, segment.segment_seq, &walked)? {
            Ok(found) => found,
            Err(defect) => {
                walked.stop = Stop::Defect(defect);
                return Ok(walked);
            }
        };
        let frame = source.at(walked.end, header.frame_bytes())?;
        if let Err(defect) = check_body(&header, frame) {
            walked.stop = Stop::Defect(defect);
            return Ok(walked);
        }
        let body = &frame[HEADER_BYTES..HEADER_BYTES + header.body_len as usize];
        if let Some(defect) = visit_records(&header, body, visit)? {
            walked.stop = Stop::Defect(defect);
            return Ok(walked);
        }
        walked.chain.step(&header, head_crc);
        walked.end += header.frame_bytes() as u64;
        walked.batches += 1;
        walked.records += u64::from(header.record_count);
        walked.vouched = header.durable_lsn;
        walked.last_wall_ms = header.wall_ms;
        walked.generation = walked.generation.max(header.generation);
        if header.is_seal {
            return Ok(walked);
        }
    }
}

/// The header at the end of what was walked, if it is the one that must come next and its lengths can be used.
fn next_header(
    source: &mut dyn Source,
    identity: &Identity,
    segment_seq: u64,
    walked: &Walked,
) -> io::Result<Result<(BatchHeader, u32), Defect>> {
    let left = source.len().saturating_sub(walked.end);
    let Some(bytes) = source.at(walked.end, HEADER_BYTES)?.first_chunk::<HEADER_BYTES>() else {
        return Ok(Err(Defect::torn("a batch header", format!("the end of the file after {left} bytes"))));
    };
    let (header, head_crc) = match BatchHeader::decode(bytes, &identity.key) {
        Ok(found) => found,
        Err(fault) => return Ok(Err(fault.into())),
    };
    if let Err(defect) = check_place(&header, identity, segment_seq, &walked.chain) {
        return Ok(Err(defect));
    }
    let needed = header.frame_bytes() as u64;
    if needed > left {
        return Ok(Err(Defect::torn(
            format!("a batch of {needed} bytes"),
            format!("{left} bytes to the end of the file"),
        )));
    }
    Ok(Ok((header, head_crc)))
}

/// A header with a valid checksum in the wrong place was misdirected or belongs to another time.
fn check_place(header: &BatchHeader, identity: &Identity, segment_seq: u64, chain: &Chain) -> Result<(), Defect> {
    let fields = [
        ("segment", segment_seq, header.segment_seq),
        ("batch", chain.next_batch_seq, header.batch_seq),
        ("first record", chain.next_lsn.0, header.first_lsn.0),
        ("checksum of the batch before", chain.prev_head_crc.into(), header.prev_head_crc.into()),
        ("blocks of the batch before", chain.prev_blocks.into(), header.prev_blocks.into()),
    ];
    if header.log_id != identity.log_id {
        return Err(Defect::impossible(format!("log {}", identity.log_id), format!("log {}", header.log_id)));
    }
    for (name, expected, found) in fields {
        if expected != found {
            return Err(Defect::impossible(format!("{name} {expected}"), format!("{name} {found}")));
        }
    }
    if header.body_len as usize > MAX_BODY_BYTES {
        return Err(Defect::impossible(
            format!("a body of at most {MAX_BODY_BYTES} bytes"),
            format!("one of {}", header.body_len),
        ));
    }
    if header.durable_lsn >= header.first_lsn {
        return Err(Defect::impossible(
            format!("durable records before {}", header.first_lsn),
            format!("durable up to {}", header.durable_lsn),
        ));
    }
    Ok(())
}

fn check_body(header: &BatchHeader, frame: &[u8]) -> Result<(), Defect> {
    let end = HEADER_BYTES + header.body_len as usize;
    let (Some(body), Some(padding)) = (frame.get(HEADER_BYTES..end), frame.get(end..header.frame_bytes())) else {
        return Err(Defect::torn(
            format!("a batch of {} bytes", header.frame_bytes()),
            format!("{} bytes", frame.len()),
        ));
    };
    let found = crc32c::crc32c(body);
    if found != header.body_crc {
        return Err(Defect::torn(format!("body checksum {:08x}", header.body_crc), format!("{found:08x}")));
    }
    if is_blank(padding) { Ok(()) } else { Err(Defect::torn("zeros behind the body", "other bytes")) }
}

/// Whether at most a block of bytes is all zeros (a `memcmp`: most of a tail is blank).
fn is_blank(bytes: &[u8]) -> bool {
    const ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
    bytes == &ZEROS[..bytes.len()]
}

fn visit_records(header: &BatchHeader, body: &[u8], visit: &mut Visit<'_>) -> Result<Option<Defect>, WalkError> {
    let mut rest = body;
    let mut lsn = header.first_lsn;
    for index in 0..header.record_count {
        let (kind, record, after) = match split_first(rest) {
            Ok(split) => split,
            Err(malformed) => {
                return Ok(Some(Defect::impossible(
                    format!("{} records in the body", header.record_count),
                    format!("{malformed} after {index}"),
                )));
            }
        };
        visit(Entry { lsn, kind, body: record, batch_wall_ms: header.wall_ms })
            .map_err(|reason| WalkError::Visitor { lsn, reason })?;
        lsn = lsn.next();
        rest = after;
    }
    Ok((!rest.is_empty()).then(|| {
        Defect::impossible(
            format!("{} records in the body", header.record_count),
            format!("{} bytes behind them", rest.len()),
        )
    }))
}

/// What lies behind the place where a walk stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Behind {
    /// The end of the last byte that is not zero.
    pub(crate) nonzero_until: Option<u64>,
    /// The first valid header that is not at the stop itself.
    pub(crate) stray: Option<(u64, BatchHeader)>,
    /// The highest `durable_lsn` in any valid header.
    pub(crate) proof: Lsn,
    /// The last record that any valid header speaks of.
    pub(crate) last_lsn: Lsn,
}

/// Looks at every block from `from` to the end for headers of a segment, or of any.
pub(crate) fn look_behind(
    source: &mut dyn Source,
    identity: &Identity,
    segment_seq: Option<u64>,
    from: u64,
) -> io::Result<Behind> {
    let mut behind = Behind::default();
    let mut offset = from;
    while offset < source.len() {
        let block = source.at(offset, BLOCK_BYTES)?;
        if block.is_empty() {
            break;
        }
        if !is_blank(block) {
            let last = block.iter().rposition(|&byte| byte != 0).unwrap_or(0);
            behind.nonzero_until = Some(offset + last as u64 + 1);
            let header = block.first_chunk().and_then(|head| BatchHeader::decode(head, &identity.key).ok());
            if let Some((header, _)) = header
                && header.log_id == identity.log_id
                && segment_seq.is_none_or(|segment_seq| header.segment_seq == segment_seq)
            {
                behind.proof = behind.proof.max(header.durable_lsn);
                behind.last_lsn = behind.last_lsn.max(header.first_lsn.plus(u64::from(header.record_count)).previous());
                if offset != from && behind.stray.is_none() {
                    behind.stray = Some((offset, header));
                }
            }
        }
        offset += BLOCK_BYTES as u64;
    }
    Ok(behind)
}

impl Defect {
    pub(crate) fn torn(expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self { cause: Cause::Torn, expected: expected.into(), found: found.into() }
    }

    pub(crate) fn impossible(expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self { cause: Cause::Impossible, expected: expected.into(), found: found.into() }
    }
}

impl From<HeaderFault> for Defect {
    fn from(fault: HeaderFault) -> Self {
        let expected = "a batch header";
        match fault {
            HeaderFault::Blank => Self::torn(expected, "zeros"),
            HeaderFault::NoMagic => Self::torn(expected, "other bytes"),
            HeaderFault::Checksum { expected, found } => {
                Self::torn(format!("header checksum {expected:08x}"), format!("{found:08x}"))
            }
            HeaderFault::Reserved => Self::impossible(expected, "reserved bits that are set"),
            HeaderFault::Newer(version) => Self {
                cause: Cause::Newer(version),
                expected: format!("version {FORMAT_VERSION}"),
                found: format!("version {version}"),
            },
        }
    }
}
