//! The actor around a shard: takes a message, calls the kernel, passes on. Nothing about jobs is decided here.
//!
//! A turn is: what the queue said, what the log made durable, time, then whatever arrived; its records go to the log,
//! and only what rests on durable records leaves.

#[cfg(any(test, feature = "sim"))]
pub(crate) mod driven;
mod report;
mod runs;

use std::{collections::BTreeSet, rc::Rc, sync::Arc, time::Duration};

use actix::{Actor, ActorContext, AsyncContext, Context, Handler, StreamHandler};
use countwheel_wal::crash_point;
use tokio::sync::Notify;

use super::{
    arrivals::Arrivals,
    ask::{Ask, ReplyTo},
    clock::Clock,
    creations::create_each,
    journal::Journal,
    local_queue::LocalQueue,
    metrics::ShardMetrics,
    pace::Pace,
    queue::{Away, Queue, QueueEvent, Remembered},
    signal::{Alarm, pulses},
    snapshots::Snapshots,
    status::SharedStatus,
    tenant_metrics::TenantFollower,
};
use crate::{
    error::CallError,
    kernel::{
        engine_time::{EngineTime, Reading},
        gate::{Gate, Lsn},
        occurrence::{EntryId, QueueNo, Stream},
        shard::{Request, Shard, Turn},
        time::UnixMs,
    },
};

/// How long a clean stop waits for the queue's answers.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// Which queue a shard delivers to.
pub(crate) enum Backend {
    /// The embedded one.
    Local(Box<LocalQueue>),
    /// Redis Streams.
    #[cfg(feature = "redis")]
    Remote(Box<dyn Queue>),
}

impl Backend {
    fn queue(&mut self) -> &mut dyn Queue {
        match self {
            Self::Local(queue) => &mut **queue,
            #[cfg(feature = "redis")]
            Self::Remote(queue) => &mut **queue,
        }
    }

    /// The embedded queue, where workers of this process take from.
    fn local(&mut self) -> Option<&mut LocalQueue> {
        match self {
            Self::Local(queue) => Some(&mut **queue),
            #[cfg(feature = "redis")]
            Self::Remote(_) => None,
        }
    }
}

/// What waits at the gate.
enum Effect {
    Answer(Box<dyn FnOnce()>),
    Recorded(Stream, EntryId),
    Materialized(UnixMs),
    Start(u64),
}

/// What an actor is made of; everything but the alarm is made before its thread is there.
pub(crate) struct Parts {
    pub(crate) number: usize,
    pub(crate) shard: Shard,
    pub(crate) journal: Journal,
    pub(crate) backend: Backend,
    pub(crate) clock: Arc<Clock>,
    pub(crate) time: EngineTime,
    pub(crate) opening: Turn,
    pub(crate) signal: Arc<Notify>,
    /// Told when the embedded queue has something for workers.
    pub(crate) arrivals: Arc<Arrivals>,
    pub(crate) status: SharedStatus,
    pub(crate) snapshots: Snapshots,
    pub(crate) mailbox: usize,
}

/// One shard on its arbiter.
pub(crate) struct ShardActor {
    number: usize,
    shard: Shard,
    journal: Option<Journal>,
    backend: Backend,
    clock: Arc<Clock>,
    time: EngineTime,
    gate: Gate<Effect>,
    alarm: Rc<Alarm>,
    signal: Arc<Notify>,
    arrivals: Arc<Arrivals>,
    status: SharedStatus,
    status_at_ms: i64,
    had_trouble: bool,
    metrics: ShardMetrics,
    pace: Pace,
    tenants: TenantFollower,
    events: Vec<QueueEvent>,
    opening: Option<Turn>,
    snapshots: Snapshots,
    mailbox: usize,
}

impl ShardActor {
    pub(crate) fn new(parts: Parts) -> std::io::Result<Self> {
        Ok(Self {
            alarm: Rc::new(Alarm::new(Arc::clone(&parts.clock))?),
            number: parts.number,
            shard: parts.shard,
            journal: Some(parts.journal),
            backend: parts.backend,
            clock: parts.clock,
            time: parts.time,
            gate: Gate::default(),
            signal: parts.signal,
            arrivals: parts.arrivals,
            status: parts.status,
            status_at_ms: i64::MIN,
            had_trouble: true,
            metrics: ShardMetrics::default(),
            pace: Pace::default(),
            tenants: TenantFollower::default(),
            events: Vec::new(),
            opening: Some(parts.opening),
            snapshots: parts.snapshots,
            mailbox: parts.mailbox,
        })
    }

    /// What the world said since the last turn, then time.
    fn turn(&mut self) {
        let Some(journal) = &mut self.journal else { return };
        let blocked = journal.is_blocked();
        let durable = journal.durable();
        self.shard.set_durable(durable);
        for effect in self.gate.release(durable) {
            self.perform(effect);
        }
        let reading = self.clock.reading();
        if self.is_poisoned() && !self.gate.is_empty() {
            // Nothing that waits will ever be durable: whoever waits for an answer is told why.
            self.status_at_ms = i64::MIN;
            self.publish_status(reading.boottime_ms);
            self.gate.drain();
        }
        let now = self.time.observe(reading);
        self.shard.set_elapsed(reading.boottime_ms);
        let mut turn = Turn::default();
        let advances = !blocked && !self.time.is_suspect() && self.is_writable();
        if !blocked {
            self.hear_queue(now, &mut turn);
        }
        if advances {
            self.shard.advance(now, &mut turn);
        }
        let is_busy = turn.more || !turn.releases.is_empty();
        self.carry_out(turn);
        self.go_on_with_snapshots(is_busy);
        // While nothing may be decided, what is due stays due: ring in a second, not at once and again.
        self.alarm.set(self.next_wake(reading).filter(|_| advances));
        self.publish_status(reading.boottime_ms);
    }

    /// When the shard wants time at the latest, by the wall clock. Leases and back-offs run by another clock.
    fn next_wake(&self, reading: Reading) -> Option<UnixMs> {
        let lapse =
            self.shard.next_lapse_ms().map(|at_ms| reading.wall.plus(at_ms.saturating_sub(reading.boottime_ms)));
        self.shard.next_wake().into_iter().chain(lapse).min()
    }

    /// What the queue said, without giving time to the shard.
    fn hear(&mut self) {
        let now = self.time.now();
        let mut turn = Turn::default();
        self.hear_queue(now, &mut turn);
        self.carry_out(turn);
    }

    fn hear_queue(&mut self, now: UnixMs, turn: &mut Turn) {
        // While the wall clock is behind, engine time stands still: what the queue noted by the one is told by the other.
        let behind_ms = self.time.behind_ms(self.clock.reading());
        let mut events = std::mem::take(&mut self.events);
        self.backend.queue().poll(&mut events);
        for event in events.drain(..) {
            match event {
                QueueEvent::Landed { stream, first, numbers, added, at } => {
                    self.shard.landed((stream, first, added), &numbers, at.plus(behind_ms), now, turn);
                }
                QueueEvent::Returned { numbers } => self.shard.returned(&numbers),
                QueueEvent::Found { stream, entries, added } => {
                    self.shard.found(stream, &entries, added, now, turn);
                }
                QueueEvent::Lost { stream, survived } => self.shard.lost(stream, survived, now, turn),
                QueueEvent::Shortened { stream } => self.shard.shortened(stream, now, turn),
                QueueEvent::Settled { stream, through } => self.shard.settled(stream, through, now, turn),
                QueueEvent::Ready => self.shard.queue_ready(),
                QueueEvent::Away(Away { stream, reason }) => self.shard.queue_away(stream, reason, now),
                QueueEvent::GenerationNeeded { at_least } => self.shard.generation_needed(at_least, now, turn),
                QueueEvent::Fenced { reason } => self.shard.queue_fenced(reason),
            }
        }
        self.events = events;
    }

    /// Records to the log, then whatever may leave.
    fn carry_out(&mut self, turn: Turn) {
        self.shard.settle_counts();
        let Some(journal) = &mut self.journal else { return };
        if !turn.records.is_empty() {
            crash_point("turn.decided");
        }
        journal.write(&turn);
        if turn.hasten {
            journal.hasten();
        }
        for queue in &turn.queues {
            self.declare(*queue, Remembered::default());
        }
        if let Some(local) = self.backend.local() {
            let queues: BTreeSet<_> = turn.withdrawn.iter().filter_map(|number| local.queue_of(*number)).collect();
            for number in &turn.withdrawn {
                local.withdraw(*number);
            }
            for queue in queues {
                self.post(queue);
            }
        }
        let shard = &self.shard;
        let queue = self.backend.queue();
        for number in &turn.staged {
            queue.stage(&shard.entry(*number));
        }
        for release in &turn.releases {
            queue.release(release.at, &release.numbers, &|number| shard.entry(number));
        }
        if let Some(at) = turn.forget_staged {
            queue.forget_staged(at);
        }
        for stream in &turn.read_back {
            queue.read_back(*stream);
        }
        self.announce();
        for (lsn, stream, entry) in turn.recorded {
            self.hold(lsn, Effect::Recorded(stream, entry));
        }
        if let Some((lsn, generation)) = turn.start {
            self.hold(lsn, Effect::Start(generation));
        }
        for lag in turn.lags {
            *self.metrics.enqueued_total.of_mut(lag.lane) += 1;
            self.metrics.lag.of_mut(lag.lane).record(millis(lag.lag_ms));
            self.tenants.record(lag);
        }
        for (lsn, available_at) in turn.materialized {
            self.hold(lsn, Effect::Materialized(available_at));
        }
        if turn.more || !turn.releases.is_empty() {
            self.signal.notify_one();
        }
    }

    fn go_on_with_snapshots(&mut self, is_busy: bool) {
        let Some(journal) = &mut self.journal else { return };
        self.snapshots.grown(journal.take_bytes());
        let is_whole = !journal.is_blocked() && journal.state() == countwheel_wal::State::Running;
        self.snapshots.turn(&mut self.shard, journal.log(), is_whole, is_busy);
    }

    fn declare(&mut self, queue: QueueNo, remembered: Remembered) {
        for lane in crate::kernel::occurrence::Lane::ALL {
            let name = self.shard.queue_name(queue).to_owned();
            self.backend.queue().declare(Stream { queue, lane }, &name, lane, remembered);
        }
    }

    /// Declares every stream that the log knows.
    fn declare_remembered(&mut self) {
        let known: Vec<_> = self.shard.remembered_streams().collect();
        for (stream, memory) in known {
            let name = self.shard.queue_name(stream.queue).to_owned();
            let remembered = Remembered { last: memory.last, added: memory.added };
            self.backend.queue().declare(stream, &name, stream.lane, remembered);
        }
    }

    fn hold(&mut self, lsn: Lsn, effect: Effect) {
        if let Some(effect) = self.gate.pass(lsn, effect) {
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Answer(answer) => {
                crash_point("answer.due");
                answer();
                crash_point("answer.given");
            }
            Effect::Recorded(stream, entry) => {
                crash_point("enqueued.recorded");
                self.backend.queue().recorded(stream, entry);
            }
            Effect::Materialized(available_at) => {
                self.metrics.materialization_lead.record(millis(available_at.since(self.time.now())));
            }
            Effect::Start(generation) => {
                crash_point("start.generation_durable");
                if let Some(journal) = &self.journal {
                    journal.log().set_generation(generation);
                }
                self.backend.queue().start(generation);
            }
        }
    }

    /// Sends `value` once the log is durable up to `lsn`. A caller waits, so whatever is queued becomes prompt.
    fn answer<T: 'static>(&mut self, reply: ReplyTo<T>, lsn: Lsn, value: T) {
        if lsn > self.gate.released()
            && let Some(journal) = &self.journal
        {
            journal.hasten();
        }
        self.hold(lsn, Effect::Answer(Box::new(move || drop(reply.send(Ok(value))))));
    }

    fn is_writable(&self) -> bool {
        use countwheel_wal::State;
        let state = self.journal.as_ref().map(Journal::state);
        matches!(state, Some(State::Running | State::OnReserve))
    }

    fn is_poisoned(&self) -> bool {
        let state = self.journal.as_ref().map(Journal::state);
        matches!(state, Some(countwheel_wal::State::Poisoned(_)))
    }

    /// Why a write is refused at the moment, if so. What users set is refused as soon as the disk is full; what runs
    /// may use the space that was kept aside.
    fn write_trouble(&mut self, may_use_reserve: bool) -> Option<CallError> {
        use countwheel_wal::State;
        let Some(journal) = &mut self.journal else { return Some(CallError::Stopping) };
        if let Some(reason) = self.shard.fenced() {
            return Some(CallError::Fenced(reason.to_owned()));
        }
        match journal.state() {
            State::Running => journal.is_blocked().then_some(CallError::Overloaded),
            State::OnReserve if may_use_reserve => journal.is_blocked().then_some(CallError::Overloaded),
            State::OnReserve | State::Full => Some(CallError::DiskFull),
            State::Poisoned(reason) => Some(CallError::Poisoned(reason.to_string())),
            _ => Some(CallError::Stopping),
        }
    }

    /// Asks the kernel at engine time, and carries the turn out.
    fn decide<T>(&mut self, decide: impl FnOnce(&mut Shard, UnixMs, &mut Turn) -> T) -> T {
        let reading = self.clock.reading();
        let now = self.time.observe(reading);
        self.shard.set_elapsed(reading.boottime_ms);
        let mut turn = Turn::default();
        let decided = decide(&mut self.shard, now, &mut turn);
        self.carry_out(turn);
        self.signal.notify_one();
        decided
    }

    /// What a user sets.
    fn command<T: 'static>(
        &mut self,
        reply: ReplyTo<T>,
        decide: impl FnOnce(&mut Shard, UnixMs, &mut Turn) -> Result<(T, Lsn), CallError>,
    ) {
        match self.write_trouble(false) {
            Some(trouble) => drop(reply.send(Err(trouble))),
            None => match self.decide(decide) {
                Ok((value, lsn)) => self.answer(reply, lsn, value),
                Err(error) => drop(reply.send(Err(error))),
            },
        }
    }

    fn stop(&mut self) -> Result<(), String> {
        self.turn();
        crash_point("shutdown.draining");
        self.backend.queue().close(CLOSE_LIMIT);
        self.hear();
        crash_point("shutdown.queue_closed");
        self.snapshots.stop(&mut self.shard);
        let Some(journal) = self.journal.take() else { return Ok(()) };
        let closed = journal.close();
        if closed.is_ok() {
            for effect in self.gate.drain() {
                if let Effect::Answer(answer) = effect {
                    answer();
                }
            }
        }
        closed
    }
}

fn millis(ms: i64) -> Duration {
    Duration::from_millis(ms.max(0).cast_unsigned())
}

impl Actor for ShardActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(self.mailbox);
        context.add_stream(pulses(Rc::clone(&self.alarm), Arc::clone(&self.signal)));
        self.begin();
    }
}

impl StreamHandler<()> for ShardActor {
    fn handle(&mut self, (): (), _: &mut Self::Context) {
        self.turn();
    }
}

impl Handler<Ask> for ShardActor {
    type Result = ();

    fn handle(&mut self, ask: Ask, context: &mut Self::Context) {
        let is_last = matches!(ask, Ask::Stop { .. });
        self.take(ask);
        if is_last {
            context.stop();
        }
    }
}

impl ShardActor {
    /// What was opened goes on.
    fn begin(&mut self) {
        self.clock.on_step(&self.signal);
        self.declare_remembered();
        if let Some(opening) = self.opening.take() {
            self.carry_out(opening);
        }
        self.turn();
    }

    /// Answers go through the asker's channel, when the gate lets them.
    fn take(&mut self, ask: Ask) {
        match ask {
            Ask::Create { creation, reply } => {
                self.command(reply, |shard, now, turn| Ok(shard.create(&creation, now, turn)?));
            }
            Ask::CreateMany { creations, reply } => {
                self.command(reply, |shard, now, turn| Ok(create_each(shard, &creations, now, turn)));
            }
            Ask::Update { target, spec, version, pending, reply } => {
                self.command(reply, |shard, now, turn| Ok(shard.update(&target, &spec, version, pending, now, turn)?));
            }
            Ask::Pause { target, reply } => {
                self.command(reply, |shard, now, turn| Ok(shard.pause(&target, now, turn)?));
            }
            Ask::Resume { target, reply } => {
                self.command(reply, |shard, now, turn| Ok(shard.resume(&target, now, turn)?));
            }
            Ask::Cancel { target, reply } => {
                self.command(reply, |shard, now, turn| Ok(shard.cancel(&target, now, turn)?));
            }
            Ask::Trigger { target, discriminator, is_keyed, reply } => self.command(reply, |shard, now, turn| {
                Ok(shard.trigger(&target, Request { discriminator, is_keyed }, now, turn)?)
            }),
            Ask::Backfill { target, window, discriminator, is_keyed, reply } => {
                self.command(reply, |shard, now, turn| {
                    Ok(shard.backfill(&target, window, Request { discriminator, is_keyed }, now, turn)?)
                });
            }
            Ask::Run(ask) => self.ask_run(ask),
            Ask::SetTenant { name, set, reply } => {
                self.command(reply, |shard, now, turn| Ok(((), shard.set_tenant(&name, set, now, turn))));
            }
            Ask::SetQueue { name, set, reply } => {
                self.command(reply, |shard, now, turn| Ok(((), shard.set_queue(&name, set, now, turn))));
            }
            Ask::Read { target, reply } => {
                let now = self.time.observe(self.clock.reading());
                match self.shard.read(&target, now) {
                    Some((schedule, lsn)) => self.answer(reply, lsn, schedule),
                    None => drop(reply.send(Err(CallError::NotFound))),
                }
            }
            Ask::List { filter, from, limit, reply } => {
                let now = self.time.observe(self.clock.reading());
                let page = self.shard.list(&filter, from, limit, now);
                self.answer(reply, page.lsn, page);
            }
            Ask::History { query, reply } => {
                match self.shard.history(&query.target, query.state, query.bounds, query.after, query.limit) {
                    Some(page) => self.answer(reply, page.lsn, page),
                    None => drop(reply.send(Err(CallError::NotFound))),
                }
            }
            Ask::Occurrence { id, reply } => {
                let looked_up = self.shard.look_up(id);
                self.answer(reply, looked_up.lsn, looked_up);
            }
            Ask::Stop { reply } => drop(reply.send(self.stop())),
        }
    }
}
