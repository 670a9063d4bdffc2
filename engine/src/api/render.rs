//! How the engine's values look to a client: JSON with every key present, instants as RFC 3339 with milliseconds.

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde::{Serialize, Serializer};

use super::{
    duration::show_ms,
    run_render::AttemptBody,
    spec_reader::DEFAULT_MAX_LATENESS_MS,
    words::{self, word},
};
use crate::{
    engine::{Backfilled, Described, Forecast, Health, Page, Readiness, Triggered},
    kernel::{
        calendar::{Gap, Warning},
        evidence::HoldReason,
        id::{OccurrenceId, ScheduleId},
        occurrence::{HistoryItem, Occurrence, Reason, State},
        policy::{Misfire, Retry},
        schedule::{InstantRange, RangeDisposition, Receipt, Rule, Schedule, Spec},
        time::UnixMs,
    },
};

/// An instant, written as RFC 3339.
#[derive(Clone, Copy)]
pub(crate) struct Instant(pub(crate) UnixMs);

impl Serialize for Instant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// An id, written with hyphens.
pub(crate) struct Id<T>(pub(crate) T);

impl<T: std::fmt::Display> Serialize for Id<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

fn instants(instants: &[UnixMs]) -> Vec<Instant> {
    instants.iter().copied().map(Instant).collect()
}

/// `{schedule, next, warnings}`
#[derive(Serialize)]
pub(crate) struct DescribedBody<'a> {
    schedule: ScheduleBody<'a>,
    next: Vec<Instant>,
    warnings: Vec<WarningBody<'a>>,
}

impl<'a> From<&'a Described> for DescribedBody<'a> {
    fn from(described: &'a Described) -> Self {
        Self {
            schedule: (&described.schedule).into(),
            next: instants(&described.schedule.next),
            warnings: described.warnings.iter().map(WarningBody::from).collect(),
        }
    }
}

#[derive(Serialize)]
struct WarningBody<'a> {
    code: &'a str,
    message: &'a str,
    at: Option<Instant>,
}

impl<'a> From<&'a Warning> for WarningBody<'a> {
    fn from(warning: &'a Warning) -> Self {
        Self { code: warning.code.as_str(), message: &warning.message, at: warning.at.map(Instant) }
    }
}

/// The spec as resolved, then what the engine knows of it.
#[derive(Serialize)]
pub(crate) struct ScheduleBody<'a> {
    schedule_id: Id<ScheduleId>,
    version: u32,
    state: &'static str,
    #[serde(flatten)]
    spec: SpecBody<'a>,
    created_at: Instant,
    updated_at: Instant,
    last_run_at: Option<Instant>,
    next_run_at: Option<Instant>,
    overdue_ms: u64,
    error: Option<&'a str>,
}

impl<'a> From<&'a Schedule> for ScheduleBody<'a> {
    fn from(schedule: &'a Schedule) -> Self {
        Self {
            schedule_id: Id(schedule.id),
            version: schedule.version,
            state: schedule.state.as_str(),
            spec: (&schedule.spec).into(),
            created_at: Instant(schedule.created_at),
            updated_at: Instant(schedule.updated_at),
            last_run_at: schedule.last_run_at.map(Instant),
            next_run_at: schedule.next_run_at.map(Instant),
            overdue_ms: schedule.overdue_ms,
            error: schedule.error.as_deref(),
        }
    }
}

#[derive(Serialize)]
pub(crate) struct SpecBody<'a> {
    tenant: &'a str,
    queue: &'a str,
    name: Option<&'a str>,
    rule: RuleBody<'a>,
    start_at: Option<Instant>,
    end_at: Option<Instant>,
    payload: Option<&'a str>,
    payload_base64: Option<String>,
    misfire: MisfireBody,
    max_lateness: String,
    overlap: &'static str,
    flexible_window: Option<String>,
    retry: RetryBody,
    effect: &'static str,
    review_owner: Option<&'a str>,
}

#[derive(Serialize)]
pub(super) struct MisfireBody {
    policy: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
}

impl MisfireBody {
    pub(super) const fn of(misfire: Misfire) -> Self {
        let limit = match misfire {
            Misfire::CatchUp { limit } => Some(limit),
            Misfire::Skip | Misfire::FireOnce => None,
        };
        Self { policy: misfire.as_str(), limit }
    }
}

#[derive(Serialize)]
struct RetryBody {
    max_attempts: u32,
    base: String,
    cap: String,
    deadline: Option<String>,
    budget: Option<u32>,
}

impl RetryBody {
    fn of(retry: &Retry) -> Self {
        Self {
            max_attempts: retry.max_attempts,
            base: show_ms(retry.base_ms),
            cap: show_ms(retry.cap_ms),
            deadline: retry.deadline_ms.map(show_ms),
            budget: retry.budget,
        }
    }
}

impl<'a> From<&'a Spec> for SpecBody<'a> {
    fn from(spec: &'a Spec) -> Self {
        let payload = std::str::from_utf8(&spec.payload).ok();
        Self {
            tenant: &spec.tenant,
            queue: &spec.queue,
            name: spec.name.as_deref(),
            rule: RuleBody::of(spec),
            start_at: spec.start_at.map(Instant),
            end_at: spec.end_at.map(Instant),
            payload,
            payload_base64: payload.is_none().then(|| BASE64.encode(&spec.payload)),
            misfire: MisfireBody::of(spec.misfire),
            max_lateness: max_lateness(spec.max_lateness_ms),
            overlap: spec.overlap.as_str(),
            flexible_window: (spec.flexible_window_ms > 0).then(|| show_ms(spec.flexible_window_ms)),
            retry: RetryBody::of(&spec.retry),
            effect: spec.effect.as_str(),
            review_owner: spec.review_owner.as_deref(),
        }
    }
}

/// The default is shown as it is documented, `60s`; anything else in its largest unit.
fn max_lateness(ms: u64) -> String {
    if ms == DEFAULT_MAX_LATENESS_MS { "60s".to_owned() } else { show_ms(ms) }
}

#[derive(Serialize)]
#[serde(untagged)]
enum RuleBody<'a> {
    Cron { cron: &'a str, zone: &'a str, fold: &'static str, gap: &'static str, day_match: &'static str },
    Every { every: String, anchor: Option<Instant>, basis: &'static str },
    AtLocal { at_local: &'a str, zone: &'a str, fold: Option<&'static str>, gap: Option<&'static str> },
    At { at: Instant },
}

impl<'a> RuleBody<'a> {
    fn of(spec: &'a Spec) -> Self {
        match (&spec.rule, &spec.at_local) {
            (Rule::Cron(cron), _) => Self::Cron {
                cron: &cron.expr,
                zone: &cron.zone,
                fold: cron.fold.as_str(),
                gap: cron.gap.as_str(),
                day_match: cron.day_match.as_str(),
            },
            (Rule::Every { every_ms, anchor, basis }, _) => Self::Every {
                every: show_ms(every_ms.unsigned_abs()),
                anchor: anchor.map(Instant),
                basis: basis.as_str(),
            },
            (Rule::At(_), Some(given)) => Self::AtLocal {
                at_local: &given.local,
                zone: &given.zone,
                fold: given.fold.map(|fold| word(words::LOCAL_FOLD, &fold)),
                gap: given.gap.map(Gap::as_str),
            },
            (Rule::At(at), None) => Self::At { at: Instant(*at) },
        }
    }
}

/// `{schedule, receipt}`
#[derive(Serialize)]
pub(crate) struct ReceiptedBody<'a> {
    schedule: ScheduleBody<'a>,
    receipt: ReceiptBody,
}

#[derive(Serialize)]
struct ReceiptBody {
    version: u32,
    canceled: Vec<Id<OccurrenceId>>,
    kept: Vec<Id<OccurrenceId>>,
    cancel_requested: Vec<Id<OccurrenceId>>,
    ranges: Vec<ReceiptRange>,
    truncated: u64,
}

#[derive(Serialize)]
struct ReceiptRange {
    reason: &'static str,
    from: Instant,
    to: Instant,
    count: u64,
}

impl<'a> ReceiptedBody<'a> {
    pub(crate) fn new(schedule: &'a Schedule, receipt: &Receipt) -> Self {
        let ids = |ids: &[OccurrenceId]| ids.iter().copied().map(Id).collect();
        let range = |range: &InstantRange| ReceiptRange {
            reason: match range.disposition {
                RangeDisposition::Missed => "missed",
                RangeDisposition::Canceled(reason) => reason.as_str(),
            },
            from: Instant(range.first),
            to: Instant(range.last),
            count: range.count,
        };
        Self {
            schedule: schedule.into(),
            receipt: ReceiptBody {
                version: receipt.version,
                canceled: ids(&receipt.canceled),
                kept: ids(&receipt.kept),
                cancel_requested: ids(&receipt.cancel_requested),
                ranges: receipt.ranges.iter().map(range).collect(),
                truncated: receipt.truncated,
            },
        }
    }
}

/// What a trigger answers.
#[derive(Serialize)]
pub(crate) struct TriggeredBody {
    occurrence_id: Id<OccurrenceId>,
}

impl From<&Triggered> for TriggeredBody {
    fn from(triggered: &Triggered) -> Self {
        Self { occurrence_id: Id(triggered.occurrence_id) }
    }
}

/// What a backfill answers.
#[derive(Serialize)]
pub(crate) struct BackfilledBody {
    occurrences: u64,
}

impl From<&Backfilled> for BackfilledBody {
    fn from(backfilled: &Backfilled) -> Self {
        Self { occurrences: backfilled.occurrences }
    }
}

/// `{items, next_cursor}`
#[derive(Serialize)]
pub(crate) struct PageBody<'a, T> {
    items: Vec<T>,
    next_cursor: Option<&'a str>,
}

impl<'a, S, T: From<&'a S>> From<&'a Page<S>> for PageBody<'a, T> {
    fn from(page: &'a Page<S>) -> Self {
        Self { items: page.items.iter().map(T::from).collect(), next_cursor: page.next_cursor.as_deref() }
    }
}

/// One line of a history.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum HistoryBody<'a> {
    Occurrence(OccurrenceBody<'a>),
    Range(RangeBody),
}

#[derive(Serialize)]
pub(crate) struct OccurrenceBody<'a> {
    occurrence_id: Id<OccurrenceId>,
    schedule_id: Id<ScheduleId>,
    version: u32,
    tenant: &'a str,
    queue: &'a str,
    kind: &'static str,
    lane: &'static str,
    scheduled_for: Instant,
    available_at: Instant,
    enqueued_at: Option<Instant>,
    state: &'static str,
    reason: Option<&'static str>,
    holds: Vec<&'static str>,
    attempt_count: u32,
    attempts: Vec<AttemptBody<'a>>,
}

/// Instants that were disposed of together: no occurrence, hence no id.
#[derive(Serialize)]
pub(crate) struct RangeBody {
    occurrence_id: Option<Id<OccurrenceId>>,
    kind: &'static str,
    state: &'static str,
    reason: Option<&'static str>,
    scheduled_for: Instant,
    scheduled_until: Instant,
    count: u64,
}

impl<'a> From<&'a HistoryItem> for HistoryBody<'a> {
    fn from(item: &'a HistoryItem) -> Self {
        match item {
            HistoryItem::Occurrence(occurrence) => Self::Occurrence(occurrence.into()),
            HistoryItem::Range(range) => Self::Range(range.into()),
        }
    }
}

impl<'a> From<&'a Occurrence> for OccurrenceBody<'a> {
    fn from(occurrence: &'a Occurrence) -> Self {
        Self {
            occurrence_id: Id(occurrence.id),
            schedule_id: Id(occurrence.schedule_id),
            version: occurrence.version,
            tenant: &occurrence.tenant,
            queue: &occurrence.queue,
            kind: occurrence.kind.as_str(),
            lane: occurrence.lane.as_str(),
            scheduled_for: Instant(occurrence.scheduled_for),
            available_at: Instant(occurrence.available_at),
            enqueued_at: occurrence.enqueued_at.map(Instant),
            state: occurrence.state.as_str(),
            reason: occurrence.reason.map(Reason::as_str),
            holds: occurrence.holds.iter().copied().map(HoldReason::as_str).collect(),
            attempt_count: occurrence.attempt_count,
            attempts: occurrence.attempts.iter().map(AttemptBody::from).collect(),
        }
    }
}

impl From<&InstantRange> for RangeBody {
    fn from(range: &InstantRange) -> Self {
        let (state, reason) = match range.disposition {
            RangeDisposition::Missed => (State::Missed, None),
            RangeDisposition::Canceled(reason) => (State::Canceled, Some(reason.as_str())),
        };
        Self {
            occurrence_id: None,
            kind: range.kind.as_str(),
            state: state.as_str(),
            reason,
            scheduled_for: Instant(range.first),
            scheduled_until: Instant(range.last),
            count: range.count,
        }
    }
}

/// `{next, warnings, tz_release}`
#[derive(Serialize)]
pub(crate) struct ForecastBody<'a> {
    next: Vec<Instant>,
    warnings: Vec<WarningBody<'a>>,
    tz_release: &'a str,
}

impl<'a> From<&'a Forecast> for ForecastBody<'a> {
    fn from(forecast: &'a Forecast) -> Self {
        Self {
            next: forecast.next.iter().map(|fire| Instant(fire.at)).collect(),
            warnings: forecast.warnings.iter().map(WarningBody::from).collect(),
            tz_release: &forecast.tz_release,
        }
    }
}

/// What `/healthz` says.
#[derive(Serialize)]
pub(crate) struct HealthBody<'a> {
    live: bool,
    reasons: &'a [String],
    version: &'a str,
    tz_release: &'a str,
    shards: u16,
    rehearsal: bool,
}

impl<'a> From<&'a Health> for HealthBody<'a> {
    fn from(health: &'a Health) -> Self {
        Self {
            live: health.live,
            reasons: &health.reasons,
            version: health.version,
            tz_release: &health.tz_release,
            shards: health.shards,
            rehearsal: health.rehearsal,
        }
    }
}

/// What `/readyz` says.
#[derive(Serialize)]
pub(crate) struct ReadinessBody<'a> {
    ready: bool,
    reasons: &'a [String],
}

impl<'a> From<&'a Readiness> for ReadinessBody<'a> {
    fn from(readiness: &'a Readiness) -> Self {
        Self { ready: readiness.ready, reasons: &readiness.reasons }
    }
}

#[cfg(test)]
#[path = "render_tests.rs"]
mod tests;
