//! Adaptive recoding: how many packets a node sends for a batch, by the rank it holds.
//!
//! The average over the batches is a given budget of airtime; batches that arrived with more rank
//! get more of it. The expected rank behind the hop, E_r(t), is concave in t (nearly so for
//! systematic recoding under bursts; its envelope is used). So the best division spends every
//! packet on the largest gain: all gains above one threshold, and one rank that gets its next
//! packet only with some probability (Yin et al., "Adaptive recoding for BATS codes", ISIT 2016).
//!
//! ```text
//!  losses of the link, field --gains--> E_r(t) - E_r(t - 1) --threshold--> packets by rank
//!              ranks that arrived, budget ------------------------^
//! ```
//!
//! Gains come from the chain of the parent module, run backwards, so that one pass serves every
//! rank: `d_t(D)`, the probability that the t-th random combination is innovative to a receiver
//! that initially lacks D, is a mixture of `d_{t-1}(D)` and `d_{t-1}(D-1)`.

use recoded_gf::FieldOrder;

use super::chain::{Chain, Channel};
use super::{LossModel, Recoding};

/// The channel and the budget of a node's packets.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Outgoing {
    /// Batch size M, 1..=128.
    pub size: usize,
    /// Field of the recoding coefficients.
    pub field: FieldOrder,
    /// Loss of the link to the next node. Above 90 % it counts as 90 %, so that a link that has
    /// failed is still tried. With interleaving, bursts are shorter than the link's.
    pub hop: LossModel,
    /// How the node recodes.
    pub recoding: Recoding,
    /// Average packets per batch over the batches with the given ranks; a node without a table
    /// sends M. Anything that is not a positive number counts as M.
    pub budget: f64,
}

impl Outgoing {
    /// One packet per symbol of the batch, over `hop`.
    #[must_use]
    pub fn equal_airtime(
        size: usize,
        field: FieldOrder,
        hop: LossModel,
        recoding: Recoding,
    ) -> Self {
        Self { size, field, hop, recoding, budget: size as f64 }
    }
}

/// Packets to send by rank: a whole number, and the probability of one more.
#[derive(Clone, PartialEq, Debug)]
pub struct RecodingTable {
    size: usize,
    whole: [u16; BATCH_SIZE_MAX + 1],
    /// Probability of one more, over 2^32.
    fraction: [u32; BATCH_SIZE_MAX + 1],
}

impl RecodingTable {
    /// The table of a node that does not adapt: `packets` whatever the rank, none for rank 0.
    ///
    /// # Panics
    /// When `size` is not in 1..=128.
    #[must_use]
    pub fn fixed(size: usize, packets: u16) -> Self {
        assert!((1..=BATCH_SIZE_MAX).contains(&size), "batch size {size} not in 1..=128");
        let mut whole = [packets; BATCH_SIZE_MAX + 1];
        whole[0] = 0;
        Self { size, whole, fraction: [0; BATCH_SIZE_MAX + 1] }
    }

    /// The batch size it is for.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Packets to send for a batch of `rank` (ranks above the batch size count as that), the
    /// systematic ones included; `uniform` is a random number that decides about the fraction.
    #[must_use]
    pub fn packets(&self, rank: usize, uniform: u32) -> usize {
        let rank = rank.min(self.size);
        usize::from(self.whole[rank]) + usize::from(uniform < self.fraction[rank])
    }

    /// Mean of [`Self::packets`] over the random number.
    #[must_use]
    pub fn mean_packets(&self, rank: usize) -> f64 {
        let rank = rank.min(self.size);
        f64::from(self.whole[rank]) + f64::from(self.fraction[rank]) / TWO_32
    }

    fn set(&mut self, rank: usize, packets: f64) {
        let whole = packets.floor().min(f64::from(u16::MAX - 1));
        self.whole[rank] = whole as u16;
        // Saturates: a fraction that rounds to 1 is sent except once in 2^32 times.
        self.fraction[rank] = ((packets - whole) * TWO_32).round() as u32;
    }
}

/// Builds tables. Allocates its memory at creation, about `16 size_max^2` bytes for the losses of
/// systematic packets and `8 size_max * packets_max` for the gains.
pub struct Adaptive {
    size_max: usize,
    packets_max: usize,
    chain: Chain,
    /// `d_t(missing)` for the present t, by the channel's state before the first packet.
    gain_good: Vec<f64>,
    gain_bad: Vec<f64>,
    /// Row `rank`: the probability of each number of losses among `rank` uncoded packets, with a
    /// good (bad) channel for the next packet.
    lost_good: Vec<f64>,
    lost_bad: Vec<f64>,
    /// Entries of each row that are not negligible.
    widths: Vec<usize>,
    /// Row `rank`: the gains of packets 1, 2, .., never rising (see `pool`).
    gains: Vec<f64>,
    /// Entries of each row of `gains`.
    lengths: Vec<usize>,
}

impl Adaptive {
    /// Room for batches up to `size_max`, with at most `packets_max` packets each.
    ///
    /// # Panics
    /// When `size_max` is not in 1..=128 or `packets_max` not in 1..=65534.
    #[must_use]
    pub fn new(size_max: usize, packets_max: usize) -> Self {
        assert!((1..=BATCH_SIZE_MAX).contains(&size_max), "batch size {size_max} not in 1..=128");
        let packets_allowed = 1..usize::from(u16::MAX);
        assert!(packets_allowed.contains(&packets_max), "{packets_max} packets not in 1..=65534");
        let entries = size_max + 1;
        Self {
            size_max,
            packets_max,
            chain: Chain::new(FieldOrder::Two),
            gain_good: vec![0.0; entries],
            gain_bad: vec![0.0; entries],
            lost_good: vec![0.0; entries * entries],
            lost_bad: vec![0.0; entries * entries],
            widths: vec![0; entries],
            gains: vec![0.0; entries * packets_max],
            lengths: vec![0; entries],
        }
    }

    /// The table that maximises the expected rank behind the hop, when batches have rank 0, 1, .. M
    /// with the frequencies `ranks`: `size + 1` counts or probabilities of any scale. Counts that
    /// are not positive numbers count as zero, and if all are zero, every batch counts as complete.
    /// Unseen ranks get the packets that gain as much as those of the others.
    ///
    /// Packets that gain less than 1e-5 are never sent: then the average stays below the budget.
    /// Allocates nothing.
    ///
    /// # Panics
    /// When the size is not in 1..=`size_max`, or `ranks` does not have `size + 1` elements.
    pub fn table(&mut self, outgoing: &Outgoing, ranks: &[f64]) -> RecodingTable {
        let size = outgoing.size;
        assert!(
            (1..=self.size_max).contains(&size),
            "batch size {size} not in 1..={}",
            self.size_max
        );
        assert_eq!(ranks.len(), size + 1, "one count for each rank from 0");
        let loss = outgoing.hop.loss.min(LOSS_MAX);
        let channel = Channel::new(LossModel { loss, ..outgoing.hop });
        match outgoing.recoding {
            Recoding::Random => self.random_gains(outgoing, channel),
            Recoding::Systematic => self.systematic_gains(outgoing, channel),
        }
        let usable = outgoing.budget.is_finite() && outgoing.budget > 0.0;
        self.divide(ranks, if usable { outgoing.budget } else { size as f64 })
    }

    /// Gains of random combinations only.
    fn random_gains(&mut self, outgoing: &Outgoing, channel: Channel) {
        self.lengths.fill(0);
        self.start_combinations(outgoing, channel);
        for packet in 0..self.packets_max {
            let mut gaining = false;
            for rank in 1..=outgoing.size {
                let (good, bad) = (self.gain_good[rank], self.gain_bad[rank]);
                let gain = good * (1.0 - channel.loss) + bad * channel.loss;
                gaining |= self.append(rank, packet, gain);
            }
            if !gaining {
                break;
            }
            self.next_combination(outgoing, channel);
        }
    }

    /// Gains of `rank` uncoded packets, each worth its arrival rate, and combinations after them.
    fn systematic_gains(&mut self, outgoing: &Outgoing, channel: Channel) {
        self.losses(outgoing.size, channel);
        for rank in 0..=outgoing.size {
            let uncoded = rank.min(self.packets_max);
            let row = rank * self.packets_max;
            self.gains[row..row + uncoded].fill(1.0 - channel.loss);
            self.lengths[rank] = uncoded;
        }
        self.start_combinations(outgoing, channel);
        for combination in 0..self.packets_max {
            let mut gaining = false;
            for rank in 1..=outgoing.size {
                if rank + combination < self.packets_max {
                    let gain = self.mean_gain(rank);
                    gaining |= self.append(rank, rank + combination, gain);
                }
            }
            if !gaining {
                break;
            }
            self.next_combination(outgoing, channel);
        }
    }

    /// Fills the rows of losses.
    fn losses(&mut self, size: usize, channel: Channel) {
        let stride = self.size_max + 1;
        self.chain.neglect(NEGLIGIBLE_LOSSES);
        self.chain.start(channel, 0, 0, Recoding::Systematic);
        for rank in 1..=size {
            self.chain.send_uncoded();
            let (good, bad) = self.chain.states();
            let row = rank * stride;
            self.lost_good[row..row + good.len()].copy_from_slice(good);
            self.lost_bad[row..row + bad.len()].copy_from_slice(bad);
            self.widths[rank] = good.len();
        }
    }

    /// The present combination's gain, averaged over the losses of `rank` uncoded packets.
    fn mean_gain(&self, rank: usize) -> f64 {
        let row = rank * (self.size_max + 1);
        let dot = |lost: &[f64], gain: &[f64]| -> f64 {
            lost[row..row + self.widths[rank]].iter().zip(gain).map(|(a, b)| a * b).sum()
        };
        dot(&self.lost_good, &self.gain_good) + dot(&self.lost_bad, &self.gain_bad)
    }

    /// Adds the gain of packet number `packet` (from 0) if it and all earlier ones are worth
    /// sending.
    fn append(&mut self, rank: usize, packet: usize, gain: f64) -> bool {
        if gain < WORTHLESS || self.lengths[rank] != packet {
            return false;
        }
        let row = rank * self.packets_max;
        self.gains[row + packet] = gain;
        pool(&mut self.gains[row..=row + packet]);
        self.lengths[rank] += 1;
        true
    }

    /// `d_1`: the first combination is innovative if it arrives and is not redundant.
    fn start_combinations(&mut self, outgoing: &Outgoing, channel: Channel) {
        debug_assert!(channel.loss < 1.0);
        let order = f64::from(outgoing.field.order());
        for missing in 0..=outgoing.size {
            self.gain_good[missing] = 1.0 - order.powi(-(missing as i32));
            self.gain_bad[missing] = 0.0;
        }
    }

    /// From `d_t` to `d_{t+1}`: the effect of the first packet, then `d_t` in the state that
    /// follows.
    fn next_combination(&mut self, outgoing: &Outgoing, channel: Channel) {
        let Channel { good_to_bad, bad_to_good, .. } = channel;
        let step = 1.0 / f64::from(outgoing.field.order());
        let (mut redundant, mut after_one_less) = (step, 0.0);
        let entries = self.gain_good[1..].iter_mut().zip(&mut self.gain_bad[1..]);
        for (good, bad) in entries.take(outgoing.size) {
            let after = *good * (1.0 - good_to_bad) + *bad * good_to_bad;
            *bad = *good * bad_to_good + *bad * (1.0 - bad_to_good);
            *good = after_one_less * (1.0 - redundant) + after * redundant;
            after_one_less = after;
            redundant *= step;
        }
    }

    /// Spends the budget on the largest gains.
    fn divide(&self, ranks: &[f64], budget: f64) -> RecodingTable {
        let size = ranks.len() - 1;
        let count = |rank: usize| match ranks[rank] {
            count if count.is_finite() && count > 0.0 => count,
            _ => 0.0,
        };
        let total: f64 = (0..=size).map(count).sum();
        let share = |rank: usize| {
            if total > 0.0 { count(rank) / total } else { f64::from(u8::from(rank == size)) }
        };
        let cost = |threshold: f64| -> f64 {
            (1..=size).map(|rank| share(rank) * self.above(rank, threshold) as f64).sum()
        };
        // The threshold lies in low..high: gains above `high` are affordable, all above `low` not.
        let (mut low, mut high) = (0.0, 1.0);
        if cost(low) <= budget {
            high = low;
        }
        while high - low > RESOLUTION {
            let middle = 0.5 * (low + high);
            *(if cost(middle) <= budget { &mut high } else { &mut low }) = middle;
        }
        let mut left = budget - cost(high);
        let mut table = RecodingTable::fixed(size, 0);
        for rank in 1..=size {
            let (sure, wanted) = (self.above(rank, high), self.above(rank, low));
            let affordable = if share(rank) > 0.0 { left / share(rank) } else { f64::INFINITY };
            let more = affordable.clamp(0.0, (wanted - sure) as f64);
            left -= more * share(rank);
            table.set(rank, sure as f64 + more);
        }
        table
    }

    /// Packets of `rank` that gain more than `threshold`.
    fn above(&self, rank: usize, threshold: f64) -> usize {
        let row = rank * self.packets_max;
        self.gains[row..row + self.lengths[rank]].partition_point(|&gain| gain > threshold)
    }
}

/// Makes `gains` decrease by averaging, if only the last one may exceed its predecessor: the sums
/// become the concave envelope. Gains rise when a burst has hit the last uncoded packets and is
/// likely to hit the first combination too.
fn pool(gains: &mut [f64]) {
    let mut start = gains.len() - 1;
    let mut mean = gains[start];
    while start > 0 && gains[start - 1] < mean {
        let before = gains[start - 1];
        let earlier = gains[..start].partition_point(|&gain| gain > before);
        let (old, new) = ((start - earlier) as f64, (gains.len() - start) as f64);
        mean = (before * old + mean * new) / (old + new);
        start = earlier;
    }
    gains[start..].fill(mean);
}

/// One hop of a line whose nodes adapt.
#[derive(Clone, PartialEq, Debug)]
pub struct AdaptiveHop {
    /// The table of the node before the hop.
    pub table: RecodingTable,
    /// Distribution of the rank behind the hop, 0..=M.
    pub ranks: Vec<f64>,
}

impl AdaptiveHop {
    /// Mean of the rank as a fraction of the batch size.
    #[must_use]
    pub fn expected_rank(&self) -> f64 {
        let ranks = self.ranks.iter().enumerate();
        let mean: f64 = ranks.map(|(rank, probability)| rank as f64 * probability).sum();
        mean / self.table.size as f64
    }
}

/// A line over `hops` whose source and relays send `budget` packets per batch on average, each
/// knowing the distribution of arriving ranks and the loss of its outgoing hop. Parameters
/// independent of `hops` come from `outgoing`, whose own hop does not matter.
///
/// # Panics
/// When the size is not in 1..=128.
#[must_use]
pub fn adaptive_line(outgoing: &Outgoing, hops: &[LossModel]) -> Vec<AdaptiveHop> {
    let size = outgoing.size;
    let mut adaptive = Adaptive::new(size, PACKETS_PER_SYMBOL * size.max(SMALL));
    let mut chain = Chain::new(outgoing.field);
    let mut ranks = vec![0.0; size + 1];
    ranks[size] = 1.0;
    let mut line = Vec::with_capacity(hops.len());
    for &hop in hops {
        let table = adaptive.table(&Outgoing { hop, ..*outgoing }, &ranks);
        ranks = behind(&mut chain, &table, hop, outgoing.recoding, &ranks);
        line.push(AdaptiveHop { table, ranks: ranks.clone() });
    }
    line
}

/// Expected rank after each hop as a fraction of the batch size, when every node adapts. See
/// [`adaptive_line`].
///
/// # Panics
/// As [`adaptive_line`].
#[must_use]
pub fn expected_rank_adaptive(outgoing: &Outgoing, hops: &[LossModel]) -> Vec<f64> {
    adaptive_line(outgoing, hops).iter().map(AdaptiveHop::expected_rank).collect()
}

/// Distribution of ranks behind a hop whose sender follows `table`.
fn behind(
    chain: &mut Chain,
    table: &RecodingTable,
    hop: LossModel,
    recoding: Recoding,
    ranks: &[f64],
) -> Vec<f64> {
    let mut next = vec![0.0; ranks.len()];
    for (rank, &weight) in ranks.iter().enumerate().filter(|&(_, &weight)| weight > 0.0) {
        let packets = table.packets(rank, u32::MAX);
        let one_more = table.mean_packets(rank) - packets as f64;
        for (packets, probability) in [(packets, 1.0 - one_more), (packets + 1, one_more)] {
            if probability <= 0.0 {
                continue;
            }
            chain.start(Channel::new(hop), rank, packets, recoding);
            for (missing, share) in chain.missing() {
                next[rank - missing] += weight * probability * share;
            }
        }
    }
    next
}

/// The wire format has seven bits for the batch size.
const BATCH_SIZE_MAX: usize = 128;

/// A node on a link with more loss would all but stop sending, and never notice that it recovers.
const LOSS_MAX: f64 = 0.9;

/// Packets that gain less rank than this are not worth their airtime whatever the budget.
const WORTHLESS: f64 = 1e-5;

/// Losses of uncoded packets less likely than this are left out of the gains.
const NEGLIGIBLE_LOSSES: f64 = 1e-9;

/// Precision of the threshold; gains closer together count as equal.
const RESOLUTION: f64 = 1e-9;

/// Packets per symbol in the theory of a line, enough for losses of 70 %.
const PACKETS_PER_SYMBOL: usize = 4;

/// Smaller batches get the packet limit of a batch of this size: repetition needs them.
const SMALL: usize = 8;

const TWO_32: f64 = 4_294_967_296.0;

#[cfg(test)]
mod tests;
