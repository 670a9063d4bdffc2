//! What a rule will do: its next instants as a person in the zone reads them, and what may surprise.

use super::{
    CALENDAR_END, civil,
    interval::{Basis, Interval},
    rule::CronRule,
    spec::Fold,
    warning::{self, Warning, WarningCode},
    zone::Zone,
};
use crate::kernel::time::UnixMs;

/// The most instants that a preview shows.
pub const MAX_COUNT: usize = 10_000;

/// A rule to look ahead at.
#[derive(Clone, Copy, Debug)]
pub enum Previewed<'a> {
    /// Cron in a zone.
    Cron(&'a CronRule),
    /// A grid of elapsed time; shown in UTC.
    Interval(Interval),
    /// An interval that follows its own runs, laid through its anchor: only its first instant is known. Shown in UTC.
    Paced(Interval, Basis),
    /// One instant; shown in UTC.
    At(UnixMs),
}

/// Which instants to look at: at most `count`, strictly after `from`, in `[start_at, end_at)`.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Nothing at or before this instant.
    pub from: UnixMs,
    /// Nothing before this instant.
    pub start_at: Option<UnixMs>,
    /// Nothing at or after this instant.
    pub end_at: Option<UnixMs>,
    /// At most this many, and at most [`MAX_COUNT`].
    pub count: usize,
}

/// What a rule will do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// The next instants, ascending.
    pub next: Vec<Fire>,
    /// What may surprise, the undated first.
    pub warnings: Vec<Warning>,
    /// What `fold` came to, for cron.
    pub fold: Option<Fold>,
}

/// One instant, and what the zone's clocks show at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fire {
    /// The instant.
    pub at: UnixMs,
    /// Local time without offset, `2026-11-01T01:30:00`; with milliseconds where there are any.
    pub local: String,
    /// The offset from UTC, `-04:00`.
    pub offset: String,
}

/// Looks ahead.
#[must_use]
pub fn preview(rule: Previewed<'_>, window: &Window) -> Preview {
    let after = window.start_at.map_or(window.from, |start_at| window.from.max(start_at.minus(1)));
    let step = |after: UnixMs| {
        let next = match rule {
            Previewed::Cron(rule) => rule.next(after),
            Previewed::Interval(interval) => interval.next(after),
            Previewed::Paced(interval, _) => interval.next_behind_anchor(after),
            Previewed::At(at) => Some(at).filter(|at| *at > after),
        };
        next.filter(|at| window.end_at.is_none_or(|end_at| *at < end_at))
    };
    let count = if matches!(rule, Previewed::Paced(..)) { window.count.min(1) } else { window.count.min(MAX_COUNT) };
    let instants = std::iter::successors(step(after), |at| step(*at)).take(count);
    let zone = match rule {
        Previewed::Cron(rule) => Some(&**rule.zone()),
        Previewed::Interval(_) | Previewed::Paced(..) | Previewed::At(_) => None,
    };
    let next: Vec<Fire> = instants.map(|at| Fire::new(at, zone)).collect();
    let mut warnings = Vec::new();
    if window.count > 0 && next.is_empty() {
        warnings.push(never_fires(rule, after, window));
    }
    if let Previewed::Paced(interval, basis) = rule {
        warnings.push(warning::about_pace(interval, basis));
    }
    let Previewed::Cron(rule) = rule else {
        return Preview { next, warnings, fold: None };
    };
    warning::about_expression(rule, &mut warnings);
    let last = next.last().map_or(after, |fire| fire.at);
    let end = window.end_at.unwrap_or(CALENDAR_END).min(CALENDAR_END);
    warning::about_clock_changes(rule, after, last, end, &mut warnings);
    Preview { next, warnings, fold: Some(rule.fold()) }
}

impl Fire {
    /// An instant on a zone's clocks, else in UTC.
    #[must_use]
    pub fn new(at: UnixMs, zone: Option<&Zone>) -> Self {
        let offset_s = zone.map_or(0, |zone| zone.offset_s(at));
        let ms = at.0.rem_euclid(1_000);
        let mut local = civil::show(at.0.div_euclid(1_000) + offset_s);
        if ms > 0 {
            local.push_str(&format!(".{ms:03}"));
        }
        Self { at, local, offset: show_offset(offset_s) }
    }
}

/// `+05:30`; with seconds where there are any.
fn show_offset(offset_s: i64) -> String {
    let (sign, size) = (if offset_s < 0 { '-' } else { '+' }, offset_s.abs());
    let mut text = format!("{sign}{:02}:{:02}", size / 3_600, size / 60 % 60);
    if size % 60 > 0 {
        text.push_str(&format!(":{:02}", size % 60));
    }
    text
}

fn never_fires(rule: Previewed<'_>, after: UnixMs, window: &Window) -> Warning {
    let message = match (rule, window.end_at) {
        (Previewed::Cron(rule), _) if rule.has_no_date() => {
            format!("{:?} never fires: no year has a day that matches", rule.spec().expr)
        }
        (_, Some(end_at)) => format!("never fires: no instant after {after} and before end_at {end_at}"),
        (Previewed::Cron(_), None) if after >= CALENDAR_END => {
            format!("never fires: {after} is past the end of the calendar, {CALENDAR_END}")
        }
        (Previewed::Cron(rule), None) => format!(
            "{:?} never fires in {} within 40 years after {after}: every time it names falls into a gap of the clocks",
            rule.spec().expr,
            rule.spec().zone,
        ),
        (Previewed::Interval(_) | Previewed::Paced(..) | Previewed::At(_), None) => {
            format!("never fires: no instant after {after}")
        }
    };
    Warning { code: WarningCode::NeverFires, message, at: None }
}
