//! Skeleton.

pub mod redis_server;
