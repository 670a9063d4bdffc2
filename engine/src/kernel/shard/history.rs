//! What readers see of a schedule's past: its occurrences, and the ranges of instants that got none.

use super::Shard;
use crate::kernel::{
    gate::Lsn,
    id::{Kind, OccurrenceId, ScheduleId},
    occurrence::{HistoryItem, Occurrence, OccurrenceNo, State},
    schedule::RangeDisposition,
    time::UnixMs,
};

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

impl Shard {
    /// A schedule's history in `[from, to)`, behind `after`, at most `limit` items; `None`: there is no such schedule.
    #[must_use]
    pub fn history(
        &self,
        id: ScheduleId,
        state: Option<State>,
        (from, to): (UnixMs, UnixMs),
        after: Option<HistoryPlace>,
        limit: usize,
    ) -> Option<HistoryPage> {
        let number = self.schedules.number(id)?;
        let schedule = self.schedule(number);
        let mut items: Vec<HistoryItem> = Vec::new();
        let mut at = schedule.newest;
        while let Some(occurrence) = at
            && let Some(row) = self.occurrences.row(occurrence)
        {
            if state.is_none_or(|wanted| wanted == row.state) {
                items.extend(self.occurrence(occurrence).map(HistoryItem::Occurrence));
            }
            at = row.older;
        }
        let ranges = schedule.text.ranges.iter().map(|range| {
            let count = range.count.or_else(|| Some(schedule.plan.count(range.first, range.last, &self.calendar)));
            crate::kernel::schedule::InstantRange { count, ..*range }
        });
        items.extend(
            ranges.filter(|range| state.is_none_or(|s| s == state_of(range.disposition))).map(HistoryItem::Range),
        );
        items.retain(|item| place(item).0 < to && place(item).0 >= from && after.is_none_or(|a| place(item) > a));
        items.sort_by_key(place);
        let next = (items.len() > limit).then(|| limit.checked_sub(1).map(|last| place(&items[last]))).flatten();
        items.truncate(limit);
        Some(HistoryPage { items, next, lsn: schedule.changed })
    }

    /// One occurrence as it stands.
    #[must_use]
    pub fn occurrence(&self, number: OccurrenceNo) -> Option<Occurrence> {
        let row = self.occurrences.row(number)?;
        let schedule = self.schedule(row.schedule);
        let name = |name: Option<&std::sync::Arc<str>>| name.map_or_else(String::new, ToString::to_string);
        let reason = match row.state {
            State::Canceled => Some("canceled"),
            State::Scheduled | State::Enqueued | State::Succeeded | State::Missed => None,
        };
        Some(Occurrence {
            id: row.id,
            schedule_id: schedule.id,
            version: row.version,
            tenant: name(self.tenants.name(schedule.tenant)),
            queue: name(self.queues.name(schedule.queue)),
            kind: Kind::Regular,
            lane: row.lane,
            scheduled_for: row.scheduled_for,
            available_at: row.available_at,
            enqueued_at: row.enqueued_at,
            state: row.state,
            reason,
            attempt_count: u32::from(row.state == State::Succeeded),
        })
    }
}

const fn state_of(disposition: RangeDisposition) -> State {
    match disposition {
        RangeDisposition::Missed => State::Missed,
        RangeDisposition::Canceled => State::Canceled,
    }
}

fn place(item: &HistoryItem) -> HistoryPlace {
    match item {
        HistoryItem::Occurrence(occurrence) => (occurrence.scheduled_for, occurrence.id),
        HistoryItem::Range(range) => (range.first, OccurrenceId([0; 16])),
    }
}
