//! One cron rule, parsed: its next, latest and counted instants.

use std::sync::Arc;

use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};

use super::{
    civil::Wall,
    error::{CalendarError, CronError},
    fields::{CronField, Fields},
    parse::{Parsed, parse},
    spec::{CronSpec, DayMatch, Fold},
    timetable::Timetable,
    zone::Zone,
    zones::ZoneSet,
};
use crate::kernel::time::UnixMs;

/// A parsed rule (about 6 KB, most of it croner's table of years; a [`super::Calendar`] shares them).
#[derive(Debug)]
pub struct CronRule {
    pub(super) spec: CronSpec,
    pub(super) timetable: Arc<Timetable>,
    pub(super) cron: Cron,
    pub(super) uneven_steps: Vec<(CronField, u32)>,
}

impl CronRule {
    /// Parses a rule under the loaded zone rules. A rule whose dates never come is made too: ask
    /// [`CronRule::has_no_date`].
    ///
    /// # Errors
    /// `InvalidCron`, `UnknownZone` or `UnreadableZone`.
    pub fn new(spec: &CronSpec, zones: &ZoneSet) -> Result<Self, CalendarError> {
        let (timetable, uneven_steps) = timetable(spec, zones)?;
        let cron = croner_pattern(&timetable.fields);
        Ok(Self { spec: spec.clone(), timetable: Arc::new(timetable), cron, uneven_steps })
    }

    /// Whether `expr` is cron as this engine reads it, whatever the zone.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(expr: &str) -> Result<(), CronError> {
        parse(expr).map(drop)
    }

    /// The rule as it was written.
    #[must_use]
    pub fn spec(&self) -> &CronSpec {
        &self.spec
    }

    /// What `fold` came to: `auto` is resolved here.
    #[must_use]
    pub fn fold(&self) -> Fold {
        self.timetable.fold
    }

    /// The zone's rules.
    #[must_use]
    pub fn zone(&self) -> &Arc<Zone> {
        &self.timetable.zone
    }

    /// Whether no date of any year matches (30 February), whatever the zone.
    #[must_use]
    pub fn has_no_date(&self) -> bool {
        self.timetable.has_no_date
    }

    /// The first instant strictly after `after`: within 40 years of it and before 2200, or none. An `after` before
    /// 1970 counts as just before 1970.
    #[must_use]
    pub fn next(&self, after: UnixMs) -> Option<UnixMs> {
        self.timetable.next(&self.cron, after)
    }

    /// The last instant in `(after, through]`.
    #[must_use]
    pub fn latest(&self, after: UnixMs, through: UnixMs) -> Option<UnixMs> {
        self.timetable.latest(&self.cron, after, through)
    }

    /// How many instants lie in `(after, through]`.
    #[must_use]
    pub fn count(&self, after: UnixMs, through: UnixMs) -> u64 {
        self.timetable.count(after, through)
    }

    /// The first matching wall time at or after `wall_s`, on a clock that knows no zone.
    pub(super) fn first_wall_from(&self, wall_s: i64) -> Option<i64> {
        let found = self.cron.find_next_occurrence(&Wall(wall_s), true).ok();
        found.filter(|_| !self.has_no_date()).map(|Wall(wall_s)| wall_s)
    }
}

/// A rule's timetable, and the steps of its expression that do not divide their field.
pub(super) fn timetable(spec: &CronSpec, zones: &ZoneSet) -> Result<(Timetable, Vec<(CronField, u32)>), CalendarError> {
    let Parsed { mut fields, is_cadence, uneven_steps } = parse(&spec.expr)?;
    fields.both_days_must_match = spec.day_match == DayMatch::And;
    let zone = zones.zone(&spec.zone)?;
    let (has_no_date, fold) = (fields.never_matches_a_date(), spec.fold.resolve(is_cadence));
    Ok((Timetable { fields, has_no_date, zone, fold, gap: spec.gap }, uneven_steps))
}

/// croner's pattern of the same sets: about 15 us and 5.5 KB.
pub(super) fn croner_pattern(fields: &Fields) -> Cron {
    let parser = CronParser::builder()
        .seconds(Seconds::Required)
        .year(Year::Disallowed)
        .dom_and_dow(fields.both_days_must_match)
        .build();
    parser.parse(&fields.to_croner()).expect("croner reads the sets that were written for it")
}
