//! What a shard decides, scenario by scenario, and whatever happens to it.

mod chance;

use std::sync::{Arc, LazyLock};

use crate::kernel::calendar::ZoneSet;

static ZONES: LazyLock<Arc<ZoneSet>> = LazyLock::new(|| Arc::new(crate::shell::tzdata::bundled()));
