//! What became of it: `explain` and `history` on the directory of a real server, while it runs and after it was killed.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use countwheel::{
    Engine, NewSchedule,
    builder::SyncPolicy,
    engine::{
        Claim, ClaimedRun,
        runs::{FailedRun, FailureClass, Speaking},
    },
    kernel::{
        changes::RetryChanges,
        id::{Kind, OccurrenceId, ScheduleId},
        time::UnixMs,
    },
};
use serde_json::{Value, json};

use crate::server::{Server, countwheel};

/// What a command said, and its code.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

fn asks(arguments: &[&str], data: &Path) -> Said {
    let output = countwheel().args(arguments).arg("--data").arg(data).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

impl Said {
    fn json(&self) -> Value {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{self:?}");
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The one line that it failed with.
    fn failed(&self, code: i32) -> &str {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.err.starts_with("countwheel: ") && self.err.lines().count() == 1, "{self:?}");
        self.err.trim_end()
    }
}

fn history(data: &Path, id: &str) -> Value {
    asks(&["history", id, "--json"], data).json()
}

fn explain(data: &Path, id: &str) -> Value {
    asks(&["explain", id, "--json"], data).json()
}

fn create(server: &Server, spec: &Value) -> String {
    let reply = server.call("POST", "/v1/schedules", &spec.to_string());
    assert_eq!(reply.status, 201, "{reply:?}");
    reply.json()["schedule"]["schedule_id"].as_str().unwrap().to_owned()
}

fn call(server: &Server, method: &str, path: &str, body: &str) -> Value {
    let reply = server.call(method, path, body);
    assert!((200..300).contains(&reply.status), "{reply:?}");
    reply.json()
}

/// A history as the server tells it, without what only one of the two tells.
fn as_served(server: &Server, id: &str) -> Vec<Value> {
    let mut items = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = call(server, "GET", &format!("/v1/schedules/{id}/occurrences?limit=500{cursor}"), "");
        items.extend(page["items"].as_array().unwrap().iter().map(bare));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return items,
        }
    }
}

fn bare(item: &Value) -> Value {
    let fields = [
        "occurrence_id",
        "kind",
        "lane",
        "scheduled_for",
        "scheduled_until",
        "count",
        "available_at",
        "state",
        "reason",
    ];
    let of = fields.into_iter().filter_map(|field| Some((field.to_owned(), item.get(field)?.clone())));
    Value::Object(of.collect())
}

fn states(history: &Value) -> Vec<&str> {
    history["items"].as_array().unwrap().iter().map(|item| item["state"].as_str().unwrap()).collect()
}

/// Reads again until it is so: the log's last second may be on its way.
fn eventually<T>(what: impl Fn() -> T, is_so: impl Fn(&T) -> bool) -> T {
    for _ in 0..200 {
        let seen = what();
        if is_so(&seen) {
            return seen;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("it never came to be so");
}

const NIGHT: [&str; 4] = ["--rehearse-from", "2026-10-25T00:30:00Z", "--rehearse-speed", "60"];

/// A server whose clock runs through the night in which Berlin's clocks go back, and starts over the outage that follows.
#[test]
fn instants_are_told_with_their_local_time_and_missed_ones_are_found_by_their_id() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let server = Server::start(&data, &[&["--shards", "2"][..], &NIGHT].concat());
    let spec = json!({
        "tenant": "acme", "queue": "mail", "name": "night watch", "payload": "secret",
        "rule": {"cron": "* * * * *", "zone": "Europe/Berlin"}, "max_lateness": "1m",
    });
    let id = create(&server, &spec);
    let enqueued = |history: &Value| states(history).iter().filter(|state| **state == "ENQUEUED").count();
    eventually(|| history(&data, &id), |seen| enqueued(seen) >= 4);
    drop(server); // SIGKILL
    let killed = history(&data, &id);
    assert_eq!(killed["items"][0]["scheduled_for"], "2026-10-25T00:31:00.000Z");
    assert_eq!(killed["log"]["ending"], "in use, or its process was killed");
    let first = explain(&data, killed["items"][0]["occurrence_id"].as_str().unwrap());
    let local = json!({"time": "2026-10-25T02:31:00", "offset": "+02:00", "zone": "Europe/Berlin"});
    assert_eq!((&first["local"], &first["state"]), (&local, &json!("ENQUEUED")));
    let named: Vec<&str> =
        first["steps"].as_array().unwrap().iter().map(|step| step["step"].as_str().unwrap()).collect();
    assert_eq!(named, ["materialized", "enqueued"]);
    assert_eq!(first["steps"][0]["segment"], "00000000000000000001.wal");
    assert_eq!((&first["stood"]["payload_bytes"], first["stood"]["spec"].get("payload")), (&json!(6), None));

    let server = Server::start(&data, &["--rehearse-from", "2026-10-25T05:05:00Z", "--rehearse-speed", "60"]);
    let seen = eventually(|| history(&data, &id), |seen| states(seen).contains(&"MISSED"));
    let range = seen["items"].as_array().unwrap().iter().find(|item| item["count"].is_u64()).unwrap();
    let schedule: ScheduleId = id.parse().unwrap();
    let of = |text: &str, version| {
        let at = UnixMs::parse_rfc3339(text).unwrap();
        OccurrenceId::of(schedule, version, at, Kind::Regular, b"").to_string()
    };
    let missed = explain(&data, &of("2026-10-25T04:20:00Z", 1));
    assert_eq!((&missed["state"], &missed["range"]["count"]), (&json!("MISSED"), &range["count"]));
    assert!(missed["why"].as_str().unwrap().starts_with("that instant was missed, with "), "{missed}");
    assert_eq!(missed["local"]["offset"], "+01:00");
    let text = asks(&["explain", &of("2026-10-25T04:20:00Z", 1)], &data);
    assert!(text.out.contains("became         MISSED: that instant was missed"), "{text:?}");
    let pending = explain(&data, &of("2026-12-24T00:00:00Z", 1));
    assert!(pending["state"].is_null() && pending["why"].as_str().unwrap().contains("not decided yet"), "{pending}");
    let none = explain(&data, &of("2026-10-25T04:20:30Z", 1));
    assert!(none["why"].as_str().unwrap().contains("no such instant"), "{none}");
    drop(server);
}

#[test]
fn a_history_from_the_log_is_the_one_that_the_server_tells() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let server = Server::start(&data, &["--shards", "3", "--segment-bytes", "1MiB", "--reserve-bytes", "0"]);
    let rule = json!({"cron": "* * * * * *", "zone": "Asia/Kolkata"});
    let spec = json!({"tenant": "acme", "queue": "mail", "rule": rule, "flexible_window": "900ms"});
    let ids: Vec<String> = (0..4).map(|_| create(&server, &spec)).collect();
    std::thread::sleep(Duration::from_millis(2_300));
    for id in &ids {
        let path = format!("/v1/schedules/{id}");
        call(&server, "POST", &format!("{path}/pause"), "");
        call(&server, "POST", &format!("{path}/trigger"), "");
    }
    std::thread::sleep(Duration::from_millis(1_200));
    for id in &ids {
        let path = format!("/v1/schedules/{id}");
        call(&server, "POST", &format!("{path}/resume"), "");
        let from = UnixMs::parse_rfc3339(history(&data, id)["versions"][0]["valid_from"].as_str().unwrap()).unwrap();
        let window = json!({"from": from.to_string(), "to": from.plus(2_000).to_string()});
        call(&server, "POST", &format!("{path}/backfill"), &window.to_string());
        call(&server, "PATCH", &path, r#"{"name":"renamed"}"#);
        std::thread::sleep(Duration::from_millis(300));
        call(&server, "DELETE", &path, "");
    }
    for id in &ids {
        let served = as_served(&server, id);
        let told = eventually(
            || history(&data, id),
            |told| told["items"].as_array().unwrap().iter().map(bare).eq(served.iter().cloned()),
        );
        let calls: Vec<&str> =
            told["calls"].as_array().unwrap().iter().map(|of| of["call"].as_str().unwrap()).collect();
        assert_eq!(calls, ["create", "pause", "trigger", "resume", "backfill", "update", "cancel"]);
        assert_eq!(told["versions"].as_array().unwrap().len(), 4);
        for item in told["items"].as_array().unwrap().iter().filter(|item| item["occurrence_id"].is_string()) {
            let explained = explain(&data, item["occurrence_id"].as_str().unwrap());
            for field in ["state", "reason", "version", "kind", "available_at", "enqueued_at"] {
                assert_eq!(explained[field], item[field], "{field} of {explained}");
            }
            assert_eq!(explained["schedule_id"], id.as_str());
        }
    }
    drop(server);
    let text = asks(&["history", &ids[0]], &data);
    assert!(text.code == Some(0) && text.out.contains("CANCELED(paused)") && text.out.contains("in all"), "{text:?}");
    let window = ["history", &ids[0], "--json", "--from", "2199-01-01T00:00:00Z"];
    let later = asks(&window, &data).json();
    assert!(later["items"].as_array().unwrap().is_empty() && later["versions"].as_array().unwrap().len() == 4);
}

async fn claim(engine: &Engine) -> ClaimedRun {
    let claim = Claim { max: 1, wait: Duration::from_secs(20), ..Claim::new("w-17") };
    engine.claim("mail", &claim).await.unwrap().remove(0)
}

#[tokio::test]
async fn attempts_are_told_with_their_worker_their_end_and_what_followed() {
    let home = tempfile::tempdir().unwrap();
    let builder = Engine::builder(home.path()).shards(2).segment_bytes(1 << 20).reserve_bytes(0).sync(SyncPolicy::Os);
    let engine = builder.open().await.unwrap();
    let retry = RetryChanges {
        max_attempts: Some(2),
        base: Some(Duration::from_millis(100)),
        cap: Some(Duration::from_millis(100)),
        ..RetryChanges::default()
    };
    let schedule = NewSchedule::every(Duration::from_secs(86_400)).tenant("acme").queue("mail").retry(retry);
    let made = engine.create(schedule).await.unwrap();
    let id = engine.trigger(made.schedule.id, None).await.unwrap().occurrence_id.to_string();
    for said in ["no route", "still none"] {
        let run = claim(&engine).await;
        let failed = FailedRun { class: FailureClass::Transient, message: Some(said.to_owned()) };
        let failed = Speaking::new(run.occurrence_id, run.lease_token, failed);
        engine.fail(vec![failed]).await.unwrap().remove(0).unwrap();
    }
    let seen = eventually(|| explain(home.path(), &id), |seen| seen["state"] == "DEAD");
    assert_eq!(
        (&seen["reason"], &seen["attempt_count"], &seen["kind"]),
        (&json!("max_attempts"), &json!(2), &json!("manual"))
    );
    let steps = seen["steps"].as_array().unwrap();
    let claims: Vec<_> = steps.iter().filter(|step| step["step"] == "claimed").map(|step| &step["worker"]).collect();
    assert_eq!(claims, ["w-17", "w-17"]);
    let failures: Vec<_> = steps
        .iter()
        .filter(|step| step["step"] == "failed")
        .map(|step| {
            (step["message"].as_str().unwrap(), step["then"].as_str().unwrap(), step["class"].as_str().unwrap())
        })
        .collect();
    assert_eq!(failures, [("no route", "RETRY_WAIT", "transient"), ("still none", "DEAD", "transient")]);
    let text = asks(&["explain", &id], home.path());
    assert!(text.out.contains("attempt 1: failed for now \"no route\", tried again after "), "{text:?}");
    engine.stop().await.unwrap();
    assert_eq!(explain(home.path(), &id)["log"]["ending"], "closed");
}

/// The segment that a shard's log ends in, and where its bytes end.
fn end_of_log(data: &Path) -> (PathBuf, usize) {
    let wal = data.join("shard-0000/wal");
    let entries = std::fs::read_dir(wal).unwrap().map(|entry| entry.unwrap().path());
    let segment = entries.filter(|path| path.extension().is_some_and(|of| of == "wal")).max().unwrap();
    let bytes = std::fs::read(&segment).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    (segment, used.next_multiple_of(4_096))
}

#[test]
fn what_is_cut_short_is_left_out_and_what_is_damaged_is_said_with_the_rest() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let server = Server::start(&data, &["--shards", "1", "--segment-bytes", "1MiB", "--reserve-bytes", "0"]);
    let id = create(&server, &json!({"tenant": "acme", "queue": "mail", "rule": {"every": "24h"}}));
    let made = call(&server, "POST", &format!("/v1/schedules/{id}/trigger"), "");
    let occurrence = made["occurrence_id"].as_str().unwrap();
    eventually(|| explain(&data, occurrence), |seen| seen["state"] == "ENQUEUED");
    drop(server);
    let (segment, end) = end_of_log(&data);
    let whole = std::fs::read(&segment).unwrap();
    let mut torn = whole.clone();
    torn[end..end + 100].fill(7);
    std::fs::write(&segment, &torn).unwrap();
    let seen = explain(&data, occurrence);
    assert_eq!(
        (&seen["state"], &seen["log"]["ending"]),
        (&json!("ENQUEUED"), &json!("in use, or its last write was cut short"))
    );
    let mut damaged = whole;
    damaged[4_096 + 106] ^= 1;
    std::fs::write(&segment, &damaged).unwrap();
    let said = asks(&["explain", occurrence], &data);
    assert!(said.failed(1).contains("damage"), "{said:?}");
    let said = asks(&["history", &id], &data);
    said.failed(1);
}

#[test]
fn what_nobody_knows_and_what_is_no_id_are_told_apart() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let server = Server::start(&data, &["--shards", "2"]);
    let unknown = "01a22e56-1c48-826c-a214-73541387c547";
    let said = asks(&["explain", unknown], &data);
    assert!(said.failed(1).contains("has such an occurrence (2 shards searched, "), "{said:?}");
    let said = asks(&["history", unknown], &data);
    assert!(said.failed(1).contains("no such schedule"), "{said:?}");
    for bad in ["01a22e56", "01a22e56-1c48-426c-a214-73541387c547"] {
        asks(&["explain", bad], &data).failed(2);
    }
    let said = asks(&["explain", unknown], home.path());
    assert!(said.failed(2).contains("--data"), "{said:?}");
    let window = ["history", unknown, "--from", "2026-01-02T00:00:00Z", "--to", "2026-01-02T00:00:00Z"];
    asks(&window, &data).failed(2);
    drop(server);
}
