//! Engine time: the wall clock, made fit to decide by.
//!
//! It is `max(wall clock, highest engine time recorded in the log)`: while the wall clock is behind, it stands still,
//! so no instant fires early or twice. A forward step of more than an hour that the elapsed-time clock does not confirm
//! is believed only after it has stood for 60 s; until then nothing is decided.

use super::time::UnixMs;

/// A forward step beyond this must be confirmed by elapsed time or by standing for [`STAND_MS`].
const SUSPECT_STEP_MS: i64 = 3_600_000;
/// How long an unconfirmed step must stand.
const STAND_MS: i64 = 60_000;
/// A difference between the clocks beyond this is a step; slewing is at most 500 ppm.
const STEP_MS: i64 = 250;

/// Both clocks, read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The wall clock, in UTC.
    pub wall: UnixMs,
    /// `CLOCK_BOOTTIME` in milliseconds: goes on in suspend, never steps.
    pub boottime_ms: i64,
}

/// A step that waits to be believed.
#[derive(Clone, Copy, Debug)]
struct Suspect {
    step_ms: i64,
    since_ms: i64,
}

/// Turns readings into engine time.
#[derive(Clone, Debug)]
pub struct EngineTime {
    now: UnixMs,
    believed: Reading,
    suspect: Option<Suspect>,
    steps_forward: u64,
    steps_backward: u64,
}

impl EngineTime {
    /// Begins at the log's highest engine time. `before` is what the last opening under the same boot read: a step
    /// since then is judged like one that a running process sees; without it the wall clock is believed at once.
    #[must_use]
    pub fn new(logged: UnixMs, before: Option<Reading>, first: Reading) -> Self {
        let believed = before.unwrap_or(first);
        let mut time = Self { now: logged, believed, suspect: None, steps_forward: 0, steps_backward: 0 };
        time.observe(first);
        time
    }

    /// Takes a reading and returns engine time; it never goes back.
    pub fn observe(&mut self, reading: Reading) -> UnixMs {
        let elapsed_ms = reading.boottime_ms.saturating_sub(self.believed.boottime_ms);
        let step_ms = reading.wall.since(self.believed.wall).saturating_sub(elapsed_ms);
        let known = self.suspect.filter(|suspect| is_steady(suspect.step_ms, step_ms));
        if !is_steady(step_ms, 0) && known.is_none() {
            if step_ms > 0 {
                self.steps_forward += 1;
            } else {
                self.steps_backward += 1;
            }
        }
        // Back from a clock that had been set back is no leap of engine time.
        if step_ms > SUSPECT_STEP_MS && reading.wall.since(self.now) > SUSPECT_STEP_MS {
            let suspect = known.unwrap_or(Suspect { step_ms, since_ms: reading.boottime_ms });
            self.suspect = Some(suspect);
            if reading.boottime_ms.saturating_sub(suspect.since_ms) < STAND_MS {
                return self.now;
            }
        }
        self.suspect = None;
        self.believed = reading;
        self.now = self.now.max(reading.wall);
        self.now
    }

    /// The latest engine time.
    #[must_use]
    pub const fn now(&self) -> UnixMs {
        self.now
    }

    /// Whether a forward step is waiting to be believed; nothing may be decided meanwhile.
    #[must_use]
    pub const fn is_suspect(&self) -> bool {
        self.suspect.is_some()
    }

    /// How far the wall clock is behind engine time, in milliseconds; 0 when it is not.
    #[must_use]
    pub fn behind_ms(&self, reading: Reading) -> i64 {
        self.now.since(reading.wall).max(0)
    }

    /// How many clock steps were seen: forward, backward.
    #[must_use]
    pub const fn steps(&self) -> (u64, u64) {
        (self.steps_forward, self.steps_backward)
    }
}

const fn is_steady(step_ms: i64, other_ms: i64) -> bool {
    step_ms.saturating_sub(other_ms).unsigned_abs() <= STEP_MS.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: i64 = 3_600_000;

    fn at(wall: i64, boottime_ms: i64) -> Reading {
        Reading { wall: UnixMs(wall), boottime_ms }
    }

    #[test]
    fn a_clock_set_back_stands_still_and_goes_on_behind_the_highest_instant() {
        let mut time = EngineTime::new(UnixMs(0), None, at(1_000_000, 0));
        assert_eq!(time.observe(at(400_000, 10)), UnixMs(1_000_000));
        assert_eq!(time.behind_ms(at(400_000, 10)), 600_000);
        assert_eq!(time.observe(at(1_000_500, 600_510)), UnixMs(1_000_500));
        assert_eq!(time.steps(), (0, 1));
    }

    #[test]
    fn a_step_of_more_than_an_hour_is_believed_after_it_has_stood_for_a_minute() {
        let mut time = EngineTime::new(UnixMs(0), None, at(0, 0));
        assert_eq!(time.observe(at(2 * HOUR_MS, 1_000)), UnixMs(0));
        assert!(time.is_suspect());
        assert_eq!(time.observe(at(2 * HOUR_MS + 59_000, 60_000)), UnixMs(0));
        assert_eq!(time.observe(at(2 * HOUR_MS + 60_000, 61_000)), UnixMs(2 * HOUR_MS + 60_000));
        assert!(!time.is_suspect());
    }

    #[test]
    fn a_wrong_step_that_is_taken_back_leaves_no_trace() {
        let mut time = EngineTime::new(UnixMs(0), None, at(0, 0));
        assert_eq!(time.observe(at(2 * HOUR_MS, 1_000)), UnixMs(0));
        assert_eq!(time.observe(at(2_000, 2_000)), UnixMs(2_000));
        assert!(!time.is_suspect());
    }

    #[test]
    fn a_suspend_is_confirmed_by_elapsed_time() {
        let mut time = EngineTime::new(UnixMs(0), None, at(0, 0));
        assert_eq!(time.observe(at(5 * HOUR_MS, 5 * HOUR_MS)), UnixMs(5 * HOUR_MS));
    }

    #[test]
    fn a_step_during_a_stop_shows_under_the_same_boot_and_not_after_a_reboot() {
        let stopped = at(0, 0);
        assert_eq!(EngineTime::new(UnixMs(0), Some(stopped), at(2 * HOUR_MS, 1_000)).now(), UnixMs(0));
        assert_eq!(EngineTime::new(UnixMs(0), None, at(2 * HOUR_MS, 1_000)).now(), UnixMs(2 * HOUR_MS));
    }

    #[test]
    fn a_step_that_leaps_again_has_to_stand_anew() {
        let mut time = EngineTime::new(UnixMs(0), None, at(0, 0));
        time.observe(at(2 * HOUR_MS, 1_000));
        assert_eq!(time.observe(at(9 * HOUR_MS + 59_000, 60_000)), UnixMs(0));
        assert_eq!(time.observe(at(9 * HOUR_MS + 61_000, 62_000)), UnixMs(0), "the second leap has stood for 2 s");
        assert_eq!(time.observe(at(9 * HOUR_MS + 119_000, 120_000)), UnixMs(9 * HOUR_MS + 119_000));
        assert_eq!(time.steps().0, 2);
    }

    #[test]
    fn a_clock_that_comes_back_from_being_set_back_is_believed_at_once() {
        let start = 10 * HOUR_MS;
        let mut time = EngineTime::new(UnixMs(0), None, at(start, 0));
        assert_eq!(time.observe(at(start - 3 * HOUR_MS, 1_000)), UnixMs(start));
        assert_eq!(time.observe(at(start + 2_000, 2_000)), UnixMs(start + 2_000));
        assert!(!time.is_suspect());
    }

    #[test]
    fn readings_from_the_ends_of_time_do_not_overflow() {
        let mut time = EngineTime::new(UnixMs(0), Some(at(i64::MIN, i64::MAX)), at(i64::MAX, i64::MIN));
        time.observe(at(i64::MIN, i64::MAX));
        assert_eq!(time.now(), UnixMs(0));
    }
}
