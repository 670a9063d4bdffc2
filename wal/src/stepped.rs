//! A log without threads: whoever drives it says what time it is and when the disk's turn comes. The same queue,
//! appender and recovery; only who waits is another.
//!
//! What the two threads of [`crate::Log`] do while others go on is done here in one step: a spare is made when it is
//! asked for, and the reserve when there is space for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::batch::Batch;
use crate::queue::Due;
use crate::spare::{Spare, SpareSource, make_spare};
use crate::stock::Stocker;
use crate::write_error::WriteError;
use crate::writer::{Ended, Writer};

/// Where a log's time comes from.
#[derive(Clone, Debug)]
pub(crate) enum Time {
    /// The machine's clocks.
    Real,
    /// Milliseconds since `began`, which is also taken for 1970.
    Stepped { began: Instant, elapsed_ms: Arc<AtomicU64> },
}

impl Time {
    pub(crate) fn now(&self) -> Instant {
        match self {
            Self::Real => Instant::now(),
            Self::Stepped { began, elapsed_ms } => *began + Duration::from_millis(elapsed_ms.load(Ordering::Relaxed)),
        }
    }

    /// Milliseconds since 1970 by the wall clock.
    pub(crate) fn wall_ms(&self) -> u64 {
        match self {
            Self::Real => {
                let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
            }
            Self::Stepped { elapsed_ms, .. } => elapsed_ms.load(Ordering::Relaxed),
        }
    }
}

/// What the threads of a log would do, a step at a time.
pub(crate) struct Stepper {
    writer: Writer,
    spares: Spares,
    unwritten: Option<Batch>,
    idle_since: Instant,
    retry_at: Option<Instant>,
    is_over: bool,
}

impl Stepper {
    pub(crate) fn new(writer: Writer, stocker: Stocker) -> Self {
        let has_reserve = stocker.is_reserve_there() || (stocker.reserve_bytes > 0 && stocker.make_reserve());
        let idle_since = writer.shared.time.now();
        let spares = Spares { stocker, number: 0, kept: None, has_reserve };
        Self { writer, spares, unwritten: None, idle_since, retry_at: None, is_over: false }
    }

    /// When there is something to do at the latest; what is past is due.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        if self.is_over {
            return None;
        }
        if self.unwritten.is_some() {
            return self.retry_at;
        }
        let due = match self.writer.shared.lock().queue.due() {
            Some(Due::Now) => Some(self.idle_since),
            Some(Due::At(at)) => Some(at),
            None => None,
        };
        let marker = self.writer.appender.needs_marker().then(|| self.idle_since + self.writer.marker_after);
        due.into_iter().chain(marker).chain(self.retry_at).min()
    }

    /// Does what is due: at most one write and its sync. `false`: nothing was.
    pub(crate) fn step(&mut self) -> bool {
        let now = self.writer.shared.time.now();
        if self.next_at().is_none_or(|at| at > now) {
            return false;
        }
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            self.find_room(now);
        }
        let due = self.writer.shared.lock().queue.due();
        let is_due = match due {
            Some(Due::Now) => true,
            Some(Due::At(at)) => at <= now,
            None => false,
        };
        let batch = self.unwritten.take().or_else(|| {
            let mut inner = self.writer.shared.lock();
            if is_due { inner.queue.pop() } else { None }
        });
        match batch {
            Some(batch) => self.commit(batch, now),
            None if self.writer.appender.needs_marker() && self.idle_since + self.writer.marker_after <= now => {
                self.is_over = self.writer.mark().is_err();
                self.idle_since = now;
            }
            None => {}
        }
        true
    }

    fn commit(&mut self, mut batch: Batch, now: Instant) {
        match self.writer.commit_once(&mut batch, &mut self.spares) {
            Ok(()) => {
                self.is_over = self.writer.written(batch).is_err();
                self.idle_since = now;
            }
            Err(error) => {
                self.unwritten = Some(batch);
                self.trouble(&error, now);
            }
        }
    }

    fn trouble(&mut self, error: &WriteError, now: Instant) {
        let health = &self.writer.shared.health;
        match error {
            WriteError::NoSpace if self.spares.give_up_reserve() => {
                health.set_short(true);
                self.retry_at = Some(now);
            }
            WriteError::NoSpace => {
                health.set_short(true);
                health.set_blocked(true);
                self.retry_at = Some(now + self.writer.space_retry);
            }
            WriteError::Stopped | WriteError::Broken { .. } => {
                health.set_poisoned(&error.to_string());
                self.is_over = true;
            }
        }
    }

    /// The reserve is made again when a spare finds space too and nothing waits.
    fn find_room(&mut self, now: Instant) {
        if self.unwritten.is_some() {
            return;
        }
        match self.spares.restock() {
            Ok(true) => self.writer.shared.health.set_short(false),
            Ok(false) | Err(WriteError::NoSpace) => self.retry_at = Some(now + self.writer.space_retry),
            Err(error) => self.trouble(&error, now),
        }
    }

    /// Asks for the reserve back once what had no space is written.
    pub(crate) fn look_for_room(&mut self) {
        if self.retry_at.is_none() && !self.spares.has_all() && !self.is_over {
            self.retry_at = Some(self.writer.shared.time.now() + self.writer.space_retry);
        }
    }

    /// Writes what is queued and ends the log with a SEAL.
    pub(crate) fn finish(&mut self) -> Ended {
        let now = self.writer.shared.time.now();
        self.retry_at = None;
        loop {
            let next = self.unwritten.take().or_else(|| self.writer.shared.lock().queue.pop());
            let Some(batch) = next.filter(|_| !self.is_over) else { break };
            self.commit(batch, now);
            if self.retry_at.take().is_some_and(|at| at > now) {
                return Ended::NoSpace;
            }
        }
        if self.is_over { Ended::Early } else { self.writer.finish() }
    }
}

/// Makes each spare when it is asked for.
struct Spares {
    stocker: Stocker,
    number: u64,
    kept: Option<Spare>,
    has_reserve: bool,
}

impl Spares {
    fn has_all(&self) -> bool {
        self.has_reserve || self.stocker.reserve_bytes == 0
    }

    fn give_up_reserve(&mut self) -> bool {
        std::mem::take(&mut self.has_reserve) && self.stocker.fs.remove_file(&self.stocker.layout.reserve()).is_ok()
    }

    fn restock(&mut self) -> Result<bool, WriteError> {
        if self.kept.is_none() {
            self.kept = Some(self.make()?);
        }
        self.has_reserve = self.has_reserve || self.stocker.reserve_bytes == 0 || self.stocker.make_reserve();
        Ok(self.has_all())
    }

    fn make(&mut self) -> Result<Spare, WriteError> {
        self.number += 1;
        let Stocker { fs, layout, segment_bytes, sync, .. } = &self.stocker;
        make_spare(&**fs, layout.spare(self.number), *segment_bytes, *sync)
    }
}

impl SpareSource for Spares {
    fn take(&mut self) -> Result<Spare, WriteError> {
        match self.kept.take() {
            Some(spare) => Ok(spare),
            None => self.make(),
        }
    }

    fn put_back(&mut self, spare: Spare) {
        self.kept = Some(spare);
    }
}
