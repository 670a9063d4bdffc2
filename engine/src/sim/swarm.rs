//! What a world is like: drawn from its seed, so that worlds differ in which faults exist and not only in when.

use countwheel_wal::sim::Rng;

/// Choices that a seed makes.
#[derive(Clone, Debug)]
pub(super) struct Dice(pub(super) Rng);

impl Dice {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound.max(1))
    }

    pub(super) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    pub(super) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub(super) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.index(all.len())]
    }
}

/// Which faults a world has.
#[derive(Clone, Debug)]
pub(super) struct Swarm {
    pub(super) is_redis: bool,
    /// The directory is copied, and a second engine opened on the copy.
    pub(super) has_copy: bool,
    pub(super) workers: usize,
    pub(super) schedules: usize,
    pub(super) chaos_ms: u64,
    /// About how often something happens.
    pub(super) pace_ms: u64,
    /// How long a disk, a relay or a shard may take before it does what is due.
    pub(super) latency_ms: u64,
    pub(super) power_cuts: bool,
    pub(super) kills: bool,
    pub(super) full_disks: bool,
    pub(super) broken_disks: bool,
    pub(super) clock_steps: bool,
    pub(super) suspends: bool,
    pub(super) redis_cuts: bool,
    pub(super) redis_moods: bool,
    pub(super) redis_losses: bool,
    pub(super) redis_deletions: bool,
    pub(super) bad_workers: bool,
    pub(super) tracks: [bool; 2],
    pub(super) window: usize,
    pub(super) segment_bytes: u64,
    pub(super) reserve_bytes: u64,
    /// What snapshots make superfluous is kept, compressed.
    pub(super) archives: bool,
}

impl Swarm {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        let is_redis = dice.percent(70);
        let is_calm = dice.percent(8);
        let mut has = |chance: u64| !is_calm && dice.percent(chance);
        let faults = [45, 45, 20, 15, 30, 20].map(&mut has);
        let of_redis = [50, 35, 35, 20].map(|chance| is_redis && has(chance));
        let (has_copy, bad_workers) = (is_redis && has(12), has(40));
        Self {
            is_redis,
            has_copy,
            workers: 1 + dice.index(3),
            schedules: 2 + dice.index(9),
            chaos_ms: [20_000, 60_000, 180_000, 600_000][dice.index(4)],
            pace_ms: [700, 2_000, 8_000][dice.index(3)],
            latency_ms: [0, 3, 40, 400][dice.index(4)],
            power_cuts: faults[0],
            kills: faults[1],
            full_disks: faults[2],
            broken_disks: faults[3],
            clock_steps: faults[4],
            suspends: faults[5],
            redis_cuts: of_redis[0],
            redis_moods: of_redis[1],
            redis_losses: of_redis[2],
            redis_deletions: of_redis[3],
            bad_workers,
            tracks: if is_redis { [dice.percent(60), dice.percent(60)] } else { [true; 2] },
            window: [3, 50, 32_768][dice.index(3)],
            segment_bytes: [32 << 10, 128 << 10][dice.index(2)],
            reserve_bytes: [0, 64 << 10][dice.index(2)],
            archives: dice.percent(10),
        }
    }

    /// Whether nothing is ever wrong: then everything is on time too.
    pub(super) fn is_calm(&self) -> bool {
        let local = self.power_cuts || self.kills || self.full_disks || self.broken_disks || self.clock_steps;
        let redis = self.redis_cuts || self.redis_moods || self.redis_losses || self.redis_deletions || self.has_copy;
        !(local || redis || self.suspends || self.bad_workers)
    }
}
