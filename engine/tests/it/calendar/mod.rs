//! Cron in a zone: against corpora, reported bugs, a second implementation and its own laws.

mod batch;
mod corpora;
mod laws;
mod local_times;
mod reports;
mod second_opinion;
mod warnings;

use std::sync::{Arc, LazyLock};

use countwheel::{
    kernel::{
        calendar::{CronRule, CronSpec, DayMatch, FoldChoice, Gap, ZoneSet},
        time::UnixMs,
    },
    shell::tzdata,
};

/// The bundled zone rules, the same on every machine.
static ZONES: LazyLock<Arc<ZoneSet>> = LazyLock::new(|| Arc::new(tzdata::bundled()));

fn spec(expr: &str, zone: &str, fold: FoldChoice, gap: Gap) -> CronSpec {
    CronSpec { fold, gap, day_match: DayMatch::Or, ..CronSpec::new(expr, zone) }
}

fn rule(expr: &str, zone: &str) -> CronRule {
    CronRule::new(&CronSpec::new(expr, zone), &ZONES).unwrap_or_else(|error| panic!("{expr} {zone}: {error}"))
}

/// The first `count` instants strictly after `after`.
fn instants(rule: &CronRule, after: UnixMs, count: usize) -> Vec<UnixMs> {
    std::iter::successors(rule.next(after), |at| rule.next(*at)).take(count).collect()
}

fn at(text: &str) -> UnixMs {
    UnixMs::parse_rfc3339(text).unwrap_or_else(|| panic!("{text} is no instant"))
}
