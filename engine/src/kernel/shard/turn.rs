//! What one turn of a shard hands outward.

use crate::kernel::{
    gate::Lsn,
    occurrence::{EntryId, Lane, OccurrenceNo, QueueNo, Stream},
    record::Record,
    time::UnixMs,
};

/// How long a turn's records may wait for the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// A caller or a due instant waits.
    Prompt,
    /// Nobody waits: within this many milliseconds. What a crash takes is decided again with the same ids.
    Within(i64),
    /// There is nothing to write.
    #[default]
    Idle,
}

/// How long an occurrence took into its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    /// The shard's number of its tenant.
    pub tenant: u32,
    /// Its lane.
    pub lane: Lane,
    /// From `scheduled_for` (strict) or `available_at`.
    pub lag_ms: i64,
}

/// Occurrences to hand over now, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Release {
    /// They were staged for this instant, or [`Release::UNSTAGED`].
    pub at: UnixMs,
    /// What to hand over.
    pub numbers: Vec<OccurrenceNo>,
}

impl Release {
    /// Nothing is staged for this instant: what leaves under it is encoded when it leaves.
    pub const UNSTAGED: UnixMs = UnixMs(i64::MIN);
}

/// What a turn decided: the shell writes the records, then does the rest.
#[derive(Debug, Default)]
pub struct Turn {
    /// To the log, in order. The first has the LSN behind the one the shard had before.
    pub records: Vec<Record>,
    /// How long they may wait.
    pub urgency: Urgency,
    /// Queues that were named for the first time.
    pub queues: Vec<QueueNo>,
    /// To be encoded ahead of time.
    pub staged: Vec<OccurrenceNo>,
    /// To be handed over now.
    pub releases: Vec<Release>,
    /// The embedded queue is not to serve these any more.
    pub withdrawn: Vec<OccurrenceNo>,
    /// Nothing that was staged for instants up to this one is needed any more.
    pub forget_staged: Option<UnixMs>,
    /// Once the LSN is durable, the queue may drop what consumers acknowledged up to the entry.
    pub recorded: Vec<(Lsn, Stream, EntryId)>,
    /// Once the LSN is durable, the queue is to begin under this generation.
    pub start: Option<(Lsn, u64)>,
    /// The queue is to look at everything that stands in these.
    pub read_back: Vec<Stream>,
    /// Something due waits for the disk: everything queued is prompt now.
    pub hasten: bool,
    /// The turn's limit was reached: there is more to do at once.
    pub more: bool,
    /// What was materialised ahead: the record, and the earliest `available_at` in it.
    pub materialized: Vec<(Lsn, UnixMs)>,
    /// What was enqueued for the first time.
    pub lags: Vec<Lag>,
}

impl Turn {
    pub(super) fn urge(&mut self, urgency: Urgency) {
        self.urgency = self.urgency.min(urgency);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_urgent_record_decides_for_the_turn() {
        let mut turn = Turn::default();
        turn.urge(Urgency::Within(1_000));
        turn.urge(Urgency::Within(500));
        assert_eq!(turn.urgency, Urgency::Within(500));
        turn.urge(Urgency::Prompt);
        turn.urge(Urgency::Within(5));
        assert_eq!(turn.urgency, Urgency::Prompt);
    }
}
