//! What an onlooker holds an engine to: it sees what enters streams, what workers were told and what callers were told,
//! and at the end walks every rule anew. It knows nothing of how the engine decides.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{node::Node, redis::Seen, swarm::Swarm};
use crate::{
    kernel::{
        calendar::ZoneSet,
        id::{Kind, OccurrenceId, ScheduleId},
        occurrence::{HistoryItem, Occurrence, State},
        schedule::{Rule, ScheduleState},
        shard::{
            Shard,
            model::{
                check::next_instant,
                timeline::{self, Reign},
            },
        },
        time::UnixMs,
    },
    shell::run_ask::ClaimedRun,
};

/// What was enqueued longer ago than this is not sent again after a loss.
const RESEND_WINDOW_MS: u64 = 10 * 60_000;
/// What became due so long before the end must have come to its own.
const SETTLING_MS: i64 = 5 * 60_000;

/// What an entry's `meta` says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meta {
    pub(super) schedule: ScheduleId,
    available_at: UnixMs,
    attempt: u32,
}

/// Occurrence and description from an entry's fields.
pub(super) fn names(fields: &[&[u8]]) -> Option<(OccurrenceId, Meta)> {
    let [b"occurrence_id", id, b"meta", meta, b"payload", _] = fields else { return None };
    let id = std::str::from_utf8(id).ok()?.parse().ok()?;
    let words: Vec<&str> = std::str::from_utf8(meta).ok()?.split(' ').collect();
    let ["1", schedule, _version, _kind, _for, available_at, attempt, _tenant] = words.as_slice() else { return None };
    let schedule = ScheduleId(uuid::Uuid::try_parse(schedule).ok()?.into_bytes());
    let available_at = UnixMs(available_at.parse().ok()?);
    Some((id, Meta { schedule, available_at, attempt: attempt.parse().ok()? }))
}

struct Landing {
    peer: usize,
    key: Vec<u8>,
    at_ms: u64,
}

/// What was seen and promised.
#[derive(Default)]
pub(super) struct Checker {
    landed: BTreeMap<(OccurrenceId, u32), Landing>,
    /// When each stream last lost something.
    lost_ms: BTreeMap<Vec<u8>, u64>,
    /// What was asked for since it last landed, and is not known to be granted: another entry may follow a refusal.
    refused: BTreeSet<OccurrenceId>,
    unclaimed: BTreeSet<OccurrenceId>,
    read: BTreeSet<OccurrenceId>,
    granted: BTreeSet<(OccurrenceId, u32)>,
    completed: BTreeSet<OccurrenceId>,
    /// The generation that was last written as the owner's.
    owned: u64,
    /// What callers were told: the version that stands at least, and whether it was canceled.
    told: BTreeMap<ScheduleId, (u32, bool)>,
    /// Schedules whose occurrences wait for one another, or for people.
    pub(super) patient: BTreeSet<ScheduleId>,
    pub(super) landings: u64,
    pub(super) duplicates: u64,
}

impl Checker {
    /// Something happened in Redis.
    pub(super) fn look(&mut self, seen: Seen, now_ms: u64, swarm: &Swarm, nodes: &[Node]) {
        match seen {
            Seen::Lost { key } => {
                if key.ends_with(b":engine") {
                    self.owned = 0;
                }
                self.lost_ms.insert(key, now_ms);
            }
            Seen::Owned { fields } => {
                let pairs = fields.as_chunks::<2>().0.iter();
                let generation = pairs.clone().find(|[name, _]| name == b"shard:0:generation");
                if let Some([_, text]) = generation {
                    let generation = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
                    assert!(generation > self.owned, "generation {generation} was claimed after {}", self.owned);
                    self.owned = generation;
                }
            }
            Seen::Moved { .. } => {}
            Seen::Added { peer, key, id, fields } => {
                let fields: Vec<&[u8]> = fields.iter().map(Vec::as_slice).collect();
                let Some((occurrence, meta)) = names(&fields) else { return };
                assert!(
                    id.generation >= self.owned,
                    "{occurrence} was accepted under {id} when generation {} owned the streams",
                    self.owned
                );
                self.on_time(occurrence, &meta, &key, swarm, &nodes[peer]);
                self.once(occurrence, meta.attempt, Landing { peer, key, at_ms: now_ms }, swarm);
            }
        }
    }

    fn on_time(&self, id: OccurrenceId, meta: &Meta, key: &[u8], swarm: &Swarm, node: &Node) {
        let late_ms = node.highest_wall.since(meta.available_at);
        assert!(late_ms >= 0, "{id} was handed over {} ms early", -late_ms);
        let is_plain = meta.attempt == 1 && !self.patient.contains(&meta.schedule) && !key.ends_with(b":catchup");
        if swarm.is_calm() && swarm.window > 3 && is_plain {
            let bound_ms = 2_000 + 10 * swarm.latency_ms;
            assert!(late_ms.cast_unsigned() <= bound_ms, "{id} landed {late_ms} ms late, and nothing was wrong");
        }
    }

    fn once(&mut self, id: OccurrenceId, attempt: u32, landing: Landing, swarm: &Swarm) {
        self.landings += 1;
        if let Some(before) = self.landed.get(&(id, attempt)) {
            self.duplicates += 1;
            let was_lost = self.was_lost(before);
            let is_copys = swarm.has_copy && before.peer != landing.peer;
            assert!(
                was_lost || is_copys || self.refused.contains(&id),
                "{id} attempt {attempt} landed at {} ms and again at {} ms without an excuse",
                before.at_ms,
                landing.at_ms
            );
        }
        self.refused.remove(&id);
        self.landed.insert((id, attempt), landing);
    }

    /// Whether its stream lost something after that.
    fn was_lost(&self, landing: &Landing) -> bool {
        self.lost_ms.get(&landing.key).is_some_and(|at_ms| *at_ms >= landing.at_ms)
    }

    /// A consumer was given an entry.
    pub(super) fn read(&mut self, id: OccurrenceId) {
        self.read.insert(id);
    }

    /// The embedded queue gave one to a worker.
    pub(super) fn served(&mut self, run: &ClaimedRun) {
        self.read.insert(run.occurrence_id);
        self.landings += 1;
    }

    pub(super) fn granted(&mut self, id: OccurrenceId, attempt: u32) {
        self.refused.remove(&id);
        assert!(self.granted.insert((id, attempt)), "attempt {attempt} of {id} was granted twice");
    }

    pub(super) fn asked_for(&mut self, id: OccurrenceId) {
        self.refused.insert(id);
    }

    pub(super) fn acknowledged_unclaimed(&mut self, id: OccurrenceId) {
        self.unclaimed.insert(id);
    }

    pub(super) fn completed(&mut self, id: OccurrenceId) {
        self.completed.insert(id);
    }

    /// A caller was told that this version of a schedule stands.
    pub(super) fn told(&mut self, id: ScheduleId, version: u32, is_canceled: bool) {
        let told = self.told.entry(id).or_default();
        if version >= told.0 {
            *told = (version, is_canceled);
        }
    }

    /// An engine came up: what callers were told is so.
    pub(super) fn came_up(&self, shard: &mut Shard, now: UnixMs) {
        for (id, (version, is_canceled)) in &self.told {
            let Some((schedule, _)) = shard.read(&(*id).into(), now) else {
                panic!("schedule {id} was acknowledged and is gone")
            };
            assert!(schedule.version >= *version, "schedule {id} was at version {version}, is at {}", schedule.version);
            let is_back = *is_canceled && schedule.version == *version && schedule.state != ScheduleState::Canceled;
            assert!(!is_back, "schedule {id} was canceled and is back");
        }
        for id in &self.completed {
            let state = shard.look_up(*id).occurrence.map(|one| one.state);
            assert_eq!(state, Some(State::Succeeded), "{id} was completed");
        }
    }

    /// Everything has had its time: each due instant has one disposition, and each occurrence its end.
    pub(super) fn at_the_end(&self, node: &mut Node, zones: &Arc<ZoneSet>, swarm: &Swarm) {
        let Some(running) = &mut node.running else { panic!("the engine does not run at the end") };
        let now = running.actor.engine_time();
        let troubles: Vec<&str> = running.actor.shard().queue_troubles().collect();
        assert!(troubles.is_empty(), "the queue is away for good: {troubles:?}");
        self.came_up(running.actor.shard_mut(), now);
        for (id, reigns) in timeline::reigns(&node.past) {
            let (schedule, _) =
                running.actor.shard_mut().read(&id.into(), now).expect("a schedule of the log is known");
            let history = history(running.actor.shard(), id);
            // One that was acknowledged without a claim, or waits for a person, stays what it is; those behind it too.
            let blocks = history.iter().any(
                |item| matches!(item, HistoryItem::Occurrence(occurrence) if occurrence.state == State::Held || self.unclaimed.contains(&occurrence.id)),
            );
            for item in &history {
                if let HistoryItem::Occurrence(occurrence) = item {
                    let is_blocked = blocks && occurrence.state == State::Scheduled && self.patient.contains(&id);
                    if !is_blocked {
                        self.settled(occurrence, now, swarm);
                    }
                }
            }
            // What the last of these windows holds may be on its way.
            let open_ms = i64::try_from(schedule.spec.flexible_window_ms).unwrap_or(i64::MAX).saturating_add(60_000);
            let decided = (schedule.state == ScheduleState::Active).then(|| now.minus(open_ms));
            each_instant_once(id, &reigns, &history, zones, decided);
        }
    }

    /// An occurrence has come to its end, or is of today.
    fn settled(&self, one: &Occurrence, now: UnixMs, swarm: &Swarm) {
        let id = one.id;
        let is_over = matches!(
            one.state,
            State::Succeeded | State::Dead | State::Held | State::Missed | State::SkippedOverlap | State::Canceled
        );
        let is_recent = one.available_at > now.minus(SETTLING_MS);
        let has_landed = self.landed.range((id, 0)..=(id, u32::MAX)).next();
        if matches!(one.state, State::Missed) && one.attempt_count == 0 {
            let stands = has_landed.is_some_and(|(_, landing)| !self.was_lost(landing));
            assert!(!stands || swarm.has_copy, "{id} is said to be missed, and was handed over: {one:?}");
        }
        if is_over || is_recent || self.unclaimed.contains(&id) {
            return;
        }
        let is_tracked = swarm.tracks[usize::from(one.queue == "two")];
        assert!(!is_tracked || one.state == State::Enqueued, "{one:?} comes to no end");
        assert!(one.state == State::Enqueued, "{one:?} is due and waits");
        if swarm.has_copy {
            return; // what the other engine's consumers did is not in this one's log
        }
        let too_old = has_landed.is_some_and(|(_, landing)| {
            let lost_ms = self.lost_ms.get(&landing.key).copied().unwrap_or(0);
            landing.at_ms + RESEND_WINDOW_MS < lost_ms + 60_000
        });
        if is_tracked {
            assert!(too_old, "{one:?} comes to no end");
        } else {
            assert!(too_old || self.read.contains(&id), "{one:?} never came to a consumer");
        }
    }
}

fn history(shard: &Shard, id: ScheduleId) -> Vec<HistoryItem> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = shard.history(&id.into(), None, (UnixMs::MIN, UnixMs(i64::MAX)), after, 1_000);
        let page = page.expect("a schedule of the log is known");
        all.extend(page.items);
        match page.next {
            Some(next) => after = Some(next),
            None => return all,
        }
    }
}

/// Every instant of every version has exactly one disposition, up to where all must be decided.
fn each_instant_once(
    id: ScheduleId,
    reigns: &[Reign],
    history: &[HistoryItem],
    zones: &Arc<ZoneSet>,
    decided_through: Option<UnixMs>,
) {
    let mut spans: Vec<(UnixMs, UnixMs)> = Vec::new();
    for item in history {
        match item {
            HistoryItem::Range(range) if range.kind == Kind::Regular => spans.push((range.first, range.last)),
            HistoryItem::Occurrence(one) if one.kind == Kind::Regular => {
                let reign = reigns.iter().find(|reign| reign.version == one.version).expect("versions are recorded");
                if reign.holds(one.scheduled_for) {
                    spans.push((one.scheduled_for, one.scheduled_for));
                } else {
                    // It ran before a crash after which the clock was set back.
                    assert_ne!(one.state, State::Scheduled, "{id}: {one:?} is not its version's");
                }
            }
            HistoryItem::Range(_) | HistoryItem::Occurrence(_) => {}
        }
    }
    spans.sort_unstable();
    let mut spans = spans.into_iter().peekable();
    for reign in reigns {
        let follows_runs = matches!(reign.rule.0, Rule::Every { basis, .. } if basis != Default::default());
        if follows_runs {
            while spans.next_if(|(first, _)| reign.holds(*first)).is_some() {}
            continue;
        }
        let mut decided = reign.from;
        while let Some((first, last)) = spans.next_if(|(first, _)| reign.holds(*first)) {
            let next = next_instant(zones, &reign.rule, decided);
            assert_eq!(next, Some(first), "{id} v{} after {decided}", reign.version);
            assert_eq!(next_instant(zones, &reign.rule, last.minus(1)), Some(last), "{last} is no instant of {id}");
            decided = last;
        }
        let Some(through) = reign.until.or(decided_through) else { continue };
        let next = next_instant(zones, &reign.rule, decided).filter(|_| reign.is_live);
        assert!(next.is_none_or(|next| next > through), "{id} v{}: {next:?} has no disposition", reign.version);
    }
    assert_eq!(spans.next(), None, "{id} has a disposition outside of every version");
}
