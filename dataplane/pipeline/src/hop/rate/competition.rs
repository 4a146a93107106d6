//! Competition with flows that fill every queue, as TCP does: a delay-based sender starves next to
//! them. So this sender aims at a share of the link, and estimates its own share from the rate
//! received ([`super::link_share`]). It does not matter whether the others respond to losses, as
//! CUBIC does, or do not, as BBR.
//!
//! ```text
//!  rate        _|-|  |-|  |-|  |-         a quarter more, a quarter less, as much, by turns
//!               |  |_|  |_|  |_|          |
//!                                 |_____| half: do others keep the queue full?
//! ```
//!
//! Competing senders that aim at short queues, too, see the queue shrink and halve their rate as
//! well; those of this node do so at the same moments ([`super::drain_schedule`]). If the queue is
//! empty then, the contest is over for all of them; otherwise the others are real. Heavy overflow
//! means that more senders claim a share than fit, and the target share is lowered.

use crate::config::params::Nanos;
use crate::hop::rate::drain_schedule;

/// Target share of the link, as estimated. Responses of others within a round trip, and noise,
/// inflate the estimate by up to half: this yields 0.3 to 0.45 against one CUBIC or BBR, as many of
/// these, or another stream. At 0.45, with BBR inside against BBR, it yielded 0.2.
pub(crate) const SHARE: f64 = 0.6;

/// Factor on the target share for a round trip with heavy overflow, its minimum, and the time
/// constant of its recovery.
const YIELD: f64 = 0.9;
const SHARE_LEAST: f64 = 0.05;
const RECOVERY_NANOS: f64 = 5e9;

/// Factors on the rate by round trip. Smaller pulses are lost in noise: 15 % got a tenth less
/// against BBR.
const PULSES: [f64; 3] = [1.25, 0.75, 1.0];

/// Fraction of the shortfall corrected per round trip.
const STEP: f64 = 0.2;

/// Drain: factor on the rate, its length in round trips, and its period in round trips (up to twice
/// that).
const DRAIN: f64 = 0.5;
const DRAIN_ROUNDS: u32 = 3;
const HOLD_ROUNDS: Nanos = 48;

/// Others are draining the queue when it falls below this fraction of its maximum, at least this
/// many round trips after the last drain.
const FALLEN: f64 = 0.4;
const APART_ROUNDS: u32 = 9;

/// Overflows within this many round trips after a drain were caused before it.
const BEFORE_ROUNDS: u32 = 6;

/// Consecutive round trips without a queue after which the others are gone.
const EMPTY: u32 = 4;

/// Input of a step; times in nanoseconds.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Shared {
    /// Share of the link that this sender has.
    pub own: f64,
    pub queue: f64,
    /// The queue that senders aiming at short queues would build.
    pub target: f64,
    pub overflows: bool,
    /// Whether the sender never ran out of data.
    pub is_limited: bool,
    pub round_trip: Nanos,
}

/// State of one contest.
#[derive(Clone, Debug)]
pub(crate) struct Competition {
    /// In bytes per second, without pulses.
    rate: f64,
    aim: f64,
    /// Round trips since the last drain began, and the longest queue since.
    rounds: u32,
    most: f64,
    empty: u32,
    /// Whether there was a drain, and whether the contest continued after it.
    has_drained: bool,
    is_real: bool,
    /// Time of the last step.
    at: Nanos,
}

impl Competition {
    /// Begins with a rate, in bytes per second.
    pub(crate) fn new(rate: f64, at: Nanos) -> Self {
        Self {
            rate,
            aim: SHARE,
            rounds: DRAIN_ROUNDS,
            most: 0.0,
            empty: 0,
            has_drained: false,
            is_real: false,
            at,
        }
    }

    /// Mean sending rate, in bytes per second.
    pub(crate) fn mean(&self) -> f64 {
        self.rate
    }

    /// Whether the others kept the queue full while this sender drained.
    pub(crate) fn is_real(&self) -> bool {
        self.is_real
    }

    /// The rate from now on; `None` when the others are gone.
    pub(crate) fn step(&mut self, seen: &Shared, now: Nanos) -> Option<f64> {
        self.empty = if seen.queue < seen.target { self.empty + 1 } else { 0 };
        if self.empty >= EMPTY {
            return None;
        }
        self.rounds += 1;
        let period = seen.round_trip.saturating_mul(HOLD_ROUNDS);
        let turns = drain_schedule::has_passed(self.at, now, period);
        self.adjust_aim(seen.overflows, now);
        self.most = self.most.max(seen.queue);
        let falls = self.most > seen.target && seen.queue < FALLEN * self.most;
        self.is_real |= self.has_drained && self.rounds > BEFORE_ROUNDS;
        if turns || (falls && self.rounds > APART_ROUNDS) {
            (self.rounds, self.most, self.has_drained) = (0, 0.0, true);
        }
        if self.rounds < DRAIN_ROUNDS {
            return Some(self.rate * DRAIN);
        }
        // An application-limited sender does not show what share it could get.
        if seen.is_limited || seen.own > self.aim {
            self.rate *= 1.0 + STEP * (self.aim - seen.own);
        }
        Some(self.rate * PULSES[self.rounds as usize % PULSES.len()])
    }

    fn adjust_aim(&mut self, overflows: bool, now: Nanos) {
        let nanos = now.saturating_sub(std::mem::replace(&mut self.at, now)) as f64;
        self.aim += (SHARE - self.aim) * (nanos / RECOVERY_NANOS).min(1.0);
        if overflows && self.rounds > BEFORE_ROUNDS {
            self.aim = (self.aim * YIELD).max(SHARE_LEAST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Nanos = 40_000_000;
    const RATE: f64 = 12.5e6;

    fn seen(own: f64, queue: f64) -> Shared {
        Shared {
            own,
            queue,
            target: 5e6,
            overflows: false,
            is_limited: true,
            round_trip: ROUND_TRIP,
        }
    }

    /// Takes `steps` steps, and returns the mean rate after them.
    fn after(contest: &mut Competition, steps: u64, seen: &Shared) -> f64 {
        for _ in 0..steps {
            let rate = contest.step(seen, contest.at + ROUND_TRIP).unwrap();
            assert!(rate <= contest.mean() * 1.25 && rate >= contest.mean() * DRAIN);
        }
        contest.mean()
    }

    #[test]
    fn who_has_less_than_its_part_sends_more_and_who_has_more_sends_less() {
        let more = after(&mut Competition::new(RATE, 0), 20, &seen(0.1, 20e6));
        let less = after(&mut Competition::new(RATE, 0), 20, &seen(0.9, 20e6));
        assert!(more > 1.5 * RATE && less < 0.5 * RATE, "{more} and {less} of {RATE}");
        let little = Shared { is_limited: false, ..seen(0.1, 20e6) };
        let same = after(&mut Competition::new(RATE, 0), 20, &little);
        assert!((same - RATE).abs() < 1.0, "{same}");
    }

    #[test]
    fn where_much_overflows_less_is_aimed_at_for_a_while() {
        let mut contest = Competition::new(RATE, 0);
        let full = Shared { overflows: true, ..seen(0.3, 20e6) };
        after(&mut contest, 40, &full);
        assert!(contest.aim < 0.1 && contest.mean() < RATE, "{contest:?}");
        after(&mut contest, 400, &seen(0.3, 20e6));
        assert!(contest.aim > 0.5, "{contest:?}");
    }

    /// Two streams would otherwise keep each other's queue full indefinitely.
    #[test]
    fn a_queue_that_others_drain_is_drained_as_well() {
        let mut contest = Competition::new(RATE, 0);
        after(&mut contest, 20, &seen(SHARE, 20e6));
        let halved = contest.step(&seen(SHARE, 7e6), contest.at + ROUND_TRIP);
        assert_eq!(halved, Some(contest.mean() * DRAIN));
    }

    #[test]
    fn senders_drain_at_the_same_moments_and_others_who_do_not_are_real() {
        let full = seen(SHARE, 20e6);
        let halved = |begun: u64| {
            let mut contest = Competition::new(RATE, begun * ROUND_TRIP);
            let steps = (begun + 1..250).filter(|step| {
                let rate = contest.step(&full, step * ROUND_TRIP);
                rate == Some(contest.mean() * DRAIN)
            });
            let steps: Vec<u64> = steps.collect();
            (steps, contest.is_real())
        };
        let (one, other) = (halved(0), halved(30));
        assert_eq!(one, other);
        assert_eq!(one.0.len() as u32 % DRAIN_ROUNDS, 0);
        assert!(one.0.len() as u32 >= 250 / (2 * HOLD_ROUNDS as u32) * DRAIN_ROUNDS && one.1);
        assert!(!Competition::new(RATE, 0).is_real());
    }

    #[test]
    fn it_ends_when_the_queue_stays_away() {
        let mut contest = Competition::new(RATE, 0);
        let steps = (1..=10).map(|step| contest.step(&seen(0.5, 1e6), step * ROUND_TRIP));
        assert_eq!(steps.take_while(Option::is_some).count() as u32, EMPTY - 1);
    }

    #[test]
    fn steps_are_bounded_whatever_the_clock_does() {
        let mut contest = Competition::new(RATE, 0);
        let rate = contest.step(&seen(0.0, 9e6), u64::MAX / 2).unwrap();
        assert!(rate <= RATE * (1.0 + STEP) * 1.25, "{rate}");
        assert!(contest.step(&seen(1.0, 9e6), 0).unwrap() > 0.0);
    }
}
