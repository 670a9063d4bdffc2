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
use crate::spare::{SMALL_FRAME_BYTES, Spare, SpareSource, fill_step, make_spare};
use crate::write_error::WriteError;

/// A small batch asks for so many times its bytes of zeros. Each step of zeros disturbs the commits beside it, so they
/// are over soon: at twice the pace of the batches, the batches were slower than without any zeros.
const ZEROS_PER_BYTE: u64 = 16;

/// The one spare, between the thread that makes it and the one that uses it.
#[derive(Default)]
pub(crate) struct Stock {
    inner: Mutex<Inner>,
    changed: Condvar,
    /// How much of the spare should be filled with zeros by now. With the one below: each side stores its own, then
    /// loads the other's, so one of them sees that there is work (hence `SeqCst`).
    wanted_bytes: AtomicU64,
    /// The stocker waits until more than that is wanted.
    waits_beyond_bytes: AtomicU64,
}

#[derive(Default)]
struct Inner {
    ready: Option<Spare>,
    /// The spare is not ready, and will be after one step.
    is_being_filled: bool,
    /// No spare could be made for want of space, and there is no reserve left to give up.
    is_out_of_space: bool,
    /// A write beside the spares found no space.
    wants_space: bool,
    /// There is a reserve that can be given up.
    has_reserve: bool,
    is_stopped: bool,
}

impl Stock {
    /// Lets whoever waits for space try again.
    fn answer_space(&self, is_out_of_space: bool) {
        let mut inner = self.lock();
        (inner.wants_space, inner.is_out_of_space) = (false, is_out_of_space);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No spare is made or waited for any more.
    pub(crate) fn stop(&self) {
        self.lock().is_stopped = true;
        self.changed.notify_all();
    }

    /// Asks for the reserve to be given up; says whether there is one.
    pub(crate) fn ask_for_space(&self) -> bool {
        let mut inner = self.lock();
        inner.wants_space = true;
        self.changed.notify_all();
        inner.has_reserve
    }

    /// Waits until something was done about [`Stock::ask_for_space`], or `limit`.
    pub(crate) fn wait_for_space(&self, limit: Duration) {
        let inner = self.lock();
        if inner.wants_space && !inner.is_stopped {
            drop(self.changed.wait_timeout(inner, limit));
        }
    }

    /// Ends a [`Stock::wait_for_space`] early.
    pub(crate) fn wake(&self) {
        let _inner = self.lock();
        self.changed.notify_all();
    }
}

impl Inner {
    fn has_all(&self, reserve_bytes: u64) -> bool {
        self.ready.is_some() && !self.wants_space && (self.has_reserve || reserve_bytes == 0)
    }
}

impl SpareSource for Arc<Stock> {
    /// Waits for a spare unless there is no space for one.
    fn take(&mut self) -> Result<Spare, WriteError> {
        let mut inner = self.lock();
        loop {
            if let Some(spare) = inner.ready.take() {
                self.wanted_bytes.store(0, Ordering::SeqCst);
                self.changed.notify_all();
                return Ok(spare);
            }
            if inner.is_stopped {
                return Err(WriteError::Stopped);
            }
            if inner.is_out_of_space && !inner.is_being_filled {
                return Err(WriteError::NoSpace);
            }
            inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn put_back(&mut self, spare: Spare) {
        self.lock().ready = Some(spare);
    }

    fn advance(&mut self, frame_bytes: u64) {
        if frame_bytes <= SMALL_FRAME_BYTES {
            let more_bytes = ZEROS_PER_BYTE * frame_bytes;
            let wanted_bytes = self.wanted_bytes.fetch_add(more_bytes, Ordering::SeqCst) + more_bytes;
            if wanted_bytes > self.waits_beyond_bytes.load(Ordering::SeqCst) {
                self.wake();
            }
        }
    }
}

/// What the stocker does next.
enum Task {
    Make,
    MakeReserve,
    FindSpace,
    Fill(Spare),
    Stop,
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
        self.stock.lock().has_reserve = self.is_reserve_there();
        loop {
            if self.stock.lock().has_all(self.reserve_bytes) {
                self.health.set_short(false);
            }
            let done = match self.next_task() {
                Task::Make => {
                    number += 1;
                    self.make(number)
                }
                Task::MakeReserve => {
                    let is_made = self.make_reserve();
                    self.stock.lock().has_reserve = is_made;
                    if !is_made {
                        self.health.set_short(true);
                        self.wait_to_retry();
                    }
                    Ok(())
                }
                Task::FindSpace => Err(WriteError::NoSpace),
                Task::Fill(spare) => self.fill(spare),
                Task::Stop => return,
            };
            match done {
                Ok(()) => {}
                Err(WriteError::NoSpace) => self.find_space(),
                Err(WriteError::Stopped) => return,
                Err(broken @ WriteError::Broken { .. }) => return self.break_down(&broken.to_string()),
            }
        }
    }

    /// Waits for the next thing to do. The spare comes first, then the reserve, and zeros when there is time.
    fn next_task(&self) -> Task {
        let mut inner = self.stock.lock();
        loop {
            if inner.is_stopped {
                return Task::Stop;
            }
            let filled_bytes = match &inner.ready {
                None => return Task::Make,
                Some(spare) if spare.filled_bytes < spare.bytes => spare.filled_bytes,
                Some(_) => u64::MAX,
            };
            if inner.wants_space {
                return Task::FindSpace;
            }
            if !inner.has_reserve && self.reserve_bytes > 0 {
                return Task::MakeReserve;
            }
            self.stock.waits_beyond_bytes.store(filled_bytes, Ordering::SeqCst);
            if self.stock.wanted_bytes.load(Ordering::SeqCst) > filled_bytes
                && let Some(spare) = inner.ready.take()
            {
                inner.is_being_filled = true;
                return Task::Fill(spare);
            }
            inner = self.stock.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn make(&self, number: u64) -> Result<(), WriteError> {
        let spare = make_spare(&*self.fs, self.layout.spare(number), self.segment_bytes, self.sync)?;
        self.offer(spare);
        Ok(())
    }

    /// One step. A spare that is not filled is as good as another, only slower.
    fn fill(&self, mut spare: Spare) -> Result<(), WriteError> {
        let filled = fill_step(&mut spare, self.sync);
        self.offer(spare);
        filled
    }

    fn offer(&self, spare: Spare) {
        let mut inner = self.stock.lock();
        inner.ready = Some(spare);
        (inner.is_being_filled, inner.is_out_of_space) = (false, false);
        self.stock.changed.notify_all();
    }

    /// Removes a spare that was not used, and the temporary name with it.
    pub(crate) fn tidy(&self) {
        if let Some(spare) = self.stock.lock().ready.take()
            && let Err(error) = self.fs.remove_file(&spare.path)
        {
            warn!(path = %spare.path.display(), %error, "an unused spare was not removed");
        }
    }

    /// Gives up the reserve where there is one; else says that there is no space, and waits for it.
    fn find_space(&self) {
        self.health.set_short(true);
        if std::mem::take(&mut self.stock.lock().has_reserve) {
            match self.fs.remove_file(&self.layout.reserve()) {
                Ok(()) => {
                    self.stock.answer_space(false);
                    if self.stock.lock().ready.is_some() {
                        // The space is for somebody else: it must not go into a new reserve at once.
                        self.wait_to_retry();
                    }
                    return;
                }
                Err(error) => warn!(%error, "the reserve could not be given up"),
            }
        }
        self.stock.answer_space(true);
        self.wait_to_retry();
        self.stock.lock().is_out_of_space = false;
    }

    pub(crate) fn is_reserve_there(&self) -> bool {
        let len = self.fs.open(&self.layout.reserve()).and_then(|file| file.len());
        len.is_ok_and(|len| len == self.reserve_bytes)
    }

    /// Whether the reserve stands. Nothing but the space it takes matters, so failing is no reason to stop.
    pub(crate) fn make_reserve(&self) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_written_ahead_for_small_batches_only() {
        let mut stock = Arc::new(Stock::default());
        stock.advance(SMALL_FRAME_BYTES + 4_096);
        assert_eq!(stock.wanted_bytes.load(Ordering::SeqCst), 0);
        stock.advance(4_096);
        stock.advance(SMALL_FRAME_BYTES);
        assert_eq!(stock.wanted_bytes.load(Ordering::SeqCst), ZEROS_PER_BYTE * (4_096 + SMALL_FRAME_BYTES));
    }
}
