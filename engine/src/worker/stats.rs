//! What a consumer counts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Figures since the start. A snapshot is not one instant: each figure is read for itself.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct ConsumerStats { $($(#[$doc])* pub $name: u64,)* }

        /// The same, shared between threads.
        #[derive(Debug, Default)]
        pub(super) struct Figures { $(pub(super) $name: AtomicU64,)* }

        impl Figures {
            pub(super) fn snapshot(&self) -> ConsumerStats {
                ConsumerStats { $($name: self.$name.load(Relaxed),)* }
            }
        }
    };
}

stats! {
    /// Entries that were read, those of other consumers that died included.
    read,
    /// Of them, entries that somebody was given and did not finish.
    recovered,
    /// Entries that were gone or not understood: nothing was done for them.
    skipped,
    /// Claims that the engine granted.
    granted,
    /// Claims that it refused; the entry was acknowledged.
    refused,
    /// Claims without an answer that settles the entry; it stays pending.
    unanswered,
    /// Runs whose completion the engine has recorded.
    completed,
    /// Runs whose failure the engine has recorded.
    failed,
    /// Of them, those whose handler panicked.
    panicked,
    /// Runs whose lease was over before their end was told: the engine decided without them.
    stale,
    /// Runs whose end could not be told.
    untold,
    /// Acknowledgements that Redis did not take; the entry comes again.
    unacknowledged,
    /// Times that groups were made anew, since a stream had gone.
    healed,
    /// Times that the connection for reading was given up.
    disconnects,
}

/// One more.
pub(super) fn count(figure: &AtomicU64) {
    figure.fetch_add(1, Relaxed);
}
