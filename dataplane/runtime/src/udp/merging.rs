//! Detects that Linux, or a card, merges packets into bursts that do not split into whole ones
//! (UDP_GRO): the first packet of such a burst has a valid header, and a later one begins in the
//! middle of another.
//!
//! Only bursts from neighbours' addresses count. A neighbour, or a forger of its address, can end
//! merging: it costs CPU time.

use recoded_wire::steer::Verdict;

/// Wrong bursts after which merging ends, among [`BURSTS`]: more than another program on a
/// neighbour sends by mistake, and few enough that hardly a packet is lost.
const WRONG_MAX: u32 = 16;
const BURSTS: u32 = 1024;

/// The bursts of a socket.
#[derive(Copy, Clone, Debug)]
pub(super) struct Merging {
    /// Whether merging is enabled.
    pub(super) is_on: bool,
    bursts: u32,
    wrong: u32,
}

impl Merging {
    pub(super) fn new(is_on: bool) -> Merging {
        Merging { is_on, bursts: 0, wrong: 0 }
    }

    /// Records a burst of several packets.
    pub(super) fn note(&mut self, is_wrong: bool) {
        if self.bursts == BURSTS && !self.is_wrong() {
            (self.bursts, self.wrong) = (0, 0);
        }
        self.bursts = self.bursts.saturating_add(1);
        self.wrong = self.wrong.saturating_add(u32::from(is_wrong));
    }

    /// Whether merging must end.
    pub(super) fn is_wrong(&self) -> bool {
        self.is_on && self.wrong >= WRONG_MAX
    }
}

/// Whether a packet in the middle of a burst shows that it was split at a wrong place. An unknown
/// type or flow may come from another version or configuration.
pub(super) fn is_middle(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::DropTruncated | Verdict::DropVersion)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_ends_after_some_wrong_bursts_and_not_for_few_among_many() {
        let mut merging = Merging::new(true);
        (0..WRONG_MAX - 1).for_each(|_| merging.note(true));
        assert!(!merging.is_wrong());
        merging.note(true);
        assert!(merging.is_wrong());
        (0..2 * BURSTS).for_each(|_| merging.note(false));
        assert!(merging.is_wrong(), "until it is ended");
        let mut merging = Merging::new(true);
        (0..100_000).for_each(|burst| merging.note(burst % 100 == 0));
        assert!(!merging.is_wrong());
        let mut off = Merging::new(false);
        (0..100).for_each(|_| off.note(true));
        assert!(!off.is_wrong());
    }
}
