//! What readers see of a schedule's past: its occurrences, and the ranges of instants that got none.

use super::{Shard, Target, schedules::ScheduleRow};
use crate::kernel::{
    gate::Lsn,
    id::OccurrenceId,
    occurrence::{HistoryItem, Occurrence, OccurrenceNo, State},
    schedule::{InstantRange, RangeDisposition},
    time::UnixMs,
};

/// A page looks at no more occurrences than this a turn.
const ROWS_A_TURN: usize = 4_096;

/// A place in a history: behind the item of this instant and id (a range has the id of all zeros).
pub(super) type HistoryPlace = (UnixMs, OccurrenceId);

/// A part of a history.
#[derive(Clone, Debug)]
pub struct HistoryPage {
    /// Ascending by (`scheduled_for`, id).
    pub items: Vec<HistoryItem>,
    /// Where to go on; `None` at the end.
    pub next: Option<HistoryPlace>,
    /// The answer may leave once this is durable.
    pub lsn: Lsn,
}

/// What a shard knows of an occurrence's id.
#[derive(Clone, Debug)]
pub struct LookedUp {
    /// The occurrence, if it is known.
    pub occurrence: Option<Occurrence>,
    /// Whether any occurrence was forgotten: then what is not known may have been.
    pub has_forgotten: bool,
    /// The answer may leave once this is durable.
    pub lsn: Lsn,
}

impl Shard {
    /// A schedule's history in `[from, to)`, behind `after`, at most `limit` items; `None`: there is no such schedule, or
    /// the caller may not see it. A page may be short while `next` is set.
    #[must_use]
    pub fn history(
        &self,
        target: &Target,
        state: Option<State>,
        (from, to): (UnixMs, UnixMs),
        after: Option<HistoryPlace>,
        limit: usize,
    ) -> Option<HistoryPage> {
        let schedule = self.schedule(self.find(target).ok()?);
        let is_within =
            |place: HistoryPlace| place.0 >= from && place.0 < to && after.is_none_or(|after| place > after);
        let mut ranges: Vec<&InstantRange> = schedule.text.ranges.iter().collect();
        ranges.retain(|range| {
            is_within(place_of(range)) && state.is_none_or(|wanted| wanted == state_of(range.disposition))
        });
        ranges.sort_unstable_by_key(|range| range.first);
        let mut page = HistoryPage { items: Vec::new(), next: None, lsn: schedule.changed };
        let mut ranges = ranges.into_iter().peekable();
        let mut last = None;
        let mut at = self.first_behind(schedule, after);
        let mut looked_at = 0;
        loop {
            let row = at.and_then(|number| self.occurrences.row(number)).filter(|row| row.scheduled_for < to);
            let range = ranges.next_if(|range| row.is_none_or(|row| place_of(range) < row.place()));
            if page.items.len() == limit || looked_at == ROWS_A_TURN {
                page.next = last.filter(|_| row.is_some() || range.is_some());
                return Some(page);
            }
            if let Some(range) = range {
                last = Some(place_of(range));
                page.items.push(HistoryItem::Range(*range));
            } else if let (Some(row), Some(number)) = (row, at) {
                last = Some(row.place());
                looked_at += 1;
                let is_wanted = is_within(row.place()) && state.is_none_or(|wanted| wanted == row.state);
                page.items.extend(self.occurrence(number).filter(|_| is_wanted).map(HistoryItem::Occurrence));
                at = row.newer;
            } else {
                return Some(page);
            }
        }
    }

    /// The first occurrence of a history behind `after`: next to that one if it is still known, else from the beginning.
    fn first_behind(&self, schedule: &ScheduleRow, after: Option<HistoryPlace>) -> Option<OccurrenceNo> {
        let known = after.and_then(|(_, id)| self.occurrences.row(self.occurrences.number(id)?));
        match known {
            Some(row) if self.schedule(row.schedule).id == schedule.id => row.newer,
            _ => schedule.oldest,
        }
    }

    /// The occurrence that has this id, if it is known.
    #[must_use]
    pub fn look_up(&self, id: OccurrenceId) -> LookedUp {
        let number = self.occurrences.number(id);
        let occurrence = number.and_then(|number| self.occurrence(number));
        let row = number.and_then(|number| self.occurrences.row(number));
        let lsn = row.map_or(Lsn(0), |row| self.schedule(row.schedule).changed);
        LookedUp { occurrence, has_forgotten: self.has_forgotten, lsn }
    }

    /// One occurrence as it stands.
    #[must_use]
    pub fn occurrence(&self, number: OccurrenceNo) -> Option<Occurrence> {
        let row = self.occurrences.row(number)?;
        let schedule = self.schedule(row.schedule);
        let run = self.runs.of(number);
        let name = |name: Option<&std::sync::Arc<str>>| name.map_or_else(String::new, ToString::to_string);
        Some(Occurrence {
            id: row.id,
            schedule_id: schedule.id,
            version: row.version,
            tenant: name(self.tenants.name(row.tenant)),
            queue: name(self.queues.name(row.queue)),
            kind: row.kind,
            lane: row.lane,
            scheduled_for: row.scheduled_for,
            available_at: row.available_at,
            enqueued_at: row.enqueued_at,
            state: row.state,
            reason: row.reason,
            holds: run.and_then(|run| run.review.as_ref()).map(|review| review.holds.clone()).unwrap_or_default(),
            attempt_count: run.map_or(0, |run| run.made),
            attempts: run.map(|run| run.attempts.clone()).unwrap_or_default(),
        })
    }
}

const fn state_of(disposition: RangeDisposition) -> State {
    match disposition {
        RangeDisposition::Missed => State::Missed,
        RangeDisposition::Canceled(_) => State::Canceled,
    }
}

/// A range stands before the occurrences of its first instant.
const fn place_of(range: &InstantRange) -> HistoryPlace {
    (range.first, OccurrenceId([0; 16]))
}
