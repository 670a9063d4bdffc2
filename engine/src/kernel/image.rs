//! What a snapshot holds: an image of each row that the log remembers, as it was behind one record, and its bytes.
//!
//! A chunk is images one behind the other. A snapshot is [`Image::Head`], what others name, the rows, [`Image::End`].
//! Instants are differences to the head's engine time, in ms; what follows from rows (counts, indices, the newer
//! neighbour in a history) is not in it. A variant is never used again for another layout: a new one is put at the end,
//! and [`FORMAT`] grows with it.

use bincode::{BorrowDecode, Encode};

use super::{
    attempt::{AttemptResult, Resolution},
    codec,
    evidence::HoldReason,
    id::Kind,
    occurrence::{EntryId, Lane, Reason, State},
    policy::Policies,
    record::{InvalidRecord, Opened, RuleBody},
    schedule::RangeDisposition,
    tenant::{QueueSettings, TenantSettings},
};

/// The layout that this version writes.
pub const FORMAT: u32 = 1;

/// One row, or what a whole shard has once.
#[derive(Clone, Debug, PartialEq, Encode, BorrowDecode)]
pub enum Image<'a> {
    /// The first image.
    Head(Head),
    /// Introduces the next tenant number.
    Tenant(TenantImage<'a>),
    /// Introduces the next queue number.
    Queue(QueueImage<'a>),
    /// Introduces the next worker number.
    Worker(&'a str),
    /// Numbers of no schedule, in the order in which they were given up; the last one is used first.
    Free(Vec<u32>),
    /// A rule that schedules share, under the number by which their images name it.
    Rule(u32, RuleBody),
    /// A schedule.
    Schedule(ScheduleImage<'a>),
    /// A version that another one took the place of and that occurrences still name.
    Superseded(SupersededImage<'a>),
    /// A backfill that is not expanded to its end.
    Backfill(BackfillImage<'a>),
    /// An occurrence.
    Occurrence(OccurrenceImage),
    /// What is known of an occurrence that was claimed, held or is dead.
    Run(RunImage<'a>),
    /// A schedule that was canceled, the oldest first, and when.
    Tombstone(u32, i64),
    /// An occurrence that has ended, the oldest first, and when.
    Ended(u64, i64),
    /// What a keyed request was answered, the oldest first.
    Answered(AnsweredImage<'a>),
    /// The last image.
    End(Counts),
}

/// What a shard has once.
#[derive(Clone, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Head {
    /// [`FORMAT`] of whoever wrote it.
    pub format: u32,
    /// The last record that is in it.
    pub lsn: u64,
    /// Engine time, in ms since the epoch: what instants are differences to.
    pub log_time_ms: i64,
    /// The last opening.
    pub opened: Option<Opened>,
    /// A key whose schedule was forgotten begins above this version.
    pub version_floor: u32,
    /// The number of the next backfill.
    pub next_backfill: u64,
    /// The number of the next occurrence.
    pub next_occurrence: u64,
    /// The number of the first worker whose name is kept.
    pub first_worker: u64,
    /// Whether an occurrence that had ended was ever dropped.
    pub has_forgotten: bool,
    /// Whether a schedule ever asked for more of a release than its time.
    pub has_conditions: bool,
    /// The smallest lateness that a schedule ever allowed.
    pub smallest_lateness_ms: u64,
}

/// A tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct TenantImage<'a> {
    /// Its name.
    pub name: &'a str,
    /// How often it was set.
    pub revision: u64,
    /// What holds.
    pub settings: TenantSettings,
}

/// A queue, and what is remembered of its streams, in the order of the lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct QueueImage<'a> {
    /// Its name.
    pub name: &'a str,
    /// How often it was set.
    pub revision: u64,
    /// What holds.
    pub settings: QueueSettings,
    /// The last entry recorded as enqueued, and how many the stream had ever been given then.
    pub streams: [(Option<EntryId>, u64); Lane::ALL.len()],
}

/// A schedule's rule.
#[derive(Clone, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub enum PlanImage {
    /// A rule by its number.
    Shared(u32),
    /// A rule of its own that is not shared: a grid, or one instant.
    Own(RuleBody),
    /// It follows its own runs: as described, and what it counts from now.
    Paced {
        /// As it was described.
        body: RuleBody,
        /// What the next instant is `every` behind, in ms since the epoch.
        from_ms: i64,
        /// Whether what was made last has not come so far.
        is_open: bool,
    },
}

/// A schedule.
#[derive(Clone, Debug, PartialEq, Encode, BorrowDecode)]
pub struct ScheduleImage<'a> {
    /// Its number.
    pub number: u32,
    /// Its id.
    pub id: [u8; 16],
    /// Its version.
    pub version: u32,
    /// Whose it is.
    pub tenant: u32,
    /// Where its occurrences go.
    pub queue: u32,
    /// When it fires.
    pub plan: PlanImage,
    /// Its bounds.
    pub bounds: (Option<i64>, Option<i64>),
    /// How far its occurrences are spread.
    pub flexible_window_ms: u64,
    /// What its user decided.
    pub policies: Policies,
    /// Whether it is canceled.
    pub is_canceled: bool,
    /// Whether it is paused.
    pub is_paused: bool,
    /// When it was created.
    pub created_at: i64,
    /// When it was last changed by a user.
    pub updated_at: i64,
    /// The cursor.
    pub decided_through: i64,
    /// The latest regular instant that ran.
    pub last_run_at: Option<i64>,
    /// The UTC day of its latest retry, and how many it made then.
    pub retries: (i64, u32),
    /// The last record that changed what a reader sees.
    pub changed: u64,
    /// For people.
    pub name: Option<&'a str>,
    /// The user's bytes.
    pub payload: &'a [u8],
    /// Who decides about what is held.
    pub review_owner: Option<&'a str>,
    /// Instants that were disposed of together.
    pub ranges: Vec<RangeImage>,
}

/// Instants without an occurrence each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct RangeImage {
    /// The schedule's own, or a backfill's.
    pub kind: Kind,
    /// Why.
    pub disposition: RangeDisposition,
    /// The first one.
    pub first: i64,
    /// The last one.
    pub last: i64,
    /// How many.
    pub count: u64,
}

/// What is still needed of a version that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Encode, BorrowDecode)]
pub struct SupersededImage<'a> {
    /// The schedule.
    pub schedule: u32,
    /// The version.
    pub version: u32,
    /// What its user had decided.
    pub policies: Policies,
    /// The user's bytes.
    pub payload: &'a [u8],
    /// How far its occurrences are spread.
    pub flexible_window_ms: u64,
}

/// A backfill.
#[derive(Clone, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct BackfillImage<'a> {
    /// Its number.
    pub number: u64,
    /// The schedule.
    pub schedule: u32,
    /// The version that it was asked of.
    pub version: u32,
    /// The rule as it was then.
    pub plan: PlanImage,
    /// Its bounds.
    pub bounds: (Option<i64>, Option<i64>),
    /// Part of its occurrences' ids.
    pub discriminator: &'a [u8],
    /// Everything up to here is expanded.
    pub done_through: i64,
    /// Its end.
    pub to: i64,
    /// Its latest occurrence.
    pub near: Option<u64>,
}

/// An occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct OccurrenceImage {
    /// Its number.
    pub number: u64,
    /// Its id.
    pub id: [u8; 16],
    /// Its schedule.
    pub schedule: u32,
    /// The version that it is of.
    pub version: u32,
    /// Whose it is.
    pub tenant: u32,
    /// Where it goes.
    pub queue: u32,
    /// What made it.
    pub kind: Kind,
    /// Its nominal instant.
    pub scheduled_for: i64,
    /// When it may enter the queue.
    pub available_at: i64,
    /// When the queue first accepted it.
    pub enqueued_at: Option<i64>,
    /// Its place in the stream.
    pub entry: Option<EntryId>,
    /// When it was given that place.
    pub entry_at: i64,
    /// Where it stands.
    pub state: State,
    /// Why it stands there.
    pub reason: Option<Reason>,
    /// Its lane.
    pub lane: Lane,
    /// Whether its queue is followed.
    pub is_tracked: bool,
    /// Whether consumers acknowledged it without a claim.
    pub is_settled: bool,
    /// The neighbour before it in its schedule's history.
    pub older: Option<u64>,
}

/// What became of an occurrence behind the queue.
#[derive(Clone, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct RunImage<'a> {
    /// The occurrence.
    pub occurrence: u64,
    /// How many attempts were made.
    pub made: u32,
    /// How many are allowed.
    pub allowed: u32,
    /// The latest ones, oldest first.
    pub attempts: Vec<AttemptImage<'a>>,
    /// The latest claim's token: its record and its place there.
    pub token: Option<(u64, u16)>,
    /// How long its lease lasts without a heartbeat.
    pub lease_ms: i64,
    /// Whether its worker lives in the engine's process.
    pub is_in_process: bool,
    /// What it becomes unless it succeeds.
    pub called_off: Option<Reason>,
    /// Whether it was asked to stop.
    pub stop_asked: bool,
    /// How long the latest retry had to wait.
    pub delay_ms: Option<u64>,
    /// Whether a person had it run again after its end.
    pub is_replayed: bool,
    /// When it died.
    pub died_at: Option<i64>,
    /// What people decided.
    pub review: Option<ReviewImage<'a>>,
    /// The id of the claim under which it runs.
    pub claim_id: Option<&'a str>,
}

/// One attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct AttemptImage<'a> {
    /// From 1.
    pub number: u32,
    /// Who made it.
    pub worker: &'a str,
    /// When it was claimed.
    pub started_at: i64,
    /// When it ended.
    pub finished_at: Option<i64>,
    /// When its lease ends.
    pub lease_expires_at: i64,
    /// How it ended.
    pub result: Option<AttemptResult>,
    /// The worker's words.
    pub message: Option<&'a str>,
    /// Where its result is.
    pub result_ref: Option<&'a str>,
}

/// What is known only of what people had to look at.
#[derive(Clone, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct ReviewImage<'a> {
    /// Why it is HELD.
    pub holds: Vec<HoldReason>,
    /// What people settled.
    pub settled: Vec<HoldReason>,
    /// Since when a person wants it to run.
    pub asked_at: Option<i64>,
    /// The latest decision: what, by whom, why.
    pub decision: Option<(Resolution, &'a str, &'a str)>,
    /// What a worker answered after the attempt had been held.
    pub late_result: Option<&'a str>,
}

/// A keyed request and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct AnsweredImage<'a> {
    /// When.
    pub at: i64,
    /// Of which schedule.
    pub schedule_id: [u8; 16],
    /// The caller's key.
    pub key: &'a [u8],
    /// What it was told.
    pub answer: AnswerImage,
}

/// What a keyed request was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub enum AnswerImage {
    /// The manual occurrence's id.
    Triggered([u8; 16]),
    /// How many occurrences a backfill makes, and its window.
    Backfilled {
        /// How many.
        occurrences: u64,
        /// From here on...
        from: i64,
        /// ...and before this.
        to: i64,
    },
}

/// How much there was, so that nothing is missing in silence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Counts {
    /// Schedules.
    pub schedules: u64,
    /// Occurrences.
    pub occurrences: u64,
    /// Runs.
    pub runs: u64,
}

impl Image<'_> {
    /// Appends its bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        codec::encode(self, out);
    }
}

/// Takes the next image from a chunk.
///
/// # Errors
/// Bytes that are no image.
pub fn read<'a>(chunk: &mut &'a [u8]) -> Result<Image<'a>, InvalidRecord> {
    let (image, used) = codec::decode_first(chunk).map_err(|source| InvalidRecord::Image { source })?;
    *chunk = chunk.get(used..).unwrap_or_default();
    Ok(image)
}
