//! Path MTU probes of a hop. They are paced separately: vanishing packets reduce the rate to almost
//! nothing, and a jumbo probe would then take a third of a second.

use super::Sender;
use crate::config::params::Nanos;
use crate::hop::rate::sample::AROUND_BYTES;

impl Sender {
    /// Bytes of the probe to send now, if one is due.
    pub(super) fn probe(&mut self, now: Nanos) -> Option<u16> {
        if self.probes_at > now {
            return None;
        }
        let bytes = self.link.in_flight.probe(self.round_trip(), now)?;
        self.probes_at = now + self.link.rate.nanos_of_probe(usize::from(bytes) + AROUND_BYTES);
        Some(bytes)
    }

    /// When the next probe is due.
    pub(super) fn probe_due(&self) -> Option<Nanos> {
        let due = self.link.sizes().due(self.round_trip())?;
        Some(due.max(self.probes_at))
    }
}
