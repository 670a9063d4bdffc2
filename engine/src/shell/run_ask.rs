//! What workers ask a shard about runs, and people about what waits for them.

use std::sync::Arc;

use super::ask::ReplyTo;
use crate::kernel::{
    evidence::Evidence,
    id::{Kind, OccurrenceId, ScheduleId},
    lease::LeaseToken,
    occurrence::{Occurrence, State},
    shard::{
        Beat, ClaimRefusal, Decided, FailedRun, Outcome, Pile, PilePage, PilePlace, ReviewRefusal, RunError, Speaking,
    },
    time::UnixMs,
};

/// The runs of one claim have at most so many bytes of payload; what is behind them is left for the next claim.
pub const CLAIM_BYTES: usize = 8 << 20;

/// An attempt that a worker was granted: its lease runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedRun {
    /// The occurrence: the same however often it is delivered.
    pub occurrence_id: OccurrenceId,
    /// The schedule that made it.
    pub schedule_id: ScheduleId,
    /// The schedule's version that made it.
    pub version: u32,
    /// Whose it is.
    pub tenant: String,
    /// What made it.
    pub kind: Kind,
    /// The nominal instant.
    pub scheduled_for: UnixMs,
    /// When it could enter the queue.
    pub available_at: UnixMs,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// The schedule's bytes.
    pub payload: Vec<u8>,
    /// Every answer names it.
    pub lease_token: LeaseToken,
    /// When the lease ends without a heartbeat; for people.
    pub lease_expires_at: UnixMs,
    /// No attempt begins later than this.
    pub deadline: Option<UnixMs>,
}

/// Who claims, for how long.
#[derive(Clone, Debug)]
pub(crate) struct Claimant {
    pub(crate) worker: Arc<str>,
    pub(crate) lease_ms: u64,
    pub(crate) is_in_process: bool,
    pub(crate) claim_id: Option<Arc<str>>,
}

/// What the embedded queue had for a worker.
#[derive(Debug, Default)]
pub(crate) struct Served {
    pub(crate) runs: Vec<ClaimedRun>,
    /// There may be more.
    pub(crate) has_more: bool,
}

/// What can be asked about runs. `queue` is the only queue whose occurrences the caller may touch, if it is bound to one.
pub(crate) enum RunAsk {
    ClaimNext {
        queue: Arc<str>,
        max: usize,
        claimant: Claimant,
        reply: ReplyTo<Served>,
    },
    /// What a claim under this id was granted before and still has leases on.
    ClaimedBefore {
        queue: Arc<str>,
        worker: Arc<str>,
        claim_id: Arc<str>,
        reply: ReplyTo<Vec<ClaimedRun>>,
    },
    ClaimOne {
        id: OccurrenceId,
        schedule: ScheduleId,
        queue: Option<Arc<str>>,
        claimant: Claimant,
        reply: ReplyTo<Result<ClaimedRun, ClaimRefusal>>,
    },
    Heartbeat {
        beats: Vec<Speaking<u64>>,
        queue: Option<Arc<str>>,
        reply: ReplyTo<Vec<Result<Beat, RunError>>>,
    },
    Complete {
        done: Vec<Speaking<Option<String>>>,
        queue: Option<Arc<str>>,
        reply: ReplyTo<Vec<Result<State, RunError>>>,
    },
    Fail {
        failed: Vec<Speaking<FailedRun>>,
        queue: Option<Arc<str>>,
        reply: ReplyTo<Vec<Result<Outcome, RunError>>>,
    },
    Replay {
        id: OccurrenceId,
        tenant: Option<Arc<str>>,
        reply: ReplyTo<Result<Occurrence, ReviewRefusal>>,
    },
    Resolve {
        id: OccurrenceId,
        tenant: Option<Arc<str>>,
        decided: Decided,
        reply: ReplyTo<Result<Occurrence, ReviewRefusal>>,
    },
    Pile {
        pile: Pile,
        tenant: Option<Arc<str>>,
        after: Option<PilePlace>,
        limit: usize,
        reply: ReplyTo<PilePage>,
    },
    Evidence {
        id: OccurrenceId,
        tenant: Option<Arc<str>>,
        reply: ReplyTo<Option<Evidence>>,
    },
}
