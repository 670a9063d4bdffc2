//! The HTTP API of the real binary: what it refuses, what it makes, how it starts and ends.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::server::{Reply, Server, refused};

fn fresh() -> (tempfile::TempDir, Server) {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(&home.path().join("data"), &["--shards", "2"]);
    (home, server)
}

fn create(server: &Server, spec: &Value) -> Reply {
    server.call("POST", "/v1/schedules", &spec.to_string())
}

fn berlin() -> Value {
    json!({"tenant": "acme", "queue": "billing", "rule": {"cron": "0 9 * * MON-FRI", "zone": "Europe/Berlin"}})
}

/// All items of a listing: a page may be short, or empty, and not the last one.
fn listed(server: &Server, path: &str) -> Vec<Value> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = server.call("GET", &format!("{path}&cursor={cursor}"), "").json();
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 500, "{path}");
        all.extend(items.iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => return all,
        }
    }
}

/// The spec with one field set to something else.
fn with(mut spec: Value, field: &str, value: Value) -> Value {
    spec[field] = value;
    spec
}

#[test]
fn what_is_not_there_and_what_is_not_allowed_is_told_in_the_shape_of_errors() {
    let (_home, server) = fresh();
    let told = |method: &str, path: &str| server.call(method, path, "").refusal();
    for path in ["/", "/v1", "/v2/schedules", "/v1/schedules/", "/v1/nothing", "/v1/schedules/a/b/c"] {
        assert_eq!(told("GET", path), (404, "not_found".into(), None), "{path}");
    }
    for path in ["/v1/schedules/not-an-id", "/v1/schedules/01234567-89ab-4def-8123-456789abcdefx"] {
        for method in ["GET", "DELETE"] {
            assert_eq!(told(method, path), (404, "not_found".into(), None), "{method} {path}");
        }
        assert_eq!(told("GET", &format!("{path}/occurrences")).0, 404);
    }
    for (method, path) in [
        ("PUT", "/v1/schedules"),
        ("DELETE", "/v1/schedules"),
        ("PUT", "/v1/schedules/x"),
        ("GET", "/v1/schedules/import"),
        ("GET", "/v1/schedules/x/pause"),
        ("DELETE", "/v1/occurrences/x"),
        ("POST", "/v1/schedules/x"),
        ("GET", "/v1/preview"),
        ("POST", "/healthz"),
        ("POST", "/metrics"),
    ] {
        let reply = server.call(method, path, "");
        assert_eq!(reply.refusal(), (405, "method_not_allowed".into(), None), "{method} {path}");
        assert!(reply.head.contains("\r\nallow: "), "{reply:?}");
    }
    assert!(server.call("GET", "/", "").head.contains("x-content-type-options: nosniff"));
}

#[test]
fn what_is_no_json_or_too_long_is_refused_before_it_is_looked_at() {
    let (_home, server) = fresh();
    for bad in ["", "{", "{\"tenant\":\"acme\",}", "null garbage"] {
        assert_eq!(server.call("POST", "/v1/schedules", bad).refusal(), (400, "invalid_json".into(), None), "{bad:?}");
    }
    assert_eq!(server.call("POST", "/v1/schedules", &"[".repeat(10_000)).refusal().0, 400);
    assert_eq!(server.send("POST", "/v1/schedules", &[], b"{\"tenant\":\"\xff\"}").refusal().0, 400);
    for bytes in [1024 * 1024 + 1, 3_000_000] {
        let long = vec![b' '; bytes];
        assert_eq!(server.send("POST", "/v1/schedules", &[], &long).refusal(), (413, "too_large".into(), None));
    }
    let chunked = [
        b"POST /v1/schedules HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n".as_slice(),
        b"180000\r\n",
        &[b' '; 0x18_0000],
        b"\r\n0\r\n\r\n",
    ]
    .concat();
    assert_eq!(server.exchange(&chunked).refusal().0, 413);
}

#[test]
fn an_id_that_names_nothing_is_404_whatever_is_asked_of_it() {
    let (_home, server) = fresh();
    let path = "/v1/schedules/01234567-89ab-4def-8123-456789abcdef";
    for (method, path) in [("GET", path), ("DELETE", path), ("GET", &format!("{path}/occurrences"))] {
        assert_eq!(server.call(method, path, "").refusal(), (404, "not_found".into(), None), "{method} {path}");
    }
}

/// Field to set, its value, and the field that the refusal names.
fn refusals() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        ("tenant", json!(7), "tenant"),
        ("tenant", json!("Acme"), "tenant"),
        ("queue", json!(null), "queue"),
        ("queue", json!("a/b"), "queue"),
        ("name", json!("a\u{0}b"), "name"),
        ("frobnicate", json!(1), "frobnicate"),
        ("payload", json!({"a": 1}), "payload"),
        ("payload", json!("x".repeat(65_537)), "payload"),
        ("payload_base64", json!("?"), "payload_base64"),
        ("start_at", json!("soon"), "start_at"),
        ("flexible_window", json!("25h"), "flexible_window"),
        ("max_lateness", json!("367d"), "max_lateness"),
        ("misfire", json!({"policy": "CATCH_UP", "limit": 0}), "misfire.limit"),
        ("misfire", json!({"policy": "SKIP", "limit": 3}), "misfire.limit"),
        ("overlap", json!("QUEUE_TWO"), "overlap"),
        ("retry", json!({"max_attempts": 0}), "retry.max_attempts"),
        ("effect", json!("sometimes"), "effect"),
        ("rule", json!({"every": "5m", "basis": "grid"}), "rule.basis"),
        ("rule", json!({"every": "10ms"}), "rule.every"),
        ("rule", json!({"cron": "* * * * *"}), "rule.zone"),
    ]
}

#[test]
fn each_bad_field_is_refused_with_422_and_its_path() {
    let (_home, server) = fresh();
    for (field, value, path) in refusals() {
        let spec = with(berlin(), field, value);
        let shown: String = spec.to_string().chars().take(200).collect();
        assert_eq!(create(&server, &spec).refusal(), (422, "invalid".into(), Some(path.into())), "{shown}");
    }
    for (query, field) in [
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("state=x", "state"),
        ("page=2", "page"),
        ("queue=", "queue"),
        ("tenant=", "tenant"),
        ("state=", "state"),
        ("tenant=No", "tenant"),
    ] {
        let reply = server.call("GET", &format!("/v1/schedules?{query}"), "");
        assert_eq!(reply.refusal(), (422, "invalid".into(), Some(field.into())), "{query}");
    }
}

#[test]
fn a_request_from_a_web_page_is_refused() {
    let (_home, server) = fresh();
    let reply = server.send("POST", "/v1/schedules", &[("Origin", "http://example.org")], b"{}");
    assert_eq!(reply.refusal(), (403, "cross_origin".into(), None));
    let page = server.send("GET", "/v1/schedules", &[("Sec-Fetch-Site", "same-origin")], b"");
    assert_eq!(page.refusal(), (403, "cross_origin".into(), None));
}

/// A name of the attacker's that was made to resolve to this machine: the browser sends no `Origin` then.
#[test]
fn without_tokens_a_host_that_is_not_this_machine_is_refused() {
    let (_home, server) = fresh();
    let asked = |host: &str| {
        server.exchange(format!("GET /v1/schedules HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes())
    };
    for host in
        ["evil.example", "evil.example:7171", "127.0.0.1.evil.example", "localhost.", "192.168.1.7:80", "[2001:db8::1]"]
    {
        assert_eq!(asked(host).refusal(), (403, "cross_origin".into(), None), "{host:?}");
    }
    for host in ["localhost", "LOCALHOST:7171", "127.0.0.1", "127.0.0.1:7171", "[::1]:7171"] {
        assert_eq!(asked(host).status, 200, "{host:?}");
    }
}

#[test]
fn what_never_was_is_not_archived() {
    let (_home, server) = fresh();
    let reply = server.call("GET", "/v1/occurrences/00000000-0000-8000-8000-000000000000", "");
    assert_eq!(reply.refusal(), (404, "not_found".into(), None));
}

#[test]
fn a_server_that_nobody_may_reach_from_outside_does_not_start_there() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    for address in ["0.0.0.0:0", "[::]:0"] {
        let (code, said) = refused(&["--data", data.to_str().unwrap(), "--listen", address]);
        assert_eq!(code, Some(2));
        assert!(said.starts_with("countwheel: ") && said.lines().count() == 1 && said.contains("loopback"), "{said}");
        assert!(!data.exists(), "nothing was made");
    }
    assert_eq!(refused(&["--listen", "everywhere"]).0, Some(2));
    assert_eq!(refused(&["--shards", "0"]).0, Some(2));
    assert_eq!(refused(&["--rehearse-speed", "60"]).0, Some(2));
    assert_eq!(refused(&["--frobnicate"]).0, Some(2));
}

#[test]
fn sigterm_ends_it_with_0_although_a_connection_is_open() {
    let (_home, server) = fresh();
    assert_eq!(server.call("GET", "/healthz", "").json()["live"], true);
    let started = Instant::now();
    assert_eq!(server.terminate().code(), Some(0));
    assert!(started.elapsed() < Duration::from_secs(30));
}

#[test]
fn health_readiness_and_metrics_speak_for_themselves() {
    let (_home, server) = fresh();
    let health = server.call("GET", "/healthz", "");
    assert_eq!(health.status, 200);
    for key in ["live", "reasons", "version", "tz_release", "shards", "rehearsal"] {
        assert!(!health.json()[key].is_null(), "{key}");
    }
    let ready = server.call("GET", "/readyz", "");
    assert_eq!((ready.status, &ready.json()["ready"]), (200, &json!(true)), "listening means usable: {ready:?}");
    let metrics = server.call("GET", "/metrics", "");
    assert!(metrics.head.contains("content-type: text/plain; version=0.0.4"));
    assert!(metrics.body.contains("countwheel_build_info{version="));
    assert_eq!(server.call("HEAD", "/readyz", "").body, "");
}

#[test]
fn a_schedule_is_made_read_listed_and_ended() {
    let (_home, server) = fresh();
    let made = create(&server, &berlin());
    assert_eq!(made.status, 201, "{made:?}");
    let made_json = made.json();
    let schedule = &made_json["schedule"];
    let id = schedule["schedule_id"].as_str().unwrap();
    assert!(made.head.contains(&format!("location: /v1/schedules/{id}")));
    assert_eq!((&schedule["version"], &schedule["state"]), (&json!(1), &json!("active")));
    assert_eq!(schedule["rule"]["fold"], "once", "an appointment is resolved at creation");
    assert_eq!(schedule["max_lateness"], "60s");
    assert_eq!(made_json["next"].as_array().unwrap().len(), 5);
    assert_eq!(made_json["next"][0], schedule["next_run_at"]);

    let path = format!("/v1/schedules/{id}");
    assert_eq!(server.call("GET", &path, "").json()["schedule"]["schedule_id"], *id);
    let count = |query: &str| listed(&server, &format!("/v1/schedules?limit=500&{query}")).len();
    assert_eq!((count("tenant=acme&state=active"), count("tenant=other"), count("queue=other")), (1, 0, 0));
    assert_eq!(server.call("GET", &format!("{path}/occurrences"), "").json()["next_cursor"], Value::Null);

    let ended = server.call("DELETE", &path, "").json();
    assert_eq!(ended["schedule"]["state"], "canceled");
    assert_eq!(ended["schedule"]["next_run_at"], Value::Null);
    let again = server.call("DELETE", &path, "");
    assert_eq!((again.status, &again.json()["receipt"]["canceled"]), (200, &json!([])));
    assert_eq!(again.json()["schedule"]["version"], ended["schedule"]["version"]);
    assert_eq!((count("state=canceled"), count("state=active")), (1, 0));
}

#[test]
fn every_schedule_is_listed_exactly_once_in_small_pages() {
    let (_home, server) = fresh();
    let mut made: Vec<String> = (0..23)
        .map(|_| create(&server, &berlin()).json()["schedule"]["schedule_id"].as_str().unwrap().to_owned())
        .collect();
    let listed = listed(&server, "/v1/schedules?limit=4");
    let mut listed: Vec<&str> = listed.iter().map(|item| item["schedule_id"].as_str().unwrap()).collect();
    made.sort();
    listed.sort();
    assert_eq!(listed, made);
    let reply = server.call("GET", "/v1/schedules?cursor=garbage", "");
    assert_eq!(reply.refusal(), (422, "invalid".into(), Some("cursor".into())));
}

#[test]
fn a_second_tick_appears_in_the_history_and_survives_a_restart() {
    let (home, server) = fresh();
    let spec = json!({"tenant": "acme", "queue": "mail", "rule": {"cron": "* * * * * *", "zone": "UTC"}});
    let id = create(&server, &spec).json()["schedule"]["schedule_id"].as_str().unwrap().to_owned();
    let path = format!("/v1/schedules/{id}/occurrences?state=ENQUEUED");
    let fired = |server: &Server| server.call("GET", &path, "").json()["items"].as_array().unwrap().clone();
    let patience = Instant::now() + Duration::from_secs(20);
    while fired(&server).len() < 2 {
        assert!(Instant::now() < patience, "two seconds have passed and nothing fired");
        sleep(Duration::from_millis(100));
    }
    let before = fired(&server);
    assert!(before.iter().all(|item| item["enqueued_at"].as_str() >= item["available_at"].as_str()));
    assert_eq!(server.terminate().code(), Some(0));
    let server = Server::start(&home.path().join("data"), &[]);
    let after = fired(&server);
    assert_eq!(after[..before.len()], before, "the same occurrences under the same ids");
}

#[test]
fn rule_and_time_are_refused_by_the_engine_after_the_shape() {
    let (_home, server) = fresh();
    let cron = |expr: &str, zone: &str| with(berlin(), "rule", json!({"cron": expr, "zone": zone}));
    for (spec, code, field) in [
        (cron("60 * * * *", "UTC"), "invalid_cron", "rule.cron"),
        (cron("* * * * *", "Mars/Olympus"), "unknown_zone", "rule.zone"),
        (cron("0 0 30 2 *", "UTC"), "never_fires", "rule.cron"),
        (with(cron("* * * * *", "UTC"), "start_at", json!("2200-01-01T00:00:00Z")), "never_fires", "start_at"),
        (with(cron("* * * * *", "UTC"), "start_at", json!("9999-01-01T00:00:00Z")), "never_fires", "start_at"),
        (with(berlin(), "rule", json!({"at": "2001-01-01T00:00:00Z"})), "in_the_past", "rule.at"),
        (with(cron("* * * * *", "UTC"), "flexible_window", json!("61s")), "window_too_long", "flexible_window"),
    ] {
        assert_eq!(create(&server, &spec).refusal(), (422, code.into(), Some(field.into())), "{spec}");
        if !code.ends_with("too_long") && code != "in_the_past" {
            let question = json!({"rule": spec["rule"]}).to_string();
            let status = server.call("POST", "/v1/preview", &question).status;
            assert!(code == "never_fires" || status == 422, "{question}");
        }
    }
    let both = with(cron("60 * * * *", "UTC"), "tenant", json!("No"));
    assert_eq!(create(&server, &both).refusal().2.as_deref(), Some("tenant"), "shape comes first");
}

#[test]
fn what_would_be_ignored_is_refused_wherever_it_is_said() {
    let (_home, server) = fresh();
    for path in ["/healthz", "/readyz", "/metrics", "/v1/openapi.json", "/v1/backlog"] {
        let reply = server.call("GET", &format!("{path}?x=1"), "");
        assert_eq!(reply.refusal(), (422, "invalid".into(), Some("x".into())), "{path}");
    }
    let body = berlin().to_string();
    let sent =
        |path: &str, encoding: &str| server.send("POST", path, &[("Content-Encoding", encoding)], body.as_bytes());
    for path in ["/v1/schedules", "/v1/schedules/import", "/v1/preview", "/v1/runs/complete"] {
        for encoding in ["gzip", "br", "identity, gzip", "x"] {
            let refusal = (415, "unsupported_encoding".into(), Some("Content-Encoding".into()));
            assert_eq!(sent(path, encoding).refusal(), refusal, "{path} {encoding}");
        }
    }
    assert_eq!(sent("/v1/schedules", "Identity").status, 201, "that is no encoding");
}

#[test]
fn a_data_path_that_cannot_be_a_directory_is_named() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    let long = home.path().join("x".repeat(300));
    for path in [file.clone(), file.join("below"), long, "/proc/nothing/here".into()] {
        let path = path.to_str().unwrap();
        let (code, said) = refused(&["--data", path, "--listen", "127.0.0.1:0"]);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.starts_with(&format!("countwheel: {path}: ")) && said.lines().count() == 1, "{said}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn a_preview_answers_without_storing_anything() {
    let (_home, server) = fresh();
    let question = json!({"rule": {"cron": "30 1 * * *", "zone": "America/New_York", "fold": "both"},
        "from": "2026-11-01T05:00:00Z", "count": 3});
    let answer = server.call("POST", "/v1/preview", &question.to_string()).json();
    let next = ["2026-11-01T05:30:00.000Z", "2026-11-01T06:30:00.000Z", "2026-11-02T06:30:00.000Z"];
    assert_eq!(answer["next"], json!(next));
    assert!(answer["tz_release"].as_str().is_some_and(|release| release.starts_with("20")));
    assert_eq!(listed(&server, "/v1/schedules?limit=500"), Vec::<Value>::new());
}

#[test]
fn an_interval_that_follows_its_runs_has_one_instant_and_says_why() {
    let (_home, server) = fresh();
    let anchor = "2026-11-01T00:00:00.000Z";
    for basis in ["completion", "start"] {
        let rule = json!({"every": "5m", "anchor": anchor, "basis": basis});
        let spec = json!({"tenant": "acme", "queue": "billing", "rule": rule});
        let made = create(&server, &spec);
        let answer = made.json();
        let schedule = &answer["schedule"];
        assert_eq!((made.status, &schedule["rule"]), (201, &rule));
        assert_eq!((&schedule["state"], answer["next"].as_array().map(Vec::len)), (&json!("active"), Some(1)));
        let path = format!("/v1/schedules/{}", schedule["schedule_id"].as_str().unwrap());
        let window = json!({"from": "2026-11-01T00:00:00Z", "to": "2026-11-02T00:00:00Z"}).to_string();
        let backfill = server.call("POST", &format!("{path}/backfill"), &window);
        assert_eq!(backfill.refusal(), (422, "invalid".into(), Some("rule.basis".into())));
        let skip = server.call("PATCH", &path, r#"{"overlap":"SKIP_IF_RUNNING"}"#);
        assert_eq!(skip.refusal(), (422, "invalid".into(), Some("overlap".into())));
        for (field, value, path) in [
            ("overlap", json!("QUEUE_ONE"), "overlap"),
            ("misfire", json!({"policy": "CATCH_UP", "limit": 3}), "misfire.policy"),
            ("flexible_window", json!("6m"), "flexible_window"),
        ] {
            let reply = create(&server, &with(spec.clone(), field, value));
            assert_eq!((reply.refusal().0, reply.refusal().2.as_deref()), (422, Some(path)), "{basis}");
        }
        assert_eq!(server.call("PUT", "/v1/queues/events", r#"{"tracked":false}"#).status, 200);
        let untracked = create(&server, &with(spec, "queue", json!("events")));
        assert_eq!(untracked.refusal(), (422, "invalid".into(), Some("rule.basis".into())));
        let question = json!({"rule": rule, "from": "2026-11-01T05:00:00Z", "count": 3});
        let answer = server.call("POST", "/v1/preview", &question.to_string()).json();
        assert_eq!(answer["next"], json!(["2026-11-01T05:05:00.000Z"]));
        assert_eq!(answer["warnings"][0]["code"], json!("follows_runs"));
    }
}

#[test]
fn a_key_finds_an_interval_that_follows_its_runs_whether_or_not_that_is_said_again() {
    let (_home, server) = fresh();
    let ask = |rule: Value| {
        let spec = json!({"tenant": "acme", "queue": "billing", "rule": rule}).to_string();
        server.send("POST", "/v1/schedules", &[("Idempotency-Key", "k")], spec.as_bytes()).status
    };
    assert_eq!(ask(json!({"every": "5m", "basis": "completion"})), 201);
    assert_eq!(ask(json!({"every": "5m", "basis": "completion"})), 200);
    assert_eq!(ask(json!({"every": "5m"})), 200, "what is left out is whatever stands");
    assert_eq!(ask(json!({"every": "5m", "basis": "start"})), 409);
    assert_eq!(ask(json!({"every": "6m"})), 409);
}

#[test]
fn a_directory_that_is_locked_or_has_other_shards_is_refused_with_the_reason() {
    let (home, server) = fresh();
    let data = home.path().join("data");
    let data = data.to_str().unwrap();
    let serve = ["--data", data, "--listen", "127.0.0.1:0"];
    let (code, said) = refused(&serve);
    assert_eq!(code, Some(1));
    assert!(said.starts_with("countwheel: ") && said.lines().count() == 1 && said.contains("locked"), "{said}");
    assert_eq!(server.terminate().code(), Some(0));
    let (code, said) = refused(&[serve.as_slice(), &["--shards", "3"]].concat());
    assert_eq!(code, Some(1));
    assert!(said.starts_with("countwheel: ") && said.lines().count() == 1 && said.contains("shard"), "{said}");
}

#[test]
fn a_rehearsal_says_so_in_every_answer_and_is_kept_apart() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let server = Server::start(&data, &["--rehearse-from", "2026-11-01T05:00:00Z", "--rehearse-speed", "60"]);
    for path in ["/healthz", "/v1/schedules", "/nothing"] {
        assert!(server.call("GET", path, "").head.contains("countwheel-rehearsal: true"), "{path}");
    }
    assert_eq!(server.terminate().code(), Some(0));
    let (code, said) = refused(&["--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("rehearsal"), "{said}");
}
