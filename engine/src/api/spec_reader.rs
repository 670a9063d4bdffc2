//! What the bodies of requests mean: a schedule to make, a rule to preview.
//!
//! Only the shape is checked here (types, names, ranges that no rule moves); the engine checks rule and time after it.
//! What is described and not built yet is accepted in its default and refused otherwise, never ignored.

use std::{ops::RangeInclusive, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};

use super::{
    duration,
    fields::{Fields, invalid, not_built},
    json::Node,
    rule_reader::{self, RULE_FIELDS},
};
use crate::{
    error::Refusal,
    kernel::{
        id::check_name,
        schedule::{NewRule, NewSchedule},
        time::UnixMs,
    },
};

/// Longest payload.
pub(crate) const PAYLOAD_BYTES: usize = 64 * 1024;
/// Longest name of a schedule, in characters.
const NAME_CHARS: usize = 256;
/// Longest flexible window: a day.
const FLEXIBLE_WINDOW_MS: RangeInclusive<u64> = 0..=86_400_000;
/// Longest `max_lateness`: 366 days.
const MAX_LATENESS_MS: RangeInclusive<u64> = 0..=366 * 86_400_000;
/// `max_lateness` where none is given.
pub(crate) const DEFAULT_MAX_LATENESS_MS: u64 = 60_000;
/// Attempts, back-off base and cap where none are given; nothing else is built yet.
pub(crate) const DEFAULT_RETRY: (u64, u64, u64) = (5, 1_000, 600_000);
/// How many instants a preview shows, at most and where nothing is said.
const PREVIEW_COUNT: RangeInclusive<u64> = 1..=10_000;
const DEFAULT_PREVIEW_COUNT: u64 = 10;

const SPEC_FIELDS: [&str; 17] = [
    "tenant",
    "queue",
    "name",
    "rule",
    "start_at",
    "end_at",
    "payload",
    "payload_base64",
    "misfire",
    "max_lateness",
    "max_lateness_ms",
    "overlap",
    "flexible_window",
    "flexible_window_ms",
    "retry",
    "effect",
    "review_owner",
];

/// Reads the body of `POST /v1/schedules`.
pub(crate) fn new_schedule(body: Node) -> Result<NewSchedule, Refusal> {
    let mut spec = Fields::of(body, "", &SPEC_FIELDS)?;
    let tenant = name_of(&mut spec, "tenant")?;
    let queue = name_of(&mut spec, "queue")?;
    let name = free_name(&mut spec)?;
    let rule = required_rule(&mut spec)?;
    let (start_at, end_at) = bounds(&mut spec)?;
    let payload = payload(&mut spec)?;
    let max_lateness_ms = spec.duration_ms("max_lateness", "max_lateness_ms", MAX_LATENESS_MS)?;
    let flexible_window_ms = spec.duration_ms("flexible_window", "flexible_window_ms", FLEXIBLE_WINDOW_MS)?;
    refuse_what_is_not_built(&mut spec)?;
    Ok(NewSchedule {
        tenant,
        queue,
        name,
        rule,
        start_at,
        end_at,
        payload,
        flexible_window: flexible_window_ms.filter(|ms| *ms > 0).map(Duration::from_millis),
        max_lateness: Duration::from_millis(max_lateness_ms.unwrap_or(DEFAULT_MAX_LATENESS_MS)),
    })
}

/// A rule to preview.
#[derive(Debug)]
pub(crate) struct PreviewQuestion {
    pub(crate) rule: NewRule,
    pub(crate) bounds: (Option<UnixMs>, Option<UnixMs>),
    pub(crate) from: Option<UnixMs>,
    pub(crate) count: usize,
}

/// Reads the body of `POST /v1/preview`.
pub(crate) fn preview(body: Node) -> Result<PreviewQuestion, Refusal> {
    let mut question = Fields::of(body, "", &["rule", "start_at", "end_at", "from", "count"])?;
    let rule = required_rule(&mut question)?;
    let bounds = bounds(&mut question)?;
    let from = question.instant("from")?;
    let count = question.whole("count", PREVIEW_COUNT)?.unwrap_or(DEFAULT_PREVIEW_COUNT);
    Ok(PreviewQuestion { rule, bounds, from, count: usize::try_from(count).expect("10,000 fits") })
}

fn required_rule(fields: &mut Fields) -> Result<NewRule, Refusal> {
    let rule = fields.object("rule", &RULE_FIELDS)?.ok_or_else(|| fields.missing("rule"))?;
    rule_reader::read(rule)
}

fn name_of(spec: &mut Fields, field: &str) -> Result<String, Refusal> {
    let name = spec.required_text(field)?;
    check_name(&name).map_err(|problem| invalid(field, problem))?;
    Ok(name)
}

fn free_name(spec: &mut Fields) -> Result<Option<String>, Refusal> {
    let Some(name) = spec.text("name")? else { return Ok(None) };
    let chars = name.chars().count();
    if chars > NAME_CHARS {
        return Err(invalid("name", format!("has {chars} characters: at most {NAME_CHARS} are allowed")));
    }
    if let Some(bad) = name.chars().find(|c| c.is_control()) {
        return Err(invalid("name", format!("has the control character {bad:?}: take it out")));
    }
    Ok(Some(name))
}

fn bounds(fields: &mut Fields) -> Result<(Option<UnixMs>, Option<UnixMs>), Refusal> {
    let (start_at, end_at) = (fields.instant("start_at")?, fields.instant("end_at")?);
    match (start_at, end_at) {
        (Some(start), Some(end)) if end <= start => {
            Err(invalid("end_at", format!("{end} is not after start_at {start}: give a later end")))
        }
        _ => Ok((start_at, end_at)),
    }
}

fn payload(spec: &mut Fields) -> Result<Vec<u8>, Refusal> {
    let (text, base64) = (spec.text("payload")?, spec.text("payload_base64")?);
    let (field, bytes) = match (text, base64) {
        (Some(_), Some(_)) => {
            return Err(invalid("payload_base64", "is given beside payload: give one of the two"));
        }
        (Some(text), None) => ("payload", text.into_bytes()),
        (None, Some(base64)) => {
            let problem = |error| invalid("payload_base64", format!("is no standard base64 with padding: {error}"));
            ("payload_base64", BASE64.decode(base64).map_err(problem)?)
        }
        (None, None) => return Ok(Vec::new()),
    };
    if bytes.len() > PAYLOAD_BYTES {
        let message = format!(
            "has {} bytes: at most {PAYLOAD_BYTES} are allowed; store it elsewhere and put a reference here",
            bytes.len()
        );
        return Err(invalid(field, message));
    }
    Ok(bytes)
}

fn refuse_what_is_not_built(spec: &mut Fields) -> Result<(), Refusal> {
    misfire(spec)?;
    one_word(spec, "overlap", "ALLOW", &["SKIP_IF_RUNNING", "QUEUE_ONE"])?;
    retry(spec)?;
    one_word(spec, "effect", "idempotent", &["non_idempotent"])?;
    match spec.text("review_owner")? {
        None => Ok(()),
        Some(_) => Err(not_built("review_owner", "null")),
    }
}

/// A choice of which only `built` is there; `described` are the others.
fn one_word(fields: &mut Fields, name: &str, built: &str, described: &[&str]) -> Result<(), Refusal> {
    match fields.text(name)? {
        None => Ok(()),
        Some(word) if word == built => Ok(()),
        Some(word) if described.contains(&word.as_str()) => Err(not_built(fields.at(name), &format!("{built:?}"))),
        Some(_) => Err(invalid(fields.at(name), format!("must be one of {built}, {}", described.join(", ")))),
    }
}

fn misfire(spec: &mut Fields) -> Result<(), Refusal> {
    let Some(mut misfire) = spec.object("misfire", &["policy", "limit"])? else { return Ok(()) };
    if !misfire.has("policy") {
        return Err(misfire.missing("policy"));
    }
    one_word(&mut misfire, "policy", "FIRE_ONCE", &["SKIP", "CATCH_UP"])?;
    match misfire.whole("limit", 1..=1_000)? {
        None => Ok(()),
        Some(_) => Err(invalid("misfire.limit", "goes only with CATCH_UP: leave it out")),
    }
}

fn retry(spec: &mut Fields) -> Result<(), Refusal> {
    const FIELDS: [&str; 8] = ["max_attempts", "base", "base_ms", "cap", "cap_ms", "deadline", "deadline_ms", "budget"];
    let Some(mut retry) = spec.object("retry", &FIELDS)? else { return Ok(()) };
    let (max_attempts, base_ms, cap_ms) = DEFAULT_RETRY;
    if retry.whole("max_attempts", 1..=u64::from(u32::MAX))?.is_some_and(|given| given != max_attempts) {
        return Err(not_built("retry.max_attempts", &max_attempts.to_string()));
    }
    for (name, name_ms, default_ms) in
        [("base", "base_ms", Some(base_ms)), ("cap", "cap_ms", Some(cap_ms)), ("deadline", "deadline_ms", None)]
    {
        let field = if retry.has(name) { name } else { name_ms };
        let given = retry.duration_ms(name, name_ms, MAX_LATENESS_MS)?;
        if given.is_some() && given != default_ms {
            let default = default_ms.map_or_else(|| "null".to_owned(), |ms| format!("{:?}", duration::show_ms(ms)));
            return Err(not_built(retry.at(field), &default));
        }
    }
    match retry.whole("budget", 0..=u64::from(u32::MAX))? {
        None => Ok(()),
        Some(_) => Err(not_built("retry.budget", "null")),
    }
}

#[cfg(test)]
#[path = "spec_reader_tests.rs"]
mod tests;
