//! Workers as a script wants them: they claim what they read, beat, answer in time or too late, twice or never, and some
//! die. What they hold is kept beside the shard, by their own clock.

use super::{script::Script, world::World};
use crate::kernel::{
    attempt::{AttemptResult, FailureClass, Resolution},
    id::OccurrenceId,
    lease::LeaseToken,
    occurrence::{OccurrenceNo, State},
    policy::Overlap,
    record::Record,
    shard::{ClaimRefusal, Claiming, Decided, FailedRun, Pile, Speaking, Turn, occurrences::OccurrenceRow},
};

/// A claim that a worker was granted once.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    number: OccurrenceNo,
    id: OccurrenceId,
    token: LeaseToken,
    /// By the workers' clock; what was answered is over.
    ends_at_ms: i64,
    /// Where its result was said to be when it was completed.
    completed: Option<Option<String>>,
    /// Whose claim it was, under which id, if any.
    claim: Option<(&'static str, &'static str)>,
}

const QUEUES: [&str; 2] = ["one", "two"];
const WORKERS: [&str; 2] = ["w1", "w2"];
const LEASES_MS: [u64; 4] = [1, 500, 5_000, 60_000];

impl World {
    /// A worker reads some entries, and claims them.
    pub(super) fn claim(&mut self, script: &mut Script<'_>) {
        let readable = self.queue.readable();
        if readable.is_empty() {
            return;
        }
        let count = 1 + script.below(4);
        let picked: Vec<_> = (0..count).map(|_| readable[script.below(readable.len().min(60_000))]).collect();
        let sent: Vec<_> = picked.into_iter().map(|(_, _, sent)| sent).collect();
        let lease_ms = LEASES_MS[script.below(LEASES_MS.len())];
        let is_in_process = self.config.is_embedded && script.chance(100);
        let claim_id = script.chance(80).then(|| ["one", "two"][script.below(2)]);
        self.claim_sent(&sent, lease_ms, is_in_process, claim_id);
        if claim_id.is_some() {
            self.repeat_claims();
        }
    }

    /// Claims under an id answer what still runs under it, with the tokens and the ends that the leases have.
    pub(super) fn repeat_claims(&self) {
        let mut answered = Vec::new();
        for (queue, worker, id) in QUEUES
            .iter()
            .flat_map(|queue| WORKERS.iter().flat_map(move |worker| ["one", "two"].map(|id| (*queue, *worker, id))))
        {
            let (granted, rests_on) = self.shard.claimed_before(queue, worker, id);
            assert!(granted.is_sorted_by(|a, b| a.token < b.token) && granted.iter().all(|g| g.token.lsn <= rests_on));
            for again in granted {
                assert_eq!(self.shard.queue_of(again.occurrence_id), Some(queue));
                answered.push((again.token, Some((worker, id))));
            }
        }
        answered.sort_unstable();
        let stands = |lease: &&Lease| {
            let run = self.shard.runs.of(lease.number);
            let is_latest = run.is_some_and(|run| run.token == Some(lease.token));
            lease.claim.is_some() && self.is_valid(lease) && is_latest && self.state_of(lease.number) == State::Running
        };
        let mut expected: Vec<_> = self.leases.iter().filter(stands).map(|lease| (lease.token, lease.claim)).collect();
        expected.sort_unstable();
        assert_eq!(answered, expected);
    }

    fn claim_sent(
        &mut self,
        sent: &[(OccurrenceId, u32)],
        lease_ms: u64,
        is_in_process: bool,
        claim_id: Option<&'static str>,
    ) {
        let known = |(id, _): &(OccurrenceId, u32)| self.shard.occurrences.number(*id).expect("what was sent is known");
        let numbers: Vec<OccurrenceNo> = sent.iter().map(known).collect();
        let now = self.command_time();
        let mut turn = Turn::default();
        let worker = WORKERS[sent.len() % 2];
        let claiming = Claiming { worker, lease_ms, is_in_process, claim_id };
        let (answers, _) = self.shard.claim(&numbers, &claiming, now, &mut turn);
        let is_alone = answers.iter().flatten().count() == 1;
        for ((answer, number), sent) in answers.into_iter().zip(numbers).zip(sent) {
            match answer {
                Ok(granted) => {
                    let held = self.leases.iter().find(|l| l.number == number && l.ends_at_ms > self.boottime_ms);
                    assert!(held.is_none(), "two valid leases: {granted:?} beside {held:?}");
                    let older = self.leases.iter().map(|lease| lease.token).max();
                    assert!(older < Some(granted.token), "{granted:?} is not above {older:?}");
                    // What was granted behind it in the same call may have another version's policy.
                    if is_alone {
                        self.check_alone(number);
                    }
                    self.leases.push(Lease {
                        number,
                        id: granted.occurrence_id,
                        token: granted.token,
                        ends_at_ms: self.boottime_ms + i64::try_from(lease_ms).expect("a minute"),
                        completed: None,
                        claim: claim_id.map(|id| (worker, id)),
                    });
                }
                Err(ClaimRefusal::NotHeard | ClaimRefusal::AlreadyRunning) => {}
                // Nobody follows it: it was delivered, and that is all.
                Err(_) if !self.shard.occurrences.row(number).is_some_and(|row| row.is_tracked) => {}
                Err(_) => self.queue.refused(sent.0),
            }
        }
        self.carry_out(turn);
    }

    /// With a policy other than ALLOW nothing of the schedule runs beside what was just claimed.
    fn check_alone(&self, number: OccurrenceNo) {
        let row = self.shard.occurrences.row(number).expect("it was just claimed");
        if self.shard.policies_of(row.schedule, row.version).overlap != Overlap::Allow {
            let is_beside = |other: &OccurrenceRow| other.schedule == row.schedule && other.state == State::Running;
            let running = self.shard.occurrences.iter().filter(|(_, other)| is_beside(other)).count();
            assert_eq!(running, 1, "{row:?} runs beside another");
        }
    }

    fn draw_lease(&self, script: &mut Script<'_>) -> Option<Lease> {
        // Mostly the latest ones.
        let back = if script.chance(180) { script.below(4) } else { script.below(256) };
        let at = self.leases.len().checked_sub(1)?.saturating_sub(back);
        Some(self.leases[at].clone())
    }

    fn is_valid(&self, lease: &Lease) -> bool {
        lease.ends_at_ms > self.boottime_ms
    }

    fn lease_mut(&mut self, token: LeaseToken) -> &mut Lease {
        self.leases.iter_mut().find(|lease| lease.token == token).expect("it was drawn from there")
    }

    pub(super) fn beat(&mut self, script: &mut Script<'_>) {
        let Some(lease) = self.draw_lease(script) else { return };
        let lease_ms = LEASES_MS[script.below(LEASES_MS.len())];
        let now = self.command_time();
        let beat = Speaking { occurrence: lease.id, token: lease.token, said: lease_ms };
        let (answers, _) = self.shard.heartbeat(&[beat], now);
        assert_eq!(answers[0].is_ok(), self.is_valid(&lease), "{lease:?} at {}: {answers:?}", self.boottime_ms);
        if answers[0].is_ok() {
            let ends_at_ms = self.boottime_ms + i64::try_from(lease_ms).expect("a minute");
            self.lease_mut(lease.token).ends_at_ms = ends_at_ms;
        }
    }

    /// A worker completes something, perhaps twice, perhaps too late.
    pub(super) fn complete(&mut self, script: &mut Script<'_>) {
        let Some(lease) = self.draw_lease(script) else { return };
        let is_twice = script.chance(60);
        let now = self.command_time();
        let (is_valid, before) = (self.is_valid(&lease), self.state_of(lease.number));
        let mut turn = Turn::default();
        let result_ref = script.chance(80).then(|| "ref".to_owned());
        let speaking = Speaking { occurrence: lease.id, token: lease.token, said: result_ref.clone() };
        let said = if is_twice { vec![speaking.clone(), speaking] } else { vec![speaking] };
        let (answers, _) = self.shard.complete(&said, now, &mut turn);
        let is_again = lease.completed.as_ref() == Some(&result_ref) && before == State::Succeeded;
        for answer in &answers {
            assert_eq!(answer.is_ok(), is_valid || is_again, "{lease:?}: {answers:?}");
        }
        if is_valid {
            let lease = self.lease_mut(lease.token);
            (lease.completed, lease.ends_at_ms) = (Some(result_ref), i64::MIN);
        } else {
            self.check_unmoved(&lease, before, &turn);
        }
        self.carry_out(turn);
    }

    pub(super) fn fail(&mut self, script: &mut Script<'_>) {
        let Some(lease) = self.draw_lease(script) else { return };
        let class = FailureClass::ALL[script.below(3)];
        let now = self.command_time();
        let (is_valid, before) = (self.is_valid(&lease), self.state_of(lease.number));
        let stop_asked = self.shard.runs.of(lease.number).is_some_and(|run| run.stop_asked);
        let mut turn = Turn::default();
        let said = FailedRun { class, message: None };
        let speaking = Speaking { occurrence: lease.id, token: lease.token, said };
        let (answers, _) = self.shard.fail(&[speaking], now, &mut turn);
        let is_allowed = class != FailureClass::Canceled || stop_asked;
        if is_valid && is_allowed {
            assert!(answers[0].is_ok(), "{lease:?}: {answers:?}");
            self.lease_mut(lease.token).ends_at_ms = i64::MIN;
        } else {
            assert!(!is_valid || answers[0].is_err());
            self.check_unmoved(&lease, before, &turn);
        }
        self.carry_out(turn);
    }

    fn state_of(&self, number: OccurrenceNo) -> State {
        self.shard.occurrences.row(number).expect("nothing is forgotten within a script").state
    }

    /// A stale token changes no state; a late answer to what is held may be noted.
    fn check_unmoved(&self, lease: &Lease, before: State, turn: &Turn) {
        assert_eq!(self.state_of(lease.number), before, "{lease:?} is stale and moved it");
        let is_note = |record: &Record| matches!(record, Record::LateResult(_) | Record::Time(_));
        assert!(turn.records.iter().all(is_note), "{lease:?} is stale: {:?}", turn.records);
    }

    /// A person replays what is dead, or decides about what is held.
    pub(super) fn review(&mut self, script: &mut Script<'_>) {
        let tenant = ["a", "b"][script.below(2)];
        let now = self.command_time();
        let mut turn = Turn::default();
        let resolution = Resolution::ALL[script.below(3)];
        if script.chance(128) {
            let dead = self.shard.pile(Pile::Dead, Some(tenant), None, 100).items;
            if let Some(dead) = dead.get(script.below(dead.len())) {
                let _ = self.shard.replay_dead(dead.id, Some(tenant), now, &mut turn);
            }
        } else {
            let held = self.shard.pile(Pile::Held, Some(tenant), None, 100).items;
            if let Some(held) = held.get(script.below(held.len())) {
                let decided = Decided { resolution, reviewer: "ops".into(), note: "looked".into() };
                let _ = self.shard.resolve_held(held.id, Some(tenant), decided, now, &mut turn);
            }
        }
        self.carry_out(turn);
    }

    /// Consumers that claim nothing acknowledged everything up to some entry.
    pub(super) fn acknowledge(&mut self, script: &mut Script<'_>) {
        let readable = self.queue.readable();
        if !readable.is_empty() && script.chance(60) {
            let (stream, entry, _) = readable[script.below(readable.len().min(60_000))];
            let now = self.command_time();
            let mut turn = Turn::default();
            // What had been claimed before may be sent again.
            let Self { queue, shard, .. } = self;
            for (_, sent) in queue.lines[&stream].entries.iter().filter(|(id, _)| *id <= entry) {
                if shard.occurrences.number(sent.0).is_some_and(|number| shard.runs.of(number).is_some()) {
                    queue.accepted.remove(sent);
                }
            }
            self.shard.settled(stream, entry, now, &mut turn);
            self.carry_out(turn);
        }
    }

    /// Workers and people behave: what can run runs and succeeds, what is held is decided.
    pub(super) fn behave(&mut self) {
        let rows = self.shard.occurrences.iter();
        let waiting = rows.filter(|(_, row)| row.state == State::Enqueued && row.is_tracked);
        let sent: Vec<_> = waiting.map(|(number, row)| (row.id, self.shard.runs.made(number) + 1)).collect();
        self.claim_sent(&sent, 60_000, false, None);
        let now = self.command_time();
        let mut turn = Turn::default();
        let valid: Vec<Lease> = self.leases.iter().filter(|lease| self.is_valid(lease)).cloned().collect();
        let done = valid.iter().map(|lease| Speaking { occurrence: lease.id, token: lease.token, said: None });
        let (answers, _) = self.shard.complete(&done.collect::<Vec<_>>(), now, &mut turn);
        assert!(answers.iter().all(Result::is_ok), "{answers:?} of {valid:?}");
        for lease in &valid {
            self.lease_mut(lease.token).ends_at_ms = i64::MIN;
        }
        for held in self.shard.pile(Pile::Held, None, None, 100).items {
            let decided = Decided { resolution: Resolution::Succeeded, reviewer: "ops".into(), note: "".into() };
            self.shard.resolve_held(held.id, None, decided, now, &mut turn).expect("it is held");
        }
        self.carry_out(turn);
    }

    /// The engine came up: tokens that the log knows get a whole lease, those of its own process none.
    pub(super) fn keep_leases(&mut self) {
        let mut leases = std::mem::take(&mut self.leases);
        let lsn = self.shard.lsn();
        leases.retain(|lease| lease.token.lsn <= lsn && self.shard.occurrences.row(lease.number).is_some());
        for lease in &mut leases {
            let run = self.shard.runs.of(lease.number);
            let run = run.filter(|run| run.token == Some(lease.token));
            let goes_on = run.filter(|run| !run.is_in_process && self.state_of(lease.number) == State::Running);
            lease.ends_at_ms = goes_on.map_or(i64::MIN, |run| self.boottime_ms + run.lease_ms);
            let last = run.and_then(|run| run.attempts.last());
            let succeeded = last.filter(|attempt| attempt.result == Some(AttemptResult::Succeeded));
            lease.completed = succeeded.map(|attempt| attempt.result_ref.clone());
        }
        self.leases = leases;
    }
}
