//! The zones of one release of the IANA data, by exact name, each parsed when it is first used.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use super::{CalendarError, zone::Zone};

/// The longest zone name, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// Names of files in a zone directory that are no zones, or are a property of the machine.
const NOT_ZONES: [&str; 3] = ["Factory", "localtime", "posixrules"];

/// One release of the zone rules. Reads no files: whoever makes it hands over the bytes.
#[derive(Debug)]
pub struct ZoneSet {
    release: String,
    zones: BTreeMap<Box<str>, Entry>,
}

#[derive(Debug)]
struct Entry {
    tzif: Cow<'static, [u8]>,
    parsed: OnceLock<Result<Arc<Zone>, String>>,
}

impl ZoneSet {
    /// A set from the release's name (`2026f`) and pairs of zone name and TZif bytes. Names that are not zones
    /// (`Factory`, `localtime`, `posixrules`, `posix/...`, `right/...`, longer than 64 bytes) are left out.
    pub fn new<N, B>(release: impl Into<String>, zones: impl IntoIterator<Item = (N, B)>) -> Self
    where
        N: Into<Box<str>>,
        B: Into<Cow<'static, [u8]>>,
    {
        let entry = |tzif: B| Entry { tzif: tzif.into(), parsed: OnceLock::new() };
        let named = zones.into_iter().map(|(name, tzif)| (name.into(), entry(tzif)));
        Self { release: release.into(), zones: named.filter(|(name, _)| is_zone_name(name)).collect() }
    }

    /// The IANA release, such as `2026f`.
    #[must_use]
    pub fn release(&self) -> &str {
        &self.release
    }

    /// How many names the release has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.zones.len()
    }

    /// Whether there is no zone at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.zones.is_empty()
    }

    /// The names, ascending.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.zones.keys().map(|name| &**name)
    }

    /// The TZif bytes behind a name, to keep a copy of the rules in use.
    #[must_use]
    pub fn tzif(&self, name: &str) -> Option<&[u8]> {
        self.zones.get(name).map(|entry| &*entry.tzif)
    }

    /// The rules of a zone, by exact name.
    ///
    /// # Errors
    /// `UnknownZone` with what to write instead; `UnreadableZone` when the release's bytes are damaged.
    pub fn zone(&self, name: &str) -> Result<Arc<Zone>, CalendarError> {
        let Some(entry) = self.zones.get(name) else {
            let remedy = super::zone_hint::remedy(name, self.names());
            return Err(CalendarError::UnknownZone { zone: super::item::shown(name), remedy });
        };
        let parsed = entry.parsed.get_or_init(|| Zone::from_tzif(name, &entry.tzif).map(Arc::new));
        parsed.clone().map_err(|why| CalendarError::UnreadableZone { zone: name.to_owned(), why })
    }
}

/// Whether a name may be a zone's: what it names is for the release to say.
fn is_zone_name(name: &str) -> bool {
    let shape = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_' | b'-' | b'+');
    !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && name.bytes().all(shape)
        && !NOT_ZONES.contains(&name)
        && !name.starts_with("posix/")
        && !name.starts_with("right/")
}
