//! One engine with its machine: a disk, clocks, and, while it runs, a shard's actor and its relay.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use countwheel_wal::{
    Archive, Entry, Log, Lsn, OpenError, Options, Replay, read_past,
    sim::{Crash, SimFs},
};
use tokio::sync::{Notify, oneshot};

use super::{redis::SharedRedis, swarm::Swarm};
use crate::{
    error::CallError,
    kernel::{
        calendar::ZoneSet,
        engine_time::{EngineTime, Reading},
        record::Opened,
        shard::{Config, Shard},
        time::UnixMs,
    },
    shell::{
        arrivals::Arrivals,
        ask::{Ask, ReplyTo},
        clock::Clock,
        journal::Journal,
        ledger::{Ledger, ShardPermits},
        local_queue::LocalQueue,
        redis_queue::{Address, RedisConfig, RedisQueue, SteppedRelay, Time},
        shard_actor::{Backend, Parts, ShardActor, driven::Snapshotting},
        snapshots::Snapshots,
        status::SharedStatus,
    },
};

const DIR: &str = "/shard-0000";
/// How long the relay waits for an answer.
pub(super) const PATIENCE_MS: u64 = 5_000;

/// Where an answer arrives.
pub(super) type Answer<T> = oneshot::Receiver<Result<T, CallError>>;

/// What all engines of a world have in common.
pub(super) struct Common {
    pub(super) zones: Arc<ZoneSet>,
    pub(super) swarm: Swarm,
    pub(super) redis: SharedRedis,
    /// The world's own time, which nobody in it can read.
    pub(super) elapsed: Arc<AtomicU64>,
    pub(super) began: Instant,
}

impl Common {
    pub(super) fn now_ms(&self) -> u64 {
        self.elapsed.load(Relaxed)
    }
}

/// A machine with an engine, running or not.
pub(super) struct Node {
    pub(super) index: usize,
    pub(super) fs: SimFs,
    pub(super) clock: Arc<Clock>,
    pub(super) running: Option<Running>,
    boot: u64,
    starts: u32,
    /// The latest wall clock that any engine of this directory was shown.
    pub(super) highest_wall: UnixMs,
    /// Records from the first on, as far as they were looked at.
    pub(super) past: Vec<(u8, Vec<u8>)>,
    /// When it is started again.
    pub(super) opens_at_ms: u64,
}

/// What dies with the process.
pub(super) struct Running {
    pub(super) actor: ShardActor,
    pub(super) relay: Option<SteppedRelay>,
    pub(super) log_at_ms: u64,
    pub(super) relay_at_ms: u64,
    pub(super) actor_at_ms: u64,
    pub(super) snapshot: Option<Snapshotting>,
    pub(super) turned_ms: u64,
    signaled: bool,
}

impl Node {
    pub(super) fn new(index: usize, wall: UnixMs) -> Self {
        Self {
            index,
            fs: SimFs::new(),
            clock: Arc::new(Clock::standing(wall)),
            running: None,
            boot: 1,
            starts: 0,
            highest_wall: wall,
            past: Vec::new(),
            opens_at_ms: 0,
        }
    }

    /// A machine that holds a copy of this one's directory, and agrees about the time.
    pub(super) fn copy(&self, index: usize) -> Self {
        let copy = Self::new(index, self.clock.now());
        Self { fs: self.fs.restart(), highest_wall: self.highest_wall, past: self.past.clone(), boot: 1_000, ..copy }
    }

    /// Time passes, or a clock is set.
    pub(super) fn step_clock(&mut self, wall_ms: i64, elapsed_ms: i64) {
        self.clock.step(wall_ms, elapsed_ms);
        self.highest_wall = self.highest_wall.max(self.clock.now());
    }

    /// Starts the engine.
    pub(super) fn open(&mut self, common: &Common) -> Result<(), OpenError> {
        self.starts += 1;
        let swarm = &common.swarm;
        let config = Config { is_embedded: !swarm.is_redis, window: swarm.window, ..Config::default() };
        let fresh = || {
            let permits = ShardPermits::new(Arc::new(Ledger::default()));
            Shard::new(config.clone(), Arc::clone(&common.zones)).with_permits(Box::new(permits))
        };
        let mut reading = Reader { fresh: &fresh, shard: fresh() };
        let mut options = Options::default();
        (options.segment_bytes, options.reserve_bytes) = (swarm.segment_bytes, swarm.reserve_bytes);
        options.archive = if swarm.archives { Archive::keep(Duration::from_secs(1_000_000)) } else { Archive::Delete };
        let fs = Arc::new(self.fs.clone());
        let (log, _) = Log::open_stepped(Path::new(DIR), fs, options, Arc::clone(&common.elapsed), &mut reading)?;
        let mut shard = reading.shard;
        let reading = self.clock.reading();
        let boot_id = format!("boot-{}", self.boot);
        let before = shard.opened().filter(|before| before.boot_id == boot_id);
        let before = before.map(|b| Reading { wall: UnixMs(b.wall_ms), boottime_ms: b.boottime_ms });
        let time = EngineTime::new(shard.log_time(), before, reading);
        let mut owner = [0xee; 16];
        owner[0] = u8::try_from(self.index).unwrap_or(u8::MAX);
        owner[4..8].copy_from_slice(&self.starts.to_be_bytes());
        let opened =
            Opened { owner, boot_id, wall_ms: reading.wall.0, boottime_ms: reading.boottime_ms, ..Opened::default() };
        shard.set_elapsed(reading.boottime_ms);
        let opening = shard.open(opened, time.now());
        shard.settle_counts();
        if let Some(opened) = shard.opened() {
            log.set_generation(opened.generation);
        }
        let signal = Arc::new(Notify::new());
        let (backend, relay) = self.backend(common, owner, &signal);
        let parts = Parts {
            number: 0,
            shard,
            journal: Journal::new(log),
            backend,
            clock: Arc::clone(&self.clock),
            time,
            opening,
            signal,
            arrivals: Arc::new(Arrivals::new(1)),
            status: SharedStatus::default(),
            snapshots: Snapshots::new(0, u64::MAX, 0, Arc::new(Notify::new())),
            mailbox: 16,
        };
        let mut actor = ShardActor::new(parts).expect("a standing clock needs no timer");
        actor.start_by_hand();
        let (log_at_ms, relay_at_ms, actor_at_ms) = (0, 0, 0);
        self.running = Some(Running {
            actor,
            relay,
            log_at_ms,
            relay_at_ms,
            actor_at_ms,
            snapshot: None,
            turned_ms: 0,
            signaled: true,
        });
        Ok(())
    }

    fn backend(&self, common: &Common, owner: [u8; 16], signal: &Arc<Notify>) -> (Backend, Option<SteppedRelay>) {
        let clock = Arc::clone(&self.clock);
        let now = Arc::new(move || clock.now());
        let wake = {
            let signal = Arc::clone(signal);
            Arc::new(move || signal.notify_one())
        };
        if !common.swarm.is_redis {
            return (Backend::Local(Box::new(LocalQueue::new(now, wake))), None);
        }
        let owner = uuid::Uuid::from_bytes(owner).to_string();
        let config = RedisConfig::new("simulated", 0, "the data directory", &owner);
        let address = Address::simulated(common.redis.dial(self.index), Duration::from_millis(PATIENCE_MS));
        let time = Time::Stepped { began: common.began, elapsed_ms: Arc::clone(&common.elapsed) };
        let (queue, relay) = RedisQueue::stepped(config, address, now, wake, time);
        (Backend::Remote(Box::new(queue)), Some(relay))
    }

    /// The process dies, the machine does not.
    pub(super) fn kill(&mut self) {
        self.running = None;
        self.fs = self.fs.restart();
    }

    /// The machine dies, and comes up with a clock of its own choosing.
    pub(super) fn cut_power(&mut self, policy: Crash, seed: u64, clock_off_ms: i64) {
        self.running = None;
        self.fs = self.fs.crash(policy, seed);
        self.boot += 1;
        self.clock = Arc::new(Clock::standing(self.clock.now().plus(clock_off_ms)));
        self.highest_wall = self.highest_wall.max(self.clock.now());
    }

    /// Keeps the log's records up to `durable`, before a snapshot takes their place or the world ends.
    pub(super) fn remember(&mut self, durable: u64) {
        let mut past = Past { records: &mut self.past, through: durable };
        read_past(&self.fs, Path::new(DIR), &mut past).expect("a log that an engine runs on can be read");
        assert_eq!(self.past.len() as u64, durable, "every record was seen once");
    }
}

impl Running {
    /// Asks the shard; the answer comes when the gate lets it.
    pub(super) fn ask<T>(&mut self, ask: impl FnOnce(ReplyTo<T>) -> Ask) -> Answer<T> {
        let (reply, answer) = oneshot::channel();
        self.actor.ask(ask(reply));
        answer
    }

    /// When its shard wants a turn.
    pub(super) fn turn_due_ms(&mut self, now_ms: u64, wall: UnixMs) -> u64 {
        self.signaled |= self.actor.was_signaled();
        if self.signaled {
            return self.actor_at_ms.max(now_ms);
        }
        let alarm = self.actor.rings_at().map(|at| now_ms + at.since(wall).max(0).cast_unsigned());
        alarm.unwrap_or(u64::MAX).min(self.turned_ms + 1_000).max(self.actor_at_ms)
    }

    pub(super) fn turn(&mut self, now_ms: u64) {
        self.signaled = false;
        self.turned_ms = now_ms;
        self.actor.pulse();
    }

    /// When its disk has something to do.
    pub(super) fn log_due_ms(&self, now_ms: u64) -> u64 {
        self.actor.log_due_in_ms().map_or(u64::MAX, |wait_ms| (now_ms + wait_ms).max(self.log_at_ms))
    }

    /// When its relay has something to do.
    pub(super) fn relay_due_ms(&self, began: Instant) -> u64 {
        let next = self.relay.as_ref().and_then(SteppedRelay::next_at);
        let at_ms = next.map(|at| u64::try_from(at.saturating_duration_since(began).as_millis()).unwrap_or(u64::MAX));
        at_ms.map_or(u64::MAX, |at_ms| at_ms.max(self.relay_at_ms))
    }

    /// Whether its log takes nothing any more.
    pub(super) fn is_poisoned(&self) -> bool {
        matches!(self.actor.log_state(), Some(countwheel_wal::State::Poisoned(_)))
    }
}

/// A shard while its log is read.
struct Reader<'a> {
    fresh: &'a dyn Fn() -> Shard,
    shard: Shard,
}

impl Replay for Reader<'_> {
    fn restart(&mut self, _: Lsn) -> Result<(), String> {
        self.shard = (self.fresh)();
        Ok(())
    }

    fn chunk(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.shard.restore(bytes).map_err(|error| error.to_string())
    }

    fn record(&mut self, entry: Entry<'_>) -> Result<(), String> {
        self.shard.replay(entry.kind, entry.body).map_err(|error| error.to_string())
    }
}

/// The log's records as they are read once more; snapshots are passed over.
struct Past<'a> {
    records: &'a mut Vec<(u8, Vec<u8>)>,
    through: u64,
}

impl Replay for Past<'_> {
    fn restart(&mut self, _: Lsn) -> Result<(), String> {
        Ok(())
    }

    fn chunk(&mut self, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn record(&mut self, entry: Entry<'_>) -> Result<(), String> {
        if entry.lsn.0 == self.records.len() as u64 + 1 && entry.lsn.0 <= self.through {
            self.records.push((entry.kind, entry.body.to_vec()));
        }
        Ok(())
    }
}
