//! Round trip of a link, as measured from link reports, and the silence that it makes suspicious.

use crate::config::params::Nanos;

/// Assumed until it is known, and the longest wait for the first report: covers a geostationary
/// hop.
pub(crate) const UNKNOWN_NANOS: Nanos = 600_000_000;

/// The base round trip is the minimum over this period.
const LEAST_NANOS: Nanos = 5_000_000_000;

/// Divisor of a new value in the mean, as in RFC 6298.
const ROUND_TRIP_WEIGHT: u64 = 8;

/// A neighbour counts as silent after this long, plus round trips, without a report.
const SILENCE_NANOS: Nanos = 100_000_000;
const SILENCE_ROUND_TRIPS: Nanos = 4;

/// Round trip to a neighbour.
#[derive(Debug, Default)]
pub(crate) struct RoundTrip {
    mean: Option<Nanos>,
    /// The minimum of the current and the previous period, and when the current one began.
    least: [Option<Nanos>; 2],
    least_at: Nanos,
}

impl RoundTrip {
    /// Records a measurement; returns the mean.
    pub(crate) fn note(&mut self, round_trip: Nanos, now: Nanos) -> Nanos {
        let mean = self.mean.map_or(round_trip, |mean| smoothed(mean, round_trip));
        self.mean = Some(mean);
        if now >= self.least_at + LEAST_NANOS {
            (self.least, self.least_at) = ([None, self.least[0]], now);
        }
        self.least[0] = Some(self.least[0].map_or(round_trip, |least| least.min(round_trip)));
        mean
    }

    /// The mean, once the neighbour reports.
    pub(crate) fn known(&self) -> Option<Nanos> {
        self.mean
    }

    pub(crate) fn is_known(&self) -> bool {
        self.mean.is_some()
    }

    /// The mean; 0 until it is known.
    pub(crate) fn mean(&self) -> Nanos {
        self.mean.unwrap_or(0)
    }

    /// The base round trip, without queueing, if it was ever measured.
    pub(crate) fn base(&self) -> Option<Nanos> {
        self.least.into_iter().flatten().min()
    }

    /// A neighbour without reports for longer than this counts as silent.
    pub(crate) fn patience(&self) -> Nanos {
        SILENCE_NANOS + SILENCE_ROUND_TRIPS * self.mean()
    }

    /// Forgets the mean, since the neighbour is gone.
    pub(crate) fn forget(&mut self) {
        self.mean = None;
    }
}

/// The moving average after a new value.
pub(crate) fn smoothed(mean: Nanos, value: Nanos) -> Nanos {
    mean - mean / ROUND_TRIP_WEIGHT + value / ROUND_TRIP_WEIGHT
}
