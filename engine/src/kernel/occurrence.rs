//! One definite scheduled instant of one schedule version: its states, its lane, and what a queue is told of it.

use super::{
    id::{Kind, OccurrenceId, ScheduleId},
    schedule::InstantRange,
    time::UnixMs,
};

/// An occurrence's number within its shard: dense, growing, never used twice. Records name occurrences by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OccurrenceNo(pub u64);

/// Which line of its queue an occurrence travels in. A retry keeps its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Materialised; the clock moves it on when it is available.
    Scheduled,
    /// The queue has it; a worker moves it on.
    Enqueued,
    /// A worker completed it.
    Succeeded,
    /// The misfire policy did not admit it.
    Missed,
    /// A user's call reached it before it ran.
    Canceled,
}

impl State {
    /// The word users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "SCHEDULED",
            Self::Enqueued => "ENQUEUED",
            Self::Succeeded => "SUCCEEDED",
            Self::Missed => "MISSED",
            Self::Canceled => "CANCELED",
        }
    }
}

/// Why an occurrence stands where it does, where its state alone does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// An update took its version's place.
    Superseded,
    /// Its schedule was paused.
    Paused,
    /// Its schedule was deleted.
    Canceled,
}

impl Reason {
    /// The word users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Superseded => "superseded",
            Self::Paused => "paused",
            Self::Canceled => "canceled",
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
    /// How many attempts were made.
    pub attempt_count: u32,
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
    /// Whose it is.
    pub tenant: &'a str,
    /// The user's bytes.
    pub payload: &'a [u8],
}
