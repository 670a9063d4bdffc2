//! Which occurrence has an id. Split into many small tables, so that one that grows is soon done: a turn stays short.

use hashbrown::HashTable;

use crate::kernel::{id::OccurrenceId, occurrence::OccurrenceNo};

const PARTS: usize = 256;

/// Numbers by id. Lookup only: it is never iterated.
#[derive(Debug)]
pub(super) struct ById {
    /// The id's hash stands beside the number, so that growing touches no row.
    parts: Vec<HashTable<(u64, OccurrenceNo)>>,
}

impl Default for ById {
    fn default() -> Self {
        Self { parts: (0..PARTS).map(|_| HashTable::new()).collect() }
    }
}

/// The bits behind an id's time are a digest already.
fn hash_of(id: OccurrenceId) -> u64 {
    u64::from_be_bytes(id.0[8..].try_into().expect("an id has 16 bytes"))
}

/// The middle bits choose the part; a table uses the highest and the lowest.
const fn part_of(hash: u64) -> usize {
    (hash >> 24) as usize % PARTS
}

impl ById {
    pub(super) fn insert(&mut self, id: OccurrenceId, number: OccurrenceNo) {
        let hash = hash_of(id);
        self.parts[part_of(hash)].insert_unique(spread(hash), (hash, number), |(hash, _)| spread(*hash));
    }

    pub(super) fn remove(&mut self, id: OccurrenceId, number: OccurrenceNo) {
        let hash = hash_of(id);
        if let Ok(entry) = self.parts[part_of(hash)].find_entry(spread(hash), |(_, known)| *known == number) {
            entry.remove();
        }
    }

    /// The occurrence with this id; `is` says whether a number of the same hash is it.
    pub(super) fn find(&self, id: OccurrenceId, is: impl Fn(OccurrenceNo) -> bool) -> Option<OccurrenceNo> {
        let hash = hash_of(id);
        self.parts[part_of(hash)].find(spread(hash), |(_, number)| is(*number)).map(|(_, number)| *number)
    }
}

/// The two highest bits of an id's half are its variant: moves them away from where tables look.
const fn spread(hash: u64) -> u64 {
    hash.rotate_left(17)
}
