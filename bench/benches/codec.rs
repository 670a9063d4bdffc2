//! What a log record costs: encode and frame, and decode, beside bincode with fixed integers and postcard.
//!
//! Ours is what a shard's journal does with each record: the body into a buffer that is kept, then kind, length and
//! bytes into a batch. The peers encode the same bodies into a buffer that is kept, without any framing.

use std::hint::black_box;

use bincode::config;
use countwheel::kernel::{
    policy::{Effect, Misfire, Overlap, Retry},
    record::{Died, Enqueued, Materialized, Record, RuleBody, ScheduleCreated, SpecBody},
};
use countwheel_wal::Records;
use criterion::{Bencher, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use serde::{Deserialize, Serialize};

/// A batch is handed to the log when it holds so many bytes or its turn ends; cleared at the same size here.
const BATCH_BYTES: usize = 1 << 20;

fn records() -> [(&'static str, Record); 5] {
    let cron = RuleBody::Cron {
        expr: "0 9 * * MON-FRI".into(),
        zone: "Europe/Berlin".into(),
        fold_both: false,
        gap_shift: false,
        day_and: false,
    };
    let spec = SpecBody {
        queue: 1,
        name: None,
        rule: cron,
        start_at_ms: None,
        end_at_ms: None,
        payload: vec![b'x'; 64],
        flexible_window_ms: 0,
        max_lateness_ms: 60_000,
        misfire: Misfire::FireOnce,
        overlap: Overlap::Allow,
        retry: Retry::default(),
        effect: Effect::Idempotent,
        review_owner: None,
    };
    let created = ScheduleCreated { id: [7; 16], version: 1, tenant: 3, spec };
    let materialized = |count| Materialized { scheduled_for: 2_000, schedules: vec![1; count] };
    let enqueued = Enqueued {
        stream: 3,
        generation: 7,
        first_counter: 1_000_000,
        added: 3_000_000,
        at: -2,
        runs: vec![(250_000, 1)],
    };
    [
        ("died", Record::Died(Died { occurrence: 1_000_000 })),
        ("enqueued_1", Record::Enqueued(enqueued)),
        ("materialized_1", Record::Materialized(materialized(1))),
        ("materialized_1024", Record::Materialized(materialized(1_024))),
        ("created_cron", Record::ScheduleCreated(Box::new(created))),
    ]
}

fn encode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("encode");
    for (name, record) in records() {
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::new("countwheel_framed", name), |bencher| {
            let (mut body, mut batch) = (Vec::new(), Records::new());
            bencher.iter(|| {
                body.clear();
                black_box(&record).encode(&mut body);
                batch.push(record.kind(), &body);
                if batch.byte_len() > BATCH_BYTES {
                    batch.clear();
                }
            });
        });
        group.bench_function(BenchmarkId::new("bincode_fixed", name), |b| bincode_fixed(b, &record));
        let mirror = Mirror::of(&record);
        group.bench_function(BenchmarkId::new("postcard", name), |bencher| {
            let mut body = Vec::new();
            bencher.iter(|| {
                body.clear();
                body = postcard::to_extend(black_box(&mirror), std::mem::take(&mut body)).expect("it encodes");
            });
        });
    }
    group.finish();
}

fn bincode_fixed(bencher: &mut Bencher<'_>, record: &Record) {
    let mut out = Vec::new();
    macro_rules! measure {
        ($body:expr) => {
            bencher.iter(|| {
                out.clear();
                let layout = config::standard().with_fixed_int_encoding();
                bincode::encode_into_std_write(black_box($body), &mut out, layout).expect("it encodes");
            })
        };
    }
    match record {
        Record::Died(body) => measure!(body),
        Record::Enqueued(body) => measure!(body),
        Record::Materialized(body) => measure!(body),
        Record::ScheduleCreated(body) => measure!(&**body),
        other => unreachable!("{other:?} is not among the records of this bench"),
    }
}

fn decode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode");
    for (name, record) in records() {
        group.throughput(Throughput::Elements(1));
        let mut body = Vec::new();
        record.encode(&mut body);
        group.bench_function(BenchmarkId::new("countwheel", name), |bencher| {
            bencher.iter(|| Record::decode(record.kind(), black_box(&body)).expect("its own bytes"));
        });
        let bytes = postcard::to_stdvec(&Mirror::of(&record)).expect("it encodes");
        group.bench_function(BenchmarkId::new("postcard", name), |bencher| {
            bencher.iter(|| postcard::from_bytes::<Mirror>(black_box(&bytes)).expect("its own bytes"));
        });
    }
    group.finish();
}

/// The same bodies in serde's terms.
#[derive(Serialize, Deserialize)]
enum Mirror {
    Died(u64),
    Enqueued(u32, u64, u64, u64, i64, Vec<(u64, u64)>),
    Materialized(i64, Vec<u32>),
    Created(Box<MirrorCreated>),
}

#[derive(Serialize, Deserialize)]
struct MirrorCreated {
    id: [u8; 16],
    numbers: (u32, u32, u32),
    name: Option<String>,
    rule: (String, String, bool, bool, bool),
    bounds: (Option<i64>, Option<i64>),
    payload: Vec<u8>,
    policies: (u64, u64, u8, u8, u8, Option<String>),
    retry: (u32, u64, u64, Option<u64>, Option<u32>),
}

impl Mirror {
    fn of(record: &Record) -> Self {
        match record {
            Record::Died(body) => Self::Died(body.occurrence),
            Record::Enqueued(b) => {
                Self::Enqueued(b.stream, b.generation, b.first_counter, b.added, b.at, b.runs.clone())
            }
            Record::Materialized(body) => Self::Materialized(body.scheduled_for, body.schedules.clone()),
            Record::ScheduleCreated(body) => {
                let spec = &body.spec;
                let RuleBody::Cron { expr, zone, fold_both, gap_shift, day_and } = spec.rule.clone() else {
                    unreachable!("this bench makes a cron rule")
                };
                let retry = spec.retry;
                Self::Created(Box::new(MirrorCreated {
                    id: body.id,
                    numbers: (body.version, body.tenant, spec.queue),
                    name: spec.name.clone(),
                    rule: (expr, zone, fold_both, gap_shift, day_and),
                    bounds: (spec.start_at_ms, spec.end_at_ms),
                    payload: spec.payload.clone(),
                    policies: (spec.flexible_window_ms, spec.max_lateness_ms, 1, 0, 0, spec.review_owner.clone()),
                    retry: (retry.max_attempts, retry.base_ms, retry.cap_ms, retry.deadline_ms, retry.budget),
                }))
            }
            other => unreachable!("{other:?} is not among the records of this bench"),
        }
    }
}

criterion_group!(benches, encode, decode);
criterion_main!(benches);
