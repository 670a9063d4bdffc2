//! Answers as tables for people.

use comfy_table::{ContentArrangement, Table, presets::NOTHING};
use serde_json::{Map, Value};

use super::local::Clocks;

/// How much of a long text is shown.
const SHOWN_CHARS: usize = 60;

/// One table, with or without its head.
pub(super) fn table<const N: usize>(head: Option<[&str; N]>, rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    if let Some(head) = head {
        table.set_header(head);
    }
    table.add_rows(rows.into_iter().map(Vec::from));
    // Without borders there is nothing that the first column has to be kept away from.
    table.lines().map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(&line).trim_end())).collect()
}

/// A schedule with what stands around it in an answer: `next`, `warnings`, `receipt`.
pub(super) fn described(answer: &Value, clocks: &Clocks) -> String {
    let schedule = &answer["schedule"];
    let zone = schedule["rule"]["zone"].as_str();
    let mut rows = vec![
        row("schedule", text(&schedule["schedule_id"])),
        row("state", format!("{}, version {}", text(&schedule["state"]), text(&schedule["version"]))),
        row("tenant", text(&schedule["tenant"])),
        row("queue", text(&schedule["queue"])),
        row("rule", rule(&schedule["rule"])),
    ];
    if !schedule["name"].is_null() {
        rows.insert(1, row("name", text(&schedule["name"])));
    }
    if !schedule["error"].is_null() {
        rows.push(row("error", sentence(&schedule["error"])));
    }
    let next = answer["next"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (index, at) in next.iter().enumerate() {
        rows.push(row(if index == 0 { "next" } else { "" }, clocks.show(at, zone)));
    }
    if !schedule["last_run_at"].is_null() {
        rows.push(row("last", clocks.show(&schedule["last_run_at"], zone)));
    }
    if let Some(receipt) = answer.get("receipt") {
        rows.push(row("receipt", receipted(receipt)));
    }
    let warnings = answer["warnings"].as_array().map(Vec::as_slice).unwrap_or_default();
    rows.extend(warnings.iter().map(|warning| row("warning", sentence(&warning["message"]))));
    table(None, rows)
}

fn row(name: &str, value: String) -> [String; 2] {
    [name.to_owned(), value]
}

/// `2 canceled, 1 asked to stop, 1 range`.
fn receipted(receipt: &Value) -> String {
    let kinds = [
        ("canceled", "canceled"),
        ("kept", "kept"),
        ("cancel_requested", "asked to stop"),
        ("ranges", "ranges canceled or missed"),
    ];
    let counts = kinds.iter().filter_map(|(field, said)| match receipt[field].as_array().map(Vec::len) {
        None | Some(0) => None,
        Some(count) => Some(format!("{count} {said}")),
    });
    let mut said: Vec<String> = counts.collect();
    if let Some(more) = receipt["truncated"].as_u64().filter(|more| *more > 0) {
        said.push(format!("{more} more"));
    }
    if said.is_empty() { "nothing was under way".to_owned() } else { said.join(", ") }
}

/// The head and rows of a listing of schedules.
pub(super) const SCHEDULES: [&str; 6] = ["SCHEDULE", "TENANT", "QUEUE", "STATE", "RULE", "NEXT"];

/// A schedule as a row of a listing.
pub(super) fn schedule_row(schedule: &Value, clocks: &Clocks) -> [String; 6] {
    let next = clocks.show(&schedule["next_run_at"], schedule["rule"]["zone"].as_str());
    let fields = ["schedule_id", "tenant", "queue", "state"].map(|field| text(&schedule[field]));
    let [id, tenant, queue, state] = fields;
    [id, tenant, queue, state, rule(&schedule["rule"]), next]
}

/// The head of a listing of occurrences.
pub(super) const OCCURRENCES: [&str; 5] = ["OCCURRENCE", "SCHEDULED FOR", "STATE", "KIND", "LAG"];

/// An occurrence, or a range of instants that became none, as a row of a listing.
pub(super) fn occurrence_row(item: &Value, clocks: &Clocks, zone: Option<&str>) -> [String; 5] {
    let id = match (&item["occurrence_id"], &item["count"]) {
        (Value::Null, Value::Null) => "a range".to_owned(),
        (Value::Null, count) => format!("a range of {}", text(count)),
        (id, _) => text(id),
    };
    let mut when = clocks.show(&item["scheduled_for"], zone);
    if let Some(until) = item.get("scheduled_until") {
        when = format!("{when} to {}", clocks.show(until, zone));
    }
    [id, when, state(item), kind(item), lag(item)]
}

fn state(item: &Value) -> String {
    match &item["reason"] {
        Value::Null => text(&item["state"]),
        reason => format!("{} ({})", text(&item["state"]), text(reason)),
    }
}

/// The head of a listing of what waits for a person.
pub(super) const PILE: [&str; 6] = ["OCCURRENCE", "TENANT", "QUEUE", "SCHEDULED FOR", "WHY", "ATTEMPTS"];

/// An occurrence that waits for a person, as a row of a listing.
pub(super) fn pile_row(item: &Value, clocks: &Clocks) -> [String; 6] {
    let holds = words(&item["holds"]);
    let why = if holds.is_empty() { text(&item["reason"]) } else { holds };
    let last = item["attempts"].as_array().and_then(|attempts| attempts.last()).map(|last| &last["message"]);
    let attempts = match last {
        None | Some(Value::Null) => text(&item["attempt_count"]),
        Some(message) => format!("{}, the last: {}", text(&item["attempt_count"]), text(message)),
    };
    let [id, tenant, queue] = ["occurrence_id", "tenant", "queue"].map(|field| text(&item[field]));
    [id, tenant, queue, clocks.show(&item["scheduled_for"], None), why, attempts]
}

fn words(list: &Value) -> String {
    let words = list.as_array().map(Vec::as_slice).unwrap_or_default();
    words.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// An occurrence and its attempts.
pub(super) fn occurrence(item: &Value, clocks: &Clocks) -> String {
    let mut rows = vec![
        row("occurrence", text(&item["occurrence_id"])),
        row("schedule", format!("{}, version {}", text(&item["schedule_id"]), text(&item["version"]))),
        row("state", state(item)),
        row("tenant", text(&item["tenant"])),
        row("queue", text(&item["queue"])),
        row("kind", kind(item)),
        row("scheduled for", clocks.show(&item["scheduled_for"], None)),
        row("available at", clocks.show(&item["available_at"], None)),
        row("enqueued at", clocks.show(&item["enqueued_at"], None)),
        row("attempts", text(&item["attempt_count"])),
    ];
    let holds = words(&item["holds"]);
    if !holds.is_empty() {
        rows.insert(3, row("held for", holds));
    }
    let attempts = item["attempts"].as_array().map(Vec::as_slice).unwrap_or_default();
    let attempt = |attempt: &Value| {
        let said = ["message", "result_ref"].map(|field| &attempt[field]).into_iter().find(|said| !said.is_null());
        let result = match (&attempt["result"], &attempt["class"]) {
            (Value::Null, _) => format!("running until {}", clocks.show(&attempt["lease_expires_at"], None)),
            (result, Value::Null) => text(result),
            (result, class) => format!("{} ({})", text(result), text(class)),
        };
        let [started, finished] = ["started_at", "finished_at"].map(|field| clocks.show(&attempt[field], None));
        [text(&attempt["attempt"]), text(&attempt["worker"]), started, finished, result, said.map_or("-".into(), text)]
    };
    let shown = table(None, rows);
    if attempts.is_empty() {
        return shown;
    }
    let head = ["ATTEMPT", "WORKER", "STARTED", "FINISHED", "RESULT", "SAID"];
    format!("{shown}\n{}", table(Some(head), attempts.iter().map(attempt)))
}

/// The dimensions of the evidence, and what follows from them.
pub(super) fn evidenced(answer: &Value) -> String {
    let reasons = words(&answer["reasons"]);
    let decision = text(&answer["decision"]);
    let decision = if reasons.is_empty() { decision } else { format!("{decision} ({reasons})") };
    format!("{}\n{}", fields(&answer["evidence"]), table(None, [row("decision", decision)]))
}

fn kind(item: &Value) -> String {
    match (&item["kind"], &item["lane"]) {
        (Value::Null, _) => "-".to_owned(),
        (kind, Value::Null) => text(kind),
        (kind, lane) => format!("{}, {}", text(kind), text(lane)),
    }
}

/// How long after its time the queue took it.
fn lag(item: &Value) -> String {
    let at = |field: &str| item[field].as_str().and_then(crate::kernel::time::UnixMs::parse_rfc3339);
    match (at("enqueued_at"), at("available_at").or_else(|| at("scheduled_for"))) {
        (Some(enqueued), Some(available)) => format!("{} ms", enqueued.since(available)),
        _ => "-".to_owned(),
    }
}

/// Every field of an object, nested ones under dotted names.
pub(super) fn fields(object: &Value) -> String {
    let mut rows = Vec::new();
    if let Value::Object(object) = object {
        flatten("", object, &mut rows);
    }
    table(None, rows)
}

fn flatten(path: &str, object: &Map<String, Value>, rows: &mut Vec<[String; 2]>) {
    for (field, value) in object {
        let path = if path.is_empty() { field.clone() } else { format!("{path}.{field}") };
        match value {
            Value::Object(inner) => flatten(&path, inner, rows),
            Value::Null => rows.push([path, "none".to_owned()]),
            value => rows.push([path, text(value)]),
        }
    }
}

/// A rule in a few words: `0 9 * * MON-FRI in Europe/Berlin`, `every 5m`.
fn rule(rule: &Value) -> String {
    let zone = text(&rule["zone"]);
    match rule {
        Value::Object(fields) if fields.contains_key("cron") => format!("{} in {zone}", text(&rule["cron"])),
        Value::Object(fields) if fields.contains_key("every") => match rule["basis"].as_str() {
            Some(basis @ ("completion" | "start")) => format!("every {} after {basis}", text(&rule["every"])),
            _ => format!("every {}", text(&rule["every"])),
        },
        Value::Object(fields) if fields.contains_key("at_local") => format!("at {} in {zone}", text(&rule["at_local"])),
        Value::Object(fields) if fields.contains_key("at") => format!("at {}", text(&rule["at"])),
        rule => text(rule),
    }
}

/// A value in one line that is not too long for a table.
pub(super) fn text(value: &Value) -> String {
    let whole = sentence(value);
    match whole.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &whole[..end]),
        None => whole,
    }
}

/// Control characters, and marks that turn the direction of what follows.
pub(in crate::cli) fn is_acted_on(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A value in one line, without anything that a terminal would act on.
fn sentence(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.chars().map(|c| if is_acted_on(c) { '?' } else { c }).collect(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_terminal_gets_no_control_characters_and_no_novels() {
        assert_eq!(text(&json!("a\u{1b}[31mb\nc")), "a?[31mb?c");
        assert_eq!(text(&json!("x".repeat(61))), format!("{}…", "x".repeat(60)));
        assert_eq!([text(&json!(null)), text(&json!(7))], ["-", "7"]);
    }

    #[test]
    fn an_interval_says_what_it_counts_from_unless_that_is_its_grid() {
        let shown = ["slot", "completion", "start"].map(|basis| rule(&json!({"every": "5m", "basis": basis})));
        assert_eq!(shown, ["every 5m", "every 5m after completion", "every 5m after start"]);
    }

    #[test]
    fn a_receipt_says_what_there_is_to_say() {
        assert_eq!(receipted(&json!({"canceled": [], "kept": [], "ranges": []})), "nothing was under way");
        let receipt = json!({"canceled": ["a", "b"], "cancel_requested": ["c"], "truncated": 5});
        assert_eq!(receipted(&receipt), "2 canceled, 1 asked to stop, 5 more");
    }

    #[test]
    fn an_object_is_shown_with_dotted_names() {
        let tenant = json!({"weight": 2, "quotas": {"schedules": null, "concurrent_runs": 3}});
        let lines = fields(&tenant);
        let lines: Vec<Vec<&str>> = lines.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(lines.contains(&vec!["weight", "2"]), "{lines:?}");
        assert!(lines.contains(&vec!["quotas.schedules", "none"]), "{lines:?}");
    }
}
