//! Schedules that follow their runs, judged from outside: the log is read again, record by record, and each of their
//! instants must be explained by the end or the claim before it.

use std::{collections::BTreeMap, sync::Arc};

use super::{check::BoundRule, script::Script, timeline, world::World};
use crate::kernel::{
    calendar::Basis,
    id::Kind,
    occurrence::{OccurrenceNo, State},
    policy::{Misfire, Overlap},
    record::{RangeBody, Record, RuleBody},
    schedule::{Rule, Spec},
    shard::{Shard, occurrences::OccurrenceRow},
    time::UnixMs,
};

/// Makes some intervals follow their runs.
pub(super) fn sometimes(mut spec: Spec, script: &mut Script<'_>) -> Spec {
    let Rule::Every { basis, .. } = &mut spec.rule else { return spec };
    *basis = [Basis::Slot, Basis::Completion, Basis::Start][script.below(3)];
    if *basis != Basis::Slot {
        spec.overlap = Overlap::Allow;
        if matches!(spec.misfire, Misfire::CatchUp { .. }) {
            spec.misfire = Misfire::Skip;
        }
    }
    spec
}

/// Of updates from one interval to another half leave the anchor where it was.
pub(super) fn anchored(mut spec: Spec, before: &Spec, script: &mut Script<'_>) -> Spec {
    if let (Rule::Every { anchor, .. }, Rule::Every { anchor: known, .. }) = (&mut spec.rule, &before.rule)
        && script.chance(128)
    {
        *anchor = *known;
    }
    spec
}

pub(super) const fn follows_runs(rule: &Rule) -> bool {
    matches!(rule, Rule::Every { basis: Basis::Completion | Basis::Start, .. })
}

/// Whether a schedule of this rule has to wait for something, found by looking at everything.
pub(super) fn is_open(shard: &Shard, schedule: u32, rule: RuleBody) -> bool {
    let from_start = matches!(rule, RuleBody::After { from_start: true, .. });
    let is_awaited = |number: OccurrenceNo| {
        let run = shard.runs.of(number);
        !run.is_some_and(|run| run.is_replayed || (from_start && run.made > 0))
    };
    let mut rows = shard.occurrences.iter().filter(|(_, row)| row.schedule == schedule && row.kind == Kind::Regular);
    rows.any(|(number, row)| !is_over(row) && is_awaited(number))
}

fn is_over(row: &OccurrenceRow) -> bool {
    match row.state {
        State::Scheduled | State::Running | State::RetryWait | State::Held => false,
        State::Enqueued => !row.is_tracked,
        State::Succeeded | State::Dead | State::Missed | State::SkippedOverlap | State::Canceled => true,
    }
}

/// What is known of a schedule that follows its runs.
struct Watch {
    rule: BoundRule,
    from: UnixMs,
    cursor: UnixMs,
}

impl Watch {
    fn parts(&self) -> Option<(i64, UnixMs, bool)> {
        match self.rule.0 {
            Rule::Every { every_ms, anchor: Some(anchor), basis } if basis != Basis::Slot => {
                Some((every_ms, anchor, basis == Basis::Start))
            }
            _ => None,
        }
    }

    /// `every` after what it counts from, or so many times it that the cursor and `start_at` are behind it.
    fn next(&self) -> Option<UnixMs> {
        let (every_ms, ..) = self.parts()?;
        let (_, start_at, end_at) = self.rule;
        let mut next = self.from.plus(every_ms);
        let behind = start_at.map_or(self.cursor, |start| self.cursor.max(start.minus(1)));
        if next <= behind {
            let times = behind.since(self.from).div_euclid(every_ms) + 1;
            next = self.from.plus(times * every_ms);
        }
        end_at.is_none_or(|end| next < end).then_some(next)
    }
}

/// Reads the log again.
struct Observer {
    shard: Shard,
    watched: BTreeMap<u32, Watch>,
    /// Regular occurrences that have not come to their end, and whether they were claimed.
    open: BTreeMap<OccurrenceNo, bool>,
}

/// Each instant is explained, and so is the one to come.
pub(super) fn explained(world: &World) {
    let shard = Shard::new(world.config.clone(), Arc::clone(&world.zones));
    let mut observer = Observer { shard, watched: BTreeMap::new(), open: BTreeMap::new() };
    for (kind, body) in &world.log {
        observer.read(*kind, body);
    }
    for (number, watch) in &observer.watched {
        let row = world.shard.schedule(*number);
        if watch.parts().is_some() && row.is_firing() {
            let next = watch.next().filter(|_| !observer.is_open(*number));
            assert_eq!(row.next, next, "schedule {number} counts from {}", watch.from);
        }
    }
}

impl Observer {
    fn read(&mut self, kind: u8, body: &[u8]) {
        let record = Record::decode(kind, body).expect("what a shard wrote decodes");
        let first_new = self.shard.occurrences.next().0;
        self.shard.replay(kind, body).expect("what a shard wrote, a shard reads");
        if let Some((schedule, range)) = range_of(&record)
            && self.follows_runs(schedule)
        {
            self.instant(schedule, self.shard.log_time.plus(range.first), "disposed of");
            assert_eq!((range.first, range.count), (range.last, 1), "one at a time: {record:?}");
            self.count_from_now(schedule);
        }
        for number in (first_new..self.shard.occurrences.next().0).map(OccurrenceNo) {
            let row = self.shard.occurrences.row(number).expect("nothing is forgotten within a script");
            let (schedule, at, is_regular) = (row.schedule, row.scheduled_for, row.kind == Kind::Regular);
            if is_regular {
                self.instant(schedule, at, "made");
                self.open.insert(number, false);
            }
        }
        self.look_at_open();
        self.describe(&record);
    }

    /// A schedule that follows its runs had this instant.
    fn instant(&mut self, schedule: u32, at: UnixMs, what: &str) {
        let (follows_runs, is_open) = (self.follows_runs(schedule), self.is_open(schedule));
        let watch = self.watched.get_mut(&schedule).expect("a schedule that has instants was created");
        if follows_runs {
            assert!(!is_open, "schedule {schedule}: {at} is {what} while another is open");
            assert_eq!(watch.next(), Some(at), "schedule {schedule}: {at} is {what}, counting from {}", watch.from);
        }
        watch.cursor = watch.cursor.max(at);
    }

    fn follows_runs(&self, schedule: u32) -> bool {
        self.watched.get(&schedule).is_some_and(|watch| follows_runs(&watch.rule.0))
    }

    fn count_from_now(&mut self, schedule: u32) {
        let watch = self.watched.get_mut(&schedule).expect("it was just found");
        watch.from = watch.from.max(self.shard.log_time);
    }

    fn is_open(&self, schedule: u32) -> bool {
        let from_start =
            self.watched.get(&schedule).and_then(Watch::parts).is_some_and(|(_, _, from_start)| from_start);
        self.open.iter().any(|(number, was_claimed)| {
            let is_its = self.shard.occurrences.row(*number).is_some_and(|row| row.schedule == schedule);
            is_its && !(from_start && *was_claimed)
        })
    }

    /// What was claimed or came to its end is counted from.
    fn look_at_open(&mut self) {
        let mut open = std::mem::take(&mut self.open);
        open.retain(|number, was_claimed| {
            let row = self.shard.occurrences.row(*number).expect("nothing is forgotten within a script");
            let (schedule, is_over) = (row.schedule, is_over(row));
            let never_was = row.state == State::Canceled && row.scheduled_for > self.shard.log_time;
            let before = std::mem::replace(was_claimed, self.shard.runs.made(*number) > 0);
            let from_start = self.watched.get(&schedule).and_then(Watch::parts).is_some_and(|(.., start)| start);
            let counts = if from_start { !before && (*was_claimed || is_over) } else { is_over };
            if counts && !never_was {
                self.count_from_now(schedule);
            }
            !is_over
        });
        self.open = open;
    }

    /// A call changed how a schedule is described, or only its version.
    fn describe(&mut self, record: &Record) {
        let now = self.shard.log_time;
        match record {
            Record::ScheduleCreated(created) => {
                let number = self.shard.schedules.number(crate::kernel::id::ScheduleId(created.id));
                let watch = Watch { rule: timeline::rule(&created.spec), from: UnixMs::MIN, cursor: now };
                let from = watch.parts().map_or(UnixMs::MIN, |(_, anchor, _)| anchor);
                self.watched.insert(number.expect("it was just made"), Watch { from, ..watch });
            }
            Record::Updated(updated) => {
                let watch = self.watched.get_mut(&updated.schedule).expect("a schedule that changes was created");
                let anchor = |watch: &Watch| watch.parts().map(|(_, anchor, _)| anchor);
                let before = anchor(watch);
                watch.rule = timeline::rule(&updated.spec);
                if anchor(watch) != before {
                    watch.from = anchor(watch).unwrap_or(UnixMs::MIN);
                }
                watch.cursor = now;
            }
            _ => {}
        }
        let versioned = match record {
            Record::Paused(paused) => Some(paused.schedule),
            Record::Resumed(resumed) => Some(resumed.schedule),
            Record::Canceled(canceled) => Some(canceled.schedule),
            _ => None,
        };
        if let Some(watch) = versioned.and_then(|schedule| self.watched.get_mut(&schedule)) {
            watch.cursor = now;
        }
    }
}

/// Instants of a schedule's own that a record disposed of.
fn range_of(record: &Record) -> Option<(u32, RangeBody)> {
    let (schedule, range) = match record {
        Record::Misfired(misfired) => (misfired.schedule, misfired.missed),
        Record::Updated(updated) => (updated.schedule, updated.closing.due),
        Record::Paused(paused) => (paused.schedule, paused.closing.due),
        Record::Canceled(canceled) => (canceled.schedule, canceled.closing.due),
        Record::Resumed(resumed) => (resumed.schedule, resumed.paused),
        _ => return None,
    };
    Some((schedule, range?))
}
