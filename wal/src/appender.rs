//! How one batch at a time gets onto the disk; no thread, no clock, no queue.
//!
//! A commit is one write and one sync at the end of the active segment. A batch that does not fit seals the segment
//! and goes into the next. When the disk is full, what was written of the batch is overwritten with zeros and the
//! same batch may be tried again; any other failure is final, and whoever calls must not use the appender any more.

use std::path::PathBuf;
use std::sync::Arc;

use crate::batch::Batch;
use crate::crash_point::crash_point;
use crate::frame::{BLOCK_BYTES, BatchHeader};
use crate::fs::{File, Fs, is_no_space, write_all_at, write_file_atomically, write_zeros_at};
use crate::identity::Identity;
use crate::lsn::Lsn;
use crate::name::Layout;
use crate::options::SyncPolicy;
use crate::scan::Chain;
use crate::segment::{Predecessor, SegmentHeader};
use crate::spare::{Spare, SpareSource, install};
use crate::write_error::WriteError;

/// What a batch says about the moment it was written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stamp {
    pub(crate) wall_ms: u64,
    pub(crate) generation: u64,
}

/// The end of a log, ready to be written to.
pub(crate) struct Appender {
    fs: Arc<dyn Fs>,
    layout: Layout,
    identity: Identity,
    sync: SyncPolicy,
    shard: u16,
    active: Active,
    chain: Chain,
    durable: Lsn,
    /// The `durable_lsn` of the last batch on disk.
    vouched: Lsn,
    /// For markers and SEALs.
    empty: Batch,
    pub(crate) counts: Counts,
}

/// The segment that is being written.
pub(crate) struct Active {
    pub(crate) file: Box<dyn File>,
    pub(crate) path: PathBuf,
    pub(crate) header: SegmentHeader,
    pub(crate) bytes: u64,
    /// Where the next batch goes.
    pub(crate) end: u64,
    pub(crate) is_sealed: bool,
}

/// What was done since the log was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) written_bytes: u64,
    pub(crate) batches: u64,
    pub(crate) segments: u64,
}

/// What an appender starts from.
pub(crate) struct Start {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) layout: Layout,
    pub(crate) identity: Identity,
    pub(crate) sync: SyncPolicy,
    pub(crate) shard: u16,
    pub(crate) active: Active,
    pub(crate) chain: Chain,
    pub(crate) vouched: Lsn,
}

impl Appender {
    /// Everything before `start.chain` must be durable.
    pub(crate) fn new(start: Start) -> Self {
        start.active.bypass_cache(start.sync);
        Self {
            fs: start.fs,
            layout: start.layout,
            identity: start.identity,
            sync: start.sync,
            shard: start.shard,
            active: start.active,
            durable: start.chain.next_lsn.previous(),
            chain: start.chain,
            vouched: start.vouched,
            empty: Batch::new(),
            counts: Counts::default(),
        }
    }

    /// The last record that is durable.
    pub(crate) const fn durable(&self) -> Lsn {
        self.durable
    }

    /// Whether records are durable that no later batch on disk says so of.
    pub(crate) fn needs_marker(&self) -> bool {
        self.vouched < self.durable
    }

    /// Writes and syncs a batch. After [`WriteError::NoSpace`] the same batch may be tried again.
    pub(crate) fn commit(
        &mut self,
        batch: &mut Batch,
        stamp: Stamp,
        spares: &mut dyn SpareSource,
    ) -> Result<(), WriteError> {
        if !self.has_room(batch.frame_bytes() + BLOCK_BYTES) {
            self.rotate(stamp, spares)?;
        }
        self.record_newest()?;
        self.write(batch, stamp, false)?;
        spares.advance(batch.frame_bytes() as u64);
        Ok(())
    }

    /// Vouches for everything durable with an empty batch; does nothing where a batch on disk does so already.
    pub(crate) fn mark(&mut self, stamp: Stamp) -> Result<(), WriteError> {
        if !self.needs_marker() || !self.has_room(BLOCK_BYTES) {
            return Ok(());
        }
        self.write_empty(stamp, false)
    }

    /// Ends the log cleanly and gives back the unused rest of its last segment.
    pub(crate) fn finish(&mut self, stamp: Stamp) -> Result<(), WriteError> {
        self.seal(stamp)?;
        crash_point("shutdown.sealed");
        let active = &self.active;
        active.file.set_len(active.end).map_err(WriteError::io("cut", &active.path))?;
        crash_point("shutdown.cut");
        if self.sync == SyncPolicy::Always {
            active.file.sync_all().map_err(WriteError::sync(&active.path))?;
        }
        Ok(())
    }

    /// A SEAL always fits in the end, and behind each batch of records a marker: commits ask for a block more.
    fn has_room(&self, frame_bytes: usize) -> bool {
        !self.active.is_sealed && self.active.end + (frame_bytes + BLOCK_BYTES) as u64 <= self.active.bytes
    }

    /// Seals the active segment and starts the next; may be done again after [`WriteError::NoSpace`].
    fn rotate(&mut self, stamp: Stamp, spares: &mut dyn SpareSource) -> Result<(), WriteError> {
        let spare = spares.take()?;
        crash_point("rotate.spare_taken");
        match self.rotate_to(&spare, stamp) {
            Ok(header) => {
                let path = self.layout.segment(header.first_lsn);
                let Spare { file, bytes, .. } = spare;
                self.active = Active { file, path, header, bytes, end: BLOCK_BYTES as u64, is_sealed: false };
                self.active.bypass_cache(self.sync);
                self.chain = Chain::at_start(&header);
                self.counts.segments += 1;
                self.counts.written_bytes += BLOCK_BYTES as u64;
                Ok(())
            }
            Err(WriteError::NoSpace) => {
                spares.put_back(spare);
                Err(WriteError::NoSpace)
            }
            Err(error) => Err(error),
        }
    }

    fn rotate_to(&mut self, spare: &Spare, stamp: Stamp) -> Result<SegmentHeader, WriteError> {
        self.seal(stamp)?;
        crash_point("rotate.sealed");
        let header = SegmentHeader {
            log_id: self.identity.log_id,
            segment_seq: self.active.header.segment_seq.saturating_add(1),
            first_lsn: self.chain.next_lsn,
            first_batch_seq: self.chain.next_batch_seq,
            predecessor: Some(Predecessor {
                segment_seq: self.active.header.segment_seq,
                last_lsn: self.chain.next_lsn.previous(),
                bytes: self.active.end,
                last_head_crc: self.chain.prev_head_crc,
            }),
            created_wall_ms: stamp.wall_ms,
            bytes: spare.bytes,
        };
        install(&*self.fs, &self.layout, &self.identity.key, spare, &header, self.sync)?;
        Ok(header)
    }

    /// `IDENTITY` must name the active segment before it holds records: whoever removes it is found out then.
    fn record_newest(&mut self) -> Result<(), WriteError> {
        let newest_segment_seq = self.active.header.segment_seq;
        if self.identity.newest_segment_seq < newest_segment_seq {
            let (path, identity) = (self.layout.identity(), Identity { newest_segment_seq, ..self.identity });
            write_file_atomically(&*self.fs, &path, &identity.encode()).map_err(WriteError::io("written", &path))?;
            self.identity = identity;
            crash_point("rotate.identity_written");
        }
        Ok(())
    }

    fn seal(&mut self, stamp: Stamp) -> Result<(), WriteError> {
        if !self.active.is_sealed {
            self.write_empty(stamp, true)?;
            self.active.is_sealed = true;
        }
        Ok(())
    }

    fn write_empty(&mut self, stamp: Stamp, is_seal: bool) -> Result<(), WriteError> {
        let mut empty = std::mem::replace(&mut self.empty, Batch::new());
        let written = self.write(&mut empty, stamp, is_seal);
        empty.clear();
        self.empty = empty;
        written
    }

    fn write(&mut self, batch: &mut Batch, stamp: Stamp, is_seal: bool) -> Result<(), WriteError> {
        let mut header = BatchHeader {
            is_seal,
            body_len: 0,
            record_count: 0,
            body_crc: 0,
            segment_seq: self.active.header.segment_seq,
            batch_seq: self.chain.next_batch_seq,
            first_lsn: self.chain.next_lsn,
            durable_lsn: self.durable,
            prev_head_crc: self.chain.prev_head_crc,
            prev_blocks: self.chain.prev_blocks,
            log_id: self.identity.log_id,
            wall_ms: stamp.wall_ms,
            generation: stamp.generation,
            shard: self.shard,
        };
        let (frame, head_crc) = batch.frame(&mut header, &self.identity.key);
        self.active.write_all(frame, self.sync)?;
        crash_point("append.written");
        if self.sync == SyncPolicy::Always {
            self.active.file.sync_data().map_err(WriteError::sync(&self.active.path))?;
        }
        crash_point("append.synced");
        self.active.end += frame.len() as u64;
        self.chain.step(&header, head_crc);
        self.durable = self.chain.next_lsn.previous();
        self.vouched = header.durable_lsn;
        self.counts.batches += 1;
        self.counts.written_bytes += frame.len() as u64;
        Ok(())
    }
}

impl Active {
    /// Whole blocks that are synced one by one gain nothing from the page cache. What it holds of the file is synced.
    fn bypass_cache(&self, sync: SyncPolicy) {
        if sync == SyncPolicy::Always {
            self.file.bypass_cache();
        }
    }

    /// Writes a frame at the end. On a full disk what was written is zeroed again; where even that finds no space,
    /// the remains are those of a torn write, which recovery knows, and the next try overwrites them.
    fn write_all(&self, frame: &[u8], sync: SyncPolicy) -> Result<(), WriteError> {
        let Err(partial) = write_all_at(&*self.file, frame, self.end) else { return Ok(()) };
        if is_no_space(&partial.source) && partial.written_bytes > 0 {
            match write_zeros_at(&*self.file, self.end, partial.written_bytes as u64) {
                Err(error) if !is_no_space(&error) => return Err(WriteError::io("zeroed", &self.path)(error)),
                _ => {}
            }
            if sync == SyncPolicy::Always {
                self.file.sync_data().map_err(WriteError::sync(&self.path))?;
            }
        }
        Err(WriteError::io("written", &self.path)(partial.source))
    }
}
