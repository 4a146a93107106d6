//! How fast a neighbour sends on what waits in it: what came to it, and how what waits there grew
//! meanwhile.
//!
//! ```text
//!  waiting time w, in comes i, out goes o:   dw/dt = i/o - 1   so   o = i / (1 + dw/dt)
//! ```

use crate::params::Nanos;

/// Growth that is believed, in seconds a second: a report may say anything.
const GROWTH: (f64, f64) = (-0.75, 4.0);

/// Weight of a new value in the mean: one report sees a burst, or the gap behind it.
const WEIGHT: f64 = 0.5;

/// What waits says so where it is more than so many own queues: less is what bursts leave.
const LASTING: f64 = 4.0;

/// A neighbour in which packets wait for longer sends nothing on: an outage behind it.
pub(super) const STALLED_NANOS: Nanos = 900_000_000;

/// What is known of it.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Onward {
    /// What waited last, and when.
    before: Option<(Nanos, Nanos)>,
    /// Bytes per second.
    mean: Option<f64>,
}

impl Onward {
    /// Notes what waits now, beside a queue that is usual, and what arrived there since the last
    /// time in bytes per second. What it sends on in bytes per second, as far as that shows.
    pub fn note(&mut self, (waits, own): (Nanos, f64), arrived: f64, now: Nanos) -> Option<f64> {
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
        let mut onward = Onward::default();
        let own = 4e6;
        assert_eq!(onward.note((20 * MILLI, own), 3e6, 10 * MILLI), None);
        // Three times as much comes as leaves: what waits grows by 20 ms in 10 ms.
        let known = onward.note((40 * MILLI, own), 3e6, 20 * MILLI).unwrap_or_default();
        assert!((known - 1e6).abs() < 1.0, "{known}");
        // Half of it comes: what waits shrinks by 5 ms.
        let known = onward.note((35 * MILLI, own), 0.5e6, 30 * MILLI).unwrap_or_default();
        assert!((known - 1e6).abs() < 1.0, "{known}");
        assert_eq!(onward.note((10 * MILLI, own), 1e6, 40 * MILLI), None);
        assert_eq!(onward.note((Nanos::MAX, own), 1e6, 50 * MILLI), None);
    }

    #[test]
    fn reports_that_jump_are_believed_as_far_as_links_differ() {
        let mut onward = Onward::default();
        for (turn, waits) in [800, 0, 800, 100, 0, 800].into_iter().enumerate() {
            let known = onward.note((waits * MILLI, 4e6), 1e6, turn as Nanos);
            assert!(known.is_none_or(|known| (2e5..=4e6).contains(&known)), "{known:?}");
        }
    }
}
