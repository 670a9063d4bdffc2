//! Redis' own limit for the same entries: encoded by hand beforehand, sent again over plain TCP into fresh streams.
//!
//! Nothing stands between the bytes and the socket here: no transactions, no log, no answers beyond their count. What
//! an engine reaches of this is its ratio. The better of one and two connections counts, each with the median of its
//! rounds, since neighbours on the machine move both.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use countwheel_bench::redis_server::RedisServer;

use crate::{error::BenchError, read_back::Entry};

/// As many entries a write, and writes under way, as the engine's relay has.
const BATCH_ENTRIES: usize = 2_048;
const IN_FLIGHT: usize = 3;

/// Entries of an earlier run, encoded as they stand behind an id.
#[derive(Default)]
pub(crate) struct Fields {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Fields {
    pub(crate) fn push(&mut self, entry: &Entry) {
        let parts: [&[u8]; 6] =
            [b"occurrence_id", &entry.occurrence_id, b"meta", &entry.meta, b"payload", &entry.payload];
        for part in parts {
            push_bulk(&mut self.bytes, part);
        }
        self.ends.push(self.bytes.len());
    }

    /// Whole batches for `connections` streams, dealt in turn.
    fn batches(&self, connections: usize) -> Vec<Vec<Vec<u8>>> {
        let mut all = vec![Vec::new(); connections];
        for (place, chunk) in (0..self.ends.len()).collect::<Vec<_>>().chunks(BATCH_ENTRIES).enumerate() {
            let mut batch = Vec::new();
            for &entry in chunk {
                let start = if entry == 0 { 0 } else { self.ends[entry - 1] };
                batch.extend_from_slice(b"*9\r\n$4\r\nXADD\r\n");
                push_bulk(&mut batch, key(place % connections).as_bytes());
                push_bulk(&mut batch, format!("1-{}", entry + 1).as_bytes());
                batch.extend_from_slice(&self.bytes[start..self.ends[entry]]);
            }
            all[place % connections].push(batch);
        }
        all
    }
}

fn key(connection: usize) -> String {
    format!("limit:{connection}")
}

fn push_bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// What Redis took a second.
#[derive(Debug)]
pub(crate) struct Limit {
    /// Of the better number of connections.
    pub(crate) per_s: f64,
    /// Every round: connections, and entries a second.
    pub(crate) rounds: Vec<(usize, f64)>,
}

/// Measures the limit on the server that the engine used, `count` rounds with each number of connections.
pub(crate) fn measure(server: &RedisServer, fields: &Fields, count: u16) -> Result<Limit, BenchError> {
    let mut rounds = Vec::new();
    let mut per_s = 0.0_f64;
    for connections in [1, 2] {
        let batches = fields.batches(connections);
        let mut of_these = Vec::new();
        for _ in 0..count {
            clear(server, connections)?;
            of_these.push(fields.ends.len() as f64 / round(server, &batches)?.as_secs_f64());
        }
        rounds.extend(of_these.iter().map(|&rate| (connections, rate)));
        of_these.sort_unstable_by(f64::total_cmp);
        per_s = per_s.max(of_these[of_these.len() / 2]);
    }
    Ok(Limit { per_s, rounds })
}

/// Fresh streams, and a moment for Redis to free and to sync what was.
fn clear(server: &RedisServer, connections: usize) -> Result<(), BenchError> {
    let mut link = redis::Client::open(server.url())?.get_connection()?;
    for connection in 0..connections {
        redis::cmd("UNLINK").arg(key(connection)).query::<()>(&mut link)?;
    }
    std::thread::sleep(Duration::from_millis(1_500));
    Ok(())
}

/// From the first byte sent to the last answer.
fn round(server: &RedisServer, batches: &[Vec<Vec<u8>>]) -> Result<Duration, BenchError> {
    let links = batches.iter().map(|_| TcpStream::connect(("127.0.0.1", server.port())));
    let links = links.collect::<Result<Vec<_>, _>>()?;
    let started = Instant::now();
    std::thread::scope(|scope| {
        let senders: Vec<_> =
            links.into_iter().zip(batches).map(|(link, batches)| scope.spawn(move || send(link, batches))).collect();
        senders.into_iter().try_for_each(|sender| {
            sender.join().map_err(|_| BenchError::Ended("a sender of the limit".into()))?.map_err(BenchError::from)
        })
    })?;
    Ok(started.elapsed())
}

fn send(mut link: TcpStream, batches: &[Vec<u8>]) -> std::io::Result<()> {
    link.set_nodelay(true)?;
    let mut answers = Answers { bytes: vec![0; 256 * 1024], lines: 0 };
    for (place, batch) in batches.iter().enumerate() {
        link.write_all(batch)?;
        if place + 1 >= IN_FLIGHT {
            answers.read_until(&mut link, (place + 2 - IN_FLIGHT) * BATCH_ENTRIES)?;
        }
    }
    let all = batches.iter().map(|batch| batch.windows(6).filter(|w| *w == b"\nXADD\r").count()).sum::<usize>();
    answers.read_until(&mut link, all)
}

/// Counts answers: each is a length and an id, a line each.
struct Answers {
    bytes: Vec<u8>,
    lines: usize,
}

impl Answers {
    fn read_until(&mut self, link: &mut TcpStream, answers: usize) -> std::io::Result<()> {
        while self.lines < answers * 2 {
            let count = link.read(&mut self.bytes)?;
            let read = &self.bytes[..count];
            if count == 0 || read.contains(&b'-') && read.windows(5).any(|w| w == b"\n-ERR") {
                return Err(std::io::Error::other("redis refused an entry of the limit"));
            }
            self.lines += read.iter().filter(|byte| **byte == b'\n').count();
        }
        Ok(())
    }
}
