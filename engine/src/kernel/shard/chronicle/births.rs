//! How occurrences come to be: by their rule, late, by a trigger, by a backfill.

use std::collections::BTreeMap;

use super::{
    Asked, Call, Chronicle, ChronicleError, Judgement, Maker, Origin, Step, Told,
    occurrences::{Followed, Row},
    unfitting,
};
use crate::kernel::{
    id::{Kind, OccurrenceId},
    occurrence::{Lane, State},
    record::{BackfillExpanded, BackfillRequested, Materialized, Misfired, Triggered, numbers_of},
    schedule::RangeDisposition,
    time::UnixMs,
};

/// A backfill that is not expanded to its end.
#[derive(Debug)]
pub(super) struct Backfill {
    pub(super) schedule: u32,
    pub(super) version: u32,
    discriminator: Vec<u8>,
}

/// An occurrence to be.
struct Birth<'a> {
    schedule: u32,
    version: u32,
    scheduled_for: UnixMs,
    kind: Kind,
    lane: Lane,
    discriminator: &'a [u8],
    by: Origin,
}

impl Chronicle {
    pub(super) fn materialized(&mut self, materialized: &Materialized) -> Result<(), ChronicleError> {
        let scheduled_for = self.instant(materialized.scheduled_for);
        let mut schedule = 0_u32;
        for &step in &materialized.schedules {
            schedule = schedule.checked_add(step).ok_or_else(|| unfitting("schedule numbers beyond 2^32"))?;
            self.regular(schedule, scheduled_for, None, Origin::Rule)?;
        }
        Ok(())
    }

    fn regular(
        &mut self,
        schedule: u32,
        scheduled_for: UnixMs,
        lane: Option<Lane>,
        by: Origin,
    ) -> Result<(), ChronicleError> {
        let row = self.schedule(schedule)?;
        let lane = lane.unwrap_or(row.own_lane());
        if let Some(story) = self.story_of(schedule) {
            story.decided_through = story.decided_through.max(scheduled_for);
        }
        let kind = Kind::Regular;
        self.insert(&Birth { schedule, version: row.version, scheduled_for, kind, lane, discriminator: b"", by })
    }

    fn insert(&mut self, birth: &Birth<'_>) -> Result<(), ChronicleError> {
        let &Birth { schedule, scheduled_for, kind, lane, .. } = birth;
        let of = self.schedule(schedule)?;
        let told = self.followed(birth)?;
        let is_explained = told.as_ref().is_some_and(|told| told.keeps_steps);
        let mut row = Row {
            schedule,
            tenant: of.tenant,
            queue: of.queue,
            kind,
            lane,
            state: State::Scheduled,
            reason: None,
            scheduled_for,
            enqueued_at: None,
            entry_at: UnixMs::MIN,
            entry: None,
            called_off: None,
            died_at: None,
            attempts: 0,
            is_tracked: self.is_tracked.get(of.queue as usize).copied().unwrap_or(true),
            is_settled: false,
            has_run: false,
            told,
        };
        row.note(self.place(), || Step::Materialized { lane, by: birth.by });
        let number = self.occurrences.push(row);
        if is_explained {
            self.explained = Some(number);
        }
        Ok(())
    }

    /// What is kept of an occurrence that was asked for.
    fn followed(&self, birth: &Birth<'_>) -> Result<Option<Box<Followed>>, ChronicleError> {
        let &Birth { schedule, version, scheduled_for, kind, .. } = birth;
        let wanted = match self.asked {
            _ if self.subject != Some(schedule) => return Ok(None),
            Asked::Maker(_) => return Ok(None),
            Asked::Occurrence(wanted, _) if wanted.scheduled_for() == scheduled_for => Some(wanted),
            Asked::Occurrence(..) => return Ok(None),
            Asked::Schedule(..) if self.is_asked(schedule, scheduled_for) => None,
            Asked::Schedule(..) => return Ok(None),
        };
        let of = self.schedule(schedule)?;
        let id = OccurrenceId::of(of.id, version, scheduled_for, kind, birth.discriminator);
        if wanted.is_some_and(|wanted| wanted != id) {
            return Ok(None);
        }
        let available_at = match kind {
            Kind::Regular => id.available_at(scheduled_for, of.flexible_window_ms),
            Kind::Manual | Kind::Backfill => self.now,
        };
        Ok(Some(Box::new(Followed {
            id,
            version,
            tenant: Self::name(&self.tenants, of.tenant),
            queue: Self::name(&self.queues, of.queue),
            available_at,
            ended_at: None,
            keeps_steps: wanted.is_some(),
            steps: Vec::new(),
        })))
    }

    pub(super) fn misfired(&mut self, misfired: &Misfired) -> Result<(), ChronicleError> {
        let schedule = misfired.schedule;
        self.check_runs(&misfired.missed_occurrences)?;
        let place = self.place();
        let missed = numbers_of(&misfired.missed_occurrences).count() as u64;
        let judged = Judgement {
            through: self.instant(misfired.through),
            admitted: misfired.admitted.len() as u64,
            missed: missed.saturating_add(misfired.missed.map_or(0, |range| range.count)),
            range: misfired.missed.map(|range| (self.instant(range.first), self.instant(range.last))),
        };
        for number in numbers_of(&misfired.missed_occurrences) {
            self.open_row(number)?.note(place, || Step::Missed(judged));
            self.occurrences.move_to(number, State::Missed, None, self.now);
        }
        let waiting: BTreeMap<UnixMs, u64> = self
            .occurrences
            .open_of(schedule)
            .filter(|(_, row)| row.state == State::Scheduled && row.kind == Kind::Regular)
            .map(|(number, row)| (row.scheduled_for, number))
            .collect();
        for &difference_ms in &misfired.admitted {
            let scheduled_for = self.instant(difference_ms);
            match waiting.get(&scheduled_for).and_then(|number| self.occurrences.row_mut(*number)) {
                Some(row) => {
                    row.lane = Lane::CatchUp;
                    row.note(place, || Step::Admitted(judged));
                }
                None => self.regular(schedule, scheduled_for, Some(Lane::CatchUp), Origin::Misfire(judged))?,
            }
        }
        self.range(schedule, Kind::Regular, RangeDisposition::Missed, misfired.missed)?;
        if let Some(story) = self.story_of(schedule) {
            story.decided_through = story.decided_through.max(judged.through);
        }
        Ok(())
    }

    pub(super) fn triggered(&mut self, triggered: &Triggered) -> Result<(), ChronicleError> {
        let Triggered { schedule, discriminator, .. } = triggered;
        let of = self.schedule(*schedule)?;
        let id = OccurrenceId::of(of.id, of.version, self.now, Kind::Manual, discriminator);
        self.recognise(id, Maker { schedule: of.id, version: of.version, kind: Kind::Manual });
        self.called(*schedule, Call::Trigger { occurrence: id });
        self.insert(&Birth {
            schedule: *schedule,
            version: of.version,
            scheduled_for: self.now,
            kind: Kind::Manual,
            lane: Lane::Strict,
            discriminator,
            by: Origin::Trigger,
        })
    }

    pub(super) fn backfill_requested(&mut self, asked: BackfillRequested) -> Result<(), ChronicleError> {
        let of = self.schedule(asked.schedule)?;
        let (from, to) = (self.instant(asked.from), self.instant(asked.to));
        self.called(asked.schedule, Call::Backfill { from, to, count: asked.count });
        if let Asked::Maker(wanted) = self.asked
            && (from..to).contains(&wanted.scheduled_for())
        {
            let kind = Kind::Backfill;
            let id = OccurrenceId::of(of.id, of.version, wanted.scheduled_for(), kind, &asked.discriminator);
            self.recognise(id, Maker { schedule: of.id, version: of.version, kind });
        }
        let number = self.next_backfill;
        self.next_backfill += 1;
        if asked.count > 0 {
            let backfill =
                Backfill { schedule: asked.schedule, version: of.version, discriminator: asked.discriminator };
            self.backfills.insert(number, backfill);
        }
        Ok(())
    }

    pub(super) fn backfill_expanded(&mut self, expanded: &BackfillExpanded) -> Result<(), ChronicleError> {
        let number = expanded.backfill;
        let Some(backfill) = self.backfills.remove(&number) else {
            let fits = expanded.instants.is_empty();
            return if fits { Ok(()) } else { Err(unfitting(format!("backfill {number} is over"))) };
        };
        for &difference_ms in &expanded.instants {
            self.insert(&Birth {
                schedule: backfill.schedule,
                version: backfill.version,
                scheduled_for: self.instant(difference_ms),
                kind: Kind::Backfill,
                lane: Lane::CatchUp,
                discriminator: &backfill.discriminator,
                by: Origin::Backfill,
            })?;
        }
        if !expanded.is_done {
            self.backfills.insert(number, backfill);
        }
        Ok(())
    }

    /// Notes who made what was asked for.
    pub(super) fn recognise(&mut self, id: OccurrenceId, maker: Maker) {
        if matches!(self.asked, Asked::Maker(wanted) if wanted == id) {
            self.maker = Some(maker);
        }
    }

    /// Notes a call about what was asked for.
    pub(super) fn called(&mut self, schedule: u32, call: Call) {
        if self.is_asked(schedule, self.now) {
            let told: Told<Call> = self.told(call);
            if let Some(story) = &mut self.story {
                story.calls.push(told);
            }
        }
    }
}
