//! The real server killed with SIGKILL while schedules are paused, resumed, updated, canceled, triggered and made again:
//! what the history says is what the streams hold, and what a receipt called off never stands in them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{redis_server::RedisServer, redis_view, server::Server};

/// How often the server is killed.
const KILLS: u64 = 15;
/// How many schedules are changed all the time.
const SCHEDULES: usize = 8;
/// Instants later than this before the end may still be on their way.
const SETTLE: Duration = Duration::from_secs(4);

/// Small numbers that look random, the same for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// What callers were told.
#[derive(Default)]
struct Told {
    /// Every occurrence that a receipt called canceled.
    called_off: BTreeSet<String>,
    /// The latest version of each schedule.
    versions: BTreeMap<String, u64>,
    triggered: BTreeSet<String>,
    calls: BTreeMap<&'static str, usize>,
}

impl Told {
    fn hear(&mut self, call: &'static str, answer: &Value) {
        let id = answer["schedule"]["schedule_id"].as_str().unwrap().to_owned();
        let version = answer["schedule"]["version"].as_u64().unwrap();
        let before = self.versions.insert(id, version).unwrap_or_default();
        assert!(version >= before, "version {version} after {before}");
        let canceled = answer["receipt"]["canceled"].as_array().into_iter().flatten();
        self.called_off.extend(canceled.map(|id| id.as_str().unwrap().to_owned()));
        *self.calls.entry(call).or_default() += 1;
    }

    /// One call on one of the schedules, chosen by the dice.
    fn change(&mut self, server: &Server, dice: &mut Dice) {
        let n = dice.below(SCHEDULES as u64);
        let key = format!("job-{n}");
        let every = 1 + dice.below(2);
        let spec = format!(r#"{{"tenant":"acme","queue":"mail","rule":{{"every":"{every}s"}},"payload":"{n}"}}"#);
        let made = server.send("POST", "/v1/schedules", &[("Idempotency-Key", &key)], spec.as_bytes());
        let id = match made.status {
            200 | 201 => {
                self.hear("create", &made.json());
                made.json()["schedule"]["schedule_id"].as_str().unwrap().to_owned()
            }
            // It stands under another interval: the id is what the key stands for.
            409 => countwheel::kernel::id::ScheduleId::from_key("acme", &key).to_string(),
            other => panic!("{other}: {made:?}"),
        };
        let path = format!("/v1/schedules/{id}");
        let (call, reply) = match dice.below(6) {
            0 => ("pause", server.call("POST", &format!("{path}/pause"), "")),
            1 | 2 => ("resume", server.call("POST", &format!("{path}/resume"), "")),
            3 => {
                let pending = ["cancel", "keep"][usize::from(dice.below(2) == 1)];
                let body = format!(r#"{{"rule":{{"every":"{every}s"}},"payload":"{}"}}"#, dice.below(1_000));
                ("update", server.call("PATCH", &format!("{path}?pending={pending}"), &body))
            }
            4 => ("cancel", server.call("DELETE", &path, "")),
            _ => ("trigger", server.call("POST", &format!("{path}/trigger"), "")),
        };
        match reply.status {
            201 => drop(self.triggered.insert(reply.json()["occurrence_id"].as_str().unwrap().to_owned())),
            200 => self.hear(call, &reply.json()),
            // The key's schedule was canceled, and what it was asked for needs another life.
            409 => assert_eq!(reply.json()["error"]["code"], "canceled", "{call}: {reply:?}"),
            _ => panic!("{call}: {reply:?}"),
        }
    }
}

/// A schedule's whole history.
fn history(server: &Server, schedule: &str) -> Vec<Value> {
    let (mut items, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = server.call("GET", &format!("/v1/schedules/{schedule}/occurrences?limit=500{cursor}"), "").json();
        items.extend(page["items"].as_array().unwrap().iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return items,
        }
    }
}

/// How often each occurrence stands in the streams.
fn in_streams(url: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    let mut client = redis_view::client(url);
    for shard in 0..2 {
        for lane in ["strict", "catchup"] {
            let key = format!("cw:{{mail.{shard}}}:{lane}");
            let entries: Vec<(String, Vec<String>)> =
                redis::cmd("XRANGE").arg(key).arg("-").arg("+").query(&mut client).unwrap();
            for (_, fields) in entries {
                *found.entry(fields[1].clone()).or_default() += 1;
            }
        }
    }
    found
}

#[test]
fn what_receipts_and_histories_say_is_so_in_the_streams_after_fifteen_kills() {
    let redis = RedisServer::start(&[]);
    let url = redis.url();
    let dir = tempfile::tempdir().unwrap();
    let more = ["--shards", "2", "--redis", &url];
    let (mut dice, mut told) = (Dice(23), Told::default());
    println!("seed 23");
    let mut server = Server::start(dir.path(), &more);
    // Consumers that claim nothing: what stands in a stream has run.
    assert_eq!(server.call("PUT", "/v1/queues/mail", r#"{"tracked":false}"#).status, 200);
    for _ in 0..KILLS {
        let (begun, life) = (Instant::now(), Duration::from_millis(200 + dice.below(900)));
        while begun.elapsed() < life {
            told.change(&server, &mut dice);
        }
        drop(server); // SIGKILL
        server = Server::start(dir.path(), &more);
    }
    std::thread::sleep(SETTLE);
    let streams = in_streams(&url);
    assert!(streams.values().all(|times| *times == 1), "an occurrence stands there twice");
    let off: Vec<_> = told.called_off.iter().filter(|id| streams.contains_key(*id)).collect();
    assert!(off.is_empty(), "called off, and in a stream: {off:?}");
    let mut known = BTreeSet::new();
    for schedule in told.versions.keys() {
        let shown = server.call("GET", &format!("/v1/schedules/{schedule}"), "").json();
        assert!(shown["schedule"]["version"].as_u64() >= Some(told.versions[schedule]));
        for item in history(&server, schedule) {
            let Some(id) = item["occurrence_id"].as_str() else { continue };
            known.insert(id.to_owned());
            let stands_there = streams.contains_key(id);
            match item["state"].as_str().unwrap() {
                "ENQUEUED" => {
                    let late = item["enqueued_at"].as_str() >= item["scheduled_for"].as_str();
                    assert!(late, "{item} was early");
                }
                "SCHEDULED" => {}
                _ => assert!(!stands_there, "{item} stands in a stream"),
            }
        }
    }
    // What was enqueued between the two looks is in the history alone.
    assert!(streams.keys().all(|id| known.contains(id)), "the streams hold what no history knows");
    assert!(told.triggered.iter().all(|id| streams.contains_key(id) || told.called_off.contains(id)));
    for call in ["create", "pause", "resume", "update", "cancel"] {
        assert!(told.calls.get(call).is_some_and(|calls| *calls > 20), "{call} was tried too seldom: {:?}", told.calls);
    }
}
