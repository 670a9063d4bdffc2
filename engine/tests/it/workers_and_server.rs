//! Workers, the real server and a real Redis: whatever falls over, every occurrence succeeds once by the handlers' own
//! record.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use countwheel::{
    kernel::{
        id::{Kind, OccurrenceId},
        time::UnixMs,
    },
    worker::{Consumer, ConsumerConfig, Failure, Run},
};
use serde_json::Value;

use crate::{player::PATIENCE, redis_server::RedisServer, redis_view::run, server::Server};

/// A server on Redis, and what was made.
pub(crate) struct House {
    pub(crate) redis: RedisServer,
    data: tempfile::TempDir,
    server: Option<Server>,
    address: SocketAddr,
    pub(crate) made: Vec<OccurrenceId>,
    done: Arc<Mutex<BTreeMap<OccurrenceId, Vec<u32>>>>,
}

impl House {
    pub(crate) fn new() -> Self {
        let redis = RedisServer::start(&[]);
        let data = tempfile::tempdir().unwrap();
        let server = Server::start(data.path(), &["--redis", &redis.url(), "--shards", "2"]);
        let address = server.address();
        Self { redis, data, server: Some(server), address, made: Vec::new(), done: Arc::default() }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    /// kill -9, and up again.
    fn restart_server(&mut self) {
        self.server = None;
        let more = ["--redis", &self.redis.url(), "--shards", "2"];
        self.server = Some(Server::start_at(self.address, self.data.path(), &more));
    }

    /// Occurrences that are all due in about so long.
    pub(crate) fn make(&mut self, count: usize, in_ms: i64) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        let at = UnixMs(i64::try_from(now).unwrap() + in_ms);
        let spec = format!(
            r#"{{"tenant":"acme","queue":"mail","rule":{{"at":"{at}"}},"payload":"hello","retry":{{"max_attempts":5,"base":"100ms","cap":"200ms"}}}}"#
        );
        for _ in 0..count {
            let reply =
                self.server().send("POST", "/v1/schedules", &[("Content-Type", "application/json")], spec.as_bytes());
            assert_eq!(reply.status, 201, "{reply:?}");
            let id = reply.json()["schedule"]["schedule_id"].as_str().unwrap().parse().unwrap();
            self.made.push(OccurrenceId::of(id, 1, at, Kind::Regular, b""));
        }
    }

    pub(crate) fn occurrence(&self, id: OccurrenceId) -> Value {
        let reply = self.server().call("GET", &format!("/v1/occurrences/{id}"), "");
        if reply.status == 200 { reply.json() } else { Value::Null }
    }

    /// Waits until all have succeeded.
    #[track_caller]
    pub(crate) fn wait_for_success(&self) {
        for &id in &self.made {
            until("it succeeds", || {
                let occurrence = self.occurrence(id);
                let occurrence = occurrence.get("occurrence").unwrap_or(&occurrence);
                occurrence["state"] == "SUCCEEDED"
            });
        }
    }

    #[track_caller]
    fn each_was_done_once(&self) {
        self.wait_for_success();
        let done = self.done.lock().unwrap();
        assert_eq!(done.keys().copied().collect::<Vec<_>>(), sorted(&self.made));
        assert!(done.values().all(|attempts| attempts.len() == 1), "{done:?}");
    }

    fn consumer(&self, work: impl Fn(&Run) -> Result<Option<String>, Failure> + Send + Sync + 'static) -> Consumer {
        let config = ConsumerConfig {
            handlers: 4,
            lease: Duration::from_secs(2),
            recover_after: Duration::from_secs(1),
            longest_back_off: Duration::from_millis(300),
            ..ConsumerConfig::new(self.redis.url(), self.url(), "mail")
        };
        let done = Arc::clone(&self.done);
        let handler = move |run: &Run| {
            let result = work(run)?;
            done.lock().unwrap().entry(run.occurrence_id()).or_default().push(run.attempt());
            Ok(result)
        };
        Consumer::start(config, handler).unwrap()
    }

    fn metric(&self, name: &str) -> Option<f64> {
        let page = self.server().call("GET", "/metrics", "").body;
        page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }
}

pub(crate) fn sorted(ids: &[OccurrenceId]) -> Vec<OccurrenceId> {
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    sorted
}

#[track_caller]
pub(crate) fn until(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "waited too long for: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn a_while(_: &Run) -> Result<Option<String>, Failure> {
    std::thread::sleep(Duration::from_millis(30));
    Ok(None)
}

#[test]
fn what_is_due_succeeds_and_a_failure_is_followed_by_another_entry() {
    let mut house = House::new();
    house.make(10, 800);
    let first = house.made[0];
    let consumer = house.consumer(move |run| match run.attempt() {
        1 if run.occurrence_id() == first => Err(Failure::transient("not now")),
        _ => Ok(Some(format!("results/{}", run.occurrence_id()))),
    });
    house.each_was_done_once();
    let shown = house.occurrence(first).to_string();
    for part in ["not now", "transient", consumer.name(), &format!("results/{first}")] {
        assert!(shown.contains(part), "{part} is missing in {shown}");
    }
    assert_eq!(consumer.stop(PATIENCE).unfinished, 0);
}

#[test]
fn a_redis_that_forgets_everything_while_workers_run_is_filled_again() {
    let mut house = House::new();
    house.make(120, 800);
    let one = house.consumer(a_while);
    let other = house.consumer(a_while);
    let granted = || one.stats().granted + other.stats().granted;
    until("some run", || granted() > 10);
    run(&house.redis.url(), "DEL cw:{mail.0}:strict");
    until("more run", || granted() > 20);
    run(&house.redis.url(), "FLUSHALL");
    house.each_was_done_once();
}

#[test]
fn a_server_that_is_killed_while_workers_run_goes_on_where_it_was() {
    let mut house = House::new();
    house.make(100, 800);
    let consumer = house.consumer(a_while);
    for some in [10, 40] {
        until("some run", || consumer.stats().granted > some);
        house.restart_server();
    }
    house.each_was_done_once();
    assert_eq!(consumer.stop(PATIENCE).unfinished, 0);
}

#[test]
fn consumers_that_do_not_claim_a_tracked_queue_are_counted_by_its_name() {
    let mut house = House::new();
    house.make(6, 800);
    let url = house.redis.url();
    let keys = ["cw:{mail.0}:strict", "cw:{mail.1}:strict"];
    let length = |key: &str| match run(&url, &format!("XLEN {key}")) {
        redis::Value::Int(length) => length,
        other => panic!("{other:?}"),
    };
    until("all are there", || keys.map(length).iter().sum::<i64>() == 6);
    for key in keys {
        run(&url, &format!("XGROUP CREATE {key} plain 0"));
        run(&url, &format!("XREADGROUP GROUP plain c COUNT 100 NOACK STREAMS {key} >"));
    }
    let counted = || house.metric(r#"countwheel_acknowledged_unclaimed_total{queue="mail"}"#);
    until("they are counted", || counted() == Some(6.0));
    for &id in &house.made {
        let shown = house.occurrence(id).to_string();
        assert!(shown.contains(r#""state":"ENQUEUED""#), "{shown}");
    }
    // They are done: a worker that comes now is told so, and what Redis loses is not sent again.
    until("they are trimmed", || keys.map(length).iter().sum::<i64>() == 0);
}
