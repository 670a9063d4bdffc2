//! Workers as docs/REDIS.md wants them, and as they are: some crash, stall, answer late or twice, or claim nothing.

use redis::Value;

use super::{
    check::Checker,
    node::{Answer, Node},
    redis::{Client, SharedRedis, command},
    swarm::{Dice, Swarm},
    trace::Trace,
    workload::QUEUES,
};
use crate::{
    error::CallError,
    kernel::{
        attempt::FailureClass,
        id::{OccurrenceId, ScheduleId},
        lease::LeaseToken,
        occurrence::{EntryId, Lane, State},
        shard::{Beat, ClaimRefusal, FailedRun, Outcome, RunError, Speaking},
    },
    shell::{
        ask::Ask,
        run_ask::{Claimant, ClaimedRun, RunAsk, Served},
    },
};

const GROUP: &[u8] = b"workers";
const LEASE_MS: u64 = 10_000;
/// Who left an entry for so long is taken for dead.
const IDLE_MS: u64 = 30_000;
/// How long a worker waits for the engine.
const PATIENCE_MS: u64 = 5_000;

/// An entry that was read.
#[derive(Clone, Debug)]
struct Read {
    key: Vec<u8>,
    entry: EntryId,
    occurrence: OccurrenceId,
    schedule: ScheduleId,
}

/// What a worker is about.
enum Doing {
    Idle,
    Claiming {
        read: Read,
        asked_ms: u64,
        answer: Answer<Result<ClaimedRun, ClaimRefusal>>,
    },
    /// The engine did not answer: the same again.
    Claims {
        read: Read,
    },
    Taking {
        asked_ms: u64,
        answer: Answer<Served>,
    },
    Running {
        run: Run,
        until_ms: u64,
        beat_ms: u64,
        beat: Option<Answer<Vec<Result<Beat, RunError>>>>,
    },
    Completing {
        run: Run,
        asked_ms: u64,
        answer: Answer<Vec<Result<State, RunError>>>,
    },
    Failing {
        run: Run,
        asked_ms: u64,
        answer: Answer<Vec<Result<Outcome, RunError>>>,
    },
}

/// A granted attempt.
#[derive(Clone, Debug)]
struct Run {
    occurrence: OccurrenceId,
    token: LeaseToken,
    fails: bool,
    /// Tried to tell the end so often.
    told: u32,
}

/// One worker.
pub(super) struct Worker {
    index: usize,
    start: u32,
    client: Option<Client>,
    /// Keys whose own pending entries are read first.
    own: usize,
    doing: Doing,
    cursor: usize,
    pub(super) at_ms: u64,
}

/// What a worker sees of the world.
pub(super) struct Around<'a> {
    pub(super) now_ms: u64,
    pub(super) dice: &'a mut Dice,
    pub(super) swarm: &'a Swarm,
    pub(super) redis: &'a SharedRedis,
    pub(super) node: Option<&'a mut Node>,
    pub(super) checker: &'a mut Checker,
    pub(super) trace: &'a mut Trace,
    pub(super) is_chaos: bool,
}

impl Around<'_> {
    fn misbehaves(&mut self, percent: u64) -> bool {
        self.is_chaos && self.swarm.bad_workers && self.dice.percent(percent)
    }
}

impl Worker {
    pub(super) const fn new(index: usize) -> Self {
        Self { index, start: 0, client: None, own: 0, doing: Doing::Idle, cursor: 0, at_ms: 0 }
    }

    fn name(&self) -> Vec<u8> {
        format!("w{}-{}", self.index, self.start).into_bytes()
    }

    /// Does its next little thing, and says when it wants to be asked again.
    pub(super) fn step(&mut self, around: &mut Around<'_>) {
        if around.misbehaves(2) {
            around.trace.note(around.now_ms, format_args!("worker {} dies", self.index));
            *self = Self {
                start: self.start + 1,
                at_ms: around.now_ms + around.dice.below(20_000),
                ..Self::new(self.index)
            };
            return;
        }
        let wait_ms = match std::mem::replace(&mut self.doing, Doing::Idle) {
            Doing::Idle if around.swarm.is_redis => self.read(around),
            Doing::Idle => self.take(around),
            Doing::Claims { read } => self.claim(read, around),
            Doing::Claiming { read, asked_ms, answer } => self.hear_claim(read, asked_ms, answer, around),
            Doing::Taking { asked_ms, answer } => self.hear_served(asked_ms, answer, around),
            Doing::Running { run, until_ms, beat_ms, beat } => self.work(run, until_ms, beat_ms, beat, around),
            Doing::Completing { run, asked_ms, answer } => self.hear_completed(run, asked_ms, answer, around),
            Doing::Failing { run, asked_ms, answer } => self.hear_failed(run, asked_ms, answer, around),
        };
        self.at_ms = around.now_ms + wait_ms.max(1);
    }

    fn keys() -> Vec<Vec<u8>> {
        let keys = QUEUES.iter().flat_map(|queue| Lane::ALL.map(|lane| format!("cw:{{{queue}.0}}:{}", lane.as_str())));
        keys.map(String::into_bytes).collect()
    }

    /// Reads one entry, of those that were its own or left behind first.
    fn read(&mut self, around: &mut Around<'_>) -> u64 {
        match self.try_read(around) {
            Ok(Some(read)) => self.begin(read, around),
            Ok(None) => 200 + around.dice.below(800),
            Err(()) => {
                (self.client, self.own) = (None, 0);
                500 + around.dice.below(1_500)
            }
        }
    }

    fn ask(&mut self, words: &[&[u8]]) -> Result<Value, ()> {
        let client = self.client.as_mut().ok_or(())?;
        match client.ask(command(words)) {
            Ok(Value::ServerError(error)) if error.code() == "BUSYGROUP" => Ok(Value::Okay),
            Ok(Value::ServerError(_)) | Err(_) => Err(()),
            Ok(answer) => Ok(answer),
        }
    }

    fn try_read(&mut self, around: &mut Around<'_>) -> Result<Option<Read>, ()> {
        let keys = Self::keys();
        if self.client.is_none() {
            self.client = Some(around.redis.connect(100 + self.index).map_err(drop)?);
            for key in &keys {
                self.ask(&[b"XGROUP", b"CREATE", key, GROUP, b"0", b"MKSTREAM"])?;
            }
        }
        let me = self.name();
        while let Some(key) = keys.get(self.own) {
            let answer = self.ask(&[b"XREADGROUP", b"GROUP", GROUP, &me, b"COUNT", b"1", b"STREAMS", key, b"0"])?;
            if let Some(read) = self.first(key, &answer, around)? {
                return Ok(Some(read));
            }
            self.own += 1;
        }
        self.cursor += 1;
        if self.cursor.is_multiple_of(8) {
            let key = &keys[(self.cursor / 8) % keys.len()];
            let idle = IDLE_MS.to_string();
            let answer = self.ask(&[b"XAUTOCLAIM", key, GROUP, &me, idle.as_bytes(), b"0-0", b"COUNT", b"1"])?;
            if let Value::Array(parts) = &answer
                && let Some(Value::Array(entries)) = parts.get(1)
                && let Some(read) = self.parse(key, entries.first(), around)?
            {
                return Ok(Some(read));
            }
        }
        let mut question: Vec<&[u8]> = vec![b"XREADGROUP", b"GROUP", GROUP, &me, b"COUNT", b"1", b"STREAMS"];
        let key = &keys[self.cursor % keys.len()];
        question.extend([key.as_slice(), b">"]);
        for _ in 0..keys.len() {
            let key = &keys[self.cursor % keys.len()];
            let at = question.len() - 2;
            question[at] = key;
            let answer = self.ask(&question)?;
            if let Some(read) = self.first(key, &answer, around)? {
                return Ok(Some(read));
            }
            self.cursor += 1;
        }
        Ok(None)
    }

    /// The first entry of an answer to XREADGROUP.
    fn first(&mut self, key: &[u8], answer: &Value, around: &mut Around<'_>) -> Result<Option<Read>, ()> {
        let Value::Array(streams) = answer else { return Ok(None) };
        let Some(Value::Array(stream)) = streams.first() else { return Ok(None) };
        let Some(Value::Array(entries)) = stream.get(1) else { return Ok(None) };
        self.parse(key, entries.first(), around)
    }

    fn parse(&mut self, key: &[u8], entry: Option<&Value>, around: &mut Around<'_>) -> Result<Option<Read>, ()> {
        let Some(Value::Array(parts)) = entry else { return Ok(None) };
        let Some(Value::BulkString(id)) = parts.first() else { return Ok(None) };
        let fields: Vec<&[u8]> = match parts.get(1) {
            Some(Value::Array(fields)) => fields.iter().filter_map(as_bytes).collect(),
            _ => Vec::new(),
        };
        let id = String::from_utf8_lossy(id).into_owned();
        let Some((occurrence, meta)) = super::check::names(&fields) else {
            // What was removed is acknowledged.
            self.ask(&[b"XACK", key, GROUP, id.as_bytes()])?;
            return Ok(None);
        };
        let (generation, counter) = id.split_once('-').ok_or(())?;
        let entry = EntryId { generation: generation.parse().map_err(drop)?, counter: counter.parse().map_err(drop)? };
        around.trace.note(around.now_ms, format_args!("worker {} reads {id} {occurrence}", self.index));
        around.checker.read(occurrence);
        Ok(Some(Read { key: key.to_vec(), entry, occurrence, schedule: meta.schedule }))
    }

    fn begin(&mut self, read: Read, around: &mut Around<'_>) -> u64 {
        let queue = usize::from(read.key.starts_with(b"cw:{two."));
        if !around.swarm.tracks[queue] {
            self.acknowledge(&read, around);
            return 5 + around.dice.below(50);
        }
        if around.misbehaves(2) {
            around.checker.acknowledged_unclaimed(read.occurrence);
            self.acknowledge(&read, around);
            return 5;
        }
        self.claim(read, around)
    }

    fn acknowledge(&mut self, read: &Read, around: &mut Around<'_>) {
        let id = read.entry.to_string();
        for _ in 0..=u8::from(around.misbehaves(10)) {
            if self.ask(&[b"XACK", &read.key, GROUP, id.as_bytes()]).is_err() {
                (self.client, self.own) = (None, 0);
            }
        }
    }

    fn claimant(&self) -> Claimant {
        let worker = String::from_utf8_lossy(&self.name()).into_owned().into();
        Claimant { worker, lease_ms: LEASE_MS, is_in_process: false, claim_id: None }
    }

    fn claim(&mut self, read: Read, around: &mut Around<'_>) -> u64 {
        let claimant = self.claimant();
        let Some(running) = around.node.as_mut().and_then(|node| node.running.as_mut()) else {
            self.doing = Doing::Claims { read };
            return 500 + around.dice.below(1_000);
        };
        let (id, schedule) = (read.occurrence, read.schedule);
        around.checker.asked_for(id);
        let answer = running.ask(|reply| Ask::Run(RunAsk::ClaimOne { id, schedule, queue: None, claimant, reply }));
        self.doing = Doing::Claiming { read, asked_ms: around.now_ms, answer };
        1
    }

    fn hear_claim(
        &mut self,
        read: Read,
        asked_ms: u64,
        mut answer: Answer<Result<ClaimedRun, ClaimRefusal>>,
        around: &mut Around<'_>,
    ) -> u64 {
        match heard(&mut answer, asked_ms, around.now_ms) {
            Heard::NotYet => {
                self.doing = Doing::Claiming { read, asked_ms, answer };
                5
            }
            Heard::Answer(Ok(run)) => {
                around.trace.note(around.now_ms, format_args!("granted {} {}", run.occurrence_id, run.attempt));
                around.checker.granted(run.occurrence_id, run.attempt);
                self.acknowledge(&read, around);
                self.run(&run, around)
            }
            Heard::Answer(Err(ClaimRefusal::NotHeard)) | Heard::Nothing => {
                self.doing = Doing::Claims { read };
                100 + around.dice.below(1_000)
            }
            Heard::Answer(Err(refusal)) => {
                around.trace.note(around.now_ms, format_args!("refused {} {}", read.occurrence, refusal.as_str()));
                self.acknowledge(&read, around);
                5
            }
        }
    }

    /// Claims what comes next in the embedded queue.
    fn take(&mut self, around: &mut Around<'_>) -> u64 {
        self.cursor += 1;
        let queue = QUEUES[self.cursor % 2].into();
        let claimant = self.claimant();
        let Some(running) = around.node.as_mut().and_then(|node| node.running.as_mut()) else {
            return 500 + around.dice.below(1_000);
        };
        let answer = running.ask(|reply| Ask::Run(RunAsk::ClaimNext { queue, max: 1, claimant, reply }));
        self.doing = Doing::Taking { asked_ms: around.now_ms, answer };
        1
    }

    fn hear_served(&mut self, asked_ms: u64, mut answer: Answer<Served>, around: &mut Around<'_>) -> u64 {
        match heard(&mut answer, asked_ms, around.now_ms) {
            Heard::NotYet => {
                self.doing = Doing::Taking { asked_ms, answer };
                5
            }
            Heard::Answer(Served { runs, .. }) => match runs.first() {
                Some(run) => {
                    around.trace.note(around.now_ms, format_args!("served {} {}", run.occurrence_id, run.attempt));
                    around.checker.served(run);
                    around.checker.granted(run.occurrence_id, run.attempt);
                    self.run(run, around)
                }
                None => 100 + around.dice.below(400),
            },
            Heard::Nothing => 200 + around.dice.below(800),
        }
    }

    fn run(&mut self, run: &ClaimedRun, around: &mut Around<'_>) -> u64 {
        let fails = around.is_chaos && around.dice.percent(15);
        let stalls = around.misbehaves(5);
        let longest_ms = if around.is_chaos { 3_000 } else { 20 };
        let takes_ms = if stalls { 3 * LEASE_MS } else { 1 + around.dice.below(longest_ms) };
        let run = Run { occurrence: run.occurrence_id, token: run.lease_token, fails, told: 0 };
        let beat_ms = if stalls { u64::MAX } else { around.now_ms + LEASE_MS / 3 };
        self.doing = Doing::Running { run, until_ms: around.now_ms + takes_ms, beat_ms, beat: None };
        takes_ms.min(LEASE_MS / 3)
    }

    fn work(
        &mut self,
        run: Run,
        until_ms: u64,
        beat_ms: u64,
        beat: Option<Answer<Vec<Result<Beat, RunError>>>>,
        around: &mut Around<'_>,
    ) -> u64 {
        drop(beat);
        if around.now_ms >= until_ms {
            return self.tell(run, around);
        }
        let (mut beat, mut next_ms) = (None, beat_ms);
        if around.now_ms >= beat_ms
            && let Some(running) = around.node.as_mut().and_then(|node| node.running.as_mut())
        {
            let beats = vec![Speaking { occurrence: run.occurrence, token: run.token, said: LEASE_MS }];
            beat = Some(running.ask(|reply| Ask::Run(RunAsk::Heartbeat { beats, queue: None, reply })));
            next_ms = around.now_ms + LEASE_MS / 3;
        }
        self.doing = Doing::Running { run, until_ms, beat_ms: next_ms, beat };
        until_ms.min(next_ms.max(around.now_ms + 500)) - around.now_ms
    }

    fn tell(&mut self, mut run: Run, around: &mut Around<'_>) -> u64 {
        run.told += 1;
        if around.misbehaves(3) {
            return 1; // it forgets to say so
        }
        let Some(running) = around.node.as_mut().and_then(|node| node.running.as_mut()) else {
            let until_ms = around.now_ms;
            self.doing = Doing::Running { run, until_ms, beat_ms: u64::MAX, beat: None };
            return 500;
        };
        let (occurrence, token, asked_ms) = (run.occurrence, run.token, around.now_ms);
        if run.fails {
            let failed = FailedRun { class: FailureClass::Transient, message: None };
            let failed = vec![Speaking { occurrence, token, said: failed }];
            let answer = running.ask(|reply| Ask::Run(RunAsk::Fail { failed, queue: None, reply }));
            self.doing = Doing::Failing { run, asked_ms, answer };
        } else {
            let done = vec![Speaking { occurrence, token, said: None }];
            let answer = running.ask(|reply| Ask::Run(RunAsk::Complete { done, queue: None, reply }));
            self.doing = Doing::Completing { run, asked_ms, answer };
        }
        1
    }

    fn hear_completed(
        &mut self,
        run: Run,
        asked_ms: u64,
        mut answer: Answer<Vec<Result<State, RunError>>>,
        around: &mut Around<'_>,
    ) -> u64 {
        match heard(&mut answer, asked_ms, around.now_ms) {
            Heard::NotYet => {
                self.doing = Doing::Completing { run, asked_ms, answer };
                5
            }
            Heard::Answer(answers) => {
                if matches!(answers.first(), Some(Ok(State::Succeeded))) {
                    around.trace.note(around.now_ms, format_args!("completed {}", run.occurrence));
                    around.checker.completed(run.occurrence);
                }
                1
            }
            Heard::Nothing => self.again(run, around),
        }
    }

    fn hear_failed(
        &mut self,
        run: Run,
        asked_ms: u64,
        mut answer: Answer<Vec<Result<Outcome, RunError>>>,
        around: &mut Around<'_>,
    ) -> u64 {
        match heard(&mut answer, asked_ms, around.now_ms) {
            Heard::NotYet => {
                self.doing = Doing::Failing { run, asked_ms, answer };
                5
            }
            Heard::Answer(_) => 1,
            Heard::Nothing => self.again(run, around),
        }
    }

    fn again(&mut self, run: Run, around: &mut Around<'_>) -> u64 {
        if run.told < 30 {
            let until_ms = around.now_ms;
            self.doing = Doing::Running { run, until_ms, beat_ms: u64::MAX, beat: None };
        }
        300 + around.dice.below(700)
    }
}

enum Heard<T> {
    NotYet,
    Answer(T),
    /// The engine is away, busy, or took too long.
    Nothing,
}

fn heard<T>(answer: &mut Answer<T>, asked_ms: u64, now_ms: u64) -> Heard<T> {
    use tokio::sync::oneshot::error::TryRecvError;
    match answer.try_recv() {
        Ok(Ok(answer)) => Heard::Answer(answer),
        Ok(Err(CallError::ForeignQueue)) => unreachable!("no worker is bound to a queue"),
        Ok(Err(_)) | Err(TryRecvError::Closed) => Heard::Nothing,
        Err(TryRecvError::Empty) if now_ms > asked_ms + PATIENCE_MS => Heard::Nothing,
        Err(TryRecvError::Empty) => Heard::NotYet,
    }
}

fn as_bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    }
}
