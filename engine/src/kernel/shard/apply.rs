//! `apply`: the only function that changes what the log remembers, live and in recovery.

use std::collections::BTreeMap;

use super::{Shard, StreamMemory, Turn, apply_runs::is_entry_of, occurrences::Holder, stream_of, unsettled::Entries};
use crate::kernel::{
    gate::Lsn,
    id::Kind,
    occurrence::{EntryId, Lane, OccurrenceNo, State},
    record::{Enqueued, Lost, Materialized, Misfired, Record, numbers_of},
    schedule::RangeDisposition,
    tenant::{QueueSettings, Revised, TenantSettings},
    time::UnixMs,
};

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
                self.name_tenant(&named.name, Revised::default());
            }
            Record::QueueNamed(named) => {
                self.check(self.queues.number(&named.name).is_none(), || format!("queue {:?} again", named.name))?;
                self.name_queue(&named.name, Revised::default(), [StreamMemory::default(); Lane::ALL.len()]);
            }
            Record::ScheduleCreated(created) => self.apply_created(created)?,
            Record::Canceled(canceled) => self.apply_canceled(canceled)?,
            Record::Materialized(materialized) => self.apply_materialized(materialized)?,
            Record::Misfired(misfired) => self.apply_misfired(misfired)?,
            Record::Enqueued(enqueued) => self.apply_enqueued(enqueued)?,
            Record::Lost(lost) => self.apply_lost(lost)?,
            Record::Updated(updated) => self.apply_updated(updated)?,
            Record::Paused(paused) => self.apply_paused(paused)?,
            Record::Resumed(resumed) => self.apply_resumed(resumed)?,
            Record::Triggered(triggered) => self.apply_triggered(triggered)?,
            Record::BackfillRequested(asked) => self.apply_backfill(asked)?,
            Record::BackfillExpanded(expanded) => self.apply_expanded(expanded)?,
            Record::TenantSet(set) => self.apply_tenant_set(set)?,
            Record::QueueSet(set) => self.apply_queue_set(set)?,
            Record::WorkerNamed(named) => {
                self.check(self.workers.number(&named.name).is_none(), || format!("worker {:?} again", named.name))?;
                self.workers.push(&named.name);
            }
            Record::Claimed(claimed) => self.apply_claimed(claimed, None)?,
            Record::ClaimedById(by_id) => self.apply_claimed(&by_id.claimed, Some(&by_id.claim_id))?,
            Record::RunsSucceeded(succeeded) => self.apply_succeeded(succeeded)?,
            Record::RunFailed(failed) => self.apply_failed(failed)?,
            Record::Waited(waited) => self.apply_waited(waited)?,
            Record::Skipped(skipped) => self.apply_skipped(skipped.occurrence)?,
            Record::Died(died) => self.apply_died(died.occurrence)?,
            Record::Held(held) => self.apply_held(held)?,
            Record::Replayed(replayed) => self.apply_replayed(replayed)?,
            Record::Resolved(resolved) => self.apply_resolved(resolved)?,
            Record::Settled(settled) => self.apply_settled(settled)?,
            Record::LateResult(late) => self.apply_late_result(late)?,
        }
        Ok(())
    }

    /// Introduces the next tenant number.
    pub(super) fn name_tenant(&mut self, name: &str, set: Revised<TenantSettings>) {
        let number = self.tenants.push(name);
        self.permits.tenant_named(self.tenants.name(number).expect("it was just named"));
        self.settings.add_tenant(set);
    }

    /// Introduces the next queue number.
    pub(super) fn name_queue(
        &mut self,
        name: &str,
        set: Revised<QueueSettings>,
        streams: [StreamMemory; Lane::ALL.len()],
    ) {
        let number = self.queues.push(name);
        self.permits.queue_named(self.queues.name(number).expect("it was just named"));
        self.settings.add_queue(set);
        self.streams.extend(streams);
        self.entries.resize_with(self.streams.len(), Entries::default);
    }

    pub(super) fn check(&self, holds: bool, what: impl FnOnce() -> String) -> Result<(), Inconsistent> {
        if holds { Ok(()) } else { Err(Inconsistent::new(self.lsn, what())) }
    }

    pub(super) fn instant(&self, difference_ms: i64) -> UnixMs {
        self.log_time.plus(difference_ms)
    }

    fn apply_materialized(&mut self, materialized: &Materialized) -> Result<(), Inconsistent> {
        let scheduled_for = self.instant(materialized.scheduled_for);
        let mut schedule = 0_u32;
        for &step in &materialized.schedules {
            let number = schedule.checked_add(step);
            self.check(number.is_some(), || "schedule numbers beyond 2^32".to_owned())?;
            schedule = number.unwrap_or(schedule);
            self.insert_regular(schedule, scheduled_for, None)?;
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
            self.dispose(OccurrenceNo(number), State::Missed, None);
        }
        let waiting: BTreeMap<UnixMs, OccurrenceNo> = self
            .scheduled_of(misfired.schedule)
            .into_iter()
            .filter_map(|number| Some((number, self.occurrences.row(number)?)))
            .filter(|(_, row)| row.kind == Kind::Regular)
            .map(|(number, row)| (row.scheduled_for, number))
            .collect();
        for &difference_ms in &misfired.admitted {
            let scheduled_for = self.instant(difference_ms);
            match waiting.get(&scheduled_for).and_then(|number| self.occurrences.row_mut(*number)) {
                Some(row) => row.lane = Lane::CatchUp,
                None => drop(self.insert_regular(misfired.schedule, scheduled_for, Some(Lane::CatchUp))?),
            }
        }
        self.push_range(misfired.schedule, RangeDisposition::Missed, misfired.missed);
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
            self.enqueue(OccurrenceNo(number), (enqueued.stream, entry), at);
            entry.counter = entry.counter.saturating_add(1);
        }
        let occurrences = &self.occurrences;
        self.entries[enqueued.stream as usize].sweep(|entry, number| is_entry_of(occurrences, entry, number));
        let last = EntryId { counter: entry.counter.saturating_sub(1), ..entry };
        self.streams[enqueued.stream as usize] = StreamMemory { last: Some(last), added: enqueued.added };
        Ok(())
    }

    /// Runs name existing occurrences, and no more of them than there are: damaged lengths cost nothing.
    pub(super) fn check_runs(&self, runs: &[(u64, u64)]) -> Result<(), Inconsistent> {
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
    fn enqueue(&mut self, number: OccurrenceNo, (stream, entry): (u32, EntryId), at: UnixMs) {
        self.occurrences.hold(number, Holder::Nobody);
        let Some(row) = self.occurrences.row_mut(number) else { return };
        (row.entry, row.entry_at) = (Some(entry), at);
        // The embedded queue has no consumers that only acknowledge.
        if row.is_tracked && !self.config.is_embedded {
            self.entries[stream as usize].push(entry, number);
        }
        if matches!(row.state, State::Scheduled | State::RetryWait) {
            self.note_first_acceptance(number, at);
            self.move_to(number, State::Enqueued, None);
        }
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
                && !row.is_settled
                && row.lane == stream.lane
                && row.enqueued_at.is_some()
                && (row.entry.is_none() || row.entry_at >= since)
                && row.entry.is_none_or(|entry| Some(entry) > survived)
                && row.queue == stream.queue.0
        });
        taken.map(|(number, _)| number).collect()
    }
}

const fn entry_id((generation, counter): (u64, u64)) -> EntryId {
    EntryId { generation, counter }
}
