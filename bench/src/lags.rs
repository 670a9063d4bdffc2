//! Lags and their quantiles, exact: every one of them is kept.

/// Quantiles of lags, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Quantiles {
    pub(crate) min_ms: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
}

impl Quantiles {
    /// Of lags in nanoseconds, in any order. All zero where there are none.
    pub(crate) fn of(mut lags_ns: Vec<i64>) -> Self {
        lags_ns.sort_unstable();
        let Some(last) = lags_ns.len().checked_sub(1) else { return Self::default() };
        // The smallest lag that so many per mille do not exceed.
        let at = |per_mille: usize| lags_ns[((last + 1) * per_mille).div_ceil(1_000).saturating_sub(1)] as f64 / 1e6;
        Self { min_ms: at(0), p50_ms: at(500), p99_ms: at(990), max_ms: at(1_000) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_smallest_lag_that_its_share_does_not_exceed() {
        let quantiles = Quantiles::of((1..=1_000).rev().map(|ms| ms * 1_000_000).collect());
        assert_eq!(quantiles, Quantiles { min_ms: 1.0, p50_ms: 500.0, p99_ms: 990.0, max_ms: 1_000.0 });
        assert_eq!(Quantiles::of(vec![7_500_000]).p99_ms, 7.5);
        assert_eq!(Quantiles::of(Vec::new()), Quantiles::default());
    }
}
