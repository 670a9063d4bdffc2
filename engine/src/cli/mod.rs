//! The command line: each command is a thin shell around the library.

pub mod wal_command;
