//! Why settings were refused: always which one, where it was said, and what to say instead.

use std::{io, path::PathBuf};

use super::{layers::Origin, table::Setting};

/// A setting, or the file they stand in, cannot be used: correct it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum SettingError {
    /// The value of a setting.
    #[error("{} ({origin}): {problem}", key.name())]
    Value { key: Setting, origin: Origin, problem: String },
    /// A setting that only a flag gives.
    #[error("{flag}: {problem}")]
    Flag { flag: &'static str, problem: String },
    /// The file is not there, or not readable.
    #[error("{}: {source}: correct --config or COUNTWHEEL_CONFIG", path.display())]
    File { path: PathBuf, source: io::Error },
    /// The file is no TOML, or says something that is no setting.
    #[error("{} line {line}: {problem}: correct the file", path.display())]
    Syntax { path: PathBuf, line: usize, problem: String },
}
