//! What the bodies of requests say of a schedule: one to make, what to change of one, a rule to preview, a window.
//!
//! Only the shape is checked here (types, words, numbers that fit); the engine checks names, rule and time after it.
//! One reader serves all of them. Where a schedule is made, `null` is the same as leaving a field out; where one is
//! changed, it asks for the default.

use std::{ops::RangeInclusive, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};

use super::{
    fields::{Fields, Null, invalid, quoted},
    json::Node,
    request::check_key,
    rule_reader::{self, RULE},
    shape::{Field, Shape},
    words,
};
use crate::{
    error::Refusal,
    kernel::{
        changes::{Changes, MisfireChange, NewRule, NewSchedule, RetryChanges},
        policy::{Effect, Misfire, Overlap, Retry},
        resolve::PAYLOAD_LIMIT,
        time::UnixMs,
    },
};

/// Longest flexible window: a day.
const FLEXIBLE_WINDOW_MS: RangeInclusive<u64> = 0..=86_400_000;
/// Longest of all other durations: 366 days.
const DURATION_MS: RangeInclusive<u64> = 0..=366 * 86_400_000;
/// `max_lateness` where none is given.
pub(crate) const DEFAULT_MAX_LATENESS_MS: u64 = 60_000;
/// How many instants a preview shows, at most and where nothing is said.
const PREVIEW_COUNT: RangeInclusive<u64> = 1..=10_000;
const DEFAULT_PREVIEW_COUNT: u64 = 10;

const MISFIRE: &[Field] = &[
    Field::new("policy", Shape::Words(|| words::names(words::MISFIRE)), "FIRE_ONCE where nothing is said"),
    Field::new("limit", Shape::Whole(1, Misfire::MAX_LIMIT as u64), "required with CATCH_UP, refused otherwise"),
];

const RETRY: &[Field] = &[
    Field::new("max_attempts", Shape::Whole(1, 1_000_000), "attempts in all; 5"),
    Field::new("base", Shape::Duration, "largest back-off before the second attempt; 1s"),
    Field::new("base_ms", Shape::MS, "the same in milliseconds"),
    Field::new("cap", Shape::Duration, "largest back-off of all; 10m"),
    Field::new("cap_ms", Shape::MS, "the same in milliseconds"),
    Field::new("deadline", Shape::Duration, "no attempt begins later than this after available_at"),
    Field::new("deadline_ms", Shape::MS, "the same in milliseconds"),
    Field::new("budget", Shape::COUNT, "at most this many retries of the schedule under way"),
];

macro_rules! spec_fields {
    ($required:ident; $($more:expr),*) => {
        &[
            Field::new("tenant", Shape::Name, "whose it is; a token of a tenant says so already"),
            Field::$required("queue", Shape::Name, "the name of the handler that its occurrences go to"),
            Field::new("name", Shape::Text, "for people, at most 256 characters"),
            Field::$required("rule", Shape::Object(RULE), "when it fires: one of cron, every, at, at_local"),
            Field::new("start_at", Shape::Instant, "instants before this are not the schedule's"),
            Field::new("end_at", Shape::Instant, "instants from this on are not the schedule's"),
            Field::new("payload", Shape::Text, "for the handler, at most 64 KiB"),
            Field::new("payload_base64", Shape::Base64, "the same where it is no text"),
            Field::new("misfire", Shape::Object(MISFIRE), "what becomes of missed instants"),
            Field::new("max_lateness", Shape::Duration, "what is later is a misfire; 60s"),
            Field::new("max_lateness_ms", Shape::MS, "the same in milliseconds"),
            Field::new("overlap", Shape::Words(|| words::names(words::OVERLAP)), "while another occurrence runs; ALLOW"),
            Field::new("flexible_window", Shape::Duration, "spreads available_at over this, at most 24h"),
            Field::new("flexible_window_ms", Shape::Whole(0, 86_400_000), "the same in milliseconds"),
            Field::new("retry", Shape::Object(RETRY), "how failed attempts are repeated"),
            Field::new("effect", Shape::Words(|| words::names(words::EFFECT)), "whether running twice does harm"),
            Field::new("review_owner", Shape::Text, "who decides about what is held"),
            $($more),*
        ]
    };
}

/// Fields of a schedule to be made.
pub(crate) const SPEC: &[Field] = spec_fields!(required;);
/// Fields of a line of an import.
pub(crate) const IMPORT_LINE: &[Field] =
    spec_fields!(required; Field::new("key", Shape::Text, "an idempotency key, 1 to 255 characters"));
/// Fields of what is to change of a schedule.
pub(crate) const PATCH: &[Field] = spec_fields!(new;);

/// Fields of a rule to preview.
pub(crate) const PREVIEW: &[Field] = &[
    Field::required("rule", Shape::Object(RULE), "one of cron, every, at, at_local"),
    Field::new("start_at", Shape::Instant, "no instants before this"),
    Field::new("end_at", Shape::Instant, "no instants from this on"),
    Field::new("from", Shape::Instant, "instants strictly after this; now where nothing is said"),
    Field::new("count", Shape::Whole(*PREVIEW_COUNT.start(), *PREVIEW_COUNT.end()), "how many; 10"),
];

/// Fields of a window to run again.
pub(crate) const BACKFILL: &[Field] = &[
    Field::required("from", Shape::Instant, "inclusive"),
    Field::required("to", Shape::Instant, "exclusive, at most now"),
];

/// Reads a schedule to be made; `tenant` is whose it is where nothing is said.
pub(crate) fn new_schedule(body: Node, tenant: Option<&str>) -> Result<NewSchedule, Refusal> {
    made(&mut Fields::of(body, "", SPEC, Null::LeftOut)?, tenant)
}

/// Reads a line of an import: a schedule to be made, and its idempotency key.
pub(crate) fn import_line(line: Node, tenant: Option<&str>) -> Result<(Option<String>, NewSchedule), Refusal> {
    let mut line = Fields::of(line, "", IMPORT_LINE, Null::LeftOut)?;
    let key = line.text("key")?;
    if let Some(key) = &key {
        check_key("key", key)?;
    }
    Ok((key, made(&mut line, tenant)?))
}

fn made(spec: &mut Fields, tenant: Option<&str>) -> Result<NewSchedule, Refusal> {
    let said = spec.text("tenant")?;
    let tenant = said.or_else(|| tenant.map(str::to_owned)).ok_or_else(|| spec.missing("tenant"))?;
    if let Some(missing) = ["queue", "rule"].into_iter().find(|name| !spec.has(name)) {
        return Err(spec.missing(missing));
    }
    let mut rest = changes(spec)?;
    let rule = rest.rule.take().ok_or_else(|| spec.missing("rule"))?;
    Ok(NewSchedule { tenant, rule, rest })
}

/// What is to change of a schedule.
#[derive(Debug)]
pub(crate) struct Patch {
    /// The tenant that was named: it has to be the schedule's.
    pub(crate) tenant: Option<String>,
    pub(crate) changes: Changes,
}

/// Reads what is to change of a schedule.
pub(crate) fn patch(body: Node) -> Result<Patch, Refusal> {
    let mut spec = Fields::of(body, "", PATCH, Null::Reset)?;
    if let Some(name) = ["tenant", "queue", "rule"].into_iter().find(|name| spec.resets(name)) {
        return Err(invalid(name, "null is no value here, and there is no default: leave it out"));
    }
    Ok(Patch { tenant: spec.text("tenant")?, changes: changes(&mut spec)? })
}

/// What is said of everything but the tenant.
fn changes(spec: &mut Fields) -> Result<Changes, Refusal> {
    let name = spec.text("name")?.map(Some);
    let start_at = spec.instant("start_at")?.map(Some);
    let end_at = spec.instant("end_at")?.map(Some);
    let review_owner = spec.text("review_owner")?.map(Some);
    let overlap = spec.word("overlap", words::OVERLAP)?;
    let effect = spec.word("effect", words::EFFECT)?;
    let lateness = duration(spec, ["max_lateness", "max_lateness_ms"], DURATION_MS)?;
    let window = duration(spec, ["flexible_window", "flexible_window_ms"], FLEXIBLE_WINDOW_MS)?.map(Some);
    let default_lateness = Duration::from_millis(DEFAULT_MAX_LATENESS_MS);
    Ok(Changes {
        queue: spec.text("queue")?,
        name: spec.or_reset(name, &["name"], None),
        rule: spec.object("rule", RULE)?.map(rule_reader::read).transpose()?,
        start_at: spec.or_reset(start_at, &["start_at"], None),
        end_at: spec.or_reset(end_at, &["end_at"], None),
        payload: payload(spec)?,
        misfire: misfire(spec)?,
        max_lateness: spec.or_reset(lateness, &["max_lateness", "max_lateness_ms"], default_lateness),
        overlap: spec.or_reset(overlap, &["overlap"], Overlap::default()),
        flexible_window: spec.or_reset(window, &["flexible_window", "flexible_window_ms"], None),
        retry: retry(spec)?,
        effect: spec.or_reset(effect, &["effect"], Effect::default()),
        review_owner: spec.or_reset(review_owner, &["review_owner"], None),
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

/// Reads a rule to preview.
pub(crate) fn preview(body: Node) -> Result<PreviewQuestion, Refusal> {
    let mut question = Fields::of(body, "", PREVIEW, Null::LeftOut)?;
    let rule = question.object("rule", RULE)?.ok_or_else(|| question.missing("rule"))?;
    let rule = rule_reader::read(rule)?;
    let bounds = (question.instant("start_at")?, question.instant("end_at")?);
    if let (Some(start), Some(end)) = bounds
        && end <= start
    {
        return Err(invalid("end_at", format!("{end} is not after start_at {start}: give a later end")));
    }
    let from = question.instant("from")?;
    let count = question.whole("count", PREVIEW_COUNT)?.unwrap_or(DEFAULT_PREVIEW_COUNT);
    Ok(PreviewQuestion { rule, bounds, from, count: usize::try_from(count).expect("10,000 fits") })
}

/// Reads a window to run again: `[from, to)`.
pub(crate) fn backfill(body: Node) -> Result<(UnixMs, UnixMs), Refusal> {
    let mut window = Fields::of(body, "", BACKFILL, Null::LeftOut)?;
    Ok((window.required_instant("from")?, window.required_instant("to")?))
}

fn payload(spec: &mut Fields) -> Result<Option<Vec<u8>>, Refusal> {
    match (spec.text("payload")?, spec.text("payload_base64")?) {
        (Some(_), Some(_)) => Err(invalid("payload_base64", "is given beside payload: give one of the two")),
        (Some(text), None) => Ok(Some(text.into_bytes())),
        (None, Some(base64)) => decoded(&base64).map(Some),
        (None, None) => Ok(spec.or_reset(None, &["payload", "payload_base64"], Vec::new())),
    }
}

fn decoded(base64: &str) -> Result<Vec<u8>, Refusal> {
    let refuse = |problem: String| Err(invalid("payload_base64", problem));
    match BASE64.decode(base64) {
        // The engine would name the payload, which was not given under that name.
        Ok(bytes) if bytes.len() > PAYLOAD_LIMIT => {
            refuse(format!("stands for {} bytes: at most {PAYLOAD_LIMIT} are allowed; pass a reference", bytes.len()))
        }
        Ok(bytes) => Ok(bytes),
        Err(error) => refuse(format!("{} is no standard base64 with padding: {error}: encode it anew", quoted(base64))),
    }
}

fn duration(
    fields: &mut Fields,
    [name, name_ms]: [&str; 2],
    range_ms: RangeInclusive<u64>,
) -> Result<Option<Duration>, Refusal> {
    Ok(fields.duration_ms(name, name_ms, range_ms)?.map(Duration::from_millis))
}

fn misfire(spec: &mut Fields) -> Result<Option<MisfireChange>, Refusal> {
    let Some(mut misfire) = spec.object("misfire", MISFIRE)? else {
        return Ok(spec.or_reset(None, &["misfire"], MisfireChange::Policy(Misfire::default())));
    };
    let policy = misfire.word("policy", words::MISFIRE)?;
    let policy = misfire.or_reset(policy, &["policy"], Misfire::default());
    match (policy, misfire.count("limit")?) {
        (Some(Misfire::CatchUp { .. }), Some(limit)) => Ok(Some(MisfireChange::Policy(Misfire::CatchUp { limit }))),
        (Some(Misfire::CatchUp { .. }), None) => {
            Err(invalid("misfire.limit", "is required with CATCH_UP: add a limit from 1 to 1000"))
        }
        (Some(policy), None) => Ok(Some(MisfireChange::Policy(policy))),
        (Some(policy), Some(limit)) => {
            let message = format!("{limit} goes only with CATCH_UP, not with {policy}: leave it out");
            Err(invalid("misfire.limit", message))
        }
        (None, Some(limit)) if spec.merges() => Ok(Some(MisfireChange::Limit(limit))),
        (None, None) if spec.merges() && !misfire.resets("limit") => Ok(None),
        (None, _) => Err(misfire.missing("policy")),
    }
}

fn retry(spec: &mut Fields) -> Result<Option<RetryChanges>, Refusal> {
    let Some(mut retry) = spec.object("retry", RETRY)? else {
        return Ok(spec.or_reset(None, &["retry"], RetryChanges::reset()));
    };
    let default = Retry::default();
    let max_attempts = retry.count("max_attempts")?;
    let base = duration(&mut retry, ["base", "base_ms"], DURATION_MS)?;
    let cap = duration(&mut retry, ["cap", "cap_ms"], DURATION_MS)?;
    let deadline = duration(&mut retry, ["deadline", "deadline_ms"], DURATION_MS)?.map(Some);
    let budget = retry.count("budget")?.map(Some);
    Ok(Some(RetryChanges {
        max_attempts: retry.or_reset(max_attempts, &["max_attempts"], default.max_attempts),
        base: retry.or_reset(base, &["base", "base_ms"], Duration::from_millis(default.base_ms)),
        cap: retry.or_reset(cap, &["cap", "cap_ms"], Duration::from_millis(default.cap_ms)),
        deadline: retry.or_reset(deadline, &["deadline", "deadline_ms"], None),
        budget: retry.or_reset(budget, &["budget"], None),
    }))
}

#[cfg(test)]
#[path = "spec_reader_tests.rs"]
mod tests;
