//! What was said about each setting, and by whom: a flag, the environment, the file.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
};

use super::{
    error::SettingError,
    file,
    table::{Fallback, Setting},
};

/// Where a value was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// On the command line.
    Flag(Setting),
    /// In the environment.
    Environment(Setting),
    /// In the file.
    File { path: PathBuf, line: usize },
    /// Nowhere.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(key) => f.write_str(&key.flag()),
            Self::Environment(key) => f.write_str(&key.variable()),
            Self::File { path, line } => write!(f, "{} line {line}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A value as it was written, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) text: String,
    pub(crate) origin: Origin,
}

/// The value of every setting that has one.
#[derive(Clone, Debug)]
pub(crate) struct Layers {
    given: BTreeMap<Setting, Given>,
}

impl Layers {
    /// Puts what flags say over the environment, that over the file, and that over the defaults. A variable that is
    /// empty is one that is not set.
    pub(crate) fn read(
        flags: BTreeMap<Setting, String>,
        environment: impl Fn(&str) -> Option<OsString>,
        file: Option<&Path>,
    ) -> Result<Self, SettingError> {
        let mut given: BTreeMap<Setting, Given> = Setting::ALL.into_iter().filter_map(default_of).collect();
        let from_environment = environment("COUNTWHEEL_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from);
        if let Some(path) = file.map(Path::to_owned).or(from_environment) {
            given.extend(file::read(&path)?);
        }
        for key in Setting::ALL {
            let Some(value) = environment(&key.variable()).filter(|value| !value.is_empty()) else { continue };
            let origin = Origin::Environment(key);
            let text = value.into_string().map_err(|_| SettingError::Value {
                key,
                origin: origin.clone(),
                problem: "is not UTF-8: write it in UTF-8".to_owned(),
            })?;
            given.insert(key, Given { text, origin });
        }
        given.extend(flags.into_iter().map(|(key, text)| (key, Given { text, origin: Origin::Flag(key) })));
        Ok(Self { given })
    }

    /// What holds for a setting; `None` where it is not set and has no default.
    pub(crate) fn value(&self, key: Setting) -> Option<&Given> {
        self.given.get(&key)
    }

    /// Where a setting was said.
    pub(crate) fn origin(&self, key: Setting) -> Origin {
        self.value(key).map_or(Origin::Default, |given| given.origin.clone())
    }

    /// Whether a setting is another one than it would be if nobody said anything.
    pub(crate) fn differs(&self, key: Setting) -> bool {
        self.value(key).map(|given| &given.text) != default_of(key).map(|(_, given)| given.text).as_ref()
    }

    /// The refusal of a setting.
    pub(crate) fn refuse(&self, key: Setting, problem: impl Into<String>) -> SettingError {
        SettingError::Value { key, origin: self.origin(key), problem: problem.into() }
    }
}

fn default_of(key: Setting) -> Option<(Setting, Given)> {
    match key.fallback() {
        Fallback::Value(text) => Some((key, Given { text: text.to_owned(), origin: Origin::Default })),
        Fallback::Unset(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_wins_over_the_environment_and_that_over_the_file() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("c.toml");
        std::fs::write(&path, "lead = '1s'\nmailbox = 1\nlive_limit = 1\n").unwrap();
        let environment = |name: &str| match name {
            "COUNTWHEEL_CONFIG" => Some(path.clone().into_os_string()),
            "COUNTWHEEL_LEAD" => Some("2s".into()),
            "COUNTWHEEL_MAILBOX" => Some("2".into()),
            "COUNTWHEEL_SHARDS" => Some(OsString::new()),
            _ => None,
        };
        let flags = BTreeMap::from([(Setting::Lead, "3s".to_owned())]);
        let layers = Layers::read(flags, environment, None).unwrap();
        let text = |key| layers.value(key).map(|given| given.text.as_str());
        let texts = [Setting::Lead, Setting::Mailbox, Setting::LiveLimit, Setting::Data, Setting::Shards].map(text);
        assert_eq!(texts, [Some("3s"), Some("2"), Some("1"), Some("./countwheel-data"), None]);
        assert!(layers.differs(Setting::LiveLimit) && !layers.differs(Setting::Data));
        let other = Layers::read(BTreeMap::new(), environment, Some(Path::new("/nowhere.toml")));
        assert!(other.unwrap_err().to_string().contains("/nowhere.toml"), "the flag names another file");
    }
}
