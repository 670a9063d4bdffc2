//! What a handler thread does with an entry: claim, acknowledge, run, tell.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use crossbeam::channel::{Receiver, Sender};

use super::{
    Handler, Shared,
    engine_client::{Claim, End, Granted, NoAnswer},
    entry::Delivery,
    run::{Cancellation, Failure, Run},
    stats::count,
};
use crate::{
    kernel::shard::RESULT_REF_BYTES,
    shell::redis_queue::{BackOff, OnceASecond, Pace},
};

/// One handler thread.
pub(super) struct Runner {
    pub(super) shared: Arc<Shared>,
    pub(super) handler: Arc<Handler>,
    /// Told when there is room for an entry.
    pub(super) idle: Sender<()>,
    pub(super) work: Receiver<Delivery>,
    pub(super) log_gate: OnceASecond,
}

impl Runner {
    /// Runs until nothing is read any more.
    pub(super) fn run(mut self) {
        while self.idle.send(()).is_ok() {
            let Ok(delivery) = self.work.recv() else { return };
            self.process(&delivery);
            self.shared.in_hand().remove(&delivery.place);
        }
    }

    fn process(&mut self, delivery: &Delivery) {
        let claim = self.claim(delivery);
        let figures = &self.shared.figures;
        match claim {
            None => count(&figures.unanswered),
            Some((Claim::Settled(code), _)) => {
                count(&figures.refused);
                self.note_refusal(delivery, &code);
                self.shared.acknowledge(&delivery.place);
            }
            Some((Claim::Granted(granted), asked_at)) => {
                count(&figures.granted);
                self.attempt(delivery, &granted, asked_at);
            }
        }
    }

    fn note_refusal(&mut self, delivery: &Delivery, code: &str) {
        let occurrence = delivery.told.occurrence_id;
        if code == "not_found" {
            // Forgotten after a long time; or this is another engine's Redis, or the token is for another queue.
            if let Some(held_back) = self.log_gate.admit(Instant::now()) {
                tracing::warn!(%occurrence, held_back, "the engine knows no such occurrence: are urls and token right");
            }
        } else {
            tracing::debug!(%occurrence, code, "not to be run");
        }
    }

    /// Asks until there is an answer that settles the entry, but no longer than until others take the entry over. `None`:
    /// it stays pending.
    fn claim(&mut self, delivery: &Delivery) -> Option<(Claim, Instant)> {
        let config = &self.shared.config;
        let until = Instant::now() + config.recover_after;
        let mut back_off = BackOff::new(config.longest_back_off);
        while !self.shared.stopping.is_raised() {
            let asked_at = Instant::now();
            let pause = match self.shared.engine.claim(&delivery.told, &self.shared.name) {
                Ok(claim) => return Some((claim, asked_at)),
                Err(error) => self.pause(&error, &mut back_off, "a claim has no answer"),
            };
            if Instant::now() + pause >= until {
                return None;
            }
            self.shared.stopping.wait(pause);
        }
        None
    }

    fn attempt(&mut self, delivery: &Delivery, granted: &Granted, asked_at: Instant) {
        let Delivery { place, told } = delivery;
        let lease = self.shared.config.lease;
        let cancellation = self.shared.leases.add(&granted.lease_token, told.occurrence_id, asked_at, lease);
        // The grant is recorded: from here on the engine follows the attempt, not the entry.
        self.shared.acknowledge(place);
        if asked_at.elapsed() >= lease {
            cancellation.set(Cancellation::LeaseLost);
        }
        let run = Run { told: told.clone(), attempt: granted.attempt, deadline: granted.deadline(), cancellation };
        let result = self.handle(&run);
        self.tell(&run, &granted.lease_token, &result);
        self.shared.leases.remove(&granted.lease_token);
    }

    /// Runs the handler; what it has when its lease was over before it began is left to the next attempt.
    fn handle(&self, run: &Run) -> Result<Option<String>, Failure> {
        if run.cancellation() == Some(Cancellation::LeaseLost) {
            return Err(Failure::transient("the claim's answer came after the end of its lease"));
        }
        catch_unwind(AssertUnwindSafe(|| (self.handler)(run))).unwrap_or_else(|panic| {
            count(&self.shared.figures.panicked);
            Err(Failure::transient(format!("the handler panicked: {}", text_of(&*panic))))
        })
    }

    /// Tells how it ended until the engine has heard it.
    fn tell(&mut self, run: &Run, token: &str, result: &Result<Option<String>, Failure>) {
        let end = match result {
            Ok(result_ref) => End::Succeeded { result_ref: self.fitting(run, result_ref.as_deref()) },
            Err(failure) => End::Failed(failure),
        };
        let figures = &self.shared.figures;
        let mut back_off = BackOff::new(self.shared.config.longest_back_off);
        loop {
            match self.shared.engine.tell(run.occurrence_id(), token, &end) {
                Ok(true) if result.is_ok() => return count(&figures.completed),
                Ok(true) => return count(&figures.failed),
                Ok(false) => {
                    tracing::warn!(occurrence = %run.occurrence_id(), attempt = run.attempt(), "the lease was over");
                    return count(&figures.stale);
                }
                Err(NoAnswer::Unusable(error)) => {
                    tracing::error!(occurrence = %run.occurrence_id(), "its end cannot be told: {error}");
                    return count(&figures.untold);
                }
                Err(error) => {
                    let pause = pause(&error, &mut back_off, &mut self.log_gate, "the end of a run was not heard");
                    if self.shared.ended.wait(pause) {
                        return count(&figures.untold);
                    }
                }
            }
        }
    }

    /// The work is done: a reference that is too long must not undo it.
    fn fitting<'a>(&self, run: &Run, result_ref: Option<&'a str>) -> Option<&'a str> {
        let fits = result_ref.is_none_or(|text| text.len() <= RESULT_REF_BYTES);
        if !fits {
            tracing::error!(occurrence = %run.occurrence_id(), "the reference to its result is longer than {RESULT_REF_BYTES} bytes and is left out");
        }
        result_ref.filter(|_| fits)
    }

    fn pause(&mut self, error: &NoAnswer, back_off: &mut BackOff, what: &str) -> Duration {
        pause(error, back_off, &mut self.log_gate, what)
    }
}

/// How long to wait after no answer; says so once a second.
fn pause(error: &NoAnswer, back_off: &mut BackOff, log_gate: &mut OnceASecond, what: &str) -> Duration {
    if let Some(held_back) = log_gate.admit(Instant::now()) {
        tracing::warn!(held_back, "{what}: {error}");
    }
    back_off.next(match error {
        NoAnswer::Away(_) => Pace::BackOff,
        NoAnswer::Unusable(_) => Pace::Slow,
    })
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}
