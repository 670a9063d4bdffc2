//! A rate that several threads draw from: one atomic, the generic cell rate algorithm (ITU-T I.371).
//!
//! Kept is the moment up to which the rate is used. It may lie a second ahead of now, so a second's worth can be taken
//! at once; what is not used is not saved beyond that.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};

use crate::kernel::time::UnixMs;

/// A millisecond in the units that are counted: fine enough for a million a second, coarse enough for the year 9999.
const UNITS_A_MS: i64 = 16_384;
const UNITS_A_SECOND: i64 = 1_000 * UNITS_A_MS;
/// Stands for no limit; no rate that can be set comes near.
const UNLIMITED: u32 = u32::MAX;
/// Whoever waits is called for a hundredth of a second's worth, not for each token.
const CALLS_A_SECOND: i64 = 100;

/// A rate.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    per_second: AtomicU32,
    used_until: AtomicI64,
}

impl TokenBucket {
    pub(crate) const fn new(per_second: Option<u32>) -> Self {
        let per_second = if let Some(rate) = per_second { rate } else { UNLIMITED };
        Self { per_second: AtomicU32::new(per_second), used_until: AtomicI64::new(i64::MIN) }
    }

    /// Another rate from now on; what is used stays used.
    pub(crate) fn set(&self, per_second: Option<u32>) {
        self.per_second.store(per_second.unwrap_or(UNLIMITED), Relaxed);
    }

    /// Takes up to `wanted` tokens.
    pub(crate) fn take(&self, wanted: usize, now: UnixMs) -> usize {
        let per_second = self.per_second.load(Relaxed);
        if per_second == UNLIMITED {
            return wanted;
        }
        let (rate, now) = (i64::from(per_second), now.0.saturating_mul(UNITS_A_MS));
        let mut granted = 0;
        let _ = self.used_until.fetch_update(Relaxed, Relaxed, |used_until| {
            let from = used_until.max(now);
            let left = (UNITS_A_SECOND - (from - now)).max(0) * rate / UNITS_A_SECOND;
            granted = usize::try_from(left).unwrap_or(usize::MAX).min(wanted);
            (granted > 0).then(|| from + cost(granted, rate))
        });
        granted
    }

    /// Gives back what was taken and not needed.
    pub(crate) fn give_back(&self, unused: usize) {
        let per_second = self.per_second.load(Relaxed);
        if unused > 0 && per_second != UNLIMITED && per_second > 0 {
            // Rounded down: a bucket never holds more than its rate.
            let units =
                i64::try_from(unused).unwrap_or(i64::MAX).saturating_mul(UNITS_A_SECOND) / i64::from(per_second);
            self.used_until.fetch_sub(units, Relaxed);
        }
    }

    /// When it is worth asking again, if it granted too little: within a second.
    pub(crate) fn ready_at(&self, now: UnixMs) -> UnixMs {
        let rate = match self.per_second.load(Relaxed) {
            UNLIMITED => return now.plus(1),
            0 => return now.plus(1_000),
            per_second => i64::from(per_second),
        };
        let worth = usize::try_from((rate / CALLS_A_SECOND).max(1)).unwrap_or(1);
        let ready = self.used_until.load(Relaxed).saturating_sub(UNITS_A_SECOND).saturating_add(cost(worth, rate));
        let ready_ms = ready.saturating_add(UNITS_A_MS - 1).div_euclid(UNITS_A_MS);
        UnixMs(ready_ms.clamp(now.0 + 1, now.0 + 1_000))
    }
}

/// What `tokens` use of the rate, rounded up: it is never exceeded.
fn cost(tokens: usize, rate: i64) -> i64 {
    let units = i64::try_from(tokens).unwrap_or(i64::MAX).saturating_mul(UNITS_A_SECOND);
    units / rate + i64::from(units % rate != 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOON: UnixMs = UnixMs(1_793_534_400_000);

    #[test]
    fn a_second_s_worth_can_be_taken_at_once_and_comes_back_in_a_second() {
        let bucket = TokenBucket::new(Some(50));
        assert_eq!(bucket.take(80, NOON), 50);
        assert_eq!(bucket.take(1, NOON), 0);
        assert_eq!(bucket.ready_at(NOON), NOON.plus(20));
        assert_eq!((bucket.take(9, NOON.plus(19)), bucket.take(9, NOON.plus(20))), (0, 1));
        assert_eq!(bucket.take(1_000, NOON.plus(60_000)), 50, "what is not used is not saved");
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let bucket = TokenBucket::new(Some(10));
        assert_eq!(bucket.take(10, NOON), 10);
        bucket.give_back(4);
        assert_eq!(bucket.take(9, NOON), 4);
    }

    #[test]
    fn no_limit_and_none_at_all_are_both_rates() {
        let bucket = TokenBucket::new(None);
        assert_eq!(bucket.take(usize::MAX, NOON), usize::MAX);
        bucket.set(Some(0));
        assert_eq!((bucket.take(5, NOON), bucket.ready_at(NOON)), (0, NOON.plus(1_000)));
        bucket.give_back(3);
        bucket.set(Some(2));
        assert_eq!(bucket.take(5, NOON), 2);
        bucket.set(Some(1_000_000));
        assert_eq!(bucket.take(5, UnixMs::MAX), 5);
    }

    #[test]
    fn threads_together_take_no_more_than_one_could() {
        let bucket = TokenBucket::new(Some(10_000));
        let taken: usize = std::thread::scope(|scope| {
            let takers: Vec<_> =
                (0..4).map(|_| scope.spawn(|| (0..10_000).map(|_| bucket.take(3, NOON)).sum::<usize>())).collect();
            takers.into_iter().map(|taker| taker.join().unwrap()).sum()
        });
        assert!((9_990..=10_000).contains(&taken), "{taken}: every take rounds up");
    }

    proptest! {
        #[test]
        fn over_any_time_it_grants_its_rate_and_a_second_s_worth(
            rate in 1_u32..=1_000_000,
            steps in prop::collection::vec((0_i64..3_000, 0_usize..5_000), 1..100),
        ) {
            let bucket = TokenBucket::new(Some(rate));
            let (mut now, mut granted) = (NOON, 0);
            for (ms, wanted) in steps {
                now = now.plus(ms);
                granted += bucket.take(wanted, now);
                let most = i64::from(rate) * (now.since(NOON) + 1_000) / 1_000;
                prop_assert!(granted as i64 <= most, "{granted} of {most} after {} ms", now.since(NOON));
            }
            let ready = bucket.ready_at(now);
            prop_assert!(bucket.take(1, ready.max(now.plus(1_000))) == 1, "one is there within a second");
        }
    }
}
