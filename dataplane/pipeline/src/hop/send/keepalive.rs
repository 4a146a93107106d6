//! Schedule of the keepalives of a link: a packet without content requests a report, and reveals
//! losses at the tail.

use crate::config::params::Nanos;

/// Bounds of the interval: the minimum, also after a packet; and the maximum, since a damaged
/// report may yield any round trip.
pub(crate) const KEEPALIVE_MIN_NANOS: Nanos = 1_500_000;
pub(crate) const KEEPALIVE_MAX_NANOS: Nanos = 1_000_000_000;

/// The interval doubles after this many, since consecutive losses may hit several; at most this
/// often.
const KEEPALIVES_SOON: u32 = 6;
const DOUBLINGS_MAX: u32 = 10;

/// Keepalives since the last packet.
#[derive(Debug, Default)]
pub(crate) struct Keepalive {
    pub due: Option<Nanos>,
    pub count: u32,
}

impl Keepalive {
    /// When the first one after a packet sent now is due.
    pub(crate) fn first_at(round_trip: Nanos, now: Nanos) -> Nanos {
        now + Self::urgent_interval(round_trip)
    }

    /// Interval while nothing may leave before a report: a quarter of the round trip.
    pub(crate) fn urgent_interval(round_trip: Nanos) -> Nanos {
        (round_trip / 4).max(KEEPALIVE_MIN_NANOS)
    }

    /// Schedules the first one after a packet.
    pub(crate) fn restart(&mut self, at: Nanos) {
        (self.due, self.count) = (Some(at), 0);
    }

    /// Interval before the next one.
    pub(crate) fn interval(&self, round_trip: Nanos) -> Nanos {
        let doublings = self.count.saturating_sub(KEEPALIVES_SOON).min(DOUBLINGS_MAX);
        (round_trip * 5 / 4).max(KEEPALIVE_MIN_NANOS) << doublings
    }
}
