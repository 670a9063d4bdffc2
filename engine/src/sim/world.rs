//! A world: engines, a Redis, workers and callers under one clock, and what befalls them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use countwheel_wal::sim::{Crash, Rng};

use super::{
    calls::Calls,
    check::Checker,
    node::{Common, Node, PATIENCE_MS},
    redis::{Mood, Rates, Seen, SharedRedis},
    swarm::{Dice, Swarm},
    trace::Trace,
    workers::{Around, Worker},
};
use crate::kernel::{calendar::ZoneSet, time::UnixMs};

/// Evenings before a fold in Berlin, before a gap in New York, and an ordinary one.
const STARTS: [UnixMs; 3] = [UnixMs(1_792_879_200_000), UnixMs(1_772_928_000_000), UnixMs(1_780_000_000_000)];
/// How long everything is well at the end.
const LIVENESS_MS: u64 = 12 * 60_000;

/// What a world came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The same for every run of a seed.
    pub hash: u64,
    /// How long it was, by its own clock.
    pub simulated_ms: u64,
    /// How many entries landed, or were served.
    pub landings: u64,
    /// How many of them twice, with an excuse.
    pub duplicates: u64,
    /// How often something went wrong on purpose.
    pub faults: u64,
}

pub(super) struct World {
    pub(super) common: Common,
    pub(super) dice: Dice,
    pub(super) nodes: Vec<Node>,
    pub(super) checker: Checker,
    pub(super) trace: Trace,
    pub(super) faults: u64,
    pub(super) is_chaos: bool,
    /// When the mood, or the full disk, is over.
    pub(super) eases_at_ms: u64,
    workers: Vec<Worker>,
    pub(super) calls: Calls,
    next_event_ms: u64,
}

impl World {
    pub(super) fn new(seed: u64, zones: &Arc<ZoneSet>, is_shown: bool) -> Self {
        let mut dice = Dice(Rng::new(seed));
        let swarm = Swarm::draw(&mut dice);
        let past_ms = if swarm.redis_losses { 3_000 } else { 0 };
        let redis = SharedRedis::new(dice.below(u64::MAX), Rates { cut_once_in: 0, past_ms });
        let nodes = vec![Node::new(0, *dice.pick(&STARTS))];
        let workers = (0..swarm.workers).map(Worker::new).collect();
        let zones = Arc::clone(zones);
        let common = Common { zones, swarm, redis, elapsed: Arc::new(AtomicU64::new(0)), began: Instant::now() };
        let mut trace = Trace::new(is_shown);
        trace.note(0, format_args!("{:?}", common.swarm));
        Self {
            common,
            dice,
            nodes,
            checker: Checker::default(),
            trace,
            faults: 0,
            is_chaos: false,
            eases_at_ms: u64::MAX,
            workers,
            calls: Calls::default(),
            next_event_ms: u64::MAX,
        }
    }

    /// Chaos, healing, and time for everything to come to its end.
    pub(super) fn live(mut self) -> Outcome {
        self.run_until(1_000);
        self.calls.set_queues(self.nodes.last_mut().expect("there is one"), &self.common.swarm);
        self.run_until(4_000);
        for _ in 0..self.common.swarm.schedules {
            self.call(true);
        }
        self.is_chaos = true;
        self.common.redis.lock().rates.cut_once_in = if self.common.swarm.redis_cuts { 60 } else { 0 };
        self.next_event_ms = self.now_ms();
        let end_ms = self.now_ms() + self.common.swarm.chaos_ms;
        self.run_until(end_ms);
        self.heal();
        self.run_until(end_ms + LIVENESS_MS);
        let node = self.nodes.last_mut().expect("there is one");
        let durable = node.running.as_ref().map_or(0, |running| running.actor.durable());
        node.remember(durable);
        self.trace.show(&node.past);
        self.checker.at_the_end(node, &self.common.zones, &self.common.swarm);
        self.trace.note(durable, format_args!("the end"));
        Outcome {
            hash: self.trace.hash(),
            simulated_ms: self.now_ms(),
            landings: self.checker.landings,
            duplicates: self.checker.duplicates,
            faults: self.faults,
        }
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.common.now_ms()
    }

    fn run_until(&mut self, end_ms: u64) {
        loop {
            let now_ms = self.now_ms();
            let at_ms = self.next_ms().clamp(now_ms, end_ms);
            if at_ms > now_ms {
                self.pass(at_ms - now_ms);
            }
            if at_ms == end_ms {
                return;
            }
            self.run_due();
        }
    }

    fn pass(&mut self, ms: u64) {
        self.common.elapsed.fetch_add(ms, Relaxed);
        self.common.redis.lock().now_ms = self.now_ms();
        for node in &mut self.nodes {
            node.step_clock(ms.cast_signed(), ms.cast_signed());
        }
    }

    /// When the next thing happens.
    fn next_ms(&mut self) -> u64 {
        let now_ms = self.now_ms();
        let mut next_ms = self.next_event_ms.min(self.eases_at_ms);
        for node in &mut self.nodes {
            let wall = node.clock.now();
            let due_ms = match &mut node.running {
                Some(running) => {
                    let (turn_ms, log_ms) = (running.turn_due_ms(now_ms, wall), running.log_due_ms(now_ms));
                    turn_ms.min(log_ms).min(running.relay_due_ms(self.common.began))
                }
                None => node.opens_at_ms,
            };
            next_ms = next_ms.min(due_ms);
        }
        self.workers.iter().map(|worker| worker.at_ms).fold(next_ms, u64::min)
    }

    fn run_due(&mut self) {
        for index in 0..self.nodes.len() {
            let first = self.dice.index(3);
            for part in 0..3 {
                match (first + part) % 3 {
                    0 => self.run_relay(index),
                    1 => self.run_log(index),
                    _ => self.run_actor(index),
                }
            }
            self.restart_what_is_over(index);
        }
        for index in 0..self.workers.len() {
            if self.workers[index].at_ms <= self.now_ms() {
                self.run_worker(index);
            }
        }
        if self.calls.hear(&mut self.checker) {
            self.trace.note(self.now_ms(), format_args!("a caller is answered"));
        }
        if self.eases_at_ms <= self.now_ms() {
            self.ease();
        }
        if self.next_event_ms <= self.now_ms() {
            self.next_event_ms = self.now_ms() + 1 + self.dice.below(2 * self.common.swarm.pace_ms);
            if self.dice.percent(60) {
                self.call(false);
            } else {
                self.befall();
            }
        }
    }

    fn latency(&mut self) -> u64 {
        1 + self.dice.below(self.common.swarm.latency_ms + 1)
    }

    fn run_relay(&mut self, index: usize) {
        let (now_ms, latency_ms) = (self.now_ms(), self.latency());
        let Some(running) = &mut self.nodes[index].running else { return };
        if running.relay_due_ms(self.common.began) > now_ms {
            return;
        }
        if let Some(relay) = &mut running.relay {
            relay.step();
        }
        running.relay_at_ms = now_ms + latency_ms;
        let mut redis = self.common.redis.lock();
        if std::mem::take(&mut redis.timeouts) > 0 {
            running.relay_at_ms = now_ms + PATIENCE_MS;
        }
        drop(redis);
        self.look();
    }

    fn run_log(&mut self, index: usize) {
        let (now_ms, latency_ms) = (self.now_ms(), self.latency());
        let Some(running) = &mut self.nodes[index].running else { return };
        if running.log_due_ms(now_ms) > now_ms {
            return;
        }
        running.log_at_ms = now_ms + latency_ms;
        if running.actor.step_log() {
            self.trace.note(now_ms, format_args!("{index}: durable {}", running.actor.durable()));
        }
    }

    fn run_actor(&mut self, index: usize) {
        let (now_ms, latency_ms) = (self.now_ms(), self.latency());
        let wall = self.nodes[index].clock.now();
        let Some(running) = &mut self.nodes[index].running else { return };
        if running.turn_due_ms(now_ms, wall) > now_ms {
            return;
        }
        running.turn(now_ms);
        running.actor_at_ms = now_ms + latency_ms.min(5);
        self.trace.note(now_ms, format_args!("{index}: turn {}", running.actor.shard().lsn().0));
        if let Some(snapshot) = running.snapshot.take() {
            let rows = 1 + self.dice.index(40);
            match running.actor.sweep(snapshot, rows) {
                Ok(going_on) => running.snapshot = going_on,
                Err(error) => self.trace.note(now_ms, format_args!("{index}: no snapshot: {error}")),
            }
        }
    }

    /// What has died, or will never write again, is started anew.
    fn restart_what_is_over(&mut self, index: usize) {
        let now_ms = self.now_ms();
        if self.nodes[index].running.as_ref().is_some_and(super::node::Running::is_poisoned) {
            if self.dice.percent(50) {
                self.nodes[index].kill();
            } else {
                let (policy, seed) = (*self.dice.pick(&Crash::ALL), self.dice.below(u64::MAX));
                self.nodes[index].cut_power(policy, seed, 0);
            }
            self.trace.note(now_ms, format_args!("{index}: given up, its log is poisoned"));
            self.nodes[index].opens_at_ms = now_ms + self.dice.below(5_000);
        }
        let count = self.nodes.len();
        let node = &mut self.nodes[index];
        if node.running.is_some() || node.opens_at_ms > now_ms {
            return;
        }
        match node.open(&self.common) {
            Ok(()) => {
                let running = node.running.as_mut().expect("it was just opened");
                let now = running.actor.engine_time();
                self.trace.note(now_ms, format_args!("{index}: open, {}", running.actor.shard().lsn().0));
                let durable = running.actor.durable();
                // What the copy promised, the engine that was copied need not know.
                if index + 1 == count {
                    self.checker.came_up(running.actor.shard_mut(), now);
                }
                if self.trace.is_shown() {
                    node.remember(durable);
                    self.trace.show(&node.past);
                }
            }
            Err(error) => {
                use countwheel_wal::OpenError;
                let is_trouble = matches!(error, OpenError::Io { .. } | OpenError::NoSpace { .. });
                assert!(is_trouble, "an engine does not come up: {error}");
                self.trace.note(now_ms, format_args!("{index}: not opened: {error}"));
                node.running = None;
                if self.dice.percent(50) {
                    node.fs = node.fs.restart();
                }
                node.opens_at_ms = now_ms + 1_000;
            }
        }
    }

    fn run_worker(&mut self, index: usize) {
        let now_ms = self.now_ms();
        let mut around = Around {
            now_ms,
            dice: &mut self.dice,
            swarm: &self.common.swarm,
            redis: &self.common.redis,
            node: self.nodes.last_mut(),
            checker: &mut self.checker,
            trace: &mut self.trace,
            is_chaos: self.is_chaos,
        };
        self.workers[index].step(&mut around);
        self.common.redis.lock().timeouts = 0;
        self.look();
    }

    /// What happened in Redis.
    pub(super) fn look(&mut self) {
        let seen = std::mem::take(&mut self.common.redis.lock().seen);
        let now_ms = self.now_ms();
        for seen in seen {
            match &seen {
                Seen::Added { peer, key, id, fields } => {
                    let occurrence = String::from_utf8_lossy(fields.get(1).map_or(b"", Vec::as_slice));
                    let key = String::from_utf8_lossy(key);
                    self.trace.note(now_ms, format_args!("{peer} adds {id} to {key}: {occurrence}"));
                }
                Seen::Moved { peer, command } => {
                    let command =
                        command.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ");
                    self.trace.note(now_ms, format_args!("{peer}: {command}"));
                }
                Seen::Owned { .. } | Seen::Lost { .. } => self.trace.note(now_ms, format_args!("{seen:?}")),
            }
            self.checker.look(seen, now_ms, &self.common.swarm, &self.nodes);
        }
    }

    fn call(&mut self, must_create: bool) {
        let node = self.nodes.last_mut().expect("there is one");
        let now = node.clock.now();
        let what = self.calls.make(node, now, must_create, &mut self.dice, &self.common.swarm, &mut self.checker);
        self.trace.note(self.common.now_ms(), format_args!("call {what}"));
    }

    /// Whatever was wrong is over.
    fn heal(&mut self) {
        self.trace.note(self.now_ms(), format_args!("healing"));
        self.is_chaos = false;
        self.next_event_ms = u64::MAX;
        self.common.redis.lock().rates.cut_once_in = 0;
        self.ease();
        if self.nodes.len() > 1 {
            self.nodes[0].running = None;
            self.nodes[0].opens_at_ms = u64::MAX;
        }
        let node = self.nodes.last_mut().expect("there is one");
        node.fs.fail_operation(u64::MAX, std::io::ErrorKind::Other);
        node.fs.stop_before(u64::MAX);
        if let Some(running) = &mut node.running {
            // A clock that was set back is put right; engine time goes on again.
            let behind_ms = running.actor.engine_time().since(node.clock.now()).max(0);
            node.step_clock(behind_ms, 0);
        }
    }

    /// The mood and the full disk are over.
    fn ease(&mut self) {
        self.eases_at_ms = u64::MAX;
        self.common.redis.lock().mood = Mood::Well;
        for node in &self.nodes {
            node.fs.set_capacity_bytes(None);
        }
    }
}
