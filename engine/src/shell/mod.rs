//! Everything that waits: clocks, files, sockets, threads and actors around the kernel.

pub(crate) mod arrivals;
pub(crate) mod ask;
pub(crate) mod claim_ids;
pub mod clock;
pub(crate) mod creations;
pub(crate) mod directory;
pub(crate) mod journal;
pub(crate) mod ledger;
pub mod local_queue;
pub mod metrics;
mod pace;
pub(crate) mod paging;
pub mod queue;
#[cfg(feature = "redis")]
pub mod redis_queue;
pub(crate) mod rule_cache;
pub mod run_ask;
pub(crate) mod shard_actor;
mod signal;
pub(crate) mod snapshots;
pub mod status;
pub(crate) mod supervise;
pub mod tenant_metrics;
pub mod tick;
mod token_bucket;
pub mod tzdata;
pub mod worker;
