//! What a shard may use of its tenants' rates and quotas, which hold for all shards together: asked of whoever keeps
//! the accounts.

use std::sync::Arc;

use super::{occurrence::QueueNo, time::UnixMs};

/// Which rate a release counts under. Names are this shard's own numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Draw {
    /// A regular or manual release that is not late: the tenant's trigger rate.
    Trigger {
        /// Whose.
        tenant: u32,
    },
    /// What was admitted late or backfilled: the tenant's catch-up rate and the queue's.
    CatchUp {
        /// Whose.
        tenant: u32,
        /// Where it goes.
        queue: QueueNo,
    },
}

impl Draw {
    /// Whose it is.
    #[must_use]
    pub const fn tenant(self) -> u32 {
        match self {
            Self::Trigger { tenant } | Self::CatchUp { tenant, .. } => tenant,
        }
    }
}

/// What a shard may use. Tenants and queues are introduced in the order of their numbers.
pub trait Permits: Send {
    /// The next tenant number has this name.
    fn tenant_named(&mut self, name: &Arc<str>);

    /// The next queue number has this name.
    fn queue_named(&mut self, name: &Arc<str>);

    /// Takes up to `wanted` tokens; fewer where a rate is used up.
    fn take(&mut self, draw: Draw, wanted: usize, now: UnixMs) -> usize;

    /// Tokens that were taken and not needed.
    fn give_back(&mut self, draw: Draw, unused: usize);

    /// When it is worth asking again after too few were granted: later than `now`, by a second at most.
    fn ready_at(&self, draw: Draw, now: UnixMs) -> UnixMs;

    /// Sets room for one more schedule of `tenant` aside until the turn is counted; the limit where there is none.
    ///
    /// # Errors
    /// The tenant's limit.
    fn reserve_schedule(&mut self, tenant: &str) -> Result<(), u64>;

    /// A turn is over: its reservations are used or given back.
    fn end_reservations(&mut self);

    /// The tenant has so many more schedules that count than when it was told last, or fewer.
    fn schedules_changed(&mut self, tenant: u32, by: i64);
}

/// Nothing is limited.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited;

impl Permits for Unlimited {
    fn tenant_named(&mut self, _: &Arc<str>) {}

    fn queue_named(&mut self, _: &Arc<str>) {}

    fn take(&mut self, _: Draw, wanted: usize, _: UnixMs) -> usize {
        wanted
    }

    fn give_back(&mut self, _: Draw, _: usize) {}

    fn ready_at(&self, _: Draw, now: UnixMs) -> UnixMs {
        now.plus(1)
    }

    fn reserve_schedule(&mut self, _: &str) -> Result<(), u64> {
        Ok(())
    }

    fn end_reservations(&mut self) {}

    fn schedules_changed(&mut self, _: u32, _: i64) {}
}
