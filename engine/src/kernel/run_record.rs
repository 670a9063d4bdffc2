//! What the log remembers of runs: the bodies of records about claims, their ends, and what people decide.

use bincode::{Decode, Encode};

use super::{
    attempt::{Death, Failure, Resolution},
    evidence::HoldReason,
};

/// A worker was granted leases. The record's place in the log and an occurrence's place in it are its lease token.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Claimed {
    /// The worker: how many were named before it.
    pub worker: u64,
    /// How long each lease lasts without a heartbeat.
    pub lease_ms: u64,
    /// Whether the worker lives in the engine's own process: a restart ends its attempts.
    pub is_in_process: bool,
    /// What it was granted, in runs as in [`super::record::Enqueued::runs`].
    pub occurrences: Vec<(u64, u64)>,
}

/// A worker was granted leases by a claim that it can repeat.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ClaimedById {
    /// Under which id, as the worker chose it.
    pub claim_id: String,
    /// What it was granted.
    pub claimed: Claimed,
}

/// Workers completed what they had claimed.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct RunsSucceeded {
    /// The occurrences, in runs as in [`super::record::Enqueued::runs`].
    pub occurrences: Vec<(u64, u64)>,
    /// Where results were put, by place in the list.
    pub result_refs: Vec<(u64, String)>,
}

/// An attempt did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct RunFailed {
    /// The occurrence.
    pub occurrence: u64,
    /// Why it did not.
    pub failure: Failure,
    /// What the worker said of it.
    pub message: Option<String>,
    /// What follows.
    pub then: Then,
}

/// What follows an attempt that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Then {
    /// Another attempt, after this long.
    Retry {
        /// Of elapsed time.
        delay_ms: u64,
    },
    /// It is DEAD.
    Dead(Death),
    /// It is HELD.
    Held(HoldReason),
    /// It is CANCELED, for the reason for which it was called off.
    Canceled,
}

/// An occurrence waits in the shard, and is not judged for lateness any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Waited {
    /// The occurrence.
    pub occurrence: u64,
    /// Whether it waits for its tenant's permit; otherwise for a run of its schedule to end.
    pub for_permit: bool,
}

/// The overlap policy did not admit an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Skipped {
    /// The occurrence.
    pub occurrence: u64,
}

/// An occurrence's deadline was over before its attempt could begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Died {
    /// The occurrence.
    pub occurrence: u64,
}

/// The evidence did not allow an occurrence to run.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Held {
    /// The occurrence.
    pub occurrence: u64,
    /// Why, at least one.
    pub reasons: Vec<HoldReason>,
}

/// A person gave a DEAD occurrence its attempts anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Replayed {
    /// The occurrence.
    pub occurrence: u64,
}

/// A person decided about a HELD occurrence.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Resolved {
    /// The occurrence.
    pub occurrence: u64,
    /// What they decided.
    pub resolution: Resolution,
    /// Who.
    pub reviewer: String,
    /// Why.
    pub note: String,
}

/// Consumers acknowledged everything in a stream up to an entry: what was never claimed of it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Settled {
    /// The stream, as in [`super::record::Enqueued::stream`].
    pub stream: u32,
    /// The entry's generation...
    pub generation: u64,
    /// ...and counter.
    pub counter: u64,
}

/// A worker answered after its attempt had been held: kept as evidence.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct LateResult {
    /// The occurrence.
    pub occurrence: u64,
    /// Where it put its result; empty if it named no place.
    pub result_ref: String,
}
