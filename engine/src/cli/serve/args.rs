//! The options of `serve`: nothing is read here but the words, so that flag, environment and file are checked alike.

use std::{collections::BTreeMap, path::PathBuf};

use clap::Args;

use crate::{
    cli::{
        settings::Setting,
        start::Rehearse,
        values::{instant, speed},
    },
    kernel::time::UnixMs,
};

/// Options of `serve`. Each setting may also stand in the file, or in the environment as COUNTWHEEL_NAME.
#[derive(Args)]
pub(crate) struct ServeArgs {
    /// A TOML file with any of these settings (data, listen, redis_prefix, ...); also COUNTWHEEL_CONFIG
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Show the effective settings and where each was said, and do not start
    #[arg(long)]
    pub(super) print_config: bool,
    /// Data directory, made where it is missing [default: ./countwheel-data]
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// Address of the HTTP API; port 0 takes a free one [default: 127.0.0.1:7171]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// File of hashed tokens with their roles (see `countwheel token new`); SIGHUP reads it again
    #[arg(long, value_name = "FILE")]
    tokens: Option<String>,
    /// Certificate chain for HTTPS
    #[arg(long, value_name = "PEM")]
    tls_cert: Option<String>,
    /// Private key for HTTPS
    #[arg(long, value_name = "PEM")]
    tls_key: Option<String>,
    /// Queue on Redis Streams (redis://, rediss:// for TLS, redis+unix://); without it the embedded queue
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// Prefix of all keys in Redis [default: cw]
    #[arg(long, value_name = "P")]
    redis_prefix: Option<String>,
    /// Take the prefix over from another data directory
    #[arg(long)]
    adopt_redis: bool,
    /// Shards of a new data directory; default one a core, an existing directory has its own number
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    shards: Option<String>,
    /// Zone rules from this directory instead of the newer of the system's and the bundled ones
    #[arg(long, value_name = "DIR")]
    tzdata: Option<String>,
    /// How long before its time an occurrence is written down [default: 2s]
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    lead: Option<String>,
    /// How far ahead timers are kept in the wheel's fine levels
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    horizon: Option<String>,
    /// Bytes of a log segment [default: 64MiB]
    #[arg(long, value_name = "BYTES")]
    segment_bytes: Option<String>,
    /// Bytes of disk that a shard keeps aside for when it is full [default: 256MiB]
    #[arg(long, value_name = "BYTES")]
    reserve_bytes: Option<String>,
    /// Bytes by which a shard's log grows between two snapshots [default: 256MiB]
    #[arg(long, value_name = "BYTES")]
    snapshot_bytes: Option<String>,
    /// How long what snapshots make superfluous is kept in the archive; 0s deletes it [default: 720h]
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    archive: Option<String>,
    /// Occurrences of a shard that may be under way [default: 2000000]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    live_limit: Option<String>,
    /// Calls that may wait for a shard [default: 1024]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    mailbox: Option<String>,
    /// Rehearsal: the clock starts at this instant
    #[arg(long, value_name = "T", value_parser = instant)]
    rehearse_from: Option<UnixMs>,
    /// Rehearsal: the clock runs this many times as fast
    #[arg(long, value_name = "X", default_value = "1", requires = "rehearse_from", value_parser = speed)]
    rehearse_speed: f64,
}

impl ServeArgs {
    /// The clock of a rehearsal, if it is one.
    pub(super) fn rehearse(&self) -> Option<Rehearse> {
        self.rehearse_from.map(|from| Rehearse { from, speed: self.rehearse_speed })
    }

    /// What flags say, by setting.
    pub(super) fn into_flags(self) -> BTreeMap<Setting, String> {
        let said = [
            (Setting::Data, self.data),
            (Setting::Listen, self.listen),
            (Setting::Tokens, self.tokens),
            (Setting::TlsCert, self.tls_cert),
            (Setting::TlsKey, self.tls_key),
            (Setting::Redis, self.redis),
            (Setting::RedisPrefix, self.redis_prefix),
            (Setting::AdoptRedis, self.adopt_redis.then(|| true.to_string())),
            (Setting::Shards, self.shards),
            (Setting::Tzdata, self.tzdata),
            (Setting::Lead, self.lead),
            (Setting::Horizon, self.horizon),
            (Setting::SegmentBytes, self.segment_bytes),
            (Setting::ReserveBytes, self.reserve_bytes),
            (Setting::SnapshotBytes, self.snapshot_bytes),
            (Setting::Archive, self.archive),
            (Setting::LiveLimit, self.live_limit),
            (Setting::Mailbox, self.mailbox),
        ];
        said.into_iter().filter_map(|(key, text)| Some((key, text?))).collect()
    }
}
