//! What workers and people ask about runs, handed to the kernel; and how the embedded queue serves a claim.

use std::sync::Arc;

use countwheel_wal::crash_point;

use super::ShardActor;
use crate::{
    error::CallError,
    kernel::{
        gate::Lsn,
        id::OccurrenceId,
        occurrence::{OccurrenceNo, QueueNo},
        resolve::PAYLOAD_LIMIT,
        shard::{ClaimRefusal, Claiming, Granted, RunError, Shard, Speaking, Turn},
        time::UnixMs,
    },
    shell::{
        ask::ReplyTo,
        local_queue::{LocalQueue, Tenants},
        run_ask::{CLAIM_BYTES, Claimant, ClaimedRun, RunAsk, Served},
    },
};

/// A claim looks at no more occurrences than so many times what it may get, when none of them may run.
const ROUNDS: usize = 4;
/// What a claim takes has no more payload than this before its last run, so that an answer has [`CLAIM_BYTES`] at most.
const BYTES_BEFORE_LAST: usize = CLAIM_BYTES - PAYLOAD_LIMIT;

impl ShardActor {
    pub(super) fn ask_run(&mut self, ask: RunAsk) {
        match ask {
            RunAsk::ClaimNext { queue, max, claimant, reply } => self.claim_next(&queue, max, &claimant, reply),
            RunAsk::ClaimedBefore { queue, worker, claim_id, reply } => {
                // Nothing is written, and a lease that stands is answered on a full disk too.
                let (granted, lsn) = self.decide(|shard, _, _| shard.claimed_before(&queue, &worker, &claim_id));
                let runs = granted.into_iter().map(|granted| claimed(&self.shard, granted)).collect();
                self.answer(reply, lsn, runs);
            }
            RunAsk::ClaimOne { id, schedule, queue, claimant, reply } => {
                self.hear();
                // An engine that was taken over cannot know what there is by now: its 404 would settle an entry.
                if let Some(trouble) = self.write_trouble(true) {
                    drop(reply.send(Err(trouble)));
                    return;
                }
                let Some(number) = self.shard.occurrence_number(id, schedule) else {
                    drop(reply.send(Ok(Err(ClaimRefusal::NotFound))));
                    return;
                };
                if !may_touch(&self.shard, id, &queue) {
                    drop(reply.send(Err(CallError::ForeignQueue)));
                    return;
                }
                crash_point("claim.asked");
                self.run_call(reply, |shard, now, turn| {
                    let (mut answers, lsn) = shard.claim(&[number], &claiming(&claimant), now, turn);
                    crash_point("claim.decided");
                    let answer = answers.pop().expect("one was asked for");
                    (answer.map(|granted| claimed(shard, granted)), lsn)
                });
                let waited = self.backend.local().and_then(|local| local.queue_of(number));
                if let Some(queue) = waited.filter(|_| !self.shard.is_to_run(number)) {
                    self.backend.local().map(|local| local.withdraw(number));
                    self.post(queue);
                }
            }
            RunAsk::Heartbeat { beats, queue, reply } => {
                // Nothing is written: a lease is extended on a full disk too.
                let (answers, lsn) = self
                    .decide(|shard, now, _| of_queue(shard, beats, &queue, |shard, beats| shard.heartbeat(beats, now)));
                self.answer(reply, lsn, answers);
            }
            RunAsk::Complete { done, queue, reply } => {
                crash_point("complete.asked");
                self.run_call(reply, |shard, now, turn| {
                    of_queue(shard, done, &queue, |shard, done| shard.complete(done, now, turn))
                });
                crash_point("complete.decided");
                self.call_the_skipped();
            }
            RunAsk::Fail { failed, queue, reply } => {
                self.run_call(reply, |shard, now, turn| {
                    of_queue(shard, failed, &queue, |shard, failed| shard.fail(failed, now, turn))
                });
                self.call_the_skipped();
            }
            RunAsk::Replay { id, tenant, reply } => {
                self.run_call(reply, |shard, now, turn| split(shard.replay_dead(id, tenant.as_deref(), now, turn)))
            }
            RunAsk::Resolve { id, tenant, decided, reply } => self.run_call(reply, |shard, now, turn| {
                split(shard.resolve_held(id, tenant.as_deref(), decided, now, turn))
            }),
            RunAsk::Pile { pile, tenant, after, limit, reply } => {
                let page = self.shard.pile(pile, tenant.as_deref(), after, limit);
                self.answer(reply, page.lsn, page);
            }
            RunAsk::Evidence { id, tenant, reply } => {
                let now = self.time.observe(self.clock.reading());
                let (evidence, lsn) = self.shard.evidence_of(id, tenant.as_deref(), now).unzip();
                self.answer(reply, lsn.unwrap_or(Lsn(0)), evidence);
            }
        }
    }

    /// What a worker or a person says of a run.
    fn run_call<T: 'static>(
        &mut self,
        reply: ReplyTo<T>,
        decide: impl FnOnce(&mut Shard, UnixMs, &mut Turn) -> (T, Lsn),
    ) {
        if let Some(trouble) = self.write_trouble(true) {
            drop(reply.send(Err(trouble)));
            return;
        }
        let (value, lsn) = self.decide(decide);
        self.answer(reply, lsn, value);
    }

    /// Serves a claim from the embedded queue: what may not run is passed over.
    fn claim_next(&mut self, queue: &str, max: usize, claimant: &Claimant, reply: ReplyTo<Served>) {
        // What is taken has been heard to have landed, so that nothing is in the way of a refusal.
        self.hear();
        let is_local = self.backend.local().is_some();
        // A log that takes nothing must not cost anybody its place in the queue.
        if let Some(trouble) = self.write_trouble(true).or((!is_local).then_some(CallError::NoLocalQueue)) {
            drop(reply.send(Err(trouble)));
            return;
        }
        let (mut served, mut bytes, mut rests_on) = (Served::default(), 0_usize, Lsn(0));
        let number = self.shard.queue_number(queue);
        for _ in 0..ROUNDS {
            let Some((local, number)) = self.backend.local().zip(number) else { break };
            let bytes_left = BYTES_BEFORE_LAST - bytes;
            let taken = local.take(number, max - served.runs.len(), bytes_left, &ShardTenants(&self.shard));
            served.has_more = !taken.is_empty() && local.waiting_in(number) > 0;
            if taken.is_empty() {
                break;
            }
            let (runs, lsn) = self.claim_taken(&taken, claimant);
            bytes += runs.iter().map(|run| run.payload.len()).sum::<usize>();
            served.runs.extend(runs);
            rests_on = rests_on.max(lsn);
            // Asking on for nothing would find nothing, and say that there is no more.
            if served.runs.len() == max || bytes > BYTES_BEFORE_LAST {
                break;
            }
        }
        if let Some(number) = number {
            self.post(number);
        }
        self.answer(reply, rests_on, served);
    }

    /// Asks the kernel for leases on what was taken.
    fn claim_taken(&mut self, taken: &[OccurrenceNo], claimant: &Claimant) -> (Vec<ClaimedRun>, Lsn) {
        let to_run: Vec<_> = taken.iter().copied().filter(|number| self.shard.is_to_run(*number)).collect();
        let (answers, lsn) = self.decide(|shard, now, turn| shard.claim(&to_run, &claiming(claimant), now, turn));
        let granted: Vec<_> = answers.into_iter().flatten().map(|granted| claimed(&self.shard, granted)).collect();
        let lsn = if granted.is_empty() { Lsn(0) } else { lsn };
        (granted, lsn)
    }

    /// Wakes workers of the embedded queue, as many of each queue as it was given occurrences.
    pub(super) fn announce(&mut self) {
        let arrived = self.backend.local().map(LocalQueue::take_arrived).unwrap_or_default();
        for (queue, occurrences) in arrived {
            self.post(queue);
            self.arrivals.announce(self.shard.queue_name(queue), occurrences);
        }
    }

    /// Tells what waits in the embedded queue.
    pub(super) fn post(&mut self, queue: QueueNo) {
        if let Some(local) = self.backend.local() {
            self.arrivals.post(self.shard.queue_name(queue), self.number, local.waiting_by_lane(queue));
        }
    }

    /// Runs ended: tenants that were passed over may have room.
    fn call_the_skipped(&mut self) {
        let Some(local) = self.backend.local() else { return };
        for queue in local.take_skipped() {
            self.arrivals.announce(self.shard.queue_name(queue), usize::MAX);
        }
    }
}

fn claiming(claimant: &Claimant) -> Claiming<'_> {
    Claiming {
        worker: &claimant.worker,
        lease_ms: claimant.lease_ms,
        is_in_process: claimant.is_in_process,
        claim_id: claimant.claim_id.as_deref(),
    }
}

fn claimed(shard: &Shard, granted: Granted) -> ClaimedRun {
    let entry = shard.entry(granted.number);
    ClaimedRun {
        occurrence_id: granted.occurrence_id,
        schedule_id: entry.schedule_id,
        version: entry.version,
        tenant: entry.tenant.to_owned(),
        kind: entry.kind,
        scheduled_for: entry.scheduled_for,
        available_at: entry.available_at,
        attempt: granted.attempt,
        payload: entry.payload.to_vec(),
        lease_token: granted.token,
        lease_expires_at: granted.lease_expires_at,
        deadline: granted.deadline,
    }
}

/// A refusal that changed nothing rests on nothing.
fn split<T, E>(decided: Result<(T, Lsn), E>) -> (Result<T, E>, Lsn) {
    match decided {
        Ok((value, lsn)) => (Ok(value), lsn),
        Err(error) => (Err(error), Lsn(0)),
    }
}

fn may_touch(shard: &Shard, id: OccurrenceId, queue: &Option<Arc<str>>) -> bool {
    queue.as_deref().is_none_or(|bound| shard.queue_of(id) == Some(bound))
}

/// Of what a worker says, only what is about its own queue reaches the kernel; the rest is not there for it.
fn of_queue<Said, T>(
    shard: &mut Shard,
    said: Vec<Speaking<Said>>,
    queue: &Option<Arc<str>>,
    decide: impl FnOnce(&mut Shard, &[Speaking<Said>]) -> (Vec<Result<T, RunError>>, Lsn),
) -> (Vec<Result<T, RunError>>, Lsn) {
    let is_seen: Vec<bool> = said.iter().map(|one| may_touch(shard, one.occurrence, queue)).collect();
    let seen: Vec<_> = said.into_iter().zip(&is_seen).filter(|(_, is_seen)| **is_seen).map(|(one, _)| one).collect();
    let (answers, lsn) = decide(shard, &seen);
    let mut answers = answers.into_iter();
    let in_order = is_seen.into_iter().map(|is_seen| match is_seen.then(|| answers.next()).flatten() {
        Some(answer) => answer,
        None => Err(RunError::StaleLease),
    });
    (in_order.collect(), lsn)
}

/// What the embedded queue asks of tenants.
struct ShardTenants<'a>(&'a Shard);

impl Tenants for ShardTenants<'_> {
    fn weight(&self, tenant: u32) -> u32 {
        self.0.weight(tenant)
    }

    fn run_room(&self, tenant: u32) -> usize {
        self.0.run_room(tenant)
    }

    fn weighs_bytes(&self, number: OccurrenceNo) -> usize {
        self.0.payload_bytes(number)
    }
}
