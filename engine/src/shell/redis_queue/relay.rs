//! The relay thread: what it waits for, what it does in a turn, and what it does when anything goes wrong.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use countwheel_wal::crash_point;
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender};

use super::{
    away,
    batch::{Batch, Waiting},
    config::RedisConfig,
    fence::TakeOver,
    link::{Address, Fault, Link},
    look::Known,
    owner::Identity,
    pace::{BackOff, OnceASecond},
    stage::Parcel,
    stats::{Gauges, add},
    stream::{Standing, StreamIndex, Track},
    time::Time,
};
use crate::{
    kernel::{
        occurrence::{EntryId, OccurrenceNo, Stream},
        time::UnixMs,
    },
    shell::queue::{Away, QueueEvent},
};

/// So many batches are under way at once: Redis never waits for us, and a cut connection leaves little in doubt.
const IN_FLIGHT: usize = 3;

/// What the handle tells the thread.
pub(super) enum Command {
    Declare {
        stream: Stream,
        key: Vec<u8>,
        known: Known,
    },
    Start {
        generation: u64,
    },
    Release(Parcel),
    Recorded {
        stream: StreamIndex,
        through: EntryId,
    },
    /// Everything in the stream is looked at again.
    ReadBack {
        stream: StreamIndex,
    },
    /// Finish by `deadline`; `_done` is dropped with the thread.
    Close {
        deadline: Instant,
        _done: Sender<()>,
    },
}

/// Where events go; wakes the shard once a turn.
pub(super) struct Outbox {
    events: Sender<QueueEvent>,
    wake: Arc<dyn Fn() + Send + Sync>,
    gauges: Arc<Gauges>,
    unsaid: bool,
}

impl Outbox {
    pub(super) fn new(events: Sender<QueueEvent>, wake: Arc<dyn Fn() + Send + Sync>, gauges: Arc<Gauges>) -> Self {
        Self { events, wake, gauges, unsaid: false }
    }

    pub(super) fn say(&mut self, event: QueueEvent) {
        // The shard may be gone already.
        let _ = self.events.send(event);
        self.unsaid = true;
    }

    /// Gives back what is provably not in the queue.
    pub(super) fn give_back(&mut self, numbers: Vec<OccurrenceNo>) {
        if !numbers.is_empty() {
            add(&self.gauges.entries_returned, numbers.len());
            self.say(QueueEvent::Returned { numbers });
        }
    }

    fn flush(&mut self) {
        if std::mem::take(&mut self.unsaid) {
            (self.wake)();
        }
    }
}

/// What the thread is about.
enum Phase {
    /// Not started, fenced, or in need of a generation: only the shard can go on.
    Idle,
    /// Without a connection until then.
    Down { retry_at: Instant },
    /// Connected, fenced, looked at.
    Up,
}

/// The state of the relay thread. How it takes over is in `fence`, how it settles in `settle`, what it does every 5 s
/// in `janitor`.
pub(super) struct Relay {
    pub(super) config: RedisConfig,
    pub(super) identity: Identity,
    /// `<prefix>:engine`
    pub(super) engine_key: String,
    pub(super) tracks: Vec<Track>,
    pub(super) generation: u64,
    /// Whether the hash showed us as owner under this generation once.
    pub(super) claimed: bool,
    /// Sent and not settled, oldest first.
    pub(super) in_flight: VecDeque<Batch>,
    pub(super) outbox: Outbox,
    pub(super) gauges: Arc<Gauges>,
    pub(super) notes: Arc<Mutex<Vec<String>>>,
    pub(super) now: Arc<dyn Fn() -> UnixMs + Send + Sync>,
    /// The connection before this one: server run and client id.
    pub(super) previous: Option<(String, i64)>,
    pub(super) janitor_at: Instant,
    pub(super) time: Time,
    address: Address,
    commands: Receiver<Command>,
    phase: Phase,
    link: Option<Link>,
    waiting: Waiting,
    bytes: Vec<u8>,
    back_off: BackOff,
    log_gate: OnceASecond,
    pub(super) loss_gate: OnceASecond,
    shut_gate: OnceASecond,
    /// The last reason given, while away.
    away_because: Option<String>,
    away_since: Option<Instant>,
    /// How long it was away, before this time.
    away_before: Duration,
    closing: Option<(Instant, Sender<()>)>,
}

impl Relay {
    pub(super) fn new(
        config: RedisConfig,
        address: Address,
        commands: Receiver<Command>,
        outbox: Outbox,
        now: Arc<dyn Fn() -> UnixMs + Send + Sync>,
        (gauges, notes): (Arc<Gauges>, Arc<Mutex<Vec<String>>>),
        time: Time,
    ) -> Self {
        let identity = Identity {
            data_id: config.data_id.clone(),
            rehearsal: config.rehearsal,
            shard: config.shard,
            owner: config.owner.clone(),
            adopt: config.adopt,
        };
        Self {
            engine_key: format!("{}:engine", config.prefix),
            back_off: BackOff::with_time(config.longest_back_off, time.clone()),
            config,
            identity,
            tracks: Vec::new(),
            generation: 0,
            claimed: false,
            in_flight: VecDeque::new(),
            outbox,
            gauges,
            notes,
            now,
            previous: None,
            janitor_at: time.now(),
            time,
            address,
            commands,
            phase: Phase::Idle,
            link: None,
            waiting: Waiting::default(),
            bytes: Vec::new(),
            log_gate: OnceASecond::default(),
            loss_gate: OnceASecond::default(),
            shut_gate: OnceASecond::default(),
            away_because: None,
            away_since: None,
            away_before: Duration::ZERO,
            closing: None,
        }
    }

    /// Runs until the handle is closed or gone.
    pub(super) fn run(mut self) {
        while self.listen() && !self.has_finished() {
            self.turn();
        }
        self.give_back_waiting();
        self.outbox.flush();
    }

    fn turn(&mut self) {
        match self.phase {
            Phase::Idle => self.give_back_waiting(),
            Phase::Down { retry_at } => {
                self.give_back_waiting();
                if self.time.now() >= retry_at {
                    self.connect();
                }
            }
            Phase::Up => {
                if let Err(fault) = self.pump() {
                    self.go_down(&fault);
                }
            }
        }
        self.measure();
        self.outbox.flush();
    }

    /// What the thread would do now: takes what it was told, and a turn. Never waits.
    #[cfg(any(test, feature = "sim"))]
    pub(super) fn step(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            self.obey(command);
        }
        self.turn();
    }

    /// When the thread would wake up by itself; now, where it would not wait.
    #[cfg(any(test, feature = "sim"))]
    pub(super) fn next_at(&self) -> Option<Instant> {
        match self.phase {
            _ if !self.commands.is_empty() => Some(self.time.now()),
            Phase::Idle => None,
            Phase::Down { retry_at } => Some(retry_at),
            Phase::Up if self.has_work() => Some(self.time.now()),
            Phase::Up => Some(self.janitor_at),
        }
    }

    /// Takes every command that is there, waiting for the first one if there is nothing else to do. `false`: the
    /// handle is gone.
    fn listen(&mut self) -> bool {
        let patience = match self.phase {
            Phase::Idle => None,
            Phase::Down { retry_at } => Some(retry_at.saturating_duration_since(self.time.now())),
            Phase::Up if self.has_work() => Some(Duration::ZERO),
            Phase::Up => Some(self.janitor_at.saturating_duration_since(self.time.now())),
        };
        let first = match patience {
            None => self.commands.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(Duration::ZERO) => self.commands.try_recv().map_err(|error| match error {
                crossbeam::channel::TryRecvError::Empty => RecvTimeoutError::Timeout,
                crossbeam::channel::TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
            }),
            Some(patience) => self.commands.recv_timeout(patience),
        };
        match first {
            Ok(command) => self.obey(command),
            Err(RecvTimeoutError::Timeout) => return true,
            // Nobody listens any more, yet what was handed over is still sent.
            Err(RecvTimeoutError::Disconnected) => return matches!(self.phase, Phase::Up) && self.has_work(),
        }
        while let Ok(command) = self.commands.try_recv() {
            self.obey(command);
        }
        true
    }

    fn has_work(&self) -> bool {
        !self.waiting.is_empty() || !self.in_flight.is_empty() || self.has_unfenced() || self.has_doubted().is_some()
    }

    fn has_unfenced(&self) -> bool {
        self.tracks.iter().any(|track| track.standing == Standing::Unfenced)
    }

    /// A stream that is to be looked at.
    fn has_doubted(&self) -> Option<&Track> {
        self.tracks.iter().find(|track| track.is_doubted && track.standing != Standing::Shut)
    }

    fn has_finished(&self) -> bool {
        match (&self.closing, &self.phase) {
            (None, _) => false,
            (Some((deadline, _)), Phase::Up) => !self.has_work() || self.time.now() >= *deadline,
            (Some(_), Phase::Idle | Phase::Down { .. }) => true,
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Declare { stream, key, known } => {
                self.tracks.push(Track::new(stream, key, known, self.generation));
            }
            Command::Start { generation } => self.begin(generation),
            Command::Release(parcel) => self.waiting.push(parcel),
            Command::Recorded { stream, through } => {
                let track = &mut self.tracks[stream.0 as usize];
                track.recorded = track.recorded.max(Some(through));
            }
            Command::ReadBack { stream } => self.tracks[stream.0 as usize].is_doubted = true,
            Command::Close { deadline, _done } => self.closing = Some((deadline, _done)),
        }
    }

    /// Begins under a generation that is durable in the log.
    fn begin(&mut self, generation: u64) {
        self.generation = generation;
        self.claimed = false;
        self.link = None;
        for track in &mut self.tracks {
            track.begin(generation);
        }
        self.back_off.reset();
        self.away_since.get_or_insert_with(|| self.time.now());
        self.phase = Phase::Down { retry_at: self.time.now() };
    }

    /// One turn while connected: fence what is new, keep the pipeline full, read one answer, or let the janitor work.
    /// The link is put back only if all went well.
    fn pump(&mut self) -> Result<(), Fault> {
        let Some(mut link) = self.link.take() else { return Err(Fault::Changed) };
        if let Some(track) = self.has_doubted() {
            return Err(Fault::Lost(format!(
                "{} holds fewer entries than it was left with: somebody removed some; only the engine may",
                track.shown()
            )));
        }
        let fencing = self.has_unfenced();
        let cleaning = self.time.now() >= self.janitor_at;
        if !fencing && !cleaning {
            self.send_what_fits(&mut link)?;
        }
        if !self.in_flight.is_empty() {
            self.receive_batch(&mut link)?;
        } else if fencing {
            let unfenced: Vec<_> =
                (0..self.tracks.len()).filter(|&at| self.tracks[at].standing == Standing::Unfenced).collect();
            let taken = self.take_over(&mut link, &unfenced)?;
            if !self.accept(&mut link, taken)? {
                return Ok(());
            }
            self.say_ready();
        } else if cleaning {
            self.tidy(&mut link)?;
            self.janitor_at = self.time.now() + self.config.janitor_period;
        }
        self.link = Some(link);
        Ok(())
    }

    fn send_what_fits(&mut self, link: &mut Link) -> Result<(), Fault> {
        while self.in_flight.len() < IN_FLIGHT && !self.waiting.is_empty() {
            let mut refused = Vec::new();
            let batch = self.waiting.fill(&mut self.bytes, &mut self.tracks, self.generation, &mut refused);
            self.outbox.give_back(refused);
            let Some(batch) = batch else { continue };
            add(&self.gauges.batches_sent, 1);
            add(&self.gauges.entries_sent, batch.count);
            // In flight before it is written: a write that fails may have arrived.
            self.in_flight.push_back(batch);
            crash_point("relay.before_send");
            link.send(&self.bytes)?;
            crash_point("relay.sent");
            if self.in_flight.len() > 1 {
                crash_point("relay.mid_pipeline");
            }
        }
        Ok(())
    }

    /// Connects and runs the procedure: owner and fence, look, go on.
    fn connect(&mut self) {
        let outcome = Link::open(&self.address).and_then(|mut link| {
            self.end_previous(&mut link)?;
            self.check_settings(&mut link)?;
            let all: Vec<_> = (0..self.tracks.len()).collect();
            let taken = self.take_over(&mut link, &all)?;
            Ok(self.accept(&mut link, taken)?.then_some(link))
        });
        match outcome {
            Ok(Some(link)) => self.go_up(link),
            Ok(None) => {}
            Err(fault) => self.go_down(&fault),
        }
    }

    /// Goes on after a take-over; `false`: only the shard can.
    fn accept(&mut self, link: &mut Link, taken: TakeOver) -> Result<bool, Fault> {
        match taken {
            TakeOver::Done(fenced) => {
                crash_point("relay.fenced");
                self.look(link, &fenced)?;
                crash_point("relay.looked");
                return Ok(true);
            }
            TakeOver::GenerationNeeded(at_least) => self.outbox.say(QueueEvent::GenerationNeeded { at_least }),
            TakeOver::Fenced(reason) => {
                tracing::error!(shard = self.config.shard, "{reason}");
                self.outbox.say(QueueEvent::Fenced { reason });
            }
        }
        self.phase = Phase::Idle;
        self.away_since.get_or_insert_with(|| self.time.now());
        Ok(false)
    }

    fn go_up(&mut self, link: Link) {
        self.link = Some(link);
        self.phase = Phase::Up;
        self.back_off.reset();
        self.janitor_at = self.time.now() + self.config.janitor_period;
        add(&self.gauges.connects, 1);
        if let Some(since) = self.away_since.take() {
            self.away_before += self.time.now().saturating_duration_since(since);
        }
        if self.away_because.take().is_some() {
            tracing::info!(shard = self.config.shard, address = %self.address.shown, "redis is back");
        }
        self.say_ready();
    }

    /// Everything can be handed over, except to streams that are away by themselves: `Ready` has ended that, so it is
    /// said again.
    pub(super) fn say_ready(&mut self) {
        self.outbox.say(QueueEvent::Ready);
        for track in &self.tracks {
            if let (Standing::Shut | Standing::Full, Some(reason)) = (track.standing, &track.away_because) {
                self.outbox.say(QueueEvent::Away(Away { stream: Some(track.stream), reason: reason.clone() }));
            }
        }
    }

    /// Gives the connection up. What was sent stays in doubt until the next look; what was not comes back now.
    fn go_down(&mut self, fault: &Fault) {
        if matches!(self.phase, Phase::Up) {
            add(&self.gauges.disconnects, 1);
        }
        self.link = None;
        self.away_since.get_or_insert_with(|| self.time.now());
        let reason = fault.to_string();
        if let Some(held_back) = self.log_gate.admit(self.time.now()) {
            tracing::warn!(shard = self.config.shard, held_back, "queue is away: {reason}");
        }
        if self.away_because.as_ref() != Some(&reason) {
            self.outbox.say(away(reason.clone()));
            self.away_because = Some(reason);
        }
        self.give_back_waiting();
        self.phase = Phase::Down { retry_at: self.time.now() + self.back_off.next(fault.pace()) };
    }

    fn give_back_waiting(&mut self) {
        let unsent = self.waiting.take_all();
        self.outbox.give_back(unsent);
    }

    /// One stream takes nothing for now.
    pub(super) fn shut(&mut self, at: usize, standing: Standing, reason: String) {
        let track = &mut self.tracks[at];
        if track.standing != standing {
            track.standing = standing;
            if let Some(held_back) = self.shut_gate.admit(Instant::now()) {
                let stream = track.shown();
                tracing::warn!(shard = self.config.shard, %stream, held_back, "stream is away: {reason}");
            }
            track.away_because = Some(reason.clone());
            self.outbox.say(QueueEvent::Away(Away { stream: Some(track.stream), reason }));
        }
    }

    fn measure(&self) {
        self.gauges.cpu_ns.store(self.time.cpu_ns(), Relaxed);
        let since = |since: Instant| self.time.now().saturating_duration_since(since);
        let away = self.away_before + self.away_since.map_or(Duration::ZERO, since);
        self.gauges.away_ms.store(u64::try_from(away.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }
}
