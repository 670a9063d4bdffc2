//! What waits to be written: batches that are being filled, and when the writer must take them.

use std::collections::VecDeque;
use std::time::Instant;

use crate::batch::Batch;
use crate::error::AppendError;
use crate::lsn::Lsn;
use crate::records::{Records, split_first};

/// Buffers kept for reuse: one is being written while the other is filled.
const KEPT_BUFFERS: usize = 2;

/// When the queue must be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    Now,
    At(Instant),
}

/// What waits to be written.
#[derive(Debug)]
pub(crate) struct Queue {
    batches: VecDeque<Batch>,
    kept: Vec<Batch>,
    due: Option<Due>,
    /// Bytes of records in `batches` and in the batch that is being written.
    bytes: usize,
    limit_bytes: usize,
    body_limit_bytes: usize,
    last: Lsn,
}

impl Queue {
    /// Records are numbered from the one after `last`.
    pub(crate) const fn new(last: Lsn, limit_bytes: usize, body_limit_bytes: usize) -> Self {
        Self { batches: VecDeque::new(), kept: Vec::new(), due: None, bytes: 0, limit_bytes, body_limit_bytes, last }
    }

    pub(crate) const fn last(&self) -> Lsn {
        self.last
    }

    pub(crate) const fn due(&self) -> Option<Due> {
        self.due
    }

    /// Queues all records or none, and returns the position of the last one. Records that fit into one batch are
    /// never split over two. An append to an empty queue is always taken, however long.
    pub(crate) fn push(&mut self, records: &Records, due: Due) -> Result<Lsn, AppendError> {
        if records.largest_bytes() > self.body_limit_bytes {
            return Err(AppendError::RecordTooLarge {
                bytes: records.largest_bytes(),
                limit_bytes: self.body_limit_bytes,
            });
        }
        if self.bytes > 0 && self.bytes + records.byte_len() > self.limit_bytes {
            return Err(AppendError::Full { queued_bytes: self.bytes, limit_bytes: self.limit_bytes });
        }
        if records.is_empty() {
            return Ok(self.last);
        }
        if records.byte_len() <= self.body_limit_bytes {
            self.push_whole(records.bytes(), records.len() as u32);
        } else {
            self.push_split(records.bytes());
        }
        self.bytes += records.byte_len();
        self.last = self.last.plus(records.len() as u64);
        self.due = Some(self.due.map_or(due, |earlier| earlier.min(due)));
        Ok(self.last)
    }

    /// Whatever waits is due now.
    pub(crate) fn hasten(&mut self) {
        if self.due.is_some() {
            self.due = Some(Due::Now);
        }
    }

    /// The next batch to write. What is left behind it was queued with it and is due now.
    pub(crate) fn pop(&mut self) -> Option<Batch> {
        let batch = self.batches.pop_front();
        self.due = (!self.batches.is_empty()).then_some(Due::Now);
        batch
    }

    /// A popped batch has been written.
    pub(crate) fn give_back(&mut self, mut batch: Batch) {
        self.bytes -= batch.body_bytes();
        if self.kept.len() < KEPT_BUFFERS {
            batch.clear();
            self.kept.push(batch);
        }
    }

    fn push_whole(&mut self, bytes: &[u8], records: u32) {
        match self.batches.back_mut() {
            Some(batch) if batch.body_bytes() + bytes.len() <= self.body_limit_bytes => batch.push(bytes, records),
            _ => {
                let mut batch = self.kept.pop().unwrap_or_else(Batch::new);
                batch.push(bytes, records);
                self.batches.push_back(batch);
            }
        }
    }

    fn push_split(&mut self, bytes: &[u8]) {
        let (mut start, mut end, mut records) = (0, 0, 0);
        while end < bytes.len() {
            let (_, _, rest) = split_first(&bytes[end..]).expect("a buffer of records holds whole records");
            let next = bytes.len() - rest.len();
            if next - start > self.body_limit_bytes {
                self.push_whole(&bytes[start..end], records);
                (start, records) = (end, 0);
            }
            end = next;
            records += 1;
        }
        self.push_whole(&bytes[start..end], records);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn records(bodies: &[usize]) -> Records {
        let mut records = Records::new();
        for &bytes in bodies {
            records.push(1, &vec![7; bytes]);
        }
        records
    }

    fn shape(queue: &Queue) -> Vec<(usize, u32)> {
        queue.batches.iter().map(|batch| (batch.body_bytes(), batch.records())).collect()
    }

    #[test]
    fn an_append_that_fits_a_batch_is_never_split() {
        let mut queue = Queue::new(Lsn(10), 1_000, 100);
        assert_eq!(queue.push(&records(&[30, 30]), Due::Now), Ok(Lsn(12)));
        assert_eq!(queue.push(&records(&[30, 30]), Due::Now), Ok(Lsn(14)));
        assert_eq!(queue.push(&records(&[8]), Due::Now), Ok(Lsn(15)));
        assert_eq!(shape(&queue), [(64, 2), (74, 3)]);
    }

    #[test]
    fn a_longer_append_is_split_between_records() {
        let mut queue = Queue::new(Lsn(0), 1_000, 100);
        assert_eq!(queue.push(&records(&[38; 6]), Due::Now), Ok(Lsn(6)));
        assert_eq!(shape(&queue), [(80, 2), (80, 2), (80, 2)]);
    }

    #[test]
    fn what_is_too_long_is_refused_and_nothing_is_queued() {
        let mut queue = Queue::new(Lsn(0), 200, 100);
        let too_large = queue.push(&records(&[1, 99]), Due::Now);
        assert_eq!(too_large, Err(AppendError::RecordTooLarge { bytes: 101, limit_bytes: 100 }));
        assert_eq!(queue.push(&records(&[98, 88]), Due::Now), Ok(Lsn(2)));
        let full = queue.push(&records(&[9]), Due::Now);
        assert_eq!(full, Err(AppendError::Full { queued_bytes: 190, limit_bytes: 200 }));
        assert_eq!(queue.last(), Lsn(2));
        let first = queue.pop().unwrap();
        assert!(queue.push(&records(&[9]), Due::Now).is_err(), "a batch that is being written still counts");
        queue.give_back(first);
        assert_eq!(queue.push(&records(&[9]), Due::Now), Ok(Lsn(3)));
    }

    #[test]
    fn the_earliest_deferral_counts_and_prompt_beats_it() {
        let at = Instant::now();
        let (sooner, later) = (Due::At(at), Due::At(at + Duration::from_secs(1)));
        let mut queue = Queue::new(Lsn(0), 1_000, 100);
        queue.push(&records(&[1]), later).unwrap();
        queue.push(&records(&[1]), sooner).unwrap();
        assert_eq!(queue.due(), Some(sooner));
        queue.push(&records(&[1]), Due::Now).unwrap();
        queue.push(&records(&[1]), later).unwrap();
        assert_eq!(queue.due(), Some(Due::Now));
        queue.pop().unwrap();
        assert_eq!(queue.due(), None);
    }
}
