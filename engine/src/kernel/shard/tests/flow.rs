//! From a schedule to the queue, on time.

use super::rig::{Rig, at, cron, every, spec};
use crate::kernel::{
    id::{Kind, OccurrenceId, ScheduleId},
    occurrence::{EntryId, Lane, OccurrenceNo},
    policy::{Effect, Misfire, Overlap, Retry},
    record::{Enqueued, Materialized, Named, Record, RuleBody, ScheduleCreated, SpecBody, Time},
    refusal::RefusalCode,
    schedule::{Rule, ScheduleState},
    shard::{CommandError, Config, Creation, Lag, Release, Turn, Urgency},
    time::UnixMs,
};

#[test]
fn an_instant_is_materialised_ahead_released_on_time_and_lands() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &cron("* * * * *", "UTC"), at("08:00:30"));
    let rule = RuleBody::Cron {
        expr: "* * * * *".into(),
        zone: "UTC".into(),
        fold_both: false,
        gap_shift: false,
        day_and: false,
    };
    let created = ScheduleCreated {
        id: id.0,
        version: 1,
        tenant: 0,
        spec: SpecBody {
            queue: 0,
            name: None,
            rule,
            start_at_ms: None,
            end_at_ms: None,
            payload: b"hi".to_vec(),
            flexible_window_ms: 0,
            max_lateness_ms: 60_000,
            misfire: Misfire::FireOnce,
            overlap: Overlap::Allow,
            retry: Retry::default(),
            effect: Effect::Idempotent,
            review_owner: None,
        },
    };
    let named = |name: &str| Named { name: name.into() };
    let before = rig.log.len();
    assert_eq!(
        rig.log[before - 3..],
        [
            Record::Time(Time { forward_ms: 30_000 }),
            Record::TenantNamed(named("acme")),
            Record::ScheduleCreated(Box::new(created)),
        ]
    );
    assert!(rig.shard.next_wake().is_some_and(|wake| wake <= at("08:00:58")));
    rig.turn(|shard, turn| shard.advance(at("08:00:57.999"), turn));
    assert_eq!(rig.log.len(), before, "not before its lead");

    let turn = rig.turn(|shard, turn| shard.advance(at("08:00:58"), turn));
    let materialized = Record::Materialized(Materialized { scheduled_for: 2_000, schedules: vec![0] });
    assert_eq!(rig.log[before..], [Record::Time(Time { forward_ms: 28_000 }), materialized]);
    assert_eq!((turn.urgency, turn.staged, turn.releases), (Urgency::Within(500), vec![OccurrenceNo(0)], vec![]));

    let turn = rig.turn(|shard, turn| shard.advance(at("08:00:59.999"), turn));
    assert_eq!(turn.releases, []);
    let turn = rig.turn(|shard, turn| shard.advance(at("08:01:00"), turn));
    assert_eq!(turn.releases, [Release { at: at("08:01:00"), numbers: vec![OccurrenceNo(0)] }]);
    assert_eq!(turn.forget_staged, Some(at("08:01:00")));

    let stream = rig.stream(OccurrenceNo(0));
    let first = EntryId { generation: 1, counter: 1 };
    let (heard, now) = (at("08:01:00.003"), at("08:01:00.004"));
    let turn = rig.turn(|shard, turn| shard.landed((stream, first, 1), &[OccurrenceNo(0)], heard, now, turn));
    let enqueued = Enqueued { stream: 0, generation: 1, first_counter: 1, added: 1, at: -1, runs: vec![(0, 1)] };
    assert_eq!(rig.log.last(), Some(&Record::Enqueued(enqueued)));
    assert_eq!(
        (turn.urgency, turn.lags),
        (Urgency::Within(1_000), vec![Lag { tenant: 0, lane: Lane::Strict, lag_ms: 3 }])
    );
    assert_eq!(turn.recorded, [(rig.shard.lsn(), stream, first)]);
    assert_eq!(rig.history(id), ["08:01:00 ENQUEUED strict"]);
}

#[test]
fn nothing_is_handed_over_before_its_record_is_durable() {
    let mut rig = Rig::new(at("08:00:00"));
    rig.create(1, &cron("* * * * *", "UTC"), at("08:00:30"));
    let mut turn = Turn::default();
    rig.shard.advance(at("08:01:00"), &mut turn);
    assert_eq!((turn.releases.len(), turn.hasten, turn.urgency), (0, true, Urgency::Prompt));
    let wake = rig.shard.next_wake();
    assert!(wake.is_some_and(|wake| wake > at("08:01:00")), "{wake:?}: the log wakes who waits for it, not the clock");
    rig.shard.set_durable(rig.shard.lsn());
    let mut turn = Turn::default();
    rig.shard.advance(at("08:01:00.001"), &mut turn);
    assert_eq!(turn.releases.len(), 1);
}

#[test]
fn a_schedule_made_within_the_lead_is_prompt_and_punctual() {
    let mut rig = Rig::new(at("08:00:00"));
    rig.create(1, &cron("* * * * *", "UTC"), at("08:00:59.900"));
    let turn = rig.turn(|shard, turn| shard.advance(at("08:00:59.900"), turn));
    assert_eq!((turn.urgency, turn.staged.len()), (Urgency::Prompt, 1));
    let turn = rig.turn(|shard, turn| shard.advance(at("08:01:00"), turn));
    assert_eq!(turn.releases, [Release { at: at("08:01:00"), numbers: vec![OccurrenceNo(0)] }]);
}

#[test]
fn a_schedule_never_looks_back_at_the_instant_it_is_made() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &cron("* * * * *", "UTC"), at("08:01:00"));
    rig.live(at("08:02:00"));
    assert_eq!(rig.history(id), ["08:02:00 ENQUEUED strict"]);
}

#[test]
fn a_one_off_runs_once_and_is_completed() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &spec(Rule::At(at("09:00:00"))), at("08:00:00"));
    assert_eq!(rig.shard.schedules_by_state(), [1, 0, 0, 0]);
    rig.live(at("20:00:00"));
    assert_eq!(rig.history(id), ["09:00:00 ENQUEUED strict"]);
    let (schedule, _) = rig.shard.read(&id.into(), at("20:00:00")).unwrap();
    assert_eq!((schedule.state, schedule.next_run_at), (ScheduleState::Completed, None));
    assert_eq!(rig.shard.schedules_by_state(), [0, 0, 1, 0]);

    let past = spec(Rule::At(at("08:00:00")));
    let past = Creation { id: ScheduleId([9; 16]), spec: past, is_keyed: false };
    let refused = rig.shard.create(&past, at("20:00:00"), &mut Turn::default()).unwrap_err();
    assert!(matches!(refused, CommandError::Refused(refusal) if refusal.code == RefusalCode::InThePast));
}

#[test]
fn a_window_spreads_what_enters_the_queue_and_not_what_it_is_called() {
    let mut rig = Rig::new(at("08:00:00"));
    let mut flexible = every(60_000, at("08:00:00"));
    flexible.flexible_window_ms = 30_000;
    let id = rig.create(1, &flexible, at("08:00:00"));
    let occurrence = OccurrenceId::of(id, 1, at("08:01:00"), Kind::Regular, b"");
    let available_at = occurrence.available_at(at("08:01:00"), 30_000);
    assert!(available_at > at("08:01:02"), "the test needs an instant that is past and not yet available");
    rig.advance(available_at.minus(2_001));
    assert_eq!(rig.shard.occurrence(OccurrenceNo(0)), None);
    rig.advance(available_at.minus(1));
    assert_eq!(rig.handed, []);
    rig.advance(available_at);
    assert_eq!(rig.handed, [OccurrenceNo(0)]);
    rig.land(available_at);
    assert_eq!(rig.history(id), ["08:01:00 ENQUEUED flexible"]);
}

#[test]
fn two_schedules_fire_at_every_instant_they_share() {
    let mut rig = Rig::new(at("08:00:00"));
    let fast = rig.create(1, &cron("*/20 * * * * *", "UTC"), at("08:00:00"));
    let slow = rig.create(2, &cron("0 */15 * * * *", "UTC"), at("08:00:00"));
    rig.live(at("10:00:00"));
    assert_eq!((rig.history(fast).len(), rig.history(slow).len()), (360, 8));
    let both = |record: &&Record| matches!(record, Record::Materialized(m) if m.schedules == [0, 1]);
    assert_eq!(rig.log.iter().filter(both).count(), 8, "one record for an instant that is shared");
}

#[test]
fn half_a_million_on_one_millisecond_take_many_short_turns() {
    const SCHEDULES: u32 = 500_000;
    let mut rig = Rig::with(Config { window: SCHEDULES as usize, ..Config::default() }, at("08:00:00"));
    let mut one_off = spec(Rule::At(at("09:00:00")));
    one_off.payload.clear();
    let mut turn = Turn::default();
    for number in 0..SCHEDULES {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_le_bytes());
        let creation = Creation { id: ScheduleId(id), spec: one_off.clone(), is_keyed: false };
        rig.shard.create(&creation, at("08:00:00"), &mut turn).unwrap();
    }
    let mut total = 0;
    for now in [at("08:59:58"), at("09:00:00")] {
        loop {
            let mut turn = Turn::default();
            rig.shard.set_durable(rig.shard.lsn());
            rig.shard.advance(now, &mut turn);
            let released: usize = turn.releases.iter().map(|release| release.numbers.len()).sum();
            assert!(turn.staged.len() <= 4_096 && released <= 2 * 4_096);
            total += released;
            if !turn.more {
                break;
            }
        }
    }
    assert_eq!(total, SCHEDULES as usize);
    assert_eq!(rig.shard.outbox_len(), 0);
}

#[test]
fn readers_see_what_comes_next_and_how_late_it_is() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &cron("0 * * * *", "UTC"), at("08:00:00"));
    // The timer is lost, which must not be: health is due against fired, not what a next run looks like.
    rig.shard.timers.disarm(0);
    rig.advance(at("09:00:07"));
    let (schedule, _) = rig.shard.read(&id.into(), at("09:00:07")).unwrap();
    assert_eq!((schedule.overdue_ms, schedule.next_run_at), (7_000, Some(at("09:00:00"))));
    let hours: Vec<UnixMs> = (0..5).map(|hour| at("09:00:00").plus(hour * 3_600_000)).collect();
    assert_eq!(schedule.next, hours);
}
