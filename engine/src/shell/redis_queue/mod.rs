//! The queue on Redis Streams: one writer a shard, on a thread of its own.
//!
//! The handle ([`RedisQueue`]) lives with the shard and never waits: it encodes what is staged and passes parcels of
//! released entries on. The relay thread alone talks to Redis. It promises:
//!
//! - what it reports as landed was accepted, in the order of release, each entry once;
//! - what it returns is provably not in the stream; it never sends anything again by itself;
//! - after any trouble one procedure runs: owner, fence, look, go on (docs/REDIS.md).
//!
//! It does not judge lateness, does not know schedules, and does not read as a consumer.

mod answer;
mod batch;
mod config;
mod fence;
mod janitor;
mod link;
mod look;
mod owner;
mod pace;
mod relay;
mod reply;
mod settle;
mod stage;
mod stats;
mod stream;
mod time;
mod wire;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crossbeam::channel::{Receiver, Sender, bounded, unbounded};
use hashbrown::HashMap;

use super::{
    metrics::RelayMetrics,
    queue::{Away, Queue, QueueEvent, Remembered},
};
use crate::kernel::{
    occurrence::{Entry, EntryId, Lane, OccurrenceNo, Stream},
    time::UnixMs,
};

pub use config::{RedisConfig, RedisQueueError};
pub use stats::RelayStats;

pub(crate) use link::check_url;
#[cfg_attr(
    not(feature = "worker"),
    expect(unused_imports, reason = "the client for consumers speaks to redis the same way")
)]
pub(crate) use {
    link::{Address, Fault, Link, refuse, text},
    pace::{BackOff, OnceASecond},
    reply::Pace,
    wire::Commands,
};

use look::Known;
use relay::{Command, Relay};
use stage::Stage;
use stats::Gauges;
use stream::StreamIndex;
#[cfg(not(any(test, feature = "sim")))]
use time::Time;
#[cfg(any(test, feature = "sim"))]
pub(crate) use {link::Dial, link::Pipe, time::Time};

/// A relay without a thread.
#[cfg(any(test, feature = "sim"))]
pub(crate) struct SteppedRelay(Relay);

#[cfg(any(test, feature = "sim"))]
impl SteppedRelay {
    /// What the thread would do now; never waits.
    pub(crate) fn step(&mut self) {
        self.0.step();
    }

    /// When it would do something by itself.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.0.next_at()
    }
}

/// A shard's queue on Redis Streams.
pub struct RedisQueue {
    prefix: String,
    shard: u16,
    streams: HashMap<Stream, StreamIndex>,
    stage: Stage,
    commands: Sender<Command>,
    events: Receiver<QueueEvent>,
    gauges: Arc<Gauges>,
    notes: Arc<Mutex<Vec<String>>>,
}

impl RedisQueue {
    /// Starts the relay thread, which does nothing before [`Queue::start`]. `now` is the engine's clock; `wake` is
    /// called, on the relay thread, whenever there is something to poll.
    ///
    /// # Errors
    /// A URL that is not understood, or no thread.
    pub fn new(
        config: RedisConfig,
        now: Arc<dyn Fn() -> UnixMs + Send + Sync>,
        wake: Arc<dyn Fn() + Send + Sync>,
    ) -> Result<Self, RedisQueueError> {
        let address = Address::parse(&config.url, config.connect_timeout, config.response_timeout)?;
        let shard = config.shard;
        let (queue, relay) = Self::with_relay(config, address, now, wake, Time::Real);
        std::thread::Builder::new()
            .name(format!("cw-relay-{shard}"))
            .spawn(move || relay.run())
            .map_err(|source| RedisQueueError::Thread { shard, source })?;
        Ok(queue)
    }

    /// A queue whose relay is stepped by whoever made it.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn stepped(
        config: RedisConfig,
        address: Address,
        now: Arc<dyn Fn() -> UnixMs + Send + Sync>,
        wake: Arc<dyn Fn() + Send + Sync>,
        time: Time,
    ) -> (Self, SteppedRelay) {
        let (queue, relay) = Self::with_relay(config, address, now, wake, time);
        (queue, SteppedRelay(relay))
    }

    fn with_relay(
        config: RedisConfig,
        address: Address,
        now: Arc<dyn Fn() -> UnixMs + Send + Sync>,
        wake: Arc<dyn Fn() + Send + Sync>,
        time: Time,
    ) -> (Self, Relay) {
        let (command_sender, commands) = unbounded();
        let (event_sender, events) = unbounded();
        let gauges = Arc::new(Gauges::default());
        let notes = Arc::new(Mutex::new(Vec::new()));
        let (prefix, shard) = (config.prefix.clone(), config.shard);
        let outbox = relay::Outbox::new(event_sender, wake, Arc::clone(&gauges));
        let told = (Arc::clone(&gauges), Arc::clone(&notes));
        let relay = Relay::new(config, address, commands, outbox, now, told, time);
        let queue = Self {
            prefix,
            shard,
            streams: HashMap::new(),
            stage: Stage::default(),
            commands: command_sender,
            events,
            gauges,
            notes,
        };
        (queue, relay)
    }

    /// The relay's figures.
    #[must_use]
    pub fn stats(&self) -> RelayStats {
        self.gauges.snapshot()
    }

    /// What is wrong with the settings of this Redis, a sentence each: it works, and may lose what it accepted.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The relay thread ends only after the handle is gone or closed; until then nothing is refused.
    fn tell(&self, command: Command) {
        // After `close` there is nobody to hear it, and nothing is promised about what comes then.
        let _ = self.commands.send(command);
    }
}

impl Queue for RedisQueue {
    fn metrics(&self) -> RelayMetrics {
        let stats = self.stats();
        RelayMetrics {
            away_total: Duration::from_millis(stats.away_ms),
            away: false,
            batches_total: stats.batches_sent,
            landed_total: stats.entries_landed,
            returned_total: stats.entries_returned,
            lost_total: stats.losses,
            connects_total: stats.connects,
            stuck_groups: stats.stuck_groups,
            foreign_total: stats.foreign_entries,
            trimmed_total: stats.entries_trimmed,
            cpu_total: Duration::from_nanos(stats.cpu_ns),
        }
    }

    fn declare(&mut self, stream: Stream, queue: &str, lane: Lane, remembered: Remembered) {
        let index = StreamIndex(u32::try_from(self.streams.len()).expect("a shard has far fewer streams than 4 Gi"));
        if self.streams.try_insert(stream, index).is_err() {
            return;
        }
        let key = stream_key(&self.prefix, queue, self.shard, lane);
        let known = Known { last: remembered.last, added: remembered.added };
        self.tell(Command::Declare { stream, key: key.into_bytes(), known });
    }

    fn start(&mut self, generation: u64) {
        self.tell(Command::Start { generation });
    }

    fn stage(&mut self, entry: &Entry<'_>) {
        if let Some(&index) = self.streams.get(&entry.stream) {
            self.stage.stage(index, entry);
        }
    }

    fn release<'a>(&mut self, at: UnixMs, numbers: &[OccurrenceNo], look_up: &dyn Fn(OccurrenceNo) -> Entry<'a>) {
        let Self { streams, stage, commands, .. } = self;
        let encode = |number| {
            let entry = look_up(number);
            (*streams.get(&entry.stream).expect("a stream is declared before anything is released for it"), entry)
        };
        stage.release(at, numbers, &encode, &mut |parcel| {
            let _ = commands.send(Command::Release(parcel));
        });
    }

    fn forget_staged(&mut self, at: UnixMs) {
        self.stage.forget(at);
    }

    fn recorded(&mut self, stream: Stream, through: EntryId) {
        if let Some(&index) = self.streams.get(&stream) {
            self.tell(Command::Recorded { stream: index, through });
        }
    }

    fn read_back(&mut self, stream: Stream) {
        if let Some(&index) = self.streams.get(&stream) {
            self.tell(Command::ReadBack { stream: index });
        }
    }

    fn poll(&mut self, events: &mut Vec<QueueEvent>) {
        events.extend(self.events.try_iter());
    }

    fn close(&mut self, limit: Duration) {
        let (done, ended) = bounded(0);
        self.tell(Command::Close { deadline: Instant::now() + limit, _done: done });
        // Nothing is ever sent: the thread drops its end when it has ended.
        let _ = ended.recv_timeout(limit);
    }
}

/// For fuzzing: every reader of answers on one answer.
#[cfg(feature = "worker")]
pub(crate) fn read_anything(answer: &redis::Value) {
    let _ = (answer::Top::read(answer), answer::groups(answer), answer::first_pending(answer), answer::map(answer));
    if let Some(entries) = answer::page(answer) {
        let redis::Value::Array(all) = answer else { panic!("a page is a list") };
        assert_eq!(entries.len(), all.len(), "no entry is left out in silence");
    }
}

/// `<prefix>:{<queue>.<shard>}:<lane>`: the braces keep a queue's lanes on one node of a cluster.
fn stream_key(prefix: &str, queue: &str, shard: u16, lane: Lane) -> String {
    format!("{prefix}:{{{queue}.{shard}}}:{}", lane.as_str())
}

/// Nothing can be handed over to any stream.
fn away(reason: String) -> QueueEvent {
    QueueEvent::Away(Away { stream: None, reason })
}
