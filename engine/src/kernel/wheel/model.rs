//! Does the wheel equal a sorted map? The body that the property test, the fuzz target and the smoke test share.

use std::collections::{BTreeMap, BTreeSet};

use super::{Advance, Timers};
use crate::kernel::time::UnixMs;

/// Reads `script` as calls of [`Timers`] and makes the same calls of a sorted map.
///
/// # Panics
/// When the two differ: a row early, late, lost, twice or out of order, a `next_deadline` after the earliest deadline,
/// a turn over its bounds or without progress.
pub fn check_against_model(script: &[u8]) {
    let mut script = Script { bytes: script };
    let start = UnixMs(script.instant());
    let moves_a_turn = 1 + usize::from(script.byte()) % 40;
    let mut pair = Pair {
        timers: Timers::with_moves_a_turn(start, moves_a_turn),
        moves_a_turn,
        model: Model::default(),
        now: start,
        fired: Vec::new(),
    };
    while !script.bytes.is_empty() {
        pair.step(&mut script);
    }
    pair.finish();
}

/// Bytes read as choices; where they end, zeros.
struct Script<'a> {
    bytes: &'a [u8],
}

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        self.bytes.split_off_first().copied().unwrap_or(0)
    }

    fn number(&mut self, bytes: u32) -> i64 {
        (0..bytes).fold(0, |number, _| number << 8 | i64::from(self.byte()))
    }

    /// Few rows, so that they are armed again while armed; now and then one far away.
    fn row(&mut self) -> u32 {
        match self.byte() {
            255 => 100_000,
            row => u32::from(row % 64),
        }
    }

    /// From nothing through milliseconds, hours and years to all of time, all equally often.
    fn span(&mut self) -> i64 {
        match self.byte() % 9 {
            0 => 0,
            1 => 1,
            2 => self.number(1),
            bytes @ 3..=6 => self.number(u32::from(bytes) - 1),
            7 => 1 << (self.byte() % 63),
            _ => self.number(8),
        }
    }

    fn instant(&mut self) -> i64 {
        if self.byte() < 230 { 1_793_511_000_000 } else { self.number(8) }
    }
}

/// What the wheel must equal.
#[derive(Default)]
struct Model {
    deadlines: BTreeMap<u32, i64>,
    order: BTreeSet<(i64, u32)>,
}

impl Model {
    fn arm(&mut self, row: u32, deadline: i64) {
        self.disarm(row);
        self.deadlines.insert(row, deadline);
        self.order.insert((deadline, row));
    }

    fn disarm(&mut self, row: u32) -> bool {
        let Some(deadline) = self.deadlines.remove(&row) else { return false };
        self.order.remove(&(deadline, row))
    }

    fn earliest(&self) -> Option<i64> {
        self.order.first().map(|&(deadline, _)| deadline)
    }
}

struct Pair {
    timers: Timers,
    moves_a_turn: usize,
    model: Model,
    now: UnixMs,
    fired: Vec<u32>,
}

impl Pair {
    fn step(&mut self, script: &mut Script<'_>) {
        match script.byte() % 16 {
            0..=5 => self.arm(script.row(), self.now.plus(script.span())),
            6 => self.arm(script.row(), self.now.minus(script.span())),
            7..=9 => {
                let row = script.row();
                assert_eq!(self.timers.disarm(row), self.model.disarm(row), "disarm of row {row}");
            }
            10 => {
                let now = self.now.minus(script.span());
                self.turn(now, usize::from(script.byte()));
            }
            11 => {
                // As the shell does it: sleep until the wheel asks to be called.
                let at = self.timers.next_deadline().map_or(self.now, |at| at.max(self.now));
                self.now = at;
                self.turn(at, usize::from(script.byte()));
            }
            _ => {
                self.now = self.now.plus(script.span());
                self.turn(self.now, usize::from(script.byte() % 32));
            }
        }
        self.compare();
    }

    fn arm(&mut self, row: u32, deadline: UnixMs) {
        self.timers.arm(row, deadline);
        self.model.arm(row, deadline.0);
        assert_eq!(self.timers.deadline(row), Some(deadline), "row {row} after arm");
    }

    /// One turn; true when it says that it caught up.
    fn turn(&mut self, now: UnixMs, limit: usize) -> bool {
        self.fired.clear();
        let moved_before = self.timers.moved();
        let advance = self.timers.advance(now, limit, &mut self.fired);
        let moved = usize::try_from(self.timers.moved() - moved_before).expect("a turn's moves fit");
        assert!(moved <= self.moves_a_turn, "{moved} moves in a turn");
        assert!(self.fired.len() <= limit, "{} rows fired, limit {limit}", self.fired.len());
        for &row in &self.fired {
            let deadline = self.model.deadlines.get(&row).copied();
            assert_eq!(deadline, self.model.earliest(), "row {row} fired out of order or twice");
            assert!(deadline.is_some_and(|at| at <= now.0), "row {row} due {deadline:?} fired early, at {now:?}");
            self.model.disarm(row);
        }
        if advance == Advance::CaughtUp {
            assert!(self.model.earliest().is_none_or(|at| at > now.0), "caught up, but one is due");
        } else if limit > 0 && now >= self.now {
            assert!(moved + self.fired.len() > 0, "more to do, but nothing done");
        }
        advance == Advance::CaughtUp
    }

    fn compare(&self) {
        assert_eq!(self.timers.len(), self.model.deadlines.len());
        assert_eq!(self.timers.is_empty(), self.model.deadlines.is_empty());
        let next = self.timers.next_deadline().map(|at| at.0);
        assert_eq!(next.is_some(), self.model.earliest().is_some());
        assert!(next <= self.model.earliest(), "would sleep until {next:?}, due {:?}", self.model.earliest());
        let waiting: usize = self.timers.buckets().map(|bucket| bucket.rows as usize).sum();
        assert!(waiting <= self.timers.len());
    }

    /// Runs until nothing is armed, waking only when the wheel asks: every row left fires, in order.
    fn finish(&mut self) {
        let mut turns = 0;
        while let Some(at) = self.timers.next_deadline() {
            self.now = self.now.max(at);
            self.turn(self.now, 7);
            turns += 1;
            assert!(turns < 10_000, "65 rows are moved at most six times and then fire");
        }
        assert!(self.model.order.is_empty(), "lost: {:?}", self.model.order);
        assert_eq!(self.timers.buckets().count(), 0);
    }
}
