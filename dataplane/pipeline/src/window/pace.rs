//! When a source of a window flow sends repair packets.
//!
//! Each source packet earns a share of a repair packet. A fixed redundancy says the share; automatic
//! redundancy takes the smallest one at which, by `recoded_code::theory::window`, no more than the
//! target is lost for good over the path that the hops report, all of them in series since none
//! recodes. When the flow pauses, repair packets follow until by the same theory, and what was sent,
//! nothing is missing, but for a chance of the target.

use crate::params::{FlowParams, Nanos, Redundancy, WindowParams};
use crate::path::{Path, moved};
use crate::redundancy::{LOSS_MARGIN_RELATIVE, LOSS_UNKNOWN};
use crate::report::HopLoss;
use recoded_code::theory::Hop;
use recoded_code::theory::window::{Deficit, WindowCode};
use recoded_wire::feedback::HopReport;
use recoded_wire::header::Header;

/// Keeps twenty times 0.05 from being less than one.
const SLACK: f64 = 1e-9;

/// Repair packets of one flow.
#[derive(Debug)]
pub(crate) struct Pace {
    hops: Path,
    /// The path that the rate is for.
    path: Hop,
    /// Repair packets per source packet.
    rate: f64,
    /// What the sink may be missing.
    deficit: Deficit,
    /// Earned and not yet sent; what was sent in advance is negative.
    credit: f64,
    /// What `redundancy_max` leaves.
    allowance: f64,
}

impl Pace {
    pub(crate) fn new(params: &FlowParams, code: &WindowParams) -> Self {
        let path = Hop::independent(LOSS_UNKNOWN);
        let mut pace = Self {
            hops: Path::new(),
            path,
            rate: 0.0,
            deficit: Deficit::new(&WindowCode { symbols: 1, redundant: 0.0, path }),
            credit: 0.0,
            allowance: 0.0,
        };
        pace.replan(params, code);
        pace
    }

    /// Plans anew: parameters or losses changed.
    pub(crate) fn replan(&mut self, params: &FlowParams, code: &WindowParams) {
        let code = code.theory(params.field, self.path);
        let rate_max = rate_max(params);
        self.rate = match params.redundancy {
            Redundancy::Fixed(factor) => (factor - 1.0).clamp(0.0, rate_max),
            Redundancy::Auto => code.rate(params.target_loss, rate_max),
        };
        self.deficit.replan(&code);
    }

    /// Notes the report of one hop.
    pub(crate) fn hear(
        &mut self,
        params: &FlowParams,
        code: &WindowParams,
        (header, report): (&Header, HopReport),
        now: Nanos,
    ) {
        self.hops.hear(header, report, now);
        let cautious = |hop: &HopLoss| Hop {
            loss: (hop.loss * (1.0 + LOSS_MARGIN_RELATIVE)).min(0.95),
            burst_mean: hop.burst_mean,
        };
        let path = Hop::in_series(self.hops.hops().iter().map(cautious));
        let loss = |path: Hop| HopLoss { hop: 0, loss: path.loss, burst_mean: path.burst_mean };
        if moved(&loss(path), &loss(self.path)) {
            self.path = path;
            self.replan(params, code);
        }
    }

    /// What the hops have reported.
    pub(crate) fn hops(&self) -> &[HopLoss] {
        self.hops.hops()
    }

    /// Repair packets per source packet.
    pub(crate) fn rate(&self) -> f64 {
        self.rate
    }

    /// A source packet was sent.
    pub(crate) fn earn(&mut self, params: &FlowParams, code: &WindowParams) {
        let rate_max = rate_max(params);
        self.credit += self.rate;
        self.deficit.source();
        self.allowance = (self.allowance + rate_max).min(rate_max * code.window_symbols as f64);
    }

    /// Whether a repair packet is due while source packets flow; it is to be sent then.
    pub(crate) fn spend(&mut self) -> bool {
        let is_due = self.credit >= 1.0 - SLACK;
        if is_due {
            self.credit -= 1.0;
            self.allowance -= 1.0;
            self.deficit.repair();
        }
        is_due
    }

    /// Whether one more repair packet is due although no source packet follows; it is to be sent then.
    pub(crate) fn spend_on_tail(&mut self, params: &FlowParams) -> bool {
        let (is_due, credit) = match params.redundancy {
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

/// Most repair packets per source packet.
fn rate_max(params: &FlowParams) -> f64 {
    (params.redundancy_max - 1.0).max(0.0)
}
