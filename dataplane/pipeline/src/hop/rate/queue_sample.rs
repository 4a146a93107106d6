//! State of the queue in front of a link, from the samples of a round trip.

use crate::config::params::Nanos;
use crate::hop::rate::sample::SAMPLE_NANOS;

/// Target queue. Measured in virtual time over four hops of 10 % loss without delay, always with
/// data to send, at 300 Mbit/s (added delay, median and 99th percentile): at 4 ms 12.5 and 24, at
/// 2.5 ms 7.3 and 16, at 1.5 ms 5.6 and 13 ms, each with 0.996 to 0.998 of the limit. A worker
/// woken a millisecond late looks like a queue, so this is not the smallest of these.
const TARGET_NANOS: f64 = 2.5e6;

/// Longest queue attributed to this sender alone; a longer one indicates other flows. With less,
/// either this sender or CUBIC on the same link starved.
const OWN_NANOS: f64 = 4e6;

/// Additions to each per round trip, and the maximum of both. From 40 ms on both are equal, since a
/// lower target would yield to CUBIC without a contest.
const TARGET_PART: f64 = 1.0 / 10.0;
const OWN_PART: f64 = 1.0 / 16.0;
const TARGET_MAX_NANOS: f64 = 8e6;

/// Minimum factor on the received rate; and the minimum when a link has become slower.
pub(super) const FACTOR_LEAST: f64 = 0.75;
const FLOODED_LEAST: f64 = 0.5;

/// Multiple of the own queue above which a link has become slower.
const FLOODED: f64 = 3.0;

/// Multiple of the own queue above which it is due to flows that do not aim at a short queue.
const CONTESTED: f64 = 2.0;

/// Multiple of the target that several senders aiming at it build together.
const SEVERAL: f64 = 1.25;

/// Queue state from a sample; times in nanoseconds.
#[derive(Copy, Clone, Debug)]
pub(super) struct QueueSample {
    /// The queue of link and neighbour, and that of the link alone, the only one shared with
    /// others.
    pub queue: f64,
    pub link_queue: f64,
    pub target: f64,
    /// Longest queue attributed to this sender alone.
    pub own: f64,
    pub round_trip: Nanos,
    pub is_limited: bool,
    /// Whether the queue is due to this sender.
    pub is_ours: bool,
}

impl QueueSample {
    /// Whether the queue is longer than several senders aiming at short queues would build.
    pub(super) fn is_contested(&self) -> bool {
        self.link_queue > (CONTESTED * unscaled_own(self.round_trip)).max(self.target)
    }

    /// Longest queue attributed to several senders that aim at short ones: a contest with such
    /// senders is over.
    pub(super) fn of_several(&self) -> f64 {
        self.own.max(SEVERAL * self.target)
    }

    pub(super) fn is_flooded(&self) -> bool {
        self.queue > FLOODED * self.own
    }

    /// Factor on the rate when the queue exceeds the target: half of the excess drains within a
    /// round trip.
    pub(super) fn factor(&self) -> f64 {
        let round_trip = self.round_trip.max(SAMPLE_NANOS) as f64;
        let least = if self.is_flooded() { FLOODED_LEAST } else { FACTOR_LEAST };
        (1.0 - (self.queue - self.target) / (2.0 * round_trip)).max(least)
    }
}

/// The target queue before scaling by rate, in nanoseconds.
pub(super) fn unscaled_target(round_trip: Nanos) -> f64 {
    (TARGET_NANOS + TARGET_PART * round_trip as f64).min(TARGET_MAX_NANOS)
}

/// The longest own queue before scaling by rate, in nanoseconds.
pub(super) fn unscaled_own(round_trip: Nanos) -> f64 {
    (OWN_NANOS + OWN_PART * round_trip as f64).min(TARGET_MAX_NANOS)
}
