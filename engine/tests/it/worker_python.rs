//! The example in Python, written from docs/REDIS.md alone, against the real server and a real Redis.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
};

use crate::workers_and_server::{House, sorted};

/// A Python that has redis-py: the one that `.ci/test` makes, or the machine's.
fn python() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let ours = root.join("target/python/bin/python");
    for python in [ours, "python3".into(), "/usr/bin/python3".into()] {
        let check = Command::new(&python).args(["-c", "import redis"]).stderr(Stdio::null()).status();
        if check.is_ok_and(|status| status.success()) {
            return python;
        }
    }
    panic!(
        "there is no python with redis-py: run `python3 -m venv target/python && target/python/bin/pip install redis`"
    );
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(python: &Path, house: &House) -> (Killed, Arc<Mutex<Vec<String>>>) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/python/worker.py");
    let mut command = Command::new(python);
    command.arg(script).args(["--redis", &house.redis.url(), "--engine", &house.url(), "--queue", "mail"]);
    command.args(["--lease-ms", "2000", "--recover-ms", "1000"]).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let said: Arc<Mutex<Vec<String>>> = Arc::default();
    let (heard, lines) = (Arc::clone(&said), BufReader::new(child.stdout.take().unwrap()).lines());
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| heard.lock().unwrap().push(line)));
    (Killed(child), said)
}

#[test]
fn the_worker_in_python_keeps_the_protocol() {
    let python = python();
    let mut house = House::new();
    house.make(20, 800);
    let (mut worker, said) = start(&python, &house);
    house.wait_for_success();
    crate::redis_view::run(&house.redis.url(), "FLUSHALL");
    house.make(20, 800);
    house.wait_for_success();
    let mut done: Vec<_> =
        said.lock().unwrap().iter().map(|line| line.trim_start_matches("done ").to_owned()).collect();
    done.sort_unstable();
    let expected: Vec<_> = sorted(&house.made).iter().map(|id| format!("{id} attempt 1: hello")).collect();
    assert_eq!(done, expected);
    rustix::process::kill_process(rustix::process::Pid::from_child(&worker.0), rustix::process::Signal::TERM).unwrap();
    assert!(worker.0.wait().unwrap().success(), "it stops when it is asked to");
}
