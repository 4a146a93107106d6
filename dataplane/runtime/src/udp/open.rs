//! Opening: options, address, buffer sizes in Linux.

use super::merging::Merging;
use super::send::Sender;
use super::{Message, UdpSocket};
use crate::encap::header_bytes;
use crate::error::StartError;
use crate::other_versions::OtherVersions;
use crate::roaming::{Lookout, Near};
use crate::topology::{LinkConfig, Topology};
use nix::sys::socket::{cmsg_space, setsockopt, sockopt};
use recoded_wire::steer::Verdict;
use recoded_xsk::SocketStatistics;
use rustix::net::sockopt as options;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

impl UdpSocket {
    /// Opens the socket of one of the workers on a link; returns the offloads that Linux lacks for
    /// it.
    ///
    /// # Errors
    /// [`StartError::Udp`].
    pub(crate) fn open(
        topology: &Topology,
        link: usize,
    ) -> Result<(UdpSocket, &'static str), StartError> {
        Ok(UdpSocket::on(bound(topology, link)?, topology, link))
    }

    /// The same on a socket that is [`bound`].
    pub(crate) fn on(fd: OwnedFd, topology: &Topology, link: usize) -> (UdpSocket, &'static str) {
        let config = &topology.links[link];
        let local = SocketAddr::new(config.local, topology.port);
        let merges = setsockopt(&fd, sockopt::UdpGroSegment, &true).is_ok();
        let splits = setsockopt(&fd, sockopt::UdpGsoSegment, &0).is_ok();
        let lacks = match (merges, splits) {
            (true, true) => "",
            (true, false) => "this Linux does not split packets (UDP_SEGMENT)",
            (false, true) => "this Linux does not merge packets (UDP_GRO)",
            (false, false) => "this Linux neither merges nor splits packets (UDP_GRO)",
        };
        let Near { endpoints, mut links, .. } = Near::new(topology);
        let targets: Vec<SocketAddr> = endpoints.iter().map(|endpoint| endpoint.at).collect();
        let socket = UdpSocket {
            fd,
            header_bytes: header_bytes(config.local),
            around: links.swap_remove(link),
            lookout: Lookout::default(),
            flows: Vec::new(),
            buffer: vec![0; MESSAGE_BYTES_MAX].into(),
            control: vec![0; control_bytes()].into(),
            message: Message::none(local),
            merging: Merging::new(merges),
            verdicts: [0; Verdict::COUNT as usize],
            not_neighbour: None,
            other_versions: OtherVersions::new(),
            statistics: SocketStatistics::default(),
            sender: Sender::new(&targets, splits),
        };
        (socket, lacks)
    }
}

/// A socket that receives packets on the interface of a link for this node's address there.
///
/// # Errors
/// [`StartError::Udp`].
pub(crate) fn bound(topology: &Topology, link: usize) -> Result<OwnedFd, StartError> {
    let config = &topology.links[link];
    let local = SocketAddr::new(config.local, topology.port);
    bind_to(config, local, topology.workers > 1).map_err(|source| StartError::Udp {
        interface: config.interface.clone(),
        local,
        source,
    })
}

fn bind_to(link: &LinkConfig, local: SocketAddr, is_shared: bool) -> io::Result<OwnedFd> {
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = socket_with(family, SocketType::DGRAM, flags, None)?;
    setsockopt(&fd, sockopt::BindToDevice, &OsString::from(&link.interface))?;
    // Linux distributes senders among the workers' sockets. A single socket must fail if the port
    // is taken.
    options::set_socket_reuseport(&fd, is_shared)?;
    // "Do not fragment", without Linux's own estimate of the path: streams find its MTU.
    match local.ip() {
        IpAddr::V4(_) => {
            options::set_ip_mtu_discover(&fd, options::Ipv4PathMtuDiscovery::PROBE)?;
            options::set_ip_recvtos(&fd, true)?;
            // An address may appear after the daemon, or disappear and return.
            options::set_ip_freebind(&fd, true)?;
        }
        IpAddr::V6(_) => {
            options::set_ipv6_v6only(&fd, true)?;
            options::set_ipv6_mtu_discover(&fd, options::Ipv6PathMtuDiscovery::PROBE)?;
            options::set_ipv6_recvtclass(&fd, true)?;
            options::set_ipv6_freebind(&fd, true)?;
        }
    }
    // Beyond the limit of the system only with CAP_NET_ADMIN.
    if setsockopt(&fd, sockopt::RcvBufForce, &ROOM_BYTES).is_err() {
        setsockopt(&fd, sockopt::RcvBuf, &ROOM_BYTES)?;
    }
    if setsockopt(&fd, sockopt::SndBufForce, &ROOM_BYTES).is_err() {
        setsockopt(&fd, sockopt::SndBuf, &ROOM_BYTES)?;
    }
    setsockopt(&fd, sockopt::RxqOvfl, &1)?;
    bind(&fd, &local)?;
    Ok(fd)
}

/// Room for all control messages that Linux adds to a message.
fn control_bytes() -> usize {
    cmsg_space::<i32>() * 2 + cmsg_space::<u32>()
}

/// Longest message, of many packets.
const MESSAGE_BYTES_MAX: usize = 1 << 16;

/// Room for packets that wait in Linux, in bytes: the same as the rings of an AF_XDP socket.
pub const ROOM_BYTES: usize = 4 << 20;
