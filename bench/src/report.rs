//! What an experiment found: a table for people, one JSON object for programs.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    bed::{QueueKind, Written},
    check::Differences,
    lags::Quantiles,
    wall,
};

/// The figures of one experiment, in the order in which they are shown.
pub(crate) struct Report {
    figures: Vec<(&'static str, Value)>,
    notes: Vec<String>,
    broken: u64,
}

impl Report {
    /// Begins with what is known before.
    pub(crate) fn new(experiment: &'static str, queue: QueueKind, shards: u16, triggers: usize) -> Self {
        let mut report = Self { figures: Vec::new(), notes: Vec::new(), broken: 0 };
        report.set("experiment", experiment);
        report.set("queue", queue.as_str());
        report.set("shards", shards);
        report.set("triggers", triggers);
        report.set("machine", machine());
        report.set("load_before", load());
        report.set("date", wall::now().to_string());
        report
    }

    /// One figure; `None` is not measured here. Three decimals are more than any of them holds.
    pub(crate) fn set(&mut self, name: &'static str, figure: impl Serialize) {
        self.figures.push((name, rounded(json!(figure))));
    }

    pub(crate) fn set_lags(&mut self, names: [&'static str; 3], lags: Quantiles) {
        for (name, figure) in names.into_iter().zip([lags.p50_ms, lags.p99_ms, lags.max_ms]) {
            self.set(name, figure);
        }
    }

    /// What breaks a promise; any of it makes the experiment fail.
    pub(crate) fn set_differences(&mut self, found: Differences, early: u64) {
        self.set("absent", found.absent);
        self.set("duplicates", found.duplicates);
        self.set("unexpected", found.unexpected);
        self.set("early", early);
        self.broken += found.absent + found.duplicates + found.unexpected + early;
    }

    /// What should have ended and did not; any of it makes the experiment fail.
    pub(crate) fn set_absent(&mut self, absent: u64) {
        self.set("absent", absent);
        self.broken += absent;
    }

    /// What the log took, a delivered occurrence; nothing else went on meanwhile.
    pub(crate) fn set_log(&mut self, log: Written, occurrences: f64) {
        self.set("wal_bytes_per_occurrence", log.record_bytes as f64 / occurrences);
        self.set("wal_written_bytes_per_occurrence", log.written_bytes as f64 / occurrences);
        self.set("fsyncs", log.fsyncs);
    }

    /// What a figure means or contains, a line of the table.
    pub(crate) fn note(&mut self, line: impl Into<String>) {
        self.notes.push(line.into());
    }

    /// Nothing absent, twice, early or unasked for.
    pub(crate) const fn is_whole(&self) -> bool {
        self.broken == 0
    }

    pub(crate) fn print(&self, json: bool) {
        for (name, figure) in &self.figures {
            println!("{name:>34}  {}", shown(figure));
        }
        for note in &self.notes {
            println!("  {note}");
        }
        if json {
            let figures: Map<_, _> =
                self.figures.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
            println!("{}", Value::Object(figures));
        }
    }
}

fn shown(figure: &Value) -> String {
    figure.as_str().map_or_else(|| figure.to_string(), str::to_owned)
}

fn rounded(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(rounded).collect(),
        Value::Number(number) if number.is_f64() => {
            number.as_f64().map_or(Value::Null, |figure| json!((figure * 1e3).round() / 1e3))
        }
        other => other,
    }
}

/// Processor, cores, memory and kernel, as the system names them.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).and_then(|line| line.split_once(':'));
        line.map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let memory_kib = field(&read("/proc/meminfo"), "MemTotal").split(' ').next().and_then(|n| n.parse::<u64>().ok());
    let memory_gib = memory_kib.unwrap_or(0).div_ceil(1 << 20);
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{}, {cores} cores, {memory_gib} GiB, Linux {}", field(&read("/proc/cpuinfo"), "model name"), kernel.trim())
}

/// The load average of the last minute: above the number of cores, neighbours are in every figure.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}
