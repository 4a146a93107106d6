//! Number of combinations that a hop sends: `recoded_code::theory::stream` computes it, and how
//! many symbols each covers, from the loss and traffic of the hop.

use crate::config::params::Nanos;
use crate::config::report::{HopLoss, Planned};
use recoded_code::theory::LossModel;
use recoded_code::theory::stream::{Plan, StreamProfile, Traffic};

/// Planning interval.
const PLAN_NANOS: Nanos = 100_000_000;

/// Weight of an interval in the symbol rate.
const RATE_WEIGHT: f64 = 0.3;

/// After this long without a symbol, the estimate restarts.
const IDLE_NANOS: Nanos = 500_000_000;

/// Traffic above this multiple of its mean is expected to keep growing: a TCP start, which ends
/// when packets are late.
const GROWING: f64 = 1.5;

/// The last symbols before a pause of this length, and of this many usual intervals, get a
/// combination, too: no later one would protect them.
const PAUSE_NANOS: Nanos = 2_000_000;
const PAUSE_DISTANCES: f64 = 2.0;

/// Combinations that may be due at once.
const CREDIT_MAX: f64 = 2.0;

/// Longest wait for combinations in addition to a round trip: retransmissions sent before the last
/// combination arrives are often unnecessary, one in a hundred over 20 ms.
const SPAN_MAX_NANOS: f64 = 60e6;

/// Proactive redundancy of a hop.
#[derive(Debug)]
pub(crate) struct FecScheduler {
    pub(crate) profile: StreamProfile,
    /// Whether each of several next hops receives everything.
    pub(crate) has_copies: bool,
    /// Combinations per symbol of an open loop; `None` where reports measure the loss.
    open_loop: Option<f64>,
    plan: Plan,
    credit: f64,
    /// Symbols per second, and symbols since the last plan with the time that the link took.
    rate: f64,
    sent: u32,
    taken: Nanos,
    planned_at: Nanos,
    planned: Planned,
    /// When the gap since the last symbol counts as a pause; `None` once a combination was sent.
    pause_at: Option<Nanos>,
}

impl FecScheduler {
    pub(crate) fn new() -> Self {
        Self {
            profile: StreamProfile::Balanced,
            has_copies: false,
            open_loop: None,
            plan: Plan::NONE,
            credit: 0.0,
            rate: 0.0,
            sent: 0,
            taken: 0,
            planned_at: 0,
            planned: Planned::default(),
            pause_at: None,
        }
    }

    /// Combinations per symbol of an open loop.
    pub(crate) fn open_loop(&self) -> Option<f64> {
        self.open_loop
    }

    /// Sets the combinations per symbol of an open loop, or returns to measured losses.
    pub(crate) fn set_open_loop(&mut self, combinations: Option<f64>) {
        self.open_loop = combinations;
        self.plan = combinations.map_or(Plan::NONE, Plan::open_loop);
        self.credit = 0.0;
    }

    /// Most symbols per combination.
    pub(crate) fn symbols(&self) -> usize {
        self.plan.symbols
    }

    /// Time from a symbol to the last combination that covers it; 0 if that is too long to wait
    /// for.
    pub(crate) fn span(&self) -> Nanos {
        let nanos = self.symbols() as f64 * 1e9 / self.rate.max(1.0);
        if nanos < SPAN_MAX_NANOS { nanos as Nanos } else { 0 }
    }

    /// The plans so far.
    pub(crate) fn planned(&self) -> Planned {
        Planned { symbols_per_second: self.rate, ..self.planned }
    }

    /// Records a first transmission over a hop with this loss, which takes the link for `takes`.
    pub(crate) fn earn(&mut self, loss: HopLoss, round_trip: Nanos, takes: Nanos, now: Nanos) {
        self.sent += 1;
        self.taken += takes;
        let since = now.saturating_sub(self.planned_at);
        if since >= PLAN_NANOS {
            if since >= IDLE_NANOS {
                self.rate = 0.0;
            }
            let rate = f64::from(self.sent) * 1e9 / since as f64;
            let is_growing = rate > GROWING * self.rate;
            self.rate += RATE_WEIGHT * (rate - self.rate);
            let share = self.taken as f64 / since as f64;
            (self.planned_at, self.sent, self.taken) = (now, 0, 0);
            if self.open_loop.is_none() {
                let HopLoss { loss, burst_mean, .. } = loss;
                let loss = LossModel { loss, burst_mean };
                let traffic = Traffic { rate: self.rate, is_growing, share };
                self.plan = Plan::new(loss, traffic, round_trip as f64 * 1e-9, self.profile);
                if self.has_copies {
                    self.plan = self.plan.for_copies(loss, self.rate, self.profile);
                }
            }
        }
        self.planned.symbols += 1;
        self.planned.combinations += self.plan.rho;
        let most = self.open_loop.map_or(CREDIT_MAX, |combinations| combinations + 1.0);
        self.credit = (self.credit + self.plan.rho).min(most);
        let distance = (PAUSE_DISTANCES * 1e9 / self.rate.max(1.0)) as Nanos;
        let is_protected = match self.open_loop {
            // A combination before a pause is an advance on the next symbols.
            Some(_) => self.credit > 0.0,
            None => self.plan.rho > 0.0,
        };
        self.pause_at = is_protected.then_some(now + PAUSE_NANOS.max(distance));
    }

    /// When a combination is due.
    pub(crate) fn due_at(&self) -> Option<Nanos> {
        let is_earned = self.plan.rho > 0.0 && self.credit >= 1.0;
        if is_earned { Some(0) } else { self.pause_at }
    }

    /// Records a combination sent.
    pub(crate) fn spend(&mut self) {
        if self.open_loop.is_some() {
            self.credit -= 1.0;
        } else {
            // Before a pause, part of the combination was not planned.
            self.planned.combinations += (1.0 - self.credit).max(0.0);
            self.credit = (self.credit - 1.0).max(0.0);
        }
        self.pause_at = None;
    }
}
