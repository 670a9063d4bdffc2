//! What becomes of an occurrence while others of its schedule are under way: a table, asked when it is released and again
//! when it is claimed.

use super::policy::Overlap;

/// What matters of a schedule's other occurrences, of any version and kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnderWay {
    /// How many are RUNNING; HELD ones too where the effect is not idempotent.
    pub running: u32,
    /// Whether one waits for its turn already: SCHEDULED past its time, ENQUEUED or RETRY_WAIT.
    pub one_waits: bool,
}

/// Which occurrence asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// A regular occurrence in its own lane, or a manual one.
    OnTime,
    /// One that was admitted late, or of a backfill: all of them run, one after another.
    CaughtUp,
    /// A retry: it has begun to run, and is never skipped.
    Retry,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    GoOn,
    /// It waits in the shard until a run ends.
    Wait,
    /// It is skipped for good.
    Skip,
}

/// The table.
#[must_use]
pub const fn decide(overlap: Overlap, under_way: UnderWay, asking: Asking) -> Verdict {
    let is_running = under_way.running > 0;
    match (overlap, asking) {
        (Overlap::Allow, _) => Verdict::GoOn,
        (Overlap::SkipIfRunning | Overlap::QueueOne, Asking::Retry | Asking::CaughtUp) if is_running => Verdict::Wait,
        (Overlap::SkipIfRunning, Asking::OnTime) if is_running => Verdict::Skip,
        (Overlap::QueueOne, Asking::OnTime) if under_way.one_waits => Verdict::Skip,
        (Overlap::QueueOne, Asking::OnTime) if is_running => Verdict::Wait,
        (Overlap::SkipIfRunning | Overlap::QueueOne, _) => Verdict::GoOn,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Asking::{CaughtUp, OnTime, Retry},
        Verdict::{GoOn, Skip, Wait},
        *,
    };

    #[test]
    fn the_table() {
        let idle = UnderWay::default();
        let running = UnderWay { running: 1, one_waits: false };
        let waiting = UnderWay { running: 0, one_waits: true };
        let both = UnderWay { running: 1, one_waits: true };
        for (overlap, asking, verdicts) in [
            (Overlap::Allow, OnTime, [GoOn, GoOn, GoOn, GoOn]),
            (Overlap::Allow, CaughtUp, [GoOn, GoOn, GoOn, GoOn]),
            (Overlap::SkipIfRunning, OnTime, [GoOn, Skip, GoOn, Skip]),
            (Overlap::SkipIfRunning, CaughtUp, [GoOn, Wait, GoOn, Wait]),
            (Overlap::SkipIfRunning, Retry, [GoOn, Wait, GoOn, Wait]),
            (Overlap::QueueOne, OnTime, [GoOn, Wait, Skip, Skip]),
            (Overlap::QueueOne, CaughtUp, [GoOn, Wait, GoOn, Wait]),
            (Overlap::QueueOne, Retry, [GoOn, Wait, GoOn, Wait]),
        ] {
            let decided = [idle, running, waiting, both].map(|under_way| decide(overlap, under_way, asking));
            assert_eq!(decided, verdicts, "{overlap:?} {asking:?}");
        }
    }
}
