//! What callers, workers and consumers do while a server lives, and what each of them was told.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use countwheel::kernel::{
    id::{Kind, OccurrenceId, ScheduleId},
    time::UnixMs,
};

use crate::server::Server;

/// How many schedules share one instant where payloads are large: more than a batch a shard.
const BURST: u64 = 130;
/// Longer than any test takes: no lease ends.
const LEASE_MS: u64 = 900_000;

pub(crate) fn now() -> UnixMs {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    UnixMs(i64::try_from(elapsed.as_millis()).unwrap())
}

type Entries = Vec<(String, Vec<String>)>;

/// Everything that was asked for, told and seen, through all lives of a server.
pub(crate) struct Life {
    seed: u64,
    payload: String,
    asked: u64,
    burst_at: UnixMs,
    /// Where this consumer reads.
    pub(crate) url: String,
    redis: Option<redis::Connection>,
    keys: Vec<String>,
    /// Up to where each stream was looked at.
    looked: Vec<String>,
    /// Whether what this consumer holds from earlier lives has been read.
    last_server: u32,
    /// Every occurrence that was asked for, answered or not.
    pub(crate) known: BTreeMap<OccurrenceId, UnixMs>,
    /// Those whose creation was answered, and that nobody asked to cancel.
    pub(crate) promised: BTreeMap<OccurrenceId, UnixMs>,
    /// Those whose receipt said canceled.
    pub(crate) called_off: BTreeSet<OccurrenceId>,
    pub(crate) granted: BTreeSet<OccurrenceId>,
    pub(crate) completed: BTreeSet<OccurrenceId>,
    /// How often each stands in a stream, and when it was seen first.
    pub(crate) seen: BTreeMap<OccurrenceId, (usize, UnixMs)>,
}

impl Life {
    pub(crate) fn new(seed: u64, url: &str, prefix: &str, payload_bytes: usize) -> Self {
        let keys: Vec<_> = (0..2)
            .flat_map(|shard| ["strict", "catchup"].map(|lane| format!("{prefix}:{{mail.{shard}}}:{lane}")))
            .collect();
        Self {
            seed,
            payload: "x".repeat(payload_bytes),
            asked: 0,
            burst_at: UnixMs(0),
            url: url.to_owned(),
            redis: None,
            looked: vec!["-".to_owned(); keys.len()],
            keys,
            last_server: 0,
            known: BTreeMap::new(),
            promised: BTreeMap::new(),
            called_off: BTreeSet::new(),
            granted: BTreeSet::new(),
            completed: BTreeSet::new(),
            seen: BTreeMap::new(),
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below
    }

    /// A round of everybody: schedules are made, some are called off, what stands in the streams is worked on.
    pub(crate) fn work(&mut self, server: &Server) {
        for _ in 0..4 {
            self.create(server);
        }
        self.attend(server);
    }

    /// Nobody asks for more; what stands in the streams is worked on.
    pub(crate) fn attend(&mut self, server: &Server) {
        self.look();
        self.consume(server);
    }

    /// One more schedule, now and then called off at once.
    pub(crate) fn create(&mut self, server: &Server) {
        let key = format!("job-{}", self.asked);
        self.asked += 1;
        let at = self.next_instant();
        let schedule = ScheduleId::from_key("acme", &key);
        let occurrence = OccurrenceId::of(schedule, 1, at, Kind::Regular, b"");
        self.known.insert(occurrence, at);
        let spec = format!(r#"{{"tenant":"acme","queue":"mail","payload":"{}","rule":{{"at":"{at}"}}}}"#, self.payload);
        let made = server.try_send("POST", "/v1/schedules", &[("Idempotency-Key", &key)], spec.as_bytes());
        let Some(made) = made else { return };
        assert_eq!(made.status, 201, "{made:?}");
        self.promised.insert(occurrence, at);
        if self.draw(6) == 0 {
            self.cancel(server, schedule, occurrence);
        }
    }

    /// Small payloads are due one by one; large ones together.
    fn next_instant(&mut self) -> UnixMs {
        if self.payload.len() < 1_000 {
            return now().plus(100 + i64::try_from(self.draw(400)).unwrap());
        }
        if self.asked % BURST == 1 || self.burst_at < now().plus(50) {
            self.burst_at = now().plus(2_500);
        }
        self.burst_at
    }

    fn cancel(&mut self, server: &Server, schedule: ScheduleId, occurrence: OccurrenceId) {
        self.promised.remove(&occurrence);
        let Some(reply) = server.try_send("DELETE", &format!("/v1/schedules/{schedule}"), &[], b"") else { return };
        assert_eq!(reply.status, 200, "{reply:?}");
        // Nothing of it is left to run: also when it had not been made yet.
        let receipt = reply.json();
        let mut listed = receipt["receipt"]["canceled"].as_array().into_iter().flatten();
        let listed = listed.any(|id| id.as_str() == Some(&occurrence.to_string()));
        if listed || self.known[&occurrence] > now() {
            self.called_off.insert(occurrence);
        }
    }

    /// What Redis answers; nothing while it does not, or not as asked.
    fn ask<T: redis::FromRedisValue>(&mut self, command: &redis::Cmd) -> Option<T> {
        if self.redis.as_ref().is_none_or(|connection| !redis::ConnectionLike::is_open(connection)) {
            let connection = redis::Client::open(self.url.as_str()).unwrap().get_connection().ok();
            if let Some(connection) = &connection {
                connection.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
            }
            self.redis = connection;
        }
        let answer = command.query(self.redis.as_mut()?);
        if answer.as_ref().is_err_and(|error: &redis::RedisError| error.code().is_none()) {
            self.redis = None;
        }
        answer.ok()
    }

    /// Notes every entry once, by its place in its stream.
    pub(crate) fn look(&mut self) {
        for at in 0..self.keys.len() {
            loop {
                let mut command = redis::cmd("XRANGE");
                command.arg(&self.keys[at]).arg(&self.looked[at]).arg("+").arg("COUNT").arg(1_000);
                let Some(entries) = self.ask::<Entries>(&command) else { return };
                let Some((last, _)) = entries.last() else { break };
                self.looked[at] = format!("({last}");
                for (_, fields) in &entries {
                    self.seen.entry(fields[1].parse().unwrap()).or_insert((0, now())).0 += 1;
                }
            }
        }
    }

    /// Claims what the streams give, completes three of four, and acknowledges what was answered.
    fn consume(&mut self, server: &Server) {
        let begins = std::mem::replace(&mut self.last_server, server.pid()) != server.pid();
        for key in self.keys.clone() {
            for from in if begins { &["0", ">"][..] } else { &[">"][..] } {
                let mut command = redis::cmd("XREADGROUP");
                command.arg(&["GROUP", "g", "c", "COUNT", "40", "STREAMS", &key, from]);
                let Some(read) = self.ask::<Option<Vec<(String, Entries)>>>(&command) else {
                    // The stream or its group is not there, or not yet, or not any more.
                    let _ = self.ask::<()>(redis::cmd("XGROUP").arg(&["CREATE", &key, "g", "0", "MKSTREAM"]));
                    self.last_server = 0;
                    continue;
                };
                for (entry, fields) in read.into_iter().flatten().flat_map(|(_, entries)| entries) {
                    let Some(id) = fields.get(1).and_then(|id| id.parse().ok()) else { continue };
                    if self.run(server, id, schedule_in(&fields)).is_some() {
                        let _ = self.ask::<()>(redis::cmd("XACK").arg(&[&key, "g", &entry]));
                    }
                }
            }
        }
    }

    /// `None`: the claim was not answered, so the entry is not settled.
    fn run(&mut self, server: &Server, id: OccurrenceId, schedule: &str) -> Option<()> {
        let body = format!(r#"{{"worker":"w","lease_ms":{LEASE_MS},"schedule_id":"{schedule}"}}"#);
        let reply = server.try_send("POST", &format!("/v1/occurrences/{id}/claim"), &[], body.as_bytes())?;
        if reply.status != 200 {
            assert!(matches!(reply.status, 404 | 409 | 503), "{id}: {reply:?}");
            return (reply.status != 503).then_some(());
        }
        self.granted.insert(id);
        if self.draw(4) > 0 {
            let token = reply.json()["lease_token"].as_str().unwrap().to_owned();
            let body = format!(r#"{{"occurrence_id":"{id}","lease_token":"{token}"}}"#);
            let done = server.try_send("POST", "/v1/runs/complete", &[], body.as_bytes());
            if let Some(done) = done {
                assert_eq!(done.status, 200, "{id}: {done:?}");
                self.completed.insert(id);
            }
        }
        Some(())
    }
}

/// The schedule that an entry's `meta` names.
fn schedule_in(fields: &[String]) -> &str {
    fields[3].split(' ').nth(1).unwrap()
}

/// Leaves bytes of a batch that was never finished behind the last one of every log.
pub(crate) fn tear_last_batches(data: &Path) {
    for shard in 0..2 {
        let wal = data.join(format!("shard-{shard:04}/wal"));
        let segments = std::fs::read_dir(wal).unwrap().flatten().map(|entry| entry.path());
        let last = segments.filter(|path| path.extension().is_some_and(|it| it == "wal")).max().unwrap();
        let mut bytes = std::fs::read(&last).unwrap();
        let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
        let torn_at = (end / 4_096 + 1) * 4_096;
        bytes[torn_at..torn_at + 100].fill(0xa5);
        std::fs::write(&last, bytes).unwrap();
    }
}
