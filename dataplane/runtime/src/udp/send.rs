//! Sending: packets wait in order; runs of equal size to one neighbour become one message, which
//! Linux or the card splits (UDP_SEGMENT).
//!
//! Segment size and traffic class are socket options, set when they change: in nix, passing them
//! with each message would cost an allocation.

use crate::report::LinkCounters;
use crate::topology::is_known;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, MsgFlags, MultiHeaders, SockaddrStorage, sendmmsg, sendto, setsockopt, sockopt,
};
use recoded_pipeline::params::PeerId;
use recoded_wire::frames::{FrameId, Frames, Span};
use recoded_xsk::Umem;
use rustix::net::sockopt as options;
use std::cell::RefCell;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

thread_local! {
    /// Message headers that Linux reads. They hold pointers, which do not move between threads with
    /// a socket; so each worker has its own, from its first packet on.
    static HEADERS: RefCell<MultiHeaders<SockaddrStorage>> =
        RefCell::new(MultiHeaders::preallocate(MESSAGES_MAX, None));
}

/// The sending side of a socket.
pub(super) struct Sender {
    /// By hop.
    targets: Vec<SockaddrStorage>,
    staged: Vec<Staged>,
    /// Whether Linux splits messages.
    pub(super) splits: bool,
    /// Whether each packet is currently a message of its own nevertheless.
    pub(super) is_single: bool,
    /// The socket's present options: bytes of a segment, 0 for none, and the traffic class.
    segment_bytes: u16,
    traffic_class: u8,
    is_v6: bool,
}

/// A waiting packet.
#[derive(Copy, Clone)]
struct Staged {
    frame: FrameId,
    offset: u16,
    len: u16,
    hop: PeerId,
    traffic_class: u8,
}

impl Staged {
    fn span(&self) -> Span {
        Span { frame: self.frame, offset: self.offset, len: self.len }
    }
}

/// Messages that can be sent by one call.
#[derive(Copy, Clone, Default)]
pub(super) struct Burst {
    /// Packets of each message.
    pub(super) packets: [usize; MESSAGES_MAX],
    pub(super) messages: usize,
    segment_bytes: u16,
}

impl Sender {
    pub(super) fn new(targets: &[SocketAddr], splits: bool) -> Sender {
        Sender {
            is_v6: targets.iter().any(SocketAddr::is_ipv6),
            targets: targets.iter().map(|target| storage(*target)).collect(),
            staged: Vec::with_capacity(STAGED_MAX),
            splits,
            is_single: false,
            segment_bytes: 0,
            traffic_class: 0,
        }
    }

    /// Sends to these neighbours from here on, including packets already waiting.
    pub(super) fn aim(&mut self, targets: impl Iterator<Item = SocketAddr>) {
        for (old, new) in self.targets.iter_mut().zip(targets) {
            *old = storage(new);
        }
    }

    #[inline]
    pub(super) fn pending(&self) -> usize {
        self.staged.len()
    }

    /// Takes a reference to the frame. False if too many packets are waiting.
    #[inline]
    pub(super) fn stage(
        &mut self,
        umem: &mut Umem,
        payload: Span,
        hop: PeerId,
        traffic_class: u8,
    ) -> bool {
        let Span { frame, offset, len } = payload;
        if self.staged.len() == STAGED_MAX {
            umem.release(frame);
            return false;
        }
        umem.begin_transmit(frame);
        self.staged.push(Staged { frame, offset, len, hop, traffic_class });
        true
    }

    pub(super) fn discard(&mut self, umem: &mut Umem) {
        self.staged.drain(..).for_each(|packet| umem.end_transmit(packet.frame));
    }

    /// Sends until Linux has no more room.
    pub(super) fn flush(
        &mut self,
        fd: BorrowedFd<'_>,
        umem: &mut Umem,
        counters: &mut LinkCounters,
    ) {
        let (mut done, mut could_split) = (0, self.splits);
        while done < self.staged.len() {
            let burst = self.burst(done);
            let sent = self.tell(fd, burst.segment_bytes, self.staged[done].traffic_class);
            let sent = sent.and_then(|()| self.send(fd, umem, done, &burst));
            let packets = match sent {
                Ok(messages) => burst.packets[..messages].iter().sum(),
                Err(Errno::EAGAIN) => break,
                // On a device without checksum offload, older versions of Linux split nothing.
                Err(Errno::EIO) if burst.segment_bytes > 0 => {
                    (self.splits, could_split) = (false, false);
                    continue;
                }
                // The MTU fell below the segment. Splitting stays enabled: this time Linux judges
                // each packet by itself.
                Err(Errno::EINVAL | Errno::EMSGSIZE) if burst.segment_bytes > 0 => {
                    self.splits = false;
                    continue;
                }
                Err(error) => {
                    let packets = burst.packets[0];
                    *fate(error, counters) += packets as u64;
                    packets
                }
            };
            for packet in &self.staged[done..done + packets] {
                umem.end_transmit(packet.frame);
            }
            done += packets;
        }
        self.splits = could_split;
        self.staged.drain(..done);
    }

    /// Sends one packet now, before the waiting ones, to an address that is no neighbour's. Returns
    /// whether Linux accepted it. The socket has the options of the last burst: left as they are,
    /// they would split a packet longer than its segments.
    pub(super) fn send_whole(
        &mut self,
        fd: BorrowedFd<'_>,
        packet: &[u8],
        address: SocketAddr,
    ) -> bool {
        let to = SockaddrStorage::from(address);
        let told = self.tell(fd, 0, 0);
        told.and_then(|()| sendto(fd.as_raw_fd(), packet, &to, MsgFlags::MSG_DONTWAIT)).is_ok()
    }

    /// The messages from packet `from` on that need the same options.
    pub(super) fn burst(&self, from: usize) -> Burst {
        let mut burst = Burst { segment_bytes: self.segment_bytes, ..Burst::default() };
        let (mut at, mut slices) = (from, 0);
        while at < self.staged.len() && burst.messages < MESSAGES_MAX {
            let count = self.run(at);
            let needs = self.needed_segment(at, count, burst.segment_bytes);
            let is_same = self.staged[at].traffic_class == self.staged[from].traffic_class;
            let fits = is_same && needs == burst.segment_bytes && slices + count <= SLICES_MAX;
            if burst.messages > 0 && !fits {
                break;
            }
            burst.segment_bytes = needs;
            burst.packets[burst.messages] = count;
            burst.messages += 1;
            slices += count;
            at += count;
        }
        burst
    }

    /// Packets from `at` on that can be one message: all of one size except the last, which may be
    /// shorter.
    fn run(&self, at: usize) -> usize {
        let first = self.staged[at];
        let mut bytes = usize::from(first.len);
        let mut count = 1;
        if !self.splits || self.is_single {
            return count;
        }
        for packet in &self.staged[at + 1..] {
            bytes += usize::from(packet.len);
            let is_alike = packet.hop == first.hop && packet.traffic_class == first.traffic_class;
            let fits = packet.len <= first.len && packet.len > 0 && bytes <= RUN_BYTES_MAX;
            if !is_alike || !fits || count == SEGMENTS_MAX {
                break;
            }
            count += 1;
            if packet.len < first.len {
                break;
            }
        }
        count
    }

    /// The segment that a message needs, when it is `now`. A single packet that is no longer is
    /// sent unchanged.
    fn needed_segment(&self, at: usize, count: usize, now: u16) -> u16 {
        let len = self.staged[at].len;
        match count {
            1 if !self.splits || now < len => 0,
            1 => now,
            _ => len,
        }
    }

    /// Sets the options that differ.
    fn tell(&mut self, fd: BorrowedFd<'_>, segment: u16, traffic_class: u8) -> Result<(), Errno> {
        if segment != self.segment_bytes {
            setsockopt(&fd, sockopt::UdpGsoSegment, &segment.into())?;
            self.segment_bytes = segment;
        }
        if traffic_class != self.traffic_class {
            let told = match self.is_v6 {
                true => options::set_ipv6_tclass(fd, traffic_class.into()),
                false => options::set_ip_tos(fd, traffic_class),
            };
            told.map_err(|error| Errno::from_raw(error.raw_os_error()))?;
            self.traffic_class = traffic_class;
        }
        Ok(())
    }

    /// Makes one call; returns how many messages Linux accepted.
    fn send(
        &self,
        fd: BorrowedFd<'_>,
        umem: &Umem,
        from: usize,
        burst: &Burst,
    ) -> Result<usize, Errno> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut targets = [None; MESSAGES_MAX];
        let mut bounds = [(0, 0); MESSAGES_MAX];
        let mut used = 0;
        for (index, count) in burst.packets[..burst.messages].iter().enumerate() {
            let packets = &self.staged[from + used..from + used + count];
            targets[index] = Some(self.targets[usize::from(packets[0].hop.0)]);
            for (slice, packet) in slices[used..].iter_mut().zip(packets) {
                *slice = IoSlice::new(umem.bytes(packet.span()));
            }
            bounds[index] = (used, used + count);
            used += count;
        }
        let parts: [&[IoSlice<'_>]; MESSAGES_MAX] = bounds.map(|(start, end)| &slices[start..end]);
        let beside: [ControlMessage<'_>; 0] = [];
        let flags = MsgFlags::MSG_DONTWAIT;
        let parts = &parts[..burst.messages];
        HEADERS.with_borrow_mut(|headers| {
            Ok(sendmmsg(fd.as_raw_fd(), headers, parts, targets, beside, flags)?.count())
        })
    }
}

/// The destination of packets to a neighbour. Port 0, which Linux refuses, keeps packets here whose
/// neighbour has no known address yet.
fn storage(mut target: SocketAddr) -> SockaddrStorage {
    if !is_known(target.ip()) {
        target.set_port(0);
    }
    target.into()
}

/// The counter of packets that Linux refused for this reason.
fn fate(error: Errno, counters: &mut LinkCounters) -> &mut u64 {
    match error {
        Errno::EMSGSIZE => &mut counters.tx_oversize,
        Errno::ENOBUFS | Errno::ENOMEM => &mut counters.tx_full,
        Errno::ENETDOWN | Errno::ENODEV | Errno::ENXIO => &mut counters.tx_link_gone,
        // No route, no address, or a firewall.
        _ => &mut counters.tx_no_neighbour,
    }
}

/// Most waiting packets: the same as in a ring of an AF_XDP socket.
pub(super) const STAGED_MAX: usize = 2048;
/// Segments of a message: the limit of every Linux version with UDP_SEGMENT.
const SEGMENTS_MAX: usize = 64;
/// Bytes of a message: 64 KiB less headers.
const RUN_BYTES_MAX: usize = 65_000;
/// Messages of a call.
const MESSAGES_MAX: usize = 16;
/// Packets of a call.
const SLICES_MAX: usize = 256;
