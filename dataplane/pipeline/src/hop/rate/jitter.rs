//! Jitter: delay that varies without any queue, as radio links schedule and merge packets.
//!
//! ```text
//!  sample:      arrivals took longer, shorter, longer than their packets did to be sent
//!               -> swings        -> packets held back arrive at once: no faster than sent
//!  round trip:  minimum delay turns up, down, up
//!               -> turns         -> the delay that stays is the minimum of more round trips
//! ```
//!
//! A queue stays until it is drained; jitter returns to the base delay now and then. So the queue
//! is a minimum over a time, as the standing delay of Copa (NSDI 2018, 2.2), here over as many
//! round trips as the link needs. And a delivery rate is at most the rate of sending, as in BBR,
//! but only where there is jitter: what arrives from a queue at once shows the rate of the link.

use crate::config::params::Nanos;
use crate::hop::rate::sample::Sample;

/// Mean swing above which packets are held back. Measured in virtual time over 30 Mbit/s, 25 ms and
/// jitter of 0 to 10 ms: at 2 ms the queue grows to 200 ms; at 0.3 ms the queue of a link that has
/// become slower is taken for jitter.
const SWING_NANOS: f64 = 1e6;

/// Weight of a sample in the mean swing, and part of a swing that remains after a sample: a queue
/// that grows for many samples swings little.
const SWING_WEIGHT: f64 = 0.03;
const SWING_LEFT: f64 = 0.8;

/// A longer sample is a mean over the jitter.
const HELD_NANOS_MAX: Nanos = 100_000_000;

/// A sample that loses more shows a queue that overflows.
const HELD_LOSS_MAX: f64 = 0.8;

/// Most round trips whose minimum counts.
const ROUNDS_MAX: usize = 12;

/// Weight of a round trip in the mean turn, and the part of the target that adds a round trip: the
/// mean turn divided by it is the number of further round trips.
const TURN_WEIGHT: f64 = 1.0 / 16.0;
const TURN_PART: f64 = 1.0 / 4.0;

/// How the delay of a link varies; all in nanoseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Jitter {
    /// The present swing, the previous one, and the mean of the smaller of both.
    swing: f64,
    last_swing: f64,
    mean_swing: f64,
    /// The minimum delays of the newest round trips, and their number.
    minima: [f64; ROUNDS_MAX],
    count: usize,
    /// The newest change, and the mean turn.
    change: f64,
    mean_turn: f64,
    /// Round trips whose minimum counts.
    rounds: usize,
}

impl Jitter {
    /// Notes a sample; returns whether the link held its packets back.
    pub(super) fn holds_back(&mut self, sample: &Sample) -> bool {
        let change = sample.nanos as f64 - sample.took as f64;
        self.last_swing *= SWING_LEFT;
        self.swing *= SWING_LEFT;
        if change * self.swing < 0.0 {
            self.last_swing = std::mem::replace(&mut self.swing, change).abs();
        } else {
            self.swing += change;
        }
        let lesser = self.swing.abs().min(self.last_swing);
        self.mean_swing += SWING_WEIGHT * (lesser - self.mean_swing);
        let varies = self.mean_swing > SWING_NANOS || self.rounds > 1;
        varies && sample.nanos < HELD_NANOS_MAX && sample.loss() < HELD_LOSS_MAX
    }

    /// Adds the minimum delay of a round trip; returns the delay that stays, given the target.
    pub(super) fn standing(&mut self, delay: f64, target: f64) -> f64 {
        let newest = if self.count > 0 { self.minima[0] } else { delay };
        let change = delay - newest;
        let before = std::mem::replace(&mut self.change, change);
        let turn = if change * before < 0.0 { change.abs().min(before.abs()) } else { 0.0 };
        self.mean_turn += TURN_WEIGHT * (turn - self.mean_turn);
        self.minima.rotate_right(1);
        self.minima[0] = delay;
        self.count = (self.count + 1).min(ROUNDS_MAX);
        let further = (self.mean_turn / (TURN_PART * target.max(1.0))) as usize;
        self.rounds = (1 + further).min(self.count);
        self.minima[..self.rounds].iter().copied().fold(f64::MAX, f64::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: f64 = 8e6;

    fn sample(nanos: Nanos, took: Nanos) -> Sample {
        Sample {
            bytes: 1000,
            packets: 10,
            sent: 10,
            nanos,
            took,
            queue: 0,
            backlog: 0,
            is_limited: true,
            is_spread: false,
        }
    }

    #[test]
    fn queue_that_grows_and_shrinks_is_none() {
        let mut jitter = Jitter::default();
        for step in 0..400u64 {
            let part = step % 80;
            let queue = if part < 60 { part as f64 / 2.0 } else { 1.5 * (80 - part) as f64 };
            assert_eq!(jitter.standing(queue * 1e6, TARGET), queue * 1e6, "{step}");
            let nanos = if part < 60 { 20_500_000 } else { 18_500_000 };
            assert!(!jitter.holds_back(&sample(nanos, 20_000_000)), "{step}");
        }
    }

    #[test]
    fn delay_that_turns_back_is_jitter() {
        let mut jitter = Jitter::default();
        let mut stays = 0.0;
        for step in 0..100u64 {
            let delay = [0.0, 30e6, 5e6, 50e6, 12e6][(step % 5) as usize];
            stays = jitter.standing(delay, TARGET);
            let nanos = if step % 2 == 0 { 30_000_000 } else { 10_000_000 };
            let is_held = jitter.holds_back(&sample(nanos, 20_000_000));
            assert!(is_held || step < 20, "{step}");
        }
        assert_eq!(stays, 0.0);
        let long = sample(HELD_NANOS_MAX, 2 * HELD_NANOS_MAX);
        assert!(!jitter.holds_back(&long), "a mean over the jitter");
    }
}
