//! Exact expectations: the oracles that measurements are compared with, and the redundancy plan.
//!
//! Everything rests on one chain. A receiver that lacks D of its sender's degrees of freedom gains
//! one from a uniformly random combination with probability 1 - q^-D, and with certainty from an
//! uncoded (or cut-through) packet that it lacks. Losses are independent, or follow the
//! Gilbert-Elliott model: every packet is lost in the bad state and none in the good one, and the
//! channel is in equilibrium when a generation starts. Nodes recode from whatever rank they hold,
//! as the tables of the BATS literature assume: one generation after another, no repair.

mod chain;

pub mod adaptive;

pub mod batches;

pub mod burst;

pub mod window;

pub mod stream;

use recoded_gf::FieldOrder;

use chain::{Chain, Channel};

/// Loss of one hop.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct LossModel {
    /// Fraction of packets lost, 0..=1. Values outside are clamped and NaN counts as 0, because
    /// this comes from measurements.
    pub loss: f64,
    /// Mean number of consecutive losses. Losses without memory have mean `1 / (1 - loss)`; any
    /// value up to that (1.0 by convention) means independent losses.
    pub burst_mean: f64,
}

impl LossModel {
    /// A hop with independent losses.
    #[must_use]
    pub const fn independent(loss: f64) -> Self {
        Self { loss, burst_mean: 1.0 }
    }
}

/// The packets of a node for a generation.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Recoding {
    /// Its innovative packets unchanged, then random combinations of them.
    Systematic,
    /// Random combinations only.
    Random,
}

/// Expected rank after each hop as a fraction of `size`, when every node sends `sent[hop]` packets
/// per generation and losses are independent. One value per hop.
///
/// # Panics
/// When `sent` and `losses` differ in length or `size` is not in 1..=256.
#[must_use]
pub fn expected_rank(
    size: usize,
    field: FieldOrder,
    sent: &[usize],
    losses: &[f64],
    recoding: Recoding,
) -> Vec<f64> {
    let hops: Vec<_> = losses.iter().map(|&loss| LossModel::independent(loss)).collect();
    let distributions = rank_distributions(size, field, sent, &hops, recoding);
    let mean = |distribution: &Vec<f64>| {
        let ranks = distribution.iter().zip(0_u32..);
        ranks.map(|(probability, rank)| probability * f64::from(rank)).sum::<f64>() / size as f64
    };
    distributions.iter().map(mean).collect()
}

/// Distribution of the rank after each hop: element `r` of entry `hop` is the probability that
/// the node behind that hop holds rank `r`, `r` in 0..=size. Bursts are exact for consecutive
/// packets of one generation, that is without interleaving.
///
/// # Panics
/// When `sent` and `hops` differ in length or `size` is not in 1..=256.
#[must_use]
pub fn rank_distributions(
    size: usize,
    field: FieldOrder,
    sent: &[usize],
    hops: &[LossModel],
    recoding: Recoding,
) -> Vec<Vec<f64>> {
    assert_eq!(sent.len(), hops.len(), "one number of packets per hop");
    assert!((1..=SIZE_LIMIT).contains(&size), "generation size {size} not in 1..=256");
    let mut chain = Chain::new(field);
    let mut ranks = vec![0.0; size + 1];
    ranks[size] = 1.0;
    let mut result = Vec::with_capacity(hops.len());
    for (&packets, &hop) in sent.iter().zip(hops) {
        let channel = Channel::new(hop);
        let mut next = vec![0.0; size + 1];
        for (rank, &weight) in ranks.iter().enumerate().filter(|&(_, &weight)| weight > 0.0) {
            chain.start(channel, rank, packets, recoding);
            for (missing, probability) in chain.missing() {
                next[rank - missing] += weight * probability;
            }
        }
        result.push(next.clone());
        ranks = next;
    }
    result
}

/// The smallest number of packets that each node should send per generation (systematic ones
/// included) so that a generation is lost with probability `target` at most: the union bound over
/// hops of the probability that a node holding all of it fails to deliver all of it.
///
/// Exact per hop in loss, bursts and rank deficiency of the field, for systematic coding. Never
/// above `planned_max`, which is also the answer when the target cannot be met. Allocates nothing.
///
/// # Panics
/// When `size` is not in 1..=256.
#[must_use]
pub fn plan(
    size: usize,
    field: FieldOrder,
    hops: &[LossModel],
    target: f64,
    planned_max: usize,
) -> usize {
    assert!((1..=SIZE_LIMIT).contains(&size), "generation size {size} not in 1..=256");
    let mut chain = Chain::new(field);
    let mut first = size;
    while first < planned_max {
        let mut failures = [0.0; WINDOW];
        let failures = &mut failures[..WINDOW.min(planned_max - first)];
        for &hop in hops {
            add_failures(&mut chain, hop, size, first, target, failures);
        }
        if let Some(offset) = failures.iter().position(|&failure| failure <= target) {
            return first + offset;
        }
        first += failures.len();
    }
    planned_max
}

/// The number of packets per generation that costs least when an incomplete generation is not lost
/// but repaired at the price of `failure_cost` packets: the minimum over t of t + `failure_cost` *
/// P(t), with P as in [`plan`]. Returns it with that P. Allocates nothing.
///
/// Under independent losses this is close to a [`plan`] for a target of a percent or two. Under
/// bursts P falls slowly with t, and repairing the few generations that a burst hit is far cheaper
/// than sending all of them several times over.
///
/// # Panics
/// When `size` is not in 1..=256.
#[must_use]
pub fn plan_with_repair(
    size: usize,
    field: FieldOrder,
    hops: &[LossModel],
    failure_cost: f64,
    planned_max: usize,
) -> (usize, f64) {
    assert!((1..=SIZE_LIMIT).contains(&size), "generation size {size} not in 1..=256");
    let mut chain = Chain::new(field);
    let mut failures = [0.0; WINDOW];
    let count = WINDOW.min(planned_max.saturating_sub(size) + 1);
    let failures = &mut failures[..count];
    for &hop in hops {
        add_failures(&mut chain, hop, size, size, REPAIR_PRECISION, failures);
    }
    let mut best = (size, 1.0);
    let mut lowest = f64::INFINITY;
    for (extra, failure) in failures.iter().map(|failure| failure.min(1.0)).enumerate() {
        let cost = extra as f64 + failure_cost * failure;
        if cost < lowest {
            lowest = cost;
            best = (size + extra, failure);
        }
        if failure_cost * failure < 1.0 {
            break; // a further packet cannot save its own cost
        }
    }
    best
}

/// Adds to `failures[i]` the probability that a hop delivers less than the whole generation when
/// `first + i` packets are sent, `first >= size`. Values above `target` may be rough.
fn add_failures(
    chain: &mut Chain,
    hop: LossModel,
    size: usize,
    first: usize,
    target: f64,
    failures: &mut [f64],
) {
    chain.neglect(target * NEGLIGIBLE);
    chain.start(Channel::new(hop), size, first, Recoding::Systematic);
    for index in 0..failures.len() {
        let failure = chain.failure(target);
        if failure <= target * NEGLIGIBLE {
            // It only falls from here on.
            return failures[index..].iter_mut().for_each(|sum| *sum += failure);
        }
        failures[index] += failure;
        chain.send_coded();
    }
}

/// Generations are at most this long, since the wire numbers symbols with one byte.
const SIZE_LIMIT: usize = 256;

/// Packet counts examined in one pass over the hops: four times the largest generation, so that one
/// pass serves every plan of up to 75 % loss, in 8 KiB of stack.
const WINDOW: usize = 1024;

/// Precision of failure probabilities in [`plan_with_repair`].
const REPAIR_PRECISION: f64 = 1e-4;

/// Probabilities below this fraction of the target are not tracked further: counted as failure
/// while they can still matter. Larger is faster; sums of 10^3 such terms must stay invisible.
const NEGLIGIBLE: f64 = 1e-7;

#[cfg(test)]
mod tests;
