//! What is due and durable is handed to the queue, in turns over the tenants; what is late on the way is judged instead.
//!
//! Strict and flexible work goes first, then what the queue lost, then the catch-up lines. Handed over and not yet
//! landed is at most a window's worth: whoever comes later does not wait behind another one's burst. Catch-up work has
//! a quarter of it, so that strict work never waits behind it either.

use super::{
    QueueState, Release, Shard, Turn,
    lines::{Line, Lines, Place, QUANTUM},
    misfire::{JUDGEMENT_COST, Verdict},
    occurrences::{Holder, OccurrenceRow},
};
use crate::kernel::{
    id::Kind,
    occurrence::{Lane, OccurrenceNo, QueueNo, State},
    permits::Draw,
    time::UnixMs,
};

/// Backfills are expanded so far ahead of what is served.
const CATCH_UP_AHEAD: usize = 1_000;
/// Catch-up work is given one part in so many of the window.
const CATCH_UP_PART: usize = 4;

/// What one release may still do.
struct Pass {
    now: UnixMs,
    /// How many occurrences may still be looked at.
    budget: usize,
}

/// What a line's head is.
enum Ahead {
    /// It may be handed over.
    Ready(UnixMs, OccurrenceNo),
    /// The log does not hold it yet.
    Undurable,
    /// The line is empty, or the pass is over.
    Over,
}

impl Shard {
    /// How much the tenant's part of the catch-up lane takes before it is served.
    pub(super) fn catch_up_room(&self, tenant: u32) -> usize {
        let line = |queue| Draw::CatchUp { tenant, queue: QueueNo(queue) };
        let waiting: usize = self.catch_up.lengths(line(0)..=line(u32::MAX)).sum();
        CATCH_UP_AHEAD.saturating_sub(waiting)
    }

    /// Hands over what is due and durable, as far as rates and the window allow.
    pub(super) fn release(&mut self, now: UnixMs, turn: &mut Turn) {
        if self.queue != QueueState::Ready {
            return;
        }
        self.open_lobby(now);
        let mut pass = Pass { now, budget: self.config.turn_limit };
        turn.more |= !self.line_up(now, self.config.turn_limit);
        self.due.wake(now);
        self.catch_up.wake(now);
        // Judging puts things into the outbox and the catch-up lines, never into these.
        let mut due = std::mem::take(&mut self.due);
        self.serve_all(&mut due, &mut pass, turn);
        self.due = due;
        self.send_again(&mut pass, turn);
        let mut catch_up = std::mem::take(&mut self.catch_up);
        self.serve_all(&mut catch_up, &mut pass, turn);
        self.catch_up = catch_up;
        if pass.budget < self.config.turn_limit || turn.forget_staged.is_some() {
            let waiting = self.due.oldest().into_iter().chain(self.outbox.next_at()).min();
            turn.forget_staged = Some(waiting.map_or(now, |oldest| now.min(oldest.minus(1))));
        }
    }

    /// How many occurrences may be handed over in a lane before some have landed.
    fn room(&self, lane: Lane) -> usize {
        let handed = self.occurrences.handed_over();
        let room = self.config.window.saturating_sub(handed.iter().sum());
        if lane == Lane::CatchUp {
            // At least one, or a tiny window would never let it pass.
            let part = (self.config.window / CATCH_UP_PART).max(1);
            room.min(part.saturating_sub(handed[Lane::CatchUp as usize]))
        } else {
            room
        }
    }

    fn serve_all(&mut self, lines: &mut Lines, pass: &mut Pass, turn: &mut Turn) {
        let mut undurable = Vec::new();
        let mut room = 0;
        while let Some((draw, mut line)) = lines.next() {
            room = self.room(lane_of(draw));
            if pass.budget == 0 || room == 0 {
                lines.back(draw, line, Place::Front);
                break;
            }
            match self.serve(draw, &mut line, room, pass, turn) {
                Some(place) => lines.back(draw, line, place),
                None if lines.restore(draw, line) => undurable.push(draw),
                None => {}
            }
        }
        // What finds no room is woken by what lands.
        turn.more |= pass.budget == 0 && room > 0 && lines.has_turns();
        turn.hasten |= !undurable.is_empty();
        lines.rejoin(undurable);
    }

    /// Gives a line its turn. Where it goes on; `None` if its head is not durable.
    fn serve(&mut self, draw: Draw, line: &mut Line, room: usize, pass: &mut Pass, turn: &mut Turn) -> Option<Place> {
        if line.deficit == 0 {
            line.deficit = QUANTUM * self.settings.weight(draw.tenant());
        }
        // What is late at the head costs no token.
        let mut ahead = self.look_ahead(draw, line, pass, turn);
        let wanted = line.len().min(line.deficit as usize).min(room).min(pass.budget);
        let granted = match ahead {
            Ahead::Ready(..) => self.permits.take(draw, wanted, pass.now),
            Ahead::Undurable | Ahead::Over => 0,
        };
        let mut used = 0;
        while used < granted
            && let Ahead::Ready(at, number) = ahead
        {
            line.step();
            pass.budget -= 1;
            used += 1;
            self.hand_over(draw, at, number, turn);
            ahead = self.look_ahead(draw, line, pass, turn);
        }
        self.permits.give_back(draw, granted - used);
        line.deficit -= u32::try_from(used).expect("a turn hands over less than 2^32");
        match ahead {
            Ahead::Undurable => None,
            Ahead::Ready(..) if granted < wanted => {
                line.deficit = 0;
                self.count_throttled(draw);
                Some(Place::At(self.permits.ready_at(draw, pass.now).max(pass.now.plus(1))))
            }
            Ahead::Ready(..) | Ahead::Over if line.deficit == 0 => Some(Place::Back),
            Ahead::Ready(..) | Ahead::Over => Some(Place::Front),
        }
    }

    /// Clears a line's head of what is not to be handed over: what has ended or moved, what is late, what has nowhere
    /// to go.
    fn look_ahead(&mut self, draw: Draw, line: &mut Line, pass: &mut Pass, turn: &mut Turn) -> Ahead {
        let holder = match draw {
            Draw::Trigger { .. } => Holder::Outbox,
            Draw::CatchUp { .. } => Holder::Line,
        };
        while let Some(head) = line.head() {
            if head.lsn > self.durable {
                return Ahead::Undurable;
            }
            if pass.budget == 0 {
                break;
            }
            let row = self.occurrences.row(head.number);
            if let Some(row) = row.filter(|row| row.state == State::Scheduled && row.holder == holder) {
                if !self.streams_away.is_empty() && self.streams_away.contains_key(&row.stream()) {
                    self.withhold(head.number);
                } else if let Some((schedule, version)) = self.late(row, pass.now)
                    && let Verdict::Misfire(decision) = self.judge(schedule, version, pass.now)
                {
                    self.misfire(decision, pass.now, turn);
                    pass.budget = pass.budget.saturating_sub(JUDGEMENT_COST);
                } else if self.may_leave(head.number, pass.now, turn) {
                    return Ahead::Ready(head.at, head.number);
                }
            }
            line.step();
            pass.budget = pass.budget.saturating_sub(1);
        }
        Ahead::Over
    }

    /// Whose backlog is to be judged, if the occurrence is late by more than allowed.
    fn late(&self, row: &OccurrenceRow, now: UnixMs) -> Option<(u32, u32)> {
        let late_ms = now.since(row.available_at).cast_unsigned();
        // Most are on time: their policies need not be looked up.
        let is_judged = row.kind != Kind::Regular || row.lane == Lane::CatchUp || row.reason.is_some();
        if late_ms <= self.smallest_lateness_ms || is_judged {
            return None;
        }
        let (schedule, version) = (row.schedule, row.version);
        (late_ms > self.policies_of(schedule, version).max_lateness_ms).then_some((schedule, version))
    }

    /// What the queue lost or is to be handed again, in order; no rate holds it back.
    fn send_again(&mut self, pass: &mut Pass, turn: &mut Turn) {
        let mut room = self.room(Lane::Strict);
        while let Some(&(lsn, number)) = self.resends.front() {
            if lsn > self.durable {
                turn.hasten = true;
                break;
            }
            if pass.budget == 0 || room == 0 {
                turn.more |= room > 0;
                break;
            }
            self.resends.pop_front();
            pass.budget -= 1;
            let is_open = |row: &&OccurrenceRow| {
                matches!(row.state, State::Enqueued | State::RetryWait | State::Scheduled) && row.holder == Holder::Line
            };
            if let Some(row) = self.occurrences.row(number).filter(is_open) {
                if self.streams_away.contains_key(&row.stream()) {
                    self.withhold(number);
                } else if self.may_leave(number, pass.now, turn) {
                    room -= 1;
                    self.occurrences.hold(number, Holder::Queue);
                    push(turn, Release::UNSTAGED, number);
                }
            }
        }
    }

    fn hand_over(&mut self, draw: Draw, at: UnixMs, number: OccurrenceNo, turn: &mut Turn) {
        self.occurrences.hold(number, Holder::Queue);
        let staged_at = match draw {
            Draw::Trigger { .. } => at,
            // It was staged for another stream, if it was.
            Draw::CatchUp { .. } => Release::UNSTAGED,
        };
        push(turn, staged_at, number);
    }

    /// The occurrence's own stream takes nothing: it goes back to where it waited, later.
    fn withhold(&mut self, number: OccurrenceNo) {
        self.occurrences.hold(number, Holder::Withheld);
        self.withheld.push(number);
    }

    fn count_throttled(&mut self, draw: Draw) {
        let tenant = draw.tenant() as usize;
        if self.throttled.len() <= tenant {
            self.throttled.resize(tenant + 1, [0; 2]);
        }
        let rate = usize::from(matches!(draw, Draw::CatchUp { .. }));
        self.throttled[tenant][rate] += 1;
    }
}

const fn lane_of(draw: Draw) -> Lane {
    match draw {
        Draw::Trigger { .. } => Lane::Strict,
        Draw::CatchUp { .. } => Lane::CatchUp,
    }
}

/// Occurrences of one instant that follow each other leave together.
fn push(turn: &mut Turn, at: UnixMs, number: OccurrenceNo) {
    match turn.releases.last_mut() {
        Some(last) if last.at == at => last.numbers.push(number),
        _ => turn.releases.push(Release { at, numbers: vec![number] }),
    }
}
