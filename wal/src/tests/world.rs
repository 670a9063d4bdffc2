//! A log without threads on a simulated disk, and what must hold of it after a crash.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::appender::{Appender, Stamp};
use crate::batch::Batch;
use crate::fs::Fs;
use crate::identity::Identity;
use crate::name::Layout;
use crate::records::Records;
use crate::recover::{Recovered, make_directories, recover};
use crate::sim::{Rng, SimFs};
use crate::snapshot::{Keeper, Replay, SnapshotError, SnapshotFile};
use crate::spare::{Spare, SpareSource, make_spare};
use crate::write_error::WriteError;
use crate::{Archive, Lsn, OpenError, Options, SyncPolicy};

pub(super) const ROOT: &str = "/log";
pub(super) const STAMP: Stamp = Stamp { wall_ms: 1_793_511_000_000, generation: 3 };

/// The body of record `number`: its length and bytes follow from the number alone.
pub(super) fn body(number: u64) -> Vec<u8> {
    let mut rng = Rng::new(number);
    let mut body = vec![0; [3, 40, 700, 0, 2_500, 128][(number % 6) as usize]];
    rng.fill(&mut body);
    body
}

pub(super) fn kind(number: u64) -> u8 {
    (number % 251) as u8
}

/// Records `numbers`, as one append.
pub(super) fn records(numbers: std::ops::Range<u64>) -> Records {
    let mut records = Records::new();
    for number in numbers {
        records.push(kind(number), &body(number));
    }
    records
}

pub(super) fn options() -> Options {
    Options { segment_bytes: 20 << 10, reserve_bytes: 0, shard: 2, ..Options::default() }
}

pub(super) fn layout() -> Layout {
    Layout::new(Path::new(ROOT))
}

pub(super) fn segment_path(first_lsn: u64) -> PathBuf {
    layout().segment(Lsn(first_lsn))
}

/// Makes each spare when it is asked for.
struct InlineSpares {
    fs: SimFs,
    number: u64,
    kept: Option<Spare>,
}

impl SpareSource for InlineSpares {
    fn take(&mut self) -> Result<Spare, WriteError> {
        if let Some(spare) = self.kept.take() {
            return Ok(spare);
        }
        self.number += 1;
        make_spare(&self.fs, layout().spare(self.number), options().segment_bytes, SyncPolicy::Always)
    }

    fn put_back(&mut self, spare: Spare) {
        self.kept = Some(spare);
    }
}

/// Checks that what an open shows is records 1, 2, 3, ... bit for bit, whatever of them a snapshot stands for (I1, I2).
pub(super) struct Shown {
    next: u64,
    snapshot: Lsn,
}

impl Default for Shown {
    fn default() -> Self {
        Self { next: 1, snapshot: Lsn::NONE }
    }
}

impl Shown {
    /// The last record that was shown.
    pub(super) fn last(&self) -> u64 {
        self.next - 1
    }

    /// The last record of the snapshot that was shown.
    pub(super) fn snapshot(&self) -> Lsn {
        self.snapshot
    }
}

impl Replay for Shown {
    fn restart(&mut self, at: Lsn) -> Result<(), String> {
        *self = Self { next: 1, snapshot: at };
        Ok(())
    }

    fn chunk(&mut self, bytes: &[u8]) -> Result<(), String> {
        let until = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        assert!(bytes[8..] == chunk(self.next, until)[8..], "chunk from {} to {until} differs", self.next);
        self.next = until + 1;
        Ok(())
    }

    fn record(&mut self, entry: crate::Entry<'_>) -> Result<(), String> {
        let next = self.next;
        assert!(next > self.snapshot.0, "records from {next} on are not in the snapshot up to {}", self.snapshot);
        assert_eq!((entry.lsn, entry.kind), (Lsn(next), kind(next)));
        assert!(entry.body == body(next), "record {next} differs");
        self.next += 1;
        Ok(())
    }
}

/// A chunk that stands for records.
fn chunk(from: u64, until: u64) -> Vec<u8> {
    let mut chunk = until.to_le_bytes().to_vec();
    (from..=until).for_each(|number| chunk.extend(body(number)));
    chunk
}

/// An open log.
pub(super) struct World {
    pub(super) fs: SimFs,
    pub(super) appender: Appender,
    identity: Identity,
    /// Where the newest snapshot ends.
    snapshot: Lsn,
    spares: InlineSpares,
    /// What recovery showed, by count.
    pub(super) recovered: Recovered,
    /// The last record handed to the appender.
    pub(super) submitted: u64,
    unwritten: Option<Batch>,
    pub(super) takes_snapshots: bool,
}

impl World {
    /// Opens the log and checks what it shows.
    pub(super) fn open(fs: &SimFs) -> Result<Self, OpenError> {
        let mut shown = Shown::default();
        let shared: Arc<dyn Fs> = Arc::new(fs.clone());
        make_directories(fs, &layout())?;
        let (appender, recovered, identity) = recover(&shared, &layout(), &options(), STAMP.wall_ms, &mut shown)?;
        assert_eq!(recovered.last, Lsn(shown.next - 1));
        assert_eq!(appender.durable(), recovered.last);
        let spares = InlineSpares { fs: fs.clone(), number: 0, kept: None };
        let (submitted, snapshot) = (recovered.last.0, recovered.snapshot.unwrap_or(Lsn::NONE));
        let (fs, unwritten, takes_snapshots) = (fs.clone(), None, true);
        Ok(Self { fs, appender, identity, spares, submitted, snapshot, recovered, unwritten, takes_snapshots })
    }

    /// Writes a snapshot of everything durable, in a few chunks, and removes what it makes superfluous.
    pub(super) fn snapshot(&mut self, rng: &mut Rng) -> Result<(), WriteError> {
        let at = self.appender.durable();
        if at <= self.snapshot {
            return Ok(());
        }
        // Into the archive or away, in turn.
        let archive = if at.0.is_multiple_of(2) { Archive::Delete } else { Archive::default() };
        let keeper = Keeper::for_tests(Arc::new(self.fs.clone()), layout(), self.identity, archive);
        self.write_snapshot(&keeper, at, rng).map_err(as_broken)
    }

    fn write_snapshot(&mut self, keeper: &Keeper, at: Lsn, rng: &mut Rng) -> Result<(), SnapshotError> {
        let mut file = SnapshotFile::begin(&self.fs, &layout(), &self.identity, at, STAMP.wall_ms)?;
        let mut next = 1;
        while next <= at.0 {
            let until = (next + rng.below(6)).min(at.0);
            file.write(&chunk(next, until))?;
            next = until + 1;
        }
        file.settle(&self.fs, || Ok(()))?;
        self.snapshot = at;
        keeper.keep(STAMP.wall_ms).map(drop)
    }

    pub(super) fn durable(&self) -> u64 {
        self.appender.durable().0
    }

    /// Appends the next `count` records as one batch.
    pub(super) fn commit(&mut self, count: u64) -> Result<(), WriteError> {
        let records = records(self.submitted + 1..self.submitted + 1 + count);
        let mut batch = Batch::new();
        batch.push(records.bytes(), count as u32);
        self.submitted += count;
        self.unwritten = Some(batch);
        self.retry()
    }

    /// Tries the batch that found no space again.
    pub(super) fn retry(&mut self) -> Result<(), WriteError> {
        let Some(mut batch) = self.unwritten.take() else { return Ok(()) };
        let committed = self.appender.commit(&mut batch, STAMP, &mut self.spares);
        if committed.is_err() {
            self.unwritten = Some(batch);
        }
        committed
    }

    /// One step of the workload, chosen by `rng`.
    pub(super) fn step(&mut self, rng: &mut Rng) -> Result<(), WriteError> {
        self.retry()?;
        match rng.below(10) {
            8 | 9 if self.takes_snapshots => self.snapshot(rng),
            0 | 1 => self.appender.mark(STAMP),
            2 | 3 => self.commit(1),
            4 | 5 => self.commit(1 + rng.below(3)),
            _ => self.commit(1 + rng.below(6)),
        }
    }
}

/// Opens, takes `steps` steps, closes in the middle once, and says how far it came before something failed.
pub(super) struct Outcome {
    pub(super) durable: u64,
    pub(super) submitted: u64,
    pub(super) error: Option<WriteError>,
}

pub(super) fn run(fs: &SimFs, seed: u64, steps: u64) -> Outcome {
    run_with(fs, (seed, steps), true)
}

pub(super) fn run_with(fs: &SimFs, (seed, steps): (u64, u64), takes_snapshots: bool) -> Outcome {
    let mut rng = Rng::new(seed);
    let mut outcome = Outcome { durable: 0, submitted: 0, error: None };
    for part in 0..2 {
        let mut world = match World::open(fs) {
            Ok(world) => world,
            Err(error) => {
                outcome.error = Some(as_write_error(error));
                return outcome;
            }
        };
        world.takes_snapshots = takes_snapshots;
        for _ in 0..steps {
            let stepped = world.step(&mut rng);
            (outcome.durable, outcome.submitted) = (world.durable(), world.submitted);
            if let Err(error) = stepped {
                outcome.error = Some(error);
                return outcome;
            }
        }
        if part == 0
            && let Err(error) = world.appender.finish(STAMP)
        {
            outcome.error = Some(error);
            return outcome;
        }
    }
    outcome
}

fn as_broken(error: SnapshotError) -> WriteError {
    match error {
        SnapshotError::Io { what, path, source } => WriteError::Broken { what, path, source },
        SnapshotError::NoSpace { .. } => WriteError::NoSpace,
        other => panic!("{other}"),
    }
}

fn as_write_error(error: OpenError) -> WriteError {
    match error {
        OpenError::Io { what, path, source } => WriteError::Broken { what, path, source },
        OpenError::NoSpace { .. } => WriteError::NoSpace,
        other => panic!("{other}"),
    }
}

/// Opens what a crash left, and checks I1 to I4 and I6.
pub(super) fn check(image: &SimFs, durable: u64, submitted: u64, what: &dyn Fn() -> String) -> World {
    let before = image.restart();
    let world = World::open(image).unwrap_or_else(|error| panic!("{}: {error}", what()));
    let last = world.recovered.last.0;
    assert!(last == durable || last == submitted, "{}: {last} shown, {durable} durable, {submitted} sent", what());
    if let Some(torn) = &world.recovered.torn {
        let segment = before.read(&torn.path).unwrap();
        let cut = image.read(&torn.quarantined).unwrap();
        let (from, until) = (torn.offset as usize, (torn.offset + torn.bytes) as usize);
        assert!(cut == segment[from..until] && segment[until..].iter().all(|&byte| byte == 0), "{}", what());
    }
    let again = image.restart();
    let second = World::open(&again).unwrap_or_else(|error| panic!("{} again: {error}", what()));
    assert_eq!(second.recovered.last.0, last, "{}", what());
    assert!(again.files() == image.files(), "{}: recovering twice differs from once", what());
    world
}
