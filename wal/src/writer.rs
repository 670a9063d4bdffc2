//! When the queue is written: the thread that commits.
//!
//! It sleeps until something prompt is queued or the earliest deferral ends, then writes everything that waits, batch
//! after batch, each with its own sync. The next batch is written only when the sync of the one before has returned:
//! recovery relies on it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::appender::{Appender, Stamp};
use crate::batch::Batch;
use crate::crash_point::crash_point;
use crate::health::Health;
use crate::queue::{Due, Queue};
use crate::spare::SpareSource;
use crate::stats::Meter;
use crate::stepped::Time;
use crate::stock::Stock;
use crate::write_error::WriteError;

/// What the handle and the writer share.
pub(crate) struct Shared {
    inner: Mutex<Inner>,
    wake: Condvar,
    pub(crate) durable: AtomicU64,
    pub(crate) generation: AtomicU64,
    pub(crate) health: Arc<Health>,
    pub(crate) meter: Meter,
    pub(crate) time: Time,
}

pub(crate) struct Inner {
    pub(crate) queue: Queue,
    stop: Option<StopHow>,
    /// Waking the writer costs a system call: it is asked for only while the writer sleeps.
    is_writer_asleep: bool,
}

/// How the writer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopHow {
    /// Write what is queued, then SEAL.
    Cleanly,
    /// Leave everything as it is, as a crash would.
    AtOnce,
}

impl Shared {
    pub(crate) fn new(queue: Queue, generation: u64, health: Arc<Health>, time: Time) -> Self {
        Self {
            durable: AtomicU64::new(queue.last().0),
            inner: Mutex::new(Inner { queue, stop: None, is_writer_asleep: false }),
            wake: Condvar::new(),
            generation: AtomicU64::new(generation),
            health,
            meter: Meter::default(),
            time,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of the queue and wakes the writer if it sleeps.
    pub(crate) fn wake(&self, inner: MutexGuard<'_, Inner>) {
        let is_writer_asleep = inner.is_writer_asleep;
        drop(inner);
        if is_writer_asleep {
            self.wake.notify_one();
        }
    }

    pub(crate) fn stop(&self, how: StopHow) {
        let mut inner = self.lock();
        inner.stop = Some(how);
        self.wake(inner);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.lock().stop.is_some()
    }
}

enum Work {
    Commit(Batch),
    Mark,
    Finish,
    Leave,
}

/// The writer's own things.
pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) appender: Appender,
    pub(crate) stock: Arc<Stock>,
    pub(crate) marker_after: Duration,
    pub(crate) space_retry: Duration,
}

/// What a writer that ended cleanly could not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Sealed,
    NoSpace,
    Early,
}

impl Writer {
    /// A writer that panics leaves a poisoned log, not one that waits for ever.
    pub(crate) fn run(self) -> Ended {
        let health = Arc::clone(&self.shared.health);
        let ended = catch_unwind(AssertUnwindSafe(|| self.write()));
        ended.unwrap_or_else(|_| {
            health.set_poisoned("the writer panicked");
            Ended::Early
        })
    }

    fn write(mut self) -> Ended {
        let mut idle_since = Instant::now();
        loop {
            let ended = match self.next(idle_since) {
                Work::Commit(batch) => self.commit(batch),
                Work::Mark => self.mark(),
                Work::Finish => return self.finish(),
                Work::Leave => return Ended::Early,
            };
            if let Err(ended) = ended {
                return ended;
            }
            idle_since = Instant::now();
        }
    }

    fn next(&self, idle_since: Instant) -> Work {
        let marker_at = self.appender.needs_marker().then(|| idle_since + self.marker_after);
        let mut inner = self.shared.lock();
        loop {
            match inner.stop {
                Some(StopHow::AtOnce) => return Work::Leave,
                Some(StopHow::Cleanly) => return inner.queue.pop().map_or(Work::Finish, Work::Commit),
                None => {}
            }
            let now = Instant::now();
            let due = match inner.queue.due() {
                Some(Due::Now) => Some(now),
                Some(Due::At(at)) => Some(at),
                None => None,
            };
            if due.is_some_and(|due| due <= now)
                && let Some(batch) = inner.queue.pop()
            {
                return Work::Commit(batch);
            }
            if marker_at.is_some_and(|at| at <= now) {
                return Work::Mark;
            }
            inner = self.sleep(inner, due.into_iter().chain(marker_at).min().map(|until| until - now));
        }
    }

    fn sleep<'g>(&self, mut inner: MutexGuard<'g, Inner>, limit: Option<Duration>) -> MutexGuard<'g, Inner> {
        inner.is_writer_asleep = true;
        let wake = &self.shared.wake;
        let mut inner = match limit {
            Some(limit) => wake.wait_timeout(inner, limit).unwrap_or_else(PoisonError::into_inner).0,
            None => wake.wait(inner).unwrap_or_else(PoisonError::into_inner),
        };
        inner.is_writer_asleep = false;
        inner
    }

    fn commit(&mut self, mut batch: Batch) -> Result<(), Ended> {
        let mut spares = Arc::clone(&self.stock);
        while let Err(error) = self.commit_once(&mut batch, &mut spares) {
            self.wait_or_end(&error)?;
        }
        self.written(batch)
    }

    /// Tries to write a batch.
    pub(crate) fn commit_once(&mut self, batch: &mut Batch, spares: &mut dyn SpareSource) -> Result<(), WriteError> {
        let started = Instant::now();
        let stamp = self.stamp();
        crash_point("append.encoded");
        self.appender.commit(batch, stamp, spares)?;
        self.shared.meter.add_commit(started.elapsed());
        Ok(())
    }

    /// A batch is on the disk.
    pub(crate) fn written(&mut self, batch: Batch) -> Result<(), Ended> {
        self.shared.meter.records.fetch_add(u64::from(batch.records()), Ordering::Relaxed);
        self.shared.meter.record_bytes.fetch_add(batch.body_bytes() as u64, Ordering::Relaxed);
        self.shared.lock().queue.give_back(batch);
        self.publish()
    }

    /// Says what is durable; never again after the log was poisoned from elsewhere.
    fn publish(&self) -> Result<(), Ended> {
        if self.shared.health.poison().is_some() {
            return Err(Ended::Early);
        }
        self.count();
        self.shared.durable.store(self.appender.durable().0, Ordering::Release);
        self.shared.health.set_blocked(false);
        self.shared.health.notify();
        crash_point("append.published");
        Ok(())
    }

    pub(crate) fn mark(&mut self) -> Result<(), Ended> {
        let stamp = self.stamp();
        match self.appender.mark(stamp) {
            Ok(()) => {
                self.count();
                Ok(())
            }
            // Nobody waits for a marker: it is tried again, or the next batch vouches as well.
            Err(WriteError::NoSpace) => Ok(()),
            Err(error) => self.wait_or_end(&error),
        }
    }

    pub(crate) fn finish(&mut self) -> Ended {
        let stamp = self.stamp();
        match self.appender.finish(stamp) {
            Ok(()) => {
                self.count();
                Ended::Sealed
            }
            Err(error) => self.wait_or_end(&error).err().unwrap_or(Ended::NoSpace),
        }
    }

    /// Waits for space, unless the log is ending; any other failure ends it.
    fn wait_or_end(&self, error: &WriteError) -> Result<(), Ended> {
        match error {
            WriteError::Stopped => Err(Ended::Early),
            WriteError::Broken { .. } => {
                self.shared.health.set_poisoned(&error.to_string());
                Err(Ended::Early)
            }
            WriteError::NoSpace if self.shared.is_stopping() => Err(Ended::NoSpace),
            WriteError::NoSpace => {
                if self.stock.ask_for_space() {
                    self.shared.health.set_short(true);
                } else {
                    self.shared.health.set_blocked(true);
                }
                self.stock.wait_for_space(self.space_retry);
                Ok(())
            }
        }
    }

    fn count(&self) {
        let (counts, meter) = (self.appender.counts, &self.shared.meter);
        meter.batches.store(counts.batches, Ordering::Relaxed);
        meter.segments.store(counts.segments, Ordering::Relaxed);
        meter.written_bytes.store(counts.written_bytes, Ordering::Relaxed);
    }

    fn stamp(&self) -> Stamp {
        Stamp { wall_ms: self.shared.time.wall_ms(), generation: self.shared.generation.load(Ordering::Relaxed) }
    }
}
