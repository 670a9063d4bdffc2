//! The import: lines in, lines out, in order, as they come, whatever one of them holds.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
};

use serde_json::{Value, json};

use crate::server::{Reply, Server};

fn fresh() -> (tempfile::TempDir, Server) {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(&home.path().join("data"), &["--shards", "2"]);
    (home, server)
}

/// The lines of a chunked answer.
fn results(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(reply.head.contains("content-type: application/x-ndjson"), "{}", reply.head);
    let lines = reply.unchunked();
    lines.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

fn import(server: &Server, body: &str) -> Vec<Value> {
    results(&server.call("POST", "/v1/schedules/import", body))
}

fn spec(minute: usize) -> Value {
    json!({"tenant": "acme", "queue": "q", "rule": {"cron": format!("{} 9 * * *", minute % 60), "zone": "UTC"}})
}

#[test]
fn each_line_has_its_result_in_order() {
    let (_home, server) = fresh();
    let mut keyed = spec(1);
    keyed["key"] = json!("k");
    let mut other = spec(2);
    other["key"] = json!("k");
    let bad_zone = json!({"tenant": "acme", "queue": "q", "rule": {"cron": "* * * * *", "zone": "Mars/Olympus"}});
    let long = format!("{{\"tenant\":\"{}\"}}", "x".repeat(256 * 1024));
    let lines = [
        spec(0).to_string(),
        keyed.to_string(),
        String::new(),
        keyed.to_string(),
        other.to_string(),
        "{\"tenant\":".into(),
        bad_zone.to_string(),
        long,
        json!({"tenant": "acme", "queue": "q", "rule": {"every": "5m"}, "frobnicate": 1}).to_string(),
        spec(9).to_string(),
    ];
    let results = import(&server, &lines.join("\n"));
    let numbers: Vec<u64> = results.iter().map(|result| result["line"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 2, 4, 5, 6, 7, 8, 9, 10], "a blank line asks for nothing");
    let told: Vec<&str> =
        results.iter().map(|result| result["status"].as_str().or(result["error"]["code"].as_str()).unwrap()).collect();
    let want = [
        "created",
        "created",
        "unchanged",
        "idempotency_conflict",
        "invalid_json",
        "unknown_zone",
        "too_large",
        "invalid",
        "created",
    ];
    assert_eq!(told, want);
    assert_eq!(results[1]["schedule_id"], results[2]["schedule_id"]);
    assert_eq!(
        (&results[5]["error"]["field"], &results[7]["error"]["field"]),
        (&json!("rule.zone"), &json!("frobnicate"))
    );
    let id = results[8]["schedule_id"].as_str().unwrap();
    assert_eq!(server.call("GET", &format!("/v1/schedules/{id}"), "").json()["schedule"]["version"], 1);
    assert_eq!(import(&server, ""), Vec::<Value>::new());
}

#[test]
fn thousands_of_lines_are_made_once_and_unchanged_when_they_come_again() {
    const LINES: usize = 5_000;
    let (_home, server) = fresh();
    let line = |n: usize| {
        let mut line = spec(n);
        line["key"] = json!(format!("k{n}"));
        line.to_string() + "\n"
    };
    let body: String = (0..LINES).map(line).collect();
    let first = import(&server, &body);
    assert!(first.iter().all(|result| result["status"] == "created") && first.len() == LINES);
    let again = import(&server, &body);
    assert!(again.iter().all(|result| result["status"] == "unchanged") && again.len() == LINES);
    let ids = |results: &[Value]| results.iter().map(|result| result["schedule_id"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&first), ids(&again));
}

#[test]
fn a_line_is_answered_before_the_next_one_is_sent() {
    let (_home, server) = fresh();
    let mut stream = TcpStream::connect(server.address).unwrap();
    let head = "POST /v1/schedules/import HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    for n in 0..3 {
        let line = spec(n).to_string() + "\n";
        write!(stream, "{:x}\r\n{line}\r\n", line.len()).unwrap();
        let mut answer = String::new();
        while !answer.contains("\"line\"") {
            answer.clear();
            assert!(answers.read_line(&mut answer).unwrap() > 0, "the answer ended");
        }
        assert_eq!(serde_json::from_str::<Value>(&answer).unwrap()["line"], n + 1);
    }
    // A body that breaks off makes nothing of what had begun.
    let half = &spec(7).to_string()[..40];
    write!(stream, "{:x}\r\n{half}\r\n", half.len()).unwrap();
    drop((stream, answers));
    let listed = server.call("GET", "/v1/schedules?limit=500&tenant=acme", "").json();
    assert!(listed["items"].as_array().unwrap().len() <= 3);
}
