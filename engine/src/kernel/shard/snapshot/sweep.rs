//! The sweep over a shard that was cut: which rows come in which order.

use std::sync::Arc;

use super::{super::Shard, cut::Cut};
use crate::kernel::{
    gate::Lsn,
    image::{AnsweredImage, Counts, FORMAT, Head, Image, QueueImage, TenantImage},
    occurrence::Lane,
    shard::{StreamMemory, plan::cron_body, requests::Answered},
    tenant::{QueueSettings, Revised, TenantSettings},
    time::UnixMs,
};

/// A turn's part of a snapshot is about this long, whatever its rows weigh.
const PART_BYTES: usize = 256 << 10;
/// Numbers that an image of free ones holds.
const FREE_AN_IMAGE: usize = 4_096;

/// A snapshot that is being written: what is small as it was at the cut, and how far the sweep has come.
#[derive(Debug)]
pub(in crate::kernel::shard) struct Sweep {
    head: Head,
    tenants: Vec<Revised<TenantSettings>>,
    queues: Vec<Revised<QueueSettings>>,
    streams: Vec<StreamMemory>,
    workers: Vec<Arc<str>>,
    free: Vec<u32>,
    rules: u32,
    counts: Counts,
    stage: Stage,
    /// How many of the stage's rows are done, where they are counted.
    done: usize,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Head,
    Tenants,
    Queues,
    Workers,
    Free,
    Rules,
    Schedules,
    Superseded,
    Backfills,
    Occurrences,
    Runs,
    Tombstones,
    Ended,
    Answered,
    End,
}

impl Stage {
    const fn next(self) -> Option<Self> {
        Some(match self {
            Self::Head => Self::Tenants,
            Self::Tenants => Self::Queues,
            Self::Queues => Self::Workers,
            Self::Workers => Self::Free,
            Self::Free => Self::Rules,
            Self::Rules => Self::Schedules,
            Self::Schedules => Self::Superseded,
            Self::Superseded => Self::Backfills,
            Self::Backfills => Self::Occurrences,
            Self::Occurrences => Self::Runs,
            Self::Runs => Self::Tombstones,
            Self::Tombstones => Self::Ended,
            Self::Ended => Self::Answered,
            Self::Answered => Self::End,
            Self::End => return None,
        })
    }
}

impl Shard {
    /// Cuts the shard behind its last record; a snapshot that was being written is given up. [`Shard::sweep`] gives
    /// what is in it.
    pub fn begin_snapshot(&mut self) -> Lsn {
        let base = self.log_time;
        self.schedules.set_cut(Some(Cut::new(base, Some(self.schedules.end()))));
        self.superseded.set_cut(Some(Cut::new(base, None)));
        self.backfills.set_cut(Some(Cut::new(base, None)));
        let next = self.occurrences.next();
        self.occurrences.set_cut(Some(Cut::new(base, Some(next))));
        self.runs.set_cut(Some(Cut::new(base, Some(next))));
        self.tombstones.set_cut(true);
        self.ended.set_cut(true);
        self.answered.set_cut(true);
        self.calendar.hold_numbers(true);
        let head = Head {
            format: FORMAT,
            lsn: self.lsn.0,
            log_time_ms: base.0,
            opened: self.opened.clone(),
            version_floor: self.version_floor,
            next_backfill: self.next_backfill,
            next_occurrence: next.0,
            first_worker: self.workers.first(),
            has_forgotten: self.has_forgotten,
            has_conditions: self.has_conditions,
            smallest_lateness_ms: self.smallest_lateness_ms,
        };
        self.sweep = Some(Box::new(Sweep {
            head,
            tenants: self.settings.tenants().to_vec(),
            queues: self.settings.queues().to_vec(),
            streams: self.streams.clone(),
            workers: self.workers.iter().cloned().collect(),
            free: self.schedules.free().to_vec(),
            rules: self.calendar.end(),
            counts: Counts {
                schedules: self.schedules.len() as u64,
                occurrences: self.occurrences.len() as u64,
                runs: self.runs.len() as u64,
            },
            stage: Stage::Head,
            done: 0,
        }));
        self.lsn
    }

    /// Whether a snapshot is being written.
    #[must_use]
    pub const fn is_sweeping(&self) -> bool {
        self.sweep.is_some()
    }

    /// Appends the images of the next rows, at most `rows`, and says whether that was the last of them. What one call
    /// appends is a chunk.
    pub fn sweep(&mut self, rows: usize, out: &mut Vec<u8>) -> bool {
        let Some(mut sweep) = self.sweep.take() else { return true };
        let most = out.len().saturating_add(PART_BYTES);
        let mut left = rows;
        while left > 0 && out.len() < most {
            left -= 1;
            if self.sweep_row(&mut sweep, out) {
                sweep.done += 1;
            } else if let Some(next) = sweep.stage.next() {
                (sweep.stage, sweep.done) = (next, 0);
            } else {
                self.drop_snapshot();
                return true;
            }
        }
        self.sweep = Some(sweep);
        false
    }

    /// Gives a snapshot up: nothing is kept for it any more.
    pub fn drop_snapshot(&mut self) {
        self.sweep = None;
        self.schedules.set_cut(None);
        self.superseded.set_cut(None);
        self.backfills.set_cut(None);
        self.occurrences.set_cut(None);
        self.runs.set_cut(None);
        self.tombstones.set_cut(false);
        self.ended.set_cut(false);
        self.answered.set_cut(false);
        self.calendar.hold_numbers(false);
    }

    /// Appends the next row of the stage; false where there is none.
    fn sweep_row(&mut self, sweep: &mut Sweep, out: &mut Vec<u8>) -> bool {
        let base = UnixMs(sweep.head.log_time_ms);
        match sweep.stage {
            Stage::Head => sweep.head(out),
            Stage::Tenants => self.sweep_tenant(sweep, out),
            Stage::Queues => self.sweep_queue(sweep, out),
            Stage::Workers => sweep.worker(out),
            Stage::Free => sweep.free(out),
            Stage::Rules => self.sweep_rule(sweep, out),
            Stage::Schedules => self.schedules.sweep(out),
            Stage::Superseded => self.superseded.sweep(out),
            Stage::Backfills => self.backfills.sweep(out),
            Stage::Occurrences => self.occurrences.sweep(out),
            Stage::Runs => self.runs.sweep(out),
            Stage::Tombstones => self.tombstones.sweep().is_some_and(|(schedule, at)| {
                Image::Tombstone(schedule, at.since(base)).encode(out);
                true
            }),
            Stage::Ended => self.ended.sweep().is_some_and(|(number, at)| {
                Image::Ended(number.0, at.since(base)).encode(out);
                true
            }),
            Stage::Answered => self.sweep_answered(base, out),
            Stage::End => sweep.end(out),
        }
    }

    fn sweep_tenant(&self, sweep: &Sweep, out: &mut Vec<u8>) -> bool {
        let named = u32::try_from(sweep.done).ok().and_then(|number| self.tenants.name(number));
        let (Some(name), Some(set)) = (named, sweep.tenants.get(sweep.done)) else { return false };
        let Revised { revision, settings } = *set;
        Image::Tenant(TenantImage { name, revision, settings }).encode(out);
        true
    }

    fn sweep_queue(&self, sweep: &Sweep, out: &mut Vec<u8>) -> bool {
        let named = u32::try_from(sweep.done).ok().and_then(|number| self.queues.name(number));
        let (Some(name), Some(set)) = (named, sweep.queues.get(sweep.done)) else { return false };
        let Revised { revision, settings } = *set;
        let mut streams = [(None, 0); Lane::ALL.len()];
        for (image, memory) in streams.iter_mut().zip(sweep.streams.iter().skip(sweep.done * Lane::ALL.len())) {
            *image = (memory.last, memory.added);
        }
        Image::Queue(QueueImage { name, revision, settings, streams }).encode(out);
        true
    }

    fn sweep_rule(&self, sweep: &Sweep, out: &mut Vec<u8>) -> bool {
        let Some(number) = u32::try_from(sweep.done).ok().filter(|number| *number < sweep.rules) else { return false };
        if let Some(spec) = self.calendar.spec_at(number) {
            Image::Rule(number, cron_body(spec)).encode(out);
        }
        true
    }

    fn sweep_answered(&mut self, base: UnixMs, out: &mut Vec<u8>) -> bool {
        let Some((at, (schedule, _, key), answered)) = self.answered.sweep() else { return false };
        let image = AnsweredImage {
            at: at.since(base),
            schedule_id: schedule.0,
            key: &key,
            answer: Answered::image(answered, base),
        };
        Image::Answered(image).encode(out);
        true
    }
}

impl Sweep {
    fn head(&self, out: &mut Vec<u8>) -> bool {
        let is_due = self.done == 0;
        if is_due {
            Image::Head(self.head.clone()).encode(out);
        }
        is_due
    }

    fn worker(&self, out: &mut Vec<u8>) -> bool {
        let Some(name) = self.workers.get(self.done) else { return false };
        Image::Worker(name).encode(out);
        true
    }

    fn free(&self, out: &mut Vec<u8>) -> bool {
        let Some(numbers) = self.free.chunks(FREE_AN_IMAGE).nth(self.done) else { return false };
        Image::Free(numbers.to_vec()).encode(out);
        true
    }

    fn end(&self, out: &mut Vec<u8>) -> bool {
        let is_due = self.done == 0;
        if is_due {
            Image::End(self.counts).encode(out);
        }
        is_due
    }
}
