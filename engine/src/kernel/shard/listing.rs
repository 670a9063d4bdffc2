//! What readers see of schedules: one, or a page of many.

use super::{Shard, Target, schedules::ScheduleRow};
use crate::kernel::{
    calendar::{Basis, CronSpec, DayMatch, FoldChoice, Gap, LocalFold},
    gate::Lsn,
    names::Names,
    occurrence::State,
    record::RuleBody,
    schedule::{AtLocal, Rule, Schedule, ScheduleState, Spec},
    time::UnixMs,
};

/// How many of the next instants a schedule shows.
const NEXT_SHOWN: usize = 5;
/// A listing looks at no more rows than this a turn.
const ROWS_A_TURN: usize = 4_096;

/// Which schedules to list.
#[derive(Clone, Debug, Default)]
pub struct ListingFilter {
    /// Only this tenant's.
    pub tenant: Option<String>,
    /// Only of this queue.
    pub queue: Option<String>,
    /// Only in this state.
    pub state: Option<ScheduleState>,
}

/// A part of a listing.
#[derive(Clone, Debug)]
pub struct ListingPage {
    /// What matched.
    pub schedules: Vec<Schedule>,
    /// Where to go on; `None` at the shard's end.
    pub next_row: Option<u32>,
    /// The answer may leave once this is durable.
    pub lsn: Lsn,
}

impl Shard {
    /// A schedule as it stands, and the LSN that its answer rests on.
    #[must_use]
    pub fn read(&mut self, target: &Target, now: UnixMs) -> Option<(Schedule, Lsn)> {
        let number = self.find(target).ok()?;
        let lsn = self.schedule(number).changed;
        Some((self.view(number, now), lsn))
    }

    /// Schedules from row `from` on, at most `limit`. A page may be short while `next_row` is set.
    #[must_use]
    pub fn list(&mut self, filter: &ListingFilter, from: u32, limit: usize, now: UnixMs) -> ListingPage {
        let tenant = filter.tenant.as_ref().map(|name| self.tenants.number(name));
        let queue = filter.queue.as_ref().map(|name| self.queues.number(name));
        let matches = |row: &ScheduleRow| {
            tenant.is_none_or(|number| number == Some(row.tenant))
                && queue.is_none_or(|number| number == Some(row.queue))
                && filter.state.is_none_or(|state| state == row.state())
        };
        let mut page = ListingPage { schedules: Vec::new(), next_row: None, lsn: Lsn(0) };
        let mut found = Vec::new();
        for looked_at in 0..ROWS_A_TURN {
            let number = from.saturating_add(u32::try_from(looked_at).unwrap_or(u32::MAX));
            if number >= self.schedules.end() {
                break;
            }
            if found.len() == limit {
                page.next_row = Some(number);
                break;
            }
            if let Some(row) = self.schedules.row(number).filter(|row| matches(row)) {
                page.lsn = page.lsn.max(row.changed);
                found.push(number);
            }
            page.next_row = Some(number + 1).filter(|next| *next < self.schedules.end());
        }
        page.schedules = found.into_iter().map(|number| self.view(number, now)).collect();
        page
    }

    /// How many schedules are in each state, in the order of [`ScheduleState::ALL`].
    #[must_use]
    pub const fn schedules_by_state(&self) -> [u64; ScheduleState::ALL.len()] {
        self.schedules.by_state()
    }

    pub(super) fn view(&mut self, number: u32, now: UnixMs) -> Schedule {
        let next = self.next_instants(number);
        let row = self.schedule(number);
        Schedule {
            id: row.id,
            version: row.version,
            state: row.state(),
            spec: self.spec(number),
            created_at: row.created_at,
            updated_at: row.updated_at,
            last_run_at: row.last_run_at,
            next_run_at: next.first().copied(),
            overdue_ms: self.overdue_ms(number, now),
            error: row.plan.error().map(ToString::to_string),
            next,
        }
    }

    /// How a schedule is described.
    pub(super) fn spec(&self, number: u32) -> Spec {
        let row = self.schedule(number);
        let (rule, at_local) = rule_of(row.plan.body(&self.calendar));
        let (start_at, end_at) = row.plan.bounds();
        let name = |names: &Names, number| names.name(number).map_or_else(String::new, |n| n.to_string());
        Spec {
            tenant: name(&self.tenants, row.tenant),
            queue: name(&self.queues, row.queue),
            name: row.text.name.clone(),
            rule,
            at_local,
            start_at,
            end_at,
            payload: row.text.payload.to_vec(),
            flexible_window_ms: row.flexible_window_ms,
            max_lateness_ms: row.policies.max_lateness_ms,
            misfire: row.policies.misfire,
            overlap: row.policies.overlap,
            retry: row.policies.retry,
            effect: row.policies.effect,
            review_owner: row.text.review_owner.clone(),
        }
    }

    /// The next instants, those of SCHEDULED occurrences first.
    fn next_instants(&mut self, number: u32) -> Vec<UnixMs> {
        let waiting = self.scheduled_of(number);
        let mut instants: Vec<UnixMs> = waiting
            .iter()
            .filter_map(|n| self.occurrences.row(*n))
            .map(|row| row.scheduled_for)
            .take(NEXT_SHOWN)
            .collect();
        let row = self.schedules.row(number).expect("a schedule that is shown has a row");
        let mut next = row.next;
        while let Some(instant) = next
            && instants.len() < NEXT_SHOWN
        {
            instants.push(instant);
            next = row.plan.next_known(instant, &mut self.calendar);
        }
        instants
    }

    fn overdue_ms(&self, number: u32, now: UnixMs) -> u64 {
        let row = self.schedule(number);
        let waiting = self.scheduled_of(number).into_iter().filter_map(|n| self.occurrences.row(n));
        let earliest = waiting
            .filter(|occurrence| occurrence.state == State::Scheduled && occurrence.enqueued_at.is_none())
            .map(|occurrence| occurrence.available_at)
            .chain(row.next.map(|next| Self::available_at(row, next)))
            .min();
        earliest.map_or(0, |at| now.since(at).max(0).cast_unsigned())
    }
}

pub(super) fn rule_of(body: RuleBody) -> (Rule, Option<AtLocal>) {
    match body {
        RuleBody::Cron { expr, zone, fold_both, gap_shift, day_and } => {
            let fold = if fold_both { FoldChoice::Both } else { FoldChoice::Once };
            let gap = if gap_shift { Gap::Shift } else { Gap::Skip };
            let day_match = if day_and { DayMatch::And } else { DayMatch::Or };
            (Rule::Cron(CronSpec { expr, zone, fold, gap, day_match }), None)
        }
        RuleBody::Every { every_ms, anchor_ms } => {
            (Rule::Every { every_ms, anchor: Some(UnixMs(anchor_ms)), basis: Basis::Slot }, None)
        }
        RuleBody::After { every_ms, anchor_ms, from_start } => {
            let basis = if from_start { Basis::Start } else { Basis::Completion };
            (Rule::Every { every_ms, anchor: Some(UnixMs(anchor_ms)), basis }, None)
        }
        RuleBody::At { at_ms, local } => {
            let local = local.map(|given| AtLocal {
                local: given.local,
                zone: given.zone,
                fold: given.second.map(|second| if second { LocalFold::Second } else { LocalFold::First }),
                gap: given.shift.then_some(Gap::Shift),
            });
            (Rule::At(UnixMs(at_ms)), local)
        }
    }
}
