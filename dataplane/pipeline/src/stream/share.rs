//! How many combinations a hop has to send: `recoded_code::theory::stream` says how many and of how
//! many symbols, by what the hop loses and carries.

use crate::params::Nanos;
use crate::report::{HopLoss, Planned};
use recoded_code::theory::LossModel;
use recoded_code::theory::stream::{Plan, StreamProfile};

/// How often it is planned.
const PLAN_NANOS: Nanos = 100_000_000;

/// Weight of a period in the rate of symbols.
const RATE_WEIGHT: f64 = 0.3;

/// After so long without a symbol it begins anew.
const IDLE_NANOS: Nanos = 500_000_000;

/// Traffic that is so many times its mean of before is about to grow further: a start of TCP, which
/// ends where packets are late.
const GROWING: f64 = 1.5;

/// The last symbols before a pause of so long, and of so many of the usual distances, get a
/// combination, too: none that is sent for later ones protects them.
const PAUSE_NANOS: Nanos = 2_000_000;
const PAUSE_DISTANCES: f64 = 2.0;

/// Longest that combinations are waited for beside a round trip: what is sent again before its last
/// combination came is often sent in vain, one in a hundred over 20 ms.
const SPAN_MAX_NANOS: f64 = 60e6;

/// What a hop sends in advance.
#[derive(Debug)]
pub(crate) struct Share {
    pub(crate) profile: StreamProfile,
    /// Whether each of several next hops gets everything.
    pub(crate) has_copies: bool,
    plan: Plan,
    credit: f64,
    /// Symbols a second; and since the last plan.
    rate: f64,
    sent: u32,
    planned_at: Nanos,
    planned: Planned,
    /// Since when there is a pause, if there is one before the next combination.
    pause_at: Option<Nanos>,
}

impl Share {
    pub(crate) fn new() -> Self {
        Self {
            profile: StreamProfile::Balanced,
            has_copies: false,
            plan: Plan::NONE,
            credit: 0.0,
            rate: 0.0,
            sent: 0,
            planned_at: 0,
            planned: Planned::default(),
            pause_at: None,
        }
    }

    /// Symbols that a combination takes, at most.
    pub(crate) fn symbols(&self) -> usize {
        self.plan.symbols
    }

    /// How long after a symbol the last combination leaves that has it; 0 where that is too long to
    /// be waited for.
    pub(crate) fn span(&self) -> Nanos {
        let nanos = self.symbols() as f64 * 1e9 / self.rate.max(1.0);
        if nanos < SPAN_MAX_NANOS { nanos as Nanos } else { 0 }
    }

    /// What was planned so far.
    pub(crate) fn planned(&self) -> Planned {
        Planned { symbols_per_second: self.rate, ..self.planned }
    }

    /// Notes a symbol that is sent for the first time, over a hop that loses so much.
    pub(crate) fn earn(&mut self, loss: HopLoss, round_trip: Nanos, now: Nanos) {
        self.sent += 1;
        let since = now.saturating_sub(self.planned_at);
        if since >= PLAN_NANOS {
            if since >= IDLE_NANOS {
                self.rate = 0.0;
            }
            let rate = f64::from(self.sent) * 1e9 / since as f64;
            let is_growing = rate > GROWING * self.rate;
            self.rate += RATE_WEIGHT * (rate - self.rate);
            (self.planned_at, self.sent) = (now, 0);
            let HopLoss { loss, burst_mean, .. } = loss;
            let (loss, traffic) = (LossModel { loss, burst_mean }, (self.rate, is_growing));
            self.plan = Plan::new(loss, traffic, round_trip as f64 * 1e-9, self.profile);
            if self.has_copies {
                self.plan = self.plan.for_copies(loss, self.rate, self.profile);
            }
        }
        self.planned.symbols += 1;
        self.planned.combinations += self.plan.rho;
        self.credit = (self.credit + self.plan.rho).min(2.0);
        let distance = (PAUSE_DISTANCES * 1e9 / self.rate.max(1.0)) as Nanos;
        self.pause_at = (self.plan.rho > 0.0).then_some(now + PAUSE_NANOS.max(distance));
    }

    /// When a combination is due.
    pub(crate) fn due_at(&self) -> Option<Nanos> {
        let is_earned = self.plan.rho > 0.0 && self.credit >= 1.0;
        if is_earned { Some(0) } else { self.pause_at }
    }

    /// Notes that one is sent.
    pub(crate) fn spend(&mut self) {
        // Of one before a pause, that part was not.
        self.planned.combinations += (1.0 - self.credit).max(0.0);
        self.credit = (self.credit - 1.0).max(0.0);
        self.pause_at = None;
    }
}
