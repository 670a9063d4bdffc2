//! The client for consumers against a real Redis and an engine that can be made to behave badly.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use countwheel::{
    kernel::id::OccurrenceId,
    worker::{Cancellation, Consumer, ConsumerConfig, Failure, Run},
};

use crate::{
    player::PATIENCE,
    redis_server::RedisServer,
    redis_view::{client, run},
    stand_in::{Mood, SHARDS, StandIn},
};

const SECOND: Duration = Duration::from_secs(1);

/// What handlers have done, by occurrence: the attempts that came to their end.
type Done = Arc<Mutex<BTreeMap<OccurrenceId, Vec<u32>>>>;

struct Rig {
    redis: RedisServer,
    engine: StandIn,
    done: Done,
}

impl Rig {
    fn new() -> Self {
        let redis = RedisServer::start(&[]);
        let engine = StandIn::on(&redis.url());
        Self { redis, engine, done: Done::default() }
    }

    fn config(&self) -> ConsumerConfig {
        ConsumerConfig {
            handlers: 4,
            lease: 2 * SECOND,
            recover_after: Duration::from_millis(600),
            longest_back_off: Duration::from_millis(200),
            ..ConsumerConfig::new(self.redis.url(), &self.engine.url, "mail")
        }
    }

    /// A consumer whose handler does `work` and remembers what it has done.
    fn consumer(
        &self,
        config: ConsumerConfig,
        work: impl Fn(&Run) -> Result<Option<String>, Failure> + Send + Sync + 'static,
    ) -> Consumer {
        let done = Arc::clone(&self.done);
        let handler = move |run: &Run| {
            let result = work(run)?;
            done.lock().unwrap().entry(run.occurrence_id()).or_default().push(run.attempt());
            Ok(result)
        };
        Consumer::start(config, handler).unwrap()
    }

    fn quick(&self) -> Consumer {
        self.consumer(self.config(), |_| Ok(None))
    }

    /// Waits until so many have succeeded, each by one attempt that was done.
    #[track_caller]
    fn wait_for_each_once(&self, count: usize) {
        until("all have succeeded", || self.engine.ended("SUCCEEDED") == count);
        let done = self.done.lock().unwrap();
        assert_eq!(done.len(), count);
        assert!(done.values().all(|attempts| attempts.len() == 1), "{done:?}");
    }

    /// Entries that the group was given and has not acknowledged, over all streams.
    fn pending(&self) -> usize {
        let mut redis = client(&self.redis.url());
        let mut pending = 0;
        for key in keys() {
            // How many, the first, the last, by consumer. Without the group there is nothing.
            let answer: redis::RedisResult<(usize, redis::Value, redis::Value, redis::Value)> =
                redis::cmd("XPENDING").arg(key).arg("workers").query(&mut redis);
            pending += answer.map_or(0, |(count, ..)| count);
        }
        pending
    }
}

fn keys() -> Vec<String> {
    let lanes = ["strict", "flexible", "catchup"];
    (0..SHARDS).flat_map(|shard| lanes.map(|lane| format!("cw:{{mail.{shard}}}:{lane}"))).collect()
}

#[track_caller]
fn until(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "waited too long for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn everything_runs_once_is_acknowledged_and_a_clean_stop_leaves_no_name() {
    let rig = Rig::new();
    rig.engine.make("strict", 60);
    let consumer = rig.quick();
    rig.engine.make("flexible", 60);
    rig.engine.make("catchup", 60);
    rig.wait_for_each_once(180);
    until("nothing is pending", || rig.pending() == 0);
    let stats = consumer.stats();
    assert_eq!((stats.granted, stats.completed, stats.refused, stats.unacknowledged), (180, 180, 0, 0), "{stats:?}");
    assert_eq!(consumer.stop(PATIENCE).unfinished, 0);
    for key in keys() {
        let consumers: redis::Value = run(&rig.redis.url(), &format!("XINFO CONSUMERS {key} workers"));
        assert_eq!(consumers, redis::Value::Array(Vec::new()), "{key}");
    }
}

#[test]
fn a_failure_and_a_panic_are_tried_again_and_what_is_permanent_is_not() {
    let rig = Rig::new();
    let ids = rig.engine.make("strict", 3);
    let consumer = rig.consumer(rig.config(), move |run| match (run.attempt(), run.occurrence_id()) {
        (1, id) if id == ids[0] => Err(Failure::transient("not now")),
        (1, id) if id == ids[1] => panic!("a bug"),
        (_, id) if id == ids[2] => Err(Failure::permanent("never")),
        _ => Ok(Some("kept there".to_owned())),
    });
    until("all have ended", || rig.engine.ended("SUCCEEDED") == 2 && rig.engine.ended("DEAD") == 1);
    let mut attempts = rig.engine.attempts();
    attempts.sort_unstable();
    assert_eq!(attempts, [1, 2, 2]);
    until("all is counted", || consumer.stats().failed == 3);
    assert_eq!(consumer.stats().panicked, 1);
}

#[test]
fn no_answer_settles_an_entry_unless_it_is_the_engines() {
    let rig = Rig::new();
    let error = r#"{"error":{"code":"overloaded","message":"busy"}}"#;
    let no_path =
        r#"{"error":{"code":"not_found","message":"there is nothing at this path: the API stands under /v1"}}"#;
    for mood in [
        Mood::Says(503, error),
        Mood::Says(429, error),
        Mood::Says(401, r#"{"error":{"code":"unauthorized","message":"no"}}"#),
        Mood::Says(404, "<html>not here</html>"),
        Mood::Says(404, no_path),
        Mood::Says(409, "conflict"),
        Mood::Says(200, "{}"),
        Mood::Says(302, ""),
    ] {
        rig.engine.claims(mood.clone());
        let before = rig.engine.ended("SUCCEEDED");
        rig.engine.make("strict", 1);
        let consumer = rig.quick();
        until("it was read", || consumer.stats().read > 0);
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!((rig.pending(), consumer.stats().refused), (1, 0), "{mood:?}");
        rig.engine.claims(Mood::Well);
        rig.wait_for_each_once(before + 1);
        until("it is acknowledged", || rig.pending() == 0);
    }
}

#[test]
fn every_refusal_of_the_engine_is_acknowledged_and_not_run() {
    let rig = Rig::new();
    for answer in [
        Mood::Says(404, r#"{"error":{"code":"not_found","message":"there is no such occurrence"}}"#),
        Mood::Says(409, r#"{"error":{"code":"waiting","message":"another one runs"}}"#),
        Mood::Says(409, r#"{"error":{"code":"a_code_of_tomorrow","message":"no"}}"#),
    ] {
        rig.engine.claims(answer);
        rig.engine.make("strict", 1);
        let consumer = rig.quick();
        until("it is acknowledged", || consumer.stats().refused == 1 && rig.pending() == 0);
    }
    assert!(rig.done.lock().unwrap().is_empty());
}

#[test]
fn streams_that_vanish_are_read_again_from_their_beginning() {
    let rig = Rig::new();
    let consumer = rig.quick();
    rig.engine.make("strict", 5);
    rig.wait_for_each_once(5);
    run(&rig.redis.url(), "DEL cw:{mail.0}:strict cw:{mail.1}:strict");
    rig.engine.make("strict", 5);
    rig.wait_for_each_once(10);
    rig.engine.claims(Mood::HoldsQuestions);
    rig.engine.make("catchup", 10);
    until("some are read", || rig.engine.held() == 4);
    run(&rig.redis.url(), "FLUSHALL");
    rig.engine.send_again();
    rig.engine.claims(Mood::Well);
    rig.wait_for_each_once(20);
    until("nothing is pending", || rig.pending() == 0);
    assert!(consumer.stats().healed >= 1, "{:?}", consumer.stats());
}

#[test]
fn a_redis_that_restarts_loses_nothing_and_repeats_nothing() {
    let mut rig = Rig::new();
    let consumer = rig.consumer(rig.config(), |_| {
        std::thread::sleep(Duration::from_millis(20));
        Ok(None)
    });
    rig.engine.make("strict", 100);
    until("some have run", || rig.engine.ended("SUCCEEDED") > 10);
    rig.redis.stop();
    std::thread::sleep(Duration::from_millis(300));
    rig.redis.restart();
    rig.wait_for_each_once(100);
    until("nothing is pending", || rig.pending() == 0);
    assert!(consumer.stats().disconnects >= 1);
}

#[test]
fn what_a_dead_consumer_was_given_is_taken_over() {
    let rig = Rig::new();
    rig.engine.make("strict", 10);
    for key in keys().iter().filter(|key| key.ends_with("strict")) {
        run(&rig.redis.url(), &format!("XGROUP CREATE {key} workers 0"));
        run(&rig.redis.url(), &format!("XREADGROUP GROUP workers ghost COUNT 10 STREAMS {key} >"));
    }
    let consumer = rig.quick();
    rig.wait_for_each_once(10);
    until("nothing is pending", || rig.pending() == 0);
    assert_eq!(consumer.stats().recovered, 10);
}

#[test]
fn two_consumers_that_hold_one_entry_run_it_once() {
    let rig = Rig::new();
    rig.engine.claims(Mood::HoldsQuestions);
    rig.engine.make("strict", 2);
    let first = rig.quick();
    until("both are read", || rig.engine.held() == 2);
    // The second takes over what the first is about to claim.
    let second = rig.quick();
    until("it took them over", || rig.engine.held() >= 4);
    rig.engine.claims(Mood::Well);
    rig.wait_for_each_once(2);
    until("nothing is pending", || rig.pending() == 0);
    until("each was answered", || first.stats().granted + second.stats().granted == 2);
}

#[test]
fn a_lease_that_cannot_be_kept_is_told_to_its_handler_and_its_result_is_stale() {
    let rig = Rig::new();
    rig.engine.beats(Mood::Says(503, "{}"));
    rig.engine.make("strict", 1);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&seen);
    let config = ConsumerConfig { lease: SECOND, ..rig.config() };
    let consumer = rig.consumer(config, move |run| {
        if run.attempt() == 1 {
            until("the lease is lost", || run.is_canceled());
            told.lock().unwrap().push(run.cancellation());
            return Err(Failure::transient("stopped"));
        }
        Ok(None)
    });
    rig.wait_for_each_once(1);
    until("it is counted", || consumer.stats().stale == 1);
    assert_eq!(*seen.lock().unwrap(), [Some(Cancellation::LeaseLost)]);
    assert_eq!(rig.engine.attempts(), [2]);
}

#[test]
fn a_run_of_several_leases_is_kept_and_stops_when_it_is_asked_to() {
    let rig = Rig::new();
    rig.engine.make("strict", 1);
    let config = ConsumerConfig { lease: SECOND, ..rig.config() };
    let consumer = rig.consumer(config, |run| {
        until("it is asked to stop", || run.cancellation() == Some(Cancellation::Requested));
        Err(Failure::canceled("asked to"))
    });
    until("it runs", || consumer.stats().granted == 1);
    std::thread::sleep(3 * SECOND);
    assert_eq!(rig.engine.attempts(), [1], "heartbeats kept its lease");
    rig.engine.asks_to_stop();
    until("it has stopped", || rig.engine.ended("CANCELED") == 1);
}

#[test]
fn a_claim_whose_answer_comes_late_is_waited_for() {
    let rig = Rig::new();
    rig.engine.claims(Mood::HoldsAnswers);
    rig.engine.make("strict", 3);
    let config = ConsumerConfig { lease: 10 * SECOND, ..rig.config() };
    let consumer = rig.consumer(config, |_| Ok(None));
    until("all are claimed", || rig.engine.held() == 3);
    std::thread::sleep(2 * SECOND);
    rig.engine.claims(Mood::Well);
    rig.wait_for_each_once(3);
    assert_eq!(rig.engine.attempts(), [1; 3]);
    until("nothing is pending", || rig.pending() == 0);
    assert_eq!(consumer.stats().granted, 3);
}

#[test]
fn an_end_is_told_until_the_engine_has_heard_it() {
    let rig = Rig::new();
    rig.engine.ends(Mood::Says(503, "{}"));
    rig.engine.make("strict", 2);
    let consumer = rig.quick();
    until("both are done", || rig.done.lock().unwrap().len() == 2);
    std::thread::sleep(3 * SECOND);
    rig.engine.ends(Mood::Well);
    rig.wait_for_each_once(2);
    assert_eq!(rig.engine.attempts(), [1, 1], "heartbeats go on until the end is told");
    assert_eq!(consumer.stop(PATIENCE).unfinished, 0);
}

#[test]
fn a_stop_lets_what_runs_end_and_leaves_the_rest_to_others() {
    let rig = Rig::new();
    rig.engine.make("strict", 20);
    let consumer = rig.consumer(rig.config(), |_| {
        std::thread::sleep(Duration::from_millis(300));
        Ok(None)
    });
    until("it runs", || consumer.stats().granted > 0);
    assert_eq!(consumer.stop(PATIENCE).unfinished, 0);
    let done = rig.done.lock().unwrap().len();
    assert!((1..20).contains(&done), "{done}");
    let next = rig.quick();
    rig.wait_for_each_once(20);
    drop(next);

    rig.engine.make("strict", 1);
    let stuck = rig.consumer(rig.config(), |_| {
        std::thread::sleep(PATIENCE);
        Ok(None)
    });
    until("it runs", || stuck.stats().granted > 0);
    assert_eq!(stuck.stop(Duration::ZERO).unfinished, 1);
}

#[test]
fn settings_that_cannot_be_used_are_refused_without_a_password() {
    let good = ConsumerConfig::new("redis://127.0.0.1", "http://127.0.0.1:7171", "mail");
    let refused = |change: fn(&mut ConsumerConfig)| {
        let mut config = good.clone();
        change(&mut config);
        Consumer::start(config, |_| Ok(None)).map(drop).unwrap_err().to_string()
    };
    assert!(refused(|config| config.queue = "No Name".into()).starts_with("queue: "));
    assert!(refused(|config| config.handlers = 0).starts_with("handlers: "));
    assert!(refused(|config| config.lease = Duration::ZERO).starts_with("lease: "));
    assert!(refused(|config| config.group = String::new()).starts_with("group: "));
    assert!(refused(|config| config.token = Some("a b".into())).starts_with("token: "));
    for url in ["", "ftp://h", "http://u:s3cret@h", "127.0.0.1:7171"] {
        let mut config = good.clone();
        config.engine_url = url.to_owned();
        let error = Consumer::start(config, |_| Ok(None)).map(drop).unwrap_err().to_string();
        assert!(error.starts_with("engine_url: ") && !error.contains("s3cret"), "{error}");
    }
    let error = refused(|config| config.redis_url = "redis://u:s3cret@h:x".into());
    assert!(error.contains("redis url") && !error.contains("s3cret"), "{error}");
}
