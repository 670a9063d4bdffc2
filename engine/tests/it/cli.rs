//! The command line as a client: a real server for what it knows, a canned one for what is asked of newer ones.

use std::{
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    canned::Canned,
    server::{Server, countwheel},
};

/// What a command said, and its code.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Said {
    fn of(command: &mut Command, input: &str) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // It may have ended without reading.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    fn fine(self) -> Self {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{self:?}");
        self
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The one line that it failed with.
    fn failed(&self, code: i32) -> &str {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.err.starts_with("countwheel: ") && self.err.lines().count() == 1, "{self:?}");
        self.err.trim_end()
    }
}

/// A command for the server at `url`.
fn asks(url: &str, arguments: &[&str]) -> Said {
    Said::of(countwheel().args(arguments).env("COUNTWHEEL_URL", url).env("TZ", "UTC"), "")
}

fn fresh() -> (tempfile::TempDir, Server, String) {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(&home.path().join("data"), &["--shards", "2"]);
    let url = format!("http://{}", server.address());
    (home, server, url)
}

const BERLIN: [&str; 10] = [
    "schedule",
    "create",
    "--tenant",
    "acme",
    "--queue",
    "billing",
    "--cron",
    "0 9 * * MON-FRI",
    "--zone",
    "Europe/Berlin",
];

#[test]
fn a_schedule_is_made_shown_listed_and_ended_from_the_command_line() {
    let (_home, _server, url) = fresh();
    let made =
        asks(&url, &[&BERLIN[..], &["--name", "invoice run", "--payload", "{}", "--json"]].concat()).fine().json();
    let id = made["schedule"]["schedule_id"].as_str().unwrap();
    assert_eq!(made["schedule"]["name"], "invoice run");

    let shown = asks(&url, &["schedule", "get", id]).fine().out;
    for part in [id, "active, version 1", "0 9 * * MON-FRI in Europe/Berlin", "(09:00:00 +0", "invoice run"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let listed = asks(&url, &["schedule", "list", "--tenant", "acme"]).fine().out;
    assert!(listed.starts_with("SCHEDULE") && listed.contains(id) && listed.lines().count() == 2, "{listed}");
    assert_eq!(asks(&url, &["schedule", "list", "--tenant", "other"]).fine().out, "none\n");

    let ended = asks(&url, &["schedule", "cancel", id]).fine().out;
    assert!(ended.contains("canceled, version 1") && ended.contains("receipt"), "{ended}");
    let history = asks(&url, &["schedule", "occurrences", id, "--json"]).fine().json();
    assert!(history["items"].is_array(), "{history}");
}

#[test]
fn a_spec_comes_from_a_file_or_a_pipe() {
    let (home, _server, url) = fresh();
    let spec = json!({"tenant": "acme", "queue": "mail", "rule": {"every": "5m"}}).to_string();
    let file = home.path().join("spec.json");
    std::fs::write(&file, &spec).unwrap();
    let made = asks(&url, &["schedule", "create", "--json", "--spec", file.to_str().unwrap(), "--queue", "sms"]).fine();
    assert_eq!(made.json()["schedule"]["queue"], "sms");
    let mut command = countwheel();
    command.args(["schedule", "create", "--url", &url, "--spec", "-"]);
    assert!(Said::of(&mut command, &spec).fine().out.contains("every 5m"));
}

#[test]
fn a_listing_follows_its_pages_as_far_as_is_wanted() {
    let (_home, _server, url) = fresh();
    for _ in 0..7 {
        asks(&url, &BERLIN).fine();
    }
    let all = asks(&url, &["schedule", "list", "--all"]).fine().out;
    assert_eq!(all.lines().count(), 8, "a head and seven: {all}");
    let some = asks(&url, &["schedule", "list", "--limit", "3"]);
    assert_eq!((some.code, some.out.lines().count()), (Some(0), 4), "{some:?}");
    let cursor = some.err.trim_end().rsplit(' ').next().unwrap();
    let rest = asks(&url, &["schedule", "list", "--all", "--cursor", cursor]).fine().out;
    assert_eq!(rest.lines().count(), 5, "{rest}");
    assert!(rest.lines().skip(1).all(|line| !some.out.contains(line)), "each once");
    let pages = asks(&url, &["schedule", "list", "--json", "--all"]).fine().out;
    let items: usize =
        pages.lines().map(|page| serde_json::from_str::<Value>(page).unwrap()["items"].as_array().unwrap().len()).sum();
    assert_eq!(items, 7);
}

#[test]
fn a_refusal_is_one_line_with_its_field_and_the_code_1() {
    let (_home, _server, url) = fresh();
    let refused = asks(
        &url,
        &["schedule", "create", "--tenant", "acme", "--queue", "q", "--cron", "60 * * * *", "--zone", "UTC"],
    );
    assert!(refused.failed(1).starts_with("countwheel: rule.cron: minute: 60"), "{refused:?}");
    let refused = asks(&url, &["schedule", "create", "--tenant", "acme", "--queue", "q", "--every", "1ms", "--json"]);
    assert!(refused.failed(1).contains("rule.every: "), "{refused:?}");
    assert_eq!(refused.json()["error"]["field"], "rule.every", "programs get the answer too");
    let gone = asks(&url, &["schedule", "get", "01234567-89ab-4def-8123-456789abcdef"]);
    assert!(gone.failed(1).contains("no schedule"), "{gone:?}");
}

#[test]
fn who_does_not_answer_is_named() {
    let dead = asks("http://127.0.0.1:1", &["schedule", "list"]);
    assert!(dead.failed(1).contains("http://127.0.0.1:1: nothing listens there"), "{dead:?}");
    let odd = Canned::answering(&[(502, "<html>bad gateway</html>")]);
    assert!(asks(&odd.url, &["schedule", "list"]).failed(1).contains("answered 502"));
    let old =
        Canned::answering(&[(404, r#"{"error":{"code":"not_found","message":"there is nothing at this path"}}"#)]);
    assert!(asks(&old.url, &["dead", "list"]).failed(1).ends_with("this server has no GET /v1/dead: ask a newer one"));
}

#[test]
fn a_call_that_cannot_be_right_is_not_sent() {
    for arguments in [
        &["schedule", "create", "--cron", "* * * * *"][..],
        &["schedule", "update", "ID"],
        &["schedule", "update", "ID", "--name", "x", "--reset", "name"],
        &["schedule", "create", "--spec", "/nowhere/spec.json"],
        &["schedule", "import", "/nowhere/specs.jsonl"],
        &["schedule", "list", "--limit", "0"],
        &["schedule", "get", ""],
        &["schedule", "list", "--url", "ftp://host"],
        &["schedule", "list", "--token", "two words"],
        &["schedule", "list", "--token-file", "/nowhere/token"],
        &["tenant", "set", "acme"],
        &["tenant", "set", "acme", "--schedules", "many"],
        &["tenant", "get", "NOT/A/NAME"],
        &["token", "new", "--role", "root"],
    ] {
        asks("http://127.0.0.1:1", arguments).failed(2);
    }
}

#[test]
fn each_command_asks_what_the_api_says() {
    let answer = r#"{"schedule":{"schedule_id":"x"},"receipt":{"canceled":["a"]}}"#;
    let server = Canned::answering(&[
        (200, answer),
        (200, answer),
        (200, answer),
        (201, r#"{"occurrence_id":"o"}"#),
        (201, r#"{"occurrences":2}"#),
    ]);
    let url = &server.url;
    let update =
        ["schedule", "update", "a/b", "--queue", "sms", "--reset", "name", "--if-match", "3", "--pending", "keep"];
    assert!(asks(url, &[&update[..], &["--token", "cw_x"]].concat()).fine().out.contains("1 canceled"));
    asks(url, &["schedule", "pause", "a"]).fine();
    asks(url, &["schedule", "resume", "a"]).fine();
    assert!(asks(url, &["schedule", "trigger", "a", "--key", "k"]).fine().out.contains("occurrence_id"));
    let stretch = ["--from", "2026-01-01T00:00:00Z", "--to", "2026-01-02T00:00:00Z"];
    asks(url, &[&["schedule", "backfill", "a"][..], &stretch].concat()).fine();
    let asked = server.asked();
    let lines: Vec<&str> = asked.iter().map(|asked| asked.line.as_str()).collect();
    assert_eq!(
        lines,
        [
            "PATCH /v1/schedules/a%2Fb?pending=keep",
            "POST /v1/schedules/a/pause",
            "POST /v1/schedules/a/resume",
            "POST /v1/schedules/a/trigger",
            "POST /v1/schedules/a/backfill",
        ]
    );
    assert_eq!(asked[0].json(), json!({"queue": "sms", "name": null}));
    for header in ["if-match: 3", "authorization: bearer cw_x", "content-type: application/json"] {
        assert!(asked[0].headers.iter().any(|line| line == header), "{header} in {asked:?}");
    }
    assert!(asked[3].headers.iter().any(|line| line == "idempotency-key: k"));
    assert!(asked[1].headers.iter().all(|line| !line.starts_with("authorization")));
    assert_eq!(asked[4].json(), json!({"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}));
}

#[test]
fn setting_one_quota_keeps_the_others() {
    let tenant = r#"{"tenant":"acme","weight":2,"quotas":{"schedules":null,"concurrent_runs":5}}"#;
    let queue = r#"{"tracked":true,"catch_up_per_second":9}"#;
    let server = Canned::answering(&[(200, tenant), (200, tenant), (200, queue), (200, queue)]);
    let shown =
        asks(&server.url, &["tenant", "set", "acme", "--schedules", "10", "--concurrent-runs", "none"]).fine().out;
    assert!(shown.contains("quotas.concurrent_runs"), "{shown}");
    asks(&server.url, &["queue", "set", "mail", "--tracked", "false"]).fine();
    let asked = server.asked();
    assert_eq!(asked[1].line, "PUT /v1/tenants/acme");
    assert_eq!(asked[1].json(), json!({"weight": 2, "quotas": {"schedules": 10, "concurrent_runs": null}}));
    assert_eq!(asked[3].line, "PUT /v1/queues/mail");
    assert_eq!(asked[3].json(), json!({"tracked": false, "catch_up_per_second": 9}));
}

/// A file of `lines` specs; the second is empty, the third is longer than a server takes.
fn specs(home: &tempfile::TempDir, lines: usize) -> PathBuf {
    let mut text = String::from("{\"key\":\"first\"}\n\n");
    text.push_str(&"x".repeat(300_000));
    for index in 3..lines {
        text.push_str(&format!("\n{{\"key\":\"k{index}\"}}"));
    }
    let file = home.path().join("specs.jsonl");
    std::fs::write(&file, text).unwrap();
    file
}

#[test]
fn an_import_says_what_became_of_each_line() {
    let home = tempfile::tempdir().unwrap();
    let file = specs(&home, 6);
    let made = r#"{"line":1,"schedule_id":"x","version":1,"status":"created"}"#;
    let first = format!("{made}\n");
    let refused = r#"{"line":2,"error":{"code":"invalid","field":"queue","message":"is required"}}"#;
    let rest = format!("{}\n{refused}\n{made}\n", made.replace("created", "unchanged"));
    let server = Canned::answering(&[(200, &first), (200, &rest)]);
    let done = asks(&server.url, &["schedule", "import", file.to_str().unwrap()]);
    assert_eq!((done.code, done.out.as_str()), (Some(1), "2 made, 1 unchanged, 2 refused\n"), "{done:?}");
    let told: Vec<&str> = done.err.lines().collect();
    assert_eq!(told.len(), 3, "two lines and the sum, and no bar in a pipe: {told:?}");
    assert!(told[0].starts_with("line 3: longer than 262144 bytes"), "{told:?}");
    assert_eq!(told[1], "line 5: queue: is required");
    assert!(told[2].starts_with("countwheel: 2 of 5 lines were refused: "), "{told:?}");
    let asked = server.asked();
    assert_eq!(asked[0].body, "{\"key\":\"first\"}\n");
    assert_eq!(asked[1].body.lines().count(), 3);
    assert!(asked.iter().all(|asked| asked.line == "POST /v1/schedules/import"));
}

#[test]
fn an_import_that_breaks_off_says_after_which_line() {
    let line = "{\"key\":\"k\"}\n";
    let made = "{\"line\":1,\"status\":\"created\"}\n";
    let answers = made.repeat(500);
    let server = Canned::answering(&[(200, &answers), (200, made)]);
    let mut command = countwheel();
    command.args(["schedule", "import", "-", "--json", "--url", &server.url]);
    let done = Said::of(&mut command, &line.repeat(502));
    assert_eq!(done.code, Some(1), "{done:?}");
    let told: Vec<&str> = done.err.lines().collect();
    assert_eq!(told[0], "501 made, 0 unchanged, 0 refused");
    assert!(told[1].starts_with("countwheel: stopped after line 501: "), "{told:?}");
    let last: Value = serde_json::from_str(done.out.lines().next_back().unwrap()).unwrap();
    assert_eq!(last["line"], 501, "a line of the file, not of a batch");
}

#[test]
fn a_token_is_fresh_and_its_line_holds_its_hash() {
    let new = || asks("", &["token", "new", "--role", "tenant:acme", "--label", "ci"]).fine().out;
    let (one, other) = (new(), new());
    assert_ne!(one.lines().next(), other.lines().next());
    let lines: Vec<&str> = one.lines().collect();
    let hash: String = Sha256::digest(lines[0]).iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(lines[0].starts_with("cw_") && lines[0].len() == 46, "{one}");
    assert_eq!(lines[1..], [format!("tenant:acme {hash} ci")]);
}

#[test]
fn what_is_dead_is_listed_shown_and_replayed() {
    let (_home, server, url) = fresh();
    let spec = json!({"tenant": "acme", "queue": "q", "rule": {"every": "300d"}}).to_string();
    let made = server.call("POST", "/v1/schedules", &spec).json();
    let schedule = made["schedule"]["schedule_id"].as_str().unwrap().to_owned();
    let ids: Vec<String> = (0..2)
        .map(|_| {
            server.call("POST", &format!("/v1/schedules/{schedule}/trigger"), "");
            let claim = json!({"worker": "w7", "max": 1, "lease_ms": 60_000, "wait_ms": 20_000}).to_string();
            let run = server.call("POST", "/v1/queues/q/claim", &claim).json()["runs"][0].clone();
            let failed = json!({"occurrence_id": run["occurrence_id"], "lease_token": run["lease_token"],
                "class": "permanent", "message": "the printer burns"});
            assert_eq!(server.call("POST", "/v1/runs/fail", &failed.to_string()).status, 200);
            run["occurrence_id"].as_str().unwrap().to_owned()
        })
        .collect();
    for bare in [vec!["dead"], vec!["dead", "list"], vec!["dead", "--tenant", "acme"], vec!["dead", "list", "--all"]] {
        let said = asks(&url, &bare).fine();
        assert!(said.out.starts_with("OCCURRENCE") && said.out.lines().count() == 3, "{said:?}");
        assert!(ids.iter().all(|id| said.out.contains(id)) && said.out.contains("permanent"), "{said:?}");
        assert!(said.out.contains("the printer burns"), "{said:?}");
    }
    assert_eq!(asks(&url, &["dead", "--tenant", "nobody"]).fine().out, "none\n");
    assert_eq!(asks(&url, &["held"]).fine().out, "none\n");
    let shown = asks(&url, &["occurrence", "get", &ids[0]]).fine().out;
    for part in ["DEAD (permanent)", "ATTEMPT", "w7", "failed (permanent)", "the printer burns"] {
        assert!(shown.contains(part), "{part} is missing in\n{shown}");
    }
    assert_eq!(asks(&url, &["occurrence", "get", &ids[0], "--json"]).fine().json()["state"], "DEAD");
    let evidence = asks(&url, &["occurrence", "evidence", &ids[0]]).fine().out;
    assert!(evidence.contains("HOLD (") && evidence.contains("missed_run_policy.policy"), "{evidence}");
    let evidence = asks(&url, &["occurrence", "evidence", &ids[0], "--json"]).fine().json();
    assert_eq!(evidence["evidence"].as_object().unwrap().len(), 18);
    let replayed = asks(&url, &["dead", "replay", &ids[0], &ids[1]]).fine().out;
    assert!(replayed.lines().count() == 2 && replayed.lines().all(|line| line.contains("ENQUEUED")), "{replayed}");
    assert!(asks(&url, &["dead", "replay", &ids[0]]).failed(1).contains("ENQUEUED, not DEAD"));
    let misplaced = asks(&url, &["dead", "--tenant", "acme", "replay", &ids[0]]);
    assert!(misplaced.failed(2).contains("behind list"), "{misplaced:?}");
    assert!(asks(&url, &["dead", "replay"]).failed(2).contains("ID"));
    assert!(asks(&url, &["occurrence", "get", "nothing"]).failed(1).contains("no occurrence"));
}

#[test]
fn a_decision_about_what_is_held_says_who_and_why() {
    let stands = json!({"occurrence_id": "o/1", "state": "ENQUEUED", "scheduled_for": "2026-11-01T05:30:00.000Z"});
    let canned = Canned::answering(&[(200, &stands.to_string()), (200, &stands.to_string())]);
    let url = canned.url.clone();
    let resolve = ["held", "resolve", "o/1", "--outcome", "retry", "--reviewer", "ops"];
    assert!(asks(&url, &resolve).fine().out.contains("ENQUEUED"));
    let noted = asks(&url, &[resolve.as_slice(), &["--note", "looked at the bank", "--json"]].concat()).fine();
    assert_eq!(noted.json(), stands);
    let asked = canned.asked();
    assert_eq!(asked[0].line, "POST /v1/occurrences/o%2F1/resolve");
    assert_eq!(asked[0].json(), json!({"outcome": "retry", "reviewer": "ops", "note": ""}));
    assert_eq!(asked[1].json()["note"], "looked at the bank");
    for bad in [vec!["held", "resolve", "x"], vec!["held", "resolve", "x", "--outcome", "maybe", "--reviewer", "me"]] {
        asks(&url, &bad).failed(2);
    }
}
