//! Is the simulated Redis a Redis? The same random commands, the same answers as a real server.

use std::{
    process::{Child, Command as Process, Stdio},
    time::Duration,
};

use countwheel_wal::sim::Rng;
use redis::Value;

use super::{Rates, SharedRedis, data::Command};
use crate::shell::redis_queue::{Address, Commands, Link};

struct Server {
    child: Child,
    _dir: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A real server on a socket of its own; `None` where none is installed.
fn start() -> Option<(Server, Link)> {
    let dir = tempfile::tempdir().expect("a directory for a socket");
    let socket = dir.path().join("s");
    let arguments = ["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"];
    let mut child = Process::new("redis-server");
    child.args(arguments).arg(&socket).current_dir(dir.path()).stdout(Stdio::null());
    let url = format!("unix:{}", socket.display());
    let server = Server { child: child.spawn().ok()?, _dir: dir };
    let address = Address::parse(&url, Duration::from_secs(5), Duration::from_secs(5)).expect("a path is a url");
    for _ in 0..500 {
        if let Ok(link) = Link::connect(&address) {
            return Some((server, link));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("redis-server does not come up");
}

fn draw(rng: &mut Rng) -> Command {
    let pick = |rng: &mut Rng, all: &[&str]| all[rng.below(all.len() as u64) as usize].to_owned();
    let key = pick(rng, &["s", "t", "h"]);
    let id = format!("{}-{}", rng.below(4), rng.below(12));
    let (group, consumer) = (pick(rng, &["g", "h"]), pick(rng, &["a", "b"]));
    let from = pick(rng, &[">", "0", "1-3"]);
    let count = (1 + rng.below(4)).to_string();
    let line = match rng.below(22) {
        0..=3 => format!("XADD {key} {id} f v"),
        4..=6 => format!("XADD {key} NOMKSTREAM {id} f {count}"),
        7 => format!("XSETID {key} {id}"),
        8 => format!("XINFO STREAM {key}"),
        9 => format!("XINFO GROUPS {key}"),
        10 => format!("XDEL {key} {id}"),
        11 => format!("XTRIM {key} MINID = {id}"),
        12 => format!("XRANGE {key} ({id} + COUNT {count}"),
        13 => format!("XRANGE {key} - + COUNT {count}"),
        14 => format!("XGROUP CREATE {key} {group} {} MKSTREAM", pick(rng, &["0", "1-1"])),
        15 | 16 => format!("XREADGROUP GROUP {group} {consumer} COUNT {count} STREAMS {key} {from}"),
        17 => format!("XACK {key} {group} {id}"),
        18 => format!("XPENDING {key} {group}"),
        19 => format!("XAUTOCLAIM {key} {group} {consumer} 0 0-0 COUNT {count}"),
        20 => pick(
            rng,
            &[
                "DEL s",
                "DEL t h",
                "XGROUP DESTROY s g",
                "HSET h a 1 b 2",
                "HGETALL h",
                "XLEN s",
                "XLEN h",
                "HSET w a 1",
                "DEL w",
                "HSET w b 2",
            ],
        ),
        _ => pick(rng, &["MULTI", "EXEC", "XLEN t", "SET h x"]),
    };
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// Only what is read of it is compared.
fn comparable(command: &Command, answer: Value) -> Value {
    const READ: [&[u8]; 7] =
        [b"length", b"last-generated-id", b"max-deleted-entry-id", b"entries-added", b"groups", b"name", b"pending"];
    let project = |parts: Vec<Value>| {
        let (pairs, _) = parts.as_chunks::<2>();
        let is_read = |name: &Value| match name {
            Value::BulkString(name) => READ.contains(&name.as_slice()) || name == b"last-delivered-id",
            _ => false,
        };
        Value::Array(pairs.iter().filter(|pair| is_read(&pair[0])).flatten().cloned().collect())
    };
    match (command[0].as_slice(), command.get(1).map(Vec::as_slice), answer) {
        (b"XINFO", Some(b"STREAM"), Value::Array(parts)) => project(parts),
        (b"XINFO", Some(b"GROUPS"), Value::Array(groups)) => Value::Array(
            groups
                .into_iter()
                .map(|group| match group {
                    Value::Array(parts) => project(parts),
                    other => other,
                })
                .collect(),
        ),
        (_, _, answer) => answer,
    }
}

#[test]
#[ignore = "some commands within a MULTI are answered differently: docs/TRACK_RECORD.md"]
fn the_simulated_redis_answers_as_a_real_one() {
    let Some((_server, mut link)) = start() else {
        eprintln!("no redis-server: the simulated one was compared with nothing");
        return;
    };
    let simulated = SharedRedis::new(0, Rates::default());
    let mut client = simulated.connect(0).expect("it is well");
    let mut is_queueing = false;
    for seed in 0..9 {
        let mut rng = Rng::new(seed);
        let flush = || vec![b"FLUSHALL".to_vec()];
        for round in 0..250 {
            let command = if round == 0 && !is_queueing { flush() } else { draw(&mut rng) };
            let first = command[0].as_slice();
            if (is_queueing && matches!(first, b"MULTI" | b"WATCH" | b"XINFO")) || (!is_queueing && first == b"EXEC") {
                continue;
            }
            is_queueing = match first {
                b"MULTI" => true,
                b"EXEC" => false,
                _ => is_queueing,
            };
            let mut commands = Commands::default();
            commands.add(&command.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let real = link.ask_all(&commands).expect("it answers").pop().expect("one answer");
            let ours = client.ask(command.clone()).expect("it answers");
            let shown: Vec<_> = command.iter().map(|word| String::from_utf8_lossy(word)).collect();
            assert_eq!(
                comparable(&command, ours),
                comparable(&command, real),
                "seed {seed}, round {round}: {}",
                shown.join(" ")
            );
        }
    }
}
