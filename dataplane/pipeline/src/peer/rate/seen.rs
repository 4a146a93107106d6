//! What a round trip says of the queue in front of a link.

use crate::params::Nanos;
use crate::peer::sample::SAMPLE_NANOS;

/// A queue to aim at, and what a round trip adds to it.
const TARGET_NANOS: f64 = 4e6;
const TARGET_PART: f64 = 1.0 / 16.0;
const TARGET_MAX_NANOS: f64 = 8e6;

/// Part of what arrives that is sent at least, and where a link has become slower.
pub(super) const FACTOR_LEAST: f64 = 0.75;
const FLOODED_LEAST: f64 = 0.5;

/// Targets beyond which a link has become slower.
const FLOODED: f64 = 3.0;

/// Targets beyond which the queue is that of others who do not aim at a short one.
const CONTESTED: f64 = 2.0;

/// What a sample says of the queue; times in nanoseconds.
#[derive(Copy, Clone, Debug)]
pub(super) struct Seen {
    pub queue: f64,
    pub target: f64,
    pub round_trip: Nanos,
    pub is_limited: bool,
    /// Whether what waits is of this sender.
    pub is_ours: bool,
    /// Whether more was lost than a link loses without a queue.
    pub dropped: bool,
}

impl Seen {
    /// Whether the queue is longer than several who aim at short ones would make it.
    pub(super) fn is_contested(&self) -> bool {
        self.queue > CONTESTED * unscaled_target(self.round_trip)
    }

    pub(super) fn is_flooded(&self) -> bool {
        self.queue > FLOODED * self.target
    }

    /// What a rate is multiplied by where the queue exceeds the target: half of what is too much
    /// goes within a round trip.
    pub(super) fn factor(&self) -> f64 {
        let round_trip = self.round_trip.max(SAMPLE_NANOS) as f64;
        let least = if self.is_flooded() { FLOODED_LEAST } else { FACTOR_LEAST };
        (1.0 - (self.queue - self.target) / (2.0 * round_trip)).max(least)
    }
}

/// The queue to aim at, whatever the rate; in nanoseconds.
pub(super) fn unscaled_target(round_trip: Nanos) -> f64 {
    (TARGET_NANOS + TARGET_PART * round_trip as f64).min(TARGET_MAX_NANOS)
}
