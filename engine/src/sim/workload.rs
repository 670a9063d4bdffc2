//! What users ask for: schedules of every kind and policy.

use super::swarm::{Dice, Swarm};
use crate::kernel::{
    calendar::{Basis, CronSpec, FoldChoice, Gap},
    policy::{Effect, Misfire, Overlap, Retry},
    schedule::{Rule, Spec},
    time::UnixMs,
};

const CRONS: [(&str, &str); 6] = [
    ("* * * * *", "UTC"),
    ("*/20 * * * * *", "UTC"),
    ("0 */15 * * * *", "Europe/Berlin"),
    ("30 1,2 * * *", "Europe/Berlin"),
    ("30 2 * * *", "America/New_York"),
    ("0 9 29 2 *", "Asia/Shanghai"),
];
const MINUTE_MS: u64 = 60_000;
pub(super) const QUEUES: [&str; 2] = ["one", "two"];
pub(super) const TENANTS: [&str; 2] = ["a", "b"];

/// A schedule around `now`.
pub(super) fn draw(dice: &mut Dice, swarm: &Swarm, now: UnixMs) -> Spec {
    let near = |dice: &mut Dice, reach_ms: u64| now.plus(i64::try_from(dice.below(reach_ms)).unwrap_or(0) - 2_000);
    let every_ms = *dice.pick(&[1_500, 7_000, 7_000, 20_000, 60_000, 600_000, 86_400_000]);
    let queue = dice.index(2);
    let (rule, gap_ms) = match dice.below(8) {
        0..=3 => {
            let anchor = Some(near(dice, 20_000));
            let basis = if swarm.tracks[queue] && dice.percent(25) {
                *dice.pick(&[Basis::Completion, Basis::Start])
            } else {
                Basis::Slot
            };
            (Rule::Every { every_ms, anchor, basis }, every_ms.cast_unsigned())
        }
        4 | 5 => (Rule::At(near(dice, swarm.chaos_ms)), 10 * MINUTE_MS),
        _ => {
            let (expr, zone) = *dice.pick(&CRONS);
            let (fold, gap) = (*dice.pick(&[FoldChoice::Once, FoldChoice::Both]), *dice.pick(&[Gap::Skip, Gap::Shift]));
            (Rule::Cron(CronSpec { fold, gap, ..CronSpec::new(expr, zone) }), 20_000)
        }
    };
    let most = if gap_ms >= 10 * MINUTE_MS { 5 } else { 3 };
    let max_lateness_ms = [5_000, MINUTE_MS, MINUTE_MS, 60 * MINUTE_MS, 366 * 24 * 60 * MINUTE_MS][dice.index(most)];
    let spec = Spec {
        queue: QUEUES[queue].into(),
        start_at: dice.percent(20).then(|| near(dice, 60_000)),
        end_at: dice.percent(20).then(|| near(dice, swarm.chaos_ms)),
        payload: vec![7; dice.index(4)],
        flexible_window_ms: if dice.percent(30) { dice.below(gap_ms) } else { 0 },
        max_lateness_ms,
        misfire: *dice.pick(&[Misfire::Skip, Misfire::FireOnce, Misfire::FireOnce, Misfire::CatchUp { limit: 3 }]),
        overlap: *dice.pick(&[Overlap::Allow, Overlap::Allow, Overlap::SkipIfRunning, Overlap::QueueOne]),
        retry: Retry {
            max_attempts: 1 + u32::try_from(dice.below(4)).unwrap_or(0),
            base_ms: 100,
            cap_ms: 5_000,
            deadline_ms: None,
            budget: None,
        },
        effect: if dice.percent(15) { Effect::NonIdempotent } else { Effect::Idempotent },
        review_owner: Some("ops".into()),
        ..Spec::new(*dice.pick(&TENANTS), rule)
    };
    fitted(spec, swarm.tracks[queue])
}

/// Without what its queue or its rule does not allow.
fn fitted(mut spec: Spec, is_tracked: bool) -> Spec {
    let follows_runs = matches!(spec.rule, Rule::Every { basis: Basis::Completion | Basis::Start, .. });
    if follows_runs {
        spec.overlap = Overlap::Allow;
        spec.misfire = Misfire::Skip;
    }
    if !is_tracked {
        (spec.overlap, spec.retry, spec.effect) = <(Overlap, Retry, Effect)>::default();
    }
    spec
}
