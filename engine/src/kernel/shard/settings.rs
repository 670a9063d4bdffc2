//! What is set for tenants and queues, as this shard's log remembers it.

use super::{Inconsistent, Shard, Turn, Urgency};
use crate::kernel::{
    gate::Lsn,
    record::{QueueSet, Record, TenantSet},
    tenant::{QueueSettings, Revised, TenantSettings},
    time::UnixMs,
};

/// By number: every tenant and queue that has a name has its settings.
#[derive(Debug, Default)]
pub(super) struct Settings {
    tenants: Vec<Revised<TenantSettings>>,
    queues: Vec<Revised<QueueSettings>>,
}

impl Settings {
    pub(super) fn add_tenant(&mut self, set: Revised<TenantSettings>) {
        self.tenants.push(set);
    }

    pub(super) fn add_queue(&mut self, set: Revised<QueueSettings>) {
        self.queues.push(set);
    }

    /// By number.
    pub(super) fn tenants(&self) -> &[Revised<TenantSettings>] {
        &self.tenants
    }

    /// By number.
    pub(super) fn queues(&self) -> &[Revised<QueueSettings>] {
        &self.queues
    }

    /// How many turns of the round robin the tenant's turn counts for.
    pub(super) fn weight(&self, tenant: u32) -> u32 {
        self.tenants.get(tenant as usize).map_or(1, |set| set.settings.weight)
    }

    /// Whether what workers do with a queue's occurrences is followed.
    pub(super) fn is_tracked(&self, queue: u32) -> bool {
        self.queues.get(queue as usize).is_none_or(|set| set.settings.tracked)
    }
}

impl Shard {
    /// Sets what holds for a tenant, unless this revision or a later one is known. The answer may leave once the LSN is
    /// durable.
    pub fn set_tenant(&mut self, name: &str, set: Revised<TenantSettings>, now: UnixMs, turn: &mut Turn) -> Lsn {
        let known = self.tenants.number(name).map_or(0, |number| self.settings.tenants[number as usize].revision);
        if set.revision > known {
            let tenant = self.tenant_for(name, now, turn);
            let Revised { revision, settings } = set;
            self.record(Record::TenantSet(TenantSet { tenant, revision, settings }), now, turn);
            turn.urge(Urgency::Prompt);
        }
        self.lsn
    }

    /// Sets what holds for a queue, unless this revision or a later one is known. The answer may leave once the LSN is
    /// durable.
    pub fn set_queue(&mut self, name: &str, set: Revised<QueueSettings>, now: UnixMs, turn: &mut Turn) -> Lsn {
        let known = self.queues.number(name).map_or(0, |number| self.settings.queues[number as usize].revision);
        if set.revision > known {
            let queue = self.queue_for(name, now, turn);
            let Revised { revision, settings } = set;
            self.record(Record::QueueSet(QueueSet { queue, revision, settings }), now, turn);
            turn.urge(Urgency::Prompt);
        }
        self.lsn
    }

    /// A turn is over: tells how many schedules of each tenant came and went, and gives back what was set aside.
    pub fn settle_counts(&mut self) {
        for (tenant, by) in self.schedules.tenant_changes() {
            self.permits.schedules_changed(tenant, by);
        }
        self.permits.end_reservations();
    }

    /// What was set for tenants, in the order in which they were named.
    pub fn tenants_set(&self) -> impl Iterator<Item = (&str, Revised<TenantSettings>)> {
        let all = (0..).map_while(|number| self.tenants.name(number)).zip(&self.settings.tenants);
        all.filter(|(_, set)| set.revision > 0).map(|(name, set)| (&**name, *set))
    }

    /// What was set for queues, in the order in which they were named.
    pub fn queues_set(&self) -> impl Iterator<Item = (&str, Revised<QueueSettings>)> {
        let all = (0..).map_while(|number| self.queues.name(number)).zip(&self.settings.queues);
        all.filter(|(_, set)| set.revision > 0).map(|(name, set)| (&**name, *set))
    }

    pub(super) fn apply_tenant_set(&mut self, set: &TenantSet) -> Result<(), Inconsistent> {
        let known = self.settings.tenants.get(set.tenant as usize);
        let fits = known.is_some_and(|known| known.revision < set.revision) && set.settings.check().is_ok();
        self.check(fits, || format!("tenant {} set as revision {}", set.tenant, set.revision))?;
        let Revised { revision, settings } = &mut self.settings.tenants[set.tenant as usize];
        (*revision, *settings) = (set.revision, set.settings);
        Ok(())
    }

    pub(super) fn apply_queue_set(&mut self, set: &QueueSet) -> Result<(), Inconsistent> {
        let known = self.settings.queues.get(set.queue as usize);
        let fits = known.is_some_and(|known| known.revision < set.revision) && set.settings.check().is_ok();
        self.check(fits, || format!("queue {} set as revision {}", set.queue, set.revision))?;
        let Revised { revision, settings } = &mut self.settings.queues[set.queue as usize];
        (*revision, *settings) = (set.revision, set.settings);
        Ok(())
    }
}
