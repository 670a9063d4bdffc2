//! Which rows wait in a slot? Chains of chunks of row numbers, and each row knows its entry.
//!
//! A slot's rows fill its chunks without holes: the newest chunk is the only one that may be partly full. Removing a row
//! moves the slot's last row into its entry, so a cancelled timer leaves nothing behind to be skipped or swept later.

use super::{
    level::{SLOTS, SlotId},
    paged::Paged,
};

/// Rows a chunk: two cache lines. Larger ones waste more in slots of a few rows, smaller ones follow more links.
const CHUNK: u32 = 32;

const NOWHERE: u32 = u32::MAX;
const LATE: u32 = u32::MAX - 1;
const NO_CHUNK: u32 = u32::MAX;

/// Where a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Not armed.
    Nowhere,
    /// Armed too late for a slot.
    Late,
    /// In this entry (chunk and index) of a slot's chain.
    Slot(u32),
}

/// 12 bytes rather than 16: the table of rows is most of the memory, and its cache misses most of the time.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
struct Row {
    deadline: i64,
    entry: u32,
}

#[derive(Clone, Copy)]
struct Link {
    /// The slot whose chain this chunk is in.
    slot: u32,
    /// The chunk filled before this one; of a free chunk, the next free one.
    older: u32,
}

#[derive(Clone, Copy)]
struct Slot {
    newest: u32,
    len: u32,
}

/// The rows of all slots.
pub(super) struct Slots {
    rows: Paged<Row>,
    chunks: Paged<[u32; CHUNK as usize]>,
    links: Paged<Link>,
    chunks_made: u32,
    free: u32,
    slots: Box<[Slot]>,
    len: usize,
}

/// Up to a chunk of rows taken out of a slot, with their deadlines.
pub(super) struct Taken {
    rows: [(u32, i64); CHUNK as usize],
    len: usize,
}

impl std::ops::Deref for Taken {
    type Target = [(u32, i64)];

    fn deref(&self) -> &Self::Target {
        &self.rows[..self.len]
    }
}

impl Slots {
    pub(super) fn new() -> Self {
        Self {
            rows: Paged::new(Row { deadline: 0, entry: NOWHERE }),
            chunks: Paged::new([0; CHUNK as usize]),
            links: Paged::new(Link { slot: 0, older: NO_CHUNK }),
            chunks_made: 0,
            free: NO_CHUNK,
            slots: vec![Slot { newest: NO_CHUNK, len: 0 }; SLOTS].into_boxed_slice(),
            len: 0,
        }
    }

    pub(super) fn place(&self, row: u32) -> Place {
        match self.rows.get(row).map_or(NOWHERE, |row| row.entry) {
            NOWHERE => Place::Nowhere,
            LATE => Place::Late,
            entry => Place::Slot(entry),
        }
    }

    /// The deadline that `row` was last armed for.
    pub(super) fn deadline(&self, row: u32) -> i64 {
        self.rows[row].deadline
    }

    pub(super) fn set_late(&mut self, row: u32, deadline: i64) {
        *self.rows.entry(row) = Row { deadline, entry: LATE };
    }

    pub(super) fn forget(&mut self, row: u32) {
        self.rows[row].entry = NOWHERE;
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn len_of(&self, slot: SlotId) -> u32 {
        self.slots[slot.0 as usize].len
    }

    /// Adds a row that is in no slot.
    pub(super) fn push(&mut self, slot: SlotId, row: u32, deadline: i64) {
        let Slot { len, mut newest } = self.slots[slot.0 as usize];
        let index = len % CHUNK;
        if index == 0 {
            newest = self.new_chunk(slot, newest);
        }
        self.slots[slot.0 as usize] = Slot { newest, len: len + 1 };
        self.chunks[newest][index as usize] = row;
        *self.rows.entry(row) = Row { deadline, entry: newest * CHUNK + index };
        self.len += 1;
    }

    /// Removes `row` from `entry`, where it is; says which slot that left empty, if it did.
    pub(super) fn remove(&mut self, row: u32, entry: u32) -> Option<SlotId> {
        let slot = SlotId(self.links[entry / CHUNK].slot);
        let Slot { newest, len } = self.slots[slot.0 as usize];
        let last = self.chunks[newest][((len - 1) % CHUNK) as usize];
        self.chunks[entry / CHUNK][(entry % CHUNK) as usize] = last;
        self.rows[last].entry = entry;
        self.rows[row].entry = NOWHERE;
        self.shorten(slot, 1);
        (len == 1).then_some(slot)
    }

    /// Appends at most `limit` rows of a slot to `out`; they are nowhere then.
    pub(super) fn drain(&mut self, slot: SlotId, limit: usize, out: &mut Vec<u32>) {
        let mut left = limit;
        while left > 0 && self.len_of(slot) > 0 {
            let (chunk, range) = self.last_rows(slot, left);
            let rows = &self.chunks[chunk][range];
            out.extend_from_slice(rows);
            for &row in rows {
                self.rows[row].entry = NOWHERE;
            }
            let count = rows.len();
            left -= count;
            self.shorten(slot, count as u32);
        }
    }

    /// Takes at most `limit` rows out of a slot, at least one if both are there, to be pushed elsewhere at once.
    pub(super) fn take(&mut self, slot: SlotId, limit: usize) -> Taken {
        let (chunk, range) = self.last_rows(slot, limit);
        let mut taken = Taken { rows: [(0, 0); CHUNK as usize], len: range.len() };
        // A loop of nothing but independent loads: their cache misses overlap.
        for (to, &row) in taken.rows.iter_mut().zip(&self.chunks[chunk][range]) {
            *to = (row, self.rows[row].deadline);
        }
        self.shorten(slot, taken.len as u32);
        taken
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.rows.memory_bytes()
            + self.chunks.memory_bytes()
            + self.links.memory_bytes()
            + self.slots.len() * size_of::<Slot>()
    }

    /// Chunks that are in some slot's chain.
    #[cfg(test)]
    pub(super) fn chunks_used(&self) -> usize {
        let free = std::iter::successors((self.free != NO_CHUNK).then_some(self.free), |&chunk| {
            Some(self.links[chunk].older).filter(|&older| older != NO_CHUNK)
        });
        self.chunks_made as usize - free.count()
    }

    /// The last rows of an occupied slot, at most `limit` and as far as they are in one chunk.
    fn last_rows(&self, slot: SlotId, limit: usize) -> (u32, std::ops::Range<usize>) {
        let Slot { newest, len } = self.slots[slot.0 as usize];
        let end = ((len - 1) % CHUNK + 1) as usize;
        (newest, end.saturating_sub(limit)..end)
    }

    /// Drops the last `count` rows of a slot, which are all in its newest chunk.
    fn shorten(&mut self, slot: SlotId, count: u32) {
        let Slot { newest, len } = self.slots[slot.0 as usize];
        let mut rest = Slot { newest, len: len - count };
        if rest.len.is_multiple_of(CHUNK) {
            let link = &mut self.links[newest];
            rest.newest = std::mem::replace(&mut link.older, self.free);
            self.free = newest;
        }
        self.slots[slot.0 as usize] = rest;
        self.len -= count as usize;
    }

    fn new_chunk(&mut self, slot: SlotId, older: u32) -> u32 {
        let chunk = if self.free == NO_CHUNK {
            let chunk = self.chunks_made;
            self.chunks_made += 1;
            self.chunks.entry(chunk);
            chunk
        } else {
            let chunk = self.free;
            self.free = self.links[chunk].older;
            chunk
        };
        *self.links.entry(chunk) = Link { slot: slot.0, older };
        chunk
    }
}
