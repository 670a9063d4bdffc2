//! A shard from a snapshot's images. Whatever they say is checked before it is believed.

use std::{collections::BTreeMap, sync::Arc};

use super::super::{Inconsistent, Shard, StreamMemory, open::ReplayError};
use crate::kernel::{
    attempt::Attempt,
    calendar::CronId,
    gate::Lsn,
    id::{Kind, OccurrenceId, ScheduleId},
    image::{
        self, AnsweredImage, AttemptImage, BackfillImage, Counts, FORMAT, Head, Image, OccurrenceImage, PlanImage,
        QueueImage, RunImage, ScheduleImage, SupersededImage, TenantImage,
    },
    lease::LeaseToken,
    occurrence::{EntryId, OccurrenceNo, State},
    record::RuleBody,
    schedule::{InstantRange, ScheduleState},
    shard::{
        apply_runs::is_entry_of,
        lives::{is_live, is_unsettled},
        occurrences::{Holder, OccurrenceRow},
        open::GENERATIONS,
        plan::{Plan, intern},
        repeats::ClaimKey,
        requests::{Answered, BackfillJob},
        runs::{Review, Run},
        schedules::{ScheduleRow, Superseded, Text},
        unsettled::Entries,
    },
    tenant::Revised,
    time::UnixMs,
};

/// What is known only while a snapshot is read.
#[derive(Debug)]
pub(in crate::kernel::shard) struct Restoring {
    head: Head,
    /// The numbers of shared rules in the snapshot, and here; each is one use.
    rules: BTreeMap<u32, CronId>,
    free: Vec<u32>,
    /// Numbers that were left out between rows.
    left_out: usize,
}

type Restored = Result<(), Inconsistent>;

impl Shard {
    /// Takes a snapshot's next chunk; before any record is replayed.
    ///
    /// # Errors
    /// Bytes that are no images, or images that do not fit each other.
    pub fn restore(&mut self, mut chunk: &[u8]) -> Result<(), ReplayError> {
        while !chunk.is_empty() {
            let image = image::read(&mut chunk)?;
            self.take_image(image)?;
        }
        Ok(())
    }

    /// Whether a snapshot was begun and its end has not come.
    #[must_use]
    pub const fn is_restoring(&self) -> bool {
        self.restoring.is_some()
    }

    fn take_image(&mut self, image: Image<'_>) -> Restored {
        let Some(mut restoring) = self.restoring.take() else {
            return match image {
                Image::Head(head) => self.begin_restoring(head),
                _ => self.check(false, || "an image without a head before it".to_owned()),
            };
        };
        let base = UnixMs(restoring.head.log_time_ms);
        match image {
            Image::Head(_) => self.check(false, || "a second head".to_owned())?,
            Image::Tenant(tenant) => self.restore_tenant(&tenant)?,
            Image::Queue(queue) => self.restore_queue(&queue)?,
            Image::Worker(name) => {
                self.check(self.workers.number(name).is_none(), || format!("worker {name:?} again"))?;
                self.workers.push(name);
            }
            Image::Free(numbers) => restoring.free.extend(numbers),
            Image::Rule(number, body) => self.restore_rule(&mut restoring, number, &body)?,
            Image::Schedule(schedule) => self.restore_schedule(&mut restoring, &schedule)?,
            Image::Superseded(superseded) => self.restore_superseded(&superseded)?,
            Image::Backfill(backfill) => self.restore_backfill(&restoring, &backfill)?,
            Image::Occurrence(occurrence) => self.restore_occurrence(base, &occurrence)?,
            Image::Run(run) => self.restore_run(base, &run)?,
            Image::Tombstone(schedule, at) => self.tombstones.push_back((schedule, base.plus(at))),
            Image::Ended(number, at) => self.ended.push_back((OccurrenceNo(number), base.plus(at))),
            Image::Answered(answered) => self.restore_answered(base, &answered),
            Image::End(counts) => return self.end_restoring(*restoring, counts),
        }
        self.restoring = Some(restoring);
        Ok(())
    }

    fn begin_restoring(&mut self, head: Head) -> Restored {
        self.check(self.lsn == Lsn(0), || "a snapshot behind a record".to_owned())?;
        self.check(head.format == FORMAT, || {
            format!("a snapshot of format {}, this version reads format {FORMAT}", head.format)
        })?;
        let generation = head.opened.as_ref().map_or(0, |opened| opened.generation);
        self.check(generation < GENERATIONS, || "the generation is out of range".to_owned())?;
        self.log_time = UnixMs(head.log_time_ms);
        self.opened.clone_from(&head.opened);
        self.version_floor = head.version_floor;
        self.next_backfill = head.next_backfill;
        self.workers.begin_at(head.first_worker);
        self.has_forgotten = head.has_forgotten;
        self.has_conditions = head.has_conditions;
        self.smallest_lateness_ms = head.smallest_lateness_ms;
        self.restoring = Some(Box::new(Restoring { head, rules: BTreeMap::new(), free: Vec::new(), left_out: 0 }));
        Ok(())
    }

    fn restore_tenant(&mut self, image: &TenantImage<'_>) -> Restored {
        let TenantImage { name, revision, settings } = *image;
        let fits = self.tenants.number(name).is_none() && settings.check().is_ok();
        self.check(fits, || format!("tenant {name:?} again, or set out of range"))?;
        self.name_tenant(name, Revised { revision, settings });
        Ok(())
    }

    fn restore_queue(&mut self, image: &QueueImage<'_>) -> Restored {
        let QueueImage { name, revision, settings, streams } = *image;
        let fits = self.queues.number(name).is_none() && settings.check().is_ok();
        self.check(fits, || format!("queue {name:?} again, or set out of range"))?;
        self.name_queue(
            name,
            Revised { revision, settings },
            streams.map(|(last, added)| StreamMemory { last, added }),
        );
        Ok(())
    }

    fn restore_rule(&mut self, restoring: &mut Restoring, number: u32, body: &RuleBody) -> Restored {
        let Some(id) = intern(body, &mut self.calendar).filter(|_| !restoring.rules.contains_key(&number)) else {
            return self.check(false, || format!("rule {number} again, or not one that is shared"));
        };
        restoring.rules.insert(number, id);
        Ok(())
    }

    fn plan_of(
        &mut self,
        restoring: &Restoring,
        image: &PlanImage,
        (start_at, end_at): (Option<i64>, Option<i64>),
    ) -> Result<Plan, Inconsistent> {
        let base = UnixMs(restoring.head.log_time_ms);
        let (start_at, end_at) = (start_at.map(|at| base.plus(at)), end_at.map(|at| base.plus(at)));
        let (body, pace) = match image {
            PlanImage::Shared(number) => {
                let rule = restoring.rules.get(number).copied();
                let no_rule = || Inconsistent::new(self.lsn, format!("no rule {number}"));
                return Ok(Plan::shared(rule.ok_or_else(no_rule)?, start_at, end_at, &mut self.calendar));
            }
            PlanImage::Own(body) => (body, None),
            PlanImage::Paced { body, from_ms, is_open } => (body, Some((UnixMs(*from_ms), *is_open))),
        };
        let is_paced = matches!(body, RuleBody::After { .. });
        self.check(is_paced == pace.is_some() && !matches!(body, RuleBody::Cron { .. }), || {
            format!("a rule where it is not kept: {body:?}")
        })?;
        let mut plan = Plan::new(body, start_at, end_at, &mut self.calendar);
        if let (Some(paced), Some((from, is_open))) = (plan.pace_mut(), pace) {
            paced.restore(from, is_open);
        }
        Ok(plan)
    }

    fn restore_schedule(&mut self, restoring: &mut Restoring, image: &ScheduleImage<'_>) -> Restored {
        let base = UnixMs(restoring.head.log_time_ms);
        let is_named = self.tenants.name(image.tenant).is_some() && self.queues.name(image.queue).is_some();
        self.check(is_named, || format!("schedule {} of no tenant or queue", image.number))?;
        let ranges = image.ranges.iter().map(|range| InstantRange {
            kind: range.kind,
            disposition: range.disposition,
            first: base.plus(range.first),
            last: base.plus(range.last),
            count: range.count,
        });
        let row = ScheduleRow {
            id: ScheduleId(image.id),
            version: image.version,
            tenant: image.tenant,
            queue: image.queue,
            plan: self.plan_of(restoring, &image.plan, image.bounds)?,
            flexible_window_ms: image.flexible_window_ms,
            policies: self.policies.share(image.policies),
            is_canceled: image.is_canceled,
            is_paused: image.is_paused,
            created_at: base.plus(image.created_at),
            updated_at: base.plus(image.updated_at),
            decided_through: base.plus(image.decided_through),
            last_run_at: image.last_run_at.map(|at| base.plus(at)),
            next: None,
            waiting: 0,
            made: 0,
            retries: image.retries,
            newest: None,
            oldest: None,
            is_parked: false,
            counted: ScheduleState::Active,
            changed: Lsn(image.changed),
            text: Box::new(Text {
                name: image.name.map(str::to_owned),
                payload: image.payload.into(),
                review_owner: image.review_owner.map(str::to_owned),
                ranges: ranges.collect(),
            }),
        };
        // Numbers between rows are free ones.
        restoring.left_out += image.number.saturating_sub(self.schedules.end()) as usize;
        let fits = restoring.left_out <= restoring.free.len() && self.schedules.restore(image.number, row);
        self.check(fits, || format!("schedule {} again, or out of order", image.number))
    }

    fn restore_superseded(&mut self, image: &SupersededImage<'_>) -> Restored {
        let key = (image.schedule, image.version);
        let fits = self.schedules.row(image.schedule).is_some_and(|row| row.version > image.version);
        self.check(fits && !self.superseded.contains_key(&key), || format!("version {key:?} is not one before"))?;
        let superseded = Superseded {
            policies: self.policies.share(image.policies),
            payload: image.payload.into(),
            flexible_window_ms: image.flexible_window_ms,
            made: 0,
        };
        self.superseded.insert(key, superseded);
        Ok(())
    }

    fn restore_backfill(&mut self, restoring: &Restoring, image: &BackfillImage<'_>) -> Restored {
        let base = UnixMs(restoring.head.log_time_ms);
        let known = self.is_version(image.schedule, image.version) && !self.backfills.contains_key(&image.number);
        self.check(known && image.number < self.next_backfill, || format!("backfill {} of nothing", image.number))?;
        let plan = self.plan_of(restoring, &image.plan, image.bounds)?;
        self.check(plan.pace().is_none(), || format!("backfill {} of what follows its runs", image.number))?;
        let job = BackfillJob {
            schedule: image.schedule,
            version: image.version,
            plan,
            discriminator: image.discriminator.to_vec(),
            done_through: base.plus(image.done_through),
            to: base.plus(image.to),
            near: image.near.map(OccurrenceNo),
        };
        self.backfills.insert(image.number, job);
        Ok(())
    }

    /// Whether a version stands, or another one took its place and something still names it.
    fn is_version(&self, schedule: u32, version: u32) -> bool {
        let stands = self.schedules.row(schedule).is_some_and(|row| row.version == version);
        stands || self.superseded.contains_key(&(schedule, version))
    }

    fn restore_occurrence(&mut self, base: UnixMs, image: &OccurrenceImage) -> Restored {
        let number = OccurrenceNo(image.number);
        let is_named = self.tenants.name(image.tenant).is_some() && self.queues.name(image.queue).is_some();
        self.check(is_named && self.is_version(image.schedule, image.version), || {
            format!("occurrence {} of no version, tenant or queue", image.number)
        })?;
        let row = OccurrenceRow {
            id: OccurrenceId(image.id),
            schedule: image.schedule,
            version: image.version,
            tenant: image.tenant,
            queue: image.queue,
            kind: image.kind,
            scheduled_for: base.plus(image.scheduled_for),
            available_at: base.plus(image.available_at),
            enqueued_at: image.enqueued_at.map(|at| base.plus(at)),
            entry: image.entry,
            entry_at: base.plus(image.entry_at),
            state: image.state,
            is_tracked: image.is_tracked,
            is_settled: image.is_settled,
            reason: image.reason,
            lane: image.lane,
            holder: Holder::Nobody,
            older: image.older.map(OccurrenceNo),
            newer: None,
        };
        let fits = self.occurrences.restore(number, row);
        self.check(fits, || format!("occurrence {} again, or out of order", image.number))
    }

    fn restore_run(&mut self, base: UnixMs, image: &RunImage<'_>) -> Restored {
        let number = OccurrenceNo(image.occurrence);
        let row = self.occurrences.row(number).map(|row| (row.state, row.tenant));
        let Some((state, tenant)) = row else {
            return self.check(false, || format!("a run of no occurrence {}", image.occurrence));
        };
        let is_running = state == State::Running;
        let fits = is_running == image.attempts.last().is_some_and(|attempt| attempt.result.is_none())
            && (state == State::Dead) == image.died_at.is_some()
            && (is_running || image.claim_id.is_none());
        self.check(fits, || format!("the run of occurrence {} is not {state:?}", image.occurrence))?;
        let review = image.review.as_ref().map(|review| Review {
            holds: review.holds.clone(),
            settled: review.settled.clone(),
            asked_at: review.asked_at.map(|at| base.plus(at)),
            decision: review.decision.map(|(what, reviewer, note)| (what, reviewer.to_owned(), note.to_owned())),
            late_result: review.late_result.map(str::to_owned),
        });
        let shard = self.config.shard;
        let run = Run {
            made: image.made,
            allowed: image.allowed,
            attempts: image.attempts.iter().map(|attempt| self.attempt_of(base, attempt)).collect(),
            token: image.token.map(|(lsn, index)| LeaseToken { shard, lsn: Lsn(lsn), index }),
            lease_ms: image.lease_ms,
            is_in_process: image.is_in_process,
            claim: None,
            called_off: image.called_off,
            stop_asked: image.stop_asked,
            delay_ms: image.delay_ms,
            is_replayed: image.is_replayed,
            died_at: None,
            review: review.map(Box::new),
            lapses_at_ms: None,
            is_orphan: false,
        };
        let fits = self.runs.restore(number, run);
        self.check(fits, || format!("the run of occurrence {} again", image.occurrence))?;
        if let (Some(id), Some(attempt)) = (image.claim_id, self.runs.of(number).and_then(|run| run.attempts.last())) {
            let key = ClaimKey { worker: Arc::clone(&attempt.worker), id: id.into() };
            self.runs.set_claim(number, Some(&Arc::new(key)));
        }
        if let Some(at) = image.died_at {
            self.runs.set_dead(tenant, number, Some(base.plus(at)));
        }
        Ok(())
    }

    fn attempt_of(&self, base: UnixMs, image: &AttemptImage<'_>) -> Attempt {
        // Names are shared as long as they are known.
        let known = self.workers.number(image.worker).and_then(|number| self.workers.name(number));
        Attempt {
            number: image.number,
            worker: known.map_or_else(|| image.worker.into(), Arc::clone),
            started_at: base.plus(image.started_at),
            finished_at: image.finished_at.map(|at| base.plus(at)),
            lease_expires_at: base.plus(image.lease_expires_at),
            result: image.result,
            message: image.message.map(str::to_owned),
            result_ref: image.result_ref.map(str::to_owned),
        }
    }

    fn restore_answered(&mut self, base: UnixMs, image: &AnsweredImage<'_>) {
        let answer = Answered::of(image.answer, base);
        let key = (ScheduleId(image.schedule_id), answer.kind(), image.key.to_vec());
        self.answered.restore(base.plus(image.at), key, answer);
    }

    fn end_restoring(&mut self, restoring: Restoring, counts: Counts) -> Restored {
        let Restoring { head, rules, free, .. } = restoring;
        for id in rules.into_values() {
            self.calendar.release(id);
        }
        let fits = self.schedules.restore_free(free);
        self.check(fits, || "free numbers that are not free".to_owned())?;
        let found = Counts {
            schedules: self.schedules.len() as u64,
            occurrences: self.occurrences.len() as u64,
            runs: self.runs.len() as u64,
        };
        self.check(found == counts, || format!("{counts:?} and {found:?} in it"))?;
        let fits = self.occurrences.skip_to(OccurrenceNo(head.next_occurrence));
        self.check(fits, || "occurrences beyond the next number".to_owned())?;
        self.derive_from_rows()?;
        self.lsn = Lsn(head.lsn);
        Ok(())
    }

    /// What follows from the rows: histories, counts, indices.
    fn derive_from_rows(&mut self) -> Restored {
        let numbers: Vec<OccurrenceNo> = self.occurrences.iter().map(|(number, _)| number).collect();
        let mut entries: Vec<Vec<(EntryId, OccurrenceNo)>> = vec![Vec::new(); self.streams.len()];
        for &number in &numbers {
            self.join_history(number)?;
            self.count_occurrence(number);
            self.check_occurrence(number)?;
            let row = self.occurrences.row(number).expect("it was just listed");
            if let Some(entry) = row.entry.filter(|entry| is_entry_of(&self.occurrences, *entry, number))
                && !self.config.is_embedded
                && let Some(entries) = entries.get_mut(super::super::stream_number(row.stream()) as usize)
            {
                entries.push((entry, number));
            }
        }
        for &number in &numbers {
            self.check_history(number)?;
        }
        self.entries = entries.into_iter().map(Entries::of).collect();
        for number in 0..self.schedules.end() {
            self.schedules.recount(number);
        }
        Ok(())
    }

    /// Follows the neighbour that it names.
    fn join_history(&mut self, number: OccurrenceNo) -> Restored {
        let row = self.occurrences.row(number).expect("it was just listed");
        let (schedule, place, older) = (row.schedule, row.place(), row.older);
        let wrong = || Inconsistent::new(self.lsn, format!("occurrence {} stands wrong in its history", number.0));
        let Some(older) = older else {
            let first = self.schedules.row_mut(schedule).filter(|row| row.oldest.is_none());
            first.ok_or_else(wrong)?.oldest = Some(number);
            return Ok(());
        };
        let before = self
            .occurrences
            .row_mut(older)
            .filter(|before| before.schedule == schedule && before.place() < place && before.newer.is_none());
        before.ok_or_else(wrong)?.newer = Some(number);
        Ok(())
    }

    /// Whoever is followed by nobody is the newest one.
    fn check_history(&mut self, number: OccurrenceNo) -> Restored {
        let row = self.occurrences.row(number).expect("it was just listed");
        if row.newer.is_some() {
            return Ok(());
        }
        let schedule = self.schedules.row_mut(row.schedule).filter(|schedule| schedule.newest.is_none());
        match schedule {
            Some(schedule) => schedule.newest = Some(number),
            None => return Err(Inconsistent::new(self.lsn, format!("occurrence {} ends a second history", number.0))),
        }
        Ok(())
    }

    /// What a schedule's own rule has made has the id that it must have and is behind the cursor; what was claimed, held
    /// or is dead has a run.
    fn check_occurrence(&self, number: OccurrenceNo) -> Restored {
        let row = self.occurrences.row(number).expect("it was just listed");
        let schedule = self.schedule(row.schedule);
        if row.kind == Kind::Regular {
            let id = OccurrenceId::of(schedule.id, row.version, row.scheduled_for, Kind::Regular, b"");
            self.check(row.id == id, || format!("occurrence {} is {}, should be {id}", number.0, row.id))?;
            let is_firing = row.version == schedule.version && !schedule.is_canceled;
            self.check(!is_firing || row.scheduled_for <= schedule.decided_through, || {
                format!("occurrence {} is ahead of its schedule's cursor", number.0)
            })?;
        }
        let needs_run = matches!(row.state, State::Running | State::RetryWait | State::Dead | State::Held);
        self.check(!needs_run || (row.is_tracked && self.runs.of(number).is_some()), || {
            format!("occurrence {} is {:?} without a run", number.0, row.state)
        })
    }

    fn count_occurrence(&mut self, number: OccurrenceNo) {
        let row = self.occurrences.row(number).expect("it was just listed");
        let (schedule, version, tenant) = (row.schedule, row.version, row.tenant);
        let (state, is_tracked) = (row.state, row.is_tracked);
        self.live += usize::from(is_live(state, is_tracked));
        if is_tracked {
            self.runs.set_unsettled(schedule, number, is_unsettled(state));
            self.runs.set_held(tenant, number, state == State::Held);
        }
        let of = self.schedules.row_mut(schedule).expect("an occurrence has a schedule");
        of.waiting += u32::from(state == State::Scheduled);
        if of.version == version {
            of.made += 1;
        } else if let Some(superseded) = self.superseded.get_mut(&(schedule, version)) {
            superseded.made += 1;
        }
    }
}
