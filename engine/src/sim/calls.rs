//! What callers ask of an engine, and what they were told.

use super::{
    check::Checker,
    node::{Answer, Node},
    swarm::{Dice, Swarm},
    workload::{self, QUEUES},
};
use crate::{
    kernel::{
        calendar::Basis,
        id::ScheduleId,
        policy::Overlap,
        schedule::{Rule, Schedule, Spec},
        shard::{Backfilled, Creation, Pending, Receipted, Triggered},
        tenant::{QueueSettings, Revised},
        time::UnixMs,
    },
    shell::ask::Ask,
};

enum Waiting {
    Made(ScheduleId, Answer<Schedule>),
    Changed(ScheduleId, bool, Answer<Receipted>),
    Triggered(Answer<Triggered>),
    Backfilled(Answer<Backfilled>),
    Set(Answer<()>),
}

/// Callers that wait for answers.
#[derive(Default)]
pub(super) struct Calls {
    waiting: Vec<Waiting>,
    ids: u64,
    requests: u64,
}

impl Calls {
    fn new_id(&mut self) -> ScheduleId {
        self.ids += 1;
        id_of(self.ids)
    }

    fn old_id(&self, dice: &mut Dice) -> ScheduleId {
        id_of(1 + dice.below(self.ids))
    }

    /// Says which queues are tracked, before anything is made for them.
    pub(super) fn set_queues(&mut self, node: &mut Node, swarm: &Swarm) {
        let running = node.running.as_mut().expect("nothing has happened yet");
        for (name, tracked) in QUEUES.iter().zip(swarm.tracks) {
            let set = Revised { revision: 1, settings: QueueSettings { tracked, ..QueueSettings::default() } };
            let answer = running.ask(|reply| Ask::SetQueue { name: (*name).into(), set, reply });
            self.waiting.push(Waiting::Set(answer));
        }
    }

    /// Makes a call, and says which.
    pub(super) fn make(
        &mut self,
        node: &mut Node,
        now: UnixMs,
        must_create: bool,
        dice: &mut Dice,
        swarm: &Swarm,
        checker: &mut Checker,
    ) -> &'static str {
        let Some(running) = &mut node.running else { return "nobody" };
        let spec = workload::draw(dice, swarm, now);
        let is_patient = spec.overlap != Overlap::Allow
            || matches!(spec.rule, Rule::Every { basis: Basis::Completion | Basis::Start, .. });
        let id = self.old_id(dice);
        let target = id.into();
        match dice.below(12) {
            kind if must_create || (kind < 2 && self.ids < 24) => {
                let id = self.new_id();
                mark(checker, id, is_patient);
                let creation = Box::new(Creation { id, spec, is_keyed: false });
                let answer = running.ask(|reply| Ask::Create { creation, reply });
                self.waiting.push(Waiting::Made(id, answer));
                "create"
            }
            0..=3 => {
                let Some((before, _)) = running.actor.shard_mut().read(&target, now) else { return "nothing" };
                mark(checker, id, is_patient);
                let spec = Box::new(Spec { tenant: before.spec.tenant, ..spec });
                let version = before.version;
                let pending = if dice.percent(50) { Pending::Keep } else { Pending::Cancel };
                let answer = running.ask(|reply| Ask::Update { target, spec, version, pending, reply });
                self.waiting.push(Waiting::Changed(id, false, answer));
                "update"
            }
            4 => {
                let answer = running.ask(|reply| Ask::Pause { target, reply });
                self.waiting.push(Waiting::Changed(id, false, answer));
                "pause"
            }
            5 | 6 => {
                let answer = running.ask(|reply| Ask::Resume { target, reply });
                self.waiting.push(Waiting::Changed(id, false, answer));
                "resume"
            }
            7 if dice.percent(40) => {
                let answer = running.ask(|reply| Ask::Cancel { target, reply });
                self.waiting.push(Waiting::Changed(id, true, answer));
                "cancel"
            }
            kind => {
                self.requests += 1;
                let is_keyed = dice.percent(50);
                let key = if is_keyed { dice.below(3) } else { 3 + self.requests };
                let discriminator = key.to_be_bytes().to_vec();
                if kind < 10 {
                    let answer = running.ask(|reply| Ask::Trigger { target, discriminator, is_keyed, reply });
                    self.waiting.push(Waiting::Triggered(answer));
                    "trigger"
                } else {
                    let to = now.minus(dice.below(20_000).cast_signed());
                    let window = (to.minus(1 + dice.below(60_000).cast_signed()), to);
                    let answer = running.ask(|reply| Ask::Backfill { target, window, discriminator, is_keyed, reply });
                    self.waiting.push(Waiting::Backfilled(answer));
                    "backfill"
                }
            }
        }
    }

    /// Nobody waits any more.
    pub(super) fn hang_up(&mut self) {
        self.waiting.clear();
    }

    /// Whoever was answered knows it from now on.
    pub(super) fn hear(&mut self, checker: &mut Checker) -> bool {
        let before = self.waiting.len();
        self.waiting.retain_mut(|waiting| match waiting {
            Waiting::Made(id, answer) => still_waits(answer, |schedule| checker.told(*id, schedule.version, false)),
            Waiting::Changed(id, is_cancel, answer) => {
                still_waits(answer, |changed| checker.told(*id, changed.receipt.version, *is_cancel))
            }
            Waiting::Triggered(answer) => still_waits(answer, drop),
            Waiting::Backfilled(answer) => still_waits(answer, drop),
            Waiting::Set(answer) => still_waits(answer, drop),
        });
        self.waiting.len() < before
    }
}

fn mark(checker: &mut Checker, id: ScheduleId, is_patient: bool) {
    if is_patient {
        checker.patient.insert(id);
    }
}

fn id_of(number: u64) -> ScheduleId {
    let mut id = [0x11; 16];
    id[8..].copy_from_slice(&number.to_be_bytes());
    ScheduleId(id)
}

fn still_waits<T>(answer: &mut Answer<T>, hear: impl FnOnce(T)) -> bool {
    use tokio::sync::oneshot::error::TryRecvError;
    match answer.try_recv() {
        Ok(Ok(told)) => {
            hear(told);
            false
        }
        Ok(Err(_)) | Err(TryRecvError::Closed) => false,
        Err(TryRecvError::Empty) => true,
    }
}
