//! The Markov chain behind the theory: missing degrees of freedom joined with the channel state.
//!
//! One array per channel state, indexed by the number of missing degrees of freedom. `high` bounds
//! the nonzero entries, so the cost of a step is the width of the distribution.

use recoded_gf::FieldOrder;

use super::{LossModel, Recoding, SIZE_LIMIT};

/// A loss channel with two states, described by its transitions between two packets.
#[derive(Copy, Clone, Debug)]
pub(super) struct Channel {
    /// Probability of the bad state in equilibrium.
    pub loss: f64,
    /// From one packet to the next.
    pub good_to_bad: f64,
    /// From one packet to the next.
    pub bad_to_good: f64,
}

impl Channel {
    pub fn new(hop: LossModel) -> Self {
        let loss = if hop.loss.is_nan() { 0.0 } else { hop.loss.clamp(0.0, 1.0) };
        // `max` also turns a NaN burst into independent losses; a channel that loses everything
        // never leaves the bad state.
        let burst = hop.burst_mean.max(1.0 / (1.0 - loss));
        let bad_to_good = 1.0 / burst;
        let good_to_bad = if loss < 1.0 { loss * bad_to_good / (1.0 - loss) } else { 1.0 };
        Self { loss, good_to_bad, bad_to_good }
    }
}

/// Room for one entry beyond the last, which is always zero.
const ENTRIES: usize = SIZE_LIMIT + 2;

/// Smaller probabilities are dropped even if nothing is neglected: they would only decay into
/// denormal numbers, which are slow.
const VANISHING: f64 = 1e-60;

pub(super) struct Chain {
    channel: Channel,
    /// Probability of (missing, the next packet meets a good channel).
    good: [f64; ENTRIES],
    /// The same for a bad channel.
    bad: [f64; ENTRIES],
    /// Probability that a random combination is innovative: 1 - q^-missing.
    innovative: [f64; ENTRIES],
    high: usize,
    neglected: f64,
    /// Mass of neglected entries, counted as never delivered.
    spilled: f64,
}

impl Chain {
    pub fn new(field: FieldOrder) -> Self {
        let step = 1.0 / f64::from(field.order());
        let mut redundant = 1.0;
        let innovative = std::array::from_fn(|_| {
            let probability = 1.0 - redundant;
            redundant *= step;
            probability
        });
        let zero = [0.0; ENTRIES];
        Self {
            channel: Channel::new(LossModel::independent(0.0)),
            good: zero,
            bad: zero,
            innovative,
            high: 0,
            neglected: VANISHING,
            spilled: 0.0,
        }
    }

    /// Entries below `probability` are counted as failures from now on.
    pub fn neglect(&mut self, probability: f64) {
        self.neglected = probability.max(VANISHING);
    }

    /// Starts a generation on `channel`: a node of rank `rank` sends `packets` packets.
    pub fn start(&mut self, channel: Channel, rank: usize, packets: usize, recoding: Recoding) {
        let uncoded = match recoding {
            Recoding::Systematic => rank.min(packets),
            Recoding::Random => 0,
        };
        self.channel = channel;
        self.good.fill(0.0);
        self.bad.fill(0.0);
        self.spilled = 0.0;
        self.high = rank - uncoded;
        self.good[self.high] = 1.0 - channel.loss;
        self.bad[self.high] = channel.loss;
        for _ in 0..uncoded {
            self.send_uncoded();
        }
        for _ in uncoded..packets {
            self.send_coded();
        }
    }

    /// One uncoded packet: its loss makes one more degree of freedom missing.
    pub fn send_uncoded(&mut self) {
        let Channel { good_to_bad, bad_to_good, .. } = self.channel;
        self.high += 1;
        let mut lost = 0.0;
        let entries = self.good[..=self.high].iter_mut().zip(&mut self.bad[..=self.high]);
        for (good, bad) in entries {
            let (in_good, in_bad) = (*good, lost);
            lost = *bad;
            *good = in_good * (1.0 - good_to_bad) + in_bad * bad_to_good;
            *bad = in_good * good_to_bad + in_bad * (1.0 - bad_to_good);
        }
        self.trim();
    }

    /// One random combination: if it arrives, innovative with a probability that depends on the
    /// missing number.
    pub fn send_coded(&mut self) {
        let Channel { good_to_bad, bad_to_good, .. } = self.channel;
        let entries = self.high + 1;
        // Slices of one length each, so that the loop needs no bounds checks and vectorises.
        let innovative = &self.innovative[..=entries];
        let good = &mut self.good[..=entries];
        let bad = &mut self.bad[..entries];
        for missing in 0..entries {
            let kept = good[missing] * (1.0 - innovative[missing]);
            let in_good = kept + good[missing + 1] * innovative[missing + 1];
            let in_bad = bad[missing];
            good[missing] = in_good * (1.0 - good_to_bad) + in_bad * bad_to_good;
            bad[missing] = in_good * good_to_bad + in_bad * (1.0 - bad_to_good);
        }
        self.trim();
    }

    /// Probability that anything is missing. Exact near `target` and below; a value well above it
    /// has the rounding error of a difference.
    pub fn failure(&self, target: f64) -> f64 {
        let rough = 1.0 - self.good[0] - self.bad[0];
        if rough > 2.0 * target + 1e-9 {
            return rough;
        }
        let missing = self.good[1..=self.high].iter().zip(&self.bad[1..=self.high]);
        self.spilled + missing.map(|(good, bad)| good + bad).sum::<f64>()
    }

    /// Pairs of (missing, probability).
    pub fn missing(&self) -> impl Iterator<Item = (usize, f64)> {
        let entries = self.good[..=self.high].iter().zip(&self.bad[..=self.high]);
        entries.map(|(good, bad)| good + bad).enumerate()
    }

    /// By number missing: the joint probabilities with a good, or bad, channel for the next packet.
    pub fn states(&self) -> (&[f64], &[f64]) {
        (&self.good[..=self.high], &self.bad[..=self.high])
    }

    /// Drops negligible entries at the far end.
    fn trim(&mut self) {
        while self.high > 0 {
            let last = self.good[self.high] + self.bad[self.high];
            if last >= self.neglected {
                break;
            }
            self.spilled += last;
            (self.good[self.high], self.bad[self.high]) = (0.0, 0.0);
            self.high -= 1;
        }
    }
}
