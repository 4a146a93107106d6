//! Estimate of this sender's share of a link.
//!
//! A sender that puts slightly more into a full queue gets more through at the expense of other
//! flows. The queueing delay grows by the remainder:
//!
//! ```text
//!  received = capacity * sent / (sent + others)
//!  d ln(sent / received) / d ln(sent) = sent / (sent + others)
//! ```
//!
//! So the changes of both rates from one round trip to the next reveal the share, whatever the
//! capacity and the behaviour of the others. Without a queue they reveal nothing: all packets sent
//! are received.

use crate::hop::rate::sample::Sample;

/// Weight of all earlier changes at the next one: about twenty round trips count.
const MEMORY: f64 = 0.95;

/// Weight of the assumed share, as a sum of squared changes: that of two pulses of a contest. More
/// hides the share of a sender with small changes, less lets noise dominate.
const ASSUMED: f64 = 0.03;

/// Largest change accepted, as a logarithm: a report may contain any value.
const CHANGE_MAX: f64 = 0.5;

/// The state of the estimate.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkShare {
    /// Logarithms of the sent rate, and of its ratio to the received rate.
    before: Option<(f64, f64)>,
    /// Sums over changes of these.
    products: f64,
    squares: f64,
}

impl LinkShare {
    /// Records a round trip over a link with this loss of its own.
    pub(crate) fn note(&mut self, sample: &Sample, usual_loss: f64, is_queued: bool) {
        if !is_queued {
            self.before = None;
            return;
        }
        let kept = f64::from(sample.sent.max(1)) * (1.0 - usual_loss).max(0.05);
        let stretch = sample.nanos.max(1) as f64 / sample.took.max(1) as f64 * kept
            / f64::from(sample.packets.max(1));
        let at = ((sample.received() * stretch).max(1.0).ln(), stretch.ln());
        if let Some(before) = self.before.replace(at) {
            let bound = |change: f64| change.clamp(-CHANGE_MAX, CHANGE_MAX);
            let (sent, stretched) = (bound(at.0 - before.0), bound(at.1 - before.1));
            self.products = MEMORY * self.products + sent * stretched;
            self.squares = MEMORY * self.squares + sent * sent;
        }
    }

    /// The share; `assumed` prevails while little is known.
    pub(crate) fn part(&self, assumed: f64) -> f64 {
        ((self.products + ASSUMED * assumed) / (self.squares + ASSUMED)).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NANOS: f64 = 40e6;

    /// A sample of a round trip with this many packets sent here and by others.
    fn sample(sent: f64, others: f64, capacity: f64, lost: f64) -> Sample {
        let nanos = NANOS * (sent + others) / capacity;
        Sample {
            bytes: (sent * (1.0 - lost) * 1472.0) as u32,
            packets: (sent * (1.0 - lost)).round() as u32,
            sent: sent as u32,
            nanos: nanos as u64,
            took: NANOS as u64,
            queue: 20_000_000,
            backlog: 0,
            is_limited: true,
            is_spread: false,
        }
    }

    #[test]
    fn changes_tell_the_part_whatever_the_link_carries_and_loses() {
        for (part, capacity, lost) in [(0.2, 1e4, 0.0), (0.5, 1e4, 0.1), (0.9, 500.0, 0.3)] {
            let mut own = LinkShare::default();
            for round in 0..30 {
                let sent = part * capacity * [1.1, 0.9, 1.0][round % 3];
                own.note(&sample(sent, (1.0 - part) * capacity, capacity, lost), lost, true);
            }
            let known = own.part(0.5);
            assert!((known - part).abs() < 0.08, "{known} instead of {part}");
        }
    }

    #[test]
    fn what_is_assumed_holds_until_something_changes() {
        let mut own = LinkShare::default();
        for round in 0..30 {
            let sent = [2e3, 5e3, 1e4][round % 3];
            own.note(&sample(sent, 0.0, sent, 0.0), 0.0, false);
        }
        assert!((own.part(0.7) - 0.7).abs() < 1e-9, "there was no queue");
        for _ in 0..30 {
            own.note(&sample(2e3, 8e3, 1e4, 0.0), 0.0, true);
        }
        assert!((own.part(0.7) - 0.7).abs() < 1e-9, "nothing changed");
    }

    #[test]
    fn reports_of_nothing_are_no_numbers_that_spread() {
        let mut own = LinkShare::default();
        for round in 0..30u32 {
            let none =
                Sample { bytes: 0, packets: 0, nanos: 0, took: 0, ..sample(5e3, 0.0, 1e4, 0.0) };
            let huge = Sample { nanos: u64::MAX, packets: 0, ..none };
            own.note(if round.is_multiple_of(2) { &none } else { &huge }, 1.0, true);
            assert!((0.0..=1.0).contains(&own.part(1.0)));
        }
    }
}
