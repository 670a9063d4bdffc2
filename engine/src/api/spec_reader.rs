//! What the bodies of requests mean: a schedule to make, a rule to preview.
//!
//! Only the shape is checked here (types, names, ranges that no rule moves); the engine checks rule and time after it.
//! What is described and not built yet is accepted in its default and refused otherwise, never ignored.

use std::{ops::RangeInclusive, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};

use super::{
    fields::{Fields, invalid, not_built},
    json::Node,
    rule_reader::{self, RULE_FIELDS},
    words,
};
use crate::{
    error::Refusal,
    kernel::{
        changes::{Changes, MisfireChange, NewRule, NewSchedule, RetryChanges},
        id::check_name,
        policy::{Effect, Misfire},
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
    let rest = Changes {
        queue: Some(queue),
        name: name.map(Some),
        rule: None,
        start_at: start_at.map(Some),
        end_at: end_at.map(Some),
        payload: payload(&mut spec)?,
        misfire: misfire(&mut spec)?,
        max_lateness: duration(&mut spec, "max_lateness", "max_lateness_ms", MAX_LATENESS_MS)?,
        overlap: spec.word("overlap", words::OVERLAP)?,
        flexible_window: duration(&mut spec, "flexible_window", "flexible_window_ms", FLEXIBLE_WINDOW_MS)?.map(Some),
        retry: retry(&mut spec)?,
        effect: effect(&mut spec)?,
        review_owner: spec.text("review_owner")?.map(Some),
    };
    Ok(NewSchedule { tenant, rule, rest })
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

fn payload(spec: &mut Fields) -> Result<Option<Vec<u8>>, Refusal> {
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
        (None, None) => return Ok(None),
    };
    if bytes.len() > PAYLOAD_BYTES {
        let message = format!(
            "has {} bytes: at most {PAYLOAD_BYTES} are allowed; store it elsewhere and put a reference here",
            bytes.len()
        );
        return Err(invalid(field, message));
    }
    Ok(Some(bytes))
}

fn duration(
    fields: &mut Fields,
    name: &str,
    name_ms: &str,
    range_ms: RangeInclusive<u64>,
) -> Result<Option<Duration>, Refusal> {
    Ok(fields.duration_ms(name, name_ms, range_ms)?.map(Duration::from_millis))
}

fn effect(spec: &mut Fields) -> Result<Option<Effect>, Refusal> {
    match spec.word("effect", words::EFFECT)? {
        Some(Effect::NonIdempotent) => Err(not_built("effect", "\"idempotent\"")),
        effect => Ok(effect),
    }
}

fn misfire(spec: &mut Fields) -> Result<Option<MisfireChange>, Refusal> {
    let Some(mut misfire) = spec.object("misfire", &["policy", "limit"])? else { return Ok(None) };
    let policy = misfire.word("policy", words::MISFIRE)?.ok_or_else(|| misfire.missing("policy"))?;
    let limit = misfire.whole("limit", 1..=u64::from(Misfire::MAX_LIMIT))?;
    let limit = limit.map(|limit| u32::try_from(limit).expect("at most 1,000"));
    match (policy, limit) {
        (Misfire::CatchUp { .. }, Some(limit)) => Ok(Some(MisfireChange::Policy(Misfire::CatchUp { limit }))),
        (Misfire::CatchUp { .. }, None) => Err(misfire.missing("limit")),
        (policy, None) => Ok(Some(MisfireChange::Policy(policy))),
        (policy, Some(limit)) => {
            let message = format!("{limit} goes only with CATCH_UP, not with {policy}: leave it out");
            Err(invalid("misfire.limit", message))
        }
    }
}

fn retry(spec: &mut Fields) -> Result<Option<RetryChanges>, Refusal> {
    const FIELDS: [&str; 8] = ["max_attempts", "base", "base_ms", "cap", "cap_ms", "deadline", "deadline_ms", "budget"];
    let Some(mut retry) = spec.object("retry", &FIELDS)? else { return Ok(None) };
    let number = |number: Option<u64>| number.map(|n| u32::try_from(n).expect("the reader keeps to the range"));
    Ok(Some(RetryChanges {
        max_attempts: number(retry.whole("max_attempts", 1..=1_000_000)?),
        base: duration(&mut retry, "base", "base_ms", MAX_LATENESS_MS)?,
        cap: duration(&mut retry, "cap", "cap_ms", MAX_LATENESS_MS)?,
        deadline: duration(&mut retry, "deadline", "deadline_ms", MAX_LATENESS_MS)?.map(Some),
        budget: number(retry.whole("budget", 0..=u64::from(u32::MAX))?).map(Some),
    }))
}

#[cfg(any())]
#[path = "spec_reader_tests.rs"]
mod tests;
