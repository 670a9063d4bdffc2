//! How the values of options are read.

use std::{net::SocketAddr, time::Duration};

use crate::kernel::{calendar::parse_duration_ms, time::UnixMs};

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
    numeric.parse().map_err(|_| "give an address and a port such as 127.0.0.1:7171".to_owned())
}

/// How many times as fast a rehearsal's clock runs.
pub(crate) fn speed(text: &str) -> Result<f64, String> {
    let speed: f64 = text.parse().map_err(|_| "give a number such as 60".to_owned())?;
    if speed.is_finite() && speed > 0.0 { Ok(speed) } else { Err("give a number above 0 such as 60".to_owned()) }
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
}
