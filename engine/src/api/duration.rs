//! Durations as people write them, `500ms 30s 5m 24h`, to milliseconds and back.

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Reads a whole number and one unit.
///
/// # Errors
/// A sentence that says what is wrong and how durations are written.
pub(crate) fn parse_ms(text: &str) -> Result<u64, &'static str> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if digits == 0 {
        return Err("is no duration: write a whole number and a unit, such as 500ms, 30s, 5m or 24h");
    }
    let Some((_, unit_ms)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err("has no known unit: write one of ms, s, m, h, d after a whole number, such as 500ms, 30s or 24h");
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(*unit_ms))
        .ok_or("is longer than any duration that is accepted: write a smaller number")
}

/// Writes milliseconds in the largest unit up to the hour that divides them.
pub(crate) fn show_ms(ms: u64) -> String {
    let fits = |(_, unit_ms): &&(&str, u64)| ms >= *unit_ms && ms.is_multiple_of(*unit_ms);
    let (unit, unit_ms) = UNITS[..4].iter().rev().find(fits).unwrap_or(&UNITS[0]);
    format!("{}{unit}", ms / unit_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_reads_back() {
        for (ms, text) in [(0, "0ms"), (500, "500ms"), (1_000, "1s"), (61_000, "61s"), (300_000, "5m")] {
            assert_eq!(show_ms(ms), text);
            assert_eq!(parse_ms(text), Ok(ms));
        }
        assert_eq!(show_ms(86_400_000), "24h");
        assert_eq!(parse_ms("366d"), Ok(31_622_400_000));
    }

    #[test]
    fn what_is_no_duration_is_refused_with_the_way_to_write_it() {
        for bad in ["", "s", "5", "5 m", "1.5s", "-1s", "+1s", "5M", "1h30", "٣s", "PT5S"] {
            assert!(parse_ms(bad).unwrap_err().contains("such as"), "{bad:?}");
        }
        assert!(parse_ms("18446744073709551616ms").unwrap_err().contains("smaller"));
        assert!(parse_ms("18446744073709551615d").unwrap_err().contains("smaller"));
    }
}
