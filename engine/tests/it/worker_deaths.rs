//! kill -9 of a worker's process at each hand-over: between reading and claiming, between the claim and its
//! acknowledgement, in the middle of the work.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
};

use crate::{
    redis_server::RedisServer,
    stand_in::{Mood, StandIn},
    workers_and_server::{House, until},
};

/// The example `redis_worker` in a process of its own; killed when dropped.
struct WorkerProcess {
    child: Child,
    said: Arc<Mutex<Vec<String>>>,
}

impl WorkerProcess {
    fn start(redis: &str, engine: &str, lease_ms: u32, work_ms: u32) -> Self {
        let tests = std::env::current_exe().expect("a test has a path");
        let path = tests.ancestors().nth(2).expect("tests lie in target/PROFILE/deps").join("examples/redis_worker");
        let mut command = Command::new(&path);
        command.args([redis, engine, "mail", &lease_ms.to_string(), &work_ms.to_string()]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child =
            child.unwrap_or_else(|error| panic!("{}: {error}: run `cargo build --examples`", path.display()));
        let said = Arc::default();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let heard: Arc<Mutex<Vec<String>>> = Arc::clone(&said);
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| heard.lock().unwrap().push(line)));
        Self { child, said }
    }

    fn said(&self, word: &str) -> Vec<String> {
        let said = self.said.lock().unwrap();
        said.iter().filter_map(|line| line.strip_prefix(word)).map(|rest| rest.trim().to_owned()).collect()
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn killed_between_reading_and_claiming_another_worker_takes_the_entry_over() {
    let redis = RedisServer::start(&[]);
    let engine = StandIn::on(&redis.url());
    engine.claims(Mood::HoldsQuestions);
    engine.make("strict", 3);
    let first = WorkerProcess::start(&redis.url(), &engine.url, 1_000, 0);
    until("all are read", || engine.held() == 3);
    drop(first);
    // What the dead one had asked comes to nothing: its questions are never answered.
    let second = WorkerProcess::start(&redis.url(), &engine.url, 1_000, 0);
    until("they are taken over", || engine.held() == 6);
    engine.claims(Mood::Well);
    until("all have succeeded", || engine.ended("SUCCEEDED") == 3);
    assert!(second.said("done").len() == 3);
}

#[test]
fn killed_between_the_claim_and_its_acknowledgement_the_lease_runs_out_and_another_attempt_follows() {
    let redis = RedisServer::start(&[]);
    let engine = StandIn::on(&redis.url());
    engine.claims(Mood::HoldsAnswers);
    engine.make("strict", 3);
    let first = WorkerProcess::start(&redis.url(), &engine.url, 1_000, 0);
    until("all are claimed", || engine.held() == 3);
    drop(first);
    engine.claims(Mood::Well);
    let second = WorkerProcess::start(&redis.url(), &engine.url, 1_000, 0);
    until("all have succeeded", || engine.ended("SUCCEEDED") == 3);
    assert_eq!(engine.attempts(), [2; 3]);
    until("all are done", || second.said("done").len() == 3);
}

#[test]
fn killed_in_the_middle_of_its_work_another_worker_does_it_again_for_the_real_server() {
    let mut house = House::new();
    house.make(4, 600);
    let first = WorkerProcess::start(&house.redis.url(), &house.url(), 1_000, 60_000);
    until("all have begun", || first.said("begun").len() == 4);
    assert!(first.said("done").is_empty());
    drop(first);
    let second = WorkerProcess::start(&house.redis.url(), &house.url(), 1_000, 0);
    house.wait_for_success();
    let mut done = second.said("done");
    done.sort_unstable();
    let expected: Vec<_> = crate::workers_and_server::sorted(&house.made).iter().map(|id| format!("{id} 2")).collect();
    assert_eq!(done, expected);
}
