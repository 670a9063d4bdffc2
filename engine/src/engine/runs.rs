//! What workers ask and say: claims, heartbeats, ends; and what people do about runs that went wrong.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    engine::{Engine, Page},
    error::{CallError, Refusal, RefusalCode},
    kernel::{
        evidence::{self, Decision, Evidence},
        id::{OccurrenceId, ScheduleId, check_name},
        lease::LeaseToken,
        occurrence::{Occurrence, State},
        shard::{CLAIM_ID_BYTES, CLAIM_LIMIT, RunError},
    },
    shell::{
        ask::{Ask, ReplyTo},
        claim_ids::ClaimKey,
        paging,
        run_ask::{Claimant, RunAsk, Served},
    },
};

pub use crate::{
    kernel::{
        attempt::{FailureClass, Resolution},
        shard::{Beat, Decided, FailedRun, LEASE_MS_AT_MOST, Outcome, Pile, RESULT_REF_BYTES, ReviewRefusal, Speaking},
    },
    shell::run_ask::{CLAIM_BYTES, ClaimedRun},
};

/// A claim waits at most this long for work.
pub const WAIT_MS_AT_MOST: u64 = 60_000;
/// A lease lasts at least this long.
pub const LEASE_MS_AT_LEAST: i64 = 1_000;
/// What runs of one call may be answered for.
pub const RUNS_AT_MOST: usize = 1_000;
/// Whoever waits for work looks again this often: a permit may have become free in another shard.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A claim of whatever the embedded queue has next.
#[derive(Clone, Debug)]
pub struct Claim {
    /// As the worker names itself: 1 to 255 bytes without control characters.
    pub worker: String,
    /// At most so many runs, 1 to 1,000; 1.
    pub max: usize,
    /// How long each lease lasts without a heartbeat, 1 s to 24 h; 60 s.
    pub lease: Duration,
    /// How long to wait for the first run where there is none, up to 60 s; not at all.
    pub wait: Duration,
    /// 1 to 255 bytes without control and text direction characters. Repeated with the same id by the same worker, the
    /// claim gets the runs that it still has leases on, also after a restart of the engine; new ones once it has none.
    pub claim_id: Option<String>,
    /// Whether the worker ends with this process: then a restart ends its attempts, and their outcome is unknown. No.
    pub is_in_process: bool,
}

impl Claim {
    /// One run for a worker, leased for a minute, without waiting.
    #[must_use]
    pub fn new(worker: impl Into<String>) -> Self {
        Self {
            worker: worker.into(),
            max: 1,
            lease: Duration::from_secs(60),
            wait: Duration::ZERO,
            claim_id: None,
            is_in_process: false,
        }
    }
}

/// A claim that was checked.
#[derive(Clone)]
struct Asked {
    queue: Arc<str>,
    max: usize,
    claimant: Claimant,
}

impl Engine {
    /// A handle for a worker of `queue`: it claims from that queue and speaks of its runs, nothing else is there for it.
    #[must_use]
    pub fn for_queue(&self, queue: &str) -> Self {
        Self { queue: Some(queue.into()), ..self.clone() }
    }

    /// The queue that this handle is bound to.
    #[must_use]
    pub fn bound_queue(&self) -> Option<&str> {
        self.queue.as_deref()
    }

    /// Claims from the embedded queue: strict, flexible, caught up, each lane that waits at least a tenth, tenants in
    /// turn. The leases are durable when this returns; empty where there was no work. One answer comes from one shard,
    /// so it may hold fewer runs than wait; and its payloads have [`CLAIM_BYTES`] at most.
    ///
    /// # Errors
    /// [`CallError::NoLocalQueue`] on an engine that delivers to Redis, a [`Refusal`], or see [`CallError`].
    pub async fn claim(&self, queue: &str, claim: &Claim) -> Result<Vec<ClaimedRun>, CallError> {
        let asked = self.asked(queue, claim)?;
        let Some(id) = &asked.claimant.claim_id else { return self.poll(&asked, claim.wait).await };
        let (worker, queue) = (Arc::clone(&asked.claimant.worker), Arc::clone(&asked.queue));
        let key = ClaimKey { worker, queue, id: Arc::clone(id) };
        let _turn = self.running().claim_ids.turn(&key).await;
        let before = self.claimed_before(&key).await?;
        if before.is_empty() { self.poll(&asked, claim.wait).await } else { Ok(before) }
    }

    /// Asks until there is work, the wait is over, or the engine stops.
    async fn poll(&self, asked: &Asked, wait: Duration) -> Result<Vec<ClaimedRun>, CallError> {
        let arrivals = &self.running().arrivals;
        let until = Instant::now() + wait;
        loop {
            let place = arrivals.wait(&asked.queue);
            let arrived = place.notify.notified();
            tokio::pin!(arrived);
            // From here on an arrival is not missed, even one between asking and waiting.
            arrived.as_mut().enable();
            let runs = self.serve(asked).await?;
            let left = until.saturating_duration_since(Instant::now());
            if !runs.is_empty() || left.is_zero() {
                return Ok(runs);
            }
            let _ = tokio::time::timeout(left.min(LOOK_AGAIN), arrived).await;
            if arrivals.is_closed() {
                return Ok(Vec::new());
            }
        }
    }

    /// What the claim was granted before. A shard answers in order, so what its caller did not wait for is found.
    async fn claimed_before(&self, key: &ClaimKey) -> Result<Vec<ClaimedRun>, CallError> {
        for shard in self.running().arrivals.order(&key.queue) {
            let ClaimKey { worker, queue, id: claim_id } = key.clone();
            let ask = |reply| Ask::Run(RunAsk::ClaimedBefore { queue, worker, claim_id, reply });
            let runs = self.ask(shard, ask).await?;
            if !runs.is_empty() {
                return Ok(runs);
            }
        }
        Ok(Vec::new())
    }

    /// Asks the shards until one has something, first of all one that has what is most urgent.
    async fn serve(&self, asked: &Asked) -> Result<Vec<ClaimedRun>, CallError> {
        for shard in self.running().arrivals.order(&asked.queue) {
            loop {
                let Asked { queue, max, claimant } = asked.clone();
                let served = self.ask(shard, |reply| Ask::Run(RunAsk::ClaimNext { queue, max, claimant, reply }));
                let Served { runs, has_more } = served.await?;
                if !runs.is_empty() {
                    if has_more {
                        self.running().arrivals.announce(&asked.queue, 1);
                    }
                    return Ok(runs);
                }
                if !has_more {
                    break;
                }
            }
        }
        Ok(Vec::new())
    }

    /// Claims one occurrence that a worker read from its queue: the claim on Redis. The lease is durable when this
    /// returns, and so is what a refusal changed.
    ///
    /// # Errors
    /// [`CallError::NotClaimed`], after which the entry is settled unless the queue was not heard of yet; a [`Refusal`], or
    /// see [`CallError`].
    pub async fn claim_occurrence(
        &self,
        id: OccurrenceId,
        schedule: ScheduleId,
        worker: &str,
        lease: Duration,
    ) -> Result<ClaimedRun, CallError> {
        let claimant = claimant(worker, lease, false)?;
        let queue = self.queue.clone();
        let ask = |reply| Ask::Run(RunAsk::ClaimOne { id, schedule, queue, claimant, reply });
        self.ask(self.shard_of(schedule), ask).await?.map_err(CallError::NotClaimed)
    }

    /// Extends leases, each by so many milliseconds (1,000 to 86,400,000) from now. The answers in order.
    ///
    /// # Errors
    /// A [`Refusal`] of all of them, or see [`CallError`].
    pub async fn heartbeat(&self, beats: Vec<Speaking<u64>>) -> Result<Vec<Result<Beat, RunError>>, CallError> {
        for beat in &beats {
            check_lease(i64::try_from(beat.said).unwrap_or(i64::MAX))?;
        }
        self.speak(beats, |beats, queue, reply| RunAsk::Heartbeat { beats, queue, reply }).await
    }

    /// Workers completed their runs; each may say where its result is (up to 1,024 bytes). Durable when this returns;
    /// said again, it answers the same. The answers in order.
    ///
    /// # Errors
    /// A [`Refusal`] of all of them, or see [`CallError`].
    pub async fn complete(
        &self,
        done: Vec<Speaking<Option<String>>>,
    ) -> Result<Vec<Result<State, RunError>>, CallError> {
        self.speak(done, |done, queue, reply| RunAsk::Complete { done, queue, reply }).await
    }

    /// Workers' runs failed. Durable when this returns; said again, it answers the same. The answers in order.
    ///
    /// # Errors
    /// A [`Refusal`] of all of them, or see [`CallError`].
    pub async fn fail(&self, failed: Vec<Speaking<FailedRun>>) -> Result<Vec<Result<Outcome, RunError>>, CallError> {
        self.speak(failed, |failed, queue, reply| RunAsk::Fail { failed, queue, reply }).await
    }

    /// Says something about runs to the shards that granted their leases, to all of them at once.
    async fn speak<Said, T: 'static>(
        &self,
        said: Vec<Speaking<Said>>,
        ask: impl Fn(Vec<Speaking<Said>>, Option<Arc<str>>, ReplyTo<Vec<Result<T, RunError>>>) -> RunAsk,
    ) -> Result<Vec<Result<T, RunError>>, CallError> {
        if said.len() > RUNS_AT_MOST {
            let message = format!("{} runs in one call: give 1 to {RUNS_AT_MOST}", said.len());
            return Err(Refusal::new(RefusalCode::Invalid, "runs", message).into());
        }
        let shards: Vec<usize> = said.iter().map(|one| usize::from(one.token.shard)).collect();
        let mut by_shard: Vec<Vec<Speaking<Said>>> = (0..self.shards()).map(|_| Vec::new()).collect();
        for one in said {
            // A token of a shard that there is not was never granted.
            if let Some(of_shard) = by_shard.get_mut(usize::from(one.token.shard)) {
                of_shard.push(one);
            }
        }
        let ask = &ask;
        let asked = by_shard.into_iter().enumerate().map(|(shard, said)| async move {
            if said.is_empty() {
                return Ok(Vec::new());
            }
            self.ask(shard, |reply| Ask::Run(ask(said, self.queue.clone(), reply))).await
        });
        let mut answers = Vec::with_capacity(self.shards());
        for answer in futures_util::future::join_all(asked).await {
            answers.push(answer?.into_iter());
        }
        let answer =
            |shard: usize| answers.get_mut(shard).and_then(Iterator::next).unwrap_or(Err(RunError::StaleLease));
        Ok(shards.into_iter().map(answer).collect())
    }

    /// Gives a DEAD occurrence its attempts anew, under the same id.
    ///
    /// # Errors
    /// [`CallError::WrongState`] where it is not DEAD, [`CallError::Canceled`] where its schedule was deleted, or see
    /// [`CallError`].
    pub async fn replay(&self, id: OccurrenceId) -> Result<Occurrence, CallError> {
        let shard = self.shard_with(id).await?;
        let tenant = self.tenant.clone();
        let replayed = self.ask(shard, |reply| Ask::Run(RunAsk::Replay { id, tenant, reply })).await?;
        replayed.map_err(|refusal| review_error(refusal, State::Dead))
    }

    /// A person's decision about a HELD occurrence: it runs once more, succeeded, or is dead. Reviewer and note have 1 to
    /// 1,024 bytes; the note may be empty.
    ///
    /// # Errors
    /// [`CallError::WrongState`] where it is not HELD, [`CallError::Canceled`] where its schedule was deleted and it was to
    /// run, a [`Refusal`], or see [`CallError`].
    pub async fn resolve(&self, id: OccurrenceId, decided: Decided) -> Result<Occurrence, CallError> {
        check_text("reviewer", &decided.reviewer, 1)?;
        check_text("note", &decided.note, 0)?;
        let shard = self.shard_with(id).await?;
        let tenant = self.tenant.clone();
        let resolved = self.ask(shard, |reply| Ask::Run(RunAsk::Resolve { id, tenant, decided, reply })).await?;
        resolved.map_err(|refusal| review_error(refusal, State::Held))
    }

    /// The evidence about an occurrence, and what it allows.
    ///
    /// # Errors
    /// [`CallError::NoOccurrence`], [`CallError::Archived`], or see [`CallError`].
    pub async fn evidence(&self, id: OccurrenceId) -> Result<(Evidence, Decision), CallError> {
        let shard = self.shard_with(id).await?;
        let tenant = self.tenant.clone();
        let evidence = self.ask(shard, |reply| Ask::Run(RunAsk::Evidence { id, tenant, reply })).await?;
        let evidence = evidence.ok_or(CallError::NoOccurrence)?;
        let decision = evidence::decide(&evidence);
        Ok((evidence, decision))
    }

    /// What is DEAD or HELD, of one tenant or of all. `limit` is 1 to 500.
    ///
    /// # Errors
    /// A cursor that is not one, [`CallError::ForeignTenant`], or see [`CallError`].
    pub async fn pile(
        &self,
        pile: Pile,
        tenant: Option<&str>,
        limit: usize,
        cursor: Option<String>,
    ) -> Result<Page<Occurrence>, CallError> {
        if let Some(tenant) = tenant {
            check_name(tenant)
                .map_err(|problem| Refusal::new(RefusalCode::Invalid, "tenant", format!("tenant {problem}")))?;
            self.check_tenant(tenant)?;
        }
        let tenant: Option<Arc<str>> = tenant.map(Into::into).or_else(|| self.tenant.clone());
        let (shard, mut after) = paging::pile_place(cursor.as_deref(), self.shards())?;
        let limit = limit.clamp(1, 500);
        let mut items = Vec::new();
        for shard in shard..self.shards() {
            let (tenant, after, left) = (tenant.clone(), after.take(), limit - items.len());
            let ask = |reply| Ask::Run(RunAsk::Pile { pile, tenant, after, limit: left, reply });
            let page = self.ask(shard, ask).await?;
            items.extend(page.items);
            let next = page.next.map(|place| (shard, Some(place)));
            if next.is_some() || items.len() == limit {
                let next = next.or(Some((shard + 1, None)).filter(|(shard, _)| *shard < self.shards()));
                return Ok(Page { items, next_cursor: next.map(paging::pile_cursor) });
            }
        }
        Ok(Page { items, next_cursor: None })
    }

    /// Nobody waits for work any more: claims that do are answered with nothing.
    pub(crate) fn end_waiting(&self) {
        self.running().arrivals.close();
    }

    /// Whether [`Engine::stop`] was called.
    pub(crate) fn is_stopping(&self) -> bool {
        self.running().arrivals.is_closed()
    }

    fn asked(&self, queue: &str, claim: &Claim) -> Result<Asked, CallError> {
        let refuse = |field, message| Err(Refusal::new(RefusalCode::Invalid, field, message).into());
        check_name(queue).map_err(|problem| Refusal::new(RefusalCode::Invalid, "queue", format!("queue {problem}")))?;
        if self.bound_queue().is_some_and(|bound| bound != queue) {
            return Err(CallError::ForeignQueue);
        }
        if !self.running().is_local {
            return Err(CallError::NoLocalQueue);
        }
        if !(1..=CLAIM_LIMIT).contains(&claim.max) {
            return refuse("max", format!("max {} is out of range 1-{CLAIM_LIMIT}", claim.max));
        }
        if claim.wait > Duration::from_millis(WAIT_MS_AT_MOST) {
            let ms = claim.wait.as_millis();
            return refuse("wait_ms", format!("wait_ms {ms} is out of range 0-{WAIT_MS_AT_MOST}"));
        }
        let claim_id = claim.claim_id.as_deref().map(checked_claim_id).transpose()?;
        let claimant = claimant(&claim.worker, claim.lease, claim.is_in_process)?;
        let claimant = Claimant { claim_id, ..claimant };
        Ok(Asked { queue: queue.into(), max: claim.max, claimant })
    }
}

fn claimant(worker: &str, lease: Duration, is_in_process: bool) -> Result<Claimant, Refusal> {
    check_text("worker", worker, 1)?;
    if worker.len() > 255 {
        let message = format!("worker has {} bytes: give 1 to 255", worker.len());
        return Err(Refusal::new(RefusalCode::Invalid, "worker", message));
    }
    if worker.chars().any(char::is_control) {
        let message = "worker has control characters: leave them out".to_owned();
        return Err(Refusal::new(RefusalCode::Invalid, "worker", message));
    }
    let lease_ms = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
    check_lease(lease_ms)?;
    Ok(Claimant { worker: worker.into(), lease_ms: lease_ms.unsigned_abs(), is_in_process, claim_id: None })
}

fn checked_claim_id(id: &str) -> Result<Arc<str>, Refusal> {
    let problem = if !(1..=CLAIM_ID_BYTES).contains(&id.len()) {
        format!("claim_id has {} bytes: give 1 to {CLAIM_ID_BYTES}", id.len())
    } else if let Some(bad) = id.chars().find(|c| c.is_control() || turns_text(*c)) {
        format!(
            "claim_id has the character {:?}: leave control and text direction characters out",
            bad.escape_unicode().to_string()
        )
    } else {
        return Ok(id.into());
    };
    Err(Refusal::new(RefusalCode::Invalid, "claim_id", problem))
}

/// Whether a character changes the direction of the text behind it.
const fn turns_text(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn check_lease(lease_ms: i64) -> Result<(), Refusal> {
    if (LEASE_MS_AT_LEAST..=LEASE_MS_AT_MOST).contains(&lease_ms) {
        return Ok(());
    }
    let message = format!("lease_ms {lease_ms} is out of range {LEASE_MS_AT_LEAST}-{LEASE_MS_AT_MOST}");
    Err(Refusal::new(RefusalCode::Invalid, "lease_ms", message))
}

fn check_text(field: &'static str, text: &str, at_least: usize) -> Result<(), Refusal> {
    if !(at_least..=1_024).contains(&text.len()) {
        let message = format!("{field} has {} bytes: give {at_least} to 1024", text.len());
        return Err(Refusal::new(RefusalCode::Invalid, field, message));
    }
    if text.chars().any(|c| c.is_control() && c != '\n' && c != '\t') {
        return Err(Refusal::new(
            RefusalCode::Invalid,
            field,
            format!("{field} has control characters: leave them out"),
        ));
    }
    Ok(())
}

fn review_error(refusal: ReviewRefusal, needed: State) -> CallError {
    match refusal {
        ReviewRefusal::NotFound => CallError::NoOccurrence,
        ReviewRefusal::State(state) => CallError::WrongState { state, needed },
        ReviewRefusal::ScheduleCanceled => CallError::Canceled,
    }
}

/// How a worker speaks of one run.
impl<Said> Speaking<Said> {
    /// About the attempt on `occurrence` that `token` was granted for.
    #[must_use]
    pub const fn new(occurrence: OccurrenceId, token: LeaseToken, said: Said) -> Self {
        Self { occurrence, token, said }
    }
}
