//! Numbers for workers: named once in the log, and by a number from then on. Workers come and go, so only the latest
//! names are kept; one that is back after many others is named again.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// More workers than one shard serves at a time.
const KEEP: usize = 10_000;

/// The latest workers, in the order in which they were named.
#[derive(Debug, Default)]
pub(super) struct Workers {
    names: VecDeque<Arc<str>>,
    /// The number of `names[0]`.
    first: u64,
    by_name: BTreeMap<Arc<str>, u64>,
}

impl Workers {
    pub(super) fn push(&mut self, name: &str) {
        let name: Arc<str> = name.into();
        let number = self.first + self.names.len() as u64;
        self.by_name.insert(Arc::clone(&name), number);
        self.names.push_back(name);
        if self.names.len() > KEEP
            && let Some(oldest) = self.names.pop_front()
        {
            self.by_name.remove(&oldest);
            self.first += 1;
        }
    }

    /// The number of the first name that is kept.
    pub(super) const fn first(&self) -> u64 {
        self.first
    }

    /// The names that are kept, in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<str>> {
        self.names.iter()
    }

    /// Numbers go on from here, where no name is known yet.
    pub(super) const fn begin_at(&mut self, first: u64) {
        self.first = first;
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.by_name.get(name).copied()
    }

    pub(super) fn name(&self, number: u64) -> Option<&Arc<str>> {
        self.names.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_name_is_forgotten_and_numbers_never_come_again() {
        let mut workers = Workers::default();
        for number in 0..=KEEP {
            workers.push(&format!("w{number}"));
        }
        assert_eq!((workers.number("w0"), workers.name(0)), (None, None));
        assert_eq!(workers.number("w1"), Some(1));
        workers.push("w0");
        assert_eq!(workers.number("w0"), Some(KEEP as u64 + 1));
        assert_eq!(workers.name(KEEP as u64 + 1).map(|name| &**name), Some("w0"));
        assert_eq!((workers.names.len(), workers.by_name.len()), (KEEP, KEEP));
    }
}
