//! The bytes of a snapshot's images: golden vectors, read by two independent decoders.
#![expect(clippy::mem_forget, reason = "the derives of wincode expand to it")]

use countwheel::kernel::{
    attempt::{AttemptResult, Failure, FailureClass, Resolution},
    evidence::HoldReason,
    id::Kind,
    image::{
        AnswerImage, AnsweredImage, AttemptImage, BackfillImage, Counts, FORMAT, Head, Image, OccurrenceImage,
        PlanImage, QueueImage, RangeImage, ReviewImage, RunImage, ScheduleImage, SupersededImage, TenantImage, read,
    },
    occurrence::{EntryId, Lane, Reason, State},
    policy::{Effect, Misfire, Overlap, Policies, Retry},
    record::{LocalBody, Opened, RuleBody},
    schedule::RangeDisposition,
    tenant::{QueueSettings, TenantSettings},
};
use wincode::{SchemaRead, SchemaWrite};

use crate::records::{hex, unhex, varint};

const GOLDEN: &str = include_str!("../golden/images.txt");

fn policies() -> Policies {
    Policies {
        misfire: Misfire::CatchUp { limit: 300 },
        max_lateness_ms: 60_000,
        overlap: Overlap::QueueOne,
        retry: Retry { deadline_ms: Some(70_000), budget: Some(3), ..Retry::default() },
        effect: Effect::NonIdempotent,
    }
}

fn schedule(plan: PlanImage) -> ScheduleImage<'static> {
    let range = |disposition| RangeImage { kind: Kind::Regular, disposition, first: -9_000, last: -1_000, count: 9 };
    ScheduleImage {
        number: 7,
        id: std::array::from_fn(|i| u8::try_from(i).expect("16 bytes")),
        version: 3,
        tenant: 1,
        queue: 2,
        plan,
        bounds: (Some(-1), Some(86_400_000)),
        flexible_window_ms: 500,
        policies: policies(),
        is_canceled: false,
        is_paused: true,
        created_at: -70_000,
        updated_at: -300,
        decided_through: 2_000,
        last_run_at: Some(-60_000),
        retries: (20_788, 4),
        changed: 1 << 40,
        name: Some("nightly"),
        payload: b"{}",
        review_owner: Some("ops"),
        ranges: vec![range(RangeDisposition::Missed), range(RangeDisposition::Canceled(Reason::Paused))],
    }
}

fn occurrence() -> OccurrenceImage {
    OccurrenceImage {
        number: 70_000,
        id: [0xab; 16],
        schedule: 7,
        version: 3,
        tenant: 1,
        queue: 2,
        kind: Kind::Backfill,
        scheduled_for: -60_000,
        available_at: -59_000,
        enqueued_at: Some(-58_000),
        entry: Some(EntryId { generation: 7, counter: 300 }),
        entry_at: -57_000,
        state: State::Held,
        reason: Some(Reason::Held(HoldReason::CatchUpReview)),
        lane: Lane::CatchUp,
        is_tracked: true,
        is_settled: false,
        older: Some(69_999),
    }
}

fn run() -> RunImage<'static> {
    let attempt = |number, result| AttemptImage {
        number,
        worker: "w1",
        started_at: -58_000,
        finished_at: Some(-57_000),
        lease_expires_at: -28_000,
        result,
        message: Some("no route"),
        result_ref: Some("s3://r"),
    };
    RunImage {
        occurrence: 70_000,
        made: 2,
        allowed: 5,
        attempts: vec![
            attempt(1, Some(AttemptResult::Failed(Failure::Reported(FailureClass::Transient)))),
            attempt(2, Some(AttemptResult::Succeeded)),
            attempt(3, None),
        ],
        token: Some((900, 4)),
        lease_ms: 30_000,
        is_in_process: false,
        called_off: Some(Reason::Superseded),
        stop_asked: true,
        delay_ms: Some(1_500),
        is_replayed: true,
        died_at: Some(-5),
        review: Some(ReviewImage {
            holds: vec![HoldReason::OutcomeUnknown],
            settled: vec![HoldReason::CatchUpReview],
            asked_at: Some(-4),
            decision: Some((Resolution::Retry, "ann", "looked")),
            late_result: Some("s3://late"),
        }),
        claim_id: Some("c-1"),
    }
}

/// One of every kind, and of every shape within a kind.
fn vectors() -> Vec<(&'static str, Image<'static>)> {
    let opened = Opened { generation: 7, owner: [0xcd; 16], boot_id: "b00t".into(), ..Opened::default() };
    let head = Head {
        format: FORMAT,
        lsn: 1_000_000,
        log_time_ms: 1_793_511_000_000,
        opened: Some(opened),
        version_floor: 5,
        next_backfill: 9,
        next_occurrence: 70_001,
        first_worker: 3,
        has_forgotten: true,
        has_conditions: false,
        smallest_lateness_ms: 5_000,
    };
    let cron = RuleBody::Cron {
        expr: "30 1 * * *".into(),
        zone: "Europe/Berlin".into(),
        fold_both: true,
        gap_shift: false,
        day_and: true,
    };
    let local = LocalBody { local: "2026-11-01T01:30:00".into(), zone: "UTC".into(), second: Some(true), shift: false };
    let at = RuleBody::At { at_ms: 1_793_511_000_000, local: Some(local) };
    let after = RuleBody::After { every_ms: 1_000, anchor_ms: -5, from_start: true };
    let streams = [(Some(EntryId { generation: 7, counter: 1 }), 1), (None, 0), (None, 300)];
    let answered = |answer| Image::Answered(AnsweredImage { at: -1, schedule_id: [1; 16], key: b"k", answer });
    let backfill = BackfillImage {
        number: 8,
        schedule: 7,
        version: 2,
        plan: PlanImage::Shared(4),
        bounds: (None, None),
        discriminator: b"key",
        done_through: -80_000,
        to: -70_000,
        near: Some(69_000),
    };
    vec![
        ("head", Image::Head(head)),
        ("tenant", Image::Tenant(TenantImage { name: "acme", revision: 2, settings: TenantSettings::default() })),
        ("queue", Image::Queue(QueueImage { name: "mail", revision: 0, settings: QueueSettings::default(), streams })),
        ("worker", Image::Worker("w1")),
        ("free", Image::Free(vec![4, 70_000, 2])),
        ("rule", Image::Rule(4, cron)),
        ("schedule_shared", Image::Schedule(schedule(PlanImage::Shared(4)))),
        ("schedule_at", Image::Schedule(schedule(PlanImage::Own(at)))),
        ("schedule_paced", Image::Schedule(schedule(PlanImage::Paced { body: after, from_ms: 12, is_open: true }))),
        (
            "superseded",
            Image::Superseded(SupersededImage {
                schedule: 7,
                version: 2,
                policies: policies(),
                payload: b"old",
                flexible_window_ms: 0,
            }),
        ),
        ("backfill", Image::Backfill(backfill)),
        ("occurrence", Image::Occurrence(occurrence())),
        ("run", Image::Run(run())),
        ("tombstone", Image::Tombstone(3, -86_400_000)),
        ("ended", Image::Ended(60_000, -3_600_000)),
        ("answered_trigger", answered(AnswerImage::Triggered([2; 16]))),
        ("answered_backfill", answered(AnswerImage::Backfilled { occurrences: 5, from: -9, to: -2 })),
        ("end", Image::End(Counts { schedules: 1, occurrences: 300, runs: 2 })),
    ]
}

fn bytes(image: &Image<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    image.encode(&mut bytes);
    bytes
}

#[test]
fn every_image_has_the_bytes_it_always_had() {
    let written: Vec<String> = vectors().iter().map(|(name, image)| format!("{name} {}", hex(&bytes(image)))).collect();
    let golden: Vec<&str> = GOLDEN.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(written, golden, "bytes of images are frozen: a new layout gets a new variant, and FORMAT grows");
    let chunk: Vec<u8> = golden.iter().flat_map(|line| unhex(line.split_once(' ').expect("two words").1)).collect();
    let mut rest = &chunk[..];
    for (name, image) in vectors() {
        assert_eq!(read(&mut rest), Ok(image), "{name}");
    }
    assert!(rest.is_empty());
}

#[test]
fn an_image_that_is_cut_is_refused() {
    for (name, image) in vectors() {
        let bytes = bytes(&image);
        for length in 0..bytes.len() {
            assert!(read(&mut &bytes[..length]).is_err(), "{name} cut to {length}");
        }
    }
}

/// The maintained successor of bincode reads every image and writes the same bytes: there is a way out.
#[test]
fn wincode_reads_every_image_and_writes_it_again() {
    for (name, image) in vectors() {
        let bytes = bytes(&image);
        let mirror: Mirror = wincode::config::deserialize_exact(&bytes, varint()).expect(name);
        assert_eq!(wincode::config::serialize(&mirror, varint()).expect(name), bytes, "{name}");
    }
}

type Entry = (u64, u64);
type PoliciesMirror = (MisfireMirror, u64, u32, (u32, u64, u64, Option<u64>, Option<u32>), u32);
type BoundsMirror = (Option<i64>, Option<i64>);
type QuotasMirror = (Option<u64>, Option<u32>, Option<u32>, Option<u32>, Option<u32>);

#[derive(SchemaRead, SchemaWrite)]
enum MisfireMirror {
    Skip,
    FireOnce,
    CatchUp(u32),
}

#[derive(SchemaRead, SchemaWrite)]
enum ReasonMirror {
    Superseded,
    Paused,
    Canceled,
    Waiting,
    TenantConcurrency,
    Dead(u32),
    Held(u32),
}

#[derive(SchemaRead, SchemaWrite)]
enum DispositionMirror {
    Missed,
    Canceled(ReasonMirror),
}

#[derive(SchemaRead, SchemaWrite)]
enum RuleMirror {
    Cron(String, String, bool, bool, bool),
    Every(i64, i64),
    At(i64, Option<(String, String, Option<bool>, bool)>),
    After(i64, i64, bool),
}

#[derive(SchemaRead, SchemaWrite)]
enum PlanMirror {
    Shared(u32),
    Own(RuleMirror),
    Paced(RuleMirror, i64, bool),
}

#[derive(SchemaRead, SchemaWrite)]
struct ScheduleMirror {
    names: (u32, [u8; 16], u32, u32, u32),
    plan: PlanMirror,
    bounds: BoundsMirror,
    policies: (u64, PoliciesMirror),
    flags: (bool, bool),
    times: (i64, i64, i64, Option<i64>),
    counts: ((i64, u32), u64),
    text: (Option<String>, Vec<u8>, Option<String>),
    ranges: Vec<(u32, DispositionMirror, i64, i64, u64)>,
}

#[derive(SchemaRead, SchemaWrite)]
struct OccurrenceMirror {
    names: (u64, [u8; 16], u32, u32, u32, u32),
    kind: u32,
    times: (i64, i64, Option<i64>),
    entry: Option<Entry>,
    entry_at: i64,
    state: u32,
    reason: Option<ReasonMirror>,
    lane: u32,
    flags: (bool, bool),
    older: Option<u64>,
}

#[derive(SchemaRead, SchemaWrite)]
enum ResultMirror {
    Succeeded,
    Failed(FailureMirror),
}

#[derive(SchemaRead, SchemaWrite)]
enum FailureMirror {
    Reported(u32),
    LeaseExpired,
    Restarted,
}

type AttemptMirror = (u32, String, i64, Option<i64>, i64, Option<ResultMirror>, (Option<String>, Option<String>));
type ReviewMirror = (Vec<u32>, Vec<u32>, Option<i64>, Option<(u32, String, String)>, Option<String>);

#[derive(SchemaRead, SchemaWrite)]
struct RunMirror {
    counts: (u64, u32, u32),
    attempts: Vec<AttemptMirror>,
    token: Option<(u64, u16)>,
    lease: (i64, bool),
    called_off: (Option<ReasonMirror>, bool),
    rest: (Option<u64>, bool, Option<i64>),
    review: Option<ReviewMirror>,
    claim_id: Option<String>,
}

#[derive(SchemaRead, SchemaWrite)]
enum AnswerMirror {
    Triggered([u8; 16]),
    Backfilled(u64, i64, i64),
}

type OpenedMirror = (u64, [u8; 16], String, i64, i64, String, String);
type HeadMirror = ((u32, u64, i64, Option<OpenedMirror>), (u32, u64, u64, u64, bool, bool, u64));
type QueueMirror = (String, u64, (bool, Option<u32>), [(Option<Entry>, u64); 3]);

#[derive(SchemaRead, SchemaWrite)]
enum Mirror {
    Head(HeadMirror),
    Tenant(String, u64, (u32, QuotasMirror)),
    Queue(QueueMirror),
    Worker(String),
    Free(Vec<u32>),
    Rule(u32, RuleMirror),
    Schedule(ScheduleMirror),
    Superseded(u32, u32, PoliciesMirror, Vec<u8>, u64),
    Backfill((u64, u32, u32), PlanMirror, BoundsMirror, (Vec<u8>, i64, i64, Option<u64>)),
    Occurrence(OccurrenceMirror),
    Run(RunMirror),
    Tombstone(u32, i64),
    Ended(u64, i64),
    Answered(i64, [u8; 16], Vec<u8>, AnswerMirror),
    End(u64, u64, u64),
}
