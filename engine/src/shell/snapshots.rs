//! When a shard is swept into a snapshot, and the thread that writes it: the actor gives parts away and never waits.
//!
//! A snapshot begins when the log has grown by so many bytes since the one before. A failed one costs nothing but the
//! time until it is tried again: what it would have made superfluous stays.

use std::{
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use countwheel_wal::{Log, SnapshotError, SnapshotWriter, Snapshotted};
use crossbeam::channel::{Receiver, Sender, TrySendError, bounded};
use tokio::sync::Notify;

use super::metrics::SnapshotMetrics;
use crate::kernel::shard::Shard;

/// Rows that a turn with nothing else to do sweeps: about a millisecond.
const ROWS_IDLE: usize = 4_096;
/// Rows that a turn sweeps while more waits.
const ROWS_BUSY: usize = 256;
/// How long after a failure it is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// The snapshots of one shard.
pub(crate) struct Snapshots {
    number: usize,
    every_bytes: u64,
    signal: Arc<Notify>,
    /// Bytes of records behind the newest snapshot, or behind the one that is being written.
    bytes_behind: u64,
    writing: Option<Writing>,
    not_before: Option<Instant>,
    metrics: SnapshotMetrics,
}

struct Writing {
    parts: Option<Sender<Part>>,
    /// Swept, and not taken by the thread so far.
    part: Option<Part>,
    /// Bytes of records that it does not make superfluous if it fails.
    bytes_before: u64,
    thread: JoinHandle<Result<Snapshotted, SnapshotError>>,
}

enum Part {
    Chunk(Vec<u8>),
    Whole,
}

impl Snapshots {
    /// `bytes_behind` is what the log holds behind its newest snapshot.
    pub(crate) fn new(number: usize, every_bytes: u64, bytes_behind: u64, signal: Arc<Notify>) -> Self {
        let metrics = SnapshotMetrics::default();
        Self { number, every_bytes, signal, bytes_behind, writing: None, not_before: None, metrics }
    }

    /// The log was given so many bytes more.
    pub(crate) const fn grown(&mut self, bytes: u64) {
        self.bytes_behind += bytes;
    }

    pub(crate) const fn metrics(&self) -> SnapshotMetrics {
        self.metrics
    }

    /// Goes on with what is to be done, without waiting. `is_whole` says that the log has everything the shard decided.
    pub(crate) fn turn(&mut self, shard: &mut Shard, log: &Log, is_whole: bool, is_busy: bool) {
        if self.writing.is_none() && is_whole {
            self.begin(shard, log);
        }
        let Some(writing) = &mut self.writing else { return };
        if writing.thread.is_finished() {
            self.end(shard);
            return;
        }
        let Some(parts) = &writing.parts else { return };
        let rows = if is_busy { ROWS_BUSY } else { ROWS_IDLE };
        let Some(part) = writing.part.take().or_else(|| next_part(shard, rows)) else {
            self.signal.notify_one();
            return;
        };
        let is_last = matches!(part, Part::Whole);
        match parts.try_send(part) {
            Ok(()) if is_last => writing.parts = None,
            Ok(()) => self.signal.notify_one(),
            // The thread wakes us when it has taken one.
            Err(TrySendError::Full(part)) => writing.part = Some(part),
            // It says why when it is asked for its end.
            Err(TrySendError::Disconnected(_)) => writing.parts = None,
        }
    }

    fn begin(&mut self, shard: &mut Shard, log: &Log) {
        let is_due = self.bytes_behind >= self.every_bytes;
        if !is_due || self.not_before.is_some_and(|at| Instant::now() < at) {
            return;
        }
        match log.snapshot(countwheel_wal::Lsn(shard.lsn().0)) {
            Ok(writer) => {
                shard.begin_snapshot();
                self.begin_writing(shard, writer);
            }
            Err(error) => self.failed(&error.to_string()),
        }
    }

    fn begin_writing(&mut self, shard: &mut Shard, writer: SnapshotWriter) {
        let (parts, taken) = bounded(2);
        let signal = Arc::clone(&self.signal);
        let thread = std::thread::Builder::new()
            .name(format!("cw-snapshot-{}", self.number))
            .spawn(move || write(writer, &taken, &signal));
        match thread {
            Ok(thread) => {
                let bytes_before = std::mem::take(&mut self.bytes_behind);
                self.writing = Some(Writing { parts: Some(parts), part: None, bytes_before, thread });
            }
            Err(error) => {
                shard.drop_snapshot();
                self.failed(&error.to_string());
            }
        }
    }

    fn end(&mut self, shard: &mut Shard) {
        let Some(Writing { bytes_before, thread, .. }) = self.writing.take() else { return };
        shard.drop_snapshot();
        match thread.join() {
            Ok(Ok(snapshot)) => {
                self.metrics.written_total += 1;
                self.metrics.bytes = snapshot.bytes;
                self.metrics.took = snapshot.took;
                self.metrics.pruned_segments_total += snapshot.pruned;
            }
            Ok(Err(error)) => {
                self.bytes_behind += bytes_before;
                self.failed(&error.to_string());
            }
            Err(_) => {
                self.bytes_behind += bytes_before;
                self.failed("its thread panicked");
            }
        }
    }

    fn failed(&mut self, error: &str) {
        self.metrics.failed_total += 1;
        self.not_before = Instant::now().checked_add(RETRY_AFTER);
        tracing::warn!(shard = self.number, error, "no snapshot was written: it is tried again in a minute");
    }

    /// A snapshot that is being written is given up.
    pub(crate) fn stop(&mut self, shard: &mut Shard) {
        if let Some(Writing { parts, thread, .. }) = self.writing.take() {
            drop(parts);
            shard.drop_snapshot();
            if let Ok(Err(error)) = thread.join() {
                tracing::debug!(shard = self.number, %error, "a snapshot was given up");
            }
        }
    }
}

/// What the next rows come to; nothing where there were only gaps.
fn next_part(shard: &mut Shard, rows: usize) -> Option<Part> {
    let mut chunk = Vec::new();
    let is_end = shard.sweep(rows, &mut chunk);
    if chunk.is_empty() { is_end.then_some(Part::Whole) } else { Some(Part::Chunk(chunk)) }
}

/// Without an end it is given up.
fn write(mut writer: SnapshotWriter, parts: &Receiver<Part>, signal: &Notify) -> Result<Snapshotted, SnapshotError> {
    let written = loop {
        match parts.recv() {
            Ok(Part::Chunk(chunk)) => {
                signal.notify_one();
                if let Err(error) = writer.write(&chunk) {
                    break Err(error);
                }
            }
            Ok(Part::Whole) => break writer.finish(),
            Err(_) => break Err(SnapshotError::LogEnded),
        }
    };
    // The thread ends right behind this; whoever is woken a moment too soon looks again in a second.
    signal.notify_one();
    written
}
