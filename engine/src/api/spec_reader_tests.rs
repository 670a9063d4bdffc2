//! Every field of a schedule against every kind of bad input.

use super::*;

const GOOD: &str = r#"{"tenant":"acme","queue":"billing","rule":{"cron":"0 9 * * MON-FRI","zone":"Europe/Berlin"}}"#;

/// The good body with one more field.
fn with(field: &str) -> String {
    format!("{},{field}}}", &GOOD[..GOOD.len() - 1])
}

fn read(json: &str) -> Result<NewSchedule, Refusal> {
    new_schedule(serde_json::from_str(json).unwrap())
}

#[test]
fn what_is_left_out_has_its_default() {
    let new = read(GOOD).unwrap();
    assert_eq!((new.tenant.as_str(), new.queue.as_str(), new.name), ("acme", "billing", None));
    assert_eq!((new.start_at, new.end_at, new.payload), (None, None, vec![]));
    assert_eq!((new.flexible_window, new.max_lateness), (None, Duration::from_secs(60)));
}

#[test]
fn a_spec_that_spells_every_default_out_is_the_same_as_one_that_leaves_them_out() {
    let spelt = with(
        r#""name":null,"start_at":null,"end_at":null,"payload":"","payload_base64":null,
        "misfire":{"policy":"FIRE_ONCE","limit":null},"max_lateness":"60s","overlap":"ALLOW","flexible_window":null,
        "retry":{"max_attempts":5,"base":"1s","cap":"10m","deadline":null,"budget":null},
        "effect":"idempotent","review_owner":null"#,
    );
    assert_eq!(format!("{:?}", read(&spelt).unwrap()), format!("{:?}", read(GOOD).unwrap()));
    assert!(read(&with(r#""retry":{"base_ms":1000,"cap_ms":600000}"#)).is_ok());
    assert!(read(&with(r#""retry":{}"#)).is_ok());
}

#[test]
fn what_is_given_is_taken() {
    let new = read(&with(
        r#""name":"invoice run ü","start_at":"2026-01-01T00:00:00Z","end_at":"2027-01-01T00:00:00+01:00",
        "payload":"{\"report\":7}","max_lateness":"0ms","flexible_window":"24h""#,
    ))
    .unwrap();
    assert_eq!(new.name.as_deref(), Some("invoice run ü"));
    assert_eq!(new.end_at.unwrap().to_string(), "2026-12-31T23:00:00.000Z");
    assert_eq!(new.payload, br#"{"report":7}"#);
    assert_eq!((new.max_lateness, new.flexible_window), (Duration::ZERO, Some(Duration::from_secs(86_400))));
    assert_eq!(read(&with(r#""payload_base64":"/wD+""#)).unwrap().payload, [0xff, 0, 0xfe]);
    assert_eq!(read(&with(r#""flexible_window_ms":0"#)).unwrap().flexible_window, None);
    assert_eq!(read(&with(r#""max_lateness_ms":31622400000"#)).unwrap().max_lateness.as_secs(), 31_622_400);
}

#[test]
fn a_payload_may_have_64_kib_and_not_a_byte_more() {
    let fits = "x".repeat(PAYLOAD_BYTES);
    assert_eq!(read(&with(&format!(r#""payload":"{fits}""#))).unwrap().payload.len(), PAYLOAD_BYTES);
    let over = "x".repeat(PAYLOAD_BYTES + 1);
    let refusal = read(&with(&format!(r#""payload":"{over}""#))).unwrap_err();
    assert_eq!(refusal.field, "payload");
    assert!(refusal.message.contains("65537 bytes"), "{}", refusal.message);
    let encoded = BASE64.encode(vec![7; PAYLOAD_BYTES + 1]);
    assert_eq!(read(&with(&format!(r#""payload_base64":"{encoded}""#))).unwrap_err().field, "payload_base64");
    let multibyte = "ü".repeat(PAYLOAD_BYTES / 2 + 1);
    assert_eq!(read(&with(&format!(r#""payload":"{multibyte}""#))).unwrap_err().field, "payload");
}

#[test]
fn what_must_be_there_and_is_not_is_named() {
    for (bad, field) in [
        (r#"{"queue":"q","rule":{"every":"5m"}}"#, "tenant"),
        (r#"{"tenant":null,"queue":"q","rule":{"every":"5m"}}"#, "tenant"),
        (r#"{"tenant":"t","rule":{"every":"5m"}}"#, "queue"),
        (r#"{"tenant":"t","queue":"q"}"#, "rule"),
        (r#"{"tenant":"t","queue":"q","rule":null}"#, "rule"),
        ("{}", "tenant"),
    ] {
        let refusal = read(bad).unwrap_err();
        assert_eq!((refusal.field.as_str(), refusal.code.as_str()), (field, "invalid"), "{bad}");
        assert!(refusal.message.contains("required"), "{bad}: {}", refusal.message);
    }
}

#[test]
fn bad_names_are_refused_with_the_grammar() {
    for name in ["", "Acme", "-a", ".a", "a b", "a/b", "a{b}", "a:b", "ü", "a\\u0000", "a\\n", &"a".repeat(65)] {
        for field in ["tenant", "queue"] {
            let other = if field == "tenant" { "queue" } else { "tenant" };
            let body = format!(r#"{{"{field}":"{name}","{other}":"fine","rule":{{"every":"5m"}}}}"#);
            assert_eq!(read(&body).unwrap_err().field, field, "{name:?}");
        }
    }
    assert!(read(&format!(r#"{{"tenant":"{}","queue":"0","rule":{{"every":"5m"}}}}"#, "a".repeat(64))).is_ok());
}

/// Field, value, path that the refusal must name, and a part of the remedy.
const BAD_FIELDS: &[(&str, &str, &str, &str)] = &[
    ("name", "7", "name", "must be a string"),
    ("name", r#""a\u0007b""#, "name", "control character"),
    ("name", r#""a\nb""#, "name", "control character"),
    ("start_at", r#""tomorrow""#, "start_at", "RFC 3339"),
    ("start_at", "1793511000000", "start_at", "RFC 3339"),
    ("end_at", r#""2026-13-01T00:00:00Z""#, "end_at", "RFC 3339"),
    ("end_at", "{}", "end_at", "RFC 3339"),
    ("payload", r#"{"report":7}"#, "payload", "must be a string, not an object"),
    ("payload", "[1]", "payload", "must be a string"),
    ("payload_base64", r#""***""#, "payload_base64", "base64"),
    ("payload_base64", r#""QQ""#, "payload_base64", "padding"),
    ("payload_base64", "1", "payload_base64", "must be a string"),
    ("max_lateness", "60", "max_lateness", "max_lateness_ms in milliseconds"),
    ("max_lateness", r#""-1s""#, "max_lateness", "write it as"),
    ("max_lateness", r#""367d""#, "max_lateness", "out of range"),
    ("max_lateness_ms", "-1", "max_lateness_ms", "whole number"),
    ("max_lateness_ms", "1.5", "max_lateness_ms", "whole number"),
    ("max_lateness_ms", r#""60s""#, "max_lateness_ms", "not a string"),
    ("max_lateness_ms", "1e400", "max_lateness_ms", "whole number"),
    ("flexible_window", "true", "flexible_window", "a duration such as"),
    ("flexible_window", r#""24h1m""#, "flexible_window", "give 0ms to 24h"),
    ("flexible_window", r#""1441m""#, "flexible_window", "give 0ms to 24h"),
    ("flexible_window_ms", "86400001", "flexible_window_ms", "from 0 to 86400000"),
    ("misfire", r#""SKIP""#, "misfire", "must be an object"),
    ("misfire", "{}", "misfire.policy", "required"),
    ("misfire", r#"{"policy":"SKIP"}"#, "misfire.policy", "not built yet"),
    ("misfire", r#"{"policy":"CATCH_UP","limit":5}"#, "misfire.policy", "not built yet"),
    ("misfire", r#"{"policy":"fire_once"}"#, "misfire.policy", "must be one of FIRE_ONCE"),
    ("misfire", r#"{"policy":"FIRE_ONCE","limit":5}"#, "misfire.limit", "CATCH_UP"),
    ("misfire", r#"{"policy":"FIRE_ONCE","limit":0}"#, "misfire.limit", "from 1 to 1000"),
    ("misfire", r#"{"policy":"FIRE_ONCE","max":5}"#, "misfire.max", "not a field"),
    ("overlap", r#""SKIP_IF_RUNNING""#, "overlap", "not built yet"),
    ("overlap", r#""QUEUE_ONE""#, "overlap", "not built yet"),
    ("overlap", r#""NEVER""#, "overlap", "must be one of ALLOW"),
    ("overlap", "0", "overlap", "must be a string"),
    ("retry", "3", "retry", "must be an object"),
    ("retry", r#"{"max_attempts":3}"#, "retry.max_attempts", "leave it out or give 5"),
    ("retry", r#"{"max_attempts":0}"#, "retry.max_attempts", "whole number"),
    ("retry", r#"{"max_attempts":"5"}"#, "retry.max_attempts", "whole number"),
    ("retry", r#"{"base":"2s"}"#, "retry.base", "give \"1s\""),
    ("retry", r#"{"base_ms":2000}"#, "retry.base_ms", "not built yet"),
    ("retry", r#"{"cap":"1h"}"#, "retry.cap", "give \"10m\""),
    ("retry", r#"{"deadline":"1h"}"#, "retry.deadline", "give null"),
    ("retry", r#"{"budget":7}"#, "retry.budget", "give null"),
    ("retry", r#"{"budget":-7}"#, "retry.budget", "whole number"),
    ("retry", r#"{"jitter":"full"}"#, "retry.jitter", "not a field"),
    ("effect", r#""non_idempotent""#, "effect", "not built yet"),
    ("effect", r#""maybe""#, "effect", "must be one of idempotent"),
    ("effect", "false", "effect", "must be a string"),
    ("review_owner", r#""ops""#, "review_owner", "not built yet"),
    ("review_owner", "[]", "review_owner", "must be a string"),
    ("schedule_id", r#""x""#, "schedule_id", "not a field"),
    ("version", "1", "version", "not a field"),
    ("next_run_at", "null", "next_run_at", "not a field"),
    ("tenant", r#""acme""#, "tenant", "given twice"),
    ("", "1", "", "not a field"),
];

#[test]
fn each_bad_field_is_refused_by_its_path_with_a_remedy() {
    for (field, value, path, part) in BAD_FIELDS {
        let body = with(&format!("{field:?}:{value}"));
        let Ok(node) = serde_json::from_str(&body) else {
            assert_eq!(*value, "1e400", "{body} is JSON");
            continue;
        };
        let refusal = new_schedule(node).map(|_| ()).expect_err(&body);
        assert_eq!((refusal.field.as_str(), refusal.code.as_str()), (*path, "invalid"), "{body}");
        assert!(refusal.message.contains(part), "{body}: {}", refusal.message);
    }
}

#[test]
fn a_long_name_and_two_of_a_kind_are_refused() {
    let long = with(&format!(r#""name":"{}""#, "ü".repeat(257)));
    assert!(read(&long).unwrap_err().message.contains("257 characters"));
    assert!(read(&with(&format!(r#""name":"{}""#, "ü".repeat(256)))).is_ok());
    for (two, field) in [
        (r#""payload":"a","payload_base64":"QQ==""#, "payload_base64"),
        (r#""max_lateness":"60s","max_lateness_ms":60000"#, "max_lateness_ms"),
        (r#""flexible_window":"1s","flexible_window_ms":1000"#, "flexible_window_ms"),
        (r#""start_at":"2026-01-01T00:00:00Z","end_at":"2026-01-01T00:00:00Z""#, "end_at"),
    ] {
        assert_eq!(read(&with(two)).unwrap_err().field, field, "{two}");
    }
}

#[test]
fn a_preview_is_read_and_refused_the_same_way() {
    let read = |json: &str| preview(serde_json::from_str(json).unwrap());
    let question = read(r#"{"rule":{"every":"5m"},"from":"2026-01-01T00:00:00Z","count":3}"#).unwrap();
    assert_eq!((question.from, question.count), (Some(UnixMs(1_767_225_600_000)), 3));
    assert_eq!(read(r#"{"rule":{"every":"5m"}}"#).unwrap().count, 10);
    for (bad, field) in [
        ("[]", ""),
        ("{}", "rule"),
        (r#"{"rule":{"every":"5m"},"count":0}"#, "count"),
        (r#"{"rule":{"every":"5m"},"count":10001}"#, "count"),
        (r#"{"rule":{"every":"5m"},"count":"3"}"#, "count"),
        (r#"{"rule":{"every":"5m"},"from":0}"#, "from"),
        (r#"{"rule":{"every":"5m"},"tenant":"acme"}"#, "tenant"),
        (r#"{"rule":{"cron":"* * * * *","zone":"UTC","fold":true}}"#, "rule.fold"),
    ] {
        assert_eq!(read(bad).unwrap_err().field, field, "{bad}");
    }
}
