//! Loss of a link by itself, by which its capacity is known from what arrives.
//!
//! A start at the first rate overflows the queue of a slower link. That loss says nothing of the
//! link, which would seem as much faster. So loss counts only after two steps in a row without a
//! queue; what was dropped before a queue ended is reported after it.
//!
//! Redundancy has an estimate of its own ([`super::Rate::usual_loss`]), which begins with the first
//! sample: the first packets need it, and the least loss of many samples is none.

use super::{LOSS_WEIGHT, deviation};

/// Standard deviations beyond the loss of a sample that the loss of the link lies within.
const DEVIATIONS: f64 = 3.0;

/// The most that the link loses by itself where this share of so many packets was lost.
pub(super) fn most(loss: f64, sent: u32) -> f64 {
    let one = 1.0 / f64::from(sent.max(1));
    (loss + DEVIATIONS * deviation(loss.clamp(one, 0.5), sent)).min(1.0)
}

#[derive(Clone, Debug, Default)]
pub(super) struct LinkLoss {
    /// The least of any sample, until it is known.
    share: Option<f64>,
    is_known: bool,
}

impl LinkLoss {
    /// Takes in the loss of a sample, and returns the loss to count with in that sample.
    pub(super) fn note(&mut self, loss: f64, is_calm: bool) -> f64 {
        if self.is_known {
            return self.share();
        }
        let least = self.share.map_or(loss, |share| share.min(loss));
        self.share = Some(least);
        if is_calm { least } else { 0.0 }
    }

    pub(super) fn is_known(&self) -> bool {
        self.is_known
    }

    /// The loss as far as it is known.
    pub(super) fn share(&self) -> f64 {
        self.share.unwrap_or(0.0)
    }

    /// Takes in a step in which this share of so many packets was lost. `is_calm`: it had no queue,
    /// and the step before had none.
    pub(super) fn step(&mut self, loss: f64, sent: u32, is_calm: bool) {
        self.is_known |= is_calm;
        let share = self.share.get_or_insert(loss);
        if is_calm || loss < *share - 2.0 * deviation(*share, sent) {
            *share += LOSS_WEIGHT * (loss - *share);
        }
    }

    /// Many samples in a row lost this share, with or without a queue: it is never more than that.
    pub(super) fn bound(&mut self, recent: f64, sent: u32) {
        let share = self.share.get_or_insert(recent);
        if recent < *share - deviation(*share, sent) {
            *share += LOSS_WEIGHT * (recent - *share);
        }
    }

    /// A policed link loses this share at the rate that it admits.
    pub(super) fn set(&mut self, share: f64) {
        (self.share, self.is_known) = (Some(share), true);
    }
}
