//! How an engine is set up; every setter documents its default.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use countwheel_wal::Archive;
pub use countwheel_wal::SyncPolicy;

use crate::{
    engine::Engine,
    error::OpenError,
    kernel::{id::SLOTS, time::UnixMs},
    shell::{
        clock::Clock,
        supervise::{self, QueueChoice, Settings},
        tzdata,
    },
};

#[cfg(feature = "redis")]
use crate::shell::redis_queue::check_url;

/// Where Redis is, and how its keys begin.
#[cfg(feature = "redis")]
#[derive(Clone)]
pub struct RedisOptions {
    /// `redis://[user:password@]host:port/db`, `rediss://` for TLS (feature `tls`), or `redis+unix:///path`.
    pub url: String,
    /// How keys begin, 1 to 64 of `A-Z a-z 0-9 . _ -`; `cw`.
    pub prefix: String,
    /// Takes over streams that another data directory owns, after its loss.
    pub adopt: bool,
}

#[cfg(feature = "redis")]
impl RedisOptions {
    /// Redis at `url`, prefix `cw`, nothing adopted.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), prefix: "cw".into(), adopt: false }
    }

    fn check(&self) -> Result<(), OpenError> {
        let refuse = |setting, problem| Err(OpenError::Setting { setting, problem });
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if !(1..=64).contains(&self.prefix.len()) || !self.prefix.bytes().all(fits) {
            let shown: String = self.prefix.chars().take(64).collect();
            return refuse("redis_prefix", format!("{shown:?} is not 1 to 64 of A-Z a-z 0-9 . _ -: cw suits most"));
        }
        check_url(&self.url).or_else(|error| refuse("redis", error.to_string()))
    }
}

/// Never shows the password that a URL may hold.
#[cfg(feature = "redis")]
impl std::fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisOptions").field("prefix", &self.prefix).field("adopt", &self.adopt).finish_non_exhaustive()
    }
}

/// Sets up an engine.
#[derive(Debug)]
#[must_use = "nothing is opened before `open` is awaited"]
pub struct Builder {
    dir: PathBuf,
    shards: Option<u16>,
    clock: Arc<Clock>,
    tzdata: Option<PathBuf>,
    sync: SyncPolicy,
    segment_bytes: u64,
    reserve_bytes: u64,
    snapshot_bytes: u64,
    archive: Duration,
    lead: Duration,
    horizon: Duration,
    mailbox: usize,
    live_limit: usize,
    #[cfg(feature = "redis")]
    redis: Option<RedisOptions>,
}

impl Builder {
    pub(crate) fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            shards: None,
            clock: Arc::new(Clock::real()),
            tzdata: None,
            sync: SyncPolicy::Always,
            segment_bytes: 64 << 20,
            reserve_bytes: 256 << 20,
            snapshot_bytes: 256 << 20,
            archive: Duration::from_hours(30 * 24),
            lead: Duration::from_secs(2),
            horizon: Duration::from_millis(crate::kernel::wheel::HORIZON_MS.cast_unsigned()),
            mailbox: 1_024,
            live_limit: 2_000_000,
            #[cfg(feature = "redis")]
            redis: None,
        }
    }

    /// How many shards, 1 to 1,024, fixed when the directory is made. Default: the directory's own number, else one a
    /// core.
    pub fn shards(mut self, shards: u16) -> Self {
        self.shards = Some(shards);
        self
    }

    /// Delivers to Redis Streams. Default: the embedded queue.
    #[cfg(feature = "redis")]
    pub fn redis(mut self, redis: RedisOptions) -> Self {
        self.redis = Some(redis);
        self
    }

    /// The clock. Default: the world's. [`Clock::standing`] is for tests.
    pub fn clock(mut self, clock: Arc<Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// A clock that begins at `from` and runs `speed` times as fast, for trying schedules over a night or a year. The
    /// directory is marked as a rehearsal's. Default: the world's clock.
    pub fn rehearse(self, from: UnixMs, speed: f64) -> Self {
        self.clock(Arc::new(Clock::rehearsal(from, speed)))
    }

    /// Reads zone rules from `dir` (compiled TZif files). Default: the newer of the system's and the bundled release.
    pub fn tzdata(mut self, dir: impl Into<PathBuf>) -> Self {
        self.tzdata = Some(dir.into());
        self
    }

    /// When a log write counts as durable. Default: [`SyncPolicy::Always`].
    pub fn sync(mut self, sync: SyncPolicy) -> Self {
        self.sync = sync;
        self
    }

    /// Bytes of a log segment, 1 MiB to 4 GiB: every record has to fit into one. Default: 64 MiB.
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Bytes of disk a shard keeps aside for when it is full. Default: 256 MiB.
    pub fn reserve_bytes(mut self, bytes: u64) -> Self {
        self.reserve_bytes = bytes;
        self
    }

    /// A shard writes a snapshot when the records in its log have grown by so many bytes, at least 64 KiB; about as much
    /// is read again at the next start. Default: 256 MiB.
    pub fn snapshot_bytes(mut self, bytes: u64) -> Self {
        self.snapshot_bytes = bytes;
        self
    }

    /// How long what snapshots make superfluous is kept in the archive, for `explain` and `history`; zero deletes
    /// it. Default: 30 days.
    pub fn archive(mut self, retention: Duration) -> Self {
        self.archive = retention;
        self
    }

    /// How long before its instant an occurrence is materialised, 0 to 60 s. Default: 2 s.
    pub fn lead(mut self, lead: Duration) -> Self {
        self.lead = lead;
        self
    }

    /// How far ahead deadlines lie in the wheel's fine levels, 1 s to 24 h; what is beyond waits in coarser slots. The
    /// wheel's geometry sets it at 2^20 ms (17.5 minutes): the value is checked and changes nothing.
    pub fn horizon(mut self, horizon: Duration) -> Self {
        self.horizon = horizon;
        self
    }

    /// How many calls may wait in a shard's mailbox. Default: 1,024.
    pub fn mailbox(mut self, calls: usize) -> Self {
        self.mailbox = calls;
        self
    }

    /// How many occurrences of a shard may be under way; past it the queue counts as away. Default: 2,000,000.
    pub fn live_limit(mut self, occurrences: usize) -> Self {
        self.live_limit = occurrences;
        self
    }

    /// Whether the engine could be opened so, as far as that can be told without the directory: every setting is
    /// within its bounds, the zone rules are there, the Redis URL reads. Nothing is made.
    #[cfg(feature = "server")]
    pub(crate) fn check(self) -> Result<(), OpenError> {
        self.settings().map(drop)
    }

    /// Opens the directory, making it where there is none, and starts the engine's own threads.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open(self) -> Result<Engine, OpenError> {
        let settings = self.settings()?;
        tracing::info!(release = settings.zones.release(), "zone rules loaded");
        if settings.sync == SyncPolicy::Os {
            tracing::warn!("sync policy is os: what was acknowledged survives the process, not the machine");
        }
        let (tell, told) = tokio::sync::oneshot::channel();
        let thread = std::thread::Builder::new().name("countwheel-open".into());
        let thread = thread.spawn(move || drop(tell.send(supervise::start(settings))));
        thread.map_err(|source| OpenError::Thread { source })?;
        let running = told
            .await
            .map_err(|_| OpenError::Thread { source: std::io::Error::other("opening ended without an answer") })??;
        let engine = Engine::new(running);
        engine.settle().await;
        Ok(engine)
    }

    fn settings(self) -> Result<Settings, OpenError> {
        let refuse = |setting, problem: String| Err(OpenError::Setting { setting, problem });
        if let Some(shards) = self.shards.filter(|n| !(1..=1_024).contains(n)) {
            return refuse(
                "shards",
                format!("{shards} is out of range 1-1024, of the {SLOTS} slots: one a core is usual"),
            );
        }
        if self.lead > Duration::from_secs(60) {
            return refuse("lead", format!("{:?} is longer than 60 s: 2 s suits most", self.lead));
        }
        if !(Duration::from_secs(1)..=Duration::from_secs(86_400)).contains(&self.horizon) {
            return refuse("horizon", format!("{:?} is out of range 1s-24h: leave it out", self.horizon));
        }
        if !self.segment_bytes.is_multiple_of(4_096) || !(1 << 20..=4 << 30).contains(&self.segment_bytes) {
            let bytes = self.segment_bytes;
            return refuse(
                "segment_bytes",
                format!("{bytes} is no multiple of 4096 from 1 MiB to 4 GiB: 64 MiB suits"),
            );
        }
        if self.snapshot_bytes < 64 << 10 {
            let bytes = self.snapshot_bytes;
            return refuse("snapshot_bytes", format!("{bytes} is less than 64 KiB: 256 MiB suits"));
        }
        #[cfg(feature = "redis")]
        if let Some(redis) = &self.redis {
            redis.check()?;
        }
        if let Clock::Rehearsal { from, speed, .. } = *self.clock {
            if !(speed.is_finite() && (0.001..=100_000.0).contains(&speed)) {
                return refuse("rehearse-speed", format!("{speed} is out of range 0.001-100000"));
            }
            if !(UnixMs::MIN..=UnixMs::MAX).contains(&from) {
                return refuse("rehearse-from", format!("{from} is not between 1970 and 9999"));
            }
        }
        let zones = tzdata::load(self.tzdata.as_deref()).map_err(|error| OpenError::Zones(error.to_string()))?;
        #[cfg(feature = "redis")]
        let queue = self.redis.map_or(QueueChoice::Local, QueueChoice::Redis);
        #[cfg(not(feature = "redis"))]
        let queue = QueueChoice::Local;
        Ok(Settings {
            dir: self.dir,
            shards: self.shards,
            clock: self.clock,
            zones: Arc::new(zones),
            sync: self.sync,
            segment_bytes: self.segment_bytes,
            reserve_bytes: self.reserve_bytes,
            snapshot_bytes: self.snapshot_bytes,
            archive: if self.archive.is_zero() { Archive::Delete } else { Archive::keep(self.archive) },
            lead_ms: i64::try_from(self.lead.as_millis()).expect("at most a minute"),
            mailbox: self.mailbox.max(1),
            live_limit: self.live_limit.max(1),
            queue,
        })
    }
}
