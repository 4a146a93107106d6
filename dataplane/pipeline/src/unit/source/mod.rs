//! Source edge: IP packets in, coded packets out. The common interface of all sources, and their
//! knowledge of the path and of the sink.

pub(crate) mod path;

pub(crate) mod remote;

use crate::config::params::{FlowParams, PeerId};
use crate::edge::sealed::seal;
use crate::env::egress::Egress;
use crate::unit::context::Context;
use crate::unit::role::Lifecycle;
use recoded_wire::feedback::FeedbackHeader;
use recoded_wire::frames::{Frames, Span};

/// An IP packet from a tunnel.
#[derive(Copy, Clone)]
pub(crate) struct Inbound<'a> {
    /// The packet as received.
    pub packet: &'a [u8],
    /// Its representation in symbols: itself, or its sealed form.
    pub carried: &'a [u8],
}

/// The source of a flow.
pub(crate) trait SourceCode: Lifecycle {
    /// Adopts parameters; `cx` has the previous ones. Open units end under the previous parameters,
    /// and a new epoch begins if packets will look different.
    fn apply(&mut self, new: &FlowParams, cx: &mut Context<'_, '_, impl Frames, impl Egress>);

    /// Epoch of its packets. All packets of one epoch have the same code, field and sizes.
    fn epoch(&self) -> u8;

    /// Continues with another epoch.
    fn begin_epoch(&mut self, epoch: u8);

    /// The next number that tags of its units are bound to.
    fn next_number(&self) -> u32;

    /// Begins with this number, before it has formed any unit.
    fn begin_at(&mut self, number: u32);

    /// Whether it accepts a packet that takes the given number of bytes in symbols. Counts a
    /// refused packet.
    fn takes(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        carried_bytes: usize,
    ) -> bool;

    /// Takes one IP packet, after [`SourceCode::takes`] accepted it.
    fn ingress(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>, inbound: Inbound<'_>);

    /// Reads a feedback packet from a neighbour.
    fn receive_feedback(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        peer: PeerId,
        payload: Span,
        header: FeedbackHeader,
    );
}

/// Passes an IP packet to a source, sealed if its flow is; only packets that the source accepts are
/// encrypted.
pub(crate) fn take_in<F: Frames, E: Egress>(
    source: &mut impl SourceCode,
    cx: &mut Context<'_, '_, F, E>,
    packet: &[u8],
) {
    let bytes = packet.len() + cx.params.sealing_bytes();
    if packet.is_empty() {
        cx.counters.ingress_dropped += 1;
        return;
    }
    if !source.takes(cx, bytes) {
        return;
    }
    if cx.params.tagged && cx.io.tag_key(cx.shard).is_none() {
        // Its symbols would have no tags, and nodes would blame the relays.
        cx.counters.seal_failed += 1;
        return;
    }
    if !cx.params.sealed {
        return source.ingress(cx, Inbound { packet, carried: packet });
    }
    let mut place = cx.io.combiner.take_envelope();
    let carried = &mut place[..bytes];
    match seal(cx.io.egress, cx.shard, packet, carried) {
        Ok(()) => source.ingress(cx, Inbound { packet, carried }),
        Err(_) => cx.counters.seal_failed += 1,
    }
    cx.io.combiner.put_back(place);
}
