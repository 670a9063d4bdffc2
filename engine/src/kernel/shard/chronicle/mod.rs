//! What became of it: the records of a shard's log followed once more, for one schedule or one occurrence.
//!
//! A shard forgets what has ended; its log does not. A chronicle takes every record in order and does to small tables
//! what `apply` does to large ones: names, a row a schedule, a row an occurrence that has not ended (as many as the
//! shard itself has under way), and everything of what was asked for. Numbers are given as a shard gives them, or the
//! records could not be understood. That both agree about every occurrence is checked on every script of the model.
//!
//! It knows no zone rules and decides nothing.

mod births;
mod calls;
mod occurrences;
mod queue;
mod runs;
mod schedules;
mod story;

use std::{collections::BTreeMap, sync::Arc};

pub use story::{Call, Judgement, Life, Origin, RangeOf, Step, Story, Told, Version};

use self::{
    births::Backfill,
    occurrences::{Occurrences, Row},
    schedules::{ScheduleRow, Schedules},
};
use super::workers::Workers;
use crate::kernel::{
    gate::Lsn,
    id::{Kind, OccurrenceId, ScheduleId},
    names::Names,
    record::{InvalidRecord, Opened, Record},
    time::UnixMs,
};

/// Why a record cannot be followed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChronicleError {
    /// The bytes are no record.
    #[error(transparent)]
    Invalid(#[from] InvalidRecord),
    /// The record does not fit those before it.
    #[error("it does not fit the records before it: {0}")]
    Unfitting(String),
}

/// Who would have made an occurrence of a given id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maker {
    /// The schedule.
    pub schedule: ScheduleId,
    /// The version of it.
    pub version: u32,
    /// What made it.
    pub kind: Kind,
}

/// What is asked of a log.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Maker(OccurrenceId),
    Occurrence(OccurrenceId, Maker),
    Schedule(ScheduleId, (UnixMs, UnixMs)),
}

/// A log that is being followed.
#[derive(Debug)]
pub struct Chronicle {
    shard: u16,
    asked: Asked,
    maker: Option<Maker>,
    /// The number of the schedule that was asked for, while it has one.
    subject: Option<u32>,
    /// The number of the occurrence that was asked for.
    explained: Option<u64>,
    story: Option<Story>,
    tenants: Names,
    queues: Names,
    /// By queue: whether it follows what workers do.
    is_tracked: Vec<bool>,
    workers: Workers,
    schedules: Schedules,
    backfills: BTreeMap<u64, Backfill>,
    next_backfill: u64,
    occurrences: Occurrences,
    opened: Option<Opened>,
    began_at: Option<UnixMs>,
    now: UnixMs,
    lsn: Lsn,
}

impl Chronicle {
    /// Looks for the schedule and version that an occurrence's id belongs to, whether or not it was ever made.
    #[must_use]
    pub fn of_maker(shard: u16, id: OccurrenceId) -> Self {
        Self::new(shard, Asked::Maker(id))
    }

    /// Follows one occurrence, step by step, and what became of its version.
    #[must_use]
    pub fn of_occurrence(shard: u16, id: OccurrenceId, maker: Maker) -> Self {
        Self::new(shard, Asked::Occurrence(id, maker))
    }

    /// Follows a schedule: all of its versions, and what lies in `[from, to)` of its calls, ranges and occurrences.
    #[must_use]
    pub fn of_schedule(shard: u16, id: ScheduleId, window: (UnixMs, UnixMs)) -> Self {
        Self::new(shard, Asked::Schedule(id, window))
    }

    fn new(shard: u16, asked: Asked) -> Self {
        Self {
            shard,
            asked,
            maker: None,
            subject: None,
            explained: None,
            story: None,
            tenants: Names::default(),
            queues: Names::default(),
            is_tracked: Vec::new(),
            workers: Workers::default(),
            schedules: Schedules::default(),
            backfills: BTreeMap::new(),
            next_backfill: 0,
            occurrences: Occurrences::default(),
            opened: None,
            began_at: None,
            now: UnixMs::MIN,
            lsn: Lsn(0),
        }
    }

    /// Engine time of the first record and of the last.
    #[must_use]
    pub const fn span(&self) -> Option<(UnixMs, UnixMs)> {
        match self.began_at {
            Some(began_at) => Some((began_at, self.now)),
            None => None,
        }
    }

    /// Who would have made the occurrence that was asked for, if the log knows.
    #[must_use]
    pub const fn maker(&self) -> Option<Maker> {
        self.maker
    }

    /// What became of the schedule that was asked for, if the log knows it.
    #[must_use]
    pub fn into_story(self) -> Option<Story> {
        let mut story = self.story?;
        story.occurrences = self.occurrences.into_lives();
        Some(story)
    }

    /// Takes the log's next record.
    ///
    /// # Errors
    /// Bytes that are no record, or a record that does not fit those before it.
    pub fn take(&mut self, lsn: Lsn, kind: u8, body: &[u8]) -> Result<(), ChronicleError> {
        // Whoever looks for the maker alone has seen enough.
        if self.maker.is_some() {
            return Ok(());
        }
        let record = Record::decode(kind, body)?;
        self.lsn = lsn;
        self.follow(record)
    }

    fn follow(&mut self, record: Record) -> Result<(), ChronicleError> {
        match record {
            Record::Opened(opened) => self.opened(opened),
            Record::Time(time) => {
                self.now = self.now.plus(i64::try_from(time.forward_ms).unwrap_or(i64::MAX));
                self.began_at = self.began_at.or(Some(self.now));
            }
            Record::TenantNamed(named) => drop(self.tenants.push(&named.name)),
            Record::QueueNamed(named) => {
                self.queues.push(&named.name);
                self.is_tracked.push(true);
            }
            Record::WorkerNamed(named) => self.workers.push(&named.name),
            Record::TenantSet(_) => {}
            Record::QueueSet(set) => {
                let is_tracked = self.is_tracked.get_mut(set.queue as usize);
                *is_tracked.ok_or_else(|| unfitting(format!("no queue {}", set.queue)))? = set.settings.tracked;
            }
            Record::ScheduleCreated(created) => self.created(*created)?,
            Record::Updated(updated) => self.updated(*updated)?,
            Record::Paused(paused) => self.paused(&paused)?,
            Record::Resumed(resumed) => self.resumed(&resumed)?,
            Record::Canceled(canceled) => self.canceled(&canceled)?,
            Record::Triggered(triggered) => self.triggered(&triggered)?,
            Record::BackfillRequested(asked) => self.backfill_requested(asked)?,
            Record::BackfillExpanded(expanded) => self.backfill_expanded(&expanded)?,
            Record::Materialized(materialized) => self.materialized(&materialized)?,
            Record::Misfired(misfired) => self.misfired(&misfired)?,
            Record::Enqueued(enqueued) => self.enqueued(&enqueued)?,
            Record::Lost(lost) => self.lost(&lost),
            Record::Settled(settled) => self.settled(&settled),
            Record::Claimed(claimed) => self.claimed(&claimed)?,
            Record::ClaimedById(by_id) => self.claimed(&by_id.claimed)?,
            Record::RunsSucceeded(succeeded) => self.succeeded(succeeded)?,
            Record::RunFailed(failed) => self.failed(failed)?,
            Record::Waited(waited) => self.waited(waited)?,
            Record::Skipped(skipped) => self.skipped(skipped.occurrence)?,
            Record::Died(died) => self.died(died.occurrence)?,
            Record::Held(held) => self.held(held)?,
            Record::Replayed(replayed) => self.replayed(replayed.occurrence)?,
            Record::Resolved(resolved) => self.resolved(resolved)?,
            Record::LateResult(late) => self.late_result(late)?,
        }
        Ok(())
    }

    /// A higher generation under the same owner is no new start.
    fn opened(&mut self, opened: Opened) {
        let start = |opened: &Opened| (opened.owner, opened.wall_ms, opened.boottime_ms);
        let is_restart = self.opened.as_ref().is_some_and(|before| start(before) != start(&opened));
        let told = (self.now, self.lsn);
        if is_restart
            && let Some(row) = self.explained.and_then(|number| self.occurrences.row_mut(number))
            && row.told.as_ref().is_some_and(|told| told.ended_at.is_none())
        {
            row.note(told, || Step::Restarted { generation: opened.generation });
        }
        self.opened = Some(opened);
    }

    /// When, and by which record.
    const fn place(&self) -> (UnixMs, Lsn) {
        (self.now, self.lsn)
    }

    const fn told<T>(&self, what: T) -> Told<T> {
        Told { at: self.now, lsn: self.lsn, what }
    }

    fn instant(&self, difference_ms: i64) -> UnixMs {
        self.now.plus(difference_ms)
    }

    fn schedule(&self, number: u32) -> Result<ScheduleRow, ChronicleError> {
        self.schedules.row(number).copied().ok_or_else(|| unfitting(format!("no schedule {number}")))
    }

    /// An occurrence that can still be moved on.
    fn open_row(&mut self, number: u64) -> Result<&mut Row, ChronicleError> {
        self.occurrences.row_mut(number).ok_or_else(|| unfitting(format!("occurrence {number} is not under way")))
    }

    fn name(names: &Names, number: u32) -> Arc<str> {
        names.name(number).map_or_else(|| "".into(), Arc::clone)
    }

    /// The story, if this schedule is the one that was asked for.
    fn story_of(&mut self, schedule: u32) -> Option<&mut Story> {
        self.story.as_mut().filter(|_| self.subject == Some(schedule))
    }

    /// Whether something at `at` lies in what was asked for.
    fn is_asked(&self, schedule: u32, at: UnixMs) -> bool {
        self.subject == Some(schedule)
            && match self.asked {
                Asked::Schedule(_, (from, to)) => from <= at && at < to,
                Asked::Occurrence(..) | Asked::Maker(_) => false,
            }
    }

    /// Runs name occurrences that there were, and no more of them than there were: damaged lengths cost nothing.
    fn check_runs(&self, runs: &[(u64, u64)]) -> Result<(), ChronicleError> {
        let existing = self.occurrences.count();
        let (mut end, mut named) = (0_u64, 0_u64);
        for &(gap, length) in runs {
            let first = end.wrapping_add(gap);
            named = named.saturating_add(length);
            let fits = length > 0 && first.checked_add(length).is_some_and(|end| end <= existing) && named <= existing;
            if !fits {
                return Err(unfitting(format!("{length} occurrences from {first} on, of {existing}")));
            }
            end = first + length;
        }
        Ok(())
    }
}

fn unfitting(what: impl Into<String>) -> ChronicleError {
    ChronicleError::Unfitting(what.into())
}
