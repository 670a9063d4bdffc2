//! The handle: what an embedder and the HTTP server can ask of a running engine.

use std::{path::Path, time::Duration};

use crate::{
    error::{CallError, OpenError, Refusal},
    kernel::{
        calendar::CronSpec,
        id::ScheduleId,
        occurrence::{HistoryItem, State},
        schedule::{Receipt, Schedule, ScheduleState},
        time::UnixMs,
    },
};

/// A running engine. Cheap to clone; usable from any tokio runtime.
#[derive(Clone, Debug)]
pub struct Engine {}

/// A schedule to be made. Everything but tenant, queue and rule has a default.
#[derive(Clone, Debug)]
pub struct NewSchedule {
    /// Whose it is.
    pub tenant: String,
    /// Where its occurrences go.
    pub queue: String,
    /// For people.
    pub name: Option<String>,
    /// When it fires.
    pub rule: NewRule,
    /// Instants before this are not the schedule's.
    pub start_at: Option<UnixMs>,
    /// Instants from this on are not the schedule's.
    pub end_at: Option<UnixMs>,
    /// Opaque bytes for the handler.
    pub payload: Vec<u8>,
    /// Spreads `available_at` over this long after each instant.
    pub flexible_window: Option<Duration>,
    /// Default 60 s.
    pub max_lateness: Duration,
}

/// A rule as it is asked for.
#[derive(Clone, Debug)]
pub enum NewRule {
    /// Cron in a zone.
    Cron(CronSpec),
    /// A grid; `anchor` defaults to `start_at`, else to the time of creation.
    Every {
        /// 1 s to 366 days.
        every: Duration,
        /// An instant of the grid.
        anchor: Option<UnixMs>,
    },
    /// One instant.
    At(UnixMs),
    /// One wall time.
    AtLocal {
        /// `2026-11-01T01:30:00`.
        local: String,
        /// The IANA zone.
        zone: String,
        /// `first` or `second`.
        fold: Option<String>,
        /// `shift`.
        gap: Option<String>,
    },
}

/// A remark on a rule: code, sentence, instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// A stable word.
    pub code: &'static str,
    /// One sentence naming the dates.
    pub message: String,
    /// The instant it speaks of.
    pub at: Option<UnixMs>,
}

/// A schedule with remarks on its rule.
#[derive(Clone, Debug)]
pub struct Described {
    /// The schedule (its `next` has up to five instants).
    pub schedule: Schedule,
    /// Remarks on the rule.
    pub warnings: Vec<Warning>,
}

/// Which schedules to list.
#[derive(Clone, Debug, Default)]
pub struct ScheduleFilter {
    /// Only this tenant's.
    pub tenant: Option<String>,
    /// Only of this queue.
    pub queue: Option<String>,
    /// Only in this state.
    pub state: Option<ScheduleState>,
}

/// Which part of a history to show.
#[derive(Clone, Debug, Default)]
pub struct HistoryFilter {
    /// Only in this state.
    pub state: Option<State>,
    /// From this `scheduled_for` on.
    pub from: Option<UnixMs>,
    /// Before this `scheduled_for`.
    pub to: Option<UnixMs>,
}

/// A page of a listing.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// What was found.
    pub items: Vec<T>,
    /// Opaque; `None` ends the listing.
    pub next_cursor: Option<String>,
}

/// What `/readyz` says.
#[derive(Clone, Debug)]
pub struct Readiness {
    /// Everything below is fine.
    pub ready: bool,
    /// One sentence for each thing that is not.
    pub reasons: Vec<String>,
}

/// What `/healthz` says.
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

/// A rule's next instants, nothing stored.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// The instants.
    pub next: Vec<UnixMs>,
    /// Remarks.
    pub warnings: Vec<Warning>,
    /// The IANA release used.
    pub tz_release: String,
}

/// One occurrence taken from the embedded queue.
#[derive(Debug)]
pub struct Run {}

/// Takes occurrences of one queue from the embedded queue, in process.
#[derive(Debug)]
pub struct Worker {}

impl Engine {
    /// Opens `dir` with the embedded queue and defaults.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open(_dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        Ok(Self {})
    }
    /// Makes a schedule.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn create(&self, _new: NewSchedule) -> Result<Described, CallError> {
        Err(CallError::Stopping)
    }
    /// Reads a schedule.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn schedule(&self, _id: ScheduleId) -> Result<Described, CallError> {
        Err(CallError::Stopping)
    }
    /// Lists schedules.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn schedules(
        &self,
        _filter: ScheduleFilter,
        _limit: usize,
        _cursor: Option<String>,
    ) -> Result<Page<Schedule>, CallError> {
        Err(CallError::Stopping)
    }
    /// Ends a schedule; its history stays. Repeated: the same schedule and an empty receipt.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn cancel(&self, _id: ScheduleId) -> Result<(Schedule, Receipt), CallError> {
        Err(CallError::Stopping)
    }
    /// A schedule's history, ascending by `scheduled_for`.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn occurrences(
        &self,
        _id: ScheduleId,
        _filter: HistoryFilter,
        _limit: usize,
        _cursor: Option<String>,
    ) -> Result<Page<HistoryItem>, CallError> {
        Err(CallError::Stopping)
    }
    /// The next instants of a rule; nothing is stored. `from` defaults to now, `count` is 1 to 10,000.
    ///
    /// # Errors
    /// The part of the rule that was refused.
    pub fn forecast(
        &self,
        _rule: &NewRule,
        _bounds: (Option<UnixMs>, Option<UnixMs>),
        _from: Option<UnixMs>,
        _count: usize,
    ) -> Result<Forecast, Refusal> {
        Ok(Forecast { next: vec![], warnings: vec![], tz_release: String::new() })
    }
    /// Takes occurrences of `queue` in process (embedded queue only).
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn worker(&self, _queue: &str) -> Result<Worker, CallError> {
        Err(CallError::Stopping)
    }
    /// Now, as the engine's clock has it.
    #[must_use]
    pub fn now(&self) -> UnixMs {
        UnixMs(0)
    }
    /// Whether it lives.
    #[must_use]
    pub fn health(&self) -> Health {
        Health {
            live: true,
            reasons: vec![],
            version: env!("CARGO_PKG_VERSION"),
            tz_release: String::new(),
            shards: 0,
            rehearsal: false,
        }
    }
    /// Whether it can do its work.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        Readiness { ready: true, reasons: vec![] }
    }
    /// Drains, syncs and stops.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn stop(self) -> Result<(), CallError> {
        Ok(())
    }
}
