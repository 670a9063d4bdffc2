//! How fast something has gone in the last seconds, from a count that only grows.

/// Older than this counts for a third.
const MEMORY_MS: f64 = 5_000.0;

/// A rate that forgets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    last: Option<(i64, u64)>,
    per_second: f64,
}

impl Pace {
    /// The count stands at `count` at `now_ms` of a clock that never steps.
    pub(crate) fn look(&mut self, now_ms: i64, count: u64) {
        if let Some((then_ms, before)) = self.last {
            let elapsed_ms = now_ms.saturating_sub(then_ms) as f64;
            if elapsed_ms <= 0.0 {
                return;
            }
            let per_second = count.saturating_sub(before) as f64 * 1_000.0 / elapsed_ms;
            let kept = (-elapsed_ms / MEMORY_MS).exp();
            self.per_second = self.per_second * kept + per_second * (1.0 - kept);
        }
        self.last = Some((now_ms, count));
    }

    pub(crate) const fn per_second(&self) -> f64 {
        self.per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_rate_is_told_and_a_halt_is_forgotten_soon() {
        let mut pace = Pace::default();
        for second in 0..60 {
            pace.look(second * 1_000, second.unsigned_abs() * 200);
        }
        assert!((pace.per_second() - 200.0).abs() < 1.0, "{pace:?}");
        pace.look(59_000, 1 << 40);
        pace.look(89_000, 59 * 200);
        assert!(pace.per_second() < 1.0, "{pace:?}");
    }
}
