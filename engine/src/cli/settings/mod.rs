//! The settings of `serve`: one table, read from flags, the environment and a file, checked as a whole.
//!
//! A flag wins over the environment, the environment over the file, the file over the default. Nothing is made on disk
//! before every setting has been checked; what is refused is named together with the place it came from.

mod check;
mod error;
mod file;
mod layers;
mod print;
mod table;

#[cfg(feature = "tls")]
pub(crate) use self::check::TlsFiles;
pub(crate) use self::{check::Settings, error::SettingError, layers::Layers, table::Setting};
