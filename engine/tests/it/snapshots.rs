//! Snapshots of the real server: it is killed again and again while they are written, comes back from them with everything,
//! and its past can still be told from the archive.

use std::{path::Path, time::Duration};

use serde_json::{Value, json};

use crate::server::{Server, countwheel};

const SMALL: [&str; 6] = ["--shards", "1", "--segment-bytes", "1MiB", "--reserve-bytes", "0"];

fn create(server: &Server, n: usize) -> String {
    let body = json!({"tenant": "acme", "queue": "mail", "rule": {"every": "1s"}, "payload": "x".repeat(200 + n)});
    let reply = server.call("POST", "/v1/schedules", &body.to_string());
    assert_eq!(reply.status, 201, "{reply:?}");
    reply.json()["schedule"]["schedule_id"].as_str().unwrap().to_owned()
}

fn metric(server: &Server, name: &str) -> u64 {
    let page = server.call("GET", "/metrics", "").unchunked();
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<f64>().ok());
    line.unwrap_or_else(|| panic!("{name} is not in {page}")) as u64
}

fn files(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !name.ends_with(".tmp")).collect()
}

/// Waits until the log of the shard has let segments go.
fn until_pruned(server: &Server) {
    for _ in 0..600 {
        if metric(server, "countwheel_log_pruned_segments_total") > 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("no segment has left the log");
}

fn history(data: &Path, id: &str) -> std::process::Output {
    countwheel().args(["history", id, "--json", "--data"]).arg(data).output().unwrap()
}

#[test]
fn a_server_that_is_killed_comes_back_from_its_snapshots_and_can_tell_its_past() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let mut server = Server::start(&data, &SMALL);
    let ids: Vec<String> = (0..400).map(|n| create(&server, n)).collect();
    until_pruned(&server);
    for life in 1..=6 {
        drop(server);
        server = Server::start(&data, &SMALL);
        let active = metric(&server, "countwheel_schedules{state=\"active\"}");
        assert_eq!(active, ids.len() as u64, "life {life}");
        std::thread::sleep(Duration::from_millis(150 * life));
    }
    let shard = data.join("shard-0000");
    assert!((1..=2).contains(&files(&shard.join("snap")).len()));
    assert!(!files(&shard.join("archive")).is_empty());
    assert!(!files(&shard.join("wal")).contains(&"00000000000000000001.wal".to_owned()), "its beginning has left");
    drop(server);
    let told: Value = serde_json::from_slice(&history(&data, &ids[7]).stdout).unwrap();
    assert_eq!(told["versions"].as_array().unwrap().len(), 1, "{told}");
    let instants: Vec<&str> =
        told["items"].as_array().unwrap().iter().filter_map(|item| item["scheduled_for"].as_str()).collect();
    assert!(instants.len() > 3, "{told}");
    let verified = countwheel().args(["wal", "verify"]).arg(&data).status().unwrap();
    assert!(verified.success());
}

#[test]
fn without_an_archive_the_past_that_has_gone_is_named() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let server = Server::start(&data, &[&SMALL[..], &["--archive", "0s"]].concat());
    let ids: Vec<String> = (0..400).map(|n| create(&server, n)).collect();
    until_pruned(&server);
    drop(server);
    assert_eq!(files(&data.join("shard-0000/archive")), Vec::<String>::new());
    let asked = history(&data, &ids[7]);
    let said = String::from_utf8_lossy(&asked.stderr).into_owned();
    assert!(asked.status.code() == Some(1) && said.contains("have left the archive"), "{asked:?}");
}
