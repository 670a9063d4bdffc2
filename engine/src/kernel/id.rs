//! Names of things: schedules, occurrences, tenants, queues, and where a schedule lives.
//!
//! An occurrence id is a pure function of what it names, so that anyone can recompute it and materialising the same
//! instant twice is one occurrence.

use std::{fmt, str::FromStr};

use bincode::{Decode, Encode};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::time::UnixMs;

/// How many slots the schedules are spread over; a shard owns a range of them.
pub const SLOTS: u32 = 16_384;

/// A schedule's id: a UUID, always handled as its 16 raw bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScheduleId(pub [u8; 16]);

impl ScheduleId {
    /// A random-looking id (version 4) from 16 bytes that the caller drew.
    #[must_use]
    pub fn from_random(bytes: [u8; 16]) -> Self {
        Self(uuid::Builder::from_random_bytes(bytes).into_uuid().into_bytes())
    }

    /// The id that an idempotency key stands for: the first 16 bytes of
    /// `SHA-256("countwheel.schedule" 00 tenant 00 key)` as a UUID of version 8, so that the same key finds the same
    /// schedule.
    #[must_use]
    pub fn from_key(tenant: &str, key: &str) -> Self {
        let mut hash = Sha256::new();
        for part in ["countwheel.schedule", "\0", tenant, "\0", key] {
            hash.update(part);
        }
        let digest = hash.finalize();
        let bytes = digest[..16].try_into().expect("a SHA-256 has 32 bytes");
        Self(uuid::Builder::from_custom_bytes(bytes).into_uuid().into_bytes())
    }

    /// The slot this schedule falls into: the first 14 bits of the SHA-256 of its id.
    #[must_use]
    pub fn slot(self) -> Slot {
        let digest = Sha256::digest(self.0);
        Slot(u16::from_be_bytes([digest[0], digest[1]]) >> 2)
    }
}

/// One of [`SLOTS`] slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u16);

impl Slot {
    /// The shard that owns this slot when there are `shards` of them: `slot * shards / 16384`.
    #[must_use]
    pub fn shard(self, shards: u16) -> u16 {
        let shard = u32::from(self.0) * u32::from(shards) / SLOTS;
        u16::try_from(shard).expect("a slot below 16384 gives a shard below the number of shards")
    }
}

/// What made an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum Kind {
    /// The schedule's own rule.
    Regular,
    /// A manual trigger.
    Manual,
    /// A backfill of a past window.
    Backfill,
}

impl Kind {
    /// The byte that stands for this kind in ids, stream entries and records.
    #[must_use]
    pub const fn byte(self) -> u8 {
        match self {
            Self::Regular => 0,
            Self::Manual => 1,
            Self::Backfill => 2,
        }
    }

    /// The word users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Regular => "regular",
            Self::Manual => "manual",
            Self::Backfill => "backfill",
        }
    }
}

/// An occurrence's id: a time-ordered UUID of version 8 (RFC 9562), a pure function of schedule, version, instant
/// and kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OccurrenceId(pub [u8; 16]);

impl OccurrenceId {
    /// 48 bits of `scheduled_for` in milliseconds, then version and variant around the leading 74 bits of
    /// `SHA-256(schedule_id || version u32 BE || scheduled_for i64 BE || kind u8 || discriminator)`.
    ///
    /// `discriminator` is empty for regular occurrences, else the caller's key or the request's own id.
    #[must_use]
    pub fn of(schedule: ScheduleId, version: u32, scheduled_for: UnixMs, kind: Kind, discriminator: &[u8]) -> Self {
        let mut hash = Sha256::new();
        hash.update(schedule.0);
        hash.update(version.to_be_bytes());
        hash.update(scheduled_for.0.to_be_bytes());
        hash.update([kind.byte()]);
        hash.update(discriminator);
        let digest = hash.finalize();
        let head = u128::from_be_bytes(digest[..16].try_into().expect("a SHA-256 has 32 bytes")) >> (128 - 74);
        let at = u128::from(scheduled_for.0.cast_unsigned() & 0xffff_ffff_ffff);
        // 48 bits of time | 4 bits version | 12 bits | 2 bits variant | 62 bits
        let id = at << 80 | 8 << 76 | (head >> 62) << 64 | 0b10 << 62 | head & ((1 << 62) - 1);
        Self(id.to_be_bytes())
    }

    /// Whether it has the version and variant bits of an occurrence's id.
    #[must_use]
    pub const fn is_well_formed(self) -> bool {
        self.0[6] >> 4 == 8 && self.0[8] >> 6 == 0b10
    }

    /// The instant that its leading 48 bits name.
    #[must_use]
    pub fn scheduled_for(self) -> UnixMs {
        let mut bytes = [0; 8];
        bytes[2..].copy_from_slice(&self.0[..6]);
        UnixMs(i64::from_be_bytes(bytes))
    }

    /// `scheduled_for` plus the deterministic jitter of a flexible window: the low 62 bits of the id modulo the
    /// window. A window of 0 means none.
    #[must_use]
    pub fn available_at(self, scheduled_for: UnixMs, flexible_window_ms: u64) -> UnixMs {
        if flexible_window_ms == 0 {
            return scheduled_for;
        }
        let low = u64::from_be_bytes(self.0[8..].try_into().expect("an id has 16 bytes")) & ((1 << 62) - 1);
        let jitter = low % flexible_window_ms;
        scheduled_for.plus(i64::try_from(jitter).expect("62 bits fit"))
    }
}

macro_rules! uuid_text {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                Uuid::from_bytes(self.0).hyphenated().fmt(f)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
        /// Only the hyphenated form of 36 characters is an id.
        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                if text.len() != 36 {
                    return Err(InvalidId);
                }
                Uuid::try_parse(text).map(|id| Self(id.into_bytes())).map_err(|_| InvalidId)
            }
        }
    };
}
uuid_text!(ScheduleId);
uuid_text!(OccurrenceId);

/// The text is not a hyphenated UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a hyphenated UUID of 36 characters")]
pub struct InvalidId;

/// Checks the name of a tenant or a queue: `[a-z0-9][a-z0-9._-]{0,63}`.
///
/// # Errors
/// A sentence that names the offending part and the remedy.
pub fn check_name(name: &str) -> Result<(), String> {
    let tail_is_fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-');
    if name.is_empty() {
        return Err("is empty: give 1 to 64 characters of a-z 0-9 . _ -".into());
    }
    if name.len() > 64 {
        return Err(format!("has {} bytes: at most 64 are allowed", name.len()));
    }
    if let Some(bad) = name.chars().find(|c| !tail_is_fine(*c)) {
        return Err(format!("has the character {bad:?}: only a-z 0-9 . _ - are allowed"));
    }
    if !name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit()) {
        return Err("must begin with a letter a-z or a digit".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_maps_to_the_shard_that_owns_its_range() {
        assert_eq!(Slot(0).shard(4), 0);
        assert_eq!(Slot(4_095).shard(4), 0);
        assert_eq!(Slot(4_096).shard(4), 1);
        assert_eq!(Slot(16_383).shard(4), 3);
        assert_eq!(Slot(16_383).shard(1), 0);
    }

    #[test]
    fn names_are_checked_with_a_remedy() {
        assert_eq!(check_name("billing.eu-1_x"), Ok(()));
        for (bad, part) in [("", "empty"), ("Billing", "'B'"), ("-a", "begin"), ("a b", "' '"), ("ünder", "'ü'")] {
            assert!(check_name(bad).unwrap_err().contains(part), "{bad}");
        }
        assert!(check_name(&"a".repeat(64)).is_ok());
        assert!(check_name(&"a".repeat(65)).is_err());
    }
}
