//! How many combinations a hop sends before anything is known to be lost, and of how many symbols.
//!
//! What a hop loses it can send again a round trip later. Where that is soon enough, it does that
//! alone; where it is not, combinations of the newest symbols make losses good in advance. Their
//! share is a little above what the losses themselves take: with `x` above, the losses that are not
//! made good yet are a walk with drift `x`, whose 99 % quantile is
//!
//! ```text
//!  T = (1.4 + 0.45 h) V ln(100) / (2 x^2 lambda)      V = e (1 - e) (2 B - 1) (1 + rho)
//! ```
//!
//! for `h` hops that lose `e` in bursts of `B`, `lambda` symbols a second and `rho` combinations a
//! symbol: measured by simulation, within a fifth.

use crate::params::Nanos;
use crate::report::HopLoss;

/// Hops that a path is taken to have.
const HOPS: u32 = 4;

/// Fewer symbols a second are of people who talk or type.
const SPARSE: f64 = 1500.0;

/// What losses may add to the time of the way: where traffic is sparse or grows, and elsewhere
/// beside two round trips.
const SPARSE_SECONDS: f64 = 0.015;
const BULK_SECONDS: f64 = 0.010;

/// Most that is planned with.
const BUDGET_MAX_SECONDS: f64 = 0.04;

/// Traffic that is so many times its mean of before is about to grow further: a start of TCP, which
/// ends where packets are late. Then it is protected as if it were sparse.
const GROWING: f64 = 1.5;

/// What lies above the losses, where traffic is not sparse.
const ABOVE: (f64, f64) = (0.03, 0.06);

/// Most combinations for a symbol.
const SHARE_MAX: f64 = 1.0;

/// Symbols of a combination.
const SYMBOLS: (f64, f64) = (8.0, 512.0);

/// What a report takes beside the round trip, and a keepalive behind the last of sparse packets.
const REPORT_SECONDS: f64 = 0.001;

/// Share of repairs that may take longer than planned with.
const LATE: f64 = 0.02;

/// ln(100): what one in a hundred exceeds.
const QUANTILE: f64 = 4.605;

/// How often it is planned.
const PLAN_NANOS: Nanos = 100_000_000;

/// Weight of a period in the rate of symbols.
const RATE_WEIGHT: f64 = 0.3;

/// What a hop sends in advance.
#[derive(Debug)]
pub(crate) struct Share {
    /// Combinations for a symbol, and symbols of a combination.
    rho: f64,
    symbols: usize,
    credit: f64,
    /// Symbols a second; and since the last plan.
    rate: f64,
    sent: u32,
    planned_at: Nanos,
}

impl Share {
    pub(crate) fn new() -> Self {
        Self { rho: 0.0, symbols: 8, credit: 0.0, rate: 0.0, sent: 0, planned_at: 0 }
    }

    /// Symbols that a combination takes, at most.
    pub(crate) fn symbols(&self) -> usize {
        self.symbols
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
            let of = (self.rate, is_growing || self.rate < SPARSE);
            (self.rho, self.symbols) = plan(loss, of, round_trip as f64 * 1e-9);
        }
        self.credit = (self.credit + self.rho).min(2.0);
    }

    /// Whether a combination is due.
    pub(crate) fn is_due(&self) -> bool {
        self.rho > 0.0 && self.credit >= 1.0
    }

    /// Notes that one is sent.
    pub(crate) fn spend(&mut self) {
        self.credit -= 1.0;
    }
}

/// Combinations for a symbol, and symbols of a combination. `is_urgent` where losses are to add
/// little to the time of the way, whatever it takes.
fn plan(
    HopLoss { loss, burst_mean, .. }: HopLoss,
    (rate, is_urgent): (f64, bool),
    round_trip: f64,
) -> (f64, usize) {
    if loss < 1e-4 || rate <= 0.0 {
        return (0.0, SYMBOLS.0 as usize);
    }
    let loss = loss.min(0.5);
    // Losses in a row that come by themselves are none in bursts.
    let burst = (burst_mean * (1.0 - loss)).max(1.0);
    let soon = if is_urgent { SPARSE_SECONDS } else { 2.0 * round_trip + BULK_SECONDS };
    let repaired = repaired(loss, rate, round_trip);
    if repaired <= soon {
        return (0.0, SYMBOLS.0 as usize);
    }
    let variance = |rho: f64| loss * (1.0 - loss) * (2.0 * burst - 1.0) * (1.0 + rho);
    let path = 1.4 + 0.45 * f64::from(HOPS);
    let seconds = |x: f64, rho: f64| path * variance(rho) * QUANTILE / (2.0 * x * x * rate);
    let within =
        |seconds: f64, rho: f64| (path * variance(rho) * QUANTILE / (2.0 * seconds * rate)).sqrt();
    let share = |x: f64| ((loss + x) / (1.0 - loss)).min(SHARE_MAX);
    let budget = soon.min(BUDGET_MAX_SECONDS);
    // The share is on both sides.
    let mut x = within(budget, loss / (1.0 - loss));
    x = within(budget, share(x));
    if !is_urgent {
        x = (x * 1.5f64.sqrt()).clamp(ABOVE.0, ABOVE.1);
    }
    let rho = share(x);
    if !is_urgent && seconds(x, rho) >= repaired {
        return (0.0, SYMBOLS.0 as usize);
    }
    let above = (rho * (1.0 - loss) - loss).max(1e-3);
    let outlast = (100.0 * rate * round_trip.max(1e-3)).max(2.0).ln();
    let symbols = variance(rho) * outlast / (2.0 * above * above);
    (rho, symbols.clamp(SYMBOLS.0, SYMBOLS.1) as usize)
}

/// Seconds that sending again takes over all hops, but for a few.
fn repaired(loss: f64, rate: f64, round_trip: f64) -> f64 {
    let turn = round_trip + REPORT_SECONDS;
    let at_once = (rate * turn).max(1.0);
    // Losses of one symbol on its way: negative binomial.
    let hops = f64::from(HOPS);
    let mut chance = (1.0 - loss).powi(HOPS as i32);
    let mut beyond = 1.0;
    let mut turns = 0.0;
    while at_once * beyond > LATE && turns < 20.0 {
        beyond -= chance;
        turns += 1.0;
        chance *= loss * (hops + turns - 1.0) / turns;
    }
    turns * turn
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(loss: f64, burst: f64, rate: f64, round_trip: f64) -> (f64, usize) {
        let burst_mean = if burst > 1.0 { burst } else { 1.0 / (1.0 - loss) };
        plan(HopLoss { hop: 0, loss, burst_mean }, (rate, rate < SPARSE), round_trip)
    }

    #[test]
    fn short_hops_send_again_and_nothing_in_advance() {
        for (loss, rate) in [(0.1, 25_000.0), (0.2, 10_000.0), (0.1, 250.0), (0.0, 25_000.0)] {
            assert_eq!(planned(loss, 1.0, rate, 0.000_6).0, 0.0, "{loss} of {rate}");
        }
    }

    #[test]
    fn long_hops_send_a_little_more_than_their_losses_take() {
        for (loss, round_trip) in [(0.1, 0.02), (0.1, 0.1), (0.03, 0.1), (0.02, 0.54)] {
            let (rho, symbols) = planned(loss, 1.0, 25_000.0, round_trip);
            let above = rho * (1.0 - loss) - loss;
            assert!((0.029..0.061).contains(&above), "{above} at {loss}, {round_trip} s");
            assert!((32..=512).contains(&symbols), "{symbols}");
        }
    }

    #[test]
    fn bursts_on_short_hops_are_left_to_sending_again() {
        assert_eq!(planned(0.1, 8.0, 25_000.0, 0.011).0, 0.0);
    }

    #[test]
    fn sparse_packets_over_long_hops_are_protected_by_many() {
        let (probe, _) = planned(0.1, 1.0, 250.0, 0.02);
        assert!((0.5..1.0).contains(&probe), "{probe}");
        let (voice, symbols) = planned(0.1, 1.0, 50.0, 0.02);
        assert_eq!((voice, symbols), (SHARE_MAX, 8));
    }
}
