//! Durations as people write them: `500ms`, `30s`, `5m`, `24h`, `1d`, `1h30m`.

use super::{error::CalendarError, item::shown};

/// Reads a duration: whole numbers with `d`, `h`, `m`, `s` or `ms`, each unit at most once and the larger first.
///
/// # Errors
/// `InvalidDuration`, with what is wrong.
pub fn parse_duration_ms(text: &str) -> Result<i64, CalendarError> {
    const UNITS: [(&str, i64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
    let refuse = |why| CalendarError::InvalidDuration { text: shown(text), why };
    if text.is_empty() {
        return Err(refuse("it is empty"));
    }
    let (mut rest, mut total_ms, mut next_unit) = (text, 0_i64, 0);
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, tail) = rest.split_at(digits);
        let letters = tail.len() - tail.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let (unit, tail) = tail.split_at(letters);
        if number.is_empty() {
            return Err(refuse("a whole number must come first"));
        }
        let position = UNITS.iter().position(|(name, _)| *name == unit);
        let index = position.ok_or_else(|| refuse("the units are d, h, m, s and ms"))?;
        if index < next_unit {
            return Err(refuse("each unit stands once, the larger first"));
        }
        let part = number.parse::<i64>().ok().and_then(|number| number.checked_mul(UNITS[index].1));
        total_ms = part.and_then(|part| total_ms.checked_add(part)).ok_or_else(|| refuse("it is too long"))?;
        (rest, next_unit) = (tail, index + 1);
    }
    Ok(total_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_in_milliseconds() {
        for (text, ms) in
            [("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("24h", 86_400_000), ("1d", 86_400_000), ("0s", 0)]
        {
            assert_eq!(parse_duration_ms(text), Ok(ms), "{text}");
        }
        assert_eq!(parse_duration_ms("1h30m"), Ok(5_400_000));
        assert_eq!(parse_duration_ms("1m1ms"), Ok(60_001));
    }

    #[test]
    fn anything_else_is_refused_with_a_remedy() {
        for text in ["", "5", "m", "-5m", "5 m", "1.5h", "5M", "30m1h", "1s1s", "9223372036854775807d", "5µs", "٣s"] {
            let message = parse_duration_ms(text).unwrap_err().to_string();
            assert!(message.contains("write it as"), "{text}: {message}");
        }
    }
}
