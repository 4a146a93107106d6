//! One side of a timed link: packets of an interface, in bursts, through packet sockets.
//!
//! One socket per EtherType, because a socket for all of them would also receive the packets that
//! this side sends. Linux timestamps packets on arrival, so a thread that polls late still knows
//! their arrival times.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, LinkAddr, MsgFlags, MultiHeaders, bind, recvmmsg,
    sendmmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;
use rustix::net::{AddressFamily, SocketFlags, SocketType, eth, socket_with};

use super::model::{FRAME_BYTES, Frame, Packet, new_frame};

/// Most packets of one system call.
pub const BURST: usize = 64;

/// Socket buffer for packets that wait for the thread, in bytes as Linux counts them: a full packet
/// takes 2304, so this is 90 ms at 300 Mbit/s.
const SOCKET_BYTES: usize = 8 << 20;

/// EtherType class of a packet.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Kind {
    /// Nearly everything.
    Ipv4,
    Ipv6,
    Arp,
}

/// Sockets of one interface.
#[derive(Debug)]
pub struct Port {
    /// One for each [`Kind`], in that order.
    sockets: [OwnedFd; 3],
}

impl Port {
    /// Must run inside the link's namespace.
    pub fn open(interface: &str) -> std::io::Result<Port> {
        let address = getifaddrs()?
            .filter(|address| address.interface_name == interface)
            .find_map(|address| address.address?.as_link_addr().copied())
            .ok_or_else(|| std::io::Error::other(format!("there is no interface {interface}")))?;
        let socket = |protocol| {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket =
                socket_with(AddressFamily::PACKET, SocketType::RAW, flags, Some(protocol))?;
            setsockopt(&socket, sockopt::RcvBufForce, &SOCKET_BYTES)?;
            setsockopt(&socket, sockopt::SndBufForce, &SOCKET_BYTES)?;
            setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
            // The address names the interface but no protocol, so that of the socket is kept.
            bind(socket.as_raw_fd(), &address)?;
            Ok::<_, std::io::Error>(socket)
        };
        Ok(Port { sockets: [socket(eth::IP)?, socket(eth::IPV6)?, socket(eth::ARP)?] })
    }

    /// All its sockets.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(AsFd::as_fd)
    }

    /// Fills `burst` with the next packets of a kind; returns their number.
    pub fn receive(&self, kind: Kind, burst: &mut Burst) -> usize {
        burst.fill(&self.sockets[kind as usize])
    }

    /// Sends up to [`BURST`] packets; returns how many Linux accepted, in order from the first.
    pub fn send(&self, packets: &[Packet], headers: &mut MultiHeaders<()>) -> usize {
        let slices: Vec<[IoSlice; 1]> =
            packets.iter().map(|packet| [IoSlice::new(packet.bytes())]).collect();
        let (to, control): ([Option<()>; BURST], [ControlMessage; 0]) = ([None; BURST], []);
        let flags = MsgFlags::MSG_DONTWAIT;
        let sent = sendmmsg(self.sockets[0].as_raw_fd(), headers, &slices, to, control, flags);
        // The caller counts refused packets.
        sent.map_or(0, Iterator::count)
    }
}

/// Headers for [`Port::send`].
pub fn send_headers() -> MultiHeaders<()> {
    MultiHeaders::preallocate(BURST, None)
}

/// Packets received at once.
pub struct Burst {
    frames: Vec<Frame>,
    /// Original length and arrival time of each packet.
    arrivals: Vec<(usize, Option<Duration>)>,
    headers: MultiHeaders<LinkAddr>,
}

impl Burst {
    /// Memory for a burst.
    pub fn new() -> Burst {
        let stamp = nix::cmsg_space!(TimeSpec);
        Burst {
            frames: (0..BURST).map(|_| new_frame()).collect(),
            arrivals: Vec::with_capacity(BURST),
            headers: MultiHeaders::preallocate(BURST, Some(stamp)),
        }
    }

    /// Age of each packet since its arrival.
    pub fn ages(&self) -> impl Iterator<Item = Duration> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.arrivals
            .iter()
            .map(move |(_, at)| at.map_or(Duration::ZERO, |at| now.saturating_sub(at)))
    }

    /// A packet's frame, and its length.
    pub fn packet(&mut self, number: usize) -> (&mut Frame, usize) {
        (&mut self.frames[number], self.arrivals[number].0)
    }

    fn fill(&mut self, socket: &OwnedFd) -> usize {
        self.arrivals.clear();
        let mut slices: Vec<[IoSliceMut; 1]> =
            self.frames.iter_mut().map(|frame| [IoSliceMut::new(&mut frame[..])]).collect();
        // MSG_TRUNC returns the original length of a packet.
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC;
        let received =
            recvmmsg(socket.as_raw_fd(), &mut self.headers, slices.iter_mut(), flags, None);
        // An error means no packet, or an interface that disappears with its bed.
        for packet in received.into_iter().flatten() {
            let at = packet.cmsgs().ok().and_then(|mut messages| {
                messages.find_map(|message| match message {
                    ControlMessageOwned::ScmTimestampns(at) => Some(Duration::from(at)),
                    _ => None,
                })
            });
            self.arrivals.push((packet.bytes, at));
        }
        self.arrivals.len()
    }
}

const _: () = assert!(FRAME_BYTES > crate::MTU_BYTES + 14);
