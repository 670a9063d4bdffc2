//! One definite scheduled instant of one schedule version: its states, its lane, and what a queue is told of it.

use bincode::{Decode, Encode};

use super::{
    attempt::{Attempt, Death},
    evidence::HoldReason,
    id::{Kind, OccurrenceId, ScheduleId},
    schedule::InstantRange,
    time::UnixMs,
};

/// An occurrence's number within its shard: dense, growing, never used twice. Records name occurrences by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OccurrenceNo(pub u64);

/// Which line of its queue an occurrence travels in. A retry keeps its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum Lane {
    /// No window; also manual triggers.
    Strict,
    /// A flexible window spreads it.
    Flexible,
    /// Admitted late by the misfire policy, or backfilled.
    CatchUp,
}

impl Lane {
    /// All lanes, in the order in which they are served.
    pub const ALL: [Self; 3] = [Self::Strict, Self::Flexible, Self::CatchUp];

    /// The word that users and stream keys show.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Flexible => "flexible",
            Self::CatchUp => "catchup",
        }
    }
}

/// A queue's number within its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueNo(pub u32);

/// One FIFO: a queue and a lane of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream {
    /// The queue.
    pub queue: QueueNo,
    /// The lane of it.
    pub lane: Lane,
}

/// Where an entry stands in its stream: `<generation>-<counter>`. The generation grows each time a shard is opened,
/// the counter grows a stream without holes, so ids order all that was ever sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct EntryId {
    /// The shard's generation that sent the entry.
    pub generation: u64,
    /// The entry's number within its stream and generation, from 1.
    pub counter: u64,
}

impl std::fmt::Display for EntryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.generation, self.counter)
    }
}

/// Where an occurrence stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum State {
    /// Materialised; the clock moves it on when it is available.
    Scheduled,
    /// The queue has it; a worker's claim moves it on. On an untracked queue this is the end.
    Enqueued,
    /// A worker holds its lease; the worker or the lease's end moves it on.
    Running,
    /// An attempt failed; elapsed time moves it on.
    RetryWait,
    /// A worker completed it.
    Succeeded,
    /// No attempt is left; a replay moves it on.
    Dead,
    /// Nobody can say that running it is safe; a person moves it on.
    Held,
    /// The misfire policy did not admit it.
    Missed,
    /// The overlap policy did not admit it.
    SkippedOverlap,
    /// A user's call reached it before it succeeded.
    Canceled,
}

impl State {
    /// All states.
    pub const ALL: [Self; 10] = [
        Self::Scheduled,
        Self::Enqueued,
        Self::Running,
        Self::RetryWait,
        Self::Succeeded,
        Self::Dead,
        Self::Held,
        Self::Missed,
        Self::SkippedOverlap,
        Self::Canceled,
    ];

    /// The word users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "SCHEDULED",
            Self::Enqueued => "ENQUEUED",
            Self::Running => "RUNNING",
            Self::RetryWait => "RETRY_WAIT",
            Self::Succeeded => "SUCCEEDED",
            Self::Dead => "DEAD",
            Self::Held => "HELD",
            Self::Missed => "MISSED",
            Self::SkippedOverlap => "SKIPPED_OVERLAP",
            Self::Canceled => "CANCELED",
        }
    }
}

/// Why an occurrence stands where it does, where its state alone does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum Reason {
    /// An update took its version's place.
    Superseded,
    /// Its schedule was paused.
    Paused,
    /// Its schedule was deleted.
    Canceled,
    /// SCHEDULED: it waits until a run of its schedule ends.
    Waiting,
    /// SCHEDULED: it waits until its tenant may run one more.
    TenantConcurrency,
    /// Why it is DEAD.
    Dead(Death),
    /// The first of the reasons for which it is HELD.
    Held(HoldReason),
}

impl Reason {
    /// The word users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Superseded => "superseded",
            Self::Paused => "paused",
            Self::Canceled => "canceled",
            Self::Waiting => "waiting",
            Self::TenantConcurrency => "tenant_concurrency",
            Self::Dead(death) => death.as_str(),
            Self::Held(hold) => hold.as_str(),
        }
    }
}

/// One occurrence as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occurrence {
    /// Its id.
    pub id: OccurrenceId,
    /// The schedule that made it.
    pub schedule_id: ScheduleId,
    /// The schedule's version that made it.
    pub version: u32,
    /// Whose it is.
    pub tenant: String,
    /// Where it goes.
    pub queue: String,
    /// What made it.
    pub kind: Kind,
    /// Which line it travels in.
    pub lane: Lane,
    /// The nominal instant.
    pub scheduled_for: UnixMs,
    /// When it may enter the queue.
    pub available_at: UnixMs,
    /// When the queue first accepted it.
    pub enqueued_at: Option<UnixMs>,
    /// Where it stands.
    pub state: State,
    /// Why, where the state alone does not say.
    pub reason: Option<Reason>,
    /// Why it is HELD, all of it.
    pub holds: Vec<HoldReason>,
    /// How many attempts were made.
    pub attempt_count: u32,
    /// The latest of them, oldest first.
    pub attempts: Vec<Attempt>,
}

/// One line of a schedule's history: an occurrence, or a range of instants that got none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryItem {
    /// One occurrence.
    Occurrence(Occurrence),
    /// Instants that were disposed of together.
    Range(InstantRange),
}

/// What a queue is told of one released occurrence.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its number in this shard.
    pub number: OccurrenceNo,
    /// Where it goes.
    pub stream: Stream,
    /// Its id.
    pub occurrence_id: OccurrenceId,
    /// The schedule that made it.
    pub schedule_id: ScheduleId,
    /// The schedule's version that made it.
    pub version: u32,
    /// What made it.
    pub kind: Kind,
    /// The nominal instant.
    pub scheduled_for: UnixMs,
    /// When it may enter the queue.
    pub available_at: UnixMs,
    /// The number that the next claim will get, 1 at first.
    pub attempt: u32,
    /// Whose it is: the shard's number...
    pub tenant_number: u32,
    /// ...and the name.
    pub tenant: &'a str,
    /// The user's bytes.
    pub payload: &'a [u8],
}
