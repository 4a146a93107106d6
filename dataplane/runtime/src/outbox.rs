//! Where a worker's pipeline puts its results: coded packets wait here until the burst is done and
//! then get headers and go to their sockets; IP packets go to their tunnel at once.
//!
//! Packets wait because the pipeline holds the frames while it speaks. A waiting packet owns one
//! reference to its frame, and there are never more of them than frames, so the queue never grows
//! after it was made.

use crate::accelerator::Accelerator;
use crate::encap::{ETHERNET_BYTES, header_bytes};
use crate::neighbours::NextHops;
use crate::pacing::Pacer;
use crate::report::{LinkCounters, TunnelCounters};
use crate::shared::LinkNow;
use crate::topology::{HopConfig, Topology};
use crate::tunnel::Tunnel;
use recoded_pipeline::egress::{Egress, Product, ProductInputs, Ticket};
use recoded_pipeline::params::{HopId, Nanos, TunnelId};
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::{Header, PacketType};
use recoded_xsk::{Socket, Umem};
use std::sync::Arc;

/// Results of one worker's pipeline, on their way out.
pub(crate) struct Outbox {
    waiting: Vec<Outgoing>,
    hops: Vec<Hop>,
    /// MTUs of the links, and whether they are there; replaced when one changes.
    pub(crate) links_now: Arc<Vec<LinkNow>>,
    pacers: Arc<[Pacer]>,
    tunnels: Arc<[Tunnel]>,
    /// Headers of the hops, replaced when a neighbour changes.
    pub(crate) next_hops: Arc<NextHops>,
    /// Time of the current burst.
    pub(crate) now: Nanos,
    pub(crate) links: Vec<LinkCounters>,
    pub(crate) tunnel_counters: Vec<TunnelCounters>,
    /// Who may solve generations.
    pub(crate) accelerator: Option<Accelerator>,
}

struct Outgoing {
    hop: HopId,
    span: Span,
    source_port: u16,
    /// Whether its link has budget for it.
    is_paid: bool,
}

struct Hop {
    link: usize,
    header_bytes: usize,
}

impl Outbox {
    pub(crate) fn new(
        topology: &Topology,
        links_now: Arc<Vec<LinkNow>>,
        pacers: Arc<[Pacer]>,
        tunnels: Arc<[Tunnel]>,
        next_hops: Arc<NextHops>,
        accelerator: Option<Accelerator>,
    ) -> Outbox {
        let hop = |hop: &HopConfig| Hop { link: hop.link, header_bytes: header_bytes(hop.address) };
        Outbox {
            waiting: Vec::with_capacity(topology.frames_per_worker as usize),
            hops: topology.hops.iter().map(hop).collect(),
            links_now,
            pacers,
            tunnel_counters: vec![TunnelCounters::default(); tunnels.len()],
            tunnels,
            next_hops,
            now: 0,
            links: vec![LinkCounters::default(); topology.links.len()],
            accelerator,
        }
    }

    /// Packets that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Writes headers and hands every waiting packet to the socket of its link.
    pub(crate) fn flush(&mut self, umem: &mut Umem, sockets: &mut [Option<Socket>]) {
        let mut waiting = std::mem::take(&mut self.waiting);
        for packet in waiting.drain(..) {
            self.send(packet, umem, sockets);
        }
        self.waiting = waiting;
    }

    fn send(&mut self, packet: Outgoing, umem: &mut Umem, sockets: &mut [Option<Socket>]) {
        let Outgoing { hop, span, source_port, is_paid } = packet;
        let index = usize::from(hop.0);
        let link = self.hops[index].link;
        let counters = &mut self.links[link];
        let LinkNow { mtu, is_present } = self.links_now[link];
        let Some(socket) = sockets[link].as_mut().filter(|_| is_present) else {
            counters.tx_link_gone += 1;
            umem.release(span.frame);
            return;
        };
        let Some(encap) = &self.next_hops[index] else {
            counters.tx_no_neighbour += 1;
            umem.release(span.frame);
            return;
        };
        // Reports and requests are few, and without them what is lost stays lost.
        if !is_paid && !is_feedback(umem.bytes(span)) {
            counters.tx_over_rate += 1;
            umem.release(span.frame);
            return;
        }
        let header = encap.header_bytes();
        let bytes = header + usize::from(span.len);
        if bytes > ETHERNET_BYTES + mtu {
            counters.tx_oversize += 1;
            umem.release(span.frame);
            return;
        }
        // `HEADROOM_BYTES` in front of every span exceed the longest headers; the sum fits u16
        // because a span lies within its frame.
        let offset = span.offset - header as u16;
        let len = bytes as u16;
        encap.write(umem.bytes_mut(Span { frame: span.frame, offset, len }), source_port);
        if socket.transmit(umem, span.frame, offset, len) {
            counters.tx_packets += 1;
            counters.tx_bytes += bytes as u64;
        } else {
            counters.tx_full += 1;
        }
    }
}

fn is_feedback(payload: &[u8]) -> bool {
    Header::parse(payload).is_ok_and(|header| header.packet_type == PacketType::Feedback)
}

impl Egress for Outbox {
    #[inline]
    fn transmit(&mut self, hop: HopId, span: Span, source_port: u16) {
        let index = usize::from(hop.0);
        let Hop { link, header_bytes } = self.hops[index];
        let is_paid = self.next_hops[index].is_none()
            || self.pacers[link].spend(header_bytes + usize::from(span.len), self.now);
        self.waiting.push(Outgoing { hop, span, source_port, is_paid });
    }

    #[inline]
    fn deliver(&mut self, tunnel: TunnelId, packet: &[u8]) {
        let index = usize::from(tunnel.0);
        let counters = &mut self.tunnel_counters[index];
        if self.tunnels[index].write(packet) {
            counters.written_packets += 1;
            counters.written_bytes += packet.len() as u64;
        } else {
            counters.write_failed += 1;
        }
    }

    fn offload(
        &mut self,
        ticket: Ticket,
        product: Product,
        fill: impl FnOnce(&mut dyn ProductInputs),
    ) -> bool {
        self.accelerator
            .as_mut()
            .is_some_and(|accelerator| accelerator.offer(ticket, product, fill))
    }
}
