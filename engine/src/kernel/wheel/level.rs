//! Which slot does a deadline belong to? The arithmetic of levels, and which of a level's slots are occupied.

/// A block has 2^BITS slots, and a slot is as wide as a block of the level below.
const BITS: u32 = 10;
/// Two blocks: the one that holds the present, and the next.
pub(super) const SLOTS_A_LEVEL: usize = 2 << BITS;
/// Enough that the coarsest level reaches over all of `i64`.
pub(super) const LEVELS: usize = 64_usize.div_ceil(BITS as usize);

const WORDS: usize = SLOTS_A_LEVEL / 64;
const _: () = assert!(WORDS == u32::BITS as usize, "the summary has a bit a word");

/// One slot of one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotId(pub(super) u32);

impl SlotId {
    pub(super) const fn level(self) -> usize {
        self.0 as usize / SLOTS_A_LEVEL
    }

    const fn index(self) -> usize {
        self.0 as usize % SLOTS_A_LEVEL
    }
}

/// How many milliseconds a slot of `level` covers.
pub(super) const fn width_ms(level: usize) -> i64 {
    1 << (BITS * level as u32)
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

/// The occupancy of one level: a bit a slot, and a bit a word of those.
pub(super) struct Level {
    level: usize,
    summary: u32,
    words: [u64; WORDS],
}

impl Level {
    pub(super) fn new(level: usize) -> Self {
        Self { level, summary: 0, words: [0; WORDS] }
    }

    pub(super) fn width_ms(&self) -> i64 {
        width_ms(self.level)
    }

    /// The slot that holds `at`; unambiguous for instants in the present and the next block.
    pub(super) fn slot(&self, at: i64) -> SlotId {
        self.slot_numbered(self.number(at))
    }

    /// Marks the slot that holds `deadline` as occupied.
    pub(super) fn occupy(&mut self, deadline: i64) -> SlotId {
        let slot = self.slot(deadline);
        let (word, bit) = (slot.index() / 64, slot.index() % 64);
        self.words[word] |= 1 << bit;
        self.summary |= 1 << word;
        slot
    }

    /// Marks a slot as empty.
    pub(super) fn vacate(&mut self, slot: SlotId) {
        let (word, bit) = (slot.index() / 64, slot.index() % 64);
        self.words[word] &= !(1 << bit);
        if self.words[word] == 0 {
            self.summary &= !(1 << word);
        }
    }

    /// Where the earliest occupied slot begins, the one that holds `reached` included.
    pub(super) fn first_start(&self, reached: i64) -> Option<i64> {
        let number = self.number(reached);
        Some(self.start(number + self.distance_from(self.slot_numbered(number).index())?))
    }

    /// When the earliest occupied slot may be split: at the beginning of the slot before it.
    pub(super) fn splits_at(&self, reached: i64) -> Option<i64> {
        self.first_start(reached).map(|start| start - self.width_ms())
    }

    /// The slot right after the one that holds `reached`, if it is occupied.
    pub(super) fn next_occupied(&self, reached: i64) -> Option<SlotId> {
        let slot = self.slot_numbered(self.number(reached) + 1);
        self.contains(slot.index()).then_some(slot)
    }

    /// The occupied slots and where they begin, earliest first.
    pub(super) fn occupied(&self, reached: i64) -> impl Iterator<Item = (SlotId, i64)> + '_ {
        let first = self.number(reached);
        (0..SLOTS_A_LEVEL as i64)
            .map(move |distance| first.wrapping_add(distance)) // past the end of time there is nothing
            .map(|number| (self.slot_numbered(number), number))
            .filter(|(slot, _)| self.contains(slot.index()))
            .map(|(slot, number)| (slot, self.start(number)))
    }

    /// Slots are numbered from 1970 on: the number of the one that holds `at`.
    fn number(&self, at: i64) -> i64 {
        at >> (BITS * self.level as u32)
    }

    fn start(&self, number: i64) -> i64 {
        number << (BITS * self.level as u32)
    }

    fn slot_numbered(&self, number: i64) -> SlotId {
        let index = number as usize % SLOTS_A_LEVEL;
        SlotId((self.level * SLOTS_A_LEVEL + index) as u32)
    }

    fn contains(&self, index: usize) -> bool {
        self.words[index / 64] >> (index % 64) & 1 == 1
    }

    /// How many slots after `index`, going round, the first occupied one is.
    fn distance_from(&self, index: usize) -> Option<i64> {
        let (word, bit) = (index / 64, index % 64);
        let here = self.words[word] >> bit;
        if here != 0 {
            return Some(i64::from(here.trailing_zeros()));
        }
        if self.summary == 0 {
            return None;
        }
        // The words after this one, this one itself (its low bits) last.
        let after = self.summary.rotate_right(word as u32 + 1).trailing_zeros() as usize + 1;
        let low = self.words[(word + after) % WORDS].trailing_zeros() as usize;
        Some((after * 64 - bit + low) as i64)
    }
}
