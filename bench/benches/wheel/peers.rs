//! The wheel and its peers, driven alike: dense rows, deadlines in milliseconds from a common start.

use std::{
    collections::BTreeSet,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use countwheel::kernel::{time::UnixMs, wheel::Timers};
use hierarchical_hash_wheel_timer::{IdOnlyTimerEntry, wheels::cancellable::QuadWheelWithOverflow};
use tokio::{
    runtime::{Builder, EnterGuard, Runtime},
    time::Instant,
};
use tokio_util::time::{DelayQueue, delay_queue::Key};

const START: UnixMs = UnixMs(1_793_511_000_000);

/// What is measured.
pub(crate) trait Peer {
    const NAME: &'static str;
    fn new(rows: u32) -> Self;
    fn arm(&mut self, row: u32, at_ms: u32);
    fn cancel(&mut self, row: u32);
    /// What a step costs that is not the structure's own doing; not timed.
    fn set_clock(&mut self, _now_ms: u32) {}
    /// One turn: fires what is due, or a part of it; says how many.
    fn turn(&mut self, now_ms: u32) -> usize;
}

pub(crate) struct Countwheel {
    timers: Timers,
    fired: Vec<u32>,
}

impl Peer for Countwheel {
    const NAME: &'static str = "countwheel";

    fn new(_rows: u32) -> Self {
        Self { timers: Timers::new(START), fired: Vec::with_capacity(4_096) }
    }

    fn arm(&mut self, row: u32, at_ms: u32) {
        self.timers.arm(row, START.plus(i64::from(at_ms)));
    }

    fn cancel(&mut self, row: u32) {
        self.timers.disarm(row);
    }

    fn turn(&mut self, now_ms: u32) -> usize {
        self.fired.clear();
        let _ = self.timers.advance(START.plus(i64::from(now_ms)), 4_096, &mut self.fired);
        self.fired.len()
    }
}

/// tokio-util's, on a paused clock. It may be touched inside a runtime only; entering anew for each timer would cost it
/// as much as its work, so the runtime is leaked and stays entered.
pub(crate) struct TokioDelayQueue {
    runtime: &'static Runtime,
    _entered: EnterGuard<'static>,
    start: Instant,
    now_ms: u32,
    queue: DelayQueue<u32>,
    keys: Vec<Option<Key>>,
}

impl Peer for TokioDelayQueue {
    const NAME: &'static str = "delay_queue";

    fn new(rows: u32) -> Self {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
        let runtime: &'static Runtime = Box::leak(Box::new(runtime));
        let _entered = runtime.enter();
        let (start, queue) = (Instant::now(), DelayQueue::new());
        Self { runtime, _entered, start, now_ms: 0, queue, keys: vec![None; rows as usize] }
    }

    fn arm(&mut self, row: u32, at_ms: u32) {
        let at = self.start + Duration::from_millis(u64::from(at_ms));
        self.keys[row as usize] = Some(self.queue.insert_at(row, at));
    }

    fn cancel(&mut self, row: u32) {
        let key = self.keys[row as usize].take().expect("armed");
        self.queue.remove(&key);
    }

    fn set_clock(&mut self, now_ms: u32) {
        let step = Duration::from_millis(u64::from(now_ms - self.now_ms));
        self.now_ms = now_ms;
        self.runtime.block_on(tokio::time::advance(step));
    }

    fn turn(&mut self, _now_ms: u32) -> usize {
        let mut context = Context::from_waker(Waker::noop());
        let mut fired = 0;
        while let Poll::Ready(Some(expired)) = self.queue.poll_expired(&mut context) {
            self.keys[expired.into_inner() as usize] = None;
            fired += 1;
        }
        fired
    }
}

pub(crate) struct HashWheel {
    now_ms: u32,
    wheel: QuadWheelWithOverflow<IdOnlyTimerEntry<u32>>,
}

impl Peer for HashWheel {
    const NAME: &'static str = "hash_wheel";

    fn new(_rows: u32) -> Self {
        Self { now_ms: 0, wheel: QuadWheelWithOverflow::new() }
    }

    fn arm(&mut self, row: u32, at_ms: u32) {
        let delay = Duration::from_millis(u64::from(at_ms - self.now_ms));
        self.wheel.insert_ref_with_delay(Rc::new(IdOnlyTimerEntry { id: row, delay }), delay).expect("in the future");
    }

    fn cancel(&mut self, row: u32) {
        self.wheel.cancel(&row).expect("armed");
    }

    fn turn(&mut self, now_ms: u32) -> usize {
        let mut fired = 0;
        while self.now_ms < now_ms {
            self.now_ms += 1;
            fired += self.wheel.tick().len();
        }
        fired
    }
}

/// What one writes without a wheel.
pub(crate) struct SortedSet {
    deadlines: Vec<u32>,
    order: BTreeSet<(u32, u32)>,
}

impl Peer for SortedSet {
    const NAME: &'static str = "btree";

    fn new(rows: u32) -> Self {
        Self { deadlines: vec![0; rows as usize], order: BTreeSet::new() }
    }

    fn arm(&mut self, row: u32, at_ms: u32) {
        self.deadlines[row as usize] = at_ms;
        self.order.insert((at_ms, row));
    }

    fn cancel(&mut self, row: u32) {
        self.order.remove(&(self.deadlines[row as usize], row));
    }

    fn turn(&mut self, now_ms: u32) -> usize {
        let mut fired = 0;
        while self.order.first().is_some_and(|&(at_ms, _)| at_ms <= now_ms) {
            self.order.pop_first();
            fired += 1;
        }
        fired
    }
}
