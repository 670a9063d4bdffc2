//! The JSON of every object, whole.

use serde_json::{Value, json};

use super::*;
use crate::{
    api::schemas::check::assert_fits,
    kernel::{
        calendar::{Basis, CronSpec, DayMatch, FoldChoice, Gap, LocalFold},
        id::Kind,
        occurrence::Lane,
        policy::{Effect, Overlap},
        schedule::{AtLocal, ScheduleState},
    },
};

fn spec(rule: Rule) -> Spec {
    Spec { queue: "billing".into(), payload: b"hi".to_vec(), ..Spec::new("acme", rule) }
}

fn cron() -> Rule {
    Rule::Cron(CronSpec {
        expr: "0 9 * * MON-FRI".into(),
        zone: "Europe/Berlin".into(),
        fold: FoldChoice::Once,
        gap: Gap::Skip,
        day_match: DayMatch::Or,
    })
}

fn schedule(spec: Spec) -> Schedule {
    Schedule {
        id: ScheduleId([7; 16]),
        version: 1,
        state: ScheduleState::Active,
        spec,
        created_at: UnixMs(1_793_511_000_000),
        updated_at: UnixMs(1_793_511_000_001),
        last_run_at: None,
        next_run_at: Some(UnixMs(1_793_520_000_000)),
        next: vec![UnixMs(1_793_520_000_000)],
        overdue_ms: 0,
        error: None,
    }
}

fn shown(body: impl Serialize) -> Value {
    serde_json::to_value(body).unwrap()
}

#[test]
fn a_schedule_shows_its_spec_with_every_default_and_what_the_engine_knows() {
    let described = Described { schedule: schedule(spec(cron())), warnings: vec![] };
    let body = shown(DescribedBody::from(&described));
    assert_fits(&body, "Described");
    assert_eq!(
        body,
        json!({
            "schedule": {
                "schedule_id": "07070707-0707-0707-0707-070707070707", "version": 1, "state": "active",
                "tenant": "acme", "queue": "billing", "name": null,
                "rule": {"cron": "0 9 * * MON-FRI", "zone": "Europe/Berlin", "fold": "once", "gap": "skip",
                    "day_match": "or"},
                "start_at": null, "end_at": null, "payload": "hi", "payload_base64": null,
                "misfire": {"policy": "FIRE_ONCE"}, "max_lateness": "60s", "overlap": "ALLOW",
                "flexible_window": null,
                "retry": {"max_attempts": 5, "base": "1s", "cap": "10m", "deadline": null, "budget": null},
                "effect": "idempotent", "review_owner": null,
                "created_at": "2026-11-01T05:30:00.000Z", "updated_at": "2026-11-01T05:30:00.001Z",
                "last_run_at": null, "next_run_at": "2026-11-01T08:00:00.000Z", "overdue_ms": 0, "error": null
            },
            "next": ["2026-11-01T08:00:00.000Z"],
            "warnings": []
        })
    );
}

#[test]
fn each_kind_of_rule_is_shown_as_it_may_be_sent() {
    let rule = |spec: Spec| {
        let body = shown(ScheduleBody::from(&schedule(spec)));
        assert_fits(&body, "Schedule");
        body["rule"].clone()
    };
    let anchor = UnixMs(1_793_511_000_000);
    for basis in [Basis::Slot, Basis::Completion, Basis::Start] {
        assert_eq!(
            rule(spec(Rule::Every { every_ms: 300_000, anchor: Some(anchor), basis })),
            json!({"every": "5m", "anchor": "2026-11-01T05:30:00.000Z", "basis": basis.as_str()})
        );
    }
    assert_eq!(rule(spec(Rule::At(anchor))), json!({"at": "2026-11-01T05:30:00.000Z"}));
    let local = AtLocal {
        local: "2026-11-01T01:30:00".into(),
        zone: "America/New_York".into(),
        fold: Some(LocalFold::First),
        gap: None,
    };
    assert_eq!(
        rule(Spec { at_local: Some(local), ..spec(Rule::At(anchor)) }),
        json!({"at_local": "2026-11-01T01:30:00", "zone": "America/New_York", "fold": "first", "gap": null})
    );
}

#[test]
fn bytes_that_are_no_utf_8_come_back_as_base64() {
    let body = shown(ScheduleBody::from(&schedule(Spec { payload: vec![0xff, 0], ..spec(cron()) })));
    assert_eq!((&body["payload"], &body["payload_base64"]), (&Value::Null, &json!("/wA=")));
}

#[test]
fn durations_are_shown_in_their_largest_unit_and_the_default_as_documented() {
    let body = |spec: Spec| shown(ScheduleBody::from(&schedule(spec)));
    let long = body(Spec { max_lateness_ms: 3_600_000, flexible_window_ms: 60_000, ..spec(cron()) });
    assert_eq!((&long["max_lateness"], &long["flexible_window"]), (&json!("1h"), &json!("1m")));
    assert_eq!(body(Spec { max_lateness_ms: 0, ..spec(cron()) })["max_lateness"], json!("0ms"));
}

fn range(disposition: RangeDisposition, last: i64) -> InstantRange {
    InstantRange { kind: Kind::Regular, disposition, first: UnixMs(0), last: UnixMs(last), count: 2 }
}

#[test]
fn a_history_has_occurrences_and_ranges_without_an_id() {
    let occurrence = Occurrence {
        id: OccurrenceId([1; 16]),
        schedule_id: ScheduleId([7; 16]),
        version: 2,
        tenant: "acme".into(),
        queue: "billing".into(),
        kind: Kind::Regular,
        lane: Lane::CatchUp,
        scheduled_for: UnixMs(1_000),
        available_at: UnixMs(1_500),
        enqueued_at: Some(UnixMs(1_501)),
        state: State::Enqueued,
        reason: None,
        holds: Vec::new(),
        attempt_count: 0,
        attempts: Vec::new(),
    };
    let missed = range(RangeDisposition::Missed, 999);
    let page = Page {
        items: vec![HistoryItem::Range(missed), HistoryItem::Occurrence(occurrence)],
        next_cursor: Some("opaque".into()),
    };
    let body = shown(PageBody::<HistoryBody<'_>>::from(&page));
    assert_fits(&body, "HistoryPage");
    assert_eq!(
        body,
        json!({"items": [
            {"occurrence_id": null, "kind": "regular", "state": "MISSED", "reason": null, "scheduled_for": "1970-01-01T00:00:00.000Z",
             "scheduled_until": "1970-01-01T00:00:00.999Z", "count": 2},
            {"occurrence_id": "01010101-0101-0101-0101-010101010101",
             "schedule_id": "07070707-0707-0707-0707-070707070707", "version": 2, "tenant": "acme",
             "queue": "billing", "kind": "regular", "lane": "catchup", "scheduled_for": "1970-01-01T00:00:01.000Z",
             "available_at": "1970-01-01T00:00:01.500Z", "enqueued_at": "1970-01-01T00:00:01.501Z",
             "state": "ENQUEUED", "reason": null, "holds": [], "attempt_count": 0, "attempts": []}
        ], "next_cursor": "opaque"})
    );
}

#[test]
fn a_receipt_lists_what_was_canceled_kept_and_disposed_of() {
    let gone = range(RangeDisposition::Canceled(Reason::Paused), 1_000);
    let receipt = Receipt {
        version: 2,
        canceled: vec![OccurrenceId([1; 16])],
        ranges: vec![gone],
        truncated: 3,
        ..Receipt::default()
    };
    let schedule = schedule(spec(cron()));
    let body = shown(ReceiptedBody::new(&schedule, &receipt));
    assert_fits(&body, "Receipted");
    assert_eq!(
        body["receipt"],
        json!({"version": 2, "canceled": ["01010101-0101-0101-0101-010101010101"], "kept": [],
            "cancel_requested": [], "truncated": 3, "ranges": [{"reason": "paused",
            "from": "1970-01-01T00:00:00.000Z", "to": "1970-01-01T00:00:01.000Z", "count": 2}]})
    );
}

#[test]
fn policies_are_shown_as_they_may_be_sent() {
    let shown = |spec: Spec| shown(ScheduleBody::from(&schedule(spec)));
    let body = shown(Spec {
        misfire: Misfire::CatchUp { limit: 7 },
        overlap: Overlap::QueueOne,
        effect: Effect::NonIdempotent,
        review_owner: Some("ops".into()),
        retry: Retry { deadline_ms: Some(90_000), budget: Some(3), ..Retry::default() },
        ..spec(cron())
    });
    assert_fits(&body, "Schedule");
    assert_eq!(body["misfire"], json!({"policy": "CATCH_UP", "limit": 7}));
    assert_eq!(body["retry"], json!({"max_attempts": 5, "base": "1s", "cap": "10m", "deadline": "90s", "budget": 3}));
    assert_eq!((&body["overlap"], &body["effect"]), (&json!("QUEUE_ONE"), &json!("non_idempotent")));
}

#[test]
fn what_is_small_fits_its_schema_too() {
    let id = OccurrenceId([1; 16]);
    assert_fits(&shown(TriggeredBody::from(&Triggered { occurrence_id: id, is_new: true })), "Triggered");
    assert_fits(&shown(BackfilledBody::from(&Backfilled { occurrences: 3, is_new: true })), "Backfilled");
    let health = Health {
        live: true,
        reasons: vec!["all is well".into()],
        version: "0",
        tz_release: "2026c".into(),
        shards: 2,
        rehearsal: false,
    };
    assert_fits(&shown(HealthBody::from(&health)), "Health");
    let readiness = Readiness { ready: false, reasons: vec![] };
    assert_fits(&shown(ReadinessBody::from(&readiness)), "Readiness");
}
