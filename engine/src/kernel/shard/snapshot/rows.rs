//! The image of each kind of row.

use super::cut::Imaged;
use crate::kernel::{
    attempt::Attempt,
    image::{
        AttemptImage, BackfillImage, Image, OccurrenceImage, RangeImage, ReviewImage, RunImage, ScheduleImage,
        SupersededImage,
    },
    occurrence::OccurrenceNo,
    shard::{
        occurrences::OccurrenceRow,
        requests::BackfillJob,
        runs::{Review, Run},
        schedules::{ScheduleRow, Superseded},
    },
    time::UnixMs,
};

type Bounds = (Option<UnixMs>, Option<UnixMs>);

fn bounds_image((start_at, end_at): Bounds, base: UnixMs) -> (Option<i64>, Option<i64>) {
    (start_at.map(|at| at.since(base)), end_at.map(|at| at.since(base)))
}

impl Imaged<u32> for ScheduleRow {
    fn write_image(&self, number: u32, base: UnixMs, out: &mut Vec<u8>) {
        let ranges = self.text.ranges.iter().map(|range| RangeImage {
            kind: range.kind,
            disposition: range.disposition,
            first: range.first.since(base),
            last: range.last.since(base),
            count: range.count,
        });
        let image = ScheduleImage {
            number,
            id: self.id.0,
            version: self.version,
            tenant: self.tenant,
            queue: self.queue,
            plan: self.plan.image(),
            bounds: bounds_image(self.plan.bounds(), base),
            flexible_window_ms: self.flexible_window_ms,
            policies: *self.policies,
            is_canceled: self.is_canceled,
            is_paused: self.is_paused,
            created_at: self.created_at.since(base),
            updated_at: self.updated_at.since(base),
            decided_through: self.decided_through.since(base),
            last_run_at: self.last_run_at.map(|at| at.since(base)),
            retries: self.retries,
            changed: self.changed.0,
            name: self.text.name.as_deref(),
            payload: &self.text.payload,
            review_owner: self.text.review_owner.as_deref(),
            ranges: ranges.collect(),
        };
        Image::Schedule(image).encode(out);
    }
}

impl Imaged<(u32, u32)> for Superseded {
    fn write_image(&self, (schedule, version): (u32, u32), _: UnixMs, out: &mut Vec<u8>) {
        let image = SupersededImage {
            schedule,
            version,
            policies: *self.policies,
            payload: &self.payload,
            flexible_window_ms: self.flexible_window_ms,
        };
        Image::Superseded(image).encode(out);
    }
}

impl Imaged<u64> for BackfillJob {
    fn write_image(&self, number: u64, base: UnixMs, out: &mut Vec<u8>) {
        let image = BackfillImage {
            number,
            schedule: self.schedule,
            version: self.version,
            plan: self.plan.image(),
            bounds: bounds_image(self.plan.bounds(), base),
            discriminator: &self.discriminator,
            done_through: self.done_through.since(base),
            to: self.to.since(base),
            near: self.near.map(|near| near.0),
        };
        Image::Backfill(image).encode(out);
    }
}

impl Imaged<OccurrenceNo> for OccurrenceRow {
    fn write_image(&self, number: OccurrenceNo, base: UnixMs, out: &mut Vec<u8>) {
        let image = OccurrenceImage {
            number: number.0,
            id: self.id.0,
            schedule: self.schedule,
            version: self.version,
            tenant: self.tenant,
            queue: self.queue,
            kind: self.kind,
            scheduled_for: self.scheduled_for.since(base),
            available_at: self.available_at.since(base),
            enqueued_at: self.enqueued_at.map(|at| at.since(base)),
            entry: self.entry,
            entry_at: self.entry_at.since(base),
            state: self.state,
            reason: self.reason,
            lane: self.lane,
            is_tracked: self.is_tracked,
            is_settled: self.is_settled,
            older: self.older.map(|older| older.0),
        };
        Image::Occurrence(image).encode(out);
    }
}

impl Imaged<OccurrenceNo> for Run {
    fn write_image(&self, number: OccurrenceNo, base: UnixMs, out: &mut Vec<u8>) {
        let image = RunImage {
            occurrence: number.0,
            made: self.made,
            allowed: self.allowed,
            attempts: self.attempts.iter().map(|attempt| attempt_image(attempt, base)).collect(),
            token: self.token.map(|token| (token.lsn.0, token.index)),
            lease_ms: self.lease_ms,
            is_in_process: self.is_in_process,
            called_off: self.called_off,
            stop_asked: self.stop_asked,
            delay_ms: self.delay_ms,
            is_replayed: self.is_replayed,
            died_at: self.died_at.map(|at| at.since(base)),
            review: self.review.as_deref().map(|review| review_image(review, base)),
            claim_id: self.claim.as_deref().map(|claim| &*claim.id),
        };
        Image::Run(image).encode(out);
    }
}

fn attempt_image(attempt: &Attempt, base: UnixMs) -> AttemptImage<'_> {
    AttemptImage {
        number: attempt.number,
        worker: &attempt.worker,
        started_at: attempt.started_at.since(base),
        finished_at: attempt.finished_at.map(|at| at.since(base)),
        lease_expires_at: attempt.lease_expires_at.since(base),
        result: attempt.result,
        message: attempt.message.as_deref(),
        result_ref: attempt.result_ref.as_deref(),
    }
}

fn review_image(review: &Review, base: UnixMs) -> ReviewImage<'_> {
    let decision = review.decision.as_ref();
    ReviewImage {
        holds: review.holds.clone(),
        settled: review.settled.clone(),
        asked_at: review.asked_at.map(|at| at.since(base)),
        decision: decision.map(|(resolution, reviewer, note)| (*resolution, reviewer.as_str(), note.as_str())),
        late_result: review.late_result.as_deref(),
    }
}
