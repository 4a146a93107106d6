//! Sliding windows without recoding: the number of repair packets that keep residual loss below a
//! target.
//!
//! The receiver's deficit is a queue: D is the number of missing source symbols less that of
//! independent equations over them. A lost source packet adds one; an arriving repair packet
//! removes one, unless it is redundant, with probability r^D: r is 1/q, or the share of zeros among
//! the coefficients if that is larger. Missing symbols become known when D returns to 0, so a
//! symbol is lost for good if that does not happen before it leaves the decoding window, which is
//! assumed to be twice the encoding window, as RFC 8681 appendix D advises:
//!
//! ```text
//!  D                  x lost: has until here, twice the window later
//!  2        __        |
//!  1    ___|  |___   _v|_____
//!  0 __|          |_|        |_____      D = 0: all that was missing is known
//! ```
//!
//! (Repair packets cover it during the first half only. In the second half they cover later losses,
//! which is as good: an equation spent on one symbol is not needed for another.) Losses follow the
//! Gilbert-Elliott model, as in the parent module, source and repair packets alike. Compared with
//! the codec itself (`tests/window.rs`) the expected loss is right within a factor of two or so,
//! and too high rather than too low: a symbol is assumed to have the longest wait for a repair
//! packet before it, and the deficit counts symbols that have left the window until they are
//! compensated.

use super::LossModel;
use super::chain::Channel;

/// Distinct deficits, including 0. Larger ones are hopeless.
const ENTRIES: usize = 128;

/// Rates are multiples of 1 / this, which is also the smallest rate.
const RATE_STEPS: usize = 64;

/// Symbols after which the deficit is in equilibrium, if it ever is.
const SETTLING_SYMBOLS: usize = 512;

/// Smaller probabilities are dropped.
const VANISHING: f64 = 1e-15;

/// A window code on a path.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct WindowCode {
    /// Symbols of the encoding window.
    pub symbols: usize,
    /// r: the probability that an equation over one missing symbol is redundant. 1 / q, or 1 -
    /// density if that is larger.
    pub redundant: f64,
    /// The path from end to end, see [`LossModel::in_series`].
    pub path: LossModel,
}

impl LossModel {
    /// Combines several hops into one, for packets that no node in between recodes: a loss on any
    /// hop is a loss, and a run of losses begins where one begins on any of them.
    #[must_use]
    pub fn in_series(hops: impl IntoIterator<Item = Self>) -> Self {
        // Probabilities that a packet passes all hops, and that two in a row do.
        let (mut one, mut two) = (1.0, 1.0);
        for hop in hops {
            let Channel { loss, good_to_bad, .. } = Channel::new(hop);
            one *= 1.0 - loss;
            two *= (1.0 - loss) * (1.0 - good_to_bad);
        }
        let begins = one - two;
        let burst_mean = if begins > 0.0 { (1.0 - one) / begins } else { 1.0 };
        Self { loss: 1.0 - one, burst_mean }
    }
}

impl WindowCode {
    /// The smallest number of repair packets per source packet, up to `rate_max`, at which at most
    /// a share of `target` of the source symbols is lost; `rate_max` if none is enough. Allocates
    /// nothing.
    #[must_use]
    pub fn rate(&self, target: f64, rate_max: f64) -> f64 {
        let rate = |steps: usize| steps as f64 / RATE_STEPS as f64;
        let (mut short, mut enough) = (0, (rate_max * RATE_STEPS as f64).ceil() as usize);
        if self.residual_loss(0.0) <= target {
            return 0.0;
        }
        while short + 1 < enough {
            let middle = short.midpoint(enough);
            if self.residual_loss(rate(middle)) <= target {
                enough = middle;
            } else {
                short = middle;
            }
        }
        rate(enough).min(rate_max)
    }

    /// Share of the source symbols that is lost for good at `rate` repair packets per source
    /// packet.
    #[must_use]
    pub fn residual_loss(&self, rate: f64) -> f64 {
        let mut queue = self.settled(rate);
        queue.keep_lost();
        queue.source();
        let mut credit = 0.0;
        for _ in 1..=2 * self.symbols {
            credit += rate;
            while credit >= 1.0 {
                credit -= 1.0;
                queue.repair();
                queue.take_complete();
            }
            if queue.mass() < VANISHING {
                break;
            }
            queue.source();
        }
        queue.mass()
    }

    /// The deficit in equilibrium, just after a repair packet.
    fn settled(&self, rate: f64) -> Deficit {
        let mut queue = Deficit::new(self);
        let mut credit = 0.0;
        let symbols = (2 * self.symbols).min(SETTLING_SYMBOLS);
        for symbol in 0.. {
            // Up to the first repair packet after that many symbols; without any there is no end.
            if symbol >= symbols && (credit < rate || symbol >= 2 * symbols) {
                break;
            }
            queue.source();
            credit += rate;
            while credit >= 1.0 {
                credit -= 1.0;
                queue.repair();
            }
        }
        queue
    }
}

/// A sender's knowledge of the deficit: its distribution, joint with the channel state for the next
/// packet, after the packets sent so far.
#[derive(Clone, Debug)]
pub struct Deficit {
    channel: Channel,
    good: [f64; ENTRIES],
    bad: [f64; ENTRIES],
    /// By deficit: probability that an equation lowers it.
    innovative: [f64; ENTRIES],
    /// Entries above are zero.
    high: usize,
}

impl Deficit {
    /// Nothing is missing yet.
    #[must_use]
    pub fn new(code: &WindowCode) -> Self {
        let (mut good, mut bad) = ([0.0; ENTRIES], [0.0; ENTRIES]);
        let channel = Channel::new(code.path);
        (good[0], bad[0]) = (1.0 - channel.loss, channel.loss);
        let mut deficit = Self { channel, good, bad, innovative: [0.0; ENTRIES], high: 0 };
        deficit.replan(code);
        deficit
    }

    /// Switches to another path or code for the following packets; missing symbols stay missing.
    pub fn replan(&mut self, code: &WindowCode) {
        self.channel = Channel::new(code.path);
        let mut nothing_new = 1.0;
        self.innovative = std::array::from_fn(|_| {
            let probability = 1.0 - nothing_new;
            nothing_new *= code.redundant;
            probability
        });
    }

    /// Accounts a sent source packet.
    pub fn source(&mut self) {
        if self.high + 1 < ENTRIES {
            self.high += 1;
        } else {
            // The largest deficit stands for all above.
            self.bad[self.high - 1] += self.bad[self.high];
        }
        self.bad.copy_within(..self.high, 1);
        self.bad[0] = 0.0;
        self.step();
    }

    /// Accounts a sent repair packet.
    pub fn repair(&mut self) {
        for deficit in 1..=self.high {
            let gained = self.good[deficit] * self.innovative[deficit];
            self.good[deficit] -= gained;
            self.good[deficit - 1] += gained;
        }
        self.step();
    }

    /// Probability that anything is missing.
    #[must_use]
    pub fn missing(&self) -> f64 {
        self.mass() - self.good[0] - self.bad[0]
    }

    /// Keeps only the cases that lose the next packet.
    pub(super) fn keep_lost(&mut self) {
        self.good.fill(0.0);
    }

    /// Removes and returns the probability that nothing is missing.
    pub(super) fn take_complete(&mut self) -> f64 {
        std::mem::take(&mut self.good[0]) + std::mem::take(&mut self.bad[0])
    }

    /// Reduces deficits above `most` to `most`. Returns their probability.
    pub(super) fn refuse(&mut self, most: usize) -> f64 {
        let mut refused = 0.0;
        while self.high > most {
            let (good, bad) = (self.good[self.high], self.bad[self.high]);
            (self.good[self.high], self.bad[self.high]) = (0.0, 0.0);
            self.high -= 1;
            self.good[self.high] += good;
            self.bad[self.high] += bad;
            refused += good + bad;
        }
        refused
    }

    /// Advances the channel by a packet.
    fn step(&mut self) {
        let Channel { good_to_bad, bad_to_good, .. } = self.channel;
        for (good, bad) in self.good.iter_mut().zip(&mut self.bad).take(self.high + 1) {
            let moved = *good * good_to_bad - *bad * bad_to_good;
            *good -= moved;
            *bad += moved;
        }
        while self.high > 0 && self.good[self.high] + self.bad[self.high] < VANISHING {
            (self.good[self.high], self.bad[self.high]) = (0.0, 0.0);
            self.high -= 1;
        }
    }

    /// The remaining mass of the distribution.
    pub(super) fn mass(&self) -> f64 {
        self.good[..=self.high].iter().sum::<f64>() + self.bad[..=self.high].iter().sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(symbols: usize, path: LossModel) -> WindowCode {
        WindowCode { symbols, redundant: 1.0 / 256.0, path }
    }

    #[test]
    fn hops_in_series_lose_what_any_of_them_loses() {
        let path = LossModel::in_series([LossModel::independent(0.1); 3]);
        assert!((path.loss - 0.271).abs() < 1e-12);
        // Independent losses stay independent.
        assert!((path.burst_mean - 1.0 / 0.729).abs() < 1e-9, "{path:?}");
        let lone = LossModel { loss: 0.1, burst_mean: 8.0 };
        let path = LossModel::in_series([lone, LossModel::independent(0.0)]);
        assert!((path.loss - 0.1).abs() < 1e-12 && (path.burst_mean - 8.0).abs() < 1e-9);
        assert_eq!(LossModel::in_series([]).loss, 0.0);
        assert_eq!(LossModel::in_series([LossModel::independent(1.0)]).loss, 1.0);
    }

    /// A lost symbol has its own repair packet and that of the next symbol, if the next one is not
    /// lost too: 0.1 * 0.1 * (0.9 * 0.1 + 0.1), and slightly more for earlier losses.
    #[test]
    fn a_window_of_one_with_a_repair_packet_each_is_as_by_hand() {
        let code = WindowCode { redundant: 0.0, ..code(1, LossModel::independent(0.1)) };
        assert!((code.residual_loss(0.0) - 0.1).abs() < 1e-12);
        let once = code.residual_loss(1.0);
        assert!((0.0019..0.0023).contains(&once), "{once}");
        assert_eq!(code.rate(once + 1e-9, 10.0), 1.0);
    }

    #[test]
    fn more_repair_or_a_longer_window_loses_less() {
        let path = LossModel { loss: 0.05, burst_mean: 3.0 };
        let rates = [0.1, 0.2, 0.4, 0.8].map(|rate| code(64, path).residual_loss(rate));
        assert!(rates.windows(2).all(|pair| pair[0] > pair[1]), "{rates:?}");
        let windows = [16, 32, 64, 128].map(|symbols| code(symbols, path).residual_loss(0.2));
        assert!(windows.windows(2).all(|pair| pair[0] > pair[1]), "{windows:?}");
    }

    #[test]
    fn rates_stay_within_their_cap_and_a_clean_path_has_none() {
        assert_eq!(code(64, LossModel::independent(0.0)).rate(1e-4, 3.0), 0.0);
        assert_eq!(code(16, LossModel::independent(1.0)).rate(1e-4, 2.0), 2.0);
        assert_eq!(code(16, LossModel::independent(0.2)).rate(1e-4, 0.0), 0.0);
        assert_eq!(code(16, LossModel::independent(0.5)).rate(1e-4, 0.3), 0.3);
    }

    #[test]
    fn rates_near_the_loss_itself_are_enough_for_long_windows() {
        let rate = code(256, LossModel::independent(0.1)).rate(1e-4, 3.0);
        let least = 0.1 / 0.9;
        assert!((least..2.0 * least).contains(&rate), "{rate}");
    }

    #[test]
    fn the_deficit_after_a_few_packets_is_as_by_hand() {
        let code = WindowCode { redundant: 0.0, ..code(8, LossModel::independent(0.1)) };
        let mut deficit = Deficit::new(&code);
        assert!(deficit.missing().abs() < 1e-12);
        deficit.source();
        assert!((deficit.missing() - 0.1).abs() < 1e-12);
        deficit.repair();
        assert!((deficit.missing() - 0.01).abs() < 1e-12);
        deficit.source();
        // The second is lost, or the first and its repair packet were.
        assert!((deficit.missing() - 0.109).abs() < 1e-12, "{}", deficit.missing());
        for _ in 0..10_000 {
            deficit.source();
        }
        assert!((deficit.missing() - 1.0).abs() < 1e-9 && deficit.high + 1 == ENTRIES);
        for _ in 0..200 {
            deficit.repair();
        }
        assert!(deficit.missing() < 1e-9);
    }
}
