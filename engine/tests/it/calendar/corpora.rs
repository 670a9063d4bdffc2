//! The corpora, through the library.

use serde_json::Value;

use super::{ZONES, instants, spec};
use countwheel::kernel::{
    calendar::{CalendarError, CronRule, CronSpec, Fold, FoldChoice, Gap},
    time::UnixMs,
};

pub(crate) const CORPUS_DEV: &str = include_str!("../../corpus/corpus_dev.jsonl");
pub(crate) const BUG_CASES: &str = include_str!("../../corpus/bug_cases.jsonl");
pub(crate) const AUTO_CASES: &str = include_str!("../../corpus/auto_cases.jsonl");
pub(crate) const DISPUTED: &str = include_str!("../../corpus/disputed.jsonl");
pub(crate) const BAD_INPUTS: &str = include_str!("../../corpus/bad_inputs.jsonl");

pub(crate) fn cases(corpus: &str) -> impl Iterator<Item = Value> + '_ {
    corpus.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
}

fn text<'a>(case: &'a Value, key: &str) -> &'a str {
    case[key].as_str().unwrap_or_else(|| panic!("no {key} in {case}"))
}

fn rule_of(case: &Value) -> Result<CronRule, CalendarError> {
    let fold = FoldChoice::parse(text(case, "fold")).unwrap();
    CronRule::new(&spec(text(case, "expr"), text(case, "zone"), fold, Gap::Skip), &ZONES)
}

fn next_of(case: &Value, rule: &CronRule, count: usize) -> Vec<Value> {
    let from = UnixMs(case["from_utc_ms"].as_i64().unwrap());
    instants(rule, from, count).into_iter().map(|at| Value::from(at.0)).collect()
}

fn check_corpus(corpus: &str) -> usize {
    let mut wrong = Vec::new();
    let mut checked = 0;
    for case in cases(corpus) {
        let rule = rule_of(&case).unwrap_or_else(|error| panic!("{error}: {case}"));
        let next = next_of(&case, &rule, 10);
        if case["next"] != Value::from(next.clone()) {
            wrong.push(format!("{case}\n   got {next:?}"));
        }
        checked += 1;
    }
    assert!(wrong.is_empty(), "{} of {checked} differ:\n{}", wrong.len(), wrong.join("\n"));
    checked
}

#[test]
fn every_case_of_the_development_corpus_agrees() {
    assert!(check_corpus(CORPUS_DEV) >= 600);
}

#[test]
fn every_reported_bug_has_its_right_answer() {
    assert!(check_corpus(BUG_CASES) >= 15);
}

#[test]
fn auto_resolves_and_fires_as_published() {
    assert!(check_corpus(AUTO_CASES) >= 20);
    for case in cases(AUTO_CASES) {
        assert_eq!(rule_of(&case).unwrap().fold().as_str(), text(&case, "resolves_to"), "{case}");
    }
}

#[test]
fn disputed_inputs_are_answered_as_published() {
    for case in cases(DISPUTED) {
        match (&case["contract"], rule_of(&case)) {
            (Value::Array(contract), Ok(rule)) => {
                assert_eq!(next_of(&case, &rule, contract.len().max(1)), *contract, "{case}");
            }
            (Value::String(verdict), Err(_)) => assert_eq!(verdict, "reject"),
            (contract, outcome) => panic!("contract {contract}, got {:?}: {case}", outcome.err()),
        }
    }
}

#[test]
fn bad_inputs_get_their_verdict_and_a_reason() {
    let mut wrong = Vec::new();
    for case in cases(BAD_INPUTS) {
        let input = text(&case, "input");
        let is_zone = text(&case, "kind") == "zone";
        let spec = if is_zone { CronSpec::new("* * * * *", input) } else { CronSpec::new(input, "UTC") };
        let outcome = CronRule::new(&spec, &ZONES);
        let message = outcome.as_ref().err().map(ToString::to_string);
        if std::env::var_os("SHOW_MESSAGES").is_some() {
            println!("{:<30.30} | {} | {}", input, message.as_deref().unwrap_or("ok"), case["reason"]);
        }
        // A rule that can never fire is a warning here and a refusal at creation.
        let can_fire = outcome.as_ref().is_ok_and(|rule| !rule.has_no_date());
        if can_fire != (text(&case, "verdict") == "accept") {
            wrong.push(format!("{input:?} {message:?}: {}", case["reason"]));
        }
        let Err(error) = outcome else { continue };
        assert_eq!(error.code(), if is_zone { "unknown_zone" } else { "invalid_cron" }, "{case}");
        // The cron field that the corpus blames is the one that we name.
        if let Some((field, _)) = text(&case, "reason").split_once(": ")
            && ["second", "minute", "hour", "day-of-month", "month", "day-of-week"].contains(&field)
        {
            assert!(error.to_string().starts_with(&format!("{field}: ")), "{error}: {case}");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn fold_words_round_trip() {
    for word in FoldChoice::WORDS {
        assert_eq!(FoldChoice::parse(word).unwrap().as_str(), *word);
    }
    assert_eq!(FoldChoice::from(Fold::Both).as_str(), "both");
    assert_eq!(FoldChoice::parse("Auto"), None);
}
