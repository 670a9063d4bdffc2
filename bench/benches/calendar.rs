//! Next instants and parsing, beside croner over chrono-tz.

use std::{hint::black_box, sync::Arc};

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use countwheel::{
    kernel::{
        calendar::{Calendar, CronId, CronRule, CronSpec, ZoneSet},
        time::UnixMs,
    },
    shell::tzdata,
};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};

const ZONE: &str = "America/New_York";
const RULES: [&str; 5] = ["* * * * *", "*/15 * * * *", "30 2 * * *", "0 9 * * MON-FRI", "0 0 29 2 *"];
/// 2026-06-01T12:00:00Z
const NOON: UnixMs = UnixMs(1_780_315_200_000);
const SCHEDULES: usize = 500_000;
const DISTINCT: usize = 1_000;

fn zones() -> Arc<ZoneSet> {
    Arc::new(tzdata::bundled())
}

fn peer(expr: &str) -> Cron {
    CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build().parse(expr).expect("valid")
}

fn next_cold(criterion: &mut Criterion) {
    let zones = zones();
    let zone: Tz = ZONE.parse().expect("a zone");
    let start = DateTime::<Utc>::from_timestamp_millis(NOON.0).expect("in range").with_timezone(&zone);
    let mut group = criterion.benchmark_group("next_cold");
    for expr in RULES {
        let (ours, theirs) = (CronRule::new(&CronSpec::new(expr, ZONE), &zones).expect("valid"), peer(expr));
        group.bench_function(format!("ours/{expr}"), |bencher| bencher.iter(|| ours.next(black_box(NOON))));
        group.bench_function(format!("croner_chrono_tz/{expr}"), |bencher| {
            bencher.iter(|| theirs.find_next_occurrence(black_box(&start), false));
        });
    }
    group.finish();
}

/// 1,000 distinct rules of which 500,000 schedules each take their next instant at the top of the hour.
fn next_shared(criterion: &mut Criterion) {
    let mut calendar = Calendar::new(zones());
    let ids: Vec<CronId> = (0..SCHEDULES).map(|n| calendar.intern(&shared(n % DISTINCT)).expect("valid")).collect();
    let mut group = criterion.benchmark_group("next_shared");
    group.throughput(Throughput::Elements(SCHEDULES as u64)).sample_size(20);
    let mut hour = 0;
    group.bench_function("500000_schedules_over_1000_rules", |bencher| {
        bencher.iter(|| {
            // Another hour each time, so that nothing is known of it before.
            hour += 1;
            let due = NOON.plus(hour * 3_600_000);
            ids.iter().fold(0, |sum, id| sum ^ calendar.next(*id, due).map_or(0, |at| at.0))
        });
    });
    group.finish();
}

fn shared(n: usize) -> CronSpec {
    CronSpec::new(format!("{} {} * * *", n % 60, n / 60), ["Europe/Berlin", ZONE, "Asia/Tokyo"][n % 3])
}

fn parse(criterion: &mut Criterion) {
    let zones = zones();
    let mut group = criterion.benchmark_group("parse");
    for expr in ["0 9 * * MON-FRI", "*/15 0-5,8-20 1,15 JAN-JUN FRI#2"] {
        group.bench_function(format!("ours/{expr}"), |bencher| {
            let spec = CronSpec::new(expr, ZONE);
            bencher.iter(|| CronRule::new(black_box(&spec), &zones));
        });
        group.bench_function(format!("ours_interned_new/{expr}"), |bencher| {
            let spec = CronSpec::new(expr, ZONE);
            bencher.iter_batched_ref(
                || Calendar::new(Arc::clone(&zones)),
                |calendar| calendar.intern(black_box(&spec)),
                BatchSize::SmallInput,
            );
        });
        group.bench_function(format!("croner/{expr}"), |bencher| bencher.iter(|| peer(black_box(expr))));
    }
    group.bench_function("ours/refused", |bencher| {
        let spec = CronSpec::new(", * * * *", ZONE);
        bencher.iter(|| CronRule::new(black_box(&spec), &zones));
    });
    group.finish();
}

/// What an outage costs: a year of every minute, counted, and its last instant found.
fn outage(criterion: &mut Criterion) {
    let rule = CronRule::new(&CronSpec::new("* * * * *", ZONE), &zones()).expect("valid");
    let year_ago = NOON.minus(365 * 86_400_000);
    let mut group = criterion.benchmark_group("outage_of_a_year");
    group.bench_function("count", |bencher| bencher.iter(|| rule.count(black_box(year_ago), NOON)));
    group.bench_function("latest", |bencher| bencher.iter(|| rule.latest(black_box(year_ago), NOON)));
    group.finish();
}

criterion_group!(benches, next_cold, next_shared, parse, outage);
criterion_main!(benches);
