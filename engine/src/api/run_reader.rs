//! What the bodies of requests say about runs: claims, what workers say of what they claimed, what people decide.
//!
//! What a worker says of one run it may say of up to a thousand at once, under `runs`. A shape that is wrong refuses
//! the whole call, by the path of what is wrong (`runs[3].lease_token`); what has become of a run is told one by one.

use std::{str::FromStr, time::Duration};

use super::{
    fields::{Fields, Null, invalid, quoted},
    json::Node,
    shape::{Field, Shape},
    words,
};
use crate::{
    engine::runs::{
        Claim, Decided, FailedRun, LEASE_MS_AT_LEAST, LEASE_MS_AT_MOST, RESULT_REF_BYTES, RUNS_AT_MOST, Speaking,
        WAIT_MS_AT_MOST,
    },
    error::Refusal,
    kernel::{
        id::{OccurrenceId, ScheduleId},
        lease::LeaseToken,
    },
};

const LEASE: (u64, u64) = (LEASE_MS_AT_LEAST.unsigned_abs(), LEASE_MS_AT_MOST.unsigned_abs());

const WORKER: Field = Field::required("worker", Shape::Text, "as the worker names itself, 1 to 255 bytes");
const LEASE_MS: Field = Field::required(
    "lease_ms",
    Shape::Whole(LEASE.0, LEASE.1),
    "how long the lease lasts from now on without a heartbeat",
);
const OCCURRENCE: Field = Field::required("occurrence_id", Shape::Id, "the occurrence that was claimed");
const TOKEN: Field = Field::required("lease_token", Shape::Token, "as the claim answered it");
const RESULT_REF: Field = Field::new("result_ref", Shape::Text, "where the result is, at most 1,024 bytes");
const CLASS: Field = Field::required(
    "class",
    Shape::Words(|| words::names(words::FAILURE_CLASS)),
    "permanent: trying again is of no use; canceled: only after cancel_requested",
);
const MESSAGE: Field = Field::new("message", Shape::Text, "for people; 1,024 characters are kept");
const ABOUT_RUNS: &str = "the same about several runs, answered in order under results";

/// Fields of a claim from a queue of the engine's own.
pub(crate) const CLAIM: &[Field] = &[
    WORKER,
    Field::required("max", Shape::Whole(1, RUNS_AT_MOST as u64), "at most so many runs"),
    LEASE_MS,
    Field::new("wait_ms", Shape::Whole(0, WAIT_MS_AT_MOST), "how long to wait for the first run; 0"),
    Field::new(
        "claim_id",
        Shape::Text,
        "1 to 255 bytes; repeated within the lease, it gets the same runs, also after a restart",
    ),
];
/// Fields of a claim of what a worker read from a stream.
pub(crate) const CLAIM_ONE: &[Field] =
    &[WORKER, LEASE_MS, Field::required("schedule_id", Shape::Id, "the schedule that the entry names")];

const BEAT: &[Field] = &[OCCURRENCE, TOKEN, LEASE_MS];
const DONE: &[Field] = &[OCCURRENCE, TOKEN, RESULT_REF];
const FAILED: &[Field] = &[OCCURRENCE, TOKEN, CLASS, MESSAGE];
/// Fields of heartbeats: of one run, then `runs`.
pub(crate) const BEATS: &[Field] =
    &[OCCURRENCE, TOKEN, LEASE_MS, Field::required(RUNS, Shape::List(BEAT, RUNS_AT_MOST), ABOUT_RUNS)];
/// Fields of completions: of one run, then `runs`.
pub(crate) const COMPLETIONS: &[Field] =
    &[OCCURRENCE, TOKEN, RESULT_REF, Field::required(RUNS, Shape::List(DONE, RUNS_AT_MOST), ABOUT_RUNS)];
/// Fields of failures: of one run, then `runs`.
pub(crate) const FAILURES: &[Field] =
    &[OCCURRENCE, TOKEN, CLASS, MESSAGE, Field::required(RUNS, Shape::List(FAILED, RUNS_AT_MOST), ABOUT_RUNS)];
/// Several runs at once.
const RUNS: &str = "runs";

/// Fields of a person's decision.
pub(crate) const RESOLVE: &[Field] = &[
    Field::required(
        "outcome",
        Shape::Words(|| words::names(words::RESOLUTION)),
        "retry: nothing was committed, it runs once more; succeeded: it did; dead: it did not, and is not to run again",
    ),
    Field::required("reviewer", Shape::Text, "who decided, 1 to 1,024 bytes"),
    Field::required("note", Shape::Text, "why, at most 1,024 bytes; may be empty"),
];

/// Reads a claim from a queue.
pub(crate) fn claim(body: Node) -> Result<Claim, Refusal> {
    let mut body = Fields::of(body, "", CLAIM, Null::LeftOut)?;
    let claim = Claim::new(body.required_text("worker")?);
    let max = body.required_whole("max", 1..=RUNS_AT_MOST as u64)?;
    Ok(Claim {
        max: usize::try_from(max).expect("the reader keeps to the range"),
        lease: Duration::from_millis(lease_ms(&mut body)?),
        wait: Duration::from_millis(body.whole("wait_ms", 0..=WAIT_MS_AT_MOST)?.unwrap_or(0)),
        claim_id: body.text("claim_id")?,
        ..claim
    })
}

/// A claim of one occurrence.
#[derive(Debug)]
pub(crate) struct ClaimOne {
    pub(crate) worker: String,
    pub(crate) lease: Duration,
    pub(crate) schedule: ScheduleId,
}

/// Reads a claim of one occurrence.
pub(crate) fn claim_one(body: Node) -> Result<ClaimOne, Refusal> {
    let mut body = Fields::of(body, "", CLAIM_ONE, Null::LeftOut)?;
    Ok(ClaimOne {
        worker: body.required_text("worker")?,
        lease: Duration::from_millis(lease_ms(&mut body)?),
        schedule: id(&mut body, "schedule_id")?,
    })
}

/// What a worker says, of one run or of several.
#[derive(Debug)]
pub(crate) struct Said<T> {
    pub(crate) runs: Vec<Speaking<T>>,
    /// Whether it was said under `runs`: it is answered likewise.
    pub(crate) is_batch: bool,
}

/// Reads heartbeats.
pub(crate) fn beats(body: Node) -> Result<Said<u64>, Refusal> {
    said(body, (BEATS, BEAT), lease_ms)
}

/// Reads completions.
pub(crate) fn completions(body: Node) -> Result<Said<Option<String>>, Refusal> {
    said(body, (COMPLETIONS, DONE), |run| {
        let result_ref = run.text("result_ref")?;
        if let Some(bytes) = result_ref.as_ref().map(String::len).filter(|bytes| *bytes > RESULT_REF_BYTES) {
            let message =
                format!("has {bytes} bytes, more than {RESULT_REF_BYTES}: put the result elsewhere and refer to it");
            return Err(invalid(run.at("result_ref"), message));
        }
        Ok(result_ref)
    })
}

/// Reads failures.
pub(crate) fn failures(body: Node) -> Result<Said<FailedRun>, Refusal> {
    said(body, (FAILURES, FAILED), |run| {
        let class = run.word("class", words::FAILURE_CLASS)?.ok_or_else(|| run.missing("class"))?;
        Ok(FailedRun { class, message: run.text("message")? })
    })
}

/// Reads a person's decision.
pub(crate) fn decided(body: Node) -> Result<Decided, Refusal> {
    let mut body = Fields::of(body, "", RESOLVE, Null::LeftOut)?;
    Ok(Decided {
        resolution: body.word("outcome", words::RESOLUTION)?.ok_or_else(|| body.missing("outcome"))?,
        reviewer: body.required_text("reviewer")?,
        note: body.required_text("note")?,
    })
}

fn said<T>(
    body: Node,
    (known, of_one): (&'static [Field], &'static [Field]),
    read: impl Fn(&mut Fields) -> Result<T, Refusal>,
) -> Result<Said<T>, Refusal> {
    let mut body = Fields::of(body, "", known, Null::LeftOut)?;
    let Some(runs) = body.list(RUNS, 1..=RUNS_AT_MOST)? else {
        return Ok(Said { runs: vec![speaking(&mut body, read)?], is_batch: false });
    };
    if let Some(beside) = of_one.iter().find(|field| body.has(field.name)) {
        let message = format!("is given beside {}: say it of one run, or of several under runs", beside.name);
        return Err(invalid(RUNS, message));
    }
    let one = |(index, run)| {
        let mut run = Fields::of(run, &format!("{RUNS}[{index}]"), of_one, Null::LeftOut)?;
        speaking(&mut run, &read)
    };
    Ok(Said { runs: runs.into_iter().enumerate().map(one).collect::<Result<_, _>>()?, is_batch: true })
}

fn speaking<T>(run: &mut Fields, read: impl Fn(&mut Fields) -> Result<T, Refusal>) -> Result<Speaking<T>, Refusal> {
    let occurrence: OccurrenceId = id(run, "occurrence_id")?;
    let text = run.required_text("lease_token")?;
    let token: LeaseToken = text
        .parse()
        .map_err(|problem| invalid(run.at("lease_token"), format!("{} is none: {problem}", quoted(&text))))?;
    Ok(Speaking::new(occurrence, token, read(run)?))
}

fn id<T: FromStr>(fields: &mut Fields, name: &str) -> Result<T, Refusal> {
    let text = fields.required_text(name)?;
    text.parse().map_err(|_| {
        let message = format!("{} is no UUID: give the id as it was answered", quoted(&text));
        invalid(fields.at(name), message)
    })
}

fn lease_ms(fields: &mut Fields) -> Result<u64, Refusal> {
    fields.required_whole("lease_ms", LEASE.0..=LEASE.1)
}

#[cfg(test)]
#[path = "run_reader_tests.rs"]
mod tests;
