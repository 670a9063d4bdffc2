//! Which slot does a deadline belong to? The arithmetic of levels, and which of their slots are occupied.

/// A block has 2^BITS slots, and a slot is as wide as a block of the level below.
const BITS: u32 = 10;
/// Two blocks: the one that holds the present, and the next.
const SLOTS_A_LEVEL: usize = 2 << BITS;
/// Enough that the coarsest level reaches over all of `i64`.
pub(super) const LEVELS: usize = 64_usize.div_ceil(BITS as usize);
/// Slots of all levels together.
pub(super) const SLOTS: usize = LEVELS * SLOTS_A_LEVEL;

const WORDS: usize = SLOTS_A_LEVEL / 64;
const _: () = assert!(WORDS == u32::BITS as usize, "a summary has a bit a word");

/// One slot of one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotId(pub(super) u32);

impl SlotId {
    /// Slots of a level are numbered from 1970 on; two blocks of them are told apart.
    const fn numbered(level: usize, number: i64) -> Self {
        Self((level * SLOTS_A_LEVEL + number as usize % SLOTS_A_LEVEL) as u32)
    }

    /// The slot of `level` that holds `at`.
    pub(super) const fn holding(level: usize, at: i64) -> Self {
        Self::numbered(level, number(level, at))
    }

    const fn level(self) -> usize {
        self.0 as usize / SLOTS_A_LEVEL
    }

    const fn word_and_bit(self) -> (usize, usize) {
        let index = self.0 as usize % SLOTS_A_LEVEL;
        (index / 64, index % 64)
    }
}

/// How many milliseconds a slot of `level` covers.
pub(super) const fn width_ms(level: usize) -> i64 {
    1 << (BITS * level as u32)
}

/// The number of the slot that holds `at`.
const fn number(level: usize, at: i64) -> i64 {
    at >> (BITS * level as u32)
}

/// The finest level whose two blocks reach from `reached` to `deadline`, which is not earlier.
pub(super) fn level_of(reached: i64, deadline: i64) -> usize {
    // Shifted by at least BITS, the difference of any two instants fits.
    let blocks_apart = |level: usize| {
        let shift = (BITS * (level as u32 + 1)).min(63);
        (deadline >> shift) - (reached >> shift)
    };
    (0..LEVELS).find(|&level| blocks_apart(level) <= 1).expect("the coarsest level has one block on each side of 1970")
}

/// Which slots hold something: a bit a slot, and a bit a word of those.
pub(super) struct Occupancy {
    summaries: [u32; LEVELS],
    words: [[u64; WORDS]; LEVELS],
}

impl Occupancy {
    pub(super) fn none() -> Self {
        Self { summaries: [0; LEVELS], words: [[0; WORDS]; LEVELS] }
    }

    /// Marks a slot as occupied.
    pub(super) fn occupy(&mut self, slot: SlotId) {
        let (word, bit) = slot.word_and_bit();
        self.words[slot.level()][word] |= 1 << bit;
        self.summaries[slot.level()] |= 1 << word;
    }

    /// Marks a slot as empty.
    pub(super) fn vacate(&mut self, slot: SlotId) {
        let (word, bit) = slot.word_and_bit();
        let words = &mut self.words[slot.level()];
        words[word] &= !(1 << bit);
        if words[word] == 0 {
            self.summaries[slot.level()] &= !(1 << word);
        }
    }

    /// Where the earliest occupied slot of `level` begins, the one that holds `reached` included.
    pub(super) fn first_start(&self, level: usize, reached: i64) -> Option<i64> {
        if self.summaries[level] == 0 {
            return None;
        }
        let first = number(level, reached);
        let distance = self.distance_from(SlotId::numbered(level, first));
        Some((first + distance) << (BITS * level as u32))
    }

    /// The slot of `level` right after the one that holds `reached`, if it is occupied.
    pub(super) fn next(&self, level: usize, reached: i64) -> Option<SlotId> {
        if self.summaries[level] == 0 {
            return None;
        }
        let slot = SlotId::numbered(level, number(level, reached) + 1);
        self.contains(slot).then_some(slot)
    }

    /// The occupied slots of `level` and where they begin, earliest first.
    pub(super) fn occupied(&self, level: usize, reached: i64) -> impl Iterator<Item = (SlotId, i64)> + '_ {
        let first = number(level, reached);
        (0..SLOTS_A_LEVEL as i64)
            .map(move |distance| first.wrapping_add(distance)) // past the end of time there is nothing
            .map(move |number| (SlotId::numbered(level, number), number << (BITS * level as u32)))
            .filter(|&(slot, _)| self.contains(slot))
    }

    fn contains(&self, slot: SlotId) -> bool {
        let (word, bit) = slot.word_and_bit();
        self.words[slot.level()][word] >> bit & 1 == 1
    }

    /// How many slots after `slot`, going round its level, the first occupied one is; there is one.
    fn distance_from(&self, slot: SlotId) -> i64 {
        let words = &self.words[slot.level()];
        let (word, bit) = slot.word_and_bit();
        let here = words[word] >> bit;
        if here != 0 {
            return i64::from(here.trailing_zeros());
        }
        // The words after this one, this one itself (its low bits) last.
        let after = self.summaries[slot.level()].rotate_right(word as u32 + 1).trailing_zeros() as usize + 1;
        let low = words[(word + after) % WORDS].trailing_zeros() as usize;
        (after * 64 - bit + low) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_reaches_to_the_end_of_the_next_block() {
        let block = width_ms(1);
        let reached = 5 * block + 3;
        for (deadline, level) in [
            (reached, 0),
            (7 * block - 1, 0),
            (7 * block, 1),
            (2 * width_ms(2) - 1, 1),
            (2 * width_ms(2), 2),
            (i64::MAX, 6),
        ] {
            assert_eq!(level_of(reached, deadline), level, "deadline {deadline}");
        }
        assert_eq!(level_of(i64::MIN, i64::MAX), 6);
    }

    #[test]
    fn the_first_occupied_slot_is_found_all_the_way_round() {
        let mut occupancy = Occupancy::none();
        let reached = 1_793_511_000_000;
        assert_eq!(occupancy.first_start(0, reached), None);
        for distance in (0..SLOTS_A_LEVEL as i64).rev() {
            occupancy.occupy(SlotId::holding(0, reached + distance));
            assert_eq!(occupancy.first_start(0, reached), Some(reached + distance));
        }
        for distance in 0..SLOTS_A_LEVEL as i64 {
            assert_eq!(occupancy.first_start(0, reached), Some(reached + distance));
            occupancy.vacate(SlotId::holding(0, reached + distance));
        }
        assert_eq!(occupancy.first_start(0, reached), None);
    }
}
