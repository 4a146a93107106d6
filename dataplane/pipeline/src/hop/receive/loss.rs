//! Loss of the incoming link of a flow, from the link sequence numbers of received packets.
//!
//! No probe traffic is needed: `sequence` tells gaps from replays.

use crate::config::report::HopLoss;
use recoded_wire::feedback::{HopReport, Item};

/// Packets per measuring window: long enough that 1 % loss shows up, short enough (10 ms at 25,000
/// packets a second) to follow a link that changes.
const WINDOW_PACKETS: u32 = 256;

/// Weight of a new window: about 2,000 packets of memory, so that 10 % loss is known to within half
/// a percentage point.
const WEIGHT: f64 = 1.0 / 8.0;

/// Weight when a window lies more than three standard errors above the estimate: a link that
/// degrades must be followed within two windows.
const WEIGHT_JUMP: f64 = 0.5;

/// Assumed loss of a link that has not been measured yet.
const LOSS_UNKNOWN: f64 = 0.1;

/// Loss estimator of one incoming link.
#[derive(Clone, Debug, Default)]
pub(crate) struct LossTracker {
    received: u32,
    lost: u32,
    runs: u32,
    estimate: Option<HopLoss>,
    hop: u8,
}

impl LossTracker {
    /// Records an arrival over the link of index `hop` which shows that `lost` packets before it
    /// were lost.
    pub(crate) fn arrived(&mut self, hop: u8, lost: u32) {
        self.hop = hop;
        self.received += 1;
        self.lost += lost;
        self.runs += u32::from(lost > 0);
        if self.received + self.lost >= WINDOW_PACKETS {
            self.close_window();
        }
    }

    /// Records the arrival of a packet that was counted as lost.
    pub(crate) fn arrived_late(&mut self) {
        self.received += 1;
        self.lost = self.lost.saturating_sub(1);
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

    /// Fraction of packets lost; a default while there is no estimate.
    pub(crate) fn loss(&self) -> f64 {
        self.estimate.map_or(LOSS_UNKNOWN, |estimate| estimate.loss)
    }

    /// The estimate, once there is one.
    pub(crate) fn estimate(&self) -> Option<HopLoss> {
        self.estimate.map(|estimate| HopLoss { hop: self.hop, ..estimate })
    }
}

/// The loss report of a tracker to upstream nodes, once it has an estimate.
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

    /// Tracks the given numbers as received.
    fn track(numbers: impl Iterator<Item = u32>) -> LossTracker {
        let (mut tracker, mut next) = (LossTracker::default(), None);
        for number in numbers {
            tracker.arrived(2, next.map_or(0, |next| number - next));
            next = Some(number + 1);
        }
        tracker
    }

    #[test]
    fn every_tenth_packet_missing_is_ten_percent_in_single_losses() {
        let tracker = track((0..20_000).filter(|number| number % 10 != 9));
        let estimate = tracker.estimate().unwrap();
        assert!((estimate.loss - 0.1).abs() < 0.005, "{estimate:?}");
        assert!((estimate.burst_mean - 1.0).abs() < 0.05, "{estimate:?}");
        assert_eq!(estimate.hop, 2);
    }

    #[test]
    fn runs_of_five_are_a_burst_mean_of_five() {
        let tracker = track((0..40_000).filter(|number| number % 50 >= 5));
        let estimate = tracker.estimate().unwrap();
        assert!((estimate.burst_mean - 5.0).abs() < 0.3, "{estimate:?}");
    }

    #[test]
    fn packets_that_are_overtaken_are_no_loss() {
        let mut tracker = LossTracker::default();
        for _ in 0..1000 {
            tracker.arrived(0, 1);
            tracker.arrived_late();
        }
        assert!(tracker.estimate().unwrap().loss < 0.01, "{:?}", tracker.estimate());
    }

    #[test]
    fn loss_that_jumps_is_followed_within_two_windows() {
        let bad = (4096..4096 + 2 * 256).filter(|number| number % 5 != 0);
        let tracker = track((0..4096).chain(bad));
        assert!(tracker.estimate().unwrap().loss > 0.12, "{:?}", tracker.estimate());
    }
}
