//! What wakes a shard besides its mailbox: the clock, the log, the queue. Level-triggered, so nothing competes with
//! clients for a place, and no wake-up is lost or piled up.

use std::{cell::Cell, rc::Rc, sync::Arc, time::Duration};

use futures_util::Stream;
use tokio::sync::Notify;

use super::{clock::Clock, tick::Tick};
use crate::kernel::time::UnixMs;

/// No wait is longer than this: a clock that was set back must not silence a shard.
const LONGEST_WAIT_MS: i64 = 1_000;

/// How often a shard looks at the clock when the operating system's timer fails.
const FALLBACK: Duration = Duration::from_millis(10);

/// A shard's alarm clock.
pub(super) struct Alarm {
    clock: Arc<Clock>,
    tick: Option<Tick>,
    /// For whoever moves a clock that moves only when told to.
    set_for: Cell<Option<UnixMs>>,
}

impl Alarm {
    pub(super) fn new(clock: Arc<Clock>) -> std::io::Result<Self> {
        let tick = match &*clock {
            Clock::Real => Some(Tick::realtime()?),
            Clock::Rehearsal { .. } => Some(Tick::elapsed(clock.now())?),
            Clock::Virtual(_) => None,
        };
        Ok(Self { clock, tick, set_for: Cell::new(None) })
    }

    /// When it rings, if the clock moves only when told to.
    #[cfg(any(test, feature = "sim"))]
    pub(super) fn set_for(&self) -> Option<UnixMs> {
        self.set_for.get()
    }

    /// Rings at `at`, or within a second.
    pub(super) fn set(&self, at: Option<UnixMs>) {
        let Some(tick) = &self.tick else {
            self.set_for.set(at);
            return;
        };
        let now = self.clock.now();
        let latest = now.plus(LONGEST_WAIT_MS);
        let at = at.map_or(latest, |at| at.min(latest).max(now));
        let armed = match &*self.clock {
            Clock::Rehearsal { .. } => tick.arm_after(self.clock.until(at).unwrap_or_default()),
            Clock::Real | Clock::Virtual(_) => tick.arm_at(at),
        };
        if let Err(error) = armed {
            tracing::error!(%error, "the timer cannot be set");
        }
    }
}

/// An item whenever the alarm rings or the signal is given; never ends.
pub(super) fn pulses(alarm: Rc<Alarm>, signal: Arc<Notify>) -> impl Stream<Item = ()> {
    futures_util::stream::unfold((alarm, signal), |(alarm, signal)| async move {
        match &alarm.tick {
            Some(tick) => {
                tokio::select! {
                    fired = tick.fired() => if let Err(error) = fired {
                        tracing::error!(%error, "the timer cannot be awaited: a shard is woken every 10 ms");
                        tokio::time::sleep(FALLBACK).await;
                    },
                    () = signal.notified() => {}
                }
            }
            None => signal.notified().await,
        }
        Some(((), (alarm, signal)))
    })
}
