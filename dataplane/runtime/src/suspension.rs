//! Detects a suspension of the box: after one, drivers of some NICs (virtio-net) run without the
//! XDP program, which Linux still shows as attached. And a clock that counts suspensions, for the
//! age of keys.
//!
//! One clock of Linux counts the time of a suspension and another does not. A machine that is
//! paused by its host is not suspended: neither clock runs.

use crate::shared::Clock;
use recoded_pipeline::params::Nanos;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::time::Duration;

/// A point in time between suspensions.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Since {
    /// Upper bound of the suspended time since boot.
    most: Duration,
}

impl Since {
    pub(crate) fn now() -> Since {
        Since { most: bounds().most }
    }

    /// Whether the box was suspended since then.
    pub(crate) fn was_suspended(self) -> bool {
        self.is_before(&bounds())
    }

    fn is_before(self, now: &Bounds) -> bool {
        now.least > self.most
    }
}

/// Nanoseconds since a start, with the time of suspensions. A key must not outlive a night that the
/// box slept through: an attacker that copied it meanwhile could still use it.
#[derive(Copy, Clone, Debug)]
pub(crate) struct BootClock {
    /// By Linux's clock since boot.
    start: i64,
}

impl BootClock {
    /// Reads the same as `clock` now, and more after a suspension.
    pub(crate) fn beside(clock: Clock) -> BootClock {
        BootClock { start: boot_nanos().saturating_sub_unsigned(clock.now()) }
    }

    pub(crate) fn now(self) -> Nanos {
        u64::try_from(boot_nanos().saturating_sub(self.start)).unwrap_or(0)
    }

    /// The same after a suspension of this length.
    #[cfg(test)]
    pub(crate) fn after(self, suspension: Duration) -> BootClock {
        let nanos = i64::try_from(suspension.as_nanos()).expect("less than 292 years");
        BootClock { start: self.start - nanos }
    }
}

fn boot_nanos() -> i64 {
    let nanos = duration(clock_gettime(ClockId::Boottime)).as_nanos();
    // 292 years fit.
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

/// Bounds of the suspended time since boot. The clocks are read one after the other, and this
/// thread may wait for a core in between.
struct Bounds {
    least: Duration,
    most: Duration,
}

fn bounds() -> Bounds {
    let before = duration(clock_gettime(ClockId::Monotonic));
    let all = duration(clock_gettime(ClockId::Boottime));
    let after = duration(clock_gettime(ClockId::Monotonic));
    Bounds { least: all.saturating_sub(after), most: all.saturating_sub(before) }
}

fn duration(time: Timespec) -> Duration {
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_passes_is_no_suspension() {
        let since = Since::now();
        for _ in 0..1000 {
            std::thread::yield_now();
            assert!(!since.was_suspended());
        }
    }

    #[test]
    fn clock_of_keys_runs_beside_the_other_and_counts_suspensions() {
        let clock = Clock::start();
        let keys = BootClock::beside(clock);
        for _ in 0..100 {
            let (before, now, after) = (clock.now(), keys.now(), clock.now());
            assert!(
                before <= now + 1_000_000 && now <= after + 1_000_000,
                "{before} {now} {after}"
            );
        }
        let after = keys.after(Duration::from_secs(2));
        assert!(after.now() >= keys.now() + 1_990_000_000);
    }

    #[test]
    fn time_that_one_clock_alone_counts_is_a_suspension() {
        let since = Since { most: Duration::from_secs(3) };
        let is_later = |least, most| since.is_before(&Bounds { least, most });
        assert!(!is_later(Duration::from_secs(2), Duration::from_secs(4)));
        assert!(is_later(Duration::from_secs(4), Duration::from_secs(5)));
    }
}
