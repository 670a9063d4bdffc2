//! A worker of this process: it claims occurrences of one queue from the embedded queue, and keeps their leases alive as
//! long as their handlers run.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst},
    },
    time::Duration,
};

use hashbrown::HashMap;
use tokio::sync::Notify;

use crate::{
    engine::{
        Engine,
        runs::{Beat, Claim, ClaimedRun, FailedRun, FailureClass, RUNS_AT_MOST, Speaking, WAIT_MS_AT_MOST},
    },
    error::{CallError, RunError},
    kernel::{
        id::{Kind, OccurrenceId, ScheduleId},
        lease::LeaseToken,
        time::UnixMs,
    },
};

/// How long to wait before a claim is repeated that the engine could not take.
const AGAIN: Duration = Duration::from_millis(20);
/// How often leases are extended where the clock moves only when told to.
const BEAT_OF_A_STANDING_CLOCK: Duration = Duration::from_millis(20);

static NAMED: AtomicU64 = AtomicU64::new(1);

/// Claims occurrences of one queue from the embedded queue, in process. Several workers of one queue share its work.
#[derive(Debug)]
pub struct Worker {
    engine: Engine,
    queue: String,
    claim: Claim,
    claimed: VecDeque<Run>,
    keeper: Arc<Keeper>,
}

impl Worker {
    pub(crate) fn new(engine: Engine, queue: String) -> Self {
        let claim = Claim {
            wait: Duration::from_millis(WAIT_MS_AT_MOST),
            is_in_process: true,
            ..Claim::new(format!("in-process-{}", NAMED.fetch_add(1, Relaxed)))
        };
        Self { keeper: Keeper::start(&engine, claim.lease), engine, queue, claim, claimed: VecDeque::new() }
    }

    /// How long a lease lasts when this process stops extending it, 1 s to 24 h. Default: 60 s.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.claim.lease = lease;
        self.keeper = Keeper::start(&self.engine, lease);
        self
    }

    /// How many runs are claimed at once, 1 to 1,000. What is claimed ahead counts as running, for overlap and quotas too:
    /// more is for short handlers. Default: 1.
    #[must_use]
    pub const fn ahead(mut self, runs: usize) -> Self {
        self.claim.max = runs;
        self
    }

    /// The next run, as soon as there is one; `None` once the engine is stopping. Its lease is durable, and is extended
    /// until the run is answered for or dropped.
    ///
    /// # Errors
    /// A [`crate::error::Refusal`] of what this worker was set to.
    pub async fn next(&mut self) -> Option<Run> {
        loop {
            if let Some(run) = self.claimed.pop_front() {
                return Some(run);
            }
            match self.engine.claim(&self.queue, &self.claim).await {
                Ok(runs) => {
                    self.claimed.extend(runs.into_iter().map(|run| self.keeper.keep(run)));
                    if self.claimed.is_empty() && self.engine.is_stopping() {
                        return None;
                    }
                }
                Err(CallError::Overloaded | CallError::DiskFull) => tokio::time::sleep(AGAIN).await,
                Err(CallError::Stopping | CallError::Poisoned(_)) => return None,
                Err(error) => {
                    tracing::error!(%error, queue = self.queue, "a worker's claim is refused");
                    return None;
                }
            }
        }
    }
}

/// One attempt at an occurrence. Dropped without an answer, its lease runs out, and what it did counts as unknown: delivery
/// is at least once, so a handler uses [`Run::occurrence_id`] as idempotency key.
#[derive(Debug)]
pub struct Run {
    claimed: ClaimedRun,
    signal: Arc<Signal>,
    keeper: Arc<Keeper>,
}

impl Run {
    /// The occurrence: the same however often it is delivered.
    #[must_use]
    pub const fn occurrence_id(&self) -> OccurrenceId {
        self.claimed.occurrence_id
    }

    /// The schedule that made it.
    #[must_use]
    pub const fn schedule_id(&self) -> ScheduleId {
        self.claimed.schedule_id
    }

    /// The schedule's version that made it.
    #[must_use]
    pub const fn version(&self) -> u32 {
        self.claimed.version
    }

    /// Whose it is.
    #[must_use]
    pub fn tenant(&self) -> &str {
        &self.claimed.tenant
    }

    /// What made it: the rule, a manual trigger, or a backfill.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.claimed.kind
    }

    /// The nominal instant.
    #[must_use]
    pub const fn scheduled_for(&self) -> UnixMs {
        self.claimed.scheduled_for
    }

    /// When it could enter the queue.
    #[must_use]
    pub const fn available_at(&self) -> UnixMs {
        self.claimed.available_at
    }

    /// Which attempt this is, from 1.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.claimed.attempt
    }

    /// No attempt begins later than this; one that runs is not cut.
    #[must_use]
    pub const fn deadline(&self) -> Option<UnixMs> {
        self.claimed.deadline
    }

    /// The schedule's bytes.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.claimed.payload
    }

    /// Whether the handler is asked to stop: the schedule was deleted. [`FailureClass::Canceled`] is a valid answer then.
    #[must_use]
    pub fn is_cancel_requested(&self) -> bool {
        self.signal.cancel.load(SeqCst)
    }

    /// Whether the lease is another's or over: whatever this handler answers is refused.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.signal.lost.load(SeqCst)
    }

    /// Waits until the handler is asked to stop, or the lease is lost.
    pub async fn stop_requested(&self) {
        loop {
            let told = self.signal.told.notified();
            if self.is_cancel_requested() || self.is_lost() {
                return;
            }
            told.await;
        }
    }

    /// Extends the lease now, and asks whether the handler is to stop: right before an effect that cannot be undone.
    ///
    /// # Errors
    /// [`CallError::Run`] once the lease is lost, or see [`CallError`].
    pub async fn heartbeat(&self) -> Result<Beat, CallError> {
        let lease_ms = u64::try_from(self.keeper.lease.as_millis()).unwrap_or(u64::MAX);
        let beat = one(self.keeper.engine.heartbeat(vec![self.speak(lease_ms)]).await?);
        self.signal.take(beat);
        Ok(beat?)
    }

    /// Records that it is done; durable when this returns.
    ///
    /// # Errors
    /// [`CallError::Run`] once the lease is lost; until this returned without an error, the occurrence may come again.
    pub async fn complete(self) -> Result<(), CallError> {
        one(self.keeper.engine.complete(vec![self.speak(None)]).await?)?;
        Ok(())
    }

    /// Records that it is done, and where its result is (up to 1,024 bytes).
    ///
    /// # Errors
    /// As [`Run::complete`], and [`RunError::ResultTooLong`].
    pub async fn complete_with(self, result_ref: impl Into<String>) -> Result<(), CallError> {
        one(self.keeper.engine.complete(vec![self.speak(Some(result_ref.into()))]).await?)?;
        Ok(())
    }

    /// Records that it failed; the schedule's retry policy says what follows.
    ///
    /// # Errors
    /// As [`Run::complete`], and [`RunError::NotAskedToStop`].
    pub async fn fail(self, class: FailureClass, message: impl Into<String>) -> Result<(), CallError> {
        let said = FailedRun { class, message: Some(message.into()) };
        one(self.keeper.engine.fail(vec![self.speak(said)]).await?)?;
        Ok(())
    }

    const fn speak<Said>(&self, said: Said) -> Speaking<Said> {
        Speaking::new(self.claimed.occurrence_id, self.claimed.lease_token, said)
    }
}

/// Its lease is not extended any more.
impl Drop for Run {
    fn drop(&mut self) {
        self.keeper.runs().remove(&(self.claimed.occurrence_id, self.claimed.lease_token));
    }
}

/// One was asked about.
fn one<T>(mut answers: Vec<Result<T, RunError>>) -> Result<T, RunError> {
    answers.pop().unwrap_or(Err(RunError::StaleLease))
}

/// What heartbeats said of a run.
#[derive(Debug, Default)]
struct Signal {
    cancel: AtomicBool,
    lost: AtomicBool,
    told: Notify,
}

impl Signal {
    fn take(&self, beat: Result<Beat, RunError>) {
        match beat {
            Ok(Beat { cancel_requested: false, .. }) => return,
            Ok(Beat { cancel_requested: true, .. }) => self.cancel.store(true, SeqCst),
            Err(_) => self.lost.store(true, SeqCst),
        }
        self.told.notify_waiters();
    }
}

type LiveRuns = HashMap<(OccurrenceId, LeaseToken), Arc<Signal>>;

/// Extends the leases of a worker's runs, three times a lease.
#[derive(Debug)]
struct Keeper {
    engine: Engine,
    lease: Duration,
    live: Mutex<LiveRuns>,
}

impl Keeper {
    /// A keeper whose task ends when the worker and all its runs are gone.
    fn start(engine: &Engine, lease: Duration) -> Arc<Self> {
        let keeper = Arc::new(Self { engine: engine.clone(), lease, live: Mutex::default() });
        tokio::spawn(Self::beat_on(Arc::downgrade(&keeper)));
        keeper
    }

    async fn beat_on(keeper: Weak<Self>) {
        while let Some(pause) = keeper.upgrade().map(|keeper| keeper.pause()) {
            tokio::time::sleep(pause).await;
            if let Some(keeper) = keeper.upgrade() {
                keeper.beat().await;
            }
        }
    }

    /// A third of a lease, as the world's clock has it.
    fn pause(&self) -> Duration {
        let clock = &self.engine.running().clock;
        let third_ms = i64::try_from(self.lease.as_millis() / 3).unwrap_or(i64::MAX);
        let pause = clock.until(clock.now().plus(third_ms)).unwrap_or(BEAT_OF_A_STANDING_CLOCK);
        pause.max(Duration::from_millis(1))
    }

    async fn beat(&self) {
        let lease_ms = u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX);
        let live: Vec<_> = self.runs().iter().map(|(run, signal)| (*run, Arc::clone(signal))).collect();
        for some in live.chunks(RUNS_AT_MOST) {
            let beats = some.iter().map(|((id, token), _)| Speaking::new(*id, *token, lease_ms)).collect();
            // What is not heard is said again in a third of a lease.
            let Ok(answers) = self.engine.heartbeat(beats).await else { return };
            for ((_, signal), answer) in some.iter().zip(answers) {
                signal.take(answer);
            }
        }
    }

    fn keep(self: &Arc<Self>, claimed: ClaimedRun) -> Run {
        let signal = Arc::<Signal>::default();
        self.runs().insert((claimed.occurrence_id, claimed.lease_token), Arc::clone(&signal));
        Run { claimed, signal, keeper: Arc::clone(self) }
    }

    fn runs(&self) -> std::sync::MutexGuard<'_, LiveRuns> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
