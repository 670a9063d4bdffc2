//! A second implementation: chrono-tz's own tables, and a naive walk over them.

use chrono::{DateTime, Offset, TimeZone, Utc};
use chrono_tz::Tz;

use super::{ZONES, at};
use countwheel::kernel::time::UnixMs;

/// Zones that chrono-tz (2025b) runs otherwise than 2026f between 1990 and 2037.
pub(crate) const DIFFERENT: &[&str] = &[
    "Africa/Casablanca",
    "Africa/El_Aaiun",
    "America/Bogota", // 1993 only
    "America/Edmonton",
    "America/Havana",
    "America/Inuvik",
    "America/Rainy_River",
    "America/Vancouver",
    "America/Winnipeg",
    "America/Yellowknife",
    "Canada/Central",
    "Canada/Mountain",
    "Canada/Pacific",
    "Cuba",
    "Europe/Chisinau",
    "Europe/Tiraspol",
];

fn chrono_offset_s(zone: Tz, at_s: i64) -> i64 {
    let at = DateTime::<Utc>::from_timestamp(at_s, 0).unwrap();
    i64::from(zone.offset_from_utc_datetime(&at.naive_utc()).fix().local_minus_utc())
}

#[test]
fn both_implementations_have_the_same_transitions_but_for_the_known_zones() {
    let (from, to) = (at("1990-01-01T00:00:00Z"), at("2037-12-31T00:00:00Z"));
    let mut different = Vec::new();
    let mut compared = 0;
    for name in ZONES.names() {
        let Ok(theirs) = name.parse::<Tz>() else { continue };
        let ours = ZONES.zone(name).unwrap();
        // Just before and at each of our changes, and about once a week for changes that only they have.
        let changes = ours.changes(from, to).flat_map(|(at, _)| [at.minus(1_000), at]);
        let weekly = (from.0..to.0).step_by(6 * 86_400_000 + 17_000_000).map(UnixMs);
        let same = |at: UnixMs| ours.offset_s(at) == chrono_offset_s(theirs, at.0 / 1_000);
        if !changes.chain(weekly).all(same) {
            different.push(name);
        }
        compared += 1;
    }
    assert!(compared >= 590, "{compared}");
    assert_eq!(different, DIFFERENT);
}
