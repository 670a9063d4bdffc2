//! Specs and steps in words. What users wrote is quoted, so that it cannot pose as something else on a terminal.

use crate::{
    api::duration::show_ms,
    kernel::{
        attempt::{Failure, FailureClass},
        calendar::Gap,
        evidence::HoldReason,
        record::Then,
        schedule::{RangeDisposition, Rule, Spec},
        shard::chronicle::{Call, Judgement, Origin, Step},
        time::UnixMs,
    },
};

/// When a schedule fires.
pub(super) fn rule(spec: &Spec) -> String {
    let mut words = match (&spec.rule, &spec.at_local) {
        (Rule::Cron(cron), _) => format!(
            "cron {:?} in {} (fold {}, gap {}, day_match {})",
            cron.expr,
            cron.zone,
            cron.fold.as_str(),
            cron.gap.as_str(),
            cron.day_match.as_str()
        ),
        (Rule::Every { every_ms, anchor, basis }, _) => {
            let anchor = anchor.map_or_else(String::new, |anchor| format!(" from {anchor}"));
            format!("every {}{anchor}, basis {}", show_ms(every_ms.unsigned_abs()), basis.as_str())
        }
        (Rule::At(at), Some(local)) => {
            let gap = local.gap.map_or("", |gap: Gap| if gap == Gap::Shift { ", gap shift" } else { "" });
            format!("once at {at}, given as {:?} in {}{gap}", local.local, local.zone)
        }
        (Rule::At(at), None) => format!("once at {at}"),
    };
    let bounds = [("from", spec.start_at), ("before", spec.end_at)];
    for (word, bound) in bounds {
        if let Some(bound) = bound {
            words.push_str(&format!(", {word} {bound}"));
        }
    }
    words
}

/// What holds for its occurrences.
pub(super) fn policies(spec: &Spec) -> String {
    let retry = &spec.retry;
    let mut words = format!(
        "misfire {} after {}, overlap {}, {} attempts with a back-off of {} to {}, {}",
        spec.misfire,
        show_ms(spec.max_lateness_ms),
        spec.overlap.as_str(),
        retry.max_attempts,
        show_ms(retry.base_ms),
        show_ms(retry.cap_ms),
        spec.effect.as_str()
    );
    if spec.flexible_window_ms > 0 {
        words.push_str(&format!(", flexible window {}", show_ms(spec.flexible_window_ms)));
    }
    if let Some(deadline_ms) = retry.deadline_ms {
        words.push_str(&format!(", deadline {}", show_ms(deadline_ms)));
    }
    if let Some(budget) = retry.budget {
        words.push_str(&format!(", {budget} retries a day"));
    }
    if let Some(owner) = &spec.review_owner {
        words.push_str(&format!(", reviewed by {owner:?}"));
    }
    words
}

/// What happened to an occurrence.
pub(super) fn step(step: &Step) -> String {
    match step {
        Step::Materialized { lane, by } => format!("materialized {}, lane {}", origin(by), lane.as_str()),
        Step::Admitted(judged) => format!("late, and admitted to the catch-up lane: {}", judgement(judged)),
        Step::Missed(judged) => format!("late, and missed: {}", judgement(judged)),
        Step::Enqueued { at, entry, is_again } => {
            format!("enqueued{} at {at} as entry {entry}", if *is_again { " again" } else { "" })
        }
        Step::Waited { for_permit: true } => "waits until its tenant may run one more".to_owned(),
        Step::Waited { for_permit: false } => "waits until a run of its schedule ends".to_owned(),
        Step::Claimed { attempt, worker, lease_ms, is_in_process, token } => {
            let place = if *is_in_process { " in the engine's process" } else { "" };
            format!("attempt {attempt}: claimed by {worker:?}{place}, lease {}, token {token}", show_ms(*lease_ms))
        }
        Step::Succeeded { attempt, result_ref } => match result_ref {
            Some(result_ref) => format!("attempt {attempt}: succeeded, result in {result_ref:?}"),
            None => format!("attempt {attempt}: succeeded"),
        },
        Step::Failed { attempt, failure, message, then } => {
            let message = message.as_ref().map_or_else(String::new, |message| format!(" {message:?}"));
            format!("attempt {attempt}: {}{message}, {}", failed(*failure), follows(*then))
        }
        Step::Died => "dead: its deadline was over before an attempt could begin".to_owned(),
        Step::Skipped => "skipped: another occurrence of its schedule was running".to_owned(),
        Step::Held { reasons } => format!("held for a person: {}", holds(reasons)),
        Step::Resolved { resolution, reviewer, note } => {
            format!("resolved as {} by {reviewer:?}: {note:?}", resolution.as_str())
        }
        Step::Replayed => "replayed by a person: its attempts are granted anew".to_owned(),
        Step::LateResult { result_ref } if result_ref.is_empty() => "answered too late, kept as evidence".to_owned(),
        Step::LateResult { result_ref } => format!("answered too late, kept as evidence: {result_ref:?}"),
        Step::Canceled { reason } => format!("canceled: {}", reason.as_str()),
        Step::CalledOff { reason } => {
            format!("called off while it runs ({}): it ends so unless it succeeds", reason.as_str())
        }
        Step::Lost => "the queue lost its entry: it is sent again".to_owned(),
        Step::Settled => "consumers acknowledged it without a claim: done".to_owned(),
        Step::Restarted { generation } => {
            format!(
                "the engine was started again (generation {generation}): leases and back-offs get their whole length"
            )
        }
    }
}

/// The word for a step in JSON.
pub(super) const fn step_name(step: &Step) -> &'static str {
    match step {
        Step::Materialized { .. } => "materialized",
        Step::Admitted(_) => "admitted",
        Step::Missed(_) => "missed",
        Step::Enqueued { .. } => "enqueued",
        Step::Waited { .. } => "waited",
        Step::Claimed { .. } => "claimed",
        Step::Succeeded { .. } => "succeeded",
        Step::Failed { .. } => "failed",
        Step::Died => "died",
        Step::Skipped => "skipped_overlap",
        Step::Held { .. } => "held",
        Step::Resolved { .. } => "resolved",
        Step::Replayed => "replayed",
        Step::LateResult { .. } => "late_result",
        Step::Canceled { .. } => "canceled",
        Step::CalledOff { .. } => "called_off",
        Step::Lost => "lost",
        Step::Settled => "settled",
        Step::Restarted { .. } => "restarted",
    }
}

fn origin(by: &Origin) -> String {
    match by {
        Origin::Rule => "by its rule".to_owned(),
        Origin::Misfire(judged) => format!("late, admitted by the misfire policy ({})", judgement(judged)),
        Origin::Trigger => "by a trigger".to_owned(),
        Origin::Backfill => "by a backfill".to_owned(),
    }
}

fn judgement(judged: &Judgement) -> String {
    let Judgement { through, admitted, missed, range } = judged;
    let range = range.map_or_else(String::new, |(first, last)| format!(" (without an occurrence: {first} to {last})"));
    format!("the backlog through {through} was judged, {admitted} admitted and {missed} missed{range}")
}

fn failed(failure: Failure) -> &'static str {
    match failure {
        Failure::Reported(FailureClass::Permanent) => "failed for good",
        Failure::Reported(FailureClass::Transient) => "failed for now",
        Failure::Reported(FailureClass::Canceled) => "stopped as it was asked to",
        Failure::LeaseExpired => "its lease ended without a word",
        Failure::Restarted => "the engine's process ended under it",
    }
}

fn follows(then: Then) -> String {
    match then {
        Then::Retry { delay_ms } => format!("tried again after {}", show_ms(delay_ms)),
        Then::Dead(death) => format!("dead: {}", death.as_str()),
        Then::Held(reason) => format!("held for a person: {}", holds(&[reason])),
        Then::Canceled => "not tried again".to_owned(),
    }
}

fn holds(reasons: &[HoldReason]) -> String {
    let words = reasons.iter().map(|reason| format!("{} ({})", reason.as_str(), reason.when()));
    words.collect::<Vec<_>>().join(", ")
}

/// What a user asked of a schedule.
pub(super) fn call(call: &Call) -> String {
    let word = call.as_str();
    match call {
        Call::Create { version } | Call::Pause { version } | Call::Resume { version } => {
            format!("{word}, version {version} from then on")
        }
        Call::Update { version, keeps_due: false } => format!("{word}, version {version} from then on"),
        Call::Update { version, keeps_due: true } => {
            format!("{word}, version {version} from then on; what was due goes on under the old one")
        }
        Call::Cancel => word.to_owned(),
        Call::Trigger { occurrence } => format!("{word}: {occurrence}"),
        Call::Backfill { from, to, count } => format!("{word} of {count} instants in [{from}, {to})"),
    }
}

/// State and reason of instants that were disposed of together.
pub(super) const fn disposition(disposition: RangeDisposition) -> (&'static str, Option<&'static str>) {
    match disposition {
        RangeDisposition::Missed => ("MISSED", None),
        RangeDisposition::Canceled(reason) => ("CANCELED", Some(reason.as_str())),
    }
}

/// `STATE` or `STATE(reason)`.
pub(super) fn state(state: &str, reason: Option<&str>) -> String {
    reason.map_or_else(|| state.to_owned(), |reason| format!("{state}({reason})"))
}

/// For how long a version stood.
pub(super) fn stood(from: UnixMs, until: Option<UnixMs>) -> String {
    until.map_or_else(|| format!("since {from}"), |until| format!("{from} to {until}"))
}

/// Behind a state: how many attempts it took.
pub(super) fn attempts(count: u32) -> String {
    match count {
        0 => String::new(),
        1 => ", 1 attempt".to_owned(),
        count => format!(", {count} attempts"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{attempt::Resolution, calendar::CronSpec};

    #[test]
    fn what_users_wrote_is_quoted() {
        let evil = "\u{1b}[2J\nCANCELED".to_owned();
        let failed = Step::Failed {
            attempt: 2,
            failure: Failure::Reported(FailureClass::Transient),
            message: Some(evil.clone()),
            then: Then::Retry { delay_ms: 1_500 },
        };
        let resolved = Step::Resolved { resolution: Resolution::Retry, reviewer: evil.clone(), note: evil.clone() };
        let claimed = Step::Succeeded { attempt: 1, result_ref: Some(evil.clone()) };
        let mut spec = Spec::new("acme", Rule::Cron(CronSpec::new(&evil, "UTC")));
        spec.review_owner = Some(evil);
        for words in [step(&failed), step(&resolved), step(&claimed), rule(&spec), policies(&spec)] {
            assert!(!words.contains(char::is_control) && words.contains("[2J"), "{words}");
        }
        assert!(step(&failed).ends_with("CANCELED\", tried again after 1500ms"), "{}", step(&failed));
    }
}
