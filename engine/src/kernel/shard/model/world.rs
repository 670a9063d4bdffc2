//! A shard, its log, its clocks and its queue, moved one event at a time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering::Relaxed},
};

use super::{
    check, pace,
    permits::Scripted,
    queue::{ModelQueue, Said, Sent},
    script::Script,
    snapshots::Snapshots,
    workers::Lease,
};
use crate::kernel::{
    calendar::{Basis, CronSpec, DayMatch, FoldChoice, Gap, ZoneSet},
    engine_time::{EngineTime, Reading},
    gate::Lsn,
    id::{OccurrenceId, ScheduleId},
    occurrence::{OccurrenceNo, Stream},
    policy::{self, Misfire, Overlap, Retry},
    record::{Opened, Record},
    schedule::{Receipt, Rule, ScheduleState, Spec},
    shard::{CommandError, Config, Creation, Pending, Receipted, Request, Shard, StreamMemory, Target, Turn},
    tenant::{QueueSettings, Revised, TenantSettings},
    time::UnixMs,
};

/// Evenings before a fold in Berlin, before a gap in New York, and an ordinary one.
const STARTS: [UnixMs; 3] = [UnixMs(1_792_879_200_000), UnixMs(1_772_928_000_000), UnixMs(1_780_000_000_000)];
const CRONS: [(&str, &str); 6] = [
    ("* * * * *", "UTC"),
    ("*/20 * * * * *", "UTC"),
    ("0 */15 * * * *", "Europe/Berlin"),
    ("30 1,2 * * *", "Europe/Berlin"),
    ("30 2 * * *", "America/New_York"),
    ("0 9 29 2 *", "Asia/Shanghai"),
];
const MINUTE_MS: u64 = 60_000;
/// A bound for work that must end.
const TURNS: usize = 100_000;

/// What may happen once the log is durable up to its LSN.
enum Effect {
    Start(u64),
    Created(ScheduleId),
    Changed(ScheduleId, Receipt),
    Canceled(ScheduleId, Receipt),
}

pub(super) struct World {
    pub(super) zones: Arc<ZoneSet>,
    pub(super) config: Config,
    pub(super) permits: Scripted,
    pub(super) shard: Shard,
    pub(super) log: Vec<(u8, Vec<u8>)>,
    pub(super) queue: ModelQueue,
    pub(super) now: UnixMs,
    /// What callers were told is so.
    pub(super) created: BTreeSet<ScheduleId>,
    pub(super) canceled: BTreeSet<ScheduleId>,
    pub(super) versions: BTreeMap<ScheduleId, u32>,
    /// Occurrences that receipts said will not run.
    pub(super) called_off: BTreeSet<OccurrenceId>,
    /// What was enqueued before this is not sent again after a loss.
    pub(super) sent_again_since: BTreeMap<Stream, UnixMs>,
    /// Every lease that a worker was granted, in the order of the claims.
    pub(super) leases: Vec<Lease>,
    pub(super) boottime_ms: i64,
    snapshots: Snapshots,
    time: EngineTime,
    wall: UnixMs,
    memory: Vec<(Stream, StreamMemory)>,
    effects: Vec<(Lsn, Effect)>,
    ids: u8,
    requests: u64,
    is_behind: bool,
}

impl World {
    pub(super) fn new(script: &mut Script<'_>, zones: &Arc<ZoneSet>) -> Self {
        let config = Config {
            is_embedded: script.chance(90),
            turn_limit: 1 + script.below(40),
            live_limit: if script.chance(60) { 1 + script.below(60) } else { 100_000 },
            window: if script.chance(60) { 1 + script.below(20) } else { 100_000 },
            ..Config::default()
        };
        let wall = STARTS[script.below(STARTS.len())];
        let permits = Scripted::new(script);
        let mut world = Self {
            shard: Shard::new(config.clone(), Arc::clone(zones)).with_permits(Box::new(permits.afresh())),
            permits,
            zones: Arc::clone(zones),
            config,
            log: Vec::new(),
            queue: ModelQueue::default(),
            now: wall,
            created: BTreeSet::new(),
            canceled: BTreeSet::new(),
            versions: BTreeMap::new(),
            called_off: BTreeSet::new(),
            sent_again_since: BTreeMap::new(),
            leases: Vec::new(),
            snapshots: Snapshots::default(),
            time: EngineTime::new(UnixMs(0), None, Reading { wall, boottime_ms: 0 }),
            wall,
            boottime_ms: 0,
            memory: Vec::new(),
            effects: Vec::new(),
            ids: 0,
            requests: 0,
            is_behind: false,
        };
        world.open(script);
        world.set_queues(script);
        world
    }

    pub(super) fn step(&mut self, script: &mut Script<'_>) {
        match script.byte() % 66 {
            0..=8 => self.pass(script.span_ms()),
            9..=11 => self.create(script),
            12 | 13 => self.cancel(script),
            14..=17 => self.queue.answer(),
            18 | 19 => self.queue.land(),
            20..=23 => self.sync(),
            24 => self.queue.cut(script),
            25 | 26 => self.queue.reconnect(),
            27 => self.queue.lose(script),
            28 => self.queue.stream_away(script),
            29 | 41..=46 => self.claim(script),
            47..=50 => self.complete(script),
            51..=53 => self.fail(script),
            54 | 55 => self.beat(script),
            56 | 57 => self.review(script),
            58 => self.acknowledge(script),
            31..=33 => self.update(script),
            34 | 35 => self.pause_or_resume(script),
            36..=38 => self.request(script),
            39 => self.create_again(script),
            59 => self.set_weight(script),
            61..=64 => self.snapshots.step(&mut self.shard, script),
            30 => self.wall = self.wall.plus(script.span_ms() - script.span_ms()),
            _ => self.crash(script),
        }
        self.turn(script);
        if script.chance(100) {
            self.work_off(script, 50);
        }
    }

    /// Everything answers, everything becomes durable, time passes: nothing may be left undecided.
    pub(super) fn settle(&mut self) {
        let script = &mut Script::new(&[]);
        self.permits.told().is_lifted.store(true, Relaxed);
        // Engine time goes on again.
        self.wall = self.wall.max(self.now);
        for _ in 0..6 {
            self.pass(30_000);
            self.work_off(script, TURNS);
            assert!(!self.is_behind && self.queue.is_idle(), "work does not end: {:?}", self.shard);
        }
    }

    fn work_off(&mut self, script: &mut Script<'_>, turns: usize) {
        for _ in 0..turns {
            self.sync();
            self.queue.reconnect();
            self.queue.answer();
            if turns == TURNS {
                self.behave();
            }
            let before = self.shard.lsn();
            self.turn(script);
            if !self.is_behind && self.queue.is_idle() && self.shard.lsn() == before {
                return;
            }
        }
    }

    fn pass(&mut self, ms: i64) {
        self.wall = self.wall.plus(ms);
        self.boottime_ms += ms;
    }

    fn reading(&self) -> Reading {
        Reading { wall: self.wall, boottime_ms: self.boottime_ms }
    }

    fn sync(&mut self) {
        self.shard.set_durable(self.shard.lsn());
    }

    /// What the actor does, without threads.
    fn turn(&mut self, script: &mut Script<'_>) {
        let durable = self.shard.durable;
        for (lsn, effect) in std::mem::take(&mut self.effects) {
            if lsn > durable {
                self.effects.push((lsn, effect));
                continue;
            }
            match effect {
                Effect::Start(generation) => self.queue.start(generation, &self.memory, script),
                Effect::Created(id) => drop(self.created.insert(id)),
                Effect::Changed(id, receipt) => self.keep_receipt(id, receipt),
                Effect::Canceled(id, receipt) => {
                    self.canceled.insert(id);
                    self.keep_receipt(id, receipt);
                }
            }
        }
        self.now = self.tell_time();
        let mut turn = Turn::default();
        while let Some(said) = self.queue.said.pop_front() {
            self.hear(said, &mut turn);
        }
        self.shard.set_elapsed(self.boottime_ms);
        if !self.time.is_suspect() {
            self.shard.advance(self.now, &mut turn);
        }
        self.is_behind = turn.more || turn.hasten;
        self.carry_out(turn);
    }

    /// Half of the queues are followed by nobody.
    fn set_queues(&mut self, script: &mut Script<'_>) {
        for name in ["one", "two"] {
            let settings = QueueSettings { tracked: script.chance(170), ..QueueSettings::default() };
            let mut turn = Turn::default();
            self.shard.set_queue(name, Revised { revision: 1, settings }, self.now, &mut turn);
            self.carry_out(turn);
        }
        self.sync();
    }

    /// Engine time for a call; the shard is told how much time has passed.
    pub(super) fn command_time(&mut self) -> UnixMs {
        self.shard.set_elapsed(self.boottime_ms);
        self.tell_time()
    }

    fn tell_time(&mut self) -> UnixMs {
        let now = self.time.observe(self.reading());
        assert!(now >= self.now, "engine time went back from {} to {now}", self.now);
        now
    }

    fn hear(&mut self, said: Said, turn: &mut Turn) {
        let now = self.now;
        match said {
            Said::Landed { stream, first, numbers, added } => {
                self.shard.landed((stream, first, added), &numbers, now, now, turn);
            }
            Said::Returned(numbers) => self.shard.returned(&numbers),
            Said::Found { stream, entries, added } => self.shard.found(stream, &entries, added, now, turn),
            Said::Lost { stream, survived } => {
                let since = now.minus(self.config.resend_window_ms);
                self.sent_again_since.entry(stream).and_modify(|at| *at = since.max(*at)).or_insert(since);
                self.shard.lost(stream, survived, now, turn);
            }
            Said::Ready => self.shard.queue_ready(),
            Said::Away(stream) => self.shard.queue_away(stream, "away".into(), now),
            Said::GenerationNeeded(at_least) => self.shard.generation_needed(at_least, now, turn),
        }
    }

    pub(super) fn carry_out(&mut self, turn: Turn) {
        self.shard.settle_counts();
        for record in &turn.records {
            let mut body = Vec::new();
            record.encode(&mut body);
            assert_eq!(Record::decode(record.kind(), &body).as_ref(), Ok(record), "decoding undoes encoding");
            self.log.push((record.kind(), body));
        }
        check::turn(self, &turn);
        for release in &turn.releases {
            let mut share: Vec<(OccurrenceNo, Sent)> = Vec::new();
            let mut stream = None;
            for &number in &release.numbers {
                let entry = self.shard.entry(number);
                if stream.is_some_and(|stream| stream != entry.stream) {
                    self.queue.release(stream.expect("checked"), std::mem::take(&mut share));
                }
                stream = Some(entry.stream);
                share.push((number, (entry.occurrence_id, entry.attempt)));
            }
            if let Some(stream) = stream {
                self.queue.release(stream, share);
            }
        }
        if let Some((lsn, generation)) = turn.start {
            self.effects.push((lsn, Effect::Start(generation)));
        }
    }

    fn create(&mut self, script: &mut Script<'_>) {
        if self.ids >= 24 {
            return;
        }
        self.ids += 1;
        let id = ScheduleId([self.ids; 16]);
        let spec = self.draw_spec(script);
        let now = self.tell_time();
        let mut turn = Turn::default();
        let creation = Creation { id, spec: spec.clone(), is_keyed: false };
        if let Ok((schedule, lsn)) = self.shard.create(&creation, now, &mut turn) {
            assert!(schedule.next.iter().all(|at| *at > now), "{spec:?} looks back from {now}");
            self.effects.push((lsn, Effect::Created(id)));
        }
        self.carry_out(turn);
    }

    fn draw_spec(&self, script: &mut Script<'_>) -> Spec {
        let every_ms = [1_000, 1_500, 7_000, 60_000, 600_000, 86_400_000][script.below(6)];
        let (rule, gap_ms) = match script.below(8) {
            0..=3 => {
                let anchor = self.wall.plus(script.span_ms() - 1_000);
                (Rule::Every { every_ms, anchor: Some(anchor), basis: Basis::Slot }, every_ms.cast_unsigned())
            }
            4 => (Rule::At(self.wall.plus(script.span_ms())), 10 * MINUTE_MS),
            _ => {
                let (expr, zone) = CRONS[script.below(CRONS.len())];
                let fold = [FoldChoice::Once, FoldChoice::Both][script.below(2)];
                let gap = [Gap::Skip, Gap::Shift][script.below(2)];
                (Rule::Cron(CronSpec { fold, gap, day_match: DayMatch::Or, ..CronSpec::new(expr, zone) }), 20_000)
            }
        };
        let lateness = [0, 5_000, MINUTE_MS, MINUTE_MS, 60 * MINUTE_MS, 366 * 24 * 60 * MINUTE_MS];
        let most = if gap_ms >= 10 * MINUTE_MS { 6 } else { 4 };
        let queue = ["one", "two"][script.below(2)];
        let flexible_window_ms = if script.chance(90) { gap_ms * script.below(256) as u64 / 255 } else { 0 };
        let spec = Spec {
            queue: queue.into(),
            name: script.chance(40).then(|| "a name".into()),
            start_at: script.chance(50).then(|| self.wall.plus(script.span_ms())),
            end_at: script.chance(50).then(|| self.wall.plus(script.span_ms() + script.span_ms())),
            payload: vec![7; script.below(4)],
            flexible_window_ms,
            max_lateness_ms: lateness[script.below(most)],
            misfire: match script.below(5) {
                0 => Misfire::Skip,
                1 => Misfire::CatchUp { limit: 1 + u32::try_from(script.below(4)).expect("at most 3") },
                _ => Misfire::FireOnce,
            },
            overlap: [Overlap::Allow, Overlap::Allow, Overlap::SkipIfRunning, Overlap::QueueOne][script.below(4)],
            retry: Retry {
                max_attempts: 1 + u32::try_from(script.below(4)).expect("at most 3"),
                base_ms: 100,
                cap_ms: 5_000,
                deadline_ms: script.chance(40).then_some(20_000),
                budget: script.chance(40).then_some(3),
            },
            effect: if script.chance(40) { policy::Effect::NonIdempotent } else { policy::Effect::Idempotent },
            review_owner: script.chance(200).then(|| "ops".into()),
            ..Spec::new(["a", "b"][script.below(2)], rule)
        };
        let number = self.shard.queues.number(queue).expect("both queues were set at the start");
        if self.shard.settings.is_tracked(number) {
            return pace::sometimes(spec, script);
        }
        let (overlap, retry, effect) = <(Overlap, Retry, policy::Effect)>::default();
        Spec { overlap, retry, effect, ..spec }
    }

    fn keep_receipt(&mut self, id: ScheduleId, receipt: Receipt) {
        self.versions.insert(id, receipt.version);
        self.called_off.extend(receipt.canceled);
    }

    fn draw_target(&self, script: &mut Script<'_>) -> Target {
        ScheduleId([u8::try_from(script.below(usize::from(self.ids) + 1)).expect("24 ids"); 16]).into()
    }

    fn command(
        &mut self,
        ask: impl FnOnce(&mut Shard, UnixMs, &mut Turn) -> Result<(Receipted, Lsn), CommandError>,
        effect: fn(ScheduleId, Receipt) -> Effect,
    ) {
        let now = self.tell_time();
        let mut turn = Turn::default();
        let answer = ask(&mut self.shard, now, &mut turn);
        if let Ok((Receipted { schedule, receipt }, lsn)) = answer {
            assert_eq!(schedule.version, receipt.version);
            if !turn.records.is_empty() {
                self.effects.push((lsn, effect(schedule.id, receipt)));
            }
        }
        self.carry_out(turn);
    }

    fn cancel(&mut self, script: &mut Script<'_>) {
        let target = self.draw_target(script);
        self.command(|shard, now, turn| shard.cancel(&target, now, turn), Effect::Canceled);
    }

    fn update(&mut self, script: &mut Script<'_>) {
        let target = self.draw_target(script);
        let drawn = self.draw_spec(script);
        let pending = if script.chance(128) { Pending::Keep } else { Pending::Cancel };
        let Some((before, _)) = self.shard.read(&target, self.now) else { return };
        let drawn = pace::anchored(drawn, &before.spec, script);
        let spec = Spec { tenant: before.spec.tenant, ..drawn };
        let version = before.version - u32::from(script.chance(20));
        self.command(|shard, now, turn| shard.update(&target, &spec, version, pending, now, turn), Effect::Changed);
    }

    fn pause_or_resume(&mut self, script: &mut Script<'_>) {
        let target = self.draw_target(script);
        if script.chance(128) {
            self.command(|shard, now, turn| shard.pause(&target, now, turn), Effect::Changed);
        } else {
            self.command(|shard, now, turn| shard.resume(&target, now, turn), Effect::Changed);
        }
    }

    /// A trigger or a backfill, sometimes under a key that was used before.
    fn request(&mut self, script: &mut Script<'_>) {
        let target = self.draw_target(script);
        let is_keyed = script.chance(128);
        self.requests += 1;
        let key = if is_keyed { script.below(3) as u64 } else { 3 + self.requests };
        let request = Request { discriminator: key.to_be_bytes().to_vec(), is_keyed };
        let now = self.tell_time();
        let mut turn = Turn::default();
        if script.chance(128) {
            let triggered = self.shard.trigger(&target, request, now, &mut turn);
            assert!(triggered.is_err() || turn.records.is_empty() != triggered.is_ok_and(|(made, _)| made.is_new));
        } else {
            let to = now.minus(script.span_ms() / 16);
            let window = (to.minus(1 + script.span_ms() / 16), to);
            let asked = self.shard.backfill(&target, window, request, now, &mut turn);
            assert!(asked.is_err() || turn.records.is_empty() != asked.is_ok_and(|(asked, _)| asked.is_new));
        }
        self.carry_out(turn);
    }

    fn set_weight(&mut self, script: &mut Script<'_>) {
        self.requests += 1;
        let weight = 1 + u32::try_from(script.below(1_000)).expect("at most 999");
        let set = Revised { revision: self.requests, settings: TenantSettings { weight, ..TenantSettings::default() } };
        let now = self.tell_time();
        let mut turn = Turn::default();
        self.shard.set_tenant(["a", "b"][script.below(2)], set, now, &mut turn);
        self.carry_out(turn);
    }

    /// A canceled schedule's key is used again.
    fn create_again(&mut self, script: &mut Script<'_>) {
        let id = self.draw_target(script).id;
        let spec = self.draw_spec(script);
        let before = self.shard.read(&id.into(), self.now);
        let Some((before, _)) = before.filter(|(schedule, _)| schedule.state == ScheduleState::Canceled) else {
            return;
        };
        let creation = Creation { id, spec: Spec { tenant: before.spec.tenant, ..spec }, is_keyed: true };
        let now = self.tell_time();
        let mut turn = Turn::default();
        if let Ok((schedule, _)) = self.shard.create(&creation, now, &mut turn) {
            assert!(schedule.version > before.version);
            self.canceled.remove(&id);
            self.effects.retain(|(_, effect)| !matches!(effect, Effect::Canceled(canceled, _) if *canceled == id));
        }
        self.carry_out(turn);
    }

    /// The process dies: the log keeps what was durable and some of the rest.
    fn crash(&mut self, script: &mut Script<'_>) {
        let durable = usize::try_from(self.shard.durable.0).expect("a short log");
        self.log.truncate(durable + script.below(self.log.len() - durable + 1));
        self.effects.clear();
        self.queue.crash(!self.config.is_embedded, script);
        self.pass(script.span_ms());
        self.snapshots.crash(self.shard.durable);
        let replayed = check::replayed(self);
        let restored = self.snapshots.restored(self);
        let shard = restored.inspect(|restored| check::same(&replayed, restored)).unwrap_or(replayed);
        self.shard = shard.with_permits(Box::new(self.permits.afresh()));
        check::promises(self);
        self.open(script);
    }

    fn open(&mut self, script: &mut Script<'_>) {
        self.memory = self.shard.remembered_streams().collect();
        let before = self.shard.opened().filter(|_| script.chance(200));
        let before = before.map(|o| Reading { wall: UnixMs(o.wall_ms), boottime_ms: o.boottime_ms });
        self.time = EngineTime::new(self.shard.log_time(), before, self.reading());
        self.now = self.time.now();
        assert!(self.now >= self.shard.log_time());
        let reading = self.reading();
        let opened = Opened { wall_ms: reading.wall.0, boottime_ms: reading.boottime_ms, ..Opened::default() };
        self.shard.set_elapsed(self.boottime_ms);
        self.keep_leases();
        let turn = self.shard.open(opened, self.now);
        self.carry_out(turn);
    }
}
