//! Does the wheel keep its promises? Stories with exact outputs, work counted by the turn, scripts against the model.

use proptest::prelude::*;

use super::*;

const START: UnixMs = UnixMs(1_793_511_000_000);
const HOUR_MS: i64 = 3_600_000;
const YEAR_MS: i64 = 365 * 24 * HOUR_MS;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn the_wheel_equals_a_sorted_map(script in prop::collection::vec(any::<u8>(), 0..600)) {
        check_against_model(&script);
    }
}

/// One turn: what fired, what it said, how many rows it moved.
fn turn(timers: &mut Timers, now: UnixMs, limit: usize) -> (Vec<u32>, Advance, u64) {
    let moved = timers.moved();
    let mut fired = Vec::new();
    let advance = timers.advance(now, limit, &mut fired);
    (fired, advance, timers.moved() - moved)
}

/// Turns at `now` until it says that it caught up.
fn catch_up(timers: &mut Timers, now: UnixMs) -> Vec<u32> {
    let mut fired = Vec::new();
    let caught_up = (0..1_000).any(|_| timers.advance(now, 1_000, &mut fired) == Advance::CaughtUp);
    assert!(caught_up, "a thousand turns were not enough");
    fired
}

/// Deadlines that look random and are the same in every run.
fn scattered(rows: u32, span_ms: i64) -> impl Iterator<Item = (u32, UnixMs)> {
    (0..rows).map(move |row| {
        let hash = u64::from(row).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (row, START.plus((hash >> 1) as i64 % span_ms + 1))
    })
}

#[test]
fn rows_fire_at_their_millisecond_and_not_before() {
    let mut timers = Timers::new(START);
    let waits =
        [1, 2, 1_023, 1_024, 1_025, 2_047, 2_048, HORIZON_MS, HORIZON_MS + 1, 24 * HOUR_MS, YEAR_MS, 80 * YEAR_MS];
    for (row, wait_ms) in (0..).zip(waits) {
        timers.arm(row, START.plus(wait_ms));
    }
    for (row, wait_ms) in (0..).zip(waits) {
        assert_eq!(catch_up(&mut timers, START.plus(wait_ms - 1)), Vec::<u32>::new(), "row {row} a millisecond early");
        assert_eq!(catch_up(&mut timers, START.plus(wait_ms)), [row]);
    }
    assert!(timers.is_empty());
}

#[test]
fn rows_missed_during_an_outage_fire_oldest_first() {
    let mut timers = Timers::new(START);
    for (row, wait_ms) in [(0, 5 * HOUR_MS), (1, 70), (2, HOUR_MS), (3, 3), (4, 6 * HOUR_MS)] {
        timers.arm(row, START.plus(wait_ms));
    }
    assert_eq!(catch_up(&mut timers, START.plus(5 * HOUR_MS)), [3, 1, 2, 0]);
    assert_eq!(timers.deadline(4), Some(START.plus(6 * HOUR_MS)));
}

#[test]
fn rows_armed_for_the_past_fire_at_the_next_advance_oldest_first() {
    let mut timers = Timers::new(START);
    timers.arm(0, START.minus(1));
    timers.arm(1, START);
    timers.arm(2, START.minus(HOUR_MS));
    timers.arm(3, UnixMs(i64::MIN));
    assert_eq!(timers.next_deadline(), Some(UnixMs(i64::MIN)));
    assert!(timers.disarm(3));
    assert_eq!(turn(&mut timers, START, 2).0, [2, 0]);
    assert_eq!(turn(&mut timers, START, 2), (vec![1], Advance::CaughtUp, 0));
}

#[test]
fn a_clock_that_goes_back_fires_nothing_early() {
    let mut timers = Timers::new(START);
    assert_eq!(catch_up(&mut timers, START.plus(1_000)), Vec::<u32>::new());
    timers.arm(0, START.plus(500));
    timers.arm(1, START.plus(1_000));
    timers.arm(2, START.plus(1_001));
    assert_eq!(catch_up(&mut timers, START.plus(499)), Vec::<u32>::new());
    assert_eq!(catch_up(&mut timers, START.plus(500)), [0]);
    assert_eq!(catch_up(&mut timers, START.plus(999)), Vec::<u32>::new());
    assert_eq!(catch_up(&mut timers, START.plus(1_001)), [1, 2]);
}

#[test]
fn arming_again_replaces_the_deadline() {
    let mut timers = Timers::new(START);
    timers.arm(7, START.plus(10));
    timers.arm(7, START.plus(HOUR_MS));
    assert_eq!((timers.len(), timers.deadline(7)), (1, Some(START.plus(HOUR_MS))));
    assert_eq!(catch_up(&mut timers, START.plus(HOUR_MS - 1)), Vec::<u32>::new());
    timers.arm(7, START.plus(HOUR_MS + 5));
    assert!(timers.disarm(7));
    assert!(!timers.disarm(7) && !timers.disarm(8), "nothing is left to disarm");
    assert_eq!((timers.next_deadline(), timers.deadline(7)), (None, None));
}

#[test]
fn a_near_deadline_is_told_to_the_millisecond_and_a_far_one_wakes_before() {
    let mut timers = Timers::new(START);
    timers.arm(0, START.plus(9 * HOUR_MS));
    let wakes: Vec<_> = std::iter::from_fn(|| {
        let at = timers.next_deadline()?;
        catch_up(&mut timers, at);
        Some(START.plus(9 * HOUR_MS).since(at))
    })
    .collect();
    let [bucket, second, exact] = wakes[..] else { panic!("{wakes:?}") };
    assert!((HORIZON_MS..=2 * HORIZON_MS).contains(&bucket), "{wakes:?}");
    assert!((1_024..=2_048).contains(&second), "{wakes:?}");
    assert_eq!(exact, 0);
}

#[test]
fn the_ends_of_time_are_instants_like_others() {
    let mut timers = Timers::new(UnixMs(i64::MIN));
    for (row, at) in (0..).zip([i64::MIN, -1, 0, i64::MAX - 1, i64::MAX]) {
        timers.arm(row, UnixMs(at));
    }
    assert_eq!(catch_up(&mut timers, UnixMs(-1)), [0, 1]);
    assert_eq!(catch_up(&mut timers, UnixMs(i64::MAX - 1)), [2, 3]);
    assert_eq!(catch_up(&mut timers, UnixMs(i64::MAX)), [4]);
}

#[test]
fn no_turn_moves_more_than_its_bound_and_all_is_split_before_it_is_due() {
    let mut timers = Timers::new(START);
    for (row, deadline) in scattered(200_000, 3 * HOUR_MS) {
        timers.arm(row, deadline);
    }
    let (mut fired, mut now, mut largest_move) = (0, START, 0);
    while let Some(at) = timers.next_deadline() {
        now = now.max(at);
        let first_due = timers.occupancy.first_start(0, timers.reached).filter(|&due| due <= now.0);
        let (rows, _, moved) = turn(&mut timers, now, 100);
        assert_eq!(rows.is_empty(), first_due.is_none(), "what was due at {now:?} had not been split");
        assert!(moved <= MOVES_A_TURN as u64);
        largest_move = largest_move.max(moved);
        fired += rows.len();
    }
    assert_eq!(fired, 200_000);
    assert_eq!(largest_move, MOVES_A_TURN as u64, "20,000 rows a bucket must have reached the bound");
}

#[test]
fn a_leap_over_years_is_made_in_bounded_turns() {
    let mut timers = Timers::new(START);
    for (row, deadline) in scattered(30_000, 3 * YEAR_MS) {
        timers.arm(row, deadline);
    }
    let (mut fired, mut turns) = (Vec::new(), 0);
    while turns < 10_000 {
        let (rows, advance, moved) = turn(&mut timers, START.plus(3 * YEAR_MS), 64);
        assert!(rows.len() <= 64 && moved <= MOVES_A_TURN as u64);
        fired.extend(rows);
        turns += 1;
        if advance == Advance::CaughtUp {
            break;
        }
    }
    let mut expected: Vec<_> = scattered(30_000, 3 * YEAR_MS).collect();
    expected.sort_by_key(|&(_, deadline)| deadline);
    assert_eq!(fired, expected.iter().map(|&(row, _)| row).collect::<Vec<_>>());
    let least_turns = 30_000_u64.div_ceil(64);
    assert!(turns <= least_turns + timers.moved().div_ceil(MOVES_A_TURN as u64) + 1, "{turns} turns");
}

#[test]
fn many_rows_on_one_millisecond_fire_a_limit_at_a_time() {
    let mut timers = Timers::new(START);
    let hour = START.plus(HOUR_MS);
    for row in 0..100_000 {
        timers.arm(row, hour);
    }
    while let Some(at) = timers.next_deadline().filter(|&at| at < hour) {
        assert_eq!(catch_up(&mut timers, at), Vec::<u32>::new());
    }
    let mut seen = vec![false; 100_000];
    for left in (0..100).rev() {
        let (rows, advance, moved) = turn(&mut timers, hour, 1_000);
        assert_eq!((rows.len(), moved), (1_000, 0));
        assert_eq!(advance, if left == 0 { Advance::CaughtUp } else { Advance::MoreToDo });
        for row in rows {
            assert!(!std::mem::replace(&mut seen[row as usize], true), "row {row} fired twice");
        }
    }
    assert!(seen.iter().all(|&fired| fired));
}

#[test]
fn a_mass_cancel_leaves_nothing_behind() {
    let mut timers = Timers::new(START);
    for (row, deadline) in scattered(100_000, 2 * HOUR_MS) {
        timers.arm(row, deadline);
    }
    let full = timers.memory_bytes();
    for row in (0..100_000).filter(|row| row % 100 != 0) {
        assert!(timers.disarm(row));
    }
    assert_eq!(timers.len(), 1_000);
    assert_eq!(timers.buckets().map(|bucket| bucket.rows).sum::<u32>(), 1_000);
    let slots = timers.buckets().count();
    let chunks = timers.slots.chunks_used();
    assert!(chunks <= slots + 1_000 / 32, "{chunks} chunks hold 1,000 rows in {slots} slots");
    for round in 0..3 {
        for (row, deadline) in scattered(100_000, 2 * HOUR_MS) {
            timers.arm(row, deadline.plus(round));
        }
    }
    assert_eq!(timers.memory_bytes(), full, "what was cancelled is used again");
    for row in 0..100_000 {
        timers.disarm(row);
    }
    assert_eq!((timers.len(), timers.next_deadline(), timers.slots.chunks_used()), (0, None, 0));
}

#[test]
fn buckets_tell_how_many_rows_come_when() {
    let mut timers = Timers::new(START);
    for (row, wait_ms) in [(0, 5), (1, 5), (2, 3_000), (3, 9 * HOUR_MS)] {
        timers.arm(row, START.plus(wait_ms));
    }
    let buckets: Vec<_> = timers.buckets().collect();
    assert_eq!(
        buckets.iter().map(|bucket| (bucket.width_ms, bucket.rows)).collect::<Vec<_>>(),
        [(1, 2), (1_024, 1), (HORIZON_MS, 1)]
    );
    assert_eq!(buckets[0].from, START.plus(5));
    for (bucket, wait_ms) in buckets.iter().zip([5, 3_000, 9 * HOUR_MS]) {
        let into = START.plus(wait_ms).since(bucket.from);
        assert!((0..bucket.width_ms).contains(&into), "{bucket:?}");
    }
}
