//! Arrivals of a shard at a relay or sink: its rank histogram, and its parameters as of the newest
//! packet.

use crate::base::rank::RankHistogram;
use crate::config::params::{FlowCode, Nanos, StreamParams};
use crate::config::report::FlowReport;
use crate::packet::collected::PacketView;
use crate::packet::freshness::Freshness;
use recoded_gf::FieldOrder;
use recoded_wire::coded::{Block, CodedHeader};
use recoded_wire::stream::StreamPacket;

/// Consecutive out-of-range packets required before resynchronising: a single one may be forged, or
/// a straggler of a source that has since restarted.
const OUT_OF_RANGE_PACKETS: u8 = 3;

/// Parameters that the newest packet announced.
#[derive(Copy, Clone, Debug)]
struct Newest {
    epoch: u8,
    field: FieldOrder,
    /// Size of its generation or batch; 1 for a stream.
    size: usize,
    symbol_bytes: usize,
    /// The code, if it is a stream.
    code: Option<FlowCode>,
}

/// The receiving side of a flow.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    pub ranks: RankHistogram,
    /// The newest of the symbols that were verified.
    pub freshness: Freshness,
    /// The earliest generation of the consecutive out-of-range packets, and their number.
    out_of_range: Option<(u32, u8)>,
    /// When the last packet in range arrived.
    in_range_at: Nanos,
    newest: Option<Newest>,
    /// Block word of the newest packet, if it belongs to a batch.
    block: Option<Block>,
    /// Plan of the newest packet that was not a repair.
    planned: u16,
}

impl Incoming {
    /// Notes an arrival.
    pub(crate) fn arrived(&mut self, header: &CodedHeader, view: &PacketView) {
        self.newest = Some(Newest {
            epoch: header.common.epoch,
            field: view.field,
            size: view.size,
            symbol_bytes: usize::from(view.symbol_bytes),
            code: None,
        });
        self.block = view.block;
        if !header.is_repair() {
            self.planned = header.planned;
        }
    }

    /// Notes a packet in range: of a generation that is held, or could be.
    pub(crate) fn note_in_range(&mut self, now: Nanos) {
        self.out_of_range = None;
        self.in_range_at = now;
    }

    /// Notes a packet out of range; those less than `distance` apart belong together. When enough
    /// of them came in a row, and nothing in range for as long as `silence`, the source restarted
    /// or many of its packets were lost: returns the earliest of these generations.
    pub(crate) fn note_out_of_range(
        &mut self,
        generation: u32,
        distance: u32,
        now: Nanos,
        silence: Nanos,
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

    /// Notes an arrival of a stream.
    pub(crate) fn arrived_stream(&mut self, packet: &StreamPacket) {
        let (header, symbol) = (packet.header, packet.symbol());
        let before = self.newest.map_or(0, |newest| newest.symbol_bytes);
        self.newest = Some(Newest {
            epoch: header.common.epoch,
            field: FieldOrder::TwoFiftySix,
            size: 1,
            symbol_bytes: symbol.map_or(0, |symbol| usize::from(symbol.bytes)).max(before),
            code: Some(FlowCode::Stream(StreamParams::announced(&header))),
        });
        self.block = None;
    }

    /// Size, field and block word of batches, if the flow sends batches.
    pub(crate) fn batch(&self) -> Option<(usize, FieldOrder, Block)> {
        let Newest { field, size, .. } = self.newest?;
        Some((self.ranks.nominal().max(size), field, self.block?))
    }

    pub(crate) fn fill(&self, report: &mut FlowReport) {
        if let Some(Newest { epoch, field, size, symbol_bytes, code }) = self.newest {
            report.code = code.unwrap_or_else(|| FlowCode::of_block(self.block.as_ref()));
            report.field = field;
            report.epoch = epoch;
            report.symbol_bytes = symbol_bytes;
            report.generation_size = self.ranks.nominal().max(size);
            report.planned = usize::from(self.planned);
            report.counters.rank_histogram = self.ranks.counts().to_vec();
        }
    }
}
