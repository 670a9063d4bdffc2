//! What the server's log never says: payloads, tokens, passwords; and what a name from outside cannot do to its lines.

use std::{fs::File, os::unix::fs::PermissionsExt};

use crate::server::{Server, countwheel};

#[test]
fn no_payload_token_or_password_reaches_the_log_and_no_name_breaks_its_lines() {
    let home = tempfile::tempdir().unwrap();
    let made = countwheel().args(["token", "new", "--role", "admin"]).output().unwrap();
    let made = String::from_utf8(made.stdout).unwrap();
    let (token, line) = made.trim_end().split_once('\n').unwrap();
    let file = home.path().join("tokens");
    std::fs::write(&file, format!("{line}\n")).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let log = home.path().join("log");
    let mut command = countwheel();
    command.env("RUST_LOG", "trace,actix_http=off").env("NO_COLOR", "1").stderr(File::create(&log).unwrap());
    // Nothing listens there: every attempt is told, with the address.
    let redis = "redis://user:s3cret-password@127.0.0.1:1/0";
    let options = ["--shards", "1", "--redis", redis, "--tokens", file.to_str().unwrap()];
    let server = Server::launch(command, &home.path().join("data"), &options);
    let bearer = format!("Bearer {token}");
    let call = |method: &str, path: &str, body: &str| {
        server.send(method, path, &[("Authorization", &bearer)], body.as_bytes())
    };
    let spec = r#"{"tenant":"acme","queue":"mail","payload":"s3cret-payload","rule":{"every":"1s"}}"#;
    assert_eq!(call("POST", "/v1/schedules", spec).status, 201);
    let wild = r#"{"tenant":"a\n2026-12-01T00:00:00Z ERROR forged","queue":"m\u001b[2J","rule":{"every":"1s"}}"#;
    assert_eq!(call("POST", "/v1/schedules", wild).status, 422);
    assert_eq!(call("GET", "/v1/schedules?tenant=a%0Aforged", "").status, 422);
    for bad in ["", "x", "s3cret-token", &"y".repeat(10_000)] {
        let header = format!("Bearer {bad}");
        let answer = server.send("GET", "/v1/schedules", &[("Authorization", &header)], b"");
        assert!(matches!(answer.status, 400 | 401 | 431), "{answer:?}");
    }
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    drop(server);
    let log = std::fs::read_to_string(&log).unwrap();
    assert!(log.contains("127.0.0.1:1"), "the log tells of Redis: {log}");
    for secret in ["s3cret", token, "\x1b"] {
        assert!(!log.contains(secret), "{secret:?} in {log}");
    }
    assert!(
        log.lines().all(|line| !line.trim_start().starts_with("forged") && !line.contains("ERROR forged")),
        "{log}"
    );
}

#[test]
fn a_head_of_ten_megabytes_is_cut_off_and_the_next_request_is_answered() {
    use std::io::{Read, Write};
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(&home.path().join("data"), &["--shards", "1"]);
    let mut stream = std::net::TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
    let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n");
    let piece = format!("X-Wide: {}\r\n", "x".repeat(64 << 10));
    let sent = (0..160).take_while(|_| stream.write_all(piece.as_bytes()).is_ok()).count();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    assert!(sent < 160 || answer.starts_with("HTTP/1.1 4"), "{sent} pieces were read: {answer}");
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    assert_eq!(server.call("GET", "/healthz", "").status, 200);
}
