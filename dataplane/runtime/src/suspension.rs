//! Detects a suspension of the box: after one, drivers of some NICs (virtio-net) run without the
//! XDP program, which Linux still shows as attached.
//!
//! One clock of Linux counts the time of a suspension and another does not. A machine that is
//! paused by its host is not suspended: neither clock runs.

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
    fn time_that_one_clock_alone_counts_is_a_suspension() {
        let since = Since { most: Duration::from_secs(3) };
        let is_later = |least, most| since.is_before(&Bounds { least, most });
        assert!(!is_later(Duration::from_secs(2), Duration::from_secs(4)));
        assert!(is_later(Duration::from_secs(4), Duration::from_secs(5)));
    }
}
