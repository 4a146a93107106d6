//! Per-hop counts of sent and lost packets of a unit.

/// Packets of a unit on one hop.
#[derive(Copy, Clone, Default, Debug)]
pub(crate) struct Tally {
    /// Packets sent.
    pub sent: u16,
    /// Packets reported lost.
    pub lost: u16,
}

/// A table entry of a unit whose packets are counted.
pub(crate) trait Tallied {
    /// The tally, if the entry holds this unit.
    fn tally_of(&mut self, unit: u32) -> Option<&mut Tally>;
}

impl Tally {
    /// Packets received or in flight.
    pub(crate) fn outstanding(&self) -> u16 {
        self.sent.saturating_sub(self.lost)
    }

    /// Packets still to send for the next node to reach this rank.
    pub(crate) fn lacks(&self, rank: usize) -> u16 {
        (rank as u16).saturating_sub(self.outstanding())
    }

    /// Adds sent packets.
    pub(crate) fn add(&mut self, sent: u64) {
        self.sent = self.sent.saturating_add(u16::try_from(sent).unwrap_or(u16::MAX));
    }

    /// Adds a lost packet.
    pub(crate) fn lose(&mut self) {
        self.lost = self.lost.saturating_add(1);
    }
}
