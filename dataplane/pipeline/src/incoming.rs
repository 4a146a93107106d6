//! What a relay and a sink know of a flow by what arrives: the link it comes over, its rank
//! histogram, its parameters as of the newest packet.

use crate::batch::PacketView;
use crate::params::Nanos;
use crate::peer::Peer;
use crate::rank::RankHistogram;
use crate::report::{DropReason, FlowReport};
use recoded_gf::FieldOrder;
use recoded_wire::header::{Block, Header};
use recoded_wire::window::WindowPacket;

/// Consecutive out-of-range packets required before resynchronising: one alone may be a straggler
/// of a source that restarted since, or forged.
const OUT_OF_RANGE_PACKETS: u8 = 3;

/// The receiving side of a flow.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    pub peer: Peer,
    pub ranks: RankHistogram,
    /// The earliest generation of the consecutive out-of-range packets, and their number.
    out_of_range: Option<(u32, u8)>,
    /// When the last packet in range arrived.
    in_range_at: Nanos,
    newest: Option<(FieldOrder, Header, u16)>,
    /// Block word of the newest packet, if it belongs to a batch.
    block: Option<Block>,
    /// Plan of the newest packet that was not a repair.
    planned: u16,
}

impl Incoming {
    /// Notes an arrival.
    ///
    /// # Errors
    /// The reason why the packet must be dropped.
    pub(crate) fn arrived(
        &mut self,
        header: &Header,
        view: &PacketView,
        now: Nanos,
    ) -> Result<(), DropReason> {
        self.peer.arrived(header, view.block.as_ref(), now)?;
        self.newest = Some((view.field, *header, view.symbol_bytes));
        self.block = view.block;
        if header.planned > 0 {
            self.planned = header.planned;
        }
        Ok(())
    }

    /// Notes a packet in range: of a generation that is held, or could be.
    pub(crate) fn note_in_range(&mut self, now: Nanos) {
        self.out_of_range = None;
        self.in_range_at = now;
    }

    /// Notes a packet out of range; those less than `distance` apart belong together. When enough
    /// of them came in a row, and nothing in range for as long as `silence`, the source restarted
    /// or much of what it sent was lost: returns the earliest of these generations.
    pub(crate) fn note_out_of_range(
        &mut self,
        generation: u32,
        distance: u32,
        (now, silence): (Nanos, Nanos),
    ) -> Option<u32> {
        let (first, seen) = match self.out_of_range {
            Some((first, seen)) if generation.wrapping_sub(first) < distance => (first, seen),
            Some((first, seen)) if first.wrapping_sub(generation) < distance => (generation, seen),
            _ => (generation, 0),
        };
        let seen = seen.saturating_add(1);
        let follows =
            seen >= OUT_OF_RANGE_PACKETS && now >= self.in_range_at.saturating_add(silence);
        self.out_of_range = (!follows).then_some((first, seen));
        follows.then_some(first)
    }

    /// Notes an arrival of a window flow.
    ///
    /// # Errors
    /// As [`Incoming::arrived`].
    pub(crate) fn arrived_window(
        &mut self,
        packet: &WindowPacket,
        now: Nanos,
    ) -> Result<(), DropReason> {
        self.peer.arrived(&packet.header, None, now)?;
        // Two bits name a field.
        let field = FieldOrder::from_code(packet.header.flags.field_code());
        let newest = |field| (field, packet.header, packet.symbol_bytes);
        self.newest = field.map(newest);
        self.block = None;
        Ok(())
    }

    /// Size, field and block word of batches, if that is what arrives.
    pub(crate) fn batch(&self) -> Option<(usize, FieldOrder, Block)> {
        let (field, header, _) = self.newest?;
        Some((self.ranks.nominal().max(usize::from(header.size)), field, self.block?))
    }

    /// Hop index of what arrives: links travelled before the one it came over.
    pub(crate) fn hop_index(&self) -> u8 {
        self.newest.map_or(0, |(_, header, _)| header.hop_index)
    }

    pub(crate) fn fill(&self, report: &mut FlowReport) {
        report.hops = self.peer.loss.estimate().into_iter().collect();
        if let Some((field, header, symbol_bytes)) = self.newest {
            report.field = field;
            report.epoch = header.epoch;
            report.symbol_bytes = usize::from(symbol_bytes);
            report.generation_size = self.ranks.nominal().max(usize::from(header.size));
            report.planned = usize::from(self.planned);
        }
    }
}
