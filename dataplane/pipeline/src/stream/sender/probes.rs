//! Probes of the sizes that a hop carries. They have a clock of their own: packets that vanish
//! bring the rate down to almost nothing, and at that a jumbo probe takes a third of a second.

use super::Sender;
use crate::params::Nanos;
use crate::peer::sample::AROUND_BYTES;

impl Sender {
    /// Bytes of the probe that leaves now, if one is due.
    pub(super) fn probe(&mut self, now: Nanos) -> Option<u16> {
        if self.probes_at > now {
            return None;
        }
        let bytes = self.sent.probe(self.round_trip(), now)?;
        self.probes_at = now + self.rate.nanos_of_probe(usize::from(bytes) + AROUND_BYTES);
        Some(bytes)
    }

    /// When the next one is due.
    pub(super) fn probe_due(&self) -> Option<Nanos> {
        let due = self.sent.sizes().due(self.round_trip())?;
        Some(due.max(self.probes_at))
    }
}
