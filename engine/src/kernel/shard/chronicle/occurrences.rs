//! What is known of occurrences: a row each, while something can still happen to it, or for as long as it was asked for.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    super::{
        apply_runs::{KEEP_DEAD, KEEP_DEAD_MS},
        lives::has_ended,
    },
    story::{Life, Step, Told},
};
use crate::kernel::{
    gate::Lsn,
    id::{Kind, OccurrenceId},
    occurrence::{EntryId, Lane, QueueNo, Reason, State, Stream},
    time::UnixMs,
};

/// One occurrence.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) schedule: u32,
    pub(super) tenant: u32,
    pub(super) queue: u32,
    pub(super) kind: Kind,
    pub(super) lane: Lane,
    pub(super) state: State,
    pub(super) reason: Option<Reason>,
    pub(super) scheduled_for: UnixMs,
    pub(super) enqueued_at: Option<UnixMs>,
    /// When the entry that it has now was accepted.
    pub(super) entry_at: UnixMs,
    pub(super) entry: Option<EntryId>,
    pub(super) called_off: Option<Reason>,
    pub(super) died_at: Option<UnixMs>,
    pub(super) attempts: u32,
    pub(super) is_tracked: bool,
    pub(super) is_settled: bool,
    /// It was claimed, held or dead once: consumers do not settle it.
    pub(super) has_run: bool,
    /// What is told of it, if it was asked for.
    pub(super) told: Option<Box<Followed>>,
}

/// What is told of an occurrence that was asked for.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) id: OccurrenceId,
    pub(super) version: u32,
    pub(super) tenant: Arc<str>,
    pub(super) queue: Arc<str>,
    pub(super) available_at: UnixMs,
    pub(super) ended_at: Option<UnixMs>,
    /// Whether every step is kept.
    pub(super) keeps_steps: bool,
    pub(super) steps: Vec<Told<Step>>,
}

impl Row {
    pub(super) const fn stream(&self) -> Stream {
        Stream { queue: QueueNo(self.queue), lane: self.lane }
    }

    /// Notes a step of an occurrence whose steps were asked for.
    pub(super) fn note(&mut self, (at, lsn): (UnixMs, Lsn), step: impl FnOnce() -> Step) {
        if let Some(told) = self.told.as_mut().filter(|told| told.keeps_steps) {
            told.steps.push(Told { at, lsn, what: step() });
        }
    }

    fn into_life(self) -> Option<Life> {
        let told = *self.told?;
        Some(Life {
            id: told.id,
            version: told.version,
            kind: self.kind,
            tenant: told.tenant,
            queue: told.queue,
            lane: self.lane,
            scheduled_for: self.scheduled_for,
            available_at: told.available_at,
            enqueued_at: self.enqueued_at,
            ended_at: told.ended_at,
            state: self.state,
            reason: self.reason,
            is_tracked: self.is_tracked,
            attempt_count: self.attempts,
            steps: told.steps,
        })
    }
}

/// Every occurrence that has not ended, and those that were asked for.
#[derive(Debug, Default)]
pub(super) struct Occurrences {
    next: u64,
    rows: BTreeMap<u64, Row>,
    /// Those that have not ended, by schedule.
    open: BTreeSet<(u32, u64)>,
    /// What is DEAD and since when, by tenant.
    dead: BTreeMap<u32, BTreeSet<(UnixMs, u64)>>,
}

impl Occurrences {
    /// How many there were.
    pub(super) const fn count(&self) -> u64 {
        self.next
    }

    pub(super) fn push(&mut self, row: Row) -> u64 {
        let number = self.next;
        self.next += 1;
        self.open.insert((row.schedule, number));
        self.rows.insert(number, row);
        number
    }

    /// One that has not ended, or was asked for.
    pub(super) fn row_mut(&mut self, number: u64) -> Option<&mut Row> {
        self.rows.get_mut(&number)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut Row)> {
        self.rows.iter_mut().map(|(number, row)| (*number, row))
    }

    /// Those of a schedule that have not ended, oldest first.
    pub(super) fn open_of(&self, schedule: u32) -> impl Iterator<Item = (u64, &Row)> {
        let numbers = self.open.range((schedule, 0)..=(schedule, u64::MAX));
        numbers.filter_map(|(_, number)| Some((*number, self.rows.get(number)?)))
    }

    pub(super) fn has_open(&self, schedule: u32) -> bool {
        self.open.range((schedule, 0)..=(schedule, u64::MAX)).next().is_some()
    }

    /// Moves an occurrence to another state; what nothing moves on any more is forgotten, unless it was asked for.
    pub(super) fn move_to(&mut self, number: u64, state: State, reason: Option<Reason>, now: UnixMs) {
        let Some(row) = self.rows.get_mut(&number) else { return };
        let before = std::mem::replace(&mut row.state, state);
        row.reason = reason;
        if before == State::Dead {
            self.leave_dead(number);
        }
        self.end_if_over(number, now);
    }

    /// Whether it is over may also follow from more than its state.
    pub(super) fn end_if_over(&mut self, number: u64, now: UnixMs) {
        let Some(row) = self.rows.get_mut(&number).filter(|row| has_ended(row.state, row.is_tracked)) else { return };
        self.open.remove(&(row.schedule, number));
        match &mut row.told {
            Some(told) => told.ended_at = Some(now),
            None => drop(self.rows.remove(&number)),
        }
    }

    /// An occurrence is DEAD; as in a shard the tenant's oldest that need not be kept go, at most two.
    pub(super) fn die(&mut self, number: u64, reason: Reason, now: UnixMs) {
        self.move_to(number, State::Dead, Some(reason), now);
        let Some(row) = self.rows.get_mut(&number) else { return };
        row.died_at = Some(now);
        row.has_run = true;
        let dead = self.dead.entry(row.tenant).or_default();
        dead.insert((now, number));
        for _ in 0..2 {
            let Some(&(at, oldest)) = dead.first() else { return };
            if dead.len() <= KEEP_DEAD && now.since(at) <= KEEP_DEAD_MS {
                return;
            }
            dead.pop_first();
            let Some(row) = self.rows.get(&oldest) else { continue };
            self.open.remove(&(row.schedule, oldest));
            if row.told.is_none() {
                self.rows.remove(&oldest);
            }
        }
    }

    fn leave_dead(&mut self, number: u64) {
        let Some(row) = self.rows.get_mut(&number) else { return };
        if let Some(at) = row.died_at.take()
            && let Some(dead) = self.dead.get_mut(&row.tenant)
        {
            dead.remove(&(at, number));
        }
    }

    /// What is told of those that were asked for, ascending by (`scheduled_for`, id).
    pub(super) fn into_lives(self) -> Vec<Life> {
        let mut lives: Vec<Life> = self.rows.into_values().filter_map(Row::into_life).collect();
        lives.sort_unstable_by_key(|life| (life.scheduled_for, life.id));
        lives
    }
}
