//! Whether every due instant is accounted for: expected against listed, instant by instant.

use std::collections::BTreeMap;

use super::look::Line;
use crate::kernel::{
    occurrence::{HistoryItem, Occurrence, State},
    schedule::{InstantRange, RangeDisposition},
    time::UnixMs,
};

/// How many absent instants are named.
const NAMED: usize = 10;

/// What became of every expected instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Certificate {
    pub(crate) due: u64,
    /// Entered the queue.
    pub(crate) fired: u64,
    /// Of these: completed by a worker.
    pub(crate) completed: u64,
    /// Recorded and not in the queue yet.
    pub(crate) waiting: u64,
    /// Not admitted by the misfire policy.
    pub(crate) missed: u64,
    pub(crate) canceled: u64,
    /// Neither an occurrence nor a disposition.
    pub(crate) absent: Vec<(String, UnixMs)>,
    /// In the queue before their time.
    pub(crate) early: u64,
    /// Occurrences at instants that no rule has.
    pub(crate) unexpected: u64,
    /// Occurrences that were handed to workers more than once, under the same id. Not a matter of the list: whoever
    /// watched the workers fills it in.
    pub(crate) handed_out_twice: u64,
}

impl Certificate {
    pub(crate) fn of(lines: &[Line]) -> Self {
        let mut certificate = Self::default();
        for line in lines {
            certificate.count(line);
        }
        certificate
    }

    fn count(&mut self, line: &Line) {
        let mut at: BTreeMap<UnixMs, &Occurrence> = BTreeMap::new();
        let mut ranges: Vec<&InstantRange> = Vec::new();
        for item in &line.history {
            match item {
                HistoryItem::Occurrence(occurrence) => {
                    // A second occurrence of one instant would be a broken promise: it counts as unexpected.
                    if at.insert(occurrence.scheduled_for, occurrence).is_some() {
                        self.unexpected += 1;
                    }
                }
                HistoryItem::Range(range) => ranges.push(range),
            }
        }
        for instant in &line.expected {
            self.due += 1;
            match (at.remove(instant), ranges.iter().find(|range| (range.first..=range.last).contains(instant))) {
                (Some(occurrence), _) => self.count_occurrence(occurrence),
                (None, Some(range)) => match range.disposition {
                    RangeDisposition::Missed => self.missed += 1,
                    RangeDisposition::Canceled(_) => self.canceled += 1,
                },
                (None, None) => self.absent.push((line.name.clone(), *instant)),
            }
        }
        self.unexpected += at.len() as u64;
    }

    fn count_occurrence(&mut self, occurrence: &Occurrence) {
        if occurrence.enqueued_at.is_some_and(|enqueued_at| enqueued_at < occurrence.available_at) {
            self.early += 1;
        }
        match occurrence.state {
            State::Scheduled => self.waiting += 1,
            State::Enqueued => self.fired += 1,
            State::Succeeded => {
                self.fired += 1;
                self.completed += 1;
            }
            State::Missed => self.missed += 1,
            State::Canceled => self.canceled += 1,
        }
    }

    /// Every due instant has come to its end: nothing more will happen.
    pub(crate) fn is_settled(&self) -> bool {
        self.completed + self.missed + self.canceled == self.due
    }

    /// Nothing is absent, early or unexpected.
    pub(crate) fn holds(&self) -> bool {
        self.absent.is_empty() && self.early == 0 && self.unexpected == 0
    }

    /// For people, the sum first.
    pub(crate) fn lines(&self) -> Vec<String> {
        let (due, fired) = (self.due, self.fired);
        let mut lines = vec![format!("due {due}, fired {fired}, absent {}", self.absent.len())];
        for (count, word) in [
            (self.waiting, "recorded and not in the queue yet"),
            (self.missed, "missed (too late for the misfire policy)"),
            (self.canceled, "canceled"),
            (self.early, "EARLY: in the queue before their time"),
            (self.unexpected, "UNEXPECTED: at instants that no rule has"),
            (self.fired - self.completed, "in the queue and not completed by a worker"),
            (self.handed_out_twice, "handed out again under the same id, not completed when the engine died"),
        ] {
            if count > 0 {
                lines.push(format!("  {count} {word}"));
            }
        }
        lines.extend(self.absent.iter().take(NAMED).map(|(name, at)| format!("  ABSENT: {name} at {at}")));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{
        id::{Kind, OccurrenceId, ScheduleId},
        occurrence::Lane,
    };

    fn occurrence(at: i64, state: State, enqueued_at: Option<i64>) -> HistoryItem {
        HistoryItem::Occurrence(Occurrence {
            id: OccurrenceId([0; 16]),
            schedule_id: ScheduleId([0; 16]),
            version: 1,
            tenant: "demo".into(),
            queue: "bells".into(),
            kind: Kind::Regular,
            lane: Lane::Strict,
            scheduled_for: UnixMs(at),
            available_at: UnixMs(at),
            enqueued_at: enqueued_at.map(UnixMs),
            state,
            reason: None,
            attempt_count: 0,
        })
    }

    fn line(expected: &[i64], history: Vec<HistoryItem>) -> Line {
        let expected = expected.iter().copied().map(UnixMs).collect();
        Line { row: "row", told: "", name: "bell".into(), expected, history }
    }

    #[test]
    fn every_expected_instant_is_exactly_one_thing() {
        let missed = InstantRange {
            kind: Kind::Regular,
            disposition: RangeDisposition::Missed,
            first: UnixMs(4),
            last: UnixMs(5),
            count: 2,
        };
        let certificate = Certificate::of(&[line(
            &[1, 2, 3, 4, 5, 6],
            vec![
                occurrence(1, State::Succeeded, Some(1)),
                occurrence(2, State::Enqueued, Some(2)),
                occurrence(3, State::Scheduled, None),
                HistoryItem::Range(missed),
            ],
        )]);
        let absent = vec![("bell".to_owned(), UnixMs(6))];
        let expected =
            Certificate { due: 6, fired: 2, completed: 1, waiting: 1, missed: 2, absent, ..Certificate::default() };
        assert_eq!(certificate, expected);
        assert!(!certificate.holds() && !certificate.is_settled());
        assert_eq!(certificate.lines()[0], "due 6, fired 2, absent 1");
        assert!(certificate.lines().iter().any(|line| line.contains("ABSENT: bell at 1970-01-01T00:00:00.006Z")));
    }

    #[test]
    fn what_is_early_or_unexpected_does_not_hold() {
        let early = Certificate::of(&[line(&[10], vec![occurrence(10, State::Succeeded, Some(9))])]);
        assert!(early.early == 1 && !early.holds());
        let twice = vec![occurrence(10, State::Succeeded, Some(10)), occurrence(10, State::Succeeded, Some(10))];
        assert!(!Certificate::of(&[line(&[10], twice)]).holds());
        let stray = vec![occurrence(10, State::Succeeded, Some(10)), occurrence(11, State::Succeeded, Some(11))];
        assert_eq!(Certificate::of(&[line(&[10], stray)]).unexpected, 1);
    }

    #[test]
    fn a_quiet_end_says_one_line() {
        let fine = Certificate::of(&[line(&[10], vec![occurrence(10, State::Succeeded, Some(10))])]);
        assert!(fine.holds() && fine.is_settled());
        assert_eq!(fine.lines(), ["due 1, fired 1, absent 0"]);
    }
}
