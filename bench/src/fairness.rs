//! `fairness`: one tenant's burst and many small tenants' work due on the same instant, equal weights: how long the
//! small ones wait, against their fair share.

use clap::Args;

use crate::{
    bed::Setup,
    burst::{self, Crowd},
    error::BenchError,
    report::Report,
};

#[derive(Args)]
pub(crate) struct Options {
    /// How many schedules the large tenant has.
    #[arg(long, default_value_t = 400_000)]
    burst: usize,
    /// How many small tenants there are.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    small_tenants: u32,
    /// How many schedules each of them has.
    #[arg(long, default_value_t = 1_000)]
    each: usize,
    /// How far ahead the instant is when the first schedule is made; measured unless given.
    #[arg(long)]
    ahead_seconds: Option<f64>,
    #[command(flatten)]
    pub(crate) setup: Setup,
}

/// Runs the experiment.
pub(crate) async fn run(options: &Options) -> Result<Report, BenchError> {
    let crowd = Crowd { large: options.burst, small_tenants: options.small_tenants as usize, each: options.each };
    let of_burst = burst::Options {
        triggers: options.burst + crowd.small_tenants * options.each,
        ahead_seconds: options.ahead_seconds,
        limit_rounds: 0,
        setup: options.setup.clone(),
    };
    let mut report = burst::measure("fairness", &of_burst, Some(crowd)).await?;
    report.note("fair share: (small tenants + 1) x each / throughput of this run; small: all small tenants together");
    Ok(report)
}
