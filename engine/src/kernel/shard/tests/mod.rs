//! What a shard decides, scenario by scenario, and whatever happens to it.

mod cancel;
mod chance;
mod delivery;
mod flow;
mod missed;
mod nights;
mod odd_logs;
mod policies;
mod requests;
mod rig;
mod turns;
mod versions;

use std::sync::{Arc, LazyLock};

use crate::kernel::calendar::ZoneSet;

static ZONES: LazyLock<Arc<ZoneSet>> = LazyLock::new(|| Arc::new(crate::shell::tzdata::bundled()));
