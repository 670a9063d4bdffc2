//! Integration tests, linked once.

mod calendar;
mod embedded;
mod ids;
mod player;
mod queue_conformance;
mod records;
#[cfg(feature = "redis")]
mod redis_faults;
#[cfg(feature = "redis")]
#[path = "../../../bench/src/redis_server.rs"]
mod redis_server;
#[cfg(feature = "redis")]
mod redis_view;
#[cfg(feature = "redis")]
mod streams;
#[cfg(feature = "redis")]
mod tcp_proxy;
