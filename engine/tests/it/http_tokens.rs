//! Who may do what: every call that the document knows, under every role.

use std::{
    fs,
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::server::{Reply, Server, refused};

struct House {
    home: tempfile::TempDir,
    server: Server,
}

fn line(role: &str, token: &str) -> String {
    let digest: String = Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{role} {digest} for {token}\n")
}

impl House {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let tokens = home.path().join("tokens");
        let lines = [
            ("admin", "root"),
            ("tenant:acme", "mine"),
            ("tenant:other", "theirs"),
            ("worker:q", "work"),
            ("worker:elsewhere", "away"),
        ];
        fs::write(&tokens, lines.map(|(role, token)| line(role, token)).concat()).unwrap();
        let more = ["--shards", "2", "--tokens", tokens.to_str().unwrap()];
        let server = Server::start(&home.path().join("data"), &more);
        Self { home, server }
    }

    fn call(&self, token: &str, method: &str, path: &str, body: &str) -> Reply {
        let bearer = format!("Bearer {token}");
        self.server.send(method, path, &[("Authorization", &bearer)], body.as_bytes())
    }

    /// Every call of the document with ids filled in, and a body that is in order.
    fn calls(&self, schedule: &str, occurrence: &str) -> Vec<(String, String, String)> {
        let document = self.call("root", "GET", "/v1/openapi.json", "").json();
        let mut calls = Vec::new();
        for (path, operations) in document["paths"].as_object().unwrap() {
            let id = match path.as_str() {
                "/v1/queues/{id}/claim" => "q",
                path if path.contains("/occurrences/{id}") => occurrence,
                _ => schedule,
            };
            let run = |more: Value| {
                let mut run = json!({"occurrence_id": occurrence, "lease_token": "000000000000000000000000"});
                run.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                run.to_string()
            };
            for method in operations.as_object().unwrap().keys() {
                let body = match path.rsplit('/').next().unwrap() {
                    _ if method == "get" || method == "delete" => String::new(),
                    "schedules" | "import" => mine().to_string(),
                    "claim" if path.contains("/queues/") => {
                        json!({"worker": "w", "max": 1, "lease_ms": 60_000}).to_string()
                    }
                    "claim" => json!({"worker": "w", "lease_ms": 60_000, "schedule_id": schedule}).to_string(),
                    "heartbeat" => run(json!({"lease_ms": 60_000})),
                    "complete" => run(json!({})),
                    "fail" => run(json!({"class": "transient"})),
                    "resolve" => json!({"outcome": "retry", "reviewer": "me", "note": ""}).to_string(),
                    "preview" => json!({"rule": {"every": "5m"}}).to_string(),
                    "backfill" => json!({"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}).to_string(),
                    _ => "{}".to_owned(),
                };
                calls.push((method.to_uppercase(), path.replace("{id}", id), body));
            }
        }
        assert!(calls.len() > 15, "{calls:?}");
        calls
    }
}

fn mine() -> Value {
    json!({"tenant": "acme", "queue": "q", "rule": {"every": "5m"}})
}

/// What is set for everybody, or counted over everybody.
fn is_admins(method: &str, path: &str) -> bool {
    let sets_a_tenant = method == "PUT" && path.starts_with("/v1/tenants/");
    sets_a_tenant || path.starts_with("/v1/queues/") || ["/metrics", "/v1/backlog"].contains(&path)
}

/// What workers do.
fn is_workers(path: &str) -> bool {
    path.starts_with("/v1/runs/") || path.ends_with("/claim")
}

/// A schedule and an occurrence of acme.
fn acme(house: &House) -> (String, String) {
    let made = house.call("mine", "POST", "/v1/schedules", &json!({"queue": "q", "rule": {"every": "5m"}}).to_string());
    assert_eq!((made.status, &made.json()["schedule"]["tenant"]), (201, &json!("acme")), "the token says whose it is");
    let schedule = made.json()["schedule"]["schedule_id"].as_str().unwrap().to_owned();
    let triggered = house.call("mine", "POST", &format!("/v1/schedules/{schedule}/trigger"), "").json();
    (schedule, triggered["occurrence_id"].as_str().unwrap().to_owned())
}

#[test]
fn without_a_token_that_is_known_only_health_is_told() {
    let house = House::new();
    let (schedule, occurrence) = acme(&house);
    for (method, path, body) in house.calls(&schedule, &occurrence) {
        let open = ["/healthz", "/readyz"].contains(&path.as_str());
        for headers in [
            vec![],
            vec![("Authorization", "Bearer unknown")],
            vec![("Authorization", "Basic cm9vdA==")],
            vec![("Authorization", "root")],
            vec![("Authorization", "Bearer ")],
        ] {
            let reply = house.server.send(&method, &path, &headers, body.as_bytes());
            if open {
                assert_eq!(reply.status, 200, "{method} {path}");
                continue;
            }
            assert_eq!(reply.refusal(), (401, "unauthorized".into(), None), "{method} {path} {headers:?}");
            assert!(reply.head.contains("\r\nwww-authenticate: bearer"), "{reply:?}");
        }
    }
    assert_eq!(house.server.call("GET", "/nothing", "").refusal().0, 401, "nor what there is");
    assert_eq!(house.call("root", "GET", "/nothing", "").refusal().0, 404);
    assert_eq!(house.call("root", "PUT", "/v1/schedules", "").refusal().0, 405);
}

#[test]
fn what_is_another_tenants_is_not_there() {
    let house = House::new();
    let (schedule, occurrence) = acme(&house);
    for (method, path, body) in house.calls(&schedule, &occurrence) {
        let reply = house.call("theirs", &method, &path, &body);
        let is_own = ["/healthz", "/readyz", "/v1/openapi.json", "/v1/preview"].contains(&path.as_str());
        match (reply.status, path.as_str()) {
            (200, _) if is_own => {}
            (200, "/v1/schedules" | "/v1/dead" | "/v1/held") => assert_eq!(reply.json()["items"], json!([])),
            (200, "/v1/schedules/import") => assert!(reply.body.contains("\"not_found\""), "{reply:?}"),
            (403, _) if is_admins(&method, &path) || is_workers(&path) => {}
            _ => assert_eq!(reply.refusal().0, 404, "{method} {path}: {reply:?}"),
        }
    }
    for query in ["tenant=acme", "tenant=nobody"] {
        for path in ["/v1/schedules", "/v1/dead", "/v1/held"] {
            assert_eq!(house.call("theirs", "GET", &format!("{path}?{query}"), "").refusal().0, 404, "{path} {query}");
        }
    }
    let kept = house.call("mine", "GET", &format!("/v1/schedules/{schedule}"), "").json();
    assert_eq!((&kept["schedule"]["version"], &kept["schedule"]["state"]), (&json!(1), &json!("active")));
}

#[test]
fn each_role_does_what_is_its_own() {
    let house = House::new();
    let (schedule, occurrence) = acme(&house);
    for token in ["mine", "root"] {
        for path in [format!("/v1/schedules/{schedule}"), format!("/v1/occurrences/{occurrence}")] {
            assert_eq!(house.call(token, "GET", &path, "").status, 200, "{token} {path}");
        }
    }
    assert_eq!(house.call("root", "GET", "/metrics", "").status, 200);
    assert_eq!(house.call("mine", "GET", "/v1/tenants/acme", "").json()["weight"], 1, "its own");
    assert_eq!(house.call("theirs", "GET", "/v1/tenants/acme", "").refusal().0, 404);
    for (method, path) in
        [("GET", "/metrics"), ("PUT", "/v1/tenants/acme"), ("GET", "/v1/queues/q"), ("GET", "/v1/backlog")]
    {
        assert_eq!(house.call("mine", method, path, "{}").refusal(), (403, "forbidden".into(), None), "{path}");
    }
    for (method, path, body) in house.calls(&schedule, &occurrence) {
        let [there, away] = ["work", "away"].map(|token| house.call(token, &method, &path, &body));
        if is_workers(&path) {
            // The lease token in these bodies was never granted.
            assert!([200, 409].contains(&there.status), "{method} {path}: {there:?}");
            let foreign = if path.starts_with("/v1/runs/") { (409, "stale_lease") } else { (403, "forbidden") };
            assert_eq!(away.refusal(), (foreign.0, foreign.1.into(), None), "{method} {path}");
            continue;
        }
        for reply in [there, away] {
            let is_open = reply.status == 200 && ["/healthz", "/readyz"].contains(&path.as_str());
            assert!(is_open || reply.refusal() == (403, "forbidden".into(), None), "{method} {path}: {reply:?}");
        }
    }
    let anonymous = json!({"queue": "q", "rule": {"every": "5m"}}).to_string();
    let reply = house.call("root", "POST", "/v1/schedules", &anonymous);
    assert_eq!(reply.refusal(), (422, "invalid".into(), Some("tenant".into())), "the admin has to say whose");
    let lower = house.server.send("GET", "/v1/schedules", &[("authorization", "bearer mine")], b"");
    assert_eq!(lower.status, 200, "the scheme is read in any case");
}

#[test]
fn a_worker_speaks_of_its_own_queues_runs_and_of_no_other() {
    let house = House::new();
    let (_, occurrence) = acme(&house);
    let claim = json!({"worker": "w", "max": 1, "lease_ms": 60_000, "wait_ms": 10_000}).to_string();
    assert_eq!(house.call("away", "POST", "/v1/queues/q/claim", &claim).refusal().0, 403);
    let run = house.call("work", "POST", "/v1/queues/q/claim", &claim).json()["runs"][0].clone();
    assert_eq!(run["occurrence_id"], occurrence.as_str());
    let done = json!({"occurrence_id": occurrence, "lease_token": run["lease_token"]});
    let many = json!({"runs": [done, done]}).to_string();
    let results = house.call("away", "POST", "/v1/runs/complete", &many).json()["results"].clone();
    let codes = [&results[0]["error"]["code"], &results[1]["error"]["code"]];
    assert_eq!(codes, ["stale_lease"; 2], "the token is right, and the queue is not its own");
    assert_eq!(house.call("mine", "POST", "/v1/runs/complete", &done.to_string()).refusal().0, 403);
    let results = house.call("work", "POST", "/v1/runs/complete", &many).json()["results"].clone();
    assert_eq!(results, json!([{"state": "SUCCEEDED"}, {"state": "SUCCEEDED"}]));
    assert_eq!(
        house
            .call("away", "POST", "/v1/queues/elsewhere/claim", "{\"worker\":\"w\",\"max\":1,\"lease_ms\":1000}")
            .json(),
        json!({"runs": []})
    );
}

#[test]
fn a_token_that_is_taken_back_lets_nobody_in_once_the_file_was_read_again() {
    let house = House::new();
    let tokens = house.home.path().join("tokens");
    let status = |token: &str| house.call(token, "GET", "/v1/schedules", "").status;
    let patience = Instant::now() + Duration::from_secs(30);
    let wait_for = |token: &str, wanted: u16| {
        while status(token) != wanted {
            assert!(Instant::now() < patience, "{token} still answers {}", status(token));
            sleep(Duration::from_millis(20));
        }
    };
    fs::write(&tokens, line("admin", "fresh") + &line("tenant:acme", "mine")).unwrap();
    assert_eq!((status("fresh"), status("root")), (401, 200), "nobody has asked to read it");
    house.server.signal(rustix::process::Signal::HUP);
    wait_for("fresh", 200);
    assert_eq!((status("root"), status("mine"), status("theirs")), (401, 200, 401));
    fs::write(&tokens, "admin nonsense\n").unwrap();
    house.server.signal(rustix::process::Signal::HUP);
    sleep(Duration::from_millis(200));
    assert_eq!((status("fresh"), status("mine")), (200, 200), "a file that is not in order changes nothing");
}

#[test]
fn a_file_of_tokens_that_is_not_in_order_starts_no_server() {
    let house = House::new();
    let bad = house.home.path().join("bad");
    let data = house.home.path().join("elsewhere");
    for (text, part) in [("admin nonsense\n", "line 1: "), ("# nobody\n", "no token")] {
        fs::write(&bad, text).unwrap();
        let (code, said) = refused(&["--data", data.to_str().unwrap(), "--tokens", bad.to_str().unwrap()]);
        assert_eq!(code, Some(2), "a setting that cannot be used: {said}");
        assert!(said.lines().any(|line| line.starts_with("countwheel: ") && line.contains(part)), "{said}");
        assert!(!data.exists(), "nothing was made");
    }
}
