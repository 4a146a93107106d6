//! How many packets a generation gets.

use crate::params::{FlowParams, HOPS_MAX, Nanos, Redundancy};
use crate::path::Path;
use crate::report::HopLoss;
use recoded_code::theory::{self, Hop};
use recoded_wire::feedback::{HopReport, RankReport};
use recoded_wire::header::{Header, SIZE_MAX};

/// Assumed of a path that has not reported yet: one hop this lossy, so that the first packets of a
/// flow over a bad path are not lost while its first report travels.
pub(crate) const LOSS_UNKNOWN: f64 = 0.1;

/// Estimates are planned with one standard error added: being short costs far more than a packet.
pub(crate) const LOSS_MARGIN_RELATIVE: f64 = 0.05;

/// What a generation that must be repaired is worth in packets: the repair itself, in proportion to its
/// size, and the round trip by which it delays everything behind it. At four hops of 10 % this leaves
/// about one generation of 16 in a hundred to repair, and four single packets in a thousand.
const REPAIR_COST_PER_SYMBOL: f64 = 3.0;
const REPAIR_COST_PACKETS: f64 = 48.0;

/// Generations after which a correction is looked at again.
const CORRECTION_GENERATIONS: u32 = 2000;

/// Closes the loop: what the sink's rank histogram says beyond what the hops' losses explain.
///
/// The plan rests on a model of each link. Where links are worse than their model (bursts across
/// generations, a queue that overflows), generations close short more often than planned, and each
/// further packet per generation is tried in turn; it is taken back when it is no longer needed. At
/// most a quarter of the generation is added, so that losses by congestion are never answered with
/// ever more traffic (RFC 9265).
#[derive(Debug, Default)]
struct Correction {
    epoch: Option<u8>,
    seen: (u32, u32),
    generations: u32,
    short: u32,
    extra: u16,
}

impl Correction {
    /// Takes a histogram in, beside the share expected to close short; whether `extra` changed.
    fn observe(&mut self, report: &RankReport<'_>, expected: f64) -> bool {
        let size = report.size();
        let total = report.counts().fold(0u32, u32::wrapping_add);
        let full = report.counts().nth(size).unwrap_or(0);
        let seen = (total, total.wrapping_sub(full));
        let known = self.epoch == Some(report.epoch);
        let (new, short) = (seen.0.wrapping_sub(self.seen.0), seen.1.wrapping_sub(self.seen.1));
        self.epoch = Some(report.epoch);
        self.seen = seen;
        // A first report, an older one overtaken on the way, or a sink that restarted.
        if !known || new > u32::MAX / 2 || short > new {
            return false;
        }
        self.generations += new;
        self.short += short;
        let expected = expected * f64::from(CORRECTION_GENERATIONS);
        let before = self.extra;
        if f64::from(self.short) > (2.0 * expected).max(2.0) {
            self.extra = (self.extra + 1).min(size.div_ceil(4) as u16);
        } else if self.generations < CORRECTION_GENERATIONS {
            return false;
        } else if f64::from(self.short) <= expected {
            self.extra = self.extra.saturating_sub(1);
        }
        (self.generations, self.short) = (0, 0);
        self.extra != before
    }
}

/// Plans by generation size, computed when first needed and kept until something changes.
#[derive(Debug)]
pub(crate) struct Planner {
    plans: Vec<u16>,
    path: Path,
    correction: Correction,
    /// Share of full generations that the plan expects to close short.
    expected_short: f64,
}

impl Planner {
    pub(crate) fn new() -> Planner {
        Planner {
            plans: vec![0; SIZE_MAX + 1],
            path: Path::new(),
            correction: Correction::default(),
            expected_short: 0.0,
        }
    }

    /// Forgets all plans: parameters changed.
    pub(crate) fn reset(&mut self) {
        self.plans.fill(0);
    }

    /// What the hops have reported.
    pub(crate) fn hops(&self) -> &[HopLoss] {
        self.path.hops()
    }

    /// Notes the report of one hop.
    pub(crate) fn hear(&mut self, header: &Header, report: HopReport, now: Nanos) {
        if self.path.hear(header, report, now) {
            self.reset();
        }
    }

    /// Notes the rank histogram of the sink.
    pub(crate) fn observe(&mut self, report: &RankReport<'_>) {
        if self.correction.observe(report, self.expected_short) {
            self.reset();
        }
    }

    /// Packets for a generation of `size` symbols.
    pub(crate) fn packets(&mut self, params: &FlowParams, size: usize) -> u16 {
        if self.plans[size] == 0 {
            self.plans[size] = self.plan(params, size);
        }
        self.plans[size]
    }

    /// Packets for a generation of `size` symbols if that is already known, else 0.
    pub(crate) fn known(&self, size: usize) -> u16 {
        self.plans[size]
    }

    fn plan(&mut self, params: &FlowParams, size: usize) -> u16 {
        let most = ((params.redundancy_max * size as f64) as usize).clamp(size, 0xFFFF);
        let packets = match params.redundancy {
            // The small slack keeps 1.1 * 10 from becoming 12.
            Redundancy::Fixed(factor) => (factor * size as f64 - 1e-9).ceil() as usize,
            Redundancy::Auto => {
                let (packets, short) = self.plan_auto(params, size, most);
                if size == params.generation_size {
                    self.expected_short = short;
                }
                packets + usize::from(self.correction.extra)
            }
        };
        packets.clamp(size, most) as u16
    }

    /// Automatic plan, and the share of generations it expects to close short.
    fn plan_auto(&self, params: &FlowParams, size: usize, most: usize) -> (usize, f64) {
        let mut hops = [Hop { loss: LOSS_UNKNOWN, burst_mean: 1.0 }; HOPS_MAX];
        for (hop, heard) in hops.iter_mut().zip(self.path.planned_with()) {
            let loss = (heard.loss * (1.0 + LOSS_MARGIN_RELATIVE)).min(0.95);
            *hop = Hop { loss, burst_mean: heard.burst_mean.max(1.0) };
        }
        let hops = &hops[..self.path.planned_with().len().max(1)];
        let (field, target) = (params.field, params.target_loss);
        if !params.repair {
            return (theory::plan(size, field, hops, target, most), target);
        }
        let cost = REPAIR_COST_PER_SYMBOL * size as f64 + REPAIR_COST_PACKETS;
        theory::plan_with_repair(size, field, hops, cost, most)
    }

    /// Chance that a packet crosses all hops.
    pub(crate) fn through(&self) -> f64 {
        if self.path.hops().is_empty() {
            return 1.0 - LOSS_UNKNOWN;
        }
        self.path.hops().iter().map(|hop| 1.0 - hop.loss).product()
    }
}
