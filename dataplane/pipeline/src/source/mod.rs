//! Source edge: IP packets in, coded packets out. What a source is, whatever its code, and what
//! sources know of the path and of their sink.

pub(crate) mod path;

pub(crate) mod remote;

use crate::context::Context;
use crate::edge::sealed::seal;
use crate::egress::Egress;
use crate::params::{FlowParams, PeerId};
use crate::plan::Plan;
use crate::role::Lifecycle;
use recoded_wire::feedback::FeedbackHeader;
use recoded_wire::frames::{Frames, Span};

/// An IP packet from a tunnel.
#[derive(Copy, Clone)]
pub(crate) struct Inbound<'a> {
    /// As it came.
    pub packet: &'a [u8],
    /// What symbols carry of it: itself, or what it was sealed into.
    pub carried: &'a [u8],
}

/// The source of a flow.
pub(crate) trait SourceCode: Lifecycle {
    /// Adopts parameters; `cx` has those in force until now. What is open ends under these, and a
    /// new epoch begins when packets will look different.
    fn apply(&mut self, new: &FlowParams, cx: &mut Context<'_, '_, impl Frames, impl Egress>);

    /// Epoch of what it sends. All packets of one have the same code, field and sizes.
    fn epoch(&self) -> u8;

    /// Goes on with another epoch.
    fn begin_epoch(&mut self, epoch: u8);

    /// Whether it takes a packet of which symbols carry so many bytes. Counts one that it refuses.
    fn takes(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        carried_bytes: usize,
    ) -> bool;

    /// Takes one IP packet, after [`SourceCode::takes`] said so.
    fn ingress(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>, inbound: Inbound<'_>);

    /// Reads a feedback packet: which neighbour it is from, and its span.
    fn receive_feedback(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        from: (PeerId, Span),
        header: FeedbackHeader,
    );

    /// Takes over a plan that it asked for.
    fn planned(&mut self, plan: Plan);
}

/// Gives a source an IP packet, sealed if its flow is; encrypted is only what it can take.
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
