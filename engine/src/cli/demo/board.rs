//! The table that a demo shows while it runs: redrawn in place on a terminal, a line a second in a pipe.

use std::{
    io::{IsTerminal, Write},
    time::Duration,
};

use super::look::Line;
use crate::kernel::{
    occurrence::{HistoryItem, State},
    time::UnixMs,
};

/// Where the table is shown.
pub(crate) struct Board {
    is_terminal: bool,
    lines_drawn: usize,
}

/// One row: all lines of that name together.
#[derive(Debug, Default, PartialEq, Eq)]
struct Row {
    name: &'static str,
    told: &'static str,
    due: usize,
    waiting: usize,
    queued: usize,
    done: usize,
    other: usize,
    lags_ms: Vec<i64>,
}

impl Board {
    pub(crate) fn new() -> Self {
        Self { is_terminal: std::io::stdout().is_terminal(), lines_drawn: 0 }
    }

    /// How often it is worth looking.
    pub(crate) fn interval(&self) -> Duration {
        Duration::from_millis(if self.is_terminal { 200 } else { 1_000 })
    }

    /// Shows how things stand `now`, counted from `from`.
    pub(crate) fn show(&mut self, from: UnixMs, now: UnixMs, lines: &[Line]) {
        let rows = rows(now, lines);
        let elapsed_s = now.since(from) as f64 / 1_000.0;
        let text = if self.is_terminal { self.redrawn(&table(elapsed_s, &rows)) } else { one_line(elapsed_s, &rows) };
        let mut stdout = std::io::stdout().lock();
        // A reader that went away misses the picture, not the certificate's code.
        let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    }

    /// The table over what was drawn before.
    fn redrawn(&mut self, table: &[String]) -> String {
        let up = if self.lines_drawn > 0 { format!("\x1b[{}A", self.lines_drawn) } else { String::new() };
        self.lines_drawn = table.len();
        let cleared = table.iter().map(|line| format!("\x1b[2K{line}\n"));
        std::iter::once(up).chain(cleared).collect()
    }
}

fn rows(now: UnixMs, lines: &[Line]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for line in lines {
        let index = rows.iter().position(|row| row.name == line.row).unwrap_or_else(|| {
            rows.push(Row { name: line.row, told: line.told, ..Row::default() });
            rows.len() - 1
        });
        rows[index].count(now, line);
    }
    for row in &mut rows {
        row.lags_ms.sort_unstable();
    }
    rows
}

impl Row {
    fn count(&mut self, now: UnixMs, line: &Line) {
        self.due += line.expected.iter().filter(|at| **at <= now).count();
        for item in &line.history {
            let HistoryItem::Occurrence(occurrence) = item else {
                self.other += 1;
                continue;
            };
            match occurrence.state {
                State::Scheduled => self.waiting += 1,
                State::Enqueued | State::Running | State::RetryWait => self.queued += 1,
                State::Succeeded => self.done += 1,
                State::Dead | State::Held | State::Missed | State::SkippedOverlap | State::Canceled => self.other += 1,
            }
            self.lags_ms.extend(occurrence.enqueued_at.map(|at| at.since(occurrence.available_at)));
        }
    }

    fn lag(&self) -> String {
        match (self.lags_ms.get(self.lags_ms.len() / 2), self.lags_ms.last()) {
            (Some(middle), Some(longest)) => format!("{middle}/{longest} ms"),
            _ => "-".to_owned(),
        }
    }
}

/// Not wider than 79 columns: a line that wraps could not be redrawn in place.
fn table(elapsed_s: f64, rows: &[Row]) -> Vec<String> {
    let header = format!(
        "{:<8} {:<23} {:>4} {:>9} {:>8} {:>9} {:>12}",
        "schedule", "rule", "due", "SCHEDULED", "ENQUEUED", "SUCCEEDED", "lag p50/max"
    );
    let mut table = vec![format!("{elapsed_s:>5.1} s"), header];
    table.extend(rows.iter().map(|row| {
        let Row { name, told, due, waiting, queued, done, .. } = row;
        format!("{name:<8} {told:<23} {due:>4} {waiting:>9} {queued:>8} {done:>9} {:>12}", row.lag())
    }));
    table
}

fn one_line(elapsed_s: f64, rows: &[Row]) -> String {
    let sum = |of: fn(&Row) -> usize| rows.iter().map(of).sum::<usize>();
    let mut all = Row { lags_ms: rows.iter().flat_map(|row| row.lags_ms.clone()).collect(), ..Row::default() };
    all.lags_ms.sort_unstable();
    format!(
        "{elapsed_s:>5.1} s  due {}  SCHEDULED {}  ENQUEUED {}  SUCCEEDED {}  lag p50/max {}\n",
        sum(|row| row.due),
        sum(|row| row.waiting),
        sum(|row| row.queued),
        sum(|row| row.done),
        all.lag()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(row: &'static str, expected: &[i64]) -> Line {
        let expected = expected.iter().copied().map(UnixMs).collect();
        Line { row, told: "every now and then", name: row.into(), expected, history: vec![] }
    }

    #[test]
    fn lines_of_one_row_are_counted_together_and_only_what_is_due() {
        let rows = rows(UnixMs(20), &[line("a", &[10, 20, 30]), line("b", &[10]), line("a", &[15])]);
        let due: Vec<(&str, usize)> = rows.iter().map(|row| (row.name, row.due)).collect();
        assert_eq!(due, [("a", 3), ("b", 1)]);
        assert!(one_line(1.5, &rows).starts_with("  1.5 s  due 4  SCHEDULED 0"));
        let table = table(1.5, &rows);
        assert_eq!(table.len(), 4);
        assert!(table.iter().all(|line| line.chars().count() <= 79), "{table:?}");
    }

    #[test]
    fn a_table_is_drawn_over_the_one_before() {
        let mut board = Board { is_terminal: true, lines_drawn: 0 };
        assert!(board.redrawn(&["a".into(), "b".into()]).starts_with("\x1b[2Ka\n"));
        assert!(board.redrawn(&["c".into(), "d".into()]).starts_with("\x1b[2A\x1b[2Kc\n"));
    }
}
