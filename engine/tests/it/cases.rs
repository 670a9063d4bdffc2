//! docs/CASES.md names tests that exist.

use std::{collections::BTreeSet, path::Path};

fn tests_below(dir: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        if entry.path().is_dir() {
            tests_below(&entry.path(), found);
        } else if let Ok(text) = std::fs::read_to_string(entry.path()) {
            let names = text.split("fn ").skip(1).filter_map(|rest| rest.split_once('(')).map(|(name, _)| name);
            found.extend(names.map(str::to_owned));
        }
    }
}

#[test]
fn every_test_that_the_list_of_cases_names_exists() {
    let mut found = BTreeSet::new();
    for dir in ["src", "tests/it", "../wal/src"] {
        tests_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join(dir), &mut found);
    }
    let cases = include_str!("../../../docs/CASES.md");
    let rows = cases.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| ---"));
    let mut named = 0;
    for row in rows.filter_map(|row| row.trim_end_matches(" |").rsplit_once(" | ")).map(|(_, last)| last) {
        let mut in_quotes = row.split('`').skip(1).step_by(2).filter(|word| word.matches('_').count() > 2).peekable();
        assert!(in_quotes.peek().is_some() || ["-", "test"].contains(&row.trim()), "{row} names no test");
        for test in in_quotes {
            assert!(found.contains(test), "{test} is no test");
            named += 1;
        }
    }
    assert!(named > 40, "only {named}");
}
