//! A hop without reports: symbols leave at once, with a fixed number of combinations, and count as
//! done when sent. Nothing is paced, probed or retransmitted.

use super::{Next, PLACES, Sender};
use crate::config::params::Nanos;
use crate::hop::send::keepalive::Keepalive;
use crate::hop::send::liveness::Liveness;

impl Sender {
    /// Whether it sends without reports.
    pub(super) fn is_open_loop(&self) -> bool {
        self.fec.open_loop().is_some()
    }

    /// Sends this many combinations per symbol without reports, or returns to reports.
    pub(crate) fn set_open_loop(&mut self, combinations: Option<f64>) {
        if self.fec.open_loop() == combinations {
            return;
        }
        self.fec.set_open_loop(combinations);
        // No report on packets in flight is expected any more.
        self.again.clear();
        self.open.clear();
        self.link.in_flight.forget();
        (self.link.keepalive, self.asked_at) = (Keepalive::default(), 0);
        self.liveness = Liveness::default();
    }

    /// Records a packet sent without reports.
    pub(super) fn left_in_open_loop(&mut self, sent: Next, now: Nanos) {
        if let Next::Symbol { place, .. } = sent {
            self.placed[place as usize % PLACES].sent_at = now;
            self.fec.earn(self.loss(), 0, 0, now);
        }
    }
}
