//! Who makes spare segments and keeps the reserve: a thread of its own, so that no commit waits for either.
//!
//! One spare is kept ready. The reserve is a file that only takes space; when a spare cannot be made for want of space
//! it is given up, and made again when there is space for both.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::warn;

use crate::fs::{Fs, is_no_space, write_zeros_at};
use crate::health::Health;
use crate::name::Layout;
use crate::options::SyncPolicy;
use crate::spare::{Spare, SpareSource, make_spare};
use crate::write_error::WriteError;

/// The one spare, between the thread that makes it and the one that uses it.
pub(crate) struct Stock {
    inner: Mutex<Inner>,
    changed: Condvar,
    /// How much of the next spare should be filled by now. With the one below: each side stores its own, then loads
    /// the other's, so one of them sees that there is work (hence `SeqCst`).
    wanted_bytes: AtomicU64,
    /// The stocker waits until that much is wanted.
    waits_for_bytes: AtomicU64,
    segment_bytes: u64,
}

#[derive(Default)]
struct Inner {
    ready: Option<Spare>,
    /// No spare could be made for want of space, and there is no reserve left to give up.
    is_out_of_space: bool,
    /// A write beside the spares found no space.
    wants_space: bool,
    /// The writer waits for the spare: there is no time to lose.
    is_waited_for: bool,
    is_stopped: bool,
}

impl Stock {
    pub(crate) fn new(segment_bytes: u64) -> Self {
        Self {
            inner: Mutex::default(),
            changed: Condvar::new(),
            wanted_bytes: AtomicU64::new(0),
            waits_for_bytes: AtomicU64::new(u64::MAX),
            segment_bytes,
        }
    }

    /// Waits until `filled` bytes of the next spare are no longer enough; says whether to go on. Filling keeps twice
    /// the pace of the active segment: in time, and never a burst of zeros that commits would have to queue behind.
    fn pace(&self, filled_bytes: u64) -> bool {
        let mut inner = self.lock();
        self.waits_for_bytes.store(filled_bytes, Ordering::SeqCst);
        while !inner.is_stopped
            && !inner.is_waited_for
            && !inner.wants_space
            && self.wanted_bytes.load(Ordering::SeqCst) < filled_bytes
        {
            inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        self.waits_for_bytes.store(u64::MAX, Ordering::Relaxed);
        !inner.is_stopped
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No spare is made or waited for any more.
    pub(crate) fn stop(&self) {
        self.lock().is_stopped = true;
        self.changed.notify_all();
    }

    /// Asks for the reserve to be given up, and waits until something about space has changed, or `limit`.
    pub(crate) fn wait_for_space(&self, limit: Duration) {
        let mut inner = self.lock();
        if !inner.is_stopped {
            inner.wants_space = true;
            self.changed.notify_all();
            drop(self.changed.wait_timeout(inner, limit));
        }
    }

    /// Ends a [`Stock::wait_for_space`] early.
    pub(crate) fn wake(&self) {
        let _inner = self.lock();
        self.changed.notify_all();
    }

    fn is_stopped(&self) -> bool {
        self.lock().is_stopped
    }
}

impl SpareSource for Arc<Stock> {
    /// Waits for a spare unless there is no space for one.
    fn take(&mut self) -> Result<Spare, WriteError> {
        let mut inner = self.lock();
        loop {
            if let Some(spare) = inner.ready.take() {
                inner.is_waited_for = false;
                self.wanted_bytes.store(0, Ordering::Relaxed);
                self.changed.notify_all();
                return Ok(spare);
            }
            if inner.is_stopped {
                return Err(WriteError::Stopped);
            }
            if inner.is_out_of_space {
                return Err(WriteError::NoSpace);
            }
            inner.is_waited_for = true;
            self.changed.notify_all();
            inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn put_back(&mut self, spare: Spare) {
        self.lock().ready = Some(spare);
    }

    fn advance(&mut self, end: u64, bytes: u64) {
        let part = 2.0 * end as f64 / bytes as f64;
        let wanted_bytes = (self.segment_bytes as f64 * part) as u64;
        self.wanted_bytes.store(wanted_bytes, Ordering::SeqCst);
        if wanted_bytes >= self.waits_for_bytes.load(Ordering::SeqCst) {
            self.wake();
        }
    }
}

/// The work of the thread.
pub(crate) struct Stocker {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) layout: Layout,
    pub(crate) stock: Arc<Stock>,
    pub(crate) health: Arc<Health>,
    pub(crate) segment_bytes: u64,
    pub(crate) reserve_bytes: u64,
    pub(crate) sync: SyncPolicy,
    pub(crate) space_retry: Duration,
}

impl Stocker {
    /// Works until the stock is stopped. A panic poisons the log: its writer must not wait for spares for ever.
    pub(crate) fn run_guarded(&self) {
        if catch_unwind(AssertUnwindSafe(|| self.run())).is_err() {
            self.stock.stop();
            self.health.set_poisoned("the thread that makes spare segments panicked");
        }
    }

    /// Until the stock is stopped or something fails that is not for want of space.
    fn run(&self) {
        let mut number = 0;
        let mut has_reserve = self.reserve_bytes == 0 || self.is_reserve_there();
        while !self.stock.is_stopped() {
            if self.stock.lock().ready.is_none() {
                number += 1;
                match self.make(number) {
                    Ok(spare) => {
                        let mut inner = self.stock.lock();
                        inner.ready = Some(spare);
                        inner.is_out_of_space = false;
                        self.stock.changed.notify_all();
                    }
                    Err(WriteError::NoSpace) => self.find_space(&mut has_reserve),
                    Err(WriteError::Stopped) => return,
                    Err(broken @ WriteError::Broken { .. }) => return self.break_down(&broken.to_string()),
                }
            } else if !has_reserve {
                has_reserve = self.make_reserve();
                self.health.set_short(!has_reserve);
                if !has_reserve {
                    self.wait_to_retry();
                }
            } else {
                self.health.set_short(false);
                self.wait_for_work();
                if std::mem::take(&mut self.stock.lock().wants_space) {
                    self.find_space(&mut has_reserve);
                }
            }
        }
    }

    /// Removes a spare that was not used, and the temporary name with it.
    pub(crate) fn tidy(&self) {
        if let Some(spare) = self.stock.lock().ready.take()
            && let Err(error) = self.fs.remove_file(&spare.path)
        {
            warn!(path = %spare.path.display(), %error, "an unused spare was not removed");
        }
    }

    fn make(&self, number: u64) -> Result<Spare, WriteError> {
        let path = self.layout.spare(number);
        make_spare(&*self.fs, path, self.segment_bytes, self.sync, &|filled| self.stock.pace(filled))
    }

    /// Gives up the reserve where there is one; else says that there is no space, and waits for it.
    fn find_space(&self, has_reserve: &mut bool) {
        self.health.set_short(true);
        if *has_reserve && self.reserve_bytes > 0 {
            *has_reserve = false;
            match self.fs.remove_file(&self.layout.reserve()) {
                Ok(()) => {
                    self.stock.changed.notify_all();
                    return;
                }
                Err(error) => warn!(%error, "the reserve could not be given up"),
            }
        }
        self.stock.lock().is_out_of_space = true;
        self.stock.changed.notify_all();
        self.wait_to_retry();
        self.stock.lock().is_out_of_space = false;
    }

    fn is_reserve_there(&self) -> bool {
        let len = self.fs.open(&self.layout.reserve()).and_then(|file| file.len());
        len.is_ok_and(|len| len == self.reserve_bytes)
    }

    /// Whether the reserve stands. Nothing but the space it takes matters, so failing is no reason to stop.
    fn make_reserve(&self) -> bool {
        let path = self.layout.reserve();
        let made = match self.fs.remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => self.fs.create_new(&path).and_then(|file| match file.allocate(self.reserve_bytes) {
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    write_zeros_at(&*file, 0, self.reserve_bytes)
                }
                allocated => allocated,
            }),
        };
        let Err(error) = made else { return true };
        if !is_no_space(&error) {
            warn!(path = %path.display(), %error, "the reserve could not be made");
        }
        if let Err(error) = self.fs.remove_file(&path) {
            warn!(path = %path.display(), %error, "an unfinished reserve was not removed");
        }
        false
    }

    /// Until the spare is taken or space is asked for.
    fn wait_for_work(&self) {
        let mut inner = self.stock.lock();
        while !inner.is_stopped && !inner.wants_space && inner.ready.is_some() {
            inner = self.stock.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Until the disk may be tried again; nothing but the end cuts it short.
    fn wait_to_retry(&self) {
        let inner = self.stock.lock();
        drop(self.stock.changed.wait_timeout_while(inner, self.space_retry, |inner| !inner.is_stopped));
    }

    fn break_down(&self, reason: &str) {
        self.health.set_poisoned(reason);
        self.stock.stop();
    }
}
