//! A UDP socket that never fragments, and reports arrival times and packets dropped for lack of
//! room.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;
use rustix::net::sockopt as ip;

use crate::packet::{BYTES_MAX, Body, Packet, ParseError, Token};
use crate::train::{PAYLOAD_BYTES_MAX, wall_nanos};

/// Room for packets that arrive while the program is not scheduled, as far as Linux allows.
const BUFFER_BYTES: usize = 8 << 20;

/// IP and UDP headers.
const HEADERS_V4: u16 = 28;
const HEADERS_V6: u16 = 48;

/// A socket and its buffers.
#[derive(Debug)]
pub struct Endpoint {
    socket: UdpSocket,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    control: Vec<u8>,
    overrun: u32,
}

/// A received packet.
#[derive(Debug)]
pub struct Received {
    /// The source address.
    pub from: SocketAddr,
    /// Linux's timestamp, in nanoseconds.
    pub at: u64,
    /// Length, padding included.
    pub bytes: usize,
    /// Packets dropped because the socket buffer was full since the previous one.
    pub overrun: u32,
    /// Its content.
    pub packet: Result<Packet, ParseError>,
}

impl Endpoint {
    /// Binds a socket.
    ///
    /// # Errors
    /// Linux refuses the address, or an option that all of its versions support.
    pub fn bind(local: SocketAddr) -> io::Result<Endpoint> {
        let socket = UdpSocket::bind(local)?;
        if local.is_ipv6() {
            ip::set_ipv6_mtu_discover(&socket, ip::Ipv6PathMtuDiscovery::PROBE)?;
            // For IPv4 over the same socket; fails on a host without IPv4.
            let _ = ip::set_ip_mtu_discover(&socket, ip::Ipv4PathMtuDiscovery::PROBE);
        } else {
            ip::set_ip_mtu_discover(&socket, ip::Ipv4PathMtuDiscovery::PROBE)?;
        }
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        setsockopt(&socket, sockopt::RxqOvfl, &1)?;
        // The first needs privileges, the second is limited by Linux.
        if setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES).is_err() {
            let _ = setsockopt(&socket, sockopt::RcvBuf, &BUFFER_BYTES);
        }
        Ok(Endpoint {
            socket,
            incoming: vec![0; PAYLOAD_BYTES_MAX],
            outgoing: vec![0; PAYLOAD_BYTES_MAX],
            control: nix::cmsg_space!(TimeSpec, u32),
            overrun: 0,
        })
    }

    /// The socket.
    #[must_use]
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Waits for a packet, for at most `patience`.
    ///
    /// # Errors
    /// An error that Linux reports for an earlier packet, such as an unreachable port.
    pub fn receive(&mut self, patience: Duration) -> io::Result<Option<Received>> {
        let millis = u16::try_from(patience.as_millis()).unwrap_or(u16::MAX);
        let mut ready = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, PollTimeout::from(millis)) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut slices = [IoSliceMut::new(&mut self.incoming)];
        let message = recvmsg::<SockaddrStorage>(
            self.socket.as_raw_fd(),
            &mut slices,
            Some(&mut self.control),
            MsgFlags::MSG_DONTWAIT,
        );
        let message = match message {
            Ok(message) => message,
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let (mut at, mut overruns) = (None, None);
        for control in message.cmsgs().into_iter().flatten() {
            match control {
                ControlMessageOwned::ScmTimestampns(stamp) => {
                    at = u64::try_from(Duration::from(stamp).as_nanos()).ok();
                }
                ControlMessageOwned::RxqOvfl(count) => overruns = Some(count),
                _ => {}
            }
        }
        let Some(from) = message.address.as_ref().and_then(address) else { return Ok(None) };
        let bytes = message.bytes;
        let overrun = overruns.map_or(0, |count| {
            let more = count.wrapping_sub(self.overrun);
            self.overrun = count;
            more
        });
        let packet = Packet::parse(&self.incoming[..bytes.min(PAYLOAD_BYTES_MAX)]);
        Ok(Some(Received { from, at: at.unwrap_or_else(wall_nanos), bytes, overrun, packet }))
    }

    /// Sends a packet, padded to the given size, to the connected address or to the given one.
    ///
    /// # Errors
    /// Linux does not send it.
    pub fn send(
        &mut self,
        to: Option<SocketAddr>,
        token: Token,
        body: Body,
        padded_bytes: usize,
    ) -> io::Result<()> {
        let written = Packet { token, body }.write(&mut self.outgoing);
        let length = written.unwrap_or(BYTES_MAX).max(padded_bytes).min(PAYLOAD_BYTES_MAX);
        let bytes = &self.outgoing[..length];
        match to {
            Some(to) => self.socket.send_to(bytes, to)?,
            None => self.socket.send(bytes)?,
        };
        Ok(())
    }
}

/// Bytes of the IP and UDP headers of packets to an address.
#[must_use]
pub fn header_bytes(address: IpAddr) -> u16 {
    if address.to_canonical().is_ipv4() { HEADERS_V4 } else { HEADERS_V6 }
}

/// The interface that has an address.
#[must_use]
pub fn interface(of: IpAddr) -> Option<String> {
    let mut all = nix::ifaddrs::getifaddrs().ok()?;
    let has = |storage: &SockaddrStorage| address(storage).map(|address| address.ip()) == Some(of);
    let found = all.find(|interface| interface.address.as_ref().is_some_and(has));
    found.map(|interface| interface.interface_name)
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = storage.as_sockaddr_in().map(|v4| SocketAddr::from(std::net::SocketAddrV4::from(*v4)));
    v4.or_else(|| {
        storage.as_sockaddr_in6().map(|v6| SocketAddr::from(std::net::SocketAddrV6::from(*v6)))
    })
}
