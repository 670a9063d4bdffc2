//! A shard: a plain struct that decides, applies what it decided to itself, and hands records and effects outward.
//!
//! ```text
//! command, time, queue event --> decide --> Record --> apply (the only thing that changes state, live and in recovery)
//!                                   |          +------> Turn.records: to the log, in order
//!                                   +-----------------> Turn: what the shell does next, and which LSN it waits for
//! ```
//!
//! Decisions compare with `now`, never with whether a timer has run. Timers, outbox and hand-over marks are derived:
//! they are rebuilt when replay ends and are never in the log.

mod apply;
mod apply_runs;
mod apply_schedule;
mod backlog;
mod by_id;
pub mod chronicle;
mod claims;
mod commands;
mod dispatch;
mod due;
mod history;
mod lines;
mod listing;
mod lives;
mod lobby;
mod misfire;
pub mod model;
mod occurrences;
mod open;
mod outbox;
mod outcomes;
mod pace;
mod people;
mod plan;
mod release;
mod repeats;
mod requests;
mod runs;
mod schedules;
mod settings;
mod shared;
mod snapshot;
mod turn;
mod unclaimed;
mod unsettled;
mod versions;
mod workers;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

pub use apply::Inconsistent;
pub use backlog::{AGES_MS, DueBacklog};
pub use claims::{CLAIM_ID_BYTES, CLAIM_LIMIT, ClaimRefusal, Claiming, Granted, LEASE_MS_AT_MOST};
pub use commands::{CommandError, Creation, Target};
pub use history::{HistoryPage, LookedUp};
pub use listing::{ListingFilter, ListingPage};
pub use outcomes::{Beat, FailedRun, Outcome, RESULT_REF_BYTES, RunError, Speaking};
pub use people::{Decided, Pile, PilePage, PilePlace, ReviewRefusal};
pub use requests::{BACKFILL_LIMIT, Backfilled, Request, Triggered};
pub use turn::{Lag, Release, Turn, Urgency};
pub use versions::{Pending, Receipted};

use lines::Lines;
use lobby::Lobby;
use occurrences::Occurrences;
use outbox::Outbox;
use requests::{AnsweredRequests, BackfillJob};
use runs::Runs;
use schedules::{ScheduleRow, Schedules, Superseded};
use settings::Settings;
use shared::SharedPolicies;
use snapshot::{
    Restoring, Sweep,
    cut::{CutMap, Fifo},
};
use unclaimed::Unclaimed;
use unsettled::Entries;
use workers::Workers;

use super::{
    calendar::{Calendar, ZoneSet},
    gate::Lsn,
    id::{Kind, OccurrenceId},
    names::Names,
    occurrence::{Entry, EntryId, Lane, OccurrenceNo, QueueNo, Stream},
    permits::{Permits, Unlimited},
    record::Opened,
    time::UnixMs,
    wheel::Timers,
};

/// What a shard is told once.
#[derive(Clone, Debug)]
pub struct Config {
    /// How long before `available_at` an occurrence is materialised.
    pub lead_ms: i64,
    /// Which shard this is, for lease tokens.
    pub shard: u16,
    /// Whether the queue lives in this process's memory: what it had accepted is handed to it again after an opening.
    pub is_embedded: bool,
    /// At most this many occurrences may be under way; past it the queue counts as away.
    pub live_limit: usize,
    /// How long what the queue accepted can be sent again.
    pub resend_window_ms: i64,
    /// At most this many timers or releases are handled a turn.
    pub turn_limit: usize,
    /// At most this many occurrences are handed over and not answered for: whoever becomes due later does not wait
    /// behind more. About a tenth of a second of what Redis takes.
    pub window: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            lead_ms: 2_000,
            shard: 0,
            is_embedded: false,
            live_limit: 2_000_000,
            resend_window_ms: 10 * 60_000,
            turn_limit: 4_096,
            window: 32_768,
        }
    }
}

/// Counts since the process began, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Occurrences materialised.
    pub materialized: u64,
    /// Occurrences that the queue accepted for the first time.
    pub enqueued: u64,
    /// Instants that the misfire policy did not admit.
    pub missed: u64,
    /// Occurrences canceled.
    pub canceled: u64,
    /// Occurrences completed.
    pub completed: u64,
    /// Occurrences handed over again after the queue lost them.
    pub resent: u64,
    /// Entries read back whose occurrence was recorded already or is not ours.
    pub conflicts: u64,
    /// Attempts begun.
    pub claimed: u64,
    /// Attempts that failed and were to be followed by another.
    pub retries: u64,
    /// Leases that ended without an answer.
    pub expired: u64,
    /// Answers under a token that held no lease.
    pub stale_tokens: u64,
    /// Occurrences that became DEAD.
    pub dead: u64,
    /// Occurrences that became HELD.
    pub held: u64,
    /// Occurrences that the overlap policy did not admit.
    pub skipped: u64,
    /// Occurrences of tracked queues that consumers acknowledged without a claim.
    pub unclaimed: u64,
}

/// Whether the queue takes anything.
#[derive(Clone, Debug, PartialEq, Eq)]
enum QueueState {
    Away { since: UnixMs, reason: String },
    Ready,
    Fenced { reason: String },
}

/// A stream that takes nothing while the others do.
#[derive(Clone, Debug)]
struct StreamAway {
    since: UnixMs,
    reason: String,
}

/// What the log remembers of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamMemory {
    /// The last entry recorded as enqueued.
    pub last: Option<EntryId>,
    /// How many entries the stream had ever been given then.
    pub added: u64,
}

/// One shard: its schedules, its occurrences, and every decision about them.
pub struct Shard {
    config: Config,
    // What records change.
    calendar: Calendar,
    tenants: Names,
    queues: Names,
    settings: Settings,
    schedules: Schedules,
    policies: SharedPolicies,
    /// Versions that another one took the place of and that occurrences in the table still name.
    superseded: CutMap<(u32, u32), Superseded>,
    /// Canceled schedules, the oldest first, and when that was.
    tombstones: Fifo<(u32, UnixMs)>,
    /// A key whose schedule was forgotten begins above this version.
    version_floor: u32,
    /// Backfills that are not expanded to their end, in the order in which they were asked for.
    backfills: CutMap<u64, BackfillJob>,
    next_backfill: u64,
    answered: AnsweredRequests,
    occurrences: Occurrences,
    runs: Runs,
    workers: Workers,
    ended: Fifo<(OccurrenceNo, UnixMs)>,
    /// How many occurrences are under way.
    live: usize,
    /// Whether an occurrence that had ended was ever dropped.
    has_forgotten: bool,
    streams: Vec<StreamMemory>,
    /// Beside each stream: what of it consumers may acknowledge without a claim.
    entries: Vec<Entries>,
    opened: Option<Opened>,
    log_time: UnixMs,
    lsn: Lsn,
    /// A snapshot that is being read.
    restoring: Option<Box<Restoring>>,
    /// A snapshot that is being written.
    sweep: Option<Box<Sweep>>,
    // What is derived.
    durable: Lsn,
    timers: Timers,
    /// What waits for its instant.
    outbox: Outbox,
    /// What is due, by tenant.
    due: Lines,
    /// Judged already, or never judged: admitted late or backfilled, by tenant and queue.
    catch_up: Lines,
    /// What the queue accepted once and is to be handed again: lost, tried again, or back from the lobby.
    resends: VecDeque<(Lsn, OccurrenceNo)>,
    /// What may not run yet.
    lobby: Lobby,
    elapsed_ms: i64,
    /// Replay is over: permits are told what happens.
    is_up: bool,
    permits: Box<dyn Permits>,
    /// How often each tenant's due and catch-up lines had to wait for their rates.
    throttled: Vec<[u64; 2]>,
    /// Schedules whose instant came while nothing may be materialised for them.
    parked: VecDeque<u32>,
    /// How many of `parked`, from the front, may be tried again.
    unparking: usize,
    /// The limit of live occurrences was reached, and there is no room again yet.
    at_live_limit: bool,
    queue: QueueState,
    streams_away: BTreeMap<Stream, StreamAway>,
    /// What somebody else removed entries from, until it has been read back.
    shortened: BTreeSet<Stream>,
    /// Due, but their stream takes nothing: kept until the queue is ready again.
    withheld: Vec<OccurrenceNo>,
    /// Occurrences below this number may stand in the queue without the log knowing: it has not been read back yet.
    unread_below: OccurrenceNo,
    resend: BTreeSet<OccurrenceNo>,
    read_back: Option<BTreeMap<OccurrenceId, OccurrenceNo>>,
    smallest_lateness_ms: u64,
    /// Some schedule has more to ask of a release than its time.
    has_conditions: bool,
    fired: Vec<u32>,
    unclaimed: Unclaimed,
    counters: Counters,
}

impl Shard {
    /// An empty shard that is to be brought up by [`Shard::replay`] and [`Shard::open`].
    #[must_use]
    pub fn new(config: Config, zones: Arc<ZoneSet>) -> Self {
        Self {
            timers: Timers::new(UnixMs::MIN),
            config,
            calendar: Calendar::new(zones),
            tenants: Names::default(),
            queues: Names::default(),
            settings: Settings::default(),
            schedules: Schedules::default(),
            policies: SharedPolicies::default(),
            superseded: CutMap::default(),
            tombstones: Fifo::default(),
            version_floor: 0,
            backfills: CutMap::default(),
            next_backfill: 0,
            answered: AnsweredRequests::default(),
            occurrences: Occurrences::default(),
            runs: Runs::default(),
            workers: Workers::default(),
            ended: Fifo::default(),
            live: 0,
            has_forgotten: false,
            streams: Vec::new(),
            entries: Vec::new(),
            opened: None,
            log_time: UnixMs::MIN,
            lsn: Lsn(0),
            restoring: None,
            sweep: None,
            durable: Lsn(0),
            outbox: Outbox::default(),
            due: Lines::default(),
            catch_up: Lines::default(),
            resends: VecDeque::new(),
            lobby: Lobby::default(),
            elapsed_ms: 0,
            is_up: false,
            permits: Box::new(Unlimited),
            throttled: Vec::new(),
            parked: VecDeque::new(),
            unparking: 0,
            at_live_limit: false,
            queue: QueueState::Away { since: UnixMs::MIN, reason: "the queue is not connected yet".into() },
            streams_away: BTreeMap::new(),
            shortened: BTreeSet::new(),
            withheld: Vec::new(),
            unread_below: OccurrenceNo(0),
            resend: BTreeSet::new(),
            read_back: None,
            smallest_lateness_ms: u64::MAX,
            has_conditions: false,
            fired: Vec::new(),
            unclaimed: Unclaimed::default(),
            counters: Counters::default(),
        }
    }

    /// Whom to ask what its tenants may use; before anything is replayed. Unless told, nothing is limited.
    #[must_use]
    pub fn with_permits(self, permits: Box<dyn Permits>) -> Self {
        Self { permits, ..self }
    }

    /// The highest engine time in the log.
    #[must_use]
    pub const fn log_time(&self) -> UnixMs {
        self.log_time
    }

    /// The last record's position.
    #[must_use]
    pub const fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// The last opening in the log.
    #[must_use]
    pub const fn opened(&self) -> Option<&Opened> {
        self.opened.as_ref()
    }

    /// Counts since the process began.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Up to here the log is durable; what waited for it is handed over in the next turn.
    pub fn set_durable(&mut self, durable: Lsn) {
        self.durable = self.durable.max(durable);
    }

    /// A tenant's name.
    #[must_use]
    pub fn tenant_name(&self, tenant: u32) -> &str {
        self.tenants.name(tenant).map_or("", |name| name)
    }

    /// A queue's name.
    #[must_use]
    pub fn queue_name(&self, queue: QueueNo) -> &str {
        self.queues.name(queue.0).map_or("", |name| name)
    }

    /// The number of a queue that some schedule has named.
    #[must_use]
    pub fn queue_number(&self, name: &str) -> Option<QueueNo> {
        self.queues.number(name).map(QueueNo)
    }

    /// What a queue is told of an occurrence that was handed over or is about to be.
    ///
    /// # Panics
    /// When the number is not one of a live occurrence: only numbers from [`Turn`] and the queue's events are asked.
    #[must_use]
    pub fn entry(&self, number: OccurrenceNo) -> Entry<'_> {
        let row = self.occurrences.row(number).expect("an occurrence that is handed over is live");
        let schedule = self.schedules.row(row.schedule).expect("an occurrence has a schedule");
        Entry {
            number,
            stream: row.stream(),
            occurrence_id: row.id,
            schedule_id: schedule.id,
            version: row.version,
            kind: row.kind,
            scheduled_for: row.scheduled_for,
            available_at: row.available_at,
            attempt: self.runs.made(number).saturating_add(1),
            tenant_number: row.tenant,
            tenant: self.tenants.name(row.tenant).map_or("", |name| name),
            payload: self.payload_of(row),
        }
    }

    /// When time must be given to the shard again at the latest, if nothing else happens before.
    #[must_use]
    pub fn next_wake(&self) -> Option<UnixMs> {
        let release = match self.queue {
            // What is not durable yet cannot be handed over: the log wakes whoever waits for it. What finds no room in
            // the window is woken by what lands.
            QueueState::Ready => [self.outbox.next_at(), self.due.next_ready(), self.catch_up.next_ready()],
            QueueState::Away { .. } | QueueState::Fenced { .. } => [None; 3],
        };
        release.into_iter().chain([self.timers.next_deadline()]).flatten().min()
    }

    /// Why the queue takes nothing at the moment, a sentence each.
    pub fn queue_troubles(&self) -> impl Iterator<Item = &str> {
        let all = match &self.queue {
            QueueState::Away { reason, .. } | QueueState::Fenced { reason } => Some(reason.as_str()),
            QueueState::Ready => None,
        };
        all.into_iter().chain(self.streams_away.values().map(|away| away.reason.as_str()))
    }

    /// Why this shard writes no more, if another engine owns its streams.
    #[must_use]
    pub fn fenced(&self) -> Option<&str> {
        match &self.queue {
            QueueState::Fenced { reason } => Some(reason),
            QueueState::Away { .. } | QueueState::Ready => None,
        }
    }

    /// Every stream that the log remembers, for declaring it to the queue.
    pub fn remembered_streams(&self) -> impl Iterator<Item = (Stream, StreamMemory)> + '_ {
        self.streams.iter().zip(0_u32..).map(|(memory, number)| (stream_of(number), *memory))
    }

    /// The bytes that an occurrence's version was described with.
    fn payload_of(&self, row: &occurrences::OccurrenceRow) -> &[u8] {
        let schedule = self.schedule(row.schedule);
        let superseded =
            if schedule.version == row.version { None } else { self.superseded.get(&(row.schedule, row.version)) };
        superseded.map_or(&schedule.text.payload, |superseded| &superseded.payload)
    }

    fn schedule(&self, number: u32) -> &ScheduleRow {
        self.schedules.row(number).expect("a schedule that is named has a row")
    }

    fn available_at(row: &ScheduleRow, scheduled_for: UnixMs) -> UnixMs {
        if row.flexible_window_ms == 0 {
            return scheduled_for;
        }
        let id = OccurrenceId::of(row.id, row.version, scheduled_for, Kind::Regular, b"");
        id.available_at(scheduled_for, row.flexible_window_ms)
    }
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shard").field("lsn", &self.lsn).field("log_time", &self.log_time).finish_non_exhaustive()
    }
}

/// A stream's number in records: three to a queue, in the order of the lanes.
const fn stream_number(stream: Stream) -> u32 {
    stream.queue.0 * 3
        + match stream.lane {
            Lane::Strict => 0,
            Lane::Flexible => 1,
            Lane::CatchUp => 2,
        }
}

const fn stream_of(number: u32) -> Stream {
    Stream { queue: QueueNo(number / 3), lane: Lane::ALL[(number % 3) as usize] }
}

#[cfg(test)]
mod tests;
