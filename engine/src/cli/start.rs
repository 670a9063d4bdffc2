//! From options to an open engine: the one place of the command line that knows the builder.

use std::{path::PathBuf, time::Duration};

use crate::{builder::RedisOptions, engine::Engine, error::OpenError, kernel::time::UnixMs};

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
}

/// The clock of a rehearsal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rehearse {
    pub(crate) from: UnixMs,
    pub(crate) speed: f64,
}

/// Opens the engine.
pub(crate) async fn open(start: Start) -> Result<Engine, OpenError> {
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
    builder.open().await
}
