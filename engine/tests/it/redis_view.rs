//! What a consumer sees of the streams, and the queue under test on a given server.

use std::{collections::BTreeMap, time::Duration};

use countwheel::{
    kernel::{
        id::OccurrenceId,
        occurrence::{OccurrenceNo, Stream},
    },
    shell::redis_queue::{RedisConfig, RedisQueue},
};
use redis::Connection;

use crate::{
    player::{Player, occurrence_id, wires},
    redis_server::RedisServer,
};

/// Everything that waits is short here, so that tests are quick; nothing depends on how short.
pub(crate) fn config(url: &str) -> RedisConfig {
    RedisConfig {
        connect_timeout: Duration::from_secs(2),
        response_timeout: Duration::from_secs(2),
        janitor_period: Duration::from_millis(100),
        longest_back_off: Duration::from_millis(300),
        ..RedisConfig::new(url, 3, "data-1", "owner-1")
    }
}

pub(crate) fn player(config: RedisConfig) -> Player<RedisQueue> {
    let (now, wake, woken) = wires();
    Player::new(RedisQueue::new(config, now, wake).unwrap(), woken)
}

/// A server, and a queue on it that is ready with so many streams.
pub(crate) fn ready(queues: u32) -> (RedisServer, Player<RedisQueue>) {
    let server = RedisServer::start(&["--appendfsync", "always"]);
    let mut player = player(config(&server.url()));
    player.begin(queues);
    (server, player)
}

/// Somebody else's connection.
pub(crate) fn client(url: &str) -> Connection {
    redis::Client::open(url).unwrap().get_connection().unwrap()
}

/// One command of somebody else's; its answer as text is not needed.
pub(crate) fn run(url: &str, command: &str) -> redis::Value {
    let mut words = command.split_whitespace();
    let mut command = redis::cmd(words.next().unwrap());
    for word in words {
        command.arg(word);
    }
    command.query(&mut client(url)).unwrap()
}

pub(crate) fn key(stream: Stream) -> String {
    format!("cw:{{q{}.3}}:{}", stream.queue.0, stream.lane.as_str())
}

/// Every stream that holds something of the player's, in the order in which it is served. Nothing stands in it twice.
pub(crate) fn contents(url: &str, player: &Player<RedisQueue>) -> BTreeMap<Stream, Vec<u64>> {
    let mut client = client(url);
    let numbers: BTreeMap<OccurrenceId, u64> =
        (0..30_000).map(|number| (occurrence_id(OccurrenceNo(number)), number)).collect();
    let mut contents = BTreeMap::new();
    for &stream in player.remembered.keys() {
        let entries: Vec<(String, Vec<String>)> =
            redis::cmd("XRANGE").arg(key(stream)).arg("-").arg("+").query(&mut client).unwrap();
        let mut served = Vec::new();
        for (_, fields) in entries {
            assert_eq!(
                (fields[0].as_str(), fields[2].as_str(), fields[4].as_str()),
                ("occurrence_id", "meta", "payload")
            );
            served.push(numbers[&fields[1].parse().unwrap()]);
        }
        if !served.is_empty() {
            contents.insert(stream, served);
        }
    }
    contents
}

/// Asserts that the streams hold exactly these numbers, each once.
#[track_caller]
pub(crate) fn assert_holds(url: &str, player: &Player<RedisQueue>, numbers: impl IntoIterator<Item = u64>) {
    let mut held: Vec<_> = contents(url, player).into_values().flatten().collect();
    held.sort_unstable();
    let expected: Vec<_> = numbers.into_iter().collect();
    assert_eq!(held.len(), expected.len(), "entries in the streams");
    assert_eq!(held, expected);
}
