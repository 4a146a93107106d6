//! A worker's sockets on a link, of either kind: input is UDP payloads in frames, output is
//! payloads in frames with their headers.
//!
//! ```text
//!  AF_XDP:  frame with headers -> locate -> payload     payload -> headers in front -> ring
//!  UDP:     payloads -> verdict -> payload in a frame   payload -> runs of equal size -> sendmmsg
//! ```
//!
//! Callers do not know which kind it is.

use crate::arrived::{Arrived, BURST_PACKETS};
use crate::encap::Encap;
use crate::other_versions::OtherVersions;
use crate::report::Verdicts;
use crate::report::{ByQueue, LinkCounters, unparsed};
use crate::roaming::{Lookout, Near};
use crate::udp::UdpSocket;
use recoded_pipeline::params::{PeerId, Snapshot};
use recoded_wire::frames::{Frames, Span};
use recoded_wire::packet::locate;
use recoded_xsk::{ActiveMode, Received, Socket, Umem};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

/// A worker's sockets on a link.
pub(crate) enum Port {
    Xdp(Box<XdpPort>),
    Udp(Box<UdpSocket>),
}

/// The headers to send a packet with.
pub(crate) struct Headers<'a> {
    pub(crate) hop: PeerId,
    pub(crate) encap: &'a Encap,
    /// Source port of its shard. UDP sockets send from the port that they receive on.
    pub(crate) source_port: u16,
    pub(crate) traffic_class: u8,
}

/// How the sockets of a link work.
#[derive(Clone, Debug)]
pub(crate) enum LinkMode {
    Xdp(ActiveMode),
    /// UDP sockets, and the offloads that Linux lacks for them.
    Udp(String),
}

impl LinkMode {
    /// Mode of the XDP program.
    pub(crate) fn xdp(&self) -> String {
        match self {
            LinkMode::Xdp(mode) => mode.xdp.to_string(),
            LinkMode::Udp(_) => "none".into(),
        }
    }

    /// Mode of the sockets.
    pub(crate) fn socket(&self) -> String {
        match self {
            LinkMode::Xdp(mode) => mode.socket.to_string(),
            LinkMode::Udp(_) => "udp".into(),
        }
    }

    /// The reason why that is not better; empty if it is the best.
    pub(crate) fn reason(&self) -> &str {
        match self {
            LinkMode::Xdp(mode) => &mode.reason,
            LinkMode::Udp(reason) => reason,
        }
    }
}

/// The AF_XDP sockets of a worker on a link, and this node's address there.
pub(crate) struct XdpPort {
    /// One for each of the worker's queues. The first one sends.
    sockets: Vec<Socket>,
    /// Sends if none of them can.
    by_linux: Option<UdpSocket>,
    /// The socket that is served first.
    next: usize,
    local: SocketAddr,
    burst: Vec<Received>,
}

impl XdpPort {
    pub(crate) fn new(
        sockets: Vec<Socket>,
        by_linux: Option<UdpSocket>,
        local: SocketAddr,
    ) -> XdpPort {
        assert!(!sockets.is_empty() || by_linux.is_some(), "a port sends");
        XdpPort { sockets, by_linux, next: 0, local, burst: Vec::with_capacity(BURST_PACKETS) }
    }

    /// Receives packets from one socket after the other, up to [`BURST_PACKETS`]: sockets that had
    /// no turn come first in the next call.
    fn receive(
        &mut self,
        umem: &mut Umem,
        counters: &mut LinkCounters,
        arrived: &mut Vec<Arrived>,
    ) -> bool {
        let (count, mut left) = (self.sockets.len(), BURST_PACKETS);
        for step in 0..count {
            let index = (self.next + step) % count;
            left -= self.sockets[index].receive_at_most(umem, &mut self.burst, left);
            self.locate(umem, counters, arrived);
            if left == 0 {
                self.next = (index + 1) % count;
                break;
            }
        }
        left < BURST_PACKETS
    }

    /// Finds the payloads of a burst.
    fn locate(&mut self, umem: &mut Umem, counters: &mut LinkCounters, arrived: &mut Vec<Arrived>) {
        for packet in self.burst.drain(..) {
            let Received { frame, offset, len } = packet;
            counters.rx_packets += 1;
            counters.rx_bytes += u64::from(len);
            match locate(umem.bytes(Span { frame, offset, len })) {
                Ok(found) if found.destination == self.local => {
                    // Both lie within the packet, whose length is 16 bits.
                    let offset = offset + found.payload_offset as u16;
                    let payload = Span { frame, offset, len: found.payload_len as u16 };
                    let (source, traffic_class) = (found.source, found.traffic_class);
                    arrived.push(Arrived { payload, source, traffic_class });
                }
                Ok(_) => {
                    counters.rx_not_ours += 1;
                    umem.release(frame);
                }
                Err(reason) => {
                    counters.rx_unparsed[unparsed(reason) as usize] += 1;
                    umem.release(frame);
                }
            }
        }
    }

    fn transmit(&mut self, umem: &mut Umem, payload: Span, with: &Headers<'_>) -> bool {
        let Headers { hop, encap, source_port, traffic_class } = *with;
        if let Some(socket) = &mut self.by_linux {
            return socket.transmit(umem, payload, hop, traffic_class);
        }
        let header = encap.header_bytes() as u16;
        let Span { frame, offset, len } = payload;
        let (offset, len) = (offset - header, len + header);
        let packet = umem.bytes_mut(Span { frame, offset, len });
        encap.write(packet, source_port, traffic_class);
        self.sockets[0].transmit(umem, frame, offset, len)
    }

    fn flush(&mut self, umem: &mut Umem, counters: &mut LinkCounters) {
        match &mut self.by_linux {
            Some(socket) => socket.flush(umem, counters),
            None => self.sockets[0].flush(),
        }
    }

    fn complete(&mut self, umem: &mut Umem) {
        if self.by_linux.is_none() {
            self.sockets[0].complete(umem);
        }
    }

    fn unsent(&mut self) -> usize {
        match &self.by_linux {
            Some(socket) => socket.pending(),
            None => self.sockets[0].unsent(),
        }
    }

    fn pending(&self) -> usize {
        match &self.by_linux {
            Some(socket) => socket.pending(),
            None => self.sockets[0].pending(),
        }
    }
}

impl Port {
    /// Readable when packets wait.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let of_linux = match self {
            Port::Xdp(_) => None,
            Port::Udp(socket) => Some(socket.fd()),
        };
        self.queues().map(|(_, fd)| fd).chain(of_linux)
    }

    /// Receive queues with AF_XDP sockets.
    pub(crate) fn queues(&self) -> impl Iterator<Item = (u32, BorrowedFd<'_>)> {
        let sockets = match self {
            Port::Xdp(port) => &port.sockets[..],
            Port::Udp(_) => &[],
        };
        sockets.iter().map(|socket| (socket.queue(), socket.fd()))
    }

    /// Adds up to [`BURST_PACKETS`] packets to `arrived`, which is empty. False if none were
    /// waiting; packets that ended here are counted.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        umem: &mut Umem,
        counters: &mut LinkCounters,
        arrived: &mut Vec<Arrived>,
    ) -> bool {
        match self {
            Port::Xdp(port) => port.receive(umem, counters, arrived),
            Port::Udp(socket) => socket.receive(umem, counters, arrived),
        }
    }

    /// Takes one reference to the frame of `payload`, which has headroom for headers. Returns false
    /// without space: the reference is released and the packet is lost.
    ///
    /// Nothing is sent before [`Port::flush`].
    #[inline]
    pub(crate) fn transmit(&mut self, umem: &mut Umem, payload: Span, with: &Headers<'_>) -> bool {
        match self {
            Port::Xdp(port) => port.transmit(umem, payload, with),
            Port::Udp(socket) => socket.transmit(umem, payload, with.hop, with.traffic_class),
        }
    }

    /// Makes Linux send waiting packets, as far as it accepts them at the moment.
    #[inline]
    pub(crate) fn flush(&mut self, umem: &mut Umem, counters: &mut LinkCounters) {
        match self {
            Port::Xdp(port) => port.flush(umem, counters),
            Port::Udp(socket) => socket.flush(umem, counters),
        }
    }

    /// Takes back the frames of sent packets.
    #[inline]
    pub(crate) fn complete(&mut self, umem: &mut Umem) {
        if let Port::Xdp(port) = self {
            port.complete(umem);
        }
    }

    /// Packets not yet accepted by Linux: flush again soon.
    pub(crate) fn unsent(&mut self) -> usize {
        match self {
            Port::Xdp(port) => port.unsent(),
            Port::Udp(socket) => socket.pending(),
        }
    }

    /// Frames taken and not returned yet.
    #[inline]
    pub(crate) fn pending(&self) -> usize {
        match self {
            Port::Xdp(port) => port.pending(),
            Port::Udp(socket) => socket.pending(),
        }
    }

    /// The socket whose packets get their headers from Linux, if there is one.
    pub(crate) fn of_linux(&mut self) -> Option<&mut UdpSocket> {
        match self {
            Port::Xdp(port) => port.by_linux.as_mut(),
            Port::Udp(socket) => Some(socket),
        }
    }

    /// Releases frames that were not sent.
    pub(crate) fn discard(&mut self, umem: &mut Umem) {
        if let Some(socket) = self.of_linux() {
            socket.discard(umem);
        }
    }

    /// Accepts packets of the flows of `snapshot` and no others. `steering` updates XDP programs.
    pub(crate) fn accept(&mut self, snapshot: &Snapshot) {
        if let Port::Udp(socket) = self {
            socket.accept(snapshot.flows.iter().map(|flow| flow.id));
        }
    }

    /// Receives from neighbours and sends to them at their present places. With AF_XDP they do not
    /// move.
    pub(crate) fn place(&mut self, near: &Near, link: usize) {
        if let Some(socket) = self.of_linux() {
            socket.place(near, link);
        }
    }

    /// The filter for packets from addresses that are no neighbour's.
    pub(crate) fn lookout(&mut self) -> Option<&mut Lookout> {
        match self {
            Port::Xdp(_) => None,
            Port::Udp(socket) => Some(socket.lookout()),
        }
    }

    /// Records that a packet from such an address was no neighbour's after all.
    pub(crate) fn refuse(&mut self, source: IpAddr) {
        if let Port::Udp(socket) = self {
            socket.refuse(source);
        }
    }

    /// The last address refused without an XDP program.
    pub(crate) fn not_neighbour(&self) -> Option<IpAddr> {
        match self {
            Port::Xdp(_) => None,
            Port::Udp(socket) => socket.not_neighbour(),
        }
    }

    /// The neighbours that send packets of another version, counted without an XDP program.
    pub(crate) fn other_versions(&self) -> OtherVersions {
        match self {
            Port::Xdp(_) => OtherVersions::default(),
            Port::Udp(socket) => socket.other_versions(),
        }
    }

    /// Sends bytes to an address that is no neighbour's, if there is room. Returns whether it did.
    pub(crate) fn send_to(&mut self, packet: &[u8], address: SocketAddr) -> bool {
        match self {
            Port::Xdp(_) => false,
            Port::Udp(socket) => socket.send_to(packet, address),
        }
    }

    /// Adds Linux's counters for the sockets of this worker.
    pub(crate) fn add_statistics(&mut self, worker: usize, sum: &mut ByQueue) {
        match self {
            Port::Xdp(port) => {
                for socket in &mut port.sockets {
                    *sum.entry(socket.queue()).or_default() += &socket.statistics();
                }
            }
            Port::Udp(socket) => *sum.entry(worker as u32).or_default() += &socket.statistics(),
        }
    }

    /// Adds the verdicts on packets that no XDP program saw.
    pub(crate) fn add_verdicts(&self, sum: &mut Verdicts) {
        if let Port::Udp(socket) = self {
            sum.iter_mut().zip(socket.verdicts()).for_each(|(sum, count)| *sum += count);
        }
    }
}
