//! Who waits for work: workers of the embedded queue, by queue. As many are woken as there is work for.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use hashbrown::HashMap;
use tokio::sync::Notify;

/// No more are woken at once: who finds more than it wants wakes the next.
const WOKEN_AT_ONCE: usize = 16;

/// Workers that wait, shared by the shards of an engine.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    waiting: Mutex<HashMap<Arc<str>, Arc<Notify>>>,
    is_closed: AtomicBool,
}

/// One worker's place; it counts as waiting until it is dropped.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    arrivals: &'a Arrivals,
    queue: Arc<str>,
    pub(crate) notify: Arc<Notify>,
}

impl Arrivals {
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
