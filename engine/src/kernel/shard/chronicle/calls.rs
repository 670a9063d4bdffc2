//! What users' calls do: versions begin and end, and with them what was pending.

use std::collections::BTreeSet;

use super::{
    super::listing::rule_of, Asked, Call, Chronicle, ChronicleError, Maker, RangeOf, ScheduleRow, Step, Story, Version,
    unfitting,
};
use crate::kernel::{
    id::{Kind, OccurrenceId, ScheduleId},
    occurrence::{Reason, State},
    record::{Canceled, Closing, Paused, RangeBody, Resumed, ScheduleCreated, SpecBody, Updated, numbers_of},
    schedule::{InstantRange, RangeDisposition, Spec},
    time::UnixMs,
};

impl Chronicle {
    pub(super) fn created(&mut self, created: ScheduleCreated) -> Result<(), ChronicleError> {
        let id = ScheduleId(created.id);
        let number = self.schedules.begin(ScheduleRow {
            id,
            version: created.version,
            tenant: created.tenant,
            queue: created.spec.queue,
            flexible_window_ms: created.spec.flexible_window_ms,
            is_paused: false,
            canceled_at: None,
        });
        let is_subject = match self.asked {
            Asked::Maker(_) => false,
            Asked::Occurrence(_, maker) => maker.schedule == id,
            Asked::Schedule(asked, _) => asked == id,
        };
        if is_subject {
            self.subject = Some(number);
            self.story.get_or_insert_with(|| Story {
                schedule: id,
                versions: Vec::new(),
                calls: Vec::new(),
                ranges: Vec::new(),
                occurrences: Vec::new(),
                decided_through: UnixMs::MIN,
            });
        }
        self.version_begins(number, Some(created.spec))?;
        self.called(number, Call::Create { version: created.version });
        Ok(())
    }

    pub(super) fn updated(&mut self, updated: Updated) -> Result<(), ChronicleError> {
        let Updated { schedule, spec, keeps_due, closing } = updated;
        self.close(schedule, &closing, Reason::Superseded)?;
        if !keeps_due {
            self.call_off(schedule, Reason::Superseded)?;
            self.backfills.retain(|_, backfill| backfill.schedule != schedule);
        }
        let row = self.schedules.row_mut(schedule).ok_or_else(|| unfitting(format!("no schedule {schedule}")))?;
        (row.queue, row.flexible_window_ms) = (spec.queue, spec.flexible_window_ms);
        let version = self.next_version(schedule, None)?;
        self.version_begins(schedule, Some(spec))?;
        self.called(schedule, Call::Update { version, keeps_due });
        Ok(())
    }

    pub(super) fn paused(&mut self, paused: &Paused) -> Result<(), ChronicleError> {
        let schedule = paused.schedule;
        self.close(schedule, &paused.closing, Reason::Paused)?;
        self.call_off(schedule, Reason::Paused)?;
        self.backfills.retain(|_, backfill| backfill.schedule != schedule);
        let version = self.next_version(schedule, Some(true))?;
        self.version_begins(schedule, None)?;
        self.called(schedule, Call::Pause { version });
        Ok(())
    }

    pub(super) fn resumed(&mut self, resumed: &Resumed) -> Result<(), ChronicleError> {
        let schedule = resumed.schedule;
        self.range(schedule, Kind::Regular, RangeDisposition::Canceled(Reason::Paused), resumed.paused)?;
        let version = self.next_version(schedule, Some(false))?;
        self.version_begins(schedule, None)?;
        self.called(schedule, Call::Resume { version });
        Ok(())
    }

    pub(super) fn canceled(&mut self, canceled: &Canceled) -> Result<(), ChronicleError> {
        let schedule = canceled.schedule;
        self.close(schedule, &canceled.closing, Reason::Canceled)?;
        self.call_off(schedule, Reason::Canceled)?;
        self.backfills.retain(|_, backfill| backfill.schedule != schedule);
        self.called(schedule, Call::Cancel);
        let now = self.now;
        if let Some(story) = self.story_of(schedule) {
            story.end_version(now);
            story.decided_through = now;
        }
        self.schedules.end(schedule, now);
        let occurrences = &self.occurrences;
        self.schedules.forget_old(now, |number| occurrences.has_open(number));
        // A forgotten number belongs to nobody until it is given again.
        self.subject = self.story.as_ref().and_then(|story| self.schedules.number(story.schedule));
        Ok(())
    }

    fn next_version(&mut self, schedule: u32, is_paused: Option<bool>) -> Result<u32, ChronicleError> {
        let row = self.schedules.row_mut(schedule).ok_or_else(|| unfitting(format!("no schedule {schedule}")))?;
        row.version = row.version.saturating_add(1);
        row.is_paused = is_paused.unwrap_or(row.is_paused);
        Ok(row.version)
    }

    /// The schedule's version stands from now on; without a `spec` it is described as before.
    fn version_begins(&mut self, schedule: u32, spec: Option<SpecBody>) -> Result<(), ChronicleError> {
        let row = self.schedule(schedule)?;
        if let Asked::Maker(wanted) = self.asked {
            let id = OccurrenceId::of(row.id, row.version, wanted.scheduled_for(), Kind::Regular, b"");
            self.recognise(id, Maker { schedule: row.id, version: row.version, kind: Kind::Regular });
            return Ok(());
        }
        if self.subject != Some(schedule) {
            return Ok(());
        }
        let described = spec.map(|spec| (spec.payload.len(), self.described(&row, spec)));
        let (now, lsn) = self.place();
        let Some(story) = &mut self.story else { return Ok(()) };
        story.end_version(now);
        story.decided_through = now;
        let as_before = || story.versions.last().map(|last| (last.payload_bytes, last.spec.clone()));
        let Some((payload_bytes, spec)) = described.or_else(as_before) else { return Ok(()) };
        story.versions.push(Version {
            version: row.version,
            from: now,
            until: None,
            lsn,
            is_paused: row.is_paused,
            spec,
            payload_bytes,
        });
        Ok(())
    }

    fn described(&self, row: &ScheduleRow, spec: SpecBody) -> Spec {
        let (rule, at_local) = rule_of(spec.rule);
        Spec {
            tenant: Self::name(&self.tenants, row.tenant).to_string(),
            queue: Self::name(&self.queues, spec.queue).to_string(),
            name: spec.name,
            rule,
            at_local,
            start_at: spec.start_at_ms.map(UnixMs),
            end_at: spec.end_at_ms.map(UnixMs),
            payload: Vec::new(),
            flexible_window_ms: spec.flexible_window_ms,
            max_lateness_ms: spec.max_lateness_ms,
            misfire: spec.misfire,
            overlap: spec.overlap,
            retry: spec.retry,
            effect: spec.effect,
            review_owner: spec.review_owner,
        }
    }

    /// What was SCHEDULED ends with its version, unless it is kept; so do instants that were due.
    fn close(&mut self, schedule: u32, closing: &Closing, reason: Reason) -> Result<(), ChronicleError> {
        let row = self.schedule(schedule)?;
        self.check_runs(&closing.kept)?;
        let kept: BTreeSet<u64> = numbers_of(&closing.kept).collect();
        let open = self.occurrences.open_of(schedule);
        let ends: Vec<u64> = open
            .filter(|(number, row)| row.state == State::Scheduled && !kept.contains(number))
            .map(|(number, _)| number)
            .collect();
        self.cancel_all(&ends, reason)?;
        // Instants that fell into a pause are canceled for it, whichever call ends it.
        let due = if row.is_paused { Reason::Paused } else { reason };
        self.range(schedule, Kind::Regular, RangeDisposition::Canceled(due), closing.due)?;
        for range in &closing.backfills {
            self.range(schedule, Kind::Backfill, RangeDisposition::Canceled(reason), Some(*range))?;
        }
        Ok(())
    }

    /// What the queue follows ends too; what runs goes on, and ends so unless it succeeds.
    fn call_off(&mut self, schedule: u32, reason: Reason) -> Result<(), ChronicleError> {
        let open = self.occurrences.open_of(schedule).filter(|(_, row)| row.is_tracked);
        let (mut ends, mut runs) = (Vec::new(), Vec::new());
        for (number, row) in open {
            match row.state {
                State::Enqueued | State::RetryWait => ends.push(number),
                State::Running => runs.push(number),
                State::Scheduled
                | State::Succeeded
                | State::Dead
                | State::Held
                | State::Missed
                | State::SkippedOverlap
                | State::Canceled => {}
            }
        }
        let place = self.place();
        for number in runs {
            let row = self.open_row(number)?;
            row.called_off = Some(reason);
            row.note(place, || Step::CalledOff { reason });
        }
        self.cancel_all(&ends, reason)
    }

    fn cancel_all(&mut self, numbers: &[u64], reason: Reason) -> Result<(), ChronicleError> {
        let place = self.place();
        for &number in numbers {
            self.open_row(number)?.note(place, || Step::Canceled { reason });
            self.occurrences.move_to(number, State::Canceled, Some(reason), self.now);
        }
        Ok(())
    }

    /// Notes instants of the schedule that was asked for.
    pub(super) fn range(
        &mut self,
        schedule: u32,
        kind: Kind,
        disposition: RangeDisposition,
        body: Option<RangeBody>,
    ) -> Result<(), ChronicleError> {
        let Some(RangeBody { first, last, count }) = body.filter(|_| self.subject == Some(schedule)) else {
            return Ok(());
        };
        let (first, last) = (self.instant(first), self.instant(last));
        let is_asked = match self.asked {
            Asked::Maker(_) => false,
            Asked::Occurrence(id, _) => (first..=last).contains(&id.scheduled_for()),
            Asked::Schedule(_, (from, to)) => first < to && last >= from,
        };
        let version = self.schedule(schedule)?.version;
        let told = self.told(RangeOf { version, range: InstantRange { kind, disposition, first, last, count } });
        if let Some(story) = self.story.as_mut().filter(|_| is_asked) {
            story.ranges.push(told);
        }
        Ok(())
    }
}

impl Story {
    fn end_version(&mut self, now: UnixMs) {
        if let Some(last) = self.versions.last_mut().filter(|last| last.until.is_none()) {
            last.until = Some(now);
        }
    }
}
