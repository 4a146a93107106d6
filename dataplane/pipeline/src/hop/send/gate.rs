//! Pacing of a hop whose packets leave as they are formed: when a source forms more, and what delay
//! a relay reports upstream.
//!
//! Symbols of a stream wait in the sender until the link is free. Packets of generations and
//! batches leave at once, at a relay as they arrive. So the source keeps the pace:
//!
//! ```text
//!  source |##### packets that left #####| free_at: nothing is taken from the tunnel, and no batch
//!                                         formed, until shortly before that
//!  relay  reports the packets queued for its link and behind it to its upstream neighbour, as its
//!         own queue: so the queues of the whole path slow the source down
//! ```
//!
//! Pacing holds and drops nothing: a source that ignores it sends at an unchanged rate.
//! Replacements obey it at every node: packets lost to a full queue are not replaced by more that
//! overflow it.

use crate::config::params::Nanos;
use crate::hop::rate::sample::AROUND_BYTES;
use crate::hop::rate::{Rate, Verdict};
use crate::hop::send::in_flight::{Heard, InFlight};
use recoded_wire::link::LinkReport;

/// Queueing delay ignored per link: late worker wakeups look like a queue of this size on every
/// link, and a source, which sees the sum, would slow down for no reason.
const USUAL_NANOS: Nanos = 1_500_000;

/// Longest time that the link counts as busy, whatever was sent: more would leave it idle later.
const BUSY_MAX_NANOS: Nanos = 50_000_000;

/// Most replacements allowed at once; each packet reported as received allows one.
const MENDS_MAX: u32 = 64;

/// While the queue in front of the link is longer than this, one replacement per this many packets
/// received, and a lower maximum. Not zero: a forged report may claim an endless queue.
const MEND_QUEUE_NANOS: Nanos = 10_000_000;
const MENDS_FULL: u32 = 4;
const MENDS_FULL_MAX: u32 = 8;

/// Decides which packets may leave, given those already sent.
#[derive(Debug)]
pub(crate) struct Gate {
    rate: Rate,
    /// When the link will have drained the packets sent; and the same at its known rate, for long
    /// round trips.
    free_at: Nanos,
    known_free_at: Nanos,
    /// Queueing delay in front of the link and behind it, by the newest report.
    waits: (Nanos, Nanos),
    /// Packets received by that report, and replacements currently allowed.
    came: u32,
    mends: u32,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self {
            rate: Rate::beside_passing(),
            free_at: 0,
            known_free_at: 0,
            waits: (0, 0),
            came: 0,
            mends: MENDS_MAX,
        }
    }

    /// Records a packet of this many bytes about to leave.
    pub(crate) fn spend(&mut self, bytes: usize, sent: &mut InFlight, now: Nanos) {
        let earliest = now.saturating_sub(self.rate.burst());
        if self.free_at < earliest {
            // The sender ran out of data: the next arrivals do not show the capacity.
            sent.ran_dry();
        }
        let (latest, bytes) = (now + BUSY_MAX_NANOS, bytes + AROUND_BYTES);
        self.free_at = (self.free_at.max(earliest) + self.rate.nanos(bytes)).min(latest);
        let known_free_at = self.known_free_at.max(earliest) + self.rate.spend(bytes);
        self.known_free_at = known_free_at.min(latest);
    }

    /// Processes a report of the next node. `round_trip` is the mean one.
    pub(crate) fn hear(
        &mut self,
        report: &LinkReport,
        heard: &Heard,
        sent: &mut InFlight,
        round_trip: Nanos,
        now: Nanos,
    ) {
        self.waits = (heard.waited, report.backlog_nanos());
        let came = report.packets.wrapping_sub(std::mem::replace(&mut self.came, report.packets));
        let is_full = heard.waited > MEND_QUEUE_NANOS;
        let (share, most) = if is_full { (MENDS_FULL, MENDS_FULL_MAX) } else { (1, MENDS_MAX) };
        // With nothing in flight, there is no queue either.
        let is_idle = sent.on_their_way() == 0;
        let more = if is_idle { most } else { came.clamp(1, MENDS_MAX).div_ceil(share) };
        self.mends = (self.mends + more).min(most);
        self.rate.queue(heard.waited, round_trip);
        if let Some(sample) = &heard.sample
            && self.rate.sample(sample, round_trip, now) == Verdict::NotOurs
        {
            sent.accept_queue();
        }
        self.rate.heard();
    }

    /// Applies the pace of the local link.
    pub(crate) fn limit(&mut self, pace: Option<f64>) {
        self.rate.limit(pace);
    }

    /// Restarts at half the previous rate when the next node reports again after a silence.
    pub(crate) fn begin_again(&mut self) {
        self.rate.silence();
    }

    /// When more queued packets may leave.
    #[cfg(feature = "bats")]
    pub(crate) fn leaves_at(&self) -> Nanos {
        self.free_at.saturating_sub(self.rate.burst())
    }

    /// When more may be accepted: filling a long round trip must not build a queue that is reported
    /// too late.
    pub(crate) fn opens_at(&self) -> Nanos {
        self.free_at.max(self.known_free_at).saturating_sub(self.rate.burst())
    }

    /// How many of `wanted` replacements may leave before the next report.
    pub(crate) fn mends(&self, wanted: usize) -> usize {
        wanted.min(self.mends as usize)
    }

    /// Records replacements sent.
    pub(crate) fn spend_mends(&mut self, packets: usize) {
        self.mends = self.mends.saturating_sub(packets as u32);
    }

    /// Queueing delay in front of the link and behind it, beyond the usual amount per link.
    pub(crate) fn waits(&self) -> Nanos {
        self.waits.0.saturating_sub(USUAL_NANOS) + self.waits.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Nanos = 1_000_000;

    #[test]
    fn gate_closes_for_as_long_as_what_left_takes_and_opens_a_little_before() {
        let (mut gate, mut sent) = (Gate::new(), InFlight::new(64));
        let now = 1000 * MILLI;
        // Ten packets at the first rate, 12.5 MB/s, are 1.2 ms; 1.5 ms may leave at once.
        (0..10).for_each(|_| gate.spend(1458, &mut sent, now));
        assert!(gate.opens_at() <= now);
        (0..40).for_each(|_| gate.spend(1458, &mut sent, now));
        let closed = gate.opens_at().saturating_sub(now);
        assert!((2 * MILLI..4 * MILLI).contains(&closed), "{closed}");
        (0..100_000).for_each(|_| gate.spend(1458, &mut sent, now));
        assert!(gate.opens_at() <= now + BUSY_MAX_NANOS, "whatever left");
    }

    #[test]
    fn packets_in_the_place_of_lost_ones_keep_to_what_came() {
        let mut gate = Gate::new();
        assert_eq!(gate.mends(1000), MENDS_MAX as usize);
        gate.spend_mends(1000);
        assert_eq!(gate.mends(1), 0);
        gate.mends = 5;
        assert_eq!(gate.mends(9), 5);
    }
}
