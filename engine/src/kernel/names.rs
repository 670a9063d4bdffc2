//! Numbers for names: tenants and queues are named once in the log and by a small number from then on.

use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

/// Names in the order in which they were introduced.
#[derive(Debug, Default)]
pub(crate) struct Names {
    list: Vec<Arc<str>>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Names {
    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        let hash = self.hasher.hash_one(name);
        self.index.find(hash, |&n| &*self.list[n as usize] == name).copied()
    }

    /// Introduces a name that is not there yet.
    pub(crate) fn push(&mut self, name: &str) -> u32 {
        let number = self.next();
        self.list.push(name.into());
        let (list, hasher) = (&self.list, &self.hasher);
        self.index.insert_unique(hasher.hash_one(name), number, |&n| hasher.hash_one(&*list[n as usize]));
        number
    }

    pub(crate) fn name(&self, number: u32) -> Option<&Arc<str>> {
        self.list.get(number as usize)
    }

    /// The number that the next new name gets.
    pub(crate) fn next(&self) -> u32 {
        u32::try_from(self.list.len()).expect("there are fewer than 2^32 names")
    }
}
