//! The JSON of everything about runs, whole.

use serde_json::{Value, json};

use super::*;
use crate::{
    api::{
        render::{OccurrenceBody, PageBody},
        schemas::check::assert_fits,
    },
    engine::Page,
    error::RunError,
    kernel::{
        attempt::{Death, Failure},
        evidence::decide,
        gate::Lsn,
        id::Kind,
        occurrence::{Lane, Occurrence, Reason},
        policy::Misfire,
        time::UnixMs,
    },
};

const TOKEN: LeaseToken = LeaseToken { shard: 3, lsn: Lsn(0x1234_5678_9abc), index: 999 };

fn shown(body: impl Serialize) -> Value {
    serde_json::to_value(body).unwrap()
}

fn run(payload: &[u8]) -> ClaimedRun {
    ClaimedRun {
        occurrence_id: OccurrenceId([1; 16]),
        schedule_id: ScheduleId([7; 16]),
        version: 2,
        tenant: "acme".into(),
        kind: Kind::Regular,
        scheduled_for: UnixMs(1_000),
        available_at: UnixMs(1_500),
        attempt: 3,
        payload: payload.to_vec(),
        lease_token: TOKEN,
        lease_expires_at: UnixMs(31_500),
        deadline: Some(UnixMs(61_500)),
    }
}

#[test]
fn a_claim_shows_its_runs_with_every_key() {
    let body = shown(ClaimedBody::from(&vec![run(b"hi"), run(&[0xff, 0])]));
    assert_fits(&body, "Claimed");
    assert_eq!(
        body["runs"][0],
        json!({"occurrence_id": "01010101-0101-0101-0101-010101010101",
            "schedule_id": "07070707-0707-0707-0707-070707070707", "version": 2, "tenant": "acme", "kind": "regular",
            "scheduled_for": "1970-01-01T00:00:01.000Z", "available_at": "1970-01-01T00:00:01.500Z", "attempt": 3,
            "payload": "hi", "payload_base64": null, "lease_token": "00030000123456789abc03e7",
            "lease_expires_at": "1970-01-01T00:00:31.500Z", "deadline": "1970-01-01T00:01:01.500Z"})
    );
    let bytes = &body["runs"][1];
    assert_eq!((&bytes["payload"], &bytes["payload_base64"]), (&Value::Null, &json!("/wA=")));
    assert_fits(&shown(ClaimedBody::from(&vec![])), "Claimed");
    assert_fits(&shown(RunBody::from(&ClaimedRun { deadline: None, ..run(b"") })), "Run");
}

#[test]
fn what_is_answered_about_runs_has_one_form_for_one_and_one_for_several() {
    let beat = || BeatBody::from(Beat { lease_expires_at: UnixMs(0), cancel_requested: true });
    assert_fits(&shown(beat()), "Beaten");
    let results = vec![Answered::Told(beat()), Answered::Refused(RunError::StaleLease.into())];
    let body = shown(ResultsBody { results });
    assert_fits(&body, "Beaten");
    assert_eq!(body["results"][0], json!({"lease_expires_at": "1970-01-01T00:00:00.000Z", "cancel_requested": true}));
    assert_eq!(body["results"][1]["error"]["code"], "stale_lease");

    let completed = || CompletedBody::from(State::Succeeded);
    assert_eq!(shown(completed()), json!({"state": "SUCCEEDED"}));
    assert_fits(&shown(completed()), "Completed");
    assert_fits(&shown(ResultsBody { results: vec![Answered::Told(completed())] }), "Completed");

    let waits = || FailedBody::from(Outcome { state: State::RetryWait, retry_at: Some(UnixMs(0)) });
    assert_eq!(shown(waits()), json!({"state": "RETRY_WAIT", "retry_at": "1970-01-01T00:00:00.000Z"}));
    assert_fits(&shown(FailedBody::from(Outcome { state: State::Dead, retry_at: None })), "Failed");
    let refused = Answered::Refused(RunError::NotAskedToStop.into());
    assert_fits(&shown(ResultsBody { results: vec![Answered::Told(waits()), refused] }), "Failed");
}

fn attempt(number: u32, result: Option<AttemptResult>) -> Attempt {
    Attempt {
        number,
        worker: "w".into(),
        started_at: UnixMs(0),
        finished_at: result.map(|_| UnixMs(1)),
        lease_expires_at: UnixMs(2),
        result,
        message: None,
        result_ref: None,
    }
}

#[test]
fn an_occurrence_shows_its_attempts_and_why_it_stands_where_it_does() {
    let failed = |failure| Some(AttemptResult::Failed(failure));
    let mut occurrence = Occurrence {
        id: OccurrenceId([1; 16]),
        schedule_id: ScheduleId([7; 16]),
        version: 2,
        tenant: "acme".into(),
        queue: "billing".into(),
        kind: Kind::Manual,
        lane: Lane::Strict,
        scheduled_for: UnixMs(0),
        available_at: UnixMs(0),
        enqueued_at: None,
        state: State::Held,
        reason: Some(Reason::Held(HoldReason::OutcomeUnknown)),
        holds: vec![HoldReason::OutcomeUnknown, HoldReason::ReviewOwnerMissing],
        attempt_count: 5,
        attempts: vec![
            Attempt { message: Some("no".into()), ..attempt(1, failed(Failure::Reported(FailureClass::Transient))) },
            attempt(2, failed(Failure::LeaseExpired)),
            attempt(3, failed(Failure::Restarted)),
            Attempt { result_ref: Some("there".into()), ..attempt(4, Some(AttemptResult::Succeeded)) },
            attempt(5, None),
        ],
    };
    let body = shown(OccurrenceBody::from(&occurrence));
    assert_fits(&body, "Occurrence");
    assert_eq!((&body["reason"], &body["holds"][1]), (&json!("outcome_unknown"), &json!("review_owner_missing")));
    let results: Vec<&Value> = body["attempts"].as_array().unwrap().iter().map(|attempt| &attempt["result"]).collect();
    assert_eq!(json!(results), json!(["failed", "lease_expired", "restarted", "succeeded", null]));
    assert_eq!(
        body["attempts"][0],
        json!({"attempt": 1, "worker": "w", "started_at": "1970-01-01T00:00:00.000Z",
            "finished_at": "1970-01-01T00:00:00.001Z", "lease_expires_at": "1970-01-01T00:00:00.002Z",
            "result": "failed", "class": "transient", "message": "no", "result_ref": null})
    );
    (occurrence.state, occurrence.reason) = (State::Dead, Some(Reason::Dead(Death::MaxAttempts)));
    let page = Page { items: vec![occurrence], next_cursor: None };
    assert_fits(&shown(PageBody::<OccurrenceBody<'_>>::from(&page)), "OccurrencePage");
}

#[test]
fn evidence_has_eighteen_dimensions_and_null_where_nothing_is_known() {
    let nothing = Evidence::default();
    let body = shown(EvidencedBody::new(&nothing, &decide(&nothing)));
    assert_fits(&body, "Evidenced");
    let dimensions = body["evidence"].as_object().unwrap();
    assert_eq!(dimensions.len(), 18);
    assert!(dimensions.values().all(Value::is_null));
    assert_eq!((&body["decision"], body["reasons"].as_array().unwrap().len()), (&json!("HOLD"), 8));

    let known = Evidence {
        job_id: Some(ScheduleId([7; 16])),
        schedule_type: Some(ScheduleType::Cron),
        schedule_expression: Some("0 9 * * *".into()),
        timezone: Some("UTC".into()),
        last_run_at: Some(UnixMs(0)),
        next_run_at: Some(UnixMs(1)),
        missed_run_policy: Some(Misfire::CatchUp { limit: 3 }),
        jitter_window: Some(Jitter { window_ms: 5, offset_ms: 4 }),
        lease_id: Some(TOKEN),
        lease_owner: Some("w".into()),
        lease_expires_at: Some(UnixMs(2)),
        idempotency_key: Some(OccurrenceId([1; 16])),
        attempt: Some(2),
        retry_budget: Some(RetryBudget { limit: Some(9), used: 1 }),
        backoff_ms: Some(700),
        run_state: Some(State::Enqueued),
        result_ref: Some("there".into()),
        review_owner: Some("ops".into()),
        ..Evidence::default()
    };
    let body = shown(EvidencedBody::new(&known, &decide(&known)));
    assert_fits(&body, "Evidenced");
    assert_eq!((&body["decision"], &body["reasons"]), (&json!("RUN"), &json!([])));
    let evidence = &body["evidence"];
    assert_eq!(evidence["missed_run_policy"], json!({"policy": "CATCH_UP", "limit": 3}));
    assert_eq!(evidence["jitter_window"], json!({"window_ms": 5, "offset_ms": 4}));
    assert_eq!(evidence["retry_budget"], json!({"limit": 9, "used": 1}));
    assert_eq!(evidence["backoff_state"], json!({"delay_ms": 700}));
}
