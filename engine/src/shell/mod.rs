//! Everything that waits: clocks, files, sockets, threads and actors around the kernel.

pub mod clock;
mod directory;
mod journal;
mod local_queue;
pub mod queue;
mod shard_actor;
mod signal;
pub mod status;
mod supervise;
mod tick;
pub mod tzdata;
mod worker;
