//! Number of packets that a generation gets.

use crate::config::params::{FlowParams, Nanos, Redundancy, ShardId};
use crate::config::report::HopLoss;
use crate::env::egress::Egress;
use crate::env::io::Io;
use crate::env::plan_schedule::PlanSchedule;
use crate::plan::generation::{Basis, GenerationPlan, most};
use crate::plan::{self, HopList, LOSS_UNKNOWN};
use crate::unit::source::path::Path;
use recoded_wire::coded::SIZE_MAX;
use recoded_wire::feedback::{HopReport, RankReport};
use recoded_wire::frames::Frames;

/// Generations after which a correction is reviewed.
const CORRECTION_GENERATIONS: u32 = 2000;

/// Closes the loop: corrects for losses in the sink's rank histogram that the hops' losses do not
/// explain.
///
/// The plan rests on a model of each link. If links are worse than their model (bursts across
/// generations, a queue that overflows), generations close short more often than planned. Then each
/// further packet per generation is tried in turn; it is taken back when it is no longer needed. At
/// most a quarter of the generation is added, so that congestion losses are never answered with
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
    /// Processes a histogram, given the share expected to close short.
    fn observe(&mut self, report: &RankReport<'_>, expected: f64) {
        let size = report.size();
        let total = report.counts().fold(0u32, u32::wrapping_add);
        let full = report.counts().nth(size).unwrap_or(0);
        let seen = (total, total.wrapping_sub(full));
        let known = self.epoch == Some(report.epoch);
        let (new, short) = (seen.0.wrapping_sub(self.seen.0), seen.1.wrapping_sub(self.seen.1));
        self.epoch = Some(report.epoch);
        self.seen = seen;
        // A first report, one that a newer report overtook, or a sink that restarted.
        if !known || new > u32::MAX / 2 || short > new {
            return;
        }
        self.generations += new;
        self.short += short;
        let expected = expected * f64::from(CORRECTION_GENERATIONS);
        if f64::from(self.short) > (2.0 * expected).max(2.0) {
            self.extra = (self.extra + 1).min(size.div_ceil(4) as u16);
        } else if self.generations < CORRECTION_GENERATIONS {
            return;
        } else if f64::from(self.short) <= expected {
            self.extra = self.extra.saturating_sub(1);
        }
        (self.generations, self.short) = (0, 0);
    }
}

/// Plans of one RLNC source.
#[derive(Debug)]
pub(crate) struct Planner {
    schedule: PlanSchedule,
    plan: GenerationPlan,
    path: Path,
    correction: Correction,
}

impl Planner {
    pub(crate) fn new(shard: ShardId) -> Planner {
        Planner {
            schedule: PlanSchedule::new(shard),
            plan: GenerationPlan { packets: [0; SIZE_MAX + 1], full: 1, expected_short: 0.0 },
            path: Path::new(),
            correction: Correction::default(),
        }
    }

    /// Discards all plans: parameters changed.
    pub(crate) fn reset(&mut self) {
        self.plan.packets.fill(0);
        self.schedule.want_now();
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

    /// Notes the rank histogram of the sink. With sparse traffic it counts generations that were
    /// short from the start, which have plans of their own, and carries no information on full
    /// ones.
    pub(crate) fn observe(&mut self, report: &RankReport<'_>) {
        if report.size() == self.plan.full {
            self.correction.observe(report, self.plan.expected_short);
        }
    }

    /// Requests a new plan if one is due.
    pub(crate) fn refresh(
        &mut self,
        params: &FlowParams,
        io: &mut Io<'_, impl Frames, impl Egress>,
    ) {
        if !matches!(params.redundancy, Redundancy::Auto) {
            return;
        }
        let path = &self.path;
        let basis = || {
            plan::Basis::Generations(Basis {
                generation_size: params.generation_size,
                field: params.field,
                target_loss: params.target_loss,
                redundancy_max: params.redundancy_max,
                repair: params.repair,
                hops: HopList::new(path.planned_with()),
            })
        };
        if let Some(plan) = self.schedule.request(io, basis) {
            self.adopt(plan);
        }
    }

    /// When to call [`Planner::refresh`] again.
    pub(crate) fn due(&self, params: &FlowParams) -> Option<Nanos> {
        self.schedule.due().filter(|_| matches!(params.redundancy, Redundancy::Auto))
    }

    /// Adopts a requested plan.
    pub(crate) fn adopt(&mut self, plan: plan::Plan) {
        self.schedule.answered();
        if let plan::Plan::Generations(plan) = plan {
            self.plan = plan;
        }
    }

    /// Packets for a generation of `size` symbols.
    pub(crate) fn packets(&self, params: &FlowParams, size: usize) -> u16 {
        let planned = usize::from(self.plan.packets[size]);
        let packets = match params.redundancy {
            // The small slack keeps 1.1 * 10 from becoming 12.
            Redundancy::Fixed(factor) => (factor * size as f64 - 1e-9).ceil() as usize,
            Redundancy::Auto if planned == 0 => size + size.div_ceil(2) + 2,
            Redundancy::Auto => {
                planned + usize::from(self.correction.extra) * size / self.plan.full
            }
        };
        packets.clamp(size, most(params.redundancy_max, size)) as u16
    }

    /// Probability that a packet crosses all hops.
    pub(crate) fn through(&self) -> f64 {
        if self.path.hops().is_empty() {
            return 1.0 - LOSS_UNKNOWN;
        }
        self.path.hops().iter().map(|hop| 1.0 - hop.loss).product()
    }
}
