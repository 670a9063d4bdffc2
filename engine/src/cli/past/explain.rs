//! `countwheel explain`: one occurrence's life, or why there is no such occurrence.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::Args;
use serde_json::{Value, json};

use super::{
    instants::local,
    json,
    logs::{Covered, Logs, PastError},
    print, refuse,
    verdict::{Verdict, judge},
    words,
};
use crate::{
    cli::report::failed,
    kernel::{
        calendar::ZoneSet,
        id::OccurrenceId,
        occurrence::{Reason, State},
        shard::chronicle::{Chronicle, Life, Maker, Story, Version},
        time::UnixMs,
    },
    shell::tzdata,
};

/// One occurrence's life, from the log of a data directory.
#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// The occurrence's id
    #[arg(value_parser = occurrence_id)]
    occurrence: OccurrenceId,
    /// The data directory of a server, which may be running, or a copy of it
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Read the zone rules for local times from this directory of TZif files
    #[arg(long, value_name = "DIR")]
    tzdata: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn occurrence_id(text: &str) -> Result<OccurrenceId, String> {
    let id: OccurrenceId = text.parse().map_err(|error| format!("it is {error}"))?;
    if id.is_well_formed() { Ok(id) } else { Err("it is a UUID, and not one of an occurrence".to_owned()) }
}

/// Exit codes: 0 told, 1 unknown, or the log is damaged, 2 wrong usage.
pub(crate) fn run(args: &ExplainArgs) -> ExitCode {
    match told(args) {
        Ok(code) => code,
        Err(error) => refuse("explain", &error),
    }
}

fn told(args: &ExplainArgs) -> Result<ExitCode, PastError> {
    let zones = tzdata::load(args.tzdata.as_deref())?;
    let logs = Logs::open(&args.data)?;
    let mut searched = Vec::new();
    for shard in logs.shards() {
        let mut chronicle = Chronicle::of_maker(shard, args.occurrence);
        searched.push(logs.follow(shard, &mut chronicle)?);
        if let Some(maker) = chronicle.maker() {
            let mut chronicle = Chronicle::of_occurrence(shard, args.occurrence, maker);
            let covered = logs.follow(shard, &mut chronicle)?;
            let story = chronicle.into_story();
            let explained = story.as_ref().map(|story| Explained::new(args.occurrence, maker, story, &covered, &zones));
            if let Some(explained) = explained {
                return Ok(explained.show(args.json));
            }
        }
    }
    Ok(unknown(args, &searched))
}

fn unknown(args: &ExplainArgs, searched: &[Covered]) -> ExitCode {
    let records: u64 = searched.iter().map(|covered| covered.records.1).sum();
    let until = searched.iter().filter_map(|covered| covered.span).map(|(_, until)| until).max();
    let until = until.map_or_else(String::new, |until| format!(", up to {until}"));
    if let Some(damage) = searched.iter().find_map(|covered| covered.damage.as_ref()) {
        return failed(format_args!(
            "explain: {} is of no schedule in the {records} records before the damage: {damage}: see 'countwheel wal \
             verify'",
            args.occurrence
        ));
    }
    failed(format_args!(
        "explain: {}: no schedule in {} has such an occurrence ({} searched, {records} records{until}): check the id and \
         the directory",
        args.occurrence,
        args.data.display(),
        if searched.len() == 1 { "1 shard".to_owned() } else { format!("{} shards", searched.len()) },
    ))
}

/// An answer.
struct Explained<'a> {
    id: OccurrenceId,
    maker: Maker,
    version: Option<&'a Version>,
    became: Result<&'a Life, Verdict<'a>>,
    covered: &'a Covered,
    zones: &'a ZoneSet,
}

impl<'a> Explained<'a> {
    fn new(id: OccurrenceId, maker: Maker, story: &'a Story, covered: &'a Covered, zones: &'a ZoneSet) -> Self {
        let version = story.versions.iter().find(|version| version.version == maker.version);
        let became = story.occurrences.first().ok_or_else(|| judge(id, maker, story, zones));
        Self { id, maker, version, became, covered, zones }
    }

    fn show(&self, as_json: bool) -> ExitCode {
        let shown = print(|out| if as_json { writeln!(out, "{}", self.json()) } else { self.text(out) });
        match (&self.covered.damage, &self.became) {
            (Some(damage), _) => {
                failed(format_args!("explain: {damage}: what lies behind is not told; see 'wal verify'"))
            }
            (None, Err(Verdict::Undecided)) => ExitCode::FAILURE,
            (None, _) => shown,
        }
    }

    fn json(&self) -> Value {
        let (at, spec) = (self.id.scheduled_for(), self.version.map(|version| &version.spec));
        let mut value = json!({
            "occurrence_id": self.id.to_string(),
            "version": self.maker.version,
            "kind": self.maker.kind.as_str(),
            "scheduled_for": at.to_string(),
            "state": null,
            "reason": null,
        });
        let (steps, range, why) = match &self.became {
            Ok(life) => {
                value = json::life(life);
                (life.steps.iter().map(|told| json::step(told, self.covered)).collect(), Value::Null, None)
            }
            Err(verdict) => {
                let range = match verdict {
                    Verdict::Range(told) => json::range(told, self.covered),
                    _ => Value::Null,
                };
                for field in ["state", "reason"] {
                    value[field] = range.get(field).cloned().unwrap_or_default();
                }
                (Vec::new(), range, Some(verdict.words(self.maker, self.version, self.covered, self.zones)))
            }
        };
        value["schedule_id"] = self.maker.schedule.to_string().into();
        value["local"] = spec.map_or(Value::Null, |spec| json::local_time(spec, at, self.zones));
        value["stood"] = self.version.map_or(Value::Null, json::version);
        value["steps"] = Value::Array(steps);
        value["range"] = range;
        value["why"] = why.into();
        value["log"] = json::log(self.covered);
        value
    }

    fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut row = |key: &str, words: &str| writeln!(out, "{key:<14} {words}");
        row("occurrence", &self.id.to_string())?;
        row("became", &self.became())?;
        let name = self.version.and_then(|version| version.spec.name.as_ref());
        let name = name.map_or_else(String::new, |name| format!(" {name:?}"));
        let tenant = self.version.map_or("", |version| &version.spec.tenant);
        row("schedule", &format!("{}{name}, tenant {tenant}", self.maker.schedule))?;
        let at = self.id.scheduled_for();
        let mut instant = at.to_string();
        if let Some(version) = self.version {
            let stood = words::stood(version.from, version.until);
            let paused = if version.is_paused { ", paused" } else { "" };
            row("version", &format!("{}, {stood}{paused}", version.version))?;
            row("rule", &words::rule(&version.spec))?;
            row("policies", &words::policies(&version.spec))?;
            if let Some((fire, zone)) = local(&version.spec, at, self.zones) {
                instant.push_str(&format!(", {} {} in {zone}", fire.local.replace('T', " "), fire.offset));
            }
        }
        row("scheduled for", &instant)?;
        if let Ok(life) = &self.became {
            row("available at", &life.available_at.to_string())?;
            row("enqueued at", &enqueued(life))?;
            let followed = if life.is_tracked { "claimed by workers" } else { "followed no further than the queue" };
            let (kind, lane) = (life.kind.as_str(), life.lane.as_str());
            row("travels", &format!("{kind}, queue {}, lane {lane}, {followed}", life.queue))?;
            writeln!(out)?;
            for told in &life.steps {
                let (segment, words) = (self.covered.segment(told.lsn), words::step(&told.what));
                writeln!(out, "{}  {segment} {:>9}  {words}", told.at, told.lsn.0)?;
            }
        }
        writeln!(out)?;
        write_covered(out, self.covered)
    }

    fn became(&self) -> String {
        match &self.became {
            Ok(life) => {
                let state = words::state(life.state.as_str(), life.reason.map(Reason::as_str));
                format!("{state}{}", words::attempts(life.attempt_count))
            }
            Err(verdict) => {
                let words = verdict.words(self.maker, self.version, self.covered, self.zones);
                verdict.state().map_or_else(|| format!("no occurrence: {words}"), |state| format!("{state}: {words}"))
            }
        }
    }
}

fn enqueued(life: &Life) -> String {
    match life.enqueued_at {
        Some(at) => format!("{at}, {} ms after it was available", at.since(life.available_at)),
        None if life.state == State::Scheduled => "not yet".to_owned(),
        None => "never".to_owned(),
    }
}

/// The last line: what the log covers.
pub(super) fn write_covered(out: &mut dyn Write, covered: &Covered) -> io::Result<()> {
    let (first, last) = covered.records;
    let span = covered.span.map(|(from, to): (UnixMs, UnixMs)| format!(", engine time {from} to {to}"));
    let span = span.unwrap_or_default();
    let dir = covered.dir.display();
    writeln!(out, "{:<14} {dir}: records {first} to {last}{span}; {}", "log", covered.ending)
}
