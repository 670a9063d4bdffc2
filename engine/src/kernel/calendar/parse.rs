//! From the text of a cron expression to its sets, or to a sentence that says what is wrong and what to write.
//!
//! croner never sees text from outside: what it would accept too much or too little of (empty items, glued names,
//! Unicode blanks, `*,5`) is decided here, in time linear in at most 256 bytes.

use super::{
    error::{CronError, FieldFault},
    fields::{CronField, Fields},
    item::{Span, number, shown, span},
};

/// The longest expression that is read, in bytes.
pub(super) const MAX_EXPR_BYTES: usize = 256;

/// An expression that has been understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parsed {
    pub(super) fields: Fields,
    /// Whether the minute or hour field begins with `*`: a cadence, not an appointment.
    pub(super) is_cadence: bool,
    /// Steps over a whole field that do not divide it, so that the last interval is shorter.
    pub(super) uneven_steps: Vec<(CronField, u32)>,
}

/// Reads 5 fields, 6 fields (seconds first) or a nickname.
pub(super) fn parse(expr: &str) -> Result<Parsed, CronError> {
    if expr.len() > MAX_EXPR_BYTES {
        return Err(CronError::TooLong { bytes: expr.len() });
    }
    let text = expr.trim_matches([' ', '\t', '\r', '\n']);
    if text.is_empty() {
        return Err(CronError::Empty);
    }
    if let Some(character) = expr.chars().find(|c| !matches!(c, ' '..='~' | '\t')) {
        let kind = if character.is_control() { "control" } else { "non-ASCII" };
        return Err(CronError::ForeignCharacter { character, kind });
    }
    let text = if text.starts_with('@') { nickname(text)? } else { text };
    if let Some(remedy) = other_language(text) {
        return Err(CronError::NotCron { text: shown(text), remedy });
    }
    let words: Vec<&str> = text.split([' ', '\t']).filter(|word| !word.is_empty()).collect();
    let [second, minute, hour, days, month, weekdays] = match words[..] {
        [a, b, c, d, e] => ["0", a, b, c, d, e],
        [a, b, c, d, e, f] => [a, b, c, d, e, f],
        _ => return Err(CronError::FieldCount { found: words.len(), hint: count_hint(&words) }),
    };
    let mut parsed = Parsed {
        fields: Fields::default(),
        is_cadence: minute.starts_with('*') || hour.starts_with('*'),
        uneven_steps: Vec::new(),
    };
    let mut steps = Vec::new();
    let fields = &mut parsed.fields;
    fields.seconds = plain_field(CronField::Second, second, &mut steps)?;
    fields.minutes = plain_field(CronField::Minute, minute, &mut steps)?;
    fields.hours = narrow(plain_field(CronField::Hour, hour, &mut steps)?);
    read_days(fields, days)?;
    fields.months = narrow(plain_field(CronField::Month, month, &mut Vec::new())?);
    read_weekdays(fields, weekdays)?;
    parsed.uneven_steps = steps;
    Ok(parsed)
}

fn narrow<T: TryFrom<u64>>(set: u64) -> T {
    T::try_from(set).ok().expect("a set has no bits beyond its field")
}

fn nickname(text: &str) -> Result<&'static str, CronError> {
    let known = [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
    ];
    if let Some((_, meaning)) = known.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
        return Ok(meaning);
    }
    let remedy = match text.to_ascii_lowercase() {
        lower if lower.starts_with("@reboot") => "a restart is not an instant; give 5 or 6 fields",
        lower if lower.starts_with("@every") => "use a fixed-interval rule: {\"every\":\"5m\"}",
        _ => "the nicknames are @yearly @annually @monthly @weekly @daily @midnight @hourly",
    };
    Err(CronError::NotCron { text: shown(text), remedy })
}

/// What people paste from elsewhere.
fn other_language(text: &str) -> Option<&'static str> {
    let lower = text.to_ascii_lowercase();
    let timestamp = text.len() >= 10 && text.as_bytes()[..4].iter().all(u8::is_ascii_digit) && text.contains('T');
    if lower.starts_with("cron_tz=") || lower.starts_with("tz=") {
        Some("give the zone in the zone field, and only the 5 or 6 fields here")
    } else if lower.starts_with("rate(") {
        Some("use a fixed-interval rule: {\"every\":\"5m\"}")
    } else if lower.starts_with("cron(") {
        Some("give only the 5 or 6 fields inside cron(...), without a year")
    } else if timestamp {
        Some("for a single instant use a rule {\"at\":\"2026-11-01T05:30:00Z\"}")
    } else {
        None
    }
}

fn count_hint(words: &[&str]) -> &'static str {
    match words.len() {
        _ if words.iter().any(|word| word.starts_with('#')) => ": comments are not part of an expression",
        7 => ": a year field is not supported, bound the schedule with end_at",
        8.. => ": give only the schedule, without a command",
        _ => ": write * for a field that does not matter",
    }
}

/// Seconds, minutes, hours and months: lists of spans. Notes steps that do not divide the field.
fn plain_field(field: CronField, text: &str, uneven: &mut Vec<(CronField, u32)>) -> Result<u64, CronError> {
    let mut set = 0;
    for item in items(field, text)? {
        let span = span(field, item)?;
        let (low, high) = field.range();
        if item.starts_with('*') && !(high - low + 1).is_multiple_of(span.step) {
            uneven.push((field, span.step));
        }
        set |= span.set();
    }
    Ok(set)
}

fn items(field: CronField, text: &str) -> Result<impl Iterator<Item = &str>, CronError> {
    if text.split(',').any(str::is_empty) {
        return Err(fault(field, FieldFault::EmptyItem { text: shown(text) }));
    }
    Ok(text.split(','))
}

pub(super) fn fault(field: CronField, fault: FieldFault) -> CronError {
    CronError::Field { field, fault }
}

fn read_days(fields: &mut Fields, text: &str) -> Result<(), CronError> {
    const FIELD: CronField = CronField::DayOfMonth;
    fields.days_restricted = !matches!(text, "*" | "?");
    if !fields.days_restricted {
        return Ok(());
    }
    for item in items(FIELD, text)? {
        let upper = item.to_ascii_uppercase();
        match upper.strip_suffix('W') {
            _ if upper == "L" => fields.last_day = true,
            Some("L") => fields.last_weekday = true,
            Some(day) if day.bytes().all(|byte| byte.is_ascii_digit()) && !day.is_empty() => {
                fields.nearest |= 1 << number(FIELD, day)?;
            }
            Some("") => return Err(invalid(FIELD, item, "W needs a day from 1 to 31, such as 15W, or L: LW")),
            Some(day) if day.contains(['-', '/']) => {
                return Err(invalid(FIELD, item, "W cannot follow a range; list the days: 14W,15W"));
            }
            _ => fields.days |= narrow::<u32>(span(FIELD, item)?.set()),
        }
    }
    if fields.last_day && fields.last_weekday {
        return Err(invalid(FIELD, text, "L and LW cannot be combined; use two schedules"));
    }
    Ok(())
}

fn read_weekdays(fields: &mut Fields, text: &str) -> Result<(), CronError> {
    const FIELD: CronField = CronField::DayOfWeek;
    fields.weekdays_restricted = !matches!(text, "*" | "?");
    if !fields.weekdays_restricted {
        return Ok(());
    }
    for item in items(FIELD, text)? {
        let upper = item.to_ascii_uppercase();
        if upper == "L" {
            return Err(invalid(FIELD, item, "L needs a day here: 5L is the last Friday of the month"));
        }
        if let Some((days, nth)) = item.split_once('#') {
            let set = weekday_set(nth_span(item, days)?);
            if nth.eq_ignore_ascii_case("L") {
                fields.last_weekdays |= set;
            } else {
                fields.nth_weekdays[nth_index(item, nth)?] |= set;
            }
        } else if let Some(day) = upper.strip_suffix('L') {
            if day.contains(['-', '/', '*']) {
                return Err(invalid(FIELD, item, "L follows a single day (5L); for a range write 1-5#L"));
            }
            fields.last_weekdays |= 1 << (number(FIELD, day)? % 7);
        } else {
            fields.weekdays |= weekday_set(span(FIELD, item)?);
        }
    }
    Ok(())
}

fn nth_span(item: &str, days: &str) -> Result<Span, CronError> {
    if days.is_empty() || days.starts_with('*') {
        return Err(invalid(CronField::DayOfWeek, item, "# needs a weekday before it (0-7 or SUN-SAT), such as MON#2"));
    }
    span(CronField::DayOfWeek, days)
}

/// The index of the k in `d#k`.
fn nth_index(item: &str, nth: &str) -> Result<usize, CronError> {
    match nth.trim_start_matches('0').parse::<usize>() {
        _ if nth.is_empty() => {
            Err(invalid(CronField::DayOfWeek, item, "# needs an occurrence from 1 to 5 after it, such as MON#2"))
        }
        Ok(k @ 1..=5) if nth.len() <= 9 && !nth.starts_with('+') => Ok(k - 1),
        _ if nth.bytes().all(|byte| byte.is_ascii_digit()) => {
            let remedy = "give 1 to 5, or L for the last".into();
            Err(fault(
                CronField::DayOfWeek,
                FieldFault::OutOfRange { value: format!("occurrence {}", shown(nth)), low: 1, high: 5, remedy },
            ))
        }
        _ => Err(invalid(CronField::DayOfWeek, item, "after # comes 1 to 5, or L for the last")),
    }
}

/// Days 0 to 7 folded onto 0 to 6.
fn weekday_set(span: Span) -> u8 {
    let set = span.set();
    narrow((set | set >> 7) & 0x7f)
}

pub(super) fn invalid(field: CronField, item: &str, why: &str) -> CronError {
    fault(field, FieldFault::Invalid { item: shown(item), why: why.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_becomes_sets() {
        let parsed = parse(" 5\t*/20 1-3,*  LW,15W jan-MAR/2 fri-SUN,2#3,6L ").unwrap();
        let fields = parsed.fields;
        assert_eq!(fields.seconds, 1 << 5);
        assert_eq!(fields.minutes, 1 | 1 << 20 | 1 << 40);
        assert_eq!(fields.hours, (1 << 24) - 1);
        assert!(fields.last_weekday && !fields.last_day);
        assert_eq!(fields.nearest, 1 << 15);
        assert_eq!(fields.months, 0b1010);
        assert_eq!(fields.weekdays, 0b110_0001);
        assert_eq!(fields.nth_weekdays, [0, 0, 0b100, 0, 0]);
        assert_eq!(fields.last_weekdays, 0b100_0000);
        assert!(parsed.is_cadence);
    }

    #[test]
    fn steps_that_do_not_divide_their_field_are_noted() {
        assert_eq!(parse("*/59 */5 * * *").unwrap().uneven_steps, [(CronField::Minute, 59), (CronField::Hour, 5)]);
        assert_eq!(parse("*/15 */2 */2 * *").unwrap().uneven_steps, []);
    }

    #[test]
    fn a_refusal_names_field_value_range_and_remedy() {
        for (expr, message) in [
            ("60 * * * *", "minute: 60 is out of range 0-59; write 0 for the full minute or hour"),
            ("0 22-2 * * *", "hour: range 22-2 is reversed (allowed 0-23, smaller first); write 22-23,0-2"),
            (
                "0 0 * * FRI-MON",
                "day-of-week: range FRI-MON is reversed (allowed 0-7, smaller first); write FRI-SUN,MON",
            ),
            ("5/15 * * * *", "minute: a step needs * or a range in '5/15'; write 5-59/15"),
            ("MON * * * *", "minute: 'MON' is not valid: names are only allowed in month and day-of-week; give 0-59"),
            ("0 0 * SEPT *", "month: 'SEPT' is not valid: use SEP"),
            ("0 0 * * 1#6", "day-of-week: occurrence 6 is out of range 1-5; give 1 to 5, or L for the last"),
        ] {
            assert_eq!(parse(expr).unwrap_err().to_string(), message, "{expr}");
        }
    }
}
