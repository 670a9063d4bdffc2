//! What is set for tenants and queues over HTTP, and what a quota refuses.

use serde_json::{Value, json};

use crate::server::Server;

fn fresh() -> (tempfile::TempDir, Server) {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(&home.path().join("data"), &["--shards", "2"]);
    (home, server)
}

#[test]
fn what_is_set_holds_after_a_restart() {
    let (home, server) = fresh();
    let defaults = json!({"weight": 1, "quotas": {"schedules": null, "trigger_per_second": null,
        "concurrent_runs": null, "catch_up_per_second": 1000, "retry_budget": null}});
    assert_eq!(server.call("GET", "/v1/tenants/acme", "").json(), defaults);
    assert_eq!(server.call("GET", "/v1/queues/mail", "").json(), json!({"tracked": true, "catch_up_per_second": null}));

    let set = json!({"weight": 3, "quotas": {"schedules": 2, "catch_up_per_second": null}}).to_string();
    let answer = server.call("PUT", "/v1/tenants/acme", &set);
    assert_eq!((answer.status, &answer.json()["quotas"]["catch_up_per_second"]), (200, &Value::Null));
    assert_eq!(server.call("PUT", "/v1/queues/mail", r#"{"catch_up_per_second":7}"#).status, 200);
    let told = |server: &Server| {
        [server.call("GET", "/v1/tenants/acme", "").json(), server.call("GET", "/v1/queues/mail", "").json()]
    };
    let before = told(&server);
    assert_eq!((&before[0]["weight"], &before[1]["catch_up_per_second"]), (&json!(3), &json!(7)));
    assert_eq!(server.terminate().code(), Some(0));
    let server = Server::start(&home.path().join("data"), &[]);
    assert_eq!(told(&server), before);
    assert_eq!(server.call("PUT", "/v1/tenants/acme", "{}").json(), defaults, "a PUT says all of it");
}

#[test]
fn what_cannot_be_set_is_refused_by_its_field() {
    let (_home, server) = fresh();
    for (path, body, field) in [
        ("/v1/tenants/acme", json!({"weight": 0}), "weight"),
        ("/v1/tenants/acme", json!({"weight": 1_001}), "weight"),
        ("/v1/tenants/acme", json!({"weights": 1}), "weights"),
        ("/v1/tenants/acme", json!({"quotas": {"schedules": -1}}), "quotas.schedules"),
        ("/v1/tenants/acme", json!({"quotas": {"trigger_per_second": 1e300}}), "quotas.trigger_per_second"),
        ("/v1/tenants/Acme", json!({}), "tenant"),
        ("/v1/queues/a%20b", json!({}), "queue"),
        ("/v1/queues/mail", json!({"tracked": null, "catch_up_per_second": "NaN"}), "catch_up_per_second"),
        ("/v1/queues/mail", json!({"tracked": 1}), "tracked"),
    ] {
        let reply = server.call("PUT", path, &body.to_string());
        assert_eq!(reply.refusal(), (422, "invalid".into(), Some(field.into())), "{path} {body}: {reply:?}");
    }
}

#[test]
fn a_tenant_with_as_many_schedules_as_it_may_have_hears_429() {
    let (_home, server) = fresh();
    server.call("PUT", "/v1/tenants/acme", r#"{"quotas":{"schedules":2}}"#);
    let spec = json!({"tenant": "acme", "queue": "q", "rule": {"every": "5m"}}).to_string();
    for _ in 0..2 {
        assert_eq!(server.call("POST", "/v1/schedules", &spec).status, 201);
    }
    assert_eq!(server.call("POST", "/v1/schedules", &spec).refusal(), (429, "quota_schedules".into(), None));
    let imported = server.call("POST", "/v1/schedules/import", &spec).unchunked();
    assert!(imported.contains("\"quota_schedules\""), "{imported}");
}

#[test]
fn an_engine_with_nothing_to_do_has_no_backlog() {
    let (_home, server) = fresh();
    let backlog = server.call("GET", "/v1/backlog", "").json();
    let buckets = backlog["buckets"].as_array().unwrap();
    assert!(buckets.len() > 2 && buckets.last().unwrap()["below_ms"].is_null(), "{backlog}");
    assert!(buckets.iter().all(|bucket| bucket["strict"] == 0 && bucket["catchup"] == 0), "{backlog}");
    assert_eq!((&backlog["oldest_unprocessed"], &backlog["estimated_drain_seconds"]), (&Value::Null, &json!(0.0)));
}
