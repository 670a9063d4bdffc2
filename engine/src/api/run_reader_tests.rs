//! Every field of what is said about runs against every kind of bad input.

use serde_json::{Value, json};

use super::*;
use crate::engine::runs::{FailureClass, Resolution};

const ID: &str = "01234567-89ab-8def-8123-456789abcdef";
const LEASE_TOKEN: &str = "00030000123456789abc03e7";

fn node(json: &Value) -> Node {
    serde_json::from_str(&json.to_string()).unwrap()
}

fn with(mut body: Value, field: &str, value: Value) -> Value {
    body[field] = value;
    body
}

fn without(mut body: Value, field: &str) -> Value {
    body.as_object_mut().unwrap().remove(field);
    body
}

fn claim_body() -> Value {
    json!({"worker": "w", "max": 10, "lease_ms": 30_000})
}

fn beat() -> Value {
    json!({"occurrence_id": ID, "lease_token": LEASE_TOKEN, "lease_ms": 30_000})
}

fn done() -> Value {
    json!({"occurrence_id": ID, "lease_token": LEASE_TOKEN, "result_ref": "s3://there"})
}

fn failed() -> Value {
    json!({"occurrence_id": ID, "lease_token": LEASE_TOKEN, "class": "transient", "message": "no"})
}

#[test]
fn what_is_said_of_a_claim_is_taken() {
    let claimed = claim(node(&claim_body())).unwrap();
    assert_eq!((claimed.worker.as_str(), claimed.max, claimed.lease.as_secs()), ("w", 10, 30));
    assert_eq!((claimed.wait, claimed.claim_id), (Duration::ZERO, None));
    let claimed = claim(node(&with(with(claim_body(), "wait_ms", json!(60_000)), "claim_id", json!("k")))).unwrap();
    assert_eq!((claimed.wait.as_secs(), claimed.claim_id.as_deref()), (60, Some("k")));
    let one = claim_one(node(&json!({"worker": "w", "lease_ms": 1_000, "schedule_id": ID}))).unwrap();
    assert_eq!((one.worker.as_str(), one.lease.as_secs(), one.schedule.to_string().as_str()), ("w", 1, ID));
}

#[test]
fn a_claim_that_is_none_is_refused_by_its_field() {
    for field in ["worker", "max", "lease_ms"] {
        for bad in [without(claim_body(), field), with(claim_body(), field, Value::Null)] {
            let refusal = claim(node(&bad)).unwrap_err();
            assert_eq!((refusal.field.as_str(), refusal.message.as_str()), (field, "is required: add it"));
        }
    }
    for (field, bad) in [
        ("worker", json!(7)),
        ("max", json!(0)),
        ("max", json!(1_001)),
        ("max", json!(-1)),
        ("max", json!("1")),
        ("max", json!(1.5)),
        ("lease_ms", json!(0)),
        ("lease_ms", json!(999)),
        ("lease_ms", json!(-1_000)),
        ("lease_ms", json!(86_400_001)),
        ("lease_ms", json!(365_u64 * 86_400_000)),
        ("lease_ms", json!(1_000.0)),
        ("lease_ms", json!(1e300)),
        ("lease_ms", json!("30s")),
        ("wait_ms", json!(60_001)),
        ("wait_ms", json!(-1)),
        ("wait_ms", json!(0.5)),
        ("claim_id", json!(7)),
        ("lease", json!("30s")),
        ("tenant", json!("acme")),
    ] {
        assert_eq!(claim(node(&with(claim_body(), field, bad.clone()))).unwrap_err().field, field, "{bad}");
    }
    for (field, bad) in [("schedule_id", json!("x")), ("schedule_id", json!(7)), ("max", json!(1))] {
        let body = json!({"worker": "w", "lease_ms": 1_000, "schedule_id": ID});
        assert_eq!(claim_one(node(&with(body, field, bad.clone()))).unwrap_err().field, field, "{bad}");
    }
}

#[test]
fn one_run_or_several_are_read_in_order() {
    let one = beats(node(&beat())).unwrap();
    assert_eq!((one.runs.len(), one.is_batch, one.runs[0].said), (1, false, 30_000));
    assert_eq!(one.runs[0].occurrence.to_string(), ID);
    assert_eq!(one.runs[0].token.to_string(), LEASE_TOKEN);
    let many = json!({"runs": [beat(), with(beat(), "lease_ms", json!(86_400_000))]});
    let many = beats(node(&many)).unwrap();
    assert!(many.is_batch);
    assert_eq!(many.runs.iter().map(|run| run.said).collect::<Vec<_>>(), [30_000, 86_400_000]);
    let ended = completions(node(&json!({"runs": [done(), without(done(), "result_ref")]}))).unwrap();
    assert_eq!(ended.runs.iter().map(|run| run.said.as_deref()).collect::<Vec<_>>(), [Some("s3://there"), None]);
    let ended = failures(node(&failed())).unwrap();
    let said = &ended.runs[0].said;
    assert_eq!((said.class, said.message.as_deref()), (FailureClass::Transient, Some("no")));
    assert_eq!(beats(node(&json!({"runs": vec![beat(); 1_000]}))).unwrap().runs.len(), 1_000);
}

/// Bodies with one thing wrong, and the field that is to be named.
fn wrong<'a>(good: &Value, more: &[(&'a str, Value)]) -> Vec<(Value, &'a str)> {
    let set = [
        ("occurrence_id", json!("")),
        ("occurrence_id", json!(&ID[..35])),
        ("occurrence_id", json!("01234567-89ab-8def-8123-456789abcdeg")),
        ("occurrence_id", json!(7)),
        ("lease_token", json!("")),
        ("lease_token", json!(&LEASE_TOKEN[..23])),
        ("lease_token", json!(format!("{LEASE_TOKEN}0"))),
        ("lease_token", json!(LEASE_TOKEN.to_uppercase())),
        ("lease_token", json!("0003000012345678äbc03e7")),
        ("lease_token", json!(["x"])),
        ("token", json!(LEASE_TOKEN)),
    ];
    let set = set.iter().chain(more).map(|(field, value)| (with(good.clone(), field, value.clone()), *field));
    let left_out = ["occurrence_id", "lease_token"].map(|field| (without(good.clone(), field), field));
    set.chain(left_out).collect()
}

fn fields_of<T: std::fmt::Debug>(read: fn(Node) -> Result<Said<T>, Refusal>, good: &Value, more: &[(&str, Value)]) {
    for (bad, field) in wrong(good, more) {
        assert_eq!(read(node(&bad)).unwrap_err().field, field, "{bad}");
        let batch = json!({"runs": [good, good, good, bad]});
        let refusal = read(node(&batch)).unwrap_err();
        assert_eq!(refusal.field, format!("runs[3].{field}"), "{bad}: the whole call is refused");
    }
    for (bad, field, part) in [
        (json!({}), "occurrence_id", "required"),
        (json!([]), "", "must be an object"),
        (json!({"runs": []}), "runs", "1 to 1000 items, not of 0"),
        (json!({"runs": vec![good; 1_001]}), "runs", "1 to 1000 items, not of 1001"),
        (json!({"runs": good}), "runs", "not an object"),
        (json!({"runs": [good, 7]}), "runs[1]", "must be an object"),
        (json!({"runs": [good, {"runs": [good]}]}), "runs[1].runs", "not a field"),
        (json!({"runs": null}), "occurrence_id", "required"),
        (with(good.clone(), "runs", json!([good])), "runs", "is given beside occurrence_id"),
        (json!({"runs": [good], "lease_token": LEASE_TOKEN}), "runs", "is given beside lease_token"),
    ] {
        let refusal = read(node(&bad)).unwrap_err();
        assert_eq!(refusal.field, field, "{bad}");
        assert!(refusal.message.contains(part), "{bad}: {}", refusal.message);
    }
}

#[test]
fn a_shape_that_is_wrong_refuses_the_whole_call_by_its_path() {
    let long = json!("x".repeat(1_025));
    fields_of(beats, &beat(), &[("lease_ms", json!(0)), ("lease_ms", json!(86_400_001)), ("lease_ms", json!(1.0))]);
    fields_of(completions, &done(), &[("result_ref", long), ("result_ref", json!(7)), ("lease_ms", json!(1_000))]);
    fields_of(failures, &failed(), &[("class", json!("fatal")), ("class", json!(null)), ("message", json!(7))]);
    assert!(completions(node(&with(done(), "result_ref", json!("x".repeat(1_024))))).is_ok());
    let refusal = failures(node(&without(failed(), "class"))).unwrap_err();
    assert_eq!(refusal.to_string(), "class: is required: add it");
}

#[test]
fn a_decision_names_who_and_why() {
    let good = json!({"outcome": "retry", "reviewer": "ops", "note": ""});
    let read = decided(node(&good)).unwrap();
    assert_eq!((read.resolution, read.reviewer.as_str(), read.note.as_str()), (Resolution::Retry, "ops", ""));
    for field in ["outcome", "reviewer", "note"] {
        assert_eq!(decided(node(&without(good.clone(), field))).unwrap_err().field, field);
    }
    for (field, bad) in [("outcome", json!("again")), ("outcome", json!(1)), ("note", json!(1)), ("by", json!("me"))] {
        assert_eq!(decided(node(&with(good.clone(), field, bad))).unwrap_err().field, field);
    }
}
