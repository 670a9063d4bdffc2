//! The real server killed at every named hand-over: whatever callers were told is so afterwards, nothing due is absent,
//! twice or early, and nothing that was called off runs.
//!
//! The ordinary run comes by each point once. The long run, with so many hits of each and so many seeds:
//!
//! ```console
//! $ COUNTWHEEL_CRASH_HITS=4 COUNTWHEEL_CRASH_SEEDS=50 cargo test -p countwheel --test it crash_points -- --nocapture
//! ```

pub(crate) mod life;
mod points;
mod verdict;

use std::{
    collections::BTreeSet,
    os::unix::process::ExitStatusExt,
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use self::{
    life::Life,
    points::{POINTS, Point, When},
};
use crate::{
    redis_server::RedisServer,
    server::{Server, countwheel},
};

/// A point that is not come by within this is not on the way any more.
const PATIENCE: Duration = Duration::from_secs(40);
/// How long a server works before it is ended for a start or a stop that is watched.
const BEFORE: Duration = Duration::from_millis(900);

fn from_environment(name: &str) -> u64 {
    std::env::var(name).map_or(1, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

/// A server that kills itself at the `nth` time that it comes by a point.
fn aimed(point: &Point, nth: u64) -> std::process::Command {
    let mut command = countwheel();
    command.env("COUNTWHEEL_CRASH_AT", format!("{}:{nth}", point.name));
    command
}

/// Lets the server work until it is dead.
fn work_until_dead(life: &mut Life, server: &mut Server, what: &str) {
    let begun = Instant::now();
    loop {
        if let Some(status) = server.ended() {
            assert_eq!(status.signal(), Some(9), "{what}: it ended by itself: {status}");
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: never came by");
        life.work(server);
    }
}

/// A life that ends before its point is watched, and what is left of it.
fn live_before(life: &mut Life, data: &Path, options: &[&str], point: &Point) {
    let server = Server::start(data, options);
    let begun = Instant::now();
    while begun.elapsed() < BEFORE {
        life.work(&server);
    }
    match point.when {
        When::Starting { after: points::After::CleanStop } => assert!(server.terminate().success()),
        When::Starting { after: points::After::Torn } => {
            drop(server);
            life::tear_last_batches(data);
        }
        _ => drop(server),
    }
}

fn die_at(point: &Point, nth: u64, life: &mut Life, data: &Path, options: &[&str]) {
    let what = format!("{}:{nth}", point.name);
    if matches!(point.when, When::Starting { .. }) {
        live_before(life, data, options, point);
    }
    let mut server = match Server::try_launch(aimed(point, nth), data, options) {
        Ok(server) => server,
        Err(status) => {
            assert_eq!(status.signal(), Some(9), "{what}: it ended by itself: {status}");
            return;
        }
    };
    if point.when != When::Stopping {
        return work_until_dead(life, &mut server, &what);
    }
    let begun = Instant::now();
    while begun.elapsed() < BEFORE {
        life.work(&server);
    }
    server.signal(rustix::process::Signal::TERM);
    let status = server.wait();
    assert_eq!(status.signal(), Some(9), "{what}: never came by: {status}");
}

fn try_point(point: &Point, nth: u64, seed: u64, redis: &RedisServer) {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let run = RUNS.fetch_add(1, Ordering::SeqCst);
    println!("{}:{nth}, seed {seed}", point.name);
    let dir = tempfile::tempdir().unwrap();
    let (url, prefix) = (redis.url(), format!("p{run}"));
    let options = [
        ["--shards", "2"],
        ["--redis", &url],
        ["--redis-prefix", &prefix],
        ["--segment-bytes", "1048576"],
        ["--reserve-bytes", "0"],
        ["--snapshot-bytes", "262144"],
    ];
    let options = options.as_flattened();
    let mut life = Life::new(seed, &url, &prefix, point.payload_bytes);
    die_at(point, nth, &mut life, dir.path(), options);
    let server = Server::start(dir.path(), options);
    verdict::settle(&mut life, &server, &format!("{}:{nth}, seed {seed}", point.name));
    assert!(server.terminate().success());
    let verified = countwheel().args(["wal", "verify"]).arg(dir.path()).output().unwrap();
    assert!(verified.status.success(), "{}: {}", point.name, String::from_utf8_lossy(&verified.stderr));
}

fn try_points(which: &dyn Fn(&Point) -> bool) {
    let redis = RedisServer::start(&["--appendfsync", "no"]);
    let (hits, seeds) = (from_environment("COUNTWHEEL_CRASH_HITS"), from_environment("COUNTWHEEL_CRASH_SEEDS"));
    for seed in 1..=seeds {
        for point in POINTS.iter().filter(|point| which(point)) {
            for hit in 0..hits {
                try_point(point, point.hit(hit), seed, &redis);
            }
        }
    }
}

#[test]
fn what_the_log_acknowledged_outlives_every_point_of_a_commit() {
    try_points(&|point| point.when == When::Working && point.is_of(&["append", "turn", "answer"]));
}

#[test]
fn a_segment_changes_at_every_point_without_loss() {
    try_points(&|point| point.when == When::Working && point.is_of(&["rotate", "segment"]));
}

#[test]
fn a_snapshot_and_what_it_lets_go_may_end_at_every_point() {
    try_points(&|point| point.is_of(&["snap", "archive", "prune"]));
}

#[test]
fn what_is_handed_over_is_there_once_whatever_point_the_relay_dies_at() {
    try_points(&|point| point.is_of(&["relay", "enqueued", "trim"]));
}

#[test]
fn claims_and_ends_that_were_answered_outlive_every_point() {
    try_points(&|point| point.is_of(&["claim", "complete", "shutdown"]));
}

#[test]
fn a_start_may_die_at_every_point_and_be_tried_again() {
    try_points(&|point| matches!(point.when, When::Starting { .. }) && !point.is_of(&["relay"]));
}

/// A point that nobody tries is worth nothing, and so is one that was taken out.
#[test]
fn every_point_in_the_sources_is_tried() {
    let mut named = BTreeSet::new();
    for root in ["src", "../wal/src"] {
        collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join(root), &mut named);
    }
    let tried: BTreeSet<_> = POINTS.iter().map(|point| point.name.to_owned()).collect();
    assert_eq!(named, tried);
    const ROOMS: [&str; 16] = [
        "append", "turn", "answer", "rotate", "segment", "relay", "enqueued", "trim", "claim", "complete", "shutdown",
        "start", "recover", "snap", "archive", "prune",
    ];
    assert!(POINTS.iter().all(|point| point.is_of(&ROOMS)));
}

fn collect(dir: &Path, named: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        if entry.path().is_dir() {
            collect(&entry.path(), named);
        } else if let Ok(text) = std::fs::read_to_string(entry.path()) {
            named.extend(text.split("crash_point(\"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()));
        }
    }
}
