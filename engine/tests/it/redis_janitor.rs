//! What the janitor removes, and what it warns of.

use std::time::Duration;

use countwheel::{
    kernel::occurrence::{EntryId, Lane},
    shell::{queue::Queue, redis_queue::RedisConfig},
};

use crate::{
    player::stream,
    redis_server::RedisServer,
    redis_view::{config, contents, key, player, ready, run},
};

const STRICT: Lane = Lane::Strict;

#[test]
fn only_what_every_group_acknowledged_and_the_log_recorded_is_trimmed() {
    let (server, mut player) = ready(1);
    let (url, key) = (server.url(), key(stream(0, STRICT)));
    player.records = false;
    run(&url, &format!("XGROUP CREATE {key} slow 0"));
    run(&url, &format!("XGROUP CREATE {key} fast 0"));
    player.release(0..100);
    player.wait_for_landed(100);
    run(&url, &format!("XREADGROUP GROUP fast c COUNT 100 STREAMS {key} >"));
    run(&url, &format!("XREADGROUP GROUP slow c COUNT 60 STREAMS {key} >"));
    for counter in 1..=100 {
        run(&url, &format!("XACK {key} fast 1-{counter}"));
        if counter <= 50 && counter != 41 {
            run(&url, &format!("XACK {key} slow 1-{counter}"));
        }
    }
    player.queue.recorded(stream(0, STRICT), EntryId { generation: 1, counter: 30 });
    player.wait("the first 30", |player| player.queue.stats().entries_trimmed == 30);
    player.queue.recorded(stream(0, STRICT), EntryId { generation: 1, counter: 100 });
    player.wait("up to the first pending", |player| player.queue.stats().entries_trimmed == 40);
    assert_eq!(contents(&url, &player)[&stream(0, STRICT)], (40..100).collect::<Vec<_>>());
    run(&url, &format!("XACK {key} slow 1-41"));
    player.wait("up to the next pending", |player| player.queue.stats().entries_trimmed == 50);
    assert!(player.lost.is_empty(), "trimming is no loss");
}

#[test]
fn a_stream_at_its_limit_is_away_until_consumers_have_drained_it() {
    let server = RedisServer::start(&[]);
    let mut player = player(RedisConfig { stream_max_len: 100, ..config(&server.url()) });
    player.begin(2);
    let (url, key) = (server.url(), key(stream(0, STRICT)));
    run(&url, &format!("XGROUP CREATE {key} g 0"));
    player.release((0..200).step_by(2));
    player.wait_for_landed(100);
    let reason = player.wait_for_reason("the limit is 100");
    assert!(reason.contains(&key), "{reason}");
    player.release([200, 201]);
    player.wait("the other stream goes on", |player| player.landed.len() == 101 && player.held.len() == 1);
    run(&url, &format!("XREADGROUP GROUP g c COUNT 60 STREAMS {key} >"));
    for counter in 1..=60 {
        run(&url, &format!("XACK {key} g 1-{counter}"));
    }
    player.wait_for_landed(102);
}

#[test]
fn a_group_that_stands_still_with_work_raises_an_alarm() {
    let server = RedisServer::start(&[]);
    let mut player = player(RedisConfig { group_alarm: Duration::ZERO, ..config(&server.url()) });
    player.begin(1);
    let (url, key) = (server.url(), key(stream(0, STRICT)));
    run(&url, &format!("XGROUP CREATE {key} g 0"));
    player.release(0..3);
    player.wait_for_landed(3);
    player.wait("the alarm", |player| player.queue.stats().stuck_groups == 1);
    run(&url, &format!("XREADGROUP GROUP g c COUNT 3 STREAMS {key} >"));
    run(&url, &format!("XACK {key} g 1-1 1-2 1-3"));
    player.wait("its end", |player| player.queue.stats().stuck_groups == 0);
}

#[test]
fn settings_that_may_lose_entries_are_noted() {
    let server = RedisServer::start(&[]);
    run(&server.url(), "CONFIG SET maxmemory-policy allkeys-lru");
    run(&server.url(), "CONFIG SET appendonly no");
    let mut player = player(config(&server.url()));
    player.begin(1);
    let notes = player.queue.notes();
    assert!(notes.len() == 2 && notes[0].contains("noeviction") && notes[1].contains("appendonly"), "{notes:?}");
}

#[test]
fn the_shard_hears_how_far_every_group_has_acknowledged() {
    let (server, mut player) = ready(1);
    let (url, stream) = (server.url(), stream(0, STRICT));
    let key = key(stream);
    let told = |counter| {
        move |player: &crate::player::Player<countwheel::shell::redis_queue::RedisQueue>| {
            player.settled.get(&stream) == Some(&EntryId { generation: 1, counter })
        }
    };
    player.release(0..10);
    player.wait_for_landed(10);
    let rounds = player.queue.stats().janitor_rounds + 2;
    player.wait("two rounds", |player| player.queue.stats().janitor_rounds >= rounds);
    assert!(player.settled.is_empty(), "there is nobody who could acknowledge");
    run(&url, &format!("XGROUP CREATE {key} a 0"));
    run(&url, &format!("XREADGROUP GROUP a c COUNT 10 STREAMS {key} >"));
    run(&url, &format!("XACK {key} a 1-1 1-2 1-3 1-5"));
    player.wait("up to the first pending", told(3));
    // A group that is made later has the whole stream before it: nothing more is settled, and nothing comes back.
    run(&url, &format!("XGROUP CREATE {key} b 0"));
    run(&url, &format!("XACK {key} a 1-4 1-6 1-7 1-8 1-9 1-10"));
    let rounds = player.queue.stats().janitor_rounds + 2;
    player.wait("two rounds", |player| player.queue.stats().janitor_rounds >= rounds);
    assert!(told(3)(&player), "{:?}", player.settled);
    run(&url, &format!("XREADGROUP GROUP b c COUNT 8 STREAMS {key} >"));
    for counter in 4..=8 {
        run(&url, &format!("XACK {key} b 1-{counter}"));
    }
    player.wait("what both acknowledged", told(8));
    run(&url, &format!("XGROUP DESTROY {key} b"));
    player.wait("a group less", told(10));
}

#[test]
fn what_was_acknowledged_before_a_loss_says_nothing_of_what_is_sent_again() {
    let (server, mut player) = ready(1);
    let (url, stream) = (server.url(), stream(0, STRICT));
    let key = key(stream);
    run(&url, &format!("XGROUP CREATE {key} g 0"));
    player.release(0..3);
    player.wait_for_landed(3);
    run(&url, &format!("XREADGROUP GROUP g c COUNT 3 STREAMS {key} >"));
    run(&url, &format!("XACK {key} g 1-1 1-2 1-3"));
    player.wait("all", |player| player.settled.get(&stream).is_some_and(|through| through.counter == 3));
    run(&url, "FLUSHALL");
    run(&url, &format!("XGROUP CREATE {key} g 0 MKSTREAM"));
    player.wait("sent again", |player| player.lost.len() == 1 && player.landed.len() == 3);
    let rounds = player.queue.stats().janitor_rounds + 2;
    player.wait("two rounds", |player| player.queue.stats().janitor_rounds >= rounds);
    let again: Vec<EntryId> = player.landed.values().map(|(_, entry)| *entry).collect();
    assert!(again.iter().all(|entry| *entry > player.settled[&stream]), "{again:?} {:?}", player.settled);
}
