//! `apply` of what workers and people do with runs.

use std::sync::Arc;

use super::{
    Inconsistent, Shard,
    claims::{CLAIM_ID_BYTES, CLAIM_LIMIT, LEASE_MS_AT_MOST},
    occurrences::{Holder, Occurrences},
    repeats::ClaimKey,
};
use crate::kernel::{
    attempt::{Attempt, AttemptResult, Death, Resolution},
    evidence::HoldReason,
    gate::Lsn,
    id::Kind,
    lease::LeaseToken,
    occurrence::{EntryId, OccurrenceNo, Reason, State},
    record::{
        Claimed, Held, LateResult, Replayed, Resolved, RunFailed, RunsSucceeded, Settled, Then, Waited, numbers_of,
    },
    time::UnixMs,
};

/// A DEAD occurrence is kept this long...
pub(super) const KEEP_DEAD_MS: i64 = 30 * 86_400_000;
/// ...and at most so many of a tenant.
pub(super) const KEEP_DEAD: usize = 100_000;

/// Retries are counted by the UTC day of engine time.
pub(super) const DAY_MS: i64 = 86_400_000;

impl Shard {
    /// The occurrence exists, its queue follows it to its end, and it is in one of `states`.
    fn check_state(&self, number: u64, states: &[State], what: &str) -> Result<OccurrenceNo, Inconsistent> {
        let row = self.occurrences.row(OccurrenceNo(number));
        let fits = row.is_some_and(|row| row.is_tracked && states.contains(&row.state));
        self.check(fits, || format!("occurrence {number} {what}"))?;
        Ok(OccurrenceNo(number))
    }

    pub(super) fn apply_claimed(&mut self, claimed: &Claimed, id: Option<&str>) -> Result<(), Inconsistent> {
        let worker = self.workers.name(claimed.worker).map(Arc::clone);
        let Some(worker) = worker else {
            return Err(Inconsistent::new(self.lsn, format!("no worker {}", claimed.worker)));
        };
        self.check_runs(&claimed.occurrences)?;
        let named = claimed.occurrences.iter().map(|(_, length)| *length).sum::<u64>();
        let lease_ms = i64::try_from(claimed.lease_ms).unwrap_or(i64::MAX);
        let fits = named <= CLAIM_LIMIT as u64 && (1..=LEASE_MS_AT_MOST).contains(&lease_ms);
        self.check(fits, || format!("{named} leases of {lease_ms} ms"))?;
        let fits = id.is_none_or(|id| (1..=CLAIM_ID_BYTES).contains(&id.len()));
        self.check(fits, || format!("a claim's id has more than {CLAIM_ID_BYTES} bytes, or none"))?;
        let key = id.map(|id| Arc::new(ClaimKey { worker: Arc::clone(&worker), id: id.into() }));
        let lsn = Lsn(self.lsn.0 + 1);
        for (number, index) in numbers_of(&claimed.occurrences).zip(0_u16..) {
            let claimable = [State::Scheduled, State::Enqueued, State::RetryWait];
            let number = self.check_state(number, &claimable, "claimed")?;
            let token = LeaseToken { shard: self.config.shard, lsn, index };
            self.begin_run(number, token, &worker, (lease_ms, claimed.is_in_process));
            if let Some(key) = &key {
                self.runs.set_claim(number, Some(key));
            }
        }
        Ok(())
    }

    fn begin_run(&mut self, number: OccurrenceNo, token: LeaseToken, worker: &Arc<str>, lease: (i64, bool)) {
        let now = self.log_time;
        let row = self.occurrences.row(number).expect("checked by the caller");
        // Its landing has not been heard of yet: no answer of the queue is lost.
        let holder = if row.holder == Holder::Queue { Holder::Claimed } else { Holder::Nobody };
        let max_attempts = self.policies_of(row.schedule, row.version).retry.max_attempts;
        self.occurrences.hold(number, holder);
        self.note_first_acceptance(number, now);
        self.move_to(number, State::Running, None);
        let run = self.runs.entry(number);
        if run.made == 0 && run.allowed == 0 {
            run.allowed = max_attempts;
        }
        (run.lease_ms, run.is_in_process) = lease;
        let attempt = Attempt {
            number: 0,
            worker: Arc::clone(worker),
            started_at: now,
            finished_at: None,
            lease_expires_at: now.plus(run.lease_ms),
            result: None,
            message: None,
            result_ref: None,
        };
        run.begin(attempt, token);
        if run.made == 1 {
            self.note_first_claim(number);
        }
    }

    /// The first acceptance by the queue is when an occurrence was enqueued.
    pub(super) fn note_first_acceptance(&mut self, number: OccurrenceNo, at: UnixMs) {
        let row = self.occurrences.row_mut(number).expect("checked by the caller");
        if row.enqueued_at.is_some() {
            return;
        }
        row.enqueued_at = Some(at);
        let ran_at = (row.kind == Kind::Regular).then_some(row.scheduled_for);
        let of = self.schedules.row_mut(row.schedule).expect("an occurrence has a schedule");
        of.last_run_at = of.last_run_at.max(ran_at);
    }

    pub(super) fn apply_succeeded(&mut self, succeeded: &RunsSucceeded) -> Result<(), Inconsistent> {
        self.check_runs(&succeeded.occurrences)?;
        let now = self.log_time;
        let mut result_refs = succeeded.result_refs.iter().peekable();
        for (number, place) in numbers_of(&succeeded.occurrences).zip(0_u64..) {
            let number = self.check_state(number, &[State::Running], "succeeded")?;
            let run = self.runs.entry(number);
            run.finish(AttemptResult::Succeeded, None, now);
            if let Some((_, result_ref)) = result_refs.next_if(|(at, _)| *at == place)
                && let Some(attempt) = run.attempts.last_mut()
            {
                attempt.result_ref = Some(result_ref.clone());
            }
            self.move_to(number, State::Succeeded, None);
        }
        Ok(())
    }

    pub(super) fn apply_failed(&mut self, failed: &RunFailed) -> Result<(), Inconsistent> {
        let number = self.check_state(failed.occurrence, &[State::Running], "failed")?;
        let now = self.log_time;
        let run = self.runs.entry(number);
        run.finish(AttemptResult::Failed(failed.failure), failed.message.clone(), now);
        match failed.then {
            Then::Retry { delay_ms } => {
                run.delay_ms = Some(delay_ms);
                self.move_to(number, State::RetryWait, None);
                let schedule = self.occurrences.row(number).expect("checked above").schedule;
                let of = self.schedules.row_mut(schedule).expect("an occurrence has a schedule");
                of.count_retry(now.0.div_euclid(DAY_MS));
            }
            Then::Dead(death) => self.die(number, death),
            Then::Held(reason) => self.put_on_hold(number, &[reason]),
            Then::Canceled => {
                let reason = run.called_off.unwrap_or(Reason::Canceled);
                self.move_to(number, State::Canceled, Some(reason));
            }
        }
        Ok(())
    }

    pub(super) fn apply_waited(&mut self, waited: &Waited) -> Result<(), Inconsistent> {
        let number = self.check_state(waited.occurrence, &[State::Scheduled, State::Enqueued], "waits")?;
        let reason = if waited.for_permit { Reason::TenantConcurrency } else { Reason::Waiting };
        self.occurrences.hold(number, Holder::Nobody);
        self.move_to(number, State::Scheduled, Some(reason));
        Ok(())
    }

    pub(super) fn apply_skipped(&mut self, number: u64) -> Result<(), Inconsistent> {
        let number = self.check_state(number, &[State::Scheduled, State::Enqueued], "skipped")?;
        self.dispose(number, State::SkippedOverlap, None);
        Ok(())
    }

    pub(super) fn apply_died(&mut self, number: u64) -> Result<(), Inconsistent> {
        let dying = [State::Scheduled, State::Enqueued, State::RetryWait];
        let number = self.check_state(number, &dying, "died")?;
        self.die(number, Death::Deadline);
        Ok(())
    }

    pub(super) fn apply_held(&mut self, held: &Held) -> Result<(), Inconsistent> {
        let states = [State::Scheduled, State::Enqueued, State::RetryWait];
        let number = self.check_state(held.occurrence, &states, "held")?;
        let fits = (1..=HoldReason::ALL.len()).contains(&held.reasons.len());
        self.check(fits, || format!("occurrence {} held for {} reasons", number.0, held.reasons.len()))?;
        self.put_on_hold(number, &held.reasons);
        Ok(())
    }

    fn put_on_hold(&mut self, number: OccurrenceNo, reasons: &[HoldReason]) {
        self.occurrences.hold(number, Holder::Nobody);
        self.runs.entry(number).review_mut().holds = reasons.to_vec();
        let reason = reasons.first().map(|reason| Reason::Held(*reason));
        self.move_to(number, State::Held, reason);
    }

    /// An occurrence is DEAD; the tenant's oldest that need not be kept go, at most two.
    fn die(&mut self, number: OccurrenceNo, death: Death) {
        self.occurrences.hold(number, Holder::Nobody);
        self.move_to(number, State::Dead, Some(Reason::Dead(death)));
        let tenant = self.occurrences.row(number).expect("it just died").tenant;
        self.runs.set_dead(tenant, number, Some(self.log_time));
        for _ in 0..2 {
            let Some((at, oldest)) = self.runs.longest_dead(tenant) else { return };
            if self.runs.dead_len(tenant) <= KEEP_DEAD && self.log_time.since(at) <= KEEP_DEAD_MS {
                return;
            }
            self.forget(oldest);
        }
    }

    pub(super) fn apply_replayed(&mut self, replayed: &Replayed) -> Result<(), Inconsistent> {
        let number = self.check_state(replayed.occurrence, &[State::Dead], "replayed")?;
        let row = self.occurrences.row(number).expect("checked above");
        let (tenant, policies) = (row.tenant, self.policies_of(row.schedule, row.version));
        self.runs.set_dead(tenant, number, None);
        let run = self.runs.entry(number);
        run.allowed = run.made.saturating_add(policies.retry.max_attempts);
        run.is_replayed = true;
        self.ask_for(number);
        Ok(())
    }

    pub(super) fn apply_resolved(&mut self, resolved: &Resolved) -> Result<(), Inconsistent> {
        let number = self.check_state(resolved.occurrence, &[State::Held], "resolved")?;
        let run = self.runs.entry(number);
        let review = run.review_mut();
        let holds = std::mem::take(&mut review.holds);
        review.decision = Some((resolved.resolution, resolved.reviewer.clone(), resolved.note.clone()));
        match resolved.resolution {
            Resolution::Retry => {
                review.settled.extend(holds);
                review.settled.sort_unstable();
                review.settled.dedup();
                run.allowed = run.made.saturating_add(1);
                self.ask_for(number);
            }
            Resolution::Succeeded => self.move_to(number, State::Succeeded, None),
            Resolution::Dead => self.die(number, Death::Resolved),
        }
        Ok(())
    }

    /// A person wants it to run: it is the queue's again, which has to be handed it anew.
    fn ask_for(&mut self, number: OccurrenceNo) {
        let now = self.log_time;
        let run = self.runs.entry(number);
        (run.called_off, run.stop_asked) = (None, false);
        run.review_mut().asked_at = Some(now);
        self.occurrences.row_mut(number).expect("checked by the caller").entry = None;
        self.move_to(number, State::Enqueued, None);
    }

    pub(super) fn apply_settled(&mut self, settled: &Settled) -> Result<(), Inconsistent> {
        self.check((settled.stream as usize) < self.streams.len(), || format!("no stream {}", settled.stream))?;
        for number in self.settled_rows(settled) {
            let row = self.occurrences.row_mut(number).expect("it was just found");
            (row.is_tracked, row.is_settled) = (false, true);
            let schedule = row.schedule;
            self.occurrences.hold(number, Holder::Nobody);
            self.runs.set_unsettled(schedule, number, false);
            self.live -= 1;
            self.touch(schedule)?;
            self.note_end(number);
            self.end(number);
        }
        let Settled { stream, generation, counter } = *settled;
        self.entries[stream as usize].forget_through(EntryId { generation, counter });
        Ok(())
    }

    /// What consumers acknowledged without ever asking for it: it is theirs, and done.
    pub(super) fn settled_rows(&self, settled: &Settled) -> Vec<OccurrenceNo> {
        self.acknowledged_rows(settled).filter(|number| self.runs.of(*number).is_none()).collect()
    }

    /// What consumers acknowledged and is still ENQUEUED.
    pub(super) fn acknowledged_rows(&self, settled: &Settled) -> impl Iterator<Item = OccurrenceNo> {
        let through = EntryId { generation: settled.generation, counter: settled.counter };
        let entries = self.entries.get(settled.stream as usize).into_iter().flat_map(move |all| all.through(through));
        entries.filter(|(entry, number)| is_entry_of(&self.occurrences, *entry, *number)).map(|(_, number)| number)
    }

    pub(super) fn apply_late_result(&mut self, late: &LateResult) -> Result<(), Inconsistent> {
        let number = self.check_state(late.occurrence, &[State::Held], "was answered too late")?;
        self.runs.entry(number).review_mut().late_result = Some(late.result_ref.clone());
        Ok(())
    }
}

/// Whether an entry is the one by which a queue that is followed holds an occurrence.
pub(super) fn is_entry_of(occurrences: &Occurrences, entry: EntryId, number: OccurrenceNo) -> bool {
    let row = occurrences.row(number);
    row.is_some_and(|row| row.state == State::Enqueued && row.is_tracked && row.entry == Some(entry))
}
