//! What the log remembers: each record is one whole transaction, and `Shard::apply` is the only thing that acts on it.
//!
//! A record is a kind and a body. A kind is never used again for another layout: a new version of a record gets a new
//! kind, so the kind is its version too. Schedules, occurrences, tenants and queues are named by shard-local numbers
//! that an earlier record introduced; times near the decision are differences to the log's time, which `Time` moves.
//! What is a pure function (`available_at`, an occurrence's id) is not stored.

use bincode::{Decode, Encode};

pub use super::rule_record::{LocalBody, RuleBody};
pub use super::run_record::{
    Claimed, ClaimedById, Died, Held, LateResult, Replayed, Resolved, RunFailed, RunsSucceeded, Settled, Skipped, Then,
    Waited,
};
use super::{
    codec::{self, Undecodable},
    policy::{Effect, Misfire, Overlap, Retry},
    tenant::{QueueSettings, TenantSettings},
};

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The shard was opened; everything behind it belongs to this generation.
    Opened(Opened),
    /// Engine time moved: what follows was decided then.
    Time(Time),
    /// Introduces the next tenant number.
    TenantNamed(Named),
    /// Introduces the next queue number.
    QueueNamed(Named),
    /// Introduces the next schedule number.
    ScheduleCreated(Box<ScheduleCreated>),
    /// A user ended a schedule.
    Canceled(Canceled),
    /// A user described a schedule anew.
    Updated(Box<Updated>),
    /// A user paused a schedule.
    Paused(Paused),
    /// A user resumed a schedule.
    Resumed(Resumed),
    /// A user asked for an occurrence now.
    Triggered(Triggered),
    /// A user asked for past instants again.
    BackfillRequested(BackfillRequested),
    /// Instants of a backfill got their occurrences.
    BackfillExpanded(BackfillExpanded),
    /// Inserts occurrences, moves their schedules' cursors and puts them in the outbox: the three cannot come apart.
    Materialized(Materialized),
    /// The misfire policy decided a schedule's whole backlog.
    Misfired(Misfired),
    /// The queue accepted occurrences.
    Enqueued(Enqueued),
    /// The queue lost what it had accepted: it is sent again, also when a crash comes in between.
    Lost(Lost),
    /// A user set what holds for a tenant.
    TenantSet(TenantSet),
    /// A user set what holds for a queue.
    QueueSet(QueueSet),
    /// Introduces the next worker number.
    WorkerNamed(Named),
    /// A worker was granted leases.
    Claimed(Claimed),
    /// Workers completed what they had claimed.
    RunsSucceeded(RunsSucceeded),
    /// An attempt did not succeed.
    RunFailed(RunFailed),
    /// An occurrence waits in the shard.
    Waited(Waited),
    /// The overlap policy did not admit an occurrence.
    Skipped(Skipped),
    /// A deadline was over before an attempt could begin.
    Died(Died),
    /// The evidence did not allow an occurrence to run.
    Held(Held),
    /// A person gave a DEAD occurrence its attempts anew.
    Replayed(Replayed),
    /// A person decided about a HELD occurrence.
    Resolved(Resolved),
    /// Consumers acknowledged what was never claimed.
    Settled(Settled),
    /// A worker answered too late.
    LateResult(LateResult),
    /// A worker was granted leases by a claim that it can repeat.
    ClaimedById(ClaimedById),
}

/// The shard was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Opened {
    /// Grows with every opening.
    pub generation: u64,
    /// Random a process start: tells two engines apart that believe in the same generation.
    pub owner: [u8; 16],
    /// The machine's boot, as the kernel names it; empty where unknown.
    pub boot_id: String,
    /// The wall clock then, in ms since the epoch.
    pub wall_ms: i64,
    /// `CLOCK_BOOTTIME` then, in ms.
    pub boottime_ms: i64,
    /// The IANA release of the loaded zone rules.
    pub tz_release: String,
    /// The engine's version.
    pub engine_version: String,
}

/// Engine time moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Time {
    /// By this many milliseconds since the record before.
    pub forward_ms: u64,
}

/// A tenant's or a queue's name.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Named {
    /// The name; its number is how many of its kind came before.
    pub name: String,
}

/// A schedule begins to live, or to live again under its key.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ScheduleCreated {
    /// Its id.
    pub id: [u8; 16],
    /// 1, or more than any version that the key had before.
    pub version: u32,
    /// Whose it is.
    pub tenant: u32,
    /// How it is described.
    pub spec: SpecBody,
}

/// A schedule's description, as the log keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct SpecBody {
    /// Where its occurrences go.
    pub queue: u32,
    /// For people.
    pub name: Option<String>,
    /// When it fires.
    pub rule: RuleBody,
    /// Instants before this are not its own.
    pub start_at_ms: Option<i64>,
    /// Instants from this on are not its own.
    pub end_at_ms: Option<i64>,
    /// The user's bytes.
    pub payload: Vec<u8>,
    /// 0 for none.
    pub flexible_window_ms: u64,
    /// An instant later than this is a misfire.
    pub max_lateness_ms: u64,
    /// What becomes of missed instants.
    pub misfire: Misfire,
    /// What becomes of an occurrence while another runs.
    pub overlap: Overlap,
    /// How failed attempts are repeated.
    pub retry: Retry,
    /// Whether running twice does harm.
    pub effect: Effect,
    /// Who decides about what is held.
    pub review_owner: Option<String>,
}

/// What a call ends of a schedule's pending work: what is SCHEDULED and not named here; of what a queue follows to its
/// end also what is ENQUEUED or in RETRY_WAIT, and what is RUNNING is called off, unless the call keeps what is due.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Closing {
    /// SCHEDULED occurrences that stay, in runs as in [`Enqueued::runs`]: an untracked queue has them, or the call keeps
    /// what is due. Every other one is canceled.
    pub kept: Vec<(u64, u64)>,
    /// Instants that were due and not materialised.
    pub due: Option<RangeBody>,
    /// What was left of each backfill that ends with it.
    pub backfills: Vec<RangeBody>,
}

/// Instants without an occurrence each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct RangeBody {
    /// The first one, as a difference to the log's time.
    pub first: i64,
    /// The last one, as a difference to the log's time.
    pub last: i64,
    /// How many there are.
    pub count: u64,
}

/// A user ended a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Canceled {
    /// The schedule.
    pub schedule: u32,
    /// What ends with it.
    pub closing: Closing,
}

/// A user described a schedule anew: its version grows.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Updated {
    /// The schedule.
    pub schedule: u32,
    /// How it is described now.
    pub spec: SpecBody,
    /// Whether what is due goes on under the old version.
    pub keeps_due: bool,
    /// What ends with the old version.
    pub closing: Closing,
}

/// A user paused a schedule: its version grows.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Paused {
    /// The schedule.
    pub schedule: u32,
    /// What ends with it.
    pub closing: Closing,
}

/// A user resumed a schedule: its version grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Resumed {
    /// The schedule.
    pub schedule: u32,
    /// The instants that fell into the pause.
    pub paused: Option<RangeBody>,
}

/// A user asked for an occurrence now.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Triggered {
    /// The schedule.
    pub schedule: u32,
    /// The caller's key, or the request's own id: part of the occurrence's id.
    pub discriminator: Vec<u8>,
    /// Whether the caller gave it: then it is remembered for a day.
    pub is_keyed: bool,
}

/// A user asked for past instants again.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct BackfillRequested {
    /// The schedule.
    pub schedule: u32,
    /// Instants from this on, as a difference to the log's time...
    pub from: i64,
    /// ...and before this.
    pub to: i64,
    /// How many there are.
    pub count: u64,
    /// The caller's key, or the request's own id: part of the occurrences' ids.
    pub discriminator: Vec<u8>,
    /// Whether the caller gave it: then it is remembered for a day.
    pub is_keyed: bool,
}

/// Instants of a backfill got their occurrences.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct BackfillExpanded {
    /// The backfill: how many were requested before it.
    pub backfill: u64,
    /// The instants, oldest first, as differences to the log's time.
    pub instants: Vec<i64>,
    /// Everything up to here is expanded, as a difference to the log's time.
    pub through: i64,
    /// Whether these were the last.
    pub is_done: bool,
}

/// Occurrences of one millisecond.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Materialized {
    /// `scheduled_for` as a difference to the log's time.
    pub scheduled_for: i64,
    /// The schedules in ascending order, each as the difference to the one before.
    pub schedules: Vec<u32>,
}

/// A schedule's backlog was decided.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Misfired {
    /// The schedule.
    pub schedule: u32,
    /// The instants that get an occurrence now, or whose SCHEDULED occurrence is admitted; catch-up lane. As
    /// differences to the log's time.
    pub admitted: Vec<i64>,
    /// The instants without an occurrence that are missed.
    pub missed: Option<RangeBody>,
    /// SCHEDULED occurrences that are missed, in runs as in [`Enqueued::runs`].
    pub missed_occurrences: Vec<(u64, u64)>,
    /// The cursor's new place.
    pub through: i64,
}

/// The queue accepted occurrences under consecutive ids.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Enqueued {
    /// The stream: queue number times three plus the lane's place.
    pub stream: u32,
    /// The generation of their ids.
    pub generation: u64,
    /// The counter of the first id.
    pub first_counter: u64,
    /// How many entries the stream had ever been given behind the last of these.
    pub added: u64,
    /// When the answer came, as a difference to the log's time.
    pub at: i64,
    /// Runs of consecutive occurrence numbers: distance from the end of the run before (the first: from 0, wrapping),
    /// and length.
    pub runs: Vec<(u64, u64)>,
}

/// A stream lost its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Lost {
    /// The stream, as in [`Enqueued::stream`].
    pub stream: u32,
    /// Generation and counter of the last entry that is still there, if any is.
    pub survived: Option<(u64, u64)>,
    /// What was enqueued before this is not sent again, as a difference to the log's time.
    pub since: i64,
}

/// A user set what holds for a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct TenantSet {
    /// The tenant.
    pub tenant: u32,
    /// How often it was set, in all shards: the highest one holds.
    pub revision: u64,
    /// What holds from now on.
    pub settings: TenantSettings,
}

/// A user set what holds for a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct QueueSet {
    /// The queue.
    pub queue: u32,
    /// How often it was set, in all shards: the highest one holds.
    pub revision: u64,
    /// What holds from now on.
    pub settings: QueueSettings,
}

macro_rules! kinds {
    ($($kind:literal => $variant:ident($body:ty)),+ $(,)?) => {
        impl Record {
            /// The byte that names this record's layout in the log.
            #[must_use]
            pub const fn kind(&self) -> u8 {
                match self { $(Self::$variant(_) => $kind),+ }
            }

            /// Appends the body's bytes to `out`.
            pub fn encode(&self, out: &mut Vec<u8>) {
                match self { $(Self::$variant(body) => codec::encode(body, out)),+ }
            }

            /// Reads a record back.
            ///
            /// # Errors
            /// A kind that is not known here, or bytes that are not its body.
            pub fn decode(kind: u8, body: &[u8]) -> Result<Self, InvalidRecord> {
                match kind {
                    $($kind => codec::decode::<$body>(body).map(|b| Self::$variant(b.into()))
                        .map_err(|source| InvalidRecord::Body { kind, source }),)+
                    unknown => Err(InvalidRecord::Kind(unknown)),
                }
            }
        }
    };
}
kinds! {
    1 => Opened(Opened),
    2 => Time(Time),
    3 => TenantNamed(Named),
    4 => QueueNamed(Named),
    5 => ScheduleCreated(ScheduleCreated),
    6 => Canceled(Canceled),
    7 => Materialized(Materialized),
    8 => Misfired(Misfired),
    9 => Enqueued(Enqueued),
    11 => Lost(Lost),
    12 => Updated(Updated),
    13 => Paused(Paused),
    14 => Resumed(Resumed),
    15 => Triggered(Triggered),
    16 => BackfillRequested(BackfillRequested),
    17 => BackfillExpanded(BackfillExpanded),
    18 => TenantSet(TenantSet),
    19 => QueueSet(QueueSet),
    20 => WorkerNamed(Named),
    21 => Claimed(Claimed),
    22 => RunsSucceeded(RunsSucceeded),
    23 => RunFailed(RunFailed),
    24 => Waited(Waited),
    25 => Skipped(Skipped),
    26 => Died(Died),
    27 => Held(Held),
    28 => Replayed(Replayed),
    29 => Resolved(Resolved),
    30 => Settled(Settled),
    31 => LateResult(LateResult),
    32 => ClaimedById(ClaimedById),
}

/// A log record that this engine cannot act on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRecord {
    /// A kind of a newer engine, or of none.
    #[error("record kind {0} is not known to this version: open the directory with the version that wrote it")]
    Kind(u8),
    /// The body does not decode.
    #[error("record of kind {kind}: {source}")]
    Body {
        /// The kind.
        kind: u8,
        /// Why.
        source: Undecodable,
    },
    /// Bytes in a snapshot that are no image.
    #[error("image in a snapshot: {source}")]
    Image {
        /// Why.
        source: Undecodable,
    },
}

/// Packs ascending numbers into runs.
#[must_use]
pub fn runs_of(numbers: &[u64]) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    let mut end = 0_u64;
    for &number in numbers {
        match runs.last_mut() {
            Some((_, length)) if number == end => *length += 1,
            _ => runs.push((number.wrapping_sub(end), 1)),
        }
        end = number.wrapping_add(1);
    }
    runs
}

/// The numbers that [`runs_of`] packed. Lazy: a damaged length costs nothing until it is walked.
pub fn numbers_of(runs: &[(u64, u64)]) -> impl Iterator<Item = u64> + '_ {
    let mut end = 0_u64;
    runs.iter().flat_map(move |&(gap, length)| {
        let first = end.wrapping_add(gap);
        end = first.wrapping_add(length);
        (0..length).map(move |i| first.wrapping_add(i))
    })
}
