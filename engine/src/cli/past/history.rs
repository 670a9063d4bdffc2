//! `countwheel history`: a schedule's versions and calls, and what became of its instants.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::Args;

use super::{
    explain::write_covered,
    json::{History, Item},
    logs::{Covered, Logs, PastError},
    print, refuse, words,
};
use crate::{
    cli::{
        report::{failed, misused},
        values,
    },
    kernel::{
        id::{Kind, ScheduleId},
        occurrence::Reason,
        shard::chronicle::{Chronicle, Life, RangeOf, Story},
        time::UnixMs,
    },
};

/// A schedule's life, from the log of a data directory.
#[derive(Args, Debug)]
pub(crate) struct HistoryArgs {
    /// The schedule's id
    #[arg(value_parser = schedule_id)]
    schedule: ScheduleId,
    /// The data directory of a server, which may be running, or a copy of it
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Only instants and calls from here on (RFC 3339)
    #[arg(long, value_parser = values::instant)]
    from: Option<UnixMs>,
    /// Only instants and calls before this (RFC 3339)
    #[arg(long, value_parser = values::instant)]
    to: Option<UnixMs>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn schedule_id(text: &str) -> Result<ScheduleId, String> {
    text.parse().map_err(|error| format!("it is {error}"))
}

/// Exit codes: 0 told, 1 unknown, or the log is damaged, 2 wrong usage.
pub(crate) fn run(args: &HistoryArgs) -> ExitCode {
    let window = (args.from.unwrap_or(UnixMs::MIN), args.to.unwrap_or(UnixMs::MAX));
    if window.0 >= window.1 {
        return misused(format_args!("history: --to {} is not after --from {}: give a later end", window.1, window.0));
    }
    match told(args, window) {
        Ok(code) => code,
        Err(error) => refuse("history", &error),
    }
}

fn told(args: &HistoryArgs, window: (UnixMs, UnixMs)) -> Result<ExitCode, PastError> {
    let logs = Logs::open(&args.data)?;
    let shard = logs.shard_of(args.schedule);
    let mut chronicle = Chronicle::of_schedule(shard, args.schedule, window);
    let covered = logs.follow(shard, &mut chronicle)?;
    let Some(story) = chronicle.into_story() else {
        return Ok(failed(format_args!(
            "history: {}: no such schedule in {} ({} records): check the id and the directory",
            args.schedule,
            covered.dir.display(),
            covered.records.1
        )));
    };
    let items = items(&story);
    let shown = print(|out| {
        if args.json {
            serde_json::to_writer(&mut *out, &History::new(&story, &items, &covered))?;
            return writeln!(out);
        }
        text(out, &story, &items, &covered)
    });
    Ok(match &covered.damage {
        Some(damage) => failed(format_args!("history: {damage}: what lies behind is not told; see 'wal verify'")),
        None => shown,
    })
}

/// Ascending; a range stands before the occurrences of its first instant.
fn items(story: &Story) -> Vec<Item<'_>> {
    let ranges = story.ranges.iter().map(Item::Range);
    let mut items: Vec<Item<'_>> = ranges.chain(story.occurrences.iter().map(Item::Occurrence)).collect();
    items.sort_by_key(Item::scheduled_for);
    items
}

fn text(out: &mut dyn Write, story: &Story, items: &[Item<'_>], covered: &Covered) -> io::Result<()> {
    let latest = story.versions.last();
    let name = latest.and_then(|version| version.spec.name.as_ref());
    let name = name.map_or_else(String::new, |name| format!(" {name:?}"));
    let tenant = latest.map_or("", |version| &version.spec.tenant);
    writeln!(out, "schedule {}{name}, tenant {tenant}\n\nversions", story.schedule)?;
    let mut before = None;
    for version in &story.versions {
        let paused = if version.is_paused { ", paused" } else { "" };
        let spec = &version.spec;
        writeln!(out, "{:>4}  {}{paused}", version.version, words::stood(version.from, version.until))?;
        if before == Some((spec, version.payload_bytes)) {
            writeln!(out, "      described as before")?;
        } else {
            writeln!(out, "      {}, queue {}", words::rule(spec), spec.queue)?;
            writeln!(out, "      {}, payload of {} bytes", words::policies(spec), version.payload_bytes)?;
        }
        before = Some((spec, version.payload_bytes));
    }
    writeln!(out, "\ncalls")?;
    for told in &story.calls {
        let (segment, words) = (covered.segment(told.lsn), words::call(&told.what));
        writeln!(out, "  {}  {segment} {:>9}  {words}", told.at, told.lsn.0)?;
    }
    writeln!(out, "\ninstants")?;
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for item in items {
        let (line, state, count) = match item {
            Item::Occurrence(life) => occurrence_line(life),
            Item::Range(told) => range_line(&told.what),
        };
        writeln!(out, "  {line}")?;
        let sum = counts.entry(state).or_default();
        *sum = sum.saturating_add(count);
    }
    let sums: Vec<String> = counts.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let sums = if sums.is_empty() { "none".to_owned() } else { sums.join(", ") };
    writeln!(out, "\n{:<14} {sums}", "in all")?;
    write_covered(out, covered)
}

fn occurrence_line(life: &Life) -> (String, String, u64) {
    let state = words::state(life.state.as_str(), life.reason.map(Reason::as_str));
    let mut line =
        format!("{}  {state:<20}  {}  v{} {}", life.scheduled_for, life.id, life.version, life.lane.as_str());
    if life.kind != Kind::Regular {
        line.push_str(&format!(" {}", life.kind.as_str()));
    }
    if let Some(at) = life.enqueued_at {
        line.push_str(&format!(", enqueued after {} ms", at.since(life.available_at)));
    }
    line.push_str(&words::attempts(life.attempt_count));
    (line, state, 1)
}

fn range_line(of: &RangeOf) -> (String, String, u64) {
    let RangeOf { version, range } = of;
    let (state, reason) = words::disposition(range.disposition);
    let state = words::state(state, reason);
    let kind = if range.kind == Kind::Regular { "" } else { " backfill" };
    let instants =
        if range.count == 1 { "1 instant".to_owned() } else { format!("{} instants to {}", range.count, range.last) };
    let line = format!("{}  {state:<20}  {instants}  v{version}{kind}", range.first);
    (line, state, range.count)
}
