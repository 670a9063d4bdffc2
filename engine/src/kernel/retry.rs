//! When a failed attempt is repeated: exponential back-off with full jitter, as a pure function of the occurrence and the
//! attempt, so that a restart or a replay of the log waits exactly as long.
//!
//! "Full jitter" as in Marc Brooker, *Exponential Backoff And Jitter*, AWS Architecture Blog, 2015: uniform from nothing
//! to the exponential bound.

use sha2::{Digest, Sha256};

use super::{id::OccurrenceId, policy::Retry};

/// How long to wait after `attempt` (from 1) failed: uniform in `[0, min(cap, base * 2^(attempt - 1))]`.
#[must_use]
pub fn backoff_ms(occurrence: OccurrenceId, attempt: u32, retry: &Retry) -> u64 {
    let doublings = attempt.saturating_sub(1);
    let grown = if doublings < u64::BITS { retry.base_ms.checked_mul(1 << doublings) } else { None };
    let bound_ms = match grown {
        Some(ms) => ms.min(retry.cap_ms),
        // A base of nothing stays nothing however often it doubles.
        None if retry.base_ms == 0 => 0,
        None => retry.cap_ms,
    };
    let mut hash = Sha256::new();
    hash.update(occurrence.0);
    hash.update(attempt.to_be_bytes());
    let digest = hash.finalize();
    let draw = u64::from_be_bytes(digest[..8].try_into().expect("a SHA-256 has 32 bytes"));
    // The high half of the product is uniform in [0, bound], without the bias of a remainder.
    let scaled = (u128::from(draw) * (u128::from(bound_ms) + 1)) >> u64::BITS;
    u64::try_from(scaled).expect("at most the bound")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{
        id::{Kind, ScheduleId},
        time::UnixMs,
    };

    fn occurrence(n: i64) -> OccurrenceId {
        OccurrenceId::of(ScheduleId([7; 16]), 1, UnixMs(n), Kind::Regular, b"")
    }

    #[test]
    fn every_attempt_number_waits_between_nothing_and_the_cap() {
        let retry = Retry { base_ms: 1_000, cap_ms: 3_600_000, ..Retry::default() };
        for attempt in [0, 1, 2, 31, 32, 63, 64, 65, 1_000, u32::MAX] {
            for n in 0..200 {
                assert!(backoff_ms(occurrence(n), attempt, &retry) <= retry.cap_ms, "attempt {attempt}");
            }
        }
        let extreme = Retry { base_ms: u64::MAX, cap_ms: u64::MAX, ..retry };
        let _ = backoff_ms(occurrence(1), u32::MAX, &extreme);
        let none = Retry { base_ms: 0, ..retry };
        assert!((0..100).all(|attempt| backoff_ms(occurrence(1), attempt, &none) == 0));
    }

    #[test]
    fn the_bound_doubles_and_the_jitter_is_full_and_even() {
        let retry = Retry { base_ms: 1_000, cap_ms: 600_000, ..Retry::default() };
        for (attempt, bound_ms) in [(1, 1_000), (2, 2_000), (5, 16_000), (20, 600_000)] {
            let mut tenths = [0_u32; 10];
            for n in 0..10_000 {
                let ms = backoff_ms(occurrence(n), attempt, &retry);
                assert!(ms <= bound_ms);
                tenths[usize::try_from((ms * 10 / (bound_ms + 1)).min(9)).unwrap()] += 1;
            }
            assert!(tenths.iter().all(|count| (850..1_150).contains(count)), "attempt {attempt}: {tenths:?}");
        }
    }

    #[test]
    fn the_same_attempt_waits_the_same_and_another_does_not() {
        let retry = Retry::default();
        assert_eq!(backoff_ms(occurrence(1), 3, &retry), backoff_ms(occurrence(1), 3, &retry));
        assert_ne!(backoff_ms(occurrence(1), 3, &retry), backoff_ms(occurrence(1), 4, &retry));
        assert_ne!(backoff_ms(occurrence(1), 3, &retry), backoff_ms(occurrence(2), 3, &retry));
    }
}
