//! What a cron expression says, as bit sets: which days, hours, minutes and seconds match, and how many.

use std::fmt::Write as _;

use super::civil;

/// One of the six fields of a cron expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CronField {
    /// 0-59.
    Second,
    /// 0-59.
    Minute,
    /// 0-23.
    Hour,
    /// 1-31, `L`, `LW`, `nW`.
    DayOfMonth,
    /// 1-12 or JAN-DEC.
    Month,
    /// 0-7 or SUN-SAT, `d#k`, `dL`.
    DayOfWeek,
}

impl CronField {
    /// The field's name in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::DayOfMonth => "day-of-month",
            Self::Month => "month",
            Self::DayOfWeek => "day-of-week",
        }
    }

    /// The smallest and the largest value of the field; day-of-week knows Sunday as 0 and as 7.
    #[must_use]
    pub const fn range(self) -> (u32, u32) {
        match self {
            Self::Second | Self::Minute => (0, 59),
            Self::Hour => (0, 23),
            Self::DayOfMonth => (1, 31),
            Self::Month => (1, 12),
            Self::DayOfWeek => (0, 7),
        }
    }
}

/// The sets of values that match, one bit a value (bit 0 = value 0).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields {
    pub(super) seconds: u64,
    pub(super) minutes: u64,
    pub(super) hours: u32,
    pub(super) months: u16,
    /// Plain days of the month, bits 1 to 31.
    pub(super) days: u32,
    /// `nW`: the Monday-to-Friday day nearest to day n, bits 1 to 31.
    pub(super) nearest: u32,
    /// `L`: the last day of the month.
    pub(super) last_day: bool,
    /// `LW`: the last Monday-to-Friday day of the month.
    pub(super) last_weekday: bool,
    /// Plain days of the week, bits 0 (Sunday) to 6.
    pub(super) weekdays: u8,
    /// `d#k`: at index k - 1 the days of the week of which the k-th in the month matches.
    pub(super) nth_weekdays: [u8; 5],
    /// `dL`: the days of the week of which the last in the month matches.
    pub(super) last_weekdays: u8,
    /// Whether the day-of-month field is anything but exactly `*` or `?`.
    pub(super) days_restricted: bool,
    /// Whether the day-of-week field is anything but exactly `*` or `?`.
    pub(super) weekdays_restricted: bool,
    /// Both restricted day fields must match, instead of either.
    pub(super) both_days_must_match: bool,
}

const DAY_S: i64 = 86_400;

impl Fields {
    /// Whether no date of any year matches. Days depend on a year only through its length and the weekday of its
    /// first day, so 14 kinds of year decide it, without a search.
    pub(super) fn never_matches_a_date(&self) -> bool {
        [2023, 2024].into_iter().all(|year| {
            (0..7).all(|shift| {
                (1..=12).all(|month| {
                    let first = (civil::weekday(civil::days_from_date(year, month, 1)) + shift) % 7;
                    !self.month_matches(month) || self.days_matching(first, civil::days_in_month(year, month)) == 0
                })
            })
        })
    }

    /// How many matching wall times lie in `[from_s, to_s)`, in seconds of local time.
    pub(super) fn count_between(&self, from_s: i64, to_s: i64) -> u64 {
        if to_s <= from_s {
            return 0;
        }
        let (first_day, last_day) = (from_s.div_euclid(DAY_S), to_s.div_euclid(DAY_S));
        // Whole days up to the day of `to_s`, then the two ends put right.
        let whole = self.days_between(first_day, last_day) * self.times_a_day();
        let on_last = u64::from(self.day_matches(last_day)) * self.times_before(to_s.rem_euclid(DAY_S));
        let before_first = u64::from(self.day_matches(first_day)) * self.times_before(from_s.rem_euclid(DAY_S));
        whole + on_last - before_first
    }

    /// Whether the wall time `wall_s` matches.
    pub(super) fn matches(&self, wall_s: i64) -> bool {
        self.count_between(wall_s, wall_s + 1) == 1
    }

    fn month_matches(&self, month: u32) -> bool {
        self.months >> month & 1 == 1
    }

    fn day_matches(&self, day: i64) -> bool {
        let (year, month, of_month) = civil::date_from_days(day);
        let first = civil::weekday(day - i64::from(of_month) + 1);
        self.month_matches(month) && self.days_matching(first, civil::days_in_month(year, month)) >> of_month & 1 == 1
    }

    /// Matching days in `[from, to)`, counted in days since 1970.
    fn days_between(&self, from: i64, to: i64) -> u64 {
        let mut day = from;
        let mut total = 0;
        while day < to {
            let (year, month, of_month) = civil::date_from_days(day);
            let length = civil::days_in_month(year, month);
            let month_start = day - i64::from(of_month) + 1;
            let month_end = month_start + i64::from(length);
            if self.month_matches(month) {
                let upto = u32::try_from(to.min(month_end) - month_start).expect("at most a month");
                // Bits `of_month..=upto`.
                let window = (u64::from(u32::MAX) >> (31 - upto)) as u32 & (u32::MAX << of_month);
                total += u64::from((self.days_matching(civil::weekday(month_start), length) & window).count_ones());
            }
            day = month_end;
        }
        total
    }

    fn times_a_day(&self) -> u64 {
        let ones = self.hours.count_ones() * self.minutes.count_ones();
        u64::from(ones) * u64::from(self.seconds.count_ones())
    }

    /// Matching times of day before the second `of_day`.
    fn times_before(&self, of_day: i64) -> u64 {
        let of_day = u32::try_from(of_day).expect("a second of a day");
        let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
        let below = |set: u64, value: u32| u64::from((set & ((1 << value) - 1)).count_ones());
        let has = |set: u64, value: u32| set >> value & 1;
        let hours = u64::from(self.hours);
        let an_hour = u64::from(self.minutes.count_ones()) * u64::from(self.seconds.count_ones());
        let in_this_minute = has(self.minutes, minute) * below(self.seconds, second);
        let in_this_hour = below(self.minutes, minute) * u64::from(self.seconds.count_ones()) + in_this_minute;
        below(hours, hour) * an_hour + has(hours, hour) * in_this_hour
    }

    /// The matching days (bits 1 to 31) of a month of `length` days that begins on the weekday `first`.
    fn days_matching(&self, first: u32, length: u32) -> u32 {
        let every = (u64::MAX >> (63 - length)) as u32 & !1;
        let (by_day, by_weekday) = (self.by_day(first, length) & every, self.by_weekday(first, length) & every);
        match (self.days_restricted, self.weekdays_restricted) {
            (false, false) => every,
            (true, false) => by_day,
            (false, true) => by_weekday,
            (true, true) if self.both_days_must_match => by_day & by_weekday,
            (true, true) => by_day | by_weekday,
        }
    }

    fn by_day(&self, first: u32, length: u32) -> u32 {
        let weekday_of = |day: u32| (first + day - 1) % 7;
        let mut days = self.days;
        if self.last_day {
            days |= 1 << length;
        }
        if self.last_weekday {
            days |= 1 << nearest_weekday(length, weekday_of(length), length);
        }
        for day in (1..=length).filter(|day| self.nearest >> day & 1 == 1) {
            days |= 1 << nearest_weekday(day, weekday_of(day), length);
        }
        days
    }

    fn by_weekday(&self, first: u32, length: u32) -> u32 {
        let mut days = 0;
        for day in 1..=length {
            let weekday = (first + day - 1) % 7;
            let nth = self.nth_weekdays[(day as usize - 1) / 7];
            let last = if day + 7 > length { self.last_weekdays } else { 0 };
            days |= u32::from((self.weekdays | nth | last) >> weekday & 1) << day;
        }
        days
    }

    /// The same sets written so that croner reads them as we do (names, `?`, `*,5` and 7 are resolved).
    pub(super) fn to_croner(&self) -> String {
        let mut text = String::with_capacity(64);
        push_set(&mut text, self.seconds, CronField::Second);
        push_set(&mut text, self.minutes, CronField::Minute);
        push_set(&mut text, u64::from(self.hours), CronField::Hour);
        self.push_days(&mut text);
        text.push(' ');
        push_set(&mut text, u64::from(self.months), CronField::Month);
        self.push_weekdays(&mut text);
        text
    }

    fn push_days(&self, text: &mut String) {
        if !self.days_restricted {
            return text.push('*');
        }
        let mut items = Items::new(text);
        (1..=31).filter(|day| self.days >> day & 1 == 1).for_each(|day| items.push(format_args!("{day}")));
        (1..=31).filter(|day| self.nearest >> day & 1 == 1).for_each(|day| items.push(format_args!("{day}W")));
        if self.last_day {
            items.push(format_args!("L"));
        }
        if self.last_weekday {
            items.push(format_args!("LW"));
        }
    }

    fn push_weekdays(&self, text: &mut String) {
        if !self.weekdays_restricted {
            return text.push('*');
        }
        let mut items = Items::new(text);
        for day in 0..7_u32 {
            if self.weekdays >> day & 1 == 1 {
                items.push(format_args!("{day}"));
            }
            for (index, nth) in self.nth_weekdays.iter().enumerate() {
                if nth >> day & 1 == 1 {
                    items.push(format_args!("{day}#{}", index + 1));
                }
            }
            if self.last_weekdays >> day & 1 == 1 {
                items.push(format_args!("{day}#L"));
            }
        }
    }
}

/// The Monday-to-Friday day nearest to `day`, which falls on `weekday`, without leaving the month.
fn nearest_weekday(day: u32, weekday: u32, length: u32) -> u32 {
    match weekday {
        6 if day == 1 => 3,
        6 => day - 1,
        0 if day == length => day - 2,
        0 => day + 1,
        _ => day,
    }
}

/// A comma-separated list.
struct Items<'a> {
    text: &'a mut String,
    empty: bool,
}

impl<'a> Items<'a> {
    fn new(text: &'a mut String) -> Self {
        Self { text, empty: true }
    }

    fn push(&mut self, item: std::fmt::Arguments<'_>) {
        if !self.empty {
            self.text.push(',');
        }
        self.empty = false;
        self.text.write_fmt(item).expect("writing to a string cannot fail");
    }
}

fn push_set(text: &mut String, set: u64, field: CronField) {
    let (low, high) = field.range();
    if set.count_ones() == high - low + 1 {
        text.push('*');
    } else {
        let mut items = Items::new(text);
        (low..=high).filter(|value| set >> value & 1 == 1).for_each(|value| items.push(format_args!("{value}")));
    }
    text.push(' ');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::calendar::parse::parse;

    fn fields(expr: &str) -> Fields {
        parse(expr).unwrap().fields
    }

    #[test]
    fn counting_by_fields_equals_counting_one_by_one() {
        for expr in ["*/7 1-3 1,15 * MON", "5 4 * 2,3 *", "0 0 L * *", "*/5 */9 3 15W * FRI#2", "1 1 LW 2 5L"] {
            let fields = fields(expr);
            let start = 1_709_140_000; // 28 February 2024, a leap year
            let mut counted = 0;
            for second in start..start + 2 * DAY_S {
                counted += u64::from(fields.matches(second));
            }
            assert_eq!(fields.count_between(start, start + 2 * DAY_S), counted, "{expr}");
        }
    }

    #[test]
    fn a_date_that_never_comes_is_known_without_a_search() {
        for (expr, never) in [
            ("0 0 30 2 *", true),
            ("0 0 31 4,6,9,11 *", true),
            ("0 0 31W 2 *", true),
            ("0 0 30 2 MON", false),
            ("0 0 29 2 *", false),
            ("0 0 * 2 MON#5", false),
        ] {
            assert_eq!(fields(expr).never_matches_a_date(), never, "{expr}");
        }
        let both = Fields { both_days_must_match: true, ..fields("0 0 1-7 * MON#2") };
        assert!(both.never_matches_a_date());
        let leap = Fields { both_days_must_match: true, ..fields("0 0 29 2 MON#5") };
        assert!(!leap.never_matches_a_date());
    }

    #[test]
    fn croner_is_given_what_was_understood() {
        assert_eq!(fields("*,5 1-3 ? JAN FRI-SUN").to_croner(), "0 * 1,2,3 * 1 0,5,6");
        assert_eq!(fields("0 0 *,5 * 7#2,5L").to_croner().split(' ').nth(5), Some("0#2,5#L"));
        assert_eq!(fields("5 0 0 15W,L * *").to_croner(), "5 0 0 15W,L * *");
    }
}
