//! How the values of options and settings are read.

use std::{fmt::Display, net::SocketAddr, str::FromStr, time::Duration};

use crate::kernel::{calendar::parse_duration_ms, id::check_name, time::UnixMs};

/// `500ms`, `30s`, `5m`, `24h`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let ms = parse_duration_ms(text).map_err(|problem| problem.to_string())?;
    Ok(Duration::from_millis(ms.unsigned_abs()))
}

/// An RFC 3339 instant.
pub(crate) fn instant(text: &str) -> Result<UnixMs, String> {
    UnixMs::parse_rfc3339(text).ok_or_else(|| "give an RFC 3339 instant such as 2026-11-01T05:30:00Z".to_owned())
}

/// `127.0.0.1:7171`, `[::1]:7171` or `localhost:7171`; no other name is looked up.
pub(crate) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let numeric = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    numeric.parse().map_err(|_| format!("{text:?} is no address with a port: give one such as 127.0.0.1:7171"))
}

/// How many times as fast a rehearsal's clock runs.
pub(crate) fn speed(text: &str) -> Result<f64, String> {
    let speed: f64 = text.parse().map_err(|_| "give a number such as 60".to_owned())?;
    if speed.is_finite() && speed > 0.0 { Ok(speed) } else { Err("give a number above 0 such as 60".to_owned()) }
}

/// A whole number from `least` to `most`.
pub(crate) fn number<N: FromStr + PartialOrd + Display>(text: &str, least: N, most: N) -> Result<N, String> {
    match text.parse() {
        Ok(number) if (&least..=&most).contains(&&number) => Ok(number),
        _ => Err(format!("{text:?} is no whole number from {least} to {most}: give one")),
    }
}

/// `67108864`, `512KiB`, `64MiB`, `4GiB`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u32); 3] = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
    let unit = UNITS.into_iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)));
    let (digits, shift) = unit.unwrap_or((text, 0));
    let number = Some(digits).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let bytes = number.and_then(|digits| digits.parse::<u64>().ok()).and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| format!("{text:?} is no number of bytes: give one such as 67108864 or 64MiB"))
}

/// The name of a tenant or a queue.
pub(crate) fn name(text: &str) -> Result<String, String> {
    check_name(text).map(|()| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_numeric_or_localhost() {
        assert_eq!(listen_address("localhost:0").unwrap().to_string(), "127.0.0.1:0");
        assert_eq!(listen_address("[::1]:7171").unwrap().to_string(), "[::1]:7171");
        for bad in ["7171", ":7171", "127.0.0.1", "example.org:80", "localhost:", "localhost:70000", ""] {
            assert!(listen_address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_speed_is_a_number_above_zero() {
        assert_eq!(speed("0.5"), Ok(0.5));
        for bad in ["0", "-1", "inf", "NaN", "fast", ""] {
            assert!(speed(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_number_is_whole_and_within_its_bounds() {
        assert_eq!(number("1024", 1_u16, 1_024), Ok(1_024));
        for bad in ["0", "1025", "-1", "1.5", "", "70000", "four"] {
            assert!(number(bad, 1_u16, 1_024).is_err(), "{bad}");
        }
    }

    #[test]
    fn bytes_are_whole_numbers_with_binary_units() {
        assert_eq!([bytes("4096"), bytes("16KiB"), bytes("4GiB")], [Ok(4_096), Ok(16_384), Ok(4 << 30)]);
        for bad in ["", "MiB", "64MB", "64 MiB", "-1", "+1", "1.5GiB", "99999999999GiB"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }
}
