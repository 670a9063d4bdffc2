//! Stands in for an engine towards workers: keeps the protocol of claims as docs/REDIS.md has it, in memory, and can be
//! made to answer late, wrongly or not at all.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use countwheel::kernel::{
    id::{Kind, OccurrenceId, ScheduleId},
    time::UnixMs,
};
use serde_json::{Value, json};

use crate::redis_view;

/// So many shards it says it has.
pub(crate) const SHARDS: u64 = 2;
const SCHEDULE: ScheduleId = ScheduleId([5; 16]);

/// How requests of one kind are answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    Well,
    /// Nothing is done; this is answered.
    Says(u16, &'static str),
    /// Nothing is done before the mood changes.
    HoldsQuestions,
    /// It is done; the answer waits until the mood changes.
    HoldsAnswers,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Running { token: String, until: Instant },
    Ended(&'static str),
}

struct Work {
    lane: &'static str,
    shard: u64,
    attempt: u32,
    state: State,
}

#[derive(Default)]
struct Inner {
    works: BTreeMap<OccurrenceId, Work>,
    claims: Option<Mood>,
    beats: Option<Mood>,
    ends: Option<Mood>,
    /// Whether heartbeats ask to stop.
    cancels: bool,
    entries: u64,
    tokens: u64,
    held: usize,
}

/// The engine's part.
pub(crate) struct StandIn {
    pub(crate) url: String,
    redis_url: String,
    inner: Arc<Mutex<Inner>>,
    gone: Arc<AtomicBool>,
}

impl StandIn {
    pub(crate) fn on(redis_url: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let one = Self { url, redis_url: redis_url.to_owned(), inner: Arc::default(), gone: Arc::default() };
        let (inner, redis, gone) = (Arc::clone(&one.inner), one.redis_url.clone(), Arc::clone(&one.gone));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (inner, redis) = (Arc::clone(&inner), redis.clone());
                std::thread::spawn(move || serve(&inner, &redis, stream));
            }
        });
        let (inner, redis) = (Arc::clone(&one.inner), one.redis_url.clone());
        std::thread::spawn(move || {
            while !gone.load(SeqCst) {
                lapse(&mut inner.lock().unwrap(), &redis);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        one
    }

    /// Makes occurrences in a lane, spread over the shards, and hands them over.
    pub(crate) fn make(&self, lane: &'static str, count: u64) -> Vec<OccurrenceId> {
        let mut inner = self.lock();
        let first = inner.works.len() as u64;
        let made = (first..first + count).map(|number| {
            let at = UnixMs(1_793_511_000_000 + i64::try_from(number).unwrap());
            let id = OccurrenceId::of(SCHEDULE, 1, at, Kind::Regular, b"");
            let work = Work { lane, shard: number % SHARDS, attempt: 1, state: State::Waiting };
            inner.works.insert(id, work);
            hand_over(&mut inner, &self.redis_url, id);
            id
        });
        made.collect()
    }

    /// Hands over again what waits, as an engine does when its stream lost it.
    pub(crate) fn send_again(&self) {
        let mut inner = self.lock();
        let waiting = inner.works.iter().filter(|(_, work)| work.state == State::Waiting);
        for id in waiting.map(|(id, _)| *id).collect::<Vec<_>>() {
            hand_over(&mut inner, &self.redis_url, id);
        }
    }

    pub(crate) fn claims(&self, mood: Mood) {
        self.lock().claims = Some(mood);
    }

    pub(crate) fn beats(&self, mood: Mood) {
        self.lock().beats = Some(mood);
    }

    pub(crate) fn ends(&self, mood: Mood) {
        self.lock().ends = Some(mood);
    }

    pub(crate) fn asks_to_stop(&self) {
        self.lock().cancels = true;
    }

    /// How many requests wait for another mood.
    pub(crate) fn held(&self) -> usize {
        self.lock().held
    }

    /// How many ended so.
    pub(crate) fn ended(&self, state: &str) -> usize {
        self.lock()
            .works
            .values()
            .filter(|work| {
                work.state
                    == State::Ended(match state {
                        "SUCCEEDED" => "SUCCEEDED",
                        "DEAD" => "DEAD",
                        _ => "CANCELED",
                    })
            })
            .count()
    }

    /// The attempt that each is at.
    pub(crate) fn attempts(&self) -> Vec<u32> {
        self.lock().works.values().map(|work| work.attempt).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.gone.store(true, SeqCst);
    }
}

fn hand_over(inner: &mut Inner, redis: &str, id: OccurrenceId) {
    inner.entries += 1;
    let work = &inner.works[&id];
    let at = id.scheduled_for().0;
    let key = format!("cw:{{mail.{}}}:{}", work.shard, work.lane);
    let meta = format!("1 {SCHEDULE} 1 0 {at} {at} {} acme", work.attempt);
    let mut add = redis::cmd("XADD");
    add.arg(key).arg(format!("1-{}", inner.entries));
    add.arg("occurrence_id").arg(id.to_string()).arg("meta").arg(meta).arg("payload").arg("hello");
    add.query::<()>(&mut redis_view::client(redis)).unwrap();
}

/// Leases that are over are followed by another attempt.
fn lapse(inner: &mut Inner, redis: &str) {
    let now = Instant::now();
    let over =
        inner.works.iter().filter(|(_, work)| matches!(work.state, State::Running { until, .. } if until <= now));
    for id in over.map(|(id, _)| *id).collect::<Vec<_>>() {
        again(inner, redis, id);
    }
}

fn again(inner: &mut Inner, redis: &str, id: OccurrenceId) {
    let work = inner.works.get_mut(&id).unwrap();
    (work.attempt, work.state) = (work.attempt + 1, State::Waiting);
    hand_over(inner, redis, id);
}

fn serve(inner: &Mutex<Inner>, redis: &str, mut stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some((path, body)) = read(&mut reader) {
        let mood = |inner: &Inner| match path.as_str() {
            "/v1/runs/heartbeat" => inner.beats.clone(),
            "/v1/runs/complete" | "/v1/runs/fail" => inner.ends.clone(),
            "/healthz" => None,
            _ => inner.claims.clone(),
        };
        wait_while(inner, |inner| mood(inner) == Some(Mood::HoldsQuestions));
        let at_first = mood(&inner.lock().unwrap());
        let (status, answer) = match at_first {
            Some(Mood::Says(status, text)) => (status, text.to_owned()),
            _ => {
                let (status, answer) = answer(&mut inner.lock().unwrap(), redis, &path, &body);
                (status, answer.to_string())
            }
        };
        wait_while(inner, |inner| mood(inner) == Some(Mood::HoldsAnswers));
        let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n", answer.len());
        if stream.write_all((head + &answer).as_bytes()).is_err() {
            return;
        }
    }
}

fn wait_while(inner: &Mutex<Inner>, holds: impl Fn(&Inner) -> bool) {
    if !holds(&inner.lock().unwrap()) {
        return;
    }
    inner.lock().unwrap().held += 1;
    while holds(&inner.lock().unwrap()) {
        std::thread::sleep(Duration::from_millis(5));
    }
    inner.lock().unwrap().held -= 1;
}

fn read(reader: &mut impl BufRead) -> Option<(String, Value)> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_ascii_lowercase()),
        }
    }
    let length = lines.iter().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    let path = lines.first()?.split(' ').nth(1)?.to_owned();
    Some((path, serde_json::from_slice(&body).unwrap_or_default()))
}

fn refusal(status: u16, code: &str) -> (u16, Value) {
    (status, json!({"error": {"code": code, "message": "so it is"}}))
}

fn answer(inner: &mut Inner, redis: &str, path: &str, body: &Value) -> (u16, Value) {
    match path {
        "/healthz" => (200, json!({"live": true, "shards": SHARDS})),
        "/v1/runs/heartbeat" => {
            let results: Vec<_> = body["runs"].as_array().unwrap().iter().map(|run| beat(inner, run)).collect();
            (200, json!({"results": results}))
        }
        "/v1/runs/complete" | "/v1/runs/fail" => end(inner, redis, path, body),
        _ => {
            let id = path.trim_start_matches("/v1/occurrences/").trim_end_matches("/claim").parse().unwrap();
            claim(inner, id, body)
        }
    }
}

fn claim(inner: &mut Inner, id: OccurrenceId, body: &Value) -> (u16, Value) {
    assert_eq!(body["schedule_id"], SCHEDULE.to_string());
    inner.tokens += 1;
    let token = format!("{:024x}", inner.tokens);
    let Some(work) = inner.works.get_mut(&id) else { return refusal(404, "not_found") };
    match &work.state {
        State::Running { .. } => refusal(409, "already_running"),
        State::Ended(_) => refusal(409, "finished"),
        State::Waiting => {
            let until = Instant::now() + Duration::from_millis(body["lease_ms"].as_u64().unwrap());
            work.state = State::Running { token: token.clone(), until };
            (
                200,
                json!({"occurrence_id": id.to_string(), "attempt": work.attempt, "lease_token": token, "deadline": null}),
            )
        }
    }
}

/// The occurrence whose lease that is, if it counts.
fn held<'a>(inner: &'a mut Inner, run: &Value) -> Option<&'a mut Work> {
    let id = run["occurrence_id"].as_str()?.parse().ok()?;
    let work = inner.works.get_mut(&id)?;
    let is_held = matches!(&work.state, State::Running { token, until } if run["lease_token"] == **token && *until > Instant::now());
    is_held.then_some(work)
}

fn beat(inner: &mut Inner, run: &Value) -> Value {
    let cancels = inner.cancels;
    let lease = Duration::from_millis(run["lease_ms"].as_u64().unwrap());
    match held(inner, run).map(|work| &mut work.state) {
        Some(State::Running { until, .. }) => {
            *until = Instant::now() + lease;
            json!({"lease_expires_at": "2026-11-01T05:30:00.000Z", "cancel_requested": cancels})
        }
        _ => refusal(409, "stale_lease").1,
    }
}

fn end(inner: &mut Inner, redis: &str, path: &str, body: &Value) -> (u16, Value) {
    let Some(work) = held(inner, body) else { return refusal(409, "stale_lease") };
    work.state = match body["class"].as_str() {
        None => State::Ended("SUCCEEDED"),
        Some("permanent") => State::Ended("DEAD"),
        Some("canceled") => State::Ended("CANCELED"),
        Some(_) => {
            let id = body["occurrence_id"].as_str().unwrap().parse().unwrap();
            again(inner, redis, id);
            return (200, json!({"state": "RETRY_WAIT"}));
        }
    };
    (200, json!({"state": if path.ends_with("fail") { "FAILED" } else { "SUCCEEDED" }}))
}
