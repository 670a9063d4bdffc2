//! Every field of a schedule against every kind of bad input.

use super::*;

const GOOD: &str = r#"{"tenant":"acme","queue":"billing","rule":{"cron":"0 9 * * MON-FRI","zone":"Europe/Berlin"}}"#;

/// The good body with one more field.
fn with(field: &str) -> String {
    format!("{},{field}}}", &GOOD[..GOOD.len() - 1])
}

fn read(json: &str) -> Result<NewSchedule, Refusal> {
    new_schedule(serde_json::from_str(json).unwrap(), None)
}

fn merge(json: &str) -> Result<Changes, Refusal> {
    patch(serde_json::from_str(json).unwrap()).map(|patch| patch.changes)
}

#[test]
fn what_is_left_out_is_not_said() {
    let new = read(GOOD).unwrap();
    assert_eq!((new.tenant.as_str(), new.rest.queue.as_deref()), ("acme", Some("billing")));
    assert_eq!(new.rest, Changes { queue: Some("billing".into()), ..Changes::default() });
    assert_eq!(merge("{}").unwrap(), Changes::default());
}

#[test]
fn where_a_schedule_is_made_null_is_the_same_as_leaving_a_field_out() {
    let nulls = with(
        r#""name":null,"start_at":null,"end_at":null,"payload":null,"payload_base64":null,
        "misfire":null,"max_lateness":null,"overlap":null,"flexible_window":null,
        "retry":null,"effect":null,"review_owner":null"#,
    );
    assert_eq!(read(&nulls).unwrap().rest, read(GOOD).unwrap().rest);
    let nested = with(r#""misfire":{"policy":"SKIP","limit":null},"retry":{"base":null,"deadline":null}"#);
    let rest = read(&nested).unwrap().rest;
    assert_eq!(rest.misfire, Some(MisfireChange::Policy(Misfire::Skip)));
    assert_eq!(rest.retry, Some(RetryChanges::default()));
}

#[test]
fn what_is_given_is_taken() {
    let rest = read(&with(
        r#""name":"invoice run ü","start_at":"2026-01-01T00:00:00Z","end_at":"2027-01-01T00:00:00+01:00",
        "payload":"{\"report\":7}","max_lateness":"0ms","flexible_window":"24h","overlap":"QUEUE_ONE",
        "misfire":{"policy":"CATCH_UP","limit":5},"retry":{"max_attempts":9,"base_ms":7,"budget":0},
        "effect":"non_idempotent","review_owner":"ops""#,
    ))
    .unwrap()
    .rest;
    assert_eq!(rest.name, Some(Some("invoice run ü".into())));
    assert_eq!(rest.end_at.unwrap().unwrap().to_string(), "2026-12-31T23:00:00.000Z");
    assert_eq!(rest.payload.as_deref(), Some(br#"{"report":7}"#.as_slice()));
    assert_eq!(rest.max_lateness, Some(Duration::ZERO));
    assert_eq!(rest.flexible_window, Some(Some(Duration::from_secs(86_400))));
    assert_eq!(rest.misfire, Some(MisfireChange::Policy(Misfire::CatchUp { limit: 5 })));
    let retry = RetryChanges {
        max_attempts: Some(9),
        base: Some(Duration::from_millis(7)),
        budget: Some(Some(0)),
        ..RetryChanges::default()
    };
    assert_eq!(rest.retry, Some(retry));
    assert_eq!((rest.overlap, rest.effect), (Some(Overlap::QueueOne), Some(Effect::NonIdempotent)));
    assert_eq!(rest.review_owner, Some(Some("ops".into())));
    assert_eq!(read(&with(r#""payload_base64":"/wD+""#)).unwrap().rest.payload, Some(vec![0xff, 0, 0xfe]));
    let lateness = read(&with(r#""max_lateness_ms":31622400000"#)).unwrap().rest.max_lateness;
    assert_eq!(lateness, Some(Duration::from_secs(31_622_400)));
}

#[test]
fn in_a_patch_null_asks_for_the_default_of_its_field_alone() {
    let default_lateness = Some(Duration::from_secs(60));
    for (json, changes) in [
        (r#"{"name":null}"#, Changes { name: Some(None), ..Changes::default() }),
        (r#"{"start_at":null}"#, Changes { start_at: Some(None), ..Changes::default() }),
        (r#"{"end_at":null}"#, Changes { end_at: Some(None), ..Changes::default() }),
        (r#"{"payload":null}"#, Changes { payload: Some(vec![]), ..Changes::default() }),
        (r#"{"payload_base64":null}"#, Changes { payload: Some(vec![]), ..Changes::default() }),
        (r#"{"payload":"x","payload_base64":null}"#, Changes { payload: Some(b"x".to_vec()), ..Changes::default() }),
        (r#"{"max_lateness":null}"#, Changes { max_lateness: default_lateness, ..Changes::default() }),
        (r#"{"max_lateness_ms":null}"#, Changes { max_lateness: default_lateness, ..Changes::default() }),
        (r#"{"overlap":null}"#, Changes { overlap: Some(Overlap::Allow), ..Changes::default() }),
        (r#"{"flexible_window":null}"#, Changes { flexible_window: Some(None), ..Changes::default() }),
        (r#"{"retry":null}"#, Changes { retry: Some(RetryChanges::reset()), ..Changes::default() }),
        (r#"{"effect":null}"#, Changes { effect: Some(Effect::Idempotent), ..Changes::default() }),
        (r#"{"review_owner":null}"#, Changes { review_owner: Some(None), ..Changes::default() }),
    ] {
        assert_eq!(merge(json).unwrap(), changes, "{json}");
    }
}

#[test]
fn in_a_patch_objects_are_merged_and_the_rule_is_replaced() {
    let misfire = |json: &str| merge(&format!(r#"{{"misfire":{json}}}"#)).map(|changes| changes.misfire);
    let policy = |misfire| Ok(Some(MisfireChange::Policy(misfire)));
    assert_eq!(misfire(r#"{"limit":7}"#), Ok(Some(MisfireChange::Limit(7))), "the policy stays");
    assert_eq!(misfire("{}"), Ok(None));
    assert_eq!(misfire("null"), policy(Misfire::FireOnce));
    assert_eq!(misfire(r#"{"policy":null}"#), policy(Misfire::FireOnce));
    assert_eq!(misfire(r#"{"policy":"SKIP","limit":null}"#), policy(Misfire::Skip));
    assert_eq!(misfire(r#"{"policy":"CATCH_UP","limit":9}"#), policy(Misfire::CatchUp { limit: 9 }));
    assert_eq!(misfire(r#"{"limit":null}"#).unwrap_err().field, "misfire.policy");
    let retry = merge(r#"{"retry":{"cap":"1h","base":null,"budget":null}}"#).unwrap().retry.unwrap();
    let (base, cap) = (Some(Duration::from_secs(1)), Some(Duration::from_secs(3_600)));
    assert_eq!(retry, RetryChanges { base, cap, budget: Some(None), ..RetryChanges::default() });
    let rule = merge(r#"{"rule":{"cron":"0 9 * * *","zone":"UTC","fold":null}}"#).unwrap().rule;
    assert!(matches!(rule, Some(NewRule::Cron(cron)) if cron.zone == "UTC"));
}

#[test]
fn a_patch_cannot_take_away_what_has_no_default() {
    for field in ["tenant", "queue", "rule"] {
        assert_eq!(merge(&format!(r#"{{"{field}":null}}"#)).unwrap_err().field, field);
    }
    let named = patch(serde_json::from_str(r#"{"tenant":"acme"}"#).unwrap()).unwrap();
    assert_eq!((named.tenant.as_deref(), named.changes), (Some("acme"), Changes::default()));
    assert_eq!(merge(r#"{"key":"k"}"#).unwrap_err().field, "key");
}

#[test]
fn a_line_of_an_import_is_a_schedule_with_a_key() {
    let line = |json: &str| import_line(serde_json::from_str(json).unwrap(), None);
    let (key, new) = line(&with(r#""key":"k 1""#)).unwrap();
    assert_eq!((key.as_deref(), new.tenant.as_str()), (Some("k 1"), "acme"));
    assert_eq!(line(GOOD).unwrap().0, None);
    for bad in [r#""""#, "7", r#""schlüssel""#, r#""a\nb""#, &format!("{:?}", "x".repeat(256))] {
        assert_eq!(line(&with(&format!(r#""key":{bad}"#))).unwrap_err().field, "key", "{bad}");
    }
    assert_eq!(read(&with(r#""key":"k""#)).unwrap_err().field, "key", "a single create takes the header");
}

#[test]
fn whose_it_is_may_come_from_the_token() {
    let read = |json: &str| new_schedule(serde_json::from_str(json).unwrap(), Some("mine")).unwrap().tenant;
    assert_eq!(read(r#"{"queue":"q","rule":{"every":"5m"}}"#), "mine");
    assert_eq!(read(r#"{"tenant":null,"queue":"q","rule":{"every":"5m"}}"#), "mine");
    assert_eq!(read(GOOD), "acme", "whether it may is not for the reader to say");
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

/// Field, value, path that the refusal must name, and a part of the remedy.
const BAD_FIELDS: &[(&str, &str, &str, &str)] = &[
    ("name", "7", "name", "must be a string"),
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
    (
        "misfire",
        r#"{"policy":"fire_once"}"#,
        "misfire.policy",
        "\"fire_once\" must be one of SKIP, FIRE_ONCE, CATCH_UP",
    ),
    ("misfire", r#"{"policy":"FIRE_ONCE","limit":5}"#, "misfire.limit", "CATCH_UP"),
    ("misfire", r#"{"policy":"CATCH_UP"}"#, "misfire.limit", "required with CATCH_UP"),
    ("misfire", r#"{"limit":5}"#, "misfire.policy", "required"),
    ("misfire", r#"{"policy":"CATCH_UP","limit":-1}"#, "misfire.limit", "-1 must be a whole number"),
    ("misfire", r#"{"policy":"FIRE_ONCE","max":5}"#, "misfire.max", "not a field"),
    ("overlap", r#""NEVER""#, "overlap", "must be one of ALLOW"),
    ("overlap", "0", "overlap", "must be a string, not a number (0)"),
    ("overlap", r#""АLLOW""#, "overlap", "must be one of ALLOW"),
    ("retry", "3", "retry", "must be an object"),
    ("retry", r#"{"max_attempts":"5"}"#, "retry.max_attempts", "whole number"),
    ("retry", r#"{"budget":-7}"#, "retry.budget", "whole number"),
    ("retry", r#"{"jitter":"full"}"#, "retry.jitter", "not a field"),
    ("effect", r#""maybe""#, "effect", "must be one of idempotent"),
    ("effect", "false", "effect", "must be a string"),
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
        let refusal = new_schedule(node, None).map(|_| ()).expect_err(&body);
        assert_eq!((refusal.field.as_str(), refusal.code.as_str()), (*path, "invalid"), "{body}");
        assert!(refusal.message.contains(part), "{body}: {}", refusal.message);
    }
}

#[test]
fn a_payload_that_is_too_long_is_refused_under_the_name_that_it_was_given() {
    let encoded = |bytes: usize| BASE64.encode(vec![0xff; bytes]);
    let given = |bytes: usize| read(&with(&format!("\"payload_base64\":\"{}\"", encoded(bytes))));
    assert_eq!(given(65_536).unwrap().rest.payload.map(|payload| payload.len()), Some(65_536));
    let refusal = given(65_537).unwrap_err();
    assert_eq!(refusal.field, "payload_base64");
    assert!(refusal.message.contains("65537 bytes: at most 65536"), "{}", refusal.message);
}

#[test]
fn two_of_a_kind_are_refused() {
    for (two, field) in [
        (r#""payload":"a","payload_base64":"QQ==""#, "payload_base64"),
        (r#""max_lateness":"60s","max_lateness_ms":60000"#, "max_lateness_ms"),
        (r#""flexible_window":"1s","flexible_window_ms":1000"#, "flexible_window_ms"),
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
