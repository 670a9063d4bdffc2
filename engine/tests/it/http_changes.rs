//! What changes a schedule over HTTP: keys, updates, pause and resume, triggers, backfills.

use serde_json::{Value, json};

use crate::server::{Reply, Server};

struct House {
    _home: tempfile::TempDir,
    server: Server,
}

impl House {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let server = Server::start(&home.path().join("data"), &["--shards", "2"]);
        Self { _home: home, server }
    }

    fn keyed(&self, key: &str, spec: &Value) -> Reply {
        self.server.send("POST", "/v1/schedules", &[("Idempotency-Key", key)], spec.to_string().as_bytes())
    }

    /// Makes a schedule and gives its path.
    fn made(&self, spec: &Value) -> String {
        let made = self.server.call("POST", "/v1/schedules", &spec.to_string());
        assert_eq!(made.status, 201, "{made:?}");
        format!("/v1/schedules/{}", made.json()["schedule"]["schedule_id"].as_str().unwrap())
    }

    fn patch(&self, path: &str, changes: &Value) -> Reply {
        self.server.call("PATCH", path, &changes.to_string())
    }
}

fn daily() -> Value {
    json!({"tenant": "acme", "queue": "billing", "rule": {"cron": "0 9 * * *", "zone": "Europe/Berlin"}})
}

#[test]
fn a_key_finds_its_schedule_until_it_is_deleted() {
    let house = House::new();
    let first = house.keyed("invoices", &daily());
    assert_eq!((first.status, &first.json()["schedule"]["version"]), (201, &json!(1)));
    let id = first.json()["schedule"]["schedule_id"].clone();
    let again = house.keyed("invoices", &daily());
    assert_eq!((again.status, &again.json()["schedule"]["schedule_id"]), (200, &id));
    let mut spelt = daily();
    spelt["max_lateness"] = json!("1m");
    spelt["misfire"] = json!({"policy": "FIRE_ONCE"});
    spelt["name"] = Value::Null;
    assert_eq!(house.keyed("invoices", &spelt).status, 200, "defaults spelt out are the same");
    let mut other = daily();
    other["queue"] = json!("mail");
    let conflict = house.keyed("invoices", &other);
    assert_eq!(conflict.refusal(), (409, "idempotency_conflict".into(), None));
    assert!(conflict.json()["error"]["message"].as_str().unwrap().contains("version 1"), "{conflict:?}");
    let mut foreign = daily();
    foreign["tenant"] = json!("other");
    let foreign = house.keyed("invoices", &foreign);
    assert!(foreign.status == 201 && foreign.json()["schedule"]["schedule_id"] != id, "keys are a tenant's own");

    let path = format!("/v1/schedules/{}", id.as_str().unwrap());
    let ended = house.server.call("DELETE", &path, "").json()["schedule"]["version"].as_u64().unwrap();
    let life = house.keyed("invoices", &other);
    assert_eq!((life.status, &life.json()["schedule"]["version"]), (201, &json!(ended + 1)));
    assert_eq!(life.json()["schedule"]["schedule_id"], id);
}

#[test]
fn what_a_repeated_create_leaves_out_of_its_rule_equals_whatever_is_stored() {
    let house = House::new();
    let with = |rule: Value| json!({"tenant": "acme", "queue": "billing", "rule": rule});
    let cron = json!({"cron": "30 1 * * 1", "zone": "America/New_York"});
    for (key, option, value, other) in
        [("fold", "fold", "both", "once"), ("gap", "gap", "shift", "skip"), ("days", "day_match", "and", "or")]
    {
        let mut said = cron.clone();
        said[option] = json!(value);
        assert_eq!(house.keyed(key, &with(said.clone())).status, 201, "{option}");
        assert_eq!(house.keyed(key, &with(cron.clone())).status, 200, "{option} left out");
        said[option] = json!(other);
        assert_eq!(house.keyed(key, &with(said)).status, 409, "{option} said otherwise");
    }
    let local =
        |fold: Option<&str>| with(json!({"at_local": "2099-11-01T01:30:00", "zone": "America/New_York", "fold": fold}));
    assert_eq!(house.keyed("night", &local(Some("second"))).status, 201);
    assert_eq!(house.keyed("night", &local(None)).status, 200);
    assert_eq!(house.keyed("night", &local(Some("first"))).status, 409);
}

#[test]
fn a_key_that_is_none_is_refused() {
    let house = House::new();
    for key in ["", "schlüssel", &"x".repeat(256)] {
        let reply = house.keyed(key, &daily());
        assert_eq!(reply.refusal(), (422, "invalid".into(), Some("Idempotency-Key".into())), "{key:?}");
    }
    assert_eq!(house.keyed(&"x".repeat(255), &daily()).status, 201);
    let path = house.made(&daily());
    for (method, path, header) in [
        ("PATCH", path.as_str(), "Idempotency-Key"),
        ("DELETE", &path, "If-Match"),
        ("POST", "/v1/schedules", "If-Match"),
        ("GET", &path, "If-Match"),
    ] {
        let reply = house.server.send(method, path, &[(header, "1")], daily().to_string().as_bytes());
        assert_eq!(reply.refusal(), (422, "invalid".into(), Some(header.into())), "{method}");
    }
}

#[test]
fn a_patch_changes_what_it_says_and_null_goes_back_to_the_default() {
    let house = House::new();
    let path = house.made(&daily());
    let changes = json!({"name": "nine", "max_lateness": "5m", "misfire": {"policy": "CATCH_UP", "limit": 3},
        "retry": {"max_attempts": 9}, "payload": "x", "tenant": "acme"});
    let changed = house.patch(&path, &changes).json();
    let schedule = &changed["schedule"];
    assert_eq!((&schedule["version"], &changed["receipt"]["version"]), (&json!(2), &json!(2)));
    assert_eq!((&schedule["name"], &schedule["max_lateness"]), (&json!("nine"), &json!("5m")));
    assert_eq!(schedule["retry"]["max_attempts"], 9);
    assert_eq!(schedule["queue"], "billing");

    let merged = house.patch(&path, &json!({"misfire": {"limit": 7}, "retry": {"base": "2s"}})).json();
    assert_eq!(merged["schedule"]["misfire"], json!({"policy": "CATCH_UP", "limit": 7}));
    assert_eq!(
        (&merged["schedule"]["retry"]["max_attempts"], &merged["schedule"]["retry"]["base"]),
        (&json!(9), &json!("2s"))
    );

    let same = house.patch(&path, &json!({"name": "nine"})).json();
    assert_eq!((&same["schedule"]["version"], &same["receipt"]["canceled"]), (&json!(3), &json!([])));

    let nulls = json!({"name": null, "max_lateness": null, "misfire": null, "retry": null, "payload": null});
    let reset = house.patch(&path, &nulls).json();
    let mut plain = house.server.call("GET", &house.made(&daily()), "").json()["schedule"].clone();
    for own in ["schedule_id", "version", "created_at", "updated_at"] {
        plain[own] = reset["schedule"][own].clone();
    }
    assert_eq!(reset["schedule"], plain);
}

#[test]
fn a_patch_that_cannot_be_is_refused_by_its_field() {
    let house = House::new();
    let path = house.made(&daily());
    let long_ago = json!({"at": "2001-01-01T00:00:00Z"});
    let restated = json!({"rule": long_ago, "misfire": null, "flexible_window": null, "retry": null});
    for (changes, code, field) in [
        (json!({"tenant": "other"}), "invalid", "tenant"),
        (json!({"tenant": null}), "invalid", "tenant"),
        (json!({"queue": null}), "invalid", "queue"),
        (json!({"rule": null}), "invalid", "rule"),
        (json!({"queue": "No"}), "invalid", "queue"),
        (json!({"misfire": {"limit": 7}}), "invalid", "misfire.limit"),
        (json!({"rule": {"cron": "61 * * * *", "zone": "UTC"}}), "invalid_cron", "rule.cron"),
        (json!({"rule": {"every": "5m"}}), "restate_policies", "rule"),
        (json!({"end_at": "2001-01-01T00:00:00Z"}), "never_fires", "end_at"),
        (restated, "never_fires", "rule.at"),
    ] {
        assert_eq!(house.patch(&path, &changes).refusal(), (422, code.into(), Some(field.into())), "{changes}");
    }
    let message = house.patch(&path, &json!({"tenant": "other"})).json()["error"]["message"].clone();
    assert!(message.as_str().unwrap().contains("\"other\""), "{message}");
    let reply = house.server.call("PATCH", &format!("{path}?pending=later"), "{}");
    assert_eq!(reply.refusal(), (422, "invalid".into(), Some("pending".into())));
    assert_eq!(house.server.call("PATCH", &format!("{path}?pending=keep"), "{}").status, 200);
    assert_eq!(house.server.call("GET", &path, "").json()["schedule"]["version"], 1);
}

#[test]
fn a_patch_may_be_meant_for_one_version_only() {
    let house = House::new();
    let path = house.made(&daily());
    let patch = |version: &str, name: &str| {
        let body = json!({"name": name}).to_string();
        house.server.send("PATCH", &path, &[("If-Match", version)], body.as_bytes())
    };
    assert_eq!(patch("1", "a").json()["schedule"]["version"], 2);
    assert_eq!(patch("1", "b").refusal(), (412, "version_mismatch".into(), None));
    assert_eq!(patch("\"2\"", "b").json()["schedule"]["version"], 3);
    for bad in ["", "*", "W/\"3\"", "three", "-3"] {
        assert_eq!(patch(bad, "c").refusal(), (422, "invalid".into(), Some("If-Match".into())), "{bad:?}");
    }
    house.server.call("DELETE", &path, "");
    assert_eq!(house.patch(&path, &json!({"name": "d"})).refusal(), (409, "canceled".into(), None));
}

#[test]
fn a_schedule_is_paused_and_goes_on() {
    let house = House::new();
    let path = house.made(&daily());
    let post = |action: &str| house.server.call("POST", &format!("{path}/{action}"), "");
    let paused = post("pause").json();
    assert_eq!((&paused["schedule"]["state"], &paused["schedule"]["version"]), (&json!("paused"), &json!(2)));
    assert_eq!(post("pause").json()["schedule"]["version"], 2, "again: nothing changes");
    assert_eq!(post("resume").json()["schedule"]["state"], "active");
    let again = post("resume").json();
    assert_eq!((&again["schedule"]["version"], &again["receipt"]["ranges"]), (&json!(3), &json!([])));
    assert_eq!(house.server.call("POST", &format!("{path}/pause"), "{}").status, 200);
    let reply = house.server.call("POST", &format!("{path}/pause"), r#"{"until":"tomorrow"}"#);
    assert_eq!(reply.refusal(), (422, "invalid".into(), Some("until".into())), "nothing is ignored");
    house.server.call("DELETE", &path, "");
    for action in ["pause", "resume", "trigger"] {
        assert_eq!(post(action).refusal(), (409, "canceled".into(), None), "{action}");
    }
}

#[test]
fn a_trigger_makes_an_occurrence_that_its_key_finds_again() {
    let house = House::new();
    let path = house.made(&daily());
    let trigger = |key: Option<&str>| {
        let key: Vec<_> = key.map(|key| ("Idempotency-Key", key)).into_iter().collect();
        house.server.send("POST", &format!("{path}/trigger"), &key, b"")
    };
    let (first, second) = (trigger(Some("k")), trigger(Some("k")));
    assert_eq!((first.status, second.status), (201, 200));
    assert_eq!(first.json(), second.json());
    assert_ne!(trigger(None).json(), trigger(None).json());
    let id = first.json()["occurrence_id"].as_str().unwrap().to_owned();
    let occurrence = house.server.call("GET", &format!("/v1/occurrences/{id}"), "").json();
    assert_eq!((&occurrence["occurrence_id"], &occurrence["kind"]), (&json!(id), &json!("manual")));
    assert_eq!((&occurrence["tenant"], &occurrence["lane"]), (&json!("acme"), &json!("strict")));
    for none in ["nothing", "01234567-89ab-4def-8123-456789abcdef"] {
        assert_eq!(house.server.call("GET", &format!("/v1/occurrences/{none}"), "").refusal().0, 404, "{none}");
    }
}

#[test]
fn a_backfill_counts_what_it_will_run_again() {
    let house = House::new();
    let path = house.made(&daily());
    let backfill = |key: &str, window: &Value| {
        let body = window.to_string();
        house.server.send("POST", &format!("{path}/backfill"), &[("Idempotency-Key", key)], body.as_bytes())
    };
    let week = json!({"from": "2026-03-02T00:00:00Z", "to": "2026-03-09T00:00:00Z"});
    let asked = backfill("k", &week);
    assert_eq!((asked.status, asked.json()), (201, json!({"occurrences": 7})));
    let again = backfill("k", &week);
    assert_eq!((again.status, again.json()), (200, json!({"occurrences": 7})));
    for (window, field) in [
        (json!({"to": "2026-03-09T00:00:00Z"}), "from"),
        (json!({"from": "2026-03-02T00:00:00Z"}), "to"),
        (json!({"from": "2026-03-09T00:00:00Z", "to": "2026-03-02T00:00:00Z"}), "to"),
        (json!({"from": "2026-03-02T00:00:00Z", "to": "2199-01-01T00:00:00Z"}), "to"),
        (json!({"from": 0, "to": "2026-03-02T00:00:00Z"}), "from"),
        (json!({"from": "2026-03-02T00:00:00Z", "to": "2026-03-09T00:00:00Z", "rate": 1}), "rate"),
    ] {
        assert_eq!(backfill("other", &window).refusal().2.as_deref(), Some(field), "{window}");
    }
    let minutes = house.made(&json!({"tenant": "acme", "queue": "q", "rule": {"every": "1s"}}));
    let body = json!({"from": "2020-01-01T00:00:00Z", "to": "2026-01-01T00:00:00Z"}).to_string();
    let reply = house.server.call("POST", &format!("{minutes}/backfill"), &body);
    assert_eq!(reply.refusal().1, "too_many", "{reply:?}");
}
