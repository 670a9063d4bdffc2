//! The words of the API that stand for choices: one table each, read and written from the same place.

use crate::kernel::{
    attempt::{FailureClass, Resolution},
    calendar::{Basis, DayMatch, FoldChoice, Gap, LocalFold},
    occurrence::State,
    policy::{Effect, Misfire, Overlap},
    schedule::ScheduleState,
    shard::Pending,
};

/// A choice of words.
pub(crate) type Words<T> = &'static [(&'static str, T)];

pub(crate) const FOLD: Words<FoldChoice> = &[
    (FoldChoice::Auto.as_str(), FoldChoice::Auto),
    (FoldChoice::Once.as_str(), FoldChoice::Once),
    (FoldChoice::Both.as_str(), FoldChoice::Both),
];
pub(crate) const GAP: Words<Gap> = &[(Gap::Skip.as_str(), Gap::Skip), (Gap::Shift.as_str(), Gap::Shift)];
pub(crate) const DAY_MATCH: Words<DayMatch> =
    &[(DayMatch::Or.as_str(), DayMatch::Or), (DayMatch::And.as_str(), DayMatch::And)];
pub(crate) const BASIS: Words<Basis> = &[
    (Basis::Slot.as_str(), Basis::Slot),
    (Basis::Completion.as_str(), Basis::Completion),
    (Basis::Start.as_str(), Basis::Start),
];
pub(crate) const LOCAL_FOLD: Words<LocalFold> = &[("first", LocalFold::First), ("second", LocalFold::Second)];
pub(crate) const LOCAL_GAP: Words<Gap> = &[(Gap::Shift.as_str(), Gap::Shift)];
pub(crate) const SCHEDULE_STATE: Words<ScheduleState> = &[
    (ScheduleState::Active.as_str(), ScheduleState::Active),
    (ScheduleState::Paused.as_str(), ScheduleState::Paused),
    (ScheduleState::Completed.as_str(), ScheduleState::Completed),
    (ScheduleState::Canceled.as_str(), ScheduleState::Canceled),
];
pub(crate) const MISFIRE: Words<Misfire> = &[
    (Misfire::Skip.as_str(), Misfire::Skip),
    (Misfire::FireOnce.as_str(), Misfire::FireOnce),
    ("CATCH_UP", Misfire::CatchUp { limit: 0 }),
];
pub(crate) const OVERLAP: Words<Overlap> = &[
    (Overlap::Allow.as_str(), Overlap::Allow),
    (Overlap::SkipIfRunning.as_str(), Overlap::SkipIfRunning),
    (Overlap::QueueOne.as_str(), Overlap::QueueOne),
];
pub(crate) const EFFECT: Words<Effect> =
    &[(Effect::Idempotent.as_str(), Effect::Idempotent), (Effect::NonIdempotent.as_str(), Effect::NonIdempotent)];
pub(crate) const PENDING: Words<Pending> = &[("cancel", Pending::Cancel), ("keep", Pending::Keep)];
pub(crate) const OCCURRENCE_STATE: Words<State> = &[
    (State::Scheduled.as_str(), State::Scheduled),
    (State::Enqueued.as_str(), State::Enqueued),
    (State::Running.as_str(), State::Running),
    (State::RetryWait.as_str(), State::RetryWait),
    (State::Succeeded.as_str(), State::Succeeded),
    (State::Dead.as_str(), State::Dead),
    (State::Held.as_str(), State::Held),
    (State::Missed.as_str(), State::Missed),
    (State::SkippedOverlap.as_str(), State::SkippedOverlap),
    (State::Canceled.as_str(), State::Canceled),
];
pub(crate) const FAILURE_CLASS: Words<FailureClass> = &[
    (FailureClass::Permanent.as_str(), FailureClass::Permanent),
    (FailureClass::Transient.as_str(), FailureClass::Transient),
    (FailureClass::Canceled.as_str(), FailureClass::Canceled),
];
pub(crate) const RESOLUTION: Words<Resolution> = &[
    (Resolution::Retry.as_str(), Resolution::Retry),
    (Resolution::Succeeded.as_str(), Resolution::Succeeded),
    (Resolution::Dead.as_str(), Resolution::Dead),
];

/// The words of a choice.
pub(crate) fn names<T>(words: Words<T>) -> Vec<&'static str> {
    words.iter().map(|(word, _)| *word).collect()
}

/// What a choice means that is written with `word`; the error lists the words there are.
pub(crate) fn meaning<T: Copy>(words: Words<T>, word: &str) -> Result<T, String> {
    let found = words.iter().find(|(known, _)| *known == word);
    found.map(|(_, value)| *value).ok_or_else(|| format!("must be one of {}", names(words).join(", ")))
}

/// How `value` is written.
pub(crate) fn word<T: PartialEq>(words: Words<T>, value: &T) -> &'static str {
    words.iter().find(|(_, known)| known == value).map_or("unknown", |(word, _)| word)
}
