//! What workers and people do: claims, their ends, holds and decisions.

use super::{Chronicle, ChronicleError, Step, unfitting};
use crate::kernel::{
    attempt::{Death, Resolution},
    evidence::HoldReason,
    lease::LeaseToken,
    occurrence::{Reason, State},
    record::{Claimed, Held, LateResult, Resolved, RunFailed, RunsSucceeded, Then, Waited, numbers_of},
};

impl Chronicle {
    pub(super) fn claimed(&mut self, claimed: &Claimed) -> Result<(), ChronicleError> {
        self.check_runs(&claimed.occurrences)?;
        let worker = self.workers.name(claimed.worker).cloned();
        let worker = worker.ok_or_else(|| unfitting(format!("no worker {}", claimed.worker)))?;
        let (place, now, shard) = (self.place(), self.now, self.shard);
        let &Claimed { lease_ms, is_in_process, .. } = claimed;
        for (number, index) in numbers_of(&claimed.occurrences).zip(0_u16..) {
            let row = self.open_row(number)?;
            row.attempts = row.attempts.saturating_add(1);
            row.enqueued_at = row.enqueued_at.or(Some(now));
            row.has_run = true;
            let (attempt, worker, token) = (row.attempts, worker.clone(), LeaseToken { shard, lsn: place.1, index });
            row.note(place, || Step::Claimed { attempt, worker, lease_ms, is_in_process, token });
            self.occurrences.move_to(number, State::Running, None, now);
        }
        Ok(())
    }

    pub(super) fn succeeded(&mut self, succeeded: RunsSucceeded) -> Result<(), ChronicleError> {
        self.check_runs(&succeeded.occurrences)?;
        let (place, now) = (self.place(), self.now);
        let mut result_refs = succeeded.result_refs.into_iter().peekable();
        for (number, at) in numbers_of(&succeeded.occurrences).zip(0_u64..) {
            let result_ref = result_refs.next_if(|(of, _)| *of == at).map(|(_, result_ref)| result_ref);
            let row = self.open_row(number)?;
            let attempt = row.attempts;
            row.note(place, || Step::Succeeded { attempt, result_ref });
            self.occurrences.move_to(number, State::Succeeded, None, now);
        }
        Ok(())
    }

    pub(super) fn failed(&mut self, failed: RunFailed) -> Result<(), ChronicleError> {
        let RunFailed { occurrence: number, failure, message, then } = failed;
        let (place, now) = (self.place(), self.now);
        let row = self.open_row(number)?;
        let (attempt, called_off) = (row.attempts, row.called_off.unwrap_or(Reason::Canceled));
        row.note(place, || Step::Failed { attempt, failure, message, then });
        match then {
            Then::Retry { .. } => self.occurrences.move_to(number, State::RetryWait, None, now),
            Then::Dead(death) => self.occurrences.die(number, Reason::Dead(death), now),
            Then::Held(reason) => self.occurrences.move_to(number, State::Held, Some(Reason::Held(reason)), now),
            Then::Canceled => {
                row.note(place, || Step::Canceled { reason: called_off });
                self.occurrences.move_to(number, State::Canceled, Some(called_off), now);
            }
        }
        Ok(())
    }

    pub(super) fn waited(&mut self, waited: Waited) -> Result<(), ChronicleError> {
        let Waited { occurrence: number, for_permit } = waited;
        let place = self.place();
        self.open_row(number)?.note(place, || Step::Waited { for_permit });
        let reason = if for_permit { Reason::TenantConcurrency } else { Reason::Waiting };
        self.occurrences.move_to(number, State::Scheduled, Some(reason), self.now);
        Ok(())
    }

    pub(super) fn skipped(&mut self, number: u64) -> Result<(), ChronicleError> {
        let place = self.place();
        self.open_row(number)?.note(place, || Step::Skipped);
        self.occurrences.move_to(number, State::SkippedOverlap, None, self.now);
        Ok(())
    }

    pub(super) fn died(&mut self, number: u64) -> Result<(), ChronicleError> {
        let place = self.place();
        self.open_row(number)?.note(place, || Step::Died);
        self.occurrences.die(number, Reason::Dead(Death::Deadline), self.now);
        Ok(())
    }

    pub(super) fn held(&mut self, held: Held) -> Result<(), ChronicleError> {
        let place = self.place();
        let first = held.reasons.first().map(|reason: &HoldReason| Reason::Held(*reason));
        let row = self.open_row(held.occurrence)?;
        row.has_run = true;
        row.note(place, || Step::Held { reasons: held.reasons });
        self.occurrences.move_to(held.occurrence, State::Held, first, self.now);
        Ok(())
    }

    pub(super) fn replayed(&mut self, number: u64) -> Result<(), ChronicleError> {
        let place = self.place();
        self.open_row(number)?.note(place, || Step::Replayed);
        self.ask_for(number)
    }

    pub(super) fn resolved(&mut self, resolved: Resolved) -> Result<(), ChronicleError> {
        let Resolved { occurrence: number, resolution, reviewer, note } = resolved;
        let place = self.place();
        self.open_row(number)?.note(place, || Step::Resolved { resolution, reviewer, note });
        match resolution {
            Resolution::Retry => self.ask_for(number)?,
            Resolution::Succeeded => self.occurrences.move_to(number, State::Succeeded, None, self.now),
            Resolution::Dead => self.occurrences.die(number, Reason::Dead(Death::Resolved), self.now),
        }
        Ok(())
    }

    /// A person wants it to run: the queue has to be handed it anew.
    fn ask_for(&mut self, number: u64) -> Result<(), ChronicleError> {
        let row = self.open_row(number)?;
        (row.called_off, row.entry) = (None, None);
        self.occurrences.move_to(number, State::Enqueued, None, self.now);
        Ok(())
    }

    pub(super) fn late_result(&mut self, late: LateResult) -> Result<(), ChronicleError> {
        let place = self.place();
        let result_ref = late.result_ref;
        self.open_row(late.occurrence)?.note(place, || Step::LateResult { result_ref });
        Ok(())
    }
}
