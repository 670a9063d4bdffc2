//! Wall time as seconds since 1970-01-01T00:00 of the same clock, and the dates behind it.

use std::cmp::Ordering;

use chrono::{Datelike, NaiveDate};
use croner::{CivilDate, CivilDateTime, CivilTime, CronDateTime, Resolution, Weekday, errors::CronError};

const DAY_S: i64 = 86_400;

/// Year, month and day of the day `days` after 1970-01-01; far outside chrono's range the nearest day it knows.
pub(super) fn date_from_days(days: i64) -> (i32, u32, u32) {
    let date = i32::try_from(days).ok().and_then(NaiveDate::from_epoch_days).unwrap_or(if days < 0 {
        NaiveDate::MIN
    } else {
        NaiveDate::MAX
    });
    (date.year(), date.month(), date.day())
}

/// Days since 1970-01-01 of a date that exists.
pub(super) fn days_from_date(year: i32, month: u32, day: u32) -> i64 {
    NaiveDate::from_ymd_opt(year, month, day).map_or(0, |date| i64::from(date.to_epoch_days()))
}

/// 0 = Sunday: 1970-01-01 was a Thursday.
pub(super) fn weekday(days: i64) -> u32 {
    u32::try_from((days + 4).rem_euclid(7)).expect("below 7")
}

/// The length of a month.
pub(super) fn days_in_month(year: i32, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// `2026-11-01T01:30:00` of a wall time.
pub(super) fn show(wall_s: i64) -> String {
    let (year, month, day) = date_from_days(wall_s.div_euclid(DAY_S));
    format!("{year:04}-{month:02}-{day:02}T{}", show_time(wall_s))
}

/// `2026-11-01` of a wall time.
pub(super) fn show_date(wall_s: i64) -> String {
    let (year, month, day) = date_from_days(wall_s.div_euclid(DAY_S));
    format!("{year:04}-{month:02}-{day:02}")
}

/// `01:30:00` of a wall time.
pub(super) fn show_time(wall_s: i64) -> String {
    let of_day = wall_s.rem_euclid(DAY_S);
    format!("{:02}:{:02}:{:02}", of_day / 3_600, of_day / 60 % 60, of_day % 60)
}

/// A wall time that croner can search over: it has no zone, so nothing is ever missing or repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wall(pub(super) i64);

impl CronDateTime for Wall {
    fn to_civil(&self) -> CivilDateTime {
        let (year, month, day) = date_from_days(self.0.div_euclid(DAY_S));
        let of_day = u32::try_from(self.0.rem_euclid(DAY_S)).expect("below a day");
        CivilDateTime::new(
            CivilDate::from_parts_unchecked(year, month, day),
            CivilTime::from_parts_unchecked(of_day / 3_600, of_day / 60 % 60, of_day % 60),
        )
    }

    fn civil_weekday(&self) -> Weekday {
        Weekday::from_days_from_sunday(weekday(self.0.div_euclid(DAY_S)))
    }

    fn resolve_civil(&self, civil: CivilDateTime) -> Result<Resolution<Self>, CronError> {
        let (date, time) = (civil.date(), civil.time());
        let day = NaiveDate::from_ymd_opt(date.year(), date.month(), date.day()).ok_or(CronError::InvalidDate)?;
        let of_day = i64::from(time.hour()) * 3_600 + i64::from(time.minute()) * 60 + i64::from(time.second());
        Ok(Resolution::Single(Self(i64::from(day.to_epoch_days()) * DAY_S + of_day)))
    }

    fn checked_add_seconds(&self, seconds: i64) -> Option<Self> {
        self.0.checked_add(seconds).map(Self)
    }

    fn cmp_instant(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_time_goes_through_croner_unchanged() {
        for wall in [0, 951_782_399, 1_709_251_199, 4_102_444_800, -1] {
            let Ok(Resolution::Single(back)) = Wall(wall).resolve_civil(Wall(wall).to_civil()) else {
                panic!("{wall} has no date")
            };
            assert_eq!(back, Wall(wall));
        }
        assert_eq!(Wall(0).civil_weekday(), Weekday::Thursday);
        assert_eq!(show(1_793_496_600), "2026-11-01T01:30:00");
    }
}
