//! Small runs of the load harness, as a user starts it: it ends well, and says what it promises to say.

use std::process::Command;

use serde_json::Value;

/// The keys that every experiment has.
const COMMON: [&str; 18] = [
    "queue",
    "shards",
    "triggers",
    "p50_ms",
    "p99_ms",
    "max_ms",
    "throughput_per_s",
    "limit_per_s",
    "ratio",
    "absent",
    "duplicates",
    "early",
    "engine_cpu_us_per_occurrence",
    "server_cpu_us_per_occurrence",
    "wal_bytes_per_occurrence",
    "wal_written_bytes_per_occurrence",
    "fsyncs",
    "machine",
];

fn run(arguments: &[&str]) -> Value {
    let run = Command::new(env!("CARGO_BIN_EXE_countwheel-bench")).args(arguments).arg("--json").output();
    let run = run.expect("the harness starts");
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}\n{}", String::from_utf8_lossy(&run.stderr));
    let figures: Value = serde_json::from_str(said.lines().last().expect("a last line")).expect("it is JSON");
    for key in COMMON {
        assert!(figures.get(key).is_some(), "no {key} in {figures}");
    }
    for broken in ["absent", "duplicates", "unexpected", "early"] {
        assert_eq!(figures[broken], 0, "{figures}");
    }
    figures
}

#[test]
fn a_burst_into_redis_is_whole_and_shows_the_limit() {
    let burst = ["burst", "--triggers", "300", "--queue", "redis", "--ahead-seconds", "10", "--limit-rounds", "1"];
    let figures = run(&burst);
    assert_eq!(figures["triggers"], 300);
    assert!(figures["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0), "{figures}");
}

#[test]
fn a_burst_into_the_embedded_queue_is_whole() {
    let figures = run(&["burst", "--triggers", "300", "--queue", "local", "--ahead-seconds", "10"]);
    assert_eq!((&figures["triggers"], &figures["ratio"]), (&Value::from(300), &Value::Null));
}

#[test]
fn small_tenants_are_told_apart_in_both_queues() {
    for queue in ["redis", "local"] {
        let burst = ["fairness", "--burst", "400", "--small-tenants", "3", "--each", "20", "--ahead-seconds", "10"];
        let figures = run(&[&burst[..], &["--queue", queue]].concat());
        assert_eq!(figures["triggers"], 460, "{figures}");
        // Of so few the lag rounds to nothing.
        assert!(figures["small_ratio"].as_f64().is_some_and(f64::is_finite), "{figures}");
    }
}

#[test]
fn what_is_owed_after_an_outage_is_caught_up_beside_strict_work() {
    for queue in ["redis", "local"] {
        let storm = ["storm", "--owed", "300", "--rate", "50", "--seconds", "2", "--queue", queue];
        let figures = run(&storm);
        assert_eq!((&figures["owed"], &figures["caught_up"]), (&Value::from(300), &Value::from(300)), "{figures}");
        assert!(figures["undisturbed_p99_ms"].as_f64().is_some(), "{figures}");
    }
}

#[test]
fn a_steady_rate_is_whole_in_both_queues_and_its_consumer_sees_it() {
    for queue in ["redis", "local"] {
        let figures = run(&["steady", "--rate", "50", "--seconds", "1", "--queue", queue]);
        assert_eq!(figures["triggers"], 50, "{figures}");
        assert!(figures["seen_p99_ms"].as_f64().is_some_and(|lag| lag > 0.0), "{figures}");
    }
}
