//! What a consumer sees: a connection of its own, a blocking read, and the wall clock when an answer is there.

use std::{thread::JoinHandle, time::Duration};

use countwheel::kernel::time::UnixMs;
use countwheel_bench::redis_server::RedisServer;

use crate::{cpu, drain::Delivery, error::BenchError, read_back, wall};

/// What a consumer saw, and the processor time that this took.
pub(crate) struct Seen {
    pub(crate) deliveries: Vec<Delivery>,
    pub(crate) cpu: Duration,
}

/// Starts a thread that reads the streams until `expected` entries were there, or until `last`.
pub(crate) fn watch(
    server: &RedisServer,
    streams: &[String],
    expected: usize,
    last: UnixMs,
) -> Result<JoinHandle<Result<Seen, BenchError>>, BenchError> {
    let mut link = redis::Client::open(server.url())?.get_connection()?;
    let mut streams: Vec<_> = streams.iter().map(|key| (key.clone(), b"0-0".to_vec())).collect();
    let thread = std::thread::Builder::new().name("consumer".into());
    Ok(thread.spawn(move || {
        let mut deliveries = Vec::with_capacity(expected);
        while deliveries.len() < expected && wall::now() < last {
            let mut seen_ns = 0;
            for entry in read_back::wait_for_more(&mut link, &mut streams, || seen_ns = wall::now_ns())? {
                let lag_ns = seen_ns - entry.available_at()?.0 * 1_000_000;
                deliveries.push(Delivery { occurrence_id: entry.occurrence()?, lag_ns });
            }
        }
        Ok(Seen { deliveries, cpu: cpu::thread() })
    })?)
}
