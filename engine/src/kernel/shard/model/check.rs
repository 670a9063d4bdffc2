//! The promises, checked from the outside and from first principles.

use std::{collections::BTreeMap, sync::Arc};

use super::world::World;
use crate::kernel::{
    calendar::CronRule,
    occurrence::{Lane, OccurrenceNo, State, Stream},
    record::{Misfired, Record, numbers_of},
    schedule::Rule,
    shard::{QueueState, Shard, Turn, listing::rule_of, occurrences::Holder, schedules::ScheduleRow},
    time::UnixMs,
};

/// What leaves in a turn is due, and late only in the lane for it; what misfires was late, and all of it is decided.
pub(super) fn turn(world: &World, turn: &Turn) {
    for &number in turn.releases.iter().flat_map(|release| &release.numbers) {
        let row = world.shard.occurrences.row(number).expect("what is released is live");
        let lateness_ms = world.now.since(row.available_at);
        assert!(lateness_ms >= 0, "{} is released {} ms early", row.id, -lateness_ms);
        let allowed_ms = world.shard.schedule(row.schedule).max_lateness_ms;
        let is_judged = row.lane == Lane::CatchUp || row.state == State::Enqueued;
        assert!(is_judged || lateness_ms.cast_unsigned() <= allowed_ms, "{} is {lateness_ms} ms late", row.id);
        assert!(matches!(row.state, State::Scheduled | State::Enqueued) && row.holder == Holder::Queue, "{row:?}");
    }
    for record in &turn.records {
        if let Record::Misfired(misfired) = record {
            check_misfire(world, misfired);
        }
    }
}

fn check_misfire(world: &World, misfired: &Misfired) {
    let (shard, now) = (&world.shard, world.shard.log_time());
    let schedule = shard.schedule(misfired.schedule);
    let [admitted] = misfired.admitted[..] else { panic!("FIRE_ONCE admits one: {misfired:?}") };
    let admitted = now.plus(admitted);
    let first = misfired.missed.map(|(first, _)| now.plus(first));
    let last = misfired.missed.map(|(_, last)| now.plus(last));
    let one_by_one = numbers_of(&misfired.missed_occurrences).filter_map(|n| shard.occurrences.row(OccurrenceNo(n)));
    let one_by_one: Vec<UnixMs> = one_by_one.map(|row| row.scheduled_for).collect();
    assert!(last.iter().chain(&one_by_one).all(|missed| *missed < admitted), "the latest is admitted: {misfired:?}");
    let oldest = first.into_iter().chain(one_by_one).chain([admitted]).min().expect("one was admitted");
    let lateness_ms = now.since(Shard::available_at(schedule, oldest)).cast_unsigned();
    assert!(lateness_ms > schedule.max_lateness_ms, "{oldest} is only {lateness_ms} ms late");
    assert!(Shard::available_at(schedule, admitted) <= now, "{admitted} is admitted before its time");
    for number in shard.scheduled_of(misfired.schedule) {
        let row = shard.occurrences.row(number).expect("it was listed");
        let is_member = row.available_at <= now && row.lane != Lane::CatchUp && row.holder != Holder::Queue;
        assert!(!is_member, "{} was due and not judged with the rest", row.id);
    }
}

/// Timers, outbox and holders follow from the state.
pub(super) fn derived_state(world: &World) {
    let shard = &world.shard;
    let mut by_state = [0; 3];
    for number in 0..shard.schedules.next() {
        let row = shard.schedule(number);
        by_state[row.state() as usize] += 1;
        let next = if row.canceled { None } else { next_instant(world, row, row.decided_through) };
        assert_eq!(row.next, next, "schedule {number} after {}", row.decided_through);
        let wake = next.map(|next| Shard::available_at(row, next).minus(shard.config.lead_ms));
        let armed = shard.timers.deadline(number);
        assert!(armed == wake || (armed.is_none() && shard.parked.contains(&number)), "{number}: {armed:?} {wake:?}");
        assert_eq!(row.waiting as usize, shard.scheduled_of(number).len());
    }
    assert_eq!(by_state, shard.schedules_by_state());
    assert!(shard.parked.len() <= shard.schedules.next() as usize, "parked twice: {:?}", shard.parked);
    let mut outbox: BTreeMap<OccurrenceNo, UnixMs> = BTreeMap::new();
    for (at, group) in &shard.outbox {
        outbox.extend(group.numbers[group.done..].iter().map(|number| (*number, *at)));
    }
    assert_eq!(shard.outbox_len, shard.outbox.values().map(|group| group.numbers.len() - group.done).sum::<usize>());
    for (number, row) in shard.occurrences.iter() {
        match row.holder {
            Holder::Nobody => assert_ne!(row.state, State::Scheduled, "{} is nowhere", row.id),
            Holder::Outbox => assert_eq!(outbox.get(&number), Some(&row.available_at)),
            Holder::Line => assert!(shard.line.iter().any(|(_, waiting)| *waiting == number)),
            Holder::Withheld => assert!(shard.withheld.contains(&number)),
            Holder::Queue => {
                let is_over = !matches!(row.state, State::Scheduled | State::Enqueued);
                assert!(is_over || world.queue.owes(number), "{} was handed over and forgotten", row.id);
            }
        }
    }
}

/// The shard that the log gives.
pub(super) fn replayed(world: &World) -> Shard {
    let mut shard = Shard::new(world.config.clone(), Arc::clone(&world.zones));
    for (kind, body) in &world.log {
        shard.replay(*kind, body).expect("what a shard wrote, a shard reads");
    }
    shard
}

/// Replay equals live; what is derived was checked against the state already.
pub(super) fn replay(world: &World) {
    let (live, again) = (digest(&world.shard), digest(&replayed(world)));
    for (live, again) in live.iter().zip(&again) {
        assert_eq!(live, again);
    }
    assert_eq!(live.len(), again.len());
}

fn digest(shard: &Shard) -> Vec<String> {
    let mut lines =
        vec![format!("{:?} {:?} {:?} {:?} {:?}", shard.log_time, shard.lsn, shard.opened, shard.streams, shard.ended)];
    for row in (0..shard.schedules.next()).map(|number| shard.schedule(number)) {
        let ranges: Vec<_> = row.text.ranges.iter().map(|r| (r.disposition, r.first, r.last)).collect();
        let identity = (row.id, row.version, row.tenant, row.queue, row.flexible_window_ms, row.max_lateness_ms);
        let cursor = (row.decided_through, row.last_run_at, row.waiting, row.newest, row.changed);
        let times = (row.created_at, row.updated_at, row.canceled, row.plan.body(&shard.calendar), row.plan.bounds());
        lines.push(format!("{identity:?} {cursor:?} {times:?} {ranges:?} {:?} {:?}", row.text.name, row.text.payload));
    }
    let bare = |row: &super::super::occurrences::OccurrenceRow| {
        let mut row = row.clone();
        row.holder = Holder::Nobody;
        row
    };
    lines.extend(shard.occurrences.iter().map(|(number, row)| format!("{number:?} {:?}", bare(row))));
    lines
}

/// Every instant up to the cursor has exactly one disposition, found by walking the rule anew; and nothing that is due
/// is undecided.
pub(super) fn dispositions(world: &World) {
    let shard = &world.shard;
    let mut spans: Vec<Vec<(UnixMs, UnixMs)>> = vec![Vec::new(); shard.schedules.next() as usize];
    for (_, row) in shard.occurrences.iter() {
        spans[row.schedule as usize].push((row.scheduled_for, row.scheduled_for));
        assert!(row.state != State::Scheduled || row.available_at > world.now, "{} is due and waits", row.id);
    }
    for (number, mut spans) in (0..).zip(spans) {
        let row = shard.schedule(number);
        spans.extend(row.text.ranges.iter().map(|range| (range.first, range.last)));
        spans.sort_unstable();
        let mut decided = row.created_at;
        for (first, last) in spans {
            let next = next_instant(world, row, decided);
            assert_eq!(next, Some(first), "schedule {number} after {decided}: the next disposition is at {first}");
            assert_eq!(next_instant(world, row, last.minus(1)), Some(last), "{last} is no instant");
            decided = last;
        }
        let next = next_instant(world, row, decided);
        assert!(next.is_none_or(|next| next > row.decided_through), "{next:?} has no disposition");
        let due = next.filter(|next| !row.canceled && Shard::available_at(row, *next) <= world.now);
        assert_eq!(due, None, "schedule {number} is behind at {}", world.now);
    }
}

/// The rule's next instant, without the calendar's caches.
fn next_instant(world: &World, row: &ScheduleRow, after: UnixMs) -> Option<UnixMs> {
    let (start_at, end_at) = row.plan.bounds();
    let after = start_at.map_or(after, |start| after.max(start.minus(1)));
    let next = match rule_of(row.plan.body(&world.shard.calendar)).0 {
        Rule::Cron(spec) => CronRule::new(&spec, &world.zones).expect("it was accepted").next(after),
        Rule::Every { every_ms, anchor } => {
            let anchor = anchor.expect("the model anchors its grids");
            let past_ms = after.since(anchor).rem_euclid(every_ms);
            Some(after.plus(every_ms - past_ms))
        }
        Rule::At(at) => (at > after).then_some(at),
    };
    assert!(next.is_none_or(|next| next > after), "next({after}) is {next:?}");
    next.filter(|next| end_at.is_none_or(|end| *next < end))
}

/// What callers were told before a crash is so after it, and nothing had left that the log does not know.
pub(super) fn promises(world: &World) {
    for id in &world.created {
        assert!(world.shard.schedules.number(*id).is_some(), "schedule {id} was acknowledged and is gone");
    }
    for id in world.canceled.keys() {
        let row = world.shard.schedules.number(*id).map(|number| world.shard.schedule(number));
        assert!(row.is_some_and(|row| row.canceled), "schedule {id} was canceled and is back");
    }
    let known: Vec<_> = world.shard.occurrences.iter().map(|(_, row)| row.id).collect();
    for id in &world.queue.accepted {
        assert!(known.contains(id), "{id} was handed over before it was durable");
    }
}

/// What the log says and what the queue holds agree.
pub(super) fn queue(world: &World) {
    let accepted = &world.queue.accepted;
    assert_eq!(world.shard.queue, QueueState::Ready);
    for id in world.canceled.values().flatten() {
        assert!(!accepted.contains(id), "{id} was canceled for good and ran");
    }
    for (_, row) in world.shard.occurrences.iter() {
        let stream = Stream { queue: super::super::QueueNo(world.shard.schedule(row.schedule).queue), lane: row.lane };
        let forgotten = world.sent_again_since.get(&stream).is_some_and(|since| row.enqueued_at < Some(*since));
        match row.state {
            State::Enqueued => assert!(forgotten || accepted.contains(&row.id), "{} is not in the queue", row.id),
            State::Missed | State::Canceled if world.config.final_when_enqueued => {
                assert!(!accepted.contains(&row.id), "{} is {:?} and ran", row.id, row.state);
            }
            State::Missed | State::Canceled | State::Scheduled | State::Succeeded => {}
        }
    }
}
