//! The command line: one file a command, each a thin skin over the public API.

pub mod preview;
mod preview_batch;
