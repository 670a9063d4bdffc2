//! Claims that wait for work: many at once, woken by it, and gone with whoever asked or with the server.

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::TcpStream,
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::server::Server;

/// Longer than any claim waits.
const PATIENCE: Duration = Duration::from_secs(90);

fn fresh() -> (tempfile::TempDir, Server) {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(&home.path().join("data"), &["--shards", "2"]);
    (home, server)
}

fn schedule(server: &Server) -> String {
    let spec = json!({"tenant": "acme", "queue": "q", "rule": {"every": "300d"}});
    let made = server.call("POST", "/v1/schedules", &spec.to_string()).json();
    made["schedule"]["schedule_id"].as_str().unwrap().to_owned()
}

fn trigger(server: &Server, schedule: &str) {
    assert_eq!(server.call("POST", &format!("/v1/schedules/{schedule}/trigger"), "").status, 201);
}

/// A claim that is sent and not answered yet.
struct Waiting(TcpStream);

impl Waiting {
    fn new(server: &Server, worker: usize) -> Self {
        let claim = json!({"worker": format!("w{worker}"), "max": 1, "lease_ms": 600_000, "wait_ms": 60_000});
        let body = claim.to_string();
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!(
            "POST /v1/queues/q/claim HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            server.address(),
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        Self(stream)
    }

    /// What it is answered in the end.
    fn runs(mut self) -> Vec<Value> {
        let mut answer = String::new();
        self.0.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
        assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
        let body: Value = serde_json::from_str(body).unwrap();
        body["runs"].as_array().unwrap().clone()
    }
}

#[test]
fn hundreds_wait_at_once_and_each_occurrence_goes_to_one_of_them() {
    const CROWD: usize = 200;
    let (_home, server) = fresh();
    let schedule = schedule(&server);
    let waiting: Vec<Waiting> = (0..CROWD).map(|worker| Waiting::new(&server, worker)).collect();
    assert_eq!(server.call("GET", "/healthz", "").status, 200, "whoever waits holds nobody up");
    for _ in 0..CROWD {
        trigger(&server, &schedule);
    }
    let mut given = BTreeSet::new();
    for claim in waiting {
        let runs = claim.runs();
        assert_eq!(runs.len(), 1, "there is one for each");
        assert!(given.insert(runs[0]["occurrence_id"].as_str().unwrap().to_owned()), "given twice: {runs:?}");
    }
    assert_eq!(given.len(), CROWD);
}

#[test]
fn a_server_that_ends_answers_who_waits_and_does_not_wait_for_them() {
    let (_home, server) = fresh();
    let waiting: Vec<Waiting> = (0..50).map(|worker| Waiting::new(&server, worker)).collect();
    // What has arrived and was not begun is closed without an answer: let them begin. Who comes later is served later.
    for _ in 0..3 {
        assert_eq!(server.call("GET", "/healthz", "").status, 200);
    }
    sleep(Duration::from_millis(500));
    let told = Instant::now();
    server.signal(Signal::TERM);
    for claim in waiting {
        assert_eq!(claim.runs(), Vec::<Value>::new());
    }
    assert_eq!(server.terminate().code(), Some(0));
    // They would have waited for a minute.
    assert!(told.elapsed() < Duration::from_secs(30), "{:?}", told.elapsed());
}

#[test]
fn whoever_went_away_while_it_waited_is_given_nothing() {
    let (_home, server) = fresh();
    let schedule = schedule(&server);
    for round in 1..=5 {
        drop(Waiting::new(&server, 0));
        // The server has to hear of it; on a busy machine that takes a while.
        sleep(Duration::from_millis(300 * round));
        trigger(&server, &schedule);
        let claim = json!({"worker": "here", "max": 1, "lease_ms": 60_000, "wait_ms": 2_000}).to_string();
        let answer = server.call("POST", "/v1/queues/q/claim", &claim).json();
        if let Some(run) = answer["runs"].get(0) {
            assert_eq!(run["attempt"], 1);
            return;
        }
    }
    panic!("every run was given to somebody who had gone");
}
