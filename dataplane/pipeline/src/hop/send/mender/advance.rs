//! Number of proactive packets of a hop where waiting for reports takes too long.

use crate::config::report::HopLoss;

/// Share of generations that may arrive incomplete on far hops.
const FAR_TARGET: f64 = 1e-4;

/// Largest loss planned for: beyond it, the unit is requested end to end.
pub(super) const LOSS_MAX: f64 = 0.5;

/// Margin of a share, in standard deviations of the number of packets that arrive.
const DEVIATIONS: f64 = 2.6;

/// Packets beyond its symbols that let all but a few units in a thousand arrive complete: n packets
/// yield n (1 - e) arrivals, with a variance of n e (1 - e) (2 B - 1) for bursts of B.
pub(super) fn ahead(HopLoss { loss, burst_mean, .. }: HopLoss, symbols: usize) -> f64 {
    let loss = loss.clamp(0.0, LOSS_MAX);
    let spread = DEVIATIONS * (loss * (2.0 * burst_mean.max(1.0) - 1.0)).sqrt();
    // With y^2 = n (1 - e): y^2 - spread y = symbols
    let root = f64::midpoint(spread, (spread * spread + 4.0 * symbols as f64).sqrt());
    root * root / (1.0 - loss) - symbols as f64
}

/// Fewest packets beyond its symbols that limit the share of incomplete units to [`FAR_TARGET`].
/// Loss runs form a Poisson process with geometric lengths, so the number of losses has a
/// Polya-Aeppli distribution.
pub(super) fn sure(loss: HopLoss, symbols: usize) -> u16 {
    let runs = loss.loss.clamp(0.0, LOSS_MAX) / loss.burst_mean.max(1.0);
    let further = 1.0 - 1.0 / loss.burst_mean.max(1.0);
    let most = 4 * symbols.max(1);
    let exceeds = |share: usize| {
        // The probability of k losses follows from those of k - 1 and k - 2.
        let mean = runs * (symbols + share) as f64;
        let (mut before, mut chance) = (0.0, (-mean).exp());
        let mut within = chance;
        for lost in 1..=share {
            let k = lost as f64;
            let next = (mean * (1.0 - further) + 2.0 * further * (k - 1.0)) * chance
                - further * further * (k - 2.0) * before;
            (before, chance) = (chance, (next / k).max(0.0));
            within += chance;
        }
        within < 1.0 - FAR_TARGET
    };
    let least = ahead(loss, symbols) as usize;
    (least..most).find(|share| !exceeds(*share)).unwrap_or(most) as u16
}
