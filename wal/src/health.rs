//! How a log is doing, told to whoever asks and announced when it changes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::{error, info, warn};

/// How a log is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Everything is written, and there is space for more.
    Running,
    /// The disk is full; what is written now goes into the space that was kept aside. Refuse what can be refused.
    OnReserve,
    /// Nothing can be written until there is space; what is queued is kept and written then.
    Full,
    /// A write or a sync failed. Nothing is written any more, and `durable` stands still for ever.
    Poisoned(Arc<str>),
}

impl State {
    /// The names of all states, for whoever counts or draws them.
    pub const NAMES: [&'static str; 4] = ["running", "on_reserve", "full", "poisoned"];

    /// One word of [`State::NAMES`].
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::OnReserve => "on_reserve",
            Self::Full => "full",
            Self::Poisoned(_) => "poisoned",
        }
    }
}

/// Called after `durable` or the state has changed; must not block.
pub(crate) type Notify = Arc<dyn Fn() + Send + Sync>;

pub(crate) struct Health {
    inner: Mutex<Inner>,
    /// `inner.poisoned.is_some()`, to be asked on the way of every append.
    is_poisoned: AtomicBool,
    notify: Notify,
}

#[derive(Default)]
struct Inner {
    is_short: bool,
    is_blocked: bool,
    poisoned: Option<Arc<str>>,
}

impl Health {
    pub(crate) fn new(notify: Notify) -> Self {
        Self { inner: Mutex::default(), is_poisoned: AtomicBool::new(false), notify }
    }

    pub(crate) fn state(&self) -> State {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).state()
    }

    pub(crate) fn poison(&self) -> Option<Arc<str>> {
        if !self.is_poisoned.load(Ordering::Acquire) {
            return None;
        }
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).poisoned.clone()
    }

    pub(crate) fn notify(&self) {
        (self.notify)();
    }

    /// There is no spare segment, or no reserve, for want of space.
    pub(crate) fn set_short(&self, is_short: bool) {
        self.change(|inner| inner.is_short = is_short);
    }

    /// A batch could not be written for want of space.
    pub(crate) fn set_blocked(&self, is_blocked: bool) {
        self.change(|inner| inner.is_blocked = is_blocked);
    }

    /// The first reason stays.
    pub(crate) fn set_poisoned(&self, reason: &str) {
        self.change(|inner| {
            inner.poisoned.get_or_insert_with(|| Arc::from(reason));
            self.is_poisoned.store(true, Ordering::Release);
        });
    }

    fn change(&self, change: impl FnOnce(&mut Inner)) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let before = inner.state();
        change(&mut inner);
        let after = inner.state();
        drop(inner);
        if before == after {
            return;
        }
        match &after {
            State::Running => info!("the log has space again"),
            State::OnReserve => warn!("the disk is full: the log goes on in its reserve"),
            State::Full => error!("the disk is full: what is queued waits until there is space"),
            State::Poisoned(reason) => error!(%reason, "the log is poisoned: nothing is written any more"),
        }
        self.notify();
    }
}

impl Inner {
    fn state(&self) -> State {
        match &self.poisoned {
            Some(reason) => State::Poisoned(Arc::clone(reason)),
            None if self.is_blocked => State::Full,
            None if self.is_short => State::OnReserve,
            None => State::Running,
        }
    }
}
