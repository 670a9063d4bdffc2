//! A part of a schedule that was refused: correct the call.

/// What was refused, why, and what would do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct Refusal {
    /// Why, as a stable word.
    pub code: RefusalCode,
    /// The path of the input: `rule.cron`.
    pub field: String,
    /// Value, problem and remedy in one sentence.
    pub message: String,
}

impl Refusal {
    /// A refusal of `field`.
    #[must_use]
    pub fn new(code: RefusalCode, field: &str, message: String) -> Self {
        Self { code, field: field.to_owned(), message }
    }
}

/// Why a part of a schedule was refused, as a stable word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalCode {
    /// The cron expression is malformed.
    InvalidCron,
    /// The zone is not a name of the loaded release.
    UnknownZone,
    /// The rule has no instant at all, or none in its bounds.
    NeverFires,
    /// A one-off's instant is not in the future.
    InThePast,
    /// The flexible window is longer than the shortest gap between instants.
    WindowTooLong,
    /// Another kind of rule needs the policies restated.
    RestatePolicies,
    /// What must not repeat needs somebody who decides about what is held.
    ReviewOwnerRequired,
    /// What must not repeat needs its misfire policy said.
    MisfireRequired,
    /// A backfill would make more occurrences than allowed.
    TooMany,
    /// Anything else.
    Invalid,
}

impl RefusalCode {
    /// The word that users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidCron => "invalid_cron",
            Self::UnknownZone => "unknown_zone",
            Self::NeverFires => "never_fires",
            Self::InThePast => "in_the_past",
            Self::WindowTooLong => "window_too_long",
            Self::RestatePolicies => "restate_policies",
            Self::ReviewOwnerRequired => "review_owner_required",
            Self::MisfireRequired => "misfire_required",
            Self::TooMany => "too_many",
            Self::Invalid => "invalid",
        }
    }
}
