//! From texts to values: every setting by itself, then those that need each other.

use std::{net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};

use super::{
    error::SettingError,
    layers::{Given, Layers},
    table::Setting,
};
use crate::{
    builder::RedisOptions,
    cli::{start::Start, values},
};

/// The settings of a server, each within its bounds as far as it can be told without opening anything.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) data: PathBuf,
    pub(crate) listen: SocketAddr,
    pub(crate) tokens: Option<PathBuf>,
    pub(crate) tls: Option<TlsFiles>,
    redis: Option<RedisOptions>,
    shards: Option<u16>,
    tzdata: Option<PathBuf>,
    lead: Option<Duration>,
    horizon: Option<Duration>,
    segment_bytes: Option<u64>,
    reserve_bytes: Option<u64>,
    snapshot_bytes: Option<u64>,
    archive: Option<Duration>,
    live_limit: Option<usize>,
    mailbox: Option<usize>,
}

/// Where certificate and key are.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "a build without TLS refuses them and reads neither"))]
pub(crate) struct TlsFiles {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

impl Settings {
    /// Reads every value.
    pub(crate) fn check(layers: &Layers) -> Result<Self, SettingError> {
        let given = Reader(layers);
        Ok(Self {
            data: given.path(Setting::Data)?.unwrap_or_default(),
            listen: given.needed(Setting::Listen, values::listen_address)?,
            tokens: given.path(Setting::Tokens)?,
            tls: given.tls()?,
            redis: given.redis()?,
            shards: given.optional(Setting::Shards, |text| values::number(text, 1, 1_024))?,
            tzdata: given.path(Setting::Tzdata)?,
            lead: given.optional(Setting::Lead, values::duration)?,
            horizon: given.optional(Setting::Horizon, values::duration)?,
            segment_bytes: given.optional(Setting::SegmentBytes, values::bytes)?,
            reserve_bytes: given.optional(Setting::ReserveBytes, values::bytes)?,
            snapshot_bytes: given.optional(Setting::SnapshotBytes, values::bytes)?,
            archive: given.optional(Setting::Archive, values::duration)?,
            live_limit: given.optional(Setting::LiveLimit, |text| values::number(text, 1, 100_000_000))?,
            mailbox: given.optional(Setting::Mailbox, |text| values::number(text, 1, 1_000_000))?,
        })
    }

    /// The part of it that the engine is opened with.
    pub(crate) fn start(&self) -> Start {
        Start {
            data: self.data.clone(),
            shards: self.shards,
            redis: self.redis.clone(),
            rehearse: None,
            tzdata: self.tzdata.clone(),
            lead: self.lead,
            horizon: self.horizon,
            segment_bytes: self.segment_bytes,
            reserve_bytes: self.reserve_bytes,
            snapshot_bytes: self.snapshot_bytes,
            archive: self.archive,
            live_limit: self.live_limit,
            mailbox: self.mailbox,
        }
    }
}

struct Reader<'a>(&'a Layers);

impl Reader<'_> {
    fn optional<T>(&self, key: Setting, read: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, SettingError> {
        let value = self.0.value(key).map(|Given { text, .. }| read(text)).transpose();
        value.map_err(|problem| self.0.refuse(key, problem))
    }

    fn needed<T>(&self, key: Setting, read: impl Fn(&str) -> Result<T, String>) -> Result<T, SettingError> {
        let value = self.optional(key, read)?;
        value.ok_or_else(|| self.0.refuse(key, "is not set: give it"))
    }

    fn path(&self, key: Setting) -> Result<Option<PathBuf>, SettingError> {
        self.optional(key, |text| match text {
            "" => Err("is empty: give a path or leave it out".to_owned()),
            text => Ok(PathBuf::from(text)),
        })
    }

    fn redis(&self) -> Result<Option<RedisOptions>, SettingError> {
        let url = self.optional(Setting::Redis, |text| Ok(text.to_owned()))?;
        let adopt = self.needed(Setting::AdoptRedis, |text| {
            bool::from_str(text).map_err(|_| format!("{text:?} is neither true nor false: give one of them"))
        })?;
        let prefix = self.needed(Setting::RedisPrefix, |text| Ok(text.to_owned()))?;
        let Some(url) = url else {
            let said = [Setting::RedisPrefix, Setting::AdoptRedis].into_iter().find(|key| self.0.differs(*key));
            let without = |key| self.0.refuse(key, "means nothing without redis: give --redis too, or leave it out");
            return said.map_or(Ok(None), |key| Err(without(key)));
        };
        Ok(Some(RedisOptions { url, prefix, adopt }))
    }

    fn tls(&self) -> Result<Option<TlsFiles>, SettingError> {
        match (self.path(Setting::TlsCert)?, self.path(Setting::TlsKey)?) {
            (Some(cert), Some(key)) => Ok(Some(TlsFiles { cert, key })),
            (None, None) => Ok(None),
            (Some(_), None) => Err(self.0.refuse(Setting::TlsCert, "needs a key: give --tls-key too")),
            (None, Some(_)) => Err(self.0.refuse(Setting::TlsKey, "needs a certificate: give --tls-cert too")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn checked(flags: &[(Setting, &str)]) -> Result<Settings, String> {
        let flags = flags.iter().map(|(key, text)| (*key, (*text).to_owned())).collect::<BTreeMap<_, _>>();
        let layers = Layers::read(flags, |_| None, None).map_err(|error| error.to_string())?;
        Settings::check(&layers).map_err(|error| error.to_string())
    }

    #[test]
    fn the_defaults_are_the_builders() {
        let settings = checked(&[]).unwrap();
        let asked = format!("{:?}", crate::cli::start::builder(settings.start()));
        let untouched = format!("{:?}", crate::Engine::builder("./countwheel-data"));
        assert_eq!(asked, untouched);
    }

    #[test]
    fn settings_that_need_each_other_are_refused_alone() {
        for (key, said) in [
            (Setting::RedisPrefix, "redis_prefix (--redis-prefix): means nothing without redis"),
            (Setting::AdoptRedis, "adopt_redis (--adopt-redis): means nothing without redis"),
            (Setting::TlsCert, "tls_cert (--tls-cert): needs a key"),
            (Setting::TlsKey, "tls_key (--tls-key): needs a certificate"),
        ] {
            let value = if key == Setting::AdoptRedis { "true" } else { "x" };
            let refusal = checked(&[(key, value)]).unwrap_err();
            assert!(refusal.starts_with(said), "{refusal}");
        }
    }

    #[test]
    fn a_value_that_does_not_read_names_key_and_flag() {
        for (key, text) in [
            (Setting::Listen, "7171"),
            (Setting::Lead, "2"),
            (Setting::Shards, "0"),
            (Setting::Shards, "1025"),
            (Setting::Mailbox, "-1"),
            (Setting::SegmentBytes, "64 MB"),
            (Setting::AdoptRedis, "yes"),
            (Setting::Data, ""),
        ] {
            let refusal = checked(&[(key, text)]).unwrap_err();
            assert!(refusal.starts_with(&format!("{} ({}): ", key.name(), key.flag())), "{refusal}");
        }
    }
}
