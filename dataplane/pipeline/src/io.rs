//! What every role works with during one call, and what it answers.

use crate::collected::PacketView;
use crate::combine::Combiner;
use crate::edge::class::{self, Marks};
use crate::egress::Egress;
use crate::params::{FlowParams, Nanos, Redundancy, ShardId};
use crate::peer::Upstream;
use crate::peer::next_hops::NextHops;
use crate::report::{DropReason, FlowCounters, PacketCounters};
use recoded_wire::coded::CodedHeader;
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::{Flags, Header, PacketType};
use recoded_wire::stream::StreamPacket;
use recoded_wire::window::WindowPacket;

/// A generation number this far behind the newest is a source that restarted, not a straggler.
pub(crate) const RESTART_DISTANCE: u32 = 1 << 16;

/// A packet may be this many generations ahead of the newest one; beyond, others must confirm it.
/// Bursts that lose more whole generations are rare, and cost two packets that are passed on as
/// they came.
pub(crate) const AHEAD_MAX: u32 = 4;

/// The outside world during one call: memory, outputs, randomness and the time.
pub(crate) struct Io<'a, F, E> {
    pub frames: &'a mut F,
    pub egress: &'a mut E,
    pub combiner: &'a mut Combiner,
    pub now: Nanos,
}

/// What a role works with during one call: its flow, and the outside world.
pub(crate) struct Context<'a, 'io, F, E> {
    pub shard: ShardId,
    pub params: &'a FlowParams,
    pub counters: &'a mut FlowCounters,
    /// The neighbour that it is received from.
    pub upstream: &'a mut Upstream,
    /// Those that it is sent to.
    pub hops: &'a mut NextHops,
    /// Congestion marks to be passed on.
    pub marks: &'a mut Marks,
    pub io: &'a mut Io<'io, F, E>,
}

impl<F: Frames, E: Egress> Context<'_, '_, F, E> {
    /// The class of a packet that is sent, with a congestion mark that is to be passed on.
    fn marked(&mut self, traffic_class: u8) -> u8 {
        if self.marks.take(traffic_class) { class::marked(traffic_class) } else { traffic_class }
    }

    /// Sends a packet, whose header is written, to the next hop at `place`. Returns its link
    /// sequence number.
    pub(crate) fn send_to(&mut self, place: usize, payload: Span, traffic_class: u8) -> u32 {
        let class = self.marked(traffic_class);
        self.hops.send_to(place, self.io.frames, self.io.egress, (payload, class))
    }

    /// Sends a packet, whose header is written, to the next hops, and with it a congestion mark
    /// that is to be passed on.
    pub(crate) fn send(&mut self, payload: Span, traffic_class: u8) {
        let class = self.marked(traffic_class);
        self.counters.send_failed +=
            self.hops.send(self.io.frames, self.io.egress, (payload, class));
    }
}

impl<F, E> Context<'_, '_, F, E> {
    /// Whether a source tells the hops of a flow to make up for their own losses: not where an
    /// operator says how many packets leave, or that there is no way back; and of several next hops
    /// each lacks something else.
    pub(crate) fn asks_to_mend(&self) -> bool {
        let params = self.params;
        params.repair && params.redundancy == Redundancy::Auto && self.hops.len() == 1
    }

    /// The header of a packet formed here; its link sequence number is that of the hop it goes to.
    pub(crate) fn header(&self, packet_type: PacketType, flags: Flags, epoch: u8) -> Header {
        let ShardId { flow, shard } = self.shard;
        Header { packet_type, flags, epoch, shard, flow, link_sequence: 0, hop_index: 0 }
    }
}

/// A received data packet, parsed, and the span of its UDP payload.
#[derive(Debug)]
pub(crate) struct Arrival<'a> {
    pub payload: Span,
    /// DSCP and ECN bits that it came with.
    pub traffic_class: u8,
    pub data: Data<'a>,
}

/// What a data packet carries.
#[derive(Debug)]
pub(crate) enum Data<'a> {
    /// A symbol of a generation or of a batch.
    Coded { header: CodedHeader, view: PacketView<'a> },
    /// A packet of a window flow.
    Window(WindowPacket),
    /// A packet of a stream.
    Stream(StreamPacket),
}

impl Data<'_> {
    /// Whether it is a keepalive of a flow that is no stream.
    pub(crate) fn is_keepalive(&self) -> bool {
        matches!(self, Data::Stream(packet) if packet.header.is_of_other_code())
    }

    /// Whether the hops of its flow make up for their losses.
    pub(crate) fn is_mended(&self) -> bool {
        match self {
            Data::Coded { header, .. } => header.is_mended(),
            Data::Window(packet) => packet.is_mended(),
            Data::Stream(_) => true,
        }
    }

    /// What every packet says.
    pub(crate) fn header(&self) -> &Header {
        match self {
            Data::Coded { header, .. } => &header.common,
            Data::Window(packet) => &packet.header,
            Data::Stream(packet) => &packet.header.common,
        }
    }
}

/// What became of a received packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Forwarded,
    Consumed,
    /// Another worker has its shard, and the packet.
    HandedOver,
    Dropped(DropReason),
    /// None yet: it waits for its stage.
    Waiting,
}

impl Fate {
    /// Counts the fate of a packet.
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

/// The earlier of two deadlines.
pub(crate) fn earlier(a: Option<Nanos>, b: Option<Nanos>) -> Option<Nanos> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
