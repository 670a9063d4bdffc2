//! Everything that waits: clocks, files, sockets, threads and actors around the kernel.

pub mod clock;
mod directory;
mod journal;
mod local_queue;
pub(crate) mod paging;
pub mod queue;
pub(crate) mod shard_actor;
mod signal;
pub mod status;
pub(crate) mod supervise;
mod tick;
pub mod tzdata;
pub mod worker;
