//! Integration tests, linked once.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests wait; the kernel's bans are not theirs")]

mod access;
mod calendar;
mod canned;
mod cli;
mod config;
mod demo;
mod embedded;
mod examples;
mod http;
mod http_changes;
mod http_document;
mod http_fields;
mod http_import;
mod http_limits;
mod http_runs;
mod http_settings;
mod http_tokens;
mod http_waits;
mod ids;
mod images;
mod kills;
#[cfg(feature = "redis")]
mod kills_of_changes;
mod past;
mod player;
mod queue_conformance;
mod records;
#[cfg(feature = "redis")]
mod redis_faults;
#[cfg(feature = "redis")]
mod redis_janitor;
#[cfg(feature = "redis")]
mod redis_ownership;
#[cfg(feature = "redis")]
#[path = "../../../bench/src/redis_server.rs"]
mod redis_server;
#[cfg(feature = "redis")]
mod redis_storm;
#[cfg(feature = "redis")]
mod redis_view;
mod runs;
mod server;
mod settings;
#[cfg(feature = "worker")]
mod stand_in;
#[cfg(feature = "redis")]
mod streams;
#[cfg(feature = "redis")]
mod tcp_proxy;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "worker")]
mod worker;
#[cfg(all(feature = "worker", feature = "server"))]
mod worker_deaths;
#[cfg(all(feature = "worker", feature = "server"))]
mod worker_python;
#[cfg(all(feature = "worker", feature = "server"))]
mod workers_and_server;
