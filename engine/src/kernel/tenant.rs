//! What is set for a tenant or a queue beside its schedules: its weight, its quotas, how a queue is followed.

use bincode::{Decode, Encode};

use super::refusal::{Refusal, RefusalCode};

/// What is set for a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct TenantSettings {
    /// Its share where several tenants have something due: 1 to 1,000.
    pub weight: u32,
    /// Its limits.
    pub quotas: Quotas,
}

/// A tenant's limits; `None` is no limit. They hold for all shards together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Quotas {
    /// Schedules that are active or paused. Lowering it ends none.
    pub schedules: Option<u64>,
    /// Regular and manual releases a second. What is over it waits in the tenant's own line.
    pub trigger_per_second: Option<u32>,
    /// Runs at a time.
    pub concurrent_runs: Option<u32>,
    /// Releases a second of what was admitted late or backfilled; 1,000 unless set.
    pub catch_up_per_second: Option<u32>,
    /// Retries under way at a time.
    pub retry_budget: Option<u32>,
}

/// What is set for a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct QueueSettings {
    /// Whether workers claim and complete; otherwise the queue's acceptance is an occurrence's end.
    pub tracked: bool,
    /// Releases a second of what was admitted late or backfilled, over all tenants: what the target can take.
    pub catch_up_per_second: Option<u32>,
}

impl Default for TenantSettings {
    fn default() -> Self {
        Self { weight: 1, quotas: Quotas::default() }
    }
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            schedules: None,
            trigger_per_second: None,
            concurrent_runs: None,
            catch_up_per_second: Some(1_000),
            retry_budget: None,
        }
    }
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self { tracked: true, catch_up_per_second: None }
    }
}

/// The largest weight.
pub const MAX_WEIGHT: u32 = 1_000;
/// The largest rate a second: more than a machine releases.
pub const MAX_PER_SECOND: u32 = 1_000_000;

impl TenantSettings {
    /// Refuses what is out of range, naming the field.
    ///
    /// # Errors
    /// The first field that is out of its range.
    pub fn check(&self) -> Result<(), Refusal> {
        if !(1..=MAX_WEIGHT).contains(&self.weight) {
            let message = format!("{} is out of range 1-{MAX_WEIGHT}: give the tenant's share", self.weight);
            return Err(Refusal::new(RefusalCode::Invalid, "weight", message));
        }
        check_rate("quotas.trigger_per_second", self.quotas.trigger_per_second)?;
        check_rate("quotas.catch_up_per_second", self.quotas.catch_up_per_second)
    }
}

impl QueueSettings {
    /// Refuses what is out of range, naming the field.
    ///
    /// # Errors
    /// The first field that is out of its range.
    pub fn check(&self) -> Result<(), Refusal> {
        check_rate("catch_up_per_second", self.catch_up_per_second)
    }
}

fn check_rate(field: &str, per_second: Option<u32>) -> Result<(), Refusal> {
    match per_second {
        Some(rate) if rate > MAX_PER_SECOND => {
            let message = format!("{rate} is out of range 0-{MAX_PER_SECOND}: give null for no limit");
            Err(Refusal::new(RefusalCode::Invalid, field, message))
        }
        _ => Ok(()),
    }
}

/// A setting and how often it has been set: of two, the one with the higher revision holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revised<Settings> {
    /// 0: never set.
    pub revision: u64,
    /// What holds.
    pub settings: Settings,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_refused_by_field_value_and_range() {
        let told = |settings: TenantSettings| settings.check().map_err(|refusal| refusal.to_string());
        assert_eq!(told(TenantSettings::default()), Ok(()));
        let heavy = TenantSettings { weight: 1_001, ..TenantSettings::default() };
        assert_eq!(told(heavy), Err("weight: 1001 is out of range 1-1000: give the tenant's share".into()));
        assert!(TenantSettings { weight: 0, ..heavy }.check().is_err());
        let fast = Quotas { trigger_per_second: Some(1_000_001), ..Quotas::default() };
        let refused = told(TenantSettings { weight: 1, quotas: fast }).unwrap_err();
        assert!(refused.starts_with("quotas.trigger_per_second: 1000001 is out of range"), "{refused}");
        assert!(QueueSettings { tracked: true, catch_up_per_second: Some(u32::MAX) }.check().is_err());
    }
}
