//! From what a call says to a schedule with everything resolved, or a refusal that names the field.

use std::sync::Arc;

use super::{
    calendar::{Basis, CalendarError, CronRule, CronSpec, Interval, ZoneSet, resolve_local},
    changes::{Changes, MisfireChange, NewRule, NewSchedule, RetryChanges},
    id::check_name,
    policy::{Effect, Misfire, Overlap, Retry},
    refusal::{Refusal, RefusalCode},
    schedule::{AtLocal, Rule, Spec},
    time::UnixMs,
};

const DAY_MS: u64 = 86_400_000;
/// A payload is opaque, and small: it travels in the log and in the queue.
pub(crate) const PAYLOAD_LIMIT: usize = 64 << 10;
/// Names for people.
const NAME_CHARS: usize = 256;
/// A flexible window may not be longer than the shortest gap among this many next instants.
const GAPS_LOOKED_AT: usize = 100;
const MAX_ATTEMPTS: u32 = 1_000_000;

/// Where parsed rules come from: judging one costs tens of microseconds, so whoever asks often keeps them.
pub trait Rules {
    /// The rule that `spec` describes.
    ///
    /// # Errors
    /// Why it is refused.
    fn cron(&self, spec: &CronSpec) -> Result<Arc<CronRule>, CalendarError>;

    /// The zone rules.
    fn zones(&self) -> &Arc<ZoneSet>;
}

/// Parses each time.
impl Rules for Arc<ZoneSet> {
    fn cron(&self, spec: &CronSpec) -> Result<Arc<CronRule>, CalendarError> {
        CronRule::new(spec, self).map(Arc::new)
    }

    fn zones(&self) -> &Arc<ZoneSet> {
        self
    }
}

/// Resolves a new schedule as of `now`.
///
/// # Errors
/// The first part that is refused: shape, then rule, then time.
pub fn resolve(new: &NewSchedule, now: UnixMs, rules: &dyn Rules) -> Result<Spec, Refusal> {
    let start_at = new.rest.start_at.flatten();
    let mut spec = Spec::new(new.tenant.clone(), Rule::At(now));
    put(&new.rest, &mut spec)?;
    check_shape(&spec)?;
    check_effect(&spec, new.rest.misfire.is_some())?;
    (spec.rule, spec.at_local) = resolve_rule(&new.rule, start_at, rules)?;
    check_basis(&spec)?;
    check_window(&spec, now, rules)?;
    Ok(spec)
}

/// Resolves what a schedule that stands as `before` is to become, as of `now`.
///
/// # Errors
/// The first part that is refused.
pub fn resolve_changes(before: &Spec, changes: &Changes, now: UnixMs, rules: &dyn Rules) -> Result<Spec, Refusal> {
    let mut spec = before.clone();
    put(changes, &mut spec)?;
    check_shape(&spec)?;
    let misfire_is_said = changes.misfire.is_some() || before.effect == Effect::NonIdempotent;
    check_effect(&spec, misfire_is_said)?;
    if let Some(rule) = &changes.rule {
        let anchor = match before.rule {
            Rule::Every { anchor, .. } => anchor,
            Rule::Cron(_) | Rule::At(_) => spec.start_at,
        };
        (spec.rule, spec.at_local) = resolve_rule(rule, anchor, rules)?;
        let restated = changes.misfire.is_some() && changes.flexible_window.is_some() && changes.retry.is_some();
        if !restated && !spec.rule.is_same_kind(&before.rule) {
            return Err(Refusal::new(
                RefusalCode::RestatePolicies,
                "rule",
                "the rule is of another kind: say misfire, flexible_window and retry again with it".to_owned(),
            ));
        }
    }
    check_basis(&spec)?;
    if spec.rule != before.rule || spec.flexible_window_ms != before.flexible_window_ms {
        check_window(&spec, now, rules)?;
    }
    Ok(spec)
}

/// Puts what is said in the place of what was; the rule is not touched.
fn put(changes: &Changes, spec: &mut Spec) -> Result<(), Refusal> {
    fn set<T: Clone>(place: &mut T, said: Option<&T>) {
        if let Some(value) = said {
            place.clone_from(value);
        }
    }
    set(&mut spec.queue, changes.queue.as_ref());
    set(&mut spec.name, changes.name.as_ref());
    set(&mut spec.start_at, changes.start_at.as_ref());
    set(&mut spec.end_at, changes.end_at.as_ref());
    set(&mut spec.payload, changes.payload.as_ref());
    set(&mut spec.overlap, changes.overlap.as_ref());
    set(&mut spec.effect, changes.effect.as_ref());
    set(&mut spec.review_owner, changes.review_owner.as_ref());
    set(&mut spec.max_lateness_ms, changes.max_lateness.map(millis).as_ref());
    set(&mut spec.flexible_window_ms, changes.flexible_window.map(millis).as_ref());
    match changes.misfire {
        None => {}
        Some(MisfireChange::Policy(misfire)) => spec.misfire = misfire,
        Some(MisfireChange::Limit(limit)) => match &mut spec.misfire {
            Misfire::CatchUp { limit: place } => *place = limit,
            other => {
                let message = format!("a limit of {limit} goes only with CATCH_UP, not with {other}: leave it out");
                return Err(Refusal::new(RefusalCode::Invalid, "misfire.limit", message));
            }
        },
    }
    if let Some(retry) = &changes.retry {
        put_retry(retry, &mut spec.retry);
    }
    Ok(())
}

fn put_retry(said: &RetryChanges, retry: &mut Retry) {
    retry.max_attempts = said.max_attempts.unwrap_or(retry.max_attempts);
    retry.base_ms = said.base.map_or(retry.base_ms, millis);
    retry.cap_ms = said.cap.map_or(retry.cap_ms, millis);
    retry.deadline_ms = said.deadline.map_or(retry.deadline_ms, |deadline| deadline.map(millis));
    retry.budget = said.budget.unwrap_or(retry.budget);
}

fn invalid<T>(field: &str, message: String) -> Result<T, Refusal> {
    Err(Refusal::new(RefusalCode::Invalid, field, message))
}

fn check_shape(spec: &Spec) -> Result<(), Refusal> {
    for (field, name) in [("tenant", &spec.tenant), ("queue", &spec.queue)] {
        if let Err(problem) = check_name(name) {
            // What is longer than any name is not repeated.
            let shown = if name.len() <= 64 { format!("{name:?}") } else { field.to_owned() };
            return invalid(field, format!("{shown} {problem}"));
        }
    }
    for (field, text) in [("name", &spec.name), ("review_owner", &spec.review_owner)] {
        check_text(field, text.as_deref())?;
    }
    if spec.payload.len() > PAYLOAD_LIMIT {
        let bytes = spec.payload.len();
        return invalid("payload", format!("payload has {bytes} bytes: at most 65536 are allowed; pass a reference"));
    }
    if spec.flexible_window_ms > DAY_MS {
        return invalid("flexible_window", "flexible_window is longer than 24h: give at most 24h".to_owned());
    }
    if spec.max_lateness_ms > 366 * DAY_MS {
        return invalid("max_lateness", "max_lateness is longer than 366 days: give at most 366d".to_owned());
    }
    if let (Some(start), Some(end)) = (spec.start_at, spec.end_at)
        && start >= end
    {
        return invalid("end_at", format!("end_at {end} is not after start_at {start}: move one of them"));
    }
    check_policies(spec)
}

fn check_text(field: &str, text: Option<&str>) -> Result<(), Refusal> {
    let Some(text) = text else { return Ok(()) };
    let chars = text.chars().count();
    if chars > NAME_CHARS {
        return invalid(field, format!("{field} has {chars} characters: at most {NAME_CHARS} are allowed"));
    }
    match text.chars().find(|c| c.is_control()) {
        Some(bad) => invalid(field, format!("{field} has the control character {bad:?}: take it out")),
        None => Ok(()),
    }
}

fn check_policies(spec: &Spec) -> Result<(), Refusal> {
    if let Misfire::CatchUp { limit } = spec.misfire
        && !(1..=Misfire::MAX_LIMIT).contains(&limit)
    {
        return invalid("misfire.limit", format!("{limit} is out of range 1-{}", Misfire::MAX_LIMIT));
    }
    let Retry { max_attempts, base_ms, cap_ms, deadline_ms, .. } = spec.retry;
    if !(1..=MAX_ATTEMPTS).contains(&max_attempts) {
        return invalid("retry.max_attempts", format!("{max_attempts} is out of range 1-{MAX_ATTEMPTS}"));
    }
    for (field, ms) in [("retry.base", Some(base_ms)), ("retry.cap", Some(cap_ms)), ("retry.deadline", deadline_ms)] {
        if ms.is_some_and(|ms| ms > 366 * DAY_MS) {
            return invalid(field, format!("{field} is longer than 366 days: give at most 366d"));
        }
    }
    if base_ms > cap_ms {
        return invalid("retry.cap", format!("a cap of {cap_ms} ms is less than the base of {base_ms} ms: raise it"));
    }
    Ok(())
}

/// What must not repeat is not left to defaults: somebody owns it, and what becomes of missed instants was said.
fn check_effect(spec: &Spec, misfire_is_said: bool) -> Result<(), Refusal> {
    if spec.effect == Effect::Idempotent {
        return Ok(());
    }
    if spec.review_owner.as_ref().is_none_or(String::is_empty) {
        let message = "effect is non_idempotent: name who decides about what is held";
        return Err(Refusal::new(RefusalCode::ReviewOwnerRequired, "review_owner", message.to_owned()));
    }
    if !misfire_is_said {
        let message = "effect is non_idempotent: say what becomes of missed instants";
        return Err(Refusal::new(RefusalCode::MisfireRequired, "misfire", message.to_owned()));
    }
    Ok(())
}

/// What follows its runs has one instant at a time: there is no overlap to decide about, and no backlog to catch up.
fn check_basis(spec: &Spec) -> Result<(), Refusal> {
    let Rule::Every { basis: basis @ (Basis::Completion | Basis::Start), .. } = spec.rule else { return Ok(()) };
    let basis = basis.as_str();
    if spec.overlap != Overlap::Allow {
        let overlap = spec.overlap.as_str();
        let message = format!("{overlap} does not go with basis {basis}, which sets the next run itself: give ALLOW");
        return invalid("overlap", message);
    }
    if matches!(spec.misfire, Misfire::CatchUp { .. }) {
        let message =
            format!("CATCH_UP does not go with basis {basis}, which never owes two runs: give FIRE_ONCE or SKIP");
        return invalid("misfire.policy", message);
    }
    Ok(())
}

/// Resolves a rule; a grid without an anchor gets the default one.
///
/// # Errors
/// The part that is refused.
pub fn resolve_rule(
    rule: &NewRule,
    default_anchor: Option<UnixMs>,
    rules: &dyn Rules,
) -> Result<(Rule, Option<AtLocal>), Refusal> {
    match rule {
        NewRule::Cron(cron) => Ok((Rule::Cron(resolve_cron(&cron.spec(), rules)?), None)),
        NewRule::Every { every, anchor, basis } => {
            let every_ms = millis(*every);
            if !(1_000..=366 * DAY_MS).contains(&every_ms) {
                let message = format!("{every_ms} ms is out of range: give 1s to 366d");
                return Err(Refusal::new(RefusalCode::Invalid, "rule.every", message));
            }
            let every_ms = i64::try_from(every_ms).expect("366 days fit");
            let (anchor, basis) = (anchor.or(default_anchor), basis.unwrap_or_default());
            Ok((Rule::Every { every_ms, anchor, basis }, None))
        }
        NewRule::At(at) => Ok((Rule::At(*at), None)),
        NewRule::AtLocal { local, zone, fold, gap } => {
            let known =
                rules.zones().zone(zone).map_err(|error| from_calendar(&error, "rule.at_local", "rule.zone"))?;
            let at = resolve_local(&known, local, *fold, *gap)
                .map_err(|error| from_calendar(&error, "rule.at_local", "rule.zone"))?;
            let given = AtLocal { local: local.clone(), zone: zone.clone(), fold: *fold, gap: *gap };
            Ok((Rule::At(at), Some(given)))
        }
    }
}

fn resolve_cron(spec: &CronSpec, rules: &dyn Rules) -> Result<CronSpec, Refusal> {
    let rule = rules.cron(spec).map_err(|error| from_calendar(&error, "rule.cron", "rule.zone"))?;
    Ok(CronSpec { fold: rule.fold().into(), ..spec.clone() })
}

fn check_window(spec: &Spec, now: UnixMs, rules: &dyn Rules) -> Result<(), Refusal> {
    if spec.flexible_window_ms == 0 {
        return Ok(());
    }
    let cron = match &spec.rule {
        Rule::Cron(cron) => Some(rules.cron(cron).map_err(|error| from_calendar(&error, "rule.cron", "rule.zone"))?),
        Rule::Every { .. } | Rule::At(_) => None,
    };
    let next = |after: UnixMs| match (&spec.rule, &cron) {
        (Rule::Every { every_ms, anchor, .. }, _) => Interval::new(anchor.unwrap_or(now), *every_ms)?.next(after),
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

/// No duration is 0 ms, and one beyond all bounds the largest number.
fn millis(duration: impl Into<Option<std::time::Duration>>) -> u64 {
    duration.into().map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::tzdata;

    fn payments() -> NewSchedule {
        let mut new = NewSchedule::every(std::time::Duration::from_secs(60)).misfire(Misfire::Skip);
        new.rest.effect = Some(Effect::NonIdempotent);
        new.rest.review_owner = Some(Some("ops".into()));
        new
    }

    #[test]
    fn what_follows_its_runs_has_nothing_to_skip_and_nothing_to_catch_up() {
        let zones: &dyn Rules = &Arc::new(tzdata::bundled());
        for basis in [Basis::Completion, Basis::Start] {
            let new = || NewSchedule::every(std::time::Duration::from_secs(60)).basis(basis);
            let field = |new: &NewSchedule| resolve(new, UnixMs(0), zones).map_err(|refusal| refusal.field);
            let before = field(&new().misfire(Misfire::Skip)).expect("one late instant is decided like any other");
            for overlap in [Overlap::SkipIfRunning, Overlap::QueueOne] {
                assert_eq!(field(&new().overlap(overlap)), Err("overlap".into()));
                let changes = Changes { overlap: Some(overlap), ..Changes::default() };
                let changed = resolve_changes(&before, &changes, UnixMs(0), zones);
                assert_eq!(changed.map_err(|refusal| refusal.field), Err("overlap".into()));
            }
            assert_eq!(field(&new().misfire(Misfire::CatchUp { limit: 2 })), Err("misfire.policy".into()));
            let kept = NewRule::Every { every: std::time::Duration::from_secs(5), anchor: None, basis: None };
            let changes = Changes { rule: Some(kept), ..Changes::default() };
            let changed = resolve_changes(&before, &changes, UnixMs(0), zones).expect("an interval like the other");
            let slot = Rule::Every { every_ms: 5_000, anchor: None, basis: Basis::Slot };
            assert_eq!(changed.rule, slot, "a rule is replaced as a whole");
        }
    }

    #[test]
    fn what_must_not_repeat_has_an_owner_and_a_misfire_policy_that_was_said() {
        let zones: &dyn Rules = &Arc::new(tzdata::bundled());
        let code = |new: &NewSchedule| resolve(new, UnixMs(0), zones).map_err(|refusal| refusal.code);
        assert!(code(&payments()).is_ok());
        for owner in [None, Some(None), Some(Some(String::new()))] {
            let mut unowned = payments();
            unowned.rest.review_owner = owner;
            assert_eq!(code(&unowned), Err(RefusalCode::ReviewOwnerRequired));
        }
        let mut unsaid = payments();
        unsaid.rest.misfire = None;
        assert_eq!(code(&unsaid), Err(RefusalCode::MisfireRequired));
        let mut harmless = payments();
        harmless.rest.effect = None;
        let before = code(&harmless).expect("nothing is asked of it");
        let grave = Changes { effect: Some(Effect::NonIdempotent), ..Changes::default() };
        let changed = resolve_changes(&before, &grave, UnixMs(0), zones).map_err(|refusal| refusal.code);
        assert_eq!(changed, Err(RefusalCode::MisfireRequired), "it was said of something else");
    }
}
