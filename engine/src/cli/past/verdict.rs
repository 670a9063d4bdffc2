//! What became of an occurrence's instant where there is no occurrence.

use super::{instants::has_instant, logs::Covered};
use crate::kernel::{
    calendar::ZoneSet,
    id::{Kind, OccurrenceId},
    occurrence::Reason,
    schedule::RangeDisposition,
    shard::chronicle::{Maker, RangeOf, Story, Told, Version},
    time::UnixMs,
};

/// Why there is no such occurrence.
#[derive(Debug)]
pub(super) enum Verdict<'a> {
    /// Its instant was disposed of together with others.
    Range(&'a Told<RangeOf>),
    /// A pause goes on, and what falls into it is disposed of when that ends.
    Paused,
    /// Its instant is decided when it is due.
    Pending,
    /// A backfill was asked for and has not come to it.
    NotExpanded,
    /// The instant is another version's.
    OtherVersion(Option<(u32, OccurrenceId)>),
    /// The rule has no such instant.
    NoInstant,
    /// Nothing explains it.
    Undecided,
}

/// Judges the instant of an id that the log knows no occurrence of.
pub(super) fn judge<'a>(id: OccurrenceId, maker: Maker, story: &'a Story, zones: &ZoneSet) -> Verdict<'a> {
    let at = id.scheduled_for();
    let range = story.ranges.iter().rev().find(|told| {
        told.what.range.kind == maker.kind && (told.what.version == maker.version || maker.kind == Kind::Backfill)
    });
    let version = story.versions.iter().find(|version| version.version == maker.version);
    let (Some(version), Kind::Regular) = (version, maker.kind) else {
        return range.map_or(Verdict::NotExpanded, Verdict::Range);
    };
    if !holds(version, at) {
        let other = story.versions.iter().find(|other| holds(other, at) && !other.is_paused);
        let of =
            |other: &Version| (other.version, OccurrenceId::of(story.schedule, other.version, at, Kind::Regular, b""));
        return Verdict::OtherVersion(other.map(of));
    }
    if has_instant(&version.spec, at, zones) == Some(false) {
        return Verdict::NoInstant;
    }
    match range {
        Some(range) => Verdict::Range(range),
        None if version.is_paused => Verdict::Paused,
        None if at > story.decided_through => Verdict::Pending,
        None => Verdict::Undecided,
    }
}

fn holds(version: &Version, at: UnixMs) -> bool {
    at > version.from && version.until.is_none_or(|until| at <= until)
}

impl Verdict<'_> {
    /// The state that users see for such an instant.
    pub(super) const fn state(&self) -> Option<&'static str> {
        match self {
            Self::Range(told) => Some(match told.what.range.disposition {
                RangeDisposition::Missed => "MISSED",
                RangeDisposition::Canceled(_) => "CANCELED",
            }),
            _ => None,
        }
    }

    /// A sentence.
    pub(super) fn words(&self, maker: Maker, version: Option<&Version>, covered: &Covered, zones: &ZoneSet) -> String {
        match self {
            Self::Range(told) => range_words(told),
            Self::Paused => {
                let since = version.map_or(UnixMs::MIN, |version| version.from);
                format!(
                    "the schedule is paused since {since}: its instants are CANCELED(paused) when the pause ends, and \
                     get no occurrence"
                )
            }
            Self::Pending => {
                let until = covered.span.map_or(UnixMs::MIN, |(_, until)| until);
                format!("that instant was not decided yet when the log ends, at {until}")
            }
            Self::NotExpanded => {
                format!("a {} would make it, and had not come to it when the log ends", maker.kind.as_str())
            }
            Self::OtherVersion(Some((other, id))) => {
                format!("version {} did not stand at that instant; version {other} did: ask for {id}", maker.version)
            }
            Self::OtherVersion(None) => format!("version {} did not stand at that instant", maker.version),
            Self::NoInstant => {
                format!("the rule has no such instant under release {} of the zone rules", zones.release())
            }
            Self::Undecided => "the log has neither an occurrence nor a range for that instant: reconcile".to_owned(),
        }
    }
}

fn range_words(told: &Told<RangeOf>) -> String {
    let range = told.what.range;
    let span = if range.count == 1 {
        format!("alone ({})", range.first)
    } else {
        format!("with {} instants from {} to {}", range.count, range.first, range.last)
    };
    let (at, lsn) = (told.at, told.lsn.0);
    match range.disposition {
        RangeDisposition::Missed => {
            format!("that instant was missed, {span}: at {at} (record {lsn}) the misfire policy did not admit it")
        }
        RangeDisposition::Canceled(reason) => {
            let why = match reason {
                Reason::Paused => "its schedule was paused",
                Reason::Superseded => "an update took its version's place",
                _ => "its schedule was ended",
            };
            format!("that instant was canceled, {span}: at {at} (record {lsn}) since {why}")
        }
    }
}
