//! The real server killed with SIGKILL at random moments under load: whatever was due stands in the queue, once, and
//! never before its time.

use std::{
    collections::BTreeMap,
    path::Path,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use countwheel::kernel::{
    id::{Kind, OccurrenceId, ScheduleId},
    time::UnixMs,
};

use crate::server::Server;

/// How often each server is killed.
const KILLS: u64 = 30;
/// How long a server lives at least and at most, in ms.
const LIFE_MS: std::ops::Range<u64> = 50..900;
/// Instants later than this before the end may still be on their way.
const SETTLE: Duration = Duration::from_secs(4);

fn now() -> UnixMs {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    UnixMs(i64::try_from(elapsed.as_millis()).unwrap())
}

/// Small numbers that look random, the same for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// What was asked for, and what must come of it.
#[derive(Default)]
struct Expected {
    /// Schedule and the first instant of a grid of so many ms.
    grids: Vec<(ScheduleId, UnixMs, i64)>,
    one_offs: Vec<(ScheduleId, UnixMs)>,
}

impl Expected {
    fn create(&mut self, server: &Server, dice: &mut Dice) {
        for step_s in [1, 1, 2, 3] {
            let made = create(server, &format!(r#"{{"every":"{step_s}s"}}"#));
            let step_ms = step_s * 1_000;
            self.grids.push((made.0, made.1.plus(step_ms), step_ms));
        }
        let (id, created_at) = create(server, r#"{"cron":"* * * * * *","zone":"Europe/Berlin"}"#);
        self.grids.push((id, UnixMs(created_at.0 / 1_000 * 1_000 + 1_000), 1_000));
        for _ in 0..20 {
            let at = now().plus(300 + i64::try_from(dice.below(6_000)).unwrap());
            let (id, _) = create(server, &format!(r#"{{"at":"{at}"}}"#));
            self.one_offs.push((id, at));
        }
    }

    /// Every occurrence that must be in the queue by `until`.
    fn ids(&self, until: UnixMs) -> BTreeMap<OccurrenceId, UnixMs> {
        let id = |schedule, at| (OccurrenceId::of(schedule, 1, at, Kind::Regular, b""), at);
        let mut ids: BTreeMap<_, _> =
            self.one_offs.iter().filter(|(_, at)| *at <= until).map(|&(schedule, at)| id(schedule, at)).collect();
        for &(schedule, first, step_ms) in &self.grids {
            let instants = std::iter::successors(Some(first), |at| Some(at.plus(step_ms)));
            ids.extend(instants.take_while(|at| *at <= until).map(|at| id(schedule, at)));
        }
        ids
    }
}

fn create(server: &Server, rule: &str) -> (ScheduleId, UnixMs) {
    let body = format!(r#"{{"tenant":"acme","queue":"mail","payload":"x","rule":{rule}}}"#);
    let reply = server.call("POST", "/v1/schedules", &body);
    assert_eq!(reply.status, 201, "{reply:?}");
    let schedule = &reply.json()["schedule"];
    let id = schedule["schedule_id"].as_str().unwrap().parse().unwrap();
    (id, UnixMs::parse_rfc3339(schedule["created_at"].as_str().unwrap()).unwrap())
}

/// Creates schedules, then kills and restarts the server again and again, creating more each time it is up.
fn kill_again_and_again(data: &Path, more: &[&str], seed: u64) -> (Server, Expected) {
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let mut expected = Expected::default();
    let mut server = Server::start(data, more);
    for _ in 0..KILLS {
        let begun = Instant::now();
        expected.create(&server, &mut dice);
        let life = Duration::from_millis(LIFE_MS.start + dice.below(LIFE_MS.end - LIFE_MS.start));
        std::thread::sleep(life.saturating_sub(begun.elapsed()));
        drop(server); // SIGKILL
        server = Server::start(data, more);
    }
    std::thread::sleep(SETTLE);
    (server, expected)
}

/// Every occurrence of the embedded queue, with the instant at which it was accepted.
fn accepted(server: &Server, schedule: ScheduleId) -> Vec<(OccurrenceId, UnixMs, UnixMs)> {
    let mut found = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/v1/schedules/{schedule}/occurrences?state=ENQUEUED&limit=500{cursor}");
        let page = server.call("GET", &path, "").json();
        for item in page["items"].as_array().unwrap() {
            let instant = |key: &str| UnixMs::parse_rfc3339(item[key].as_str().unwrap()).unwrap();
            let id = item["occurrence_id"].as_str().unwrap().parse().unwrap();
            found.push((id, instant("scheduled_for"), instant("enqueued_at")));
        }
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return found,
        }
    }
}

#[test]
fn nothing_due_is_absent_from_the_embedded_queue_after_thirty_kills() {
    let dir = tempfile::tempdir().unwrap();
    let (server, expected) = kill_again_and_again(dir.path(), &["--shards", "2"], 7);
    let due = expected.ids(now().minus(2_000));
    let mut found: BTreeMap<OccurrenceId, usize> = BTreeMap::new();
    let grids = expected.grids.iter().map(|(schedule, ..)| *schedule);
    for schedule in grids.chain(expected.one_offs.iter().map(|(schedule, _)| *schedule)) {
        for (id, scheduled_for, enqueued_at) in accepted(&server, schedule) {
            assert!(enqueued_at >= scheduled_for, "{id} entered the queue early");
            *found.entry(id).or_default() += 1;
        }
    }
    assert!(found.values().all(|count| *count == 1), "an occurrence is listed twice");
    let absent: Vec<_> = due.iter().filter(|(id, _)| !found.contains_key(id)).collect();
    assert!(absent.is_empty(), "{} of {} are absent, first {:?}", absent.len(), due.len(), absent[0]);
    assert!(due.len() > 1_000, "only {} were due", due.len());
}

#[cfg(feature = "redis")]
mod streams {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use super::*;
    use crate::{redis_server::RedisServer, redis_view};

    /// Reads the streams as entries come, noting when each was seen first: an occurrence seen before its time was
    /// early. Returns how often each occurrence stands there.
    fn consume(url: &str, done: &AtomicBool) -> BTreeMap<OccurrenceId, (usize, UnixMs)> {
        let mut client = redis_view::client(url);
        let keys: Vec<String> = (0..2)
            .flat_map(|shard| ["strict", "flexible", "catchup"].map(|lane| format!("cw:{{mail.{shard}}}:{lane}")))
            .collect();
        let mut last = vec!["0-0".to_owned(); keys.len()];
        let mut seen: BTreeMap<OccurrenceId, (usize, UnixMs)> = BTreeMap::new();
        loop {
            let finished = done.load(Ordering::SeqCst);
            let mut command = redis::cmd("XREAD");
            command.arg("COUNT").arg(10_000).arg("STREAMS").arg(&keys).arg(&last);
            type Read = Option<Vec<(String, Vec<(String, Vec<String>)>)>>;
            let read: Read = command.query(&mut client).unwrap();
            let at = now();
            for (key, entries) in read.iter().flatten() {
                let place = keys.iter().position(|known| known == key).unwrap();
                for (entry, fields) in entries {
                    seen.entry(fields[1].parse().unwrap()).or_insert((0, at)).0 += 1;
                    last[place].clone_from(entry);
                }
            }
            if finished && read.is_none() {
                return seen;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn nothing_due_is_absent_early_or_twice_in_the_streams_after_thirty_kills() {
        let redis = RedisServer::start(&[]);
        let dir = tempfile::tempdir().unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let consumer = {
            let (url, done) = (redis.url(), Arc::clone(&done));
            std::thread::spawn(move || consume(&url, &done))
        };
        let url = redis.url();
        let (server, expected) = kill_again_and_again(dir.path(), &["--shards", "2", "--redis", &url], 11);
        let until = now().minus(2_000);
        drop(server);
        done.store(true, Ordering::SeqCst);
        let seen = consumer.join().unwrap();
        let due = expected.ids(until);
        let absent: Vec<_> = due.iter().filter(|(id, _)| !seen.contains_key(id)).collect();
        assert!(absent.is_empty(), "{} of {} are absent, first {:?}", absent.len(), due.len(), absent[0]);
        let all = expected.ids(now());
        for (id, (times, first_seen)) in &seen {
            assert_eq!(*times, 1, "{id} stands in the stream {times} times");
            let scheduled_for = all.get(id).unwrap_or_else(|| panic!("{id} was never expected"));
            assert!(first_seen >= scheduled_for, "{id} was seen at {first_seen}, due at {scheduled_for}");
        }
        assert!(due.len() > 1_000, "only {} were due", due.len());
    }
}
