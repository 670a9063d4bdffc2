//! The table of schedules: one row each, addressed by a small number, found by id.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::plan::Plan;
use crate::kernel::{
    gate::Lsn,
    id::ScheduleId,
    occurrence::OccurrenceNo,
    schedule::{InstantRange, ScheduleState},
    time::UnixMs,
};

/// One schedule.
#[derive(Debug)]
pub(super) struct ScheduleRow {
    pub(super) id: ScheduleId,
    pub(super) version: u32,
    pub(super) tenant: u32,
    pub(super) queue: u32,
    pub(super) plan: Plan,
    pub(super) flexible_window_ms: u64,
    pub(super) max_lateness_ms: u64,
    pub(super) canceled: bool,
    pub(super) created_at: UnixMs,
    pub(super) updated_at: UnixMs,
    /// The cursor: every instant up to it has an occurrence or a disposition.
    pub(super) decided_through: UnixMs,
    pub(super) last_run_at: Option<UnixMs>,
    /// `next(decided_through)` under the rules loaded now; a cache.
    pub(super) next: Option<UnixMs>,
    /// How many of its occurrences are SCHEDULED.
    pub(super) waiting: u32,
    pub(super) newest: Option<OccurrenceNo>,
    /// Whether it waits for the time at which it may be decided.
    pub(super) is_parked: bool,
    /// The state as which it is counted.
    pub(super) counted: ScheduleState,
    /// The last record that changed what a reader sees of it.
    pub(super) changed: Lsn,
    pub(super) text: Box<Text>,
}

/// What is read only when somebody looks or an entry is written.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) name: Option<String>,
    pub(super) payload: Box<[u8]>,
    pub(super) ranges: Vec<InstantRange>,
}

impl ScheduleRow {
    pub(super) fn state(&self) -> ScheduleState {
        if self.canceled {
            ScheduleState::Canceled
        } else if self.next.is_none() && self.waiting == 0 && self.plan.error().is_none() {
            ScheduleState::Completed
        } else {
            ScheduleState::Active
        }
    }
}

/// All schedules of a shard. Rows are never removed in this version: a canceled one is its own tombstone.
#[derive(Debug, Default)]
pub(super) struct Schedules {
    rows: Vec<ScheduleRow>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// How many rows are active, completed, canceled, as far as they were counted.
    by_state: [u64; 3],
}

const fn place_of(state: ScheduleState) -> usize {
    match state {
        ScheduleState::Active => 0,
        ScheduleState::Completed => 1,
        ScheduleState::Canceled => 2,
    }
}

impl Schedules {
    pub(super) fn number(&self, id: ScheduleId) -> Option<u32> {
        self.index.find(self.hasher.hash_one(id), |&n| self.rows[n as usize].id == id).copied()
    }

    /// The number that the next schedule gets.
    pub(super) fn next(&self) -> u32 {
        u32::try_from(self.rows.len()).expect("a shard has fewer than 2^32 schedules")
    }

    pub(super) fn push(&mut self, row: ScheduleRow) -> u32 {
        let number = self.next();
        let hash = self.hasher.hash_one(row.id);
        self.by_state[place_of(row.counted)] += 1;
        self.rows.push(row);
        let (rows, hasher) = (&self.rows, &self.hasher);
        self.index.insert_unique(hash, number, |&n| hasher.hash_one(rows[n as usize].id));
        number
    }

    pub(super) fn row(&self, number: u32) -> Option<&ScheduleRow> {
        self.rows.get(number as usize)
    }

    pub(super) fn row_mut(&mut self, number: u32) -> Option<&mut ScheduleRow> {
        self.rows.get_mut(number as usize)
    }

    /// Counts a row under the state that it is in now.
    pub(super) fn recount(&mut self, number: u32) {
        let Some(row) = self.rows.get_mut(number as usize) else { return };
        let state = row.state();
        self.by_state[place_of(row.counted)] -= 1;
        self.by_state[place_of(state)] += 1;
        row.counted = state;
    }

    /// How many rows are active, completed, canceled.
    pub(super) const fn by_state(&self) -> [u64; 3] {
        self.by_state
    }
}
