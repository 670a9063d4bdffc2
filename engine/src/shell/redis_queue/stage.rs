//! Entries that are encoded before their instant comes.
//!
//! Fields are appended to chunks of about 256 KiB, a group of chunks an instant; at release only references to chunks
//! travel to the relay thread, so a burst of half a million entries copies each of them once, into the batch that is
//! sent.

use std::{collections::BTreeMap, sync::Arc};

use hashbrown::HashMap;

use crate::kernel::{
    occurrence::{Entry, OccurrenceNo},
    time::UnixMs,
};

use super::{stream::StreamIndex, wire::push_fields};

/// A chunk is sealed when it has grown past this: large enough to be few, small enough not to be moved when it grows.
const CHUNK_BYTES: usize = 256 * 1024;

/// A parcel is handed on when it holds so many entries (one batch), or so many bytes that were not staged.
const PARCEL_ENTRIES: usize = 2_048;
const PARCEL_BYTES: usize = 1024 * 1024;

/// Where a released entry's fields are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) number: OccurrenceNo,
    pub(super) stream: StreamIndex,
    chunk: u32,
    start: u32,
    length: u32,
}

/// Released entries in order, and the chunks that hold their fields.
#[derive(Debug, Default)]
pub(super) struct Parcel {
    pub(super) items: Vec<Item>,
    chunks: Vec<Arc<Vec<u8>>>,
}

impl Parcel {
    /// An item's encoded fields.
    pub(super) fn fields(&self, item: &Item) -> &[u8] {
        let start = item.start as usize;
        &self.chunks[item.chunk as usize][start..start + item.length as usize]
    }
}

#[derive(Clone, Copy)]
struct Place {
    stream: StreamIndex,
    chunk: u32,
    start: u32,
    length: u32,
}

/// What is staged for one instant.
#[derive(Default)]
struct Group {
    sealed: Vec<Arc<Vec<u8>>>,
    open: Vec<u8>,
    places: HashMap<OccurrenceNo, Place>,
}

impl Group {
    fn stage(&mut self, stream: StreamIndex, entry: &Entry<'_>) {
        if self.open.len() >= CHUNK_BYTES {
            self.seal();
        }
        let chunk = index(self.sealed.len());
        let (start, length) = append(&mut self.open, entry);
        self.places.insert(entry.number, Place { stream, chunk, start, length });
    }

    fn seal(&mut self) {
        if !self.open.is_empty() {
            let capacity = self.open.capacity();
            self.sealed.push(Arc::new(std::mem::replace(&mut self.open, Vec::with_capacity(capacity))));
        }
    }
}

fn append(out: &mut Vec<u8>, entry: &Entry<'_>) -> (u32, u32) {
    let start = out.len();
    push_fields(out, entry);
    (index(start), index(out.len() - start))
}

fn index(place: usize) -> u32 {
    u32::try_from(place).expect("a chunk, and the number of chunks of an instant, stay far below 4 Gi")
}

/// Everything staged, by the instant it becomes available at.
#[derive(Default)]
pub(super) struct Stage {
    groups: BTreeMap<UnixMs, Group>,
}

impl Stage {
    /// Encodes an entry ahead of time; a second one under the same number takes the place of the first.
    pub(super) fn stage(&mut self, stream: StreamIndex, entry: &Entry<'_>) {
        self.groups.entry(entry.available_at).or_default().stage(stream, entry);
    }

    /// Drops what was staged for instants up to `at`.
    pub(super) fn forget(&mut self, at: UnixMs) {
        self.groups = match at.0.checked_add(1) {
            Some(next) => self.groups.split_off(&UnixMs(next)),
            None => BTreeMap::new(),
        };
    }

    /// Makes parcels of what is released, in its order. What was staged is taken out: a later release of the same
    /// number (another attempt) is encoded anew. `encode` gives the entry and its stream for what was not staged.
    pub(super) fn release<'a>(
        &mut self,
        at: UnixMs,
        numbers: &[OccurrenceNo],
        encode: &dyn Fn(OccurrenceNo) -> (StreamIndex, Entry<'a>),
        send: &mut dyn FnMut(Parcel),
    ) {
        let mut group = self.groups.get_mut(&at);
        if let Some(group) = &mut group {
            group.seal();
        }
        for part in numbers.chunks(PARCEL_ENTRIES) {
            let mut packer = Packer::new(part.len(), group.as_ref().map_or(0, |group| group.sealed.len()));
            for &number in part {
                let staged = group.as_mut().and_then(|group| Some((group.places.remove(&number)?, &group.sealed)));
                if let Some((place, sealed)) = staged {
                    packer.reference(number, place, sealed);
                } else {
                    let (stream, entry) = encode(number);
                    packer.encode(stream, &entry);
                    if packer.fresh.len() >= PARCEL_BYTES {
                        let sealed = group.as_ref().map_or(0, |group| group.sealed.len());
                        send(std::mem::replace(&mut packer, Packer::new(part.len(), sealed)).finish());
                    }
                }
            }
            if !packer.items.is_empty() {
                send(packer.finish());
            }
        }
        if group.is_some_and(|group| group.places.is_empty()) {
            self.groups.remove(&at);
        }
    }
}

/// Builds one parcel. Chunk 0 holds what was not staged.
struct Packer {
    items: Vec<Item>,
    fresh: Vec<u8>,
    chunks: Vec<Arc<Vec<u8>>>,
    /// For each sealed chunk of the group its place in `chunks`; 0: not taken yet.
    taken: Vec<u32>,
}

impl Packer {
    fn new(items: usize, sealed: usize) -> Self {
        let nothing_yet = Arc::default();
        Self { items: Vec::with_capacity(items), fresh: Vec::new(), chunks: vec![nothing_yet], taken: vec![0; sealed] }
    }

    fn reference(&mut self, number: OccurrenceNo, place: Place, sealed: &[Arc<Vec<u8>>]) {
        let Place { stream, chunk, start, length } = place;
        let taken = &mut self.taken[chunk as usize];
        if *taken == 0 {
            *taken = index(self.chunks.len());
            self.chunks.push(Arc::clone(&sealed[chunk as usize]));
        }
        self.items.push(Item { number, stream, chunk: *taken, start, length });
    }

    fn encode(&mut self, stream: StreamIndex, entry: &Entry<'_>) {
        let (start, length) = append(&mut self.fresh, entry);
        self.items.push(Item { number: entry.number, stream, chunk: 0, start, length });
    }

    fn finish(mut self) -> Parcel {
        self.chunks[0] = Arc::new(self.fresh);
        Parcel { items: self.items, chunks: self.chunks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{
        id::{Kind, OccurrenceId, ScheduleId},
        occurrence::{Lane, QueueNo, Stream},
    };

    fn entry(number: u64, attempt: u32, payload: &[u8]) -> Entry<'_> {
        Entry {
            number: OccurrenceNo(number),
            stream: Stream { queue: QueueNo(0), lane: Lane::Strict },
            occurrence_id: OccurrenceId([1; 16]),
            schedule_id: ScheduleId([2; 16]),
            version: 1,
            kind: Kind::Regular,
            scheduled_for: UnixMs(5),
            available_at: UnixMs(5),
            attempt,
            tenant_number: 0,
            tenant: "acme",
            payload,
        }
    }

    fn expected(number: u64, attempt: u32, payload: &[u8]) -> (u64, Vec<u8>) {
        let mut out = Vec::new();
        push_fields(&mut out, &entry(number, attempt, payload));
        (number, out)
    }

    fn release(stage: &mut Stage, numbers: &[u64], payload: &[u8]) -> (Vec<(u64, Vec<u8>)>, usize) {
        let numbers: Vec<_> = numbers.iter().copied().map(OccurrenceNo).collect();
        let (mut all, mut parcels) = (Vec::new(), 0);
        stage.release(UnixMs(5), &numbers, &|number| (StreamIndex(0), entry(number.0, 2, payload)), &mut |parcel| {
            parcels += 1;
            all.extend(parcel.items.iter().map(|item| (item.number.0, parcel.fields(item).to_vec())));
        });
        (all, parcels)
    }

    #[test]
    fn staged_and_unstaged_entries_come_out_in_the_order_of_release() {
        let mut stage = Stage::default();
        for number in [1, 2, 3] {
            stage.stage(StreamIndex(0), &entry(number, 1, b"staged"));
        }
        let (released, _) = release(&mut stage, &[3, 9, 1], b"fresh");
        assert_eq!(released, [expected(3, 1, b"staged"), expected(9, 2, b"fresh"), expected(1, 1, b"staged")]);
        let (released, _) = release(&mut stage, &[3, 2], b"fresh");
        assert_eq!(released, [expected(3, 2, b"fresh"), expected(2, 1, b"staged")], "3 was taken out");
        assert!(stage.groups.is_empty());
    }

    #[test]
    fn a_later_stage_of_the_same_number_replaces_the_first_even_after_a_release() {
        let mut stage = Stage::default();
        stage.stage(StreamIndex(0), &entry(1, 1, b"a"));
        stage.stage(StreamIndex(0), &entry(2, 1, b"a"));
        assert_eq!(release(&mut stage, &[2], b"").0, [expected(2, 1, b"a")]);
        stage.stage(StreamIndex(0), &entry(1, 7, b"b"));
        assert_eq!(release(&mut stage, &[1], b"").0, [expected(1, 7, b"b")]);
    }

    #[test]
    fn what_is_forgotten_is_looked_up() {
        let mut stage = Stage::default();
        stage.stage(StreamIndex(0), &entry(1, 1, b"a"));
        stage.forget(UnixMs(4));
        assert_eq!(stage.groups.len(), 1);
        stage.forget(UnixMs(5));
        assert_eq!(release(&mut stage, &[1], b"b").0, [expected(1, 2, b"b")]);
        stage.forget(UnixMs(i64::MAX));
    }

    #[test]
    fn large_releases_are_cut_into_parcels_by_number_and_by_bytes() {
        let mut stage = Stage::default();
        let payload = vec![b'x'; 1_000];
        let numbers: Vec<u64> = (0..5_000).collect();
        for &number in &numbers[..4_000] {
            stage.stage(StreamIndex(0), &entry(number, 1, &payload));
        }
        let (released, parcels) = release(&mut stage, &numbers, b"tail");
        assert_eq!(parcels, 3);
        let all = numbers.iter().map(|&n| if n < 4_000 { expected(n, 1, &payload) } else { expected(n, 2, b"tail") });
        assert!(released.into_iter().eq(all));
        let (released, parcels) = release(&mut stage, &(0..100).collect::<Vec<_>>(), &vec![b'y'; 64 * 1024]);
        assert_eq!((released.len(), parcels), (100, 7), "16 payloads of 64 KiB fill a parcel");
    }
}
