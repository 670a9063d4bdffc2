//! The real binary as a server in a temporary directory, and a client that is just enough HTTP for tests.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::Duration,
};

use serde_json::Value;

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(30);

/// The command under test; its log is kept to errors.
pub(crate) fn countwheel() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_countwheel"));
    command.env("RUST_LOG", "error,actix_http=off").stdin(Stdio::null());
    command
}

/// What a `serve` that must be refused says: its code and its stderr.
pub(crate) fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = countwheel().arg("serve").args(arguments).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

/// A running server; killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Serves `data` on a free port with `more` options, and waits until it listens.
    pub(crate) fn start(data: &Path, more: &[&str]) -> Self {
        Self::launch(countwheel(), data, more)
    }

    /// The same with a command that has been prepared (its environment).
    pub(crate) fn launch(command: Command, data: &Path, more: &[&str]) -> Self {
        Self::listen(command, "127.0.0.1:0", data, more)
    }

    /// The same where clients expect it, after a restart.
    pub(crate) fn start_at(address: SocketAddr, data: &Path, more: &[&str]) -> Self {
        Self::listen(countwheel(), &address.to_string(), data, more)
    }

    /// The same with a command that may end the server before it listens: then how it ended.
    pub(crate) fn try_launch(mut command: Command, data: &Path, more: &[&str]) -> Result<Self, ExitStatus> {
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data).args(more);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        match address_in(&line) {
            Some(address) => Ok(Self { child, address }),
            None => Err(child.wait().unwrap()),
        }
    }

    fn listen(mut command: Command, address: &str, data: &Path, more: &[&str]) -> Self {
        command.args(["serve", "--listen", address, "--data"]).arg(data).args(more);
        // Every server that is tried writes snapshots while it works.
        if !more.contains(&"--snapshot-bytes") {
            command.args(["--snapshot-bytes", "64KiB"]);
        }
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = address_in(&line).unwrap_or_else(|| panic!("said {line:?}"));
        Self { child, address }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) fn terminate(mut self) -> ExitStatus {
        self.signal(rustix::process::Signal::TERM);
        self.child.wait().unwrap()
    }

    /// One request, one answer.
    pub(crate) fn call(&self, method: &str, path: &str, body: &str) -> Reply {
        self.send(method, path, &[], body.as_bytes())
    }

    /// The same with headers.
    pub(crate) fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        self.exchange(&self.request(method, path, headers, body))
    }

    /// The same to a server that may die meanwhile: its answer, if all of it came.
    pub(crate) fn try_send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Option<Reply> {
        let reply = self.converse(&self.request(method, path, headers, body)).ok()?;
        let (head, body) = reply.split_at(reply.windows(4).position(|four| four == b"\r\n\r\n")? + 4);
        let head = String::from_utf8_lossy(head).to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        (length.unwrap_or_default() == body.len()).then(|| Reply::read(&reply))
    }

    fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", self.address);
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        [head.as_bytes(), body].concat()
    }

    /// Sends these bytes on a connection of their own and reads to its end.
    pub(crate) fn exchange(&self, bytes: &[u8]) -> Reply {
        Reply::read(&self.converse(bytes).unwrap())
    }

    fn converse(&self, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(bytes)?;
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply)?;
        Ok(reply)
    }
}

fn address_in(line: &str) -> Option<SocketAddr> {
    let (_, address) = line.trim_end().strip_prefix("countwheel: listening on ")?.split_once("://")?;
    address.parse().ok()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    fn read(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status: {head:?}"));
        Self { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    /// The body of an answer that came in chunks.
    pub(crate) fn unchunked(&self) -> String {
        if !self.head.contains("transfer-encoding: chunked") {
            return self.body.clone();
        }
        let (mut whole, mut rest) = (String::new(), self.body.as_str());
        while let Some((size, tail)) = rest.split_once("\r\n") {
            let size = usize::from_str_radix(size, 16).unwrap_or_else(|_| panic!("no size: {size:?}"));
            whole.push_str(&tail[..size]);
            rest = &tail[size + 2..];
        }
        whole
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// Status, code and field of an error.
    pub(crate) fn refusal(&self) -> (u16, String, Option<String>) {
        let error = &self.json()["error"];
        let text = |key: &str| error[key].as_str().map(str::to_owned);
        assert!(text("message").is_some_and(|message| !message.is_empty()), "{self:?}");
        (self.status, text("code").unwrap_or_else(|| panic!("{self:?}")), text("field"))
    }
}
