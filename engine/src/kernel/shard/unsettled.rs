//! What queues follow and has not ended: by schedule, for whoever asks what else of a schedule is under way; and by its
//! place in its stream, for what consumers acknowledged.

use std::collections::{BTreeSet, VecDeque};

use hashbrown::HashMap;

use crate::kernel::occurrence::{EntryId, OccurrenceNo};

/// Many small tables, so that one that grows is soon done: a turn stays short.
const PARTS: usize = 256;
/// A stream's entries are swept when they are twice as many as after the last sweep, and at least so many.
const SWEEP_AT_LEAST: usize = 1_024;

/// By schedule. Lookup only: it is never iterated.
#[derive(Debug)]
pub(super) struct Unsettled {
    parts: Vec<HashMap<u32, Few>>,
}

/// Most schedules have one at a time.
#[derive(Debug)]
enum Few {
    One(OccurrenceNo),
    Many(BTreeSet<OccurrenceNo>),
}

impl Default for Unsettled {
    fn default() -> Self {
        Self { parts: (0..PARTS).map(|_| HashMap::new()).collect() }
    }
}

impl Unsettled {
    pub(super) fn insert(&mut self, schedule: u32, number: OccurrenceNo) {
        let few = self.parts[schedule as usize % PARTS].entry(schedule).or_insert(Few::One(number));
        match few {
            Few::One(one) if *one == number => {}
            Few::One(one) => *few = Few::Many(BTreeSet::from([*one, number])),
            Few::Many(many) => drop(many.insert(number)),
        }
    }

    pub(super) fn remove(&mut self, schedule: u32, number: OccurrenceNo) {
        let part = &mut self.parts[schedule as usize % PARTS];
        let is_last = match part.get_mut(&schedule) {
            None => return,
            Some(Few::One(one)) => *one == number,
            Some(Few::Many(many)) => {
                many.remove(&number);
                many.is_empty()
            }
        };
        if is_last {
            part.remove(&schedule);
        }
    }

    /// A schedule's, oldest number first.
    pub(super) fn of(&self, schedule: u32) -> impl Iterator<Item = OccurrenceNo> {
        let (one, many) = match self.parts[schedule as usize % PARTS].get(&schedule) {
            None => (None, None),
            Some(Few::One(one)) => (Some(*one), None),
            Some(Few::Many(many)) => (None, Some(many)),
        };
        one.into_iter().chain(many.into_iter().flatten().copied())
    }
}

/// The entries of one stream that may still be ENQUEUED, in their order.
#[derive(Debug, Default)]
pub(super) struct Entries {
    entries: VecDeque<(EntryId, OccurrenceNo)>,
    sweep_at: usize,
}

impl Entries {
    /// From entries in any order.
    pub(super) fn of(mut entries: Vec<(EntryId, OccurrenceNo)>) -> Self {
        entries.sort_unstable();
        Self { entries: entries.into(), sweep_at: 0 }
    }

    /// An entry was accepted.
    pub(super) fn push(&mut self, entry: EntryId, number: OccurrenceNo) {
        let behind = self.entries.iter().rev().take_while(|(other, _)| *other > entry).count();
        self.entries.insert(self.entries.len() - behind, (entry, number));
    }

    /// Drops what is no occurrence's own entry any more, once there is enough of it to be worth looking.
    pub(super) fn sweep(&mut self, is_there: impl Fn(EntryId, OccurrenceNo) -> bool) {
        if self.entries.len() >= self.sweep_at.max(SWEEP_AT_LEAST) {
            self.entries.retain(|(entry, number)| is_there(*entry, *number));
            self.sweep_at = self.entries.len() * 2;
        }
    }

    /// Those up to an entry, oldest first.
    pub(super) fn through(&self, entry: EntryId) -> impl Iterator<Item = (EntryId, OccurrenceNo)> {
        self.entries.iter().copied().take_while(move |(other, _)| *other <= entry)
    }

    /// Nothing up to an entry is asked for again.
    pub(super) fn forget_through(&mut self, entry: EntryId) {
        while self.entries.front().is_some_and(|(other, _)| *other <= entry) {
            self.entries.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn by_schedule_it_is_a_set_of_pairs(changes in prop::collection::vec((0_u32..600, 0_u64..8, any::<bool>()), 0..400)) {
            let (mut unsettled, mut set) = (Unsettled::default(), BTreeSet::new());
            for (schedule, number, is_in) in changes {
                let number = OccurrenceNo(number);
                if is_in {
                    unsettled.insert(schedule, number);
                    set.insert((schedule, number));
                } else {
                    unsettled.remove(schedule, number);
                    set.remove(&(schedule, number));
                }
                let of = set.iter().filter(|(of, _)| *of == schedule).map(|(_, number)| *number);
                prop_assert!(unsettled.of(schedule).eq(of));
            }
        }
    }

    #[test]
    fn entries_keep_their_order_and_the_dead_hold_no_memory() {
        let mut entries = Entries::default();
        let entry = |counter| EntryId { generation: 1, counter };
        for counter in [1, 2, 4, 3] {
            entries.push(entry(counter), OccurrenceNo(counter));
        }
        assert!(entries.through(entry(3)).map(|(_, number)| number.0).eq([1, 2, 3]));
        entries.forget_through(entry(2));
        assert!(entries.through(entry(9)).map(|(_, number)| number.0).eq([3, 4]));
        for counter in 5..100_000 {
            entries.push(entry(counter), OccurrenceNo(counter));
            entries.sweep(|_, number| number.0 == 3);
        }
        assert!(entries.entries.len() <= SWEEP_AT_LEAST);
        assert_eq!(entries.through(entry(3)).count(), 1, "whoever is alive stays");
    }
}
