//! How does the engine wake at a given millisecond? A timer of the operating system, awaited.
//!
//! A timerfd on an absolute instant is 30 to 100 us late where the runtime's own timers, which round up to their next
//! millisecond, are 1,250 to 1,800; and on the wall clock it reports every step of the clock at once.
//!
//! What it promises: [`Fired::Due`] is never reported early by its own clock, and no wait is longer than a second,
//! whatever it was armed for (or not): who awaits it looks at the clock that often.
//!
//! What it does not do: keep more than one instant. The wheel says which.

use std::{
    io,
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed},
    time::Duration,
};

use rustix::{
    io::Errno,
    time::{
        ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
        timerfd_settime,
    },
};
use tokio::io::unix::AsyncFd;

use crate::kernel::time::UnixMs;

/// The longest wait: what a lost wake-up can cost.
const LONGEST_WAIT_NS: i64 = 1_000_000_000;
const NEVER: i64 = i64::MAX;

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fired {
    /// The instant has come.
    Due,
    /// Somebody set the wall clock: instants that were computed from it may be wrong. The tick stays armed.
    ClockStepped,
    /// A second has passed and the instant is still to come. The tick stays armed.
    Waited,
}

/// A source of wake-ups on one clock, armed for at most one instant at a time.
#[derive(Debug)]
pub struct Tick {
    timer: AsyncFd<OwnedFd>,
    clock: Clock,
    /// When it is due, in nanoseconds of `clock`.
    due_ns: AtomicI64,
    /// Whether the operating system's timer runs: it ends a second after it was set, at the latest.
    is_running: AtomicBool,
    /// Whether a step of the clock was seen and has not been reported.
    has_stepped: AtomicBool,
}

/// Which clock, and how it relates to the wall clock that the engine goes by.
#[derive(Clone, Copy, Debug)]
enum Clock {
    Realtime,
    /// Time since boot, suspend included, `ahead_ns` behind the rehearsed wall clock.
    Boottime {
        ahead_ns: i64,
    },
}

impl Tick {
    /// A tick on the wall clock. It must be made, and awaited, in a tokio runtime with its IO driver enabled.
    pub fn realtime() -> io::Result<Self> {
        Self::on(Clock::Realtime)
    }

    /// A tick on elapsed time, for a rehearsed wall clock that reads `wall_now` at this moment and cannot be set.
    pub fn elapsed(wall_now: UnixMs) -> io::Result<Self> {
        let ahead_ns = nanos(wall_now).saturating_sub(now_ns(ClockId::Boottime));
        Self::on(Clock::Boottime { ahead_ns })
    }

    fn on(clock: Clock) -> io::Result<Self> {
        let id = match clock {
            Clock::Realtime => TimerfdClockId::Realtime,
            Clock::Boottime { .. } => TimerfdClockId::Boottime,
        };
        let timer = timerfd_create(id, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        #[expect(deprecated, reason = "an `OwnedFd` upholds what its unsafe successor asks the caller to promise")]
        let timer = AsyncFd::new(timer)?;
        Ok(Self {
            timer,
            clock,
            due_ns: AtomicI64::new(NEVER),
            is_running: AtomicBool::new(false),
            has_stepped: AtomicBool::new(false),
        })
    }

    /// Due at `at` of the wall clock (the rehearsed one, for a tick on elapsed time), instead of whatever it was armed
    /// for before; at once if that has passed.
    pub fn arm_at(&self, at: UnixMs) -> io::Result<()> {
        let due_ns = match self.clock {
            Clock::Realtime => nanos(at),
            Clock::Boottime { ahead_ns } => nanos(at).saturating_sub(ahead_ns),
        };
        self.arm(due_ns)
    }

    /// Due after `wait` on this tick's clock, instead of whatever it was armed for before.
    pub fn arm_after(&self, wait: Duration) -> io::Result<()> {
        let wait_ns = i64::try_from(wait.as_nanos()).unwrap_or(NEVER);
        self.arm(self.now_ns().saturating_add(wait_ns))
    }

    /// Waits until it is due, the clock is set, or a second has passed. Dropping the future loses nothing. It may be
    /// armed anew from another task meanwhile; only one task may wait.
    pub async fn fired(&self) -> io::Result<Fired> {
        loop {
            if !self.is_running.load(Relaxed) {
                self.start()?;
            }
            if self.has_stepped.swap(false, Relaxed) {
                return Ok(Fired::ClockStepped);
            }
            let mut ready = self.timer.readable().await?;
            let Ok(read) = ready.try_io(|timer| Ok(rustix::io::read(timer, &mut [0_u8; 8])?)) else {
                continue; // armed anew between the wake-up and the read
            };
            self.is_running.store(false, Relaxed);
            match read {
                Ok(_) if self.due_ns.load(Relaxed) > self.now_ns() => return Ok(Fired::Waited),
                Ok(_) => {
                    self.due_ns.store(NEVER, Relaxed);
                    return Ok(Fired::Due);
                }
                Err(error) if is_step(&error) => return Ok(Fired::ClockStepped),
                Err(error) => return Err(error),
            }
        }
    }

    fn arm(&self, due_ns: i64) -> io::Result<()> {
        self.due_ns.store(due_ns, Relaxed);
        self.start()
    }

    /// Sets the operating system's timer to the instant it is armed for, or to a second from now if that is earlier.
    fn start(&self) -> io::Result<()> {
        let until_ns = self.due_ns.load(Relaxed).min(self.now_ns().saturating_add(LONGEST_WAIT_NS));
        let until_ns = until_ns.max(1); // zero would disarm it
        let flags = match self.clock {
            Clock::Realtime => TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET,
            Clock::Boottime { .. } => TimerfdTimerFlags::ABSTIME,
        };
        let timer = Itimerspec { it_interval: timespec(0), it_value: timespec(until_ns) };
        match timerfd_settime(&self.timer, flags, &timer) {
            Ok(_) => {}
            // The clock was set since the last call: the timer runs all the same, and no read will tell any more.
            Err(Errno::CANCELED) => self.has_stepped.store(true, Relaxed),
            Err(errno) => return Err(errno.into()),
        }
        self.is_running.store(true, Relaxed);
        Ok(())
    }

    fn now_ns(&self) -> i64 {
        now_ns(match self.clock {
            Clock::Realtime => ClockId::Realtime,
            Clock::Boottime { .. } => ClockId::Boottime,
        })
    }
}

fn is_step(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::CANCELED.raw_os_error())
}

fn nanos(at: UnixMs) -> i64 {
    at.0.saturating_mul(1_000_000)
}

/// Until the year 2262, then it stands still.
fn now_ns(clock: ClockId) -> i64 {
    let now = clock_gettime(clock);
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}

fn timespec(ns: i64) -> Timespec {
    Timespec { tv_sec: ns / 1_000_000_000, tv_nsec: ns % 1_000_000_000 }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn wall_now() -> UnixMs {
        UnixMs(now_ns(ClockId::Realtime) / 1_000_000)
    }

    /// Awaits it until something else than a second's passing is reported.
    async fn due(tick: &Tick) -> Fired {
        loop {
            match tick.fired().await.expect("a timer of the operating system") {
                Fired::Waited => {}
                fired => return fired,
            }
        }
    }

    #[tokio::test]
    async fn it_is_due_at_its_millisecond_and_not_before() {
        let tick = Tick::realtime().expect("a timerfd");
        for wait_ms in [0, 1, 7, 40] {
            let at = wall_now().plus(wait_ms);
            tick.arm_at(at).expect("armed");
            assert_eq!(due(&tick).await, Fired::Due);
            let late_ms = wall_now().since(at);
            assert!((0..1_000).contains(&late_ms), "{late_ms} ms late after a wait of {wait_ms} ms");
        }
    }

    #[tokio::test]
    async fn an_instant_that_has_passed_is_due_at_once() {
        let tick = Tick::realtime().expect("a timerfd");
        for at in [wall_now().minus(5_000), UnixMs(0), UnixMs(i64::MIN)] {
            tick.arm_at(at).expect("armed");
            assert_eq!(tick.fired().await.expect("fired"), Fired::Due);
        }
    }

    #[tokio::test]
    async fn no_wait_is_longer_than_a_second() {
        let tick = Tick::realtime().expect("a timerfd");
        let started = Instant::now();
        assert_eq!(tick.fired().await.expect("fired"), Fired::Waited, "never armed");
        tick.arm_at(wall_now().plus(1_500)).expect("armed");
        assert_eq!(tick.fired().await.expect("fired"), Fired::Waited);
        assert_eq!(tick.fired().await.expect("fired"), Fired::Due, "it stayed armed");
        let waited_ms = started.elapsed().as_millis();
        assert!((2_498..5_000).contains(&waited_ms), "{waited_ms} ms");
    }

    #[tokio::test]
    async fn arming_again_replaces_the_instant() {
        let tick = Tick::elapsed(UnixMs(0)).expect("a timerfd");
        tick.arm_after(Duration::ZERO).expect("armed");
        tick.arm_after(Duration::from_millis(30)).expect("armed");
        let started = Instant::now();
        assert_eq!(due(&tick).await, Fired::Due);
        let waited_ms = started.elapsed().as_millis();
        assert!((29..1_000).contains(&waited_ms), "{waited_ms} ms");
    }

    #[tokio::test]
    async fn a_rehearsed_clock_is_followed_from_where_it_started() {
        let rehearsed = UnixMs::parse_rfc3339("2027-03-28T00:59:59.980Z").expect("an instant");
        let tick = Tick::elapsed(rehearsed).expect("a timerfd");
        let started = Instant::now();
        tick.arm_at(rehearsed.plus(20)).expect("armed");
        assert_eq!(due(&tick).await, Fired::Due);
        let waited_ms = started.elapsed().as_millis();
        assert!((19..1_000).contains(&waited_ms), "{waited_ms} ms");
    }

    #[tokio::test]
    async fn a_wait_that_is_dropped_loses_nothing() {
        let tick = Tick::realtime().expect("a timerfd");
        tick.arm_after(Duration::from_millis(20)).expect("armed");
        let dropped = tokio::time::timeout(Duration::from_millis(1), tick.fired()).await;
        assert!(dropped.is_err());
        assert_eq!(due(&tick).await, Fired::Due);
    }
}
