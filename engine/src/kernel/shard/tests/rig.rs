//! A shard on a bench: a clock that is set by hand, a log that is always durable, a queue that does what it is told.

use std::sync::Arc;

use super::ZONES;
use crate::kernel::{
    attempt::{FailureClass, Resolution},
    calendar::{Basis, CronSpec},
    gate::Lsn,
    id::ScheduleId,
    occurrence::{EntryId, HistoryItem, Occurrence, OccurrenceNo, State, Stream},
    permits::{Permits, Unlimited},
    record::{Opened, Record},
    schedule::{InstantRange, Rule, Spec},
    shard::{
        Beat, ClaimRefusal, Claiming, CommandError, Config, Creation, Decided, FailedRun, Granted, Outcome, Receipted,
        ReviewRefusal, RunError, Shard, Speaking, Turn,
    },
    tenant::{QueueSettings, Revised},
    time::UnixMs,
};

/// `08:29:30` or `08:29:30.500` on 2026-05-04, a Monday without surprises.
pub(super) fn at(time: &str) -> UnixMs {
    on("2026-05-04", time)
}

pub(super) fn on(day: &str, time: &str) -> UnixMs {
    UnixMs::parse_rfc3339(&format!("{day}T{time}Z")).expect("a test writes its times well")
}

pub(super) fn cron(expr: &str, zone: &str) -> Spec {
    spec(Rule::Cron(CronSpec::new(expr, zone)))
}

pub(super) fn every(every_ms: i64, anchor: UnixMs) -> Spec {
    spec(Rule::Every { every_ms, anchor: Some(anchor), basis: Basis::Slot })
}

pub(super) fn spec(rule: Rule) -> Spec {
    Spec { queue: "mail".into(), payload: b"hi".to_vec(), ..Spec::new("acme", rule) }
}

/// How long a claim's lease lasts.
pub(super) const LEASE_MS: u64 = 30_000;
/// The worker that dies with the engine.
pub(super) const IN_PROCESS: &str = "in-process";

pub(super) struct Rig {
    pub(super) shard: Shard,
    pub(super) log: Vec<Record>,
    /// What was handed to the queue and not answered.
    pub(super) handed: Vec<OccurrenceNo>,
    /// Under which id claims are made.
    pub(super) claim_id: Option<&'static str>,
    config: Config,
    counter: u64,
    seen: usize,
}

impl Rig {
    /// With a queue in another process, `mail`, that nobody follows: what it accepted is done.
    pub(super) fn new(now: UnixMs) -> Self {
        let mut rig = Self::with(Config::default(), now);
        let settings = QueueSettings { tracked: false, ..QueueSettings::default() };
        rig.turn(|shard, turn| assert!(shard.set_queue("mail", Revised { revision: 1, settings }, now, turn).0 > 0));
        rig.records();
        rig
    }

    pub(super) fn with(config: Config, now: UnixMs) -> Self {
        Self::permitted(config, Box::new(Unlimited), now)
    }

    pub(super) fn permitted(config: Config, permits: Box<dyn Permits>, now: UnixMs) -> Self {
        let shard = Shard::new(config.clone(), Arc::clone(&ZONES)).with_permits(permits);
        let mut rig = Self { shard, log: Vec::new(), handed: Vec::new(), claim_id: None, config, counter: 0, seen: 0 };
        rig.open(now);
        rig.shard.queue_ready();
        rig.records();
        rig
    }

    /// With a queue in another process that workers claim from.
    pub(super) fn tracked(now: UnixMs) -> Self {
        Self::with(Config::default(), now)
    }

    fn open(&mut self, now: UnixMs) {
        self.shard.set_elapsed(now.0);
        let turn = self.shard.open(Opened::default(), now);
        self.keep(turn);
    }

    /// The process dies and comes back with `records` of its log; the queue is not connected yet.
    pub(super) fn crash(&mut self, records: usize, now: UnixMs) {
        self.log.truncate(records);
        self.seen = self.seen.min(records);
        self.shard = Shard::new(self.config.clone(), Arc::clone(&ZONES));
        for record in &self.log {
            let mut body = Vec::new();
            record.encode(&mut body);
            self.shard.replay(record.kind(), &body).expect("a shard reads its own log");
        }
        self.handed.clear();
        self.open(now);
    }

    /// One turn at `now`, then another with all of its records durable.
    pub(super) fn advance(&mut self, now: UnixMs) {
        self.shard.set_elapsed(now.0);
        self.turn(|shard, turn| shard.advance(now, turn));
        self.turn(|shard, turn| shard.advance(now, turn));
    }

    /// Turns until nothing is left to do at `now`; how many it took.
    pub(super) fn work_off(&mut self, now: UnixMs) -> usize {
        self.shard.set_elapsed(now.0);
        for turns in 1.. {
            if !self.turn(|shard, turn| shard.advance(now, turn)).more {
                self.advance(now);
                return turns;
            }
        }
        unreachable!("the loop ends with its work")
    }

    /// Time passes from event to event, with every hand-over landing at once.
    pub(super) fn live(&mut self, until: UnixMs) {
        while let Some(wake) = self.shard.next_wake().filter(|wake| *wake <= until) {
            let now = wake.max(self.shard.log_time());
            self.work_off(now);
            self.land(now);
        }
        self.work_off(until);
        self.land(until);
    }

    pub(super) fn turn(&mut self, does: impl FnOnce(&mut Shard, &mut Turn)) -> Turn {
        let mut turn = Turn::default();
        does(&mut self.shard, &mut turn);
        self.keep(turn)
    }

    fn keep(&mut self, mut turn: Turn) -> Turn {
        self.log.extend(turn.records.iter().cloned());
        self.handed.extend(turn.releases.iter().flat_map(|release| release.numbers.iter().copied()));
        turn.records.clear();
        self.shard.set_durable(self.shard.lsn());
        turn
    }

    /// The records since the last call, without those that only say how late it is.
    pub(super) fn records(&mut self) -> Vec<Record> {
        let new = self.log[self.seen..].iter().filter(|record| !matches!(record, Record::Time(_))).cloned().collect();
        self.seen = self.log.len();
        new
    }

    pub(super) fn create(&mut self, id: u8, spec: &Spec, now: UnixMs) -> ScheduleId {
        let creation = Creation { id: ScheduleId([id; 16]), spec: spec.clone(), is_keyed: false };
        self.call(|shard, turn| shard.create(&creation, now, turn)).expect("the rule has a future");
        creation.id
    }

    pub(super) fn cancel(&mut self, id: ScheduleId, now: UnixMs) -> Receipted {
        self.call(|shard, turn| shard.cancel(&id.into(), now, turn)).expect("there is such a schedule")
    }

    /// A command, with its turn carried out.
    pub(super) fn call<T>(
        &mut self,
        ask: impl FnOnce(&mut Shard, &mut Turn) -> Result<(T, Lsn), CommandError>,
    ) -> Result<T, CommandError> {
        let mut answer = None;
        self.turn(|shard, turn| answer = Some(ask(shard, turn)));
        answer.expect("it was asked").map(|(value, _)| value)
    }

    /// The queue accepts what it was handed, stream by stream.
    pub(super) fn land(&mut self, now: UnixMs) {
        for number in std::mem::take(&mut self.handed) {
            self.counter += 1;
            let stream = self.stream(number);
            let first = EntryId { generation: 1, counter: self.counter };
            let added = self.counter;
            self.turn(|shard, turn| shard.landed((stream, first, added), &[number], now, now, turn));
        }
    }

    /// Time passes to `now`, and what is handed over lands.
    pub(super) fn go(&mut self, now: UnixMs) {
        self.work_off(now);
        self.land(now);
    }

    /// A worker claims an occurrence for 30 seconds.
    pub(super) fn claim(&mut self, number: u64, now: UnixMs) -> Result<Granted, ClaimRefusal> {
        self.claim_as("w1", &[number], now).swap_remove(0)
    }

    pub(super) fn claim_as(
        &mut self,
        worker: &str,
        numbers: &[u64],
        now: UnixMs,
    ) -> Vec<Result<Granted, ClaimRefusal>> {
        self.shard.set_elapsed(now.0);
        let numbers: Vec<OccurrenceNo> = numbers.iter().copied().map(OccurrenceNo).collect();
        let claiming =
            Claiming { worker, lease_ms: LEASE_MS, is_in_process: worker == IN_PROCESS, claim_id: self.claim_id };
        let mut answers = Vec::new();
        self.turn(|shard, turn| answers = shard.claim(&numbers, &claiming, now, turn).0);
        answers
    }

    pub(super) fn complete(&mut self, run: &Granted, now: UnixMs) -> Result<State, RunError> {
        self.shard.set_elapsed(now.0);
        let done = [Speaking { occurrence: run.occurrence_id, token: run.token, said: Some("s3://out".to_owned()) }];
        let mut answers = Vec::new();
        self.turn(|shard, turn| answers = shard.complete(&done, now, turn).0);
        answers.swap_remove(0)
    }

    pub(super) fn fail(&mut self, run: &Granted, class: FailureClass, now: UnixMs) -> Result<Outcome, RunError> {
        self.shard.set_elapsed(now.0);
        let said = FailedRun { class, message: Some("it broke".to_owned()) };
        let failed = [Speaking { occurrence: run.occurrence_id, token: run.token, said }];
        let mut answers = Vec::new();
        self.turn(|shard, turn| answers = shard.fail(&failed, now, turn).0);
        answers.swap_remove(0)
    }

    pub(super) fn beat(&mut self, run: &Granted, now: UnixMs) -> Result<Beat, RunError> {
        self.shard.set_elapsed(now.0);
        let beat = Speaking { occurrence: run.occurrence_id, token: run.token, said: LEASE_MS };
        self.shard.heartbeat(&[beat], now).0.swap_remove(0)
    }

    /// A person replays a DEAD occurrence.
    pub(super) fn replay(&mut self, number: u64, now: UnixMs) -> Result<State, ReviewRefusal> {
        let id = self.occurrence(number).id;
        let mut answer = Err(ReviewRefusal::NotFound);
        self.turn(|shard, turn| answer = shard.replay_dead(id, None, now, turn));
        answer.map(|(occurrence, _)| occurrence.state)
    }

    /// A person decides about a HELD occurrence.
    pub(super) fn resolve(&mut self, number: u64, resolution: Resolution, now: UnixMs) -> Result<State, ReviewRefusal> {
        let id = self.occurrence(number).id;
        let decided = Decided { resolution, reviewer: "eve".into(), note: "looked at the bank's list".into() };
        let mut answer = Err(ReviewRefusal::NotFound);
        self.turn(|shard, turn| answer = shard.resolve_held(id, None, decided, now, turn));
        answer.map(|(occurrence, _)| occurrence.state)
    }

    pub(super) fn occurrence(&self, number: u64) -> Occurrence {
        self.shard.occurrence(OccurrenceNo(number)).expect("it is not forgotten")
    }

    pub(super) fn stream(&self, number: OccurrenceNo) -> Stream {
        self.shard.entry(number).stream
    }

    /// A schedule's history: instants with their state and lane, and ranges.
    pub(super) fn history(&self, id: ScheduleId) -> Vec<String> {
        let all = (UnixMs::MIN, UnixMs::MAX);
        let page = self.shard.history(&id.into(), None, all, None, 10_000).expect("there is such a schedule");
        let time = |at: UnixMs| at.to_string()[11..19].to_owned();
        let line = |item: &HistoryItem| match item {
            HistoryItem::Occurrence(o) => format!("{} {} {}", time(o.scheduled_for), o.state.as_str(), o.lane.as_str()),
            HistoryItem::Range(InstantRange { disposition, first, last, count, .. }) => {
                format!("{}..{} {disposition:?} x{count}", time(*first), time(*last))
            }
        };
        page.items.iter().map(line).collect()
    }

    pub(super) fn state(&self, number: u64) -> State {
        self.occurrence(number).state
    }
}
