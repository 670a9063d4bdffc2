//! A cron rule as it is written: expression, zone, and what to do where clocks jump.

/// What to do with a wall time that the clocks show twice; `Auto` is resolved when the rule is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FoldChoice {
    /// `Both` for a cadence (the minute or hour field begins with `*`), else `Once`.
    #[default]
    Auto,
    /// See [`Fold::Once`].
    Once,
    /// See [`Fold::Both`].
    Both,
}

/// What happens to a wall time that the clocks show twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fold {
    /// It fires at its first instant.
    Once,
    /// It fires at every instant at which the clock shows it.
    Both,
}

impl FoldChoice {
    /// What the choice means for a cadence, or for an appointment.
    #[must_use]
    pub const fn resolve(self, is_cadence: bool) -> Fold {
        match self {
            Self::Once => Fold::Once,
            Self::Both => Fold::Both,
            Self::Auto if is_cadence => Fold::Both,
            Self::Auto => Fold::Once,
        }
    }
}

impl From<Fold> for FoldChoice {
    fn from(fold: Fold) -> Self {
        match fold {
            Fold::Once => Self::Once,
            Fold::Both => Self::Both,
        }
    }
}

/// What happens to a wall time that the clocks jump over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Gap {
    /// It does not fire.
    #[default]
    Skip,
    /// It fires at the first instant after the gap; several that coincide there are one.
    Shift,
}

/// What a day must match when day-of-month and day-of-week are both restricted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DayMatch {
    /// Either field.
    #[default]
    Or,
    /// Both fields.
    And,
}

macro_rules! words {
    ($type:ident: $($variant:ident = $word:literal),+) => {
        impl $type {
            /// Every choice, in the order of their words in messages.
            pub const WORDS: &[&str] = &[$($word),+];

            /// The word that users write and see.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            /// Reads the word, in exact case.
            #[must_use]
            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}
words!(FoldChoice: Auto = "auto", Once = "once", Both = "both");
words!(Fold: Once = "once", Both = "both");
words!(Gap: Skip = "skip", Shift = "shift");
words!(DayMatch: Or = "or", And = "and");

/// A cron rule as its owner wrote it; expression and zone are kept as given.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CronSpec {
    /// 5 or 6 fields, or a nickname.
    pub expr: String,
    /// A zone name of the loaded release.
    pub zone: String,
    /// For wall times that happen twice.
    pub fold: FoldChoice,
    /// For wall times that do not happen.
    pub gap: Gap,
    /// For rules that restrict both day fields.
    pub day_match: DayMatch,
}

impl CronSpec {
    /// A rule with the default choices.
    pub fn new(expr: impl Into<String>, zone: impl Into<String>) -> Self {
        Self {
            expr: expr.into(),
            zone: zone.into(),
            fold: FoldChoice::default(),
            gap: Gap::default(),
            day_match: DayMatch::default(),
        }
    }
}
