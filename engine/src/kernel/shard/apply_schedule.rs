//! `apply` of what users say: schedules begin, change, rest and end; occurrences are asked for.

use std::collections::{BTreeSet, VecDeque};

use super::{
    Inconsistent, Shard,
    lives::{Birth, has_ended},
    plan::Plan,
    requests::{Answered, BACKFILL_LIMIT, BackfillJob},
    schedules::{ScheduleRow, Text},
};
use crate::kernel::{
    gate::Lsn,
    id::{Kind, ScheduleId},
    occurrence::{Lane, OccurrenceNo, Reason, State},
    policy::{Effect, Overlap, Policies},
    record::{
        BackfillExpanded, BackfillRequested, Canceled, Closing, Paused, RangeBody, Resumed, RuleBody, ScheduleCreated,
        SpecBody, Triggered, Updated, numbers_of,
    },
    schedule::{InstantRange, RangeDisposition, ScheduleState},
    time::UnixMs,
};

/// A schedule's latest ranges are kept: more than a year of an outage a day.
const KEEP_RANGES: usize = 500;
/// A canceled schedule's id and version are remembered this long...
pub(super) const KEEP_TOMBSTONES_MS: i64 = 30 * 86_400_000;
/// ...and at most so many of them.
pub(super) const KEEP_TOMBSTONES: usize = 1_000_000;

impl Shard {
    pub(super) fn apply_created(&mut self, created: &ScheduleCreated) -> Result<(), Inconsistent> {
        let id = ScheduleId(created.id);
        self.check(self.tenants.name(created.tenant).is_some(), || format!("no tenant {}", created.tenant))?;
        self.check_spec(&created.spec)?;
        let number = self.schedules.number(id);
        let before = number.and_then(|number| self.schedules.row(number));
        let fits = before.is_none_or(|row| row.is_canceled && row.version < created.version);
        self.check(fits && created.version > 0, || format!("schedule {id} again"))?;
        let row = self.new_row(id, created);
        match number {
            Some(number) => self.revive(number, row),
            None => drop(self.schedules.push(row)),
        }
        Ok(())
    }

    fn new_row(&mut self, id: ScheduleId, created: &ScheduleCreated) -> ScheduleRow {
        let spec = &created.spec;
        let (start_at, end_at) = (spec.start_at_ms.map(UnixMs), spec.end_at_ms.map(UnixMs));
        ScheduleRow {
            id,
            version: created.version,
            tenant: created.tenant,
            queue: spec.queue,
            plan: Plan::new(&spec.rule, start_at, end_at, &mut self.calendar),
            flexible_window_ms: spec.flexible_window_ms,
            policies: self.policies.share(policies_of(spec)),
            is_canceled: false,
            is_paused: false,
            created_at: self.log_time,
            updated_at: self.log_time,
            decided_through: self.log_time,
            last_run_at: None,
            next: None,
            waiting: 0,
            made: 0,
            retries: (0, 0),
            newest: None,
            oldest: None,
            is_parked: false,
            counted: ScheduleState::Active,
            changed: Lsn(self.lsn.0 + 1),
            text: Box::new(Text {
                name: spec.name.clone(),
                payload: spec.payload.as_slice().into(),
                review_owner: spec.review_owner.clone(),
                ranges: Vec::new(),
            }),
        }
    }

    /// A new life under an old key: the history goes on.
    fn revive(&mut self, number: u32, mut row: ScheduleRow) {
        self.supersede(number);
        let old = self.schedules.row_mut(number).expect("checked by the caller");
        (row.newest, row.oldest, row.waiting) = (old.newest, old.oldest, old.waiting);
        (row.is_parked, row.counted, row.retries) = (old.is_parked, old.counted, old.retries);
        row.text.ranges = std::mem::take(&mut old.text.ranges);
        let old = std::mem::replace(old, row);
        old.plan.release(&mut self.calendar);
        self.policies.give_back(old.policies);
        self.schedules.recount(number);
        self.repace(number);
    }

    fn check_spec(&mut self, spec: &SpecBody) -> Result<(), Inconsistent> {
        self.check(self.queues.name(spec.queue).is_some(), || format!("no queue {}", spec.queue))?;
        if let RuleBody::Every { every_ms, .. } | RuleBody::After { every_ms, .. } = spec.rule {
            self.check(every_ms > 0, || format!("an interval of {every_ms} ms"))?;
        }
        self.smallest_lateness_ms = self.smallest_lateness_ms.min(spec.max_lateness_ms);
        self.has_conditions |=
            spec.overlap != Overlap::Allow || spec.effect != Effect::Idempotent || spec.retry.deadline_ms.is_some();
        Ok(())
    }

    pub(super) fn apply_updated(&mut self, updated: &Updated) -> Result<(), Inconsistent> {
        let schedule = updated.schedule;
        self.check_live(schedule)?;
        self.check_spec(&updated.spec)?;
        self.close(schedule, &updated.closing, Reason::Superseded)?;
        if !updated.keeps_due {
            self.call_off(schedule, Reason::Superseded);
            self.drop_backfills(schedule);
        }
        self.supersede(schedule);
        let spec = &updated.spec;
        let (start_at, end_at) = (spec.start_at_ms.map(UnixMs), spec.end_at_ms.map(UnixMs));
        let mut plan = Plan::new(&spec.rule, start_at, end_at, &mut self.calendar);
        let policies = self.policies.share(policies_of(spec));
        let now = self.log_time;
        let row = self.schedules.row_mut(schedule).expect("checked above");
        row.queue = spec.queue;
        row.flexible_window_ms = spec.flexible_window_ms;
        row.text.name.clone_from(&spec.name);
        row.text.payload = spec.payload.as_slice().into();
        row.text.review_owner.clone_from(&spec.review_owner);
        row.decided_through = now;
        row.updated_at = now;
        plan.go_on_from(&row.plan);
        let plan = std::mem::replace(&mut row.plan, plan);
        let policies = std::mem::replace(&mut row.policies, policies);
        plan.release(&mut self.calendar);
        self.policies.give_back(policies);
        self.repace(schedule);
        Ok(())
    }

    pub(super) fn apply_paused(&mut self, paused: &Paused) -> Result<(), Inconsistent> {
        self.check_live(paused.schedule)?;
        self.close(paused.schedule, &paused.closing, Reason::Paused)?;
        self.call_off(paused.schedule, Reason::Paused);
        self.drop_backfills(paused.schedule);
        self.turn_over(paused.schedule, true);
        Ok(())
    }

    pub(super) fn apply_resumed(&mut self, resumed: &Resumed) -> Result<(), Inconsistent> {
        self.check_live(resumed.schedule)?;
        self.push_range(resumed.schedule, RangeDisposition::Canceled(Reason::Paused), resumed.paused);
        self.turn_over(resumed.schedule, false);
        Ok(())
    }

    /// The same schedule under its next version, paused or not.
    fn turn_over(&mut self, schedule: u32, is_paused: bool) {
        self.supersede(schedule);
        let now = self.log_time;
        let row = self.schedules.row_mut(schedule).expect("checked by the caller");
        row.is_paused = is_paused;
        row.decided_through = now;
        row.updated_at = now;
        if is_paused {
            row.next = None;
        }
        self.schedules.recount(schedule);
    }

    pub(super) fn apply_canceled(&mut self, canceled: &Canceled) -> Result<(), Inconsistent> {
        let schedule = canceled.schedule;
        self.check_live(schedule)?;
        self.close(schedule, &canceled.closing, Reason::Canceled)?;
        self.call_off(schedule, Reason::Canceled);
        self.drop_backfills(schedule);
        let now = self.log_time;
        let row = self.schedules.row_mut(schedule).expect("checked above");
        row.is_canceled = true;
        row.updated_at = now;
        row.decided_through = now;
        row.next = None;
        self.schedules.recount(schedule);
        self.tombstones.push_back((schedule, now));
        self.drop_old_tombstones();
        Ok(())
    }

    fn check_live(&mut self, schedule: u32) -> Result<(), Inconsistent> {
        self.touch(schedule)?;
        self.check(!self.schedule(schedule).is_canceled, || format!("schedule {schedule} is canceled"))
    }

    /// Ends what a call ends of a schedule's pending work.
    fn close(&mut self, schedule: u32, closing: &Closing, reason: Reason) -> Result<(), Inconsistent> {
        self.check_runs(&closing.kept)?;
        let kept: BTreeSet<u64> = numbers_of(&closing.kept).collect();
        for number in self.scheduled_of(schedule) {
            if !kept.contains(&number.0) {
                self.dispose(number, State::Canceled, Some(reason));
            }
        }
        // Instants that fell into a pause are canceled for it, whichever call ends it.
        let due = if self.schedule(schedule).is_paused { Reason::Paused } else { reason };
        self.push_range(schedule, RangeDisposition::Canceled(due), closing.due);
        for range in &closing.backfills {
            self.push_range_of(schedule, Kind::Backfill, RangeDisposition::Canceled(reason), *range);
        }
        Ok(())
    }

    /// What the queue follows of a schedule ends too; what runs goes on, and ends so unless it succeeds.
    fn call_off(&mut self, schedule: u32, reason: Reason) {
        let unsettled: Vec<OccurrenceNo> = self.runs.unsettled_of(schedule).collect();
        for number in unsettled {
            match self.occurrences.row(number).map(|row| row.state) {
                Some(State::Enqueued | State::RetryWait) => self.dispose(number, State::Canceled, Some(reason)),
                Some(State::Running) => {
                    let run = self.runs.entry(number);
                    run.called_off = Some(reason);
                    run.stop_asked |= reason == Reason::Canceled;
                }
                _ => {}
            }
        }
    }

    /// Notes instants of the schedule's rule that were disposed of together.
    pub(super) fn push_range(&mut self, schedule: u32, disposition: RangeDisposition, range: Option<RangeBody>) {
        if let Some(range) = range {
            self.push_range_of(schedule, Kind::Regular, disposition, range);
            self.note_decided(schedule);
        }
    }

    fn push_range_of(&mut self, schedule: u32, kind: Kind, disposition: RangeDisposition, range: RangeBody) {
        let RangeBody { first, last, count } = range;
        let (first, last) = (self.instant(first), self.instant(last));
        let ranges = &mut self.schedules.row_mut(schedule).expect("checked by the caller").text.ranges;
        if ranges.len() >= KEEP_RANGES {
            ranges.remove(0);
        }
        ranges.push(InstantRange { kind, disposition, first, last, count });
    }

    fn drop_backfills(&mut self, schedule: u32) {
        let ended: Vec<u64> =
            self.backfills.iter().filter(|(_, job)| job.schedule == schedule).map(|(number, _)| *number).collect();
        for number in ended {
            self.end_backfill(number);
        }
    }

    fn end_backfill(&mut self, number: u64) {
        let Some(job) = self.backfills.remove(&number) else { return };
        job.plan.release(&mut self.calendar);
        if self.superseded.get(&(job.schedule, job.version)).is_some_and(|superseded| superseded.made == 0) {
            self.drop_superseded(job.schedule, job.version);
        }
    }

    /// Drops what is canceled for long, or more of it than is kept; at most two, so that a turn stays short. Before an id
    /// is forgotten its version becomes the floor, so that a key that comes back never repeats one.
    fn drop_old_tombstones(&mut self) {
        for _ in 0..2 {
            let Some(&(number, at)) = self.tombstones.front() else { return };
            if self.tombstones.len() <= KEEP_TOMBSTONES && self.log_time.since(at) <= KEEP_TOMBSTONES_MS {
                return;
            }
            self.tombstones.pop_front();
            let row = self.schedules.row(number);
            let Some(row) = row.filter(|row| row.is_canceled && row.updated_at == at) else { continue };
            self.version_floor = self.version_floor.max(row.version);
            if !self.drop_schedule(number) {
                self.tombstones.push_back((number, at));
                return;
            }
        }
    }

    /// Forgets a schedule with its history; false if some of that has not ended.
    fn drop_schedule(&mut self, number: u32) -> bool {
        let mut history = VecDeque::new();
        let mut at = self.schedule(number).newest;
        while let Some(occurrence) = at
            && let Some(row) = self.occurrences.row(occurrence)
        {
            if !has_ended(row.state, row.is_tracked) {
                return false;
            }
            history.push_back(occurrence);
            at = row.older;
        }
        for occurrence in history {
            self.forget(occurrence);
        }
        self.timers.disarm(number);
        if let Some(row) = self.schedules.remove(number) {
            row.plan.release(&mut self.calendar);
            self.policies.give_back(row.policies);
        }
        true
    }

    pub(super) fn apply_triggered(&mut self, triggered: &Triggered) -> Result<(), Inconsistent> {
        let schedule = triggered.schedule;
        self.check_live(schedule)?;
        let row = self.schedule(schedule);
        let (id, version, near) = (row.id, row.version, row.newest);
        let number = self.insert(&Birth {
            schedule,
            version,
            scheduled_for: self.log_time,
            kind: Kind::Manual,
            lane: Lane::Strict,
            discriminator: &triggered.discriminator,
            near,
        })?;
        if triggered.is_keyed {
            let occurrence = self.occurrences.row(number).expect("it was just made").id;
            self.answered.remember(id, &triggered.discriminator, Answered::Triggered(occurrence), self.log_time);
        }
        Ok(())
    }

    pub(super) fn apply_backfill(&mut self, asked: &BackfillRequested) -> Result<(), Inconsistent> {
        self.check_live(asked.schedule)?;
        let (from, to) = (self.instant(asked.from), self.instant(asked.to));
        let has_past = self.schedule(asked.schedule).plan.pace().is_none();
        let fits = UnixMs::MIN <= from && from < to && to <= self.log_time && asked.count <= BACKFILL_LIMIT && has_past;
        self.check(fits, || format!("a backfill of {} instants from {from} to {to}", asked.count))?;
        let number = self.next_backfill;
        self.next_backfill += 1;
        let row = self.schedules.row(asked.schedule).expect("checked above");
        let (id, version) = (row.id, row.version);
        if asked.count > 0 {
            let job = BackfillJob {
                schedule: asked.schedule,
                version,
                plan: row.plan.share(&mut self.calendar),
                discriminator: asked.discriminator.clone(),
                done_through: from.minus(1),
                to,
                near: None,
            };
            self.backfills.insert(number, job);
        }
        if asked.is_keyed {
            self.answered.remember(
                id,
                &asked.discriminator,
                Answered::Backfilled { occurrences: asked.count, from, to },
                self.log_time,
            );
        }
        Ok(())
    }

    pub(super) fn apply_expanded(&mut self, expanded: &BackfillExpanded) -> Result<(), Inconsistent> {
        let number = expanded.backfill;
        for &difference_ms in &expanded.instants {
            let scheduled_for = self.instant(difference_ms);
            let job = self.backfills.get(&number).filter(|job| scheduled_for > job.done_through);
            let Some(job) = job else {
                return self.check(false, || format!("backfill {number} has no instant {scheduled_for}"));
            };
            let (schedule, version, near) = (job.schedule, job.version, job.near);
            let discriminator = job.discriminator.clone();
            self.touch(schedule)?;
            let made = self.insert(&Birth {
                schedule,
                version,
                scheduled_for,
                kind: Kind::Backfill,
                lane: Lane::CatchUp,
                discriminator: &discriminator,
                near,
            })?;
            let job = self.backfills.get_mut(&number).expect("it was just read");
            job.near = Some(made);
        }
        let through = self.instant(expanded.through);
        if let Some(job) = self.backfills.get_mut(&number) {
            job.done_through = job.done_through.max(through);
        }
        if expanded.is_done {
            self.end_backfill(number);
        }
        Ok(())
    }

    pub(super) fn touch(&mut self, schedule: u32) -> Result<(), Inconsistent> {
        let changed = Lsn(self.lsn.0 + 1);
        match self.schedules.row_mut(schedule) {
            Some(row) => {
                row.changed = changed;
                Ok(())
            }
            None => self.check(false, || format!("no schedule {schedule}")),
        }
    }
}

fn policies_of(spec: &SpecBody) -> Policies {
    let &SpecBody { misfire, max_lateness_ms, overlap, retry, effect, .. } = spec;
    Policies { misfire, max_lateness_ms, overlap, retry, effect }
}
