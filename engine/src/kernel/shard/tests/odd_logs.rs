//! Logs that no shard wrote are refused, not believed and not a panic; logs that it wrote give it back at every place.

use std::sync::Arc;

use super::{
    ZONES,
    rig::{Rig, at, cron, every},
};
use crate::kernel::{
    policy::{Effect, Misfire, Overlap, Retry},
    record::{
        BackfillExpanded, BackfillRequested, Canceled, Closing, Enqueued, Lost, Materialized, Misfired, Named, Opened,
        Paused, RangeBody, Record, Resumed, RuleBody, ScheduleCreated, SpecBody, Time, Triggered, Updated,
    },
    schedule::ScheduleState,
    shard::{Config, Shard, Turn},
    time::UnixMs,
};

fn replay(shard: &mut Shard, record: &Record) -> Result<(), String> {
    let mut body = Vec::new();
    record.encode(&mut body);
    shard.replay(record.kind(), &body).map_err(|error| error.to_string())
}

/// A tenant, a queue, schedule 0 with occurrences 0 and 1, of which 1 is SCHEDULED, and schedule 1, canceled.
fn base() -> Vec<Record> {
    let mut rig = Rig::new(at("08:00:00"));
    rig.create(1, &every(10_000, at("08:00:00")), at("08:00:00"));
    let gone = rig.create(2, &every(10_000, at("08:00:00")), at("08:00:00"));
    rig.cancel(gone, at("08:00:01"));
    rig.work_off(at("08:00:10"));
    rig.land(at("08:00:10"));
    rig.work_off(at("08:00:18"));
    rig.log
}

fn created(id: u8, tenant: u32, queue: u32, rule: RuleBody) -> Record {
    Record::ScheduleCreated(Box::new(ScheduleCreated { id: [id; 16], version: 1, tenant, spec: body(queue, rule) }))
}

fn body(queue: u32, rule: RuleBody) -> SpecBody {
    SpecBody {
        queue,
        name: None,
        rule,
        start_at_ms: Some(i64::MIN),
        end_at_ms: Some(i64::MAX),
        payload: vec![],
        flexible_window_ms: u64::MAX,
        max_lateness_ms: u64::MAX,
        misfire: Misfire::CatchUp { limit: u32::MAX },
        overlap: Overlap::QueueOne,
        retry: Retry { max_attempts: 0, base_ms: u64::MAX, cap_ms: 0, deadline_ms: Some(u64::MAX), budget: None },
        effect: Effect::NonIdempotent,
        review_owner: None,
    }
}

const NOWHEN: Option<RangeBody> = Some(RangeBody { first: i64::MAX, last: i64::MIN, count: u64::MAX });

fn every_hour() -> RuleBody {
    RuleBody::Every { every_ms: 3_600_000, anchor_ms: i64::MIN }
}

#[test]
fn records_that_do_not_fit_are_refused() {
    let misfired = |schedule, missed_occurrences| {
        Record::Misfired(Misfired { schedule, admitted: vec![], missed: None, missed_occurrences, through: 0 })
    };
    let enqueued = |stream, runs| {
        Record::Enqueued(Enqueued { stream, generation: 1, first_counter: u64::MAX, added: 0, at: i64::MIN, runs })
    };
    let made = |scheduled_for, schedules: &[u32]| {
        Record::Materialized(Materialized { scheduled_for, schedules: schedules.to_vec() })
    };
    let closing = |kept| Closing { kept, due: NOWHEN, backfills: NOWHEN.into_iter().collect() };
    let cancel = |schedule, kept| Record::Canceled(Canceled { schedule, closing: closing(kept) });
    let pause = |schedule, kept| Record::Paused(Paused { schedule, closing: closing(kept) });
    let update = |schedule, queue, rule| {
        let (spec, closing) = (body(queue, rule), closing(vec![]));
        Record::Updated(Box::new(Updated { schedule, spec, keeps_due: false, closing }))
    };
    let trigger = |schedule| Record::Triggered(Triggered { schedule, discriminator: vec![], is_keyed: true });
    let backfill = |schedule, from, to, count| {
        Record::BackfillRequested(BackfillRequested {
            schedule,
            from,
            to,
            count,
            discriminator: vec![],
            is_keyed: true,
        })
    };
    let expand = |backfill, instants| {
        Record::BackfillExpanded(BackfillExpanded { backfill, instants, through: 0, is_done: false })
    };
    let odd = [
        Record::Opened(Opened { generation: 1, ..Opened::default() }),
        Record::Opened(Opened { generation: u64::MAX, ..Opened::default() }),
        Record::TenantNamed(Named { name: "acme".into() }),
        Record::QueueNamed(Named { name: "mail".into() }),
        created(1, 0, 0, every_hour()),
        created(9, 7, 0, every_hour()),
        created(9, 0, 7, every_hour()),
        created(9, 0, 0, RuleBody::Every { every_ms: 0, anchor_ms: 0 }),
        created(9, 0, 0, RuleBody::After { every_ms: -1, anchor_ms: 0, from_start: true }),
        cancel(7, vec![]),
        cancel(1, vec![]),
        cancel(0, vec![(0, u64::MAX)]),
        pause(7, vec![]),
        pause(1, vec![]),
        pause(0, vec![(0, u64::MAX)]),
        update(7, 0, every_hour()),
        update(1, 0, every_hour()),
        update(0, 7, every_hour()),
        update(0, 0, RuleBody::Every { every_ms: 0, anchor_ms: 0 }),
        Record::Resumed(Resumed { schedule: 7, paused: NOWHEN }),
        Record::Resumed(Resumed { schedule: 1, paused: None }),
        trigger(7),
        trigger(1),
        backfill(7, -10_000, 0, 1),
        backfill(1, -10_000, 0, 1),
        backfill(0, i64::MIN, 0, 1),
        backfill(0, -10_000, 1, 1),
        backfill(0, 0, 0, 1),
        backfill(0, -10_000, 0, u64::MAX),
        expand(0, vec![0]),
        expand(u64::MAX, vec![i64::MAX]),
        made(600_000, &[7]),
        made(600_000, &[0, 0]),
        made(600_000, &[1]),
        made(-600_000, &[0]),
        made(600_000, &[0, u32::MAX, u32::MAX]),
        misfired(7, vec![]),
        misfired(0, vec![(0, 1)]),
        misfired(0, vec![(1, 1), (u64::MAX, 1)]),
        misfired(0, vec![(0, u64::MAX)]),
        misfired(1, vec![(1, 1)]),
        enqueued(7, vec![(0, 1)]),
        enqueued(0, vec![]),
        enqueued(0, vec![(0, 0)]),
        enqueued(0, vec![(0, 3)]),
        enqueued(0, vec![(u64::MAX, u64::MAX)]),
        enqueued(0, vec![(0, 2), (u64::MAX - 1, 2)]),
        Record::Lost(Lost { stream: 9, survived: None, since: 0 }),
    ];
    for record in odd {
        let mut shard = Shard::new(Config::default(), Arc::clone(&ZONES));
        base().iter().for_each(|fits| replay(&mut shard, fits).unwrap());
        let refused = replay(&mut shard, &record);
        assert!(refused.is_err(), "{record:?} was believed");
    }
}

/// Of what follows its runs there is never a second one while one is open, and nothing is past.
#[test]
fn records_that_run_ahead_of_what_is_waited_for_are_refused() {
    let after = RuleBody::After { every_ms: 1_000, anchor_ms: 0, from_start: false };
    let made = |scheduled_for| Record::Materialized(Materialized { scheduled_for, schedules: vec![2] });
    let backfill = Record::BackfillRequested(BackfillRequested {
        schedule: 2,
        from: -2,
        to: -1,
        count: 1,
        discriminator: vec![],
        is_keyed: false,
    });
    for (fitting, odd) in [(vec![made(1_000)], made(2_000)), (vec![], backfill)] {
        let mut shard = Shard::new(Config::default(), Arc::clone(&ZONES));
        base().iter().for_each(|fits| replay(&mut shard, fits).unwrap());
        replay(&mut shard, &created(9, 0, 0, after.clone())).unwrap();
        fitting.iter().for_each(|fits| replay(&mut shard, fits).unwrap());
        assert!(replay(&mut shard, &odd).is_err(), "{odd:?} was believed");
    }
}

#[test]
fn extreme_values_that_fit_are_survived() {
    let zone = |zone: &str| RuleBody::Cron {
        expr: "0 9 * * *".into(),
        zone: zone.into(),
        fold_both: true,
        gap_shift: true,
        day_and: true,
    };
    let odd = [
        Record::Time(Time { forward_ms: u64::MAX }),
        created(9, 0, 0, every_hour()),
        created(9, 0, 0, zone("Europe/Berlin")),
        created(9, 0, 0, RuleBody::After { every_ms: i64::MAX, anchor_ms: i64::MIN, from_start: false }),
        created(9, 0, 0, RuleBody::After { every_ms: 1, anchor_ms: i64::MAX, from_start: true }),
        created(9, 0, 0, RuleBody::At { at_ms: i64::MAX, local: None }),
        Record::Misfired(Misfired {
            schedule: 0,
            admitted: vec![i64::MAX],
            missed: NOWHEN,
            missed_occurrences: vec![(1, 1)],
            through: i64::MAX,
        }),
        Record::Resumed(Resumed { schedule: 0, paused: NOWHEN }),
        Record::Paused(Paused {
            schedule: 0,
            closing: Closing { kept: vec![], due: NOWHEN, backfills: NOWHEN.into_iter().collect() },
        }),
        Record::Triggered(Triggered { schedule: 0, discriminator: vec![0; 70_000], is_keyed: true }),
        Record::BackfillRequested(BackfillRequested {
            schedule: 0,
            from: -1_000_000_000,
            to: 0,
            count: 1,
            discriminator: vec![],
            is_keyed: false,
        }),
        Record::BackfillExpanded(BackfillExpanded {
            backfill: u64::MAX,
            instants: vec![],
            through: i64::MAX,
            is_done: true,
        }),
        Record::Lost(Lost { stream: 0, survived: Some((u64::MAX, u64::MAX)), since: i64::MIN }),
    ];
    for record in odd {
        let mut shard = Shard::new(Config::default(), Arc::clone(&ZONES));
        base().iter().for_each(|fits| replay(&mut shard, fits).unwrap());
        replay(&mut shard, &record).unwrap();
        let now = shard.log_time().max(at("09:00:00"));
        shard.open(Opened::default(), now);
        shard.set_durable(shard.lsn());
        shard.queue_ready();
        for seconds in 0..3 {
            shard.advance(now.plus(seconds * 1_000), &mut Turn::default());
        }
    }
}

#[test]
fn a_log_cut_at_any_place_opens_and_goes_on() {
    let log = base();
    for records in 0..=log.len() {
        let mut rig = Rig::new(at("08:00:00"));
        rig.log.clone_from(&log);
        rig.crash(records, at("08:00:18.500"));
        rig.shard.queue_ready();
        rig.live(at("08:00:40"));
        let Some(number) = rig.shard.schedules.number(crate::kernel::id::ScheduleId([1; 16])) else { continue };
        assert!(rig.history(rig.shard.schedule(number).id).len() >= 3, "cut behind {records}");
    }
}

#[test]
fn a_zone_that_the_loaded_rules_lack_stops_its_schedule_and_no_other() {
    let mut rig = Rig::new(at("08:00:00"));
    rig.create(1, &cron("0 9 * * *", "UTC"), at("08:00:00"));
    let rule = RuleBody::Cron {
        expr: "0 9 * * *".into(),
        zone: "Mars/Olympus".into(),
        fold_both: false,
        gap_shift: false,
        day_and: false,
    };
    rig.log.push(created(9, 0, 0, rule));
    let records = rig.log.len();
    rig.crash(records, at("08:00:00"));
    rig.shard.queue_ready();
    let stranger = crate::kernel::id::ScheduleId([9; 16]);
    rig.live(UnixMs(at("08:00:00").0 + 86_400_000));
    let (schedule, _) = rig.shard.read(&stranger.into(), at("09:00:00")).unwrap();
    assert_eq!((schedule.state, schedule.next_run_at), (ScheduleState::Active, None));
    assert!(schedule.error.unwrap().contains("Mars/Olympus"));
    assert_eq!((rig.history(stranger).len(), rig.shard.counters().enqueued), (0, 1));
    let canceled = rig.cancel(stranger, UnixMs(at("09:00:00").0 + 86_400_000));
    assert_eq!(canceled.receipt.ranges, []);
}
