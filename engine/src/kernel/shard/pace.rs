//! A schedule that follows its own runs: what its next instant counts from, and whether that is known yet.
//!
//! ```text
//!   anchor --every--> instant 1 .. its end (or first claim) --every--> instant 2 .. its end --every--> ...
//!                         '---- open: there is no next ----'
//! ```
//!
//! The record of an end or of a claim is what moves it: the time of that record is the one that is counted from, live
//! and in replay, so that no crash comes between a run and what follows it. Whatever version made an occurrence, the
//! schedule waits for it. It is not: a count of runs, nor an overlap policy.

use super::{Shard, occurrences::OccurrenceRow};
use crate::kernel::{
    calendar::Interval,
    id::Kind,
    image::PlanImage,
    occurrence::{OccurrenceNo, State},
    record::RuleBody,
    time::UnixMs,
};

/// When a schedule that follows its runs goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    /// As it was described.
    anchor: UnixMs,
    /// Laid through what is counted from.
    grid: Interval,
    /// Whether a run counts from its first claim; otherwise from its end.
    from_start: bool,
    /// What was made last has not come so far.
    is_open: bool,
}

impl Pace {
    pub(super) fn new(every_ms: i64, anchor: UnixMs, from_start: bool) -> Self {
        let grid = Interval::new(anchor, every_ms.max(1)).expect("a distance of at least 1 ms is positive");
        Self { anchor, grid, from_start, is_open: false }
    }

    /// As the log keeps it.
    pub(super) const fn body(&self) -> RuleBody {
        RuleBody::After { every_ms: self.grid.every_ms(), anchor_ms: self.anchor.0, from_start: self.from_start }
    }

    /// As a snapshot keeps it.
    pub(super) const fn image(&self) -> PlanImage {
        PlanImage::Paced { body: self.body(), from_ms: self.grid.anchor().0, is_open: self.is_open }
    }

    /// Goes on as a snapshot says.
    pub(super) fn restore(&mut self, from: UnixMs, is_open: bool) {
        self.count_from(from);
        self.is_open = is_open;
    }

    /// The first instant after `after`, if it is known: `every` after what is counted from. Only where that is over
    /// already (the anchor is long past, or an update shortened it) it is the next whole number of times.
    pub(super) fn next(&self, after: UnixMs) -> Option<UnixMs> {
        if self.is_open { None } else { self.grid.next_behind_anchor(after) }
    }

    pub(super) const fn is_open(&self) -> bool {
        self.is_open
    }

    /// An occurrence was made: what is next depends on it.
    pub(super) const fn wait(&mut self) {
        self.is_open = true;
    }

    /// Goes on counting where another description of the same schedule did, unless the anchor was moved.
    pub(super) fn go_on_from(&mut self, before: &Self) {
        if self.anchor == before.anchor {
            self.count_from(before.grid.anchor());
        }
    }

    /// Never back: an anchor that is still to come stands.
    fn count_from(&mut self, at: UnixMs) {
        let from = self.grid.anchor().max(at);
        self.grid = Interval::new(from, self.grid.every_ms()).expect("its distance is positive");
    }
}

impl Shard {
    /// `apply`: an occurrence came to its end.
    pub(super) fn note_end(&mut self, number: OccurrenceNo) {
        let row = self.occurrences.row(number).expect("it just ended");
        let schedule = row.schedule;
        let Some(pace) = self.schedule(schedule).plan.pace() else { return };
        if !self.is_own(number, row) || (pace.from_start && self.runs.made(number) > 0) {
            return;
        }
        // What was made ahead and called off before its instant is as if it had never been made.
        let never_was = row.state == State::Canceled && row.scheduled_for > self.log_time;
        if !never_was {
            self.note_decided(schedule);
        }
        self.repace(schedule);
    }

    /// `apply`: a worker claimed an occurrence for the first time.
    pub(super) fn note_first_claim(&mut self, number: OccurrenceNo) {
        let row = self.occurrences.row(number).expect("it was just claimed");
        let schedule = row.schedule;
        let counts_claims = self.schedule(schedule).plan.pace().is_some_and(|pace| pace.from_start);
        if counts_claims && self.is_own(number, row) {
            self.note_decided(schedule);
            self.repace(schedule);
        }
    }

    /// `apply`: something that the schedule waited for, or an instant that never got an occurrence, was decided now.
    pub(super) fn note_decided(&mut self, schedule: u32) {
        let now = self.log_time;
        if let Some(pace) = self.schedules.row_mut(schedule).and_then(|row| row.plan.pace_mut()) {
            pace.count_from(now);
        }
    }

    /// `apply`: finds out whether there is something to wait for.
    pub(super) fn repace(&mut self, schedule: u32) {
        let Some(pace) = self.schedule(schedule).plan.pace() else { return };
        let from_start = pace.from_start;
        let is_awaited = |number: OccurrenceNo| {
            let row = self.occurrences.row(number).expect("what is open has a row");
            self.is_own(number, row) && !(from_start && self.runs.made(number) > 0)
        };
        let is_open =
            self.scheduled_of(schedule).into_iter().any(is_awaited) || self.runs.unsettled_of(schedule).any(is_awaited);
        if let Some(pace) = self.schedules.row_mut(schedule).and_then(|row| row.plan.pace_mut()) {
            pace.is_open = is_open;
        }
        if self.is_up {
            self.rearm(schedule);
        }
    }

    /// Whether it is one of the schedule's own instants, and has not come to an end before.
    fn is_own(&self, number: OccurrenceNo, row: &OccurrenceRow) -> bool {
        row.kind == Kind::Regular && !self.runs.of(number).is_some_and(|run| run.is_replayed)
    }
}
