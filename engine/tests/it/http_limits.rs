//! Clients that mean no good, or just go away: schedules fire all the same, and the server answers when they are gone.

use std::{
    io::Write,
    net::TcpStream,
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::json;

use crate::server::Server;

/// More than the server keeps open at a time.
const IDLE: usize = 3_000;
const SLOW: usize = 200;

fn connect(server: &Server, bytes: &[u8]) -> Option<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&server.address, Duration::from_secs(5)).ok()?;
    stream.write_all(bytes).ok()?;
    Some(stream)
}

#[test]
fn thousands_of_idle_and_slow_connections_do_not_stop_what_fires() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let server = Server::start(&data, &["--shards", "2"]);
    let spec = json!({"tenant": "acme", "queue": "q", "rule": {"every": "1s"}}).to_string();
    let made = server.call("POST", "/v1/schedules", &spec).json();
    let path = format!("/v1/schedules/{}", made["schedule"]["schedule_id"].as_str().unwrap());

    let opened = Instant::now();
    let mut crowd: Vec<TcpStream> = (0..IDLE).filter_map(|_| connect(&server, b"")).collect();
    let half = b"POST /v1/schedules HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{\"ten";
    crowd.extend((0..SLOW).filter_map(|_| connect(&server, half)));
    let wide = [b"GET / HTTP/1.1\r\nX-Wide: ".as_slice(), &[b'x'; 200_000]].concat();
    crowd.extend((0..20).filter_map(|_| connect(&server, &wide)));
    assert!(crowd.len() > IDLE, "{} connections", crowd.len());
    sleep(Duration::from_secs(3));
    let stayed = opened.elapsed();
    drop(crowd);

    let patience = Instant::now() + Duration::from_secs(30);
    let fired = loop {
        let reply = server.call("GET", &format!("{path}/occurrences?state=ENQUEUED&limit=500"), "");
        if reply.status == 200 || Instant::now() > patience {
            break reply.json()["items"].as_array().unwrap().clone();
        }
    };
    assert!(fired.len() as u64 + 2 >= stayed.as_secs(), "{} fired in {stayed:?}", fired.len());
    // Figures depend on the machine; what must not be is that the crowd kept an instant from firing.
    let next: Vec<&str> = fired.iter().map(|item| item["scheduled_for"].as_str().unwrap()).collect();
    assert!(next.windows(2).all(|pair| pair[0] < pair[1]));
    assert_eq!(server.call("GET", "/readyz", "").status, 200);
}

#[test]
fn a_head_that_is_too_long_or_no_head_is_refused_without_harm() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(&home.path().join("data"), &["--shards", "1"]);
    let wide = format!("GET /healthz HTTP/1.1\r\nHost: x\r\nX-Wide: {}\r\n\r\n", "x".repeat(200_000));
    for bad in ["nonsense\r\n\r\n", "GET /healthz HTTP/9.9\r\n\r\n", "GET / HTTP/1.1\r\nA B: c\r\n\r\n", &wide] {
        let mut stream = TcpStream::connect(server.address).unwrap();
        let _ = stream.write_all(bad.as_bytes());
        let mut answer = Vec::new();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let _ = std::io::Read::read_to_end(&mut stream, &mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    assert_eq!(server.call("GET", "/healthz", "").status, 200);
}
