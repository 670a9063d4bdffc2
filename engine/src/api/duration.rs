//! Durations as they are shown to people: `500ms 30s 5m 24h`, which read back as they were.

const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// Writes milliseconds in the largest unit up to the hour that divides them.
pub(crate) fn show_ms(ms: u64) -> String {
    let fits = |(_, unit_ms): &&(&str, u64)| ms >= *unit_ms && ms.is_multiple_of(*unit_ms);
    let (unit, unit_ms) = UNITS.iter().rev().find(fits).unwrap_or(&UNITS[0]);
    format!("{}{unit}", ms / unit_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::calendar::parse_duration_ms;

    #[test]
    fn what_is_shown_reads_back() {
        for (ms, text) in
            [(0, "0ms"), (500, "500ms"), (1_000, "1s"), (61_000, "61s"), (300_000, "5m"), (86_400_000, "24h")]
        {
            assert_eq!(show_ms(ms), text);
            assert_eq!(parse_duration_ms(text).unwrap().cast_unsigned(), ms);
        }
    }
}
