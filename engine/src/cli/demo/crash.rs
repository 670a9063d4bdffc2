//! The demo in two processes: a child engine is killed (SIGKILL) in the middle of a burst and started again; the
//! parent watches what its workers took, then opens the directory itself and counts.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use actix_web::rt::System;

use super::{
    DemoError,
    certificate::Certificate,
    home::Home,
    look,
    plan::{BURST, Plan},
};
use crate::{
    cli::{
        report::say,
        start::{self, Start},
    },
    kernel::time::UnixMs,
};

/// How many of the burst the workers get before the kill: enough that some are completed, some are taken, most wait.
const TAKEN_BEFORE_KILL: usize = BURST / 5;
/// How long after the burst's instant the kill comes at the latest.
const KILL_AFTER: Duration = Duration::from_millis(500);
/// How long after the plan's end the child may take to settle.
const SETTLE: Duration = Duration::from_secs(20);

/// Shows it and counts.
pub(crate) fn run(seconds: u16) -> Result<Certificate, DemoError> {
    let home = Home::new().map_err(DemoError::Home)?;
    let plan = Plan::crash(now(), seconds);
    let mut watch = Watch { data: home.data(), seconds, plan, handed_out: BTreeMap::new(), completed: 0 };
    say(format_args!("a child engine in {}, two workers; {BURST} one-offs on one instant", home.path().display()));
    watch.until_killed()?;
    watch.until_settled()?;
    let mut certificate = System::new().block_on(count(&watch.data, &watch.plan))?;
    certificate.handed_out_twice = watch.handed_out.values().filter(|times| **times > 1).count() as u64;
    Ok(certificate)
}

/// Opens the directory after the child is gone and compares it with the plan.
async fn count(data: &std::path::Path, plan: &Plan) -> Result<Certificate, DemoError> {
    let engine = start::open(Start { data: data.to_owned(), ..Start::default() }).await?;
    let lines = look::lines(&engine, plan).await;
    engine.stop().await?;
    Ok(Certificate::of(&lines?))
}

/// What the parent sees of its children.
struct Watch {
    data: PathBuf,
    seconds: u16,
    plan: Plan,
    /// How often each occurrence was handed to a worker, by its id as text.
    handed_out: BTreeMap<String, u64>,
    completed: u64,
}

impl Watch {
    fn until_killed(&mut self) -> Result<(), DemoError> {
        let mut child = Running::start(&self.data, &self.plan, self.seconds)?;
        let burst_at = self.plan.burst_at();
        let (mut taken_of_burst, mut is_made) = (0, false);
        let kill_at = Instant::now() + until(burst_at) + KILL_AFTER;
        while taken_of_burst < TAKEN_BEFORE_KILL {
            let Some(line) = child.line(kill_at)? else { break };
            is_made |= line == "made";
            if self.note(&line) && now() >= burst_at {
                taken_of_burst += 1;
            }
        }
        child.kill()?;
        let into_burst_ms = now().since(burst_at);
        if !is_made {
            let what = format!("had not made all schedules {into_burst_ms} ms after the burst's instant");
            return Err(DemoError::ChildEnded(what));
        }
        // What it wrote before it died is still in the pipe.
        while let Some(line) = child.rest() {
            self.note(&line);
        }
        let (taken, completed) = (self.handed_out.len(), self.completed);
        say(format_args!(
            "killed (SIGKILL) {into_burst_ms} ms into the burst: {taken} occurrences handed out so far, \
             {completed} completed"
        ));
        Ok(())
    }

    fn until_settled(&mut self) -> Result<(), DemoError> {
        let started = Instant::now();
        let mut child = Running::start(&self.data, &self.plan, self.seconds)?;
        let deadline = Instant::now() + until(self.plan.end_at) + SETTLE;
        while let Some(line) = child.line(deadline)? {
            match line.as_str() {
                "made" => say(format_args!("open again after {} ms", started.elapsed().as_millis())),
                "settled" => return child.ended(),
                _ => {
                    self.note(&line);
                }
            }
        }
        // Not settled in time: the certificate says what is missing.
        child.kill()
    }

    /// Notes what a line says; whether it is an occurrence handed out.
    fn note(&mut self, line: &str) -> bool {
        match line.split_once(' ') {
            Some(("took", id)) => {
                *self.handed_out.entry(id.to_owned()).or_default() += 1;
                true
            }
            Some(("done", _)) => {
                self.completed += 1;
                false
            }
            _ => false,
        }
    }
}

/// A child and the lines it tells.
struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    fn start(data: &std::path::Path, plan: &Plan, seconds: u16) -> Result<Self, DemoError> {
        let mut child = Command::new(std::env::current_exe().map_err(DemoError::Child)?)
            .arg("demo-engine")
            .arg("--data")
            .arg(data)
            .args(["--from-ms", &plan.from.0.to_string(), "--seconds", &seconds.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(DemoError::Child)?;
        let stdout = child.stdout.take().expect("stdout was asked for as a pipe");
        let (sender, lines) = channel();
        thread::spawn(move || {
            // Ends with the pipe, that is with the child, or when nobody listens any more.
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, lines })
    }

    /// The next line, or nothing once it is `deadline`. A child that ended on its own is an error.
    fn line(&mut self, deadline: Instant) -> Result<Option<String>, DemoError> {
        match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait().map_err(DemoError::Child)?;
                Err(DemoError::ChildEnded(format!("ended early ({status})")))
            }
        }
    }

    /// A line of a child that is gone.
    fn rest(&self) -> Option<String> {
        self.lines.recv().ok()
    }

    fn kill(&mut self) -> Result<(), DemoError> {
        self.child.kill().map_err(DemoError::Child)?;
        self.child.wait().map_err(DemoError::Child)?;
        Ok(())
    }

    /// Waits for a child that said that it is done.
    fn ended(&mut self) -> Result<(), DemoError> {
        let status = self.child.wait().map_err(DemoError::Child)?;
        if status.success() { Ok(()) } else { Err(DemoError::ChildEnded(format!("ended with {status}"))) }
    }
}

impl Drop for Running {
    /// No child outlives the demo, whatever went wrong.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn now() -> UnixMs {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMs(i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX))
}

fn until(at: UnixMs) -> Duration {
    Duration::from_millis(u64::try_from(at.since(now())).unwrap_or_default())
}
