//! Rates as a script wants them: a bucket of one second for each line, until all limits are lifted.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering::Relaxed},
    },
};

use super::script::Script;
use crate::kernel::{
    permits::{Draw, Permits},
    time::UnixMs,
};

/// What the world sees of it, over crashes.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) is_lifted: AtomicBool,
    /// Schedules that count, by tenant number.
    pub(super) schedules: [AtomicI64; 4],
}

/// Permits of a script.
#[derive(Clone, Debug)]
pub(super) struct Scripted {
    trigger_per_second: Option<i64>,
    catch_up_per_second: Option<i64>,
    schedules: i64,
    told: Arc<Told>,
    /// Thousandths of tokens, and when they were counted.
    left: BTreeMap<Draw, (i64, UnixMs)>,
    reserved: i64,
}

impl Scripted {
    pub(super) fn new(script: &mut Script<'_>) -> Self {
        let mut rate = || script.chance(100).then(|| i64::try_from(script.below(6)).expect("a few"));
        Self {
            trigger_per_second: rate(),
            catch_up_per_second: rate(),
            schedules: if script.chance(60) { 4 } else { 1_000 },
            told: Arc::default(),
            left: BTreeMap::new(),
            reserved: 0,
        }
    }

    /// For a shard that comes up: the same limits, nothing used and nothing told yet.
    pub(super) fn afresh(&self) -> Self {
        self.told.schedules.iter().for_each(|count| count.store(0, Relaxed));
        Self { left: BTreeMap::new(), reserved: 0, ..self.clone() }
    }

    pub(super) const fn has_limits(&self) -> bool {
        self.trigger_per_second.is_some() || self.catch_up_per_second.is_some()
    }

    pub(super) fn told(&self) -> &Told {
        &self.told
    }

    fn rate(&self, draw: Draw) -> Option<i64> {
        let rate = match draw {
            Draw::Trigger { .. } => self.trigger_per_second,
            Draw::CatchUp { .. } => self.catch_up_per_second,
        };
        rate.filter(|_| !self.told.is_lifted.load(Relaxed))
    }
}

impl Permits for Scripted {
    fn tenant_named(&mut self, _: &Arc<str>) {}

    fn queue_named(&mut self, _: &Arc<str>) {}

    fn take(&mut self, draw: Draw, wanted: usize, now: UnixMs) -> usize {
        let Some(rate) = self.rate(draw) else { return wanted };
        let (left, at) = self.left.entry(draw).or_insert((rate * 1_000, now));
        *left = (*left + now.since(*at).min(1_000) * rate).min(rate * 1_000);
        *at = now;
        let granted = wanted.min(usize::try_from(*left / 1_000).expect("it is never below 0"));
        *left -= 1_000 * i64::try_from(granted).expect("a few");
        granted
    }

    fn give_back(&mut self, draw: Draw, unused: usize) {
        if let Some((left, _)) = self.left.get_mut(&draw) {
            *left += 1_000 * i64::try_from(unused).expect("a few");
        }
    }

    fn ready_at(&self, _: Draw, now: UnixMs) -> UnixMs {
        now.plus(1_000)
    }

    fn reserve_schedule(&mut self, tenant: &str) -> Result<(), u64> {
        let number = usize::from(tenant == "b");
        let counted = self.told.schedules[number].load(Relaxed) + self.reserved;
        if counted >= self.schedules {
            return Err(self.schedules.unsigned_abs());
        }
        self.reserved += 1;
        Ok(())
    }

    fn end_reservations(&mut self) {
        self.reserved = 0;
    }

    fn schedules_changed(&mut self, tenant: u32, by: i64) {
        self.told.schedules[tenant as usize].fetch_add(by, Relaxed);
    }
}
