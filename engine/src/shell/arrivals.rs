//! The embedded queue over all shards: which shard has what for a worker, and who waits for work. As many are woken as
//! there is work for.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst},
};

use hashbrown::HashMap;
use tokio::sync::Notify;

use super::local_queue::TURNS;
use crate::kernel::occurrence::Lane;

/// No more are woken at once: who finds more than it wants wakes the next.
const WOKEN_AT_ONCE: usize = 16;

/// Workers that wait, shared by the shards of an engine.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    shards: usize,
    boards: RwLock<HashMap<Arc<str>, Arc<Board>>>,
    waiting: Mutex<HashMap<Arc<str>, Arc<Notify>>>,
    is_closed: AtomicBool,
}

/// What waits in one queue, by shard and lane, as of a moment ago: good enough to choose whom to ask first.
#[derive(Debug)]
struct Board {
    by_shard: Vec<[AtomicUsize; Lane::ALL.len()]>,
    /// How many claims were made: whose turn it is.
    claims: AtomicUsize,
}

/// One worker's place; it counts as waiting until it is dropped.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    arrivals: &'a Arrivals,
    queue: Arc<str>,
    pub(crate) notify: Arc<Notify>,
}

impl Arrivals {
    pub(crate) fn new(shards: usize) -> Self {
        Self { shards, ..Self::default() }
    }

    /// So much waits in a shard for a queue.
    pub(crate) fn post(&self, queue: &str, shard: usize, waiting: [usize; Lane::ALL.len()]) {
        let board = self.board(queue).unwrap_or_else(|| {
            let mut all = self.boards.write().unwrap_or_else(PoisonError::into_inner);
            let by_shard = (0..self.shards).map(|_| Default::default()).collect();
            Arc::clone(all.entry(queue.into()).or_insert_with(|| Arc::new(Board { by_shard, claims: 0.into() })))
        });
        let Some(lanes) = board.by_shard.get(shard) else { return };
        for (lane, count) in lanes.iter().zip(waiting) {
            lane.store(count, Relaxed);
        }
    }

    /// In which order a claim asks the shards: those that have the lane whose turn it is, then strict, flexible, caught up;
    /// among equals another one is first each time. Those that have nothing come last, since they may have by now.
    pub(crate) fn order(&self, queue: &str) -> Vec<usize> {
        let mut shards: Vec<usize> = (0..self.shards).collect();
        let Some(board) = self.board(queue) else { return shards };
        let claim = board.claims.fetch_add(1, Relaxed);
        let turn = TURNS[claim % TURNS.len()];
        // By one further whenever the same turn comes again, whatever the number of shards.
        let first = claim / TURNS.len() + claim % TURNS.len();
        let rank = |shard: usize| {
            let has = |lane: Lane| board.by_shard[shard][lane as usize].load(Relaxed) > 0;
            std::iter::once(turn).chain(Lane::ALL).position(has).unwrap_or(usize::MAX)
        };
        shards.sort_by_key(|&shard| (rank(shard), (shard + first) % self.shards));
        shards
    }

    fn board(&self, queue: &str) -> Option<Arc<Board>> {
        self.boards.read().unwrap_or_else(PoisonError::into_inner).get(queue).cloned()
    }

    /// A worker is going to wait for `queue`.
    pub(crate) fn wait(&self, queue: &Arc<str>) -> Waiting<'_> {
        let notify = Arc::clone(self.all().entry_ref(queue).or_default());
        Waiting { arrivals: self, queue: Arc::clone(queue), notify }
    }

    /// There is work for up to `workers` more.
    pub(crate) fn announce(&self, queue: &str, workers: usize) {
        if let Some(notify) = self.all().get(queue) {
            for _ in 0..workers.min(WOKEN_AT_ONCE) {
                notify.notify_one();
            }
        }
    }

    /// The engine is stopping: nobody waits any more.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, SeqCst);
        for notify in self.all().values() {
            notify.notify_waiters();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(SeqCst)
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Notify>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A queue for which nobody waits any more takes no memory.
impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut all = self.arrivals.all();
        // The table's own, and this one.
        if Arc::strong_count(&self.notify) == 2 {
            all.remove(&self.queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_wakes_one_worker_of_its_queue_and_nobody_else() {
        let arrivals = Arrivals::default();
        let (mail, bills): (Arc<str>, Arc<str>) = ("mail".into(), "bills".into());
        let (one, two, other) = (arrivals.wait(&mail), arrivals.wait(&mail), arrivals.wait(&bills));
        let (first, second, third) = (one.notify.notified(), two.notify.notified(), other.notify.notified());
        tokio::pin!(first, second, third);
        let woken = [first.as_mut().enable(), second.as_mut().enable(), third.as_mut().enable()];
        assert_eq!(woken, [false; 3]);
        arrivals.announce("mail", 1);
        assert_eq!([first.as_mut().enable(), second.as_mut().enable(), third.as_mut().enable()], [true, false, false]);
        arrivals.close();
        assert!(second.as_mut().enable() && third.as_mut().enable() && arrivals.is_closed());
    }

    #[test]
    fn strict_work_of_any_shard_goes_first_and_each_lane_has_its_tenth() {
        let arrivals = Arrivals::new(4);
        assert_eq!(arrivals.order("mail"), [0, 1, 2, 3], "nobody has told of anything");
        for shard in 0..4 {
            arrivals.post("mail", shard, [0, 0, 9]);
        }
        arrivals.post("mail", 2, [1, 0, 9]);
        arrivals.post("mail", 1, [0, 1, 9]);
        let first: Vec<usize> = (0..20).map(|_| arrivals.order("mail")[0]).collect();
        let count = |of: &dyn Fn(usize) -> bool| first.iter().filter(|shard| of(**shard)).count();
        assert!(count(&|shard| shard == 2) >= 16, "{first:?}");
        assert!(count(&|shard| shard == 1) >= 2, "flexible work has its tenth: {first:?}");
        for shards in 2..20 {
            let arrivals = Arrivals::new(shards);
            arrivals.post("mail", 0, [1, 0, 9]);
            for shard in 1..shards {
                arrivals.post("mail", shard, [0, 0, 9]);
            }
            let first: Vec<usize> = (0..20 * shards).map(|_| arrivals.order("mail")[0]).collect();
            assert!((0..shards).all(|shard| first.contains(&shard)), "none of {shards} starves: {first:?}");
        }
        arrivals.post("mail", 2, [0, 0, 0]);
        arrivals.post("mail", 1, [0, 0, 0]);
        let last: Vec<usize> = (0..4).map(|_| arrivals.order("mail")[0]).collect();
        assert!(last.contains(&0) && last.contains(&3) && !last.contains(&2), "{last:?}");
    }

    #[test]
    fn whoever_went_leaves_nothing_behind() {
        let arrivals = Arrivals::default();
        let mail: Arc<str> = "mail".into();
        let (one, two) = (arrivals.wait(&mail), arrivals.wait(&mail));
        drop(one);
        assert_eq!(arrivals.all().len(), 1);
        drop(two);
        assert!(arrivals.all().is_empty());
        arrivals.announce("mail", 9);
    }
}
