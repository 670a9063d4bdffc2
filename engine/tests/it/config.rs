//! How a server is told what to be: precedence, refusals, and what it shows of it.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::server::{Server, countwheel, refused};

/// How long a command that has to end by itself may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs a command to its end: code, stdout, stderr. One that does not end is killed, and has no code.
fn end_of(command: &mut Command) -> (Option<i32>, String, String) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > PATIENCE {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// The line of a setting in what `--print-config` shows.
fn line<'a>(shown: &'a str, key: &str) -> &'a str {
    let found = shown.lines().find(|line| line.trim_start_matches("# ").split(' ').next() == Some(key));
    found.unwrap_or_else(|| panic!("no {key} in {shown}"))
}

#[test]
fn a_flag_wins_over_the_environment_that_over_the_file_that_over_the_default() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("c.toml");
    std::fs::write(&file, "lead = \"1s\"\nmailbox = 10\nshards = 3\nsegment_bytes = \"1MiB\"\n").unwrap();
    let mut command = countwheel();
    command.args(["serve", "--print-config", "--lead", "3s", "--config"]).arg(&file);
    command.env("COUNTWHEEL_LEAD", "2s").env("COUNTWHEEL_MAILBOX", "20").current_dir(home.path());
    let (code, shown, said) = end_of(&mut command);
    assert_eq!(code, Some(0), "{said}");
    for (key, value, origin) in [
        ("lead", "\"3s\"", "--lead"),
        ("mailbox", "20", "COUNTWHEEL_MAILBOX"),
        ("shards", "3", "c.toml line 3"),
        ("segment_bytes", "\"1MiB\"", "c.toml line 4"),
        ("redis_prefix", "\"cw\"", "default"),
    ] {
        let line = line(&shown, key);
        assert!(line.starts_with(&format!("{key} = {value} ")) && line.ends_with(origin), "{line}");
    }
    assert!(line(&shown, "redis").starts_with("# redis "), "{shown}");
    let left = std::fs::read_dir(home.path()).unwrap().count();
    assert_eq!(left, 1, "nothing was made");
}

#[test]
fn what_is_shown_can_be_used_as_a_file() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("c.toml");
    let print = |more: &[&str]| end_of(countwheel().args(["serve", "--print-config"]).args(more));
    let (_, shown, _) = print(&["--shards", "2", "--lead", "1s", "--data", "it's \"here\""]);
    std::fs::write(&file, shown).unwrap();
    let (code, again, said) = print(&["--config", file.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{said}");
    let values = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.split(" #").next().unwrap().trim_end().to_owned()).collect()
    };
    let shown = std::fs::read_to_string(&file).unwrap();
    assert_eq!(values(&again), values(&shown));
}

#[test]
fn the_environment_names_the_file_too_and_a_secret_is_not_shown() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("c.toml");
    std::fs::write(&file, "redis = \"redis://user:s3cret@127.0.0.1:6379/0?protocol=2\"\n").unwrap();
    let mut command = countwheel();
    command.args(["serve", "--print-config"]).env("COUNTWHEEL_CONFIG", &file).env("RUST_LOG", "trace");
    let (code, shown, said) = end_of(&mut command);
    assert_eq!(code, Some(0), "{said}");
    assert!(line(&shown, "redis").starts_with("redis = \"redis://***@127.0.0.1:6379/0\""), "{shown}");
    assert!(!shown.contains("s3cret") && !said.contains("s3cret"), "{shown}{said}");
}

/// Serves with bad settings: must end with 2 and one line, and make nothing.
fn refusal(arguments: &[&str], environment: &[(&str, &str)], file: Option<&str>) -> String {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let mut command = countwheel();
    command.args(["serve", "--listen", "127.0.0.1:0"]).args(arguments).envs(environment.iter().copied());
    command.env("COUNTWHEEL_DATA", &data);
    let config = home.path().join("c.toml");
    if let Some(text) = file {
        std::fs::write(&config, text).unwrap();
        command.arg("--config").arg(&config);
    }
    let (code, out, said) = end_of(&mut command);
    assert_eq!(code, Some(2), "{arguments:?} {environment:?} {file:?}: {said}");
    assert!(said.starts_with("countwheel: ") && said.lines().count() == 1 && out.is_empty(), "{said}");
    assert!(!data.exists(), "nothing was made: {arguments:?}");
    said
}

#[test]
fn a_bad_value_is_refused_with_its_key_and_flag_before_anything_is_made() {
    for (key, arguments) in [
        ("redis", &["--redis", "http://x"][..]),
        ("redis", &["--redis", "redis://h/notanumber"]),
        ("redis", &["--redis", ""]),
        ("redis_prefix", &["--redis", "redis://127.0.0.1:1", "--redis-prefix", "a{b}"]),
        ("redis_prefix", &["--redis", "redis://127.0.0.1:1", "--redis-prefix", "a b"]),
        ("redis_prefix", &["--redis", "redis://127.0.0.1:1", "--redis-prefix", ""]),
        ("redis_prefix", &["--redis-prefix", "x"]),
        ("adopt_redis", &["--adopt-redis"]),
        ("shards", &["--shards", "0"]),
        ("shards", &["--shards", "1025"]),
        ("shards", &["--shards", "four"]),
        ("lead", &["--lead", "61s"]),
        ("lead", &["--lead", "-1s"]),
        ("horizon", &["--horizon", "25h"]),
        ("segment_bytes", &["--segment-bytes", "1000"]),
        ("reserve_bytes", &["--reserve-bytes", "many"]),
        ("live_limit", &["--live-limit", "0"]),
        ("mailbox", &["--mailbox", "0"]),
        ("tzdata", &["--tzdata", "/nowhere/at/all"]),
        ("tls_cert", &["--tls-cert", "/nowhere/cert.pem"]),
        ("tls_key", &["--tls-key", "/nowhere/key.pem"]),
        ("tokens", &["--tokens", "/nowhere/tokens"]),
    ] {
        let said = refusal(arguments, &[], None);
        let flag = format!("--{}", key.replace('_', "-"));
        assert!(said.starts_with(&format!("countwheel: {key} ({flag}): ")), "{said}");
    }
    let said = refusal(&["--rehearse-from", "2026-11-01T04:00:00Z", "--rehearse-speed", "1000000"], &[], None);
    assert!(said.starts_with("countwheel: --rehearse-speed: "), "{said}");
}

#[test]
fn a_bad_value_is_refused_with_its_variable_or_its_line() {
    let said = refusal(&[], &[("COUNTWHEEL_LEAD", "soon")], None);
    assert!(said.starts_with("countwheel: lead (COUNTWHEEL_LEAD): "), "{said}");
    let said = refusal(&[], &[], Some("\n\nmailbox = 0\n"));
    assert!(said.starts_with("countwheel: mailbox (") && said.contains("c.toml line 3): "), "{said}");
    let said = refusal(&[], &[], Some("shards = 2\nshrads = 3\n"));
    assert!(said.contains("c.toml line 2: ") && said.contains("shrads") && said.contains("adopt_redis"), "{said}");
    let said = refusal(&["--config", "/nowhere/c.toml"], &[], None);
    assert!(said.contains("/nowhere/c.toml") && said.contains("--config"), "{said}");
}

#[test]
fn a_command_line_that_does_not_read_is_one_line_and_help_is_none() {
    for arguments in [&["serve", "--frobnicate"][..], &["serve", "extra"], &["wal"], &[], &["preview"], &["nothing"]] {
        let (code, out, said) = end_of(countwheel().args(arguments));
        assert_eq!((code, out.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(said.starts_with("countwheel: ") && said.lines().count() == 1 && said.contains("--help"), "{said}");
    }
    for arguments in [&["--help"][..], &["serve", "--help"], &["--version"], &["help", "preview"]] {
        let (code, out, said) = end_of(countwheel().args(arguments));
        assert_eq!((code, said.as_str()), (Some(0), ""), "{arguments:?}");
        assert!(out.contains("countwheel"), "{out}");
    }
}

#[test]
fn a_hang_up_does_not_end_the_server() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(&home.path().join("data"), &["--shards", "1"]);
    for _ in 0..3 {
        server.signal(Signal::HUP);
        assert_eq!(server.call("GET", "/healthz", "").status, 200);
    }
    assert_eq!(server.terminate().code(), Some(0));
}

#[test]
fn the_settings_of_a_file_are_used() {
    let home = tempfile::tempdir().unwrap();
    let (config, data) = (home.path().join("c.toml"), home.path().join("data"));
    std::fs::write(&config, "shards = 3\nsegment_bytes = 1048576\nreserve_bytes = 0\n").unwrap();
    let server = Server::start(&data, &["--config", config.to_str().unwrap()]);
    assert_eq!(server.call("GET", "/healthz", "").json()["shards"], 3);
    assert_eq!(server.terminate().code(), Some(0));
    assert!(largest_file_bytes(&data) <= 1 << 20, "no reserve, and small segments");
    // The directory has its own number of shards: a refused start, not a wrong command line.
    let (code, said) = refused(&["--data", data.to_str().unwrap(), "--shards", "2", "--listen", "127.0.0.1:0"]);
    assert_eq!(code, Some(1), "{said}");
}

fn largest_file_bytes(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let sizes = entries.map(|entry| match entry.metadata().unwrap() {
        about if about.is_dir() => largest_file_bytes(&entry.path()),
        about => about.len(),
    });
    sizes.max().unwrap_or(0)
}
