//! What readers see of a schedule's past: its occurrences, and the ranges of instants that got none.

use super::Shard;
use crate::kernel::{
    gate::Lsn,
    id::{Kind, OccurrenceId, ScheduleId},
    occurrence::{HistoryItem, Occurrence, OccurrenceNo, State},
    schedule::{InstantRange, RangeDisposition},
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
        let is_wanted =
            |place: HistoryPlace| place.0 < to && place.0 >= from && after.is_none_or(|after| place > after);
        let mut found: Vec<(HistoryPlace, Found<'_>)> = Vec::new();
        let mut at = schedule.newest;
        while let Some(occurrence) = at
            && let Some(row) = self.occurrences.row(occurrence)
            && row.scheduled_for >= from
        {
            if state.is_none_or(|wanted| wanted == row.state) && is_wanted((row.scheduled_for, row.id)) {
                found.push(((row.scheduled_for, row.id), Found::Occurrence(occurrence)));
            }
            at = row.older;
        }
        for range in &schedule.text.ranges {
            let place = (range.first, OccurrenceId([0; 16]));
            if state.is_none_or(|wanted| wanted == state_of(range.disposition)) && is_wanted(place) {
                found.push((place, Found::Range(range)));
            }
        }
        found.sort_unstable_by_key(|(place, _)| *place);
        let next = (found.len() > limit).then(|| limit.checked_sub(1).map(|last| found[last].0)).flatten();
        let items = found.into_iter().take(limit).filter_map(|(_, found)| match found {
            Found::Occurrence(occurrence) => self.occurrence(occurrence).map(HistoryItem::Occurrence),
            Found::Range(range) => Some(HistoryItem::Range(self.counted(number, range))),
        });
        Some(HistoryPage { items: items.collect(), next, lsn: schedule.changed })
    }

    /// A range with its count, which the log does not hold.
    fn counted(&self, schedule: u32, range: &InstantRange) -> InstantRange {
        let plan = &self.schedule(schedule).plan;
        let count = range.count.unwrap_or_else(|| plan.count(range.first, range.last, &self.calendar));
        InstantRange { count: Some(count), ..*range }
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

/// Something of a history, before it is written out.
enum Found<'a> {
    Occurrence(OccurrenceNo),
    Range(&'a InstantRange),
}
