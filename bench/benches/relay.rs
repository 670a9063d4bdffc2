//! What it costs the client to put an entry into a Redis stream: ours beside the limit and three peers.
//!
//! `cargo bench -p countwheel-bench --bench relay [-- --entries N]` starts its own redis-server and prints, for each
//! contender, processor time of this process an entry and entries a second. All send the same three fields under
//! explicit ids in batches of 2,048.
//!
//! - `raw`: hand-encoded XADD over a plain socket, three batches in flight, answers counted and not read: the limit;
//! - `raw in MULTI`: the same with MULTI/EXEC around each batch: what all-or-nothing costs;
//! - `ours`: through the queue, staged before the clock starts (its cost is shown beside), MULTI/EXEC a batch, every
//!   answer read, every event polled;
//! - `redis async`, `redis sync`: the redis crate's pipelines, the first with three in flight;
//! - `fred`: its pipeline, three in flight.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    sync::{Arc, mpsc::channel},
    time::{Duration, Instant},
};

use countwheel::{
    kernel::{
        id::{Kind, OccurrenceId, ScheduleId},
        occurrence::{Entry, Lane, OccurrenceNo, QueueNo, Stream},
        time::UnixMs,
    },
    shell::{
        queue::{Queue, QueueEvent, Remembered},
        redis_queue::{RedisConfig, RedisQueue},
    },
};
use countwheel_bench::redis_server::RedisServer;
use fred::interfaces::{ClientLike, StreamsInterface};
use rustix::time::{ClockId, clock_gettime};

const BATCH: usize = 2_048;
const IN_FLIGHT: usize = 3;
const ROUNDS: usize = 5;
const KEY: &str = "cw:{billing.0}:strict";
const AT: UnixMs = UnixMs(1_793_511_000_000);
const PAYLOAD: &[u8] =
    br#"{"report":7,"customer":"a-customer-of-ours","amount":"1234.56","currency":"EUR","retry":false}"#;

/// What one run took.
#[derive(Clone, Copy)]
struct Cost {
    cpu: Duration,
    wall: Duration,
    /// Spent before the instant, where there is such a thing.
    ahead: Duration,
}

fn main() {
    let entries = entries_wanted();
    let server = RedisServer::start(&["--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0"]);
    type Contender = fn(&RedisServer, usize) -> Cost;
    let contenders: [(&str, Contender); 6] = [
        ("raw (the limit)", |server, entries| raw(server, entries, false)),
        ("raw in MULTI", |server, entries| raw(server, entries, true)),
        ("ours", ours),
        ("redis async pipeline", redis_async),
        ("redis sync pipeline", redis_sync),
        ("fred pipeline", fred_pipeline),
    ];
    let rounds = if is_measured() { ROUNDS } else { 1 };
    let mut costs = vec![Vec::new(); contenders.len()];
    let mut server_cpu = vec![Vec::new(); contenders.len()];
    for _ in 0..rounds {
        for (place, (_, run)) in contenders.iter().enumerate() {
            flush(&server);
            let before = server.cpu();
            costs[place].push(run(&server, entries));
            server_cpu[place].push(server.cpu() - before);
        }
    }
    println!("{entries} entries of {} payload bytes, median of {rounds} rounds", PAYLOAD.len());
    println!("{:<22}{:>12}{:>12}{:>12}{:>14}{:>12}", "", "client ns", "ahead ns", "server ns", "entries/s", "of limit");
    let per_entry = |time: Duration| time.as_nanos() as f64 / entries as f64;
    let mut limit = 0.0;
    for ((name, _), (costs, server_cpu)) in contenders.iter().zip(costs.iter().zip(&server_cpu)) {
        let middle = |pick: fn(&Cost) -> Duration| median(costs.iter().map(pick).collect());
        let rate = entries as f64 / middle(|cost| cost.wall).as_secs_f64();
        if limit == 0.0 {
            limit = rate;
        }
        println!(
            "{name:<22}{:>12.0}{:>12.0}{:>12.0}{rate:>14.0}{:>12.2}",
            per_entry(middle(|cost| cost.cpu)),
            per_entry(middle(|cost| cost.ahead)),
            per_entry(median(server_cpu.clone())),
            rate / limit
        );
    }
}

/// `cargo bench` says so; `cargo test` only wants to see it run.
fn is_measured() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

fn entries_wanted() -> usize {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--entries").skip(1);
    let usual = if is_measured() { 200_000 } else { 2_048 };
    arguments.next().map_or(usual, |number| number.parse().expect("--entries takes a number"))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn process_cpu() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec.unsigned_abs(), u32::try_from(spent.tv_nsec).expect("below a second"))
}

/// Runs something that writes the entries.
fn measured(run: impl FnOnce()) -> Cost {
    let (cpu, wall) = (process_cpu(), Instant::now());
    run();
    Cost { cpu: process_cpu() - cpu, wall: wall.elapsed(), ahead: Duration::ZERO }
}

/// Removes everything, without a fork and without leaving work in the background.
fn flush(server: &RedisServer) {
    let mut client = redis::Client::open(server.url()).expect("a url").get_connection().expect("a connection");
    redis::cmd("FLUSHALL").arg("SYNC").exec(&mut client).expect("FLUSHALL");
}

fn entry(number: usize) -> Entry<'static> {
    let id = u128::try_from(number).expect("small") << 64 | 0x8000_0000_0000_0000;
    Entry {
        number: OccurrenceNo(number as u64),
        stream: Stream { queue: QueueNo(0), lane: Lane::Strict },
        occurrence_id: OccurrenceId(id.to_be_bytes()),
        schedule_id: ScheduleId(id.to_le_bytes()),
        version: 1,
        kind: Kind::Regular,
        scheduled_for: AT,
        available_at: AT,
        attempt: 1,
        tenant_number: 0,
        tenant: "acme",
        payload: PAYLOAD,
    }
}

/// The three fields as text, for the peers.
fn fields(number: usize) -> [(&'static str, Vec<u8>); 3] {
    let entry = entry(number);
    let meta = format!("1 {} 1 0 {} {} 1 acme", entry.schedule_id, AT.0, AT.0);
    [
        ("occurrence_id", entry.occurrence_id.to_string().into_bytes()),
        ("meta", meta.into_bytes()),
        ("payload", PAYLOAD.to_vec()),
    ]
}

fn raw(server: &RedisServer, entries: usize, in_multi: bool) -> Cost {
    let mut bodies = Vec::new();
    for number in 0..entries {
        let mut body = Vec::new();
        for (name, value) in fields(number) {
            for part in [name.as_bytes(), &value] {
                write!(body, "${}\r\n", part.len()).expect("memory");
                body.extend_from_slice(part);
                body.extend_from_slice(b"\r\n");
            }
        }
        bodies.push(body);
    }
    let mut socket = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
    socket.set_nodelay(true).expect("a socket");
    let mut answers = BufReader::with_capacity(256 * 1024, socket.try_clone().expect("a socket"));
    measured(|| {
        let mut in_flight = VecDeque::new();
        let mut bytes = Vec::new();
        for (batch, bodies) in bodies.chunks(BATCH).enumerate() {
            bytes.clear();
            if in_multi {
                bytes.extend_from_slice(b"*1\r\n$5\r\nMULTI\r\n");
            }
            for (place, body) in bodies.iter().enumerate() {
                let id = format!("1-{}", batch * BATCH + place + 1);
                write!(bytes, "*9\r\n$4\r\nXADD\r\n${}\r\n{KEY}\r\n${}\r\n{id}\r\n", KEY.len(), id.len())
                    .expect("memory");
                bytes.extend_from_slice(body);
            }
            if in_multi {
                bytes.extend_from_slice(b"*1\r\n$4\r\nEXEC\r\n");
            }
            socket.write_all(&bytes).expect("a write");
            // An id is two lines; in a transaction also OK, QUEUED each, and the head of EXEC's answer.
            in_flight.push_back(if in_multi { 3 * bodies.len() + 2 } else { 2 * bodies.len() });
            if in_flight.len() == IN_FLIGHT {
                skip_lines(&mut answers, in_flight.pop_front().expect("three"));
            }
        }
        skip_lines(&mut answers, in_flight.iter().sum());
    })
}

fn skip_lines(answers: &mut impl BufRead, mut lines: usize) {
    while lines > 0 {
        let buffer = answers.fill_buf().expect("an answer");
        let mut seen = 0;
        while let Some(end) = buffer[seen..].iter().position(|byte| *byte == b'\n') {
            seen += end + 1;
            lines -= 1;
            if lines == 0 {
                break;
            }
        }
        let consumed = if lines == 0 { seen } else { buffer.len() };
        answers.consume(consumed);
    }
}

fn ours(server: &RedisServer, entries: usize) -> Cost {
    let (sender, woken) = channel();
    let wake = move || {
        let _ = sender.send(());
    };
    let config = RedisConfig::new(&server.url(), 0, "bench", &format!("owner-{:?}", Instant::now()));
    let mut queue = RedisQueue::new(config, Arc::new(|| AT), Arc::new(wake)).expect("a queue");
    let stream = entry(0).stream;
    queue.declare(stream, "billing", Lane::Strict, Remembered::default());
    queue.start(1);
    let mut events = Vec::new();
    let mut landed = 0;
    let mut ready = false;
    let mut poll = |queue: &mut RedisQueue, ready: &mut bool, landed: &mut usize| {
        woken.recv_timeout(Duration::from_secs(10)).expect("an event");
        queue.poll(&mut events);
        for event in events.drain(..) {
            match event {
                QueueEvent::Ready => *ready = true,
                QueueEvent::Landed { numbers, .. } => *landed += numbers.len(),
                other => panic!("{other:?}"),
            }
        }
    };
    while !ready {
        poll(&mut queue, &mut ready, &mut landed);
    }
    let ahead = measured(|| (0..entries).for_each(|number| queue.stage(&entry(number)))).cpu;
    let numbers: Vec<_> = (0..entries as u64).map(OccurrenceNo).collect();
    let cost = measured(|| {
        for turn in numbers.chunks(BATCH) {
            queue.release(AT, turn, &|number| panic!("{number:?} was staged"));
        }
        while landed < entries {
            poll(&mut queue, &mut ready, &mut landed);
        }
    });
    queue.close(Duration::from_secs(10));
    Cost { ahead, ..cost }
}

fn pipeline(first: usize, count: usize) -> redis::Pipeline {
    let mut pipeline = redis::pipe();
    for number in first..first + count {
        let command = pipeline.cmd("XADD").arg(KEY).arg(format!("1-{}", number + 1));
        for (name, value) in fields(number) {
            command.arg(name).arg(value);
        }
    }
    pipeline
}

fn batches(entries: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..entries).step_by(BATCH).map(move |first| (first, BATCH.min(entries - first)))
}

fn redis_sync(server: &RedisServer, entries: usize) -> Cost {
    let mut client = redis::Client::open(server.url()).expect("a url").get_connection().expect("a connection");
    measured(|| {
        for (first, count) in batches(entries) {
            let ids: Vec<String> = pipeline(first, count).query(&mut client).expect("ids");
            assert_eq!(ids.len(), count);
        }
    })
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn redis_async(server: &RedisServer, entries: usize) -> Cost {
    let runtime = runtime();
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(10)));
    let client = redis::Client::open(server.url()).expect("a url");
    let connection =
        runtime.block_on(client.get_multiplexed_async_connection_with_config(&config)).expect("a connection");
    measured(|| {
        runtime.block_on(async {
            let mut in_flight = VecDeque::new();
            for (first, count) in batches(entries) {
                let mut connection = connection.clone();
                in_flight.push_back(tokio::spawn(async move {
                    let ids: Vec<String> = pipeline(first, count).query_async(&mut connection).await.expect("ids");
                    assert_eq!(ids.len(), count);
                }));
                if in_flight.len() == IN_FLIGHT {
                    in_flight.pop_front().expect("three").await.expect("a batch");
                }
            }
            for batch in in_flight {
                batch.await.expect("a batch");
            }
        });
    })
}

fn fred_pipeline(server: &RedisServer, entries: usize) -> Cost {
    let runtime = runtime();
    let config = fred::types::config::Config::from_url(&server.url()).expect("a url");
    let client = fred::types::Builder::from_config(config).build().expect("a client");
    runtime.block_on(client.init()).expect("a connection");
    let cost = measured(|| {
        runtime.block_on(async {
            let mut in_flight = VecDeque::new();
            for (first, count) in batches(entries) {
                let pipeline = client.pipeline();
                for number in first..first + count {
                    let id = format!("1-{}", number + 1);
                    let values = fields(number).map(|(name, value)| (name, fred::types::Value::from(value.as_slice())));
                    let queued: fred::types::Value =
                        pipeline.xadd(KEY, false, None::<()>, id, values.to_vec()).await.expect("queued");
                    drop(queued);
                }
                in_flight.push_back(tokio::spawn(async move {
                    let ids: Vec<String> = pipeline.all().await.expect("ids");
                    assert_eq!(ids.len(), count);
                }));
                if in_flight.len() == IN_FLIGHT {
                    in_flight.pop_front().expect("three").await.expect("a batch");
                }
            }
            for batch in in_flight {
                batch.await.expect("a batch");
            }
        });
    });
    let _ = runtime.block_on(client.quit());
    cost
}
