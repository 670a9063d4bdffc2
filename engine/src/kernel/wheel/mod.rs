//! When is a row due? A hierarchical wheel of deadlines that never moves more than a bounded number of rows in a turn.
//!
//! Time is cut into slots of growing width, 1,024 times wider a level; a deadline lives in the finest level that
//! reaches it. A level reaches over *two* blocks of 1,024 slots, the block that holds the present and the one after it:
//!
//! ```text
//!            present block        next block
//! level 2   |....:....:..p.:.n..|....:....:....:....|   slots of 17.5 min   "time buckets"
//!                        |   |__________________________ n is being split, a few rows a turn, while time is in p
//! level 1            |....:..p.:n...|....:....:....|    slots of 1.024 s    \ the wheel:
//! level 0                    |.....p....|.....:....|    slots of 1 ms       / HORIZON_MS = 2^20 ms
//! ```
//!
//! The second block is what makes turns short. A wheel with one block can empty a slot only at the instant at which the
//! slot begins, all at once: 14 to 280 ms at ten million timers, in every wheel that we measured. Here the slot that
//! follows the present one (`n`) has somewhere to go as soon as the present one (`p`) begins, so it is split during
//! the whole of `p`, at most [`MOVES_A_TURN`] rows a turn.
//!
//! What it promises: no row fires early, none is lost, rows fire in the order of their milliseconds, and each turn
//! touches at most `limit` + [`MOVES_A_TURN`] rows. A row that nobody splits in time is late by turns, not wrong: time
//! does not move past the beginning of a slot that has not been split.
//!
//! What it does not do: read a clock, store anything but deadlines, or survive a restart. It is derived state.

mod level;
mod model;
mod paged;
mod slots;

pub use model::check_against_model;

use std::collections::BTreeSet;

use self::{
    level::{LEVELS, Occupancy, SlotId, level_of, width_ms},
    slots::{Place, Slots},
};
use super::time::UnixMs;

/// How many rows a turn may move from a coarse slot to finer ones: 4,096 at 20 to 60 ns are a quarter of a millisecond.
pub const MOVES_A_TURN: usize = 4_096;

/// How far the two fine levels (1 ms and 1.024 s) reach at least: deadlines beyond it wait in buckets of 17.5 minutes
/// or more.
pub const HORIZON_MS: i64 = width_ms(2);

/// Whether a turn left something behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Advance {
    /// Every row due has fired, and no slot waits to be split.
    CaughtUp,
    /// The limit of rows or of moves was reached: call again once the other work of the turn is done.
    MoreToDo,
}

/// Rows that wait in one slot of the wheel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The first millisecond of the slot.
    pub from: UnixMs,
    /// How many milliseconds it covers.
    pub width_ms: i64,
    /// How many rows have their deadline in it.
    pub rows: u32,
}

/// Deadlines of rows: at most one a row. A row is a dense index that the caller chooses (memory grows with the largest).
pub struct Timers {
    /// Everything before this millisecond has fired, and what is in `slots` is at or after it. Never moves back.
    reached: i64,
    occupancy: Box<Occupancy>,
    slots: Slots,
    /// Rows armed for a millisecond that had passed already, kept apart so that they too fire in order.
    late: BTreeSet<(i64, u32)>,
    moves_a_turn: usize,
    moved: u64,
}

impl Timers {
    /// No deadlines yet; `now` is where time begins. Rows armed for earlier instants fire at the first advance.
    #[must_use]
    pub fn new(now: UnixMs) -> Self {
        Self::with_moves_a_turn(now, MOVES_A_TURN)
    }

    fn with_moves_a_turn(now: UnixMs, moves_a_turn: usize) -> Self {
        Self {
            reached: now.0,
            occupancy: Box::new(Occupancy::none()),
            slots: Slots::new(),
            late: BTreeSet::new(),
            moves_a_turn,
            moved: 0,
        }
    }

    /// Makes `row` due at `deadline`, instead of whatever it was armed for before.
    pub fn arm(&mut self, row: u32, deadline: UnixMs) {
        self.disarm(row);
        if deadline.0 < self.reached {
            self.late.insert((deadline.0, row));
            self.slots.set_late(row, deadline.0);
        } else {
            self.put(row, deadline.0);
        }
    }

    /// Forgets the deadline of `row`; false when it had none.
    pub fn disarm(&mut self, row: u32) -> bool {
        match self.slots.place(row) {
            Place::Nowhere => false,
            Place::Late => {
                self.late.remove(&(self.slots.deadline(row), row));
                self.slots.forget(row);
                true
            }
            Place::Slot(entry) => {
                if let Some(emptied) = self.slots.remove(row, entry) {
                    self.occupancy.vacate(emptied);
                }
                true
            }
        }
    }

    /// When `row` is due, if it is armed.
    #[must_use]
    pub fn deadline(&self, row: u32) -> Option<UnixMs> {
        (self.slots.place(row) != Place::Nowhere).then(|| UnixMs(self.slots.deadline(row)))
    }

    /// Appends to `fired` the rows whose deadline is at or before `now`, earliest millisecond first, at most `limit`
    /// of them, and splits slots that come next. Rows of one millisecond come in an order that depends only on the
    /// calls before. A `now` that stands still or goes back is harmless.
    pub fn advance(&mut self, now: UnixMs, limit: usize, fired: &mut Vec<u32>) -> Advance {
        let now = now.0;
        let mut moves = self.moves_a_turn;
        let full = fired.len().saturating_add(limit);
        self.fire_late(now, full, fired);
        loop {
            let gate = self.first_coarse();
            self.fire_before(gate, now, full, fired);
            if fired.len() >= full {
                break;
            }
            let Some(start) = gate.filter(|&start| start <= now) else {
                self.reached = self.reached.max(now);
                break;
            };
            assert!(start > self.reached, "a coarse slot is empty before it begins");
            self.reached = start - 1;
            if !self.split_ahead(&mut moves) {
                break;
            }
        }
        let split = self.split_ahead(&mut moves);
        let due = self.next_deadline().is_some_and(|at| at.0 <= now);
        if split && !due { Advance::CaughtUp } else { Advance::MoreToDo }
    }

    /// When [`Timers::advance`] must be called again at the latest: the earliest deadline where it is near, the instant
    /// at which a slot may be split where it is far. Never later than the earliest deadline; in the past when there is
    /// something to do at once.
    #[must_use]
    pub fn next_deadline(&self) -> Option<UnixMs> {
        let late = self.late.first().map(|&(deadline, _)| deadline);
        let exact = self.occupancy.first_start(0, self.reached);
        let split = (1..LEVELS).filter_map(|level| {
            let start = self.occupancy.first_start(level, self.reached)?;
            Some(start - width_ms(level))
        });
        [late, exact].into_iter().flatten().chain(split).min().map(UnixMs)
    }

    /// How many rows are armed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len() + self.late.len()
    }

    /// Whether no row is armed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the armed rows wait, slot by slot, finest first (without those armed too late): the backlog to come.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        (0..LEVELS).flat_map(move |level| {
            self.occupancy.occupied(level, self.reached).map(move |(slot, start)| Bucket {
                from: UnixMs(start),
                width_ms: width_ms(level),
                rows: self.slots.len_of(slot),
            })
        })
    }

    /// How many times a row was moved from one slot to a finer one, so far.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.moved
    }

    /// Bytes held, used or not: grows with the largest row and with the most rows ever armed at once.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        // A BTreeSet says nothing of its size; its nodes are at least half full.
        size_of::<Occupancy>() + self.slots.memory_bytes() + self.late.len() * 2 * size_of::<(i64, u32)>()
    }

    /// Puts a row that is nowhere into the finest slot that reaches its deadline, which has not passed.
    fn put(&mut self, row: u32, deadline: i64) {
        let slot = SlotId::holding(level_of(self.reached, deadline), deadline);
        self.occupancy.occupy(slot);
        self.slots.push(slot, row, deadline);
    }

    fn fire_late(&mut self, now: i64, full: usize, fired: &mut Vec<u32>) {
        while fired.len() < full {
            let Some(&(deadline, row)) = self.late.first() else { return };
            if deadline > now {
                return;
            }
            self.late.pop_first();
            self.slots.forget(row);
            fired.push(row);
        }
    }

    /// Fires what level 0 holds up to `now` and before `gate`, where a coarser slot begins that must be split first.
    fn fire_before(&mut self, gate: Option<i64>, now: i64, full: usize, fired: &mut Vec<u32>) {
        while fired.len() < full {
            let Some(due) = self.occupancy.first_start(0, self.reached) else { return };
            if due > now || gate.is_some_and(|start| due >= start) {
                return;
            }
            self.reached = due;
            let slot = SlotId::holding(0, due);
            self.slots.drain(slot, full - fired.len(), fired);
            if self.slots.len_of(slot) == 0 {
                self.occupancy.vacate(slot);
            }
        }
    }

    /// The beginning of the earliest occupied slot above level 0.
    fn first_coarse(&self) -> Option<i64> {
        (1..LEVELS).filter_map(|level| self.occupancy.first_start(level, self.reached)).min()
    }

    /// Moves rows from the slots that follow the present ones to finer levels, coarsest first since each level feeds
    /// the one below; false when `moves` ran out before all were split.
    fn split_ahead(&mut self, moves: &mut usize) -> bool {
        for level in (1..LEVELS).rev() {
            let Some(slot) = self.occupancy.next(level, self.reached) else { continue };
            while self.slots.len_of(slot) > 0 {
                if *moves == 0 {
                    return false;
                }
                let taken = self.slots.take(slot, *moves);
                for &(row, deadline) in taken.iter() {
                    self.put(row, deadline);
                }
                *moves -= taken.len();
                self.moved += taken.len() as u64;
            }
            self.occupancy.vacate(slot);
        }
        true
    }
}

#[cfg(test)]
mod tests;
