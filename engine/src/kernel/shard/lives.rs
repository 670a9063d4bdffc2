//! How an occurrence enters the tables, ends, and is forgotten; part of `apply`.

use super::{
    Inconsistent, Shard,
    occurrences::{Holder, OccurrenceRow},
    schedules::Superseded,
};
use crate::kernel::{
    gate::Lsn,
    id::{Kind, OccurrenceId},
    occurrence::{Lane, OccurrenceNo, Reason, State},
    time::UnixMs,
};

/// Ended occurrences can be looked up for at least an hour...
const KEEP_ENDED_MS: i64 = 3_600_000;
/// ...and at least this many of them...
const KEEP_ENDED: usize = 100_000;
/// ...but never more than this, whatever their age.
const KEEP_ENDED_AT_MOST: usize = 2_000_000;

/// An occurrence to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Birth<'a> {
    pub(super) schedule: u32,
    pub(super) version: u32,
    pub(super) scheduled_for: UnixMs,
    pub(super) kind: Kind,
    pub(super) lane: Lane,
    /// What tells it from others of its instant: empty for a regular one.
    pub(super) discriminator: &'a [u8],
    /// An occurrence of the same history that stands near to it.
    pub(super) near: Option<OccurrenceNo>,
}

impl Shard {
    /// A new occurrence of the schedule's own rule, in `lane` or its own; the cursor moves with it.
    pub(super) fn insert_regular(
        &mut self,
        schedule: u32,
        scheduled_for: UnixMs,
        lane: Option<Lane>,
    ) -> Result<OccurrenceNo, Inconsistent> {
        let row = self.schedules.row_mut(schedule).filter(|row| row.decided_through < scheduled_for && row.is_firing());
        let Some(row) = row.filter(|row| !row.plan.is_open()) else {
            let what = format!("schedule {schedule} cannot have an occurrence at {scheduled_for}");
            return Err(Inconsistent::new(self.lsn, what));
        };
        row.decided_through = scheduled_for;
        if let Some(pace) = row.plan.pace_mut() {
            pace.wait();
        }
        let (version, lane) = (row.version, lane.unwrap_or(row.own_lane()));
        let near = row.newest;
        self.insert(&Birth { schedule, version, scheduled_for, kind: Kind::Regular, lane, discriminator: b"", near })
    }

    /// Puts a SCHEDULED occurrence into the tables, at its place in its schedule's history.
    pub(super) fn insert(&mut self, birth: &Birth<'_>) -> Result<OccurrenceNo, Inconsistent> {
        let Birth { schedule, version, scheduled_for, kind, .. } = *birth;
        let Some(row) = self.schedules.row_mut(schedule) else {
            return Err(Inconsistent::new(self.lsn, format!("no schedule {schedule}")));
        };
        let id = OccurrenceId::of(row.id, version, scheduled_for, kind, birth.discriminator);
        if self.occurrences.number(id).is_some() {
            return Err(Inconsistent::new(self.lsn, format!("occurrence {id} again")));
        }
        let available_at = match kind {
            Kind::Regular => id.available_at(scheduled_for, row.flexible_window_ms),
            Kind::Manual | Kind::Backfill => self.log_time,
        };
        let occurrence = OccurrenceRow {
            id,
            schedule,
            version,
            tenant: row.tenant,
            queue: row.queue,
            kind,
            scheduled_for,
            available_at,
            enqueued_at: None,
            entry_at: UnixMs::MIN,
            entry: None,
            state: State::Scheduled,
            is_tracked: self.settings.is_tracked(row.queue),
            is_settled: false,
            reason: None,
            lane: birth.lane,
            holder: Holder::Nobody,
            older: None,
            newer: None,
        };
        row.waiting += 1;
        row.changed = Lsn(self.lsn.0 + 1);
        if row.version == version {
            row.made += 1;
        } else if let Some(superseded) = self.superseded.get_mut(&(schedule, version)) {
            superseded.made += 1;
        }
        self.live += 1;
        let number = self.occurrences.push(occurrence);
        self.link(number, birth.near);
        self.schedules.recount(schedule);
        Ok(number)
    }

    /// Puts `number` at its place in its schedule's history, looking from `near` on.
    fn link(&mut self, number: OccurrenceNo, near: Option<OccurrenceNo>) {
        let occurrence = self.occurrences.row(number).expect("it was just made");
        let (place, schedule) = (occurrence.place(), occurrence.schedule);
        let row = self.schedules.row(schedule).expect("an occurrence has a schedule");
        let near = near.filter(|near| self.occurrences.row(*near).is_some_and(|row| row.schedule == schedule));
        let mut older = near.or(row.newest);
        let neighbour = |number: Option<OccurrenceNo>| number.and_then(|number| self.occurrences.row(number));
        while let Some(row) = neighbour(older)
            && row.place() > place
        {
            older = row.older;
        }
        let mut newer = neighbour(older).map_or(row.oldest, |row| row.newer);
        while let Some(row) = neighbour(newer)
            && row.place() < place
        {
            older = newer;
            newer = row.newer;
        }
        let occurrence = self.occurrences.row_mut(number).expect("it was just made");
        (occurrence.older, occurrence.newer) = (older, newer);
        self.set_newer(schedule, older, Some(number));
        self.set_older(schedule, newer, Some(number));
    }

    /// Makes `newer` follow `number` in the history of `schedule`, or begin it.
    fn set_newer(&mut self, schedule: u32, number: Option<OccurrenceNo>, newer: Option<OccurrenceNo>) {
        match number.and_then(|number| self.occurrences.row_mut(number)) {
            Some(row) => row.newer = newer,
            None => self.schedules.row_mut(schedule).expect("an occurrence has a schedule").oldest = newer,
        }
    }

    /// Makes `older` go before `number` in the history of `schedule`, or end it.
    fn set_older(&mut self, schedule: u32, number: Option<OccurrenceNo>, older: Option<OccurrenceNo>) {
        match number.and_then(|number| self.occurrences.row_mut(number)) {
            Some(row) => row.older = older,
            None => self.schedules.row_mut(schedule).expect("an occurrence has a schedule").newest = older,
        }
    }

    /// The SCHEDULED occurrences of a schedule, oldest first.
    pub(super) fn scheduled_of(&self, schedule: u32) -> Vec<OccurrenceNo> {
        let Some(row) = self.schedules.row(schedule) else { return Vec::new() };
        let mut found = Vec::new();
        let mut at = row.newest;
        while let Some(number) = at
            && found.len() < row.waiting as usize
        {
            let Some(occurrence) = self.occurrences.row(number) else { break };
            if occurrence.state == State::Scheduled {
                found.push(number);
            }
            at = occurrence.older;
        }
        found.reverse();
        found
    }

    /// An occurrence moves on without the queue, whatever that says of it later.
    pub(super) fn dispose(&mut self, number: OccurrenceNo, state: State, reason: Option<Reason>) {
        self.occurrences.hold(number, Holder::Nobody);
        self.move_to(number, state, reason);
    }

    /// Moves an occurrence to another state, and everything that is counted or found by it.
    pub(super) fn move_to(&mut self, number: OccurrenceNo, state: State, reason: Option<Reason>) {
        let row = self.occurrences.row_mut(number).expect("checked by the caller");
        let before = std::mem::replace(&mut row.state, state);
        row.reason = reason;
        let (schedule, tenant, is_tracked) = (row.schedule, row.tenant, row.is_tracked);
        self.live += usize::from(is_live(state, is_tracked));
        self.live -= usize::from(is_live(before, is_tracked));
        let of = self.schedules.row_mut(schedule).expect("an occurrence has a schedule");
        of.waiting += u32::from(state == State::Scheduled);
        of.waiting -= u32::from(before == State::Scheduled);
        of.changed = Lsn(self.lsn.0 + 1);
        self.schedules.recount(schedule);
        if is_tracked {
            self.runs.set_unsettled(schedule, number, is_unsettled(state));
            self.note_run(number, before, state, (schedule, tenant));
        }
        if is_over(state, is_tracked) && !is_over(before, is_tracked) {
            self.note_end(number);
        }
        if has_ended(state, is_tracked) {
            self.end(number);
        }
    }

    fn note_run(&mut self, number: OccurrenceNo, before: State, state: State, (schedule, tenant): (u32, u32)) {
        if matches!(before, State::Running | State::RetryWait) {
            self.runs.set_lapse(number, None);
        }
        if before == State::Running {
            self.runs.set_claim(number, None);
        }
        if before == State::Held || state == State::Held {
            self.runs.set_held(tenant, number, state == State::Held);
        }
        if before == State::Running && self.is_up {
            self.permits.run_ended(tenant);
            self.lobby.freed(tenant);
        }
        self.lobby.stir(schedule);
    }

    /// Notes an end, and forgets the oldest ends that need not be kept: at most two, so that a turn after a quiet hour
    /// does not pay for all of them.
    pub(super) fn end(&mut self, number: OccurrenceNo) {
        self.ended.push_back((number, self.log_time));
        for _ in 0..2 {
            let Some(&(oldest, at)) = self.ended.front() else { return };
            let too_many = self.ended.len() > KEEP_ENDED_AT_MOST;
            let old = self.ended.len() > KEEP_ENDED && self.log_time.since(at) > KEEP_ENDED_MS;
            if !too_many && !old {
                return;
            }
            self.ended.pop_front();
            self.forget(oldest);
        }
    }

    pub(super) fn forget(&mut self, number: OccurrenceNo) {
        let Some(row) = self.occurrences.remove(number) else { return };
        self.runs.forget(row.tenant, number);
        self.has_forgotten = true;
        self.set_newer(row.schedule, row.older, row.newer);
        self.set_older(row.schedule, row.newer, row.older);
        let schedule = self.schedules.row_mut(row.schedule).expect("an occurrence has a schedule");
        if schedule.version == row.version {
            schedule.made -= 1;
        } else if let Some(superseded) = self.superseded.get_mut(&(row.schedule, row.version)) {
            superseded.made -= 1;
            if superseded.made == 0 {
                self.drop_superseded(row.schedule, row.version);
            }
        }
    }

    /// Begins the schedule's next version; what its occurrences still need of this one is kept.
    pub(super) fn supersede(&mut self, schedule: u32) {
        let row = self.schedules.row_mut(schedule).expect("checked by the caller");
        let made = std::mem::take(&mut row.made);
        let version = row.version;
        row.version = version.saturating_add(1);
        let runs_on = self.backfills.values().any(|job| job.schedule == schedule && job.version == version);
        if made > 0 || runs_on {
            let superseded = Superseded {
                policies: row.policies.clone(),
                payload: row.text.payload.clone(),
                flexible_window_ms: row.flexible_window_ms,
                made,
            };
            self.superseded.insert((schedule, version), superseded);
        }
    }

    pub(super) fn drop_superseded(&mut self, schedule: u32, version: u32) {
        let runs_on = self.backfills.values().any(|job| job.schedule == schedule && job.version == version);
        if runs_on {
            return;
        }
        if let Some(superseded) = self.superseded.remove(&(schedule, version)) {
            self.policies.give_back(superseded.policies);
        }
    }
}

/// Whether an occurrence of this state is under way. What waits for a person is not.
pub(super) const fn is_live(state: State, is_tracked: bool) -> bool {
    match state {
        State::Scheduled | State::Running | State::RetryWait => true,
        State::Enqueued => is_tracked,
        State::Succeeded | State::Dead | State::Held | State::Missed | State::SkippedOverlap | State::Canceled => false,
    }
}

/// Whether a queue follows an occurrence of this state, which has left the shard and has not ended.
pub(super) const fn is_unsettled(state: State) -> bool {
    match state {
        State::Enqueued | State::Running | State::RetryWait | State::Held => true,
        State::Scheduled | State::Succeeded | State::Dead | State::Missed | State::SkippedOverlap | State::Canceled => {
            false
        }
    }
}

/// Whether an occurrence of this state has come to an end; what is DEAD may be replayed, which is another story.
pub(super) const fn is_over(state: State, is_tracked: bool) -> bool {
    matches!(state, State::Dead) || has_ended(state, is_tracked)
}

/// Whether nothing moves an occurrence of this state on any more.
pub(super) const fn has_ended(state: State, is_tracked: bool) -> bool {
    match state {
        State::Scheduled | State::Running | State::RetryWait | State::Dead | State::Held => false,
        State::Enqueued => !is_tracked,
        State::Succeeded | State::Missed | State::SkippedOverlap | State::Canceled => true,
    }
}
