//! Where time comes from: the machine's clocks, a rehearsal's, or a test's.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

use crate::kernel::{engine_time::Reading, time::UnixMs};

/// A source of readings, shared by the shards of an engine.
#[derive(Debug)]
pub enum Clock {
    /// `CLOCK_REALTIME` and `CLOCK_BOOTTIME`.
    Real,
    /// Began at `from` and runs `speed` times as fast as elapsed time.
    Rehearsal {
        /// Where it began.
        from: UnixMs,
        /// How much faster than the world.
        speed: f64,
        /// `CLOCK_BOOTTIME` when it began, in ms.
        began_ms: i64,
    },
    /// Moves only when told to.
    Virtual(VirtualClock),
}

/// A clock for tests: stands still until it is moved.
#[derive(Debug)]
pub struct VirtualClock {
    wall_ms: AtomicI64,
    boottime_ms: AtomicI64,
    moved: Mutex<Vec<std::sync::Weak<tokio::sync::Notify>>>,
}

impl Clock {
    /// The world's clocks.
    #[must_use]
    pub const fn real() -> Self {
        Self::Real
    }

    /// A clock that begins at `from` now.
    #[must_use]
    pub fn rehearsal(from: UnixMs, speed: f64) -> Self {
        Self::Rehearsal { from, speed, began_ms: boottime_ms() }
    }

    /// A clock that stands at `at` until it is moved.
    #[must_use]
    pub fn standing(at: UnixMs) -> Self {
        Self::Virtual(VirtualClock {
            wall_ms: AtomicI64::new(at.0),
            boottime_ms: AtomicI64::new(0),
            moved: Mutex::new(Vec::new()),
        })
    }

    /// Both clocks now.
    #[must_use]
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a rehearsal is good to the ms")]
    pub fn reading(&self) -> Reading {
        match self {
            Self::Real => Reading { wall: wall(), boottime_ms: boottime_ms() },
            Self::Rehearsal { from, speed, began_ms } => {
                let elapsed_ms = ((boottime_ms() - began_ms) as f64 * speed) as i64;
                Reading { wall: from.plus(elapsed_ms), boottime_ms: elapsed_ms }
            }
            Self::Virtual(clock) => Reading {
                wall: UnixMs(clock.wall_ms.load(Ordering::SeqCst)),
                boottime_ms: clock.boottime_ms.load(Ordering::SeqCst),
            },
        }
    }

    /// The wall clock now.
    #[must_use]
    pub fn now(&self) -> UnixMs {
        self.reading().wall
    }

    /// How long the world takes until this clock shows `at`; `None` for a clock that moves only when told to.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a rehearsal is good to the ms")]
    pub fn until(&self, at: UnixMs) -> Option<Duration> {
        let ahead_ms = at.since(self.now()).max(0);
        match self {
            Self::Real => Some(Duration::from_millis(ahead_ms.cast_unsigned())),
            Self::Rehearsal { speed, .. } => Some(Duration::from_secs_f64(ahead_ms as f64 / 1_000.0 / speed)),
            Self::Virtual(_) => None,
        }
    }

    /// Whether this is a rehearsal's clock.
    #[must_use]
    pub const fn is_rehearsal(&self) -> bool {
        matches!(self, Self::Rehearsal { .. })
    }

    /// Moves a virtual clock: the wall clock by `wall_ms`, elapsed time by `elapsed_ms`. Others do not move.
    pub fn step(&self, wall_ms: i64, elapsed_ms: i64) {
        let Self::Virtual(clock) = self else { return };
        clock.wall_ms.fetch_add(wall_ms, Ordering::SeqCst);
        clock.boottime_ms.fetch_add(elapsed_ms, Ordering::SeqCst);
        let mut waiting = clock.moved.lock().expect("no holder panics");
        waiting.retain(|one| one.upgrade().inspect(|notify| notify.notify_one()).is_some());
    }

    /// Wakes `notify` whenever a virtual clock is moved.
    pub fn on_step(&self, notify: &std::sync::Arc<tokio::sync::Notify>) {
        if let Self::Virtual(clock) = self {
            clock.moved.lock().expect("no holder panics").push(std::sync::Arc::downgrade(notify));
        }
    }
}

fn wall() -> UnixMs {
    UnixMs(millis(ClockId::Realtime))
}

fn boottime_ms() -> i64 {
    millis(ClockId::Boottime)
}

fn millis(clock: ClockId) -> i64 {
    let now = clock_gettime(clock);
    now.tv_sec * 1_000 + now.tv_nsec / 1_000_000
}

/// The running boot, as Linux names it; empty where it does not say.
#[must_use]
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}
