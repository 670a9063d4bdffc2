//! Whose turn it is: each tenant's due occurrences stand in a line of their own, and the lines are served by deficit
//! round robin (Shreedhar and Varghese, 1995).
//!
//! A line is in exactly one place: in the round, or waiting for tokens, or out to be served. Within a line order is
//! kept. A line that was emptied is gone, and with it what it had left of its turn.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::kernel::{
    gate::Lsn,
    occurrence::{Lane, OccurrenceNo},
    permits::Draw,
    time::UnixMs,
};

/// How many occurrences a turn of weight 1 counts for: enough that changing lines costs little, few enough that a
/// hundred lines are served every few milliseconds.
pub(super) const QUANTUM: u32 = 32;

/// Occurrences that are available at one instant and durable together.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) at: UnixMs,
    pub(super) lane: Lane,
    /// All of them are in the log up to here.
    pub(super) lsn: Lsn,
    pub(super) numbers: Vec<OccurrenceNo>,
    /// How many of them were handled already.
    done: usize,
}

/// The next occurrence of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) at: UnixMs,
    pub(super) lsn: Lsn,
    pub(super) number: OccurrenceNo,
}

/// What one tenant has due.
#[derive(Debug, Default)]
pub(super) struct Line {
    batches: VecDeque<Batch>,
    len: usize,
    /// What is left of its turn.
    pub(super) deficit: u32,
    /// What was handled since it was taken out to be served.
    handled: Vec<((Lane, UnixMs), usize)>,
}

/// All lines of one kind.
#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: BTreeMap<Draw, Line>,
    /// Who is served next.
    round: VecDeque<Draw>,
    /// Out of tokens until then.
    waiting: BTreeSet<(UnixMs, Draw)>,
    len: usize,
    /// How many occurrences are available since when.
    by_at: BTreeMap<(Lane, UnixMs), usize>,
}

impl Batch {
    pub(super) const fn new(at: UnixMs, lane: Lane, lsn: Lsn, numbers: Vec<OccurrenceNo>) -> Self {
        Self { at, lane, lsn, numbers, done: 0 }
    }
}

impl Line {
    pub(super) fn head(&self) -> Option<Head> {
        let batch = self.batches.front()?;
        Some(Head { at: batch.at, lsn: batch.lsn, number: batch.numbers[batch.done] })
    }

    /// The head was handled.
    pub(super) fn step(&mut self) {
        let Some(batch) = self.batches.front_mut() else { return };
        let place = (batch.lane, batch.at);
        batch.done += 1;
        if batch.done == batch.numbers.len() {
            self.batches.pop_front();
        }
        self.len -= 1;
        match self.handled.last_mut() {
            Some((last, count)) if *last == place => *count += 1,
            _ => self.handled.push((place, 1)),
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }
}

impl Lines {
    /// Puts a batch where its instant belongs: a line is sorted by it.
    pub(super) fn insert(&mut self, draw: Draw, batch: Batch) {
        let line = self.line(draw, (batch.lane, batch.at), batch.numbers.len());
        let place = line.batches.partition_point(|other| other.at <= batch.at);
        line.batches.insert(place, batch);
    }

    /// Puts an occurrence at its line's end.
    pub(super) fn push(&mut self, draw: Draw, (at, lane, lsn): (UnixMs, Lane, Lsn), number: OccurrenceNo) {
        let line = self.line(draw, (lane, at), 1);
        match line.batches.back_mut() {
            Some(last) if (last.at, last.lane) == (at, lane) => {
                last.numbers.push(number);
                last.lsn = last.lsn.max(lsn);
            }
            _ => line.batches.push_back(Batch::new(at, lane, lsn, vec![number])),
        }
    }

    fn line(&mut self, draw: Draw, place: (Lane, UnixMs), more: usize) -> &mut Line {
        self.len += more;
        *self.by_at.entry(place).or_default() += more;
        let line = self.lines.entry(draw).or_default();
        if line.len == 0 {
            self.round.push_back(draw);
        }
        line.len += more;
        line
    }

    /// Lines whose tokens are there again join the round.
    pub(super) fn wake(&mut self, now: UnixMs) {
        while let Some(&(at, draw)) = self.waiting.first()
            && at <= now
        {
            self.waiting.pop_first();
            self.round.push_back(draw);
        }
    }

    /// Takes the line whose turn it is out of all places: [`Lines::back`] or [`Lines::restore`] follows.
    pub(super) fn next(&mut self) -> Option<(Draw, Line)> {
        let draw = self.round.pop_front()?;
        let line = self.lines.remove(&draw).expect("the round names lines that are there");
        Some((draw, line))
    }

    /// Puts a line back where it goes on, unless it is empty.
    pub(super) fn back(&mut self, draw: Draw, line: Line, to: Place) {
        if self.restore(draw, line) {
            match to {
                Place::Front => self.round.push_front(draw),
                Place::Back => self.round.push_back(draw),
                Place::At(at) => drop(self.waiting.insert((at, draw))),
            }
        }
    }

    /// Puts a line back, unless it is empty, and leaves it to [`Lines::rejoin`] to let it into the round. Whether it is there.
    pub(super) fn restore(&mut self, draw: Draw, mut line: Line) -> bool {
        for (place, count) in line.handled.drain(..) {
            self.len -= count;
            let left = self.by_at.get_mut(&place).expect("what stands in a line is counted");
            *left -= count;
            if *left == 0 {
                self.by_at.remove(&place);
            }
        }
        let is_there = line.len > 0;
        if is_there {
            self.lines.insert(draw, line);
        }
        is_there
    }

    /// Lines that were kept out of the round are served again, first of all.
    pub(super) fn rejoin(&mut self, draws: Vec<Draw>) {
        for draw in draws.into_iter().rev() {
            self.round.push_front(draw);
        }
    }

    /// Whether any line could be served.
    pub(super) fn has_turns(&self) -> bool {
        !self.round.is_empty()
    }

    /// When the first line that is out of tokens is to be asked again.
    pub(super) fn next_ready(&self) -> Option<UnixMs> {
        self.waiting.first().map(|(at, _)| *at)
    }

    /// How many occurrences stand in lines.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The lines between two keys, by length.
    pub(super) fn lengths(&self, draws: std::ops::RangeInclusive<Draw>) -> impl Iterator<Item = usize> {
        self.lines.range(draws).map(|(_, line)| line.len)
    }

    /// How many occurrences there are since each instant, lane by lane.
    pub(super) fn by_at(&self) -> impl Iterator<Item = (Lane, UnixMs, usize)> {
        self.by_at.iter().map(|((lane, at), count)| (*lane, *at, *count))
    }

    /// Since when the oldest has been available.
    pub(super) fn oldest(&self) -> Option<UnixMs> {
        let first = |lane| self.by_at.range((lane, UnixMs(i64::MIN))..).next().filter(|((of, _), _)| *of == lane);
        Lane::ALL.into_iter().filter_map(first).map(|((_, at), _)| *at).min()
    }

    /// Everything that stands in a line, for the checker.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Draw, UnixMs, OccurrenceNo)> {
        let batches = self.lines.iter().flat_map(|(draw, line)| line.batches.iter().map(move |batch| (*draw, batch)));
        batches.flat_map(|(draw, batch)| batch.numbers[batch.done..].iter().map(move |n| (draw, batch.at, *n)))
    }

    /// Every line is in one place, sorted where it is to be, and counted.
    ///
    /// # Panics
    /// Where one is not.
    pub(super) fn assert_consistent(&self) {
        let mut places: Vec<Draw> =
            self.round.iter().copied().chain(self.waiting.iter().map(|(_, draw)| *draw)).collect();
        places.sort_unstable();
        assert!(places.iter().eq(self.lines.keys()), "each line has one place: {places:?}");
        let mut by_at: BTreeMap<(Lane, UnixMs), usize> = BTreeMap::new();
        for (draw, line) in &self.lines {
            let left = |batch: &Batch| batch.numbers.len() - batch.done;
            assert!(
                line.len > 0 && line.len == line.batches.iter().map(left).sum::<usize>(),
                "{draw:?} has {}",
                line.len
            );
            assert!(line.handled.is_empty());
            for batch in &line.batches {
                *by_at.entry((batch.lane, batch.at)).or_default() += left(batch);
            }
            let is_sorted = line.batches.iter().is_sorted_by_key(|batch| batch.at);
            assert!(is_sorted || matches!(draw, Draw::CatchUp { .. }), "{draw:?} is out of order");
        }
        assert_eq!((&by_at, by_at.values().sum()), (&self.by_at, self.len));
    }
}

/// Where a line goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Its turn is not over.
    Front,
    /// Its turn is over.
    Back,
    /// It is out of tokens until then.
    At(UnixMs),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn draw(tenant: u32) -> Draw {
        Draw::Trigger { tenant }
    }

    fn batch(at: i64, numbers: std::ops::Range<u64>) -> Batch {
        Batch::new(UnixMs(at), Lane::Strict, Lsn(0), numbers.map(OccurrenceNo).collect())
    }

    /// One turn of the line that is next: what it gave.
    fn serve(lines: &mut Lines, weight: impl Fn(u32) -> u32) -> Option<(u32, Vec<u64>)> {
        let (draw, mut line) = lines.next()?;
        let mut given = Vec::new();
        for _ in 0..QUANTUM * weight(draw.tenant()) {
            let Some(head) = line.head() else { break };
            given.push(head.number.0);
            line.step();
        }
        lines.back(draw, line, Place::Back);
        lines.assert_consistent();
        Some((draw.tenant(), given))
    }

    #[test]
    fn a_line_is_sorted_by_instant_and_keeps_its_order_within_one() {
        let mut lines = Lines::default();
        lines.insert(draw(0), batch(20, 0..2));
        lines.insert(draw(0), batch(30, 2..3));
        lines.insert(draw(0), batch(20, 3..5));
        lines.insert(draw(0), batch(10, 5..6));
        assert_eq!((lines.oldest(), lines.len()), (Some(UnixMs(10)), 6));
        assert_eq!(serve(&mut lines, |_| 1), Some((0, vec![5, 0, 1, 3, 4, 2])));
        assert_eq!((lines.oldest(), lines.len(), lines.has_turns()), (None, 0, false));
    }

    #[test]
    fn a_line_without_tokens_is_out_of_the_round_until_its_time() {
        let mut lines = Lines::default();
        lines.insert(draw(0), batch(1, 0..1));
        lines.insert(draw(1), batch(1, 1..2));
        let (first, line) = lines.next().unwrap();
        lines.back(first, line, Place::At(UnixMs(50)));
        lines.insert(first, batch(2, 2..3));
        assert_eq!(serve(&mut lines, |_| 1), Some((1, vec![1])));
        lines.wake(UnixMs(49));
        assert_eq!((serve(&mut lines, |_| 1), lines.next_ready()), (None, Some(UnixMs(50))));
        lines.wake(UnixMs(50));
        assert_eq!(serve(&mut lines, |_| 1), Some((0, vec![0, 2])));
    }

    proptest! {
        #[test]
        fn while_all_have_work_each_has_its_share_to_within_a_turn(weights in prop::collection::vec(1_u32..6, 2..6)) {
            let mut lines = Lines::default();
            for tenant in 0..weights.len() as u32 {
                lines.insert(draw(tenant), batch(1, 0..2_000));
            }
            let mut given = vec![0_usize; weights.len()];
            while let Some((tenant, numbers)) = serve(&mut lines, |tenant| weights[tenant as usize]) {
                given[tenant as usize] += numbers.len();
                if given.contains(&2_000) {
                    break;
                }
                let shares = given.iter().zip(&weights).map(|(given, weight)| given / *weight as usize);
                let (least, most) = (shares.clone().min(), shares.max());
                prop_assert!(most.zip(least).is_some_and(|(most, least)| most - least <= QUANTUM as usize));
            }
        }
    }
}
