//! The promises, checked from the outside and from first principles.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use super::{pace, runs, timeline, world::World};
use crate::kernel::{
    calendar::{CronRule, ZoneSet},
    id::Kind,
    occurrence::{Lane, OccurrenceNo, State},
    policy::Misfire,
    record::{Misfired, Record, Settled, numbers_of},
    schedule::{Rule, ScheduleState},
    shard::{
        QueueState, Shard, Turn,
        listing::rule_of,
        occurrences::{Holder, OccurrenceRow},
        schedules::ScheduleRow,
        stream_number,
    },
    time::UnixMs,
};

/// What leaves in a turn is due, and late only in the lane for it; what misfires was late, and all of it is decided.
pub(super) fn turn(world: &World, turn: &Turn) {
    for &number in turn.releases.iter().flat_map(|release| &release.numbers) {
        let row = world.shard.occurrences.row(number).expect("what is released is live");
        let lateness_ms = world.now.since(row.available_at);
        assert!(lateness_ms >= 0, "{} is released {} ms early", row.id, -lateness_ms);
        let allowed_ms = world.shard.policies_of(row.schedule, row.version).max_lateness_ms;
        let was_judged = row.state != State::Scheduled || row.reason.is_some() || row.enqueued_at.is_some();
        let is_judged = row.kind != Kind::Regular || row.lane == Lane::CatchUp || was_judged;
        assert!(is_judged || lateness_ms.cast_unsigned() <= allowed_ms, "{} is {lateness_ms} ms late", row.id);
        let is_open = matches!(row.state, State::Scheduled | State::Enqueued | State::RetryWait);
        assert!(is_open && row.holder == Holder::Queue, "{row:?}");
    }
    for (record, later) in turn.records.iter().zip(1..) {
        if let Record::Misfired(misfired) = record {
            let is_old = |record: &Record| matches!(record, Record::Updated(up) if up.schedule == misfired.schedule);
            // An update that keeps what is due has it judged first, and what it was judged by may be gone.
            if !turn.records[later..].iter().any(is_old) {
                check_misfire(world, misfired);
            }
        }
    }
}

fn check_misfire(world: &World, misfired: &Misfired) {
    let (shard, now) = (&world.shard, world.shard.log_time());
    let schedule = shard.schedule(misfired.schedule);
    let admitted: Vec<UnixMs> = misfired.admitted.iter().map(|at| now.plus(*at)).collect();
    assert!(admitted.is_sorted_by(|a, b| a < b), "oldest first: {misfired:?}");
    let range = misfired.missed.map(|range| (now.plus(range.first), now.plus(range.last)));
    let one_by_one = numbers_of(&misfired.missed_occurrences).filter_map(|n| shard.occurrences.row(OccurrenceNo(n)));
    let one_by_one: Vec<&OccurrenceRow> = one_by_one.collect();
    let missed = one_by_one.iter().map(|row| row.scheduled_for).chain(range.map(|(_, last)| last));
    let last_missed = missed.max();
    assert!(last_missed < admitted.first().copied().or(Some(UnixMs::MAX)), "the latest are admitted: {misfired:?}");
    // What an update kept of an older version is judged by that one's policies.
    let mut rows = shard.occurrences.iter().map(|(_, row)| row).filter(|row| row.schedule == misfired.schedule);
    // Another version may have had the same instant, made ahead and canceled.
    let was_admitted = |row: &&OccurrenceRow| {
        let is_regular = row.kind == Kind::Regular && row.lane == Lane::CatchUp;
        is_regular && Some(row.scheduled_for) == admitted.first().copied()
    };
    let member = one_by_one.first().copied().or_else(|| rows.find(was_admitted));
    let version = member.map_or(schedule.version, |row| row.version);
    let policies = shard.policies_of(misfired.schedule, version);
    match policies.misfire {
        Misfire::Skip => assert!(admitted.is_empty(), "SKIP admits nothing late: {misfired:?}"),
        Misfire::FireOnce => assert!(admitted.len() <= 1, "FIRE_ONCE admits one: {misfired:?}"),
        Misfire::CatchUp { limit } => assert!(admitted.len() <= limit as usize, "at most {limit}: {misfired:?}"),
    }
    let oldest = one_by_one.iter().map(|row| row.available_at);
    let oldest = oldest.chain(range.map(|(first, _)| Shard::available_at(schedule, first)));
    if let Some(oldest) = oldest.min() {
        let lateness_ms = now.since(oldest).cast_unsigned();
        assert!(lateness_ms > policies.max_lateness_ms, "{oldest} is only {lateness_ms} ms late");
    }
}

/// Timers, outbox and holders follow from the state.
pub(super) fn derived_state(world: &World) {
    let shard = &world.shard;
    let mut by_state = [0; ScheduleState::ALL.len()];
    for number in 0..shard.schedules.end() {
        let Some(row) = shard.schedules.row(number) else { continue };
        by_state[row.state().place()] += 1;
        let is_open = row.plan.pace().is_some_and(|pace| pace::is_open(shard, number, pace.body()));
        assert_eq!(row.plan.is_open(), is_open, "schedule {number} waits for what it has made");
        let next = match row.plan.pace() {
            _ if !row.is_firing() || is_open => None,
            // What it counts from is judged at the end.
            Some(_) => row.next.filter(|next| *next > row.decided_through),
            None => next_instant(&world.zones, &rule_of_row(world, row), row.decided_through),
        };
        assert_eq!(row.next, next, "schedule {number} after {}", row.decided_through);
        let wake = next.map(|next| Shard::available_at(row, next).minus(shard.config.lead_ms));
        let armed = shard.timers.deadline(number);
        assert!(armed == wake || (armed.is_none() && shard.parked.contains(&number)), "{number}: {armed:?} {wake:?}");
        assert_eq!(row.waiting as usize, shard.scheduled_of(number).len());
        history_order(shard, row);
    }
    assert_eq!(by_state, shard.schedules_by_state());
    runs::derived_state(shard);
    for (tenant, told) in (0..).zip(&world.permits.told().runs) {
        let running = shard.occurrences.iter().filter(|(_, row)| row.tenant == tenant && row.state == State::Running);
        assert_eq!(told.load(Relaxed), i64::try_from(running.count()).expect("a few"), "permits of tenant {tenant}");
    }
    for (tenant, told) in (0..).zip(&world.permits.told().schedules) {
        let rows = (0..shard.schedules.end()).filter_map(|number| shard.schedules.row(number));
        let counting = rows
            .filter(|row| row.tenant == tenant)
            .filter(|row| matches!(row.state(), ScheduleState::Active | ScheduleState::Paused));
        assert_eq!(told.load(Relaxed).unsigned_abs(), counting.count() as u64, "schedules of tenant {tenant}");
    }
    assert!(shard.parked.len() <= shard.schedules.end() as usize, "parked twice: {:?}", shard.parked);
    shard.due.assert_consistent();
    shard.catch_up.assert_consistent();
    assert_eq!(shard.outbox.len(), shard.outbox.iter().count());
    let due = shard.due.iter().map(|(draw, at, number)| (draw.tenant(), at, number));
    let outbox: BTreeSet<(u32, UnixMs, OccurrenceNo)> = shard.outbox.iter().chain(due).collect();
    let resends = shard.resends.iter().map(|(_, number)| *number);
    let lines: BTreeSet<OccurrenceNo> = shard.catch_up.iter().map(|(_, _, number)| number).chain(resends).collect();
    let in_lobby: BTreeSet<OccurrenceNo> = shard.lobby.iter().collect();
    let mut handed_over = [0; Lane::ALL.len()];
    for (number, row) in shard.occurrences.iter() {
        match row.holder {
            Holder::Nobody => assert_ne!(row.state, State::Scheduled, "{} is nowhere", row.id),
            Holder::Outbox => assert!(outbox.contains(&(row.tenant, row.available_at, number)), "{row:?}"),
            Holder::Line => assert!(lines.contains(&number), "{row:?}"),
            Holder::Withheld => assert!(shard.withheld.contains(&number)),
            Holder::Lobby => assert!(in_lobby.contains(&number), "{row:?} waits for nothing"),
            Holder::Queue | Holder::Claimed => {
                handed_over[row.lane as usize] += 1;
                let is_over = !matches!(row.state, State::Scheduled | State::Enqueued | State::RetryWait);
                assert!(is_over || world.queue.owes(number), "{} was handed over and forgotten", row.id);
            }
        }
    }
    assert_eq!(handed_over, shard.occurrences.handed_over());
    let window = shard.config.window;
    assert!(handed_over.iter().sum::<usize>() <= window, "{handed_over:?} is more than {window}");
    let catch_up = (window / 4).max(1);
    let has_runs = shard.runs.iter().next().is_some();
    let sends_again = world.config.is_embedded || has_runs || !world.sent_again_since.is_empty();
    assert!(handed_over[Lane::CatchUp as usize] <= catch_up || sends_again, "{handed_over:?} of {catch_up}");
}

/// A history is in order, whole, and leads both ways.
fn history_order(shard: &Shard, schedule: &ScheduleRow) {
    let (mut at, mut older, mut made) = (schedule.oldest, None, 0);
    while let Some(number) = at {
        let row = shard.occurrences.row(number).expect("a history names occurrences that are known");
        let before = older.and_then(|older| shard.occurrences.row(older)).map(OccurrenceRow::place);
        assert!(row.older == older && before < Some(row.place()), "{} stands wrong in its history", row.id);
        made += u32::from(row.version == schedule.version);
        (older, at) = (at, row.newer);
    }
    assert_eq!((schedule.newest, schedule.made), (older, made));
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
    same(&world.shard, &replayed(world));
}

/// Both remember the same.
pub(crate) fn same(one: &Shard, other: &Shard) {
    let (one, other) = (digest(one), digest(other));
    for (one, other) in one.iter().zip(&other) {
        assert_eq!(one, other);
    }
    assert_eq!(one.len(), other.len());
}

fn digest(shard: &Shard) -> Vec<String> {
    let mut lines = vec![
        format!("{:?} {:?} {:?} {:?} {:?}", shard.log_time, shard.lsn, shard.opened, shard.streams, shard.ended),
        format!("{:?} {} {:?} {:?}", shard.tombstones, shard.version_floor, shard.answered, shard.superseded),
        format!("{:?} {:?} {:?}", shard.settings, shard.schedules.free(), shard.occurrences.next()),
        format!("{} {} {:?}", shard.next_backfill, shard.has_forgotten, shard.workers.iter().collect::<Vec<_>>()),
        format!("{} {} {}", shard.live(), shard.has_conditions, shard.smallest_lateness_ms),
    ];
    for (stream, _) in shard.remembered_streams() {
        let (stream, [generation, counter]) = (stream_number(stream), [u64::MAX; 2]);
        let all = Settled { stream, generation, counter };
        lines.push(format!("{:?}", shard.acknowledged_rows(&all).collect::<Vec<_>>()));
    }
    for (number, job) in shard.backfills.iter() {
        let place = (number, job.schedule, job.version, &job.discriminator, job.done_through, job.to, job.near);
        lines.push(format!("{place:?} {:?} {:?}", job.plan.body(&shard.calendar), job.plan.bounds()));
    }
    for row in (0..shard.schedules.end()).filter_map(|number| shard.schedules.row(number)) {
        let identity = (row.id, row.version, row.tenant, row.queue, row.flexible_window_ms, &row.policies);
        let cursor = (row.decided_through, row.last_run_at, row.waiting, row.made, row.newest, row.oldest, row.changed);
        let times = (row.created_at, row.updated_at, row.is_canceled, row.is_paused);
        let plan = (row.plan.body(&shard.calendar), row.plan.bounds());
        lines.push(format!("{identity:?} {cursor:?} {times:?} {plan:?} {:?}", row.text));
    }
    lines.extend(shard.runs.iter().map(|(number, run)| format!("{number:?} {:?}", runs::bare(run))));
    let bare = |row: &OccurrenceRow| {
        let mut row = row.clone();
        row.holder = Holder::Nobody;
        row
    };
    lines.extend(shard.occurrences.iter().map(|(number, row)| format!("{number:?} {:?}", bare(row))));
    lines
}

/// Every instant up to now has exactly one disposition, found by walking each version's rule anew over the time for which
/// it stood; and nothing that is due is undecided.
pub(super) fn dispositions(world: &World) {
    let shard = &world.shard;
    for (_, row) in shard.occurrences.iter() {
        assert!(row.state != State::Scheduled || row.available_at > world.now, "{row:?} is due and waits");
    }
    for (id, reigns) in timeline::reigns(&world.log) {
        let number = shard.schedules.number(id).expect("nothing is dropped within a script");
        let row = shard.schedule(number);
        let mut spans: Vec<(UnixMs, UnixMs)> = Vec::new();
        for (_, occurrence) in shard.occurrences.iter().filter(|(_, o)| o.schedule == number) {
            let reign = reigns.iter().find(|reign| reign.version == occurrence.version).expect("versions are recorded");
            match occurrence.kind {
                Kind::Regular if reign.holds(occurrence.scheduled_for) => {
                    spans.push((occurrence.scheduled_for, occurrence.scheduled_for));
                }
                Kind::Regular => {
                    // It may have run before a crash after which the clock was set back, or have been out of reach.
                    let is_over = occurrence.state != State::Scheduled;
                    assert!(is_over, "{id}: {occurrence:?} is not its version's: {reigns:?}");
                }
                Kind::Manual | Kind::Backfill => {}
            }
        }
        let ranges = row.text.ranges.iter().filter(|range| range.kind == Kind::Regular);
        spans.extend(ranges.map(|range| (range.first, range.last)));
        spans.sort_unstable();
        let mut spans = spans.into_iter().peekable();
        for reign in &reigns {
            if pace::follows_runs(&reign.rule.0) {
                while spans.next_if(|(first, _)| reign.holds(*first)).is_some() {}
                continue;
            }
            let mut decided = reign.from;
            while let Some((first, last)) = spans.next_if(|(first, _)| reign.holds(*first)) {
                let next = next_instant(&world.zones, &reign.rule, decided);
                assert_eq!(next, Some(first), "{id} v{} after {decided}: next is at {first}", reign.version);
                assert_eq!(next_instant(&world.zones, &reign.rule, last.minus(1)), Some(last), "{last} is no instant");
                decided = last;
            }
            let through = reign.until.unwrap_or(row.decided_through);
            let next = next_instant(&world.zones, &reign.rule, decided).filter(|_| reign.is_live);
            assert!(next.is_none_or(|next| next > through), "{id}: {next:?} has no disposition");
        }
        assert_eq!(spans.next(), None, "{id} has a disposition outside of every version");
        let due = row.next.filter(|next| Shard::available_at(row, *next) <= world.now);
        // A limit of a few occurrences is filled by what is materialised ahead; the others wait their turn.
        assert!(due.is_none() || shard.at_live_limit, "schedule {number} is behind at {}: {due:?}", world.now);
    }
}

/// A rule and its bounds.
pub(crate) type BoundRule = (Rule, Option<UnixMs>, Option<UnixMs>);

fn rule_of_row(world: &World, row: &ScheduleRow) -> BoundRule {
    let (start_at, end_at) = row.plan.bounds();
    (rule_of(row.plan.body(&world.shard.calendar)).0, start_at, end_at)
}

/// The rule's next instant, without the calendar's caches.
pub(crate) fn next_instant(
    zones: &Arc<ZoneSet>,
    (rule, start_at, end_at): &BoundRule,
    after: UnixMs,
) -> Option<UnixMs> {
    let after = start_at.map_or(after, |start| after.max(start.minus(1)));
    let next = match rule {
        Rule::Cron(spec) => CronRule::new(spec, zones).expect("it was accepted").next(after),
        Rule::Every { every_ms, anchor, .. } => {
            let anchor = anchor.expect("the model anchors its grids");
            let past_ms = after.since(anchor).rem_euclid(*every_ms);
            Some(after.plus(every_ms - past_ms))
        }
        Rule::At(at) => (*at > after).then_some(*at),
    };
    assert!(next.is_none_or(|next| next > after), "next({after}) is {next:?}");
    next.filter(|next| end_at.is_none_or(|end| *next < end))
}

/// What callers were told before a crash is so after it, and nothing had left that the log does not know.
pub(super) fn promises(world: &World) {
    for id in &world.created {
        assert!(world.shard.schedules.number(*id).is_some(), "schedule {id} was acknowledged and is gone");
    }
    for (id, version) in &world.versions {
        let row = world.shard.schedules.number(*id).map(|number| world.shard.schedule(number));
        assert!(row.is_some_and(|row| row.version >= *version), "schedule {id} was at version {version} already");
    }
    for id in &world.canceled {
        let row = world.shard.schedules.number(*id).map(|number| world.shard.schedule(number));
        assert!(row.is_some_and(|row| row.is_canceled), "schedule {id} was canceled and is back");
    }
    let known: Vec<_> = world.shard.occurrences.iter().map(|(_, row)| row.id).collect();
    for (id, _) in &world.queue.accepted {
        assert!(known.contains(id), "{id} was handed over before it was durable");
    }
}

/// What the log says and what the queue holds agree.
pub(super) fn queue(world: &World) {
    let holds = |id| world.queue.holds(id);
    assert_eq!(world.shard.queue, QueueState::Ready);
    for id in &world.called_off {
        let row = world.shard.occurrences.number(*id).and_then(|number| world.shard.occurrences.row(number));
        let row = row.expect("nothing is forgotten within a script");
        assert_eq!(row.state, State::Canceled, "{id} was canceled for good and lives");
        assert!(row.is_tracked || !holds(*id), "{id} was canceled for good and ran");
    }
    for (_, row) in world.shard.occurrences.iter() {
        let stream = row.stream();
        let forgotten = world.sent_again_since.get(&stream).is_some_and(|since| row.entry_at < *since);
        // What is done need not be in the queue any more.
        let forgotten = forgotten || row.is_settled || world.config.is_embedded;
        match row.state {
            State::Enqueued => assert!(forgotten || holds(row.id), "{} is not in the queue", row.id),
            State::Missed | State::Canceled if !row.is_tracked => {
                assert!(!holds(row.id), "{} is {:?} and ran", row.id, row.state);
            }
            _ => {}
        }
    }
}
