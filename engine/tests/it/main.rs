//! Integration tests, linked once.

mod calendar;
mod demo;
mod embedded;
mod http;
mod ids;
mod player;
mod queue_conformance;
#[cfg(feature = "redis")]
mod redis_faults;
#[cfg(feature = "redis")]
#[path = "../../../bench/src/redis_server.rs"]
mod redis_server;
#[cfg(feature = "redis")]
mod redis_view;
mod server;
#[cfg(feature = "redis")]
mod streams;
#[cfg(feature = "redis")]
mod tcp_proxy;
