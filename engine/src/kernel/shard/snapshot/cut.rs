//! Tables that can be read as they were at one moment while they change on.
//!
//! A *cut* is made at a moment and *swept* row by row, in the order of the keys. Whoever changes a row that the sweep has
//! not reached leaves its old image first; a row changed twice leaves one. So the sweep gives every row as it was at the
//! cut, and what came later not at all.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    ops::{Bound, Deref},
};

use crate::kernel::time::UnixMs;

/// What can leave its image in a snapshot.
pub(in crate::kernel::shard) trait Imaged<K> {
    /// Appends the image of the row at `key`; times near to the cut are differences to `base`.
    fn write_image(&self, key: K, base: UnixMs, out: &mut Vec<u8>);
}

/// A cut through one table that has not been swept to its end.
#[derive(Debug)]
pub(in crate::kernel::shard) struct Cut<K> {
    base: UnixMs,
    /// Keys from this on came later.
    until: Option<K>,
    /// Keys up to this were swept.
    reached: Option<K>,
    /// Images of rows that changed since, empty for what was not there.
    old: BTreeMap<K, Box<[u8]>>,
}

impl<K: Ord + Copy> Cut<K> {
    pub(in crate::kernel::shard) const fn new(base: UnixMs, until: Option<K>) -> Self {
        Self { base, until, reached: None, old: BTreeMap::new() }
    }

    /// Whether the row at `key` is still to be swept.
    pub(in crate::kernel::shard) fn is_ahead(&self, key: K) -> bool {
        self.reached.is_none_or(|reached| key > reached) && self.until.is_none_or(|until| key < until)
    }

    /// A row is about to change, or, where it is `None`, to come into being.
    pub(in crate::kernel::shard) fn keep(&mut self, key: K, row: Option<&impl Imaged<K>>) {
        if self.is_ahead(key) && !self.old.contains_key(&key) {
            let mut image = Vec::new();
            if let Some(row) = row {
                row.write_image(key, self.base, &mut image);
            }
            self.old.insert(key, image.into_boxed_slice());
        }
    }

    /// The last row that was swept.
    pub(in crate::kernel::shard) const fn reached(&self) -> Option<K> {
        self.reached
    }

    /// Where the table is to be looked at next.
    fn rest(&self) -> (Bound<K>, Bound<K>) {
        (self.reached.map_or(Bound::Unbounded, Bound::Excluded), self.until.map_or(Bound::Unbounded, Bound::Excluded))
    }

    /// Appends the next row's image; `live` is the first row of the table that [`Cut::is_ahead`]. False at the end.
    pub(in crate::kernel::shard) fn sweep(&mut self, live: Option<(K, &impl Imaged<K>)>, out: &mut Vec<u8>) -> bool {
        let changed = self.old.first_key_value().map(|(key, _)| *key);
        match (changed, live) {
            (Some(changed), live) if live.as_ref().is_none_or(|(key, _)| changed <= *key) => {
                let image = self.old.remove(&changed).unwrap_or_default();
                out.extend_from_slice(&image);
                self.reached = Some(changed);
            }
            (_, Some((key, row))) => {
                row.write_image(key, self.base, out);
                self.reached = Some(key);
            }
            (_, None) => return false,
        }
        true
    }
}

/// A map that can be cut. It is read as a map; changes go through its own functions.
pub(in crate::kernel::shard) struct CutMap<K, V> {
    map: BTreeMap<K, V>,
    cut: Option<Cut<K>>,
}

impl<K, V> Default for CutMap<K, V> {
    fn default() -> Self {
        Self { map: BTreeMap::new(), cut: None }
    }
}

impl<K, V> Deref for CutMap<K, V> {
    type Target = BTreeMap<K, V>;

    fn deref(&self) -> &Self::Target {
        &self.map
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for CutMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.map.fmt(f)
    }
}

impl<K: Ord + Copy, V: Imaged<K>> CutMap<K, V> {
    fn keep(&mut self, key: K) {
        if let Some(cut) = &mut self.cut {
            cut.keep(key, self.map.get(&key));
        }
    }

    pub(in crate::kernel::shard) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.keep(*key);
        self.map.get_mut(key)
    }

    pub(in crate::kernel::shard) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.keep(key);
        self.map.insert(key, value)
    }

    pub(in crate::kernel::shard) fn remove(&mut self, key: &K) -> Option<V> {
        self.keep(*key);
        self.map.remove(key)
    }

    /// The value at `key`, from now on if there was none.
    pub(in crate::kernel::shard) fn or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        self.keep(key);
        self.map.entry(key).or_default()
    }

    pub(in crate::kernel::shard) fn set_cut(&mut self, cut: Option<Cut<K>>) {
        self.cut = cut;
    }

    /// Appends the image of the next row. False at the end, or where there is no cut; then there is none any more.
    pub(in crate::kernel::shard) fn sweep(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(cut) = &mut self.cut else { return false };
        let live = self.map.range(cut.rest()).next().map(|(key, row)| (*key, row));
        let is_more = cut.sweep(live, out);
        if !is_more {
            self.cut = None;
        }
        is_more
    }
}

/// What is only pushed at one end and taken from the other, and can be cut. It is read as a deque.
pub(in crate::kernel::shard) struct Fifo<T> {
    items: VecDeque<T>,
    cut: Option<FifoCut<T>>,
}

#[derive(Debug)]
struct FifoCut<T> {
    /// What is to be swept and was taken meanwhile.
    taken: VecDeque<T>,
    /// How many of the items, from the front, were swept...
    swept: usize,
    /// ...and how many behind them are to be.
    left: usize,
}

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Self { items: VecDeque::new(), cut: None }
    }
}

impl<T> Deref for Fifo<T> {
    type Target = VecDeque<T>;

    fn deref(&self) -> &Self::Target {
        &self.items
    }
}

impl<T: fmt::Debug> fmt::Debug for Fifo<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.items.fmt(f)
    }
}

impl<T: Clone> Fifo<T> {
    pub(in crate::kernel::shard) fn push_back(&mut self, item: T) {
        self.items.push_back(item);
    }

    pub(in crate::kernel::shard) fn pop_front(&mut self) -> Option<T> {
        let item = self.items.pop_front()?;
        if let Some(cut) = &mut self.cut {
            if cut.swept > 0 {
                cut.swept -= 1;
            } else if cut.left > 0 {
                cut.left -= 1;
                cut.taken.push_back(item.clone());
            }
        }
        Some(item)
    }

    pub(in crate::kernel::shard) fn set_cut(&mut self, is_cut: bool) {
        let left = self.items.len();
        self.cut = is_cut.then(|| FifoCut { taken: VecDeque::new(), swept: 0, left });
    }

    /// The next item; `None` at the end, or where there is no cut; then there is none any more.
    pub(in crate::kernel::shard) fn sweep(&mut self) -> Option<T> {
        let cut = self.cut.as_mut()?;
        if let Some(item) = cut.taken.pop_front() {
            return Some(item);
        }
        if cut.left == 0 {
            self.cut = None;
            return None;
        }
        let item = self.items.get(cut.swept).cloned();
        cut.swept += 1;
        cut.left -= 1;
        item
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Imaged<u8> for u32 {
        fn write_image(&self, key: u8, _: UnixMs, out: &mut Vec<u8>) {
            out.extend([key]);
            out.extend(self.to_be_bytes());
        }
    }

    proptest! {
        #[test]
        fn a_map_is_swept_as_it_was_whatever_changes_meanwhile(
            before in prop::collection::btree_map(any::<u8>(), any::<u32>(), 0..40),
            steps in prop::collection::vec((0_u8..5, any::<u8>(), any::<u32>()), 0..200),
        ) {
            let (mut map, mut as_it_was) = (CutMap::default(), Vec::new());
            for (key, value) in &before {
                map.insert(*key, *value);
                value.write_image(*key, UnixMs(0), &mut as_it_was);
            }
            map.set_cut(Some(Cut::new(UnixMs(0), None)));
            let mut swept = Vec::new();
            for (step, key, value) in steps {
                match step {
                    0 => drop(map.insert(key, value)),
                    1 => drop(map.remove(&key)),
                    2 => *map.or_default(key) = value,
                    3 => drop(map.get_mut(&key).map(|row| *row = value)),
                    _ => drop(map.sweep(&mut swept)),
                }
            }
            while map.sweep(&mut swept) {}
            prop_assert_eq!(swept, as_it_was);
        }

        #[test]
        fn a_fifo_is_swept_as_it_was_whatever_comes_and_goes(
            before in prop::collection::vec(any::<u32>(), 0..40),
            steps in prop::collection::vec(0_u8..3, 0..200),
        ) {
            let mut fifo = Fifo::default();
            for item in &before {
                fifo.push_back(*item);
            }
            fifo.set_cut(true);
            let mut swept = Vec::new();
            for step in steps {
                match step {
                    0 => fifo.push_back(7),
                    1 => drop(fifo.pop_front()),
                    _ => swept.extend(fifo.sweep()),
                }
            }
            swept.extend(std::iter::from_fn(|| fifo.sweep()));
            prop_assert_eq!(swept, before);
        }
    }

    #[test]
    fn what_came_after_the_cut_leaves_nothing() {
        let mut map = CutMap::default();
        map.insert(1_u8, 1_u32);
        map.set_cut(Some(Cut::new(UnixMs(0), Some(2))));
        map.insert(2, 2);
        *map.or_default(3) = 3;
        assert!(map.cut.as_ref().is_some_and(|cut| cut.old.is_empty()), "numbers that came later are not looked at");
        let mut swept = Vec::new();
        while map.sweep(&mut swept) {}
        assert_eq!((swept, map.len()), (vec![1, 0, 0, 0, 1], 3));
    }
}
