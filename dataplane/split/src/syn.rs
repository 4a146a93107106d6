//! First packets of connections (SYN), as Linux logged them, given back to Linux: to the
//! listener of this process once the server has answered, or to be refused.

use crate::request::Request;
use crate::sockets::{MARK_ANSWERED, MARK_PASSED, MARK_REFUSED};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Number of TCP, and of packets with headers of their own (IPPROTO_RAW).
const TCP: u8 = 6;
const RAW: i32 = 255;

/// Length of IPv6's header, and least lengths of IPv4's and TCP's.
const IPV6_BYTES: usize = 40;
const IPV4_BYTES: usize = 20;
const TCP_BYTES: usize = 20;

/// Place of the checksum in the header of TCP.
const CHECKSUM: usize = 16;

/// The first packet of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Syn {
    packet: Vec<u8>,
    /// Where the header of TCP begins.
    tcp: usize,
    pub(crate) request: Request,
}

impl Syn {
    /// Parses a packet from its IP header on. `None`: it is cut, or has other headers before TCP's.
    pub(crate) fn parse(mut packet: Vec<u8>) -> Option<Syn> {
        let (tcp, length, ends) = match packet.first()? >> 4 {
            4 => {
                let header = usize::from(packet[0] & 15) * 4;
                let head: &[u8; IPV4_BYTES] = packet.first_chunk()?;
                if head[9] != TCP || header < IPV4_BYTES {
                    return None;
                }
                let address = |at: usize| {
                    let bytes: [u8; 4] = head[at..at + 4].try_into().unwrap_or_default();
                    IpAddr::from(Ipv4Addr::from(bytes))
                };
                let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
                (header, length, [address(12), address(16)])
            }
            6 => {
                let head: &[u8; IPV6_BYTES] = packet.first_chunk()?;
                if head[6] != TCP {
                    return None;
                }
                let address = |at: usize| {
                    let bytes: [u8; 16] = head[at..at + 16].try_into().unwrap_or_default();
                    IpAddr::from(Ipv6Addr::from(bytes))
                };
                let length = IPV6_BYTES + usize::from(u16::from_be_bytes([head[4], head[5]]));
                (IPV6_BYTES, length, [address(8), address(24)])
            }
            _ => return None,
        };
        if length < tcp + TCP_BYTES || length > packet.len() {
            return None;
        }
        packet.truncate(length);
        let port = |at: usize| u16::from_be_bytes([packet[tcp + at], packet[tcp + at + 1]]);
        let [host, server] = ends;
        let host = SocketAddr::new(host, port(0));
        let request = Request { host, server: SocketAddr::new(server, port(2)) };
        let mut syn = Syn { packet, tcp, request };
        syn.complete();
        Some(syn)
    }

    /// Computes the checksum of TCP, which senders on this machine leave to a network card.
    fn complete(&mut self) {
        let place = self.tcp + CHECKSUM;
        self.packet[place..place + 2].fill(0);
        let checksum = !self.sum();
        self.packet[place..place + 2].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Sum of the pseudo-header and of TCP (RFC 9293, RFC 8200 section 8.1).
    fn sum(&self) -> u16 {
        let tcp = &self.packet[self.tcp..];
        let addresses = match self.request.host {
            SocketAddr::V4(_) => &self.packet[12..20],
            SocketAddr::V6(_) => &self.packet[8..40],
        };
        let words = |bytes: &[u8]| -> u64 {
            let pairs = bytes.chunks(2);
            pairs.map(|it| u64::from(u16::from_be_bytes([it[0], *it.get(1).unwrap_or(&0)]))).sum()
        };
        let mut sum = words(addresses) + words(tcp) + tcp.len() as u64 + u64::from(TCP);
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }
}

/// Gives first packets back to Linux.
#[derive(Debug)]
pub(crate) struct Injector {
    v4: Socket,
    /// `None` without IPv6.
    v6: Option<Socket>,
}

impl Injector {
    pub(crate) fn open() -> io::Result<Injector> {
        let open = |domain| Socket::new(domain, Type::RAW.nonblocking(), Some(Protocol::from(RAW)));
        let v6 = open(Domain::IPV6).and_then(|socket| {
            socket.set_header_included_v6(true)?;
            Ok(socket)
        });
        Ok(Injector { v4: open(Domain::IPV4)?, v6: v6.ok() })
    }

    /// Has Linux answer it, by the listener of this process.
    pub(crate) fn answer(&self, syn: &Syn) {
        self.send(syn, MARK_ANSWERED);
    }

    /// Has Linux refuse it.
    pub(crate) fn refuse(&self, syn: &Syn) {
        self.send(syn, MARK_REFUSED);
    }

    /// Has it go through the tunnel as it is.
    pub(crate) fn pass(&self, syn: &Syn) {
        self.send(syn, MARK_PASSED);
    }

    fn send(&self, syn: &Syn, mark: u32) {
        let server = syn.request.server.ip();
        let socket = if server.is_ipv4() { Some(&self.v4) } else { self.v6.as_ref() };
        let Some(socket) = socket else { return };
        let sent = socket
            .set_mark(mark)
            .and_then(|()| socket.send_to(&syn.packet, &SocketAddr::new(server, 0).into()));
        if let Err(error) = sent {
            // The host sends another one.
            tracing::debug!(%server, %error, "a first packet was lost");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A SYN of 10.61.0.5:40000 to 10.62.0.9:443, with the checksum of a network card.
    fn v4() -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 44, 0, 1, 0x40, 0, 64, TCP, 0, 0];
        packet.extend([10, 61, 0, 5, 10, 62, 0, 9]);
        packet.extend([40_000_u16.to_be_bytes(), 443_u16.to_be_bytes()].concat());
        packet.extend([0, 0, 0, 7, 0, 0, 0, 0, 0x60, 2, 0xfa, 0xf0, 0x12, 0x34, 0, 0]);
        packet.extend([2, 4, 5, 0xb4]);
        packet
    }

    fn v6() -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 24, TCP, 64];
        packet.extend(Ipv6Addr::from([0xfd61, 0, 0, 0, 0, 0, 0, 5]).octets());
        packet.extend(Ipv6Addr::from([0xfd62, 0, 0, 0, 0, 0, 0, 9]).octets());
        packet.extend(&v4()[IPV4_BYTES..]);
        packet
    }

    #[test]
    fn ends_are_read_and_the_checksum_is_that_of_the_packet() {
        for (packet, host, server) in
            [(v4(), "10.61.0.5:40000", "10.62.0.9:443"), (v6(), "[fd61::5]:40000", "[fd62::9]:443")]
        {
            let syn = Syn::parse([packet.clone(), vec![0; 6]].concat()).expect("a SYN");
            assert_eq!(syn.request.host, host.parse().expect("an address"));
            assert_eq!(syn.request.server, server.parse().expect("an address"));
            assert_eq!(syn.packet.len(), packet.len(), "padding is cut");
            assert_eq!(syn.sum(), 0xffff, "the sum over a right checksum");
        }
    }

    #[test]
    fn cut_and_other_packets_are_none() {
        for whole in [v4(), v6()] {
            for end in 0..whole.len() {
                assert_eq!(Syn::parse(whole[..end].to_vec()), None, "{end}");
            }
            let protocol = if whole[0] >> 4 == 4 { 9 } else { 6 };
            for (at, value) in [(0, 0x40), (0, 0x10), (protocol, 17)] {
                let mut other = whole.clone();
                other[at] = value;
                assert_eq!(Syn::parse(other), None, "{at} {value}");
            }
        }
    }
}
