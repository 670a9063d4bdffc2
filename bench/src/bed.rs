//! The test bed: a data directory, an engine with its defaults on it, and a redis-server beside it where asked.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use countwheel::{
    Engine,
    builder::{RedisOptions, SyncPolicy},
    kernel::occurrence::Lane,
    shell::metrics::LogMetrics,
};
use countwheel_bench::redis_server::RedisServer;

use crate::error::BenchError;

/// What every experiment is told.
#[derive(Args, Clone)]
pub(crate) struct Setup {
    /// Where occurrences go.
    #[arg(long, value_enum, default_value = "redis")]
    pub(crate) queue: QueueKind,
    /// How many shards; the engine's own default (one a core) unless given.
    #[arg(long)]
    pub(crate) shards: Option<u16>,
    /// Over how many tenants the schedules are spread.
    #[arg(long, default_value_t = 8)]
    pub(crate) tenants: usize,
    /// Over how many queues.
    #[arg(long, default_value_t = 2)]
    pub(crate) queues: usize,
    /// Bytes of each schedule's payload.
    #[arg(long, default_value_t = 64)]
    pub(crate) payload_bytes: usize,
    /// The directory to make the data directory in; that of the executable unless given, so that it is on one disk
    /// with `target/`.
    #[arg(long)]
    pub(crate) data: Option<PathBuf>,
    /// Print one JSON object last.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum QueueKind {
    /// The embedded queue.
    Local,
    /// Redis Streams, on a server of one's own with `appendfsync everysec`.
    Redis,
}

impl QueueKind {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Redis => "redis",
        }
    }
}

/// Everything an experiment runs on. Dropped, it leaves nothing behind.
pub(crate) struct Bed {
    pub(crate) engine: Engine,
    pub(crate) redis: Option<RedisServer>,
    dir: tempfile::TempDir,
}

impl Bed {
    /// Opens an engine with every default: `SyncPolicy::Always`, 2 s lead.
    pub(crate) async fn make(setup: &Setup) -> Result<Self, BenchError> {
        let parent = match &setup.data {
            Some(parent) => parent.clone(),
            None => std::env::current_exe()?.parent().map_or_else(std::env::temp_dir, PathBuf::from),
        };
        let dir = tempfile::Builder::new().prefix("countwheel-bench-").tempdir_in(parent)?;
        // A rewrite of the append-only file in the middle of a burst would be measured with it: there is none.
        let server = ["--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0"];
        let redis = (setup.queue == QueueKind::Redis).then(|| RedisServer::start(&server));
        let engine = open(setup, &dir, redis.as_ref()).await?;
        Ok(Self { engine, redis, dir })
    }

    /// Stops the engine, waits for `away`, and opens another one on the same directory and server.
    pub(crate) async fn reopen(self, setup: &Setup, away: impl Future<Output = ()>) -> Result<Self, BenchError> {
        let Self { engine, redis, dir } = self;
        engine.stop().await?;
        away.await;
        let engine = open(setup, &dir, redis.as_ref()).await?;
        Ok(Self { engine, redis, dir })
    }

    /// The directory that the data directory lies in.
    pub(crate) fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }

    /// The streams that the engine writes: every queue, shard and lane that these experiments use.
    pub(crate) fn streams(&self, queues: usize) -> Vec<String> {
        let shards = self.engine.health().shards;
        (0..queues).flat_map(|queue| (0..shards).map(move |shard| (queue, shard))).map(stream_key).collect()
    }

    /// What the shards said of themselves a moment ago, added up.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for status in self.engine.statuses() {
            let metrics = &status.metrics;
            totals.enqueued += Lane::ALL.iter().map(|lane| metrics.enqueued_total.of(*lane)).sum::<u64>();
            totals.caught_up += metrics.enqueued_total.of(Lane::CatchUp);
            totals.missed += metrics.missed_total;
            totals.relay += metrics.relay.cpu_total;
            totals.written.add(&metrics.log);
        }
        totals
    }
}

async fn open(setup: &Setup, dir: &tempfile::TempDir, redis: Option<&RedisServer>) -> Result<Engine, BenchError> {
    let mut builder = Engine::builder(dir.path().join("data")).sync(SyncPolicy::Always);
    if let Some(shards) = setup.shards {
        builder = builder.shards(shards);
    }
    if let Some(redis) = redis {
        builder = builder.redis(RedisOptions::new(redis.url()));
    }
    Ok(builder.open().await?)
}

fn stream_key((queue, shard): (usize, u16)) -> String {
    format!("cw:{{{}.{shard}}}:strict", queue_name(queue))
}

/// The name of the `queue`th queue.
pub(crate) fn queue_name(queue: usize) -> String {
    format!("queue-{queue}")
}

/// Figures of all shards.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) enqueued: u64,
    /// Those of them that were admitted late.
    pub(crate) caught_up: u64,
    pub(crate) missed: u64,
    /// Processor time of the threads that talk to Redis.
    pub(crate) relay: Duration,
    pub(crate) written: Written,
}

/// What the logs took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written {
    /// Records as encoded.
    pub(crate) record_bytes: u64,
    /// With headers and padding.
    pub(crate) written_bytes: u64,
    /// Batches written: each was one sync.
    pub(crate) fsyncs: u64,
}

impl Written {
    fn add(&mut self, log: &LogMetrics) {
        self.record_bytes += log.record_bytes_total;
        self.written_bytes += log.written_bytes_total;
        self.fsyncs += log.syncs_total;
    }

    /// What was written after `before`.
    pub(crate) const fn since(self, before: Self) -> Self {
        Self {
            record_bytes: self.record_bytes - before.record_bytes,
            written_bytes: self.written_bytes - before.written_bytes,
            fsyncs: self.fsyncs - before.fsyncs,
        }
    }
}
