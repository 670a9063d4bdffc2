//! What a consumer has to be told, and why it is refused.

use std::{fmt, path::PathBuf, time::Duration};

use crate::{kernel::id::check_name, shell::redis_queue::RedisQueueError};

/// Settings of a [`Consumer`](super::Consumer). [`ConsumerConfig::new`] has the defaults.
#[derive(Clone)]
pub struct ConsumerConfig {
    /// `redis://[user:password@]host[:port][/db]`, `rediss://` for TLS, or `unix:/path`.
    pub redis_url: String,
    /// Where the engine's HTTP API is: `http://127.0.0.1:7171`.
    pub engine_url: String,
    /// The queue.
    pub queue: String,
    /// The token, where the engine asks for one.
    pub token: Option<String>,
    /// A PEM file with the certificates to trust instead of the system's.
    pub ca: Option<PathBuf>,
    /// What the engine's keys begin with (`cw`).
    pub prefix: String,
    /// The consumer group (`workers`). All consumers of one group share the queue's work.
    pub group: String,
    /// What this process is called, in front of what makes its name unique (`HOST`, else `worker`).
    pub name: String,
    /// How many handlers run at a time (8).
    pub handlers: usize,
    /// How long a lease lasts without a heartbeat (60 s). Heartbeats come three times as often.
    pub lease: Duration,
    /// An entry that somebody was given and did not claim for so long is taken over (60 s). Until then a claim that has
    /// no answer is tried again.
    pub recover_after: Duration,
    /// The longest wait between two attempts of anything (5 s).
    pub longest_back_off: Duration,
}

impl ConsumerConfig {
    /// The defaults around what has none.
    #[must_use]
    pub fn new(redis_url: impl Into<String>, engine_url: impl Into<String>, queue: impl Into<String>) -> Self {
        Self {
            redis_url: redis_url.into(),
            engine_url: engine_url.into(),
            queue: queue.into(),
            token: None,
            ca: None,
            prefix: "cw".to_owned(),
            group: "workers".to_owned(),
            name: std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty()).unwrap_or_else(|| "worker".to_owned()),
            handlers: 8,
            lease: Duration::from_secs(60),
            recover_after: Duration::from_secs(60),
            longest_back_off: Duration::from_secs(5),
        }
    }

    pub(super) fn check(&self) -> Result<(), ConsumerError> {
        let refuse = |setting, why: &str| Err(ConsumerError::Setting { setting, why: why.to_owned() });
        if let Err(why) = check_name(&self.queue) {
            return refuse("queue", &why);
        }
        if !(1..=1_024).contains(&self.handlers) {
            return refuse("handlers", &format!("{} is out of range: give 1 to 1024", self.handlers));
        }
        if !(Duration::from_secs(1)..=Duration::from_secs(86_400)).contains(&self.lease) {
            return refuse("lease", &format!("{:?} is out of range: give 1 s to a day", self.lease));
        }
        if self.recover_after < Duration::from_millis(100) {
            return refuse("recover_after", "less than 0.1 s takes entries from consumers that are well: give more");
        }
        for (setting, text) in [("prefix", &self.prefix), ("group", &self.group), ("name", &self.name)] {
            if text.is_empty() || text.len() > 128 || text.chars().any(|c| c.is_control() || c.is_whitespace()) {
                return refuse(setting, "is empty, longer than 128 bytes, or has blanks in it: give a plain word");
            }
        }
        Ok(())
    }
}

/// Without what may hold a password.
impl fmt::Debug for ConsumerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerConfig")
            .field("queue", &self.queue)
            .field("prefix", &self.prefix)
            .field("group", &self.group)
            .field("name", &self.name)
            .field("handlers", &self.handlers)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

/// Why a consumer could not be started. Neither Redis nor the engine need be there for that.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConsumerError {
    /// A setting cannot be used: correct the call.
    #[error("{setting}: {why}")]
    Setting {
        /// Which.
        setting: &'static str,
        /// What is wrong with it, and what would do.
        why: String,
    },
    /// The Redis URL cannot be used: correct the call.
    #[error(transparent)]
    Redis(#[from] RedisQueueError),
    /// The system gave no thread.
    #[error("a thread of the consumer could not be started: {0}")]
    Thread(#[source] std::io::Error),
}
