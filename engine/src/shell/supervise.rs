//! Start and stop order, in one place: directory, zone rules, logs and shards (in parallel), then one thread for actix
//! and one arbiter a shard. Stopping goes the other way, and each shard seals its log.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use actix::{Actor, Addr, Arbiter, System};
use countwheel_wal::{Archive, Entry, Log, LogId, Options, Replay, SyncPolicy};
use tokio::sync::{Notify, oneshot};

use super::{
    arrivals::Arrivals,
    ask::Ask,
    claim_ids::ClaimIds,
    clock::{Clock, boot_id},
    directory::Directory,
    journal::Journal,
    ledger::{Ledger, ShardPermits},
    local_queue::LocalQueue,
    rule_cache::RuleCache,
    shard_actor::{Backend, Parts, ShardActor},
    snapshots::Snapshots,
    status::SharedStatus,
};
use crate::{
    error::OpenError,
    kernel::{
        calendar::ZoneSet,
        engine_time::{EngineTime, Reading},
        id::SLOTS,
        record::Opened,
        shard::{Config, Shard},
        time::UnixMs,
    },
};

/// Everything an engine is started with, every default resolved.
pub(crate) struct Settings {
    pub(crate) dir: PathBuf,
    pub(crate) shards: Option<u16>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) zones: Arc<ZoneSet>,
    pub(crate) sync: SyncPolicy,
    pub(crate) segment_bytes: u64,
    pub(crate) reserve_bytes: u64,
    pub(crate) snapshot_bytes: u64,
    pub(crate) archive: Archive,
    pub(crate) lead_ms: i64,
    pub(crate) mailbox: usize,
    pub(crate) live_limit: usize,
    pub(crate) queue: QueueChoice,
}

/// Which queue an engine delivers to.
pub(crate) enum QueueChoice {
    /// The embedded one.
    Local,
    /// Redis Streams.
    #[cfg(feature = "redis")]
    Redis(crate::builder::RedisOptions),
}

/// A running engine's threads and addresses.
pub(crate) struct Running {
    pub(crate) shards: Vec<Addr<ShardActor>>,
    pub(crate) statuses: Vec<SharedStatus>,
    pub(crate) arrivals: Arc<Arrivals>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) rules: RuleCache,
    pub(crate) is_local: bool,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) claim_ids: ClaimIds,
    system: Mutex<Option<(System, JoinHandle<()>, Directory)>>,
}

/// Starts an engine; blocks until its shards are open.
pub(crate) fn start(settings: Settings) -> Result<Running, OpenError> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let default_shards = u16::try_from(cores.min(SLOTS as usize)).unwrap_or(1);
    let rehearsal = settings.clock.is_rehearsal();
    let mut directory = Directory::open(&settings.dir, settings.shards, default_shards, rehearsal)?;
    let arrivals = Arc::new(Arrivals::new(usize::from(directory.identity.shards)));
    let mut owner = [0; 16];
    getrandom::fill(&mut owner)
        .map_err(|error| OpenError::Io { path: settings.dir.clone(), source: std::io::Error::other(error) })?;
    let ledger = Arc::new(Ledger::default());
    let shared = Shared { owner, arrivals: &arrivals, ledger: &ledger };
    let (parts, logs) = open_shards(&settings, &directory, shared)?.into_iter().unzip();
    directory.bind_logs(logs)?;
    let mut parts: Vec<Parts> = parts;
    agree(&mut parts, &ledger);
    let statuses = parts.iter().map(|parts| parts.status.clone()).collect();
    let ((system, thread), shards) = start_system(parts)?;
    Ok(Running {
        shards,
        statuses,
        arrivals,
        clock: settings.clock,
        rules: RuleCache::new(settings.zones),
        is_local: matches!(settings.queue, QueueChoice::Local),
        ledger,
        claim_ids: ClaimIds::default(),
        system: Mutex::new(Some((system, thread, directory))),
    })
}

/// What all shards of a process have in common.
#[derive(Clone, Copy)]
struct Shared<'a> {
    owner: [u8; 16],
    arrivals: &'a Arc<Arrivals>,
    ledger: &'a Arc<Ledger>,
}

/// Opens every shard's log and replays it, each on a thread of its own.
fn open_shards(
    settings: &Settings,
    directory: &Directory,
    shared: Shared<'_>,
) -> Result<Vec<(Parts, LogId)>, OpenError> {
    std::thread::scope(|scope| {
        let opening: Vec<_> = (0..directory.identity.shards)
            .map(|shard| scope.spawn(move || open_shard(settings, directory, shard, shared)))
            .collect();
        opening.into_iter().map(|thread| thread.join().expect("opening a shard does not panic")).collect()
    })
}

fn open_shard(
    settings: &Settings,
    directory: &Directory,
    number: u16,
    shared: Shared<'_>,
) -> Result<(Parts, LogId), OpenError> {
    let Shared { owner, arrivals, ledger } = shared;
    let signal = Arc::new(Notify::new());
    let is_local = matches!(settings.queue, QueueChoice::Local);
    let config = Config {
        lead_ms: settings.lead_ms,
        shard: number,
        is_embedded: is_local,
        live_limit: settings.live_limit,
        ..Config::default()
    };
    let fresh = || {
        let permits = ShardPermits::new(Arc::clone(ledger));
        Shard::new(config.clone(), Arc::clone(&settings.zones)).with_permits(Box::new(permits))
    };
    let mut reading = Remembered { fresh: &fresh, shard: fresh(), bytes: 0 };
    let mut options = Options::default();
    options.segment_bytes = settings.segment_bytes;
    options.reserve_bytes = settings.reserve_bytes;
    options.sync = settings.sync;
    options.archive = settings.archive;
    options.shard = number;
    let wake = {
        let signal = Arc::clone(&signal);
        Arc::new(move || signal.notify_one())
    };
    let path = directory.shard_path(number);
    let (log, recovered) = Log::open_from(&path, Arc::clone(&directory.fs), options, wake, &mut reading)
        .map_err(|source| OpenError::Log { shard: number, source: Box::new(source) })?;
    let Remembered { mut shard, bytes, .. } = reading;
    tracing::info!(shard = number, records = recovered.last.0, "log recovered");
    let reading = settings.clock.reading();
    let boot = boot_id();
    let time = EngineTime::new(shard.log_time(), reading_before(&shard, &boot, settings), reading);
    let opened = Opened {
        generation: 0,
        owner,
        boot_id: boot,
        wall_ms: reading.wall.0,
        boottime_ms: reading.boottime_ms,
        tz_release: settings.zones.release().to_owned(),
        engine_version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    shard.set_elapsed(reading.boottime_ms);
    let opening = shard.open(opened, time.now());
    shard.settle_counts();
    if let Some(opened) = shard.opened() {
        log.set_generation(opened.generation);
    }
    let snapshots = Snapshots::new(usize::from(number), settings.snapshot_bytes, bytes, Arc::clone(&signal));
    let parts = Parts {
        number: usize::from(number),
        shard,
        journal: Journal::new(log),
        backend: backend(settings, directory, number, owner, &signal)?,
        clock: Arc::clone(&settings.clock),
        time,
        opening,
        signal,
        arrivals: Arc::clone(arrivals),
        status: SharedStatus::default(),
        snapshots,
        mailbox: settings.mailbox,
    };
    Ok((parts, recovered.log_id))
}

/// A shard while its log is read.
struct Remembered<'a> {
    fresh: &'a dyn Fn() -> Shard,
    shard: Shard,
    /// Bytes of records behind the snapshot.
    bytes: u64,
}

impl Replay for Remembered<'_> {
    fn restart(&mut self, _: countwheel_wal::Lsn) -> Result<(), String> {
        (self.shard, self.bytes) = ((self.fresh)(), 0);
        Ok(())
    }

    fn chunk(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.shard.restore(bytes).map_err(|error| error.to_string())
    }

    fn record(&mut self, entry: Entry<'_>) -> Result<(), String> {
        self.bytes += entry.body.len() as u64;
        self.shard.replay(entry.kind, entry.body).map_err(|error| error.to_string())
    }
}

/// What was set for tenants and queues may have reached only some shards when the process died: the highest revision
/// holds, and is written where it is missing.
fn agree(parts: &mut [Parts], ledger: &Ledger) {
    for Parts { shard, .. } in &*parts {
        for (name, set) in shard.tenants_set() {
            ledger.tenant(name).set(set);
        }
        for (name, set) in shard.queues_set() {
            ledger.queue(name).set(set);
        }
    }
    for Parts { shard, opening, time, .. } in parts {
        for (name, set) in ledger.tenants_set() {
            shard.set_tenant(&name, set, time.now(), opening);
        }
        for (name, set) in ledger.queues_set() {
            shard.set_queue(&name, set, time.now(), opening);
        }
    }
}

/// What the last opening read, if the machine has not been booted since and the clock is the world's.
fn reading_before(shard: &Shard, boot: &str, settings: &Settings) -> Option<Reading> {
    let before = shard.opened()?;
    let same_boot = !boot.is_empty() && before.boot_id == boot;
    (same_boot && matches!(*settings.clock, Clock::Real))
        .then_some(Reading { wall: UnixMs(before.wall_ms), boottime_ms: before.boottime_ms })
}

fn backend(
    settings: &Settings,
    directory: &Directory,
    number: u16,
    owner: [u8; 16],
    signal: &Arc<Notify>,
) -> Result<Backend, OpenError> {
    let clock = Arc::clone(&settings.clock);
    let now = Arc::new(move || clock.now());
    let wake = {
        let signal = Arc::clone(signal);
        Arc::new(move || signal.notify_one())
    };
    match &settings.queue {
        QueueChoice::Local => {
            let _ = (directory, number, owner);
            Ok(Backend::Local(Box::new(LocalQueue::new(now, wake))))
        }
        #[cfg(feature = "redis")]
        QueueChoice::Redis(redis) => {
            use super::redis_queue::{RedisConfig, RedisQueue};
            let id = directory.identity.id.to_string();
            let mut config = RedisConfig::new(&redis.url, number, &id, &uuid::Uuid::from_bytes(owner).to_string());
            config.prefix.clone_from(&redis.prefix);
            config.adopt = redis.adopt;
            config.rehearsal = directory.identity.rehearsal;
            let queue = RedisQueue::new(config, now, wake)
                .map_err(|error| OpenError::Setting { setting: "redis", problem: error.to_string() })?;
            Ok(Backend::Remote(Box::new(queue)))
        }
    }
}

type SystemAndShards = ((System, JoinHandle<()>), Vec<Addr<ShardActor>>);

/// One thread runs actix; it makes an arbiter (a thread) for each shard.
fn start_system(parts: Vec<Parts>) -> Result<SystemAndShards, OpenError> {
    let failed = |source| OpenError::Thread { source };
    let (tell, told) = mpsc::channel();
    let thread = std::thread::Builder::new().name("countwheel".into()).spawn(move || run_system(parts, &tell));
    let thread = thread.map_err(failed)?;
    let started = told.recv().unwrap_or_else(|_| Err(std::io::Error::other("the actor system did not start")));
    let (system, shards) = started.map_err(failed)?;
    Ok(((system, thread), shards))
}

type Started = std::io::Result<(System, Vec<Addr<ShardActor>>)>;

fn run_system(parts: Vec<Parts>, tell: &mpsc::Sender<Started>) {
    let runner = System::new();
    let started = runner.block_on(async move {
        let mut shards = Vec::new();
        for part in parts {
            shards.push(start_shard(part).await?);
        }
        Ok((System::current(), shards))
    });
    let runs = started.is_ok();
    if tell.send(started).is_ok()
        && runs
        && let Err(error) = runner.run()
    {
        tracing::error!(%error, "the actor system ended");
    }
}

async fn start_shard(parts: Parts) -> std::io::Result<Addr<ShardActor>> {
    let arbiter = Arbiter::new();
    let (tell, told) = oneshot::channel();
    arbiter.spawn_fn(move || {
        drop(tell.send(ShardActor::new(parts).map(Actor::start)));
    });
    told.await.unwrap_or_else(|_| Err(std::io::Error::other("a shard's thread ended")))
}

impl Running {
    /// Stops every shard: drained, synced and sealed. Then the threads.
    pub(crate) async fn stop(&self) -> Result<(), String> {
        let mut outcomes = Vec::new();
        for shard in &self.shards {
            let (reply, answer) = oneshot::channel();
            // A full mailbox empties; stopping waits its turn.
            if shard.send(Ask::Stop { reply }).await.is_ok() {
                outcomes.push(answer);
            }
        }
        let mut result = Ok(());
        for outcome in outcomes {
            if let Ok(Err(error)) = outcome.await {
                result = Err(error);
            }
        }
        self.end_threads();
        result
    }

    fn end_threads(&self) {
        let taken = self.system.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((system, thread, _directory)) = taken {
            system.stop();
            if thread.thread().id() != std::thread::current().id() {
                // The threads end within a turn; a bound keeps a caller's runtime from hanging on a stuck disk.
                let deadline = std::time::Instant::now() + Duration::from_secs(10);
                while !thread.is_finished() && std::time::Instant::now() < deadline {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }
}

/// Dropping the last handle ends the threads without sealing the logs: the next opening recovers as after a crash.
impl Drop for Running {
    fn drop(&mut self) {
        self.end_threads();
    }
}
