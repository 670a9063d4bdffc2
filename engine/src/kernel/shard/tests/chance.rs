//! Whatever happens in whatever order, a shard keeps its promises.

use std::{fmt::Write as _, panic};

use super::ZONES;
use crate::kernel::shard::model::{run_kernel, run_seed};

/// How many scripts the ordinary run tries; `KERNEL_SEEDS=from..to` tries others.
const SEEDS: std::ops::Range<u64> = 0..600;

#[test]
#[expect(clippy::disallowed_methods, reason = "a longer run is asked for by hand")]
fn a_shard_keeps_its_promises_whatever_happens() {
    let seeds = std::env::var("KERNEL_SEEDS").ok().and_then(|text| {
        let (from, to) = text.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    });
    let mut broken = String::new();
    for seed in seeds.unwrap_or(SEEDS) {
        if panic::catch_unwind(|| run_seed(seed, &ZONES)).is_err() {
            writeln!(broken, "seed {seed}").expect("a string takes everything");
        }
    }
    assert!(broken.is_empty(), "a promise was broken:\n{broken}");
}

#[test]
fn scripts_without_variety_end_too() {
    for byte in 0..=255 {
        run_kernel(&[byte; 150], &ZONES);
    }
    run_kernel(&[], &ZONES);
}
