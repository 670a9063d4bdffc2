//! What is counted by tenant: for the most active ones by name, for all the rest together, so that the number of
//! labels is bounded however many tenants there are.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::metrics::{ByLane, DurationHistogram};
use crate::kernel::{occurrence::Lane, shard::Lag};

/// So many tenants have a name in the metrics.
pub const FOLLOWED: usize = 20;
/// How often it is looked who is most active.
const CHOOSE_EVERY_MS: i64 = 30_000;
const OTHER: u8 = u8::MAX;

/// What is counted of a tenant, or of all that have no name here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantCounts {
    /// `enqueued_at` minus `scheduled_for` (flexible: minus `available_at`), by lane.
    pub lag: ByLane<DurationHistogram>,
    /// Times that what is due had to wait for the trigger rate.
    pub trigger_throttled_total: u64,
    /// Times that a catch-up line had to wait for the tenant's or the queue's rate.
    pub catch_up_throttled_total: u64,
}

/// What is counted by tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantMetrics {
    /// The most active ones.
    pub tenants: BTreeMap<Arc<str>, TenantCounts>,
    /// All others together.
    pub other: TenantCounts,
}

impl TenantCounts {
    fn add(&mut self, other: &Self) {
        for lane in Lane::ALL {
            self.lag.of_mut(lane).add(other.lag.of(lane));
        }
        self.trigger_throttled_total += other.trigger_throttled_total;
        self.catch_up_throttled_total += other.catch_up_throttled_total;
    }

    fn enqueued(&self) -> u64 {
        Lane::ALL.iter().map(|lane| self.lag.of(*lane).count()).sum()
    }
}

impl TenantMetrics {
    /// Another shard's added to it; who is not among the most active of both is counted with the others.
    pub fn add(&mut self, other: &Self) {
        for (name, counts) in &other.tenants {
            self.tenants.entry(Arc::clone(name)).or_default().add(counts);
        }
        self.other.add(&other.other);
        while self.tenants.len() > FOLLOWED {
            let least =
                self.tenants.iter().min_by_key(|(_, counts)| counts.enqueued()).map(|(name, _)| Arc::clone(name));
            if let Some(counts) = least.and_then(|name| self.tenants.remove(&name)) {
                self.other.add(&counts);
            }
        }
    }
}

/// One that has a name.
#[derive(Debug)]
struct Followed {
    tenant: u32,
    lag: ByLane<DurationHistogram>,
}

/// A shard's counting by tenant.
#[derive(Debug, Default)]
pub(crate) struct TenantFollower {
    followed: Vec<Followed>,
    other: ByLane<DurationHistogram>,
    /// By tenant: the place in `followed`, and how much it did of late.
    places: Vec<(u8, u32)>,
    chosen_at_ms: i64,
}

impl TenantFollower {
    pub(crate) fn record(&mut self, lag: Lag) {
        let Lag { tenant, lane, lag_ms } = lag;
        if self.places.len() <= tenant as usize {
            self.places.resize(tenant as usize + 1, (OTHER, 0));
        }
        let (place, recent) = &mut self.places[tenant as usize];
        *recent = recent.saturating_add(1);
        if *place == OTHER && self.followed.len() < FOLLOWED {
            *place = u8::try_from(self.followed.len()).expect("a few are followed");
            self.followed.push(Followed { tenant, lag: ByLane::default() });
        }
        let lags = self.followed.get_mut(usize::from(*place)).map_or(&mut self.other, |followed| &mut followed.lag);
        lags.of_mut(lane).record(Duration::from_millis(lag_ms.max(0).cast_unsigned()));
    }

    /// Now and then the least active one that has a name gives it to one that was more than twice as active of late.
    pub(crate) fn choose(&mut self, now_ms: i64) {
        if now_ms.saturating_sub(self.chosen_at_ms) < CHOOSE_EVERY_MS {
            return;
        }
        self.chosen_at_ms = now_ms;
        let mut others: Vec<(u32, usize)> = self
            .places
            .iter()
            .zip(0..)
            .filter(|((place, recent), _)| *place == OTHER && *recent > 0)
            .map(|((_, recent), tenant)| (*recent, tenant))
            .collect();
        others.sort_unstable_by(|a, b| b.cmp(a));
        for (recent, tenant) in others.into_iter().take(FOLLOWED) {
            let activity = |followed: &Followed| self.places[followed.tenant as usize].1;
            let least = (0..self.followed.len()).min_by_key(|place| activity(&self.followed[*place]));
            let Some(least) = least.filter(|place| recent / 2 > activity(&self.followed[*place])) else { break };
            let tenant_no = u32::try_from(tenant).expect("tenants have numbers of 32 bits");
            let new = Followed { tenant: tenant_no, lag: ByLane::default() };
            let old = std::mem::replace(&mut self.followed[least], new);
            for lane in Lane::ALL {
                self.other.of_mut(lane).add(old.lag.of(lane));
            }
            self.places[old.tenant as usize].0 = OTHER;
            self.places[tenant].0 = u8::try_from(least).expect("a few are followed");
        }
        for (_, recent) in &mut self.places {
            *recent /= 2;
        }
    }

    /// What was counted, with names; `throttled` is by tenant number.
    pub(crate) fn snapshot<'a>(
        &self,
        name: impl Fn(u32) -> &'a str,
        throttled: impl Iterator<Item = (u32, [u64; 2])>,
    ) -> TenantMetrics {
        let lag = |lag: &ByLane<DurationHistogram>| TenantCounts { lag: lag.clone(), ..TenantCounts::default() };
        let mut metrics = TenantMetrics { tenants: BTreeMap::new(), other: lag(&self.other) };
        for followed in &self.followed {
            metrics.tenants.insert(name(followed.tenant).into(), lag(&followed.lag));
        }
        for (tenant, [triggers, catch_up]) in throttled {
            let counts = metrics.tenants.get_mut(name(tenant)).unwrap_or(&mut metrics.other);
            counts.trigger_throttled_total += triggers;
            counts.catch_up_throttled_total += catch_up;
        }
        metrics
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 30] = [
        "t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9", "t10", "t11", "t12", "t13", "t14", "t15", "t16",
        "t17", "t18", "t19", "t20", "t21", "t22", "t23", "t24", "t25", "t26", "t27", "t28", "t29",
    ];

    fn record(follower: &mut TenantFollower, tenant: u32, times: usize) {
        for _ in 0..times {
            follower.record(Lag { tenant, lane: Lane::Strict, lag_ms: 3 });
        }
    }

    fn snapshot(follower: &TenantFollower) -> TenantMetrics {
        follower.snapshot(|tenant| NAMES[tenant as usize], [(0, [2, 0]), (29, [5, 1])].into_iter())
    }

    fn all(metrics: &TenantMetrics) -> u64 {
        metrics.tenants.values().chain([&metrics.other]).map(TenantCounts::enqueued).sum()
    }

    #[test]
    fn names_are_bounded_and_nothing_is_counted_twice_or_lost() {
        let mut follower = TenantFollower::default();
        for tenant in 0..30 {
            record(&mut follower, tenant, 10);
        }
        let metrics = snapshot(&follower);
        assert_eq!((metrics.tenants.len(), all(&metrics)), (FOLLOWED, 300));
        assert_eq!(metrics.tenants["t0"].trigger_throttled_total, 2);
        assert_eq!((metrics.other.trigger_throttled_total, metrics.other.catch_up_throttled_total), (5, 1));
    }

    #[test]
    fn who_becomes_more_active_gets_the_name_of_the_least_active() {
        let mut follower = TenantFollower::default();
        for tenant in 0..29 {
            record(&mut follower, tenant, 10 + tenant as usize);
        }
        record(&mut follower, 29, 500);
        follower.choose(CHOOSE_EVERY_MS);
        record(&mut follower, 29, 1);
        let metrics = snapshot(&follower);
        assert!(!metrics.tenants.contains_key("t0"), "the least active");
        assert_eq!(metrics.tenants["t29"].enqueued(), 1, "it is counted by name from then on");
        assert_eq!(all(&metrics), (10..39).sum::<u64>() + 501);
        assert_eq!(metrics.tenants.len(), FOLLOWED);
    }

    #[test]
    fn shards_together_name_no_more_than_one() {
        let mut one = TenantFollower::default();
        let mut two = TenantFollower::default();
        for tenant in 0..20 {
            record(&mut one, tenant, 10);
            record(&mut two, tenant + 10, 20);
        }
        let mut sum = snapshot(&one);
        sum.add(&snapshot(&two));
        assert_eq!((sum.tenants.len(), all(&sum)), (FOLLOWED, 600));
        assert_eq!(sum.tenants["t15"].enqueued(), 30);
        assert!(!sum.tenants.contains_key("t3"));
    }
}
