//! Who may write where: restarts, second owners, and prefixes that belong to somebody else.

use countwheel::{
    kernel::occurrence::Lane,
    shell::{queue::Remembered, redis_queue::RedisConfig},
};

use crate::{
    player::stream,
    redis_server::RedisServer,
    redis_view::{assert_holds, config, key, player, ready, run},
    server::Server,
};

const STRICT: Lane = Lane::Strict;

#[test]
fn the_permissions_that_the_docs_list_are_enough() {
    let docs = include_str!("../../../docs/REDIS.md");
    let (_, list) = docs.split_once("A user under ACL needs: `").unwrap();
    let (list, _) = list.split_once('`').unwrap();
    let server = RedisServer::start(&[]);
    for missing in ["", "config|get", "client|kill"] {
        let granted = list.split_whitespace().filter(|command| *command != missing);
        let granted: Vec<_> = granted.map(|command| format!("+{command}")).collect();
        run(&server.url(), &format!("ACL SETUSER cw reset on >pw ~cw:* -@all {}", granted.join(" ")));
        run(&server.url(), "FLUSHALL");
        let mut player = player(config(&format!("redis://cw:pw@127.0.0.1:{}", server.port())));
        player.begin(1);
        run(&server.url(), &format!("XGROUP CREATE {} g 0", key(stream(0, STRICT))));
        player.release(0..10);
        player.wait_for_landed(10);
        run(&server.url(), &format!("XREADGROUP GROUP g c COUNT 10 STREAMS {} >", key(stream(0, STRICT))));
        run(&server.url(), &format!("XACK {} g 1-1 1-2 1-3", key(stream(0, STRICT))));
        player.wait("a trim", |player| player.queue.stats().entries_trimmed == 3);
        run(&server.url(), "CLIENT KILL TYPE normal SKIPME yes");
        player.wait("a new connection", |player| player.queue.stats().connects == 2);
        player.release(10..20);
        player.wait_for_landed(20);
    }
}

#[test]
fn foreign_content_under_our_prefix_is_named_and_left_alone() {
    let server = RedisServer::start(&[]);
    let (url, key) = (server.url(), key(stream(0, STRICT)));
    let cases = [
        ("SET cw:engine theirs".to_owned(), "is not our hash", "DEL cw:engine".to_owned()),
        ("HSET cw:engine shard:3:generation x".to_owned(), "as generation of shard 3", "DEL cw:engine".to_owned()),
        (format!("XADD {key} 18446744073709551615-1 a b"), "beyond all that an engine writes", format!("DEL {key}")),
    ];
    for (command, word, remedy) in cases {
        run(&url, &command);
        let mut player = player(config(&url));
        player.declare(stream(0, STRICT), Remembered::default());
        player.start(1);
        player.release(0..5);
        player.wait_for_reason(word);
        run(&url, &remedy);
        player.wait_for_landed(5);
        drop(player);
        run(&url, "FLUSHALL");
    }
}

#[test]
fn after_a_restart_everything_behind_the_log_is_read_back() {
    let (server, mut first) = ready(1);
    first.release(0..10);
    first.wait_for_landed(10);
    let remembered = first.remembered[&stream(0, STRICT)];
    first.release(10..3_500);
    first.wait_for_landed(3_500);
    drop(first);

    let mut second = player(RedisConfig { owner: "owner-2".into(), ..config(&server.url()) });
    second.declare(stream(0, STRICT), remembered);
    second.start(2);
    second.wait("ready", |player| player.ready);
    assert_eq!(second.found, 3_490);
    assert!(second.lost.is_empty());
    second.release(3_500..3_600);
    second.wait_for_landed(100);
    assert_holds(&server.url(), &second, 0..3_600);
}

#[test]
fn what_was_lost_while_the_engine_was_down_is_noticed_at_the_start() {
    let (mut server, mut first) = ready(1);
    first.release(0..100);
    first.wait_for_landed(100);
    let remembered = first.remembered[&stream(0, STRICT)];
    drop(first);
    server.stop();
    server.restart_empty();
    let mut second = player(RedisConfig { owner: "owner-2".into(), ..config(&server.url()) });
    second.declare(stream(0, STRICT), remembered);
    second.start(2);
    second.wait("ready", |player| player.ready);
    assert_eq!(second.lost, [(stream(0, STRICT), None)]);
}

#[test]
fn a_second_owner_takes_over_and_the_first_is_fenced() {
    let (server, mut first) = ready(1);
    first.release(0..100);
    first.wait_for_landed(100);

    // A copy of the directory opens the same generation and has to log a higher one.
    let mut second = player(RedisConfig { owner: "owner-2".into(), ..config(&server.url()) });
    second.declare(stream(0, STRICT), first.remembered[&stream(0, STRICT)]);
    second.start(1);
    second.wait("ready", |player| player.ready);
    assert_eq!(second.generation, 2);

    first.release(100..200);
    first.wait("fenced", |player| player.fenced.is_some());
    let reason = first.fenced.clone().unwrap();
    assert!(reason.contains("owner-1") && reason.contains("owner-2"), "{reason}");
    assert_eq!(first.landed.len(), 100);
    second.release(200..300);
    second.wait_for_landed(100);
    assert_holds(&server.url(), &second, (0..100).chain(200..300));
}

#[test]
fn an_entry_that_somebody_added_by_hand_costs_a_generation_and_nothing_else() {
    let (server, mut player) = ready(1);
    player.release(0..100);
    player.wait_for_landed(100);
    run(&server.url(), &format!("XADD {} 77-1 hello world", key(stream(0, STRICT))));
    player.release(100..200);
    player.wait("a new generation", |player| player.generation == 78);
    player.wait_for_landed(200);
    run(&server.url(), &format!("XDEL {} 77-1", key(stream(0, STRICT))));
    assert_holds(&server.url(), &player, 0..200);
}

#[test]
fn rehearsal_and_real_refuse_each_other() {
    for rehearsal in [false, true] {
        let server = RedisServer::start(&[]);
        let mut first = player(RedisConfig { rehearsal, ..config(&server.url()) });
        first.begin(1);
        let other =
            RedisConfig { rehearsal: !rehearsal, owner: "owner-2".into(), adopt: true, ..config(&server.url()) };
        let mut second = player(other);
        second.declare(stream(0, STRICT), Remembered::default());
        second.start(5);
        let reason = second.wait_for_reason("rehearsal");
        assert!(reason.contains("--redis-prefix"), "{reason}");
        first.release(0..5);
        first.wait_for_landed(5);
    }
}

#[test]
fn a_prefix_of_another_directory_is_refused_until_it_is_adopted() {
    let (server, mut first) = ready(1);
    first.release(0..10);
    first.wait_for_landed(10);
    let other = RedisConfig { data_id: "data-2".into(), owner: "owner-2".into(), ..config(&server.url()) };
    let mut refused = player(other.clone());
    refused.declare(stream(0, STRICT), Remembered::default());
    refused.start(9);
    let reason = refused.wait_for_reason("data-1");
    assert!(reason.contains("data-2") && reason.contains("--adopt-redis"), "{reason}");
    drop(refused);

    let mut beside = player(RedisConfig { prefix: "other".into(), ..other.clone() });
    beside.begin(1);
    drop(first);
    let mut adopting = player(RedisConfig { adopt: true, ..other });
    adopting.declare(stream(0, STRICT), Remembered::default());
    adopting.start(1);
    adopting.wait("ready", |player| player.ready);
    assert_eq!((adopting.generation, adopting.found), (2, 10));
}

#[test]
fn an_engine_that_was_taken_over_grants_nothing_and_takes_nothing() {
    let server = RedisServer::start(&[]);
    let home = tempfile::tempdir().unwrap();
    let [ours, copy] = ["ours", "copy"].map(|name| home.path().join(name));
    let (url, patience) = (server.url(), std::time::Instant::now() + crate::player::PATIENCE);
    let more = ["--redis", url.as_str(), "--shards", "1"];
    let spec = r#"{"tenant":"acme","queue":"mail","rule":{"every":"1s"}}"#;
    let first = Server::start(&ours, &more);
    let made = first.call("POST", "/v1/schedules", spec).json();
    assert!(first.terminate().success());
    let copied = std::process::Command::new("cp").arg("-r").args([&ours, &copy]).status().unwrap();
    assert!(copied.success());
    let first = Server::start(&ours, &more);
    while first.call("GET", "/readyz", "").status != 200 {
        assert!(std::time::Instant::now() < patience, "it never was ready");
    }
    let second = Server::start(&copy, &more);
    while !first.call("GET", "/readyz", "").body.contains("owner") {
        assert!(std::time::Instant::now() < patience, "{:?}", first.call("GET", "/readyz", ""));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let id = made["schedule"]["schedule_id"].as_str().unwrap();
    let claim = format!(r#"{{"worker":"w","lease_ms":60000,"schedule_id":"{id}"}}"#);
    let history = first.call("GET", &format!("/v1/schedules/{id}/occurrences"), "").json();
    let occurrence = history["items"].as_array().unwrap().iter().find_map(|item| item["occurrence_id"].as_str());
    let path = format!("/v1/occurrences/{}/claim", occurrence.expect("one was made"));
    for (path, body) in [("/v1/schedules", spec), (path.as_str(), claim.as_str())] {
        assert_eq!(first.call("POST", path, body).refusal(), (503, "fenced".into(), None), "{path}");
    }
    drop(second);
}
