//! What a shard decides, scenario by scenario, and whatever happens to it.

mod cancel;
mod chance;
mod chronicle;
mod concurrency;
mod delivery;
mod flow;
mod held;
mod leases;
mod missed;
mod nights;
mod odd_logs;
mod odd_runs;
mod overlap;
mod pace;
mod policies;
mod requests;
mod retries;
mod rig;
mod runs;
mod snapshots;
mod turns;
mod versions;

use std::sync::{Arc, LazyLock};

use crate::kernel::calendar::ZoneSet;

static ZONES: LazyLock<Arc<ZoneSet>> = LazyLock::new(|| Arc::new(crate::shell::tzdata::bundled()));
