//! CoDel (RFC 8289): when the packets of a flow have waited longer than the target for an interval,
//! signals its sender by a drop or a mark, and again at shrinking intervals until the wait is
//! short. Pure.
//!
//! ```text
//!  wait     ___/^^^^^^^^^^^^^^^^\________
//!  target  - - - - - - - - - - - - - - -
//!              |<-interval->| | | ||      signals: after an interval, then interval/sqrt(count)
//! ```

use recoded_pipeline::params::Nanos;

/// The part of the interval that packets of a flow may wait all the time (RFC 8289, section 4.3: 5
/// to 10 %). Less leaves the link idle when a sender pauses, more is delay without benefit, to that
/// flow only, since others do not wait behind it. A flow with a backlog of no more than
/// [`PACKET_BYTES`] gets no signals, so that links whose packets take longer than this work, too.
const TARGET_PART: Nanos = 20;

/// The permitted standing wait is a third of a round trip, up to a limit: cubic reduces its window
/// to 0.7 at a signal, and the backlog keeps the link busy meanwhile. Over two paths, the longer of
/// 60 ms, 10 ms carried 0.87 / 0.89 of their sum with cubic / BBR inside, and 20 ms 0.90 / 0.92
/// (means of three), while packets of other flows waited no longer.
const TARGET_ROUND_TRIPS: Nanos = 3;
const TARGET_NANOS_MAX: Nanos = 20_000_000;

/// Shortest time that the wait exceeds the target before the first signal: a sender reacts to a
/// signal a round trip later, and a burst that drains by itself within one is no queue; so it is a
/// round trip of the path if that is longer. RFC 8289, section 4.3, gives 100 ms for round trips of
/// 10 ms to 1 s, but cubic needs ten seconds to recover from one signal too many. Over 4 hops of 10
/// ms, a target of 5 ms and an interval of 100 ms carried 0.65 of the limit, 10 and 200 ms carry
/// 0.88, and 20 ms and 200 ms no more.
pub(super) const INTERVAL_NANOS: Nanos = 200_000_000;
const INTERVAL_MAX_NANOS: Nanos = 2_000_000_000;

/// Largest backlog of a flow that counts as no queue: one packet of a usual link.
const PACKET_BYTES: usize = 1514;

/// A flow that exceeds the target again within this many intervals continues where it ended: the
/// sender has not found its rate yet (RFC 8289, section 5.6).
const MEMORY_INTERVALS: Nanos = 16;

/// A lost part of a path may recover soon: for up to this long, senders get no signal about a
/// backlog of up to [`GRACE_TARGET_NANOS`], and not again before [`GRACE_AGAIN_NANOS`].
const GRACE_NANOS: Nanos = 5_000_000_000;
const GRACE_AGAIN_NANOS: Nanos = 30_000_000_000;
const GRACE_TARGET_NANOS: Nanos = 500_000_000;

/// Suppresses signals to senders after one of several paths fell silent: the window of all paths
/// then waits in front of the others, and shrinks to theirs within some round trips, or spreads out
/// again when the path is back. A drop would instead stall everything behind it at the receiver
/// until the retransmission passes that queue.
#[derive(Copy, Clone, Default, Debug)]
pub(super) struct Grace {
    /// When it ends, and when another may begin.
    until: Nanos,
    again_at: Nanos,
}

impl Grace {
    /// Whether it is active.
    pub(super) fn is_on(&mut self, lacks_paths: bool, now: Nanos) -> bool {
        if lacks_paths && now >= self.again_at {
            *self = Grace { until: now + GRACE_NANOS, again_at: now + GRACE_AGAIN_NANOS };
        }
        lacks_paths && now < self.until
    }
}

/// The interval and target for a flow.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Patience {
    interval: Nanos,
    target: Nanos,
}

impl Patience {
    /// While a path lacks a part.
    pub(super) const GRACE: Patience =
        Patience { interval: INTERVAL_NANOS, target: GRACE_TARGET_NANOS };

    /// For flows over a path of this round trip; 0 if it is not known.
    pub(super) fn with(round_trip: Nanos) -> Patience {
        let interval = round_trip.clamp(INTERVAL_NANOS, INTERVAL_MAX_NANOS);
        let part = (round_trip / TARGET_ROUND_TRIPS).min(TARGET_NANOS_MAX);
        Patience { interval, target: part.max(interval / TARGET_PART) }
    }
}

/// One flow's state.
#[derive(Copy, Clone, Default, Debug)]
pub(super) struct Codel {
    /// When the wait will have exceeded the target for an interval.
    above_until: Option<Nanos>,
    is_signalling: bool,
    /// When the next signal is due.
    next_at: Nanos,
    /// Signals since it began to signal.
    count: u32,
    /// `count` when it began.
    began_with: u32,
}

impl Codel {
    /// Whether the packet taken from the head of the flow, which waited for `sojourn`, must signal
    /// its sender. `left_bytes` still wait behind it.
    pub(super) fn signals(
        &mut self,
        patience: &Patience,
        sojourn: Nanos,
        left_bytes: usize,
        now: Nanos,
    ) -> bool {
        if !self.is_above(patience, sojourn, left_bytes, now) {
            self.is_signalling = false;
            return false;
        }
        if !self.is_signalling {
            self.begin(patience, now);
            return true;
        }
        if now < self.next_at {
            return false;
        }
        self.count += 1;
        self.next_at += self.spacing(patience);
        true
    }

    /// Whether the wait has exceeded the target for an interval.
    fn is_above(
        &mut self,
        patience: &Patience,
        sojourn: Nanos,
        left_bytes: usize,
        now: Nanos,
    ) -> bool {
        if sojourn < patience.target || left_bytes <= PACKET_BYTES {
            self.above_until = None;
            return false;
        }
        now >= *self.above_until.get_or_insert(now + patience.interval)
    }

    fn begin(&mut self, patience: &Patience, now: Nanos) {
        self.is_signalling = true;
        let signalled = self.count - self.began_with;
        let is_recent = now.saturating_sub(self.next_at) < MEMORY_INTERVALS * patience.interval;
        self.count = if signalled > 1 && is_recent { signalled } else { 1 };
        self.began_with = self.count;
        self.next_at = now + self.spacing(patience);
    }

    fn spacing(&self, patience: &Patience) -> Nanos {
        (patience.interval as f64 / f64::from(self.count).sqrt()) as Nanos
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A hundredth of an interval: the target is five.
    const TICK: Nanos = INTERVAL_NANOS / 100;
    const MUCH: usize = 1 << 20;

    /// For short round trips.
    const SHORT: Patience = Patience { interval: 100 * TICK, target: 5 * TICK };

    /// Times of the signals of a flow that sends a packet every tick, each after `wait`.
    fn signals(codel: &mut Codel, times: std::ops::Range<u64>, wait: Nanos) -> Vec<u64> {
        times.filter(|time| codel.signals(&SHORT, wait, MUCH, time * TICK)).collect()
    }

    #[test]
    fn signals_come_after_an_interval_and_then_at_the_square_root() {
        let found = signals(&mut Codel::default(), 0..1000, 6 * TICK);
        // 100, then 100/sqrt(1), 100/sqrt(2), 100/sqrt(3) and so on.
        let mut expected = vec![100.0];
        for count in 1..100u32 {
            expected.push(expected.last().unwrap() + 100.0 / f64::from(count).sqrt());
        }
        expected.retain(|time| *time < 999.0);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!(*found as f64, expected.ceil());
        }
    }

    #[test]
    fn one_short_wait_ends_signals_and_a_new_interval_begins() {
        let mut codel = Codel::default();
        assert_eq!(signals(&mut codel, 0..201, 6 * TICK), [100, 200]);
        assert!(!codel.signals(&SHORT, 4 * TICK, MUCH, 201 * TICK));
        assert_eq!(signals(&mut codel, 202..302, 6 * TICK), [0; 0]);
        assert_eq!(signals(&mut codel, 302..303, 6 * TICK), [302]);
    }

    #[test]
    fn soon_after_signals_they_continue_as_densely_as_they_ended() {
        let mut codel = Codel::default();
        let before = signals(&mut codel, 0..1000, 6 * TICK).len() as u32;
        assert!(!codel.signals(&SHORT, 0, 0, 1000 * TICK));
        let mut long_after = codel;
        signals(&mut codel, 1001..1102, 6 * TICK);
        assert_eq!(codel.count, before - 1);
        signals(&mut long_after, 4001..4102, 6 * TICK);
        assert_eq!(long_after.count, 1);
    }

    #[test]
    fn flow_of_one_packet_at_a_time_is_left_alone() {
        let mut codel = Codel::default();
        let mut times = 0..100_000;
        assert!(!times.any(|time| codel.signals(&SHORT, 900 * TICK, PACKET_BYTES, time * TICK)));
    }

    #[test]
    fn it_is_as_patient_as_the_path_is_long() {
        assert_eq!([0, 15 * TICK].map(Patience::with), [SHORT; 2]);
        let targets = [21, 27, 30, 100, 300, 500];
        let targets = targets.map(|trip| Patience::with(trip * TICK).target / TICK);
        assert_eq!(targets, [7, 9, 10, 10, 15, 25]);
        assert_eq!(Patience::with(Nanos::MAX).interval, INTERVAL_MAX_NANOS);
        let long = Patience::with(300 * TICK);
        for (wait, first) in [(20, Some(300)), (14, None)] {
            let mut codel = Codel::default();
            let above = |time: &u64| codel.signals(&long, wait * TICK, MUCH, time * TICK);
            assert_eq!((0..1000).find(above), first);
        }
    }

    #[test]
    fn while_a_path_is_away_senders_are_left_alone_for_a_while_and_seldom() {
        const MILLI: Nanos = 1_000_000;
        let mut grace = Grace::default();
        let mut is_on = |lacks_paths, millis: u64| grace.is_on(lacks_paths, millis * MILLI);
        assert!(!is_on(false, 900) && is_on(true, 1000) && is_on(true, 5999));
        assert!(!is_on(true, 6000), "it is gone for good");
        assert!(!is_on(false, 7000) && !is_on(true, 8000), "a path that comes and goes");
        assert!(!is_on(true, 30_999) && is_on(true, 31_000) && !is_on(false, 31_500));
        let waits = |sojourn: Nanos| {
            let mut codel = Codel::default();
            let mut times = (0..5000).map(|millis| millis * MILLI);
            times.any(|now| codel.signals(&Patience::GRACE, sojourn * MILLI, MUCH, now))
        };
        assert!(!waits(499) && waits(501));
    }

    proptest! {
        #[test]
        fn nothing_is_signalled_before_an_interval_above_the_target(
            waits in prop::collection::vec((0u64..12, 0u64..60, any::<bool>()), 1..300),
        ) {
            let mut codel = Codel::default();
            let (mut now, mut above_since) = (0, None);
            for (wait, step, is_little) in waits {
                now += step * TICK;
                let left = if is_little { 10 } else { MUCH };
                let is_above = wait * TICK >= SHORT.target && !is_little;
                above_since = is_above.then(|| above_since.unwrap_or(now));
                if codel.signals(&SHORT, wait * TICK, left, now) {
                    prop_assert!(above_since.is_some_and(|since| now - since >= INTERVAL_NANOS));
                }
            }
        }
    }
}
