//! The state that a role works with during one call.

use crate::config::params::{FlowParams, Redundancy, ShardId};
use crate::config::report::FlowCounters;
use crate::edge::class::{self, Marks};
use crate::env::egress::Egress;
use crate::env::io::Io;
use crate::hop::receive::Upstream;
use crate::hop::send::mender::HopContext;
use crate::hop::send::next_hops::NextHops;
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::{Flags, Header, PacketType};

/// A flow, and the outside world.
pub(crate) struct Context<'a, 'io, F, E> {
    pub shard: ShardId,
    pub params: &'a FlowParams,
    pub counters: &'a mut FlowCounters,
    /// The neighbour that the flow is received from.
    pub upstream: &'a mut Upstream,
    /// The next hops that it is sent to.
    pub hops: &'a mut NextHops,
    /// Congestion marks to be propagated.
    pub marks: &'a mut Marks,
    pub io: &'a mut Io<'io, F, E>,
}

impl<F: Frames, E: Egress> Context<'_, '_, F, E> {
    /// The class of a packet to send, with a pending congestion mark if there is one.
    fn marked(&mut self, traffic_class: u8) -> u8 {
        if self.marks.take(traffic_class) { class::marked(traffic_class) } else { traffic_class }
    }

    /// Sends a packet, whose header is written, to the next hop at `place`. Returns its link
    /// sequence number.
    pub(crate) fn send_to(&mut self, place: usize, payload: Span, traffic_class: u8) -> u32 {
        let class = self.marked(traffic_class);
        self.hops.send_to(place, self.io.frames, self.io.egress, payload, class)
    }

    /// Sends a packet, whose header is written, to the next hops, with a pending congestion mark if
    /// there is one.
    pub(crate) fn send(&mut self, payload: Span, traffic_class: u8) {
        let class = self.marked(traffic_class);
        self.counters.send_failed += self.hops.send(self.io.frames, self.io.egress, payload, class);
    }
}

impl<'io, F, E> Context<'_, 'io, F, E> {
    /// The part of it that keepalives of this epoch need, after `hop_index` hops.
    pub(crate) fn hop(&mut self, epoch: u8, hop_index: u8) -> HopContext<'_, 'io, F, E> {
        let Self { shard, hops, counters, io, .. } = self;
        HopContext { shard: *shard, epoch, hop_index, hops, counters, io }
    }

    /// Whether a source requests that the hops of a flow recover their own losses. It does not if
    /// the operator fixed the number of packets, if there is no return path, or with several next
    /// hops, since each lacks other packets.
    pub(crate) fn asks_to_mend(&self) -> bool {
        let params = self.params;
        params.repair && params.redundancy == Redundancy::Auto && self.hops.len() == 1
    }

    /// The header of a packet formed here; its link sequence number is set per next hop.
    pub(crate) fn header(&self, packet_type: PacketType, flags: Flags, epoch: u8) -> Header {
        let ShardId { flow, shard } = self.shard;
        Header { packet_type, flags, epoch, shard, flow, link_sequence: 0, hop_index: 0 }
    }
}
