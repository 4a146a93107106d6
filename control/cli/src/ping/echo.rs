//! ICMP echoes over a socket for unprivileged users, or over a raw one.
//!
//! ```text
//!  0      1      2          4            6        8       16       24
//!  | type | code | checksum | identifier | number | nonce | number | zeros ..
//! ```
//!
//! The number in the header has 16 bits, the one after the nonce 64. On an echo socket, Linux fills
//! in identifier and checksum, and passes only matching replies; on a raw socket, this module does.

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket, sockopt,
};
use std::collections::hash_map::RandomState;
use std::ffi::OsString;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

const HEADER_BYTES: usize = 8;

/// Nonce and number, which identify a reply.
pub const PAYLOAD_BYTES_MIN: u16 = 16;

/// Longest payload: an IP packet of 9000 bytes.
pub const PAYLOAD_BYTES_MAX: u16 = 8972;

/// ICMP types of requests and replies.
const ECHO_V4: [u8; 2] = [8, 0];
const ECHO_V6: [u8; 2] = [128, 129];

/// A socket that sends echoes to one address.
#[derive(Debug)]
pub struct Echoes {
    // Its methods work for any datagram socket.
    socket: UdpSocket,
    is_v4: bool,
    is_raw: bool,
    nonce: u64,
    payload_bytes: u16,
    incoming: Vec<u8>,
}

/// A received packet.
#[derive(Debug, PartialEq, Eq)]
pub enum EchoReply {
    /// The reply to the echo of this number.
    Answer(u64),
    /// An ICMP error, or Linux's equivalent.
    Refused(String),
    /// An unrelated packet.
    Nothing,
}

impl Echoes {
    /// Opens a socket for the family of an address.
    ///
    /// # Errors
    /// This user may open neither kind of socket.
    pub fn open(to: IpAddr, payload_bytes: u16) -> io::Result<Echoes> {
        let is_v4 = to.is_ipv4();
        let (family, protocol) = if is_v4 {
            (AddressFamily::Inet, SockProtocol::Icmp)
        } else {
            (AddressFamily::Inet6, SockProtocol::IcmpV6)
        };
        let open = |kind| socket(family, kind, SockFlag::SOCK_CLOEXEC, protocol);
        let (socket, is_raw) = match open(SockType::Datagram) {
            // net.ipv4.ping_group_range sets the groups that may open one.
            Err(Errno::EACCES | Errno::EPERM | Errno::EPROTONOSUPPORT) => {
                (open(SockType::Raw)?, true)
            }
            opened => (opened?, false),
        };
        if is_v4 {
            setsockopt(&socket, sockopt::Ipv4RecvErr, &true)?;
        } else {
            setsockopt(&socket, sockopt::Ipv6RecvErr, &true)?;
        }
        let socket = UdpSocket::from(socket);
        let nonce = RandomState::new().build_hasher().finish();
        let longest = HEADER_BYTES + usize::from(PAYLOAD_BYTES_MAX) + 60;
        Ok(Echoes { socket, is_v4, is_raw, nonce, payload_bytes, incoming: vec![0; longest] })
    }

    /// Sends echoes and receives replies through an interface, with the routes of its VRF.
    ///
    /// # Errors
    /// There is no such interface, or this user may not bind to it.
    pub fn by(&self, interface: &str) -> io::Result<()> {
        Ok(setsockopt(&self.socket, sockopt::BindToDevice, &OsString::from(interface))?)
    }

    /// Sends to this address from now on.
    ///
    /// # Errors
    /// There is no route.
    pub fn connect(&self, to: IpAddr) -> io::Result<()> {
        self.socket.connect(SocketAddr::new(to, 0))
    }

    /// The address that echoes leave from.
    ///
    /// # Errors
    /// The address is not available.
    pub fn local(&self) -> io::Result<IpAddr> {
        Ok(self.socket.local_addr()?.ip())
    }

    /// Sends the echo of this number.
    ///
    /// # Errors
    /// Linux does not send it.
    pub fn send(&self, number: u64) -> io::Result<()> {
        let kind = if self.is_v4 { ECHO_V4[0] } else { ECHO_V6[0] };
        let packet = packet(kind, self.nonce, number, self.payload_bytes);
        self.socket.send(&packet).map(drop)
    }

    /// Waits for at most `patience`.
    ///
    /// # Errors
    /// The socket fails.
    pub fn receive(&mut self, patience: Duration) -> io::Result<EchoReply> {
        // Zero would block indefinitely.
        self.socket.set_read_timeout(Some(patience.max(Duration::from_micros(100))))?;
        match self.socket.recv(&mut self.incoming) {
            Ok(length) => {
                let bytes = &self.incoming[..length.min(self.incoming.len())];
                let bytes = if self.is_v4 && self.is_raw { behind_ip(bytes) } else { Some(bytes) };
                let kind = if self.is_v4 { ECHO_V4[1] } else { ECHO_V6[1] };
                let number = bytes.and_then(|bytes| answered(kind, self.nonce, bytes));
                Ok(number.map_or(EchoReply::Nothing, EchoReply::Answer))
            }
            Err(error) if is_wait(&error) => Ok(EchoReply::Nothing),
            Err(error) => self.said(&error).ok_or(error),
        }
    }

    /// Describes an ICMP error. Other entries of the error queue would take the place of replies.
    fn said(&self, error: &io::Error) -> Option<EchoReply> {
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        let mut bytes = [0; 64];
        while recv(self.socket.as_raw_fd(), &mut bytes, flags).is_ok() {}
        refusal(error).map(EchoReply::Refused)
    }
}

/// Describes an error that the path caused; `None` if the socket caused it.
pub fn refusal(error: &io::Error) -> Option<String> {
    let said = match Errno::from_raw(error.raw_os_error()?) {
        Errno::EHOSTUNREACH => "host unreachable",
        Errno::ENETUNREACH => "network unreachable",
        Errno::ECONNREFUSED => "port unreachable",
        Errno::EACCES | Errno::EPERM => "forbidden by a firewall",
        Errno::EMSGSIZE => "too large for the path",
        Errno::ENETDOWN => "the interface is down",
        Errno::ENOPROTOOPT => "protocol unreachable",
        Errno::EPROTO => "a router could not forward it",
        Errno::ENOBUFS => "the queue of the interface is full",
        _ => return None,
    };
    Some(said.to_owned())
}

fn is_wait(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

fn packet(kind: u8, nonce: u64, number: u64, payload_bytes: u16) -> Vec<u8> {
    let mut packet = vec![0; HEADER_BYTES + usize::from(payload_bytes.max(PAYLOAD_BYTES_MIN))];
    packet[0] = kind;
    packet[4..6].copy_from_slice(&identifier(nonce));
    // Receivers compare all of them; the protocol limits the header's to 16 bits.
    packet[6..8].copy_from_slice(&(number as u16).to_be_bytes());
    packet[8..16].copy_from_slice(&nonce.to_be_bytes());
    packet[16..24].copy_from_slice(&number.to_be_bytes());
    // The ICMPv6 checksum covers addresses, and Linux fills it in.
    if kind == ECHO_V4[0] {
        let sum = checksum(&packet);
        packet[2..4].copy_from_slice(&sum);
    }
    packet
}

fn identifier(nonce: u64) -> [u8; 2] {
    (nonce as u16).to_be_bytes()
}

/// The number of the echo that this packet replies to.
fn answered(kind: u8, nonce: u64, bytes: &[u8]) -> Option<u64> {
    let (header, payload) = bytes.split_at_checked(HEADER_BYTES)?;
    let (own, rest) = payload.split_at_checked(8)?;
    let number = u64::from_be_bytes(rest.get(..8)?.try_into().ok()?);
    let is_ours = header[..2] == [kind, 0]
        && own == nonce.to_be_bytes()
        && header[6..] == (number as u16).to_be_bytes();
    is_ours.then_some(number)
}

/// The payload of an IPv4 packet.
fn behind_ip(bytes: &[u8]) -> Option<&[u8]> {
    let header = usize::from(bytes.first()? & 0x0F) * 4;
    bytes.get(header.max(20)..)
}

/// Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    let sum: u32 = bytes.chunks(2).map(word).sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    let folded = (folded & 0xFFFF) + (folded >> 16);
    (!(folded as u16)).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_to_a_packet_is_known_and_nothing_else_is() {
        let number = 0x1_2345_6789;
        let mut reply = packet(ECHO_V4[0], 7, number, 56);
        assert_eq!(reply.len(), 64);
        assert_eq!(answered(ECHO_V4[1], 7, &reply), None, "a request is no reply");
        reply[0] = ECHO_V4[1];
        // Linux fills in its own identifier.
        reply[4..6].copy_from_slice(&[9, 9]);
        assert_eq!(answered(ECHO_V4[1], 7, &reply), Some(number));
        assert_eq!(answered(ECHO_V4[1], 8, &reply), None, "another program's");
        for short in 0..HEADER_BYTES + usize::from(PAYLOAD_BYTES_MIN) {
            assert_eq!(answered(ECHO_V4[1], 7, &reply[..short]), None);
        }
        for place in [0, 1, 6, 7, 8, 23] {
            let mut wrong = reply.clone();
            wrong[place] ^= 1;
            assert_eq!(answered(ECHO_V4[1], 7, &wrong), None, "byte {place}");
        }
        let behind = [&[0x46][..], &[0; 23], &reply].concat();
        assert_eq!(behind_ip(&behind), Some(&reply[..]));
        assert_eq!(behind_ip(&[]), None);
        assert_eq!(behind_ip(&[0x4F; 30]), None);
    }

    /// The sum over a packet with its checksum has all bits set.
    #[test]
    fn checksum_of_a_packet_makes_its_sum_zero() {
        for payload in [16, 17, 56, 57, PAYLOAD_BYTES_MAX] {
            let packet = packet(ECHO_V4[0], u64::MAX - 5, 70_000, payload);
            assert_eq!(checksum(&packet), [0, 0], "{payload} bytes");
        }
        assert_eq!(packet(ECHO_V6[0], 1, 1, 16)[2..4], [0, 0]);
    }
}
