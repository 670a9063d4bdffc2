//! Time passes: schedules whose instant comes near are materialised, ahead of it.

use std::collections::BTreeMap;

use super::{QueueState, Shard, Turn, Urgency, misfire::Verdict};
use crate::kernel::{
    gate::Lsn,
    occurrence::{Lane, OccurrenceNo, State},
    record::{Materialized, Record},
    time::UnixMs,
    wheel::Advance,
};

/// At most this many instants of one schedule are materialised a turn; the rest follows in the next.
const INSTANTS_A_TURN: usize = 1_000;

impl Shard {
    /// Gives time to the shard: hands over what is due, then materialises what comes near. `now` is engine time.
    pub fn advance(&mut self, now: UnixMs, turn: &mut Turn) {
        self.release(now, turn);
        if self.materializes(now) && !self.parked.is_empty() {
            for schedule in std::mem::take(&mut self.parked) {
                self.timers.arm(schedule, now);
            }
        }
        let mut fired = std::mem::take(&mut self.fired);
        let advance = self.timers.advance(now, self.config.turn_limit, &mut fired);
        turn.more |= advance == Advance::MoreToDo;
        self.materialize(&fired, now, turn);
        fired.clear();
        self.fired = fired;
        self.release(now, turn);
    }

    /// Materialises the next instants of `schedules`, one record a millisecond.
    fn materialize(&mut self, schedules: &[u32], now: UnixMs, turn: &mut Turn) {
        let mut by_instant: BTreeMap<UnixMs, Vec<u32>> = BTreeMap::new();
        for &schedule in schedules {
            let row = self.schedule(schedule);
            let Some(next) = row.next else { continue };
            if !self.materializes(now) {
                self.parked.push(schedule);
            } else if Self::available_at(row, next) > now {
                by_instant.entry(next).or_default().push(schedule);
            } else {
                match self.judge(schedule, now) {
                    Verdict::OwnLane => {
                        for instant in self.undecided_until(schedule, now) {
                            by_instant.entry(instant).or_default().push(schedule);
                        }
                    }
                    Verdict::Misfire(misfired) => self.misfire(misfired, now, turn),
                }
            }
        }
        for (scheduled_for, rows) in by_instant {
            self.materialize_at(scheduled_for, rows, now, turn);
        }
    }

    fn materialize_at(&mut self, scheduled_for: UnixMs, mut rows: Vec<u32>, now: UnixMs, turn: &mut Turn) {
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
            let (available_at, lane) = (row.available_at, row.lane);
            earliest = earliest.min(available_at);
            self.enter_outbox(number, available_at, lane, self.lsn);
            turn.staged.push(number);
            self.rearm(schedule);
        }
        turn.materialized.push((self.lsn, earliest));
        let lead_ms = self.config.lead_ms;
        let ahead_ms = earliest.since(now);
        turn.urge(if ahead_ms * 2 < lead_ms { Urgency::Prompt } else { Urgency::Within(lead_ms / 4) });
    }

    /// The instants of `schedule` that are available by `now` and have no occurrence, oldest first.
    fn undecided_until(&mut self, schedule: u32, now: UnixMs) -> Vec<UnixMs> {
        let mut instants = Vec::new();
        let row = self.schedules.row(schedule).expect("a schedule that is due has a row");
        let mut next = row.next;
        while let Some(instant) = next
            && instants.len() < INSTANTS_A_TURN
            && Self::available_at(row, instant) <= now
        {
            instants.push(instant);
            next = row.plan.next(instant, &mut self.calendar);
        }
        instants
    }

    /// Puts an occurrence where it waits to be handed over: the outbox, or past it what is not to be judged again.
    pub(super) fn enter_outbox(&mut self, number: OccurrenceNo, available_at: UnixMs, lane: Lane, lsn: Lsn) {
        if lane == Lane::CatchUp {
            self.unjudged.push_back((lsn, number));
            return;
        }
        let group = self.outbox.entry(available_at).or_default();
        group.numbers.push(number);
        group.lsn = group.lsn.max(lsn);
    }

    /// Computes the next instant anew and sets the timer that materialises it.
    pub(super) fn rearm(&mut self, schedule: u32) {
        let row = self.schedules.row_mut(schedule).expect("a schedule that is named has a row");
        row.next = if row.canceled { None } else { row.plan.next(row.decided_through, &mut self.calendar) };
        match row.next {
            Some(next) => {
                let wake = Self::available_at(row, next).minus(self.config.lead_ms);
                self.timers.arm(schedule, wake);
            }
            None => {
                self.timers.disarm(schedule);
            }
        }
    }

    /// Hands over what is due and durable.
    fn release(&mut self, now: UnixMs, turn: &mut Turn) {
        if self.queue != QueueState::Ready {
            return;
        }
        let mut budget = self.config.turn_limit;
        let mut late = Vec::new();
        while let Some(mut due) = self.outbox.first_entry()
            && *due.key() <= now
        {
            if due.get().lsn > self.durable {
                turn.hasten = true;
                break;
            }
            let at = *due.key();
            let group = due.get_mut();
            let end = group.numbers.len().min(group.done + budget);
            let part = group.numbers[group.done..end].to_vec();
            group.done = end;
            if group.done == group.numbers.len() {
                due.remove();
                turn.forget_staged = Some(at);
            }
            budget -= part.len();
            self.release_part(at, part, now, &mut late, turn);
            if budget == 0 {
                turn.more = true;
                break;
            }
        }
        for schedule in late {
            if let Verdict::Misfire(misfired) = self.judge(schedule, now) {
                self.misfire(misfired, now, turn);
            }
        }
        self.release_unjudged(now, budget, turn);
    }

    fn release_part(
        &mut self,
        at: UnixMs,
        mut part: Vec<OccurrenceNo>,
        now: UnixMs,
        late: &mut Vec<u32>,
        turn: &mut Turn,
    ) {
        let may_be_late = now.since(at).cast_unsigned() > self.smallest_lateness_ms;
        part.retain(|&number| {
            let Some(row) = self.occurrences.row_mut(number) else { return false };
            if row.state != State::Scheduled || row.handed || row.lane == Lane::CatchUp {
                return false;
            }
            if may_be_late {
                let schedule = self.schedules.row(row.schedule).expect("an occurrence has a schedule");
                if now.since(row.available_at).cast_unsigned() > schedule.max_lateness_ms {
                    late.push(row.schedule);
                    return false;
                }
            }
            row.handed = true;
            true
        });
        self.hand_over(at, part, turn);
    }

    /// What was admitted late or is sent again: behind what is due, in order.
    fn release_unjudged(&mut self, now: UnixMs, budget: usize, turn: &mut Turn) {
        let mut part = Vec::new();
        while let Some(&(lsn, number)) = self.unjudged.front() {
            if lsn > self.durable {
                turn.hasten = true;
                break;
            }
            if part.len() >= budget {
                turn.more = true;
                break;
            }
            self.unjudged.pop_front();
            if let Some(row) = self.occurrences.row_mut(number)
                && !row.handed
                && matches!(row.state, State::Scheduled | State::Enqueued)
            {
                row.handed = true;
                part.push(number);
            }
        }
        self.hand_over(now, part, turn);
    }

    fn hand_over(&mut self, at: UnixMs, mut numbers: Vec<OccurrenceNo>, turn: &mut Turn) {
        if !self.streams_away.is_empty() {
            numbers.retain(|&number| !self.hold_for_stream(number));
        }
        if !numbers.is_empty() {
            turn.releases.push(super::Release { at, numbers });
        }
    }

    /// Whether the occurrence's own stream takes nothing: then it goes back to where it waited.
    fn hold_for_stream(&mut self, number: OccurrenceNo) -> bool {
        let stream = self.entry(number).stream;
        if !self.streams_away.contains_key(&stream) {
            return false;
        }
        self.held_for_stream.push(number);
        true
    }
}
