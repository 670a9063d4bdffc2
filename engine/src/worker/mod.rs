//! A worker in a process of its own: reads a queue's streams in Redis, claims at the engine, runs a handler, answers.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use countwheel::worker::{Consumer, ConsumerConfig, Failure, Run};
//!
//! fn send_invoice(run: &Run) -> Result<Option<String>, Failure> {
//!     let account = std::str::from_utf8(run.payload()).map_err(|_| Failure::permanent("the payload is no text"))?;
//!     // The occurrence's id makes the work idempotent: it may be delivered more than once.
//!     println!("invoice {account}, key {}", run.occurrence_id());
//!     Ok(Some(format!("invoices/{}", run.occurrence_id())))
//! }
//!
//! let config = ConsumerConfig::new("redis://127.0.0.1", "http://127.0.0.1:7171", "billing");
//! let consumer = Consumer::start(config, send_invoice)?;
//! std::thread::sleep(Duration::from_secs(60));
//! consumer.stop(Duration::from_secs(30));
//! # Ok::<(), countwheel::worker::ConsumerError>(())
//! ```
//!
//! It keeps the protocol of docs/REDIS.md:
//!
//! - an entry is claimed before it runs, and acknowledged only after an answer of the engine that settles it;
//! - it reads no more than it has idle handlers, strict before flexible before catch-up, each lane at least a tenth;
//! - what a consumer was given and did not claim is taken over after a while, groups that vanished are made again;
//! - leases are extended in the background; a handler learns by [`Run::cancellation`] when to stop;
//! - how an attempt ended is told until the engine has heard it; a panic is a transient failure.
//!
//! It does not promise that a handler runs once: after a crash, or when its lease was lost, another attempt follows.

mod config;
mod engine_client;
mod entry;
mod leases;
mod reader;
mod run;
mod runner;
mod shares;
mod signal;
mod stats;

use std::{
    collections::HashSet,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use crossbeam::channel::{Receiver, bounded, unbounded};
use redis::Value;

pub use config::{ConsumerConfig, ConsumerError};
pub use run::{Cancellation, Failure, Run};
pub use stats::ConsumerStats;

use engine_client::EngineClient;
use entry::Place;
use leases::Leases;
use reader::Reader;
use runner::Runner;
use signal::Signal;
use stats::{Figures, count};

use crate::shell::redis_queue::{Address, Fault, Link, OnceASecond};

/// How long connecting to Redis may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long one answer of Redis may take: longer than a read waits for entries.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

type Handler = dyn Fn(&Run) -> Result<Option<String>, Failure> + Send + Sync;

/// Runs a handler for what is due in one queue. Dropped, it reads nothing more and leaves what runs to its lease.
#[derive(Debug)]
pub struct Consumer {
    shared: Arc<Shared>,
    /// Closed when every handler thread has ended.
    handlers_ended: Receiver<Infallible>,
}

/// How a consumer stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stopped {
    /// Attempts whose handlers had not returned, or whose end was not heard; their leases run out.
    pub unfinished: usize,
}

/// What the threads share.
struct Shared {
    config: ConsumerConfig,
    /// Unique to this start.
    name: String,
    address: Address,
    engine: EngineClient,
    leases: Leases,
    /// Read and not settled yet.
    in_hand: Mutex<HashSet<Place>>,
    /// The connection for acknowledgements.
    acknowledging: Mutex<Option<Link>>,
    figures: Figures,
    /// Nothing more is read or claimed.
    stopping: Signal,
    /// Nobody waits any more.
    ended: Signal,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("config", &self.config).field("name", &self.name).finish_non_exhaustive()
    }
}

impl Consumer {
    /// Starts reading. Redis and the engine need not be there yet. The handler runs on as many threads at a time as
    /// [`ConsumerConfig::handlers`] says; what it returns is a reference to its result, if there is one, of at most
    /// 1,024 bytes.
    ///
    /// # Errors
    /// A setting that cannot be used, or no thread.
    pub fn start(
        config: ConsumerConfig,
        handler: impl Fn(&Run) -> Result<Option<String>, Failure> + Send + Sync + 'static,
    ) -> Result<Self, ConsumerError> {
        config.check()?;
        let shared = Arc::new(Shared {
            name: unique(&config.name),
            address: Address::parse(&config.redis_url, CONNECT_TIMEOUT, RESPONSE_TIMEOUT)?,
            engine: EngineClient::new(&config)?,
            leases: Leases::default(),
            in_hand: Mutex::default(),
            acknowledging: Mutex::default(),
            figures: Figures::default(),
            stopping: Signal::default(),
            ended: Signal::default(),
            config,
        });
        let (ended, handlers_ended) = bounded::<Infallible>(0);
        // From here on a failure ends the threads that were started already.
        let consumer = Self { shared: Arc::clone(&shared), handlers_ended };
        let (idle, idle_handlers) = unbounded();
        let (sender, work) = unbounded();
        let handler: Arc<Handler> = Arc::new(handler);
        for number in 0..shared.config.handlers {
            let (idle, work, handler) = (idle.clone(), work.clone(), Arc::clone(&handler));
            let (shared, ended) = (Arc::clone(&shared), ended.clone());
            let runner = Runner { shared, handler, idle, work, log_gate: OnceASecond::default() };
            spawn(format!("cw-handler-{number}"), move || {
                let _ended = ended;
                runner.run();
            })?;
        }
        let reader = Reader::new(Arc::clone(&shared), idle_handlers, sender);
        spawn("cw-reader".to_owned(), move || reader.run())?;
        spawn("cw-heartbeats".to_owned(), move || {
            shared.leases.keep(&shared.engine, shared.config.lease, &shared.ended);
        })?;
        Ok(consumer)
    }

    /// What it is called in its group, and at the engine.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Its figures.
    #[must_use]
    pub fn stats(&self) -> ConsumerStats {
        self.shared.figures.snapshot()
    }

    /// Reads nothing more, and lets what runs end, for at most `limit`.
    #[allow(clippy::must_use_candidate, reason = "how it ended is for those who want to know")]
    pub fn stop(self, limit: Duration) -> Stopped {
        self.shared.stopping.raise();
        // Nothing is ever sent: each thread drops its end when it has ended.
        let _ = self.handlers_ended.recv_timeout(limit);
        let unfinished = self.shared.leases.len();
        self.shared.ended.raise();
        if unfinished == 0 {
            self.shared.leave();
        }
        Stopped { unfinished }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.shared.stopping.raise();
        self.shared.ended.raise();
    }
}

impl Shared {
    fn in_hand(&self) -> MutexGuard<'_, HashSet<Place>> {
        self.in_hand.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// XACK. What Redis does not take comes again, and the engine then says that it is settled.
    fn acknowledge(&self, place: &Place) {
        let asked = self.ask(&[b"XACK", place.key.as_bytes(), self.config.group.as_bytes(), &place.id]);
        if !matches!(asked, Ok(Value::Int(1))) {
            count(&self.figures.unacknowledged);
        }
    }

    /// A clean end leaves no name behind, unless entries are pending under it: those would be gone with it.
    fn leave(&self) {
        let Ok(shards) = self.engine.shards() else { return };
        let (group, name) = (self.config.group.as_bytes(), self.name.as_bytes());
        for shard in 0..shards {
            for lane in crate::kernel::occurrence::Lane::ALL {
                let key = self.key(shard, lane);
                let pending = self.ask(&[b"XPENDING", key.as_bytes(), group, b"-", b"+", b"1", name]);
                if matches!(pending, Ok(Value::Array(entries)) if entries.is_empty()) {
                    let _ = self.ask(&[b"XGROUP", b"DELCONSUMER", key.as_bytes(), group, name]);
                }
            }
        }
    }

    fn key(&self, shard: u16, lane: crate::kernel::occurrence::Lane) -> String {
        format!("{}:{{{}.{shard}}}:{}", self.config.prefix, self.config.queue, lane.as_str())
    }

    /// One command on the connection for acknowledgements, which is made anew after a fault.
    fn ask(&self, parts: &[&[u8]]) -> Result<Value, Fault> {
        let mut kept = self.acknowledging.lock().unwrap_or_else(PoisonError::into_inner);
        let mut link = match kept.take() {
            Some(link) => link,
            None => Link::connect(&self.address)?,
        };
        let answer = link.ask(parts)?;
        *kept = Some(link);
        Ok(answer)
    }
}

fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> Result<(), ConsumerError> {
    thread::Builder::new().name(name).spawn(run).map(drop).map_err(ConsumerError::Thread)
}

/// Two starts never share a name, not even on one host under one process id.
fn unique(name: &str) -> String {
    let random = getrandom::u64().unwrap_or_default();
    format!("{name}-{}-{random:016x}", std::process::id())
}

/// For fuzzing: every reader of what a stream holds on one answer.
pub(crate) fn read_anything(answer: &Value) {
    let key: Arc<str> = "k".into();
    let _ = entry::streams(answer, &HashSet::from([Arc::clone(&key)]));
    if let Some(entries) = entry::entries(answer, &key) {
        let Value::Array(all) = answer else { panic!("entries are a list") };
        assert_eq!(entries.len(), all.len(), "no entry is left out in silence");
    }
}
