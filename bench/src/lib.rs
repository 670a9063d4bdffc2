//! What benches and the load harness share: a `redis-server` of one's own.

pub mod redis_server;
