//! What may befall a world, as far as its swarm has it.

use std::io::ErrorKind;

use countwheel_wal::sim::Crash;

use super::{redis::Mood, world::World};

#[derive(Clone, Copy, Debug)]
enum Fault {
    PowerCut,
    PowerCutSoon,
    Kill,
    FullDisk,
    BrokenDisk,
    ClockStep,
    Suspend,
    Leftovers,
    Mood,
    Restart,
    Delete,
    DestroyGroup,
    Copy,
    Snapshot,
    Nothing,
}

impl World {
    fn faults_there_are(&self) -> Vec<Fault> {
        let swarm = &self.common.swarm;
        let all = [
            (swarm.power_cuts, Fault::PowerCut),
            (swarm.power_cuts, Fault::PowerCutSoon),
            (swarm.kills, Fault::Kill),
            (swarm.full_disks, Fault::FullDisk),
            (swarm.broken_disks, Fault::BrokenDisk),
            (swarm.clock_steps, Fault::ClockStep),
            (swarm.suspends, Fault::Suspend),
            (swarm.is_redis, Fault::Leftovers),
            (swarm.redis_moods, Fault::Mood),
            (swarm.redis_losses, Fault::Restart),
            (swarm.redis_deletions, Fault::Delete),
            (swarm.redis_deletions, Fault::DestroyGroup),
            (swarm.has_copy && self.nodes.len() == 1, Fault::Copy),
            (self.common.now_ms().is_multiple_of(3), Fault::Snapshot),
            (true, Fault::Nothing),
        ];
        all.into_iter().filter(|(is_there, _)| *is_there).map(|(_, fault)| fault).collect()
    }

    pub(super) fn befall(&mut self) {
        let faults = self.faults_there_are();
        let fault = *self.dice.pick(&faults);
        let index = self.dice.index(self.nodes.len());
        let now_ms = self.now_ms();
        self.trace.note(now_ms, format_args!("{index}: {fault:?}"));
        self.faults += u64::from(!matches!(fault, Fault::Snapshot | Fault::Nothing));
        match fault {
            Fault::PowerCut | Fault::PowerCutSoon | Fault::Kill => self.end_process(fault, index),
            Fault::FullDisk => {
                let used = self.nodes[index].fs.files().iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
                self.nodes[index].fs.set_capacity_bytes(Some(used + self.dice.below(64 << 10)));
                self.eases_at_ms = now_ms + 1 + self.dice.below(60_000);
            }
            Fault::BrokenDisk => {
                let at = self.nodes[index].fs.operations() + self.dice.below(10);
                self.nodes[index].fs.fail_operation(at, ErrorKind::Other);
            }
            Fault::ClockStep => {
                let ms = *self.dice.pick(&[1_000, 1_000, 1_000, 61_000, 3_600_000, 7_200_000, 86_400_000]);
                let ms = if self.dice.percent(50) { ms } else { -ms };
                self.nodes[index].step_clock(ms, 0);
            }
            Fault::Suspend => self.suspend(index),
            Fault::Snapshot => self.cut_snapshot(index),
            Fault::Nothing => {}
            Fault::Copy => {
                let copy = self.nodes[0].copy(1);
                self.nodes.push(copy);
                self.calls.hang_up();
                self.nodes[1].opens_at_ms = now_ms + self.dice.below(3_000);
            }
            _ => self.befall_redis(fault),
        }
        self.look();
    }

    fn end_process(&mut self, fault: Fault, index: usize) {
        let (policy, seed) = (*self.dice.pick(&Crash::ALL), self.dice.below(u64::MAX));
        let node = &mut self.nodes[index];
        match fault {
            Fault::Kill => node.kill(),
            Fault::PowerCut => {
                let off_ms =
                    if self.common.swarm.clock_steps { self.dice.below(4_000).cast_signed() - 2_000 } else { 0 };
                node.cut_power(policy, seed, off_ms);
            }
            // The machine stops in the middle of what the disk does next; it is noticed when the log gives up.
            _ => {
                node.fs.stop_before(node.fs.operations() + self.dice.below(8));
                return;
            }
        }
        let down_ms = if self.dice.percent(80) { 5_000 } else { 200_000 };
        node.opens_at_ms = self.common.now_ms() + self.dice.below(down_ms);
    }

    /// A machine sleeps: its clocks go on, and nothing runs.
    fn suspend(&mut self, index: usize) {
        let ms = *self.dice.pick(&[2_000, 30_000, 120_000]);
        let until_ms = self.now_ms() + ms;
        if let Some(running) = &mut self.nodes[index].running {
            (running.log_at_ms, running.relay_at_ms, running.actor_at_ms) = (until_ms, until_ms, until_ms);
        }
    }

    fn cut_snapshot(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let Some(running) = node.running.as_mut().filter(|running| running.snapshot.is_none()) else { return };
        running.snapshot = running.actor.cut();
        let durable = running.actor.durable();
        if running.snapshot.is_some() {
            node.remember(durable);
        }
    }

    fn befall_redis(&mut self, fault: Fault) {
        let now_ms = self.now_ms();
        let mut redis = self.common.redis.lock();
        match fault {
            Fault::Leftovers => {
                redis.run_leftovers();
            }
            Fault::Mood => {
                let moods = [Mood::Away, Mood::Silent, Mood::Loading, Mood::ReadOnly, Mood::OutOfMemory, Mood::Busy];
                redis.mood = *self.dice.pick(&moods);
                if redis.mood == Mood::Away {
                    redis.restart(0);
                }
                self.eases_at_ms = now_ms + 1 + self.dice.below(30_000);
            }
            Fault::Restart => {
                let lost_ms = self.dice.below(redis.rates.past_ms);
                redis.restart(lost_ms);
            }
            Fault::Delete => {
                let keys = redis.stream_keys();
                let key =
                    if self.dice.percent(25) || keys.is_empty() { None } else { Some(self.dice.pick(&keys).clone()) };
                redis.delete(key);
            }
            _ => {
                let keys = redis.stream_keys();
                if !keys.is_empty() {
                    redis.destroy_group(self.dice.pick::<Vec<u8>>(&keys), b"workers");
                }
            }
        }
    }
}
