//! Simulated worlds: whole engines in one thread, everything around them simulated and faulty, judged by an onlooker.

use std::{panic::catch_unwind, time::Instant};

use clap::Args;
use countwheel::sim::{Atlas, Outcome, run as live};

/// Options of the worlds.
#[derive(Args)]
pub(crate) struct Options {
    /// How many worlds.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Print everything that happens in the world of this seed, and run no other.
    #[arg(long)]
    trace: Option<u64>,
}

/// Runs the worlds; `false` where a promise was broken, each with its seed.
pub(crate) fn run(options: &Options) -> bool {
    let atlas = Atlas::new();
    if let Some(seed) = options.trace {
        println!("{:?}", live(seed, &atlas, true));
        return true;
    }
    let began = Instant::now();
    let (mut broken, mut whole) = (Vec::new(), Vec::<Outcome>::new());
    for seed in options.from..options.from + options.seeds {
        match catch_unwind(|| live(seed, &atlas, false)) {
            Ok(outcome) => whole.push(outcome),
            Err(_) => {
                println!("seed {seed} broke a promise");
                broken.push(seed);
            }
        }
        if seed % 50 == 0 && whole.last().is_some_and(|first| *first != live(seed, &atlas, false)) {
            println!("seed {seed} was another world when it was run again");
            broken.push(seed);
        }
    }
    let took_s = began.elapsed().as_secs_f64();
    let sum = |of: fn(&Outcome) -> u64| whole.iter().map(of).sum::<u64>();
    let simulated_ms = sum(|outcome| outcome.simulated_ms);
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let (worlds_per_s, days_per_s) = (options.seeds as f64 / took_s, simulated_ms as f64 / 86_400_000.0 / took_s);
    println!(
        "{} worlds, {} broken; {:.1} worlds/s, {:.3} simulated days/s; {} landings, {} of them again with an excuse, {} faults",
        options.seeds,
        broken.len(),
        worlds_per_s,
        days_per_s,
        sum(|outcome| outcome.landings),
        sum(|outcome| outcome.duplicates),
        sum(|outcome| outcome.faults),
    );
    broken.is_empty()
}
