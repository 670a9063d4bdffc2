//! The write-ahead log beside its limit and its peers: appends with a sync a batch, and recovery.
//!
//! `limit` is one aligned `pwrite` of a ready-made frame into a file of zeros and one `fdatasync`, by hand: what the
//! disk allows without encoding, checksums, threads, or new segments; `limit_direct` does the same past the page cache.
//! All in one run, since disks have moods. With two appends in flight a sync may carry both, and beat the limit.
//! `RECOVERY_MB=1024` recovers a larger log than the default 256 MB.

use std::collections::VecDeque;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use countwheel_wal::{Log, Lsn, Options, OsFs, Records, SyncPolicy, Urgency};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use okaywal::{Configuration, LogVoid};
use protobuf::well_known_types::BytesValue;
use raft_engine::{Config, Engine, LogBatch, MessageExt, ReadableSize};

const RECORD_BYTES: usize = 128;
const BATCHES: [usize; 4] = [1, 64, 1_024, 8_192];
const BLOCK_BYTES: usize = 4_096;

/// Each record differs, so that no file system and no peer can make less of it.
fn record(number: u64) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for chunk in record.chunks_exact_mut(8) {
        state = state.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
        chunk.copy_from_slice(&state.to_le_bytes());
    }
    record
}

fn open(dir: &Path, options: Options) -> Log {
    let client = thread::current();
    let notify = Arc::new(move || client.unpark());
    Log::open(dir, Arc::new(OsFs), options, notify, &mut |_| Ok(())).expect("a new log opens").0
}

fn wait_until(log: &Log, lsn: Lsn) {
    while log.durable() < lsn {
        thread::park();
    }
}

/// One log for all samples, so that segments come and go as they do in use.
fn ours(records_a_batch: usize, in_flight: usize) -> impl FnMut(u64) -> Duration {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut options = Options::default();
    options.reserve_bytes = 0;
    let log = open(dir.path(), options);
    let body = record(1);
    let mut records = Records::new();
    let mut sent = VecDeque::new();
    move |batches| {
        let _kept = &dir;
        let started = Instant::now();
        for _ in 0..batches {
            records.clear();
            for _ in 0..records_a_batch {
                records.push(1, black_box(&body));
            }
            if sent.len() == in_flight {
                wait_until(&log, sent.pop_front().expect("batches are in flight"));
            }
            sent.push_back(log.append(&records, Urgency::Prompt).expect("the queue has room"));
        }
        sent.clear();
        wait_until(&log, log.last());
        started.elapsed()
    }
}

fn limit(records_a_batch: usize, is_direct: bool) -> impl FnMut(u64) -> Duration {
    const FILE_BYTES: usize = 64 << 20;
    let file = tempfile::tempfile().expect("a temporary file");
    file.write_all_at(&vec![0; FILE_BYTES], 0).expect("room for the file");
    file.sync_all().expect("a disk");
    let frame_bytes = (104 + records_a_batch * (RECORD_BYTES + 3)).next_multiple_of(BLOCK_BYTES);
    let memory: Vec<u8> = (0..frame_bytes + BLOCK_BYTES).map(|at| record(at as u64)[0]).collect();
    let unaligned_bytes = memory.as_ptr().addr() % BLOCK_BYTES;
    if is_direct {
        let flags = rustix::fs::fcntl_getfl(&file).expect("an open file");
        rustix::fs::fcntl_setfl(&file, flags | rustix::fs::OFlags::DIRECT).expect("a file system with O_DIRECT");
    }
    let mut offset = 0;
    move |batches| {
        let frame = &memory[BLOCK_BYTES - unaligned_bytes..][..frame_bytes];
        let started = Instant::now();
        for _ in 0..batches {
            if offset + frame_bytes > FILE_BYTES {
                offset = 0;
            }
            file.write_all_at(frame, offset as u64).expect("a write");
            file.sync_data().expect("a sync");
            offset += frame_bytes;
        }
        started.elapsed()
    }
}

struct Numbered;

impl MessageExt for Numbered {
    type Entry = BytesValue;

    fn index(entry: &Self::Entry) -> u64 {
        let bytes = entry.value.first_chunk().expect("every entry starts with its number");
        u64::from_le_bytes(*bytes)
    }
}

fn numbered(number: u64) -> BytesValue {
    let mut value = record(1);
    value[..8].copy_from_slice(&number.to_le_bytes());
    BytesValue { value: value.to_vec(), ..BytesValue::default() }
}

fn open_raft_engine(dir: &Path) -> Engine {
    Engine::open(Config {
        dir: dir.display().to_string(),
        batch_compression_threshold: ReadableSize(0),
        target_file_size: ReadableSize::mb(64),
        ..Config::default()
    })
    .expect("raft-engine opens")
}

fn raft_engine(records_a_batch: usize) -> impl FnMut(u64) -> Duration {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let engine = open_raft_engine(dir.path());
    let mut next = 1;
    move |batches| {
        let _kept = &dir;
        let mut took = Duration::ZERO;
        for _ in 0..batches {
            // Making the entries is not timed: ours borrows its bodies.
            let entries: Vec<BytesValue> = (next..next + records_a_batch as u64).map(numbered).collect();
            next += records_a_batch as u64;
            let started = Instant::now();
            let mut batch = LogBatch::with_capacity(1);
            batch.add_entries::<Numbered>(1, &entries).expect("entries in order");
            engine.write(&mut batch, true).expect("a write");
            took += started.elapsed();
            // Its memory table would grow for ever.
            engine.compact_to(1, next - 1);
        }
        took
    }
}

fn okay_configuration(dir: &Path) -> Configuration {
    Configuration::default_for(dir).preallocate_bytes(64 << 20).checkpoint_after_bytes(60 << 20)
}

fn okaywal(records_a_batch: usize) -> impl FnMut(u64) -> Duration {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let log = okay_configuration(dir.path()).open(LogVoid).expect("okaywal opens");
    let body = record(1);
    move |batches| {
        let _kept = &dir;
        let started = Instant::now();
        for _ in 0..batches {
            let mut entry = log.begin_entry().expect("an entry");
            for _ in 0..records_a_batch {
                entry.write_chunk(black_box(&body)).expect("a chunk");
            }
            entry.commit().expect("a commit");
        }
        started.elapsed()
    }
}

fn bench(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    records_a_batch: usize,
    mut run: impl FnMut(u64) -> Duration,
) {
    group.bench_function(BenchmarkId::new(name, records_a_batch), |bencher| bencher.iter_custom(&mut run));
}

fn append(c: &mut Criterion) {
    let mut group = c.benchmark_group("log/append_128B_fdatasync_a_batch");
    group.sample_size(10).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    for records_a_batch in BATCHES {
        group.throughput(Throughput::Elements(records_a_batch as u64));
        bench(&mut group, "limit", records_a_batch, limit(records_a_batch, false));
        bench(&mut group, "limit_direct", records_a_batch, limit(records_a_batch, true));
        bench(&mut group, "ours", records_a_batch, ours(records_a_batch, 2));
        bench(&mut group, "ours_one_in_flight", records_a_batch, ours(records_a_batch, 1));
        bench(&mut group, "raft-engine", records_a_batch, raft_engine(records_a_batch));
        bench(&mut group, "okaywal", records_a_batch, okaywal(records_a_batch));
    }
    group.finish();
}

fn recovery(c: &mut Criterion) {
    // `cargo bench` says so; `cargo test` only wants to see it run.
    let usual = if std::env::args().any(|argument| argument == "--bench") { 256 } else { 4 };
    let megabytes: u64 = std::env::var("RECOVERY_MB").ok().and_then(|text| text.parse().ok()).unwrap_or(usual);
    let batches = megabytes * 1_000_000 / (1_024 * RECORD_BYTES as u64);
    let mut group = c.benchmark_group("log/recovery");
    group.sample_size(10).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(3));
    group.throughput(Throughput::Bytes(batches * 1_024 * RECORD_BYTES as u64));

    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut options = Options::default();
    options.reserve_bytes = 0;
    options.sync = SyncPolicy::Os;
    let log = open(dir.path(), options.clone());
    let mut records = Records::new();
    for number in 0..1_024 {
        records.push(1, &record(number));
    }
    for _ in 0..batches {
        while log.append(&records, Urgency::Prompt).is_err() {
            thread::park_timeout(Duration::from_millis(1));
        }
    }
    log.close().expect("a clean stop");
    // What a start writes is not what is measured.
    options.segment_bytes = 16 << 10;
    group.bench_function(BenchmarkId::new("ours", format!("{megabytes}MB")), |bencher| {
        bencher.iter_custom(|times| {
            let mut took = Duration::ZERO;
            for _ in 0..times {
                let mut bytes = 0;
                let visit = &mut |entry: countwheel_wal::Entry<'_>| {
                    bytes += entry.body.len() as u64 + u64::from(entry.body[0] & 1);
                    Ok(())
                };
                let started = Instant::now();
                let opened = Log::open(dir.path(), Arc::new(OsFs), options.clone(), Arc::new(|| {}), visit);
                took += started.elapsed();
                opened.expect("the log opens").0.close().expect("a clean stop");
                black_box(bytes);
            }
            took
        });
    });

    let dir = tempfile::tempdir().expect("a temporary directory");
    let engine = open_raft_engine(dir.path());
    for batch in 0..batches {
        let entries: Vec<BytesValue> = (batch * 1_024 + 1..batch * 1_024 + 1_025).map(numbered).collect();
        let mut batch = LogBatch::with_capacity(1);
        batch.add_entries::<Numbered>(1, &entries).expect("entries in order");
        engine.write(&mut batch, false).expect("a write");
    }
    drop(engine);
    group.bench_function(BenchmarkId::new("raft-engine", format!("{megabytes}MB")), |bencher| {
        bencher.iter_custom(|times| {
            let mut took = Duration::ZERO;
            for _ in 0..times {
                let started = Instant::now();
                let engine = open_raft_engine(dir.path());
                took += started.elapsed();
                drop(engine);
            }
            took
        });
    });
    group.finish();
}

criterion_group!(benches, append, recovery);
criterion_main!(benches);
