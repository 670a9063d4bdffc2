//! Every fault of a real Redis under the real server, while callers create and cancel and workers claim: once it has
//! settled, nothing that was promised is absent, and what was called off, or is early, never stood in a stream.
//!
//! The ordinary run strikes each once. The long run, by one command:
//!
//! ```console
//! $ COUNTWHEEL_FAULT_RUNS=20 cargo test -p countwheel --test it redis_matrix -- --nocapture
//! ```

mod faults;

use std::{
    fs::File,
    path::PathBuf,
    time::{Duration, Instant},
};

use self::faults::{FAULTS, Fault};
use crate::{
    crash_points::life::Life,
    redis_server::RedisServer,
    redis_view,
    server::{Server, countwheel},
    tcp_proxy::TcpProxy,
};

/// How long everything promised may take to be claimed once the fault is over.
const PATIENCE: Duration = Duration::from_secs(60);
/// Three kinds of lines, each once a second for each of two shards.
const LINES_A_SECOND: usize = 6;

/// A server, its Redis behind a proxy, and those who use both.
pub(crate) struct Bed {
    pub(crate) redis: RedisServer,
    pub(crate) proxy: TcpProxy,
    pub(crate) life: Life,
    server: Server,
    log: PathBuf,
    _dir: tempfile::TempDir,
}

impl Bed {
    fn new(fault: &Fault, seed: u64) -> Self {
        let redis = RedisServer::start(fault.options);
        let proxy = TcpProxy::to(redis.port());
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("stderr");
        let mut command = countwheel();
        command.env("RUST_LOG", "warn,actix_http=off").env("NO_COLOR", "1").stderr(File::create(&log).unwrap());
        let url = proxy.url();
        let options = ["--shards", "2", "--redis", &url, "--segment-bytes", "1048576", "--reserve-bytes", "0"];
        let server = Server::launch(command, &dir.path().join("data"), &options);
        let life = Life::new(seed, &redis.url(), "cw", 40);
        Self { redis, proxy, life, server, log, _dir: dir }
    }

    /// Everybody goes on as usual for so long.
    pub(crate) fn work(&mut self, ms: u64) {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(ms) {
            self.life.work(&self.server);
        }
    }

    /// A command of somebody else's.
    pub(crate) fn run(&self, command: &str) {
        redis_view::run(&self.redis.url(), command);
    }

    /// Lets callers go on without workers until the first stream holds a few entries that nobody has read; their ids.
    pub(crate) fn wait_for_unread(&mut self) -> Vec<String> {
        loop {
            self.life.create(&self.server);
            let mut command = redis::cmd("XREVRANGE");
            command.arg(&["cw:{mail.0}:strict", "+", "-", "COUNT", "3"]);
            let entries: Vec<(String, Vec<String>)> =
                command.query(&mut redis_view::client(&self.redis.url())).unwrap();
            let is_unread = |fields: &[String]| !self.life.granted.contains(&fields[1].parse().unwrap());
            if entries.len() == 3 && entries.iter().all(|(_, fields)| is_unread(fields)) {
                return entries.into_iter().map(|(id, _)| id).collect();
            }
        }
    }

    fn settle(&mut self, what: &str) {
        let begun = Instant::now();
        loop {
            self.life.attend(&self.server);
            let absent: Vec<_> = self.life.promised.keys().filter(|id| !self.life.granted.contains(id)).collect();
            if absent.is_empty() && self.server.call("GET", "/readyz", "").status == 200 {
                return;
            }
            if begun.elapsed() > PATIENCE {
                let first = absent.first().map(|id| self.server.call("GET", &format!("/v1/occurrences/{id}"), "").body);
                let ready = self.server.call("GET", "/readyz", "").body;
                panic!("{what}: {} of {} absent: {first:?} {ready}", absent.len(), self.life.promised.len());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn judge(&self, what: &str) {
        for (id, (_, first_seen)) in &self.life.seen {
            let at = self.life.known.get(id).unwrap_or_else(|| panic!("{what}: {id} was never asked for"));
            assert!(first_seen >= at, "{what}: {id} was seen at {first_seen}, due at {at}");
            assert!(!self.life.called_off.contains(id), "{what}: {id} was called off and stands in a stream");
        }
        for id in &self.life.completed {
            let shown = self.server.call("GET", &format!("/v1/occurrences/{id}"), "").body;
            assert!(shown.contains("SUCCEEDED"), "{what}: {shown}");
        }
        assert!(self.life.promised.len() > 30, "{what}: only {} were promised", self.life.promised.len());
        self.judge_log(what);
    }

    /// However often something goes wrong in a second, people read of it in a line or two.
    fn judge_log(&self, what: &str) {
        let log = std::fs::read_to_string(&self.log).unwrap();
        let seconds: Vec<&str> = log.lines().filter_map(|line| line.get(..19)).collect();
        for run in seconds.chunk_by(|a, b| a == b) {
            assert!(run.len() <= LINES_A_SECOND, "{what}: {} lines at {}:\n{log}", run.len(), run[0]);
        }
    }
}

fn strike(which: impl Fn(&Fault) -> bool) {
    let runs = std::env::var("COUNTWHEEL_FAULT_RUNS").map_or(1, |text| text.parse().expect("a number of runs"));
    for seed in 1..=runs {
        for fault in FAULTS.iter().filter(|fault| which(fault)) {
            println!("{}, seed {seed}", fault.name);
            let mut bed = Bed::new(fault, seed);
            bed.work(500);
            (fault.strike)(&mut bed);
            bed.work(300);
            bed.settle(fault.name);
            bed.judge(fault.name);
        }
    }
}

#[test]
fn a_server_that_dies_hangs_loads_or_is_replaced_loses_nothing() {
    strike(|fault| fault.kind == faults::Kind::Server);
}

#[test]
fn a_server_that_refuses_loses_nothing() {
    strike(|fault| fault.kind == faults::Kind::Refusal);
}

#[test]
fn a_network_that_cuts_and_holds_back_loses_nothing() {
    strike(|fault| fault.kind == faults::Kind::Network);
}

#[test]
fn what_somebody_removes_or_overwrites_is_written_again() {
    strike(|fault| fault.kind == faults::Kind::Removal);
}
