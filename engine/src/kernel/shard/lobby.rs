//! What may not run yet waits in the shard: until a run of its schedule ends, or until its tenant may run one more.
//!
//! The lobby is derived. After an opening everything that waited goes to its line again, and finds its way back here.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Shard, Turn, Urgency,
    lines::Batch,
    occurrences::{Holder, OccurrenceRow},
};
use crate::kernel::{
    evidence::HoldReason,
    id::Kind,
    occurrence::{Lane, OccurrenceNo, Reason, State},
    overlap::{self, Asking, UnderWay, Verdict},
    permits::Draw,
    policy::{Effect, Overlap, Policies},
    record::{Died, Held, Record, Skipped, Waited},
    time::UnixMs,
};

/// Whoever waits for a permit of another shard's run is looked at this often.
const POLL_MS: i64 = 1_000;
/// At most this many of a schedule's waiting occurrences are looked at for one that may go.
const LOOKED_AT: usize = 64;

/// Who waits, and what happened since it was looked at last.
#[derive(Debug, Default)]
pub(super) struct Lobby {
    /// By schedule, oldest first.
    for_runs: BTreeSet<(u32, UnixMs, OccurrenceNo)>,
    /// By tenant, those that are available for longest first.
    for_permits: BTreeSet<(u32, UnixMs, OccurrenceNo)>,
    /// Schedules of which something moved.
    stirred: BTreeSet<u32>,
    /// Tenants whose runs ended, and how many did.
    freed: BTreeMap<u32, usize>,
    polled_ms: i64,
}

impl Lobby {
    /// An occurrence of the schedule moved.
    pub(super) fn stir(&mut self, schedule: u32) {
        if !self.for_runs.is_empty() {
            self.stirred.insert(schedule);
        }
    }

    /// A run of the tenant ended.
    pub(super) fn freed(&mut self, tenant: u32) {
        if !self.for_permits.is_empty() {
            *self.freed.entry(tenant).or_default() += 1;
        }
    }

    /// Whether somebody who waits may be able to go.
    pub(super) fn is_stirred(&self) -> bool {
        !self.stirred.is_empty() || !self.freed.is_empty()
    }

    /// Everybody who waits, for the checker.
    pub(super) fn iter(&self) -> impl Iterator<Item = OccurrenceNo> {
        self.for_runs.iter().chain(&self.for_permits).map(|(_, _, number)| *number)
    }

    fn waiting_for_runs(&self, schedule: u32) -> impl Iterator<Item = (u32, UnixMs, OccurrenceNo)> {
        let all = (schedule, UnixMs(i64::MIN), OccurrenceNo(0))..=(schedule, UnixMs(i64::MAX), OccurrenceNo(u64::MAX));
        self.for_runs.range(all).copied()
    }
}

impl Shard {
    /// Whether an occurrence that is due may be handed over: its deadline is not over, nobody has to look at it first,
    /// and none of its schedule is in its way. Otherwise what follows is recorded.
    pub(super) fn may_leave(&mut self, number: OccurrenceNo, now: UnixMs, turn: &mut Turn) -> bool {
        let Some(row) = self.occurrences.row(number) else { return false };
        // What was accepted before is only sent again, and is asked when it is claimed.
        if !self.has_conditions || !row.is_tracked || row.state == State::Enqueued {
            return true;
        }
        let policies = self.policies_of(row.schedule, row.version);
        if self.deadline(number, row, &policies).is_some_and(|deadline| now > deadline) {
            self.die_late(number, now, turn);
            return false;
        }
        if policies.effect == Effect::NonIdempotent && self.needs_review(number, row) {
            let reasons = vec![HoldReason::CatchUpReview];
            self.counters.held += 1;
            self.record(Record::Held(Held { occurrence: number.0, reasons }), now, turn);
            turn.urge(Urgency::Prompt);
            return false;
        }
        match self.verdict_at_release(number, &policies, now) {
            Verdict::GoOn => true,
            Verdict::Skip => {
                self.skip(number, now, turn);
                false
            }
            Verdict::Wait => {
                self.wait_for_run(number, now, turn);
                false
            }
        }
    }

    /// Whether the misfire policy admitted it late, and nobody has looked at it.
    fn needs_review(&self, number: OccurrenceNo, row: &OccurrenceRow) -> bool {
        let reviewed = self.runs.of(number).and_then(|run| run.review.as_ref());
        is_caught_up(row)
            && !reviewed.is_some_and(|review| review.settled.contains(&HoldReason::CatchUpReview))
            && row.state == State::Scheduled
    }

    /// No attempt begins later than this.
    pub(super) fn deadline(&self, number: OccurrenceNo, row: &OccurrenceRow, policies: &Policies) -> Option<UnixMs> {
        let deadline_ms = i64::try_from(policies.retry.deadline_ms?).unwrap_or(i64::MAX);
        let asked_at = self.runs.of(number).and_then(super::runs::Run::asked_at);
        Some(asked_at.unwrap_or(row.available_at).plus(deadline_ms))
    }

    pub(super) fn die_late(&mut self, number: OccurrenceNo, now: UnixMs, turn: &mut Turn) {
        self.counters.dead += 1;
        self.record(Record::Died(Died { occurrence: number.0 }), now, turn);
        turn.urge(Urgency::Prompt);
    }

    pub(super) fn skip(&mut self, number: OccurrenceNo, now: UnixMs, turn: &mut Turn) {
        self.counters.skipped += 1;
        self.record(Record::Skipped(Skipped { occurrence: number.0 }), now, turn);
        turn.urge(Urgency::Prompt);
    }

    fn wait_for_run(&mut self, number: OccurrenceNo, now: UnixMs, turn: &mut Turn) {
        let row = self.occurrences.row(number).expect("it was just found");
        // What has no lateness to be judged need not be remembered as judged.
        if row.state == State::Scheduled && row.lane != Lane::CatchUp && row.reason != Some(Reason::Waiting) {
            self.record(Record::Waited(Waited { occurrence: number.0, for_permit: false }), now, turn);
            turn.urge(Urgency::Prompt);
        }
        self.enter_lobby(number, false);
    }

    /// It waits until a run of its schedule ends, or until its tenant has a permit.
    pub(super) fn enter_lobby(&mut self, number: OccurrenceNo, for_permit: bool) {
        let row = self.occurrences.row(number).expect("what waits is in the table");
        if for_permit {
            self.lobby.for_permits.insert((row.tenant, row.available_at, number));
        } else {
            self.lobby.for_runs.insert((row.schedule, row.scheduled_for, number));
        }
        self.occurrences.hold(number, Holder::Lobby);
    }

    /// How an occurrence asks to run beside others of its schedule.
    fn asking(&self, number: OccurrenceNo, row: &OccurrenceRow) -> Asking {
        let run = self.runs.of(number);
        if run.is_some_and(|run| run.made > 0 || run.asked_at().is_some()) {
            Asking::Retry
        } else if is_one_by_one(row) {
            Asking::CaughtUp
        } else {
            Asking::OnTime
        }
    }

    /// How many others of the schedule run; what is HELD runs for all anybody knows, where that must not repeat.
    pub(super) fn running_beside(&self, schedule: u32, number: OccurrenceNo) -> u32 {
        let runs = |other: &OccurrenceNo| {
            let row = self.occurrences.row(*other).expect("what is unsettled has a row");
            let counts_held = || self.policies_of(row.schedule, row.version).effect == Effect::NonIdempotent;
            row.state == State::Running || (row.state == State::Held && counts_held())
        };
        let others = self.runs.unsettled_of(schedule).filter(|other| *other != number);
        u32::try_from(others.filter(runs).count()).unwrap_or(u32::MAX)
    }

    fn verdict_at_release(&self, number: OccurrenceNo, policies: &Policies, now: UnixMs) -> Verdict {
        if policies.overlap == Overlap::Allow {
            return Verdict::GoOn;
        }
        let row = self.occurrences.row(number).expect("it was just found");
        let asking = self.asking(number, row);
        let mut under_way = UnderWay { running: self.running_beside(row.schedule, number), one_waits: false };
        match asking {
            Asking::CaughtUp if under_way.running == 0 => {
                under_way.running = u32::from(self.one_by_one_is_out(row.schedule, number));
            }
            // Whoever waits already has its place.
            Asking::OnTime if policies.overlap == Overlap::QueueOne && row.reason != Some(Reason::Waiting) => {
                under_way.one_waits = self.one_waits_before(number, row, now);
            }
            Asking::CaughtUp | Asking::OnTime | Asking::Retry => {}
        }
        overlap::decide(policies.overlap, under_way, asking)
    }

    /// At a claim only what runs is in the way; whoever waits behind it was there first.
    pub(super) fn verdict_at_claim(&self, number: OccurrenceNo, overlap: Overlap, running: u32) -> Verdict {
        if running == 0 {
            return Verdict::GoOn;
        }
        let row = self.occurrences.row(number).expect("it was just found");
        let waits = |other: &OccurrenceNo| {
            let other = self.occurrences.row(*other).expect("it was just found");
            other.reason == Some(Reason::Waiting) && !is_one_by_one(other)
        };
        let one_waits = self.scheduled_of(row.schedule).iter().any(|other| *other != number && waits(other));
        overlap::decide(overlap, UnderWay { running, one_waits }, self.asking(number, row))
    }

    /// Whether another one of those that run one by one was released and has not ended.
    fn one_by_one_is_out(&self, schedule: u32, number: OccurrenceNo) -> bool {
        let mine = self.occurrences.row(number).expect("it was just found").place();
        let is_out = |other: OccurrenceNo| {
            let row = self.occurrences.row(other).expect("it was just found");
            let is_released = match row.state {
                State::Enqueued | State::RetryWait => true,
                // Of two that came back to wait the older one goes first.
                State::Scheduled if row.reason.is_some() => row.place() < mine,
                State::Scheduled => row.holder == Holder::Queue,
                _ => false,
            };
            other != number && row.is_tracked && is_one_by_one(row) && is_released
        };
        self.runs.unsettled_of(schedule).any(is_out) || self.scheduled_of(schedule).into_iter().any(is_out)
    }

    /// Whether one that was due before waits for its turn.
    fn one_waits_before(&self, number: OccurrenceNo, row: &OccurrenceRow, now: UnixMs) -> bool {
        let order = |row: &OccurrenceRow| (row.available_at, row.scheduled_for, row.id);
        let waits = |other: OccurrenceNo| {
            let before = self.occurrences.row(other).expect("it was just found");
            if other == number || !before.is_tracked || is_one_by_one(before) {
                return false;
            }
            match before.state {
                State::Enqueued | State::RetryWait => order(before) < order(row),
                State::Scheduled => {
                    before.reason == Some(Reason::Waiting) || (before.available_at <= now && order(before) < order(row))
                }
                _ => false,
            }
        };
        self.runs.unsettled_of(row.schedule).any(waits) || self.scheduled_of(row.schedule).into_iter().any(waits)
    }

    /// Whoever waited for what has ended goes on: of a schedule one, of a tenant as many as it has permits.
    pub(super) fn open_lobby(&mut self, now: UnixMs) {
        for schedule in std::mem::take(&mut self.lobby.stirred) {
            let waiting: Vec<_> = self.lobby.waiting_for_runs(schedule).take(LOOKED_AT).collect();
            for place in waiting {
                let number = place.2;
                // It may have been called off meanwhile, or wait for something else.
                if !self.is_in_lobby(number) {
                    self.lobby.for_runs.remove(&place);
                    continue;
                }
                let row = self.occurrences.row(number).expect("it is in the lobby");
                let policies = self.policies_of(schedule, row.version);
                if self.verdict_at_release(number, &policies, now) != Verdict::Wait {
                    self.lobby.for_runs.remove(&place);
                    self.line_up_again(number);
                    break;
                }
            }
        }
        self.open_to_permits();
    }

    fn open_to_permits(&mut self) {
        let freed = std::mem::take(&mut self.lobby.freed);
        let is_poll = self.elapsed_ms.saturating_sub(self.lobby.polled_ms) >= POLL_MS;
        if self.lobby.for_permits.is_empty() || (freed.is_empty() && !is_poll) {
            return;
        }
        if is_poll {
            self.lobby.polled_ms = self.elapsed_ms;
        }
        let mut left: BTreeMap<u32, usize> = BTreeMap::new();
        let mut going = Vec::new();
        for &(tenant, at, number) in &self.lobby.for_permits {
            let room = left.entry(tenant).or_insert_with(|| {
                let seen = if is_poll { self.permits.run_room(tenant) } else { 0 };
                seen.max(freed.get(&tenant).copied().unwrap_or(0))
            });
            if *room > 0 || !self.is_in_lobby(number) {
                *room = room.saturating_sub(1);
                going.push((tenant, at, number));
            }
        }
        for place in going {
            self.lobby.for_permits.remove(&place);
            if self.is_in_lobby(place.2) {
                self.line_up_again(place.2);
            }
        }
    }

    fn is_in_lobby(&self, number: OccurrenceNo) -> bool {
        self.occurrences.row(number).is_some_and(|row| row.holder == Holder::Lobby)
    }

    /// Back to the line it came from.
    fn line_up_again(&mut self, number: OccurrenceNo) {
        self.occurrences.hold(number, Holder::Nobody);
        let row = self.occurrences.row(number).expect("it was in the lobby");
        if row.lane == Lane::CatchUp || row.state == State::RetryWait || row.enqueued_at.is_some() {
            // Not before the log knows that it waited: what was refused is sent again.
            self.enter_line(number, self.lsn);
            return;
        }
        let batch = Batch::new(row.available_at, row.lane, self.lsn, vec![number]);
        self.due.insert(Draw::Trigger { tenant: row.tenant }, batch);
        self.occurrences.hold(number, Holder::Outbox);
    }
}

/// Whether the misfire policy admitted it late.
pub(super) fn is_caught_up(row: &OccurrenceRow) -> bool {
    row.lane == Lane::CatchUp && row.kind == Kind::Regular
}

/// Whether it is one of those that run one after another: admitted late, or backfilled.
fn is_one_by_one(row: &OccurrenceRow) -> bool {
    row.lane == Lane::CatchUp
}
