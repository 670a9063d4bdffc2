//! What waits for its instant, in groups of a millisecond; when that comes, each tenant's part moves to its line as a
//! whole.

use std::collections::BTreeMap;

use super::{
    Shard,
    lines::Batch,
    occurrences::{Holder, OccurrenceRow},
};
use crate::kernel::{
    gate::Lsn,
    occurrence::{Lane, OccurrenceNo, QueueNo, State},
    permits::Draw,
    time::UnixMs,
};

/// What is available at one millisecond, by tenant and lane.
type Group = BTreeMap<(u32, Lane), Share>;

#[derive(Debug, Default)]
struct Share {
    numbers: Vec<OccurrenceNo>,
    lsn: Lsn,
}

/// What waits for its instant.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    groups: BTreeMap<UnixMs, Group>,
    len: usize,
}

impl Outbox {
    fn put(&mut self, row: &OccurrenceRow, number: OccurrenceNo, lsn: Lsn) {
        let share = self.groups.entry(row.available_at).or_default().entry((row.tenant, row.lane)).or_default();
        share.numbers.push(number);
        share.lsn = share.lsn.max(lsn);
        self.len += 1;
    }

    /// The part of one tenant of what is available at the earliest instant, if that has come.
    fn take_due(&mut self, now: UnixMs) -> Option<(u32, Batch)> {
        let mut first = self.groups.first_entry().filter(|first| *first.key() <= now)?;
        let at = *first.key();
        let share = first.get_mut().pop_first();
        if first.get().is_empty() {
            first.remove();
        }
        let ((tenant, lane), Share { numbers, lsn }) = share?;
        self.len -= numbers.len();
        Some((tenant, Batch::new(at, lane, lsn, numbers)))
    }

    /// The earliest instant for which something waits.
    pub(super) fn next_at(&self) -> Option<UnixMs> {
        self.groups.first_key_value().map(|(at, _)| *at)
    }

    /// How many occurrences wait.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// What waits for instants up to `now`, as lane, instant and number.
    pub(super) fn due(&self, now: UnixMs) -> impl Iterator<Item = (Lane, UnixMs, usize)> {
        let groups = self.groups.range(..=now);
        groups.flat_map(|(at, group)| group.iter().map(|((_, lane), share)| (*lane, *at, share.numbers.len())))
    }

    /// Everything that waits, for the checker.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, UnixMs, OccurrenceNo)> {
        let shares = self.groups.iter().flat_map(|(at, group)| group.iter().map(move |(key, share)| (*at, key, share)));
        shares.flat_map(|(at, (tenant, _), share)| share.numbers.iter().map(move |number| (*tenant, at, *number)))
    }
}

impl Shard {
    /// Puts a SCHEDULED occurrence where it waits to be handed over: the outbox, or past it the line of what is not to
    /// be judged again. It may leave once the log is durable up to `lsn`.
    pub(super) fn enter_outbox(&mut self, number: OccurrenceNo, lsn: Lsn) {
        let Some(row) = self.occurrences.row(number) else { return };
        if row.lane == Lane::CatchUp {
            self.enter_line(number, lsn);
        } else {
            self.outbox.put(row, number, lsn);
            self.occurrences.hold(number, Holder::Outbox);
        }
    }

    /// Puts an occurrence behind what is not judged again: its tenant's catch-up line, or the line of what is sent
    /// again. One that stands there already keeps its place.
    pub(super) fn enter_line(&mut self, number: OccurrenceNo, lsn: Lsn) {
        let Some(row) = self.occurrences.row(number).filter(|row| row.holder != Holder::Line) else { return };
        if row.state == State::Scheduled {
            let draw = Draw::CatchUp { tenant: row.tenant, queue: QueueNo(row.queue) };
            self.catch_up.push(draw, (row.available_at, row.lane, lsn), number);
        } else {
            self.resends.push_back((lsn, number));
        }
        self.occurrences.hold(number, Holder::Line);
    }

    /// Moves what is available by `now` to its tenants' lines, at most `limit` batches. Whether that was all.
    pub(super) fn line_up(&mut self, now: UnixMs, limit: usize) -> bool {
        for _ in 0..limit {
            let Some((tenant, batch)) = self.outbox.take_due(now) else { return true };
            self.due.insert(Draw::Trigger { tenant }, batch);
        }
        self.outbox.next_at().is_none_or(|at| at > now)
    }
}
