//! What changes schedules: create, update, pause, resume, cancel, trigger, backfill.

use crate::{
    engine::Engine,
    error::{CallError, Refusal, RefusalCode},
    kernel::{
        calendar::{
            Warning,
            preview::{Previewed, Window, preview},
        },
        changes::{Changes, NewSchedule},
        id::{OccurrenceId, ScheduleId},
        occurrence::Occurrence,
        resolve::{Rules, resolve, resolve_changes},
        schedule::{Rule, Schedule, ScheduleState, Spec},
        shard::{Creation, Target},
        time::UnixMs,
    },
    shell::ask::Ask,
};

pub use crate::kernel::shard::{Backfilled, Pending, Receipted, Triggered};

/// How often a call starts again when another one came between its reading and its writing.
const ROUNDS: usize = 16;

/// A schedule with remarks on its rule.
#[derive(Clone, Debug)]
pub struct Described {
    /// The schedule; its `next` has up to five instants.
    pub schedule: Schedule,
    /// Remarks on the rule.
    pub warnings: Vec<Warning>,
}

/// What a keyed create answers.
#[derive(Clone, Debug)]
pub struct Made {
    /// The schedule.
    pub schedule: Schedule,
    /// Whether this call made it; otherwise it stood there already, just as described.
    pub is_new: bool,
}

/// How an update is meant.
#[derive(Clone, Copy, Debug, Default)]
pub struct Update {
    /// Only if this is the version that stands.
    pub if_version: Option<u32>,
    /// What becomes of what is due and has not run.
    pub pending: Pending,
}

impl Engine {
    /// Makes a schedule under a random id. It is durable when this returns.
    ///
    /// # Errors
    /// A [`Refusal`] that names the field, or see [`CallError`].
    pub async fn create(&self, new: NewSchedule) -> Result<Described, CallError> {
        self.check_tenant(&new.tenant)?;
        let spec = self.resolved(new).await?;
        let id = ScheduleId::from_random(random_bytes()?);
        let creation = Creation { id, spec, is_keyed: false };
        let schedule = self.create_in_shard(creation).await?;
        Ok(self.describe(schedule))
    }

    /// Makes the schedule that `key` (1 to 255 bytes) stands for, or finds that it stands there just as described: a
    /// call can be repeated until it is answered. Once the schedule was canceled, the key begins a new life.
    ///
    /// # Errors
    /// [`CallError::IdempotencyConflict`] if it stands there otherwise described; or as [`Engine::create`].
    pub async fn create_keyed(&self, key: &str, new: NewSchedule) -> Result<Made, CallError> {
        check_key(key)?;
        self.check_tenant(&new.tenant)?;
        let id = ScheduleId::from_key(&new.tenant, key);
        for _ in 0..ROUNDS {
            let existing = match self.read(id).await {
                Ok(schedule) => Some(schedule).filter(|schedule| schedule.state != ScheduleState::Canceled),
                Err(CallError::NotFound) => None,
                Err(error) => return Err(error),
            };
            if let Some(schedule) = existing {
                return self.as_described(schedule, &new);
            }
            let spec = self.resolved(new.clone()).await?;
            match self.create_in_shard(Creation { id, spec, is_keyed: true }).await {
                Ok(schedule) => return Ok(Made { schedule, is_new: true }),
                // Another call with this key came between.
                Err(CallError::IdempotencyConflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(CallError::Overloaded)
    }

    pub(super) fn as_described(&self, schedule: Schedule, new: &NewSchedule) -> Result<Made, CallError> {
        let rule = new.rule.completed_by(&schedule.spec.rule, schedule.spec.at_local.as_ref());
        let said = Changes { rule: Some(rule), ..new.rest.clone() };
        let described = resolve_changes(&schedule.spec, &said, self.now(), &self.running().rules);
        if described.is_ok_and(|spec| spec == schedule.spec) {
            return Ok(Made { schedule, is_new: false });
        }
        Err(CallError::IdempotencyConflict { version: schedule.version })
    }

    async fn create_in_shard(&self, creation: Creation) -> Result<Schedule, CallError> {
        let creation = Box::new(creation);
        self.ask(self.shard_of(creation.id), |reply| Ask::Create { creation, reply }).await
    }

    /// Puts what is said onto the schedule as it stands. Instants up to the call's time belong to the old version,
    /// later ones to the new; what had been made for later is canceled. A call that changes nothing makes no version.
    ///
    /// # Errors
    /// [`CallError::VersionMismatch`], [`CallError::Canceled`], a [`Refusal`], or see [`CallError`].
    pub async fn update(&self, id: ScheduleId, changes: Changes, how: Update) -> Result<Receipted, CallError> {
        for _ in 0..ROUNDS {
            let before = self.read(id).await?;
            if let Some(expected) = how.if_version.filter(|expected| *expected != before.version) {
                return Err(CallError::VersionMismatch { expected, current: before.version });
            }
            let (version, now, rules) = (before.version, self.now(), self.running().rules.clone());
            let changes = changes.clone();
            let resolved =
                tokio::task::spawn_blocking(move || resolve_changes(&before.spec, &changes, now, &rules)).await;
            let spec = Box::new(resolved.map_err(|_| CallError::Stopping)??);
            let target = self.target(id);
            let pending = how.pending;
            let updated = self.ask(self.shard_of(id), |reply| Ask::Update { target, spec, version, pending, reply });
            match updated.await {
                // Another call came between: say it again of what stands now.
                Err(CallError::VersionMismatch { .. }) if how.if_version.is_none() => {}
                answer => return answer,
            }
        }
        Err(CallError::Overloaded)
    }

    /// Nothing of it is decided until it is resumed; what has not run is canceled. Repeated: the same schedule and an
    /// empty receipt.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn pause(&self, id: ScheduleId) -> Result<Receipted, CallError> {
        let target = self.target(id);
        self.ask(self.shard_of(id), |reply| Ask::Pause { target, reply }).await
    }

    /// Goes on with the first instant after now. Repeated: the same schedule and an empty receipt.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn resume(&self, id: ScheduleId) -> Result<Receipted, CallError> {
        let target = self.target(id);
        self.ask(self.shard_of(id), |reply| Ask::Resume { target, reply }).await
    }

    /// Ends a schedule; its history stays. Repeated: the same schedule and an empty receipt.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn cancel(&self, id: ScheduleId) -> Result<Receipted, CallError> {
        let target = self.target(id);
        self.ask(self.shard_of(id), |reply| Ask::Cancel { target, reply }).await
    }

    /// Makes an occurrence now, beside the schedule's own instants. Repeated with the same key (1 to 255 bytes) within
    /// 24 hours, it answers the same occurrence.
    ///
    /// # Errors
    /// [`CallError::Canceled`], or see [`CallError`].
    pub async fn trigger(&self, id: ScheduleId, key: Option<&str>) -> Result<Triggered, CallError> {
        let (target, discriminator) = (self.target(id), discriminator(key)?);
        let is_keyed = key.is_some();
        self.ask(self.shard_of(id), |reply| Ask::Trigger { target, discriminator, is_keyed, reply }).await
    }

    /// Runs the rule's instants in `[from, to)` again, at the catch-up rate, under ids of their own; at most 100,000 and
    /// none later than now. Repeated with the same key within 24 hours, it answers the same and makes nothing.
    ///
    /// # Errors
    /// [`CallError::Canceled`], a [`Refusal`], or see [`CallError`].
    pub async fn backfill(
        &self,
        id: ScheduleId,
        (from, to): (UnixMs, UnixMs),
        key: Option<&str>,
    ) -> Result<Backfilled, CallError> {
        let (target, discriminator) = (self.target(id), discriminator(key)?);
        let is_keyed = key.is_some();
        let window = (from, to);
        self.ask(self.shard_of(id), |reply| Ask::Backfill { target, window, discriminator, is_keyed, reply }).await
    }

    /// What is another tenant's is not there.
    pub(super) fn check_tenant(&self, tenant: &str) -> Result<(), CallError> {
        match self.bound_tenant() {
            Some(bound) if bound != tenant => Err(CallError::ForeignTenant),
            _ => Ok(()),
        }
    }

    pub(super) fn target(&self, id: ScheduleId) -> Target {
        Target { id, tenant: self.tenant.clone() }
    }

    /// Judging a rule may walk years of days: not on the caller's runtime.
    async fn resolved(&self, new: NewSchedule) -> Result<Spec, CallError> {
        let (rules, now) = (self.running().rules.clone(), self.now());
        let resolved = tokio::task::spawn_blocking(move || resolve(&new, now, &rules)).await;
        Ok(resolved.map_err(|_| CallError::Stopping)??)
    }

    pub(crate) fn describe(&self, schedule: Schedule) -> Described {
        let warnings = self.warnings(&schedule.spec, schedule.updated_at);
        Described { schedule, warnings }
    }

    fn warnings(&self, spec: &Spec, from: UnixMs) -> Vec<Warning> {
        let Rule::Cron(cron) = &spec.rule else { return Vec::new() };
        let Ok(rule) = self.running().rules.cron(cron) else { return Vec::new() };
        let window = Window { from, start_at: spec.start_at, end_at: spec.end_at, count: 5 };
        preview(Previewed::Cron(&rule), &window).warnings
    }
}

pub(super) fn check_key(key: &str) -> Result<(), Refusal> {
    if (1..=255).contains(&key.len()) {
        return Ok(());
    }
    let message = format!("the key has {} bytes: give 1 to 255", key.len());
    Err(Refusal::new(RefusalCode::Invalid, "Idempotency-Key", message))
}

/// What tells two requests apart: the caller's key, else 16 random bytes.
fn discriminator(key: Option<&str>) -> Result<Vec<u8>, CallError> {
    match key {
        Some(key) => {
            check_key(key)?;
            Ok(key.as_bytes().to_vec())
        }
        None => Ok(random_bytes()?.to_vec()),
    }
}

pub(super) fn random_bytes() -> Result<[u8; 16], CallError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| CallError::Overloaded)?;
    Ok(bytes)
}

/// Where an occurrence may be: its id does not say.
impl Engine {
    /// One occurrence, wherever it is.
    ///
    /// # Errors
    /// [`CallError::NoOccurrence`], [`CallError::Archived`], or see [`CallError`].
    pub async fn occurrence(&self, id: OccurrenceId) -> Result<Occurrence, CallError> {
        Ok(self.find(id).await?.1)
    }

    /// The shard that knows an occurrence which the caller may see.
    pub(super) async fn shard_with(&self, id: OccurrenceId) -> Result<usize, CallError> {
        Ok(self.find(id).await?.0)
    }

    async fn find(&self, id: OccurrenceId) -> Result<(usize, Occurrence), CallError> {
        let mut is_forgetful = false;
        for shard in 0..self.shards() {
            let looked_up = self.ask(shard, |reply| Ask::Occurrence { id, reply }).await?;
            if let Some(found) = looked_up.occurrence {
                let is_seen = self.bound_tenant().is_none_or(|tenant| tenant == found.tenant);
                return if is_seen { Ok((shard, found)) } else { Err(CallError::NoOccurrence) };
            }
            is_forgetful |= looked_up.has_forgotten;
        }
        // To a caller who may not see everything, what is another's and what never was are one.
        let may_have_been = id.is_well_formed() && id.scheduled_for() <= self.now() && is_forgetful;
        Err(if may_have_been && self.bound_tenant().is_none() { CallError::Archived } else { CallError::NoOccurrence })
    }
}
