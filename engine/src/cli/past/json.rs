//! How the past looks to programs.

use serde::{Serialize, ser::Serializer};
use serde_json::{Value, json};

use super::{
    instants::local,
    logs::Covered,
    words::{self, disposition, step_name},
};
use crate::{
    api::render::SpecBody,
    kernel::{
        attempt::AttemptResult,
        calendar::ZoneSet,
        evidence::HoldReason,
        occurrence::Reason,
        record::Then,
        schedule::Spec,
        shard::chronicle::{Call, Judgement, Life, Origin, RangeOf, Step, Story, Told, Version},
        time::UnixMs,
    },
};

/// How far a log reaches.
pub(super) fn log(covered: &Covered) -> Value {
    json!({
        "shard": covered.shard,
        "path": covered.dir.display().to_string(),
        "first_record": covered.records.0,
        "last_record": covered.records.1,
        "from": covered.span.map(|(from, _)| from.to_string()),
        "to": covered.span.map(|(_, to)| to.to_string()),
        "ending": covered.ending,
    })
}

/// A version, with the spec as the API shows it; of the payload only the length.
pub(super) fn version(version: &Version) -> Value {
    json!({
        "version": version.version,
        "valid_from": version.from.to_string(),
        "valid_until": version.until.map(|until| until.to_string()),
        "is_paused": version.is_paused,
        "payload_bytes": version.payload_bytes,
        "spec": spec(&version.spec),
    })
}

fn spec(spec: &Spec) -> Value {
    let mut value = serde_json::to_value(SpecBody::from(spec)).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        fields.remove("payload");
        fields.remove("payload_base64");
    }
    value
}

/// An instant on the clocks of its rule's zone.
pub(super) fn local_time(spec: &Spec, at: UnixMs, zones: &ZoneSet) -> Value {
    local(spec, at, zones)
        .map_or(Value::Null, |(fire, zone)| json!({"time": fire.local, "offset": fire.offset, "zone": zone}))
}

/// An occurrence as a line of a history.
pub(super) fn life(life: &Life) -> Value {
    json!({
        "occurrence_id": life.id.to_string(),
        "version": life.version,
        "kind": life.kind.as_str(),
        "tenant": &*life.tenant,
        "queue": &*life.queue,
        "is_tracked": life.is_tracked,
        "lane": life.lane.as_str(),
        "scheduled_for": life.scheduled_for.to_string(),
        "available_at": life.available_at.to_string(),
        "enqueued_at": life.enqueued_at.map(|at| at.to_string()),
        "ended_at": life.ended_at.map(|at| at.to_string()),
        "state": life.state.as_str(),
        "reason": life.reason.map(Reason::as_str),
        "attempt_count": life.attempt_count,
    })
}

/// Instants that were disposed of together.
pub(super) fn range(told: &Told<RangeOf>, covered: &Covered) -> Value {
    let RangeOf { version, range } = told.what;
    let (state, reason) = disposition(range.disposition);
    let mut value = json!({
        "occurrence_id": null,
        "version": version,
        "kind": range.kind.as_str(),
        "state": state,
        "reason": reason,
        "scheduled_for": range.first.to_string(),
        "scheduled_until": range.last.to_string(),
        "count": range.count,
    });
    place(&mut value, told, covered);
    value
}

fn place<T>(value: &mut Value, told: &Told<T>, covered: &Covered) {
    value["at"] = told.at.to_string().into();
    value["record"] = told.lsn.0.into();
    value["segment"] = covered.segment(told.lsn).into();
}

/// A step of an occurrence's life.
pub(super) fn step(told: &Told<Step>, covered: &Covered) -> Value {
    let mut value = step_fields(&told.what);
    value["step"] = step_name(&told.what).into();
    value["words"] = words::step(&told.what).into();
    place(&mut value, told, covered);
    value
}

fn step_fields(step: &Step) -> Value {
    let reasons = |reasons: &[HoldReason]| reasons.iter().map(|reason| reason.as_str()).collect::<Vec<_>>();
    match step {
        Step::Materialized { lane, by } => {
            let (by, judged) = match by {
                Origin::Rule => ("rule", None),
                Origin::Misfire(judged) => ("misfire", Some(judgement(judged))),
                Origin::Trigger => ("trigger", None),
                Origin::Backfill => ("backfill", None),
            };
            json!({"by": by, "lane": lane.as_str(), "judgement": judged})
        }
        Step::Admitted(judged) | Step::Missed(judged) => json!({"judgement": judgement(judged)}),
        Step::Enqueued { at, entry, is_again } => {
            json!({"enqueued_at": at.to_string(), "entry": entry.to_string(), "is_again": is_again})
        }
        Step::Waited { for_permit } => {
            let reason = if *for_permit { Reason::TenantConcurrency } else { Reason::Waiting };
            json!({"reason": reason.as_str()})
        }
        Step::Claimed { attempt, worker, lease_ms, is_in_process, token } => json!({
            "attempt": attempt, "worker": &**worker, "lease_ms": lease_ms, "is_in_process": is_in_process,
            "lease_token": token.to_string(),
        }),
        Step::Succeeded { attempt, result_ref } => json!({"attempt": attempt, "result_ref": result_ref}),
        Step::Failed { attempt, failure, message, then } => {
            let result = AttemptResult::Failed(*failure);
            let (follows, delay_ms, reason) = match then {
                Then::Retry { delay_ms } => ("RETRY_WAIT", Some(*delay_ms), None),
                Then::Dead(death) => ("DEAD", None, Some(death.as_str())),
                Then::Held(hold) => ("HELD", None, Some(hold.as_str())),
                Then::Canceled => ("CANCELED", None, None),
            };
            json!({
                "attempt": attempt, "result": result.as_str(), "class": result.class().map(|class| class.as_str()),
                "message": message, "then": follows, "delay_ms": delay_ms, "reason": reason,
            })
        }
        Step::Held { reasons: held } => json!({"reasons": reasons(held)}),
        Step::Resolved { resolution, reviewer, note } => {
            json!({"outcome": resolution.as_str(), "reviewer": reviewer, "note": note})
        }
        Step::LateResult { result_ref } => json!({"result_ref": result_ref}),
        Step::Canceled { reason } | Step::CalledOff { reason } => json!({"reason": reason.as_str()}),
        Step::Restarted { generation } => json!({"generation": generation}),
        Step::Died | Step::Skipped | Step::Replayed | Step::Lost | Step::Settled => json!({}),
    }
}

fn judgement(judged: &Judgement) -> Value {
    json!({
        "through": judged.through.to_string(), "admitted": judged.admitted, "missed": judged.missed,
        "range_from": judged.range.map(|(first, _)| first.to_string()),
        "range_until": judged.range.map(|(_, last)| last.to_string()),
    })
}

fn call(told: &Told<Call>, covered: &Covered) -> Value {
    let mut value = match &told.what {
        Call::Create { version } | Call::Pause { version } | Call::Resume { version } => json!({"version": version}),
        Call::Update { version, keeps_due } => json!({"version": version, "keeps_due": keeps_due}),
        Call::Cancel => json!({}),
        Call::Trigger { occurrence } => json!({"occurrence_id": occurrence.to_string()}),
        Call::Backfill { from, to, count } => {
            json!({"from": from.to_string(), "to": to.to_string(), "count": count})
        }
    };
    value["call"] = told.what.as_str().into();
    place(&mut value, told, covered);
    value
}

/// One line of a history: an occurrence, or instants that got none.
#[derive(Clone, Copy)]
pub(super) enum Item<'a> {
    Occurrence(&'a Life),
    Range(&'a Told<RangeOf>),
}

impl Item<'_> {
    pub(super) fn scheduled_for(&self) -> UnixMs {
        match self {
            Self::Occurrence(life) => life.scheduled_for,
            Self::Range(told) => told.what.range.first,
        }
    }
}

/// A history; lines are made as they are written.
#[derive(Serialize)]
pub(super) struct History<'a> {
    schedule_id: String,
    #[serde(serialize_with = "each_version")]
    versions: &'a [Version],
    calls: Vec<Value>,
    items: Items<'a>,
    log: Value,
}

struct Items<'a> {
    items: &'a [Item<'a>],
    covered: &'a Covered,
}

impl<'a> History<'a> {
    pub(super) fn new(story: &'a Story, items: &'a [Item<'a>], covered: &'a Covered) -> Self {
        Self {
            schedule_id: story.schedule.to_string(),
            versions: &story.versions,
            calls: story.calls.iter().map(|told| call(told, covered)).collect(),
            items: Items { items, covered },
            log: log(covered),
        }
    }
}

fn each_version<S: Serializer>(versions: &[Version], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(versions.iter().map(version))
}

impl Serialize for Items<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.items.iter().map(|item| match item {
            Item::Occurrence(of) => life(of),
            Item::Range(told) => range(told, self.covered),
        }))
    }
}
