//! Counts of the packets of a unit that were sent over a hop and lost there.

/// Packets of a unit on one hop.
#[derive(Copy, Clone, Default, Debug)]
pub(crate) struct Tally {
    /// Sent.
    pub sent: u16,
    /// Reported lost.
    pub lost: u16,
}

/// What a table holds of a unit whose packets are counted.
pub(crate) trait Tallied {
    /// Its tally, if it is the unit of this number.
    fn tally_of(&mut self, unit: u32) -> Option<&mut Tally>;
}

impl Tally {
    /// Packets that came or are on their way.
    pub(crate) fn outstanding(&self) -> u16 {
        self.sent.saturating_sub(self.lost)
    }

    /// Packets to be sent so that the next node comes to hold a unit of this rank.
    pub(crate) fn lacks(&self, rank: usize) -> u16 {
        (rank as u16).saturating_sub(self.outstanding())
    }

    /// Notes packets that leave.
    pub(crate) fn add(&mut self, sent: u64) {
        self.sent = self.sent.saturating_add(u16::try_from(sent).unwrap_or(u16::MAX));
    }

    /// Notes a packet that was lost.
    pub(crate) fn lose(&mut self) {
        self.lost = self.lost.saturating_add(1);
    }
}
