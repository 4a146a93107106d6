//! Stamps of this node's handshakes, grants and openings: numbers that increase from start to
//! start.
//!
//! A stamp is the wall clock. If that is behind (a box without a battery starts in 1970, a clock
//! ran ahead and was corrected), it is above all recorded stamps of earlier starts. It is also
//! above those of the peers, which may have no record of this node's but know the time: relays
//! refuse grants older than those of an earlier start.

use crate::memory::Memory;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How far ahead of use stamps are recorded: one minute needs one write. After a crash, a start is
/// at most this far ahead of its clock.
const RESERVE_NANOS: u64 = 60_000_000_000;

/// Peers' stamps from here on are no plausible time: the year 2262. A lying peer cannot exhaust the
/// stamps.
const STAMP_MAX: u64 = i64::MAX as u64;

/// The next stamps.
pub(super) struct Stamps {
    /// All stamps of earlier starts are below.
    floor: u64,
    /// Stamps up to this one are recorded.
    reserved: u64,
}

impl Stamps {
    pub(super) fn new(memory: &Memory) -> Stamps {
        let floor = memory.stamp();
        Stamps { floor, reserved: floor }
    }

    /// The stamp for a message sent now.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(wall_clock().as_nanos()).unwrap_or(u64::MAX).max(self.floor.saturating_add(1))
    }

    /// Moves past the stamp of a peer whose handshake was authentic.
    pub(super) fn follow(&mut self, stamp: u64) {
        if stamp < STAMP_MAX {
            self.floor = self.floor.max(stamp);
        }
    }

    /// Records a stamp that was, or is about to be, used.
    pub(super) fn used(&mut self, stamp: u64, memory: &mut Memory) {
        if stamp > self.reserved {
            self.reserved = stamp.saturating_add(RESERVE_NANOS);
            memory.keep_stamp(self.reserved);
        }
    }
}

/// Seconds since 1970.
pub(super) fn seconds() -> u64 {
    wall_clock().as_secs()
}

fn wall_clock() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    match cfg!(debug_assertions) {
        true => now.saturating_sub(behind()),
        false => now,
    }
}

/// For tests, which cannot set the host's clock: how far this node's is behind.
#[cold]
fn behind() -> Duration {
    let behind = std::env::var(BEHIND_VARIABLE).ok().and_then(|text| text.parse().ok());
    Duration::from_secs(behind.unwrap_or(0))
}

/// Seconds that the clock of a debug build lags its host's.
const BEHIND_VARIABLE: &str = "RECODED_TEST_CLOCK_BEHIND_SECONDS";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Ways;

    #[test]
    fn stamps_grow_from_start_to_start_whatever_the_clock_says() {
        let mut memory = Memory::Own(Ways::open(None));
        let mut stamps = Stamps::new(&memory);
        let first = stamps.now();
        assert!(first > 0);
        // The clock was ahead by a minute and is corrected before the restart.
        let ahead = first + RESERVE_NANOS;
        stamps.used(ahead, &mut memory);
        stamps.used(ahead + 5, &mut memory);
        let again = Stamps::new(&memory).now();
        assert!(again > ahead + 5, "{again} after {ahead}");
    }

    #[test]
    fn stamps_follow_those_of_peers_unless_they_are_no_time() {
        let mut stamps = Stamps::new(&Memory::Own(Ways::open(None)));
        let first = stamps.now();
        stamps.follow(first + RESERVE_NANOS);
        assert!(stamps.now() > first + RESERVE_NANOS);
        stamps.follow(u64::MAX);
        assert!(stamps.now() < STAMP_MAX);
    }

    #[test]
    fn a_minute_of_stamps_takes_one_record() {
        let mut memory = Memory::Own(Ways::open(None));
        let mut stamps = Stamps::new(&memory);
        let first = stamps.now();
        stamps.used(first, &mut memory);
        let kept = memory.stamp();
        assert_eq!(kept, first + RESERVE_NANOS);
        stamps.used(kept, &mut memory);
        assert_eq!(memory.stamp(), kept);
    }
}
