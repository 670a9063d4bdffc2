//! Local-time hints: what a clock in a schedule's zone, else on this machine, shows at an instant.

use std::{env, fs};

use chrono::DateTime;
use serde_json::Value;

use crate::{
    kernel::{calendar::ZoneSet, time::UnixMs},
    shell::tzdata,
};

/// The zones of this machine.
pub(super) struct Clocks {
    zones: Option<ZoneSet>,
    machine: Option<String>,
}

impl Clocks {
    /// Without zone rules there are no hints: nothing depends on them.
    pub(super) fn new() -> Self {
        Self { zones: tzdata::load(None).ok(), machine: machine_zone() }
    }

    /// `2026-12-01 08:00:00Z (09:00:00 +01:00 Europe/Berlin)`; the day too where it is another one.
    pub(super) fn show(&self, instant: &Value, zone: Option<&str>) -> String {
        let Some(text) = instant.as_str() else { return "-".to_owned() };
        let Some(at) = UnixMs::parse_rfc3339(text) else { return text.to_owned() };
        let utc = format_at(at, "%Y-%m-%d %H:%M:%SZ");
        match zone.or(self.machine.as_deref()).and_then(|zone| self.local(at, zone)) {
            Some(local) => format!("{utc} ({local})"),
            None => utc,
        }
    }

    fn local(&self, at: UnixMs, name: &str) -> Option<String> {
        let zone = self.zones.as_ref()?.zone(name).ok()?;
        let offset_s = zone.offset_s(at);
        if offset_s == 0 {
            return None;
        }
        let local = at.plus(offset_s * 1_000);
        let same_day = format_at(local, "%F") == format_at(at, "%F");
        let shown = format_at(local, if same_day { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" });
        let (sign, minutes) = (if offset_s < 0 { '-' } else { '+' }, offset_s.abs() / 60);
        Some(format!("{shown} {sign}{:02}:{:02} {name}", minutes / 60, minutes % 60))
    }
}

fn format_at(at: UnixMs, format: &str) -> String {
    DateTime::from_timestamp_millis(at.0).map_or_else(|| at.to_string(), |at| at.format(format).to_string())
}

/// The zone that this machine's clock is set to, if it has a name.
fn machine_zone() -> Option<String> {
    if let Ok(name) = env::var("TZ") {
        return Some(name.trim_start_matches(':').to_owned()).filter(|name| !name.is_empty());
    }
    let target = fs::read_link("/etc/localtime").ok()?;
    let (_, name) = target.to_str()?.rsplit_once("zoneinfo/")?;
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_shown_in_utc_and_in_the_zone() {
        let clocks = Clocks { zones: tzdata::load(None).ok(), machine: None };
        let at = Value::from("2026-12-01T23:30:00.000Z");
        assert_eq!(
            clocks.show(&at, Some("Europe/Berlin")),
            "2026-12-01 23:30:00Z (2026-12-02 00:30:00 +01:00 Europe/Berlin)"
        );
        assert_eq!(
            clocks.show(&at, Some("America/New_York")),
            "2026-12-01 23:30:00Z (18:30:00 -05:00 America/New_York)"
        );
        assert_eq!(clocks.show(&at, Some("UTC")), "2026-12-01 23:30:00Z");
        assert_eq!(clocks.show(&at, Some("Mars/Olympus")), "2026-12-01 23:30:00Z");
        assert_eq!(clocks.show(&Value::Null, None), "-");
        assert_eq!(clocks.show(&Value::from("soon"), None), "soon");
    }
}
