//! A schedule's rule within its bounds: the one place where instants come from.

use super::pace::Pace;
use crate::kernel::{
    calendar::{Calendar, CalendarError, CronId, CronSpec, DayMatch, FoldChoice, Gap, Interval},
    image::PlanImage,
    record::{LocalBody, RuleBody},
    time::UnixMs,
};

/// When a schedule fires, in `[start_at, end_at)`.
#[derive(Debug)]
pub(super) struct Plan {
    rule: PlanRule,
    start_at: Option<UnixMs>,
    end_at: Option<UnixMs>,
}

#[derive(Debug)]
enum PlanRule {
    /// The rule is parsed once for all schedules that share it.
    Cron {
        id: CronId,
        error: Option<Box<CalendarError>>,
    },
    Every(Interval),
    /// It follows its own runs.
    Paced(Box<Pace>),
    At {
        at: UnixMs,
        local: Option<Box<LocalBody>>,
    },
}

impl Plan {
    pub(super) fn new(
        body: &RuleBody,
        start_at: Option<UnixMs>,
        end_at: Option<UnixMs>,
        calendar: &mut Calendar,
    ) -> Self {
        let rule = match body {
            RuleBody::Cron { .. } => {
                let id = intern(body, calendar).expect("it is a cron rule");
                PlanRule::Cron { id, error: calendar.error(id).cloned().map(Box::new) }
            }
            RuleBody::Every { every_ms, anchor_ms } => {
                let grid = Interval::new(UnixMs(*anchor_ms), (*every_ms).max(1));
                PlanRule::Every(grid.expect("a distance of at least 1 ms is positive"))
            }
            RuleBody::After { every_ms, anchor_ms, from_start } => {
                PlanRule::Paced(Box::new(Pace::new(*every_ms, UnixMs(*anchor_ms), *from_start)))
            }
            RuleBody::At { at_ms, local } => PlanRule::At { at: UnixMs(*at_ms), local: local.clone().map(Box::new) },
        };
        Self { rule, start_at, end_at }
    }

    /// The same plan once more, for a backfill that outlives its version.
    pub(super) fn share(&self, calendar: &mut Calendar) -> Self {
        Self::new(&self.body(calendar), self.start_at, self.end_at, calendar)
    }

    /// Gives back what it holds of the calendar.
    pub(super) fn release(self, calendar: &mut Calendar) {
        if let PlanRule::Cron { id, .. } = self.rule {
            calendar.release(id);
        }
    }

    /// The rule as the log keeps it.
    pub(super) fn body(&self, calendar: &Calendar) -> RuleBody {
        match &self.rule {
            PlanRule::Cron { id, .. } => cron_body(calendar.spec(*id)),
            PlanRule::Every(grid) => RuleBody::Every { every_ms: grid.every_ms(), anchor_ms: grid.anchor().0 },
            PlanRule::Paced(pace) => pace.body(),
            PlanRule::At { at, local } => RuleBody::At { at_ms: at.0, local: local.as_deref().cloned() },
        }
    }

    /// As a snapshot keeps it; a rule that is shared, by its number in the calendar.
    pub(super) fn image(&self) -> PlanImage {
        match &self.rule {
            PlanRule::Cron { id, .. } => PlanImage::Shared(id.number()),
            PlanRule::Every(grid) => {
                PlanImage::Own(RuleBody::Every { every_ms: grid.every_ms(), anchor_ms: grid.anchor().0 })
            }
            PlanRule::Paced(pace) => pace.image(),
            PlanRule::At { at, local } => {
                PlanImage::Own(RuleBody::At { at_ms: at.0, local: local.as_deref().cloned() })
            }
        }
    }

    /// One more use of a rule that another plan has.
    pub(super) fn shared(
        id: CronId,
        start_at: Option<UnixMs>,
        end_at: Option<UnixMs>,
        calendar: &mut Calendar,
    ) -> Self {
        calendar.use_again(id);
        Self { rule: PlanRule::Cron { id, error: calendar.error(id).cloned().map(Box::new) }, start_at, end_at }
    }

    pub(super) const fn bounds(&self) -> (Option<UnixMs>, Option<UnixMs>) {
        (self.start_at, self.end_at)
    }

    /// Why nothing of it can be decided under the loaded zone rules, if so.
    pub(super) fn error(&self) -> Option<&CalendarError> {
        match &self.rule {
            PlanRule::Cron { error, .. } => error.as_deref(),
            PlanRule::Every(_) | PlanRule::Paced(_) | PlanRule::At { .. } => None,
        }
    }

    /// What its next instant counts from, if it follows its own runs.
    pub(super) fn pace(&self) -> Option<&Pace> {
        match &self.rule {
            PlanRule::Paced(pace) => Some(pace),
            PlanRule::Cron { .. } | PlanRule::Every(_) | PlanRule::At { .. } => None,
        }
    }

    pub(super) fn pace_mut(&mut self) -> Option<&mut Pace> {
        match &mut self.rule {
            PlanRule::Paced(pace) => Some(pace),
            PlanRule::Cron { .. } | PlanRule::Every(_) | PlanRule::At { .. } => None,
        }
    }

    /// Where both follow the schedule's runs, it counts on from where the plan before it did.
    pub(super) fn go_on_from(&mut self, before: &Self) {
        if let (Some(pace), Some(before)) = (self.pace_mut(), before.pace()) {
            pace.go_on_from(before);
        }
    }

    /// Whether what it has made must come to its end, or be claimed, before anybody knows what is next.
    pub(super) fn is_open(&self) -> bool {
        self.pace().is_some_and(Pace::is_open)
    }

    /// The first instant after `after`.
    pub(super) fn next(&self, after: UnixMs, calendar: &mut Calendar) -> Option<UnixMs> {
        let after = self.clamp(after);
        let instant = match &self.rule {
            PlanRule::Cron { error: Some(_), .. } => None,
            PlanRule::Cron { id, error: None } => calendar.next(*id, after),
            PlanRule::Every(grid) => grid.next(after),
            PlanRule::Paced(pace) => pace.next(after),
            PlanRule::At { at, .. } => (*at > after).then_some(*at),
        }?;
        self.end_at.is_none_or(|end| instant < end).then_some(instant)
    }

    /// The first instant after `instant`, which is one, as far as that can be known before it has run.
    pub(super) fn next_known(&self, instant: UnixMs, calendar: &mut Calendar) -> Option<UnixMs> {
        if self.pace().is_some() { None } else { self.next(instant, calendar) }
    }

    /// The last instant in `(after, through]`.
    pub(super) fn latest(&self, after: UnixMs, through: UnixMs, calendar: &mut Calendar) -> Option<UnixMs> {
        let (after, through) = self.clamp_both(after, through)?;
        match &self.rule {
            PlanRule::Cron { error: Some(_), .. } => None,
            PlanRule::Cron { id, error: None } => calendar.latest(*id, after, through),
            PlanRule::Every(grid) => grid.latest(after, through),
            PlanRule::Paced(pace) => pace.next(after).filter(|next| *next <= through),
            PlanRule::At { at, .. } => (*at > after && *at <= through).then_some(*at),
        }
    }

    /// How many instants lie in `[first, last]`.
    pub(super) fn count(&self, first: UnixMs, last: UnixMs, calendar: &Calendar) -> u64 {
        let Some((after, through)) = self.clamp_both(first.minus(1), last) else { return 0 };
        match &self.rule {
            PlanRule::Cron { error: Some(_), .. } => 0,
            PlanRule::Cron { id, error: None } => calendar.count(*id, after, through),
            PlanRule::Every(grid) => grid.count(after, through),
            PlanRule::Paced(pace) => u64::from(pace.next(after).is_some_and(|next| next <= through)),
            PlanRule::At { at, .. } => u64::from(*at > after && *at <= through),
        }
    }

    /// Nothing before `start_at` is asked for.
    fn clamp(&self, after: UnixMs) -> UnixMs {
        self.start_at.map_or(after, |start| after.max(start.minus(1)))
    }

    fn clamp_both(&self, after: UnixMs, through: UnixMs) -> Option<(UnixMs, UnixMs)> {
        let after = self.clamp(after);
        let through = self.end_at.map_or(through, |end| through.min(end.minus(1)));
        (after < through).then_some((after, through))
    }
}

/// A cron rule as the log keeps it.
pub(super) fn cron_body(spec: &CronSpec) -> RuleBody {
    RuleBody::Cron {
        expr: spec.expr.clone(),
        zone: spec.zone.clone(),
        fold_both: spec.fold == FoldChoice::Both,
        gap_shift: spec.gap == Gap::Shift,
        day_and: spec.day_match == DayMatch::And,
    }
}

/// One use of a cron rule's number in the calendar; `None` for a rule of another kind.
pub(super) fn intern(body: &RuleBody, calendar: &mut Calendar) -> Option<CronId> {
    let RuleBody::Cron { expr, zone, fold_both, gap_shift, day_and } = body else { return None };
    Some(calendar.intern_stored(&CronSpec {
        expr: expr.clone(),
        zone: zone.clone(),
        fold: if *fold_both { FoldChoice::Both } else { FoldChoice::Once },
        gap: if *gap_shift { Gap::Shift } else { Gap::Skip },
        day_match: if *day_and { DayMatch::And } else { DayMatch::Or },
    }))
}
