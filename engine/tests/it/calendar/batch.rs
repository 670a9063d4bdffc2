//! `countwheel preview`, the real program.

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};

use super::corpora::{AUTO_CASES, BAD_INPUTS, BUG_CASES, CORPUS_DEV, DISPUTED, cases};

fn countwheel(args: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_countwheel"));
    command.arg("preview").args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let feed = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let output = child.wait_with_output().unwrap();
    feed.join().unwrap();
    output
}

/// The bundled rules as a directory: a newer release on this machine must not change what is tested.
fn zone_dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in super::ZONES.names() {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, super::ZONES.tzif(name).unwrap()).unwrap();
    }
    std::fs::write(dir.path().join("+VERSION"), super::ZONES.release()).unwrap();
    dir
}

fn batch(lines: &str) -> Vec<Value> {
    let dir = zone_dir();
    answers(countwheel(&["--batch", "-", "--tzdata", dir.path().to_str().unwrap()], lines))
}

fn answers(output: Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

fn request(case: &Value) -> Value {
    let count = case["contract"].as_array().map_or(10, |contract| contract.len().max(1));
    let mut request = json!({"id": case["id"], "count": count});
    for key in ["expr", "zone", "fold", "from_utc_ms"] {
        request[key] = case[key].clone();
    }
    request
}

fn lines(requests: &[Value]) -> String {
    requests.iter().map(|request| format!("{request}\n")).collect()
}

#[test]
fn every_corpus_passes_through_the_program() {
    let all: Vec<Value> = [CORPUS_DEV, BUG_CASES, AUTO_CASES, DISPUTED].into_iter().flat_map(cases).collect();
    let answers = batch(&lines(&all.iter().map(request).collect::<Vec<_>>()));
    assert_eq!(answers.len(), all.len());
    for (case, answer) in all.iter().zip(&answers) {
        assert_eq!(answer["id"], case["id"]);
        match (&case["next"], &case["contract"]) {
            (Value::Null, Value::String(_)) => assert_eq!(answer["error"]["code"], "invalid_cron", "{answer}"),
            (Value::Null, contract) => assert_eq!(answer["next"], *contract, "{case}"),
            (next, _) => assert_eq!(answer["next"], *next, "{case}"),
        }
        let warned = answer["warnings"].to_string().contains("never_fires");
        assert_eq!(warned, answer["next"] == json!([]), "{answer}");
    }
}

#[test]
fn a_corpus_is_answered_as_it_stands_whatever_its_lines_carry_besides() {
    let all: Vec<Value> = [CORPUS_DEV, BUG_CASES, AUTO_CASES].into_iter().flat_map(cases).collect();
    let answers = batch(&lines(&all));
    assert_eq!(answers.len(), all.len());
    for (case, answer) in all.iter().zip(&answers) {
        assert_eq!((&answer["id"], &answer["next"]), (&case["id"], &case["next"]), "{case}");
    }
}

#[test]
fn every_bad_input_gets_an_error_line_that_names_its_field() {
    let all: Vec<Value> = cases(BAD_INPUTS).collect();
    let requests: Vec<Value> = all
        .iter()
        .map(|case| match case["kind"].as_str() {
            Some("zone") => json!({"id": case["n"], "expr": "* * * * *", "zone": case["input"], "from_utc_ms": 0}),
            _ => json!({"id": case["n"], "expr": case["input"], "zone": "UTC", "from_utc_ms": 0}),
        })
        .collect();
    let answers = batch(&lines(&requests));
    assert_eq!(answers.len(), all.len());
    for (case, answer) in all.iter().zip(&answers) {
        let accepted = answer["next"].as_array().is_some_and(|next| !next.is_empty());
        assert_eq!(accepted, case["verdict"] == "accept", "{case}\n{answer}");
        if let Some(error) = answer.get("error") {
            let (field, code) =
                if case["kind"] == "zone" { ("zone", "unknown_zone") } else { ("expr", "invalid_cron") };
            assert_eq!((&error["field"], &error["code"]), (&json!(field), &json!(code)), "{answer}");
        }
    }
}

#[test]
fn a_line_that_makes_no_sense_is_an_error_line_and_the_next_is_answered() {
    let good = r#"{"id":[1,{"x":2.50}],"expr":"* * * * *","zone":"UTC","from_utc_ms":-5,"count":2}"#;
    let long = format!("{{\"id\":1,\"expr\":\"{}\"}}", "x".repeat(3_000_000));
    for (line, field) in [
        ("nonsense", Value::Null),
        ("", Value::Null),
        ("[]", Value::Null),
        ("\"id\"", Value::Null),
        (long.as_str(), Value::Null),
        (&"[".repeat(60_000), Value::Null),
        (r#"{"id":7}"#, json!("expr")),
        (r#"{"expr":5,"zone":"UTC","from_utc_ms":0}"#, json!("expr")),
        (r#"{"expr":"* * * * *","from_utc_ms":0}"#, json!("zone")),
        (r#"{"expr":"* * * * *","zone":"UTC"}"#, json!("from_utc_ms")),
        (r#"{"expr":"* * * * *","zone":"UTC","from_utc_ms":1.5}"#, json!("from_utc_ms")),
        (r#"{"expr":"* * * * *","zone":"UTC","from_utc_ms":"1"}"#, json!("from_utc_ms")),
        (r#"{"expr":"* * * * *","zone":"UTC","from_utc_ms":9223372036854775808}"#, json!("from_utc_ms")),
        (r#"{"expr":"* * * * *","zone":"UTC","from_utc_ms":0,"count":0}"#, json!("count")),
        (r#"{"expr":"* * * * *","zone":"UTC","from_utc_ms":0,"count":10001}"#, json!("count")),
        (r#"{"expr":"* * * * *","zone":"UTC","from_utc_ms":0,"fold":"twice"}"#, json!("fold")),
        (r#"{"expr":"* * * * *","zone":"UTC","from_utc_ms":0,"gap":true}"#, json!("gap")),
        (r#"{"expr":"* * * * *","zone":"UTC","from_utc_ms":0,"day_match":"xor"}"#, json!("day_match")),
    ] {
        let answers = answers(countwheel(&["--batch", "-"], &format!("{line}\n{good}")));
        assert_eq!(answers.len(), 2, "{line:.80}");
        assert_eq!(
            (&answers[0]["error"]["code"], &answers[0]["error"]["field"]),
            (&json!("invalid"), &field),
            "{line:.80}"
        );
        assert_eq!((&answers[1]["id"], &answers[1]["next"]), (&json!([1, {"x": 2.5}]), &json!([0, 60_000])));
    }
}

#[test]
fn an_id_comes_back_byte_for_byte() {
    for id in ["null", "1e400", "123456789012345678901234567890", "2.50", "\"\\u00e9\\n\"", "{\"b\":1,\"a\":[]}"] {
        let line = format!("{{\"id\":{id},\"expr\":\"60 * * * *\",\"zone\":\"UTC\",\"from_utc_ms\":0}}\n");
        let output = countwheel(&["--batch", "-"], &line);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.starts_with(&format!("{{\"id\":{id},\"error\":")), "{text}");
    }
}

#[test]
fn people_see_local_times_offsets_warnings_and_the_release() {
    let args = ["30 2 * * *", "--zone", "America/New_York", "--from", "2026-03-07T00:00:00Z", "--count", "2"];
    let output = countwheel(&args, "");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    for part in [
        "2026-03-07 02:30:00 -05:00",
        "2026-03-09 02:30:00 -04:00",
        "2026-03-09T06:30:00.000Z",
        "gap_skipped",
        "IANA 20",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let output = countwheel(&[&args[..], &["--json", "--fold", "both"]].concat(), "");
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&object["fold"], &object["gap"]), (&json!("both"), &json!("skip")));
    assert_eq!(object["next"][1]["local"], "2026-03-09T02:30:00");
}

#[test]
fn a_wrong_call_exits_with_2_and_says_what_to_do() {
    for (args, part) in [
        (&["60 * * * *", "--zone", "UTC"][..], "minute: 60 is out of range 0-59"),
        (&["* * * * *", "--zone", "utc"], "did you mean UTC?"),
        (&["* * * * *", "--zone", "UTC", "--from", "yesterday"], "write it as"),
        (&["* * * * *", "--zone", "UTC", "--count", "0"], "count"),
        (&["* * * * *", "--zone", "UTC", "--fold", "twice"], "auto"),
        (&["* * * * *"], "--zone"),
        (&["* * * * *", "--zone", "UTC", "--tzdata", "/nonexistent"], "--tzdata"),
        (&["--batch", "/nonexistent.jsonl"], "/nonexistent.jsonl"),
    ] {
        let output = countwheel(args, "");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
        assert!(message.contains(part), "{args:?}: {message}");
    }
}
