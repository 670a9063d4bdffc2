//! The bytes of records: golden vectors, read by two independent decoders, and bytes that nobody wrote.

use countwheel::kernel::{
    attempt::{Death, Failure, FailureClass, Resolution},
    evidence::HoldReason,
    policy::{Effect, Misfire, Overlap, Retry},
    record::{
        BackfillExpanded, BackfillRequested, Canceled, Claimed, Closing, Died, Enqueued, Held, LateResult, LocalBody,
        Lost, Materialized, Misfired, Named, Opened, Paused, QueueSet, RangeBody, Record, Replayed, Resolved, Resumed,
        RuleBody, RunFailed, RunsSucceeded, ScheduleCreated, Settled, Skipped, SpecBody, TenantSet, Then, Time,
        Triggered, Updated, Waited, numbers_of, runs_of,
    },
    tenant::{QueueSettings, Quotas, TenantSettings},
};
use proptest::prelude::*;
use wincode::config::{Configuration, deserialize_exact};

type Runs = Vec<(u64, u64)>;
type RangeMirror = (i64, i64, u64);
type ClosingMirror = (Runs, Option<RangeMirror>, Vec<RangeMirror>);

const GOLDEN: &str = include_str!("../golden/records.txt");

fn created(name: Option<&str>, rule: RuleBody) -> ScheduleCreated {
    let id = std::array::from_fn(|i| u8::try_from(i).expect("16 bytes"));
    ScheduleCreated { id, version: 1, tenant: 2, spec: spec(name, rule) }
}

fn spec(name: Option<&str>, rule: RuleBody) -> SpecBody {
    SpecBody {
        queue: 300,
        name: name.map(str::to_owned),
        rule,
        start_at_ms: Some(1_793_511_000_000),
        end_at_ms: None,
        payload: b"{}".to_vec(),
        flexible_window_ms: 0,
        max_lateness_ms: 60_000,
        misfire: Misfire::FireOnce,
        overlap: Overlap::QueueOne,
        retry: Retry { deadline_ms: Some(70_000), budget: Some(3), ..Retry::default() },
        effect: Effect::NonIdempotent,
        review_owner: Some("ops".into()),
    }
}

fn range(first: i64, last: i64, count: u64) -> RangeBody {
    RangeBody { first, last, count }
}

fn closing() -> Closing {
    Closing { kept: vec![(70_000, 2)], due: Some(range(-60_000, -1, 60)), backfills: vec![range(-9, -8, 2)] }
}

fn cron() -> RuleBody {
    RuleBody::Cron {
        expr: "30 1 * * *".into(),
        zone: "Europe/Berlin".into(),
        fold_both: true,
        gap_shift: false,
        day_and: true,
    }
}

fn after(from_start: bool) -> RuleBody {
    RuleBody::After { every_ms: 1_000, anchor_ms: -5, from_start }
}

fn at(local: Option<LocalBody>) -> RuleBody {
    RuleBody::At { at_ms: 1_793_511_000_000, local }
}

/// One of every kind, and of every shape within a kind.
fn vectors() -> Vec<(&'static str, Record)> {
    let opened = Opened {
        generation: 7,
        owner: [0xab; 16],
        boot_id: "b00t".into(),
        wall_ms: 1_793_511_000_000,
        boottime_ms: -1,
        tz_release: "2026f".into(),
        engine_version: "0.1.0".into(),
    };
    let local = LocalBody {
        local: "2026-11-01T01:30:00".into(),
        zone: "America/New_York".into(),
        second: Some(true),
        shift: false,
    };
    let mut caught_up = spec(None, cron());
    caught_up.misfire = Misfire::CatchUp { limit: 300 };
    let updated = Updated { schedule: 3, spec: caught_up, keeps_due: true, closing: closing() };
    let updated = Record::Updated(Box::new(updated));
    let backfill = BackfillRequested {
        schedule: 3,
        from: -86_400_000,
        to: -1,
        count: 24,
        discriminator: vec![0xff; 16],
        is_keyed: false,
    };
    let schedule = |name, rule| Record::ScheduleCreated(Box::new(created(name, rule)));
    let quotas = Quotas { schedules: Some(300), concurrent_runs: Some(5), ..Quotas::default() };
    vec![
        ("opened", Record::Opened(opened)),
        ("time", Record::Time(Time { forward_ms: 250 })),
        ("time_far", Record::Time(Time { forward_ms: u64::MAX })),
        ("tenant_named", Record::TenantNamed(Named { name: "acme".into() })),
        ("queue_named", Record::QueueNamed(Named { name: "mail".into() })),
        ("schedule_created_cron", schedule(Some("nightly"), cron())),
        ("schedule_created_every", schedule(None, RuleBody::Every { every_ms: 1_000, anchor_ms: -5 })),
        ("schedule_created_after_end", schedule(None, after(false))),
        ("schedule_created_after_start", schedule(None, after(true))),
        ("schedule_created_at", schedule(None, at(None))),
        ("schedule_created_at_local", schedule(None, at(Some(local)))),
        ("canceled", Record::Canceled(Canceled { schedule: 3, closing: closing() })),
        ("canceled_bare", Record::Canceled(Canceled { schedule: 0, closing: Closing::default() })),
        ("materialized", Record::Materialized(Materialized { scheduled_for: 2_000, schedules: vec![1, 1, 250, 251] })),
        (
            "misfired",
            Record::Misfired(Misfired {
                schedule: 9,
                admitted: vec![-10_000],
                missed: Some(range(-6_670_000, -70_000, 111)),
                missed_occurrences: vec![(5, 3)],
                through: -10_000,
            }),
        ),
        (
            "enqueued",
            Record::Enqueued(Enqueued {
                stream: 4,
                generation: 7,
                first_counter: 1 << 40,
                added: 12,
                at: -3,
                runs: vec![(1_000, 2), (u64::MAX - 8, 1)],
            }),
        ),
        ("lost", Record::Lost(Lost { stream: 4, survived: Some((7, 11)), since: -600_000 })),
        ("lost_all", Record::Lost(Lost { stream: 4, survived: None, since: -600_000 })),
        ("updated", updated),
        ("paused", Record::Paused(Paused { schedule: 3, closing: closing() })),
        ("resumed", Record::Resumed(Resumed { schedule: 3, paused: Some(range(-7_200_000, -60_000, 120)) })),
        ("resumed_bare", Record::Resumed(Resumed { schedule: 3, paused: None })),
        ("triggered", Record::Triggered(Triggered { schedule: 3, discriminator: b"go".to_vec(), is_keyed: true })),
        ("backfill_requested", Record::BackfillRequested(backfill)),
        (
            "backfill_expanded",
            Record::BackfillExpanded(BackfillExpanded {
                backfill: 4,
                instants: vec![-120_000, -60_000],
                through: -60_000,
                is_done: false,
            }),
        ),
        (
            "tenant_set",
            Record::TenantSet(TenantSet { tenant: 2, revision: 3, settings: TenantSettings { weight: 7, quotas } }),
        ),
        ("queue_set", queue_set(9, QueueSettings { tracked: false, catch_up_per_second: Some(50) })),
        ("queue_set_bare", queue_set(10, QueueSettings::default())),
    ]
    .into_iter()
    .chain(runs())
    .collect()
}

fn runs() -> Vec<(&'static str, Record)> {
    let failed = |failure, message: Option<&str>, then| {
        let message = message.map(str::to_owned);
        Record::RunFailed(RunFailed { occurrence: 70_000, failure, message, then })
    };
    let claimed = Claimed { worker: 3, lease_ms: 30_000, is_in_process: false, occurrences: vec![(1_000, 2)] };
    let succeeded = RunsSucceeded { occurrences: vec![(5, 3)], result_refs: vec![(1, "s3://r".into())] };
    let reasons = vec![HoldReason::ConcurrentLeaseClaim, HoldReason::CatchUpReview];
    let resolved = Resolved {
        occurrence: 8,
        resolution: Resolution::Dead,
        reviewer: "ops".into(),
        note: "it had been sent".into(),
    };
    vec![
        ("worker_named", Record::WorkerNamed(Named { name: "w-1".into() })),
        ("claimed", Record::Claimed(claimed)),
        ("runs_succeeded", Record::RunsSucceeded(succeeded)),
        (
            "run_failed_retry",
            failed(Failure::Reported(FailureClass::Transient), Some("503"), Then::Retry { delay_ms: 1_700 }),
        ),
        ("run_failed_dead", failed(Failure::LeaseExpired, None, Then::Dead(Death::MaxAttempts))),
        ("run_failed_held", failed(Failure::Restarted, None, Then::Held(HoldReason::OutcomeUnknown))),
        ("run_failed_canceled", failed(Failure::Reported(FailureClass::Canceled), None, Then::Canceled)),
        ("waited", Record::Waited(Waited { occurrence: 8, for_permit: true })),
        ("skipped", Record::Skipped(Skipped { occurrence: 8 })),
        ("died", Record::Died(Died { occurrence: 8 })),
        ("held", Record::Held(Held { occurrence: 8, reasons })),
        ("replayed", Record::Replayed(Replayed { occurrence: 8 })),
        ("resolved", Record::Resolved(resolved)),
        ("settled", Record::Settled(Settled { stream: 4, generation: 7, counter: 1 << 40 })),
        ("late_result", Record::LateResult(LateResult { occurrence: 8, result_ref: "s3://late".into() })),
    ]
}

fn queue_set(revision: u64, settings: QueueSettings) -> Record {
    Record::QueueSet(QueueSet { queue: 1, revision, settings })
}

fn bytes(record: &Record) -> Vec<u8> {
    let mut body = Vec::new();
    record.encode(&mut body);
    body
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect("hex")).collect()
}

#[test]
fn every_kind_has_the_bytes_it_always_had() {
    let written: Vec<String> =
        vectors().iter().map(|(name, record)| format!("{name} {} {}", record.kind(), hex(&bytes(record)))).collect();
    let golden: Vec<&str> = GOLDEN.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(written, golden, "bytes of records are frozen: a new layout gets a new kind");
    for (line, (_, record)) in golden.iter().zip(vectors()) {
        let [_, kind, body] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("three words: {line}") };
        assert_eq!(Record::decode(kind.parse().unwrap(), &unhex(body)), Ok(record));
    }
    let kinds: std::collections::BTreeSet<u8> = vectors().iter().map(|(_, record)| record.kind()).collect();
    assert_eq!(kinds, (1..=31).filter(|kind| *kind != 10).collect(), "a vector of every kind; 10 was given up early");
}

#[test]
fn a_body_that_is_cut_or_has_something_behind_it_is_refused() {
    for (name, record) in vectors() {
        let mut body = bytes(&record);
        for length in 0..body.len() {
            assert!(Record::decode(record.kind(), &body[..length]).is_err(), "{name} cut to {length}");
        }
        body.push(0);
        assert!(Record::decode(record.kind(), &body).is_err(), "{name} with a byte behind it");
    }
    assert!(Record::decode(0, &[]).is_err() && Record::decode(200, &[]).is_err());
}

#[test]
fn a_length_that_a_few_bytes_claim_is_not_believed() {
    // A string of 2^62 bytes, and the largest one that the limit of a small body lets through.
    let mut huge = vec![253];
    huge.extend((1_u64 << 62).to_le_bytes());
    assert!(Record::decode(3, &huge).is_err());
    assert!(Record::decode(3, &[251, 0xff, 0x0f]).is_err());
    // Two million runs in one byte each way: more memory than bytes, and still read back.
    let runs: Vec<(u64, u64)> = vec![(1, 1); 2_000_000];
    let closing = Closing { kept: runs, ..Closing::default() };
    let large = Record::Canceled(Canceled { schedule: 1, closing });
    assert_eq!(Record::decode(6, &bytes(&large)).as_ref(), Ok(&large));
}

/// The maintained successor of bincode reads the same bytes: there is a way out.
fn reads<T>(body: &[u8]) -> T
where
    T: for<'de> wincode::SchemaRead<'de, Varint, Dst = T>,
{
    deserialize_exact(body, VARINT).expect("wincode reads what bincode wrote")
}

pub(crate) type Varint = Configuration<
    true,
    { wincode::config::DEFAULT_PREALLOCATION_SIZE_LIMIT },
    wincode::len::BincodeLen,
    wincode::int_encoding::LittleEndian,
    wincode::int_encoding::VarInt,
>;
const VARINT: Varint = Configuration::default().with_varint_encoding();

pub(crate) const fn varint() -> Varint {
    VARINT
}

type CronMirror = (u32, String, String, bool, bool, bool);
type EveryMirror = (u32, i64, i64);
type AfterMirror = (u32, i64, i64, bool);
type AtMirror = (u32, i64, Option<(String, String, Option<bool>, bool)>);
type RetryMirror = (u32, u64, u64, Option<u64>, Option<u32>);
type SpecMirror<Rule, Policy> = (
    (u32, Option<String>, Rule, Option<i64>, Option<i64>, Vec<u8>, u64, u64),
    (Policy, u32, RetryMirror, u32, Option<String>),
);

fn range_fields(range: RangeBody) -> RangeMirror {
    (range.first, range.last, range.count)
}

fn closing_fields(closing: Closing) -> ClosingMirror {
    let backfills = closing.backfills.into_iter().map(range_fields).collect();
    (closing.kept, closing.due.map(range_fields), backfills)
}

fn spec_fields<Rule, Policy>(s: SpecBody, rule: Rule, misfire: Policy) -> SpecMirror<Rule, Policy> {
    let retry = (s.retry.max_attempts, s.retry.base_ms, s.retry.cap_ms, s.retry.deadline_ms, s.retry.budget);
    let bounds = (s.start_at_ms, s.end_at_ms);
    (
        (s.queue, s.name, rule, bounds.0, bounds.1, s.payload, s.flexible_window_ms, s.max_lateness_ms),
        (misfire, s.overlap as u32, retry, s.effect as u32, s.review_owner),
    )
}

#[test]
fn wincode_reads_every_body() {
    for (name, record) in vectors() {
        let body = bytes(&record);
        match record {
            Record::Opened(o) => {
                let mirror: (u64, [u8; 16], String, i64, i64, String, String) = reads(&body);
                let fields =
                    (o.generation, o.owner, o.boot_id, o.wall_ms, o.boottime_ms, o.tz_release, o.engine_version);
                assert_eq!(mirror, fields);
            }
            Record::Time(t) => assert_eq!(reads::<(u64,)>(&body), (t.forward_ms,), "{name}"),
            Record::TenantNamed(n) | Record::QueueNamed(n) => assert_eq!(reads::<(String,)>(&body), (n.name,)),
            Record::ScheduleCreated(created) => wincode_reads_a_schedule(&body, *created),
            Record::Canceled(c) => {
                assert_eq!(reads::<(u32, ClosingMirror)>(&body), (c.schedule, closing_fields(c.closing)), "{name}");
            }
            Record::Materialized(m) => {
                assert_eq!(reads::<(i64, Vec<u32>)>(&body), (m.scheduled_for, m.schedules));
            }
            Record::Misfired(m) => {
                let mirror: (u32, Vec<i64>, Option<RangeMirror>, Runs, i64) = reads(&body);
                let missed = m.missed.map(range_fields);
                assert_eq!(mirror, (m.schedule, m.admitted, missed, m.missed_occurrences, m.through));
            }
            Record::Enqueued(e) => {
                let mirror: (u32, u64, u64, u64, i64, Runs) = reads(&body);
                assert_eq!(mirror, (e.stream, e.generation, e.first_counter, e.added, e.at, e.runs));
            }
            Record::Lost(l) => {
                let mirror: (u32, Option<(u64, u64)>, i64) = reads(&body);
                assert_eq!(mirror, (l.stream, l.survived, l.since), "{name}");
            }
            Record::Updated(updated) => wincode_reads_an_update(&body, *updated),
            Record::Paused(p) => {
                assert_eq!(reads::<(u32, ClosingMirror)>(&body), (p.schedule, closing_fields(p.closing)));
            }
            Record::Resumed(r) => {
                let mirror: (u32, Option<RangeMirror>) = reads(&body);
                assert_eq!(mirror, (r.schedule, r.paused.map(range_fields)), "{name}");
            }
            Record::Triggered(t) => {
                assert_eq!(reads::<(u32, Vec<u8>, bool)>(&body), (t.schedule, t.discriminator, t.is_keyed));
            }
            Record::BackfillRequested(b) => {
                let mirror: (u32, i64, i64, u64, Vec<u8>, bool) = reads(&body);
                assert_eq!(mirror, (b.schedule, b.from, b.to, b.count, b.discriminator, b.is_keyed));
            }
            Record::BackfillExpanded(b) => {
                let mirror: (u64, Vec<i64>, i64, bool) = reads(&body);
                assert_eq!(mirror, (b.backfill, b.instants, b.through, b.is_done));
            }
            Record::TenantSet(TenantSet { tenant, revision, settings }) => {
                let Quotas { schedules, trigger_per_second, concurrent_runs, catch_up_per_second, retry_budget } =
                    settings.quotas;
                type Mirror = (Option<u64>, Option<u32>, Option<u32>, Option<u32>, Option<u32>);
                let mirror: (u32, u64, u32, Mirror) = reads(&body);
                let rates = (schedules, trigger_per_second, concurrent_runs, catch_up_per_second, retry_budget);
                assert_eq!(mirror, (tenant, revision, settings.weight, rates));
            }
            Record::QueueSet(QueueSet { queue, revision, settings }) => {
                let mirror: (u32, u64, bool, Option<u32>) = reads(&body);
                assert_eq!(mirror, (queue, revision, settings.tracked, settings.catch_up_per_second), "{name}");
            }
            run => wincode_reads_a_run(name, &body, run),
        }
    }
}

fn wincode_reads_a_run(name: &str, body: &[u8], record: Record) {
    match record {
        Record::WorkerNamed(n) => assert_eq!(reads::<(String,)>(body), (n.name,)),
        Record::Claimed(c) => {
            let mirror: (u64, u64, bool, Runs) = reads(body);
            assert_eq!(mirror, (c.worker, c.lease_ms, c.is_in_process, c.occurrences));
        }
        Record::RunsSucceeded(s) => {
            let mirror: (Runs, Vec<(u64, String)>) = reads(body);
            assert_eq!(mirror, (s.occurrences, s.result_refs));
        }
        Record::RunFailed(failed) => {
            let head = (failed.occurrence, failed.message.clone());
            match (failed.failure, failed.then) {
                (Failure::Reported(class), Then::Retry { delay_ms }) => {
                    let (occurrence, failure, message, then): (u64, (u32, u32), Option<String>, (u32, u64)) =
                        reads(body);
                    assert_eq!(((occurrence, message), failure, then), (head, (0, class as u32), (0, delay_ms)));
                }
                (Failure::LeaseExpired, Then::Dead(death)) => {
                    let (occurrence, failure, message, then): (u64, u32, Option<String>, (u32, u32)) = reads(body);
                    assert_eq!(((occurrence, message), failure, then), (head, 1, (1, death as u32)));
                }
                (Failure::Restarted, Then::Held(reason)) => {
                    let (occurrence, failure, message, then): (u64, u32, Option<String>, (u32, u32)) = reads(body);
                    assert_eq!(((occurrence, message), failure, then), (head, 2, (2, reason as u32)));
                }
                (Failure::Reported(class), Then::Canceled) => {
                    let (occurrence, failure, message, then): (u64, (u32, u32), Option<String>, u32) = reads(body);
                    assert_eq!(((occurrence, message), failure, then), (head, (0, class as u32), 3));
                }
                other => panic!("{name} has no mirror: {other:?}"),
            }
        }
        Record::Waited(w) => assert_eq!(reads::<(u64, bool)>(body), (w.occurrence, w.for_permit)),
        Record::Skipped(s) => assert_eq!(reads::<(u64,)>(body), (s.occurrence,)),
        Record::Died(d) => assert_eq!(reads::<(u64,)>(body), (d.occurrence,)),
        Record::Held(h) => {
            let reasons = h.reasons.into_iter().map(|reason| reason as u32).collect();
            assert_eq!(reads::<(u64, Vec<u32>)>(body), (h.occurrence, reasons));
        }
        Record::Replayed(r) => assert_eq!(reads::<(u64,)>(body), (r.occurrence,)),
        Record::Resolved(r) => {
            let mirror: (u64, u32, String, String) = reads(body);
            assert_eq!(mirror, (r.occurrence, r.resolution as u32, r.reviewer, r.note));
        }
        Record::Settled(s) => assert_eq!(reads::<(u32, u64, u64)>(body), (s.stream, s.generation, s.counter)),
        Record::LateResult(l) => assert_eq!(reads::<(u64, String)>(body), (l.occurrence, l.result_ref)),
        other => panic!("{name} is no record of a run: {other:?}"),
    }
}

fn wincode_reads_a_schedule(body: &[u8], created: ScheduleCreated) {
    type Mirror<Rule> = ([u8; 16], u32, u32, SpecMirror<Rule, u32>);
    let head = (created.id, created.version, created.tenant);
    let policy = 1; // FIRE_ONCE
    match created.spec.rule.clone() {
        RuleBody::Cron { expr, zone, fold_both, gap_shift, day_and } => {
            let spec = spec_fields(created.spec, (0, expr, zone, fold_both, gap_shift, day_and), policy);
            assert_eq!(reads::<Mirror<CronMirror>>(body), (head.0, head.1, head.2, spec));
        }
        RuleBody::Every { every_ms, anchor_ms } => {
            let spec = spec_fields(created.spec, (1, every_ms, anchor_ms), policy);
            assert_eq!(reads::<Mirror<EveryMirror>>(body), (head.0, head.1, head.2, spec));
        }
        RuleBody::After { every_ms, anchor_ms, from_start } => {
            let spec = spec_fields(created.spec, (3, every_ms, anchor_ms, from_start), policy);
            assert_eq!(reads::<Mirror<AfterMirror>>(body), (head.0, head.1, head.2, spec));
        }
        RuleBody::At { at_ms, local } => {
            let local = local.map(|l| (l.local, l.zone, l.second, l.shift));
            let spec = spec_fields(created.spec, (2, at_ms, local), policy);
            assert_eq!(reads::<Mirror<AtMirror>>(body), (head.0, head.1, head.2, spec));
        }
    }
}

fn wincode_reads_an_update(body: &[u8], updated: Updated) {
    type Mirror = (u32, SpecMirror<CronMirror, (u32, u32)>, bool, ClosingMirror);
    let RuleBody::Cron { expr, zone, fold_both, gap_shift, day_and } = updated.spec.rule.clone() else {
        panic!("the vector is of a cron rule");
    };
    let rule = (0, expr, zone, fold_both, gap_shift, day_and);
    let spec = spec_fields(updated.spec, rule, (2, 300));
    let fields = (updated.schedule, spec, updated.keeps_due, closing_fields(updated.closing));
    assert_eq!(reads::<Mirror>(body), fields);
}

proptest! {
    #[test]
    fn any_bytes_are_a_record_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        countwheel::fuzz::record(&bytes);
    }

    #[test]
    fn golden_bytes_with_a_few_changed_are_a_record_or_an_error(
        vector in 0..vectors().len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let (_, record) = vectors().swap_remove(vector);
        let mut input = vec![record.kind()];
        record.encode(&mut input);
        for (place, byte) in changes {
            let place = place.index(input.len());
            input[place] = byte;
        }
        countwheel::fuzz::record(&input);
    }

    #[test]
    fn runs_give_back_their_numbers_in_any_order(numbers in prop::collection::vec(any::<u64>(), 0..50)) {
        prop_assert_eq!(numbers_of(&runs_of(&numbers)).collect::<Vec<_>>(), numbers);
    }
}
