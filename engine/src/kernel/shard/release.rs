//! What is due and durable is handed to the queue, oldest first; what is late on the way is judged instead.

use std::collections::BTreeSet;

use super::{QueueState, Release, Shard, Turn, misfire::Verdict, occurrences::Holder};
use crate::kernel::{
    gate::Lsn,
    id::Kind,
    occurrence::{Lane, OccurrenceNo, State},
    time::UnixMs,
};

/// Backfills are expanded so far ahead of what is served.
const CATCH_UP_AHEAD: usize = 1_000;

impl Shard {
    /// Puts a SCHEDULED occurrence where it waits to be handed over: the outbox, or past it the line of what is not to
    /// be judged again. It may leave once the log is durable up to `lsn`.
    pub(super) fn enter_outbox(&mut self, number: OccurrenceNo, lsn: Lsn) {
        let Some(row) = self.occurrences.row_mut(number) else { return };
        if row.lane == Lane::CatchUp {
            self.enter_line(number, lsn);
            return;
        }
        row.holder = Holder::Outbox;
        let group = self.outbox.entry(row.available_at).or_default();
        group.numbers.push(number);
        group.lsn = group.lsn.max(lsn);
        self.outbox_len += 1;
    }

    /// Puts an occurrence behind what is not judged again; one that stands there already keeps its place.
    pub(super) fn enter_line(&mut self, number: OccurrenceNo, lsn: Lsn) {
        let Some(row) = self.occurrences.row_mut(number) else { return };
        if row.holder != Holder::Line {
            row.holder = Holder::Line;
            self.line.push_back((lsn, number));
        }
    }

    /// How much the tenant's part of the catch-up lane takes before it is served.
    pub(super) fn catch_up_room(&self, _tenant: u32) -> usize {
        CATCH_UP_AHEAD.saturating_sub(self.line.len())
    }

    /// Hands over what is due and durable.
    pub(super) fn release(&mut self, now: UnixMs, turn: &mut Turn) {
        if self.queue != QueueState::Ready {
            return;
        }
        let mut budget = self.config.turn_limit;
        let mut late = BTreeSet::new();
        while let Some(mut due) = self.outbox.first_entry()
            && *due.key() <= now
        {
            if due.get().lsn > self.durable {
                turn.hasten = true;
                break;
            }
            if budget == 0 {
                turn.more = true;
                break;
            }
            let at = *due.key();
            let group = due.get_mut();
            let end = group.numbers.len().min(group.done.saturating_add(budget));
            let part = group.numbers[group.done..end].to_vec();
            group.done = end;
            if group.done == group.numbers.len() {
                due.remove();
                turn.forget_staged = Some(at);
            }
            budget -= part.len();
            self.outbox_len -= part.len();
            self.release_part(at, part, now, &mut late, turn);
        }
        for (schedule, version) in late {
            if let Verdict::Misfire(decision) = self.judge(schedule, version, now) {
                self.misfire(decision, now, turn);
            }
        }
        self.release_line(now, budget, turn);
    }

    /// A backlog is judged as a whole: once one member is late, those behind it are kept back for the judgement too.
    fn release_part(
        &mut self,
        at: UnixMs,
        mut part: Vec<OccurrenceNo>,
        now: UnixMs,
        late: &mut BTreeSet<(u32, u32)>,
        turn: &mut Turn,
    ) {
        let may_be_late = now.since(at).cast_unsigned() > self.smallest_lateness_ms;
        part.retain(|&number| {
            let Some(row) = self.occurrences.row(number) else { return false };
            if row.state != State::Scheduled || row.holder != Holder::Outbox {
                return false;
            }
            let (schedule, version) = (row.schedule, row.version);
            if row.kind == Kind::Regular {
                if may_be_late {
                    let late_ms = now.since(row.available_at).cast_unsigned();
                    if late_ms > self.policies_of(schedule, version).max_lateness_ms {
                        late.insert((schedule, version));
                    }
                }
                if !late.is_empty() && late.contains(&(schedule, version)) {
                    return false;
                }
            }
            self.occurrences.row_mut(number).expect("it was just read").holder = Holder::Queue;
            true
        });
        self.hand_over(at, part, turn);
    }

    /// What was admitted late or is sent again: behind what is due, in order.
    fn release_line(&mut self, now: UnixMs, budget: usize, turn: &mut Turn) {
        let mut part = Vec::new();
        while let Some(&(lsn, number)) = self.line.front() {
            if lsn > self.durable {
                turn.hasten = true;
                break;
            }
            if part.len() >= budget {
                turn.more = true;
                break;
            }
            self.line.pop_front();
            if let Some(row) = self.occurrences.row_mut(number)
                && row.holder == Holder::Line
            {
                row.holder = Holder::Queue;
                part.push(number);
            }
        }
        self.hand_over(now, part, turn);
    }

    fn hand_over(&mut self, at: UnixMs, mut numbers: Vec<OccurrenceNo>, turn: &mut Turn) {
        if !self.streams_away.is_empty() {
            numbers.retain(|&number| !self.withhold(number));
        }
        if !numbers.is_empty() {
            turn.releases.push(Release { at, numbers });
        }
    }

    /// Whether the occurrence's own stream takes nothing: then it goes back to where it waited, later.
    fn withhold(&mut self, number: OccurrenceNo) -> bool {
        let stream = self.entry(number).stream;
        if !self.streams_away.contains_key(&stream) {
            return false;
        }
        self.occurrences.row_mut(number).expect("its entry was just read").holder = Holder::Withheld;
        self.withheld.push(number);
        true
    }
}
