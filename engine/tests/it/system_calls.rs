//! The real server, as it is, ended or refused at the n-th system call that touches its files, on a disk that is full,
//! stopped for a while, and beside a second process: whatever was acknowledged is there afterwards.
//!
//! What needs strace, or the right to mount, says so where it is missing and does nothing. More of it by one command:
//!
//! ```console
//! $ COUNTWHEEL_SYSTEM_CALLS=40 cargo test -p countwheel --test it system_calls -- --nocapture
//! ```

use std::{
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::server::{Server, countwheel, refused};

const OPTIONS: [&str; 8] =
    ["--shards", "1", "--segment-bytes", "1048576", "--reserve-bytes", "0", "--snapshot-bytes", "65536"];
/// Creations of a life: enough for a few snapshots and a change of segments.
const CREATIONS: usize = 120;

/// A server under strace; both end with it.
struct Traced(Server);

impl Traced {
    /// With `inject` as strace reads it; or how it ended before it listened.
    fn start(data: &Path, calls: &str, inject: &str) -> Result<Self, std::process::ExitStatus> {
        let mut command = Command::new("strace");
        // Not with --seccomp-bpf, under which calls are not counted.
        command.args(["-f", "-qqq", "-o", "/dev/null", "-e", &format!("trace={calls}")]);
        command.args(["-e", &format!("inject={calls}:{inject}")]).arg("--").arg(countwheel().get_program());
        command.env("RUST_LOG", "off").stdin(Stdio::null()).stderr(Stdio::null());
        Server::try_launch(command, data, &OPTIONS).map(Self)
    }
}

impl Drop for Traced {
    /// A strace that is killed leaves what it traces alone.
    fn drop(&mut self) {
        let children = format!("/proc/{0}/task/{0}/children", self.0.pid());
        for pid in std::fs::read_to_string(children).unwrap_or_default().split_whitespace() {
            if let Some(pid) = pid.parse().ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        // It ends with what it traces: the directory is free then.
        self.0.wait();
    }
}

fn has_strace() -> bool {
    let is_there = Command::new("strace").args(["-qqq", "-o", "/dev/null", "true"]).status();
    let is_there = is_there.is_ok_and(|status| status.success());
    if !is_there {
        println!("SKIPPED: strace is not installed or may not trace here: apt-get install strace");
    }
    is_there
}

fn upto() -> usize {
    std::env::var("COUNTWHEEL_SYSTEM_CALLS").map_or(0, |text| text.parse().expect("a number"))
}

/// Creates until the server is dead or refuses; the ids that were acknowledged.
fn create(server: &mut Server, acknowledged: &mut Vec<String>) {
    let payload = "x".repeat(16_000);
    let spec =
        format!(r#"{{"tenant":"acme","queue":"mail","payload":"{payload}","rule":{{"at":"2099-01-01T00:00:00Z"}}}}"#);
    for _ in 0..CREATIONS {
        let Some(made) = server.try_send("POST", "/v1/schedules", &[], spec.as_bytes()) else { return };
        match made.status {
            201 => acknowledged.push(made.json()["schedule"]["schedule_id"].as_str().unwrap().to_owned()),
            503 | 507 => return,
            _ => panic!("{made:?}"),
        }
    }
}

fn assert_there(data: &Path, acknowledged: &[String], what: &str) {
    let server = Server::start(data, &OPTIONS);
    for id in acknowledged {
        let shown = server.call("GET", &format!("/v1/schedules/{id}"), "");
        assert_eq!(shown.status, 200, "{what}: {id} of {} is gone: {shown:?}", acknowledged.len());
    }
    assert!(server.terminate().success(), "{what}");
}

/// One life under `inject`, then one without.
fn live(calls: &str, inject: &str) {
    let what = format!("{calls} {inject}");
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut acknowledged = Vec::new();
    // A directory that stands already, so that starting from one is under way too.
    create(&mut Server::start(&data, &OPTIONS), &mut acknowledged);
    match Traced::start(&data, calls, inject) {
        Ok(mut traced) => create(&mut traced.0, &mut acknowledged),
        Err(status) => assert!(status.signal() == Some(9) || status.code() == Some(1), "{what}: {status}"),
    }
    println!("{what}: {} acknowledged", acknowledged.len());
    assert_there(&data, &acknowledged, &what);
}

const CALLS: [&str; 7] =
    ["pwrite64", "fdatasync", "fsync", "/rename(at|at2)?$", "/unlink(at)?$", "ftruncate", "fallocate"];

#[test]
fn a_kill_at_any_system_call_loses_nothing_acknowledged() {
    if !has_strace() {
        return;
    }
    let times: Vec<usize> = if upto() > 0 { (1..=upto()).collect() } else { vec![2, 20] };
    for calls in CALLS {
        times.iter().for_each(|nth| live(calls, &format!("signal=SIGKILL:when={nth}")));
    }
}

#[test]
fn a_refusal_of_any_system_call_loses_nothing_acknowledged() {
    if !has_strace() {
        return;
    }
    let times: Vec<usize> = if upto() > 0 { (1..=upto()).collect() } else { vec![3] };
    for calls in CALLS {
        for error in ["EIO", "ENOSPC"] {
            times.iter().for_each(|nth| live(calls, &format!("error={error}:when={nth}")));
        }
    }
}

/// A small file system of its own, gone with it.
struct Small(PathBuf, #[expect(dead_code, reason = "it is kept until the mount has gone")] tempfile::TempDir);

impl Small {
    fn mount(size: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size},mode=700"), "tmpfs"]).arg(dir.path());
        let is_mounted = mount.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
        if !is_mounted {
            println!("SKIPPED: a small file system cannot be mounted here: run as root where mount is allowed");
        }
        is_mounted.then(|| Self(dir.path().to_owned(), dir))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_refuses_and_takes_again_and_what_it_acknowledged_is_there() {
    let Some(small) = Small::mount("12m") else { return };
    let ballast = small.0.join("ballast");
    std::fs::write(&ballast, vec![1; 5 << 20]).unwrap();
    let data = small.0.join("data");
    let mut acknowledged = Vec::new();
    let mut server = Server::start(&data, &OPTIONS);
    for _ in 0..4 {
        create(&mut server, &mut acknowledged);
    }
    let before = acknowledged.len();
    let spec = r#"{"tenant":"acme","queue":"mail","rule":{"every":"1h"}}"#;
    assert_eq!(server.call("POST", "/v1/schedules", spec).refusal().1, "disk_full");
    std::fs::remove_file(&ballast).unwrap();
    let begun = Instant::now();
    while server.call("POST", "/v1/schedules", spec).status != 201 {
        assert!(begun.elapsed() < Duration::from_secs(30), "it never took anything again");
        thread::sleep(Duration::from_millis(50));
    }
    create(&mut server, &mut acknowledged);
    assert!(acknowledged.len() > before + 20, "{before} before, {} after", acknowledged.len());
    drop(server); // SIGKILL
    assert_there(&data, &acknowledged, "full disk");
}

#[test]
fn a_process_that_is_stopped_for_a_while_hands_over_each_instant_once_when_it_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &OPTIONS);
    let spec = r#"{"tenant":"acme","queue":"mail","rule":{"every":"1s"}}"#;
    let made = server.call("POST", "/v1/schedules", spec).json();
    let id = made["schedule"]["schedule_id"].as_str().unwrap().to_owned();
    thread::sleep(Duration::from_millis(1_500));
    server.signal(Signal::STOP);
    thread::sleep(Duration::from_millis(3_500));
    server.signal(Signal::CONT);
    let begun = Instant::now();
    let instants = loop {
        let path = format!("/v1/schedules/{id}/occurrences?state=ENQUEUED&limit=500");
        let page = server.call("GET", &path, "").json();
        let items = page["items"].as_array().unwrap();
        let mut instants: Vec<_> =
            items.iter().map(|item| item["scheduled_for"].as_str().unwrap().to_owned()).collect();
        instants.sort();
        if instants.len() >= 6 {
            break instants;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{page}");
        thread::sleep(Duration::from_millis(50));
    };
    let seconds: Vec<i64> =
        instants.iter().map(|text| countwheel::kernel::time::UnixMs::parse_rfc3339(text).unwrap().0 / 1_000).collect();
    assert!(seconds.windows(2).all(|pair| pair[1] == pair[0] + 1), "a gap or a repetition: {instants:?}");
}

#[test]
fn a_second_process_on_the_directory_is_refused_and_the_first_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = Server::start(&data, &OPTIONS);
    let (code, said) = refused(&["--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(data.to_str().unwrap()) && said.contains(&server.pid().to_string()), "{said}");
    assert_eq!(server.call("GET", "/readyz", "").status, 200);
}
