//! What users and workers ask for: create, cancel, complete.

use super::{
    Shard, Turn, Urgency,
    occurrences::{Holder, OccurrenceRow},
    plan::Plan,
};
use crate::kernel::{
    calendar::{DayMatch, FoldChoice, Gap, LocalFold},
    gate::Lsn,
    id::ScheduleId,
    occurrence::{OccurrenceNo, QueueNo, State},
    record::{self, Completed, LocalBody, Named, Record, RuleBody, ScheduleCreated, runs_of},
    refusal::{Refusal, RefusalCode},
    schedule::{RangeDisposition, Receipt, Rule, Schedule, Spec},
    time::UnixMs,
};

/// At most this many ids a list of a receipt; the rest is counted.
const RECEIPT_IDS: usize = 1_000;

/// A schedule was ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Canceled {
    /// As it stands now.
    pub schedule: Schedule,
    /// What that changed.
    pub receipt: Receipt,
}

impl Shard {
    /// Makes a schedule under `id`, which must be new. The answer may leave once the LSN is durable.
    ///
    /// # Errors
    /// A rule without an instant after `now`.
    pub fn create(
        &mut self,
        id: ScheduleId,
        spec: &Spec,
        now: UnixMs,
        turn: &mut Turn,
    ) -> Result<(Schedule, Lsn), Refusal> {
        let rule = rule_body(spec, now.max(self.log_time));
        let plan = Plan::new(&rule, spec.start_at, spec.end_at, &mut self.calendar);
        let first = plan.next(now.max(self.log_time), &mut self.calendar);
        plan.release(&mut self.calendar);
        if first.is_none() {
            return Err(no_instant(spec, now));
        }
        let tenant = match self.tenants.number(&spec.tenant) {
            Some(number) => number,
            None => {
                let number = self.tenants.next();
                self.record(Record::TenantNamed(Named { name: spec.tenant.clone() }), now, turn);
                number
            }
        };
        let queue = self.queue_for(&spec.queue, now, turn);
        let created = ScheduleCreated {
            id: id.0,
            version: 1,
            tenant,
            queue,
            name: spec.name.clone(),
            rule,
            start_at_ms: spec.start_at.map(|at| at.0),
            end_at_ms: spec.end_at.map(|at| at.0),
            payload: spec.payload.clone(),
            flexible_window_ms: spec.flexible_window_ms,
            max_lateness_ms: spec.max_lateness_ms,
        };
        let number = self.schedules.next();
        self.record(Record::ScheduleCreated(Box::new(created)), now, turn);
        turn.urge(Urgency::Prompt);
        self.rearm(number);
        Ok((self.view(number, now), self.lsn))
    }

    fn queue_for(&mut self, name: &str, now: UnixMs, turn: &mut Turn) -> u32 {
        if let Some(number) = self.queues.number(name) {
            return number;
        }
        let number = self.queues.next();
        self.record(Record::QueueNamed(Named { name: name.to_owned() }), now, turn);
        turn.queues.push(QueueNo(number));
        number
    }

    /// Ends a schedule. First it is brought up to `now`: what was due and not materialised becomes one range. What is
    /// with the queue already stays and is listed as kept. Repeated: the same schedule and an empty receipt.
    #[must_use]
    pub fn cancel(&mut self, id: ScheduleId, now: UnixMs, turn: &mut Turn) -> Option<(Canceled, Lsn)> {
        let number = self.schedules.number(id)?;
        let row = self.schedule(number);
        let mut receipt = Receipt { version: row.version, ..Receipt::default() };
        if row.canceled {
            let lsn = row.changed;
            return Some((Canceled { schedule: self.view(number, now), receipt }, lsn));
        }
        let base = now.max(self.log_time);
        let (canceled, mut kept) = self.reachable(number, base);
        let out_of_reach: Vec<u64> = kept.iter().map(|number| number.0).collect();
        let row = self.schedules.row(number).expect("found above");
        let due = row.next.filter(|next| *next <= base).and_then(|first| {
            let last = row.plan.latest(row.decided_through, base, &mut self.calendar)?;
            Some((first.since(base), last.since(base)))
        });
        let record = record::Canceled { schedule: number, kept: runs_of(&out_of_reach), due };
        self.record(Record::Canceled(record), now, turn);
        turn.urge(Urgency::Prompt);
        self.rearm(number);
        self.counters.canceled += canceled.len() as u64 + self.count_last_range(number, RangeDisposition::Canceled);
        kept.extend(self.enqueued_of(number));
        kept.sort_unstable();
        let over = canceled.len().saturating_sub(RECEIPT_IDS) + kept.len().saturating_sub(RECEIPT_IDS);
        receipt.truncated = over as u64;
        receipt.canceled = self.ids(&canceled);
        receipt.kept = self.ids(&kept);
        receipt.ranges = due.and_then(|_| self.schedule(number).text.ranges.last().copied()).into_iter().collect();
        Some((Canceled { schedule: self.view(number, now), receipt }, self.lsn))
    }

    /// Which SCHEDULED occurrences a command still reaches, and which may be with the queue. After an opening that is
    /// every one that could have been handed over before, until the queue has been read back.
    fn reachable(&self, schedule: u32, now: UnixMs) -> (Vec<OccurrenceNo>, Vec<OccurrenceNo>) {
        let may_be_there = |number: OccurrenceNo, row: &OccurrenceRow| {
            row.holder == Holder::Queue || (number < self.unread_below && row.available_at <= now)
        };
        let scheduled = self.scheduled_of(schedule).into_iter();
        let (kept, canceled) =
            scheduled.partition(|&number| self.occurrences.row(number).is_some_and(|row| may_be_there(number, row)));
        (canceled, kept)
    }

    /// What is with workers and not completed.
    fn enqueued_of(&self, schedule: u32) -> Vec<OccurrenceNo> {
        let mut found = Vec::new();
        if self.config.final_when_enqueued {
            return found;
        }
        let mut at = self.schedule(schedule).newest;
        while let Some(number) = at
            && let Some(row) = self.occurrences.row(number)
        {
            if row.state == State::Enqueued {
                found.push(number);
            }
            at = row.older;
        }
        found
    }

    fn ids(&self, numbers: &[OccurrenceNo]) -> Vec<crate::kernel::id::OccurrenceId> {
        let rows = numbers.iter().take(RECEIPT_IDS).filter_map(|number| self.occurrences.row(*number));
        rows.map(|row| row.id).collect()
    }

    /// A worker completed what it took. Repeated: the same answer. `None`: there is no such occurrence with a worker.
    #[must_use]
    pub fn complete(&mut self, number: OccurrenceNo, now: UnixMs, turn: &mut Turn) -> Option<Lsn> {
        match self.occurrences.row(number)?.state {
            State::Enqueued => {
                self.record(Record::Completed(Completed { occurrence: number.0 }), now, turn);
                turn.urge(Urgency::Prompt);
                self.counters.completed += 1;
                Some(self.lsn)
            }
            State::Succeeded => Some(self.lsn),
            State::Scheduled | State::Missed | State::Canceled => None,
        }
    }
}

fn rule_body(spec: &Spec, now: UnixMs) -> RuleBody {
    match &spec.rule {
        Rule::Cron(cron) => RuleBody::Cron {
            expr: cron.expr.clone(),
            zone: cron.zone.clone(),
            fold_both: cron.fold == FoldChoice::Both,
            gap_shift: cron.gap == Gap::Shift,
            day_and: cron.day_match == DayMatch::And,
        },
        Rule::Every { every_ms, anchor } => RuleBody::Every { every_ms: *every_ms, anchor_ms: anchor.unwrap_or(now).0 },
        Rule::At(at) => RuleBody::At {
            at_ms: at.0,
            local: spec.at_local.as_ref().map(|given| LocalBody {
                local: given.local.clone(),
                zone: given.zone.clone(),
                second: given.fold.map(|fold| fold == LocalFold::Second),
                shift: given.gap.is_some(),
            }),
        },
    }
}

/// Why a rule has no instant after `now`.
pub(super) fn no_instant(spec: &Spec, now: UnixMs) -> Refusal {
    if let Rule::At(at) = spec.rule {
        let field = if spec.at_local.is_some() { "rule.at_local" } else { "rule.at" };
        let outside = spec.start_at.is_some_and(|start| at < start) || spec.end_at.is_some_and(|end| at >= end);
        if outside && at > now {
            return Refusal::new(
                RefusalCode::NeverFires,
                field,
                format!("{at} is not in [start_at, end_at): move the bounds or the instant"),
            );
        }
        return Refusal::new(
            RefusalCode::InThePast,
            field,
            format!("{at} is not after now ({now}): give an instant in the future"),
        );
    }
    let field = if matches!(spec.rule, Rule::Cron(_)) { "rule.cron" } else { "rule.every" };
    Refusal::new(
        RefusalCode::NeverFires,
        field,
        "the rule has no instant after now within start_at and end_at: change the rule or the bounds".to_owned(),
    )
}
