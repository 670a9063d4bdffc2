//! From what a user asks for to a schedule with every default resolved, or a refusal that names the field.

use std::sync::Arc;

use super::{
    calendar::{CalendarError, CronRule, CronSpec, Interval, ZoneSet, resolve_local},
    id::check_name,
    refusal::{Refusal, RefusalCode},
    schedule::{AtLocal, NewRule, NewSchedule, Rule, Spec},
    time::UnixMs,
};

const DAY_MS: u64 = 86_400_000;
/// A payload is opaque, and small: it travels in the log and in the queue.
const PAYLOAD_LIMIT: usize = 64 << 10;
/// A flexible window may not be longer than the shortest gap among this many next instants.
const GAPS_LOOKED_AT: usize = 100;

/// Resolves `new` as of `now`.
///
/// # Errors
/// The first part that is refused: shape, then rule, then time.
pub fn resolve(new: NewSchedule, now: UnixMs, zones: &Arc<ZoneSet>) -> Result<Spec, Refusal> {
    check_shape(&new)?;
    let (rule, at_local) = resolve_rule(&new.rule, new.start_at, zones)?;
    let flexible_window_ms = millis(new.flexible_window);
    let spec = Spec {
        tenant: new.tenant,
        queue: new.queue,
        name: new.name,
        rule,
        at_local,
        start_at: new.start_at,
        end_at: new.end_at,
        payload: new.payload,
        flexible_window_ms,
        max_lateness_ms: millis(new.max_lateness),
    };
    if flexible_window_ms > 0 {
        check_window(&spec, now, zones)?;
    }
    Ok(spec)
}

fn check_shape(new: &NewSchedule) -> Result<(), Refusal> {
    let invalid = |field: &str, message: String| Err(Refusal::new(RefusalCode::Invalid, field, message));
    for (field, name) in [("tenant", &new.tenant), ("queue", &new.queue)] {
        if let Err(problem) = check_name(name) {
            return invalid(field, format!("{field} {problem}"));
        }
    }
    if let Some(name) = &new.name {
        if name.chars().count() > 256 {
            return invalid("name", format!("name has {} characters: at most 256 are allowed", name.chars().count()));
        }
        if name.chars().any(char::is_control) {
            return invalid("name", "name has a control character: remove it".to_owned());
        }
    }
    if new.payload.len() > PAYLOAD_LIMIT {
        let bytes = new.payload.len();
        return invalid("payload", format!("payload has {bytes} bytes: at most 65536 are allowed; pass a reference"));
    }
    if millis(new.flexible_window) > DAY_MS {
        return invalid("flexible_window", "flexible_window is longer than 24h: give at most 24h".to_owned());
    }
    if millis(new.max_lateness) > 366 * DAY_MS {
        return invalid("max_lateness", "max_lateness is longer than 366 days: give at most 366d".to_owned());
    }
    if let (Some(start), Some(end)) = (new.start_at, new.end_at)
        && start >= end
    {
        return invalid("end_at", format!("end_at {end} is not after start_at {start}: move one of them"));
    }
    Ok(())
}

/// Resolves a rule.
///
/// # Errors
/// The part that is refused.
pub fn resolve_rule(
    rule: &NewRule,
    start_at: Option<UnixMs>,
    zones: &Arc<ZoneSet>,
) -> Result<(Rule, Option<AtLocal>), Refusal> {
    match rule {
        NewRule::Cron(spec) => Ok((Rule::Cron(resolve_cron(spec, zones)?), None)),
        NewRule::Every { every, anchor } => {
            let every_ms = millis(*every);
            if !(1_000..=366 * DAY_MS).contains(&every_ms) {
                let message = format!("{every_ms} ms is out of range: give 1s to 366d");
                return Err(Refusal::new(RefusalCode::Invalid, "rule.every", message));
            }
            let every_ms = i64::try_from(every_ms).expect("366 days fit");
            Ok((Rule::Every { every_ms, anchor: anchor.or(start_at) }, None))
        }
        NewRule::At(at) => Ok((Rule::At(*at), None)),
        NewRule::AtLocal { local, zone, fold, gap } => {
            let rules = zones.zone(zone).map_err(|error| from_calendar(&error, "rule.at_local", "rule.zone"))?;
            let at = resolve_local(&rules, local, *fold, *gap)
                .map_err(|error| from_calendar(&error, "rule.at_local", "rule.zone"))?;
            let given = AtLocal { local: local.clone(), zone: zone.clone(), fold: *fold, gap: *gap };
            Ok((Rule::At(at), Some(given)))
        }
    }
}

fn resolve_cron(spec: &CronSpec, zones: &Arc<ZoneSet>) -> Result<CronSpec, Refusal> {
    let rule = CronRule::new(spec, zones).map_err(|error| from_calendar(&error, "rule.cron", "rule.zone"))?;
    Ok(CronSpec { fold: rule.fold().into(), ..spec.clone() })
}

fn check_window(spec: &Spec, now: UnixMs, zones: &Arc<ZoneSet>) -> Result<(), Refusal> {
    let cron = match &spec.rule {
        Rule::Cron(cron) => {
            Some(CronRule::new(cron, zones).map_err(|error| from_calendar(&error, "rule.cron", "rule.zone"))?)
        }
        Rule::Every { .. } | Rule::At(_) => None,
    };
    let next = |after: UnixMs| match (&spec.rule, &cron) {
        (Rule::Every { every_ms, anchor }, _) => Interval::new(anchor.unwrap_or(now), *every_ms)?.next(after),
        (_, Some(rule)) => rule.next(after),
        _ => None,
    };
    let mut before = next(now);
    let mut shortest: Option<i64> = None;
    for _ in 1..GAPS_LOOKED_AT {
        let Some(instant) = before.and_then(next) else { break };
        let gap = before.map_or(i64::MAX, |earlier| instant.since(earlier));
        shortest = Some(shortest.map_or(gap, |least| least.min(gap)));
        before = Some(instant);
    }
    match shortest {
        Some(gap) if spec.flexible_window_ms > gap.cast_unsigned() => Err(Refusal::new(
            RefusalCode::WindowTooLong,
            "flexible_window",
            format!(
                "{} ms is longer than the shortest gap between instants, {gap} ms: give at most that",
                spec.flexible_window_ms
            ),
        )),
        _ => Ok(()),
    }
}

/// Names the field that a calendar's refusal is about.
#[must_use]
pub fn from_calendar(error: &CalendarError, rule_field: &str, zone_field: &str) -> Refusal {
    let (code, field) = match error {
        CalendarError::InvalidCron(_) => (RefusalCode::InvalidCron, rule_field),
        CalendarError::UnknownZone { .. } | CalendarError::UnreadableZone { .. } => {
            (RefusalCode::UnknownZone, zone_field)
        }
        CalendarError::NeverFires { .. } => (RefusalCode::NeverFires, rule_field),
        _ => (RefusalCode::Invalid, rule_field),
    };
    Refusal::new(code, field, error.to_string())
}

fn millis(duration: impl Into<Option<std::time::Duration>>) -> u64 {
    duration.into().map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}
