//! The store's clock: microseconds since the epoch, by elapsed time, never backwards.
//!
//! A store takes the machine's date when it is first opened after the machine was started. From then on its time advances
//! with the time that really passes, so leases and delays end when they should, however the machine's clock is set
//! meanwhile. Elapsed time is `CLOCK_BOOTTIME`: unlike `CLOCK_MONOTONIC` it also counts while the machine sleeps.
//!
//! Keys have dates in them, so the store's time also approaches the machine's, by at most one part in [`SLEW`]: a
//! lease is then 5 % longer or shorter at most. A [`Stamp`] is kept with the data. Until the machine restarts, a store that
//! is opened again, or taken over, goes on from the stamp as if it had been open all the time. After a restart of the
//! machine nothing tells how much time has passed, and the store takes the machine's date.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tracing::warn;
use xxhash_rust::xxh3::xxh3_64;

use crate::script::LATEST_US;
use crate::{Code, Error, Result};

/// A machine's date before 2020 was never set: everything in a folder would seem to lie in the future.
const EARLIEST_US: i64 = 1_577_836_800_000_000;
/// The store's time runs faster or slower by one part in this many while it differs from the machine's.
const SLEW: i64 = 20;
/// How far the machine's clock must jump for it to be counted and logged.
pub(super) const STEP_US: i64 = 1_000_000;
/// How often the machine's clock is looked at, at most.
const LOOK_US: i64 = 1_000;
/// Two clocks are read at the same time when reading both takes no longer.
const TOGETHER_US: i64 = 10_000;

/// Where an embedded store takes its time from.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// The machine's clock when the store is first opened after the machine was started, and elapsed time from then on.
    #[default]
    System,
    /// Microseconds since the epoch that somebody else sets: for tests.
    Manual(Arc<AtomicI64>),
}

/// The store's time at a moment of elapsed time, and the boot that the elapsed time counts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) boot: u64,
    pub(crate) elapsed_us: i64,
    pub(crate) now_us: i64,
}

/// A clock and the latest time it has told.
#[derive(Debug)]
pub(crate) struct Ticker {
    clock: Clock,
    course: Mutex<Course>,
    steps: AtomicU64,
    /// Which boot elapsed time counts from; none where the system does not say.
    boot: Option<u64>,
}

impl Ticker {
    pub(crate) fn new(clock: Clock) -> Self {
        let (elapsed_us, machine_us) = read_both();
        let boot = boot().filter(|_| matches!(clock, Clock::System));
        Self {
            clock,
            course: Mutex::new(Course::new(elapsed_us, machine_us)),
            steps: AtomicU64::new(0),
            boot,
        }
    }

    pub(crate) fn now_us(&self) -> i64 {
        let (now_us, step_us) = match &self.clock {
            Clock::Manual(time) => (time.load(Ordering::SeqCst), None),
            Clock::System => {
                let mut course = self.course.lock();
                match course.soon(elapsed_us()) {
                    Some(now_us) => (now_us, None),
                    None => {
                        let (elapsed_us, machine_us) = read_both();
                        course.advance(elapsed_us, machine_us)
                    }
                }
            }
        };
        self.count(step_us);
        now_us
    }

    fn count(&self, step_us: Option<i64>) {
        let Some(step_us) = step_us else { return };
        self.steps.fetch_add(1, Ordering::Relaxed);
        let (by_ms, which) = (step_us.abs() / 1000, if step_us < 0 { "back" } else { "forward" });
        warn!(
            by_ms,
            "the machine's clock was set {which}; the store's time goes on by elapsed time and approaches it by 5 %"
        );
    }

    /// The store's time and elapsed time at one moment; none where nothing tells one boot from another.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        let boot = self.boot?;
        let (elapsed_us, (now_us, step_us)) = {
            let mut course = self.course.lock();
            let (elapsed_us, machine_us) = read_both();
            (elapsed_us, course.advance(elapsed_us, machine_us))
        };
        self.count(step_us);
        Some(Stamp { boot, elapsed_us, now_us })
    }

    /// The store's time now if it has gone on by elapsed time since `stamp`; none when the machine was restarted since.
    pub(crate) fn since(&self, stamp: &Stamp) -> Option<i64> {
        let passed_us = self.course.lock().looked_us.checked_sub(stamp.elapsed_us).filter(|us| *us >= 0)?;
        (self.boot == Some(stamp.boot)).then(|| stamp.now_us.saturating_add(passed_us))
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.now_us().div_euclid(1000)
    }

    /// The time now, unless a script could not count with it.
    pub(crate) fn usable_us(&self) -> Result<i64> {
        let now_us = self.now_us();
        let earliest_us = if matches!(self.clock, Clock::System) { EARLIEST_US } else { 0 };
        if (earliest_us..=LATEST_US).contains(&now_us) {
            return Ok(now_us);
        }
        let detail = format!(
            "the clock says {now_us} µs since 1970, and a store counts from {earliest_us} up to {LATEST_US} (the year 2255); set the \
             machine's clock right"
        );
        Err(Error::new("store.open", Code::StoreClock, detail))
    }

    /// Goes on from `stamp` as if the store had been open since; nothing after a restart of the machine. Nobody may have
    /// been told a time yet.
    pub(crate) fn go_on(&self, stamp: &Stamp) {
        if self.since(stamp).is_some() {
            self.course.lock().go_on(stamp);
        }
    }

    /// Goes on from `told_us`, which was told before: time that is a little ahead of the machine's is not taken back.
    pub(crate) fn resume(&self, told_us: i64) {
        self.course.lock().resume(told_us);
    }

    /// The store's time minus the machine's.
    pub(crate) fn offset_us(&self) -> i64 {
        match self.clock {
            Clock::Manual(_) => 0,
            Clock::System => {
                let now_us = self.now_us();
                // Reading the two one after the other is not a difference.
                Some(now_us - machine_us()).filter(|offset| offset.abs() > TOGETHER_US).unwrap_or(0)
            }
        }
    }

    /// How often the machine's clock was set since the store was opened.
    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }
}

/// The course of the store's time between two clocks.
#[derive(Debug)]
#[expect(clippy::struct_field_names, reason = "units are in names")]
struct Course {
    /// Elapsed time and the store's time when the machine's clock was last looked at.
    looked_us: i64,
    then_us: i64,
    /// The machine's time minus the store's at that moment.
    ahead_us: i64,
    told_us: i64,
}

impl Course {
    fn new(elapsed_us: i64, machine_us: i64) -> Self {
        Self { looked_us: elapsed_us, then_us: machine_us, ahead_us: 0, told_us: machine_us }
    }

    fn resume(&mut self, told_us: i64) {
        let back_us = (told_us - self.then_us).max(0);
        self.then_us += back_us;
        self.ahead_us -= back_us;
        self.told_us = self.told_us.max(self.then_us);
    }

    /// Goes on from `stamp`, whose elapsed time is no later than the last look.
    fn go_on(&mut self, stamp: &Stamp) {
        let (looked_us, machine_us) = (self.looked_us, self.then_us.saturating_add(self.ahead_us));
        *self = Self::new(stamp.elapsed_us, stamp.now_us);
        self.advance(looked_us, machine_us);
    }

    /// The time now where the machine's clock was looked at a moment ago.
    fn soon(&mut self, elapsed_us: i64) -> Option<i64> {
        let passed_us = elapsed_us - self.looked_us;
        if passed_us >= LOOK_US {
            return None;
        }
        self.told_us = self.told_us.max(self.then_us + passed_us);
        Some(self.told_us)
    }

    /// The time now, and by how much the machine's clock was set since the last look.
    fn advance(&mut self, elapsed_us: i64, machine_us: i64) -> (i64, Option<i64>) {
        let passed_us = (elapsed_us - self.looked_us).max(0);
        let due_us = self.then_us + passed_us;
        let ahead_us = machine_us.saturating_sub(due_us);
        let step_us = ahead_us.saturating_sub(self.ahead_us);
        let most_us = passed_us / SLEW;
        self.told_us = self.told_us.max(due_us + ahead_us.clamp(-most_us, most_us));
        self.looked_us = elapsed_us;
        self.then_us = self.told_us;
        self.ahead_us = machine_us.saturating_sub(self.told_us);
        (self.told_us, Some(step_us).filter(|step_us| step_us.saturating_abs() >= STEP_US))
    }
}

/// Elapsed time since the machine was started.
pub(super) fn elapsed_us() -> i64 {
    use rustix::time::{ClockId, clock_gettime};
    #[cfg(target_os = "linux")]
    let id = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let id = ClockId::Monotonic;
    let time = clock_gettime(id);
    time.tv_sec * 1_000_000 + time.tv_nsec / 1000
}

/// Which boot, in which time namespace, elapsed time counts from; none where the system does not say.
fn boot() -> Option<u64> {
    let id = std::fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    // A container may count from a moment of its own; older kernels have no such thing.
    let space = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    Some(xxh3_64(&[id.as_slice(), space.as_os_str().as_encoded_bytes()].concat()))
}

/// The machine's date.
pub(super) fn machine_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// Both clocks at one moment: a process that is stopped between two readings would see a clock that was set.
fn read_both() -> (i64, i64) {
    for _ in 0..8 {
        let (before_us, machine_us) = (elapsed_us(), machine_us());
        if elapsed_us() - before_us < TOGETHER_US {
            return (before_us, machine_us);
        }
    }
    (elapsed_us(), machine_us())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;
    const HOUR: i64 = 3600 * SECOND;
    const DATE: i64 = 1_700_000_000 * SECOND;

    /// Looks ten times a second for `seconds`, with the machine's clock `offset_us` off; the time told last.
    fn pass(course: &mut Course, elapsed_us: &mut i64, offset_us: i64, seconds: i64) -> (i64, u32) {
        let (mut last, mut steps) = (course.told_us, 0);
        for _ in 0..seconds * 10 {
            *elapsed_us += SECOND / 10;
            let (now_us, step_us) = course.advance(*elapsed_us, DATE + *elapsed_us + offset_us);
            assert!(now_us > last, "time stands still or goes back");
            last = now_us;
            steps += u32::from(step_us.is_some());
        }
        (last, steps)
    }

    #[test]
    fn a_clock_that_is_right_is_followed_exactly() {
        let (mut course, mut elapsed_us) = (Course::new(0, DATE), 0);
        assert_eq!(pass(&mut course, &mut elapsed_us, 0, 100), (DATE + 100 * SECOND, 0));
        assert_eq!(course.soon(elapsed_us + 7), Some(DATE + 100 * SECOND + 7));
        assert_eq!(course.soon(elapsed_us + LOOK_US), None);
    }

    #[test]
    fn time_goes_on_when_the_machines_clock_is_set_back_and_never_runs_away_when_it_is_set_forward() {
        for offset_us in [-HOUR, HOUR, -24 * HOUR, 400 * 365 * 24 * HOUR] {
            let (mut course, mut elapsed_us) = (Course::new(0, DATE), 0);
            let (now_us, steps) = pass(&mut course, &mut elapsed_us, offset_us, 100);
            let off_us = now_us - DATE - 100 * SECOND;
            assert_eq!(off_us, offset_us.signum() * 5 * SECOND, "5 % of what has passed");
            assert_eq!(steps, 1, "a step is told once");
            let (_, again) = pass(&mut course, &mut elapsed_us, 0, 1);
            assert_eq!(again, 1, "and so is the step that takes it back");
        }
    }

    #[test]
    fn a_small_difference_is_gone_after_a_while_and_is_no_step() {
        for offset_us in [900_000, -900_000] {
            let (mut course, mut elapsed_us) = (Course::new(0, DATE), 0);
            let (now_us, steps) = pass(&mut course, &mut elapsed_us, offset_us, 20);
            assert_eq!(now_us, DATE + 20 * SECOND + offset_us);
            assert_eq!(steps, 0);
        }
    }

    #[test]
    fn a_store_that_was_a_little_ahead_goes_on_from_there() {
        let (mut course, mut elapsed_us) = (Course::new(0, DATE), 0);
        course.resume(DATE + 5 * SECOND);
        assert_eq!(course.soon(0), Some(DATE + 5 * SECOND));
        let (now_us, steps) = pass(&mut course, &mut elapsed_us, 0, 200);
        assert_eq!((now_us, steps), (DATE + 200 * SECOND, 0));
        course.resume(DATE);
        assert_eq!(course.soon(elapsed_us), Some(now_us), "what is behind changes nothing");
    }

    #[test]
    fn a_store_that_is_opened_again_goes_on_as_if_it_had_been_open_all_the_time() {
        for offset_us in [-9 * SECOND, 0, 3 * HOUR, 400 * 365 * 24 * HOUR] {
            let (mut open, mut open_us) = (Course::new(0, DATE), 0);
            let (stamp_us, _) = pass(&mut open, &mut open_us, 0, 100);
            let stamp = Stamp { boot: 0, elapsed_us: open_us, now_us: stamp_us };
            let (before_us, _) = pass(&mut open, &mut open_us, offset_us, 40);
            let mut again = Course::new(open_us, DATE + open_us + offset_us);
            again.go_on(&stamp);
            let now_us = again.soon(open_us).unwrap();
            assert_eq!(now_us, before_us, "5 % of the 40 s that have passed");
            let (last_us, steps) = pass(&mut again, &mut open_us, offset_us, 20);
            let off_us = last_us - DATE - open_us;
            assert_eq!(off_us, offset_us.signum() * 3 * SECOND, "5 % of 60 s");
            assert_eq!(steps, 0, "it is told on opening");
        }
    }

    #[test]
    fn a_stamp_is_good_until_the_machine_restarts() {
        let ticker = Ticker::new(Clock::System);
        let stamp = ticker.stamp().unwrap();
        let behind = Stamp { now_us: stamp.now_us - 3 * HOUR, ..stamp };
        let other_boot = Stamp { boot: !stamp.boot, ..behind };
        let later = Stamp { elapsed_us: stamp.elapsed_us + HOUR, ..behind };
        for useless in [other_boot, later] {
            assert_eq!(ticker.since(&useless), None);
            ticker.go_on(&useless);
            assert!(ticker.now_us() >= stamp.now_us, "{useless:?}");
        }
        let since_us = ticker.since(&behind).unwrap() - behind.now_us;
        assert!((0..HOUR).contains(&since_us), "{since_us}");
        ticker.go_on(&behind);
        let off_us = ticker.now_us() - stamp.now_us + 3 * HOUR;
        assert!((0..HOUR).contains(&off_us), "{off_us}");
        assert!(Ticker::new(Clock::Manual(Arc::default())).stamp().is_none());
    }

    #[test]
    fn a_date_that_scripts_cannot_count_with_is_refused() {
        for us in [LATEST_US + 1, 10_413_792_000 * SECOND, -1] {
            let ticker = Ticker::new(Clock::Manual(Arc::new(AtomicI64::new(us))));
            assert_eq!(ticker.usable_us().unwrap_err().code, Code::StoreClock, "{us}");
        }
        let ticker = Ticker::new(Clock::Manual(Arc::new(AtomicI64::new(LATEST_US))));
        assert_eq!(ticker.usable_us().unwrap(), LATEST_US);
    }

    #[test]
    fn the_systems_clock_is_the_machines_and_grows() {
        let ticker = Ticker::new(Clock::System);
        let mut last = 0;
        for _ in 0..100_000 {
            let now_us = ticker.now_us();
            assert!(now_us >= last);
            last = now_us;
        }
        assert_eq!((ticker.offset_us(), ticker.steps()), (0, 0));
    }
}
