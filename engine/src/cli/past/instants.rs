//! Instants on the clocks of a rule's zone, and whether a rule has them.

use crate::kernel::{
    calendar::{Basis, CronRule, Interval, ZoneSet, preview::Fire},
    schedule::{Rule, Spec},
    time::UnixMs,
};

/// What the clocks of a schedule's zone show at an instant, and the zone; none for rules of elapsed time, and for zones
/// that the loaded rules lack.
pub(super) fn local(spec: &Spec, at: UnixMs, zones: &ZoneSet) -> Option<(Fire, String)> {
    let name = match (&spec.rule, &spec.at_local) {
        (Rule::Cron(cron), _) => &cron.zone,
        (_, Some(local)) => &local.zone,
        _ => return None,
    };
    let zone = zones.zone(name).ok()?;
    Some((Fire::new(at, Some(&zone)), name.clone()))
}

/// Whether a rule has an instant, within its bounds and under the loaded zone rules; `None` if these cannot tell.
pub(super) fn has_instant(spec: &Spec, at: UnixMs, zones: &ZoneSet) -> Option<bool> {
    let before = at.minus(1);
    let has = match &spec.rule {
        Rule::Cron(cron) => CronRule::new(cron, zones).ok()?.next(before) == Some(at),
        // Where instants follow runs, the rule alone does not name them.
        Rule::Every { basis: Basis::Completion | Basis::Start, .. } => return None,
        Rule::Every { every_ms, anchor, basis: Basis::Slot } => {
            Interval::new((*anchor)?, *every_ms)?.next(before) == Some(at)
        }
        Rule::At(instant) => *instant == at,
    };
    let is_within = spec.start_at.is_none_or(|start| start <= at) && spec.end_at.is_none_or(|end| at < end);
    Some(has && is_within)
}
