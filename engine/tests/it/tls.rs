//! TLS on both sides: HTTPS to the real server, and the real server to a Redis that speaks nothing else.

use std::{
    path::{Path, PathBuf},
    process::Output,
    time::{Duration, Instant},
};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::{Value, json};

use crate::{
    redis_server::{RedisServer, free_port},
    server::{Server, countwheel, refused},
};

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(30);

/// A certificate for this machine that vouches for itself, and its key.
struct Pair {
    cert: PathBuf,
    key: PathBuf,
}

impl Pair {
    fn made_in(home: &Path, name: &str) -> Self {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let pair = Self { cert: home.join(format!("{name}.pem")), key: home.join(format!("{name}.key")) };
        std::fs::write(&pair.cert, cert.pem()).unwrap();
        std::fs::write(&pair.key, signing_key.serialize_pem()).unwrap();
        pair
    }

    fn cert(&self) -> &str {
        self.cert.to_str().unwrap()
    }

    fn key(&self) -> &str {
        self.key.to_str().unwrap()
    }
}

fn list(url: &str, more: &[&str]) -> (Option<i32>, String, String) {
    let mut command = countwheel();
    command.args(["schedule", "list", "--json", "--url", url]).args(more);
    // No certificate of the system vouches for ours, and none of it matters here.
    command.env("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt");
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn a_server_with_a_certificate_speaks_https_and_nothing_else() {
    let home = tempfile::tempdir().unwrap();
    let (ours, other) = (Pair::made_in(home.path(), "ours"), Pair::made_in(home.path(), "other"));
    let tls = ["--shards", "1", "--tls-cert", ours.cert(), "--tls-key", ours.key()];
    let server = Server::start(&home.path().join("data"), &tls);
    for host in ["localhost", "127.0.0.1"] {
        let url = format!("https://{host}:{}", server.address().port());
        let (code, out, said) = list(&url, &["--ca", ours.cert()]);
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["items"], json!([]));
        let (code, _, said) = list(&url, &["--ca", other.cert()]);
        assert_eq!(code, Some(1), "another certificate does not vouch for it");
        assert!(said.starts_with("countwheel: https://") && said.lines().count() == 1, "{said}");
    }
    let (code, _, said) = list(&format!("http://{}", server.address()), &[]);
    assert_eq!(code, Some(1), "plain HTTP gets no answer: {said}");
    assert_eq!(server.terminate().code(), Some(0));
}

#[test]
fn a_certificate_that_cannot_be_used_is_refused_by_its_setting() {
    let home = tempfile::tempdir().unwrap();
    let (ours, other) = (Pair::made_in(home.path(), "ours"), Pair::made_in(home.path(), "other"));
    let data = home.path().join("data");
    for (cert, key, said) in [
        (ours.cert(), other.key(), "tls_key (--tls-key): "),
        (ours.key(), ours.key(), "tls_cert (--tls-cert): "),
        (ours.cert(), ours.cert(), "tls_key (--tls-key): "),
        ("/nowhere/cert.pem", ours.key(), "tls_cert (--tls-cert): /nowhere/cert.pem: "),
    ] {
        let (code, told) = refused(&["--data", data.to_str().unwrap(), "--tls-cert", cert, "--tls-key", key]);
        assert_eq!(code, Some(2), "{told}");
        assert!(told.starts_with(&format!("countwheel: {said}")) && told.lines().count() == 1, "{told}");
        assert!(!data.exists(), "nothing was made");
    }
}

/// A Redis that also speaks TLS, and the URL for that.
fn redis_with_tls(pair: &Pair) -> (RedisServer, String) {
    let port = free_port();
    let files = ["--tls-cert-file", pair.cert(), "--tls-key-file", pair.key(), "--tls-ca-cert-file", pair.cert()];
    let port_text = port.to_string();
    let options = [&["--tls-port", &port_text, "--tls-auth-clients", "no"][..], &files].concat();
    (RedisServer::start(&options), format!("rediss://127.0.0.1:{port}"))
}

/// Serves on that Redis, with one certificate to trust.
fn serve(home: &Path, url: &str, trusted: &Pair) -> Server {
    let mut command = countwheel();
    command.env("SSL_CERT_FILE", &trusted.cert);
    Server::launch(command, &home.join("data"), &["--shards", "1", "--redis", url])
}

/// Waits until `look` finds something.
fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn occurrences_reach_a_redis_over_tls() {
    let home = tempfile::tempdir().unwrap();
    let pair = Pair::made_in(home.path(), "redis");
    let (_redis, url) = redis_with_tls(&pair);
    let server = serve(home.path(), &url, &pair);
    let spec = json!({"tenant": "acme", "queue": "mail", "rule": {"every": "1s"}}).to_string();
    let made = server.call("POST", "/v1/schedules", &spec);
    assert_eq!(made.status, 201, "{made:?}");
    let path = format!("/v1/schedules/{}/occurrences", made.json()["schedule"]["schedule_id"].as_str().unwrap());
    eventually("nothing reaches the queue", || {
        let items = server.call("GET", &format!("{path}?state=ENQUEUED"), "").json()["items"].clone();
        items.as_array().filter(|items| items.len() >= 2).map(|_| ())
    });
    assert_eq!(server.terminate().code(), Some(0));
}

#[test]
fn a_redis_that_nobody_vouches_for_makes_the_server_not_ready() {
    let home = tempfile::tempdir().unwrap();
    let (pair, other) = (Pair::made_in(home.path(), "redis"), Pair::made_in(home.path(), "other"));
    let (_redis, url) = redis_with_tls(&pair);
    let server = serve(home.path(), &url, &other);
    let reasons = eventually("it never says why", || {
        let ready = server.call("GET", "/readyz", "").json();
        assert_eq!(ready["ready"], false, "{ready}");
        let reasons = ready["reasons"].to_string();
        reasons.contains("certificate").then_some(reasons)
    });
    assert!(reasons.contains("redis"), "{reasons}");
    assert_eq!(server.terminate().code(), Some(0));
}
