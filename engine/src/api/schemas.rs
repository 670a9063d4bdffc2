//! What answers look like, as schemas of JSON Schema 2020-12.
//!
//! They stand beside the types of `render`, not on them: those borrow, flatten and write through newtypes, and a derive
//! would need as many attributes as there are lines here. A test holds what is rendered against them, both ways: a key
//! that one of the two lacks fails it.

use serde_json::{Map, Value, json};

use super::{
    errors::CODES,
    shape::Shape,
    words::{self, Words},
};
use crate::kernel::{
    attempt::Death,
    evidence::{HoldReason, ScheduleType},
    id::Kind,
    occurrence::{Lane, Reason},
};

/// Every schema that calls refer to.
pub(crate) fn schemas() -> Map<String, Value> {
    let all = [
        ("Schedule", schedule()),
        ("Rule", rule()),
        ("Warning", closed(&[("code", text()), ("message", text()), ("at", or_null(&instant()))])),
        (
            "Described",
            closed(&[("schedule", of("Schedule")), ("next", list(&instant())), ("warnings", list(&of("Warning")))]),
        ),
        ("Receipt", receipt()),
        ("Receipted", closed(&[("schedule", of("Schedule")), ("receipt", of("Receipt"))])),
        ("Triggered", closed(&[("occurrence_id", id())])),
        ("Backfilled", closed(&[("occurrences", count())])),
        ("SchedulePage", page(&of("Schedule"))),
        ("HistoryPage", page(&json!({"oneOf": [of("Occurrence"), of("Range")]}))),
        ("Occurrence", occurrence()),
        ("Range", range()),
        ("OccurrencePage", page(&of("Occurrence"))),
        ("Attempt", attempt()),
        ("Evidenced", evidenced()),
        ("Run", run()),
        ("Claimed", closed(&[("runs", list(&of("Run")))])),
        ("Beat", closed(&[("lease_expires_at", instant()), ("cancel_requested", boolean())])),
        ("Beaten", one_or_many("Beat")),
        ("Completion", closed(&[("state", one_of(words::OCCURRENCE_STATE))])),
        ("Completed", one_or_many("Completion")),
        ("Failure", closed(&[("state", one_of(words::OCCURRENCE_STATE)), ("retry_at", or_null(&instant()))])),
        ("Failed", one_or_many("Failure")),
        ("ImportLine", json!({"oneOf": [of("ImportMade"), of("ImportRefused")]})),
        ("ImportMade", import_made()),
        ("ImportRefused", closed(&[("line", count()), ("error", of("ErrorFields"))])),
        ("Forecast", closed(&[("next", list(&instant())), ("warnings", list(&of("Warning"))), ("tz_release", text())])),
        ("Tenant", tenant()),
        ("Queue", closed(&[("tracked", boolean()), ("catch_up_per_second", or_null(&count()))])),
        ("Backlog", backlog()),
        ("Health", health()),
        ("Readiness", closed(&[("ready", boolean()), ("reasons", list(&text()))])),
        ("Document", json!({"type": "object"})),
        ("Metrics", text()),
        ("Error", closed(&[("error", of("ErrorFields"))])),
        ("ErrorFields", error_fields()),
    ];
    all.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

/// A reference to a schema.
pub(crate) fn of(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn text() -> Value {
    Shape::Text.schema()
}

fn instant() -> Value {
    Shape::Instant.schema()
}

fn id() -> Value {
    Shape::Id.schema()
}

fn boolean() -> Value {
    json!({"type": "boolean"})
}

fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

fn one_of<T>(words: Words<T>) -> Value {
    json!({"type": "string", "enum": words::names(words)})
}

fn one_of_all<T: Copy>(all: &[T], word: impl Fn(T) -> &'static str) -> Value {
    json!({"type": "string", "enum": all.iter().map(|one| word(*one)).collect::<Vec<_>>()})
}

fn or_null(schema: &Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

fn list(schema: &Value) -> Value {
    json!({"type": "array", "items": schema})
}

/// An object with exactly these keys.
fn closed(properties: &[(&str, Value)]) -> Value {
    let required: Vec<&str> = properties.iter().map(|(name, _)| *name).collect();
    let properties: Map<String, Value> =
        properties.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// The same, of which `name` may be missing.
fn without(mut closed: Value, name: &str) -> Value {
    if let Some(required) = closed["required"].as_array_mut() {
        required.retain(|required| required != name);
    }
    closed
}

fn page(item: &Value) -> Value {
    closed(&[("items", list(item)), ("next_cursor", or_null(&text()))])
}

fn schedule() -> Value {
    let retry = closed(&[
        ("max_attempts", count()),
        ("base", text()),
        ("cap", text()),
        ("deadline", or_null(&text())),
        ("budget", or_null(&count())),
    ]);
    closed(&[
        ("schedule_id", id()),
        ("version", count()),
        ("state", one_of(words::SCHEDULE_STATE)),
        ("tenant", Shape::Name.schema()),
        ("queue", Shape::Name.schema()),
        ("name", or_null(&text())),
        ("rule", of("Rule")),
        ("start_at", or_null(&instant())),
        ("end_at", or_null(&instant())),
        ("payload", or_null(&text())),
        ("payload_base64", or_null(&Shape::Base64.schema())),
        ("misfire", misfire()),
        ("max_lateness", text()),
        ("overlap", one_of(words::OVERLAP)),
        ("flexible_window", or_null(&text())),
        ("retry", retry),
        ("effect", one_of(words::EFFECT)),
        ("review_owner", or_null(&text())),
        ("created_at", instant()),
        ("updated_at", instant()),
        ("last_run_at", or_null(&instant())),
        ("next_run_at", or_null(&instant())),
        ("overdue_ms", count()),
        ("error", or_null(&text())),
    ])
}

fn rule() -> Value {
    let cron = closed(&[
        ("cron", text()),
        ("zone", text()),
        ("fold", one_of(words::FOLD)),
        ("gap", one_of(words::GAP)),
        ("day_match", one_of(words::DAY_MATCH)),
    ]);
    let every = closed(&[("every", text()), ("anchor", or_null(&instant())), ("basis", text())]);
    let at_local = closed(&[
        ("at_local", text()),
        ("zone", text()),
        ("fold", or_null(&one_of(words::LOCAL_FOLD))),
        ("gap", or_null(&one_of(words::LOCAL_GAP))),
    ]);
    json!({"oneOf": [cron, every, at_local, closed(&[("at", instant())])]})
}

fn receipt() -> Value {
    let range = closed(&[("reason", text()), ("from", instant()), ("to", instant()), ("count", count())]);
    closed(&[
        ("version", count()),
        ("canceled", list(&id())),
        ("kept", list(&id())),
        ("cancel_requested", list(&id())),
        ("ranges", list(&range)),
        ("truncated", count()),
    ])
}

/// What is answered about one run, or in the same order about each of several.
fn one_or_many(name: &str) -> Value {
    let each = json!({"oneOf": [of(name), of("Error")]});
    json!({"oneOf": [of(name), closed(&[("results", list(&each))])]})
}

/// Why what is over ended with its schedule.
fn reason_of_range() -> Value {
    or_null(&one_of_all(&[Reason::Superseded, Reason::Paused, Reason::Canceled], Reason::as_str))
}

fn reason() -> Value {
    let plain =
        [Reason::Superseded, Reason::Paused, Reason::Canceled, Reason::Waiting, Reason::TenantConcurrency].into_iter();
    let all = plain.chain(Death::ALL.map(Reason::Dead)).chain(HoldReason::ALL.map(Reason::Held));
    let mut words: Vec<&str> = all.map(Reason::as_str).collect();
    words.sort_unstable();
    words.dedup();
    or_null(&json!({"type": "string", "enum": words}))
}

fn occurrence() -> Value {
    closed(&[
        ("occurrence_id", id()),
        ("schedule_id", id()),
        ("version", count()),
        ("tenant", Shape::Name.schema()),
        ("queue", Shape::Name.schema()),
        ("kind", kind()),
        ("lane", one_of_all(&Lane::ALL, Lane::as_str)),
        ("scheduled_for", instant()),
        ("available_at", instant()),
        ("enqueued_at", or_null(&instant())),
        ("state", one_of(words::OCCURRENCE_STATE)),
        ("reason", reason()),
        ("holds", list(&hold())),
        ("attempt_count", count()),
        ("attempts", list(&of("Attempt"))),
    ])
}

fn attempt() -> Value {
    let results = json!({"type": "string", "enum": ["succeeded", "failed", "lease_expired", "restarted"]});
    closed(&[
        ("attempt", count()),
        ("worker", text()),
        ("started_at", instant()),
        ("finished_at", or_null(&instant())),
        ("lease_expires_at", instant()),
        ("result", or_null(&results)),
        ("class", or_null(&one_of(words::FAILURE_CLASS))),
        ("message", or_null(&text())),
        ("result_ref", or_null(&text())),
    ])
}

fn kind() -> Value {
    one_of_all(&[Kind::Regular, Kind::Manual, Kind::Backfill], Kind::as_str)
}

fn misfire() -> Value {
    without(closed(&[("policy", one_of(words::MISFIRE)), ("limit", count())]), "limit")
}

fn run() -> Value {
    closed(&[
        ("occurrence_id", id()),
        ("schedule_id", id()),
        ("version", count()),
        ("tenant", Shape::Name.schema()),
        ("kind", kind()),
        ("scheduled_for", instant()),
        ("available_at", instant()),
        ("attempt", count()),
        ("payload", or_null(&text())),
        ("payload_base64", or_null(&Shape::Base64.schema())),
        ("lease_token", Shape::Token.schema()),
        ("lease_expires_at", instant()),
        ("deadline", or_null(&instant())),
    ])
}

fn evidenced() -> Value {
    let types = [ScheduleType::Cron, ScheduleType::Interval, ScheduleType::OneOff];
    let jitter = closed(&[("window_ms", count()), ("offset_ms", json!({"type": "integer"}))]);
    let evidence = closed(&[
        ("job_id", or_null(&id())),
        ("schedule_type", or_null(&one_of_all(&types, ScheduleType::as_str))),
        ("schedule_expression", or_null(&text())),
        ("timezone", or_null(&text())),
        ("last_run_at", or_null(&instant())),
        ("next_run_at", or_null(&instant())),
        ("missed_run_policy", or_null(&misfire())),
        ("jitter_window", or_null(&jitter)),
        ("lease_id", or_null(&Shape::Token.schema())),
        ("lease_owner", or_null(&text())),
        ("lease_expires_at", or_null(&instant())),
        ("idempotency_key", or_null(&id())),
        ("attempt", or_null(&count())),
        ("retry_budget", or_null(&closed(&[("limit", or_null(&count())), ("used", count())]))),
        ("backoff_state", or_null(&closed(&[("delay_ms", count())]))),
        ("run_state", or_null(&one_of(words::OCCURRENCE_STATE))),
        ("result_ref", or_null(&text())),
        ("review_owner", or_null(&text())),
    ]);
    let decision = json!({"type": "string", "enum": ["RUN", "RUN_CATCH_UP", "HOLD"]});
    closed(&[("evidence", evidence), ("decision", decision), ("reasons", list(&hold()))])
}

fn hold() -> Value {
    one_of_all(&HoldReason::ALL, HoldReason::as_str)
}

fn range() -> Value {
    closed(&[
        ("occurrence_id", json!({"type": "null"})),
        ("kind", json!({"type": "string", "enum": ["regular", "backfill"]})),
        ("state", one_of(words::OCCURRENCE_STATE)),
        ("reason", reason_of_range()),
        ("scheduled_for", instant()),
        ("scheduled_until", instant()),
        ("count", count()),
    ])
}

fn import_made() -> Value {
    let status = json!({"type": "string", "enum": ["created", "unchanged"]});
    closed(&[("line", count()), ("schedule_id", id()), ("version", count()), ("status", status)])
}

fn tenant() -> Value {
    let limit = || or_null(&count());
    let quotas = closed(&[
        ("schedules", limit()),
        ("trigger_per_second", limit()),
        ("concurrent_runs", limit()),
        ("catch_up_per_second", limit()),
        ("retry_budget", limit()),
    ]);
    closed(&[("weight", count()), ("quotas", quotas)])
}

fn backlog() -> Value {
    let bucket =
        closed(&[("below_ms", or_null(&count())), ("strict", count()), ("flexible", count()), ("catchup", count())]);
    closed(&[
        ("buckets", list(&bucket)),
        ("oldest_unprocessed", or_null(&instant())),
        ("estimated_drain_seconds", or_null(&json!({"type": "number", "minimum": 0}))),
    ])
}

fn health() -> Value {
    closed(&[
        ("live", boolean()),
        ("reasons", list(&text())),
        ("version", text()),
        ("tz_release", text()),
        ("shards", count()),
        ("rehearsal", boolean()),
    ])
}

fn error_fields() -> Value {
    let codes: Vec<&str> = CODES.iter().map(|(code, _)| *code).collect();
    let fields = closed(&[("code", json!({"type": "string", "enum": codes})), ("message", text()), ("field", text())]);
    without(fields, "field")
}

#[cfg(test)]
pub(crate) mod check {
    //! Just enough of JSON Schema to hold answers against these schemas.

    use super::*;

    /// Panics where `value` does not fit the schema `name`.
    pub(crate) fn assert_fits(value: &Value, name: &str) {
        if let Err(problem) = fits(value, &of(name), &schemas()) {
            panic!("{value:#} is no {name}: {problem}");
        }
    }

    fn fits(value: &Value, schema: &Value, all: &Map<String, Value>) -> Result<(), String> {
        if let Some(name) = schema["$ref"].as_str() {
            let name = name.rsplit('/').next().unwrap();
            return fits(value, all.get(name).unwrap_or_else(|| panic!("{name} is missing")), all);
        }
        for (key, least) in [("oneOf", 1), ("anyOf", 1)] {
            let Some(choices) = schema[key].as_array() else { continue };
            let problems: Vec<String> = choices.iter().filter_map(|choice| fits(value, choice, all).err()).collect();
            let fitting = choices.len() - problems.len();
            if fitting < least || key == "oneOf" && fitting != 1 {
                return Err(format!("{fitting} of {key} fit: {problems:?}"));
            }
            return Ok(());
        }
        let is = match schema["type"].as_str().unwrap_or_else(|| panic!("no type in {schema}")) {
            "string" => value.is_string(),
            "integer" => value.is_u64() || value.is_i64(),
            "number" => value.is_number(),
            "boolean" => value.is_boolean(),
            "null" => value.is_null(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            other => panic!("{other} is no type"),
        };
        if !is {
            return Err(format!("{value} is no {}", schema["type"]));
        }
        if schema["enum"].as_array().is_some_and(|words| !words.contains(value)) {
            return Err(format!("{value} is not among {}", schema["enum"]));
        }
        for item in value.as_array().into_iter().flatten() {
            fits(item, &schema["items"], all)?;
        }
        let Some(properties) = schema["properties"].as_object() else { return Ok(()) };
        for (name, value) in value.as_object().unwrap() {
            let property = properties.get(name).ok_or_else(|| format!("{name} is not described"))?;
            fits(value, property, all).map_err(|problem| format!("{name}: {problem}"))?;
        }
        let required = schema["required"].as_array().unwrap().iter().map(|name| name.as_str().unwrap());
        let mut required = required.map(|name| value.get(name).map(drop).ok_or_else(|| format!("{name} is missing")));
        required.try_for_each(|found| found)
    }
}
