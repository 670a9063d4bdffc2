//! What to write instead of a zone name that does not exist.

/// Abbreviations that people write, and what they mean, where they mean one thing.
const ABBREVIATIONS: [(&str, &str); 12] = [
    ("PST", "America/Los_Angeles"),
    ("PDT", "America/Los_Angeles"),
    ("MDT", "America/Denver"),
    ("CDT", "America/Chicago"),
    ("EDT", "America/New_York"),
    ("JST", "Asia/Tokyo"),
    ("CEST", "Europe/Berlin"),
    ("EEST", "Europe/Athens"),
    ("AEST", "Australia/Brisbane"),
    ("AEDT", "Australia/Sydney"),
    ("NZST", "Pacific/Auckland"),
    ("MSK", "Europe/Moscow"),
];
/// Abbreviations that mean several zones.
const AMBIGUOUS: [&str; 5] = ["IST", "CST", "BST", "AST", "SST"];

/// A remedy for a name that is not in the release.
pub(super) fn remedy<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    if name.len() > 64 {
        return format!(
            "the name has {} bytes, at most 64 are allowed; give an IANA name such as Europe/Berlin",
            name.len()
        );
    }
    let trimmed = name.trim();
    if trimmed.is_empty() {
        return "the zone is empty; give an IANA name such as Europe/Berlin, or UTC".into();
    }
    if name.chars().any(char::is_control) {
        return "the name has a control character; remove it".into();
    }
    if let Some(offset) = offset_remedy(trimmed) {
        return offset;
    }
    if let Some((_, zone)) = ABBREVIATIONS.iter().find(|(short, _)| short.eq_ignore_ascii_case(trimmed)) {
        return format!("it is an abbreviation; use {zone}");
    }
    if AMBIGUOUS.iter().any(|short| short.eq_ignore_ascii_case(trimmed)) {
        return "it is an abbreviation of several zones; give an IANA name such as Asia/Kolkata or Europe/Dublin"
            .into();
    }
    if ["localtime", "system", "local"].iter().any(|word| word.eq_ignore_ascii_case(trimmed)) {
        return "it would depend on the machine; give an IANA name such as Europe/Berlin".into();
    }
    match closest(trimmed, known) {
        Some(zone) if trimmed != name => format!("the name has surrounding blanks; did you mean {zone}?"),
        Some(zone) if zone.eq_ignore_ascii_case(name) => format!("names are case-sensitive; did you mean {zone}?"),
        Some(zone) => format!("no zone is called so; did you mean {zone}?"),
        None => "give an IANA name in exact case, such as Europe/Berlin, America/New_York or UTC".into(),
    }
}

fn offset_remedy(name: &str) -> Option<String> {
    if name.contains(',') || name.starts_with('<') {
        return Some("POSIX TZ strings are not supported; give an IANA name such as America/New_York".into());
    }
    let rest = name.strip_prefix("UTC").or_else(|| name.strip_prefix("GMT")).unwrap_or(name);
    let is_offset = rest.starts_with(['+', '-']) || rest.starts_with(|c: char| c.is_ascii_digit());
    is_offset.then(|| "offsets are not zone names; give an IANA name (Etc/GMT-5 is its spelling of +05:00)".into())
}

/// The known name that is the same but for case and punctuation, or ends so, or is at most two edits away.
fn closest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let bare = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let asked = bare(name);
    if asked == "z" {
        return Some("UTC");
    }
    // One digit off is another zone, not a slip of the pen.
    let has_digit = asked.bytes().any(|byte| byte.is_ascii_digit());
    let rank = |zone: &str| {
        let city = zone.rsplit('/').next().unwrap_or(zone);
        if bare(zone) == asked {
            Some(0)
        } else if bare(city) == asked {
            Some(1)
        } else {
            let edits = edit_distance(&asked, &bare(zone));
            (asked.len() >= 5 && edits <= 2 && !has_digit).then_some(1 + edits)
        }
    };
    known.filter_map(|zone| Some((rank(zone)?, zone))).min().map(|(_, zone)| zone)
}

/// Insertions, deletions and replacements from one text to the other (both at most 64 bytes).
fn edit_distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.bytes().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_name_gets_a_remedy() {
        let known = ["America/New_York", "Asia/Tokyo", "Europe/Berlin", "UTC"];
        for (name, part) in [
            ("america/new_york", "case-sensitive; did you mean America/New_York?"),
            ("New_York", "called so; did you mean America/New_York?"),
            (":America/New_York", "called so; did you mean America/New_York?"),
            ("Z", "called so; did you mean UTC?"),
            ("Europe/Berlyn", "did you mean Europe/Berlin?"),
            ("utc", "did you mean UTC?"),
            ("PST", "use America/Los_Angeles"),
            ("IST", "several zones"),
            ("+05:30", "offsets"),
            ("EST5EDT,M3.2.0,M11.1.0", "POSIX"),
            ("UTC\n", "control"),
            ("", "empty"),
            ("Mars/Olympus", "exact case"),
        ] {
            let remedy = remedy(name, known.into_iter());
            assert!(remedy.contains(part), "{name}: {remedy}");
        }
    }
}
