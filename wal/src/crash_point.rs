//! Where a test may kill the process: named points at the hand-overs that a crash could come between.
//!
//! `COUNTWHEEL_CRASH_AT=append.written:3` ends the process by SIGKILL when it comes by `append.written` the third time.
//! That is so in debug builds with the feature `crash-points` only, which nothing but tests switches on; a release
//! build has nothing of it, whatever its features are.

/// Marks a point that the process may be killed at.
#[inline(always)]
pub fn crash_point(name: &'static str) {
    #[cfg(all(feature = "crash-points", debug_assertions))]
    armed::pass(name);
    #[cfg(not(all(feature = "crash-points", debug_assertions)))]
    let _ = name;
}

#[cfg(all(feature = "crash-points", debug_assertions))]
mod armed {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use rustix::process::{Signal, getpid, kill_process};

    struct Aim {
        name: String,
        nth: u64,
        passed: AtomicU64,
    }

    static AIM: LazyLock<Option<Aim>> = LazyLock::new(|| {
        let text = std::env::var("COUNTWHEEL_CRASH_AT").ok()?;
        let (name, nth) = text.rsplit_once(':')?;
        Some(Aim { name: name.to_owned(), nth: nth.parse().ok()?, passed: AtomicU64::new(0) })
    });

    pub(super) fn pass(name: &str) {
        if let Some(aim) = AIM.as_ref().filter(|aim| aim.name == name)
            && aim.passed.fetch_add(1, Ordering::SeqCst) + 1 == aim.nth
        {
            let _ = kill_process(getpid(), Signal::KILL);
            // Nothing of this thread happens between the signal's being sent and its taking effect.
            loop {
                std::thread::park();
            }
        }
    }
}
