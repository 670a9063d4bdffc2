//! The handle: open, append, ask what is durable, close.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crate::crash_point::crash_point;
use crate::error::{AppendError, CloseError, OpenError};
use crate::fs::Fs;
use crate::health::{Health, Notify, State};
use crate::lsn::Lsn;
use crate::name::Layout;
use crate::options::{Options, Urgency};
use crate::queue::{Due, Queue};
use crate::records::Records;
use crate::recover::{Recovered, make_directories, recover};
use crate::scan::Entry;
use crate::snapshot::{Keeper, Replay, SnapshotError, SnapshotWriter};
use crate::stats::Stats;
use crate::stepped::{Stepper, Time};
use crate::stock::{Stock, Stocker};
use crate::writer::{Ended, Shared, StopHow, Writer};

/// An open log.
///
/// Records are numbered in the order of the calls to [`Log::append`], become durable in that order, and once
/// [`Log::durable`] has reached a record, every later open shows it. Dropping the handle without [`Log::close`] leaves
/// the directory as a crash would: what was not durable may be gone.
pub struct Log {
    shared: Arc<Shared>,
    stock: Arc<Stock>,
    keeper: Arc<Keeper>,
    stocker: Option<JoinHandle<()>>,
    writer: Option<JoinHandle<Ended>>,
    stop_tidily: Arc<AtomicBool>,
    /// What the threads would do, where there are none.
    stepped: Option<Mutex<Stepper>>,
    _lock: Box<dyn Send + Sync>,
}

impl Log {
    /// Opens the log in `dir`, makes it where there is none, and shows every record in order.
    ///
    /// All records that were ever durable are shown. A last batch that was never acknowledged may be shown too, whole
    /// or as what fits its last whole batch; it is durable then. `notify` is called by the log's threads whenever
    /// [`Log::durable`] or [`Log::state`] has changed, and must not block.
    ///
    /// # Errors
    /// See [`OpenError`]. Nothing that could be looked at is changed by a refusal.
    pub fn open(
        dir: &Path,
        fs: Arc<dyn Fs>,
        options: Options,
        notify: Arc<dyn Fn() + Send + Sync>,
        visit: &mut dyn FnMut(Entry<'_>) -> Result<(), String>,
    ) -> Result<(Self, Recovered), OpenError> {
        Self::open_from(dir, fs, options, notify, &mut |entry: Entry<'_>| visit(entry))
    }

    /// As [`Log::open_from`], without threads: nothing is written but by [`Log::step`], and time is `elapsed_ms`.
    ///
    /// # Errors
    /// See [`OpenError`].
    #[doc(hidden)]
    pub fn open_stepped(
        dir: &Path,
        fs: Arc<dyn Fs>,
        options: Options,
        elapsed_ms: Arc<AtomicU64>,
        replay: &mut dyn Replay,
    ) -> Result<(Self, Recovered), OpenError> {
        let time = Time::Stepped { began: Instant::now(), elapsed_ms };
        Self::open_with(dir, fs, options, Arc::new(|| {}), replay, time)
    }

    /// As [`Log::open`], beginning from the newest snapshot that is whole: its chunks are shown, then every record behind
    /// it.
    ///
    /// # Errors
    /// See [`OpenError`]. Nothing that could be looked at is changed by a refusal.
    pub fn open_from(
        dir: &Path,
        fs: Arc<dyn Fs>,
        options: Options,
        notify: Arc<dyn Fn() + Send + Sync>,
        replay: &mut dyn Replay,
    ) -> Result<(Self, Recovered), OpenError> {
        Self::open_with(dir, fs, options, notify, replay, Time::Real)
    }

    fn open_with(
        dir: &Path,
        fs: Arc<dyn Fs>,
        options: Options,
        notify: Arc<dyn Fn() + Send + Sync>,
        replay: &mut dyn Replay,
        time: Time,
    ) -> Result<(Self, Recovered), OpenError> {
        options.check()?;
        let layout = Layout::new(dir);
        make_directories(&*fs, &layout)?;
        let lock = fs.lock(&layout.root.join("LOCK"))?;
        let (appender, recovered, identity) = recover(&fs, &layout, &options, time.wall_ms(), replay)?;
        let newest = recovered.snapshot.unwrap_or(Lsn::NONE);
        let keeper = Arc::new(Keeper {
            fs: Arc::clone(&fs),
            layout: layout.clone(),
            identity,
            archive: options.archive,
            newest: AtomicU64::new(newest.0),
            is_busy: AtomicBool::new(false),
        });
        let health = Arc::new(Health::new(notify as Notify));
        health.set_short(recovered.used_reserve);
        let queue = Queue::new(recovered.last, options.queue_bytes, options.body_limit_bytes());
        let shared = Arc::new(Shared::new(queue, recovered.generation, Arc::clone(&health), time));
        let stock = Arc::new(Stock::default());
        let stop_tidily = Arc::default();
        let stocker = Stocker {
            fs,
            layout,
            stock: Arc::clone(&stock),
            health,
            segment_bytes: options.segment_bytes,
            reserve_bytes: options.reserve_bytes,
            sync: options.sync,
            space_retry: options.space_retry,
        };
        let writer = Writer {
            shared: Arc::clone(&shared),
            appender,
            stock: Arc::clone(&stock),
            marker_after: options.marker_after,
            space_retry: options.space_retry,
        };
        let mut log =
            Self { shared, stock, keeper, stocker: None, writer: None, stop_tidily, stepped: None, _lock: lock };
        if let Time::Stepped { .. } = log.shared.time {
            log.stepped = Some(Mutex::new(Stepper::new(writer, stocker)));
            return Ok((log, recovered));
        }
        let is_tidy = Arc::clone(&log.stop_tidily);
        log.stocker = Some(spawn("wal-stocker", dir, move || {
            stocker.run_guarded();
            if is_tidy.load(Ordering::Acquire) {
                stocker.tidy();
            }
        })?);
        log.writer = Some(spawn("wal-writer", dir, move || writer.run())?);
        Ok((log, recovered))
    }

    /// Queues records, all or none, and returns the position of the last (of the last one queued before, if there are
    /// none). They are durable when [`Log::durable`] has reached it.
    ///
    /// Records that fit into one batch (4 MiB, less with small segments) are durable together; more are split between
    /// records over consecutive batches.
    ///
    /// # Errors
    /// See [`AppendError`]: nothing was queued.
    pub fn append(&self, records: &Records, urgency: Urgency) -> Result<Lsn, AppendError> {
        let due = match urgency {
            Urgency::Prompt => Due::Now,
            Urgency::Within(wait) => self.shared.time.now().checked_add(wait).map_or(Due::Now, Due::At),
        };
        if let Some(reason) = self.shared.health.poison() {
            return Err(AppendError::Poisoned { reason });
        }
        crash_point("append.asked");
        let mut inner = self.shared.lock();
        let before = inner.queue.due();
        let last = inner.queue.push(records, due)?;
        if inner.queue.due() == before {
            return Ok(last);
        }
        self.shared.wake(inner);
        Ok(last)
    }

    /// Whatever is queued is committed now.
    pub fn hasten(&self) {
        let mut inner = self.shared.lock();
        inner.queue.hasten();
        self.shared.wake(inner);
    }

    /// The last record that is durable. It never goes back.
    #[must_use]
    pub fn durable(&self) -> Lsn {
        Lsn(self.shared.durable.load(Ordering::Acquire))
    }

    /// The last record that was queued.
    #[must_use]
    pub fn last(&self) -> Lsn {
        self.shared.lock().queue.last()
    }

    /// How the log is doing.
    #[must_use]
    pub fn state(&self) -> State {
        self.shared.health.state()
    }

    /// What it has done since it was opened.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.meter.stats()
    }

    /// Begins a snapshot of what its owner remembers behind the record `at`, which must be newer than the last one's. It
    /// is written and finished on any thread, while the log goes on.
    ///
    /// # Errors
    /// See [`SnapshotError`].
    pub fn snapshot(&self, at: Lsn) -> Result<SnapshotWriter, SnapshotError> {
        SnapshotWriter::begin(Arc::clone(&self.keeper), Arc::clone(&self.shared), at)
    }

    /// Where the newest snapshot ends; [`Lsn::NONE`] if there is none.
    #[must_use]
    pub fn newest_snapshot(&self) -> Lsn {
        Lsn(self.keeper.newest.load(Ordering::Acquire))
    }

    /// The generation that later batches carry; one below the highest so far changes nothing.
    pub fn set_generation(&self, generation: u64) {
        self.shared.generation.fetch_max(generation, Ordering::Relaxed);
    }

    /// Writes what is due, at most one batch; `false`: nothing was. Only for a log without threads.
    #[doc(hidden)]
    pub fn step(&self) -> bool {
        self.stepper(|stepper| {
            stepper.look_for_room();
            stepper.step()
        })
        .unwrap_or(false)
    }

    /// How long until [`Log::step`] has something to do. Only for a log without threads.
    #[doc(hidden)]
    #[must_use]
    pub fn next_step_in(&self) -> Option<std::time::Duration> {
        let at = self.stepper(|stepper| stepper.next_at()).flatten();
        at.map(|at| at.saturating_duration_since(self.shared.time.now()))
    }

    fn stepper<T>(&self, ask: impl FnOnce(&mut Stepper) -> T) -> Option<T> {
        let stepped = self.stepped.as_ref()?;
        Some(ask(&mut stepped.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Commits what is queued, ends the log with a SEAL, and waits for both threads.
    ///
    /// # Errors
    /// See [`CloseError`]: the next open recovers as after a crash.
    pub fn close(mut self) -> Result<(), CloseError> {
        self.stop_tidily.store(true, Ordering::Release);
        self.shared.stop(StopHow::Cleanly);
        self.stock.wake();
        let ended = match self.stepper(Stepper::finish) {
            Some(ended) => Some(Ok(ended)),
            None => self.writer.take().map(JoinHandle::join),
        };
        if let State::Poisoned(reason) = self.state() {
            return Err(CloseError::Poisoned { reason });
        }
        match ended {
            Some(Ok(Ended::Sealed)) => Ok(()),
            Some(Ok(Ended::NoSpace)) => Err(CloseError::NoSpace { durable: self.durable() }),
            _ => Err(CloseError::Poisoned { reason: "the writer ended early".into() }),
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.shared.stop(StopHow::AtOnce);
        self.stock.stop();
        for joined in
            [self.writer.take().map(|writer| writer.join().err()), self.stocker.take().map(|it| it.join().err())]
        {
            if let Some(Some(_)) = joined {
                tracing::error!("a thread of the log panicked");
            }
        }
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("durable", &self.durable()).field("state", &self.state()).finish_non_exhaustive()
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    dir: &Path,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, OpenError> {
    thread::Builder::new().name(name.to_owned()).spawn(body).map_err(OpenError::io("given a thread", dir))
}

const _: () = {
    const fn is_shared_between_threads<T: Send + Sync>() {}
    is_shared_between_threads::<Log>();
};
