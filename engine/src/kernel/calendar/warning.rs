//! What about a rule may surprise its owner: days that are OR-ed, uneven steps, and dates on which clocks jump.

use super::{
    civil,
    interval::{Basis, Interval},
    rule::CronRule,
    spec::{DayMatch, Fold, Gap},
    timetable::second_of,
    zone::Stretch,
};
use crate::kernel::time::UnixMs;

/// Something that a rule's owner may not expect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// What kind.
    pub code: WarningCode,
    /// One sentence, with the date where there is one.
    pub message: String,
    /// The instant at which the clocks change, for gaps and folds.
    pub at: Option<UnixMs>,
}

/// The kinds of warning; [`WarningCode::as_str`] is stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WarningCode {
    /// There is no instant at all.
    NeverFires,
    /// Both day fields are restricted and either is enough.
    DayFieldsOr,
    /// A step does not divide its field, so the last interval is shorter.
    UnevenStep,
    /// The zone is an old name of a fixed offset.
    FixedOffsetZone,
    /// A wall time does not exist on a date and is skipped.
    GapSkipped,
    /// A wall time does not exist on a date and fires after the gap.
    GapShifted,
    /// A wall time happens twice on a date and fires at the first.
    FoldOnce,
    /// A wall time happens twice on a date and fires at both.
    FoldTwice,
    /// Only the first instant is known: each later one follows a run.
    FollowsRuns,
}

impl WarningCode {
    /// The word for programs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NeverFires => "never_fires",
            Self::DayFieldsOr => "day_fields_or",
            Self::UnevenStep => "uneven_step",
            Self::FixedOffsetZone => "fixed_offset_zone",
            Self::GapSkipped => "gap_skipped",
            Self::GapShifted => "gap_shifted",
            Self::FoldOnce => "fold_once",
            Self::FoldTwice => "fold_twice",
            Self::FollowsRuns => "follows_runs",
        }
    }
}

/// Clock changes are looked for at least this far ahead, so that the next of each kind is seen.
const LOOK_AHEAD_MS: i64 = 2 * 366 * 86_400_000;
/// How far back the usual rhythm of a rule is looked for.
const LOOK_BACK_MS: i64 = 2 * 366 * 86_400_000;
/// Past this many dates a list helps nobody.
const MAX_DATED: usize = 12;

/// What the expression and the zone's name say by themselves.
pub(super) fn about_expression(rule: &CronRule, warnings: &mut Vec<Warning>) {
    let fields = &rule.timetable.fields;
    let mut push = |code, message| warnings.push(Warning { code, message, at: None });
    if fields.days_restricted && fields.weekdays_restricted && rule.spec.day_match == DayMatch::Or {
        let message = "day-of-month and day-of-week are both restricted: a day that matches either fires, \
                       also where one begins with *; set day_match to \"and\" to require both";
        push(WarningCode::DayFieldsOr, message.into());
    }
    for (field, step) in &rule.uneven_steps {
        let (low, high) = field.range();
        let last = (low..=high).step_by(*step as usize).last().unwrap_or(low);
        let message = format!(
            "{}: a step of {step} starts again at {low}, so the last interval is {} instead of {step}",
            field.name(),
            high + 1 - last,
        );
        push(WarningCode::UnevenStep, message);
    }
    if let Some((name, instead)) = FIXED_NAMES.iter().find(|(name, _)| *name == rule.spec.zone) {
        let message =
            format!("{name} is an old name of a fixed offset that never changes; people usually mean {instead}");
        push(WarningCode::FixedOffsetZone, message);
    }
}

/// Why there is no list of an interval that follows its runs.
pub(super) fn about_pace(interval: Interval, basis: Basis) -> Warning {
    let what = match basis {
        Basis::Slot => "on its grid",
        Basis::Completion => "after the run before has come to its end",
        Basis::Start => "after the run before was claimed for the first time",
    };
    let message = format!("only the first instant is known: each later one comes {} ms {what}", interval.every_ms());
    Warning { code: WarningCode::FollowsRuns, message, at: None }
}

const FIXED_NAMES: [(&str, &str); 2] = [("EST", "America/New_York"), ("MST", "America/Denver")];

/// The dates between `after` and `last` (and two years ahead, but before `end`) on which a gap or a fold changes what
/// the expression seems to say. Where the rhythm goes on undisturbed there is nothing to warn of.
pub(super) fn about_clock_changes(
    rule: &CronRule,
    after: UnixMs,
    last: UnixMs,
    end: UnixMs,
    warnings: &mut Vec<Warning>,
) {
    let (after_s, until) = (second_of(after), last.max(after.plus(LOOK_AHEAD_MS)).min(end));
    let changes = rule.zone().from(after_s + 1).iter().filter(|stretch| stretch.start_s > after_s);
    let soon = changes.take_while(|stretch| stretch.start_s * 1_000 < until.0);
    warnings.extend(soon.filter_map(|stretch| about_change(rule, stretch)).take(MAX_DATED));
}

fn about_change(rule: &CronRule, stretch: &Stretch) -> Option<Warning> {
    let (shown, starts) = (stretch.shown_until_s, stretch.wall_start_s());
    let (from_s, to_s) = (shown.min(starts), shown.max(starts));
    let concerned = rule.timetable.fields.count_between(from_s, to_s);
    if concerned == 0 {
        return None;
    }
    let at = UnixMs(stretch.start_s * 1_000);
    let rhythm = Rhythm::around(rule, at);
    let every_hour = rule.timetable.fields.hours.count_ones() == 24;
    let example = rule.first_wall_from(from_s)?;
    let what = match concerned {
        1 => civil::show_time(example),
        _ => format!("{} (and {} more)", civil::show_time(example), concerned - 1),
    };
    let changing = format!(
        "on {} in {} (the clocks go from {} to {})",
        civil::show_date(example),
        rule.spec.zone,
        civil::show_time(shown),
        civil::show_time(starts),
    );
    let (code, message) = match (stretch.begins_with_fold(), rule.fold(), rule.timetable.gap) {
        (true, Fold::Both, _) if every_hour => return None,
        (true, Fold::Both, _) => (WarningCode::FoldTwice, format!("{what} happens twice {changing} and fires at both")),
        (true, Fold::Once, _) => {
            let pause = rhythm.pause_minutes().map(|minutes| format!(": nothing fires for {minutes} min"));
            let pause = pause.filter(|_| every_hour).unwrap_or_default();
            (WarningCode::FoldOnce, format!("{what} happens twice {changing} and fires at the first only{pause}"))
        }
        (false, ..) if every_hour && rhythm.goes_on() => return None,
        (false, _, Gap::Skip) => (WarningCode::GapSkipped, format!("{what} does not exist {changing} and is skipped")),
        (false, _, Gap::Shift) => {
            let shifted = civil::show_time(starts);
            (WarningCode::GapShifted, format!("{what} does not exist {changing} and fires at {shifted}"))
        }
    };
    Some(Warning { code, message, at: Some(at) })
}

/// The two instants before and the two from a clock change on, and so whether it is felt.
struct Rhythm {
    before: [Option<UnixMs>; 2],
    from: [Option<UnixMs>; 2],
}

impl Rhythm {
    fn around(rule: &CronRule, change: UnixMs) -> Self {
        let earlier = |than: UnixMs| rule.latest(than.minus(LOOK_BACK_MS), than.minus(1));
        let before = earlier(change);
        let from = rule.next(change.minus(1));
        Self { before: [before.and_then(earlier), before], from: [from, from.and_then(|at| rule.next(at))] }
    }

    /// The distance across the change, and the usual ones before and after it.
    fn distances_ms(&self) -> Option<(i64, [i64; 2])> {
        let [earlier, before] = self.before;
        let [from, later] = self.from;
        Some((from?.since(before?), [before?.since(earlier?), later?.since(from?)]))
    }

    /// Whether the distance across the change is no longer than usual.
    fn goes_on(&self) -> bool {
        self.distances_ms().is_some_and(|(across, [before, after])| across <= before.max(after))
    }

    fn pause_minutes(&self) -> Option<i64> {
        self.distances_ms().map(|(across, _)| across / 60_000)
    }
}
