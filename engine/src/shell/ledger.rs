//! What holds for tenants and queues over all shards of the process: settings, and later what they still may use.

use std::sync::{
    Arc, Mutex, PoisonError, RwLock,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use hashbrown::HashMap;

use crate::kernel::tenant::{QueueSettings, Revised, TenantSettings};

/// A tenant.
#[derive(Debug, Default)]
pub(crate) struct Account {
    set: Mutex<Revised<TenantSettings>>,
    /// The highest revision that was ever given away; it may have reached only some shards.
    given: AtomicU64,
}

/// A queue.
#[derive(Debug, Default)]
pub(crate) struct Target {
    set: Mutex<Revised<QueueSettings>>,
    /// The highest revision that was ever given away; it may have reached only some shards.
    given: AtomicU64,
}

/// All accounts, by name. Names stay once they were given: there are as many as the logs know.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    tenants: RwLock<HashMap<Arc<str>, Arc<Account>>>,
    queues: RwLock<HashMap<Arc<str>, Arc<Target>>>,
    /// Held while something is set: revisions are given one after another.
    pub(crate) setting: tokio::sync::Mutex<()>,
}

impl Account {
    pub(crate) fn settings(&self) -> Revised<TenantSettings> {
        *self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The revision of the next setting: above every one before it, whatever became of that.
    pub(crate) fn next_revision(&self) -> u64 {
        self.given.fetch_add(1, Relaxed) + 1
    }

    /// Takes over what was set, unless something later was.
    pub(crate) fn set(&self, set: Revised<TenantSettings>) {
        let mut known = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        self.given.fetch_max(set.revision, Relaxed);
        if set.revision > known.revision {
            *known = set;
        }
    }
}

impl Target {
    pub(crate) fn settings(&self) -> Revised<QueueSettings> {
        *self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The revision of the next setting: above every one before it, whatever became of that.
    pub(crate) fn next_revision(&self) -> u64 {
        self.given.fetch_add(1, Relaxed) + 1
    }

    /// Takes over what was set, unless something later was.
    pub(crate) fn set(&self, set: Revised<QueueSettings>) {
        let mut known = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        self.given.fetch_max(set.revision, Relaxed);
        if set.revision > known.revision {
            *known = set;
        }
    }
}

impl Ledger {
    /// The account of a tenant, if anything ever named it.
    pub(crate) fn known_tenant(&self, name: &str) -> Option<Arc<Account>> {
        self.tenants.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// The account of a tenant.
    pub(crate) fn tenant(&self, name: &str) -> Arc<Account> {
        self.known_tenant(name).unwrap_or_else(|| {
            let mut all = self.tenants.write().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(all.entry(name.into()).or_default())
        })
    }

    /// A queue, if anything ever named it.
    pub(crate) fn known_queue(&self, name: &str) -> Option<Arc<Target>> {
        self.queues.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// A queue.
    pub(crate) fn queue(&self, name: &str) -> Arc<Target> {
        self.known_queue(name).unwrap_or_else(|| {
            let mut all = self.queues.write().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(all.entry(name.into()).or_default())
        })
    }

    /// Every tenant that something was set for, by name.
    pub(crate) fn tenants_set(&self) -> Vec<(Arc<str>, Revised<TenantSettings>)> {
        let all = self.tenants.read().unwrap_or_else(PoisonError::into_inner);
        let all = all.iter().map(|(name, account)| (Arc::clone(name), account.settings()));
        sorted(all.filter(|(_, set)| set.revision > 0).collect())
    }

    /// Every queue that something was set for, by name.
    pub(crate) fn queues_set(&self) -> Vec<(Arc<str>, Revised<QueueSettings>)> {
        let all = self.queues.read().unwrap_or_else(PoisonError::into_inner);
        let all = all.iter().map(|(name, target)| (Arc::clone(name), target.settings()));
        sorted(all.filter(|(_, set)| set.revision > 0).collect())
    }
}

fn sorted<T>(mut all: Vec<(Arc<str>, T)>) -> Vec<(Arc<str>, T)> {
    all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    all
}
