//! Faults of Redis in random order, on top of each other: afterwards every entry is there once.

use crate::{
    player::{Player, stream},
    redis_server::RedisServer,
    redis_view::{assert_holds, config, key, player, run},
    tcp_proxy::TcpProxy,
};
use countwheel::{kernel::occurrence::Lane, shell::redis_queue::RedisQueue};

const STREAMS: u32 = 3;
const STEPS: u64 = 25;

/// How many seeds the ordinary run takes; `COUNTWHEEL_SEEDS=from..to` takes others.
const SEEDS: std::ops::Range<u64> = 1..3;

/// A small generator: the same steps for the same seed, though not the same timing.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

struct Storm {
    dice: Dice,
    server: RedisServer,
    proxy: TcpProxy,
    player: Player<RedisQueue>,
    released: u64,
}

impl Storm {
    fn new(seed: u64) -> Self {
        let server = RedisServer::start(&["--appendfsync", "always"]);
        let proxy = TcpProxy::to(server.port());
        let mut player = player(config(&proxy.url()));
        player.begin(STREAMS);
        Self { dice: Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)), server, proxy, player, released: 0 }
    }

    fn step(&mut self) {
        let count = 1 + self.dice.roll(1_000);
        if self.dice.roll(2) == 0 {
            self.player.stage(self.released..self.released + count);
        }
        self.player.release(self.released..self.released + count);
        self.released += count;
        for _ in 0..self.dice.roll(4) {
            self.player.hear();
            std::thread::yield_now();
        }
        self.fault();
    }

    fn fault(&mut self) {
        let bytes = i64::try_from(self.dice.roll(60_000)).unwrap();
        match self.dice.roll(8) {
            0 => self.proxy.cut_answers_after(bytes),
            1 => self.proxy.hold_requests_after(bytes * 4),
            2 => drop(self.proxy.deliver_kept()),
            3 => drop(run(&self.server.url(), "CLIENT KILL TYPE normal SKIPME yes")),
            4 => {
                self.server.kill();
                self.server.restart();
            }
            5 => {
                let at = u32::try_from(self.dice.roll(u64::from(STREAMS))).unwrap();
                run(&self.server.url(), &format!("DEL {}", key(stream(at, Lane::Strict))));
            }
            6 => drop(run(&self.server.url(), "FLUSHALL")),
            _ => {}
        }
    }

    /// Everything calms down; what is still under way arrives; then nothing may be missing or there twice.
    fn settle(&mut self) {
        self.proxy.calm();
        self.player.wait_for_landed(usize::try_from(self.released).unwrap());
        self.proxy.deliver_kept();
        // A DEL right before the end is noticed by the janitor only.
        let rounds = self.player.queue.stats().janitor_rounds;
        self.player.wait("two more rounds", |player| player.queue.stats().janitor_rounds >= rounds + 2);
        self.player.wait_for_landed(usize::try_from(self.released).unwrap());
        assert_holds(&self.server.url(), &self.player, 0..self.released);
    }
}

#[test]
fn any_sequence_of_faults_loses_and_doubles_nothing() {
    for seed in seeds() {
        println!("seed {seed}");
        let mut storm = Storm::new(seed);
        for _ in 0..STEPS {
            storm.step();
        }
        storm.settle();
    }
}

fn seeds() -> std::ops::Range<u64> {
    let Ok(wanted) = std::env::var("COUNTWHEEL_SEEDS") else { return SEEDS };
    let (from, to) = wanted.split_once("..").expect("COUNTWHEEL_SEEDS=from..to");
    from.parse().unwrap()..to.parse().unwrap()
}
