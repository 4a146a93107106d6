//! How many combinations a hop has to send: `recoded_code::theory::stream` says how many and of how
//! many symbols, by what the hop loses and carries.

use crate::params::Nanos;
use crate::report::HopLoss;
use recoded_code::theory::LossModel;
use recoded_code::theory::stream::Plan;

/// How often it is planned.
const PLAN_NANOS: Nanos = 100_000_000;

/// Weight of a period in the rate of symbols.
const RATE_WEIGHT: f64 = 0.3;

/// Traffic that is so many times its mean of before is about to grow further: a start of TCP, which
/// ends where packets are late.
const GROWING: f64 = 1.5;

/// What a hop sends in advance.
#[derive(Debug)]
pub(crate) struct Share {
    plan: Plan,
    credit: f64,
    /// Symbols a second; and since the last plan.
    rate: f64,
    sent: u32,
    planned_at: Nanos,
}

impl Share {
    pub(crate) fn new() -> Self {
        Self { plan: Plan::NONE, credit: 0.0, rate: 0.0, sent: 0, planned_at: 0 }
    }

    /// Symbols that a combination takes, at most.
    pub(crate) fn symbols(&self) -> usize {
        self.plan.symbols
    }

    /// Notes a symbol that is sent for the first time, over a hop that loses so much.
    pub(crate) fn earn(&mut self, loss: HopLoss, round_trip: Nanos, now: Nanos) {
        self.sent += 1;
        let since = now.saturating_sub(self.planned_at);
        if since >= PLAN_NANOS {
            // After a pause it begins anew.
            let rate = f64::from(self.sent) * 1e9 / since as f64;
            let is_growing = rate > GROWING * self.rate;
            self.rate += RATE_WEIGHT * (rate - self.rate);
            (self.planned_at, self.sent) = (now, 0);
            let HopLoss { loss, burst_mean, .. } = loss;
            let (loss, traffic) = (LossModel { loss, burst_mean }, (self.rate, is_growing));
            self.plan = Plan::new(loss, traffic, round_trip as f64 * 1e-9);
        }
        self.credit = (self.credit + self.plan.rho).min(2.0);
    }

    /// Whether a combination is due.
    pub(crate) fn is_due(&self) -> bool {
        self.plan.rho > 0.0 && self.credit >= 1.0
    }

    /// Notes that one is sent.
    pub(crate) fn spend(&mut self) {
        self.credit -= 1.0;
    }
}
