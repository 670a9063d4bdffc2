//! Where the relay's time comes from: the machine, or whoever steps it.

use std::time::Instant;
#[cfg(any(test, feature = "sim"))]
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

/// A relay's clock.
#[derive(Clone, Debug)]
pub(crate) enum Time {
    /// The machine's.
    Real,
    /// Milliseconds since `began`; every wait has the same length in every run.
    #[cfg(any(test, feature = "sim"))]
    Stepped {
        /// Where it counts from.
        began: Instant,
        /// How far it has come.
        elapsed_ms: Arc<AtomicU64>,
    },
}

impl Time {
    pub(super) fn now(&self) -> Instant {
        match self {
            Self::Real => Instant::now(),
            #[cfg(any(test, feature = "sim"))]
            Self::Stepped { began, elapsed_ms } => *began + Duration::from_millis(elapsed_ms.load(Relaxed)),
        }
    }

    /// Processor time of this thread, in nanoseconds.
    pub(super) fn cpu_ns(&self) -> u64 {
        match self {
            Self::Real => {
                let spent = clock_gettime(ClockId::ThreadCPUTime);
                spent.tv_sec.unsigned_abs() * 1_000_000_000 + spent.tv_nsec.unsigned_abs()
            }
            #[cfg(any(test, feature = "sim"))]
            Self::Stepped { .. } => 0,
        }
    }

    /// A number without a pattern: of 32 bits.
    pub(super) fn random(&self) -> u32 {
        match self {
            // Without randomness there is no jitter: the middle is as good as any.
            Self::Real => getrandom::u32().unwrap_or(u32::MAX / 2),
            #[cfg(any(test, feature = "sim"))]
            Self::Stepped { elapsed_ms, .. } => {
                let mixed = elapsed_ms.load(Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                u32::try_from(mixed >> 32).unwrap_or_default()
            }
        }
    }
}
