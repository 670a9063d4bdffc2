//! One attempt, as its handler sees it.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering::Relaxed},
};

use super::entry::Told;
use crate::kernel::{
    attempt::FailureClass,
    id::{Kind, OccurrenceId, ScheduleId},
    time::UnixMs,
};

/// The longest message of a failure that is told; the rest is cut off.
const MESSAGE_BYTES: usize = 1_024;

/// One attempt at an occurrence, granted to this consumer.
///
/// Delivery is at least once: make the work idempotent by [`Run::occurrence_id`].
#[derive(Debug)]
pub struct Run {
    pub(super) told: Told,
    pub(super) attempt: u32,
    pub(super) deadline: Option<UnixMs>,
    pub(super) cancellation: Arc<CancellationCell>,
}

/// Why a handler should stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancellation {
    /// The schedule was deleted: stop, and return [`Failure::canceled`]. A result is accepted all the same.
    Requested,
    /// The lease is over, or may be: another attempt may be under way, and what this one returns moves nothing.
    LeaseLost,
}

/// Told by heartbeats, read by the handler.
#[derive(Debug, Default)]
pub(super) struct CancellationCell(AtomicU8);

impl CancellationCell {
    /// A lease that is lost stays so.
    pub(super) fn set(&self, cancellation: Cancellation) {
        self.0.fetch_max(if cancellation == Cancellation::Requested { 1 } else { 2 }, Relaxed);
    }

    fn get(&self) -> Option<Cancellation> {
        match self.0.load(Relaxed) {
            0 => None,
            1 => Some(Cancellation::Requested),
            _ => Some(Cancellation::LeaseLost),
        }
    }
}

impl Run {
    /// The occurrence: the same however often it is delivered or tried.
    #[must_use]
    pub const fn occurrence_id(&self) -> OccurrenceId {
        self.told.occurrence_id
    }

    /// The schedule that made it.
    #[must_use]
    pub const fn schedule_id(&self) -> ScheduleId {
        self.told.schedule_id
    }

    /// The schedule's version that made it.
    #[must_use]
    pub const fn version(&self) -> u32 {
        self.told.version
    }

    /// Whose it is.
    #[must_use]
    pub fn tenant(&self) -> &str {
        &self.told.tenant
    }

    /// What made it: the schedule's rule, a trigger, a backfill.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.told.kind
    }

    /// The nominal instant.
    #[must_use]
    pub const fn scheduled_for(&self) -> UnixMs {
        self.told.scheduled_for
    }

    /// When it could enter the queue.
    #[must_use]
    pub const fn available_at(&self) -> UnixMs {
        self.told.available_at
    }

    /// Which attempt this is, from 1.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The schedule's bytes.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.told.payload
    }

    /// No attempt begins later than this.
    #[must_use]
    pub const fn deadline(&self) -> Option<UnixMs> {
        self.deadline
    }

    /// Whether to stop, and why. Handlers that run for longer than a lease should look now and then.
    #[must_use]
    pub fn cancellation(&self) -> Option<Cancellation> {
        self.cancellation.get()
    }

    /// Whether to stop.
    #[must_use]
    pub fn is_canceled(&self) -> bool {
        self.cancellation().is_some()
    }
}

/// Why an attempt did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub(super) class: FailureClass,
    pub(super) message: String,
}

impl Failure {
    /// Another attempt may succeed: the schedule's retry policy decides.
    pub fn transient(message: impl Into<String>) -> Self {
        Self::new(FailureClass::Transient, message.into())
    }

    /// Trying again is of no use.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::new(FailureClass::Permanent, message.into())
    }

    /// It stopped, since it was asked to ([`Cancellation::Requested`]).
    pub fn canceled(message: impl Into<String>) -> Self {
        Self::new(FailureClass::Canceled, message.into())
    }

    fn new(class: FailureClass, mut message: String) -> Self {
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES));
        Self { class, message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_lease_stays_lost() {
        let cell = CancellationCell::default();
        assert_eq!(cell.get(), None);
        cell.set(Cancellation::Requested);
        assert_eq!(cell.get(), Some(Cancellation::Requested));
        cell.set(Cancellation::LeaseLost);
        cell.set(Cancellation::Requested);
        assert_eq!(cell.get(), Some(Cancellation::LeaseLost));
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        assert_eq!(Failure::transient("ü".repeat(2_000)).message.len(), MESSAGE_BYTES);
        assert_eq!(Failure::permanent(format!("x{}", "ü".repeat(2_000))).message.len(), MESSAGE_BYTES - 1);
    }
}
