//! Which settings there are: the name of each, how its value is written, and its default.

/// A setting of `serve`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Setting {
    Data,
    Listen,
    Redis,
    RedisPrefix,
    AdoptRedis,
    Shards,
    Tzdata,
    Lead,
    Horizon,
    Tokens,
    TlsCert,
    TlsKey,
    SegmentBytes,
    ReserveBytes,
    SnapshotBytes,
    Archive,
    LiveLimit,
    Mailbox,
}

/// How a value is written in TOML.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Text,
    Number,
    Flag,
}

/// What holds where nothing is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fallback {
    /// This value.
    Value(&'static str),
    /// No value; what that means.
    Unset(&'static str),
}

impl Setting {
    /// Every setting, in the order in which they are shown.
    pub(crate) const ALL: [Self; 18] = [
        Self::Data,
        Self::Listen,
        Self::Tokens,
        Self::TlsCert,
        Self::TlsKey,
        Self::Redis,
        Self::RedisPrefix,
        Self::AdoptRedis,
        Self::Shards,
        Self::Tzdata,
        Self::Lead,
        Self::Horizon,
        Self::SegmentBytes,
        Self::ReserveBytes,
        Self::SnapshotBytes,
        Self::Archive,
        Self::LiveLimit,
        Self::Mailbox,
    ];

    /// The name in the file.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Listen => "listen",
            Self::Redis => "redis",
            Self::RedisPrefix => "redis_prefix",
            Self::AdoptRedis => "adopt_redis",
            Self::Shards => "shards",
            Self::Tzdata => "tzdata",
            Self::Lead => "lead",
            Self::Horizon => "horizon",
            Self::Tokens => "tokens",
            Self::TlsCert => "tls_cert",
            Self::TlsKey => "tls_key",
            Self::SegmentBytes => "segment_bytes",
            Self::ReserveBytes => "reserve_bytes",
            Self::SnapshotBytes => "snapshot_bytes",
            Self::Archive => "archive",
            Self::LiveLimit => "live_limit",
            Self::Mailbox => "mailbox",
        }
    }

    /// The setting that the builder calls `name`.
    pub(crate) fn of_builder(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.name() == name)
    }

    /// The flag: `--redis-prefix`.
    pub(crate) fn flag(self) -> String {
        format!("--{}", self.name().replace('_', "-"))
    }

    /// The variable: `COUNTWHEEL_REDIS_PREFIX`.
    pub(crate) fn variable(self) -> String {
        format!("COUNTWHEEL_{}", self.name().to_ascii_uppercase())
    }

    pub(super) const fn shape(self) -> Shape {
        match self {
            Self::AdoptRedis => Shape::Flag,
            Self::Shards | Self::LiveLimit | Self::Mailbox => Shape::Number,
            _ => Shape::Text,
        }
    }

    pub(super) const fn fallback(self) -> Fallback {
        match self {
            Self::Data => Fallback::Value("./countwheel-data"),
            Self::Listen => Fallback::Value("127.0.0.1:7171"),
            Self::Redis => Fallback::Unset("the embedded queue"),
            Self::RedisPrefix => Fallback::Value("cw"),
            Self::AdoptRedis => Fallback::Value("false"),
            Self::Shards => Fallback::Unset("the directory's own number, else one a core"),
            Self::Tzdata => Fallback::Unset("the newer of the system's zone rules and the bundled ones"),
            Self::Lead => Fallback::Value("2s"),
            Self::Horizon => Fallback::Value("1048576ms"),
            Self::Tokens => Fallback::Unset("no tokens: loopback only"),
            Self::TlsCert | Self::TlsKey => Fallback::Unset("plain HTTP"),
            Self::SegmentBytes => Fallback::Value("64MiB"),
            Self::ReserveBytes => Fallback::Value("256MiB"),
            Self::SnapshotBytes => Fallback::Value("256MiB"),
            Self::Archive => Fallback::Value("720h"),
            Self::LiveLimit => Fallback::Value("2000000"),
            Self::Mailbox => Fallback::Value("1024"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_listed_once_under_a_name_of_its_own() {
        let mut names: Vec<&str> = Setting::ALL.iter().map(|key| key.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Setting::ALL.len());
        assert_eq!(Setting::RedisPrefix.flag(), "--redis-prefix");
        assert_eq!(Setting::RedisPrefix.variable(), "COUNTWHEEL_REDIS_PREFIX");
        assert_eq!(Setting::of_builder("lead"), Some(Setting::Lead));
        assert_eq!(Setting::of_builder("rehearse-speed"), None);
    }
}
