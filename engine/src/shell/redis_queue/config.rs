//! What a Redis queue has to be told.

use std::{fmt, time::Duration};

/// Settings of one shard's queue on Redis Streams. [`RedisConfig::new`] has the defaults.
#[derive(Clone)]
pub struct RedisConfig {
    /// `redis://[user:password@]host[:port][/db]`, `rediss://` for TLS, or `unix:/path`.
    pub url: String,
    /// What every key begins with.
    pub prefix: String,
    /// Which shard this is.
    pub shard: u16,
    /// Names the data directory.
    pub data_id: String,
    /// Whether the engine's clock is a rehearsal's: rehearsal and real refuse each other's keys.
    pub rehearsal: bool,
    /// Names this process start; random, so that no two starts share it.
    pub owner: String,
    /// Take over a prefix that belongs to another data directory (which is lost).
    pub adopt: bool,
    /// A stream of so many entries takes no more until consumers have drained it (2,000,000).
    pub stream_max_len: u64,
    /// How long connecting may take (2 s).
    pub connect_timeout: Duration,
    /// How long one answer may take (5 s): longer than a slow sync of Redis' log, shorter than a person's patience.
    pub response_timeout: Duration,
    /// How often streams are compared, and what is acknowledged is trimmed (5 s).
    pub janitor_period: Duration,
    /// How long a consumer group that has work may stand still before it counts as stuck (1 h).
    pub group_alarm: Duration,
    /// The longest wait between two attempts to connect (5 s).
    pub longest_back_off: Duration,
}

impl RedisConfig {
    /// The defaults around what has none.
    #[must_use]
    pub fn new(url: &str, shard: u16, data_id: &str, owner: &str) -> Self {
        Self {
            url: url.to_owned(),
            prefix: "cw".to_owned(),
            shard,
            data_id: data_id.to_owned(),
            rehearsal: false,
            owner: owner.to_owned(),
            adopt: false,
            stream_max_len: 2_000_000,
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(5),
            janitor_period: Duration::from_secs(5),
            group_alarm: Duration::from_secs(3_600),
            longest_back_off: Duration::from_secs(5),
        }
    }
}

/// Without the URL, which may hold a password.
impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("prefix", &self.prefix)
            .field("shard", &self.shard)
            .field("data_id", &self.data_id)
            .field("rehearsal", &self.rehearsal)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

/// Why a Redis queue could not be made. Redis itself need not be there for that.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedisQueueError {
    /// The URL cannot be used: correct the call.
    #[error(
        "the redis url is not understood ({0}): give redis://[user:password@]host[:port][/db], rediss:// for TLS, or unix:/path"
    )]
    Url(String),
    /// This build has no TLS: correct the call, or build with the feature.
    #[error("rediss:// needs TLS, which this build does not have: build with the feature tls or give redis://")]
    NoTls,
    /// The system gave no thread.
    #[error("the relay thread of shard {shard} could not be started: {source}")]
    Thread {
        /// The shard.
        shard: u16,
        /// What the system said.
        source: std::io::Error,
    },
}
