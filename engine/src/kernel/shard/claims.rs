//! A worker asks for what it was told of: every check is made here, at once, and a grant is one record.

use std::collections::{BTreeMap, BTreeSet};

use super::{Shard, Turn, Urgency, occurrences::Holder};
use crate::kernel::{
    evidence::{self, Decision},
    gate::Lsn,
    id::{OccurrenceId, ScheduleId},
    lease::LeaseToken,
    occurrence::{OccurrenceNo, Reason, State},
    overlap::Verdict,
    policy::{Effect, Overlap, Policies},
    record::{Claimed, ClaimedById, Held, Named, Record, Waited, runs_of},
    time::UnixMs,
};

/// At most this many occurrences are granted in one record.
pub const CLAIM_LIMIT: usize = 1_000;
/// No lease lasts longer without a heartbeat.
pub const LEASE_MS_AT_MOST: i64 = 86_400_000;

/// A claim's id has at most this many bytes.
pub const CLAIM_ID_BYTES: usize = 255;

/// Who asks, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Claiming<'a> {
    /// As the worker names itself.
    pub worker: &'a str,
    /// How long a lease is to last without a heartbeat: 1 ms to a day; what is outside is cut to that.
    pub lease_ms: u64,
    /// Whether the worker lives in the engine's own process: a restart ends its attempts.
    pub is_in_process: bool,
    /// Under which id the claim can be repeated: 1 to [`CLAIM_ID_BYTES`] bytes.
    pub claim_id: Option<&'a str>,
}

/// An attempt that may begin once the LSN of the answer is durable. [`Shard::entry`] has the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// What was claimed.
    pub number: OccurrenceNo,
    /// Its id.
    pub occurrence_id: OccurrenceId,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// Answers under any other token are stale from now on.
    pub token: LeaseToken,
    /// When the lease ends without a heartbeat.
    pub lease_expires_at: UnixMs,
    /// No attempt begins later than this.
    pub deadline: Option<UnixMs>,
}

/// Why a claim is refused. Every one but [`ClaimRefusal::NotHeard`] settles the entry that the worker was given: what
/// still has to run is handed over again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimRefusal {
    /// Another worker holds its lease.
    #[error("another worker holds its lease: leave it")]
    AlreadyRunning,
    /// It waits for another run of its schedule, or for its next attempt, and is handed over again.
    #[error("it waits for another run of its schedule or for its next attempt: it will be handed over again")]
    Waiting,
    /// An update took its version's place.
    #[error("an update took its version's place: leave it")]
    Superseded,
    /// Its schedule was deleted.
    #[error("its schedule was deleted: leave it")]
    Canceled,
    /// Its schedule was paused.
    #[error("its schedule was paused: leave it")]
    Paused,
    /// Another one of its schedule ran when its turn came.
    #[error("another one of its schedule ran when its turn came: leave it")]
    SkippedOverlap,
    /// Its tenant runs as many as it may; it is handed over again.
    #[error("its tenant runs as many as its quota concurrent_runs allows: it will be handed over again")]
    TenantConcurrency,
    /// A person has to decide.
    #[error("a person has to decide: see its evidence, then resolve it")]
    Held,
    /// The misfire policy did not admit it.
    #[error("the misfire policy did not admit it: leave it")]
    Missed,
    /// It succeeded, is dead, or nobody follows it.
    #[error("it has ended, or its queue is not tracked: leave it")]
    Finished,
    /// The shard has not heard yet that the queue accepted it: ask again with the same entry.
    #[error("the engine has not heard from the queue yet that it has it: ask again in a moment")]
    NotHeard,
    /// There is no such occurrence, or not any more.
    #[error("there is no such occurrence of this schedule, or not any more: leave it")]
    NotFound,
}

impl ClaimRefusal {
    /// The word users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AlreadyRunning => "already_running",
            Self::Waiting => "waiting",
            Self::Superseded => "superseded",
            Self::Canceled => "canceled",
            Self::Paused => "paused",
            Self::SkippedOverlap => "skipped_overlap",
            Self::TenantConcurrency => "tenant_concurrency",
            Self::Held => "held",
            Self::Missed => "missed",
            Self::Finished => "finished",
            Self::NotHeard => "not_heard",
            Self::NotFound => "not_found",
        }
    }
}

/// What the claims of one call have been granted before the record is written.
#[derive(Default)]
struct Batch {
    numbers: Vec<OccurrenceNo>,
    taken: BTreeSet<OccurrenceNo>,
    by_schedule: BTreeMap<u32, u32>,
}

impl Shard {
    /// The number of the occurrence that has this id, if it is the schedule's.
    #[must_use]
    pub fn occurrence_number(&self, id: OccurrenceId, of: ScheduleId) -> Option<OccurrenceNo> {
        let number = self.occurrences.number(id)?;
        (self.schedule(self.occurrences.row(number)?.schedule).id == of).then_some(number)
    }

    /// The queue of an occurrence, by name.
    #[must_use]
    pub fn queue_of(&self, id: OccurrenceId) -> Option<&str> {
        let row = self.occurrences.row(self.occurrences.number(id)?)?;
        Some(self.queue_name(row.stream().queue))
    }

    /// Whether the queue holds an occurrence that is still to be run.
    #[must_use]
    pub fn is_to_run(&self, number: OccurrenceNo) -> bool {
        self.occurrences.row(number).is_some_and(|row| row.state == State::Enqueued)
    }

    /// How long the payload of an occurrence is; 0 where there is none.
    #[must_use]
    pub fn payload_bytes(&self, number: OccurrenceNo) -> usize {
        self.occurrences.row(number).map_or(0, |row| self.payload_of(row).len())
    }

    /// How much more a tenant may do than one of weight 1.
    #[must_use]
    pub fn weight(&self, tenant: u32) -> u32 {
        self.settings.weight(tenant)
    }

    /// How many runs more a tenant may begin at the moment.
    #[must_use]
    pub fn run_room(&self, tenant: u32) -> usize {
        self.permits.run_room(tenant)
    }

    /// Grants leases, as far as occurrences may run: the answers in order. They may leave once the LSN is durable.
    pub fn claim(
        &mut self,
        numbers: &[OccurrenceNo],
        claiming: &Claiming<'_>,
        now: UnixMs,
        turn: &mut Turn,
    ) -> (Vec<Result<Granted, ClaimRefusal>>, Lsn) {
        let mut answers = Vec::with_capacity(numbers.len());
        for chunk in numbers.chunks(CLAIM_LIMIT) {
            self.claim_chunk(chunk, claiming, now, turn, &mut answers);
        }
        turn.more |= self.lobby.is_stirred();
        (answers, self.lsn)
    }

    fn claim_chunk(
        &mut self,
        numbers: &[OccurrenceNo],
        claiming: &Claiming<'_>,
        now: UnixMs,
        turn: &mut Turn,
        answers: &mut Vec<Result<Granted, ClaimRefusal>>,
    ) {
        let mut batch = Batch::default();
        let first = answers.len();
        for &number in numbers {
            let granted = match self.may_run(number, &batch, now, turn) {
                Ok(()) => {
                    let row = self.occurrences.row(number).expect("it may run");
                    *batch.by_schedule.entry(row.schedule).or_default() += 1;
                    batch.taken.insert(number);
                    batch.numbers.push(number);
                    Ok(number)
                }
                Err(refusal) => Err(refusal),
            };
            answers.push(granted.map(|number| self.to_be_granted(number)));
        }
        if batch.numbers.is_empty() {
            return;
        }
        let worker = self.worker_for(claiming.worker, now, turn);
        let lease_ms = claiming.lease_ms.clamp(1, LEASE_MS_AT_MOST.unsigned_abs());
        let plain: Vec<u64> = batch.numbers.iter().map(|number| number.0).collect();
        let is_in_process = claiming.is_in_process;
        let claimed = Claimed { worker, lease_ms, is_in_process, occurrences: runs_of(&plain) };
        let record = match claiming.claim_id {
            None => Record::Claimed(claimed),
            Some(id) => Record::ClaimedById(ClaimedById { claim_id: id.to_owned(), claimed }),
        };
        self.record(record, now, turn);
        turn.urge(Urgency::Prompt);
        self.counters.claimed += batch.numbers.len() as u64;
        for granted in answers[first..].iter_mut().flatten() {
            self.lease(granted);
        }
    }

    pub(super) fn to_be_granted(&self, number: OccurrenceNo) -> Granted {
        let row = self.occurrences.row(number).expect("it may run");
        let policies = self.policies_of(row.schedule, row.version);
        Granted {
            number,
            occurrence_id: row.id,
            attempt: 0,
            token: LeaseToken { shard: self.config.shard, lsn: Lsn(0), index: 0 },
            lease_expires_at: UnixMs::MIN,
            deadline: self.deadline(number, row, &policies),
        }
    }

    /// The lease of a claim that was just recorded begins.
    fn lease(&mut self, granted: &mut Granted) {
        let run = self.runs.of(granted.number).expect("it was just claimed");
        let ends_at_ms = self.elapsed_ms.saturating_add(run.lease_ms);
        granted.attempt = run.made;
        granted.token = run.token.expect("it was just claimed");
        granted.lease_expires_at = self.log_time.plus(run.lease_ms);
        self.runs.set_lapse(granted.number, Some(ends_at_ms));
    }

    fn worker_for(&mut self, name: &str, now: UnixMs, turn: &mut Turn) -> u64 {
        if self.workers.number(name).is_none() {
            self.record(Record::WorkerNamed(Named { name: name.to_owned() }), now, turn);
        }
        self.workers.number(name).expect("it was just named")
    }

    /// Whether an attempt may begin now; what a refusal changes is recorded.
    fn may_run(
        &mut self,
        number: OccurrenceNo,
        batch: &Batch,
        now: UnixMs,
        turn: &mut Turn,
    ) -> Result<(), ClaimRefusal> {
        if batch.taken.contains(&number) {
            return Err(ClaimRefusal::AlreadyRunning);
        }
        self.lapse_if_over(number, now, turn);
        let row = self.occurrences.row(number).ok_or(ClaimRefusal::NotFound)?;
        // Its entry may be the one that this opening has still to find: no answer may settle it before.
        if number < self.unread_below && matches!(row.state, State::Scheduled | State::RetryWait) {
            return Err(ClaimRefusal::NotHeard);
        }
        let is_early = claimable(row.state, row.is_tracked, row.reason, row.holder)?;
        let (schedule, tenant) = (row.schedule, row.tenant);
        let policies = self.policies_of(schedule, row.version);
        if self.deadline(number, row, &policies).is_some_and(|deadline| now > deadline) {
            self.die_late(number, now, turn);
            return Err(ClaimRefusal::Finished);
        }
        if policies.effect == Effect::NonIdempotent {
            self.check_evidence(number, is_early, now, turn)?;
        }
        let beside = batch.by_schedule.get(&schedule).copied().unwrap_or(0);
        self.check_overlap(number, &policies, (beside, is_early), now, turn)?;
        if !self.permits.take_run(tenant) {
            if is_early {
                return Err(ClaimRefusal::NotHeard);
            }
            self.record(Record::Waited(Waited { occurrence: number.0, for_permit: true }), now, turn);
            turn.urge(Urgency::Prompt);
            self.enter_lobby(number, true);
            return Err(ClaimRefusal::TenantConcurrency);
        }
        Ok(())
    }

    fn check_evidence(
        &mut self,
        number: OccurrenceNo,
        is_early: bool,
        now: UnixMs,
        turn: &mut Turn,
    ) -> Result<(), ClaimRefusal> {
        let Decision::Hold(reasons) = evidence::decide(&self.evidence(number, now)) else { return Ok(()) };
        if is_early {
            return Err(ClaimRefusal::NotHeard);
        }
        self.counters.held += 1;
        self.record(Record::Held(Held { occurrence: number.0, reasons }), now, turn);
        turn.urge(Urgency::Prompt);
        Err(ClaimRefusal::Held)
    }

    fn check_overlap(
        &mut self,
        number: OccurrenceNo,
        policies: &Policies,
        (beside, is_early): (u32, bool),
        now: UnixMs,
        turn: &mut Turn,
    ) -> Result<(), ClaimRefusal> {
        if policies.overlap == Overlap::Allow {
            return Ok(());
        }
        let schedule = self.occurrences.row(number).expect("it was just found").schedule;
        let running = self.running_beside(schedule, number).saturating_add(beside);
        match self.verdict_at_claim(number, policies.overlap, running) {
            Verdict::GoOn => Ok(()),
            Verdict::Skip => {
                self.skip(number, now, turn);
                Err(ClaimRefusal::SkippedOverlap)
            }
            Verdict::Wait if is_early => Err(ClaimRefusal::NotHeard),
            Verdict::Wait => {
                self.record(Record::Waited(Waited { occurrence: number.0, for_permit: false }), now, turn);
                turn.urge(Urgency::Prompt);
                self.enter_lobby(number, false);
                Err(ClaimRefusal::Waiting)
            }
        }
    }
}

/// Whether a claim can be thought about in this state; and if so, whether the queue still has to answer for an entry.
const fn claimable(
    state: State,
    is_tracked: bool,
    reason: Option<Reason>,
    holder: Holder,
) -> Result<bool, ClaimRefusal> {
    match (state, reason) {
        _ if !is_tracked => Err(ClaimRefusal::Finished),
        (State::Enqueued | State::Scheduled | State::RetryWait, _) if matches!(holder, Holder::Queue) => Ok(true),
        (State::Enqueued, _) => Ok(false),
        (State::Scheduled, Some(Reason::TenantConcurrency)) => Err(ClaimRefusal::TenantConcurrency),
        (State::Scheduled | State::RetryWait, _) => Err(ClaimRefusal::Waiting),
        (State::Running, _) => Err(ClaimRefusal::AlreadyRunning),
        (State::Held, _) => Err(ClaimRefusal::Held),
        (State::Missed, _) => Err(ClaimRefusal::Missed),
        (State::SkippedOverlap, _) => Err(ClaimRefusal::SkippedOverlap),
        (State::Canceled, Some(Reason::Superseded)) => Err(ClaimRefusal::Superseded),
        (State::Canceled, Some(Reason::Paused)) => Err(ClaimRefusal::Paused),
        (State::Canceled, _) => Err(ClaimRefusal::Canceled),
        (State::Succeeded | State::Dead, _) => Err(ClaimRefusal::Finished),
    }
}
