//! The table of runs: what is known of each occurrence that was claimed, held, or is dead.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

use super::{
    people::PilePlace,
    repeats::{ByClaim, ClaimKey},
    snapshot::cut::{Cut, CutMap},
    unsettled::Unsettled,
};
use crate::kernel::{
    attempt::{Attempt, AttemptResult, Resolution},
    evidence::HoldReason,
    lease::LeaseToken,
    occurrence::{OccurrenceNo, Reason},
    time::UnixMs,
};

/// So many of an occurrence's attempts are kept, the latest; all of them are counted.
const KEEP_ATTEMPTS: usize = 16;

/// What became of an occurrence behind the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    /// How many attempts were made.
    pub(super) made: u32,
    /// How many are allowed in all; a replay grants more.
    pub(super) allowed: u32,
    /// The latest attempts, oldest first.
    pub(super) attempts: Vec<Attempt>,
    /// The latest claim's token: no other one moves the occurrence on.
    pub(super) token: Option<LeaseToken>,
    /// How long its lease lasts without a heartbeat.
    pub(super) lease_ms: i64,
    /// Whether a restart of the engine ends its attempt.
    pub(super) is_in_process: bool,
    /// The claim under whose id it runs, if its worker gave one.
    pub(super) claim: Option<Arc<ClaimKey>>,
    /// A call came while it ran: what it becomes unless it succeeds.
    pub(super) called_off: Option<Reason>,
    /// It was asked to stop.
    pub(super) stop_asked: bool,
    /// How long the latest retry had to wait.
    pub(super) delay_ms: Option<u64>,
    /// A person had it run again after its end: what comes of that is no end of its schedule's.
    pub(super) is_replayed: bool,
    /// When it died.
    pub(super) died_at: Option<UnixMs>,
    /// What people decided.
    pub(super) review: Option<Box<Review>>,
    /// Derived: when its lease or its back-off ends, in elapsed time.
    pub(super) lapses_at_ms: Option<i64>,
    /// Derived: its worker lived in a process that is gone.
    pub(super) is_orphan: bool,
}

/// What is known only of what people had to look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Review {
    /// Why it is HELD.
    pub(super) holds: Vec<HoldReason>,
    /// What people settled: it is not held for these again.
    pub(super) settled: Vec<HoldReason>,
    /// A person wants it to run, since then: it is never skipped, and its deadline counts from here.
    pub(super) asked_at: Option<UnixMs>,
    /// The latest decision: what, by whom, why.
    pub(super) decision: Option<(Resolution, String, String)>,
    /// What a worker answered after the attempt had been held.
    pub(super) late_result: Option<String>,
}

impl Run {
    /// A claim's attempt begins.
    pub(super) fn begin(&mut self, mut attempt: Attempt, token: LeaseToken) {
        self.made = self.made.saturating_add(1);
        attempt.number = self.made;
        self.token = Some(token);
        if self.attempts.len() == KEEP_ATTEMPTS {
            self.attempts.remove(0);
        }
        self.attempts.reserve_exact(1);
        self.attempts.push(attempt);
    }

    /// The running attempt ends.
    pub(super) fn finish(&mut self, result: AttemptResult, message: Option<String>, at: UnixMs) {
        if let Some(attempt) = self.attempts.last_mut() {
            (attempt.result, attempt.message, attempt.finished_at) = (Some(result), message, Some(at));
        }
        self.is_orphan = false;
    }

    pub(super) fn review_mut(&mut self) -> &mut Review {
        self.review.get_or_insert_default()
    }

    /// When a person asked for it to run.
    pub(super) fn asked_at(&self) -> Option<UnixMs> {
        self.review.as_ref()?.asked_at
    }
}

/// All runs, and what must be found among occurrences that have not ended.
#[derive(Debug, Default)]
pub(super) struct Runs {
    by_number: CutMap<OccurrenceNo, Run>,
    /// By schedule: what a queue follows and has not ended (ENQUEUED, RUNNING, RETRY_WAIT, HELD).
    unsettled: Unsettled,
    /// By tenant: what is DEAD, and since when.
    dead: BTreeMap<u32, BTreeSet<(UnixMs, OccurrenceNo)>>,
    /// By tenant: what is HELD.
    held: BTreeSet<(u32, OccurrenceNo)>,
    /// Derived: leases and back-offs by their end in elapsed time.
    lapses: BTreeSet<(i64, OccurrenceNo)>,
    by_claim: ByClaim,
}

impl Runs {
    pub(super) fn of(&self, number: OccurrenceNo) -> Option<&Run> {
        self.by_number.get(&number)
    }

    pub(super) fn of_mut(&mut self, number: OccurrenceNo) -> Option<&mut Run> {
        self.by_number.get_mut(&number)
    }

    /// The run of an occurrence, from now on if there was none.
    pub(super) fn entry(&mut self, number: OccurrenceNo) -> &mut Run {
        self.by_number.or_default(number)
    }

    pub(super) fn len(&self) -> usize {
        self.by_number.len()
    }

    pub(super) fn set_cut(&mut self, cut: Option<Cut<OccurrenceNo>>) {
        self.by_number.set_cut(cut);
    }

    /// Appends the image of the next run of the cut; false at its end.
    pub(super) fn sweep(&mut self, out: &mut Vec<u8>) -> bool {
        self.by_number.sweep(out)
    }

    /// Puts a run back; false if there is one already.
    pub(super) fn restore(&mut self, number: OccurrenceNo, run: Run) -> bool {
        self.by_number.insert(number, run).is_none()
    }

    /// How many attempts an occurrence had.
    pub(super) fn made(&self, number: OccurrenceNo) -> u32 {
        self.of(number).map_or(0, |run| run.made)
    }

    /// All runs, oldest occurrence first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (OccurrenceNo, &Run)> {
        self.by_number.iter().map(|(number, run)| (*number, run))
    }

    pub(super) fn set_unsettled(&mut self, schedule: u32, number: OccurrenceNo, is_unsettled: bool) {
        if is_unsettled {
            self.unsettled.insert(schedule, number);
        } else {
            self.unsettled.remove(schedule, number);
        }
    }

    /// What a queue follows of a schedule and has not ended, oldest number first.
    pub(super) fn unsettled_of(&self, schedule: u32) -> impl Iterator<Item = OccurrenceNo> {
        self.unsettled.of(schedule)
    }

    pub(super) fn set_held(&mut self, tenant: u32, number: OccurrenceNo, is_held: bool) {
        if is_held {
            self.held.insert((tenant, number));
        } else {
            self.held.remove(&(tenant, number));
        }
    }

    /// HELD occurrences behind `after`, of one tenant or of all: by tenant, oldest number first.
    pub(super) fn held(&self, tenant: Option<u32>, after: Option<PilePlace>) -> impl Iterator<Item = PilePlace> {
        let from = after.map(|after| (after.tenant, after.number));
        let from = from.map_or(Bound::Included((tenant.unwrap_or(0), OccurrenceNo(0))), Bound::Excluded);
        let held = self.held.range((from, Bound::Unbounded)).copied();
        let held = held.map(|(tenant, number)| PilePlace { tenant, at: UnixMs(0), number });
        held.take_while(move |place| tenant.is_none_or(|only| only == place.tenant))
    }

    /// An occurrence died, or lives again.
    pub(super) fn set_dead(&mut self, tenant: u32, number: OccurrenceNo, at: Option<UnixMs>) {
        let run = self.by_number.or_default(number);
        let before = std::mem::replace(&mut run.died_at, at);
        let dead = self.dead.entry(tenant).or_default();
        if let Some(before) = before {
            dead.remove(&(before, number));
        }
        if let Some(at) = at {
            dead.insert((at, number));
        } else if dead.is_empty() {
            self.dead.remove(&tenant);
        }
    }

    /// DEAD occurrences behind `after`, of one tenant or of all: by tenant, those that died first first.
    pub(super) fn dead(&self, tenant: Option<u32>, after: Option<PilePlace>) -> impl Iterator<Item = PilePlace> {
        let from = tenant.or(after.map(|after| after.tenant)).unwrap_or(0);
        let last = tenant.unwrap_or(u32::MAX);
        let places = self.dead.range(from..=last).flat_map(move |(tenant, dead)| {
            let tenant = *tenant;
            let behind = after.filter(|after| after.tenant == tenant).map(|after| (after.at, after.number));
            let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
            dead.range((from, Bound::Unbounded)).map(move |(at, number)| PilePlace { tenant, at: *at, number: *number })
        });
        places.skip_while(move |place| after.is_some_and(|after| *place <= after))
    }

    /// The tenant's occurrence that has been DEAD for longest.
    pub(super) fn longest_dead(&self, tenant: u32) -> Option<(UnixMs, OccurrenceNo)> {
        self.dead.get(&tenant)?.first().copied()
    }

    /// How many of a tenant's occurrences are DEAD.
    pub(super) fn dead_len(&self, tenant: u32) -> usize {
        self.dead.get(&tenant).map_or(0, BTreeSet::len)
    }

    /// The run's lease or back-off ends then, or is no more.
    pub(super) fn set_lapse(&mut self, number: OccurrenceNo, at_ms: Option<i64>) {
        let Some(run) = self.by_number.get_mut(&number) else { return };
        if let Some(before) = std::mem::replace(&mut run.lapses_at_ms, at_ms) {
            self.lapses.remove(&(before, number));
        }
        if let Some(at_ms) = at_ms {
            self.lapses.insert((at_ms, number));
        }
    }

    /// The run is one of that claim's, or of none any more.
    pub(super) fn set_claim(&mut self, number: OccurrenceNo, key: Option<&Arc<ClaimKey>>) {
        if key.is_none() && self.by_claim.is_empty() {
            return;
        }
        let before = self.of(number).and_then(|run| run.claim.clone());
        if before.as_ref() == key {
            return;
        }
        let Some(run) = self.by_number.get_mut(&number) else { return };
        run.claim = key.cloned();
        if let Some(before) = before {
            self.by_claim.remove(&before, number);
        }
        if let Some(key) = key {
            self.by_claim.insert(key, number);
        }
    }

    /// What runs under a claim's id.
    pub(super) const fn by_claim(&self) -> &ByClaim {
        &self.by_claim
    }

    /// The first lease or back-off that ends.
    pub(super) fn first_lapse(&self) -> Option<(i64, OccurrenceNo)> {
        self.lapses.first().copied()
    }

    /// Everything that lapses, for the checker.
    pub(super) fn lapses(&self) -> impl Iterator<Item = (i64, OccurrenceNo)> {
        self.lapses.iter().copied()
    }

    /// An occurrence is forgotten.
    pub(super) fn forget(&mut self, tenant: u32, number: OccurrenceNo) {
        if self.of(number).is_some_and(|run| run.died_at.is_some()) {
            self.set_dead(tenant, number, None);
        }
        self.set_lapse(number, None);
        self.by_number.remove(&number);
    }
}
