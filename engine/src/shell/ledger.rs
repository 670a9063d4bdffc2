//! What holds for tenants and queues over all shards of the process: their settings, and what they may still use.
//!
//! Every shard has a [`ShardPermits`], which knows the accounts by the shard's own numbers, so that a release costs an
//! atomic, and no lock. Counts of schedules are sums of rows: each shard tells how its own change.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock,
    atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
};

use hashbrown::HashMap;

use super::token_bucket::TokenBucket;
use crate::kernel::{
    permits::{Draw, Permits},
    tenant::{QueueSettings, Revised, TenantSettings},
    time::UnixMs,
};

/// Retries are counted by the UTC day of engine time.
const DAY_MS: i64 = 86_400_000;

/// A tenant.
#[derive(Debug)]
pub(crate) struct Account {
    set: Mutex<Revised<TenantSettings>>,
    triggers: TokenBucket,
    catch_up: TokenBucket,
    /// Schedules that are active or paused, and room that was set aside for some.
    schedules: AtomicI64,
    /// At most this many; `i64::MAX` for no limit.
    schedules_limit: AtomicI64,
    /// Runs that hold a lease.
    running: AtomicI64,
    /// At most this many; `i64::MAX` for no limit.
    running_limit: AtomicI64,
    /// Retries of a UTC day, counted from 1970.
    retries: Mutex<RetriesOfDay>,
    /// The highest revision that was ever given away; it may have reached only some shards.
    given: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default)]
struct RetriesOfDay {
    day: i64,
    made: u64,
}

/// A queue.
#[derive(Debug)]
pub(crate) struct Target {
    set: Mutex<Revised<QueueSettings>>,
    catch_up: TokenBucket,
    /// The highest revision that was ever given away; it may have reached only some shards.
    given: AtomicU64,
}

/// All accounts, by name. Names stay once they were given: there are as many as the logs know.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    tenants: RwLock<HashMap<Arc<str>, Arc<Account>>>,
    queues: RwLock<HashMap<Arc<str>, Arc<Target>>>,
    /// Held while something is set: revisions are given one after another.
    pub(crate) setting: tokio::sync::Mutex<()>,
}

impl Default for Account {
    fn default() -> Self {
        let set: Revised<TenantSettings> = Revised::default();
        let quotas = set.settings.quotas;
        Self {
            triggers: TokenBucket::new(quotas.trigger_per_second),
            catch_up: TokenBucket::new(quotas.catch_up_per_second),
            schedules: AtomicI64::new(0),
            schedules_limit: AtomicI64::new(limit(quotas.schedules)),
            running: AtomicI64::new(0),
            running_limit: AtomicI64::new(limit(quotas.concurrent_runs.map(u64::from))),
            retries: Mutex::default(),
            set: Mutex::new(set),
            given: AtomicU64::new(0),
        }
    }
}

impl Default for Target {
    fn default() -> Self {
        let set: Revised<QueueSettings> = Revised::default();
        let catch_up = TokenBucket::new(set.settings.catch_up_per_second);
        Self { set: Mutex::new(set), catch_up, given: AtomicU64::new(0) }
    }
}

fn limit(quota: Option<u64>) -> i64 {
    quota.map_or(i64::MAX, |quota| i64::try_from(quota).unwrap_or(i64::MAX))
}

impl Account {
    pub(crate) fn settings(&self) -> Revised<TenantSettings> {
        *self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The revision of the next setting: above every one before it, whatever became of that.
    pub(crate) fn next_revision(&self) -> u64 {
        self.given.fetch_add(1, Relaxed) + 1
    }

    /// Takes over what was set, unless something later was.
    pub(crate) fn set(&self, set: Revised<TenantSettings>) {
        let mut known = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        self.given.fetch_max(set.revision, Relaxed);
        if set.revision > known.revision {
            *known = set;
            let quotas = set.settings.quotas;
            self.triggers.set(quotas.trigger_per_second);
            self.catch_up.set(quotas.catch_up_per_second);
            self.schedules_limit.store(limit(quotas.schedules), Relaxed);
            self.running_limit.store(limit(quotas.concurrent_runs.map(u64::from)), Relaxed);
        }
    }

    /// Sets room for one more schedule aside.
    fn reserve_schedule(&self) -> Result<(), u64> {
        let limit = self.schedules_limit.load(Relaxed);
        let reserved = self.schedules.fetch_update(Relaxed, Relaxed, |count| (count < limit).then_some(count + 1));
        reserved.map(drop).map_err(|_| limit.unsigned_abs())
    }

    fn take_run(&self) -> bool {
        let limit = self.running_limit.load(Relaxed);
        self.running.fetch_update(Relaxed, Relaxed, |count| (count < limit).then_some(count + 1)).is_ok()
    }

    fn run_room(&self) -> usize {
        let room = self.running_limit.load(Relaxed).saturating_sub(self.running.load(Relaxed));
        usize::try_from(room).unwrap_or(0)
    }

    /// One more retry of the day, if the tenant's budget has one left. A day that is over counts no more.
    fn take_retry(&self, day: i64) -> bool {
        let budget = self.settings().settings.quotas.retry_budget.map_or(u64::MAX, u64::from);
        let mut retries = self.retries_on(day);
        let is_left = retries.made < budget;
        retries.made += u64::from(is_left);
        is_left
    }

    /// The count of a day; of an earlier one than the last that was asked for, that one's.
    fn retries_on(&self, day: i64) -> MutexGuard<'_, RetriesOfDay> {
        let mut retries = self.retries.lock().unwrap_or_else(PoisonError::into_inner);
        if retries.day < day {
            *retries = RetriesOfDay { day, made: 0 };
        }
        retries
    }
}

impl Target {
    pub(crate) fn settings(&self) -> Revised<QueueSettings> {
        *self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The revision of the next setting: above every one before it, whatever became of that.
    pub(crate) fn next_revision(&self) -> u64 {
        self.given.fetch_add(1, Relaxed) + 1
    }

    /// Takes over what was set, unless something later was.
    pub(crate) fn set(&self, set: Revised<QueueSettings>) {
        let mut known = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        self.given.fetch_max(set.revision, Relaxed);
        if set.revision > known.revision {
            *known = set;
            self.catch_up.set(set.settings.catch_up_per_second);
        }
    }
}

impl Ledger {
    /// The account of a tenant, if anything ever named it.
    pub(crate) fn known_tenant(&self, name: &str) -> Option<Arc<Account>> {
        self.tenants.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// The account of a tenant.
    pub(crate) fn tenant(&self, name: &str) -> Arc<Account> {
        self.known_tenant(name).unwrap_or_else(|| {
            let mut all = self.tenants.write().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(all.entry(name.into()).or_default())
        })
    }

    /// A queue, if anything ever named it.
    pub(crate) fn known_queue(&self, name: &str) -> Option<Arc<Target>> {
        self.queues.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// A queue.
    pub(crate) fn queue(&self, name: &str) -> Arc<Target> {
        self.known_queue(name).unwrap_or_else(|| {
            let mut all = self.queues.write().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(all.entry(name.into()).or_default())
        })
    }

    /// Every tenant that something was set for, by name.
    pub(crate) fn tenants_set(&self) -> Vec<(Arc<str>, Revised<TenantSettings>)> {
        let all = self.tenants.read().unwrap_or_else(PoisonError::into_inner);
        let all = all.iter().map(|(name, account)| (Arc::clone(name), account.settings()));
        sorted(all.filter(|(_, set)| set.revision > 0).collect())
    }

    /// Every queue that something was set for, by name.
    pub(crate) fn queues_set(&self) -> Vec<(Arc<str>, Revised<QueueSettings>)> {
        let all = self.queues.read().unwrap_or_else(PoisonError::into_inner);
        let all = all.iter().map(|(name, target)| (Arc::clone(name), target.settings()));
        sorted(all.filter(|(_, set)| set.revision > 0).collect())
    }
}

fn sorted<T>(mut all: Vec<(Arc<str>, T)>) -> Vec<(Arc<str>, T)> {
    all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    all
}

/// What one shard may use, by its own numbers.
#[derive(Debug)]
pub(crate) struct ShardPermits {
    ledger: Arc<Ledger>,
    tenants: Vec<Arc<Account>>,
    queues: Vec<Arc<Target>>,
    /// Where room for a schedule was set aside in this turn.
    reserved: Vec<Arc<Account>>,
}

impl ShardPermits {
    pub(crate) const fn new(ledger: Arc<Ledger>) -> Self {
        Self { ledger, tenants: Vec::new(), queues: Vec::new(), reserved: Vec::new() }
    }
}

impl Permits for ShardPermits {
    fn tenant_named(&mut self, name: &Arc<str>) {
        self.tenants.push(self.ledger.tenant(name));
    }

    fn queue_named(&mut self, name: &Arc<str>) {
        self.queues.push(self.ledger.queue(name));
    }

    fn take(&mut self, draw: Draw, wanted: usize, now: UnixMs) -> usize {
        match draw {
            Draw::Trigger { tenant } => self.tenants[tenant as usize].triggers.take(wanted, now),
            Draw::CatchUp { tenant, queue } => {
                let of_tenant = &self.tenants[tenant as usize].catch_up;
                let granted = of_tenant.take(wanted, now);
                let of_both = self.queues[queue.0 as usize].catch_up.take(granted, now);
                of_tenant.give_back(granted - of_both);
                of_both
            }
        }
    }

    fn give_back(&mut self, draw: Draw, unused: usize) {
        match draw {
            Draw::Trigger { tenant } => self.tenants[tenant as usize].triggers.give_back(unused),
            Draw::CatchUp { tenant, queue } => {
                self.tenants[tenant as usize].catch_up.give_back(unused);
                self.queues[queue.0 as usize].catch_up.give_back(unused);
            }
        }
    }

    fn ready_at(&self, draw: Draw, now: UnixMs) -> UnixMs {
        match draw {
            Draw::Trigger { tenant } => self.tenants[tenant as usize].triggers.ready_at(now),
            Draw::CatchUp { tenant, queue } => {
                let of_queue = self.queues[queue.0 as usize].catch_up.ready_at(now);
                self.tenants[tenant as usize].catch_up.ready_at(now).max(of_queue)
            }
        }
    }

    fn reserve_schedule(&mut self, tenant: &str) -> Result<(), u64> {
        let account = self.ledger.tenant(tenant);
        account.reserve_schedule()?;
        self.reserved.push(account);
        Ok(())
    }

    fn end_reservations(&mut self) {
        for account in self.reserved.drain(..) {
            account.schedules.fetch_sub(1, Relaxed);
        }
    }

    fn schedules_changed(&mut self, tenant: u32, by: i64) {
        self.tenants[tenant as usize].schedules.fetch_add(by, Relaxed);
    }

    fn take_run(&mut self, tenant: u32) -> bool {
        self.tenants[tenant as usize].take_run()
    }

    fn count_run(&mut self, tenant: u32) {
        self.tenants[tenant as usize].running.fetch_add(1, Relaxed);
    }

    fn run_ended(&mut self, tenant: u32) {
        self.tenants[tenant as usize].running.fetch_sub(1, Relaxed);
    }

    fn run_room(&self, tenant: u32) -> usize {
        self.tenants[tenant as usize].run_room()
    }

    fn take_retry(&mut self, tenant: u32, now: UnixMs) -> bool {
        self.tenants[tenant as usize].take_retry(now.0.div_euclid(DAY_MS))
    }

    fn count_retries(&mut self, tenant: u32, day: i64, retries: u32) {
        self.tenants[tenant as usize].retries_on(day).made += u64::from(retries);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{occurrence::QueueNo, tenant::Quotas};

    const NOON: UnixMs = UnixMs(1_793_534_400_000);

    fn shard(ledger: &Arc<Ledger>) -> ShardPermits {
        let mut shard = ShardPermits::new(Arc::clone(ledger));
        shard.tenant_named(&"acme".into());
        shard.queue_named(&"mail".into());
        shard
    }

    fn set(ledger: &Ledger, revision: u64, quotas: Quotas) {
        ledger.tenant("acme").set(Revised { revision, settings: TenantSettings { weight: 1, quotas } });
    }

    #[test]
    fn two_shards_draw_from_one_account() {
        let ledger = Arc::new(Ledger::default());
        let (mut one, mut two) = (shard(&ledger), shard(&ledger));
        set(&ledger, 1, Quotas { trigger_per_second: Some(10), ..Quotas::default() });
        let draw = Draw::Trigger { tenant: 0 };
        assert_eq!((one.take(draw, 6, NOON), two.take(draw, 6, NOON), one.take(draw, 6, NOON)), (6, 4, 0));
        two.give_back(draw, 2);
        assert_eq!(one.take(draw, 6, NOON), 2);
        assert_eq!(one.ready_at(draw, NOON), NOON.plus(100));
    }

    #[test]
    fn catch_up_needs_the_tenant_s_token_and_the_queue_s() {
        let ledger = Arc::new(Ledger::default());
        let mut shard = shard(&ledger);
        ledger
            .queue("mail")
            .set(Revised { revision: 1, settings: QueueSettings { tracked: true, catch_up_per_second: Some(3) } });
        let draw = Draw::CatchUp { tenant: 0, queue: QueueNo(0) };
        assert_eq!(shard.take(draw, 2_000, NOON), 3);
        ledger.queue("mail").set(Revised { revision: 2, settings: QueueSettings::default() });
        assert_eq!(shard.take(draw, 2_000, NOON), 997, "what the queue did not take was given back to the tenant");
    }

    #[test]
    fn room_that_is_set_aside_counts_until_the_turn_is_over() {
        let ledger = Arc::new(Ledger::default());
        let (mut one, mut two) = (shard(&ledger), shard(&ledger));
        set(&ledger, 1, Quotas { schedules: Some(2), ..Quotas::default() });
        assert_eq!((one.reserve_schedule("acme"), two.reserve_schedule("acme")), (Ok(()), Ok(())));
        assert_eq!(two.reserve_schedule("acme"), Err(2));
        one.schedules_changed(0, 1);
        one.end_reservations();
        two.end_reservations();
        assert_eq!(two.reserve_schedule("acme"), Ok(()), "the second was not used");
        set(&ledger, 2, Quotas { schedules: Some(0), ..Quotas::default() });
        assert_eq!(one.reserve_schedule("acme"), Err(0));
    }

    #[test]
    fn runs_of_two_shards_count_together_and_a_lowered_quota_stops_none() {
        let ledger = Arc::new(Ledger::default());
        let (mut one, mut two) = (shard(&ledger), shard(&ledger));
        assert_eq!(one.run_room(0), usize::try_from(i64::MAX).unwrap());
        set(&ledger, 1, Quotas { concurrent_runs: Some(2), ..Quotas::default() });
        assert_eq!((one.take_run(0), two.take_run(0), one.take_run(0)), (true, true, false));
        two.run_ended(0);
        assert_eq!((one.run_room(0), one.take_run(0)), (1, true));
        set(&ledger, 2, Quotas { concurrent_runs: Some(1), ..Quotas::default() });
        assert_eq!((one.run_room(0), two.take_run(0)), (0, false));
        one.run_ended(0);
        assert!(!two.take_run(0), "one still runs");
        one.run_ended(0);
        two.count_run(0);
        two.count_run(0);
        assert_eq!(one.run_room(0), 0, "what a log holds runs, whether or not it may");
    }

    #[test]
    fn retries_are_counted_by_the_day_over_all_shards() {
        let ledger = Arc::new(Ledger::default());
        let (mut one, mut two) = (shard(&ledger), shard(&ledger));
        set(&ledger, 1, Quotas { retry_budget: Some(3), ..Quotas::default() });
        one.count_retries(0, NOON.0.div_euclid(DAY_MS), 1);
        assert_eq!((one.take_retry(0, NOON), two.take_retry(0, NOON), two.take_retry(0, NOON)), (true, true, false));
        assert!(two.take_retry(0, NOON.plus(DAY_MS)), "a new day");
        assert!(one.take_retry(0, NOON) && one.take_retry(0, NOON) && !one.take_retry(0, NOON), "the later day counts");
    }

    #[test]
    fn an_older_setting_never_takes_the_place_of_a_later_one() {
        let ledger = Ledger::default();
        set(&ledger, 5, Quotas { schedules: Some(5), ..Quotas::default() });
        set(&ledger, 4, Quotas::default());
        let account = ledger.tenant("acme");
        assert_eq!((account.settings().settings.quotas.schedules, account.next_revision()), (Some(5), 6));
    }
}
