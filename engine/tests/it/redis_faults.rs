//! Everything that can go wrong with Redis, once each: afterwards every entry is there once, and a person was told.

use std::{
    io::{Read, Write},
    net::TcpListener,
    time::Duration,
};

use countwheel::{
    kernel::occurrence::{EntryId, Lane},
    shell::{queue::Remembered, redis_queue::RedisConfig},
};

use crate::{
    player::stream,
    redis_server::RedisServer,
    redis_view::{assert_holds, config, key, player, ready, run},
    tcp_proxy::TcpProxy,
};

const STRICT: Lane = Lane::Strict;

#[test]
fn a_server_killed_in_the_middle_of_a_burst_loses_and_doubles_nothing() {
    let (mut server, mut player) = ready(3);
    player.stage(0..20_000);
    player.release(0..20_000);
    player.wait("some landed", |player| player.landed.len() > 2_000);
    server.kill();
    player.wait_for_reason("");
    server.restart();
    player.wait_for_landed(20_000);
    assert_holds(&server.url(), &player, 0..20_000);
    assert!(player.lost.is_empty(), "every write was synced: {:?}", player.lost);
}

#[test]
fn a_connection_cut_at_any_byte_of_an_answer_loses_and_doubles_nothing() {
    let server = RedisServer::start(&[]);
    let proxy = TcpProxy::to(server.port());
    let mut player = player(config(&proxy.url()));
    player.begin(2);
    let mut released = 0;
    for (round, bytes) in (0..).zip([0, 1, 4, 5, 13, 14, 100, 2_000, 5_003, 20_000, 31_007]) {
        proxy.cut_answers_after(bytes);
        player.release(released..released + 1_500);
        released += 1_500;
        player.wait("a cut", |_| proxy.cuts() > round);
        player.wait_for_landed(usize::try_from(released).unwrap());
    }
    assert_holds(&server.url(), &player, 0..released);
    for queue in 0..2 {
        let id = player.landed_in(stream(queue, STRICT));
        assert_eq!(id.len() as u64, released / 2);
    }
}

#[test]
fn a_lost_answer_is_found_out_without_sending_again() {
    let server = RedisServer::start(&[]);
    let proxy = TcpProxy::to(server.port());
    let mut player = player(config(&proxy.url()));
    player.begin(1);
    player.release(0..10);
    player.wait_for_landed(10);
    proxy.cut_answers_after(0);
    player.release(10..20);
    player.wait_for_landed(20);
    assert_eq!(proxy.cuts(), 1);
    assert_eq!(player.queue.stats().entries_returned, 0, "all of it had landed");
    assert_holds(&server.url(), &player, 0..20);
}

#[test]
fn what_arrives_late_over_the_old_connection_does_not_land() {
    let server = RedisServer::start(&[]);
    let proxy = TcpProxy::to(server.port());
    let mut player = player(config(&proxy.url()));
    player.begin(1);
    player.release(0..500);
    player.wait_for_landed(500);
    player.releases = false;
    proxy.hold_requests_after(1_000);
    player.release(500..1_000);
    player.wait("all of it came back", |player| player.readies == 2 && player.held.len() == 500);
    // The server got the rest of the batch only after the look.
    assert!(proxy.deliver_kept() > 1_000, "requests were under way");
    assert_holds(&server.url(), &player, 0..500);
    player.releases = true;
    player.release_held();
    player.wait_for_landed(1_000);
    assert_holds(&server.url(), &player, 0..1_000);
}

#[test]
fn a_server_that_hangs_is_left_and_met_again() {
    let (server, mut player) = ready(1);
    server.pause();
    player.release(0..3_000);
    player.wait_for_reason("did not answer");
    server.resume();
    player.wait_for_landed(3_000);
    assert_holds(&server.url(), &player, 0..3_000);
}

#[test]
fn a_full_server_takes_nothing_until_there_is_room() {
    let (server, mut player) = ready(1);
    player.release(0..10);
    player.wait_for_landed(10);
    run(&server.url(), "CONFIG SET maxmemory 1");
    player.release(10..2_000);
    let reason = player.wait_for_reason("maxmemory");
    assert!(reason.contains("free memory or raise the limit"), "{reason}");
    run(&server.url(), "CONFIG SET maxmemory 0");
    player.wait_for_landed(2_000);
    assert_holds(&server.url(), &player, 0..2_000);
}

#[test]
fn a_demoted_server_is_not_written_until_it_is_primary_again() {
    let (server, mut player) = ready(1);
    let other = RedisServer::start(&[]);
    run(&server.url(), &format!("REPLICAOF 127.0.0.1 {}", other.port()));
    player.release(0..100);
    player.wait_for_reason("replica");
    run(&server.url(), "REPLICAOF NO ONE");
    player.wait_for_landed(100);
    assert_holds(&server.url(), &player, 0..100);
}

#[test]
fn a_server_that_loads_its_data_is_waited_for() {
    let (mut server, mut player) = ready(1);
    player.release(0..500);
    player.wait_for_landed(500);
    server.stop();
    player.wait_for_reason("");
    // An append-only file that takes seconds to load.
    let aof = std::fs::read_dir(server.dir().join("appendonlydir")).unwrap().flatten().map(|entry| entry.path());
    let aof = aof.filter(|path| path.to_string_lossy().ends_with(".incr.aof")).last().unwrap();
    let mut file = std::fs::OpenOptions::new().append(true).open(aof).unwrap();
    file.write_all("*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$1\r\ny\r\n".repeat(2_000_000).as_bytes()).unwrap();
    drop(file);
    server.launch();
    player.wait_for_reason("loading");
    player.release(500..600);
    player.wait_for_landed(600);
    assert_holds(&server.url(), &player, 0..600);
}

#[test]
fn a_missing_or_wrong_password_is_named_and_never_shown() {
    let server = RedisServer::start(&["--requirepass", "s3cret-right"]);
    for (user_info, word) in [("", "asks for a password"), (":s3cret-wrong@", "refuses user or password")] {
        let url = format!("redis://{user_info}127.0.0.1:{}", server.port());
        let settings = config(&url);
        assert!(!format!("{settings:?}").contains("s3cret"));
        let mut player = player(settings);
        player.declare(stream(0, STRICT), Remembered::default());
        player.start(1);
        player.wait_for_reason(word);
        assert!(player.away.iter().all(|(_, reason)| !reason.contains("s3cret")), "{:?}", player.away);
    }
    let mut player = player(config(&format!("redis://:s3cret-right@127.0.0.1:{}", server.port())));
    player.begin(1);
    player.release(0..5);
    player.wait_for_landed(5);
}

#[test]
fn a_missing_permission_is_named() {
    let (server, mut player) = ready(1);
    run(&server.url(), "ACL SETUSER default -xadd");
    player.release(0..5);
    let reason = player.wait_for_reason("permission");
    assert!(reason.contains("xadd"), "{reason}");
    run(&server.url(), "ACL SETUSER default +xadd");
    player.wait_for_landed(5);
}

#[test]
fn what_is_no_redis_is_said_to_be_none() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let _ = client.read(&mut [0; 1_024]);
            let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let mut player = player(config(&format!("redis://127.0.0.1:{port}")));
    player.declare(stream(0, STRICT), Remembered::default());
    player.start(1);
    player.wait_for_reason("does not speak the redis protocol");
}

#[test]
fn redis_need_not_be_there_at_the_start() {
    let mut server = RedisServer::start(&[]);
    server.stop();
    let mut player = player(config(&server.url()));
    player.declare(stream(0, STRICT), Remembered::default());
    player.start(1);
    player.release(0..5);
    player.wait_for_reason("nothing listens");
    server.restart();
    player.wait_for_landed(5);
}

#[test]
fn a_foreign_key_shuts_only_its_own_stream() {
    let server = RedisServer::start(&[]);
    let mut player = player(config(&server.url()));
    run(&server.url(), &format!("SET {} theirs", key(stream(1, STRICT))));
    player.begin(2);
    player.wait_for_reason("no stream");
    player.release(0..10);
    player.wait("half of it", |player| player.landed.len() == 5 && player.held.len() == 5);
    assert_eq!(player.landed_in(stream(0, STRICT)), [0, 2, 4, 6, 8]);
    run(&server.url(), &format!("DEL {}", key(stream(1, STRICT))));
    player.wait_for_landed(10);
    assert_holds(&server.url(), &player, 0..10);
}

#[test]
fn a_foreign_key_that_replaces_a_stream_costs_nothing_in_the_end() {
    let (server, mut player) = ready(2);
    player.release(0..10);
    player.wait_for_landed(10);
    run(&server.url(), &format!("SET {} theirs", key(stream(1, STRICT))));
    player.release(10..20);
    player.wait("the other stream", |player| player.landed_in(stream(0, STRICT)).len() == 10);
    player.wait_for_reason("no stream");
    run(&server.url(), &format!("DEL {}", key(stream(1, STRICT))));
    player.wait("it is lost", |player| !player.lost.is_empty());
    player.wait_for_landed(20);
    assert_holds(&server.url(), &player, 0..20);
}

#[test]
fn a_deleted_stream_is_written_anew() {
    let (server, mut player) = ready(2);
    player.release(0..1_000);
    player.wait_for_landed(1_000);
    run(&server.url(), &format!("DEL {}", key(stream(0, STRICT))));
    player.wait("the loss", |player| player.lost == [(stream(0, STRICT), None)]);
    player.wait_for_landed(1_000);
    assert_holds(&server.url(), &player, 0..1_000);
}

#[test]
fn a_stream_deleted_and_made_again_by_a_consumer_is_noticed_in_the_middle_of_writing() {
    let settings = |url: &str| RedisConfig { janitor_period: Duration::from_secs(3_600), ..config(url) };
    let server = RedisServer::start(&[]);
    let mut player = player(settings(&server.url()));
    player.begin(1);
    player.release(0..1_000);
    player.wait_for_landed(1_000);
    let key = key(stream(0, STRICT));
    run(&server.url(), &format!("DEL {key}"));
    run(&server.url(), &format!("XGROUP CREATE {key} g 0 MKSTREAM"));
    // These land, under ids that look as if nothing had happened.
    player.release(1_000..1_100);
    player.wait_for_landed(1_100);
    // The next connect compares.
    run(&server.url(), "CLIENT KILL TYPE normal SKIPME yes");
    player.release(1_100..1_200);
    player.wait("the loss", |player| player.lost == [(stream(0, STRICT), None)]);
    player.wait_for_landed(1_200);
    assert_holds(&server.url(), &player, 0..1_200);
}

#[test]
fn flushall_is_noticed_and_everything_written_anew() {
    let (server, mut player) = ready(3);
    player.release(0..900);
    player.wait_for_landed(900);
    run(&server.url(), "FLUSHALL");
    player.wait("three losses", |player| player.lost.len() == 3);
    player.wait_for_landed(900);
    assert_holds(&server.url(), &player, 0..900);
    assert_eq!(player.generation, 1, "no new generation is needed for that");
}

#[test]
fn a_server_that_comes_back_empty_is_written_anew() {
    let (mut server, mut player) = ready(1);
    player.release(0..500);
    player.wait_for_landed(500);
    server.kill();
    server.restart_empty();
    player.wait("the loss", |player| !player.lost.is_empty());
    player.wait_for_landed(500);
    assert_holds(&server.url(), &player, 0..500);
}

#[test]
fn a_server_that_lost_the_last_entries_gets_only_those_again() {
    let (mut server, mut player) = ready(1);
    player.release(0..500);
    player.wait_for_landed(500);
    server.stop();
    let saved = tempfile::tempdir().unwrap();
    copy_dir(server.dir(), saved.path());
    server.restart();
    player.release(500..800);
    player.wait_for_landed(800);
    server.kill();
    server.clear();
    copy_dir(saved.path(), server.dir());
    server.restart();
    player.wait("the loss", |player| !player.lost.is_empty());
    assert_eq!(player.lost, [(stream(0, STRICT), Some(EntryId { generation: 1, counter: 500 }))]);
    player.wait_for_landed(800);
    assert_holds(&server.url(), &player, 0..800);
}

fn copy_dir(from: &std::path::Path, to: &std::path::Path) {
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            std::fs::create_dir(&target).unwrap();
            copy_dir(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
