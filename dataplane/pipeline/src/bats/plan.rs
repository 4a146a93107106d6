//! How many batches a block gets, and how many of them are interleaved.
//!
//! ```text
//!  hop reports ──► rank that a batch has at the sink, by a model ─┐
//!  rank histogram of the sink ──► what the model leaves out ──────┴─► batches for that rank
//! ```
//!
//! The code itself costs next to nothing: a block decodes once its rank exceeds its number of
//! symbols by one or two. So the number of batches is the number that gathers that rank, plus a
//! margin for its spread.

use crate::config::params::{
    BatsParams, FlowCode, FlowParams, Interleave, Nanos, Redundancy, ShardId,
};
use crate::config::report::HopLoss;
use crate::env::egress::Egress;
use crate::env::io::Io;
use crate::env::plan_schedule::PlanSchedule;
use crate::plan::batch::{Basis, Rank, RankModel, SIZE_MAX};
use crate::plan::{self, HopList};
use crate::unit::source::path::Path;
use recoded_code::theory::burst::interleave_depth;
use recoded_wire::feedback::{HopReport, RankReport};
use recoded_wire::frames::Frames;

/// Rank beyond the number of symbols that a block needs, before any margin for randomness.
const RANK_EXTRA: f64 = 1.0;

/// Weight of the model, in batches, when a block requests more: the number of received batches at
/// which the block's own measurement counts as much as the model.
const MODEL_WEIGHT: f64 = 2.0;

/// Lower bound of the block's own measurement, as a share of the model: in a blackout more packets
/// would not help.
const WORSE_MAX: f64 = 0.5;

/// Lower bound of a batch's expected rank, however bad the path.
const RANK_MIN: f64 = 0.05;

/// Up to this many batches, their number is a poor estimate of the packets that a block needs. A
/// sink that requests more may get this many, however short the block.
pub(crate) const FEW: usize = 3;

/// Batch ids end here.
const BATCHES_MAX: usize = u16::MAX as usize;

/// Batches after which the sink's histogram adds information.
const OBSERVED_MIN: u32 = 48;

/// Weight of the newest of these batches.
const WEIGHT: f64 = 0.3;

/// Ratio of measured to modelled rank. Adaptive relays do slightly better than the model; paths
/// with bursts too long for interleaving do far worse.
const RATIO: std::ops::RangeInclusive<f64> = 0.2..=1.3;

/// Weight of a block in the share of blocks that request more, and the share above which hops are
/// assumed not to recover their losses: one of them does not.
const ASKING_WEIGHT: f64 = 1.0 / 16.0;
const ASKING_MAX: f64 = 0.25;

/// How long that assumption holds if each block that requests more is lost and many requested more
/// twice within this time.
const DOUBT_NANOS: Nanos = 60_000_000_000;

/// Required confidence that a plan suffices.
#[derive(Copy, Clone, Debug)]
struct Surety {
    /// Margin for the spread of the rank, in standard deviations.
    deviations: f64,
    /// Negative binary logarithm of the allowed probability that random coefficients, from a field
    /// or a few bits, fail.
    bits: f64,
}

impl Surety {
    /// If missing packets can be requested: one block in six requests more. One more round trip for
    /// some blocks costs less than one more batch for all.
    const MAY_ASK: Surety = Surety { deviations: 1.0, bits: 4.0 };

    /// For blocks that have requested more: they are few, and rounds are limited.
    const ASKED: Surety = Surety { deviations: 2.5, bits: 8.0 };

    /// Surety for the first batches of a block, which may request more if `has_time`.
    fn first(params: &FlowParams, has_time: bool) -> Surety {
        if params.repair && has_time {
            return Surety::MAY_ASK;
        }
        let target = params.target_loss.clamp(1e-9, 0.5);
        // At most `target` of a normal distribution lies beyond (the Chernoff bound).
        Surety { deviations: (-2.0 * target.ln()).sqrt(), bits: -target.log2() }
    }
}

/// A source's estimate of the path to its sink.
#[derive(Debug)]
pub(crate) struct BatchPlanner {
    schedule: PlanSchedule,
    path: Path,
    model: RankModel,
    ratio: f64,
    /// Whether hops recover their losses, and the share of blocks that request more nevertheless.
    is_mended: bool,
    asking: f64,
    /// Whether answers to a block's requests arrive after the block was abandoned.
    is_late: bool,
    doubted_until: Nanos,
    /// Whether many blocks request more, and when they last began to.
    asks: bool,
    asked_at: Option<Nanos>,
    /// The newest block that requested more.
    wanted: Option<u16>,
    /// The sink's histogram when it was last evaluated: epoch, batches, sum of their ranks.
    seen: Option<(u8, u32, u32)>,
}

impl BatchPlanner {
    pub(crate) fn new(shard: ShardId) -> BatchPlanner {
        BatchPlanner {
            schedule: PlanSchedule::new(shard),
            path: Path::new(),
            model: RankModel::assumed(),
            ratio: 1.0,
            is_mended: false,
            asking: 0.0,
            is_late: false,
            doubted_until: 0,
            asks: false,
            asked_at: None,
            wanted: None,
            seen: None,
        }
    }

    /// Requests a new model if one is due.
    pub(crate) fn refresh(&mut self, size: usize, io: &mut Io<'_, impl Frames, impl Egress>) {
        let path = &self.path;
        let basis =
            || plan::Basis::Batches(Basis { size, hops: HopList::new(path.planned_with()) });
        if let Some(plan) = self.schedule.request(io, basis) {
            self.adopt(plan);
        }
    }

    /// When to call [`BatchPlanner::refresh`] again.
    pub(crate) fn due(&self) -> Option<Nanos> {
        self.schedule.due()
    }

    /// Resets plans after a parameter change.
    pub(crate) fn reset(&mut self) {
        self.schedule.want_now();
    }

    /// Adopts a requested model.
    pub(crate) fn adopt(&mut self, plan: plan::Plan) {
        self.schedule.answered();
        if let plan::Plan::Batches(model) = plan {
            self.model = model;
        }
    }

    /// Losses that the hops have reported.
    pub(crate) fn hops(&self) -> &[HopLoss] {
        self.path.hops()
    }

    /// Notes a hop report.
    pub(crate) fn hear(&mut self, travelled: u8, report: HopReport, now: Nanos) {
        if self.path.hear(travelled, report, now) {
            self.schedule.want();
        }
    }

    /// Notes the rank histogram of the sink.
    pub(crate) fn observe(&mut self, report: &RankReport<'_>) {
        let size = report.size();
        let total = report.counts().fold(0, u32::wrapping_add);
        let ranks = report.counts().zip(0u32..);
        let sum = ranks.fold(0, |sum: u32, (n, rank)| sum.wrapping_add(n.wrapping_mul(rank)));
        let (epoch, batches, ranks) = self.seen.unwrap_or((report.epoch, 0, 0));
        let (new, gained) = (total.wrapping_sub(batches), sum.wrapping_sub(ranks));
        let is_older = epoch != report.epoch || new > u32::MAX / 2;
        if is_older {
            self.seen = Some((report.epoch, total, sum));
        }
        if is_older || new < OBSERVED_MIN || size > SIZE_MAX {
            return;
        }
        self.seen = Some((report.epoch, total, sum));
        let mean = f64::from(gained) / f64::from(new);
        let ratio = mean / self.model(size).mean;
        self.ratio += WEIGHT * (ratio - self.ratio);
        self.ratio = self.ratio.clamp(*RATIO.start(), *RATIO.end());
    }

    /// Sets whether the first hop recovers its losses, as required of all hops, and whether answers
    /// to the sink come too late. If they do, blocks that request more are lost. Many blocks
    /// request more when a flow begins; when many do so a second time, some hop does not recover
    /// its losses in time, and hops are not trusted again for a while.
    pub(crate) fn set_mended(&mut self, is_mended: bool, is_late: bool, now: Nanos) {
        let asks = self.asking >= ASKING_MAX;
        if asks && !std::mem::replace(&mut self.asks, asks) {
            let again = self.asked_at.replace(now).is_some_and(|at| now < at + DOUBT_NANOS);
            self.doubted_until = if again && is_late { now + DOUBT_NANOS } else { 0 };
        }
        self.asks = asks;
        self.is_mended = is_mended && now >= self.doubted_until;
        self.is_late = is_late;
    }

    fn surety(&self, params: &FlowParams) -> Surety {
        Surety::first(params, !self.is_late || self.is_mended())
    }

    /// Whether plans assume that hops recover their losses.
    pub(crate) fn is_mended(&self) -> bool {
        self.is_mended && self.asking < ASKING_MAX
    }

    /// Notes that sending of a block begins.
    pub(crate) fn begin_block(&mut self) {
        self.asking -= ASKING_WEIGHT * self.asking;
    }

    /// Notes that the sink requests more of a block, when `next` is the next block. It is called
    /// whether the block is still held or not, but once per block, and in block order.
    pub(crate) fn note_wanted(&mut self, block: u16, next: u16) {
        let is_newer = self.wanted.is_none_or(|last| (block.wrapping_sub(last) as i16) > 0);
        let behind = next.wrapping_sub(block) as i16;
        if behind <= 0 {
            return;
        }
        if is_newer || self.wanted.is_some_and(|last| (next.wrapping_sub(last) as i16) <= 0) {
            self.wanted = Some(block);
            self.asking += ASKING_WEIGHT;
        }
    }

    /// Rank that a batch of `size` has at the sink. If hops recover their losses, it arrives whole;
    /// the histogram, taken when blocks decode, does not show that.
    pub(crate) fn rank(&self, size: usize) -> Rank {
        if self.is_mended() {
            return Rank { mean: size as f64, variance: 0.0 };
        }
        let Rank { mean, variance } = self.model(size);
        let mean = (mean * self.ratio).min(size as f64);
        // On a good path the rank is never far from the mean. On a bad one it varies more than the
        // model predicts, at most as if each degree of freedom were lost independently.
        let share = mean / size as f64;
        Rank { mean, variance: variance.max(size as f64 * share * (1.0 - share) / 2.0) }
    }

    /// Symbols that decode from the first `batches` of `size`.
    fn symbols(&self, params: &FlowParams, size: usize, batches: usize) -> f64 {
        decodable(params, self.surety(params), self.rank(size), batches)
    }

    /// Batches of `size` that a block initially gets to bring the sink `needed` degrees of freedom.
    fn batches(&self, params: &FlowParams, size: usize, needed: usize) -> usize {
        batches_for(params, self.surety(params), self.rank(size), needed)
    }

    /// Further batches of `size` for a block that received `got` degrees of freedom from `sent`
    /// batches, and requests `missing` more.
    pub(crate) fn further(
        &mut self,
        params: &FlowParams,
        size: usize,
        sent: usize,
        got: usize,
        missing: usize,
    ) -> usize {
        let Rank { mean, variance } = self.rank(size);
        let felt = (got as f64 + MODEL_WEIGHT * mean) / (sent as f64 + MODEL_WEIGHT);
        let mean = felt.clamp(WORSE_MAX * mean, mean);
        batches_for(params, Surety::ASKED, Rank { mean, variance }, missing)
    }

    /// Initial number of batches of a block of `symbols`.
    pub(crate) fn first(&self, params: &FlowParams, size: usize, symbols: usize) -> usize {
        let wanted = match params.redundancy {
            Redundancy::Auto => self.batches(params, size, symbols),
            // The small slack keeps 1.1 * 160 / 16 from becoming 12.
            Redundancy::Fixed(factor) => {
                (factor * symbols as f64 / size as f64 - 1e-9).ceil() as usize
            }
        };
        wanted.clamp(1, most(params, size, symbols))
    }

    /// Symbols of a full block, at most `max`: the number that makes best use of whole batches. A
    /// block of 256 may need one batch more than one of 255.
    pub(crate) fn full(&self, params: &FlowParams, size: usize, max: usize) -> usize {
        let batches = self.first(params, size, max);
        let fewer = batches - 1;
        let less = match params.redundancy {
            Redundancy::Auto => self.symbols(params, size, fewer),
            Redundancy::Fixed(factor) => (fewer * size) as f64 / factor + 1e-9,
        };
        let is_better = less >= 1.0 && less * batches as f64 > (max * fewer) as f64;
        if is_better { (less as usize).min(max) } else { max }
    }

    /// Batch size for a block of `symbols`: the smallest that needs no more batches than `size`
    /// does, if these are few. Sixteen packets for a single symbol would be too many.
    pub(crate) fn short(&self, params: &FlowParams, size: usize, symbols: usize) -> usize {
        let batches = self.first(params, size, symbols);
        if batches > FEW {
            return size;
        }
        let (mut low, mut high) = (1, size);
        while low < high {
            let middle = low.midpoint(high);
            if self.first(params, middle, symbols) <= batches {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        high
    }

    /// Number of interleaved batches, for blocks of `size`; at most `max`.
    pub(crate) fn interleave(&self, bats: &BatsParams, size: usize, max: usize) -> u8 {
        let max = max.clamp(1, usize::from(u8::MAX));
        let depth = match bats.interleave {
            Interleave::Fixed(depth) => usize::from(depth).clamp(1, max),
            // All batches of a block are available at once: interleaving adds no delay.
            Interleave::Auto => {
                let worst = self.path.hops().iter().map(|hop| hop.burst_mean).fold(1.0, f64::max);
                interleave_depth(worst, size, 0, u64::MAX, max)
            }
        };
        depth as u8
    }

    fn model(&self, size: usize) -> Rank {
        self.model.ranks[size]
    }
}

/// Maximum number of batches for `symbols` symbols, at least one.
pub(crate) fn most(params: &FlowParams, size: usize, symbols: usize) -> usize {
    let packets = (params.redundancy_max * symbols as f64).max(size as f64);
    ((packets / size as f64).ceil() as usize).min(BATCHES_MAX)
}

/// Symbols that decode from `batches` of this rank, with the given surety; may be negative.
fn decodable(params: &FlowParams, surety: Surety, rank: Rank, batches: usize) -> f64 {
    let generator_bits = match params.code {
        FlowCode::Bats(bats) => f64::from(bats.generator_bits.max(1)),
        _ => 8.0,
    };
    let (batches, mean) = (batches as f64, rank.mean.max(RANK_MIN));
    // With e spare rows, random elements of b bits have full rank except with probability 2^-(b*e).
    let extra = RANK_EXTRA + surety.bits / generator_bits;
    batches * mean - surety.deviations * (batches * rank.variance).sqrt() - extra
}

/// Batches of this rank needed to decode `needed` symbols.
fn batches_for(params: &FlowParams, surety: Surety, rank: Rank, needed: usize) -> usize {
    let mut batches = (needed as f64 / rank.mean.max(RANK_MIN)).ceil() as usize;
    while batches < BATCHES_MAX && decodable(params, surety, rank, batches) < needed as f64 {
        batches += 1;
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_of_a_worse_path_asks_for_more_batches() {
        let mut planner = BatchPlanner::new(ShardId { flow: 1, shard: 0 });
        for hop in 0..4 {
            let report = HopReport { hop, loss: 0.1, burst_mean: 1.0 };
            planner.hear(hop, report, 0);
        }
        let hops = HopList::new(planner.path.planned_with());
        planner.adopt(plan::Plan::Batches(plan::batch::plan(&Basis { size: 16, hops })));
        let model = planner.rank(16).mean;
        let mut counts = [0u32; 17];
        let mut buffer = [0u8; 128];
        for round in 1..=30 {
            counts[6] = 100 * round;
            let mut writer = recoded_wire::feedback::Writer::new(&mut buffer);
            assert!(writer.push_ranks(1, counts.iter().copied()));
            let length = writer.finish();
            for item in recoded_wire::feedback::items(&buffer[..length]) {
                if let recoded_wire::feedback::Item::Ranks(report) = item {
                    planner.observe(&report);
                }
            }
        }
        let measured = planner.rank(16).mean;
        assert!(model > 12.0 && (measured - 6.0).abs() < 0.1, "{model} became {measured}");
    }
}
