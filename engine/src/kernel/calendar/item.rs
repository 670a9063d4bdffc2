//! One item of a cron field: `*`, `*/n`, `a`, `a-b`, `a-b/n`, with names where the field has them.

use super::{
    error::{CronError, FieldFault},
    fields::CronField,
    parse::{fault, invalid},
};

const MONTHS: [&str; 12] = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// `first`, `first + step`, ... up to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    first: u32,
    last: u32,
    pub(super) step: u32,
}

impl Span {
    pub(super) fn set(self) -> u64 {
        (self.first..=self.last).step_by(self.step as usize).fold(0, |set, value| set | 1 << value)
    }
}

/// Reads an item.
pub(super) fn span(field: CronField, item: &str) -> Result<Span, CronError> {
    let (body, step) = item.split_once('/').map_or((item, None), |(body, step)| (body, Some(step)));
    check_characters(field, body)?;
    let step = step.map(|step| read_step(field, item, body, step)).transpose()?;
    let (low, high) = field.range();
    if body == "*" {
        return Ok(Span { first: low, last: high, step: step.unwrap_or(1) });
    }
    let Some((from, to)) = body.split_once('-') else {
        if let Some(step) = step {
            let value = number(field, body)?;
            return Err(step_fault(item, field, "a step needs * or a range", format!("write {value}-{high}/{step}")));
        }
        let value = number(field, body)?;
        return Ok(Span { first: value, last: value, step: 1 });
    };
    check_range_shape(field, item, from, to)?;
    let first = number(field, from)?;
    // SUN at the end of a range is 7, so that FRI-SUN is a range.
    let sunday_last = field == CronField::DayOfWeek && to.eq_ignore_ascii_case("SUN");
    let last = if sunday_last { 7 } else { number(field, to)? };
    if first > last {
        let remedy = split_range(field, from, to);
        return Err(fault(field, FieldFault::Reversed { item: shown(body), low, high, remedy }));
    }
    Ok(Span { first, last, step: step.unwrap_or(1) })
}

/// Reads one value: a number of at most 9 digits, or a name in the fields that have names.
pub(super) fn number(field: CronField, text: &str) -> Result<u32, CronError> {
    if let Some(value) = named(field, text) {
        return Ok(value);
    }
    let (low, high) = field.range();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(invalid(field, text, &why_not_a_value(field, text)));
    }
    match text.parse::<u32>() {
        Ok(value) if text.len() <= 9 && (low..=high).contains(&value) => Ok(value),
        parsed => {
            let what = if text.len() > 9 { " (number too large)" } else { "" };
            let remedy = match (field, parsed) {
                (CronField::Hour, Ok(24)) => "midnight is 0".into(),
                (CronField::Second | CronField::Minute, Ok(60)) => "write 0 for the full minute or hour".into(),
                (CronField::DayOfMonth, _) => "give a day from 1 to 31, or L for the last".into(),
                (CronField::DayOfWeek, _) => "0 and 7 are Sunday".into(),
                _ => format!("give a value from {low} to {high}"),
            };
            Err(fault(field, FieldFault::OutOfRange { value: format!("{}{what}", shown(text)), low, high, remedy }))
        }
    }
}

fn named(field: CronField, text: &str) -> Option<u32> {
    let position = |names: &[&str]| names.iter().position(|name| name.eq_ignore_ascii_case(text));
    match field {
        CronField::Month => position(&MONTHS).map(|index| index as u32 + 1),
        CronField::DayOfWeek => position(&WEEKDAYS).map(|index| index as u32),
        CronField::Second | CronField::Minute | CronField::Hour | CronField::DayOfMonth => None,
    }
}

fn why_not_a_value(field: CronField, text: &str) -> String {
    let (low, high) = field.range();
    let upper = text.to_ascii_uppercase();
    let is_month = MONTHS.contains(&upper.as_str());
    let is_weekday = WEEKDAYS.contains(&upper.as_str());
    let known = |names: &[&str]| names.iter().find(|name| upper.starts_with(**name)).copied().map(str::to_owned);
    match field {
        CronField::Month if is_weekday => "it is a day name; give 1-12 or JAN-DEC".into(),
        CronField::Month => known(&MONTHS).map_or("give 1-12 or JAN-DEC".into(), |name| format!("use {name}")),
        CronField::DayOfWeek if is_month => "it is a month name; give 0-7 or SUN-SAT".into(),
        CronField::DayOfWeek => known(&WEEKDAYS)
            .map_or("give 0-7 or SUN-SAT, d#k or dL (with 6 fields seconds come first)".into(), |name| {
                format!("use {name}")
            }),
        _ if is_month || is_weekday => {
            format!("names are only allowed in month and day-of-week; give {low}-{high}")
        }
        CronField::DayOfMonth if upper.starts_with("L-") => {
            "offsets from L are not supported; give 1-31, L or LW".into()
        }
        CronField::DayOfMonth => "it is not a number, a range, L, LW or nW; give 1-31".into(),
        _ => format!("it is not a number or a range; give {low}-{high}"),
    }
}

fn check_characters(field: CronField, item: &str) -> Result<(), CronError> {
    let (low, high) = field.range();
    let is_day_field = matches!(field, CronField::DayOfMonth | CronField::DayOfWeek);
    let illegal = |character: char, remedy: String| {
        Err(fault(field, FieldFault::IllegalCharacter { character, item: shown(item), remedy }))
    };
    for character in item.chars() {
        match character {
            '0'..='9' | 'a'..='z' | 'A'..='Z' | '*' | '/' | '-' => {}
            '?' if is_day_field => return illegal('?', format!("? must stand alone; give {low}-{high} or *")),
            '?' => {
                return illegal('?', format!("? is only allowed in day-of-month and day-of-week; give {low}-{high}"));
            }
            '#' if field == CronField::DayOfWeek => return illegal('#', "write one # an item, such as MON#2".into()),
            '#' => return illegal('#', format!("# is only allowed in day-of-week; give {low}-{high}")),
            '+' if is_day_field => return illegal('+', "to require both day fields set day_match to \"and\"".into()),
            other => return illegal(other, format!("give {low}-{high}, with * , - / only")),
        }
    }
    let day_letter = match item.to_ascii_uppercase().as_str() {
        "L" => Some('L'),
        "W" | "LW" => Some('W'),
        _ => None,
    };
    match day_letter {
        Some('L') if !is_day_field => {
            illegal('L', format!("L is only allowed in day-of-month and day-of-week; give {low}-{high}"))
        }
        Some(letter) if field != CronField::DayOfMonth => {
            illegal(letter, format!("{letter} is only allowed in day-of-month; give {low}-{high}"))
        }
        _ => Ok(()),
    }
}

fn check_range_shape(field: CronField, item: &str, from: &str, to: &str) -> Result<(), CronError> {
    let (low, high) = field.range();
    let example = format!("write a range as {low}-{high}");
    let why = match (from, to) {
        ("", _) => "it is not a number or range: a value cannot be negative",
        (_, "") => "the end of the range is missing",
        _ if to.starts_with('-') => "it is not a range",
        _ if to.contains('-') && !from.eq_ignore_ascii_case("L") => "it has more than one -",
        _ if from.contains('*') || to.contains('*') => "* cannot be an end of a range",
        _ if from.eq_ignore_ascii_case("L") => "offsets from L are not supported",
        _ => return Ok(()),
    };
    Err(invalid(field, item, &format!("{why}; {example}")))
}

fn read_step(field: CronField, item: &str, body: &str, step: &str) -> Result<u32, CronError> {
    let (low, high) = field.range();
    // Weekdays number 0-7, so a step of 7 still reaches Sunday's other name.
    let values = high - low + 1;
    let remedy = || format!("give a step from 1 to {}", values - 1);
    let is_number = !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit());
    if body.is_empty() && is_number {
        return Err(step_fault(item, field, "a step needs * or a range", format!("write */{}", shown(step))));
    }
    if body.is_empty() {
        return Err(invalid(field, item, &why_not_a_value(field, item)));
    }
    if step.is_empty() {
        return Err(step_fault(item, field, "step is missing", remedy()));
    }
    if !is_number {
        return Err(step_fault(item, field, &format!("step '{}' is not a number", shown(step)), remedy()));
    }
    match step.parse::<u32>() {
        Ok(0) => Err(step_fault(item, field, "step must be at least 1", remedy())),
        Ok(step) if step < values => Ok(step),
        _ => {
            let what = format!("step {} is larger than the field {low}-{high} (fires only at {low})", shown(step));
            Err(step_fault(item, field, &what, remedy()))
        }
    }
}

fn step_fault(item: &str, field: CronField, what: &str, remedy: String) -> CronError {
    fault(field, FieldFault::Step { what: what.into(), item: shown(item), remedy })
}

/// `22-2` as `22-23,0-2`.
fn split_range(field: CronField, from: &str, to: &str) -> String {
    let (low, high) = field.range();
    let first = number(field, from).unwrap_or(low);
    let last = number(field, to).unwrap_or(low);
    let named_weekdays = field == CronField::DayOfWeek && first < 7 && named(field, from).is_some();
    let (high_text, low_text) = match field {
        CronField::DayOfWeek if named_weekdays => ("SUN".to_owned(), "MON".to_owned()),
        CronField::DayOfWeek => ("7".to_owned(), "1".to_owned()),
        CronField::Month if named(field, from).is_some() => ("DEC".to_owned(), "JAN".to_owned()),
        _ => (high.to_string(), low.to_string()),
    };
    let head = if first == high { from.to_owned() } else { format!("{from}-{high_text}") };
    // After SUN or 7 the week goes on with Monday.
    let restart = if field == CronField::DayOfWeek { 1 } else { low };
    match last {
        _ if last < restart => head,
        _ if last == restart => format!("{head},{low_text}"),
        _ => format!("{head},{low_text}-{to}"),
    }
}

/// Text from outside, short enough for a message.
pub(super) fn shown(text: &str) -> String {
    const MOST: usize = 60;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    text.chars().take(MOST).chain("...".chars()).collect()
}
