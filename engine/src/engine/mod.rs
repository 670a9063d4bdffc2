//! The handle: what an embedder and the HTTP server can ask of a running engine.

mod batch;
mod readers;
pub mod runs;
mod schedules;
mod settings;

pub use batch::KeyedSchedule;
#[cfg(feature = "server")]
pub(crate) use batch::Prepared;
pub use readers::{HistoryFilter, Page};
pub use runs::{Claim, ClaimedRun};
pub use schedules::{Backfilled, Described, Made, Pending, Receipted, Triggered, Update};
pub use settings::{Backlog, BacklogBucket, QueueSettings, Quotas, TenantSettings};

use std::{path::Path, sync::Arc};

use tokio::sync::oneshot;

use crate::{
    builder::Builder,
    error::{CallError, OpenError, Refusal, RefusalCode},
    kernel::{
        calendar::{
            Basis, Interval, Warning,
            preview::{Fire, MAX_COUNT, Preview, Previewed, Window, preview},
        },
        changes::NewRule,
        id::ScheduleId,
        resolve::{Rules, from_calendar, resolve_rule},
        schedule::Rule,
        time::UnixMs,
    },
    shell::{
        ask::{Ask, ReplyTo},
        metrics::{ClockSteps, MetricsSnapshot},
        status::ShardStatus,
        supervise::Running,
        worker::Worker,
    },
};

/// How long a call waits before it is asked whether its answer can come at all.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(3);

/// A running engine. A cheap handle: clone it, send it, use it from any tokio runtime; it has its own threads.
#[derive(Clone)]
pub struct Engine {
    running: Arc<Running>,
    /// The only tenant that this handle sees, if it is bound to one.
    tenant: Option<Arc<str>>,
    /// The only queue whose runs it claims and speaks of, if it is bound to one.
    queue: Option<Arc<str>>,
}

/// Whether the engine can do its work.
#[derive(Clone, Debug)]
pub struct Readiness {
    /// Nothing below.
    pub ready: bool,
    /// One sentence for each thing that is wrong.
    pub reasons: Vec<String>,
}

/// Whether the engine lives, and what it is.
#[derive(Clone, Debug)]
pub struct Health {
    /// False once a log is poisoned.
    pub live: bool,
    /// Why not.
    pub reasons: Vec<String>,
    /// The engine's version.
    pub version: &'static str,
    /// The IANA release in use.
    pub tz_release: String,
    /// How many shards.
    pub shards: u16,
    /// Whether the clock is a rehearsal's.
    pub rehearsal: bool,
}

/// A rule's next instants; nothing was stored.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// The instants, with what the zone's clocks show at them.
    pub next: Vec<Fire>,
    /// Remarks on the rule.
    pub warnings: Vec<Warning>,
    /// The IANA release used.
    pub tz_release: String,
}

impl Engine {
    /// Opens `dir` with the embedded queue and every default.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open(dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::builder(dir).open().await
    }

    /// Sets up an engine on `dir`.
    pub fn builder(dir: impl AsRef<Path>) -> Builder {
        Builder::new(dir.as_ref())
    }

    /// A handle that sees and changes only what is `tenant`'s: everything else is not there for it.
    #[must_use]
    pub fn for_tenant(&self, tenant: &str) -> Self {
        Self { tenant: Some(tenant.into()), ..self.clone() }
    }

    /// The tenant that this handle is bound to.
    #[must_use]
    pub fn bound_tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    pub(crate) fn new(running: Running) -> Self {
        Self { running: Arc::new(running), tenant: None, queue: None }
    }

    /// Waits until every shard has told of itself, and an embedded queue is open: moments, and at most a few seconds.
    pub(crate) async fn settle(&self) {
        for _ in 0..2_000 {
            let open = self.statuses().filter(|status| !self.running.is_local || status.queue_troubles.is_empty());
            if open.count() == self.shards() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    }

    pub(crate) fn running(&self) -> &Running {
        &self.running
    }

    pub(crate) fn shards(&self) -> usize {
        self.running.shards.len()
    }

    /// Asks one shard. Its answer rests on durable records only.
    pub(crate) async fn ask<T: 'static>(
        &self,
        shard: usize,
        ask: impl FnOnce(ReplyTo<T>) -> Ask,
    ) -> Result<T, CallError> {
        use actix::dev::SendError;
        let (reply, answer) = oneshot::channel();
        self.running.shards[shard].try_send(ask(reply)).map_err(|error| match error {
            SendError::Full(_) => CallError::Overloaded,
            SendError::Closed(_) => self.ended(),
        })?;
        tokio::pin!(answer);
        loop {
            // What waits for a disk that is full may wait for hours: the caller is told, and the call may still be done.
            match tokio::time::timeout(PATIENCE, &mut answer).await {
                Ok(answer) => return answer.unwrap_or_else(|_| Err(self.ended())),
                Err(_) if self.is_full() => return Err(CallError::DiskFull),
                Err(_) => {}
            }
        }
    }

    fn is_full(&self) -> bool {
        self.statuses().any(|status| status.log_state == countwheel_wal::State::Full)
    }

    /// Why a shard does not answer any more.
    fn ended(&self) -> CallError {
        let poisoned = self.statuses().find_map(|status| match status.log_state {
            countwheel_wal::State::Poisoned(reason) => Some(reason),
            _ => None,
        });
        poisoned.map_or(CallError::Stopping, |reason| CallError::Poisoned(reason.to_string()))
    }

    fn shard_of(&self, id: ScheduleId) -> usize {
        let shards = u16::try_from(self.shards()).expect("there are at most 1024 shards");
        usize::from(id.slot().shard(shards))
    }

    /// The next `count` (1 to 10,000) instants of a rule in `[start_at, end_at)` strictly after `from` (default: now).
    /// Of an interval that follows its runs only the first is known, and a warning says so.
    ///
    /// # Errors
    /// The part of the rule that is refused.
    pub fn forecast(
        &self,
        rule: &NewRule,
        (start_at, end_at): (Option<UnixMs>, Option<UnixMs>),
        from: Option<UnixMs>,
        count: usize,
    ) -> Result<Forecast, Refusal> {
        if !(1..=MAX_COUNT).contains(&count) {
            let message = format!("count {count} is out of range 1-{MAX_COUNT}");
            return Err(Refusal::new(RefusalCode::Invalid, "count", message));
        }
        let from = from.unwrap_or_else(|| self.now());
        let (resolved, _) = resolve_rule(rule, start_at, &self.running.rules)?;
        let window = Window { from, start_at, end_at, count };
        let Preview { next, warnings, .. } = match &resolved {
            Rule::Cron(cron) => {
                let rule = self.running.rules.cron(cron);
                let rule = rule.map_err(|error| from_calendar(&error, "rule.cron", "rule.zone"))?;
                preview(Previewed::Cron(&rule), &window)
            }
            Rule::Every { every_ms, anchor, basis } => {
                let grid = Interval::new(anchor.unwrap_or(from), *every_ms).expect("a resolved distance is positive");
                let rule = match basis {
                    Basis::Slot => Previewed::Interval(grid),
                    Basis::Completion | Basis::Start => Previewed::Paced(grid, *basis),
                };
                preview(rule, &window)
            }
            Rule::At(at) => preview(Previewed::At(*at), &window),
        };
        Ok(Forecast { next, warnings, tz_release: self.running.rules.zones().release().to_owned() })
    }

    /// Takes occurrences of `queue` in process.
    ///
    /// # Errors
    /// [`CallError::NoLocalQueue`] on an engine that delivers to Redis.
    pub async fn worker(&self, queue: &str) -> Result<Worker, CallError> {
        if !self.running.is_local {
            return Err(CallError::NoLocalQueue);
        }
        crate::kernel::id::check_name(queue)
            .map_err(|problem| Refusal::new(RefusalCode::Invalid, "queue", format!("queue {problem}")))?;
        Ok(Worker::new(self.clone(), queue.to_owned()))
    }

    /// Now, as the engine's clock has it.
    #[must_use]
    pub fn now(&self) -> UnixMs {
        self.running.clock.now()
    }

    /// What each shard said of itself a moment ago.
    pub fn statuses(&self) -> impl Iterator<Item = ShardStatus> + '_ {
        self.running.statuses.iter().filter_map(crate::shell::status::SharedStatus::latest)
    }

    /// Whether it lives.
    #[must_use]
    pub fn health(&self) -> Health {
        let mut reasons = Vec::new();
        for (shard, status) in self.statuses().enumerate() {
            if let countwheel_wal::State::Poisoned(reason) = status.log_state {
                reasons.push(format!("shard {shard}: the log is poisoned: {reason}"));
            }
        }
        Health {
            live: reasons.is_empty(),
            reasons,
            version: env!("CARGO_PKG_VERSION"),
            tz_release: self.running.rules.zones().release().to_owned(),
            shards: u16::try_from(self.shards()).unwrap_or(u16::MAX),
            rehearsal: self.running.clock.is_rehearsal(),
        }
    }

    /// Whether it can do its work: logs writable, queue reachable, clock sane, nothing overdue beyond its bound.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        let now = self.now();
        let mut reasons = Vec::new();
        let mut known = 0;
        for (shard, status) in self.statuses().enumerate() {
            known += 1;
            reasons.extend(status.troubles(now).into_iter().map(|trouble| format!("shard {shard}: {trouble}")));
        }
        if known < self.shards() {
            reasons.push(format!("{} of {} shards are not open yet", self.shards() - known, self.shards()));
        }
        Readiness { ready: reasons.is_empty(), reasons }
    }

    /// What the engine counts.
    #[must_use]
    pub fn metrics(&self) -> MetricsSnapshot {
        let health = self.health();
        let statuses: Vec<ShardStatus> = self.statuses().collect();
        let behind_ms = statuses.iter().map(|status| status.clock_behind_ms).max().unwrap_or(0);
        let steps = statuses.first().map_or_else(ClockSteps::default, |status| status.clock_steps);
        MetricsSnapshot {
            version: health.version,
            tz_release: health.tz_release,
            rehearsal: health.rehearsal,
            ready: self.readiness().ready,
            engine_clock_behind: std::time::Duration::from_millis(behind_ms.max(0).cast_unsigned()),
            clock_steps_total: steps,
            log_states: countwheel_wal::State::NAMES
                .map(|name| statuses.iter().filter(|status| status.log_state.name() == name).count() as u64),
            shards: statuses.into_iter().map(|status| status.metrics).collect(),
        }
    }

    /// Drains, syncs and stops; other handles answer [`CallError::Stopping`] from then on.
    ///
    /// # Errors
    /// A log that could not be sealed; what was acknowledged is durable all the same.
    pub async fn stop(self) -> Result<(), CallError> {
        self.end_waiting();
        self.running.stop().await.map_err(CallError::Poisoned)
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("shards", &self.shards()).finish_non_exhaustive()
    }
}
