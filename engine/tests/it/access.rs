//! Who may call the real server: tokens made by the command line, read again on SIGHUP.

use std::{
    fmt::Write as _,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::server::{Reply, Server, countwheel};

/// A token and its line for the tokens file.
fn made(role: &str) -> (String, String) {
    let output = countwheel().args(["token", "new", "--role", role]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (token, line) = text.trim_end().split_once('\n').unwrap();
    (token.to_owned(), line.to_owned())
}

fn written(home: &Path, lines: &[&str]) -> PathBuf {
    let file = home.join("tokens");
    let mut text = String::new();
    for line in lines {
        writeln!(text, "{line}").unwrap();
    }
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    file
}

fn list(server: &Server, token: &str) -> Reply {
    server.send("GET", "/v1/schedules", &[("Authorization", &format!("Bearer {token}"))], b"")
}

#[test]
fn tokens_are_read_again_on_sighup_and_a_broken_file_locks_nobody_out() {
    let home = tempfile::tempdir().unwrap();
    let ((one, one_line), (two, two_line)) = (made("admin"), made("tenant:acme"));
    let file = written(home.path(), &[&one_line]);
    let tokens = ["--shards", "1", "--tokens", file.to_str().unwrap()];
    let server = Server::start(&home.path().join("data"), &tokens);
    let statuses = || [list(&server, &one).status, list(&server, &two).status];
    assert_eq!(server.call("GET", "/v1/schedules", "").status, 401);
    assert_eq!(statuses(), [200, 401]);
    let becomes = |want: [u16; 2]| {
        let started = Instant::now();
        while statuses() != want {
            assert!(started.elapsed() < Duration::from_secs(30), "still {:?}", statuses());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    written(home.path(), &[&one_line, &two_line]);
    server.signal(Signal::HUP);
    becomes([200, 200]);
    written(home.path(), &["# the first one is withdrawn", &two_line]);
    server.signal(Signal::HUP);
    becomes([401, 200]);
    written(home.path(), &[&two_line, "garbage"]);
    server.signal(Signal::HUP);
    assert_eq!(statuses(), [401, 200]);
    assert_eq!(server.terminate().code(), Some(0));
}
