//! What is set for tenants and queues, and what is due and waits.

use tokio::sync::oneshot;

use crate::{
    engine::Engine,
    error::{CallError, Refusal, RefusalCode},
    kernel::{
        id::check_name,
        shard::{AGES_MS, DueBacklog},
        tenant::Revised,
        time::UnixMs,
    },
    shell::ask::{Ask, ReplyTo},
};

pub use crate::kernel::tenant::{QueueSettings, Quotas, TenantSettings};

/// What is due and was not handed to its queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Backlog {
    /// By how long it has been due; the shortest first.
    pub buckets: Vec<BacklogBucket>,
    /// Since when the oldest has been due.
    pub oldest_unprocessed: Option<UnixMs>,
    /// How long it takes at the pace of the last seconds; `None` where nothing moved.
    pub drain_seconds: Option<f64>,
}

/// What has been due for about as long, by lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BacklogBucket {
    /// Due for less than this, and not in the bucket before; `None`: for an hour and longer.
    pub below_ms: Option<i64>,
    /// In the strict lane.
    pub strict: u64,
    /// In the flexible lane.
    pub flexible: u64,
    /// In the catch-up lane.
    pub catch_up: u64,
}

impl Engine {
    /// What is set for a tenant; the defaults where nothing was.
    ///
    /// # Errors
    /// A name that is none; [`CallError::ForeignTenant`] for a handle that is bound to another tenant.
    pub fn tenant(&self, name: &str) -> Result<TenantSettings, CallError> {
        check("tenant", name)?;
        if self.bound_tenant().is_some_and(|bound| bound != name) {
            return Err(CallError::ForeignTenant);
        }
        Ok(self
            .running()
            .ledger
            .known_tenant(name)
            .map_or_else(Default::default, |account| account.settings().settings))
    }

    /// Sets what holds for a tenant, in every shard. It is durable when this returns; after an error it may hold or
    /// not: set it again.
    ///
    /// # Errors
    /// A [`Refusal`] that names the field; [`CallError::ForeignTenant`] for a handle that is bound to a tenant; or see
    /// [`CallError`].
    pub async fn set_tenant(&self, name: &str, settings: TenantSettings) -> Result<TenantSettings, CallError> {
        check("tenant", name)?;
        settings.check()?;
        self.check_unbound()?;
        let ledger = &self.running().ledger;
        let _turn = ledger.setting.lock().await;
        let account = ledger.tenant(name);
        let set = Revised { revision: account.next_revision(), settings };
        self.ask_every_shard(|reply| Ask::SetTenant { name: name.into(), set, reply }).await?;
        account.set(set);
        Ok(settings)
    }

    /// What is set for a queue; the defaults where nothing was.
    ///
    /// # Errors
    /// A name that is none; [`CallError::ForeignTenant`] for a handle that is bound to a tenant.
    pub fn queue(&self, name: &str) -> Result<QueueSettings, CallError> {
        check("queue", name)?;
        self.check_unbound()?;
        Ok(self.running().ledger.known_queue(name).map_or_else(Default::default, |target| target.settings().settings))
    }

    /// Sets what holds for a queue, in every shard. It is durable when this returns; after an error it may hold or not:
    /// set it again.
    ///
    /// # Errors
    /// As [`Engine::set_tenant`].
    pub async fn set_queue(&self, name: &str, settings: QueueSettings) -> Result<QueueSettings, CallError> {
        check("queue", name)?;
        settings.check()?;
        self.check_unbound()?;
        let ledger = &self.running().ledger;
        let _turn = ledger.setting.lock().await;
        let target = ledger.queue(name);
        let set = Revised { revision: target.next_revision(), settings };
        self.ask_every_shard(|reply| Ask::SetQueue { name: name.into(), set, reply }).await?;
        target.set(set);
        Ok(settings)
    }

    /// What is due and waits, as the shards said a moment ago.
    ///
    /// # Errors
    /// [`CallError::ForeignTenant`] for a handle that is bound to a tenant.
    pub fn backlog(&self) -> Result<Backlog, CallError> {
        self.check_unbound()?;
        let (mut due, mut per_second) = (DueBacklog::default(), 0.0);
        for status in self.statuses() {
            due.add(&status.metrics.backlog);
            per_second += status.enqueued_per_second;
        }
        let limits = AGES_MS.iter().copied().map(Some).chain([None]);
        let buckets = limits.zip(due.by_age).map(|(below_ms, [strict, flexible, catch_up])| BacklogBucket {
            below_ms,
            strict,
            flexible,
            catch_up,
        });
        let drain_seconds = match due.len() {
            0 => Some(0.0),
            // Less than one in ten seconds is no pace to foretell by.
            waiting => (per_second > 0.1).then(|| waiting as f64 / per_second),
        };
        Ok(Backlog { buckets: buckets.collect(), oldest_unprocessed: due.oldest, drain_seconds })
    }

    /// What is set for everybody is not there for a handle that is bound to a tenant.
    fn check_unbound(&self) -> Result<(), CallError> {
        if self.bound_tenant().is_some() { Err(CallError::ForeignTenant) } else { Ok(()) }
    }

    /// Asks all shards, waiting for room in their mailboxes, and for all their answers.
    async fn ask_every_shard(&self, ask: impl Fn(ReplyTo<()>) -> Ask) -> Result<(), CallError> {
        let mut answers = Vec::new();
        for shard in &self.running().shards {
            let (reply, answer) = oneshot::channel();
            shard.send(ask(reply)).await.map_err(|_| self.ended())?;
            answers.push(answer);
        }
        let mut outcome = Ok(());
        for answer in answers {
            outcome = outcome.and(answer.await.unwrap_or_else(|_| Err(self.ended())));
        }
        outcome
    }
}

fn check(field: &str, name: &str) -> Result<(), Refusal> {
    check_name(name).map_err(|problem| Refusal::new(RefusalCode::Invalid, field, format!("{field} {problem}")))
}
