//! Everything that waits: clocks, files, sockets, threads and actors around the kernel.

pub mod local_queue;
pub mod queue;
#[cfg(feature = "redis")]
pub mod redis_queue;
