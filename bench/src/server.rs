//! The real server beside the harness: the `countwheel` binary of the same profile, on a free port, stopped by its pid.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Serialize, de::DeserializeOwned};

use crate::error::BenchError;

/// A running server, ended with the experiment.
pub(crate) struct Server {
    process: Child,
    url: String,
}

impl Server {
    /// Starts it on a data directory, with the embedded queue and every default.
    pub(crate) fn start(data: &Path, shards: Option<u16>) -> Result<Self, BenchError> {
        let binary = binary()?;
        let mut process = Command::new(binary)
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .args(shards.map(|shards| format!("--shards={shards}")))
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = process.stdout.take().ok_or_else(|| BenchError::Ended("the server has no stdout".into()))?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        match line.trim().split_once("listening on ") {
            Some((_, url)) => Ok(Self { process, url: url.to_owned() }),
            None => Err(BenchError::Ended(format!("the server said {line:?}"))),
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.url)
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

/// It is asked to stop, and awaited.
impl Drop for Server {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.process.wait();
    }
}

/// Beside the harness's own binary: built by `cargo build --release`.
fn binary() -> Result<PathBuf, BenchError> {
    let own = std::env::current_exe()?;
    // A test's binary lies one directory deeper.
    let beside = own.ancestors().skip(1).take(2).map(|dir| dir.join("countwheel")).find(|path| path.is_file());
    beside.ok_or_else(|| {
        let message = format!("there is no countwheel beside {}: run `cargo build --release` first", own.display());
        BenchError::Ended(message)
    })
}

/// One connection of its own.
pub(crate) struct Client {
    agent: ureq::Agent,
    url: String,
}

impl Client {
    pub(crate) fn new(url: &str) -> Self {
        let config = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(90)));
        Self { agent: config.http_status_as_error(false).build().into(), url: url.to_owned() }
    }

    pub(crate) fn get_text(&self, path: &str) -> Result<String, BenchError> {
        let failed = |error: ureq::Error| BenchError::Ended(format!("{path}: {error}"));
        let mut answer = self.agent.get(format!("{}{path}", self.url)).call().map_err(failed)?;
        answer.body_mut().read_to_string().map_err(failed)
    }

    /// Posts JSON and reads JSON; another status than 2xx is an error.
    pub(crate) fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, BenchError> {
        let body = serde_json::to_vec(body).map_err(|error| BenchError::Ended(error.to_string()))?;
        self.send(path, "application/json", &body)
    }

    /// Posts bytes and reads the answer's lines or object.
    pub(crate) fn send<T: DeserializeOwned>(&self, path: &str, kind: &str, body: &[u8]) -> Result<T, BenchError> {
        let text = self.send_text(path, kind, body)?;
        serde_json::from_slice(&text).map_err(|error| BenchError::Ended(format!("{path}: {error}")))
    }

    pub(crate) fn send_text(&self, path: &str, kind: &str, body: &[u8]) -> Result<Vec<u8>, BenchError> {
        let request = self.agent.post(format!("{}{path}", self.url)).header("content-type", kind);
        let failed = |error: ureq::Error| BenchError::Ended(format!("{path}: {error}"));
        let mut answer = request.send(body).map_err(failed)?;
        let text = answer.body_mut().with_config().limit(1 << 30).read_to_vec().map_err(failed)?;
        if answer.status().is_success() {
            return Ok(text);
        }
        Err(BenchError::Ended(format!("{path}: {} {}", answer.status(), String::from_utf8_lossy(&text))))
    }
}
