//! Parsed rules, kept for whoever asks again: parsing one costs tens of microseconds, and a platform makes thousands of
//! schedules of a few rules.

use std::{
    hash::BuildHasher,
    sync::{Arc, Mutex, PoisonError},
};

use hashbrown::{DefaultHashBuilder, HashMap};

use crate::kernel::{
    calendar::{CalendarError, CronRule, CronSpec, ZoneSet},
    resolve::Rules,
};

/// How many rules a part of the cache keeps; a parsed one weighs about 6 KB.
const RULES_A_PART: usize = 512;
/// Parts with a lock each, so that callers seldom wait for one another.
const PARTS: usize = 8;

type Part = HashMap<CronSpec, Arc<CronRule>>;

/// Rules that were accepted lately, by what they were described as. Cheap to clone; every clone is the same cache.
#[derive(Clone, Debug)]
pub(crate) struct RuleCache {
    zones: Arc<ZoneSet>,
    parts: Arc<[Mutex<Part>; PARTS]>,
    hasher: DefaultHashBuilder,
}

impl RuleCache {
    pub(crate) fn new(zones: Arc<ZoneSet>) -> Self {
        Self { zones, parts: Arc::default(), hasher: DefaultHashBuilder::default() }
    }

    fn part(&self, spec: &CronSpec) -> &Mutex<Part> {
        let hash = self.hasher.hash_one(spec);
        &self.parts[usize::try_from(hash % PARTS as u64).expect("there are few parts")]
    }
}

impl Rules for RuleCache {
    fn cron(&self, spec: &CronSpec) -> Result<Arc<CronRule>, CalendarError> {
        let part = self.part(spec);
        let known = part.lock().unwrap_or_else(PoisonError::into_inner).get(spec).map(Arc::clone);
        if let Some(rule) = known {
            return Ok(rule);
        }
        // Outside the lock: it may walk years of days.
        let rule = CronRule::new(spec, &self.zones).map(Arc::new)?;
        let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
        if part.len() >= RULES_A_PART {
            // What is in use comes back at once; keeping an order would cost every hit.
            part.clear();
        }
        part.insert(spec.clone(), Arc::clone(&rule));
        Ok(rule)
    }

    fn zones(&self) -> &Arc<ZoneSet> {
        &self.zones
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_parsed_once_and_a_refusal_is_not_kept() {
        let cache = RuleCache::new(Arc::new(crate::shell::tzdata::bundled()));
        let spec = CronSpec::new("*/5 * * * *", "Europe/Berlin");
        let first = cache.cron(&spec).unwrap();
        assert!(Arc::ptr_eq(&first, &cache.clone().cron(&spec).unwrap()));
        assert!(cache.cron(&CronSpec::new("61 * * * *", "UTC")).is_err());
        for minute in 0..60 {
            for hour in 0..24 {
                for day in 1..6 {
                    cache.cron(&CronSpec::new(format!("{minute} {hour} {day} * *"), "UTC")).unwrap();
                }
            }
        }
        let kept: usize = cache.parts.iter().map(|part| part.lock().unwrap().len()).sum();
        assert!(kept <= RULES_A_PART * PARTS, "{kept}");
    }
}
