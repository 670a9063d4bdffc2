//! Every field of a schedule against values that do not belong: negative, huge, no number at all, overlong, with control
//! characters, with letters that only look right.

use serde_json::{Value, json};

use crate::server::Server;

/// Field to set, values that are refused, and the path that the refusal names where it is another.
fn refused() -> Vec<(&'static str, Vec<Value>, Option<&'static str>)> {
    let long = "x".repeat(100_000);
    let names = ["", "Acme", "-a", ".a", "a b", "a/b", "a\u{0}", "a\n", "\u{430}cme", "a\u{200b}", "ａcme"];
    let names: Vec<Value> = names.into_iter().map(|name| json!(name)).chain([json!(&long), json!(7)]).collect();
    let durations = || {
        ["", "-1s", "1", "soon", "NaN", "Infinity", "1e3s", "６0s", "60ѕ", "60 s", "60s\u{0}", "99999999999999999999s"]
            .into_iter()
            .map(|text| json!(text))
            .chain([json!(&long), json!(-1), json!(1.5), json!(true), json!([])])
            .collect::<Vec<_>>()
    };
    let numbers =
        || vec![json!(-1), json!(1.5), json!(1e300), json!(u64::MAX), json!("NaN"), json!("7"), json!("７"), json!({})];
    let instants = || {
        ["", "tomorrow", "NaN", "2026-13-01T00:00:00Z", "1969-12-31T23:59:59Z", "２026-01-01T00:00:00Z", "2026-01-01"]
            .into_iter()
            .map(|text| json!(text))
            .chain([json!(&long), json!(0), json!(-1), json!(1e300)])
            .collect::<Vec<_>>()
    };
    let texts = || {
        vec![json!("a\u{0}b"), json!("a\nb"), json!("\u{1b}[2J"), json!("\u{85}"), json!(&long), json!(7), json!({})]
    };
    let words = |right: &str| {
        let look = right.replace('A', "\u{410}").replace('i', "\u{456}");
        vec![
            json!(""),
            json!(right.to_lowercase() + "\u{0}"),
            json!(look + "\u{200b}"),
            json!(&long),
            json!(0),
            json!([]),
        ]
    };
    let nested = |outer: &'static str, inner: &'static str, values: Vec<Value>, path: &'static str| {
        let values = values.into_iter().map(|value| json!({inner: value})).collect();
        (outer, values, Some(path))
    };
    let misfire = |limit: Value| json!({"policy": "CATCH_UP", "limit": limit});
    let limits = numbers().into_iter().chain([json!(0), json!(1_001), json!(u32::MAX)]).map(misfire).collect();
    vec![
        ("tenant", names.clone(), None),
        ("queue", names, None),
        ("name", texts(), None),
        ("review_owner", texts(), None),
        ("start_at", instants(), None),
        ("end_at", instants(), None),
        ("payload", vec![json!(7), json!({}), json!("x".repeat(65_537)), json!("ü".repeat(40_000))], None),
        ("payload_base64", vec![json!("*"), json!("QQ"), json!("QQ==\n"), json!("ＱQ=="), json!(7)], None),
        ("max_lateness", durations(), None),
        ("max_lateness_ms", numbers(), None),
        ("flexible_window", durations(), None),
        ("flexible_window_ms", numbers(), None),
        ("overlap", words("ALLOW"), None),
        ("effect", words("idempotent"), None),
        nested("misfire", "policy", words("FIRE_ONCE"), "misfire.policy"),
        ("misfire", limits, Some("misfire.limit")),
        nested("retry", "max_attempts", [numbers(), vec![json!(0), json!(1_000_001)]].concat(), "retry.max_attempts"),
        nested("retry", "base", durations(), "retry.base"),
        nested("retry", "base_ms", numbers(), "retry.base_ms"),
        nested("retry", "cap", durations(), "retry.cap"),
        nested("retry", "deadline", durations(), "retry.deadline"),
        nested("retry", "budget", numbers(), "retry.budget"),
        nested("rule", "every", [durations(), vec![json!("999ms"), json!("367d")]].concat(), "rule.every"),
        nested("rule", "every_ms", [numbers(), vec![json!(0), json!(999)]].concat(), "rule.every_ms"),
        nested("rule", "at", instants(), "rule.at"),
    ]
}

#[test]
fn what_does_not_belong_is_refused_by_its_field_in_a_create_and_in_a_patch() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(&home.path().join("data"), &["--shards", "1"]);
    let good = json!({"tenant": "acme", "queue": "q", "rule": {"every": "5m"}});
    let made = server.call("POST", "/v1/schedules", &good.to_string()).json();
    let path = format!("/v1/schedules/{}", made["schedule"]["schedule_id"].as_str().unwrap());
    let mut tried = 0;
    for (field, values, named) in refused() {
        for value in values {
            let mut spec = good.clone();
            spec[field] = value.clone();
            let patch = json!({field: value}).to_string();
            for (reply, call) in [
                (server.call("POST", "/v1/schedules", &spec.to_string()), "create"),
                (server.call("PATCH", &path, &patch), "patch"),
            ] {
                let shown: String = value.to_string().chars().take(80).collect();
                let (status, code, path) = reply.refusal();
                assert_eq!((status, code.as_str()), (422, "invalid"), "{call} {field} {shown}: {reply:?}");
                assert_eq!(path.as_deref(), Some(named.unwrap_or(field)), "{call} {field} {shown}: {reply:?}");
                assert!(reply.body.len() < 1_000 && !reply.body.contains('\u{0}'), "{call} {field}: {reply:?}");
                tried += 1;
            }
        }
    }
    assert!(tried > 400, "{tried}");
    assert_eq!(server.call("GET", &path, "").json()["schedule"]["version"], 1);
}

#[test]
fn a_refusal_repeats_the_value_and_says_what_would_do() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(&home.path().join("data"), &["--shards", "1"]);
    for (field, value, parts) in [
        ("tenant", json!("Acme"), ["\"Acme\"", "a-z 0-9"]),
        ("queue", json!("a b"), ["\"a b\"", "a-z 0-9"]),
        ("overlap", json!("NEVER"), ["\"NEVER\"", "must be one of ALLOW"]),
        ("overlap", json!(7), ["(7)", "must be a string"]),
        ("misfire", json!({"policy": "RUN"}), ["\"RUN\"", "must be one of SKIP"]),
        ("effect", json!(true), ["(true)", "must be a string"]),
        ("max_lateness", json!("soon"), ["\"soon\"", "write it as"]),
        ("flexible_window", json!("25h"), ["\"25h\"", "give 0ms to 24h"]),
        ("start_at", json!("noon"), ["\"noon\"", "RFC 3339"]),
        ("retry", json!({"max_attempts": 0}), ["0", "1-1000000"]),
        ("frobnicate", json!(1), ["\"frobnicate\"", "leave it out"]),
    ] {
        let mut spec = json!({"tenant": "acme", "queue": "q", "rule": {"every": "5m"}});
        spec[field] = value;
        let reply = server.call("POST", "/v1/schedules", &spec.to_string()).json();
        let message = reply["error"]["message"].as_str().unwrap();
        assert!(parts.iter().all(|part| message.contains(part)), "{field}: {message}");
    }
}

#[test]
fn a_rule_of_letters_that_only_look_right_is_refused_by_the_engine() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(&home.path().join("data"), &["--shards", "1"]);
    for (cron, zone, code, field) in [
        ("＊ * * * *", "UTC", "invalid_cron", "rule.cron"),
        ("* * * * МON", "UTC", "invalid_cron", "rule.cron"),
        ("* * * * *\u{0}", "UTC", "invalid_cron", "rule.cron"),
        ("-1 * * * *", "UTC", "invalid_cron", "rule.cron"),
        ("99999999999999999999 * * * *", "UTC", "invalid_cron", "rule.cron"),
        ("NaN * * * *", "UTC", "invalid_cron", "rule.cron"),
        (&"*".repeat(257), "UTC", "invalid_cron", "rule.cron"),
        ("* * * * *", "Europe/Ber\u{26C}in", "unknown_zone", "rule.zone"),
        ("* * * * *", "../../etc/passwd", "unknown_zone", "rule.zone"),
        ("* * * * *", "UTC\u{0}", "unknown_zone", "rule.zone"),
        ("* * * * *", "", "unknown_zone", "rule.zone"),
    ] {
        let spec = json!({"tenant": "acme", "queue": "q", "rule": {"cron": cron, "zone": zone}});
        let reply = server.call("POST", "/v1/schedules", &spec.to_string());
        assert_eq!(reply.refusal(), (422, code.into(), Some(field.into())), "{cron:?} {zone:?}: {reply:?}");
    }
}
