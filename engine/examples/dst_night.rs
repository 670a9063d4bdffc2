//! What a rule does in the nights on which New York's clocks change: nothing is stored.

use countwheel::{
    Engine,
    kernel::{
        calendar::{CronSpec, FoldChoice},
        changes::NewRule,
        time::UnixMs,
    },
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let engine = Engine::builder(dir.path()).shards(1).reserve_bytes(0).open().await?;
    for (night, from, expr, fold) in [
        ("spring forward", "2026-03-08T05:00:00Z", "30 2 * * *", FoldChoice::Auto),
        ("fall back, an appointment", "2026-11-01T04:00:00Z", "30 1 * * *", FoldChoice::Auto),
        ("fall back, asked for both", "2026-11-01T04:00:00Z", "30 1 * * *", FoldChoice::Both),
        ("fall back, a cadence", "2026-11-01T05:20:00Z", "*/30 * * * *", FoldChoice::Auto),
    ] {
        let rule = NewRule::from(CronSpec { fold, ..CronSpec::new(expr, "America/New_York") });
        let from = UnixMs::parse_rfc3339(from).expect("an instant");
        let forecast = engine.forecast(&rule, (None, None), Some(from), 3)?;
        let next: Vec<String> = forecast.next.iter().map(|fire| fire.at.to_string()).collect();
        println!("{night}: {expr} after {from}: {}", next.join(", "));
        for warning in forecast.warnings.iter().take(1) {
            println!("  {}: {}", warning.code.as_str(), warning.message);
        }
    }
    engine.stop().await?;
    Ok(())
}
