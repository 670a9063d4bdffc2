//! Batches: entries of any streams in one MULTI/EXEC, and what its answer says of each.

use std::collections::VecDeque;

use redis::Value;

use crate::kernel::occurrence::{EntryId, OccurrenceNo};

use super::{
    link::{EXEC, Fault, MULTI, refuse},
    stage::Parcel,
    stream::{Standing, StreamIndex, Track},
};

/// A batch has at most so many entries: Redis runs it without a break, about 3 ms.
pub(super) const BATCH_ENTRIES: usize = 2_048;

/// A batch is closed when it has grown past this.
pub(super) const BATCH_BYTES: usize = 1024 * 1024;

/// What of a batch goes to one stream: consecutive counters from `first` on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) stream: StreamIndex,
    pub(super) first: EntryId,
    pub(super) numbers: Vec<OccurrenceNo>,
}

/// Entries that were sent together and have not been settled.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) count: usize,
    pub(super) shares: Vec<Share>,
    /// Which share the entries belong to, in the order sent: (share, how many in a row).
    runs: Vec<(u32, u32)>,
}

/// Parcels that wait to be sent, the first of them perhaps in part.
#[derive(Default)]
pub(super) struct Waiting {
    parcels: VecDeque<Parcel>,
    /// How many items of the first parcel are gone.
    taken: usize,
}

impl Waiting {
    pub(super) fn push(&mut self, parcel: Parcel) {
        self.parcels.push_back(parcel);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parcels.is_empty()
    }

    /// Everything that waits, in order.
    pub(super) fn take_all(&mut self) -> Vec<OccurrenceNo> {
        let skip = std::mem::take(&mut self.taken);
        self.parcels.drain(..).flat_map(|parcel| parcel.items).skip(skip).map(|item| item.number).collect()
    }

    /// Encodes the next batch into `bytes`. What its stream does not take is put into `refused`; `None` if nothing was
    /// left to send.
    pub(super) fn fill(
        &mut self,
        bytes: &mut Vec<u8>,
        tracks: &mut [Track],
        generation: u64,
        refused: &mut Vec<OccurrenceNo>,
    ) -> Option<Batch> {
        bytes.clear();
        bytes.extend_from_slice(MULTI);
        let mut batch = Batch::default();
        while let Some(parcel) = self.parcels.front()
            && batch.has_room(bytes)
        {
            for item in &parcel.items[self.taken..] {
                if !batch.has_room(bytes) {
                    break;
                }
                self.taken += 1;
                let track = &mut tracks[item.stream.0 as usize];
                if track.standing == Standing::Open {
                    batch.add(item.stream, item.number, track, generation);
                    track.head.push(bytes, track.sent);
                    bytes.extend_from_slice(parcel.fields(item));
                } else {
                    refused.push(item.number);
                }
            }
            if self.taken == parcel.items.len() {
                self.parcels.pop_front();
                self.taken = 0;
            }
        }
        bytes.extend_from_slice(EXEC);
        for share in &batch.shares {
            tracks[share.stream.0 as usize].share = None;
        }
        (batch.count > 0).then_some(batch)
    }
}

impl Batch {
    fn has_room(&self, bytes: &[u8]) -> bool {
        self.count < BATCH_ENTRIES && bytes.len() < BATCH_BYTES
    }

    fn add(&mut self, stream: StreamIndex, number: OccurrenceNo, track: &mut Track, generation: u64) {
        track.sent += 1;
        let share = *track.share.get_or_insert_with(|| {
            let first = EntryId { generation, counter: track.sent };
            self.shares.push(Share { stream, first, numbers: Vec::new() });
            u32::try_from(self.shares.len() - 1).expect("a batch has at most 2,048 shares")
        });
        self.shares[share as usize].numbers.push(number);
        match self.runs.last_mut() {
            Some((last, length)) if *last == share => *length += 1,
            _ => self.runs.push((share, 1)),
        }
        self.count += 1;
    }

    /// Reads the answers to EXEC: `None` if every entry landed, else the fate of each and why the first did not land.
    pub(super) fn read(&self, answers: Vec<Value>) -> Option<(Vec<Vec<bool>>, Fault)> {
        if answers.iter().all(|answer| matches!(answer, Value::BulkString(_))) {
            return None;
        }
        let mut fates = vec![Vec::new(); self.shares.len()];
        let mut first_fault = None;
        let shares = self.runs.iter().flat_map(|(share, length)| std::iter::repeat_n(*share, *length as usize));
        for (share, answer) in shares.zip(answers) {
            let landed = matches!(answer, Value::BulkString(_));
            if !landed {
                first_fault.get_or_insert_with(|| why_not(answer));
            }
            fates[share as usize].push(landed);
        }
        Some((fates, first_fault?))
    }
}

/// Why an entry did not land.
fn why_not(answer: Value) -> Fault {
    match answer {
        Value::Nil => Fault::Lost("a stream is gone: somebody deleted its key, or redis lost its data".to_owned()),
        answer => refuse(answer).map_or_else(
            |fault| fault,
            |_| Fault::Nonsense("redis answered XADD with something that is no id".to_owned()),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        kernel::{
            id::{Kind, OccurrenceId, ScheduleId},
            occurrence::{Entry, Lane, QueueNo, Stream},
            time::UnixMs,
        },
        shell::redis_queue::stage::Stage,
    };

    fn stream(queue: u32) -> Stream {
        Stream { queue: QueueNo(queue), lane: Lane::Strict }
    }

    fn tracks() -> Vec<Track> {
        (0..2)
            .map(|queue| {
                let mut track = Track::new(stream(queue), format!("k{queue}").into_bytes(), Default::default(), 4);
                track.standing = Standing::Open;
                track
            })
            .collect()
    }

    /// Even numbers go to stream 0, odd ones to stream 1.
    fn waiting(numbers: std::ops::Range<u64>, payload: &[u8]) -> Waiting {
        let mut waiting = Waiting::default();
        let numbers: Vec<_> = numbers.map(OccurrenceNo).collect();
        let look_up = |number: OccurrenceNo| {
            let queue = u32::from(number.0 % 2 == 1);
            let entry = Entry {
                number,
                stream: stream(queue),
                occurrence_id: OccurrenceId([1; 16]),
                schedule_id: ScheduleId([2; 16]),
                version: 1,
                kind: Kind::Regular,
                scheduled_for: UnixMs(5),
                available_at: UnixMs(5),
                attempt: 1,
                tenant_number: 0,
                tenant: "acme",
                payload,
            };
            (StreamIndex(queue), entry)
        };
        Stage::default().release(UnixMs(5), &numbers, &look_up, &mut |parcel| waiting.push(parcel));
        waiting
    }

    fn numbers(all: &[u64]) -> Vec<OccurrenceNo> {
        all.iter().copied().map(OccurrenceNo).collect()
    }

    #[test]
    fn a_batch_mixes_streams_and_counts_each_without_holes() {
        let (mut tracks, mut bytes, mut refused) = (tracks(), Vec::new(), Vec::new());
        let batch = waiting(0..5, b"x").fill(&mut bytes, &mut tracks, 4, &mut refused).unwrap();
        let first = EntryId { generation: 4, counter: 1 };
        assert_eq!(
            batch.shares,
            [
                Share { stream: StreamIndex(0), first, numbers: numbers(&[0, 2, 4]) },
                Share { stream: StreamIndex(1), first, numbers: numbers(&[1, 3]) },
            ]
        );
        assert!(refused.is_empty() && bytes.starts_with(MULTI) && bytes.ends_with(EXEC));
        let ids: Vec<_> = String::from_utf8(bytes)
            .unwrap()
            .lines()
            .filter(|line| line.starts_with("4-"))
            .map(str::to_owned)
            .collect();
        assert_eq!(ids, ["4-1", "4-1", "4-2", "4-2", "4-3"]);
    }

    #[test]
    fn a_batch_is_bounded_and_the_next_one_goes_on_where_it_ended() {
        let (mut tracks, mut bytes, mut refused) = (tracks(), Vec::new(), Vec::new());
        let mut all = waiting(0..5_000, b"x");
        let sizes: Vec<_> =
            std::iter::from_fn(|| all.fill(&mut bytes, &mut tracks, 4, &mut refused).map(|b| b.count)).collect();
        assert_eq!(sizes, [2_048, 2_048, 904]);
        assert_eq!((tracks[0].sent, tracks[1].sent), (2_500, 2_500));
        let mut large = waiting(0..40, &vec![b'x'; 64 * 1024]);
        let batch = large.fill(&mut bytes, &mut tracks, 4, &mut refused).unwrap();
        assert!(
            batch.count < 20 && bytes.len() < BATCH_BYTES + 70_000,
            "{} entries, {} bytes",
            batch.count,
            bytes.len()
        );
        assert_eq!(large.take_all().len(), 40 - batch.count);
        assert!(large.is_empty());
    }

    #[test]
    fn what_a_stream_does_not_take_is_refused_and_takes_no_counter() {
        let (mut tracks, mut bytes, mut refused) = (tracks(), Vec::new(), Vec::new());
        tracks[0].standing = Standing::Shut;
        let batch = waiting(0..4, b"x").fill(&mut bytes, &mut tracks, 4, &mut refused).unwrap();
        assert_eq!((batch.count, tracks[0].sent), (2, 0));
        assert_eq!(refused, numbers(&[0, 2]));
        tracks[1].standing = Standing::Full;
        assert_eq!(waiting(0..2, b"x").fill(&mut bytes, &mut tracks, 4, &mut refused), None);
    }

    #[test]
    fn each_answer_is_the_fate_of_its_own_entry() {
        let (mut tracks, mut bytes, mut refused) = (tracks(), Vec::new(), Vec::new());
        let batch = waiting(0..4, b"x").fill(&mut bytes, &mut tracks, 4, &mut refused).unwrap();
        let id = || Value::BulkString(b"4-1".to_vec());
        assert_eq!(batch.read(vec![id(), id(), id(), id()]), None);
        let (fates, fault) = batch.read(vec![id(), Value::Nil, id(), Value::Nil]).unwrap();
        assert_eq!(fates, [vec![true, true], vec![false, false]]);
        assert!(matches!(fault, Fault::Lost(_)));
    }
}
