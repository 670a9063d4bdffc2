//! Time passes: schedules whose instant comes near are materialised, ahead of it.

use std::collections::BTreeMap;

use super::{
    QueueState, Shard, Turn, Urgency,
    misfire::{JUDGEMENT_COST, Verdict},
    schedules::ScheduleRow,
};
use crate::kernel::{
    occurrence::{OccurrenceNo, QueueNo, Stream},
    record::{Materialized, Record},
    time::UnixMs,
    wheel::Advance,
};

/// At most this many instants of one schedule are materialised a turn; the rest follows in the next.
const INSTANTS_A_TURN: usize = 1_000;

impl Shard {
    /// Gives time to the shard: hands over what is due, then materialises what comes near. `now` is engine time.
    pub fn advance(&mut self, now: UnixMs, turn: &mut Turn) {
        self.run_lapses(now, turn);
        self.release(now, turn);
        self.unpark(turn);
        self.expand_backfills(now, turn);
        let mut fired = std::mem::take(&mut self.fired);
        let advance = self.timers.advance(now, self.config.turn_limit, &mut fired);
        self.materialize(&fired, now, turn);
        fired.clear();
        self.fired = fired;
        // A schedule whose backlog did not fit the turn is armed for an instant that has passed.
        let is_behind = self.timers.next_deadline().is_some_and(|at| at <= now);
        turn.more |= advance == Advance::MoreToDo || is_behind;
        self.release(now, turn);
    }

    fn park(&mut self, schedule: u32) {
        let row = self.schedules.row_mut(schedule).expect("a schedule that is due has a row");
        if !std::mem::replace(&mut row.is_parked, true) {
            self.parked.push_back(schedule);
        }
    }

    /// Arms parked schedules again, some a turn, once there is reason to.
    fn unpark(&mut self, turn: &mut Turn) {
        let room = self.config.live_limit - (self.config.live_limit / 16).max(1).min(self.config.live_limit);
        if self.at_live_limit && self.live() <= room {
            self.at_live_limit = false;
            self.unparking = self.parked.len();
        }
        let count = self.unparking.min(self.config.turn_limit);
        self.unparking -= count;
        let awake: Vec<u32> = self.parked.drain(..count).collect();
        for schedule in awake {
            // Its row may have gone, or have been parked again under the same number.
            if let Some(row) = self.schedules.row_mut(schedule) {
                row.is_parked = false;
                self.rearm(schedule);
            }
        }
        turn.more |= self.unparking > 0;
    }

    /// Materialises the next instants of `schedules`, one record a millisecond.
    fn materialize(&mut self, schedules: &[u32], now: UnixMs, turn: &mut Turn) {
        let mut by_instant: BTreeMap<UnixMs, Vec<u32>> = BTreeMap::new();
        let mut budget = self.config.turn_limit;
        for &schedule in schedules {
            let Some(row) = self.schedules.row(schedule) else { continue };
            let Some(next) = row.next else { continue };
            let available_at = Self::available_at(row, next);
            if !self.may_decide(schedule, available_at, now) {
                self.park(schedule);
            } else if available_at > now {
                by_instant.entry(next).or_default().push(schedule);
            } else if budget == 0 {
                self.rearm(schedule);
            } else {
                match self.judge(schedule, self.schedule(schedule).version, now) {
                    Verdict::OwnLane => {
                        let instants = self.undecided_until(schedule, now, budget.min(INSTANTS_A_TURN));
                        budget -= instants.len();
                        for instant in instants {
                            by_instant.entry(instant).or_default().push(schedule);
                        }
                    }
                    Verdict::Misfire(decision) => {
                        self.misfire(decision, now, turn);
                        budget = budget.saturating_sub(JUDGEMENT_COST);
                    }
                }
            }
        }
        for (scheduled_for, rows) in by_instant {
            self.materialize_at(scheduled_for, rows, now, turn);
        }
    }

    /// Whether a schedule's next instant may be decided now. Ahead of time: if its queue is there, or away for less
    /// than the lead. Once it is due: only if it could enter its queue at this moment, since that is when lateness is
    /// judged, and nothing may be judged before the queue has been read back.
    fn may_decide(&mut self, schedule: u32, available_at: UnixMs, now: UnixMs) -> bool {
        self.at_live_limit |= self.live() >= self.config.live_limit;
        if self.at_live_limit {
            return false;
        }
        let since = match &self.queue {
            QueueState::Ready => {
                self.streams_away.get(&self.own_stream(self.schedule(schedule))).map(|away| away.since)
            }
            QueueState::Away { since, .. } => Some(*since),
            QueueState::Fenced { .. } => return false,
        };
        since.is_none_or(|since| available_at > now && now.since(since) <= self.config.lead_ms)
    }

    /// Where a schedule's occurrences go that are not late.
    pub(super) fn own_stream(&self, row: &ScheduleRow) -> Stream {
        Stream { queue: QueueNo(row.queue), lane: row.own_lane() }
    }

    /// Whether the catch-up lane may be given anything at the moment.
    pub(super) fn takes_catch_up(&self) -> bool {
        self.queue == QueueState::Ready && !self.at_live_limit
    }

    /// How many occurrences are under way.
    pub(super) const fn live(&self) -> usize {
        self.live
    }

    pub(super) fn materialize_at(&mut self, scheduled_for: UnixMs, mut rows: Vec<u32>, now: UnixMs, turn: &mut Turn) {
        rows.sort_unstable();
        let mut before = 0;
        let steps = rows.iter().map(|&row| row - std::mem::replace(&mut before, row)).collect();
        let first = self.occurrences.next();
        // The log's time is `now` by the time the record is applied.
        let base = now.max(self.log_time);
        let record = Materialized { scheduled_for: scheduled_for.since(base), schedules: steps };
        self.record(Record::Materialized(record), now, turn);
        self.counters.materialized += rows.len() as u64;
        let numbers = (first.0..self.occurrences.next().0).map(OccurrenceNo);
        let mut earliest = UnixMs::MAX;
        for (number, &schedule) in numbers.zip(&rows) {
            let row = self.occurrences.row(number).expect("it was just made");
            earliest = earliest.min(row.available_at);
            self.enter_outbox(number, self.lsn);
            turn.staged.push(number);
            self.rearm(schedule);
        }
        turn.materialized.push((self.lsn, earliest));
        let lead_ms = self.config.lead_ms;
        let ahead_ms = earliest.since(now);
        turn.urge(if ahead_ms.saturating_mul(2) < lead_ms { Urgency::Prompt } else { Urgency::Within(lead_ms / 4) });
    }

    /// The instants of `schedule` that are available by `now` and have no occurrence, oldest first, at most `limit`.
    fn undecided_until(&mut self, schedule: u32, now: UnixMs, limit: usize) -> Vec<UnixMs> {
        let mut instants = Vec::new();
        let row = self.schedules.row(schedule).expect("a schedule that is due has a row");
        let mut next = row.next;
        while let Some(instant) = next
            && instants.len() < limit
            && Self::available_at(row, instant) <= now
        {
            instants.push(instant);
            next = row.plan.next_known(instant, &mut self.calendar);
        }
        instants
    }

    /// Computes the next instant anew and sets the timer that materialises it.
    pub(super) fn rearm(&mut self, schedule: u32) {
        let row = self.schedules.row_mut(schedule).expect("a schedule that is named has a row");
        row.next = if row.is_firing() { row.plan.next(row.decided_through, &mut self.calendar) } else { None };
        match row.next {
            Some(next) => {
                let wake = Self::available_at(row, next).minus(self.config.lead_ms);
                self.timers.arm(schedule, wake);
            }
            None => {
                self.timers.disarm(schedule);
            }
        }
        self.schedules.recount(schedule);
    }
}
