//! Something that happens once, for which several threads wait.

use std::{
    sync::{Condvar, Mutex, PoisonError},
    time::Duration,
};

/// Raised once, for good.
#[derive(Debug, Default)]
pub(super) struct Signal {
    raised: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    pub(super) fn raise(&self) {
        *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    pub(super) fn is_raised(&self) -> bool {
        *self.raised.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps so long, or until it is raised; whether it is.
    pub(super) fn wait(&self, limit: Duration) -> bool {
        let raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(raised, limit, |raised| !*raised);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}
