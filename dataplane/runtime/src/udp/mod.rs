//! UDP sockets instead of AF_XDP: for hosts whose interfaces take no XDP program, for containers
//! and rented servers. A worker has one on each such link.
//!
//! ```text
//!  recvmsg, with UDP_GRO: up to 64 packets of one sender -> one frame for each that is for Recoded
//!  runs of packets of equal size to one neighbour -> a message each (UDP_SEGMENT) -> sendmmsg
//! ```
//!
//! Performs the checks of the XDP program: a packet that is not from a neighbour and of a
//! configured flow ends before it takes a frame, and is counted under the same name. With roaming
//! neighbours, a few candidates a second get further, until their tag is known (`roaming`). Linux
//! finds the route to the neighbour, so no header is written, and packets leave from the port on
//! which they arrive: firewalls and NATs in between see one connection.
//!
//! Everything is allocated when a socket is opened. Bounds: packets as long as for AF_XDP with
//! their headers; [`STAGED_MAX`] packets waiting to be sent.

mod merging;
mod open;

mod send;

pub use open::ROOM_BYTES;
pub(crate) use open::bound;

use crate::arrived::{Arrived, BURST_PACKETS};
use crate::other_versions::OtherVersions;
use crate::report::LinkCounters;
use crate::report::Verdicts;
use crate::roaming::{Around, Lookout, Near};
use merging::{Merging, is_middle};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, RecvMsg, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use recoded_pipeline::params::PeerId;
use recoded_wire::frames::{Frames, HEADROOM_BYTES, Span};
use recoded_wire::header::HEADER_BYTES;
use recoded_wire::steer::{Action, Verdict, decide_payload};
use recoded_xsk::{SocketStatistics, Umem};
use send::Sender;
use std::io::IoSliceMut;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A UDP socket of one worker on one link.
pub(crate) struct UdpSocket {
    fd: OwnedFd,
    /// Bytes of Ethernet, IP and UDP header around each payload, for counters and limits.
    header_bytes: usize,
    around: Around,
    lookout: Lookout,
    /// Configured flows, sorted.
    flows: Vec<u32>,
    /// The result of the last read.
    buffer: Box<[u8]>,
    control: Box<[u8]>,
    message: Message,
    merging: Merging,
    verdicts: Verdicts,
    /// Source of the last packet that came from no neighbour.
    not_neighbour: Option<IpAddr>,
    other_versions: OtherVersions,
    statistics: SocketStatistics,
    sender: Sender,
}

/// Packets of one sender in the buffer.
struct Message {
    left: Range<usize>,
    segment: usize,
    source: SocketAddr,
    traffic_class: u8,
    /// Whether it is several packets, the first was taken, and all so far may be valid.
    is_burst: bool,
}

impl Message {
    fn none(source: SocketAddr) -> Message {
        Message { left: 0..0, segment: 1, source, traffic_class: 0, is_burst: false }
    }
}

impl UdpSocket {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Accepts these flows and no others.
    pub(crate) fn accept(&mut self, flows: impl Iterator<Item = u32>) {
        self.flows.clear();
        self.flows.extend(flows);
        self.flows.sort_unstable();
    }

    /// See [`crate::port::Port::place`].
    pub(crate) fn place(&mut self, near: &Near, link: usize) {
        self.around = near.links[link].clone();
        self.sender.aim(near.endpoints.iter().map(|endpoint| endpoint.at));
    }

    /// The filter for packets from addresses that are no neighbour's.
    pub(crate) fn lookout(&mut self) -> &mut Lookout {
        &mut self.lookout
    }

    /// See [`crate::port::Port::refuse`].
    pub(crate) fn refuse(&mut self, source: IpAddr) {
        let [taken, refused] =
            [Verdict::Redirected, Verdict::DropNotNeighbour].map(|it| it as usize);
        self.verdicts[taken] = self.verdicts[taken].saturating_sub(1);
        self.verdicts[refused] += 1;
        self.not_neighbour = Some(source);
    }

    /// See [`crate::port::Port::not_neighbour`].
    pub(crate) fn not_neighbour(&self) -> Option<IpAddr> {
        self.not_neighbour
    }

    /// See [`crate::port::Port::other_versions`].
    pub(crate) fn other_versions(&self) -> OtherVersions {
        self.other_versions.clone()
    }

    /// See [`crate::port::Port::send_to`].
    pub(crate) fn send_to(&mut self, packet: &[u8], address: SocketAddr) -> bool {
        self.sender.send_whole(self.fd.as_fd(), packet, address)
    }

    pub(crate) fn verdicts(&self) -> &Verdicts {
        &self.verdicts
    }

    pub(crate) fn statistics(&self) -> SocketStatistics {
        self.statistics
    }

    /// See [`crate::port::Port::receive`].
    pub(crate) fn receive(
        &mut self,
        umem: &mut Umem,
        counters: &mut LinkCounters,
        arrived: &mut Vec<Arrived>,
    ) -> bool {
        let mut seen = 0;
        while seen < BURST_PACKETS && (!self.message.left.is_empty() || self.read()) {
            seen += 1;
            let Message { left, segment, source, traffic_class, is_burst } = &mut self.message;
            let (start, end) = (left.start, left.end.min(left.start + *segment));
            let packet = &self.buffer[start..end];
            left.start = end;
            let is_near = |packet: &[u8]| {
                self.around.find(*source, packet).is_some() || self.lookout.takes(packet)
            };
            let verdict = judge(packet, is_near, &self.flows);
            self.verdicts[verdict as usize] += 1;
            match verdict {
                Verdict::DropNotNeighbour => self.not_neighbour = Some(source.ip()),
                Verdict::DropVersion if self.around.find(*source, packet).is_some() => {
                    self.other_versions.count(source.ip(), packet);
                }
                // Perhaps a box that roams: its packets cannot be read.
                Verdict::DropVersion => self.not_neighbour = Some(source.ip()),
                _ => {}
            }
            if *is_burst {
                let first = &self.buffer[..*segment];
                let is_taken = verdict.action() == Action::Redirect;
                let is_wrong = start > 0 && is_middle(verdict);
                if is_wrong || end == left.end {
                    let is_near = self.around.find(*source, first).is_some();
                    self.merging.note(is_wrong && is_near);
                }
                *is_burst = !is_wrong && (start > 0 || is_taken);
            }
            if verdict.action() != Action::Redirect {
                continue;
            }
            if self.header_bytes + packet.len() > umem.frame_size().receive_bytes_max() {
                self.statistics.rx_dropped += 1;
                continue;
            }
            let Some(frame) = umem.take_for_receiving() else {
                self.statistics.rx_fill_ring_empty += 1;
                continue;
            };
            counters.rx_packets += 1;
            counters.rx_bytes += (self.header_bytes + packet.len()) as u64;
            // Less than a frame with the headroom, see above.
            let len = packet.len() as u16;
            let payload = Span { frame, offset: HEADROOM_BYTES as u16, len };
            umem.bytes_mut(payload).copy_from_slice(packet);
            arrived.push(Arrived { payload, source: *source, traffic_class: *traffic_class });
        }
        seen > 0
    }

    /// Reads once. False if no packet is waiting.
    fn read(&mut self) -> bool {
        let UdpSocket { fd, buffer, control, message, statistics, .. } = self;
        let mut parts = [IoSliceMut::new(buffer)];
        let flags = MsgFlags::MSG_DONTWAIT;
        let received: nix::Result<RecvMsg<'_, '_, SockaddrStorage>> =
            recvmsg(fd.as_raw_fd(), &mut parts, Some(control), flags);
        // An error means: no packet, or an interface being removed, which `links` notices.
        let Ok(received) = received else { return false };
        let Some(source) = received.address.and_then(address) else { return false };
        let (mut segment, mut traffic_class) = (received.bytes, 0);
        for beside in received.cmsgs().into_iter().flatten() {
            match beside {
                ControlMessageOwned::UdpGroSegments(bytes) => {
                    segment = usize::try_from(bytes).unwrap_or(segment);
                }
                ControlMessageOwned::Ipv4Tos(class) => traffic_class = class,
                // Linux sets eight bits of it.
                ControlMessageOwned::Ipv6TClass(class) => traffic_class = class as u8,
                ControlMessageOwned::RxqOvfl(lost) => statistics.rx_ring_full = lost.into(),
                _ => {}
            }
        }
        // An empty datagram is a packet, too.
        let (left, segment) = (0..received.bytes, segment.max(1));
        let is_burst = segment < received.bytes;
        *message = Message { left, segment, source, traffic_class, is_burst };
        true
    }

    /// See [`crate::port::Port::transmit`].
    #[inline]
    pub(crate) fn transmit(
        &mut self,
        umem: &mut Umem,
        payload: Span,
        hop: PeerId,
        traffic_class: u8,
    ) -> bool {
        self.sender.stage(umem, payload, hop, traffic_class)
    }

    /// Whether bursts are sent, or would be outside a comparison.
    pub(crate) fn has_bursts(&self) -> bool {
        self.sender.splits
    }

    /// Sends packets singly, or in bursts again.
    #[inline]
    pub(crate) fn send_single(&mut self, is_single: bool) {
        self.sender.is_single = is_single;
    }

    /// Sends packets singly from here on.
    pub(crate) fn end_bursts(&mut self) {
        self.sender.splits = false;
    }

    /// Whether Linux merges packets into bursts that are not made of whole ones.
    pub(crate) fn merges_wrongly(&self) -> bool {
        self.merging.is_wrong()
    }

    /// Receives packets singly from here on.
    pub(crate) fn end_merging(&mut self) {
        if self.merging.is_on {
            // It was set before, so it can be set.
            let _ = setsockopt(&self.fd, sockopt::UdpGroSegment, &false);
            self.merging.is_on = false;
        }
    }

    /// Sends waiting packets, as far as Linux accepts them at the moment.
    pub(crate) fn flush(&mut self, umem: &mut Umem, counters: &mut LinkCounters) {
        self.sender.flush(self.fd.as_fd(), umem, counters);
    }

    /// Packets waiting to be sent.
    #[inline]
    pub(crate) fn pending(&self) -> usize {
        self.sender.pending()
    }

    /// Releases packets waiting to be sent.
    pub(crate) fn discard(&mut self, umem: &mut Umem) {
        self.sender.discard(umem);
    }
}

/// The XDP program's verdict on a packet to this node's address and port. `is_near`: whether it is
/// from a neighbour, or perhaps a roaming one.
fn judge(packet: &[u8], is_near: impl FnOnce(&[u8]) -> bool, flows: &[u32]) -> Verdict {
    if packet.len() < HEADER_BYTES {
        return Verdict::DropTruncated;
    }
    let is_known = |flow| flows.binary_search(&flow).is_ok();
    decide_payload(packet, 0, || is_near(packet), is_known)
}

fn address(from: SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = from.as_sockaddr_in() {
        return Some(SocketAddr::V4((*v4).into()));
    }
    from.as_sockaddr_in6().map(|v6| SocketAddr::V6((*v6).into()))
}

#[cfg(test)]
mod tests;
