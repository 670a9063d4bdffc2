//! The table of schedules: one row each, addressed by a small number, found by id.

use std::{hash::BuildHasher, sync::Arc};

use hashbrown::{DefaultHashBuilder, HashTable};

use super::{plan::Plan, snapshot::cut::Cut};
use crate::kernel::{
    gate::Lsn,
    id::ScheduleId,
    occurrence::{Lane, OccurrenceNo},
    policy::Policies,
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
    pub(super) policies: Arc<Policies>,
    pub(super) is_canceled: bool,
    pub(super) is_paused: bool,
    pub(super) created_at: UnixMs,
    pub(super) updated_at: UnixMs,
    /// The cursor: every instant up to it has an occurrence or a disposition.
    pub(super) decided_through: UnixMs,
    pub(super) last_run_at: Option<UnixMs>,
    /// `next(decided_through)` under the rules loaded now; a cache.
    pub(super) next: Option<UnixMs>,
    /// How many of its occurrences are SCHEDULED.
    pub(super) waiting: u32,
    /// How many occurrences of its present version are in the table.
    pub(super) made: u32,
    /// The UTC day of its latest retry, and how many it made then. Versions and lives share them.
    pub(super) retries: (i64, u32),
    /// Both ends of its history, which is in the order of (`scheduled_for`, id).
    pub(super) newest: Option<OccurrenceNo>,
    pub(super) oldest: Option<OccurrenceNo>,
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
    pub(super) payload: Arc<[u8]>,
    pub(super) review_owner: Option<String>,
    pub(super) ranges: Vec<InstantRange>,
}

/// What is still needed of a version that another one took the place of.
#[derive(Debug)]
pub(super) struct Superseded {
    pub(super) policies: Arc<Policies>,
    pub(super) payload: Arc<[u8]>,
    pub(super) flexible_window_ms: u64,
    /// How many occurrences of it are in the table; it goes with the last.
    pub(super) made: u32,
}

impl ScheduleRow {
    pub(super) fn state(&self) -> ScheduleState {
        if self.is_canceled {
            ScheduleState::Canceled
        } else if self.is_paused {
            ScheduleState::Paused
        } else if self.next.is_none() && self.waiting == 0 && self.plan.error().is_none() && !self.plan.is_open() {
            ScheduleState::Completed
        } else {
            ScheduleState::Active
        }
    }

    /// One more retry on a UTC day.
    pub(super) const fn count_retry(&mut self, day: i64) {
        let before = self.retries_on(day);
        self.retries = (day, before.saturating_add(1));
    }

    /// How many retries it made on a UTC day.
    pub(super) const fn retries_on(&self, day: i64) -> u32 {
        if self.retries.0 == day { self.retries.1 } else { 0 }
    }

    /// Whether instants of its rule become occurrences.
    pub(super) const fn is_firing(&self) -> bool {
        !self.is_canceled && !self.is_paused
    }

    /// The lane of its occurrences that are not late.
    pub(super) const fn own_lane(&self) -> Lane {
        if self.flexible_window_ms > 0 { Lane::Flexible } else { Lane::Strict }
    }
}

/// All schedules of a shard. A canceled one is its own tombstone until that is dropped; then its number is free.
#[derive(Debug, Default)]
pub(super) struct Schedules {
    rows: Vec<Option<ScheduleRow>>,
    cut: Option<Cut<u32>>,
    free: Vec<u32>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// How many rows are in each state, in the order of [`ScheduleState::ALL`], as far as they were counted.
    by_state: [u64; ScheduleState::ALL.len()],
    by_tenant: Vec<TenantCount>,
    /// Tenants whose count changed since it was told last.
    untold: Vec<u32>,
}

/// How many of a tenant's schedules count against its quota: the active and the paused ones.
#[derive(Clone, Copy, Debug, Default)]
struct TenantCount {
    now: i64,
    told: i64,
    is_untold: bool,
}

const fn counts(state: ScheduleState) -> i64 {
    match state {
        ScheduleState::Active | ScheduleState::Paused => 1,
        ScheduleState::Completed | ScheduleState::Canceled => 0,
    }
}

impl Schedules {
    pub(super) fn number(&self, id: ScheduleId) -> Option<u32> {
        self.index.find(self.hasher.hash_one(id), |&n| id_in(&self.rows, n) == Some(id)).copied()
    }

    /// Numbers of rows are below this.
    pub(super) fn end(&self) -> u32 {
        u32::try_from(self.rows.len()).expect("a shard has fewer than 2^32 schedules")
    }

    pub(super) fn push(&mut self, row: ScheduleRow) -> u32 {
        let hash = self.hasher.hash_one(row.id);
        self.by_state[row.counted.place()] += 1;
        self.count_tenant(row.tenant, counts(row.counted));
        let number = if let Some(free) = self.free.pop() {
            self.keep(free);
            self.rows[free as usize] = Some(row);
            free
        } else {
            let number = self.end();
            self.rows.push(Some(row));
            number
        };
        let (rows, hasher) = (&self.rows, &self.hasher);
        self.index.insert_unique(hash, number, |&n| id_in(rows, n).map_or(0, |id| hasher.hash_one(id)));
        number
    }

    /// Puts a row back under the number that it had, behind the others; false if that or its id is taken.
    pub(super) fn restore(&mut self, number: u32, row: ScheduleRow) -> bool {
        let fits = number >= self.end() && self.number(row.id).is_none();
        if fits {
            self.rows.resize_with(number as usize, || None);
            self.push(row);
        }
        fits
    }

    /// Numbers are free behind the last row too; false if a number is not vacant.
    pub(super) fn restore_free(&mut self, free: Vec<u32>) -> bool {
        let vacant = self.rows.iter().filter(|row| row.is_none()).count();
        let end = self.rows.len() - vacant + free.len();
        let mut is_free = vec![false; end];
        for number in &free {
            match is_free.get_mut(*number as usize) {
                Some(free) if !*free && self.row(*number).is_none() => *free = true,
                _ => return false,
            }
        }
        self.rows.resize_with(end, || None);
        self.free = free;
        true
    }

    /// Numbers of no schedule, the one that is used next last.
    pub(super) fn free(&self) -> &[u32] {
        &self.free
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.rows.len() - self.free.len()
    }

    pub(super) fn set_cut(&mut self, cut: Option<Cut<u32>>) {
        self.cut = cut;
    }

    fn keep(&mut self, number: u32) {
        if let Some(cut) = &mut self.cut {
            cut.keep(number, self.rows.get(number as usize).and_then(Option::as_ref));
        }
    }

    /// Appends the image of the next row of the cut; false at its end.
    pub(super) fn sweep(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(cut) = &mut self.cut else { return false };
        let from = cut.reached().map_or(0, |reached| reached as usize + 1);
        let rows = self.rows.get(from..).unwrap_or_default().iter().enumerate();
        let live = rows.filter_map(|(behind, row)| Some((u32::try_from(from + behind).ok()?, row.as_ref()?))).next();
        let live = live.filter(|(number, _)| cut.is_ahead(*number));
        let is_more = cut.sweep(live, out);
        if !is_more {
            self.cut = None;
        }
        is_more
    }

    /// Drops a row: its id is unknown from now on, its number free.
    pub(super) fn remove(&mut self, number: u32) -> Option<ScheduleRow> {
        self.keep(number);
        let row = self.rows.get_mut(number as usize)?.take()?;
        self.by_state[row.counted.place()] -= 1;
        self.count_tenant(row.tenant, -counts(row.counted));
        if let Ok(entry) = self.index.find_entry(self.hasher.hash_one(row.id), |&n| n == number) {
            entry.remove();
        }
        self.free.push(number);
        Some(row)
    }

    pub(super) fn row(&self, number: u32) -> Option<&ScheduleRow> {
        self.rows.get(number as usize)?.as_ref()
    }

    pub(super) fn row_mut(&mut self, number: u32) -> Option<&mut ScheduleRow> {
        self.keep(number);
        self.rows.get_mut(number as usize)?.as_mut()
    }

    /// Counts a row under the state that it is in now.
    pub(super) fn recount(&mut self, number: u32) {
        let Some(row) = self.rows.get_mut(number as usize).and_then(Option::as_mut) else { return };
        let state = row.state();
        self.by_state[row.counted.place()] -= 1;
        self.by_state[state.place()] += 1;
        let (tenant, by) = (row.tenant, counts(state) - counts(row.counted));
        row.counted = state;
        self.count_tenant(tenant, by);
    }

    fn count_tenant(&mut self, tenant: u32, by: i64) {
        if by == 0 {
            return;
        }
        if self.by_tenant.len() <= tenant as usize {
            self.by_tenant.resize(tenant as usize + 1, TenantCount::default());
        }
        let count = &mut self.by_tenant[tenant as usize];
        count.now += by;
        if !std::mem::replace(&mut count.is_untold, true) {
            self.untold.push(tenant);
        }
    }

    /// How tenants' counts changed since this was asked last.
    pub(super) fn tenant_changes(&mut self) -> impl Iterator<Item = (u32, i64)> {
        let by_tenant = &mut self.by_tenant;
        self.untold.drain(..).map(|tenant| {
            let count = &mut by_tenant[tenant as usize];
            count.is_untold = false;
            (tenant, count.now - std::mem::replace(&mut count.told, count.now))
        })
    }

    /// How many rows are in each state, in the order of [`ScheduleState::ALL`].
    pub(super) const fn by_state(&self) -> [u64; ScheduleState::ALL.len()] {
        self.by_state
    }
}

/// The id of a row that the index names; every number in it has a row.
fn id_in(rows: &[Option<ScheduleRow>], number: u32) -> Option<ScheduleId> {
    rows[number as usize].as_ref().map(|row| row.id)
}
