//! A `redis-server` of one's own: on a free port, in a temporary directory, ended with the test or bench.
//!
//! It is killed, stopped and paused by its own process id only.

#![allow(dead_code, unreachable_pub, reason = "tests and benches each use a part of this")]

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// How long a server may take to come up or go down on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server, running or not, that keeps its port and its directory.
pub struct RedisServer {
    port: u16,
    dir: tempfile::TempDir,
    options: Vec<String>,
    process: Option<Child>,
}

impl RedisServer {
    /// Starts a server with an append-only file and these further options (`["--appendfsync", "always"]`).
    ///
    /// # Panics
    /// When `redis-server` is not installed, or does not come up.
    pub fn start(options: &[&str]) -> Self {
        let port = free_port();
        let dir = tempfile::tempdir().expect("a temporary directory");
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut server = Self { port, dir, options, process: None };
        server.restart();
        server
    }

    /// `redis://127.0.0.1:<port>`
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where its files are.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Starts it again on the same port with the data that it left, and waits until it answers commands.
    pub fn restart(&mut self) {
        self.launch();
        self.wait_for("+PONG");
    }

    /// Starts it again and returns as soon as it accepts connections, loading or not.
    pub fn launch(&mut self) {
        assert!(self.process.is_none(), "the server runs already");
        let process = Command::new("redis-server")
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", "yes", "--dir"])
            .arg(self.dir.path())
            .args(&self.options)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("redis-server cannot be started ({error}): apt-get install redis-server"));
        self.process = Some(process);
        self.wait_for("");
    }

    /// Starts it again with nothing.
    pub fn restart_empty(&mut self) {
        self.clear();
        self.restart();
    }

    /// Removes its data while it does not run.
    pub fn clear(&self) {
        assert!(self.process.is_none(), "the server still runs");
        for entry in std::fs::read_dir(self.dir.path()).expect("its directory").flatten() {
            let path = entry.path();
            let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            removed.expect("its file can be removed");
        }
    }

    /// kill -9.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.reap();
    }

    /// A clean end: everything is written.
    pub fn stop(&mut self) {
        self.signal(Signal::TERM);
        self.reap();
    }

    /// It hangs: connections stay open, nothing is answered.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// It goes on.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Processor time that it has used so far.
    pub fn cpu(&self) -> Duration {
        let pid = self.process.as_ref().expect("the server runs").id();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("its process is visible");
        let (_, fields) = stat.rsplit_once(')').expect("a stat line");
        let ticks = fields.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().expect("ticks"));
        Duration::from_millis(ticks.sum::<u64>() * 10)
    }

    fn signal(&self, signal: Signal) {
        let process = self.process.as_ref().expect("the server runs");
        let pid = Pid::from_raw(i32::try_from(process.id()).expect("a process id")).expect("a process id");
        kill_process(pid, signal).expect("our own child can be signalled");
    }

    fn reap(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.wait().expect("our own child can be waited for");
        }
    }

    /// Waits until PING is answered with something that starts so (a password or loading answers with an error).
    fn wait_for(&self, answer: &str) {
        let started = Instant::now();
        loop {
            let seen = self.ping().unwrap_or_default();
            if !seen.is_empty() && (seen.starts_with(answer) || seen.starts_with("-NOAUTH")) {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "redis-server on port {} does not come up: {seen:?}", self.port);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn ping(&self) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 64];
        let length = stream.read(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // A child that is gone already, or one that is paused: both are ended by this.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}
