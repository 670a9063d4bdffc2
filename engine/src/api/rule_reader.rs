//! What a request's `rule` means: cron, interval, or one instant.

use std::time::Duration;

use super::{
    fields::{Fields, invalid},
    shape::{Field, Shape},
    words,
};
use crate::{
    error::Refusal,
    kernel::changes::{NewCron, NewRule},
};

/// Bounds of an interval: a second, and 366 days.
pub(crate) const EVERY_MS: std::ops::RangeInclusive<u64> = 1_000..=366 * 86_400_000;

/// All fields of all kinds of rule.
pub(crate) const RULE: &[Field] = &[
    Field::new("cron", Shape::Text, "5 fields, or 6 with seconds first, or a nickname such as @daily"),
    Field::new("every", Shape::Duration, "elapsed time between instants, 1s to 366d"),
    Field::new("every_ms", Shape::Whole(*EVERY_MS.start(), *EVERY_MS.end()), "the same in milliseconds"),
    Field::new("at", Shape::Instant, "one instant"),
    Field::new("at_local", Shape::Text, "one wall time of the zone, such as 2026-11-01T01:30:00"),
    Field::new("zone", Shape::Text, "IANA zone of cron and at_local"),
    Field::new(
        "fold",
        Shape::Words(folds),
        "repeated wall times: auto, once, both for cron, first, second for at_local",
    ),
    Field::new("gap", Shape::Words(|| words::names(words::GAP)), "wall times that do not exist; at_local: shift only"),
    Field::new("day_match", Shape::Words(|| words::names(words::DAY_MATCH)), "what two restricted day fields mean"),
    Field::new("anchor", Shape::Instant, "an instant of the grid of every"),
    Field::new(
        "basis",
        Shape::Words(|| words::names(words::BASIS)),
        "what every counts from: the grid, or the end or the first claim of the run before; slot",
    ),
];

fn folds() -> Vec<&'static str> {
    [words::names(words::FOLD), words::names(words::LOCAL_FOLD)].concat()
}

const KINDS: &str = "cron, every, at or at_local";

/// Reads the fields of a rule.
pub(crate) fn read(mut rule: Fields) -> Result<NewRule, Refusal> {
    let kinds: Vec<&str> =
        ["cron", "every", "every_ms", "at", "at_local"].into_iter().filter(|kind| rule.has(kind)).collect();
    match kinds.as_slice() {
        ["cron"] => cron(&mut rule),
        ["every" | "every_ms", ..] if kinds.iter().all(|kind| kind.starts_with("every")) => every(&mut rule),
        ["at"] => at(&mut rule),
        ["at_local"] => at_local(&mut rule),
        [] => Err(invalid(rule.at("").trim_end_matches('.'), format!("has no kind: give one of {KINDS}"))),
        [first, second, ..] => {
            let message = format!("does not go with {}: give only one of {KINDS}", rule.at(first));
            Err(invalid(rule.at(second), message))
        }
        [_] => unreachable!("every single kind is matched above"),
    }
}

/// Refuses the fields in `names`, which belong to other kinds of rule than `kind`.
fn refuse(rule: &Fields, kind: &str, names: &[&str]) -> Result<(), Refusal> {
    match names.iter().find(|name| rule.has(name)) {
        Some(name) => Err(invalid(rule.at(name), format!("does not go with {}: leave it out", rule.at(kind)))),
        None => Ok(()),
    }
}

fn cron(rule: &mut Fields) -> Result<NewRule, Refusal> {
    refuse(rule, "cron", &["anchor", "basis"])?;
    Ok(NewRule::Cron(NewCron {
        expr: rule.required_text("cron")?,
        zone: rule.required_text("zone")?,
        fold: rule.word("fold", words::FOLD)?,
        gap: rule.word("gap", words::GAP)?,
        day_match: rule.word("day_match", words::DAY_MATCH)?,
    }))
}

fn every(rule: &mut Fields) -> Result<NewRule, Refusal> {
    refuse(rule, "every", &["zone", "fold", "gap", "day_match"])?;
    let every_ms = rule.duration_ms("every", "every_ms", EVERY_MS)?.ok_or_else(|| rule.missing("every"))?;
    let (every, anchor) = (Duration::from_millis(every_ms), rule.instant("anchor")?);
    Ok(NewRule::Every { every, anchor, basis: rule.word("basis", words::BASIS)? })
}

fn at(rule: &mut Fields) -> Result<NewRule, Refusal> {
    refuse(rule, "at", &["zone", "fold", "gap", "day_match", "anchor", "basis"])?;
    Ok(NewRule::At(rule.instant("at")?.ok_or_else(|| rule.missing("at"))?))
}

fn at_local(rule: &mut Fields) -> Result<NewRule, Refusal> {
    refuse(rule, "at_local", &["day_match", "anchor", "basis"])?;
    Ok(NewRule::AtLocal {
        local: rule.required_text("at_local")?,
        zone: rule.required_text("zone")?,
        fold: rule.word("fold", words::LOCAL_FOLD)?,
        gap: rule.word("gap", words::LOCAL_GAP)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::fields::Null;
    use crate::kernel::{
        calendar::{Basis, FoldChoice, Gap, LocalFold},
        time::UnixMs,
    };

    fn read_rule(json: &str) -> Result<NewRule, Refusal> {
        read(Fields::of(serde_json::from_str(json).unwrap(), "rule", RULE, Null::LeftOut)?)
    }

    #[test]
    fn each_kind_of_rule_is_read_with_its_options() {
        let read = |json| read_rule(json).unwrap();
        let NewRule::Cron(cron) = read(r#"{"cron":"0 9 * * MON","zone":"Europe/Berlin","fold":"both","gap":"shift"}"#)
        else {
            panic!("cron")
        };
        assert_eq!((cron.fold, cron.gap, cron.day_match), (Some(FoldChoice::Both), Some(Gap::Shift), None));
        let every = r#"{"every":"5m","anchor":"1970-01-01T00:00:07Z","basis":"start"}"#;
        let NewRule::Every { every, anchor, basis } = read(every) else { panic!("every") };
        assert_eq!((every.as_secs(), anchor, basis), (300, Some(UnixMs(7_000)), Some(Basis::Start)));
        assert!(matches!(read(r#"{"every_ms":1000}"#), NewRule::Every { anchor: None, .. }));
        assert!(matches!(read(r#"{"at":"1970-01-01T00:00:07Z"}"#), NewRule::At(UnixMs(7_000))));
        let local = r#"{"at_local":"2026-11-01T01:30:00","zone":"America/New_York","fold":"second","gap":"shift"}"#;
        let NewRule::AtLocal { fold, gap, .. } = read(local) else { panic!("at_local") };
        assert_eq!((fold, gap), (Some(LocalFold::Second), Some(Gap::Shift)));
    }

    #[test]
    fn a_rule_that_is_no_rule_is_refused_by_the_path_of_what_is_wrong() {
        for (bad, field, part) in [
            ("{}", "rule", "give one of cron"),
            (r#"{"zone":"UTC"}"#, "rule", "give one of cron"),
            ("[]", "rule", "must be an object"),
            (r#""* * * * *""#, "rule", "must be an object, not a string"),
            (r#"{"cron":"* * * * *"}"#, "rule.zone", "required"),
            (r#"{"cron":5,"zone":"UTC"}"#, "rule.cron", "must be a string"),
            (r#"{"cron":"* * * * *","zone":7}"#, "rule.zone", "must be a string"),
            (r#"{"cron":"* * * * *","zone":"UTC","fold":"first"}"#, "rule.fold", "auto, once, both"),
            (r#"{"cron":"* * * * *","zone":"UTC","gap":"fire"}"#, "rule.gap", "skip, shift"),
            (r#"{"cron":"* * * * *","zone":"UTC","day_match":"AND"}"#, "rule.day_match", "or, and"),
            (r#"{"cron":"* * * * *","zone":"UTC","anchor":"1970-01-01T00:00:00Z"}"#, "rule.anchor", "rule.cron"),
            (r#"{"cron":"* * * * *","every":"5m"}"#, "rule.every", "only one of"),
            (r#"{"cron":"* * * * *","zone":"UTC","tz":"UTC"}"#, "rule.tz", "not a field"),
            (r#"{"every":"5m","every_ms":300000}"#, "rule.every_ms", "one of the two"),
            (r#"{"every":"999ms"}"#, "rule.every", "give 1s to"),
            (r#"{"every":"367d"}"#, "rule.every", "out of range"),
            (r#"{"every":300}"#, "rule.every", "a duration such as"),
            (r#"{"every":"5m","zone":"UTC"}"#, "rule.zone", "rule.every"),
            (r#"{"every":"5m","basis":"grid"}"#, "rule.basis", "slot, completion, start"),
            (r#"{"every":"5m","anchor":"noon"}"#, "rule.anchor", "RFC 3339"),
            (r#"{"at":1793511000000}"#, "rule.at", "RFC 3339"),
            (r#"{"at":"2026-11-01T01:30:00"}"#, "rule.at", "RFC 3339"),
            (r#"{"at":"2026-11-01T01:30:00Z","zone":"UTC"}"#, "rule.zone", "leave it out"),
            (r#"{"at":"2026-11-01T01:30:00Z","at_local":"2026-11-01T01:30:00"}"#, "rule.at_local", "only one"),
            (r#"{"at_local":"2026-11-01T01:30:00"}"#, "rule.zone", "required"),
            (r#"{"at_local":"2026-11-01T01:30:00","zone":"UTC","fold":"both"}"#, "rule.fold", "first, second"),
            (r#"{"at_local":"2026-11-01T01:30:00","zone":"UTC","gap":"skip"}"#, "rule.gap", "shift"),
        ] {
            let refusal = read_rule(bad).unwrap_err();
            assert_eq!(refusal.field, field, "{bad}");
            assert!(refusal.message.contains(part), "{bad}: {}", refusal.message);
        }
    }
}
