//! ICMP errors about coded packets: a neighbour without a daemon, a router without a route, a link
//! with a smaller MTU. Linux delivers them to none of this node's sockets, since AF_XDP sends
//! without one; so they are read separately and counted for operators.
//!
//! They never affect forwarding, because anyone can forge them: streams find neighbours and the
//! path MTU by the packets that arrive. An error is counted if both addresses and the port of the
//! quoted packet are this node's. The thread that watches links reads up to [`READS_MAX`] per poll;
//! an overflow of the socket buffer is lost.
//!
//! Without CAP_NET_RAW (UDP sockets need no privilege) there is no socket to read, and all counters
//! stay 0.

use crate::topology::Topology;
use recoded_counters::link::IcmpErrors;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, ipproto, recv, socket_with};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

/// Messages read per poll: more than a router sends about this node in that time.
const READS_MAX: usize = 256;

/// Bytes read of a message, including headers and the quoted packet.
const MESSAGE_BYTES: usize = 256;

const UDP: u8 = 17;
const UDP_BYTES: usize = 8;
const ICMP_BYTES: usize = 8;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;

/// The meaning of an ICMP error.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// No program listens on that port.
    NoPort,
    /// The host, its network or protocol is unreachable, or a firewall blocks it.
    Unreachable,
    /// A link carries only smaller packets.
    TooLarge,
}

/// An ICMP error about a UDP packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct IcmpError {
    kind: Kind,
    from: IpAddr,
    to: IpAddr,
    port: u16,
}

/// The sockets.
pub(crate) struct Icmp {
    v4: Option<OwnedFd>,
    v6: Option<OwnedFd>,
}

impl Icmp {
    /// Opens a socket for each family of addresses that links have, where that is permitted.
    pub(crate) fn open(topology: &Topology) -> Icmp {
        let open = |family, protocol| {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let opened = socket_with(family, SocketType::RAW, flags, Some(protocol));
            opened.inspect_err(|error| tracing::debug!(%error, "ICMP errors are not heard")).ok()
        };
        let has = |is_v4| topology.links.iter().any(|link| link.local.is_ipv4() == is_v4);
        Icmp {
            v4: has(true).then(|| open(AddressFamily::INET, ipproto::ICMP)).flatten(),
            v6: has(false).then(|| open(AddressFamily::INET6, ipproto::ICMPV6)).flatten(),
        }
    }

    /// Counts the errors since the last poll by link; calls `say` for each, with the neighbour.
    pub(crate) fn look(
        &self,
        topology: &Topology,
        counts: &mut [IcmpErrors],
        mut say: impl FnMut(usize, IpAddr, Kind),
    ) {
        let sockets =
            [(&self.v4, heard_v4 as fn(&[u8]) -> Option<IcmpError>), (&self.v6, heard_v6)];
        for (socket, parse) in sockets {
            let Some(socket) = socket else { continue };
            for _ in 0..READS_MAX {
                let mut message = [0; MESSAGE_BYTES];
                // The queue is empty, or the socket failed; the next poll retries.
                let Ok((len, _)) = recv(socket, &mut message, RecvFlags::empty()) else { break };
                let Some(heard) = parse(&message[..len]) else { continue };
                let Some(link) = link_of(topology, &heard) else { continue };
                count(&mut counts[link], heard.kind);
                say(link, heard.to, heard.kind);
            }
        }
    }
}

/// The link of a quoted packet, if this node sent it.
fn link_of(topology: &Topology, heard: &IcmpError) -> Option<usize> {
    if heard.port != topology.port {
        return None;
    }
    let hops = topology.hops.iter().filter(|hop| hop.address == heard.to);
    let is_ours = |local: IpAddr| local == heard.from || local.is_unspecified();
    hops.map(|hop| hop.link).find(|link| is_ours(topology.links[*link].local))
}

fn count(counts: &mut IcmpErrors, kind: Kind) {
    match kind {
        Kind::NoPort => counts.rx_icmp_no_port += 1,
        Kind::Unreachable => counts.rx_icmp_unreachable += 1,
        Kind::TooLarge => counts.rx_icmp_too_large += 1,
    }
}

/// RFC 792: an IPv4 header, type, code and six bytes, then the header of the quoted packet and at
/// least 8 bytes behind it.
fn heard_v4(message: &[u8]) -> Option<IcmpError> {
    const UNREACHABLE: u8 = 3;
    const PORT: u8 = 3;
    const FRAGMENTATION_NEEDED: u8 = 4;
    let icmp = message.get(ipv4_bytes(message)?..)?;
    let quoted = icmp.get(ICMP_BYTES..)?;
    if icmp[0] != UNREACHABLE || *quoted.get(9)? != UDP {
        return None;
    }
    let udp = quoted.get(ipv4_bytes(quoted)?..)?;
    let kind = match icmp[1] {
        PORT => Kind::NoPort,
        FRAGMENTATION_NEEDED => Kind::TooLarge,
        _ => Kind::Unreachable,
    };
    let address = |at: usize| {
        let bytes: [u8; 4] = quoted.get(at..at + 4)?.try_into().ok()?;
        Some(IpAddr::V4(Ipv4Addr::from(bytes)))
    };
    Some(IcmpError { kind, from: address(12)?, to: address(16)?, port: port(udp)? })
}

/// RFC 4443: type, code and six bytes, then the quoted packet; Linux strips its own header.
fn heard_v6(icmp: &[u8]) -> Option<IcmpError> {
    const UNREACHABLE: u8 = 1;
    const PORT: u8 = 4;
    const TOO_BIG: u8 = 2;
    let quoted = icmp.get(ICMP_BYTES..)?;
    let udp = quoted.get(IPV6_BYTES..)?;
    let kind = match (icmp[0], icmp[1]) {
        (UNREACHABLE, PORT) => Kind::NoPort,
        (UNREACHABLE, _) => Kind::Unreachable,
        (TOO_BIG, _) => Kind::TooLarge,
        _ => return None,
    };
    if quoted[6] != UDP {
        return None;
    }
    let address = |at: usize| {
        let bytes: [u8; 16] = quoted.get(at..at + 16)?.try_into().ok()?;
        Some(IpAddr::V6(Ipv6Addr::from(bytes)))
    };
    Some(IcmpError { kind, from: address(8)?, to: address(24)?, port: port(udp)? })
}

/// Length of an IPv4 header, options included, if it is one.
fn ipv4_bytes(packet: &[u8]) -> Option<usize> {
    let first = packet.first()?;
    let bytes = usize::from(first & 0xf) * 4;
    (first >> 4 == 4 && bytes >= IPV4_BYTES).then_some(bytes)
}

/// The destination port.
fn port(udp: &[u8]) -> Option<u16> {
    let udp = udp.get(..UDP_BYTES)?;
    Some(u16::from_be_bytes([udp[2], udp[3]]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::tests::topology;
    use std::net::UdpSocket;
    use std::time::{Duration, Instant};

    /// An IPv4 header with these addresses and `options` bytes of options.
    fn ipv4(protocol: u8, from: [u8; 4], to: [u8; 4], options: usize) -> Vec<u8> {
        let mut header = vec![0; IPV4_BYTES + options];
        header[0] = 0x40 | u8::try_from(header.len() / 4).unwrap();
        header[9] = protocol;
        header[12..16].copy_from_slice(&from);
        header[16..20].copy_from_slice(&to);
        header
    }

    fn udp(port: u16) -> Vec<u8> {
        let [high, low] = port.to_be_bytes();
        vec![0xc0, 1, high, low, 0, 8, 0, 0]
    }

    /// A router's report about a packet from this node to the neighbour.
    fn error_v4(kind: u8, code: u8, options: usize) -> Vec<u8> {
        let mut message = ipv4(1, [192, 0, 2, 9], [10, 0, 2, 1], options);
        message.extend([kind, code, 0, 0, 0, 0, 5, 0]);
        message.extend(ipv4(UDP, [10, 0, 2, 1], [10, 0, 2, 2], options));
        message.extend(udp(9426));
        message
    }

    fn error_v6(kind: u8, code: u8) -> Vec<u8> {
        let mut message = vec![kind, code, 0, 0, 0, 0, 5, 0];
        let mut header = vec![0; IPV6_BYTES];
        (header[0], header[6], header[23], header[39]) = (0x60, UDP, 1, 2);
        message.extend(header);
        message.extend(udp(9426));
        message
    }

    #[test]
    fn errors_about_our_packets_are_told_by_kind() {
        let (from, to) = ("10.0.2.1".parse().unwrap(), "10.0.2.2".parse().unwrap());
        let cases = [
            (3, Kind::NoPort),
            (4, Kind::TooLarge),
            (1, Kind::Unreachable),
            (13, Kind::Unreachable),
        ];
        for (code, kind) in cases {
            for options in [0, 4, 40] {
                let heard = heard_v4(&error_v4(3, code, options));
                assert_eq!(
                    heard,
                    Some(IcmpError { kind, from, to, port: 9426 }),
                    "{code} {options}"
                );
            }
        }
        let (from, to) = ("::1".parse().unwrap(), "::2".parse().unwrap());
        let cases = [((1, 4), Kind::NoPort), ((1, 0), Kind::Unreachable), ((2, 0), Kind::TooLarge)];
        for ((kind, code), expected) in cases {
            let heard = heard_v6(&error_v6(kind, code));
            assert_eq!(heard, Some(IcmpError { kind: expected, from, to, port: 9426 }));
        }
    }

    #[test]
    fn other_messages_and_cut_or_changed_ones_are_ignored_or_told_and_never_panic() {
        // A ping, a redirect, a reply to a TCP packet.
        let mut of_tcp = error_v4(3, 3, 0);
        of_tcp[IPV4_BYTES + ICMP_BYTES + 9] = 6;
        for message in [error_v4(8, 0, 0), error_v4(5, 1, 0), of_tcp] {
            assert_eq!(heard_v4(&message), None);
        }
        assert_eq!(heard_v6(&error_v6(128, 0)), None);
        let (v4, v6) = (error_v4(3, 3, 40), error_v6(1, 4));
        for len in 0..v4.len() {
            assert_eq!(heard_v4(&v4[..len]), None, "{len} bytes");
        }
        for len in 0..v6.len() {
            assert_eq!(heard_v6(&v6[..len]), None, "{len} bytes");
        }
        for at in 0..v4.len().max(v6.len()) {
            for value in 0..=u8::MAX {
                for (message, parse) in
                    [(&v4, heard_v4 as fn(&[u8]) -> Option<IcmpError>), (&v6, heard_v6)]
                {
                    let mut message = message.clone();
                    if let Some(byte) = message.get_mut(at) {
                        *byte = value;
                    }
                    parse(&message);
                }
            }
        }
    }

    #[test]
    fn only_quoted_packets_of_a_link_to_its_neighbour_and_port_are_ours() {
        let topology = topology();
        let ours = heard_v4(&error_v4(3, 3, 0)).unwrap();
        assert_eq!(link_of(&topology, &ours), Some(0));
        let other = "10.0.2.3".parse().unwrap();
        let others = [
            IcmpError { from: other, ..ours },
            IcmpError { to: other, ..ours },
            IcmpError { port: 9427, ..ours },
        ];
        for heard in others {
            assert_eq!(link_of(&topology, &heard), None, "{heard:?}");
        }
    }

    /// A packet to a closed port of loopback.
    #[test]
    fn linux_answers_of_a_closed_port_are_heard() {
        for address in ["127.0.0.1", "::1"] {
            let here: IpAddr = address.parse().unwrap();
            let Ok(sender) = UdpSocket::bind((here, 0)) else {
                println!("skipped: there is no {here}");
                continue;
            };
            // A port that was free a moment ago.
            let port = UdpSocket::bind((here, 0)).unwrap().local_addr().unwrap().port();
            let mut topology = topology();
            (topology.links[0].local, topology.hops[0].address, topology.port) = (here, here, port);
            let icmp = Icmp::open(&topology);
            if icmp.v4.is_none() && icmp.v6.is_none() {
                println!("skipped: raw sockets need root");
                return;
            }
            let mut counts = [IcmpErrors::default()];
            let begun = Instant::now();
            while counts[0].rx_icmp_no_port == 0 {
                assert!(begun.elapsed() < Duration::from_secs(30), "{here}: {counts:?}");
                sender.send_to(b"x", (here, port)).unwrap();
                std::thread::sleep(Duration::from_millis(50));
                icmp.look(&topology, &mut counts, |link, to, kind| {
                    assert_eq!((link, to, kind), (0, here, Kind::NoPort));
                });
            }
            assert_eq!((counts[0].rx_icmp_unreachable, counts[0].rx_icmp_too_large), (0, 0));
        }
    }
}
