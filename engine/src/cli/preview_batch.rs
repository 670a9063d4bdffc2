//! `countwheel preview --batch`: one JSON object a line in, one a line out, in order, in bounded memory.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Read, Write},
    path::Path,
};

use serde_json::{Value, json, value::RawValue};

use super::preview::{field_of, warning_json};
use crate::kernel::{
    calendar::{
        CronRule, CronSpec, DayMatch, FoldChoice, Gap, ZoneSet,
        preview::{MAX_COUNT, Previewed, Window, preview},
    },
    time::UnixMs,
};

/// The longest line that is read: 256 bytes of expression and 64 of zone leave room for any sensible id.
const MAX_LINE_BYTES: usize = 64 * 1_024;

/// A line that cannot be previewed: it becomes an error line, and the batch goes on.
struct Refused {
    code: &'static str,
    field: Option<String>,
    message: String,
}

pub(super) fn run(path: &Path, zones: &ZoneSet) -> io::Result<()> {
    let input: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        Box::new(File::open(path).map_err(named)?)
    };
    let mut input = BufReader::with_capacity(MAX_LINE_BYTES, input);
    let mut output = BufWriter::with_capacity(MAX_LINE_BYTES, io::stdout().lock());
    let mut line = Vec::new();
    while let Some(fits) = read_line(&mut input, &mut line)? {
        let answer = answer(fits.then_some(line.as_slice()), zones);
        writeln!(output, "{answer}")?;
        // Whoever writes a line and waits for its answer gets it.
        if input.buffer().is_empty() {
            output.flush()?;
        }
    }
    output.flush()
}

/// The next line without its end, whether it fits; none at the end of the input.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Option<bool>> {
    line.clear();
    let mut bounded = input.by_ref().take(MAX_LINE_BYTES as u64 + 1);
    if bounded.read_until(b'\n', line)? == 0 {
        return Ok(None);
    }
    if line.ends_with(b"\n") {
        line.pop();
        return Ok(Some(true));
    }
    if line.len() <= MAX_LINE_BYTES {
        return Ok(Some(true));
    }
    input.skip_until(b'\n')?;
    Ok(Some(false))
}

fn answer(line: Option<&[u8]>, zones: &ZoneSet) -> String {
    let invalid = |message: String| Refused { code: "invalid", field: None, message };
    let too_long = || invalid(format!("the line has more than {MAX_LINE_BYTES} bytes; split it"));
    let no_json = |error| invalid(format!("the line is not a JSON object: {error}"));
    let parsed = line
        .ok_or_else(too_long)
        .and_then(|line| serde_json::from_slice::<BTreeMap<String, &RawValue>>(line).map_err(no_json));
    let (id, outcome) = match &parsed {
        Ok(fields) => (fields.get("id").map_or("null", |id| id.get()), preview_line(fields, zones)),
        Err(refused) => ("null", Err(Refused { field: None, message: refused.message.clone(), ..*refused })),
    };
    let rest = outcome.unwrap_or_else(|refused| {
        let mut error = json!({"code": refused.code, "message": refused.message});
        error["field"] = refused.field.map_or(Value::Null, Value::from);
        format!("\"error\":{error}")
    });
    format!("{{\"id\":{id},{rest}}}")
}

/// The answer's part after the id. Fields that are not ours are the caller's own: an expected answer, a remark.
fn preview_line(fields: &BTreeMap<String, &RawValue>, zones: &ZoneSet) -> Result<String, Refused> {
    let spec = CronSpec {
        expr: required(fields, "expr", "a string such as \"0 9 * * MON-FRI\"")?,
        zone: required(fields, "zone", "a string such as \"Europe/Berlin\"")?,
        fold: choice(fields, "fold", FoldChoice::parse, FoldChoice::WORDS)?,
        gap: choice(fields, "gap", Gap::parse, Gap::WORDS)?,
        day_match: choice(fields, "day_match", DayMatch::parse, DayMatch::WORDS)?,
    };
    let from: i64 = required(fields, "from_utc_ms", "a whole number of milliseconds since 1970")?;
    let count = optional(fields, "count", "a whole number from 1 to 10000")?.unwrap_or(10_usize);
    if !(1..=MAX_COUNT).contains(&count) {
        return Err(refused("count", format!("count: {count} is out of range 1-{MAX_COUNT}; give a number within it")));
    }
    let rule = CronRule::new(&spec, zones).map_err(|error| Refused {
        code: error.code(),
        field: Some(field_of(&error).into()),
        message: error.to_string(),
    })?;
    let preview = preview(Previewed::Cron(&rule), &Window { from: UnixMs(from), start_at: None, end_at: None, count });
    let next: Vec<i64> = preview.next.iter().map(|fire| fire.at.0).collect();
    let warnings: Vec<Value> = preview.warnings.iter().map(warning_json).collect();
    Ok(format!("\"next\":{},\"warnings\":{},\"fold\":\"{}\"", json!(next), json!(warnings), rule.fold().as_str()))
}

fn refused(field: &str, message: String) -> Refused {
    Refused { code: "invalid", field: Some(field.to_owned()), message }
}

fn optional<'a, T: serde::Deserialize<'a>>(
    fields: &BTreeMap<String, &'a RawValue>,
    name: &str,
    wanted: &str,
) -> Result<Option<T>, Refused> {
    let Some(raw) = fields.get(name) else { return Ok(None) };
    let shown: String = raw.get().chars().take(64).collect();
    serde_json::from_str(raw.get()).map_err(|_| refused(name, format!("{name}: {shown} is not {wanted}")))
}

fn required<'a, T: serde::Deserialize<'a>>(
    fields: &BTreeMap<String, &'a RawValue>,
    name: &str,
    wanted: &str,
) -> Result<T, Refused> {
    optional(fields, name, wanted)?.ok_or_else(|| refused(name, format!("{name} is missing; give {wanted}")))
}

fn choice<T: Default>(
    fields: &BTreeMap<String, &RawValue>,
    name: &str,
    parse: fn(&str) -> Option<T>,
    words: &[&str],
) -> Result<T, Refused> {
    let wanted = format!("one of {}", words.join(", "));
    match optional::<String>(fields, name, &wanted)? {
        None => Ok(T::default()),
        Some(word) => {
            let shown: String = word.chars().take(64).collect();
            parse(&word).ok_or_else(|| refused(name, format!("{name}: {shown:?} is not {wanted}")))
        }
    }
}
