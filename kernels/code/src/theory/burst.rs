//! Bursts of loss and interleaving: how sending several batches in turn changes a channel, and how
//! many of them to choose.
//!
//! At depth d the packets of one batch are d packets apart. A channel with two states, sampled
//! every d packets, is again one with two states, and its bursts are shorter:
//!
//! ```text
//!  depth 3, batches a b c:   a1 b1 c1 a2 b2 c2 a3 b3 c3 ..   burst xxxx hits two packets of one
//!  depth 1:                  a1 a2 a3 ..  b1 b2 b3 ..        batch at most, not four
//! ```
//!
//! So the expectations of the parent module are exact for interleaved batches too, field and
//! recoding included, with [`LossModel::interleaved`] in place of the hop.

use super::LossModel;
use super::chain::Channel;

impl LossModel {
    /// The hop as seen by the packets of one batch when `depth` batches take turns packet by
    /// packet: the same loss in shorter bursts. Depth 0 counts as 1, which changes nothing.
    #[must_use]
    pub fn interleaved(self, depth: usize) -> Self {
        let Channel { loss, good_to_bad, bad_to_good } = Channel::new(self);
        // The correlation of neighbouring packets, raised to the distance.
        let depth = i32::try_from(depth.max(1)).unwrap_or(i32::MAX);
        let correlation = (1.0 - good_to_bad - bad_to_good).powi(depth);
        let leaves = (1.0 - loss) * (1.0 - correlation);
        if loss < 1.0 && leaves > 0.0 {
            Self { loss, burst_mean: 1.0 / leaves }
        } else {
            // Bursts that never end, or total loss: nothing to spread.
            Self { loss, ..self }
        }
    }
}

/// Batches to interleave on a link whose losses last `burst_mean` packets on average: twice that,
/// so that a burst of mean length takes at most one packet of a batch. The result is at most `max`,
/// and the added delay, `depth * batch_size` packets of `packet_nanos` each, at most
/// `latency_budget_nanos`. The minimum is 1, no interleaving. It also applies to bursts below 1.5
/// packets, since independent losses of up to a third look like that.
#[must_use]
pub fn interleave_depth(
    burst_mean: f64,
    batch_size: usize,
    packet_nanos: u64,
    latency_budget_nanos: u64,
    max: usize,
) -> usize {
    if burst_mean.is_nan() || burst_mean < BURSTY {
        return 1;
    }
    let turn_nanos = packet_nanos.saturating_mul(batch_size as u64).max(1);
    let affordable = usize::try_from(latency_budget_nanos / turn_nanos).unwrap_or(usize::MAX);
    // Saturates for infinite bursts.
    let wanted = (2.0 * burst_mean).ceil() as usize;
    wanted.min(affordable).min(max).max(1)
}

/// Mean bursts below this are not worth any delay.
const BURSTY: f64 = 1.5;

#[cfg(test)]
mod tests;
