//! The life of a run over HTTP: claimed, kept alive, ended, and what people do when it went wrong.

use std::{
    collections::BTreeSet,
    thread::sleep,
    time::{Duration, Instant},
};

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

    fn post(&self, path: &str, body: &Value) -> Reply {
        self.server.call("POST", path, &body.to_string())
    }

    fn get(&self, path: &str) -> Value {
        self.server.call("GET", path, "").json()
    }

    /// A schedule that fires by itself long after the test, with more said of it.
    fn schedule(&self, more: Value) -> String {
        let mut spec = json!({"tenant": "acme", "queue": "q", "rule": {"every": "300d"}, "payload": "hi"});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let made = self.post("/v1/schedules", &spec);
        assert_eq!(made.status, 201, "{made:?}");
        made.json()["schedule"]["schedule_id"].as_str().unwrap().to_owned()
    }

    fn trigger(&self, schedule: &str) -> String {
        let triggered = self.post(&format!("/v1/schedules/{schedule}/trigger"), &json!({}));
        triggered.json()["occurrence_id"].as_str().unwrap().to_owned()
    }

    /// What the queue has next.
    fn claim(&self) -> Value {
        let claim = json!({"worker": "w", "max": 1, "lease_ms": 60_000, "wait_ms": 20_000});
        let claimed = self.post("/v1/queues/q/claim", &claim);
        assert_eq!(claimed.status, 200, "{claimed:?}");
        claimed.json()["runs"][0].clone()
    }

    /// A run of a schedule of its own.
    fn run(&self, more: Value) -> Run {
        let schedule = self.schedule(more);
        let occurrence = self.trigger(&schedule);
        let run = self.claim();
        assert_eq!(run["occurrence_id"], occurrence.as_str(), "{run}");
        Run { schedule, occurrence, token: run["lease_token"].as_str().unwrap().to_owned() }
    }

    /// The ids of all items: a page may be short, or empty, and not the last one.
    fn listed(&self, path: &str) -> Vec<String> {
        let (mut ids, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = self.get(&format!("{path}&cursor={cursor}"));
            let items = page["items"].as_array().unwrap().iter();
            ids.extend(items.map(|item| item["occurrence_id"].as_str().unwrap().to_owned()));
            match page["next_cursor"].as_str() {
                Some(next) => cursor = next.to_owned(),
                None => return ids,
            }
        }
    }

    fn occurrence(&self, id: &str) -> Value {
        self.get(&format!("/v1/occurrences/{id}"))
    }
}

struct Run {
    schedule: String,
    occurrence: String,
    token: String,
}

impl Run {
    fn said(&self, more: &Value) -> Value {
        let mut said = json!({"occurrence_id": self.occurrence, "lease_token": self.token});
        said.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        said
    }

    fn done(&self) -> Value {
        self.said(&json!({}))
    }

    fn beat(&self) -> Value {
        self.said(&json!({"lease_ms": 60_000}))
    }

    fn failed(&self, class: &str) -> Value {
        self.said(&json!({"class": class, "message": "no"}))
    }
}

const HEARTBEAT: &str = "/v1/runs/heartbeat";
const COMPLETE: &str = "/v1/runs/complete";
const FAIL: &str = "/v1/runs/fail";

fn conflict(code: &str) -> (u16, String, Option<String>) {
    (409, code.into(), None)
}

#[test]
fn a_run_is_claimed_kept_alive_and_completed_and_the_same_answer_comes_again() {
    let house = House::new();
    let schedule = house.schedule(json!({"retry": {"deadline": "1h"}}));
    let occurrence = house.trigger(&schedule);
    let run = house.claim();
    let expected = json!({"occurrence_id": occurrence, "schedule_id": schedule, "version": 1, "tenant": "acme",
        "kind": "manual", "attempt": 1, "payload": "hi", "payload_base64": null});
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&run[key], value, "{key}");
    }
    assert!(run["deadline"].as_str() > run["lease_expires_at"].as_str(), "{run}");
    let run = Run { schedule, occurrence, token: run["lease_token"].as_str().unwrap().to_owned() };
    let running = house.occurrence(&run.occurrence);
    assert_eq!((&running["state"], &running["attempts"][0]["result"]), (&json!("RUNNING"), &Value::Null));

    let beat = house.post(HEARTBEAT, &run.said(&json!({"lease_ms": 3_600_000}))).json();
    assert_eq!(beat["cancel_requested"], false);
    assert_eq!(house.occurrence(&run.occurrence)["attempts"][0]["lease_expires_at"], beat["lease_expires_at"]);

    for _ in 0..2 {
        let completed = house.post(COMPLETE, &run.said(&json!({"result_ref": "there"})));
        assert_eq!((completed.status, completed.json()), (200, json!({"state": "SUCCEEDED"})));
    }
    assert_eq!(house.post(HEARTBEAT, &run.beat()).refusal(), conflict("stale_lease"), "it is over");
    assert_eq!(house.post(FAIL, &run.failed("permanent")).refusal(), conflict("stale_lease"), "it is over");
    let ended = house.occurrence(&run.occurrence);
    let attempt = &ended["attempts"][0];
    assert_eq!((&ended["state"], &ended["attempt_count"]), (&json!("SUCCEEDED"), &json!(1)));
    assert_eq!((&attempt["worker"], &attempt["result"]), (&json!("w"), &json!("succeeded")));
    assert_eq!((&attempt["result_ref"], &attempt["class"]), (&json!("there"), &Value::Null));
    assert!(attempt["finished_at"].as_str() >= attempt["started_at"].as_str());
    let history = house.get(&format!("/v1/schedules/{}/occurrences", run.schedule));
    assert_eq!(history["items"], json!([ended]), "both show the same");
}

#[test]
fn a_token_that_holds_no_lease_changes_nothing() {
    let house = House::new();
    let run = house.run(json!({"retry": {"base": "0ms", "cap": "0ms"}}));
    let other = house.run(json!({}));
    let by = |occurrence: &str, token: &str| json!({"occurrence_id": occurrence, "lease_token": token});
    let unknown = "01234567-89ab-8def-8123-456789abcdef";
    for (said, status, code) in [
        (by(&run.occurrence, &format!("{}00000000000000000000", &run.token[..4])), 409, "stale_lease"),
        (by(&run.occurrence, &format!("{}ffffffffffffffffffff", &run.token[..4])), 409, "stale_lease"),
        (by(&run.occurrence, "ffffffffffffffffffffffff"), 409, "stale_lease"),
        (by(unknown, &run.token), 409, "stale_lease"),
        (by(&run.schedule, &run.token), 409, "stale_lease"),
    ] {
        for (path, more) in
            [(HEARTBEAT, json!({"lease_ms": 1_000})), (COMPLETE, json!({})), (FAIL, json!({"class": "transient"}))]
        {
            let mut body = said.clone();
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            assert_eq!(house.post(path, &body).refusal(), (status, code.into(), None), "{path} {said}");
        }
    }
    let swapped = house.post(COMPLETE, &by(&run.occurrence, &other.token)).refusal();
    assert_eq!(swapped, conflict("stale_lease"), "another run's token");

    let failed = house.post(FAIL, &run.failed("transient")).json();
    assert_eq!(failed["state"], "RETRY_WAIT");
    assert!(failed["retry_at"].is_string(), "{failed}");
    assert_eq!(house.post(FAIL, &run.failed("transient")).status, 200, "said again; it may have moved on meanwhile");
    let again = house.claim();
    assert_eq!((&again["occurrence_id"], &again["attempt"]), (&json!(run.occurrence), &json!(2)));
    assert!(again["lease_token"].as_str().unwrap() > run.token.as_str(), "tokens grow within a shard");
    assert_eq!(house.post(COMPLETE, &run.done()).refusal(), conflict("stale_lease"), "of the attempt before");
    let fresh = Run { token: again["lease_token"].as_str().unwrap().to_owned(), ..run };
    assert_eq!(house.post(COMPLETE, &fresh.done()).status, 200);
}

#[test]
fn of_several_runs_each_is_answered_in_its_place() {
    let house = House::new();
    let runs: Vec<Run> = (0..5).map(|_| house.run(json!({}))).collect();
    let unknown = json!({"occurrence_id": "01234567-89ab-8def-8123-456789abcdef", "lease_token": runs[0].token});
    let older = format!("{}00000000000000000000", &runs[1].token[..4]);
    let stale = json!({"occurrence_id": runs[1].occurrence, "lease_token": older});
    let with_lease = |mut said: Value| {
        said["lease_ms"] = json!(60_000);
        said
    };
    let beats = [runs[4].beat(), with_lease(stale.clone()), runs[0].beat(), with_lease(unknown.clone())];
    let results = house.post(HEARTBEAT, &json!({"runs": beats})).json()["results"].clone();
    assert_eq!((&results[0]["cancel_requested"], &results[2]["cancel_requested"]), (&json!(false), &json!(false)));
    assert_eq!(
        (&results[1]["error"]["code"], &results[3]["error"]["code"]),
        (&json!("stale_lease"), &json!("stale_lease"))
    );

    let done = [stale, runs[3].done(), unknown, runs[0].done(), runs[3].done()];
    let results = house.post(COMPLETE, &json!({"runs": done})).json()["results"].clone();
    let told: Vec<&Value> =
        results.as_array().unwrap().iter().map(|one| one.get("state").unwrap_or(&one["error"]["code"])).collect();
    assert_eq!(json!(told), json!(["stale_lease", "SUCCEEDED", "stale_lease", "SUCCEEDED", "SUCCEEDED"]));

    let bad =
        json!({"runs": [runs[1].failed("permanent"), {"occurrence_id": runs[2].occurrence, "class": "permanent"}]});
    let refusal = (422, "invalid".into(), Some("runs[1].lease_token".into()));
    assert_eq!(house.post(FAIL, &bad).refusal(), refusal);
    assert_eq!(house.occurrence(&runs[1].occurrence)["state"], "RUNNING", "nothing of the call was done");
    let failed = json!({"runs": [runs[1].failed("permanent"), runs[2].failed("canceled")]});
    let results = house.post(FAIL, &failed).json()["results"].clone();
    assert_eq!(results[0], json!({"state": "DEAD", "retry_at": null}));
    assert_eq!(results[1]["error"]["code"], "not_asked_to_stop");
}

#[test]
fn what_was_called_off_while_it_ran_may_still_succeed_and_is_not_tried_again() {
    let house = House::new();
    let patch = |run: &Run| {
        let path = format!("/v1/schedules/{}", run.schedule);
        assert_eq!(house.server.call("PATCH", &path, &json!({"payload": "other"}).to_string()).status, 200);
    };
    let run = house.run(json!({}));
    patch(&run);
    assert_eq!(house.post(HEARTBEAT, &run.beat()).json()["cancel_requested"], false, "an update does not stop it");
    assert_eq!(house.post(COMPLETE, &run.done()).json()["state"], "SUCCEEDED");
    let run = house.run(json!({}));
    patch(&run);
    assert_eq!(house.post(FAIL, &run.failed("transient")).json(), json!({"state": "CANCELED", "retry_at": null}));
    assert_eq!(house.occurrence(&run.occurrence)["reason"], "superseded");
    assert_eq!(house.post(COMPLETE, &run.done()).refusal(), conflict("stale_lease"));

    let run = house.run(json!({}));
    assert_eq!(house.post(FAIL, &run.failed("canceled")).refusal(), conflict("not_asked_to_stop"));
    let deleted = house.server.call("DELETE", &format!("/v1/schedules/{}", run.schedule), "").json();
    assert_eq!(deleted["receipt"]["cancel_requested"], json!([run.occurrence]));
    assert_eq!(house.post(HEARTBEAT, &run.beat()).json()["cancel_requested"], true);
    assert_eq!(house.post(FAIL, &run.failed("canceled")).json()["state"], "CANCELED");
    assert_eq!(house.post(HEARTBEAT, &run.beat()).refusal(), conflict("stale_lease"));
}

#[test]
fn what_is_dead_is_listed_looked_at_and_replayed_under_its_id() {
    let house = House::new();
    let mut runs: Vec<Run> = (0..3).map(|_| house.run(json!({}))).collect();
    runs.push(house.run(json!({"tenant": "other"})));
    let failed: Vec<Value> = runs.iter().map(|run| run.failed("permanent")).collect();
    house.post(FAIL, &json!({"runs": failed}));
    let listed = |filter: &str| {
        let ids = house.listed(&format!("/v1/dead?limit=1{filter}"));
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "each is listed once");
        ids.len()
    };
    assert_eq!([listed(""), listed("&tenant=acme"), listed("&tenant=other"), listed("&tenant=nobody")], [4, 3, 1, 0]);
    assert!(house.listed("/v1/held?limit=500").is_empty());

    let path = format!("/v1/occurrences/{}", runs[0].occurrence);
    let looked = house.get(&format!("{path}/evidence"));
    let evidence = &looked["evidence"];
    assert_eq!(evidence.as_object().unwrap().len(), 18);
    let expected = json!({"job_id": runs[0].schedule, "schedule_type": "interval", "timezone": null,
        "idempotency_key": runs[0].occurrence, "lease_id": runs[0].token, "lease_owner": "w", "attempt": 1,
        "run_state": "DEAD", "review_owner": null, "missed_run_policy": {"policy": "FIRE_ONCE"}});
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&evidence[key], value, "{key}");
    }
    assert_eq!(looked["decision"], "HOLD");
    assert!(looked["reasons"].as_array().unwrap().contains(&json!("review_owner_missing")));

    let resolve = json!({"outcome": "retry", "reviewer": "ops", "note": ""});
    assert_eq!(house.post(&format!("{path}/resolve"), &resolve).refusal(), conflict("not_held"));
    let replayed = house.post(&format!("{path}/replay"), &json!({})).json();
    assert_eq!((&replayed["occurrence_id"], &replayed["state"]), (&json!(runs[0].occurrence), &json!("ENQUEUED")));
    assert_eq!(house.post(&format!("{path}/replay"), &json!({})).refusal(), conflict("not_dead"));
    assert_eq!(listed("&tenant=acme"), 2);
    let again = house.claim();
    assert_eq!((&again["occurrence_id"], &again["attempt"]), (&json!(runs[0].occurrence), &json!(2)));
    house.server.call("DELETE", &format!("/v1/schedules/{}", runs[1].schedule), "");
    let gone = house.post(&format!("/v1/occurrences/{}/replay", runs[1].occurrence), &json!({}));
    assert_eq!(gone.refusal(), conflict("canceled"), "nothing of a deleted schedule is replayed");
}

#[test]
fn an_occurrence_is_claimed_by_its_id_once() {
    let house = House::new();
    let (schedule, other) = (house.schedule(json!({})), house.schedule(json!({})));
    let occurrence = house.trigger(&schedule);
    let claim = |schedule: &str, occurrence: &str| {
        let body = json!({"worker": "w", "lease_ms": 60_000, "schedule_id": schedule});
        house.post(&format!("/v1/occurrences/{occurrence}/claim"), &body)
    };
    let unknown = "01234567-89ab-8def-8123-456789abcdef";
    for (schedule, occurrence) in
        [(&*other, &*occurrence), (unknown, &occurrence), (&schedule, unknown), (&schedule, "x")]
    {
        assert_eq!(claim(schedule, occurrence).refusal(), (404, "not_found".into(), None), "{schedule} {occurrence}");
    }
    let run = claim(&schedule, &occurrence);
    assert_eq!((run.status, &run.json()["attempt"]), (200, &json!(1)), "{run:?}");
    assert_eq!(claim(&schedule, &occurrence).refusal(), conflict("already_running"));
    let token = run.json()["lease_token"].clone();
    let done = json!({"occurrence_id": occurrence, "lease_token": token});
    assert_eq!(house.post(COMPLETE, &done).status, 200);
    assert_eq!(claim(&schedule, &occurrence).refusal(), conflict("finished"));
    let later = house.trigger(&schedule);
    house.post(&format!("/v1/schedules/{schedule}/pause"), &json!({}));
    assert_eq!(claim(&schedule, &later).refusal(), conflict("paused"));
}

#[test]
fn the_same_claim_id_gets_the_same_runs_while_the_lease_lasts() {
    let house = House::new();
    let schedule = house.schedule(json!({}));
    for _ in 0..3 {
        house.trigger(&schedule);
    }
    let claim = |worker: &str, id: &str| {
        let body = json!({"worker": worker, "max": 1, "lease_ms": 60_000, "wait_ms": 10_000, "claim_id": id});
        let runs = house.post("/v1/queues/q/claim", &body).json()["runs"].clone();
        runs[0]["lease_token"].as_str().map(str::to_owned)
    };
    let first = claim("w", "one");
    assert!(first.is_some());
    assert_eq!(claim("w", "one"), first, "its answer was lost");
    let (second, third) = (claim("w", "two"), claim("v", "one"));
    assert!(second.is_some() && third.is_some() && second != first && third != first && second != third);
    for bad in ["", &"x".repeat(256), "a\nb", "a\u{202e}b"] {
        let body = json!({"worker": "w", "max": 1, "lease_ms": 60_000, "claim_id": bad});
        let refusal = (422, "invalid".into(), Some("claim_id".into()));
        assert_eq!(house.post("/v1/queues/q/claim", &body).refusal(), refusal);
    }
}

#[test]
fn a_claim_that_is_none_is_refused_before_anybody_waits() {
    let house = House::new();
    let claim = |queue: &str, field: &str, value: Value| {
        let mut body = json!({"worker": "w", "max": 1, "lease_ms": 60_000, "wait_ms": 60_000});
        body[field] = value;
        house.post(&format!("/v1/queues/{queue}/claim"), &body).refusal()
    };
    for (field, bad) in [
        ("worker", json!("")),
        ("worker", json!("x".repeat(256))),
        ("worker", json!("two\nlines")),
        ("max", json!(0)),
        ("max", json!(1_001)),
        ("lease_ms", json!(0)),
        ("lease_ms", json!(-1)),
        ("lease_ms", json!(31_536_000_000_u64)),
        ("lease_ms", json!(60_000.5)),
        ("wait_ms", json!(60_001)),
        ("priority", json!(1)),
    ] {
        assert_eq!(claim("q", field, bad.clone()), (422, "invalid".into(), Some(field.into())), "{bad}");
    }
    assert_eq!(claim("No", "max", json!(1)), (422, "invalid".into(), Some("queue".into())));
    let never_heard_of = json!({"worker": "w", "max": 1, "lease_ms": 60_000});
    assert_eq!(house.post("/v1/queues/nothing/claim", &never_heard_of).json(), json!({"runs": []}));
    let full = vec![json!({"occurrence_id": "x"}); 1_001];
    for runs in [json!([]), json!(full)] {
        let refusal = (422, "invalid".into(), Some("runs".into()));
        assert_eq!(house.post(COMPLETE, &json!({"runs": runs})).refusal(), refusal);
    }
}

#[test]
fn what_must_not_repeat_is_held_until_a_person_decides() {
    let house = House::new();
    let careful = json!({"effect": "non_idempotent", "review_owner": "ops", "misfire": {"policy": "SKIP"}});
    let schedule = house.schedule(careful);
    let occurrence = house.trigger(&schedule);
    let claim = json!({"worker": "w", "max": 1, "lease_ms": 1_000, "wait_ms": 20_000});
    let token = house.post("/v1/queues/q/claim", &claim).json()["runs"][0]["lease_token"].clone();
    let patience = Instant::now() + Duration::from_secs(60);
    while house.listed("/v1/held?tenant=acme") != [occurrence.as_str()] {
        assert!(Instant::now() < patience, "its lease is over and nobody holds it");
        sleep(Duration::from_millis(50));
    }
    let held = house.occurrence(&occurrence);
    assert_eq!((&held["state"], &held["reason"]), (&json!("HELD"), &json!("lease_expired_outcome_unknown")));
    assert_eq!(held["holds"], json!(["lease_expired_outcome_unknown"]));
    assert_eq!(held["attempts"][0]["result"], "lease_expired");
    let looked = house.get(&format!("/v1/occurrences/{occurrence}/evidence"));
    assert!(looked["reasons"].as_array().unwrap().contains(&json!("lease_expired_outcome_unknown")), "{looked}");
    assert_eq!((&looked["decision"], &looked["evidence"]["review_owner"]), (&json!("HOLD"), &json!("ops")));

    let late = json!({"occurrence_id": occurrence, "lease_token": token, "result_ref": "too late"});
    assert_eq!(house.post(COMPLETE, &late).refusal(), conflict("stale_lease"));
    let looked = house.get(&format!("/v1/occurrences/{occurrence}/evidence"));
    assert_eq!(looked["evidence"]["result_ref"], "too late", "it is kept as evidence");
    assert_eq!(house.post(&format!("/v1/occurrences/{occurrence}/replay"), &json!({})).refusal(), conflict("not_dead"));

    let resolve = format!("/v1/occurrences/{occurrence}/resolve");
    for (field, bad) in [
        ("reviewer", json!("")),
        ("reviewer", json!("x".repeat(1_025))),
        ("note", json!("\u{1b}[31m")),
        ("outcome", json!("maybe")),
    ] {
        let mut decided = json!({"outcome": "retry", "reviewer": "ops", "note": "nothing was booked"});
        decided[field] = bad;
        assert_eq!(house.post(&resolve, &decided).refusal(), (422, "invalid".into(), Some(field.into())));
    }
    let decided = json!({"outcome": "retry", "reviewer": "ops", "note": "nothing was booked"});
    assert_eq!(house.post(&resolve, &decided).json()["state"], "ENQUEUED");
    assert_eq!(house.post(&resolve, &decided).refusal(), conflict("not_held"));
    let again = house.claim();
    assert_eq!((&again["occurrence_id"], &again["attempt"]), (&json!(occurrence), &json!(2)));
    let done = json!({"occurrence_id": occurrence, "lease_token": again["lease_token"]});
    assert_eq!(house.post(COMPLETE, &done).json()["state"], "SUCCEEDED");
}
