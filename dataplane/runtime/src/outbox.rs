//! The output of a worker's pipeline: coded packets wait here until the burst is done and then get
//! headers and go to their sockets; consecutive IP packets are merged and then written to their
//! tunnel.
//!
//! Packets wait because the pipeline holds the frames during its call. A waiting packet owns one
//! reference to its frame, and there are never more of them than frames, so the queue never grows
//! after its creation.

use crate::accelerator::Accelerator;
use crate::encap::NextHops;
use crate::encap::{ETHERNET_BYTES, header_bytes};
use crate::guard::Guard;
use crate::handover::Owners;
use crate::merge::{Merger, Write};
use crate::opening::Counter;
use crate::pacing::Pacer;
use crate::planning::Desk;
use crate::port::{Headers, Port};
use crate::report::{LinkCounters, TunnelCounters};
use crate::segmentation::Segmentation;
use crate::shared::{LinkNow, Shared};
use crate::topology::{HopConfig, Topology};
use crate::tunnel::{Offload, Tunnel, Tunnels};
use recoded_pipeline::egress::{
    Answer, ENVELOPE_BYTES, Egress, Formed, HandOver, KeySerial, Keys, Origin, Outer, Product,
    ProductInputs, ReportFate, TaggedUnit, Ticket, Unsealed, Untagged,
};
use recoded_pipeline::open::{OpenRequest, Rent};
use recoded_pipeline::params::{Nanos, PeerId, Role, ShardId, Share, Snapshot, TunnelId};
use recoded_pipeline::plan::PlanRequest;
use recoded_pipeline::segmentation::Comparison;
use recoded_secure::Refused;
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::{Header, PacketType};
use recoded_xsk::Umem;
use std::sync::Arc;

/// Results of one worker's pipeline, waiting to leave.
pub(crate) struct Outbox {
    waiting: Vec<Outgoing>,
    hops: Vec<PeerLink>,
    /// MTUs of the links, and whether they are present; replaced when one changes.
    pub(crate) links_now: Arc<Vec<LinkNow>>,
    pacers: Arc<[Pacer]>,
    outlets: Vec<Outlet>,
    /// While packets are being merged: when they must be written.
    merging_until: Option<Nanos>,
    /// Headers of the hops, replaced when a neighbour changes.
    pub(crate) next_hops: Arc<NextHops>,
    /// Time of the current burst.
    pub(crate) now: Nanos,
    pub(crate) links: Vec<LinkCounters>,
    /// By link.
    pub(crate) segmentation: Vec<Segmentation>,
    pub(crate) tunnel_counters: Vec<TunnelCounters>,
    /// Solves generations.
    pub(crate) accelerator: Option<Accelerator>,
    /// Makes plans.
    pub(crate) desk: Desk,
    /// Allocates shards.
    pub(crate) counter: Counter,
    /// The worker that has each shard.
    pub(crate) whereabouts: Whereabouts,
    /// Tags and envelopes.
    pub(crate) guard: Guard,
    /// Whether a test requests a panic at the next packet.
    pub(crate) must_panic: bool,
}

/// A worker's connections to the threads that work for it.
pub(crate) struct Services {
    /// Solves generations, if there is an accelerator.
    pub(crate) port: Option<recoded_offload::Port>,
    /// Makes plans.
    pub(crate) desk: Desk,
    /// Allocates shards.
    pub(crate) counter: Counter,
    /// Tags and envelopes.
    pub(crate) guard: Guard,
}

/// The worker that has each shard.
pub(crate) struct Whereabouts {
    pub(crate) shared: Arc<Shared>,
    pub(crate) share: Share,
    /// Of relays and sinks.
    pub(crate) owners: Arc<Owners>,
    /// Sources, with their shards.
    sources: Vec<(u32, u8)>,
}

impl Whereabouts {
    pub(crate) fn new(shared: Arc<Shared>, share: Share) -> Whereabouts {
        Whereabouts { shared, share, owners: Arc::default(), sources: Vec::new() }
    }

    /// Adopts a snapshot.
    pub(crate) fn adopt(&mut self, snapshot: &Snapshot) {
        let is_source = |role: &Role| matches!(role, Role::Source { .. });
        let sources = snapshot.flows.iter().filter(|flow| is_source(&flow.role));
        self.sources = sources.map(|flow| (flow.id, flow.shards)).collect();
    }

    /// Another worker that has the shard.
    fn other(&self, shard: ShardId) -> Option<usize> {
        let source = self.sources.iter().find(|(flow, _)| *flow == shard.flow);
        let owner = match source {
            Some((_, shards)) => (shard.shard < *shards).then(|| self.share.owner(shard.shard)),
            None => self.owners.get(&shard).copied(),
        };
        owner.filter(|owner| *owner != self.share.worker)
    }
}

struct Outgoing {
    hop: PeerId,
    span: Span,
    source_port: u16,
    /// Whether its link has budget for it.
    is_paid: bool,
    /// DSCP and ECN bits of the IP header.
    traffic_class: u8,
}

/// The writing side of a tunnel: this worker's queue, and the packets waiting for it.
struct Outlet {
    tunnel: Arc<Tunnel>,
    queue: usize,
    /// Waiting packets, if Linux accepts merged ones.
    merger: Option<Merger>,
}

struct PeerLink {
    link: usize,
    header_bytes: usize,
}

impl Outbox {
    pub(crate) fn new(
        topology: &Topology,
        shared: &Arc<Shared>,
        pacers: Arc<[Pacer]>,
        share: Share,
        services: Services,
    ) -> Outbox {
        let hop =
            |hop: &HopConfig| PeerLink { link: hop.link, header_bytes: header_bytes(hop.address) };
        let outlet = |tunnel: &Arc<Tunnel>| Outlet::new(tunnel.clone(), share.worker);
        let (tunnels, Services { port, desk, counter, guard }) = (shared.tunnels.get(), services);
        Outbox {
            waiting: Vec::with_capacity(topology.frames_per_worker as usize),
            hops: topology.hops.iter().map(hop).collect(),
            links_now: shared.links.get(),
            pacers,
            tunnel_counters: vec![TunnelCounters::default(); tunnels.len()],
            outlets: tunnels.iter().map(outlet).collect(),
            merging_until: None,
            next_hops: shared.next_hops.get(),
            now: 0,
            links: vec![LinkCounters::default(); topology.links.len()],
            segmentation: vec![Segmentation::default(); topology.links.len()],
            accelerator: port.map(Accelerator::new),
            desk,
            counter,
            whereabouts: Whereabouts::new(shared.clone(), share),
            guard,
            must_panic: false,
        }
    }

    /// Drops all waiting packets; the worker takes back its `frames`. Counters and the ends of
    /// queues to other threads stay.
    pub(crate) fn renew(&mut self, frames: u32) {
        self.waiting = Vec::with_capacity(frames as usize);
        self.merging_until = None;
        for outlet in &mut self.outlets {
            *outlet = Outlet::new(outlet.tunnel.clone(), outlet.queue);
        }
        self.guard = self.guard.renewed();
        self.accelerator.iter_mut().for_each(Accelerator::forget);
    }

    /// Panics if a test requested it. Builds without debug assertions never do.
    #[inline]
    pub(crate) fn panic_if_wanted(&mut self) {
        if cfg!(debug_assertions) {
            assert!(!std::mem::take(&mut self.must_panic), "a test asked for this");
        }
    }

    /// Waiting packets.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Writes headers and passes every waiting packet to the socket of its link.
    pub(crate) fn flush(&mut self, umem: &mut Umem, ports: &mut [Option<Port>]) {
        let mut waiting = std::mem::take(&mut self.waiting);
        for packet in waiting.drain(..) {
            self.send(packet, umem, ports);
        }
        self.waiting = waiting;
    }

    /// Writes delivered packets to the tunnels at the end of a round, but merges flows that send
    /// without pause for a little longer.
    #[inline]
    pub(crate) fn settle_tunnels(&mut self) {
        if self.merging_until.is_some_and(|until| until <= self.now) {
            return self.flush_tunnels();
        }
        let mut is_merging = false;
        for (outlet, counters) in self.outlets.iter_mut().zip(&mut self.tunnel_counters) {
            let Outlet { tunnel, queue, merger } = outlet;
            if let Some(merger) = merger {
                is_merging |= merger.settle(&mut Writer { tunnel, queue: *queue, counters });
            }
        }
        let until = self.now + MERGE_NANOS;
        self.merging_until = is_merging.then(|| self.merging_until.unwrap_or(until));
    }

    /// Writes all delivered packets to the tunnels.
    pub(crate) fn flush_tunnels(&mut self) {
        self.merging_until = None;
        for (outlet, counters) in self.outlets.iter_mut().zip(&mut self.tunnel_counters) {
            let Outlet { tunnel, queue, merger } = outlet;
            if let Some(merger) = merger {
                merger.flush(&mut Writer { tunnel, queue: *queue, counters });
            }
        }
    }

    /// Adopts recreated tunnels.
    pub(crate) fn set_tunnels(&mut self, tunnels: &Tunnels) {
        self.flush_tunnels();
        for (outlet, tunnel) in self.outlets.iter_mut().zip(tunnels) {
            if !Arc::ptr_eq(&outlet.tunnel, tunnel) {
                *outlet = Outlet::new(tunnel.clone(), outlet.queue);
            }
        }
    }

    fn send(&mut self, packet: Outgoing, umem: &mut Umem, ports: &mut [Option<Port>]) {
        let Outgoing { hop, span, source_port, is_paid, traffic_class } = packet;
        let index = usize::from(hop.0);
        let link = self.hops[index].link;
        let counters = &mut self.links[link];
        let LinkNow { mtu, is_present } = self.links_now[link];
        let Some(port) = ports[link].as_mut().filter(|_| is_present) else {
            counters.tx_link_gone += 1;
            umem.release(span.frame);
            return;
        };
        let Some(encap) = &self.next_hops[index] else {
            counters.tx_no_neighbour += 1;
            umem.release(span.frame);
            return;
        };
        // Reports and requests are few, and lost packets are not repaired without them.
        if !is_paid && !is_feedback(umem.bytes(span)) {
            counters.tx_over_rate += 1;
            umem.release(span.frame);
            return;
        }
        let header = encap.header_bytes();
        let tag = match Guard::is_untagged(umem.bytes(span)) {
            true => 0,
            false => self.guard.trailer_bytes(hop),
        };
        let bytes = header + usize::from(span.len) + tag;
        let is_long = usize::from(span.offset) + usize::from(span.len) + tag > umem.frame_bytes();
        if bytes > ETHERNET_BYTES + mtu || is_long {
            counters.tx_oversize += 1;
            umem.release(span.frame);
            return;
        }
        // Fits, because a span lies within its frame. `HEADROOM_BYTES` in front of every span
        // exceed the longest headers.
        let payload = Span { len: span.len + tag as u16, ..span };
        if tag > 0 && !self.guard.tag(hop, umem.bytes_mut(payload)) {
            counters.tx_no_keys += 1;
            umem.release(span.frame);
            return;
        }
        let headers = Headers { hop, encap, source_port, traffic_class };
        if port.transmit(umem, payload, &headers) {
            counters.tx_packets += 1;
            counters.tx_bytes += bytes as u64;
        } else {
            counters.tx_full += 1;
        }
    }
}

fn is_feedback(payload: &[u8]) -> bool {
    let feedback = [PacketType::Feedback, PacketType::Link];
    Header::parse(payload).is_ok_and(|header| feedback.contains(&header.packet_type))
}

impl Keys for Guard {
    fn seal(&mut self, shard: ShardId, packet: &[u8], out: &mut [u8]) -> Result<(), Unsealed> {
        Guard::seal(self, shard.flow, packet, out).map_err(|_| Unsealed::NoKeys)
    }

    fn open_own(
        &mut self,
        shard: ShardId,
        sealed: &[u8],
        packet: &mut [u8],
    ) -> Result<(), Unsealed> {
        Guard::open_own(self, shard.flow, sealed, packet).map_err(|_| Unsealed::NoKeys)
    }

    fn unseal<'a>(&mut self, shard: ShardId, sealed: &'a mut [u8]) -> Result<&'a [u8], Unsealed> {
        match Guard::unseal(self, shard.flow, sealed) {
            Ok(packet) => Ok(packet),
            Err(Refused::UnknownKey) => Err(Unsealed::NoKeys),
            Err(_) => Err(Unsealed::Refused),
        }
    }

    fn seal_report(
        &mut self,
        shard: ShardId,
        report: &[u8],
    ) -> Result<[u8; ENVELOPE_BYTES], Unsealed> {
        Guard::seal_report(self, shard.flow, report).map_err(|_| Unsealed::NoKeys)
    }

    fn verify_report(
        &mut self,
        shard: ShardId,
        report: &[u8],
        seal: Option<&[u8]>,
    ) -> Result<ReportFate, Unsealed> {
        match Guard::verify_report(self, shard.flow, report, seal) {
            Ok(()) => Ok(ReportFate::New),
            Err(Refused::Replayed) => Ok(ReportFate::Copy),
            Err(Refused::UnknownKey) => Err(Unsealed::NoKeys),
            Err(_) => Err(Unsealed::Refused),
        }
    }

    fn tag_key(&mut self, shard: ShardId) -> Option<u8> {
        Guard::tag_key(self, shard.flow)
    }

    fn tag(
        &mut self,
        key: u8,
        unit: &TaggedUnit,
        index: usize,
        symbol: &mut [u8],
    ) -> Result<(), Untagged> {
        self.tag_symbol(key, unit, index, symbol).map_err(|_| Untagged::NoKeys)
    }

    fn verify(
        &mut self,
        unit: &TaggedUnit,
        formed: Formed<'_>,
        symbol: &[u8],
    ) -> Result<KeySerial, Untagged> {
        match self.verify_symbol(unit, formed, symbol) {
            Ok(key) => Ok(key),
            Err(Refused::UnknownKey) => Err(Untagged::NoKeys),
            Err(_) => Err(Untagged::Refused),
        }
    }

    fn has_keys(&mut self, shard: ShardId) -> bool {
        Guard::has_keys(self, shard.flow)
    }
}

impl Egress for Outbox {
    type Keys = Guard;

    #[inline]
    fn keys(&mut self) -> Option<&mut Guard> {
        Some(&mut self.guard)
    }

    #[inline]
    fn transmit(&mut self, hop: PeerId, span: Span, outer: Outer) {
        let Outer { source_port, traffic_class } = outer;
        self.panic_if_wanted();
        let index = usize::from(hop.0);
        let PeerLink { link, header_bytes } = self.hops[index];
        let is_paid = self.next_hops[index].is_none()
            || self.pacers[link].spend(
                header_bytes + self.guard.trailer_bytes(hop) + usize::from(span.len),
                self.now,
            );
        self.waiting.push(Outgoing { hop, span, source_port, is_paid, traffic_class });
    }

    fn pace(&self, hop: PeerId) -> Option<f64> {
        let pacer = &self.pacers[self.hops[usize::from(hop.0)].link];
        pacer.rate_mbit().map(|mbit| mbit * 125_000.0)
    }

    #[inline]
    fn reported(&mut self, hop: PeerId, comparison: &Comparison) {
        self.segmentation[self.hops[usize::from(hop.0)].link].note(comparison);
    }

    #[inline]
    fn deliver(&mut self, tunnel: TunnelId, packet: &[u8]) {
        let index = usize::from(tunnel.0);
        let counters = &mut self.tunnel_counters[index];
        let Outlet { tunnel, queue, merger } = &mut self.outlets[index];
        let mut writer = Writer { tunnel, queue: *queue, counters };
        match merger {
            Some(merger) => merger.push(packet, &mut writer),
            None => writer.write(&[], packet, 1, packet.len() as u64),
        }
    }

    fn is_authenticated(&self, peer: PeerId) -> bool {
        self.guard.trailer_bytes(peer) > 0
    }

    fn distrust(&mut self, peer: PeerId) {
        self.guard.distrust(peer);
    }

    fn open(&mut self, request: &OpenRequest) -> Answer {
        self.counter.ask(request)
    }

    fn keep(&mut self, bytes: usize) -> Option<Rent> {
        self.counter.keep(bytes)
    }

    fn hand_over(&mut self, shard: ShardId, origin: Origin, payload: &[u8]) -> HandOver {
        let Some(owner) = self.whereabouts.other(shard) else { return HandOver::Unowned };
        let Whereabouts { shared, .. } = &self.whereabouts;
        let inbox = &shared.inboxes[owner];
        if !inbox.put(origin, payload) {
            return HandOver::Full;
        }
        if inbox.must_wake() {
            shared.waker(owner).wake();
        }
        HandOver::Taken
    }

    fn plan(&mut self, request: &PlanRequest) -> Answer {
        self.desk.ask(request)
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

impl Outlet {
    fn new(tunnel: Arc<Tunnel>, queue: usize) -> Outlet {
        let merger = match tunnel.offload() {
            Offload::None => None,
            offload => Some(Merger::new(offload == Offload::TcpAndUdp)),
        };
        Outlet { tunnel, queue, merger }
    }
}

/// Writes to one queue of a tunnel and counts.
struct Writer<'a> {
    tunnel: &'a Tunnel,
    queue: usize,
    counters: &'a mut TunnelCounters,
}

impl Write for Writer<'_> {
    #[inline]
    fn write(&mut self, virtio: &[u8], packet: &[u8], packets: u64, bytes: u64) {
        if !self.tunnel.is_gone() && self.tunnel.write(self.queue, virtio, packet) {
            self.counters.writes += 1;
            self.counters.written_packets += packets;
            self.counters.written_bytes += bytes;
        } else {
            self.counters.write_failed += packets;
        }
    }
}

/// How long packets of a flow that sends without pause may be merged: 64 KiB at 5 Gbit/s. Longer
/// adds delay, shorter costs a write, and often an acknowledgement, per few packets. A worker
/// writes before it goes to sleep.
const MERGE_NANOS: Nanos = 100_000;
