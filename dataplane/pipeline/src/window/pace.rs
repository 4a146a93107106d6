//! When a source of a window flow sends repair packets.
//!
//! Each source packet earns a share of a repair packet. A fixed redundancy gives the share.
//! Automatic redundancy takes the smallest share at which residual loss stays within the target, by
//! `recoded_code::theory::window`, over the path that the hops report; all hops are in series since
//! none recodes. When the flow pauses, repair packets follow until, by the same theory and the
//! packets sent, nothing is missing except with the target's probability.

use crate::egress::Egress;
use crate::io::Io;
use crate::params::{FlowParams, Nanos, Redundancy, ShardId, WindowParams};
use crate::plan::window::{Basis, Plan};
use crate::plan::{self, LOSS_MARGIN_RELATIVE, LOSS_UNKNOWN};
use crate::plan_schedule::PlanSchedule;
use crate::report::HopLoss;
use crate::source::path::Path;
use recoded_code::theory::LossModel;
use recoded_code::theory::window::{Deficit, WindowCode};
use recoded_wire::feedback::HopReport;
use recoded_wire::frames::Frames;

/// Keeps twenty times 0.05 from being less than one.
const SLACK: f64 = 1e-9;

/// If hops recover their losses, but later than the rule for streams allows, repair packets are
/// sent proactively for the whole path up to this share: on a path of many lossy hops, every link
/// would carry the redundancy of the whole path.
const A_PRIORI_MAX: f64 = 0.25;

/// Recovery of losses by hops.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Mending {
    /// Only repair packets recover losses.
    Nothing,
    /// Hops retransmit lost packets, soon enough.
    Soon,
    /// Hops retransmit, but their round trips are long.
    Late,
}

/// Repair packets of one flow.
#[derive(Debug)]
pub(crate) struct Pace {
    schedule: PlanSchedule,
    hops: Path,
    /// The path that the rate applies to.
    path: LossModel,
    /// Repair packets per source packet.
    rate: f64,
    /// Symbols that the sink may be missing.
    deficit: Deficit,
    /// Repair packets earned and not yet sent; negative if some were sent proactively.
    credit: f64,
    /// Repair packets still allowed by `redundancy_max`.
    allowance: f64,
    hops_do: Mending,
}

impl Pace {
    pub(crate) fn new(shard: ShardId, params: &FlowParams, code: &WindowParams) -> Self {
        let path = LossModel::independent(LOSS_UNKNOWN);
        let mut pace = Self {
            schedule: PlanSchedule::new(shard),
            hops: Path::new(),
            path,
            rate: 0.0,
            deficit: Deficit::new(&WindowCode { symbols: 1, redundant: 0.0, path }),
            credit: 0.0,
            allowance: 0.0,
            hops_do: Mending::Nothing,
        };
        pace.replan(params, code);
        pace
    }

    /// Updates what depends on parameters and losses directly, after either changed. The rate needs
    /// a new plan.
    pub(crate) fn replan(&mut self, params: &FlowParams, code: &WindowParams) {
        let rate_max = rate_max(params);
        self.rate = match params.redundancy {
            Redundancy::Fixed(factor) => (factor - 1.0).clamp(0.0, rate_max),
            // Until a plan is made: twice the repair packets that the losses require.
            Redundancy::Auto => {
                let loss = self.path.loss.min(0.9);
                (2.0 * loss / (1.0 - loss)).min(rate_max)
            }
        };
        self.deficit.replan(&code.theory(params.field, self.path));
        self.schedule.want();
    }

    /// Requests a plan without delay, since parameters changed.
    pub(crate) fn reset(&mut self, params: &FlowParams, code: &WindowParams) {
        self.replan(params, code);
        self.schedule.want_now();
    }

    /// Requests a plan if one is due.
    pub(crate) fn refresh(
        &mut self,
        params: &FlowParams,
        code: &WindowParams,
        io: &mut Io<'_, impl Frames, impl Egress>,
    ) {
        if !matches!(params.redundancy, Redundancy::Auto) {
            return;
        }
        let path = self.path;
        let basis = || {
            plan::Basis::Window(Basis {
                code: code.theory(params.field, path),
                target_loss: params.target_loss,
                rate_max: rate_max(params),
            })
        };
        if let Some(plan) = self.schedule.request(io, basis) {
            self.adopt(plan);
        }
    }

    /// When to call [`Pace::refresh`] again.
    pub(crate) fn due(&self, params: &FlowParams) -> Option<Nanos> {
        self.schedule.due().filter(|_| matches!(params.redundancy, Redundancy::Auto))
    }

    /// Adopts a requested plan.
    pub(crate) fn adopt(&mut self, plan: plan::Plan) {
        self.schedule.answered();
        if let plan::Plan::Window(Plan { rate }) = plan {
            self.rate = rate;
        }
    }

    /// Notes a hop report.
    pub(crate) fn hear(
        &mut self,
        params: &FlowParams,
        code: &WindowParams,
        (travelled, report): (u8, HopReport),
        now: Nanos,
    ) {
        self.hops.hear(travelled, report, now);
        let cautious = |hop: &HopLoss| LossModel {
            loss: (hop.loss * (1.0 + LOSS_MARGIN_RELATIVE)).min(0.95),
            burst_mean: hop.burst_mean,
        };
        let path = LossModel::in_series(self.hops.hops().iter().map(cautious));
        let loss =
            |path: LossModel| HopLoss { hop: 0, loss: path.loss, burst_mean: path.burst_mean };
        if loss(path).differs(&loss(self.path)) {
            self.path = path;
            self.replan(params, code);
        }
    }

    /// Losses that the hops have reported.
    pub(crate) fn hops(&self) -> &[HopLoss] {
        self.hops.hops()
    }

    /// Repair packets per source packet.
    pub(crate) fn rate(&self) -> f64 {
        match self.hops_do {
            Mending::Late if self.rate <= A_PRIORI_MAX => self.rate,
            Mending::Soon | Mending::Late => 0.0,
            Mending::Nothing => self.rate,
        }
    }

    /// Notes whether the hops recover their losses. When they start to, earlier losses are
    /// recovered as well; when they stop, their missing packets are unknown here.
    pub(crate) fn set(&mut self, hops_do: Mending) {
        self.hops_do = hops_do;
    }

    /// Whether hops recover their losses.
    pub(crate) fn is_mended(&self) -> bool {
        self.hops_do != Mending::Nothing
    }

    /// The path as one hop.
    pub(crate) fn path(&self) -> LossModel {
        self.path
    }

    /// Notes that a source packet was sent.
    pub(crate) fn earn(&mut self, params: &FlowParams, code: &WindowParams) {
        let rate_max = rate_max(params);
        self.credit += self.rate();
        if self.hops_do == Mending::Nothing {
            self.deficit.source();
        }
        self.allowance = (self.allowance + rate_max).min(rate_max * code.window_symbols as f64);
    }

    /// Whether a repair packet is due while source packets flow; the caller then sends it.
    pub(crate) fn spend(&mut self) -> bool {
        let is_due = self.credit >= 1.0 - SLACK;
        if is_due {
            self.credit -= 1.0;
            self.allowance -= 1.0;
            self.deficit.repair();
        }
        is_due
    }

    /// Whether one more repair packet is due although no source packet follows; the caller then
    /// sends it.
    pub(crate) fn spend_on_tail(&mut self, params: &FlowParams) -> bool {
        let (is_due, credit) = match params.redundancy {
            Redundancy::Auto if self.is_mended() => (false, 0.0),
            Redundancy::Fixed(_) => (self.credit > SLACK, self.credit - 1.0),
            Redundancy::Auto => {
                let can = self.allowance >= 1.0 - SLACK;
                (can && self.deficit.missing() > params.target_loss, 0.0)
            }
        };
        if is_due {
            self.credit = credit;
            self.allowance -= 1.0;
            self.deficit.repair();
        }
        is_due
    }
}

/// Maximum repair packets per source packet.
fn rate_max(params: &FlowParams) -> f64 {
    (params.redundancy_max - 1.0).max(0.0)
}
