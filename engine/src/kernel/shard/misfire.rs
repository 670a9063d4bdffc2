//! Lateness: judged once for each instant, at the moment it could enter the queue, over a schedule's whole backlog.

use super::{Shard, Turn, Urgency, occurrences::Holder};
use crate::kernel::{
    occurrence::{Lane, OccurrenceNo},
    record::{Misfired, Record, runs_of},
    schedule::{InstantRange, RangeDisposition},
    time::UnixMs,
};

/// What becomes of a backlog.
pub(super) enum Verdict {
    /// No member is later than allowed: all enter their own lane, oldest first.
    OwnLane,
    /// The policy decided.
    Misfire(Decision),
}

/// FIRE_ONCE: the latest member is admitted, the others are missed.
pub(super) struct Decision {
    schedule: u32,
    admitted: UnixMs,
    /// The occurrence of the admitted instant, if it has one already.
    member: Option<OccurrenceNo>,
    missed: Option<(UnixMs, UnixMs)>,
    missed_occurrences: Vec<OccurrenceNo>,
    through: UnixMs,
}

impl Shard {
    /// Judges a schedule's backlog: its SCHEDULED occurrences and its instants without one that are available by `now`.
    pub(super) fn judge(&mut self, schedule: u32, now: UnixMs) -> Verdict {
        let members = self.scheduled_members(schedule, now);
        let row = self.schedules.row(schedule).expect("a schedule that is judged has a row");
        let first_instant = row.next.filter(|next| Self::available_at(row, *next) <= now);
        let oldest = members
            .first()
            .map(|(_, _, available_at)| *available_at)
            .into_iter()
            .chain(first_instant.map(|next| Self::available_at(row, next)))
            .min();
        let Some(oldest) = oldest else { return Verdict::OwnLane };
        if now.since(oldest) <= i64::try_from(row.max_lateness_ms).unwrap_or(i64::MAX) {
            return Verdict::OwnLane;
        }
        let decided_through = row.decided_through;
        let latest = first_instant.and_then(|first| {
            let mut last = row.plan.latest(decided_through, now, &mut self.calendar)?;
            // The latest instant of a flexible schedule may be past and not available yet: then it is no member.
            while Self::available_at(row, last) > now {
                last = row.plan.latest(decided_through, last.minus(1), &mut self.calendar)?;
            }
            Some((first, last))
        });
        let mut missed_occurrences: Vec<OccurrenceNo> = members.iter().map(|(number, ..)| *number).collect();
        let decision = match (latest, members.last()) {
            (Some((first, last)), _) => {
                let before = row.plan.latest(decided_through, last.minus(1), &mut self.calendar);
                let missed = before.map(|before| (first, before));
                Decision { schedule, admitted: last, member: None, missed, missed_occurrences, through: last }
            }
            (None, Some(&(number, admitted, _))) => {
                missed_occurrences.pop();
                let member = Some(number);
                Decision { schedule, admitted, member, missed: None, missed_occurrences, through: decided_through }
            }
            (None, None) => return Verdict::OwnLane,
        };
        Verdict::Misfire(decision)
    }

    /// Records a decision; a crash cannot repeat half of it.
    pub(super) fn misfire(&mut self, decision: Decision, now: UnixMs, turn: &mut Turn) {
        let base = now.max(self.log_time);
        let schedule = decision.schedule;
        let missed_one_by_one = decision.missed_occurrences.len() as u64;
        let missed: Vec<u64> = decision.missed_occurrences.iter().map(|number| number.0).collect();
        let record = Misfired {
            schedule,
            admitted: vec![decision.admitted.since(base)],
            missed: decision.missed.map(|(first, last)| (first.since(base), last.since(base))),
            missed_occurrences: runs_of(&missed),
            through: decision.through.since(base),
        };
        self.record(Record::Misfired(record), now, turn);
        self.counters.missed += missed_one_by_one + self.count_last_range(schedule, RangeDisposition::Missed);
        turn.urge(Urgency::Prompt);
        if let Some(number) = decision.member.or_else(|| self.schedule(schedule).newest) {
            self.enter_line(number, self.lsn);
        }
        self.rearm(schedule);
    }

    /// Fills in the count of the newest range of a schedule, if it is of this kind and not counted.
    pub(super) fn count_last_range(&mut self, schedule: u32, disposition: RangeDisposition) -> u64 {
        let row = self.schedules.row_mut(schedule).expect("a schedule that is named has a row");
        match row.text.ranges.last_mut() {
            Some(range @ InstantRange { count: None, .. }) if range.disposition == disposition => {
                let count = row.plan.count(range.first, range.last, &self.calendar);
                range.count = Some(count);
                count
            }
            _ => 0,
        }
    }

    /// SCHEDULED occurrences that are available and neither with the queue nor judged: number, instant, availability.
    fn scheduled_members(&self, schedule: u32, now: UnixMs) -> Vec<(OccurrenceNo, UnixMs, UnixMs)> {
        let rows = self.scheduled_of(schedule).into_iter().filter_map(|n| Some((n, self.occurrences.row(n)?)));
        rows.filter(|(_, row)| row.available_at <= now && row.holder != Holder::Queue && row.lane != Lane::CatchUp)
            .map(|(number, row)| (number, row.scheduled_for, row.available_at))
            .collect()
    }
}
