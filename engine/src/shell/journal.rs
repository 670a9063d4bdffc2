//! Between a shard's decisions and its log: encodes records, hands them over in order, and keeps what the log cannot
//! take at the moment.

use std::{sync::Arc, time::Duration};

use countwheel_wal::{AppendError, Log, Records, State};

use crate::kernel::{
    gate::Lsn,
    record::Record,
    shard::{Turn, Urgency},
};

/// A shard's way to its log.
pub(crate) struct Journal {
    log: Log,
    records: Records,
    body: Vec<u8>,
    /// Urgency of what `records` holds, while the log's queue is full.
    waiting: Option<countwheel_wal::Urgency>,
    /// Bytes of the records that were written since they were asked for.
    bytes: u64,
    /// What the log will never take: the shard has decided more than it can write, and is over.
    broken: Option<Arc<str>>,
}

impl Journal {
    pub(crate) fn new(log: Log) -> Self {
        Self { log, records: Records::new(), body: Vec::new(), waiting: None, bytes: 0, broken: None }
    }

    /// Writes a turn's records. What the log cannot take is kept, in order; see [`Journal::is_blocked`].
    pub(super) fn write(&mut self, turn: &Turn) {
        for record in &turn.records {
            self.push(record);
        }
        let urgency = match turn.urgency {
            Urgency::Prompt => countwheel_wal::Urgency::Prompt,
            Urgency::Within(ms) => countwheel_wal::Urgency::Within(Duration::from_millis(ms.max(0).cast_unsigned())),
            Urgency::Idle if turn.records.is_empty() => return,
            Urgency::Idle => countwheel_wal::Urgency::Within(Duration::from_secs(1)),
        };
        self.append(urgency);
    }

    fn push(&mut self, record: &Record) {
        self.body.clear();
        record.encode(&mut self.body);
        self.records.push(record.kind(), &self.body);
        self.bytes += self.body.len() as u64;
    }

    /// How many bytes of records were written since this was asked last.
    pub(super) const fn take_bytes(&mut self) -> u64 {
        std::mem::replace(&mut self.bytes, 0)
    }

    fn append(&mut self, urgency: countwheel_wal::Urgency) {
        if self.records.is_empty() {
            self.waiting = None;
            return;
        }
        match self.log.append(&self.records, urgency) {
            Ok(_) => {
                self.records.clear();
                self.waiting = None;
            }
            // Kept: it is written when the log has written what it has.
            Err(AppendError::Full { .. }) => self.waiting = Some(countwheel_wal::Urgency::Prompt),
            Err(error) => {
                if self.broken.is_none() && !matches!(error, AppendError::Poisoned { .. }) {
                    tracing::error!(%error, "the log does not take what was decided: raise segment_bytes, restart");
                    self.broken = Some(error.to_string().into());
                }
                self.waiting = Some(countwheel_wal::Urgency::Prompt);
            }
        }
    }

    /// Tries again to hand over what the log could not take. While this is true, nothing may be decided.
    pub(super) fn is_blocked(&mut self) -> bool {
        if let Some(urgency) = self.waiting.filter(|_| self.broken.is_none()) {
            self.append(urgency);
        }
        self.waiting.is_some()
    }

    pub(super) fn hasten(&self) {
        self.log.hasten();
    }

    pub(super) fn durable(&self) -> Lsn {
        Lsn(self.log.durable().0)
    }

    pub(super) fn log(&self) -> &Log {
        &self.log
    }

    pub(super) fn state(&self) -> State {
        self.broken.clone().map_or_else(|| self.log.state(), State::Poisoned)
    }

    pub(super) fn close(self) -> Result<(), String> {
        self.log.close().map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::record::Named;

    #[test]
    fn a_decision_that_the_log_will_never_take_ends_the_shard_aloud() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = countwheel_wal::Options::default();
        (options.segment_bytes, options.reserve_bytes) = (16 << 10, 0);
        let fs = Arc::new(countwheel_wal::OsFs);
        let (log, _) = Log::open(dir.path(), fs, options, Arc::new(|| {}), &mut |_| Ok(())).unwrap();
        let mut journal = Journal::new(log);
        let named = |bytes| Turn {
            records: vec![Record::QueueNamed(Named { name: "q".repeat(bytes) })],
            urgency: Urgency::Prompt,
            ..Turn::default()
        };
        journal.write(&named(100));
        assert!(!journal.is_blocked() && journal.state() == State::Running);
        journal.write(&named(100_000));
        assert!(journal.is_blocked() && matches!(journal.state(), State::Poisoned(_)), "{:?}", journal.state());
    }
}
