//! From options to an open engine: the one place of the command line that knows the builder.

use std::{path::PathBuf, time::Duration};

use crate::{
    builder::{Builder, RedisOptions},
    engine::Engine,
    error::OpenError,
    kernel::time::UnixMs,
};

/// Everything a command may say about the engine it wants.
#[derive(Clone, Default)]
pub(crate) struct Start {
    pub(crate) data: PathBuf,
    pub(crate) shards: Option<u16>,
    pub(crate) redis: Option<RedisOptions>,
    pub(crate) rehearse: Option<Rehearse>,
    pub(crate) tzdata: Option<PathBuf>,
    pub(crate) lead: Option<Duration>,
    pub(crate) horizon: Option<Duration>,
    pub(crate) segment_bytes: Option<u64>,
    pub(crate) reserve_bytes: Option<u64>,
    pub(crate) snapshot_bytes: Option<u64>,
    pub(crate) archive: Option<Duration>,
    pub(crate) live_limit: Option<usize>,
    pub(crate) mailbox: Option<usize>,
}

/// The clock of a rehearsal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rehearse {
    pub(crate) from: UnixMs,
    pub(crate) speed: f64,
}

/// Opens the engine.
pub(crate) async fn open(start: Start) -> Result<Engine, OpenError> {
    builder(start).open().await
}

/// The engine as it was asked for, not yet open.
pub(crate) fn builder(start: Start) -> Builder {
    let mut builder = Engine::builder(start.data);
    if let Some(shards) = start.shards {
        builder = builder.shards(shards);
    }
    if let Some(redis) = start.redis {
        builder = builder.redis(redis);
    }
    if let Some(Rehearse { from, speed }) = start.rehearse {
        builder = builder.rehearse(from, speed);
    }
    if let Some(dir) = start.tzdata {
        builder = builder.tzdata(dir);
    }
    if let Some(lead) = start.lead {
        builder = builder.lead(lead);
    }
    if let Some(horizon) = start.horizon {
        builder = builder.horizon(horizon);
    }
    if let Some(bytes) = start.segment_bytes {
        builder = builder.segment_bytes(bytes);
    }
    if let Some(bytes) = start.reserve_bytes {
        builder = builder.reserve_bytes(bytes);
    }
    if let Some(bytes) = start.snapshot_bytes {
        builder = builder.snapshot_bytes(bytes);
    }
    if let Some(retention) = start.archive {
        builder = builder.archive(retention);
    }
    if let Some(occurrences) = start.live_limit {
        builder = builder.live_limit(occurrences);
    }
    if let Some(calls) = start.mailbox {
        builder = builder.mailbox(calls);
    }
    builder
}
