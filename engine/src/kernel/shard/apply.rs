//! `apply`: the only function that changes what the log remembers, live and in recovery.

use std::collections::BTreeSet;

use super::{
    Shard, StreamMemory, Turn,
    occurrences::{Holder, OccurrenceRow},
    plan::Plan,
    schedules::{ScheduleRow, Text},
    stream_of,
};
use crate::kernel::{
    gate::Lsn,
    id::{Kind, OccurrenceId, ScheduleId},
    occurrence::{EntryId, Lane, OccurrenceNo, State},
    record::{Canceled, Enqueued, Lost, Materialized, Misfired, Record, RuleBody, ScheduleCreated, numbers_of},
    schedule::{InstantRange, RangeDisposition, ScheduleState},
    time::UnixMs,
};

/// Ended occurrences can be looked up for at least an hour...
const KEEP_ENDED_MS: i64 = 3_600_000;
/// ...and at least this many of them...
const KEEP_ENDED: usize = 100_000;
/// ...but never more than this, whatever their age.
const KEEP_ENDED_AT_MOST: usize = 2_000_000;
/// A schedule's latest ranges are kept: more than a year of an outage a day.
const KEEP_RANGES: usize = 500;

/// A record that does not fit those before it: the log is not one that this shard wrote.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record {lsn} does not fit those before it: {what}")]
pub struct Inconsistent {
    lsn: u64,
    what: String,
}

impl Inconsistent {
    /// The record behind `lsn` does not fit.
    pub(super) fn new(lsn: Lsn, what: impl Into<String>) -> Self {
        Self { lsn: lsn.0 + 1, what: what.into() }
    }
}

impl Shard {
    /// Applies a decision and puts it into the turn. Engine time that moved since the last record goes before it.
    pub(super) fn record(&mut self, record: Record, now: UnixMs, turn: &mut Turn) {
        let forward_ms = now.since(self.log_time);
        if forward_ms > 0 {
            self.commit(Record::Time(crate::kernel::record::Time { forward_ms: forward_ms.cast_unsigned() }), turn);
        }
        self.commit(record, turn);
    }

    fn commit(&mut self, record: Record, turn: &mut Turn) {
        self.apply(&record).expect("a decision fits the state it was made on");
        self.lsn = Lsn(self.lsn.0 + 1);
        turn.records.push(record);
    }

    /// Changes the state as `record` says.
    pub(super) fn apply(&mut self, record: &Record) -> Result<(), Inconsistent> {
        match record {
            Record::Opened(opened) => {
                self.check(self.opened.as_ref().is_none_or(|before| before.generation < opened.generation), || {
                    format!("generation {} does not grow", opened.generation)
                })?;
                self.opened = Some(opened.clone());
            }
            Record::Time(time) => {
                let forward_ms = i64::try_from(time.forward_ms).unwrap_or(i64::MAX);
                self.log_time = self.log_time.plus(forward_ms);
            }
            Record::TenantNamed(named) => {
                self.check(self.tenants.number(&named.name).is_none(), || format!("tenant {:?} again", named.name))?;
                self.tenants.push(&named.name);
            }
            Record::QueueNamed(named) => {
                self.check(self.queues.number(&named.name).is_none(), || format!("queue {:?} again", named.name))?;
                self.queues.push(&named.name);
                self.streams.extend([StreamMemory::default(); 3]);
            }
            Record::ScheduleCreated(created) => self.apply_created(created)?,
            Record::Canceled(canceled) => self.apply_canceled(canceled)?,
            Record::Materialized(materialized) => self.apply_materialized(materialized)?,
            Record::Misfired(misfired) => self.apply_misfired(misfired)?,
            Record::Enqueued(enqueued) => self.apply_enqueued(enqueued)?,
            Record::Completed(completed) => self.apply_completed(OccurrenceNo(completed.occurrence))?,
            Record::Lost(lost) => self.apply_lost(lost)?,
        }
        Ok(())
    }

    fn check(&self, holds: bool, what: impl FnOnce() -> String) -> Result<(), Inconsistent> {
        if holds { Ok(()) } else { Err(Inconsistent::new(self.lsn, what())) }
    }

    fn instant(&self, difference_ms: i64) -> UnixMs {
        self.log_time.plus(difference_ms)
    }

    fn apply_created(&mut self, created: &ScheduleCreated) -> Result<(), Inconsistent> {
        let id = ScheduleId(created.id);
        self.check(self.schedules.number(id).is_none(), || format!("schedule {id} again"))?;
        self.check(self.tenants.name(created.tenant).is_some(), || format!("no tenant {}", created.tenant))?;
        self.check(self.queues.name(created.queue).is_some(), || format!("no queue {}", created.queue))?;
        if let RuleBody::Every { every_ms, .. } = created.rule {
            self.check(every_ms > 0, || format!("an interval of {every_ms} ms"))?;
        }
        let (start_at, end_at) = (created.start_at_ms.map(UnixMs), created.end_at_ms.map(UnixMs));
        self.smallest_lateness_ms = self.smallest_lateness_ms.min(created.max_lateness_ms);
        self.schedules.push(ScheduleRow {
            id,
            version: created.version,
            tenant: created.tenant,
            queue: created.queue,
            plan: Plan::new(&created.rule, start_at, end_at, &mut self.calendar),
            flexible_window_ms: created.flexible_window_ms,
            max_lateness_ms: created.max_lateness_ms,
            canceled: false,
            created_at: self.log_time,
            updated_at: self.log_time,
            decided_through: self.log_time,
            last_run_at: None,
            next: None,
            waiting: 0,
            newest: None,
            is_parked: false,
            counted: ScheduleState::Active,
            changed: Lsn(self.lsn.0 + 1),
            text: Box::new(Text {
                name: created.name.clone(),
                payload: created.payload.clone().into(),
                ranges: Vec::new(),
            }),
        });
        Ok(())
    }

    fn apply_canceled(&mut self, canceled: &Canceled) -> Result<(), Inconsistent> {
        let schedule = canceled.schedule;
        self.touch(schedule)?;
        self.check(!self.schedule(schedule).canceled, || format!("schedule {schedule} is canceled again"))?;
        let mut reachable = self.scheduled_of(schedule);
        self.check_runs(&canceled.kept)?;
        let kept: BTreeSet<u64> = numbers_of(&canceled.kept).collect();
        reachable.retain(|number| !kept.contains(&number.0));
        for number in reachable {
            self.dispose(number, State::Canceled);
        }
        let now = self.log_time;
        let due = canceled.due.map(|(first, last)| (self.instant(first), self.instant(last)));
        self.push_range(canceled.schedule, RangeDisposition::Canceled, due);
        let row = self.schedules.row_mut(canceled.schedule).expect("touched above");
        row.canceled = true;
        row.updated_at = now;
        row.decided_through = row.decided_through.max(now);
        row.next = None;
        self.schedules.recount(schedule);
        Ok(())
    }

    fn apply_materialized(&mut self, materialized: &Materialized) -> Result<(), Inconsistent> {
        let scheduled_for = self.instant(materialized.scheduled_for);
        let mut schedule = 0_u32;
        for &step in &materialized.schedules {
            let number = schedule.checked_add(step);
            self.check(number.is_some(), || "schedule numbers beyond 2^32".to_owned())?;
            schedule = number.unwrap_or(schedule);
            self.insert_occurrence(schedule, scheduled_for, None)?;
        }
        Ok(())
    }

    fn apply_misfired(&mut self, misfired: &Misfired) -> Result<(), Inconsistent> {
        self.touch(misfired.schedule)?;
        self.check_runs(&misfired.missed_occurrences)?;
        for number in numbers_of(&misfired.missed_occurrences) {
            let row = self.occurrences.row(OccurrenceNo(number));
            let fits = row.is_some_and(|r| r.state == State::Scheduled && r.schedule == misfired.schedule);
            self.check(fits, || format!("occurrence {number} missed"))?;
            self.dispose(OccurrenceNo(number), State::Missed);
        }
        for &difference_ms in &misfired.admitted {
            let scheduled_for = self.instant(difference_ms);
            let waiting = self.scheduled_of(misfired.schedule);
            let known = waiting
                .into_iter()
                .find(|n| self.occurrences.row(*n).is_some_and(|r| r.scheduled_for == scheduled_for));
            match known.and_then(|number| self.occurrences.row_mut(number)) {
                Some(row) => row.lane = Lane::CatchUp,
                None => {
                    self.insert_occurrence(misfired.schedule, scheduled_for, Some(Lane::CatchUp))?;
                }
            }
        }
        let missed = misfired.missed.map(|(first, last)| (self.instant(first), self.instant(last)));
        self.push_range(misfired.schedule, RangeDisposition::Missed, missed);
        let through = self.instant(misfired.through);
        let row = self.schedules.row_mut(misfired.schedule).expect("touched above");
        row.decided_through = row.decided_through.max(through);
        Ok(())
    }

    fn apply_enqueued(&mut self, enqueued: &Enqueued) -> Result<(), Inconsistent> {
        let at = self.instant(enqueued.at);
        let stream = self.streams.get(enqueued.stream as usize);
        self.check(stream.is_some(), || format!("no stream {}", enqueued.stream))?;
        self.check_runs(&enqueued.runs)?;
        self.check(!enqueued.runs.is_empty(), || "nothing was enqueued".to_owned())?;
        let mut entry = EntryId { generation: enqueued.generation, counter: enqueued.first_counter };
        for number in numbers_of(&enqueued.runs) {
            self.enqueue(OccurrenceNo(number), entry, at);
            entry.counter = entry.counter.saturating_add(1);
        }
        let last = EntryId { counter: entry.counter.saturating_sub(1), ..entry };
        self.streams[enqueued.stream as usize] = StreamMemory { last: Some(last), added: enqueued.added };
        Ok(())
    }

    /// Runs name existing occurrences, and no more of them than there are: damaged lengths cost nothing.
    fn check_runs(&self, runs: &[(u64, u64)]) -> Result<(), Inconsistent> {
        let existing = self.occurrences.next().0;
        let (mut end, mut named) = (0_u64, 0_u64);
        for &(gap, length) in runs {
            let first = end.wrapping_add(gap);
            named = named.saturating_add(length);
            let fits = length > 0 && first.checked_add(length).is_some_and(|end| end <= existing) && named <= existing;
            self.check(fits, || format!("{length} occurrences from {first} on, of {existing}"))?;
            end = first + length;
        }
        Ok(())
    }

    /// The queue's acceptance; for what was accepted before, only the new place is noted.
    fn enqueue(&mut self, number: OccurrenceNo, entry: EntryId, at: UnixMs) {
        let Some(row) = self.occurrences.row_mut(number) else { return };
        row.entry = Some(entry);
        row.holder = Holder::Nobody;
        if row.state != State::Scheduled {
            return;
        }
        row.state = State::Enqueued;
        row.enqueued_at = Some(at);
        let (schedule, scheduled_for) = (row.schedule, row.scheduled_for);
        let changed = Lsn(self.lsn.0 + 1);
        let of = self.schedules.row_mut(schedule).expect("an occurrence has a schedule");
        of.waiting -= 1;
        of.last_run_at = of.last_run_at.max(Some(scheduled_for));
        of.changed = changed;
        self.schedules.recount(schedule);
        if self.config.final_when_enqueued {
            self.end(number);
        }
    }

    fn apply_completed(&mut self, number: OccurrenceNo) -> Result<(), Inconsistent> {
        self.check(number < self.occurrences.next(), || format!("occurrence {} does not exist", number.0))?;
        if let Some(row) = self.occurrences.row_mut(number)
            && row.state == State::Enqueued
        {
            row.state = State::Succeeded;
            // If it was to be sent again, it need not be.
            row.holder = Holder::Nobody;
            let schedule = row.schedule;
            self.touch(schedule)?;
            if !self.config.final_when_enqueued {
                self.end(number);
            }
        }
        Ok(())
    }

    /// What is to be sent again has no place in the queue any more.
    fn apply_lost(&mut self, lost: &Lost) -> Result<(), Inconsistent> {
        self.check((lost.stream as usize) < self.streams.len(), || format!("no stream {}", lost.stream))?;
        for number in self.lost_rows(lost) {
            self.occurrences.row_mut(number).expect("it was just found").entry = None;
        }
        self.streams[lost.stream as usize].last = lost.survived.map(entry_id);
        Ok(())
    }

    /// Which occurrences a loss took, as far back as it says.
    pub(super) fn lost_rows(&self, lost: &Lost) -> Vec<OccurrenceNo> {
        let (stream, since) = (stream_of(lost.stream), self.instant(lost.since));
        let survived = lost.survived.map(entry_id);
        let taken = self.occurrences.iter().filter(|(_, row)| {
            row.state == State::Enqueued
                && row.lane == stream.lane
                && row.enqueued_at.is_some_and(|at| at >= since)
                && row.entry.is_none_or(|entry| Some(entry) > survived)
                && self.schedule(row.schedule).queue == stream.queue.0
        });
        taken.map(|(number, _)| number).collect()
    }

    /// A new occurrence of `schedule`; the cursor moves with it.
    fn insert_occurrence(
        &mut self,
        schedule: u32,
        scheduled_for: UnixMs,
        lane: Option<Lane>,
    ) -> Result<(), Inconsistent> {
        let next = self.occurrences.next();
        let changed = Lsn(self.lsn.0 + 1);
        let Some(row) =
            self.schedules.row_mut(schedule).filter(|row| row.decided_through < scheduled_for && !row.canceled)
        else {
            return self.check(false, || format!("schedule {schedule} cannot have an occurrence at {scheduled_for}"));
        };
        let id = OccurrenceId::of(row.id, row.version, scheduled_for, Kind::Regular, b"");
        let occurrence = OccurrenceRow {
            id,
            schedule,
            version: row.version,
            scheduled_for,
            available_at: id.available_at(scheduled_for, row.flexible_window_ms),
            enqueued_at: None,
            entry: None,
            state: State::Scheduled,
            lane: lane.unwrap_or(row.own_lane()),
            holder: Holder::Nobody,
            older: row.newest,
            newer: None,
        };
        row.decided_through = scheduled_for;
        row.waiting += 1;
        row.changed = changed;
        if let Some(older) = row.newest.replace(next)
            && let Some(older) = self.occurrences.row_mut(older)
        {
            older.newer = Some(next);
        }
        self.occurrences.push(occurrence);
        self.schedules.recount(schedule);
        Ok(())
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

    fn touch(&mut self, schedule: u32) -> Result<(), Inconsistent> {
        let changed = Lsn(self.lsn.0 + 1);
        match self.schedules.row_mut(schedule) {
            Some(row) => {
                row.changed = changed;
                Ok(())
            }
            None => self.check(false, || format!("no schedule {schedule}")),
        }
    }

    fn push_range(&mut self, schedule: u32, disposition: RangeDisposition, instants: Option<(UnixMs, UnixMs)>) {
        let Some((first, last)) = instants else { return };
        let row = self.schedules.row_mut(schedule).expect("checked by the caller");
        if row.text.ranges.len() >= KEEP_RANGES {
            row.text.ranges.remove(0);
        }
        row.text.ranges.push(InstantRange { disposition, first, last, count: None });
    }

    /// A SCHEDULED occurrence ends without ever entering the queue.
    fn dispose(&mut self, number: OccurrenceNo, state: State) {
        let row = self.occurrences.row_mut(number).expect("checked by the caller");
        row.state = state;
        row.holder = Holder::Nobody;
        let schedule = row.schedule;
        self.schedules.row_mut(schedule).expect("an occurrence has a schedule").waiting -= 1;
        self.schedules.recount(schedule);
        self.end(number);
    }

    /// Notes an end, and forgets the oldest ends that need not be kept: at most two, so that a turn after a quiet hour
    /// does not pay for all of them.
    fn end(&mut self, number: OccurrenceNo) {
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

    fn forget(&mut self, number: OccurrenceNo) {
        let Some(row) = self.occurrences.remove(number) else { return };
        if let Some(newer) = row.newer.and_then(|n| self.occurrences.row_mut(n)) {
            newer.older = row.older;
        }
        if let Some(older) = row.older.and_then(|n| self.occurrences.row_mut(n)) {
            older.newer = row.newer;
        }
        let schedule = self.schedules.row_mut(row.schedule).expect("an occurrence has a schedule");
        if schedule.newest == Some(number) {
            schedule.newest = row.older;
        }
    }
}

const fn entry_id((generation, counter): (u64, u64)) -> EntryId {
    EntryId { generation, counter }
}
