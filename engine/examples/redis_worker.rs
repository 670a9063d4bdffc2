//! A worker of a queue on Redis Streams, in a process of its own: prints what it runs, stops when its input ends.
//!
//! ```text
//! cargo run --example redis_worker -- redis://127.0.0.1 http://127.0.0.1:7171 billing [lease_ms] [work_ms]
//! ```

#![allow(clippy::disallowed_methods, reason = "a worker waits; the kernel's bans are not its")]

use std::{
    io::{Read, Write},
    thread::sleep,
    time::{Duration, Instant},
};

use countwheel::worker::{Consumer, ConsumerConfig, Failure, Run};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [redis_url, engine_url, queue, rest @ ..] = words.as_slice() else {
        return Err("give the redis url, the engine's url and a queue".into());
    };
    let millis = |at: usize, default| rest.get(at).map_or(Ok(default), |text| text.parse().map(Duration::from_millis));
    let mut config = ConsumerConfig::new(redis_url, engine_url, queue);
    config.lease = millis(0, Duration::from_secs(60))?;
    config.recover_after = config.lease;
    let work = millis(1, Duration::ZERO)?;

    let consumer = Consumer::start(config, move |run| handle(run, work))?;
    // Whoever started it closes its input, or is gone: what runs is finished, the rest is left to others.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    let stopped = consumer.stop(Duration::from_secs(30));
    eprintln!("stopped, {} left unfinished", stopped.unfinished);
    Ok(())
}

/// The work: it takes so long, and is recorded once it is done.
fn handle(run: &Run, work: Duration) -> Result<Option<String>, Failure> {
    say(format_args!("begun {} {}", run.occurrence_id(), run.attempt()))?;
    let started = Instant::now();
    while started.elapsed() < work {
        if run.is_canceled() {
            return Err(Failure::canceled("asked to stop"));
        }
        sleep(Duration::from_millis(10).min(work));
    }
    say(format_args!("done {} {}", run.occurrence_id(), run.attempt()))?;
    Ok(None)
}

fn say(line: std::fmt::Arguments<'_>) -> Result<(), Failure> {
    writeln!(std::io::stdout(), "{line}").map_err(|error| Failure::transient(error.to_string()))
}
