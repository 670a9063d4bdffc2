//! What a chronicle tells: the versions and calls of a schedule, and what became of its instants, step by step.

use std::sync::Arc;

use crate::kernel::{
    attempt::{Failure, Resolution},
    evidence::HoldReason,
    gate::Lsn,
    id::{Kind, OccurrenceId, ScheduleId},
    lease::LeaseToken,
    occurrence::{EntryId, Lane, Reason, State},
    record::Then,
    schedule::{InstantRange, Spec},
    time::UnixMs,
};

/// What became of one schedule, as far as it was asked for.
#[derive(Clone, Debug)]
pub struct Story {
    /// The schedule.
    pub schedule: ScheduleId,
    /// Its versions, oldest first.
    pub versions: Vec<Version>,
    /// What users asked of it, oldest first.
    pub calls: Vec<Told<Call>>,
    /// Instants that were disposed of together, in the order of the decisions.
    pub ranges: Vec<Told<RangeOf>>,
    /// Its occurrences, ascending by (`scheduled_for`, id).
    pub occurrences: Vec<Life>,
    /// Every instant up to here has an occurrence or stands in a range.
    pub decided_through: UnixMs,
}

/// Something that a record of the log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told<T> {
    /// Engine time then.
    pub at: UnixMs,
    /// The record.
    pub lsn: Lsn,
    /// What it says.
    pub what: T,
}

/// A version of a schedule: the instants in (`from`, `until`] are its own.
#[derive(Clone, Debug)]
pub struct Version {
    /// Its number.
    pub version: u32,
    /// Engine time of the call that made it.
    pub from: UnixMs,
    /// Engine time of the call that ended it.
    pub until: Option<UnixMs>,
    /// The record of the call that made it.
    pub lsn: Lsn,
    /// Whether nothing of it becomes an occurrence.
    pub is_paused: bool,
    /// How the schedule is described; without the payload.
    pub spec: Spec,
    /// How long the payload is.
    pub payload_bytes: usize,
}

/// What a user asked of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// A new schedule, or a new life under an old key.
    Create {
        /// The first version of that life.
        version: u32,
    },
    /// Another description.
    Update {
        /// The version from then on.
        version: u32,
        /// Whether what was due went on under the old version.
        keeps_due: bool,
    },
    /// Nothing more, until a resume.
    Pause {
        /// The version from then on.
        version: u32,
    },
    /// Go on.
    Resume {
        /// The version from then on.
        version: u32,
    },
    /// The end.
    Cancel,
    /// An occurrence now.
    Trigger {
        /// The one that was made.
        occurrence: OccurrenceId,
    },
    /// Past instants again.
    Backfill {
        /// From this instant on...
        from: UnixMs,
        /// ...and before this one.
        to: UnixMs,
        /// How many there are.
        count: u64,
    },
}

impl Call {
    /// The word for it on the command line.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Update { .. } => "update",
            Self::Pause { .. } => "pause",
            Self::Resume { .. } => "resume",
            Self::Cancel => "cancel",
            Self::Trigger { .. } => "trigger",
            Self::Backfill { .. } => "backfill",
        }
    }
}

/// Instants without an occurrence each, and whose they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeOf {
    /// The version that they belonged to.
    pub version: u32,
    /// Which, how many, and what became of them.
    pub range: InstantRange,
}

/// What became of one occurrence.
#[derive(Clone, Debug)]
pub struct Life {
    /// Its id.
    pub id: OccurrenceId,
    /// The version that made it.
    pub version: u32,
    /// What made it.
    pub kind: Kind,
    /// Whose it is.
    pub tenant: Arc<str>,
    /// Where it goes.
    pub queue: Arc<str>,
    /// Which line it travels in.
    pub lane: Lane,
    /// The nominal instant.
    pub scheduled_for: UnixMs,
    /// When it may enter the queue.
    pub available_at: UnixMs,
    /// When the queue first accepted it.
    pub enqueued_at: Option<UnixMs>,
    /// When nothing was to move it on any more; DEAD and HELD ones can still be moved.
    pub ended_at: Option<UnixMs>,
    /// Where it stands.
    pub state: State,
    /// Why, where the state alone does not say.
    pub reason: Option<Reason>,
    /// Whether its queue follows what workers do with it.
    pub is_tracked: bool,
    /// How many attempts were made.
    pub attempt_count: u32,
    /// What happened to it; empty unless it was asked for by its id.
    pub steps: Vec<Told<Step>>,
}

/// What happened to an occurrence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It exists from now on.
    Materialized {
        /// Its first lane.
        lane: Lane,
        /// Why.
        by: Origin,
    },
    /// It was late, and the misfire policy let it run in the catch-up lane.
    Admitted(Judgement),
    /// It was late, and the misfire policy did not let it run.
    Missed(Judgement),
    /// The queue accepted it.
    Enqueued {
        /// When the answer came.
        at: UnixMs,
        /// Where it stands in its stream.
        entry: EntryId,
        /// Whether it had been accepted before.
        is_again: bool,
    },
    /// It waits in the shard.
    Waited {
        /// For its tenant's permit; otherwise for a run of its schedule to end.
        for_permit: bool,
    },
    /// A worker has it.
    Claimed {
        /// The attempt, from 1.
        attempt: u32,
        /// Who.
        worker: Arc<str>,
        /// How long without a heartbeat.
        lease_ms: u64,
        /// Whether a restart of the engine ends the attempt.
        is_in_process: bool,
        /// Under which token.
        token: LeaseToken,
    },
    /// The attempt succeeded.
    Succeeded {
        /// The attempt.
        attempt: u32,
        /// Where the result was put.
        result_ref: Option<String>,
    },
    /// The attempt did not succeed.
    Failed {
        /// The attempt.
        attempt: u32,
        /// Why it did not.
        failure: Failure,
        /// What the worker said of it.
        message: Option<String>,
        /// What followed.
        then: Then,
    },
    /// Its deadline was over before an attempt could begin.
    Died,
    /// Another one of its schedule ran.
    Skipped,
    /// A person has to decide.
    Held {
        /// Why.
        reasons: Vec<HoldReason>,
    },
    /// A person decided.
    Resolved {
        /// What.
        resolution: Resolution,
        /// Who.
        reviewer: String,
        /// Why.
        note: String,
    },
    /// A person gave it its attempts anew.
    Replayed,
    /// A worker answered after it had been held.
    LateResult {
        /// Where the result was put; empty if that was not said.
        result_ref: String,
    },
    /// A user's call ended it.
    Canceled {
        /// Why.
        reason: Reason,
    },
    /// A user's call came while it ran: unless it succeeds it ends so.
    CalledOff {
        /// Why.
        reason: Reason,
    },
    /// The queue lost it; it is sent again.
    Lost,
    /// Consumers acknowledged it without a claim: it is done.
    Settled,
    /// The engine was started again.
    Restarted {
        /// The shard's generation since then.
        generation: u64,
    },
}

/// Why an occurrence was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Its instant came near.
    Rule,
    /// Its instant had been missed, and the misfire policy let it run.
    Misfire(Judgement),
    /// A user asked for it.
    Trigger,
    /// A user asked for past instants again.
    Backfill,
}

/// How a backlog was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// It held everything up to here.
    pub through: UnixMs,
    /// How many were let run.
    pub admitted: u64,
    /// How many were not...
    pub missed: u64,
    /// ...and which of them never got an occurrence.
    pub range: Option<(UnixMs, UnixMs)>,
}
