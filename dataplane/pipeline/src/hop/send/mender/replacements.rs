//! Replacements of lost packets until the next report: packets lost to a full queue are not
//! replaced by more that overflow it.

use crate::config::params::Nanos;

/// Most replacements allowed at once; each packet reported as received allows one.
const MENDS_MAX: u32 = 64;

/// While the queue in front of the link is longer than this, one replacement per this many packets
/// received, and a lower maximum. Not zero: a forged report may claim an endless queue.
const MEND_QUEUE_NANOS: Nanos = 10_000_000;
const MENDS_FULL: u32 = 4;
const MENDS_FULL_MAX: u32 = 8;

/// Replacements currently allowed.
#[derive(Debug)]
pub(super) struct Replacements {
    left: u32,
    /// Packets received by the newest report.
    received: u32,
}

impl Default for Replacements {
    fn default() -> Self {
        Self { left: MENDS_MAX, received: 0 }
    }
}

impl Replacements {
    /// Processes a report of packets received in total, and of the queueing delay of the newest.
    /// With nothing in flight, there is no queue either.
    pub(super) fn hear(&mut self, received: u32, waited: Nanos, is_idle: bool) {
        let came = received.wrapping_sub(std::mem::replace(&mut self.received, received));
        let is_full = waited > MEND_QUEUE_NANOS;
        let (share, most) = if is_full { (MENDS_FULL, MENDS_FULL_MAX) } else { (1, MENDS_MAX) };
        let more = if is_idle { most } else { came.clamp(1, MENDS_MAX).div_ceil(share) };
        self.left = (self.left + more).min(most);
    }

    /// How many of `wanted` may leave before the next report.
    pub(super) fn allowed(&self, wanted: usize) -> usize {
        wanted.min(self.left as usize)
    }

    /// Records replacements sent.
    pub(super) fn spend(&mut self, packets: usize) {
        self.left = self.left.saturating_sub(packets as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_in_the_place_of_lost_ones_keep_to_what_came() {
        let mut replacements = Replacements::default();
        assert_eq!(replacements.allowed(1000), MENDS_MAX as usize);
        replacements.spend(1000);
        assert_eq!(replacements.allowed(1), 0);
        replacements.left = 5;
        assert_eq!(replacements.allowed(9), 5);
    }
}
