//! From flags, or a file, to the JSON of a schedule spec. What its values may be is for the server to say.

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use clap::Args;
use serde_json::{Map, Value, json};

use super::error::ClientError;

/// The fields of a spec as flags. They go over what `--spec` says.
#[derive(Args)]
pub(super) struct SpecArgs {
    /// A spec as JSON (- for stdin); flags go over it
    #[arg(long, value_name = "FILE")]
    spec: Option<PathBuf>,
    /// Whose it is; may come from the token
    #[arg(long, value_name = "ID")]
    tenant: Option<String>,
    /// Where its occurrences go
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// A name for people
    #[arg(long)]
    name: Option<String>,
    /// Rule: a cron expression, in --zone
    #[arg(long, value_name = "EXPR", requires = "zone", group = "rule")]
    cron: Option<String>,
    /// Rule: an interval such as 5m
    #[arg(long, value_name = "D", group = "rule")]
    every: Option<String>,
    /// Rule: one instant (RFC 3339)
    #[arg(long, value_name = "T", group = "rule")]
    at: Option<String>,
    /// Rule: one local time such as 2026-11-01T09:30:00, in --zone
    #[arg(long, value_name = "LOCAL", requires = "zone", group = "rule")]
    at_local: Option<String>,
    /// The IANA zone of --cron or --at-local
    #[arg(long, value_name = "ZONE", requires = "rule")]
    zone: Option<String>,
    /// What a wall time that happens twice does (auto, once, both; first, second with --at-local)
    #[arg(long, requires = "zone")]
    fold: Option<String>,
    /// What a wall time that does not happen does (skip, shift)
    #[arg(long, requires = "zone")]
    gap: Option<String>,
    /// Whether either of two restricted day fields must match, or both (or, and)
    #[arg(long, requires = "cron", conflicts_with_all = ["every", "at", "at_local"])]
    day_match: Option<String>,
    /// Where the grid of --every lies, or what its first instant counts from (RFC 3339)
    #[arg(long, value_name = "T", requires = "every", conflicts_with_all = ["cron", "at", "at_local"])]
    anchor: Option<String>,
    /// What --every counts from: its grid, or its runs' ends or first claims (slot, completion, start)
    #[arg(long, requires = "every", conflicts_with_all = ["cron", "at", "at_local"])]
    basis: Option<String>,
    /// What the worker gets
    #[arg(long, value_name = "TEXT", conflicts_with = "payload_file")]
    payload: Option<String>,
    /// What the worker gets, from a file of any bytes
    #[arg(long, value_name = "FILE")]
    payload_file: Option<PathBuf>,
    /// What happens to instants that were missed (SKIP, FIRE_ONCE, CATCH_UP)
    #[arg(long, value_name = "POLICY")]
    misfire: Option<String>,
    /// How many of them CATCH_UP runs
    #[arg(long, value_name = "K")]
    catch_up_limit: Option<u32>,
    /// How late an instant may be and still be on time
    #[arg(long, value_name = "D")]
    max_lateness: Option<String>,
    /// What a run does that meets another one (ALLOW, SKIP_IF_RUNNING, QUEUE_ONE)
    #[arg(long, value_name = "POLICY")]
    overlap: Option<String>,
    /// Spread the occurrences over so much time
    #[arg(long, value_name = "D")]
    flexible_window: Option<String>,
    /// No instant before this one (RFC 3339)
    #[arg(long, value_name = "T")]
    start_at: Option<String>,
    /// No instant from this one on (RFC 3339)
    #[arg(long, value_name = "T")]
    end_at: Option<String>,
    /// Whether an occurrence may run twice (idempotent, non_idempotent)
    #[arg(long)]
    effect: Option<String>,
    /// Who decides about what is held
    #[arg(long, value_name = "PERSON")]
    review_owner: Option<String>,
}

impl SpecArgs {
    /// The spec, with the fields that were given and no others.
    pub(super) fn object(&self) -> Result<Map<String, Value>, ClientError> {
        let mut object = match &self.spec {
            Some(path) => read_object(path)?,
            None => Map::new(),
        };
        let texts = [
            ("tenant", &self.tenant),
            ("queue", &self.queue),
            ("name", &self.name),
            ("max_lateness", &self.max_lateness),
            ("flexible_window", &self.flexible_window),
            ("start_at", &self.start_at),
            ("end_at", &self.end_at),
            ("effect", &self.effect),
            ("review_owner", &self.review_owner),
            ("payload", &self.payload),
        ];
        put(&mut object, texts);
        if let Some(policy) = &self.overlap {
            object.insert("overlap".into(), word(policy).into());
        }
        object.extend(self.rule().map(|rule| ("rule".to_owned(), rule)));
        object.extend(self.misfire().map(|misfire| ("misfire".to_owned(), misfire)));
        if self.payload.is_some() {
            object.remove("payload_base64");
        }
        if let Some(path) = &self.payload_file {
            put_payload(&mut object, path)?;
        }
        Ok(object)
    }

    fn rule(&self) -> Option<Value> {
        let mut rule = Map::new();
        let texts = [
            ("cron", &self.cron),
            ("every", &self.every),
            ("at", &self.at),
            ("at_local", &self.at_local),
            ("zone", &self.zone),
            ("fold", &self.fold),
            ("gap", &self.gap),
            ("day_match", &self.day_match),
            ("anchor", &self.anchor),
            ("basis", &self.basis),
        ];
        put(&mut rule, texts);
        (!rule.is_empty()).then_some(Value::Object(rule))
    }

    fn misfire(&self) -> Option<Value> {
        match (&self.misfire, self.catch_up_limit) {
            (None, None) => None,
            (None, Some(limit)) => Some(json!({"policy": "CATCH_UP", "limit": limit})),
            (Some(policy), None) => Some(json!({"policy": word(policy)})),
            (Some(policy), Some(limit)) => Some(json!({"policy": word(policy), "limit": limit})),
        }
    }
}

fn put<const N: usize>(object: &mut Map<String, Value>, texts: [(&str, &Option<String>); N]) {
    let given = texts.into_iter().filter_map(|(field, text)| Some((field.to_owned(), text.clone()?.into())));
    object.extend(given);
}

/// `catch-up` is `CATCH_UP`.
fn word(text: &str) -> String {
    text.to_ascii_uppercase().replace('-', "_")
}

fn put_payload(object: &mut Map<String, Value>, path: &Path) -> Result<(), ClientError> {
    let bytes = fs::read(path);
    let bytes = bytes.map_err(|error| ClientError::Usage(format!("--payload-file {}: {error}", path.display())))?;
    let (field, other, text) = match String::from_utf8(bytes) {
        Ok(text) => ("payload", "payload_base64", text),
        Err(error) => ("payload_base64", "payload", BASE64.encode(error.as_bytes())),
    };
    object.remove(other);
    object.insert(field.to_owned(), text.into());
    Ok(())
}

fn read_object(path: &Path) -> Result<Map<String, Value>, ClientError> {
    let refuse = |why: String| ClientError::Usage(format!("--spec {}: {why}", path.display()));
    let text = match path.to_str() {
        Some("-") => {
            let mut text = String::new();
            io::stdin().lock().read_to_string(&mut text).map(|_| text)
        }
        _ => fs::read_to_string(path),
    };
    match serde_json::from_str(&text.map_err(|error| refuse(error.to_string()))?) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(refuse("is no JSON object: give a schedule's spec".to_owned())),
        Err(error) => Err(refuse(format!("is no JSON ({error}): correct it"))),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        spec: SpecArgs,
    }

    fn object(arguments: &[&str]) -> Value {
        let line = Line::try_parse_from([&["create"], arguments].concat()).unwrap();
        Value::Object(line.spec.object().unwrap())
    }

    #[test]
    fn only_what_was_given_is_sent() {
        assert_eq!(object(&[]), json!({}));
        assert_eq!(
            object(&["--tenant", "acme", "--queue", "mail", "--cron", "0 9 * * *", "--zone", "Europe/Berlin"]),
            json!({"tenant": "acme", "queue": "mail", "rule": {"cron": "0 9 * * *", "zone": "Europe/Berlin"}})
        );
        assert_eq!(object(&["--every", "5m", "--basis", "slot"]), json!({"rule": {"every": "5m", "basis": "slot"}}));
        let following = object(&["--every", "5m", "--basis", "completion"]);
        assert_eq!(following, json!({"rule": {"every": "5m", "basis": "completion"}}));
        assert_eq!(object(&["--misfire", "fire-once"]), json!({"misfire": {"policy": "FIRE_ONCE"}}));
        assert_eq!(object(&["--catch-up-limit", "3"]), json!({"misfire": {"policy": "CATCH_UP", "limit": 3}}));
        assert_eq!(object(&["--overlap", "queue_one"]), json!({"overlap": "QUEUE_ONE"}));
    }

    #[test]
    fn flags_that_do_not_go_together_are_refused_here() {
        for arguments in [
            &["--cron", "* * * * *"][..],
            &["--cron", "* * * * *", "--zone", "UTC", "--every", "5m"],
            &["--zone", "UTC"],
            &["--every", "5m", "--day-match", "and"],
            &["--at", "2030-01-01T00:00:00Z", "--basis", "slot"],
            &["--payload", "x", "--payload-file", "y"],
        ] {
            assert!(Line::try_parse_from([&["create"], arguments].concat()).is_err(), "{arguments:?}");
        }
    }

    #[test]
    fn flags_go_over_the_file_and_bytes_become_base64() {
        let home = tempfile::tempdir().unwrap();
        let spec = home.path().join("spec.json");
        fs::write(&spec, r#"{"tenant": "acme", "queue": "mail", "payload": "old"}"#).unwrap();
        let bytes = home.path().join("bytes");
        fs::write(&bytes, [0xff, 0x00]).unwrap();
        let (spec, bytes) = (spec.to_str().unwrap(), bytes.to_str().unwrap());
        assert_eq!(
            object(&["--spec", spec, "--queue", "billing", "--payload-file", bytes]),
            json!({"tenant": "acme", "queue": "billing", "payload_base64": "/wA="})
        );
    }
}
