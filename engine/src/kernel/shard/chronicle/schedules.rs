//! Which schedule a number means: numbers are given as a shard gives them, and come again when a canceled schedule is
//! forgotten.

use std::collections::{BTreeMap, VecDeque};

use super::super::apply_schedule::{KEEP_TOMBSTONES, KEEP_TOMBSTONES_MS};
use crate::kernel::{id::ScheduleId, occurrence::Lane, time::UnixMs};

/// What records need to know of a schedule.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScheduleRow {
    pub(super) id: ScheduleId,
    pub(super) version: u32,
    pub(super) tenant: u32,
    pub(super) queue: u32,
    pub(super) flexible_window_ms: u64,
    pub(super) is_paused: bool,
    /// When it was canceled.
    pub(super) canceled_at: Option<UnixMs>,
}

impl ScheduleRow {
    pub(super) const fn own_lane(&self) -> Lane {
        if self.flexible_window_ms > 0 { Lane::Flexible } else { Lane::Strict }
    }
}

/// All schedules that a shard knows.
#[derive(Debug, Default)]
pub(super) struct Schedules {
    rows: Vec<Option<ScheduleRow>>,
    free: Vec<u32>,
    by_id: BTreeMap<ScheduleId, u32>,
    tombstones: VecDeque<(u32, UnixMs)>,
}

impl Schedules {
    pub(super) fn number(&self, id: ScheduleId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    pub(super) fn row(&self, number: u32) -> Option<&ScheduleRow> {
        self.rows.get(number as usize)?.as_ref()
    }

    pub(super) fn row_mut(&mut self, number: u32) -> Option<&mut ScheduleRow> {
        self.rows.get_mut(number as usize)?.as_mut()
    }

    /// A schedule begins to live: under the number that its id has, else under one that is free, else the next.
    pub(super) fn begin(&mut self, row: ScheduleRow) -> u32 {
        let known = self.number(row.id);
        let number = known.or_else(|| self.free.pop()).unwrap_or_else(|| {
            self.rows.push(None);
            u32::try_from(self.rows.len() - 1).expect("a shard has fewer than 2^32 schedules")
        });
        self.by_id.insert(row.id, number);
        self.rows[number as usize] = Some(row);
        number
    }

    /// A schedule is its own tombstone from now on.
    pub(super) fn end(&mut self, number: u32, now: UnixMs) {
        if let Some(row) = self.row_mut(number) {
            row.canceled_at = Some(now);
        }
        self.tombstones.push_back((number, now));
    }

    /// Forgets canceled schedules as a shard does, at most two a cancel; one that `has_open` occurrences waits.
    pub(super) fn forget_old(&mut self, now: UnixMs, has_open: impl Fn(u32) -> bool) {
        for _ in 0..2 {
            let Some(&(number, at)) = self.tombstones.front() else { return };
            if self.tombstones.len() <= KEEP_TOMBSTONES && now.since(at) <= KEEP_TOMBSTONES_MS {
                return;
            }
            self.tombstones.pop_front();
            let Some(row) = self.row(number).filter(|row| row.canceled_at == Some(at)) else { continue };
            if has_open(number) {
                self.tombstones.push_back((number, at));
                return;
            }
            let id = row.id;
            self.by_id.remove(&id);
            self.rows[number as usize] = None;
            self.free.push(number);
        }
    }
}
