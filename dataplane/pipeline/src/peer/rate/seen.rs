//! What a round trip says of the queue in front of a link.

use crate::params::Nanos;
use crate::peer::sample::SAMPLE_NANOS;

/// A queue to aim at. Measured in virtual time, four hops of 10 % without delay, always more to
/// send, 300 Mbit/s (added delay, median and 99 %): at 4 ms 12.5 and 24, at 2.5 ms 7.3 and 16, at
/// 1.5 ms 5.6 and 13 ms, each with 0.996 to 0.998 of the limit. A worker that is woken a
/// millisecond late looks like a queue, so it is not the least of these.
const TARGET_NANOS: f64 = 2.5e6;

/// A queue that may be of this sender alone, by which others are told from it: beside CUBIC, with
/// less than this, one of both got nothing.
const OWN_NANOS: f64 = 4e6;

/// What a round trip adds to each, and the most of both: from 40 ms on they are the same, since who
/// aims at less there yields to CUBIC without a contest.
const TARGET_PART: f64 = 1.0 / 10.0;
const OWN_PART: f64 = 1.0 / 16.0;
const TARGET_MAX_NANOS: f64 = 8e6;

/// Part of what arrives that is sent at least, and where a link has become slower.
pub(super) const FACTOR_LEAST: f64 = 0.75;
const FLOODED_LEAST: f64 = 0.5;

/// Times that beyond which a link has become slower.
const FLOODED: f64 = 3.0;

/// Times that beyond which the queue is that of others who do not aim at a short one.
const CONTESTED: f64 = 2.0;

/// Times what each of several aims at that they make of it together.
const SEVERAL: f64 = 1.25;

/// What a sample says of the queue; times in nanoseconds.
#[derive(Copy, Clone, Debug)]
pub(super) struct Seen {
    /// That of the link and of the neighbour, and that of the link alone: others are only there.
    pub queue: f64,
    pub link_queue: f64,
    pub target: f64,
    /// A queue that may be of this sender alone.
    pub own: f64,
    pub round_trip: Nanos,
    pub is_limited: bool,
    /// Whether what waits is of this sender.
    pub is_ours: bool,
}

impl Seen {
    /// Whether the queue is longer than several who aim at short ones would make it.
    pub(super) fn is_contested(&self) -> bool {
        self.link_queue > (CONTESTED * unscaled_own(self.round_trip)).max(self.target)
    }

    /// A queue that may be of several who aim at short ones: a contest with such is over.
    pub(super) fn of_several(&self) -> f64 {
        self.own.max(SEVERAL * self.target)
    }

    pub(super) fn is_flooded(&self) -> bool {
        self.queue > FLOODED * self.own
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

/// The queue that may be of this sender alone, whatever the rate; in nanoseconds.
pub(super) fn unscaled_own(round_trip: Nanos) -> f64 {
    (OWN_NANOS + OWN_PART * round_trip as f64).min(TARGET_MAX_NANOS)
}
