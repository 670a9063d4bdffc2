//! In which order lanes are read: strict before flexible before catch-up, and at least a tenth for each that has work.

use crate::kernel::occurrence::Lane;

/// Of so many entries of other lanes, one is followed by one of a lane that waits.
const OTHERS: usize = 9;

/// How far each lane is behind.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// Entries taken of other lanes since this one was given its share, or found empty.
    passed: [usize; Lane::ALL.len()],
}

impl Shares {
    /// What to read while there is room for `room` entries: each lane with its limit, those that are owed first.
    pub(super) fn plan(&self, room: usize) -> Vec<(Lane, usize)> {
        let owed = Lane::ALL.into_iter().zip(self.passed).map(|(lane, passed)| (lane, (passed / OTHERS).min(room)));
        let owed = owed.filter(|(_, count)| *count > 0);
        // The lane that is furthest down the order has waited for all others.
        let mut plan: Vec<_> = owed.collect();
        plan.reverse();
        plan.extend(Lane::ALL.map(|lane| (lane, room)));
        plan
    }

    /// So many entries of a lane were taken, of `asked` that were asked for.
    pub(super) fn took(&mut self, lane: Lane, taken: usize, asked: usize) {
        for (other, passed) in Lane::ALL.into_iter().zip(&mut self.passed) {
            if other != lane {
                *passed = passed.saturating_add(taken);
            } else if taken < asked {
                *passed = 0;
            } else {
                *passed = passed.saturating_sub(taken.saturating_mul(OTHERS));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `total` entries in rooms of `room` from lanes that hold so many.
    fn read(mut held: [usize; 3], room: usize, total: usize) -> [usize; 3] {
        let (mut shares, mut taken, mut all) = (Shares::default(), [0; 3], 0);
        while all < total && held.iter().sum::<usize>() > 0 {
            let mut left = room;
            for (lane, limit) in shares.plan(room) {
                let (index, asked) = (lane as usize, limit.min(left));
                let count = asked.min(held[index]);
                if asked > 0 {
                    shares.took(lane, count, asked);
                }
                (held[index], taken[index], left, all) =
                    (held[index] - count, taken[index] + count, left - count, all + count);
            }
        }
        taken
    }

    #[test]
    fn every_lane_with_work_gets_a_tenth_and_strict_the_rest() {
        for room in [1, 2, 7, 64, 1_000] {
            let [strict, flexible, catch_up] = read([1 << 20; 3], room, 20_000);
            let total = strict + flexible + catch_up;
            assert!(flexible * 11 >= total && catch_up * 11 >= total, "{room}: {strict} {flexible} {catch_up}");
            assert!(strict * 10 >= total * 7, "{room}: {strict} of {total}");
        }
    }

    #[test]
    fn a_lane_that_was_empty_is_owed_nothing_for_that_time() {
        let mut shares = Shares::default();
        for _ in 0..1_000 {
            for (lane, limit) in shares.plan(1) {
                shares.took(lane, usize::from(lane == Lane::Strict), limit);
            }
        }
        assert!(shares.plan(1).len() <= 5 && shares.passed.iter().all(|passed| *passed <= 2 * OTHERS), "{shares:?}");
    }

    #[test]
    fn strict_goes_first_when_all_have_just_come() {
        assert_eq!(Shares::default().plan(3), [(Lane::Strict, 3), (Lane::Flexible, 3), (Lane::CatchUp, 3)]);
        assert_eq!(read([5, 5, 5], 5, 5), [5, 0, 0]);
    }
}
