//! Every named point, and what brings a server there.

/// What was before a start that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    Kill,
    /// Bytes of an unfinished batch stand behind each log.
    Torn,
    CleanStop,
}

/// When a server comes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Working,
    Starting { after: After },
    Stopping,
}

pub(super) struct Point {
    pub(super) name: &'static str,
    pub(super) when: When,
    /// Which time of coming by is the first that is tried: later ones are more interesting than the very first.
    first: u64,
    /// How much further on the next one lies; 0 where a life comes by but once or twice.
    step: u64,
    pub(super) payload_bytes: usize,
}

const SMALL: usize = 40;
/// Two shards of 1 MiB segments change them soon, and one instant's entries are more than a batch.
const LARGE: usize = 24_000;

const fn working(name: &'static str, first: u64, step: u64) -> Point {
    Point { name, when: When::Working, first, step, payload_bytes: SMALL }
}

const fn filling(name: &'static str, first: u64, step: u64) -> Point {
    Point { name, when: When::Working, first, step, payload_bytes: LARGE }
}

const fn starting(name: &'static str, after: After) -> Point {
    Point { name, when: When::Starting { after }, first: 1, step: 0, payload_bytes: SMALL }
}

const fn stopping(name: &'static str) -> Point {
    Point { name, when: When::Stopping, first: 1, step: 0, payload_bytes: SMALL }
}

impl Point {
    /// Which time of coming by the `nth` try waits for: each of the two shards comes by where there is no step.
    pub(super) const fn hit(&self, nth: u64) -> u64 {
        if self.step == 0 { self.first + nth % 2 } else { self.first + nth * self.step }
    }

    pub(super) fn is_of(&self, rooms: &[&str]) -> bool {
        self.name.split_once('.').is_some_and(|(room, _)| rooms.contains(&room))
    }
}

pub(super) const POINTS: [Point; 54] = [
    working("append.asked", 21, 37),
    working("append.encoded", 17, 31),
    working("append.written", 19, 29),
    working("append.synced", 23, 31),
    working("append.published", 18, 27),
    working("turn.decided", 20, 33),
    working("answer.due", 15, 25),
    working("answer.given", 15, 25),
    filling("rotate.spare_taken", 1, 1),
    filling("rotate.sealed", 1, 1),
    filling("rotate.identity_written", 1, 1),
    filling("segment.header_synced", 3, 1),
    filling("segment.renamed", 3, 1),
    filling("segment.dirsynced", 3, 1),
    filling("snap.tmp_created", 2, 1),
    filling("snap.half_written", 2, 1),
    filling("snap.synced", 2, 1),
    filling("snap.verified", 2, 1),
    filling("snap.renamed", 2, 1),
    filling("snap.dirsynced", 2, 1),
    filling("archive.verified", 1, 1),
    filling("prune.archived", 1, 1),
    filling("prune.unlinked", 1, 1),
    filling("prune.dirsynced", 1, 1),
    starting("recover.read", After::Kill),
    starting("recover.half_copied", After::Kill),
    starting("recover.copy_synced", After::Kill),
    starting("recover.renamed", After::Kill),
    starting("recover.done", After::Kill),
    starting("recover.quarantined", After::Torn),
    starting("recover.seal_extended", After::CleanStop),
    starting("recover.seal_rewritten", After::CleanStop),
    starting("start.replayed", After::Kill),
    starting("start.generation_durable", After::Kill),
    Point { step: 0, ..starting("start.opened", After::Torn) },
    starting("relay.owner_judged", After::Kill),
    starting("relay.fenced", After::Kill),
    starting("relay.looked", After::Kill),
    working("relay.before_send", 5, 9),
    working("relay.sent", 6, 9),
    filling("relay.mid_pipeline", 1, 1),
    working("relay.answered", 6, 9),
    working("relay.told", 7, 9),
    working("enqueued.recorded", 2, 2),
    working("trim.before", 1, 1),
    working("trim.after", 1, 1),
    working("claim.asked", 5, 7),
    working("claim.decided", 5, 7),
    working("complete.asked", 4, 6),
    working("complete.decided", 4, 6),
    stopping("shutdown.draining"),
    stopping("shutdown.queue_closed"),
    stopping("shutdown.sealed"),
    stopping("shutdown.cut"),
];
