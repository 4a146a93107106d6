//! A received packet, parsed, and its outcome.

use crate::config::report::{DropReason, PacketCounters};
use crate::env::egress::KeySerial;
use crate::packet::collected::PacketView;
use recoded_wire::coded::CodedHeader;
use recoded_wire::frames::Span;
use recoded_wire::header::Header;
use recoded_wire::stream::StreamPacket;

/// A generation number this far behind the newest is a source that restarted, not a straggler.
pub(crate) const RESTART_DISTANCE: u32 = 1 << 16;

/// A packet may be this many generations ahead of the newest one; beyond that, further packets must
/// confirm it. Bursts that lose more whole generations are rare, and cost two packets that are
/// passed on as they came.
pub(crate) const AHEAD_MAX: u32 = 4;

/// A received data packet, parsed, and the span of its UDP payload.
#[derive(Debug)]
pub(crate) struct Arrival<'a> {
    pub payload: Span,
    /// DSCP and ECN bits of its IP header.
    pub traffic_class: u8,
    pub data: Data<'a>,
    /// The key that verified its symbol, if one did.
    pub key: Option<KeySerial>,
}

/// Contents of a data packet.
#[derive(Debug)]
pub(crate) enum Data<'a> {
    /// A symbol of a generation or of a batch.
    Coded { header: CodedHeader, view: PacketView<'a> },
    /// A packet of a stream.
    Stream(StreamPacket),
}

impl Data<'_> {
    /// Whether it is a keepalive of a flow that is not a stream.
    pub(crate) fn is_keepalive(&self) -> bool {
        matches!(self, Data::Stream(packet) if packet.header.is_of_other_code())
    }

    /// Whether each hop of its flow recovers its own losses.
    pub(crate) fn is_mended(&self) -> bool {
        match self {
            Data::Coded { header, .. } => header.is_mended(),
            Data::Stream(_) => true,
        }
    }

    /// Header common to all packets.
    pub(crate) fn header(&self) -> &Header {
        match self {
            Data::Coded { header, .. } => &header.common,
            Data::Stream(packet) => &packet.header.common,
        }
    }
}

/// Outcome of a received packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Forwarded,
    Consumed,
    /// Handed over to the worker that has its shard.
    HandedOver,
    Dropped(DropReason),
    /// None yet: it waits for its stage to open.
    Waiting,
}

impl Fate {
    /// Counts the outcome of a packet.
    pub(crate) fn count(self, packets: &mut PacketCounters) {
        match self {
            Fate::Forwarded => packets.forwarded += 1,
            Fate::Consumed => packets.consumed += 1,
            Fate::HandedOver => packets.handed_over += 1,
            Fate::Dropped(reason) => packets.dropped[reason as usize] += 1,
            Fate::Waiting => {}
        }
    }
}
