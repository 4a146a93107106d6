//! A link that is shared with flows that fill every queue, as TCP does: who keeps queues short
//! beside them gets nothing. So what is sent follows CUBIC ([RFC 9438]) until the queue is gone.
//!
//! On lossy links a single loss says nothing. What counts as congestion is a queue that overflows,
//! or one that falls by much: then others have slowed down for a loss, and so does this sender.
//!
//! [RFC 9438]: https://www.rfc-editor.org/rfc/rfc9438

use crate::params::Nanos;

/// RFC 9438, 4.1.2 and 4.6: in segments per second cubed, and what is left after congestion.
const C: f64 = 0.4;
const BETA: f64 = 0.7;

/// A segment, in bytes.
const SEGMENT: f64 = 1500.0;

/// A queue has fallen by much when less than this part of its most is left.
const FALLEN: f64 = 0.6;

/// Most growth of a step.
const GROWTH: f64 = 1.25;

/// Steps in a row without a queue, after which the others are gone.
const EMPTY: u32 = 4;

/// What a step goes by; times in nanoseconds.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Shared {
    pub queue: f64,
    /// The queue that this sender would aim at alone.
    pub target: f64,
    pub round_trip: Nanos,
    pub overflows: bool,
}

/// One contest.
#[derive(Clone, Debug)]
pub(crate) struct Contest {
    /// In segments: the window that is grown towards, and the one that is sent.
    origin: f64,
    window: f64,
    /// When the last congestion was, and seconds from then to the origin.
    since: Nanos,
    inflection: f64,
    /// The most queue since then, in nanoseconds.
    most: f64,
    empty: u32,
}

impl Contest {
    /// Begins with a rate, in bytes per second.
    pub(crate) fn new(bytes_per_second: f64, round_trip: Nanos, now: Nanos) -> Self {
        let window = bytes_per_second * round_trip as f64 * 1e-9 / SEGMENT;
        Self { origin: window, window, since: now, inflection: 0.0, most: 0.0, empty: 0 }
    }

    /// The rate from now on; `None` when the others are gone.
    pub(crate) fn step(&mut self, seen: &Shared, now: Nanos) -> Option<f64> {
        self.empty = if seen.queue < seen.target { self.empty + 1 } else { 0 };
        if self.empty >= EMPTY {
            return None;
        }
        let has_fallen = self.most > seen.target && seen.queue < FALLEN * self.most;
        let is_new = now > self.since + 2 * seen.round_trip;
        self.most = self.most.max(seen.queue);
        if (has_fallen || seen.overflows) && is_new {
            self.slow_down(seen.queue, now);
        } else {
            self.grow(seen.round_trip, now);
        }
        Some(self.window * SEGMENT * 1e9 / seen.round_trip.max(1) as f64)
    }

    /// RFC 9438, 4.6 and 4.7.
    fn slow_down(&mut self, queue: f64, now: Nanos) {
        let is_less = self.window < self.origin;
        self.origin = if is_less { self.window * (1.0 + BETA) / 2.0 } else { self.window };
        self.window *= BETA;
        self.inflection = ((self.origin - self.window).max(0.0) / C).cbrt();
        (self.since, self.most) = (now, queue);
    }

    /// RFC 9438, 4.2 and 4.3.
    fn grow(&mut self, round_trip: Nanos, now: Nanos) {
        let seconds = now.saturating_sub(self.since) as f64 * 1e-9;
        let cubic = C * (seconds - self.inflection).powi(3) + self.origin;
        let round_trips = seconds * 1e9 / round_trip.max(1) as f64;
        let reno = BETA * self.origin + 3.0 * (1.0 - BETA) / (1.0 + BETA) * round_trips;
        self.window = cubic.max(reno).clamp(self.window, GROWTH * self.window).max(2.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Nanos = 40_000_000;

    fn seen(queue: f64) -> Shared {
        Shared { queue, target: 5e6, round_trip: ROUND_TRIP, overflows: false }
    }

    /// A queue that others fill and empty: what is sent rises and falls with theirs.
    #[test]
    fn a_queue_that_falls_is_taken_for_congestion_of_others() {
        let mut contest = Contest::new(12.5e6, ROUND_TRIP, 0);
        let (mut now, mut before) = (0, 12.5e6);
        for queue in 10..25 {
            now += ROUND_TRIP;
            let rate = contest.step(&seen(f64::from(queue) * 1e6), now).unwrap();
            assert!(rate >= before, "{rate} after {before}");
            before = rate;
        }
        let after = contest.step(&seen(11e6), now + ROUND_TRIP).unwrap();
        assert!((after / before - BETA).abs() < 1e-9, "{after} after {before}");
        let next = contest.step(&seen(11e6), now + 2 * ROUND_TRIP).unwrap();
        assert!(next >= after, "the same queue counts once");
    }

    #[test]
    fn it_ends_when_the_queue_stays_away() {
        let mut contest = Contest::new(12.5e6, ROUND_TRIP, 0);
        let steps = (1..=10).map(|step| contest.step(&seen(1e6), step * ROUND_TRIP));
        assert_eq!(steps.take_while(Option::is_some).count() as u32, EMPTY - 1);
    }

    #[test]
    fn growth_is_bounded_whatever_the_clock_does() {
        let mut contest = Contest::new(12.5e6, ROUND_TRIP, 0);
        let rate = contest.step(&seen(9e6), u64::MAX / 2).unwrap();
        assert!(rate <= 12.5e6 * GROWTH * 1.001, "{rate}");
    }
}
