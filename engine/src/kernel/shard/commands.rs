//! What users ask of a shard: whom a call is about, making a schedule.

use std::sync::Arc;

use super::{Shard, Turn, Urgency, plan::Plan};
use crate::kernel::{
    calendar::{Basis, CALENDAR_END, DayMatch, FoldChoice, Gap, LocalFold},
    gate::Lsn,
    id::ScheduleId,
    occurrence::QueueNo,
    policy::{Effect, Overlap, Retry},
    record::{LocalBody, Named, Record, RuleBody, ScheduleCreated, SpecBody},
    refusal::{Refusal, RefusalCode},
    schedule::{Rule, Schedule, Spec},
    time::UnixMs,
};

/// The schedule that a call is about.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its id.
    pub id: ScheduleId,
    /// The only tenant whose schedules the caller may see, if it is bound to one.
    pub tenant: Option<Arc<str>>,
}

/// As a caller who may see everything.
impl From<ScheduleId> for Target {
    fn from(id: ScheduleId) -> Self {
        Self { id, tenant: None }
    }
}

/// A schedule to be made.
#[derive(Clone, Debug)]
pub struct Creation {
    /// Its id.
    pub id: ScheduleId,
    /// How it is described.
    pub spec: Spec,
    /// Whether the id stands for a key, which may have had schedules before.
    pub is_keyed: bool,
}

/// Why a shard refuses a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// A part of the call is wrong.
    Refused(Refusal),
    /// There is no such schedule, or the caller may not see it.
    NotFound,
    /// The schedule is canceled.
    Canceled,
    /// Another version stands.
    VersionMismatch {
        /// The version that the call named.
        expected: u32,
        /// The version that stands.
        current: u32,
    },
    /// The id has a schedule that is not canceled.
    KeyTaken {
        /// Its version.
        version: u32,
    },
    /// The tenant has as many schedules as it may have.
    QuotaSchedules {
        /// Its limit.
        limit: u64,
    },
    /// So much is due that it does not fit a turn: some of it was decided, ask again.
    Busy,
}

impl From<Refusal> for CommandError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Shard {
    /// The number of a schedule that the caller may see.
    pub(super) fn find(&self, target: &Target) -> Result<u32, CommandError> {
        let number = self.schedules.number(target.id).ok_or(CommandError::NotFound)?;
        let owner = self.tenants.name(self.schedule(number).tenant);
        match &target.tenant {
            Some(tenant) if owner != Some(tenant) => Err(CommandError::NotFound),
            _ => Ok(number),
        }
    }

    /// The number of a schedule that the caller may see, and that is not canceled.
    pub(super) fn find_live(&self, target: &Target) -> Result<u32, CommandError> {
        let number = self.find(target)?;
        if self.schedule(number).is_canceled { Err(CommandError::Canceled) } else { Ok(number) }
    }

    /// Makes a schedule. The answer may leave once the LSN is durable.
    ///
    /// # Errors
    /// A rule without an instant after `now`, or an id that is taken.
    pub fn create(
        &mut self,
        creation: &Creation,
        now: UnixMs,
        turn: &mut Turn,
    ) -> Result<(Schedule, Lsn), CommandError> {
        let Creation { id, spec, is_keyed } = creation;
        let before = self.schedules.number(*id).map(|number| self.schedule(number));
        let version = match before {
            Some(row) if !row.is_canceled => return Err(CommandError::KeyTaken { version: row.version }),
            Some(row) => row.version.saturating_add(1),
            None if *is_keyed => self.version_floor.saturating_add(1),
            None => 1,
        };
        let base = now.max(self.log_time);
        self.check_future(spec, None, base)?;
        self.check_followed(spec)?;
        self.reserve_schedule(&spec.tenant)?;
        let tenant = self.tenant_for(&spec.tenant, now, turn);
        let body = self.spec_body(spec, now, turn);
        let created = ScheduleCreated { id: id.0, version, tenant, spec: body };
        self.record(Record::ScheduleCreated(Box::new(created)), now, turn);
        turn.urge(Urgency::Prompt);
        let number = self.schedules.number(*id).expect("it was just made");
        self.rearm(number);
        Ok((self.view(number, now), self.lsn))
    }

    /// Room in the tenant's quota, until the turn is over and the schedule counted.
    pub(super) fn reserve_schedule(&mut self, tenant: &str) -> Result<(), CommandError> {
        self.permits.reserve_schedule(tenant).map_err(|limit| CommandError::QuotaSchedules { limit })
    }

    /// Refuses a description without an instant after `now`; of a schedule that stands, if it is one.
    pub(super) fn check_future(&mut self, spec: &Spec, of: Option<u32>, now: UnixMs) -> Result<(), Refusal> {
        let mut plan = Plan::new(&rule_body(spec, now), spec.start_at, spec.end_at, &mut self.calendar);
        if let Some(number) = of {
            plan.go_on_from(&self.schedule(number).plan);
        }
        let first = plan.next(now, &mut self.calendar);
        plan.release(&mut self.calendar);
        if first.is_some() { Ok(()) } else { Err(no_instant(spec, now)) }
    }

    /// Refuses what only a queue whose runs are followed can keep.
    pub(super) fn check_followed(&self, spec: &Spec) -> Result<(), Refusal> {
        let is_followed = self.queues.number(&spec.queue).is_none_or(|queue| self.settings.is_tracked(queue));
        let follows_runs = matches!(spec.rule, Rule::Every { basis: Basis::Completion | Basis::Start, .. });
        let field = if follows_runs {
            "rule.basis"
        } else if spec.overlap != Overlap::Allow {
            "overlap"
        } else if spec.effect != Effect::Idempotent {
            "effect"
        } else if spec.retry != Retry::default() {
            "retry"
        } else {
            return Ok(());
        };
        if is_followed {
            return Ok(());
        }
        let message = format!("queue {:?} is not tracked, so nobody knows what runs: leave {field} out", spec.queue);
        Err(Refusal::new(RefusalCode::Invalid, field, message))
    }

    pub(super) fn tenant_for(&mut self, name: &str, now: UnixMs, turn: &mut Turn) -> u32 {
        if let Some(number) = self.tenants.number(name) {
            return number;
        }
        let number = self.tenants.next();
        self.record(Record::TenantNamed(Named { name: name.to_owned() }), now, turn);
        number
    }

    pub(super) fn queue_for(&mut self, name: &str, now: UnixMs, turn: &mut Turn) -> u32 {
        if let Some(number) = self.queues.number(name) {
            return number;
        }
        let number = self.queues.next();
        self.record(Record::QueueNamed(Named { name: name.to_owned() }), now, turn);
        turn.queues.push(QueueNo(number));
        number
    }

    /// A description as the log keeps it.
    pub(super) fn spec_body(&mut self, spec: &Spec, now: UnixMs, turn: &mut Turn) -> SpecBody {
        SpecBody {
            queue: self.queue_for(&spec.queue, now, turn),
            name: spec.name.clone(),
            rule: rule_body(spec, now.max(self.log_time)),
            start_at_ms: spec.start_at.map(|at| at.0),
            end_at_ms: spec.end_at.map(|at| at.0),
            payload: spec.payload.clone(),
            flexible_window_ms: spec.flexible_window_ms,
            max_lateness_ms: spec.max_lateness_ms,
            misfire: spec.misfire,
            overlap: spec.overlap,
            retry: spec.retry,
            effect: spec.effect,
            review_owner: spec.review_owner.clone(),
        }
    }
}

fn rule_body(spec: &Spec, now: UnixMs) -> RuleBody {
    match &spec.rule {
        Rule::Cron(cron) => RuleBody::Cron {
            expr: cron.expr.clone(),
            zone: cron.zone.clone(),
            fold_both: cron.fold == FoldChoice::Both,
            gap_shift: cron.gap == Gap::Shift,
            day_and: cron.day_match == DayMatch::And,
        },
        Rule::Every { every_ms, anchor, basis } => {
            let (every_ms, anchor_ms) = (*every_ms, anchor.unwrap_or(now).0);
            match basis {
                Basis::Slot => RuleBody::Every { every_ms, anchor_ms },
                Basis::Completion => RuleBody::After { every_ms, anchor_ms, from_start: false },
                Basis::Start => RuleBody::After { every_ms, anchor_ms, from_start: true },
            }
        }
        Rule::At(at) => RuleBody::At {
            at_ms: at.0,
            local: spec.at_local.as_ref().map(|given| LocalBody {
                local: given.local.clone(),
                zone: given.zone.clone(),
                second: given.fold.map(|fold| fold == LocalFold::Second),
                shift: given.gap.is_some(),
            }),
        },
    }
}

/// Why a description has no instant after `now`.
fn no_instant(spec: &Spec, now: UnixMs) -> Refusal {
    if let Rule::At(at) = spec.rule {
        let field = if spec.at_local.is_some() { "rule.at_local" } else { "rule.at" };
        let outside = spec.start_at.is_some_and(|start| at < start) || spec.end_at.is_some_and(|end| at >= end);
        if outside && at > now {
            return Refusal::new(
                RefusalCode::NeverFires,
                field,
                format!("{at} is not in [start_at, end_at): move the bounds or the instant"),
            );
        }
        return Refusal::new(
            RefusalCode::InThePast,
            field,
            format!("{at} is not after now ({now}): give an instant in the future"),
        );
    }
    if let Some(start_at) = spec.start_at.filter(|start_at| *start_at >= CALENDAR_END) {
        let message = format!("{start_at} is past the calendar, which ends at {CALENDAR_END}: give an earlier start");
        return Refusal::new(RefusalCode::NeverFires, "start_at", message);
    }
    if let Some(end_at) = spec.end_at {
        let from = spec.start_at.map_or(now, |start_at| start_at.max(now));
        let message = format!("the rule has no instant between {from} and {end_at}: give a later end, or another rule");
        return Refusal::new(RefusalCode::NeverFires, "end_at", message);
    }
    let (field, rule) = match &spec.rule {
        Rule::Cron(cron) => ("rule.cron", format!("{:?} in {}", cron.expr, cron.zone)),
        Rule::Every { .. } | Rule::At(_) => ("rule.every", "the interval".to_owned()),
    };
    let message = format!("{rule} has no instant in the 40 years after {now}: change the rule or start_at");
    Refusal::new(RefusalCode::NeverFires, field, message)
}
