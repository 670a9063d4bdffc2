//! The engine with Redis Streams: what schedules promise is what a consumer finds.

use std::{collections::BTreeMap, path::Path, time::Duration};

use countwheel::{
    Engine, NewSchedule,
    builder::{RedisOptions, SyncPolicy},
    engine::HistoryFilter,
    kernel::{
        id::{Kind, OccurrenceId, ScheduleId},
        occurrence::{HistoryItem, State},
        time::UnixMs,
    },
};

use crate::{redis_server::RedisServer, redis_view};

fn builder(dir: &Path, redis: &RedisServer) -> countwheel::Builder {
    let small = Engine::builder(dir).shards(2).segment_bytes(1 << 20).reserve_bytes(0).sync(SyncPolicy::Os);
    small.redis(RedisOptions::new(redis.url()))
}

/// Every entry of a queue's streams: how often each occurrence stands there.
fn entries(redis: &RedisServer, queue: &str) -> BTreeMap<OccurrenceId, usize> {
    let mut client = redis_view::client(&redis.url());
    let mut found = BTreeMap::new();
    for shard in 0..2 {
        for lane in ["strict", "flexible", "catchup"] {
            let key = format!("cw:{{{queue}.{shard}}}:{lane}");
            let entries: Vec<(String, Vec<String>)> =
                redis::cmd("XRANGE").arg(key).arg("-").arg("+").query(&mut client).unwrap();
            for (_, fields) in entries {
                *found.entry(fields[1].parse().unwrap()).or_default() += 1;
            }
        }
    }
    found
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..600 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("waited 30 s for {what}");
}

async fn create(engine: &Engine, queue: &str, at: UnixMs, count: usize) -> Vec<OccurrenceId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        let made = engine.create(NewSchedule::at(at).queue(queue).payload("x")).await.unwrap();
        ids.push(OccurrenceId::of(made.schedule.id, 1, at, Kind::Regular, b""));
    }
    ids
}

fn each_once(ids: &[OccurrenceId]) -> BTreeMap<OccurrenceId, usize> {
    ids.iter().map(|id| (*id, 1)).collect()
}

async fn state(engine: &Engine, id: ScheduleId) -> Vec<State> {
    let page = engine.occurrences(id, HistoryFilter::default(), 10, None).await.unwrap();
    let states = page.items.iter().map(|item| match item {
        HistoryItem::Occurrence(occurrence) => occurrence.state,
        HistoryItem::Range(range) => panic!("{range:?}"),
    });
    states.collect()
}

#[tokio::test]
async fn every_due_occurrence_stands_in_its_stream_once() {
    let redis = RedisServer::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let engine = builder(dir.path(), &redis).open().await.unwrap();
    let soon = create(&engine, "mail", engine.now().plus(300), 40).await;
    let late = engine.create(NewSchedule::at(engine.now().plus(60_000)).queue("mail")).await.unwrap();
    until("40 entries", async || entries(&redis, "mail").len() == 40).await;
    assert_eq!(entries(&redis, "mail"), each_once(&soon));
    assert_eq!(state(&engine, late.schedule.id).await, []);
    until("readiness", async || engine.readiness().ready).await;
    engine.stop().await.unwrap();
}

#[tokio::test]
async fn an_engine_that_starts_again_neither_repeats_nor_forgets() {
    let redis = RedisServer::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let engine = builder(dir.path(), &redis).open().await.unwrap();
    let mut expected = create(&engine, "mail", engine.now().plus(100), 10).await;
    let now = engine.now();
    expected.extend(create(&engine, "mail", now.plus(3_000), 10).await);
    until("10 entries", async || entries(&redis, "mail").len() == 10).await;
    // Dropped, not stopped: what the last second recorded is read back from the streams.
    drop(engine);
    let engine = builder(dir.path(), &redis).open().await.unwrap();
    until("20 entries", async || entries(&redis, "mail").len() == 20).await;
    assert_eq!(entries(&redis, "mail"), each_once(&expected));
    engine.stop().await.unwrap();
}

#[tokio::test]
async fn a_redis_that_starts_empty_gets_what_it_lost_again() {
    let mut redis = RedisServer::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let engine = builder(dir.path(), &redis).open().await.unwrap();
    let ids = create(&engine, "mail", engine.now().plus(100), 20).await;
    until("20 entries", async || entries(&redis, "mail").len() == 20).await;
    redis.kill();
    redis.restart_empty();
    until("20 entries again", async || entries(&redis, "mail").len() == 20).await;
    assert_eq!(entries(&redis, "mail"), each_once(&ids));
    engine.stop().await.unwrap();
}

#[tokio::test]
async fn without_redis_schedules_are_kept_and_readiness_says_what_to_do() {
    let mut redis = RedisServer::start(&[]);
    redis.kill();
    let dir = tempfile::tempdir().unwrap();
    let engine = builder(dir.path(), &redis).open().await.unwrap();
    let ids = create(&engine, "mail", engine.now().plus(500), 5).await;
    until("a reason", async || engine.readiness().reasons.iter().any(|reason| reason.contains("redis"))).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    redis.launch();
    until("5 entries", async || entries(&redis, "mail").len() == 5).await;
    assert_eq!(entries(&redis, "mail"), each_once(&ids));
    until("readiness", async || engine.readiness().ready).await;
    engine.stop().await.unwrap();
}
