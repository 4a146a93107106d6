//! Loss of the incoming link of a flow, from the link sequence numbers of what arrives.
//!
//! Numbers run per entropy bucket (see `recoded_wire::entropy`), so that a queue that sees only some
//! of a flow's buckets still sees no gap that is not a loss. No probe traffic is needed.

use crate::report::HopLoss;
use recoded_wire::entropy::{BUCKETS, bucket_of};
use recoded_wire::feedback::{HopReport, Item};
use recoded_wire::header::{Block, Header};

/// Packets per measuring window: long enough that 1 % loss shows up, short enough (10 ms at
/// 25,000 packets a second) to follow a link that changes.
const WINDOW_PACKETS: u32 = 256;

/// Weight of a new window: about 2,000 packets of memory, so that 10 % is known to half a point.
const WEIGHT: f64 = 1.0 / 8.0;

/// Weight when a window lies more than three standard errors above the estimate: a link that turned
/// bad must be answered within two windows.
const WEIGHT_JUMP: f64 = 0.5;

/// A gap wider than this is a sender that restarted, not a loss.
const GAP_MAX: u32 = 1 << 14;

/// Assumed of a link that has not been measured yet.
const LOSS_UNKNOWN: f64 = 0.1;

/// Loss estimator of one incoming link.
#[derive(Clone, Debug, Default)]
pub(crate) struct LossTracker {
    expected: [Option<u32>; BUCKETS],
    received: u32,
    lost: u32,
    runs: u32,
    estimate: Option<HopLoss>,
    hop: u8,
}

impl LossTracker {
    /// Notes an arrival.
    pub(crate) fn arrived(&mut self, header: &Header, block: Option<&Block>) {
        self.hop = header.hop_index;
        let expected = &mut self.expected[bucket_of(header, block)];
        let gap = expected.map_or(0, |next| header.link_sequence.wrapping_sub(next));
        if gap > u32::MAX - GAP_MAX {
            return; // reordered or repeated: already counted as lost, and rare
        }
        *expected = Some(header.link_sequence.wrapping_add(1));
        if gap >= GAP_MAX {
            return;
        }
        self.received += 1;
        self.lost += gap;
        self.runs += u32::from(gap > 0);
        if self.received + self.lost >= WINDOW_PACKETS {
            self.close_window();
        }
    }

    fn close_window(&mut self) {
        let total = f64::from(self.received + self.lost);
        let loss = f64::from(self.lost) / total;
        let burst = if self.runs == 0 { 1.0 } else { f64::from(self.lost) / f64::from(self.runs) };
        let old = self.estimate.unwrap_or(HopLoss { hop: self.hop, loss, burst_mean: burst });
        let error = (old.loss.max(1.0 / total) * (1.0 - old.loss) * old.burst_mean / total).sqrt();
        let weight = if loss > old.loss + 3.0 * error { WEIGHT_JUMP } else { WEIGHT };
        let blend = |old: f64, new: f64| old + weight * (new - old);
        let burst_mean = if self.runs == 0 { old.burst_mean } else { blend(old.burst_mean, burst) };
        self.estimate = Some(HopLoss { hop: self.hop, loss: blend(old.loss, loss), burst_mean });
        (self.received, self.lost, self.runs) = (0, 0, 0);
    }

    /// Share of packets lost; a guess while there is no estimate.
    pub(crate) fn loss(&self) -> f64 {
        self.estimate.map_or(LOSS_UNKNOWN, |estimate| estimate.loss)
    }

    /// The estimate, once there is one.
    pub(crate) fn estimate(&self) -> Option<HopLoss> {
        self.estimate.map(|estimate| HopLoss { hop: self.hop, ..estimate })
    }
}

/// What a tracker has to report upstream.
pub(crate) fn hop_report(tracker: &LossTracker) -> Option<Item<'static>> {
    let estimate = tracker.estimate()?;
    Some(Item::Hop(HopReport {
        hop: estimate.hop,
        loss: estimate.loss as f32,
        burst_mean: estimate.burst_mean as f32,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use recoded_wire::header::{Flags, PacketType};

    fn header(generation: u32, link_sequence: u32) -> Header {
        Header {
            packet_type: PacketType::Generation,
            flags: Flags(0),
            epoch: 0,
            size: 16,
            flow: 1,
            generation,
            hop_index: 2,
            key_id: 0,
            planned: 16,
            link_sequence,
        }
    }

    #[test]
    fn every_tenth_packet_missing_is_ten_percent_in_single_losses() {
        let mut tracker = LossTracker::default();
        for sequence in (0..20_000u32).filter(|sequence| sequence % 10 != 9) {
            tracker.arrived(&header(0, sequence), None);
        }
        let estimate = tracker.estimate().unwrap();
        assert!((estimate.loss - 0.1).abs() < 0.005, "{estimate:?}");
        assert!((estimate.burst_mean - 1.0).abs() < 0.05, "{estimate:?}");
        assert_eq!(estimate.hop, 2);
    }

    #[test]
    fn runs_of_five_are_a_burst_mean_of_five() {
        let mut tracker = LossTracker::default();
        for sequence in (0..40_000u32).filter(|sequence| sequence % 50 >= 5) {
            tracker.arrived(&header(0, sequence), None);
        }
        let estimate = tracker.estimate().unwrap();
        assert!((estimate.burst_mean - 5.0).abs() < 0.3, "{estimate:?}");
    }

    #[test]
    fn a_sender_that_restarts_is_no_loss() {
        let mut tracker = LossTracker::default();
        for start in [0u32, 900_000, 5] {
            for sequence in start..start + 1000 {
                tracker.arrived(&header(0, sequence), None);
            }
        }
        assert_eq!(tracker.estimate().unwrap().loss, 0.0);
    }

    #[test]
    fn loss_that_jumps_is_followed_within_two_windows() {
        let mut tracker = LossTracker::default();
        for sequence in 0..4096u32 {
            tracker.arrived(&header(0, sequence), None);
        }
        for sequence in (4096..4096 + 2 * 256u32).filter(|sequence| sequence % 5 != 0) {
            tracker.arrived(&header(0, sequence), None);
        }
        assert!(tracker.estimate().unwrap().loss > 0.12, "{:?}", tracker.estimate());
    }
}
