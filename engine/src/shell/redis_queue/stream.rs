//! What the relay knows of one stream.

use crate::kernel::occurrence::{EntryId, Stream};

use super::{janitor::GroupWatch, look::Known, wire::Head};

/// A stream's place in the order of declaration, the same on both sides of the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StreamIndex(pub(super) u32);

/// Whether a stream takes entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Not fenced yet in this generation, or not since it was mended.
    Unfenced,
    /// Fenced and looked at.
    Open,
    /// A foreign key is in its place.
    Shut,
    /// As long as it may grow; takes more when consumers have drained it.
    Full,
}

/// One stream as the relay thread sees it.
pub(super) struct Track {
    pub(super) stream: Stream,
    /// `<prefix>:{<queue>.<shard>}:<lane>`
    pub(super) key: Vec<u8>,
    pub(super) standing: Standing,
    /// Why it last took nothing.
    pub(super) away_because: Option<String>,
    /// Not read back yet since it was declared, or since the generation began.
    pub(super) fresh: bool,
    /// Fences that were sent since it was last looked at. Behind the second, the top may be a fence and no entry.
    pub(super) fences: u32,
    /// What it is known to have accepted.
    pub(super) known: Known,
    /// The highest counter ever sent, or fenced off, in this generation.
    pub(super) sent: u64,
    /// Up to here `Landed` is durable.
    pub(super) recorded: Option<EntryId>,
    /// How many entries stand in it, as of the last look and what landed since.
    pub(super) length: u64,
    /// A trim was sent and its answer has not been heard: `length` may be too high.
    pub(super) is_trimming: bool,
    /// The shard wants to know what stands in it.
    pub(super) is_doubted: bool,
    /// Where the last trim ended.
    pub(super) trimmed_below: Option<EntryId>,
    /// Up to here the shard was told that every group has acknowledged.
    pub(super) settled: Option<EntryId>,
    /// When each consumer group last moved.
    pub(super) groups: Vec<GroupWatch>,
    pub(super) head: Head,
    /// Its share in the batch that is being built.
    pub(super) share: Option<u32>,
}

impl Track {
    pub(super) fn new(stream: Stream, key: Vec<u8>, known: Known, generation: u64) -> Self {
        let head = Head::new(&key, generation);
        Self {
            stream,
            key,
            standing: Standing::Unfenced,
            away_because: None,
            fresh: true,
            fences: 0,
            known,
            sent: 0,
            // What the log remembers, it has recorded.
            recorded: known.last,
            length: 0,
            is_trimming: false,
            is_doubted: false,
            trimmed_below: None,
            settled: None,
            groups: Vec::new(),
            head,
            share: None,
        }
    }

    /// Everything begins anew under another generation.
    pub(super) fn begin(&mut self, generation: u64) {
        self.standing = Standing::Unfenced;
        self.fresh = true;
        self.fences = 0;
        self.sent = 0;
        self.head = Head::new(&self.key, generation);
    }

    /// The key, for people.
    pub(super) fn shown(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.key)
    }
}
