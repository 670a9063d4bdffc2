//! What is done every 5 s: see that the streams are still ours, compare them with what is known, tell and trim what all
//! have acknowledged, watch the groups.
//!
//! Only the janitor removes entries, and only those that are recorded as enqueued and that every group has
//! acknowledged. A stream without groups is not trimmed, and a group that stands still never loosens the rule: it
//! raises an alarm.

use std::time::{Duration, Instant};

use countwheel_wal::crash_point;
use redis::Value;

use super::{
    answer::{Group, Top, first_pending, groups, map},
    fence::read_top,
    link::{Fault, Link, refuse},
    look::{Sight, compare},
    owner::Verdict,
    relay::Relay,
    reply::Scope,
    stats::add,
    stream::Standing,
    wire::{Commands, id_text},
};
use crate::{kernel::occurrence::EntryId, shell::queue::QueueEvent};

/// When a group last moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupWatch {
    group: Group,
    first_pending: Option<EntryId>,
    since: Instant,
}

impl Relay {
    /// One round. Nothing is in flight while it runs.
    pub(super) fn tidy(&mut self, link: &mut Link) -> Result<(), Fault> {
        let mut questions = Commands::default();
        questions.add(&[b"HGETALL", self.engine_key.as_bytes()]);
        for track in &self.tracks {
            questions.add(&[b"XINFO", b"STREAM", &track.key]);
        }
        let mut answers = link.ask_all(&questions)?.into_iter();
        self.check_owner(answers.next().unwrap_or(Value::Nil))?;
        let mut with_groups = Vec::new();
        let mut reopened = false;
        for (at, answer) in answers.enumerate() {
            if self.tracks[at].standing == Standing::Shut {
                self.reconsider(at, answer);
                continue;
            }
            let top = self.inspect(link, at, answer)?;
            let is_shortened = self.is_shortened(at, top.length);
            reopened |= self.judge_length(at, top.length);
            // What a group seems to have passed may have been taken from under it: the shard looks first.
            if top.groups > 0 && !is_shortened {
                with_groups.push((at, top));
            }
        }
        if reopened {
            self.say_ready();
        }
        self.trim(link, &with_groups)?;
        add(&self.gauges.janitor_rounds, 1);
        Ok(())
    }

    /// Whatever else the hash shows than us: the take-over judges it.
    fn check_owner(&self, answer: Value) -> Result<(), Fault> {
        let fields = map(&answer);
        let verdict =
            fields.map(|fields| self.identity.judge(&self.engine_key, &fields, self.generation, !self.claimed));
        if verdict == Some(Verdict::Ours) {
            return Ok(());
        }
        Err(Fault::Lost(format!(
            "{} no longer shows this engine as owner of shard {}: another engine, or somebody's command, changed it",
            self.engine_key, self.config.shard
        )))
    }

    /// A foreign key may have made room.
    fn reconsider(&mut self, at: usize, answer: Value) {
        match refuse(answer) {
            Err(Fault::Refused(reaction)) if reaction.scope == Scope::Stream => {}
            // Whatever else it is, the take-over sees it again.
            _ => self.tracks[at].standing = Standing::Unfenced,
        }
    }

    fn inspect(&self, link: &Link, at: usize, answer: Value) -> Result<Top, Fault> {
        let track = &self.tracks[at];
        let lost = |what: &str| Fault::Lost(format!("{} {what}", track.shown()));
        let top = match answer {
            Value::ServerError(error) if error.details().is_some_and(|detail| detail.contains("no such key")) => {
                return Err(lost("is gone: somebody deleted it, or redis lost its data"));
            }
            answer => read_top(link, &refuse(answer)?)?,
        };
        if compare(track.known, Some(top)) != Sight::Whole {
            return Err(lost("no longer holds all that it had accepted: redis lost data, or the key was made anew"));
        }
        if top.last.generation > self.generation {
            return Err(lost(
                "has an entry under a higher generation: another engine, or somebody's XADD, wrote there",
            ));
        }
        Ok(top)
    }

    /// Whether somebody else removed entries.
    fn is_shortened(&mut self, at: usize, length: u64) -> bool {
        let track = &self.tracks[at];
        let is_shortened = length < track.length;
        if is_shortened {
            self.outbox.say(QueueEvent::Shortened { stream: track.stream });
        }
        is_shortened
    }

    /// Whether a full stream takes entries again.
    fn judge_length(&mut self, at: usize, length: u64) -> bool {
        let track = &mut self.tracks[at];
        track.length = length;
        let limit = self.config.stream_max_len;
        match track.standing {
            Standing::Open if length >= limit => self.shut_full(at),
            // A tenth must be drained first, so that it does not flap.
            Standing::Full if length <= limit - limit.div_ceil(10) => {
                track.standing = Standing::Open;
                return true;
            }
            _ => {}
        }
        false
    }

    fn trim(&mut self, link: &mut Link, streams: &[(usize, Top)]) -> Result<(), Fault> {
        let (mut stuck, mut first_stuck) = (0_u64, None);
        let mut trims = Commands::default();
        let mut trimmed = Vec::new();
        for (at, top, groups) in self.read_groups(link, streams)? {
            let now = self.time.now();
            let track = &mut self.tracks[at];
            track.groups = watch(&track.groups, &groups, now);
            for watch in track.groups.iter().filter(|watch| watch.is_stuck(top, now, self.config.group_alarm)) {
                stuck += 1;
                first_stuck.get_or_insert_with(|| (track.shown().into_owned(), watch.shown()));
            }
            let Some(below) = track.recorded.and_then(|recorded| trim_below(&groups, recorded)) else { continue };
            let through = before(below);
            if track.settled < Some(through) {
                track.settled = Some(through);
                self.outbox.say(QueueEvent::Settled { stream: track.stream, through });
            }
            if track.trimmed_below < Some(below) {
                track.trimmed_below = Some(below);
                track.is_trimming = true;
                trims.add(&[b"XTRIM", &track.key, b"MINID", b"=", &id_text(below)]);
                trimmed.push(at);
            }
        }
        let before = self.gauges.stuck_groups.swap(stuck, std::sync::atomic::Ordering::Relaxed);
        if let Some((stream, group)) = first_stuck.filter(|_| stuck > before) {
            let shard = self.config.shard;
            tracing::warn!(
                shard,
                stuck,
                stream,
                group,
                "a consumer group has work and does not move: start consumers or remove it"
            );
        }
        if !trimmed.is_empty() {
            crash_point("trim.before");
        }
        let answers = link.ask_all(&trims)?;
        if !trimmed.is_empty() {
            crash_point("trim.after");
        }
        for (at, answer) in trimmed.into_iter().zip(answers) {
            if let Value::Int(count) = refuse(answer)? {
                let count = usize::try_from(count).unwrap_or_default();
                add(&self.gauges.entries_trimmed, count);
                let track = &mut self.tracks[at];
                track.length = track.length.saturating_sub(count as u64);
                track.is_trimming = false;
            }
        }
        Ok(())
    }

    /// The groups of each stream with their first pending entries.
    fn read_groups(&self, link: &mut Link, streams: &[(usize, Top)]) -> Result<Vec<(usize, Top, Groups)>, Fault> {
        let mut questions = Commands::default();
        for (at, _) in streams {
            questions.add(&[b"XINFO", b"GROUPS", &self.tracks[*at].key]);
        }
        let mut all = Vec::new();
        for ((at, top), answer) in streams.iter().zip(link.ask_all(&questions)?) {
            let answer = refuse(answer)?;
            let groups = groups(&answer).ok_or_else(|| link.nonsense("XINFO GROUPS", &answer))?;
            all.push((*at, *top, groups.into_iter().map(|group| (group, None)).collect::<Groups>()));
        }
        let mut questions = Commands::default();
        for (at, _, groups) in &all {
            for (group, _) in groups.iter().filter(|(group, _)| group.pending > 0) {
                questions.add(&[b"XPENDING", &self.tracks[*at].key, &group.name]);
            }
        }
        let mut answers = link.ask_all(&questions)?.into_iter();
        for (_, _, groups) in &mut all {
            for (_, pending) in groups.iter_mut().filter(|(group, _)| group.pending > 0) {
                let answer = refuse(answers.next().unwrap_or(Value::Nil))?;
                *pending = first_pending(&answer).ok_or_else(|| link.nonsense("XPENDING", &answer))?;
            }
        }
        Ok(all)
    }
}

/// Consumer groups, each with its first pending entry.
type Groups = Vec<(Group, Option<EntryId>)>;

/// Every entry below this was acknowledged by every group and is recorded; `None` without groups.
fn trim_below(groups: &[(Group, Option<EntryId>)], recorded: EntryId) -> Option<EntryId> {
    let settled = groups.iter().map(|(group, pending)| pending.unwrap_or_else(|| next(group.last_delivered))).min()?;
    Some(settled.min(next(recorded)))
}

fn next(id: EntryId) -> EntryId {
    EntryId { counter: id.counter.saturating_add(1), ..id }
}

/// The last id below this one. Counters begin at 1: `<generation>-0` lies above everything of the generation before.
fn before(id: EntryId) -> EntryId {
    EntryId { counter: id.counter.saturating_sub(1), ..id }
}

/// Carries on since when each group has stood still.
fn watch(before: &[GroupWatch], now_seen: &[(Group, Option<EntryId>)], now: Instant) -> Vec<GroupWatch> {
    now_seen
        .iter()
        .map(|(group, first_pending)| {
            let same = before.iter().find(|watch| watch.group == *group && watch.first_pending == *first_pending);
            let since = same.map_or(now, |watch| watch.since);
            GroupWatch { group: group.clone(), first_pending: *first_pending, since }
        })
        .collect()
}

impl GroupWatch {
    /// The group's name, for people.
    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.group.name).into_owned()
    }

    fn is_stuck(&self, top: Top, now: Instant, alarm: Duration) -> bool {
        let has_work = self.group.pending > 0 || (top.length > 0 && self.group.last_delivered < top.last);
        has_work && now.saturating_duration_since(self.since) >= alarm
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(generation: u64, counter: u64) -> EntryId {
        EntryId { generation, counter }
    }

    fn group(name: &str, last_delivered: EntryId, pending: u64, first: Option<EntryId>) -> (Group, Option<EntryId>) {
        (Group { name: name.as_bytes().to_vec(), pending, last_delivered }, first)
    }

    #[test]
    fn nothing_is_trimmed_without_groups() {
        assert_eq!(trim_below(&[], at(4, 10)), None);
    }

    #[test]
    fn trimming_ends_at_the_slowest_group_and_at_what_is_recorded() {
        let fast = || group("fast", at(4, 9), 0, None);
        assert_eq!(trim_below(&[fast()], at(4, 20)), Some(at(4, 10)));
        assert_eq!(trim_below(&[fast()], at(4, 5)), Some(at(4, 6)));
        let slow = group("slow", at(4, 8), 2, Some(at(4, 3)));
        assert_eq!(trim_below(&[fast(), slow], at(4, 20)), Some(at(4, 3)));
        let new = group("new", at(0, 0), 0, None);
        assert_eq!(trim_below(&[fast(), new], at(4, 20)), Some(at(0, 1)));
    }

    #[test]
    fn a_group_is_stuck_when_it_has_work_and_does_not_move_for_the_whole_time() {
        let (start, hour) = (Instant::now(), Duration::from_secs(3_600));
        let top = |length| Top { last: at(4, 9), added: 9, length, groups: 1 };
        let seen = |counter| vec![group("g", at(4, counter), 0, None)];
        let first = watch(&[], &seen(3), start);
        let still = watch(&first, &seen(3), start + hour);
        assert!(still[0].is_stuck(top(9), start + hour, hour));
        assert!(!still[0].is_stuck(top(0), start + hour, hour), "an empty stream has no work");
        let moved = watch(&first, &seen(4), start + hour);
        assert!(!moved[0].is_stuck(top(9), start + hour, hour));
        let idle = watch(&watch(&[], &seen(9), start), &seen(9), start + hour);
        assert!(!idle[0].is_stuck(top(9), start + hour, hour), "it has read everything");
    }
}
