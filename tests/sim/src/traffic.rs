//! The flow of a run: its neighbours, its tunnel, and the packets that enter.

use recoded_pipeline::params::{Nanos, PeerId, TunnelId};
use std::ops::{Range, RangeInclusive};

/// The flow that every node carries.
pub(crate) const FLOW: u32 = 7;

/// The first next hop towards a sink; further ones have every second number.
pub(crate) const DOWN: PeerId = PeerId(0);

/// The first neighbour towards the source; likewise.
pub(crate) const UP: PeerId = PeerId(1);

/// Whether a neighbour is towards the source.
pub(crate) fn is_up(peer: PeerId) -> bool {
    peer.0 % 2 == 1
}

/// Tunnel of an edge.
pub(crate) const TUNNEL: TunnelId = TunnelId(0);

/// IP packets at an even pace: some alone, most in bursts, some alone. Packet `n` is computed from
/// its number, so nothing needs to be stored.
#[derive(Clone, PartialEq, Debug)]
pub struct Traffic {
    /// Number of packets.
    pub packets: u32,
    /// Packets that enter one by one before and after the bursts: a sink learns of a missing
    /// generation from those before and after it.
    pub alone: (u32, u32),
    /// Bytes of each, evenly among these; at least [`Traffic::BYTES_MIN`].
    pub bytes: RangeInclusive<usize>,
    /// Time from one burst to the next.
    pub interval_nanos: Nanos,
    /// Interval between packets that enter alone.
    pub alone_nanos: Nanos,
    /// Packets at once.
    pub burst: u32,
    /// Silences between bursts.
    pub pauses: Option<Pauses>,
    /// Inner flows, which take turns.
    pub flows: u32,
}

/// A flow that goes idle and resumes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Pauses {
    /// Bursts from one pause to the next.
    pub every_bursts: u32,
    /// Additional time until the next burst.
    pub nanos: Nanos,
}

impl Traffic {
    /// Smallest packet: an IPv4 header with the packet's number in its options, and ports.
    pub const BYTES_MIN: usize = 28;

    /// The inner flow of packet `number`.
    #[must_use]
    pub fn flow(&self, number: u32) -> u32 {
        number % self.flows.max(1)
    }

    /// When packet `number` enters.
    #[must_use]
    pub fn due(&self, number: u32) -> Nanos {
        let (first, end) = (self.alone.0, self.bursts_end());
        let alone = number.min(first) + number.saturating_sub(end);
        let burst = self.burst.max(1);
        let bursts = match number < end {
            true => number.saturating_sub(first) / burst,
            false => (end - first).div_ceil(burst),
        };
        let pause = |pauses: Pauses| u64::from(bursts / pauses.every_bursts.max(1)) * pauses.nanos;
        u64::from(alone) * self.alone_nanos
            + u64::from(bursts) * self.interval_nanos
            + self.pauses.map_or(0, pause)
    }

    /// The first packet after the bursts.
    fn bursts_end(&self) -> u32 {
        self.packets.saturating_sub(self.alone.1).max(self.alone.0)
    }

    /// Period of the bursts: from the first one until the first packet that enters alone again.
    #[must_use]
    pub fn bursts(&self) -> Range<Nanos> {
        self.due(self.alone.0)..self.due(self.bursts_end())
    }

    /// The first packet that enters at `at` or later.
    #[must_use]
    pub fn first_from(&self, at: Nanos) -> u32 {
        (0..self.packets).find(|number| self.due(*number) >= at).unwrap_or(self.packets)
    }

    /// When the last one does.
    #[must_use]
    pub fn end(&self) -> Nanos {
        self.due(self.packets.saturating_sub(1))
    }
}
