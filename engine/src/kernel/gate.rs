//! The gate: holds whatever may leave the process only once the log says that what it rests on is durable.

use std::collections::BTreeMap;

/// A record's position in the log; the first is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

/// Effects waiting for their records to be durable.
#[derive(Debug)]
pub struct Gate<Effect> {
    released: Lsn,
    held: BTreeMap<(Lsn, u64), Effect>,
    next: u64,
}

impl<Effect> Default for Gate<Effect> {
    fn default() -> Self {
        Self { released: Lsn(0), held: BTreeMap::new(), next: 0 }
    }
}

impl<Effect> Gate<Effect> {
    /// Gives `effect` back at once where `lsn` is durable, else keeps it.
    pub fn pass(&mut self, lsn: Lsn, effect: Effect) -> Option<Effect> {
        if lsn <= self.released {
            return Some(effect);
        }
        self.held.insert((lsn, self.next), effect);
        self.next += 1;
        None
    }

    /// Everything up to `durable` may leave: returns it in log order. A smaller `durable` than before changes nothing.
    pub fn release(&mut self, durable: Lsn) -> Vec<Effect> {
        self.released = self.released.max(durable);
        let kept = self.held.split_off(&(Lsn(self.released.0.saturating_add(1)), 0));
        std::mem::replace(&mut self.held, kept).into_values().collect()
    }

    /// How far effects may leave.
    #[must_use]
    pub const fn released(&self) -> Lsn {
        self.released
    }

    /// Whether something waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Takes everything that waits, for a shard that will answer nothing any more.
    pub fn drain(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.held).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leaves_before_its_record_is_durable() {
        let mut gate = Gate::default();
        assert_eq!(gate.pass(Lsn(2), 'b'), None);
        assert_eq!(gate.pass(Lsn(1), 'a'), None);
        assert_eq!(gate.pass(Lsn(2), 'c'), None);
        assert_eq!(gate.pass(Lsn(3), 'd'), None);
        assert!(gate.release(Lsn(0)).is_empty());
        assert_eq!(gate.release(Lsn(2)), ['a', 'b', 'c']);
        assert!(gate.release(Lsn(1)).is_empty(), "going back changes nothing");
        assert_eq!(gate.pass(Lsn(2), 'e'), Some('e'));
        assert_eq!(gate.drain(), ['d']);
    }
}
