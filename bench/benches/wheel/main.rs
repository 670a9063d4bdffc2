//! What does a timer cost? Insert, cancel and fire beside three peers, at 1M by criterion and at 10M once, printed with
//! the longest turn and the bytes a timer.
//!
//! Rows are armed in order with random deadlines in the next 15 minutes (the last table: a day), cancelled in random
//! order, and fired by a clock that goes in steps of 50 ms. Time is the thread's CPU time: on a shared machine the
//! longest turn would otherwise be a neighbour's.

mod peers;

use std::{env, hint::black_box, process::Command, time::Duration};

use criterion::{Criterion, SamplingMode, Throughput, criterion_group};
use peers::{Countwheel, HashWheel, Peer, SortedSet, TokioDelayQueue};
use rustix::time::{ClockId, clock_gettime};

const QUARTER_HOUR_MS: u32 = 900_000;
const DAY_MS: u32 = 86_400_000;
/// Wide enough that reading the CPU clock twice a turn (half a microsecond) is a small part of a turn.
const STEP_MS: u32 = 50;
/// Asks this binary to measure one peer's memory: an allocator that has been used before tells little.
const BYTES_OF: &str = "COUNTWHEEL_BENCH_BYTES_OF";

struct Workload {
    deadlines_ms: Vec<u32>,
    cancel_order: Vec<u32>,
}

impl Workload {
    fn random(rows: u32, span_ms: u32) -> Self {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut below = |bound: u32| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (((state >> 32) * u64::from(bound)) >> 32) as u32
        };
        let deadlines_ms = (0..rows).map(|_| 1 + below(span_ms)).collect();
        let mut cancel_order: Vec<u32> = (0..rows).collect();
        for last in (1..rows).rev() {
            cancel_order.swap(last as usize, below(last + 1) as usize);
        }
        Self { deadlines_ms, cancel_order }
    }

    fn rows(&self) -> u32 {
        self.deadlines_ms.len() as u32
    }

    fn armed<P: Peer>(&self) -> (P, Duration) {
        let mut peer = P::new(self.rows());
        let started = cpu_time();
        for (row, &at_ms) in (0..).zip(&self.deadlines_ms) {
            peer.arm(row, at_ms);
        }
        (peer, since(started))
    }

    fn cancel_all<P: Peer>(&self, peer: &mut P) -> Duration {
        let started = cpu_time();
        for &row in &self.cancel_order {
            peer.cancel(row);
        }
        since(started)
    }

    /// Fires all; the time that turns took together, and the longest.
    fn fire_all<P: Peer>(&self, peer: &mut P) -> (Duration, Duration) {
        let (mut left, mut now_ms) = (self.rows() as usize, 0);
        let (mut sum, mut longest) = (Duration::ZERO, Duration::ZERO);
        while left > 0 {
            now_ms += STEP_MS;
            peer.set_clock(now_ms);
            let started = cpu_time();
            left -= black_box(peer.turn(now_ms));
            let turn = since(started);
            sum += turn;
            longest = longest.max(turn);
        }
        (sum, longest)
    }
}

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

fn since(started: Duration) -> Duration {
    cpu_time().saturating_sub(started)
}

fn one_million(criterion: &mut Criterion) {
    // `cargo bench` says so; `cargo test` only wants to see it run.
    let timers = if env::args().any(|arg| arg == "--bench") { 1_000_000 } else { 10_000 };
    let workload = Workload::random(timers, QUARTER_HOUR_MS);
    measure::<Countwheel>(criterion, &workload);
    measure::<TokioDelayQueue>(criterion, &workload);
    measure::<HashWheel>(criterion, &workload);
    measure::<SortedSet>(criterion, &workload);
}

fn measure<P: Peer>(criterion: &mut Criterion, workload: &Workload) {
    let mut group = criterion.benchmark_group(format!("wheel/1M/{}", P::NAME));
    group.throughput(Throughput::Elements(u64::from(workload.rows())));
    group.sample_size(10).sampling_mode(SamplingMode::Flat);
    group.warm_up_time(Duration::from_millis(1)).measurement_time(Duration::from_millis(1));
    let mut bench = |name: &str, once: &dyn Fn() -> Duration| {
        group.bench_function(name, |bencher| bencher.iter_custom(|times| (0..times).map(|_| once()).sum()));
    };
    bench("insert", &|| workload.armed::<P>().1);
    bench("cancel", &|| workload.cancel_all(&mut workload.armed::<P>().0));
    bench("advance", &|| workload.fire_all(&mut workload.armed::<P>().0).0);
    group.finish();
}

fn print_once<P: Peer>(workload: &Workload) {
    let ns = |time: Duration| time.as_nanos() as f64 / f64::from(workload.rows());
    let (mut peer, inserted) = workload.armed::<P>();
    let cancelled = workload.cancel_all(&mut peer);
    drop(peer);
    let (fired, longest) = workload.fire_all(&mut workload.armed::<P>().0);
    println!(
        "{:<12} {:>8.1} {:>8.1} {:>9.1} {:>13.2} {:>12}",
        P::NAME,
        ns(inserted),
        ns(cancelled),
        ns(fired),
        longest.as_secs_f64() * 1e3,
        bytes_of(P::NAME)
    );
}

/// 500,000 rows on one millisecond an hour ahead: arming them, and firing them in turns of at most 4,096.
fn print_burst<P: Peer>() {
    const ROWS: u32 = 500_000;
    const AT_MS: u32 = 3_600_000;
    let mut peer = P::new(ROWS);
    let started = cpu_time();
    for row in 0..ROWS {
        peer.arm(row, AT_MS);
    }
    let armed = since(started);
    let mut before = Duration::ZERO;
    for now_ms in (STEP_MS..AT_MS).step_by(STEP_MS as usize) {
        peer.set_clock(now_ms);
        let started = cpu_time();
        assert_eq!(peer.turn(now_ms), 0);
        before = before.max(since(started));
    }
    peer.set_clock(AT_MS);
    let started = cpu_time();
    let mut fired = 0;
    while fired < ROWS as usize {
        fired += peer.turn(AT_MS);
    }
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    println!("{:<12} {:>9.2} {:>9.2} {:>20.2}", P::NAME, ms(armed), ms(since(started)), ms(before));
}

fn bytes_of(peer: &str) -> String {
    let output = env::current_exe().and_then(|this| Command::new(this).env(BYTES_OF, peer).output());
    output.map_or_else(|error| error.to_string(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn print_bytes<P: Peer>() {
    let workload = Workload::random(10_000_000, QUARTER_HOUR_MS);
    let before = resident_bytes();
    let (peer, _) = workload.armed::<P>();
    println!("{:.1}", (resident_bytes() - before) as f64 / f64::from(workload.rows()));
    drop(black_box(peer));
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the proc file system");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line on resident memory");
    let kib: u64 = resident.trim().trim_end_matches(" kB").parse().expect("kB");
    kib * 1_024
}

fn print_tables() {
    for (what, span_ms) in [("15 minutes", QUARTER_HOUR_MS), ("a day", DAY_MS)] {
        println!("\n10M timers over {what}, ns a timer");
        println!("peer           insert   cancel   advance  worst turn ms  bytes/timer");
        let workload = Workload::random(10_000_000, span_ms);
        print_once::<Countwheel>(&workload);
        if span_ms == QUARTER_HOUR_MS {
            print_once::<TokioDelayQueue>(&workload);
            print_once::<HashWheel>(&workload);
            print_once::<SortedSet>(&workload);
        }
    }
    println!("\n500,000 on one millisecond, ms\npeer               arm      fire    worst turn before");
    print_burst::<Countwheel>();
    print_burst::<TokioDelayQueue>();
    print_burst::<HashWheel>();
    print_burst::<SortedSet>();
}

criterion_group!(benches, one_million);

fn main() {
    match env::var(BYTES_OF).as_deref() {
        Ok(Countwheel::NAME) => print_bytes::<Countwheel>(),
        Ok(TokioDelayQueue::NAME) => print_bytes::<TokioDelayQueue>(),
        Ok(HashWheel::NAME) => print_bytes::<HashWheel>(),
        Ok(_) => print_bytes::<SortedSet>(),
        Err(_) => {
            benches();
            Criterion::default().configure_from_args().final_summary();
            if env::args().any(|arg| arg == "--bench") {
                print_tables();
            }
        }
    }
}
