//! Lateness: judged once for each instant, at the moment it could enter the queue, over a schedule's whole backlog.

use super::{Shard, Turn, Urgency, occurrences::Holder, schedules::ScheduleRow};
use crate::kernel::{
    calendar::Calendar,
    id::Kind,
    occurrence::{Lane, OccurrenceNo},
    policy::{Misfire, Policies},
    record::{Misfired, RangeBody, Record, runs_of},
    time::UnixMs,
};

/// A judgement takes as long as so many releases: a turn does fewer of them, so that what is on time need not wait.
pub(super) const JUDGEMENT_COST: usize = 16;

/// What becomes of a backlog.
pub(super) enum Verdict {
    /// No member is later than allowed: all enter their own lane, oldest first.
    OwnLane,
    /// The policy decided.
    Misfire(Decision),
}

/// What a policy admits, and what it does not.
pub(super) struct Decision {
    schedule: u32,
    /// Instants that enter the catch-up lane, oldest first.
    admitted: Vec<UnixMs>,
    missed: Option<(UnixMs, UnixMs)>,
    missed_occurrences: Vec<OccurrenceNo>,
    /// Members that are not late and go back to where they waited.
    spared: Vec<OccurrenceNo>,
    through: UnixMs,
}

/// A SCHEDULED member of a backlog.
struct Member {
    number: OccurrenceNo,
    scheduled_for: UnixMs,
    available_at: UnixMs,
}

impl Shard {
    /// Judges what a version of a schedule owes: its SCHEDULED occurrences, and if it is the present version its
    /// instants without one, that are available by `now`.
    pub(super) fn judge(&mut self, schedule: u32, version: u32, now: UnixMs) -> Verdict {
        let members = self.members(schedule, version, now);
        let policies = self.policies_of(schedule, version);
        let row = self.schedules.row(schedule).expect("a schedule that is judged has a row");
        let first = row.next.filter(|next| row.version == version && Self::available_at(row, *next) <= now);
        let oldest = members.iter().map(|member| member.available_at);
        let oldest = oldest.chain(first.map(|next| Self::available_at(row, next))).min();
        let max_lateness_ms = i64::try_from(policies.max_lateness_ms).unwrap_or(i64::MAX);
        match oldest {
            Some(oldest) if now.since(oldest) > max_lateness_ms => {}
            _ => return Verdict::OwnLane,
        }
        let late_before = now.minus(max_lateness_ms);
        let mut owed = Owed { row, calendar: &mut self.calendar, first };
        let mut decision = match policies.misfire {
            Misfire::Skip => skip(&members, &mut owed, late_before),
            Misfire::FireOnce => admit_latest(1, &members, &mut owed, now),
            Misfire::CatchUp { limit } => admit_latest(limit as usize, &members, &mut owed, now),
        };
        decision.schedule = schedule;
        decision.through = decision.through.max(row.decided_through);
        Verdict::Misfire(decision)
    }

    /// Records a decision; a crash cannot repeat half of it.
    pub(super) fn misfire(&mut self, decision: Decision, now: UnixMs, turn: &mut Turn) {
        let base = now.max(self.log_time);
        let schedule = decision.schedule;
        let missed = decision.missed.map(|(first, last)| RangeBody {
            first: first.since(base),
            last: last.since(base),
            count: self.schedule(schedule).plan.count(first, last, &self.calendar),
        });
        let mut missed_occurrences: Vec<u64> = decision.missed_occurrences.iter().map(|number| number.0).collect();
        missed_occurrences.sort_unstable();
        self.counters.missed += missed_occurrences.len() as u64 + missed.map_or(0, |range| range.count);
        let record = Misfired {
            schedule,
            admitted: decision.admitted.iter().map(|at| at.since(base)).collect(),
            missed,
            missed_occurrences: runs_of(&missed_occurrences),
            through: decision.through.since(base),
        };
        self.record(Record::Misfired(record), now, turn);
        turn.urge(Urgency::Prompt);
        for number in decision.spared {
            // What waits for its turn keeps its place.
            if self.occurrences.row(number).is_some_and(|row| row.holder != Holder::Outbox) {
                self.enter_outbox(number, self.durable);
            }
        }
        for number in self.scheduled_of(schedule) {
            let row = self.occurrences.row(number).expect("it was just found");
            let is_elsewhere = matches!(row.holder, Holder::Queue | Holder::Claimed | Holder::Lobby);
            if row.lane == Lane::CatchUp && row.kind == Kind::Regular && !is_elsewhere {
                self.enter_line(number, self.lsn);
            }
        }
        self.rearm(schedule);
    }

    /// The policies that a version of a schedule was made under.
    pub(super) fn policies_of(&self, schedule: u32, version: u32) -> Policies {
        let row = self.schedule(schedule);
        let superseded = self.superseded.get(&(schedule, version)).filter(|_| row.version != version);
        superseded.map_or(*row.policies, |superseded| *superseded.policies)
    }

    /// SCHEDULED regular occurrences that are available and neither judged nor with the queue, nor may be there, oldest
    /// first.
    fn members(&self, schedule: u32, version: u32, now: UnixMs) -> Vec<Member> {
        let rows = self.scheduled_of(schedule).into_iter().filter_map(|n| Some((n, self.occurrences.row(n)?)));
        rows.filter(|(number, row)| row.version == version && row.kind == Kind::Regular && *number >= self.unread_below)
            .filter(|(_, row)| row.available_at <= now && row.holder != Holder::Queue && row.lane != Lane::CatchUp)
            .filter(|(_, row)| row.reason.is_none())
            .map(|(number, row)| Member { number, scheduled_for: row.scheduled_for, available_at: row.available_at })
            .collect()
    }
}

/// Instants of a rule that have no occurrence yet, from `first` on. They are later than every member.
struct Owed<'a> {
    row: &'a ScheduleRow,
    calendar: &'a mut Calendar,
    first: Option<UnixMs>,
}

impl Owed<'_> {
    /// The latest owed instant that was available by `at`.
    fn latest_available(&mut self, at: UnixMs) -> Option<UnixMs> {
        self.first?;
        let mut last = self.row.plan.latest(self.row.decided_through, at, self.calendar)?;
        // The latest instant of a flexible schedule may be past and not available yet.
        while Shard::available_at(self.row, last) > at {
            last = self.before(last)?;
        }
        Some(last)
    }

    /// The owed instant before `instant`.
    fn before(&mut self, instant: UnixMs) -> Option<UnixMs> {
        self.row.plan.latest(self.row.decided_through, instant.minus(1), self.calendar)
    }

    /// The range from the first owed instant through `last`.
    fn through(&self, last: Option<UnixMs>) -> Option<(UnixMs, UnixMs)> {
        Some((self.first?, last?))
    }
}

/// Only what is not late is admitted, into its own lane: owed instants of that kind are left for the next turn.
fn skip(members: &[Member], owed: &mut Owed<'_>, late_before: UnixMs) -> Decision {
    let (late, spared): (Vec<&Member>, Vec<&Member>) =
        members.iter().partition(|member| member.available_at < late_before);
    let last = owed.latest_available(late_before.minus(1));
    Decision {
        schedule: 0,
        admitted: Vec::new(),
        missed: owed.through(last),
        missed_occurrences: late.iter().map(|member| member.number).collect(),
        spared: spared.iter().map(|member| member.number).collect(),
        through: last.unwrap_or(UnixMs::MIN),
    }
}

/// The latest `limit` are admitted.
fn admit_latest(limit: usize, members: &[Member], owed: &mut Owed<'_>, now: UnixMs) -> Decision {
    let mut admitted = Vec::new();
    let last = owed.latest_available(now);
    let mut next = last;
    while let Some(instant) = next
        && admitted.len() < limit
    {
        admitted.push(instant);
        next = owed.before(instant);
    }
    let missed = owed.through(next);
    let from_members = members.len().min(limit - admitted.len());
    let (missed_members, admitted_members) = members.split_at(members.len() - from_members);
    admitted.extend(admitted_members.iter().rev().map(|member| member.scheduled_for));
    admitted.reverse();
    Decision {
        schedule: 0,
        admitted,
        missed,
        missed_occurrences: missed_members.iter().map(|member| member.number).collect(),
        spared: Vec::new(),
        through: last.unwrap_or(UnixMs::MIN),
    }
}
