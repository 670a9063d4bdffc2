//! Which schedules a demo makes, and which instants each of them must have.
//!
//! The instants are computed without the engine's calendar: the rules are chosen so that plain arithmetic tells them.

use std::time::Duration;

use crate::kernel::{
    calendar::CronSpec,
    changes::{NewRule, NewSchedule},
    time::UnixMs,
};

/// The tenant and the queue of all of it.
pub(crate) const TENANT: &str = "demo";
pub(crate) const QUEUE: &str = "bells";
/// How many one-offs strike on one instant in `--crash`.
pub(crate) const BURST: usize = 500;

/// What is made, and when it is over.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) from: UnixMs,
    pub(crate) end_at: UnixMs,
    pub(crate) planned: Vec<Planned>,
}

/// One schedule to make.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    /// Its name, unique in the plan.
    pub(crate) name: String,
    /// The row of the table it is counted in.
    pub(crate) row: &'static str,
    /// Its rule, for people.
    pub(crate) told: &'static str,
    rule: NewRule,
    flexible_window: Option<Duration>,
    beat: Beat,
}

/// The instants of a rule as plain arithmetic.
#[derive(Clone, Copy, Debug)]
enum Beat {
    /// `anchor + n * every_ms`
    Grid { every_ms: i64, anchor: UnixMs },
    /// One.
    Once(UnixMs),
}

impl Plan {
    /// Four kinds of schedule for `seconds` from `from` on.
    pub(crate) fn live(from: UnixMs, seconds: u16) -> Self {
        let length_ms = i64::from(seconds) * 1_000;
        let planned = vec![
            cron("berlin", "*/2 * * * * *", "Europe/Berlin", "cron */2s Europe/Berlin", 2_000),
            Planned {
                flexible_window: Some(Duration::from_secs(1)),
                ..cron("flexible", "*/3 * * * * *", "America/New_York", "cron */3s spread by 1s", 3_000)
            },
            interval("interval", from.plus(337)),
            once("one-off".to_owned(), "one-off", "once, halfway", from.plus(length_ms / 2)),
        ];
        Self { from, end_at: from.plus(length_ms), planned }
    }

    /// The same with a burst after a third of the time.
    pub(crate) fn crash(from: UnixMs, seconds: u16) -> Self {
        let mut plan = Self::live(from, seconds);
        let at = plan.burst_at();
        plan.planned.extend((0..BURST).map(|n| once(format!("burst-{n:03}"), "burst", "once, 500 on one instant", at)));
        plan
    }

    /// When the burst strikes.
    pub(crate) fn burst_at(&self) -> UnixMs {
        self.from.plus(self.end_at.since(self.from) / 3)
    }
}

impl Planned {
    /// The call that makes it.
    pub(crate) fn new_schedule(&self, end_at: UnixMs) -> NewSchedule {
        let mut new = NewSchedule::new(self.rule.clone()).tenant(TENANT).queue(QUEUE).name(self.name.clone());
        new.rest.flexible_window = Some(self.flexible_window);
        new.payload(self.name.clone()).end_at(end_at)
    }

    /// The instants after `created_at` and before `end_at`.
    pub(crate) fn instants(&self, created_at: UnixMs, end_at: UnixMs) -> Vec<UnixMs> {
        match self.beat {
            Beat::Once(at) => vec![at],
            Beat::Grid { every_ms, anchor } => {
                let first = created_at.since(anchor).div_euclid(every_ms) + 1;
                (first..).map(|n| anchor.plus(n * every_ms)).take_while(|at| *at < end_at).collect()
            }
        }
    }
}

/// A cron rule whose instants are the multiples of `every_ms`: zones are whole minutes apart.
fn cron(name: &'static str, expr: &str, zone: &str, told: &'static str, every_ms: i64) -> Planned {
    Planned {
        name: name.to_owned(),
        row: name,
        told,
        rule: NewRule::from(CronSpec::new(expr, zone)),
        flexible_window: None,
        beat: Beat::Grid { every_ms, anchor: UnixMs(0) },
    }
}

fn interval(name: &'static str, anchor: UnixMs) -> Planned {
    Planned {
        name: name.to_owned(),
        row: name,
        told: "every 1s, its own grid",
        rule: NewRule::Every { every: Duration::from_secs(1), anchor: Some(anchor), basis: None },
        flexible_window: None,
        beat: Beat::Grid { every_ms: 1_000, anchor },
    }
}

fn once(name: String, row: &'static str, told: &'static str, at: UnixMs) -> Planned {
    Planned { name, row, told, rule: NewRule::At(at), flexible_window: None, beat: Beat::Once(at) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_strictly_after_creation_and_before_the_end() {
        let plan = Plan::live(UnixMs(10_000), 6);
        let of = |name: &str, created: i64| {
            let planned = plan.planned.iter().find(|planned| planned.name == name).unwrap();
            planned.instants(UnixMs(created), plan.end_at).into_iter().map(|at| at.0).collect::<Vec<_>>()
        };
        assert_eq!(of("berlin", 10_000), [12_000, 14_000]);
        assert_eq!(of("berlin", 9_999), [10_000, 12_000, 14_000]);
        assert_eq!(of("flexible", 10_001), [12_000, 15_000]);
        assert_eq!(of("interval", 10_337), [11_337, 12_337, 13_337, 14_337, 15_337]);
        assert_eq!(of("one-off", 10_001), [13_000]);
    }

    #[test]
    fn a_crash_plan_has_a_burst_on_one_instant_within_its_time() {
        let plan = Plan::crash(UnixMs(0), 12);
        let burst: Vec<&Planned> = plan.planned.iter().filter(|planned| planned.row == "burst").collect();
        assert_eq!(burst.len(), BURST);
        assert!(burst.iter().all(|planned| planned.instants(UnixMs(1), plan.end_at) == [UnixMs(4_000)]));
    }
}
