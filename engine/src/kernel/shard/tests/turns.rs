//! Whose turn it is: shares, rates and the window.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use super::rig::{Rig, at};
use crate::kernel::{
    id::ScheduleId,
    occurrence::{Lane, OccurrenceNo},
    permits::{Draw, Permits},
    schedule::{Rule, Spec},
    shard::{CommandError, Config, Creation, Request, Shard},
    tenant::{Revised, TenantSettings},
    time::UnixMs,
};

/// Tokens that a test hands out: of the first tenant's trigger rate, of every catch-up rate, and of schedules.
#[derive(Clone, Debug)]
struct Purse {
    triggers: Arc<AtomicUsize>,
    catch_up: Arc<AtomicUsize>,
    schedules: Arc<AtomicUsize>,
}

impl Purse {
    fn new(triggers: usize, catch_up: usize) -> Self {
        let tokens = |count| Arc::new(AtomicUsize::new(count));
        Self { triggers: tokens(triggers), catch_up: tokens(catch_up), schedules: tokens(usize::MAX) }
    }

    fn of(&self, draw: Draw) -> Option<&AtomicUsize> {
        match draw {
            Draw::Trigger { tenant: 0 } => Some(&self.triggers),
            Draw::Trigger { .. } => None,
            Draw::CatchUp { .. } => Some(&self.catch_up),
        }
    }
}

impl Permits for Purse {
    fn tenant_named(&mut self, _: &Arc<str>) {}

    fn queue_named(&mut self, _: &Arc<str>) {}

    fn take(&mut self, draw: Draw, wanted: usize, _: UnixMs) -> usize {
        let Some(tokens) = self.of(draw) else { return wanted };
        let granted = tokens.load(Relaxed).min(wanted);
        tokens.fetch_sub(granted, Relaxed);
        granted
    }

    fn give_back(&mut self, draw: Draw, unused: usize) {
        if let Some(tokens) = self.of(draw) {
            tokens.fetch_add(unused, Relaxed);
        }
    }

    fn ready_at(&self, _: Draw, now: UnixMs) -> UnixMs {
        now.plus(1_000)
    }

    fn reserve_schedule(&mut self, _: &str) -> Result<(), u64> {
        let left = self.schedules.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        left.map(drop).map_err(|_| 7)
    }

    fn end_reservations(&mut self) {}

    fn schedules_changed(&mut self, _: u32, _: i64) {}
}

fn rig(window: usize) -> Rig {
    Rig::with(Config { window, ..Config::default() }, at("08:00:00"))
}

fn limited(window: usize, purse: &Purse) -> Rig {
    let mut rig = rig(window);
    let zones = Arc::clone(&super::ZONES);
    let shard = std::mem::replace(&mut rig.shard, Shard::new(Config::default(), zones));
    rig.shard = shard.with_permits(Box::new(purse.clone()));
    rig
}

/// `count` one-offs of a tenant, due at nine.
fn due_at_nine(rig: &mut Rig, tenant: &str, count: u32) {
    for number in 0..count {
        one_off(rig, tenant, number).expect("there is room for it");
    }
}

fn one_off(rig: &mut Rig, tenant: &str, number: u32) -> Result<ScheduleId, CommandError> {
    let key = format!("{tenant} {number}");
    let spec = Spec { queue: "mail".into(), ..Spec::new(tenant, Rule::At(at("09:00:00"))) };
    let creation = Creation { id: ScheduleId::from_key(tenant, &key), spec, is_keyed: true };
    rig.call(|shard, turn| shard.create(&creation, at("08:00:00"), turn))?;
    Ok(creation.id)
}

fn tenant_of(rig: &Rig, number: OccurrenceNo) -> String {
    rig.shard.entry(number).tenant.to_owned()
}

/// Hands over and lands until nothing more comes at `now`: whose occurrences came, in order.
fn served(rig: &mut Rig, now: UnixMs) -> Vec<String> {
    let mut order = Vec::new();
    loop {
        rig.work_off(now);
        if rig.handed.is_empty() {
            return order;
        }
        order.extend(rig.handed.iter().map(|number| tenant_of(rig, *number)));
        rig.land(now);
    }
}

#[test]
fn small_tenants_wait_for_their_fair_share_of_a_burst_and_not_for_all_of_it() {
    let mut rig = rig(128);
    due_at_nine(&mut rig, "large", 2_000);
    for small in ["one", "two", "three"] {
        due_at_nine(&mut rig, small, 100);
    }
    rig.advance(at("08:59:58"));
    let order = served(&mut rig, at("09:00:00"));
    assert_eq!(order.len(), 2_300);
    let last_small = order.iter().rposition(|tenant| tenant != "large").unwrap();
    assert!(last_small < 4 * 100 + 4 * 32, "the last small one came as number {last_small}");
}

#[test]
fn weights_share_out_what_there_is() {
    let mut rig = rig(64);
    due_at_nine(&mut rig, "light", 600);
    due_at_nine(&mut rig, "heavy", 600);
    let set = Revised { revision: 1, settings: TenantSettings { weight: 3, ..TenantSettings::default() } };
    rig.call(|shard, turn| Ok(((), shard.set_tenant("heavy", set, at("08:00:01"), turn)))).unwrap();
    rig.advance(at("08:59:58"));
    let order = served(&mut rig, at("09:00:00"));
    let heavy = order[..512].iter().filter(|tenant| *tenant == "heavy").count();
    assert_eq!(heavy, 384, "three of four");
}

#[test]
fn who_becomes_due_in_a_burst_waits_for_one_window_of_it() {
    let mut rig = rig(100);
    due_at_nine(&mut rig, "large", 1_000);
    let late = one_off(&mut rig, "late", 0).unwrap();
    rig.advance(at("08:59:58"));
    rig.work_off(at("09:00:00"));
    assert_eq!(rig.handed.len(), 100, "the window is full");
    let request = Request { discriminator: b"now".to_vec(), is_keyed: true };
    rig.call(|shard, turn| shard.trigger(&late.into(), request, at("09:00:00.100"), turn)).unwrap();
    rig.land(at("09:00:00.100"));
    rig.work_off(at("09:00:00.100"));
    let next: Vec<String> = rig.handed.iter().map(|number| tenant_of(&rig, *number)).collect();
    assert_eq!((next.len(), next.iter().any(|tenant| tenant == "late")), (100, true));
}

#[test]
fn what_comes_back_makes_room_and_goes_first_in_its_line() {
    let mut rig = rig(10);
    due_at_nine(&mut rig, "acme", 30);
    rig.advance(at("08:59:58"));
    rig.work_off(at("09:00:00"));
    let first = std::mem::take(&mut rig.handed);
    rig.shard.returned(&first);
    rig.work_off(at("09:00:00.500"));
    let mut again = rig.handed.clone();
    assert_eq!(again.len(), 10);
    again.sort_unstable();
    assert!(again.iter().all(|number| number.0 < 30));
    assert_eq!(served(&mut rig, at("09:00:00.500")).len(), 20 + 10);
}

#[test]
fn over_its_rate_a_tenant_waits_in_its_own_line_until_the_policy_decides() {
    let purse = Purse::new(5, usize::MAX);
    let mut rig = limited(1_000, &purse);
    due_at_nine(&mut rig, "greedy", 100);
    due_at_nine(&mut rig, "other", 100);
    rig.advance(at("08:59:58"));
    let order = served(&mut rig, at("09:00:00"));
    assert_eq!(order.iter().filter(|tenant| *tenant == "greedy").count(), 5, "as many as there are tokens");
    assert_eq!(order.len(), 105, "the other one is not held back");
    assert_eq!(rig.shard.due_backlog(at("09:00:30")), (95, Some(at("09:00:00"))));
    assert_eq!(rig.shard.next_wake(), Some(at("09:00:01")));
    purse.triggers.fetch_add(10, Relaxed);
    assert_eq!(served(&mut rig, at("09:00:01")).len(), 10);

    let missed = rig.shard.counters().missed;
    let late = served(&mut rig, at("09:01:00.001"));
    assert_eq!(late.len(), 85, "one run of each is admitted late, under the catch-up rate");
    assert_eq!(purse.triggers.load(Relaxed), 0);
    assert_eq!(rig.shard.counters().missed, missed);
    let lanes = rig.shard.occurrences.iter().map(|(_, row)| row.lane);
    assert_eq!(lanes.filter(|lane| *lane == Lane::CatchUp).count(), 85);
    let throttled: Vec<_> = rig.shard.throttled().map(|(tenant, [due, _])| (tenant, due > 0)).collect();
    assert_eq!(throttled, [(0, true)]);
}

#[test]
fn what_a_user_triggers_counts_under_the_rate_and_is_never_judged() {
    let purse = Purse::new(0, 0);
    let mut rig = limited(1_000, &purse);
    let id = one_off(&mut rig, "acme", 0).unwrap();
    for key in 0..3_u8 {
        let request = Request { discriminator: vec![key], is_keyed: true };
        rig.call(|shard, turn| shard.trigger(&id.into(), request, at("08:10:00"), turn)).unwrap();
    }
    assert!(served(&mut rig, at("08:10:00")).is_empty());
    purse.triggers.store(2, Relaxed);
    assert_eq!(served(&mut rig, at("08:50:00")).len(), 2, "forty minutes later");
    purse.triggers.store(1, Relaxed);
    assert_eq!(served(&mut rig, at("08:51:00")).len(), 1);
}

#[test]
fn catch_up_has_a_quarter_of_the_window_and_waits_for_its_own_tokens() {
    let purse = Purse::new(usize::MAX, 50);
    let mut rig = limited(40, &purse);
    due_at_nine(&mut rig, "acme", 100);
    // Nobody looked for an hour: all of it is late.
    rig.work_off(at("10:00:00"));
    assert_eq!(rig.handed.len(), 10);
    let request = Request { discriminator: b"now".to_vec(), is_keyed: true };
    let id = ScheduleId::from_key("acme", "acme 0");
    rig.call(|shard, turn| shard.trigger(&id.into(), request, at("10:00:00"), turn)).unwrap();
    rig.work_off(at("10:00:00"));
    assert_eq!(rig.handed.len(), 11, "strict work does not wait behind it");
    assert_eq!(served(&mut rig, at("10:00:00")).len(), 51, "until the tokens are used");
    let backlog = rig.shard.backlog(at("10:00:00"));
    assert_eq!(backlog.by_age[5][Lane::CatchUp as usize], 50);
    purse.catch_up.store(usize::MAX, Relaxed);
    assert_eq!(served(&mut rig, at("10:00:01")).len(), 50);
}

#[test]
fn a_schedule_over_the_quota_is_refused_after_everything_else_was_checked() {
    let purse = Purse::new(usize::MAX, usize::MAX);
    let mut rig = limited(40, &purse);
    purse.schedules.store(1, Relaxed);
    one_off(&mut rig, "acme", 0).unwrap();
    assert!(matches!(one_off(&mut rig, "acme", 1), Err(CommandError::QuotaSchedules { limit: 7 })));
    assert!(matches!(one_off(&mut rig, "acme", 0), Err(CommandError::KeyTaken { .. })), "the key comes first");
    assert_eq!(rig.shard.schedules_by_state()[0], 1);
}

#[test]
fn settings_are_replayed_and_an_older_revision_changes_nothing() {
    let mut rig = rig(40);
    let set = |revision, weight| Revised { revision, settings: TenantSettings { weight, ..TenantSettings::default() } };
    for (revision, weight) in [(1, 5), (3, 9), (2, 7)] {
        rig.call(|shard, turn| Ok(((), shard.set_tenant("acme", set(revision, weight), at("08:00:01"), turn))))
            .unwrap();
    }
    assert_eq!(rig.shard.tenants_set().collect::<Vec<_>>(), [("acme", set(3, 9))]);
    rig.crash(rig.log.len(), at("08:00:02"));
    assert_eq!(rig.shard.tenants_set().collect::<Vec<_>>(), [("acme", set(3, 9))]);
}
