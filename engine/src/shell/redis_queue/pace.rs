//! How long to wait before the next attempt, and how often to say so.

use std::time::{Duration, Instant};

use super::{reply::Pace, time::Time};

/// The first back-off.
const SHORTEST: Duration = Duration::from_millis(100);

/// Back-off with full jitter, so that shards and engines do not come back in step.
pub(crate) struct BackOff {
    longest: Duration,
    failures: u32,
    time: Time,
}

impl BackOff {
    #[cfg(any(test, feature = "worker"))]
    pub(crate) fn new(longest: Duration) -> Self {
        Self::with_time(longest, Time::Real)
    }

    /// With jitter from elsewhere.
    pub(super) const fn with_time(longest: Duration, time: Time) -> Self {
        Self { longest, failures: 0, time }
    }

    /// It worked: the next trouble starts from the shortest wait.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// How long to wait after one more failure.
    pub(crate) fn next(&mut self, pace: Pace) -> Duration {
        self.failures = self.failures.saturating_add(1);
        match pace {
            // Even a sure remedy that fails again and again must not spin.
            Pace::Now if self.failures == 1 => Duration::ZERO,
            Pace::Now | Pace::BackOff => jittered(self.window(), self.time.random()),
            Pace::Slow => self.longest,
        }
    }

    fn window(&self) -> Duration {
        SHORTEST.saturating_mul(1 << self.failures.min(16)).min(self.longest)
    }
}

/// Between the shortest wait and `window`, at `fraction` of 2^32.
fn jittered(window: Duration, fraction: u32) -> Duration {
    let room = window.saturating_sub(SHORTEST);
    SHORTEST.min(window) + room.mul_f64(f64::from(fraction) / f64::from(u32::MAX))
}

/// Lets one line a second through.
#[derive(Default)]
pub(crate) struct OnceASecond {
    last: Option<Instant>,
    held_back: u32,
}

impl OnceASecond {
    /// Whether to speak now, and how many lines were held back before.
    pub(crate) fn admit(&mut self, now: Instant) -> Option<u32> {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < Duration::from_secs(1)) {
            self.held_back += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_back_off_grows_to_its_longest_and_never_beyond() {
        let mut back_off = BackOff::new(Duration::from_secs(5));
        for failure in 1..100 {
            let wait = back_off.next(Pace::BackOff);
            assert!((SHORTEST..=Duration::from_secs(5)).contains(&wait), "{failure}: {wait:?}");
        }
        assert_eq!(back_off.window(), Duration::from_secs(5));
        back_off.reset();
        assert!(back_off.next(Pace::BackOff) <= Duration::from_millis(200));
    }

    #[test]
    fn jitter_covers_the_whole_window() {
        let window = Duration::from_secs(1);
        assert_eq!(jittered(window, 0), SHORTEST);
        assert_eq!(jittered(window, u32::MAX), window);
        assert_eq!(jittered(Duration::from_millis(10), 7), Duration::from_millis(10));
    }

    #[test]
    fn a_sure_remedy_is_tried_at_once_but_does_not_spin() {
        let mut back_off = BackOff::new(Duration::from_secs(5));
        assert_eq!(back_off.next(Pace::Now), Duration::ZERO);
        assert!(back_off.next(Pace::Now) >= SHORTEST);
        assert_eq!(back_off.next(Pace::Slow), Duration::from_secs(5));
    }

    #[test]
    fn one_line_a_second_and_the_rest_is_counted() {
        let mut gate = OnceASecond::default();
        let start = Instant::now();
        assert_eq!(gate.admit(start), Some(0));
        assert_eq!(gate.admit(start + Duration::from_millis(400)), None);
        assert_eq!(gate.admit(start + Duration::from_millis(999)), None);
        assert_eq!(gate.admit(start + Duration::from_secs(1)), Some(2));
    }
}
