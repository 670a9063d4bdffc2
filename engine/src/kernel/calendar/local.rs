//! From a local time in a zone to the one instant it means, or to the readings it could have.

use chrono::NaiveDate;

use super::{civil, error::CalendarError, item::shown, spec::Gap, zone::END_S, zone::Zone};
use crate::kernel::time::UnixMs;

/// Which of two readings of a repeated local time is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LocalFold {
    /// The earlier instant.
    First,
    /// The later instant.
    Second,
}

/// The instant of a local time (`2026-11-01T01:30:00`, seconds and up to three decimals optional).
///
/// A local time that is missing needs `gap: Some(Gap::Shift)`, one that happens twice needs `fold`; where there is
/// one reading, both are ignored.
///
/// # Errors
/// `InvalidLocalTime`, `LocalTimeInGap` and `LocalTimeAmbiguous` with the readings, `OutsideCalendar`.
pub fn resolve_local(
    zone: &Zone,
    text: &str,
    fold: Option<LocalFold>,
    gap: Option<Gap>,
) -> Result<UnixMs, CalendarError> {
    let (wall_s, ms) = parse_local(text).map_err(|why| CalendarError::InvalidLocalTime { text: shown(text), why })?;
    let instant = |at_s: i64| UnixMs(at_s * 1_000 + ms);
    let readings: Vec<i64> = zone.instants_s(wall_s).collect();
    let at = match (readings.first(), readings.last(), fold) {
        (Some(&only), Some(&last), _) if only == last => instant(only),
        (Some(&first), _, Some(LocalFold::First)) => instant(first),
        (_, Some(&last), Some(LocalFold::Second)) => instant(last),
        (Some(&first), Some(&second), None) => {
            return Err(CalendarError::LocalTimeAmbiguous {
                local: civil::show(wall_s),
                zone: zone.name().to_owned(),
                first: instant(first).to_string(),
                second: instant(second).to_string(),
            });
        }
        _ => after_gap(zone, wall_s, gap)?,
    };
    let inside = (0..END_S * 1_000).contains(&at.0);
    if inside { Ok(at) } else { Err(CalendarError::OutsideCalendar { text: shown(text) }) }
}

fn after_gap(zone: &Zone, wall_s: i64, gap: Option<Gap>) -> Result<UnixMs, CalendarError> {
    let stretch = zone.gap_over(wall_s).ok_or_else(|| CalendarError::OutsideCalendar { text: civil::show(wall_s) })?;
    let shifted = UnixMs(stretch.start_s * 1_000);
    if gap == Some(Gap::Shift) {
        return Ok(shifted);
    }
    Err(CalendarError::LocalTimeInGap {
        local: civil::show(wall_s),
        zone: zone.name().to_owned(),
        gap_from: civil::show(stretch.shown_until_s),
        gap_to: civil::show(stretch.wall_start_s()),
        shifted: shifted.to_string(),
    })
}

/// Seconds of wall time and milliseconds within the second.
fn parse_local(text: &str) -> Result<(i64, i64), &'static str> {
    const SHAPE: &str = "it has another shape";
    let bytes = text.as_bytes();
    let template = b"0000-00-00T00:00:00.000";
    if !matches!(bytes.len(), 16 | 19 | 21..=23) {
        return Err(if bytes.len() > 19 { "it has an offset or too many decimals" } else { SHAPE });
    }
    let fits = |(byte, pattern): (&u8, &u8)| if *pattern == b'0' { byte.is_ascii_digit() } else { byte == pattern };
    if !bytes.iter().zip(template).all(fits) {
        return Err(SHAPE);
    }
    let number = |range: std::ops::Range<usize>| {
        bytes.get(range).map_or(0, |digits| digits.iter().fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0')))
    };
    let year = i32::try_from(number(0..4)).expect("four digits");
    let date = NaiveDate::from_ymd_opt(year, number(5..7), number(8..10)).ok_or("there is no such date")?;
    let (hour, minute, second) = (number(11..13), number(14..16), number(17..19));
    if hour > 23 || minute > 59 || second > 59 {
        return Err("there is no such time of day");
    }
    let decimals = bytes.get(20..).unwrap_or_default();
    let ms = decimals.iter().chain(b"000").take(3).fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    let of_day = i64::from(hour * 3_600 + minute * 60 + second);
    Ok((i64::from(date.to_epoch_days()) * 86_400 + of_day, ms))
}
