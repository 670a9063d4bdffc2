//! What every queue must do, run over each of them.

use std::{collections::BTreeMap, time::Duration};

use countwheel::{
    kernel::occurrence::{Lane, OccurrenceNo, Stream},
    shell::{
        local_queue::{Alike, LocalQueue},
        queue::{Queue, Remembered},
    },
};

use crate::player::{PATIENCE, Player, stream, wires};

/// A queue under test, and a look at what consumers would get of it.
trait Subject {
    type Queue: Queue;

    fn player(&mut self) -> &mut Player<Self::Queue>;

    /// Everything in the streams, each in the order in which it is served.
    fn contents(&mut self) -> BTreeMap<Stream, Vec<u64>>;
}

fn order_is_kept_and_everything_lands_once(subject: &mut impl Subject) {
    let player = subject.player();
    player.begin(1);
    player.release(0..10_000);
    player.release([20_000, 15_000, 19_999]);
    player.wait_for_landed(10_003);
    let expected: Vec<_> = (0..10_000).chain([20_000, 15_000, 19_999]).collect();
    let strict = stream(0, Lane::Strict);
    assert_eq!(player.landed_in(strict), expected);
    assert_eq!(subject.contents(), BTreeMap::from([(strict, expected)]));
}

fn staged_and_unstaged_entries_keep_the_order_of_release(subject: &mut impl Subject) {
    let player = subject.player();
    player.begin(1);
    player.stage((0..3_000).filter(|number| number % 3 != 0));
    player.release((0..3_000).rev());
    player.wait_for_landed(3_000);
    let expected: Vec<_> = (0..3_000).rev().collect();
    assert_eq!(subject.contents()[&stream(0, Lane::Strict)], expected);
}

fn many_streams_are_served_side_by_side(subject: &mut impl Subject) {
    let player = subject.player();
    for queue in 0..20 {
        for lane in Lane::ALL {
            player.declare(stream(queue, lane), Remembered::default());
        }
    }
    player.start(7);
    player.wait("ready", |player| player.ready);
    player.stage(0..6_000);
    player.release(0..6_000);
    player.wait_for_landed(6_000);
    assert!(player.landed.values().all(|(_, id)| id.generation == 7));
    let contents = subject.contents();
    assert_eq!(contents.len(), 60);
    for (stream, numbers) in contents {
        assert!(numbers.len() == 100 && numbers.is_sorted(), "{stream:?}: {numbers:?}");
    }
}

fn what_is_cancelled_between_stage_and_release_never_enters(subject: &mut impl Subject) {
    let player = subject.player();
    player.begin(1);
    player.stage(0..100);
    player.release((0..100).filter(|number| number % 2 == 0));
    player.queue.forget_staged(crate::player::AT);
    player.wait_for_landed(50);
    assert_eq!(subject.contents()[&stream(0, Lane::Strict)], (0..100).step_by(2).collect::<Vec<_>>());
}

fn a_stream_declared_while_running_is_there_when_it_is_used(subject: &mut impl Subject) {
    let player = subject.player();
    player.begin(1);
    player.release([0]);
    player.declare(stream(1, Lane::CatchUp), Remembered::default());
    player.release([1, 2]);
    player.wait_for_landed(3);
    assert_eq!(player.landed_in(stream(1, Lane::CatchUp)), [1]);
}

fn close_lets_everything_land_first(subject: &mut impl Subject) {
    let player = subject.player();
    player.begin(2);
    player.release(0..20_000);
    player.queue.close(PATIENCE);
    player.hear();
    assert_eq!(player.landed.len(), 20_000);
    assert_eq!(subject.contents().values().map(Vec::len).sum::<usize>(), 20_000);
}

fn the_count_of_what_was_ever_added_grows_with_what_lands(subject: &mut impl Subject) {
    let player = subject.player();
    player.begin(1);
    player.release(0..10);
    player.wait_for_landed(10);
    let before = player.remembered[&stream(0, Lane::Strict)];
    player.release(10..5_000);
    player.wait_for_landed(5_000);
    let after = player.remembered[&stream(0, Lane::Strict)];
    assert_eq!(after.added - before.added, 4_990);
    assert!(after.last > before.last);
}

macro_rules! conformance {
    ($subject:expr; $($test:ident)*) => {
        $(#[test]
        fn $test() {
            super::$test(&mut $subject);
        })*
    };
}

macro_rules! every_test {
    ($subject:expr) => {
        conformance! { $subject;
            order_is_kept_and_everything_lands_once
            staged_and_unstaged_entries_keep_the_order_of_release
            many_streams_are_served_side_by_side
            what_is_cancelled_between_stage_and_release_never_enters
            a_stream_declared_while_running_is_there_when_it_is_used
            close_lets_everything_land_first
            the_count_of_what_was_ever_added_grows_with_what_lands
        }
    };
}

mod local {
    use super::*;

    struct Local(Player<LocalQueue>);

    impl Local {
        fn new() -> Self {
            let (now, wake, woken) = wires();
            Self(Player::new(LocalQueue::new(now, wake), woken))
        }
    }

    impl Subject for Local {
        type Queue = LocalQueue;

        fn player(&mut self) -> &mut Player<LocalQueue> {
            &mut self.0
        }

        fn contents(&mut self) -> BTreeMap<Stream, Vec<u64>> {
            let mut contents: BTreeMap<_, Vec<_>> = BTreeMap::new();
            for queue in 0..20 {
                for OccurrenceNo(number) in self.0.queue.take(stream(queue, Lane::Strict).queue, usize::MAX, 0, &Alike)
                {
                    contents.entry(self.0.stream_of(OccurrenceNo(number))).or_default().push(number);
                }
            }
            contents
        }
    }

    every_test!(Local::new());
}

#[cfg(feature = "redis")]
mod redis {
    use countwheel::shell::redis_queue::RedisQueue;

    use super::*;
    use crate::{
        redis_server::RedisServer,
        redis_view::{config, contents, player},
    };

    struct OnRedis {
        server: RedisServer,
        player: Player<RedisQueue>,
    }

    impl OnRedis {
        fn new() -> Self {
            let server = RedisServer::start(&[]);
            let player = player(config(&server.url()));
            Self { server, player }
        }
    }

    impl Subject for OnRedis {
        type Queue = RedisQueue;

        fn player(&mut self) -> &mut Player<RedisQueue> {
            &mut self.player
        }

        fn contents(&mut self) -> BTreeMap<Stream, Vec<u64>> {
            contents(&self.server.url(), &self.player)
        }
    }

    every_test!(OnRedis::new());

    #[test]
    fn closing_while_redis_hangs_ends_within_the_limit() {
        let mut subject = OnRedis::new();
        subject.player.begin(1);
        subject.server.pause();
        subject.player.release(0..10);
        let started = std::time::Instant::now();
        subject.player.queue.close(Duration::from_millis(300));
        assert!(started.elapsed() < PATIENCE);
        subject.server.resume();
    }
}
