//! One local time in a zone, and the instant it means.

use super::{ZONES, at};
use countwheel::kernel::{
    calendar::{CalendarError, Gap, LocalFold, resolve_local},
    time::UnixMs,
};

fn resolve(zone: &str, text: &str, fold: Option<LocalFold>, gap: Option<Gap>) -> Result<UnixMs, CalendarError> {
    resolve_local(&ZONES.zone(zone).unwrap(), text, fold, gap)
}

#[test]
fn an_ordinary_local_time_needs_no_choice() {
    let expected = Ok(at("2026-07-01T07:00:00Z"));
    for text in ["2026-07-01T09:00", "2026-07-01T09:00:00", "2026-07-01T09:00:00.0", "2026-07-01T09:00:00.000"] {
        assert_eq!(resolve("Europe/Berlin", text, None, None), expected, "{text}");
        assert_eq!(resolve("Europe/Berlin", text, Some(LocalFold::Second), Some(Gap::Shift)), expected, "{text}");
    }
    assert_eq!(resolve("UTC", "2026-07-01T09:00:00.25", None, None), Ok(at("2026-07-01T09:00:00.250Z")));
}

#[test]
fn a_repeated_local_time_names_both_readings() {
    let (zone, text) = ("America/New_York", "2026-11-01T01:30:00");
    assert_eq!(resolve(zone, text, Some(LocalFold::First), None), Ok(at("2026-11-01T05:30:00Z")));
    assert_eq!(resolve(zone, text, Some(LocalFold::Second), None), Ok(at("2026-11-01T06:30:00Z")));
    let message = resolve(zone, text, None, Some(Gap::Shift)).unwrap_err().to_string();
    for part in ["2026-11-01T05:30:00.000Z", "2026-11-01T06:30:00.000Z", "\"first\"", "\"second\"", zone] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn a_missing_local_time_names_the_gap_and_the_shifted_reading() {
    let (zone, text) = ("America/New_York", "2026-03-08T02:30:00");
    let after_gap = at("2026-03-08T07:00:00Z");
    assert_eq!(resolve(zone, text, None, Some(Gap::Shift)), Ok(after_gap));
    for gap in [None, Some(Gap::Skip)] {
        let message = resolve(zone, text, Some(LocalFold::First), gap).unwrap_err().to_string();
        for part in ["2026-03-08T02:00:00", "2026-03-08T03:00:00", "2026-03-08T07:00:00.000Z", "shift"] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
    let apia = resolve("Pacific/Apia", "2011-12-30T12:00:00", None, Some(Gap::Shift));
    assert_eq!(apia, Ok(at("2011-12-30T10:00:00Z")), "a whole day is missing");
}

#[test]
fn what_is_no_local_time_is_refused() {
    for text in [
        "",
        "2026-07-01",
        "2026-07-01 09:00:00",
        "2026-07-01T09:00:00Z",
        "2026-07-01T09:00:00+02:00",
        "2026-02-30T09:00:00",
        "2026-07-01T24:00:00",
        "2026-07-01T09:60:00",
        "2026-07-01T09:00:60",
        "2026-07-01T09:00:00.1234",
        "2026-7-1T09:00:00",
        "2026-07-01T09:00:00.",
        "２026-07-01T09:00",
        "+026-07-01T09:00",
    ] {
        let error = resolve("Europe/Berlin", text, None, None).unwrap_err();
        assert!(matches!(error, CalendarError::InvalidLocalTime { .. }), "{text}: {error}");
    }
    for text in ["1969-12-31T23:59:59", "2200-01-01T00:00:00", "9999-12-31T23:59:59", "0000-01-01T00:00:00"] {
        let error = resolve("UTC", text, None, None).unwrap_err();
        assert!(matches!(error, CalendarError::OutsideCalendar { .. }), "{text}: {error}");
    }
}
