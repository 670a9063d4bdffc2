//! Policies, kept once however many schedules decided alike.

use std::{hash::BuildHasher, sync::Arc};

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::kernel::policy::Policies;

/// The distinct policies in use.
#[derive(Debug, Default)]
pub(super) struct SharedPolicies {
    /// Lookup only: it is never iterated.
    known: HashTable<Arc<Policies>>,
    hasher: DefaultHashBuilder,
}

impl SharedPolicies {
    pub(super) fn share(&mut self, policies: Policies) -> Arc<Policies> {
        let hasher = &self.hasher;
        let hash = hasher.hash_one(policies);
        if let Some(known) = self.known.find(hash, |known| **known == policies) {
            return Arc::clone(known);
        }
        let shared = Arc::new(policies);
        self.known.insert_unique(hash, Arc::clone(&shared), |known| hasher.hash_one(**known));
        shared
    }

    /// Gives one use back; what nobody uses is dropped.
    pub(super) fn give_back(&mut self, policies: Arc<Policies>) {
        let value = *policies;
        drop(policies);
        let hash = self.hasher.hash_one(value);
        if let Ok(entry) = self.known.find_entry(hash, |known| **known == value)
            && Arc::strong_count(entry.get()) == 1
        {
            entry.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::policy::{Effect, Misfire, Overlap, Retry};

    #[test]
    fn alike_policies_are_one_and_go_with_their_last_user() {
        let policies = Policies {
            misfire: Misfire::Skip,
            max_lateness_ms: 1,
            overlap: Overlap::Allow,
            retry: Retry::default(),
            effect: Effect::Idempotent,
        };
        let mut shared = SharedPolicies::default();
        let (first, second) = (shared.share(policies), shared.share(policies));
        assert!(Arc::ptr_eq(&first, &second));
        shared.share(Policies { max_lateness_ms: 2, ..policies });
        shared.give_back(first);
        assert_eq!(shared.known.len(), 2);
        shared.give_back(second);
        assert_eq!(shared.known.len(), 1);
    }
}
