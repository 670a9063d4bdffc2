//! Two real servers on copies of one directory, or on one Redis: whoever opened last works, the other says so and does
//! nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    redis_server::RedisServer,
    redis_view,
    server::{Server, countwheel},
};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// A round of the janitor is 5 s; the rest is a busy machine.
const NOTICED_WITHIN: Duration = Duration::from_secs(15);

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

fn start(data: &Path, redis: &RedisServer, more: &[&str]) -> Server {
    let mut command = countwheel();
    command.env("RUST_LOG", "off");
    let url = redis.url();
    let options = ["--shards", "2", "--redis", &url, "--segment-bytes", "1048576", "--reserve-bytes", "0"];
    Server::launch(command, data, &[&options[..], more].concat())
}

fn wait(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < limit, "waited {limit:?} for {what}");
        thread::sleep(Duration::from_millis(30));
    }
}

fn wait_until_ready(server: &Server) {
    wait("readiness", PATIENCE, || server.call("GET", "/readyz", "").status == 200);
}

fn reasons(server: &Server) -> String {
    server.call("GET", "/readyz", "").body
}

fn create(server: &Server, key: &str, rule: &str) -> Value {
    let spec = format!(r#"{{"tenant":"acme","queue":"mail","rule":{rule}}}"#);
    let made = server.send("POST", "/v1/schedules", &[("Idempotency-Key", key)], spec.as_bytes());
    assert!(matches!(made.status, 200 | 201), "{made:?}");
    made.json()["schedule"].clone()
}

/// Under which entries each occurrence stands in the streams.
fn in_streams(redis: &RedisServer) -> BTreeMap<String, Vec<String>> {
    let (mut client, mut found) = (redis_view::client(&redis.url()), BTreeMap::new());
    for key in ["cw:{mail.0}:strict", "cw:{mail.1}:strict", "cw:{mail.0}:catchup", "cw:{mail.1}:catchup"] {
        let entries: Vec<(String, Vec<String>)> =
            redis::cmd("XRANGE").arg(&[key, "-", "+"]).query(&mut client).unwrap();
        for (entry, fields) in entries {
            found.entry(fields[1].clone()).or_insert_with(Vec::new).push(entry);
        }
    }
    found
}

/// A directory with schedules in both shards, and a copy of it. Nobody runs.
fn two_directories(home: &Path, redis: &RedisServer, rule: &str) -> (PathBuf, PathBuf) {
    let [ours, copied] = ["ours", "copy"].map(|name| home.join(name));
    let server = start(&ours, redis, &[]);
    (0..8).for_each(|n| drop(create(&server, &format!("job-{n}"), rule)));
    assert!(server.terminate().success());
    copy(&ours, &copied);
    (ours, copied)
}

#[test]
fn every_shard_of_the_older_engine_notices_though_nothing_is_handed_over() {
    let (redis, home) = (RedisServer::start(&[]), tempfile::tempdir().unwrap());
    let (ours, copied) = two_directories(home.path(), &redis, r#"{"at":"2099-01-01T00:00:00Z"}"#);
    let older = start(&ours, &redis, &[]);
    wait_until_ready(&older);
    let newer = start(&copied, &redis, &[]);
    wait_until_ready(&newer);
    // One that only the newer one knows: asked about it, the older must not say that there is no such thing.
    let trigger = |key: &str| {
        let id = create(&newer, key, r#"{"at":"2099-01-01T00:00:00Z"}"#)["schedule_id"].as_str().unwrap().to_owned();
        let made = newer.call("POST", &format!("/v1/schedules/{id}/trigger"), "").json();
        (id, made["occurrence_id"].as_str().unwrap().to_owned())
    };
    let made: Vec<_> = (0..8).map(|n| trigger(&format!("job-{n}"))).collect();
    wait("both shards to notice", NOTICED_WITHIN, || {
        let said = reasons(&older);
        said.contains("shard 0 of cw:engine was taken over") && said.contains("shard 1 of cw:engine was taken over")
    });
    let spec = r#"{"tenant":"acme","queue":"mail","rule":{"every":"1h"}}"#;
    for _ in 0..8 {
        assert_eq!(older.call("POST", "/v1/schedules", spec).refusal().1, "fenced");
    }
    for (schedule, occurrence) in made {
        let claim = format!(r#"{{"worker":"w","lease_ms":60000,"schedule_id":"{schedule}"}}"#);
        let path = format!("/v1/occurrences/{occurrence}/claim");
        assert_eq!(older.call("POST", &path, &claim).refusal(), (503, "fenced".into(), None));
        wait("the newer engine grants it", PATIENCE, || newer.call("POST", &path, &claim).status == 200);
    }
}

#[test]
fn whichever_was_started_last_works_and_repeats_nothing_that_its_own_log_knows() {
    let (redis, home) = (RedisServer::start(&[]), tempfile::tempdir().unwrap());
    let (ours, copied) = two_directories(home.path(), &redis, r#"{"every":"1s"}"#);
    let paths = [ours, copied];
    let mut running: [Option<Server>; 2] = [None, None];
    for which in [0, 1, 0, 0, 1, 1, 0] {
        running[which] = None; // SIGKILL
        let last = start(&paths[which], &redis, &[]);
        wait_until_ready(&last);
        let before = in_streams(&redis).len();
        wait("what is due is handed over", PATIENCE, || in_streams(&redis).len() > before + 8);
        if let Some(other) = &running[1 - which] {
            wait("the other one is fenced", NOTICED_WITHIN, || reasons(other).contains("was taken over"));
        }
        running[which] = Some(last);
    }
    for (occurrence, entries) in in_streams(&redis) {
        // What the other one handed over and this log never heard of may be handed over again, under a generation of
        // its own; no engine does so with what is its own.
        let generations: BTreeSet<_> = entries.iter().map(|entry| entry.split('-').next()).collect();
        assert_eq!(generations.len(), entries.len(), "{occurrence} was handed over twice in one life: {entries:?}");
        assert!(entries.len() <= 2, "{occurrence}: two engines hand it over once each at most: {entries:?}");
    }
}

#[test]
fn a_new_directory_works_with_the_streams_of_a_lost_one_only_when_told_to() {
    let (redis, home) = (RedisServer::start(&[]), tempfile::tempdir().unwrap());
    let lost = start(&home.path().join("lost"), &redis, &[]);
    create(&lost, "job", r#"{"every":"1s"}"#);
    wait("an entry", PATIENCE, || in_streams(&redis).len() > 1);
    drop(lost);
    let stood_there = in_streams(&redis);
    let new = home.path().join("new");
    let refused = start(&new, &redis, &[]);
    create(&refused, "job", r#"{"every":"1s"}"#);
    wait("a reason", PATIENCE, || reasons(&refused).contains("--adopt-redis"));
    thread::sleep(Duration::from_millis(1_500));
    assert_eq!(in_streams(&redis), stood_there, "nothing is written before a person has decided");
    drop(refused);
    let adopting = start(&new, &redis, &["--adopt-redis"]);
    wait_until_ready(&adopting);
    wait("new entries", PATIENCE, || in_streams(&redis).len() > stood_there.len() + 1);
    drop(adopting);
    // Adopted once is its own from then on.
    wait_until_ready(&start(&new, &redis, &[]));
    assert!(in_streams(&redis).values().all(|entries| entries.len() == 1));
}

#[test]
fn a_rehearsal_and_a_real_engine_refuse_each_others_streams() {
    let (redis, home) = (RedisServer::start(&[]), tempfile::tempdir().unwrap());
    let real = start(&home.path().join("real"), &redis, &[]);
    wait_until_ready(&real);
    let from = ["--adopt-redis", "--rehearse-from", "2030-01-01T00:00:00Z"];
    let rehearsal = start(&home.path().join("rehearsal"), &redis, &from);
    create(&rehearsal, "job", r#"{"every":"1s"}"#);
    wait("a reason", PATIENCE, || reasons(&rehearsal).contains("belong to real schedules"));
    thread::sleep(Duration::from_millis(1_200));
    assert!(in_streams(&redis).is_empty(), "a rehearsal never writes where real workers read");
    assert_eq!(real.call("GET", "/readyz", "").status, 200);
}
