//! `countwheel preview`: what a cron expression will do in a zone, for people, or for programs with `--json`.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};

use clap::{Args, builder::PossibleValuesParser};
use serde_json::{Value, json};

use super::{preview_batch, report::misused};
use crate::{
    kernel::{
        calendar::{
            CalendarError, CronRule, CronSpec, DayMatch, FoldChoice, Gap, Warning, ZoneSet,
            preview::{MAX_COUNT, Preview, Previewed, Window, preview},
        },
        time::UnixMs,
    },
    shell::tzdata,
};

/// Show the next instants of a cron expression in a zone, and what gaps and folds do to it.
#[derive(Args, Debug)]
pub struct PreviewArgs {
    /// 5 fields, 6 with seconds first, or a nickname such as @daily.
    #[arg(required_unless_present = "batch", conflicts_with = "batch")]
    pub expr: Option<String>,
    /// An IANA zone name, in exact case.
    #[arg(long, required_unless_present = "batch", conflicts_with = "batch")]
    pub zone: Option<String>,
    /// Show instants strictly after this one (RFC 3339); now if not given.
    #[arg(long, conflicts_with = "batch")]
    pub from: Option<String>,
    /// How many instants to show, 1 to 10,000.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=MAX_COUNT as i64))]
    pub count: u32,
    /// What a wall time that happens twice does.
    #[arg(long, default_value = "auto", value_parser = PossibleValuesParser::new(FoldChoice::WORDS))]
    pub fold: String,
    /// What a wall time that does not happen does.
    #[arg(long, default_value = "skip", value_parser = PossibleValuesParser::new(Gap::WORDS))]
    pub gap: String,
    /// Whether a day must match either of two restricted day fields, or both.
    #[arg(long, default_value = "or", value_parser = PossibleValuesParser::new(DayMatch::WORDS))]
    pub day_match: String,
    /// Read the zone rules from this directory of TZif files.
    #[arg(long, value_name = "DIR")]
    pub tzdata: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Preview one JSON object a line of this file (- for stdin): id, expr, zone, from_utc_ms, and where wanted fold,
    /// gap, day_match, count. Other fields of a line are its owner's notes.
    #[arg(long, value_name = "FILE.jsonl")]
    pub batch: Option<PathBuf>,
}

/// Runs the command. Exit 0, or 2 when the call itself has to be corrected.
#[must_use]
pub fn run(args: &PreviewArgs) -> ExitCode {
    let zones = match tzdata::load(args.tzdata.as_deref()) {
        Ok(zones) => zones,
        Err(error) => return refuse(&error),
    };
    let done = match &args.batch {
        Some(path) => preview_batch::run(path, &zones),
        None => match one(args, &zones) {
            Ok(text) => print(&text),
            Err(error) => {
                if args.json {
                    let field = field_of(&error);
                    let error = json!({"error": {"code": error.code(), "field": field, "message": error.to_string()}});
                    let _ = print(&format!("{error}\n"));
                }
                return refuse(&error);
            }
        },
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => refuse(&error),
    }
}

fn refuse(error: &dyn std::fmt::Display) -> ExitCode {
    misused(format_args!("preview: {error}"))
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn one(args: &PreviewArgs, zones: &ZoneSet) -> Result<String, CalendarError> {
    let from = match &args.from {
        Some(text) => {
            UnixMs::parse_rfc3339(text).ok_or_else(|| CalendarError::InvalidInstant { text: text.clone() })?
        }
        None => now(),
    };
    let spec = CronSpec {
        expr: args.expr.clone().unwrap_or_default(),
        zone: args.zone.clone().unwrap_or_default(),
        fold: FoldChoice::parse(&args.fold).unwrap_or_default(),
        gap: Gap::parse(&args.gap).unwrap_or_default(),
        day_match: DayMatch::parse(&args.day_match).unwrap_or_default(),
    };
    let rule = CronRule::new(&spec, zones)?;
    let window = Window { from, start_at: None, end_at: None, count: args.count as usize };
    let preview = preview(Previewed::Cron(&rule), &window);
    Ok(if args.json { as_json(&rule, &preview, zones) } else { as_table(&rule, &preview, zones) })
}

/// The argument that a refusal is about.
pub(super) fn field_of(error: &CalendarError) -> &'static str {
    match error {
        CalendarError::InvalidInstant { .. } => "from",
        error if error.is_about_the_zone() => "zone",
        _ => "expr",
    }
}

fn now() -> UnixMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMs(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// `{"code","message","at"?}`, as everywhere.
pub(super) fn warning_json(warning: &Warning) -> Value {
    let mut object = json!({"code": warning.code.as_str(), "message": warning.message});
    if let Some(at) = warning.at {
        object["at"] = Value::from(at.to_string());
    }
    object
}

fn as_json(rule: &CronRule, preview: &Preview, zones: &ZoneSet) -> String {
    let fires = preview
        .next
        .iter()
        .map(|fire| json!({"at": fire.at.to_string(), "at_ms": fire.at.0, "local": fire.local, "offset": fire.offset}));
    let spec = rule.spec();
    let object = json!({
        "expr": spec.expr,
        "zone": spec.zone,
        "fold": rule.fold().as_str(),
        "gap": spec.gap.as_str(),
        "day_match": spec.day_match.as_str(),
        "tz_release": zones.release(),
        "next": fires.collect::<Vec<_>>(),
        "warnings": preview.warnings.iter().map(warning_json).collect::<Vec<_>>(),
    });
    format!("{object}\n")
}

fn as_table(rule: &CronRule, preview: &Preview, zones: &ZoneSet) -> String {
    let spec = rule.spec();
    let mut text = String::new();
    let (fold, gap) = (rule.fold().as_str(), spec.gap.as_str());
    let _ = writeln!(text, "{}  in {}  (fold {fold}, gap {gap}, IANA {})", spec.expr, spec.zone, zones.release());
    for fire in &preview.next {
        let local = fire.local.replace('T', " ");
        let _ = writeln!(text, "  {local} {}   {}", fire.offset, fire.at);
    }
    for warning in &preview.warnings {
        let _ = writeln!(text, "  ! {}: {}", warning.code.as_str(), warning.message);
    }
    text
}
