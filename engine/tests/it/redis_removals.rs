//! What somebody else removes from Redis, or writes over, while nothing is handed over: the janitor notices.

use countwheel::kernel::occurrence::Lane;

use crate::{
    player::stream,
    redis_server::RedisServer,
    redis_view::{assert_holds, client, config, contents, key, player, ready, run},
};

const STRICT: Lane = Lane::Strict;

fn owner_shown(url: &str) -> Option<String> {
    redis::cmd("HGET").arg(&["cw:engine", "shard:3:owner"]).query(&mut client(url)).unwrap_or_default()
}

#[test]
fn an_owner_key_that_is_deleted_is_written_again_though_nothing_is_handed_over() {
    let (server, mut player) = ready(1);
    for command in ["DEL cw:engine", "HDEL cw:engine shard:3:owner", "HSET cw:engine shard:3:generation 0"] {
        let before = player.readies;
        run(&server.url(), command);
        player.wait("it is ready again", |player| player.readies > before);
        assert_eq!(owner_shown(&server.url()).as_deref(), Some("owner-1"), "{command}");
    }
    player.release(0..10);
    player.wait_for_landed(10);
    assert!(player.lost.is_empty(), "nothing of the streams was lost");
}

#[test]
fn an_owner_key_that_is_no_hash_any_more_is_named() {
    let (server, mut player) = ready(1);
    run(&server.url(), "SET cw:engine theirs");
    player.wait_for_reason("is not our hash");
    run(&server.url(), "DEL cw:engine");
    player.release(0..10);
    player.wait_for_landed(10);
}

#[test]
fn an_engine_that_hands_nothing_over_notices_that_another_took_its_streams() {
    let (server, mut first) = ready(1);
    first.release(0..10);
    first.wait_for_landed(10);
    let mut settings = config(&server.url());
    settings.owner = "owner-2".into();
    let mut second = player(settings);
    second.declare(stream(0, STRICT), first.remembered[&stream(0, STRICT)]);
    second.start(2);
    second.wait("ready", |player| player.ready);
    first.wait("fenced", |player| player.fenced.is_some());
    let reason = first.fenced.clone().unwrap();
    assert!(reason.contains("owner-1") && reason.contains("owner-2"), "{reason}");
}

/// The first, the middle, the last, all of them: the rest stays where it is.
#[test]
fn entries_that_somebody_removed_are_sent_again_and_the_others_are_not() {
    for removal in ["XDEL KEY 1-1", "XDEL KEY 1-50 1-51", "XDEL KEY 1-100", "XTRIM KEY MAXLEN 10", "XTRIM KEY MAXLEN 0"]
    {
        let (server, mut player) = ready(2);
        player.release(0..200);
        player.wait_for_landed(200);
        let key = key(stream(0, STRICT));
        let rounds = player.queue.stats().janitor_rounds + 1;
        player.wait("a round", |player| player.queue.stats().janitor_rounds > rounds);
        assert!(player.shortened.is_empty(), "{removal}");
        run(&server.url(), &removal.replace("KEY", &key));
        player.wait("it is noticed", |player| player.lost == [(stream(0, STRICT), None)]);
        player.wait_for_landed(200);
        assert_eq!(player.shortened, [stream(0, STRICT)], "{removal}");
        assert_holds(&server.url(), &player, 0..200);
        assert_eq!(contents(&server.url(), &player)[&stream(1, STRICT)].len(), 100);
    }
}

#[test]
fn what_is_removed_while_the_connection_is_down_is_noticed_when_it_is_back() {
    let server = RedisServer::start(&[]);
    let mut settings = config(&server.url());
    settings.janitor_period = std::time::Duration::from_secs(3_600);
    let mut player = player(settings);
    player.begin(1);
    player.release(0..100);
    player.wait_for_landed(100);
    run(&server.url(), &format!("XDEL {} 1-7", key(stream(0, STRICT))));
    run(&server.url(), "CLIENT KILL TYPE normal SKIPME yes");
    player.release(100..110);
    player.wait("it is noticed", |player| player.lost.len() == 1);
    player.wait_for_landed(110);
    assert_holds(&server.url(), &player, 0..110);
}

#[test]
fn what_the_janitor_trims_itself_is_no_removal() {
    let (server, mut player) = ready(1);
    let (url, key) = (server.url(), key(stream(0, STRICT)));
    run(&url, &format!("XGROUP CREATE {key} g 0"));
    for round in 1..=5 {
        player.release((round - 1) * 20..round * 20);
        player.wait_for_landed(usize::try_from(round * 20).unwrap());
        run(&url, &format!("XREADGROUP GROUP g c COUNT 20 STREAMS {key} >"));
        // What was sent over a connection that had been cut was sent again under higher counters.
        let ids: Vec<_> = (1..=200).map(|counter| format!("1-{counter}")).collect();
        run(&url, &format!("XACK {key} g {}", ids.join(" ")));
        player.wait("trimmed", |player| player.queue.stats().entries_trimmed == round * 20);
        run(&url, "CLIENT KILL TYPE normal SKIPME yes");
    }
    let rounds = player.queue.stats().janitor_rounds + 2;
    player.wait("two rounds", |player| player.queue.stats().janitor_rounds >= rounds);
    assert!(player.shortened.is_empty() && player.lost.is_empty());
}
