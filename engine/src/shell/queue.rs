//! What a shard needs of a queue, and what a queue tells it: the seam between deciding and delivering.
//!
//! A shard is the only writer of its streams. It hands released occurrences over in order and hears, in its own time,
//! what became of each: landed, or returned. A queue never decides: what it could not prove to hold it gives back,
//! and the shard judges anew whether it is late.

use super::metrics::RelayMetrics;
use crate::kernel::{
    id::OccurrenceId,
    occurrence::{Entry, EntryId, Lane, OccurrenceNo, Stream},
    time::UnixMs,
};

/// What the log remembers of a stream when a shard is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remembered {
    /// The last entry that is recorded as enqueued, if any ever was.
    pub last: Option<EntryId>,
    /// How many entries had been added to the stream, in its whole life, when `last` landed.
    pub added: u64,
}

/// Why a queue takes nothing at the moment, and what a person can do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Away {
    /// Only this stream (a foreign key in its place, say), or all of them.
    pub stream: Option<Stream>,
    /// One sentence: what is wrong and what to do. Never holds a password.
    pub reason: String,
}

/// What a queue tells its shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueEvent {
    /// These were accepted in this order, under consecutive ids from `first` on; `added` entries had been added to
    /// the stream in its whole life when the last of them was in.
    Landed {
        /// The stream that accepted them.
        stream: Stream,
        /// The id of the first.
        first: EntryId,
        /// What landed.
        numbers: Vec<OccurrenceNo>,
        /// The stream's count of entries ever added, after these.
        added: u64,
        /// When the answer came.
        at: UnixMs,
    },
    /// These were handed over and are provably not in the queue.
    Returned {
        /// What came back.
        numbers: Vec<OccurrenceNo>,
    },
    /// Read back at the start and after a loss: these stand in the stream behind what the log remembers, or behind
    /// what survived. What was in doubt and is found here is told neither as landed nor as returned.
    Found {
        /// The stream that was read.
        stream: Stream,
        /// Occurrence, attempt and place of each, in stream order.
        entries: Vec<(OccurrenceId, u32, EntryId)>,
        /// The stream's count of entries ever added.
        added: u64,
    },
    /// The stream no longer holds what it had accepted behind `survived` (`None`: anything). What does still stand
    /// behind it follows as [`QueueEvent::Found`], then comes [`QueueEvent::Ready`]: the rest is to be released again.
    Lost {
        /// The stream that lost.
        stream: Stream,
        /// The last entry of ours that is still accounted for.
        survived: Option<EntryId>,
    },
    /// Entries were removed from the stream that the queue did not remove. Whoever still needs what stood there asks by
    /// [`Queue::read_back`]; then comes [`QueueEvent::Lost`] with nothing surviving, and what still stands.
    Shortened {
        /// The stream that is shorter than it was left.
        stream: Stream,
    },
    /// Every consumer group of the stream has acknowledged everything up to here, and all of that is recorded. Told
    /// when it has grown; a stream without groups has nobody who could.
    Settled {
        /// The stream that was read.
        stream: Stream,
        /// The last entry of which that holds.
        through: EntryId,
    },
    /// Every declared stream has been fenced and looked at: nothing handed over before is still under way. Streams that
    /// stay away by themselves are named again right behind it.
    Ready,
    /// Nothing can be handed over for now; [`QueueEvent::Ready`] ends it (for one stream: the next `Ready` too).
    Away(Away),
    /// The streams have seen a generation of ours or higher under another owner: log one of at least this much and
    /// call [`Queue::start`] with it. At the start, and later too if somebody else wrote into a stream.
    GenerationNeeded {
        /// The smallest that will do.
        at_least: u64,
    },
    /// Another engine has taken the streams over; this one must not write again.
    Fenced {
        /// Names both owners.
        reason: String,
    },
}

/// A durable queue as one shard sees it. Calls return at once; what takes time is told by [`Queue::poll`].
pub trait Queue: Send {
    /// Names a stream before anything is staged or released for it; `remembered` is what the log knows of it.
    fn declare(&mut self, stream: Stream, queue: &str, lane: Lane, remembered: Remembered);

    /// Begins (or begins again, under a higher generation): owner, fence, look, then [`QueueEvent::Ready`].
    /// The generation is durable in the log before this is called; the first is 1.
    fn start(&mut self, generation: u64);

    /// Ahead of time: encodes what will be released at its `available_at`. May do nothing.
    fn stage(&mut self, entry: &Entry<'_>);

    /// Hands these over in this order; they were available at `at`. What was not staged is asked for by `look_up`.
    fn release<'a>(&mut self, at: UnixMs, numbers: &[OccurrenceNo], look_up: &dyn Fn(OccurrenceNo) -> Entry<'a>);

    /// What was staged for instants up to `at` will not be released any more.
    fn forget_staged(&mut self, at: UnixMs);

    /// `Landed` up to here is durable in the log: the queue may drop what consumers have acknowledged up to it.
    fn recorded(&mut self, stream: Stream, through: EntryId);

    /// Looks at everything in the stream, as after a loss. A queue that nobody else can reach has nothing to look at.
    fn read_back(&mut self, stream: Stream) {
        let _ = stream;
    }

    /// What happened since the last call, oldest first.
    fn poll(&mut self, events: &mut Vec<QueueEvent>);

    /// Figures since the queue was made.
    fn metrics(&self) -> RelayMetrics {
        RelayMetrics::default()
    }

    /// Sends what was handed over and waits for its answers, at most `limit`; events are still polled afterwards.
    fn close(&mut self, limit: std::time::Duration);
}
