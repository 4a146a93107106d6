//! Forwarding rate of a neighbour with a backlog, from its arrival rate and the growth of the
//! backlog.
//!
//! ```text
//!  waiting time w, in comes i, out goes o:   dw/dt = i/o - 1   so   o = i / (1 + dw/dt)
//! ```

use crate::config::params::Nanos;

/// Accepted growth, in seconds per second: a report may contain any value.
const GROWTH: (f64, f64) = (-0.75, 4.0);

/// Weight of a new value in the mean: one report sees a burst, or the gap behind it.
const WEIGHT: f64 = 0.5;

/// A backlog is significant above this many own queues: bursts leave a smaller one.
const LASTING: f64 = 4.0;

/// A neighbour with a longer backlog forwards nothing: an outage behind it.
pub(super) const STALLED_NANOS: Nanos = 900_000_000;

/// The state of the estimate.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct DrainRate {
    /// The last backlog, and its time.
    before: Option<(Nanos, Nanos)>,
    /// Bytes per second.
    mean: Option<f64>,
}

impl DrainRate {
    /// Records the current backlog, the usual own queue, and the rate of arrivals there since the
    /// last call in bytes per second. Returns the forwarding rate in bytes per second, if the
    /// backlog is significant.
    pub fn note(&mut self, waits: Nanos, own: f64, arrived: f64, now: Nanos) -> Option<f64> {
        let (before, at) = self.before.replace((waits, now))?;
        let nanos = now.saturating_sub(at).max(1) as f64;
        let growth = (waits as f64 - before as f64) / nanos;
        let onward = arrived / (1.0 + growth.clamp(GROWTH.0, GROWTH.1));
        let mean = self.mean.map_or(onward, |mean| mean + WEIGHT * (onward - mean));
        self.mean = Some(mean);
        let shows = waits as f64 > LASTING * own && waits < STALLED_NANOS;
        self.mean.filter(|_| shows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Nanos = 1_000_000;

    #[test]
    fn neighbour_sends_on_what_came_without_what_stays() {
        let mut onward = DrainRate::default();
        let own = 4e6;
        assert_eq!(onward.note(20 * MILLI, own, 3e6, 10 * MILLI), None);
        // Arrivals are three times the departures: the backlog grows by 20 ms in 10 ms.
        let known = onward.note(40 * MILLI, own, 3e6, 20 * MILLI).unwrap_or_default();
        assert!((known - 1e6).abs() < 1.0, "{known}");
        // Arrivals are half the departures: the backlog shrinks by 5 ms.
        let known = onward.note(35 * MILLI, own, 0.5e6, 30 * MILLI).unwrap_or_default();
        assert!((known - 1e6).abs() < 1.0, "{known}");
        assert_eq!(onward.note(10 * MILLI, own, 1e6, 40 * MILLI), None);
        assert_eq!(onward.note(Nanos::MAX, own, 1e6, 50 * MILLI), None);
    }

    #[test]
    fn reports_that_jump_are_believed_as_far_as_links_differ() {
        let mut onward = DrainRate::default();
        for (turn, waits) in [800, 0, 800, 100, 0, 800].into_iter().enumerate() {
            let known = onward.note(waits * MILLI, 4e6, 1e6, turn as Nanos);
            assert!(known.is_none_or(|known| (2e5..=4e6).contains(&known)), "{known:?}");
        }
    }
}
