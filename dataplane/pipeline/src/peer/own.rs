//! Which part of what a link carries is of this sender.
//!
//! Who sends a little more into a queue gets more through, in the place of others, as far as the
//! link is theirs. What waits grows with the rest:
//!
//! ```text
//!  received = capacity * sent / (sent + others)
//!  d ln(sent / received) / d ln(sent) = sent / (sent + others)
//! ```
//!
//! So the changes of both from one round trip to the next tell the part, whatever the link carries
//! and whatever the others do. Without a queue they tell nothing: what is sent is received.

use crate::peer::sample::Sample;

/// Weight of all changes before, at the next: some twenty round trips count.
const MEMORY: f64 = 0.95;

/// Sum of the squares of changes that weighs as much as what is assumed: those of two pulses of a
/// contest. More hides the part of who does not change much, less lets noise tell it.
const ASSUMED: f64 = 0.03;

/// Logarithms of changes that are believed: a report may say anything.
const CHANGE_MAX: f64 = 0.5;

/// What is known of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Own {
    /// Logarithms of what was sent, and of how many times as long it took to arrive.
    before: Option<(f64, f64)>,
    /// Sums over changes of these.
    products: f64,
    squares: f64,
}

impl Own {
    /// Notes a round trip, over a link that loses so much by itself.
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

    /// The part, given what is assumed where little is known.
    pub(crate) fn part(&self, assumed: f64) -> f64 {
        ((self.products + ASSUMED * assumed) / (self.squares + ASSUMED)).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NANOS: f64 = 40e6;

    /// Of a round trip in which so many packets were sent, and others sent so many.
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
        }
    }

    #[test]
    fn changes_tell_the_part_whatever_the_link_carries_and_loses() {
        for (part, capacity, lost) in [(0.2, 1e4, 0.0), (0.5, 1e4, 0.1), (0.9, 500.0, 0.3)] {
            let mut own = Own::default();
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
        let mut own = Own::default();
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
        let mut own = Own::default();
        for round in 0..30u32 {
            let none =
                Sample { bytes: 0, packets: 0, nanos: 0, took: 0, ..sample(5e3, 0.0, 1e4, 0.0) };
            let huge = Sample { nanos: u64::MAX, packets: 0, ..none };
            own.note(if round.is_multiple_of(2) { &none } else { &huge }, 1.0, true);
            assert!((0.0..=1.0).contains(&own.part(1.0)));
        }
    }
}
