//! Figures of one shard's relay, for metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Figures since the queue was made. A snapshot is not one instant: each figure is read for itself.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct RelayStats { $($(#[$doc])* pub $name: u64,)* }

        /// The same, shared with the relay thread.
        #[derive(Default)]
        pub(super) struct Gauges { $(pub(super) $name: AtomicU64,)* }

        impl Gauges {
            pub(super) fn snapshot(&self) -> RelayStats {
                RelayStats { $($name: self.$name.load(Relaxed),)* }
            }
        }
    };
}

stats! {
    /// Entries written to the socket.
    entries_sent,
    /// Entries that Redis accepted.
    entries_landed,
    /// Batches written to the socket.
    batches_sent,
    /// Times the procedure ended with `Ready` on a new connection.
    connects,
    /// Times a connection was given up.
    disconnects,
    /// Entries given back to the shard.
    entries_returned,
    /// Entries that were read back.
    entries_found,
    /// Times a stream no longer held what it had accepted.
    losses,
    /// Entries that consumers had acknowledged and the janitor removed.
    entries_trimmed,
    /// Rounds of the janitor.
    janitor_rounds,
    /// Entries in our streams that somebody else wrote.
    foreign_entries,
    /// Consumer groups that have work and did not move for an hour (now).
    stuck_groups,
    /// How long nothing could be handed over, in milliseconds.
    away_ms,
    /// Processor time of the relay thread, in nanoseconds.
    cpu_ns,
}

/// Adds to a figure.
pub(super) fn add(gauge: &AtomicU64, by: usize) {
    gauge.fetch_add(by as u64, Relaxed);
}
