//! Flow identification of IP packets of a tunnel: addresses, protocol and ports. The queue of a
//! tunnel separates flows by them (RFC 8290, section 4.1.1), and a stream separates those of TCP,
//! whose order it keeps.
//!
//! Never fails on any input: truncated packets and packets other than IP form one flow. Fragments,
//! and IPv6 packets with extension headers, are distinguished by addresses and protocol only, so
//! that all fragments of a packet belong to one flow.

/// Fields shared by the packets of one flow.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct FlowKey<'a> {
    /// Source and destination, one after the other; empty if the packet is not IP.
    pub addresses: &'a [u8],
    /// The transport protocol, or the first extension header of IPv6.
    pub protocol: u8,
    /// Source and destination port, 4 bytes; empty if the packet does not show them.
    pub ports: &'a [u8],
}

/// Whether a packet of a TCP connection (see [`FlowKey::is_tcp`]) carries no data and no flag but
/// ACK. Its order does not matter, because a later one acknowledges everything that it does (RFC
/// 9293, section 3.4).
pub fn is_acknowledgement(packet: &[u8]) -> bool {
    let transport = match packet.first().map(|first| first >> 4) {
        Some(4) => usize::from(packet[0] & 0x0f) * 4,
        _ => 40,
    };
    let Some(&[offset, flags]) = packet.get(transport + 12..transport + 14) else { return false };
    let header = usize::from(offset >> 4) * 4;
    packet.len() == transport + header && flags & (FIN | SYN | RST | URG) == 0 && flags & ACK != 0
}

impl FlowKey<'_> {
    /// The key of a packet.
    #[inline]
    pub fn of(packet: &[u8]) -> FlowKey<'_> {
        match packet.first().map(|first| first >> 4) {
            Some(4) => v4(packet),
            Some(6) => v6(packet),
            _ => None,
        }
        .unwrap_or_default()
    }

    /// Whether it identifies a single TCP connection.
    #[inline]
    pub fn is_tcp(&self) -> bool {
        self.protocol == TCP && !self.ports.is_empty()
    }
}

fn v4(packet: &[u8]) -> Option<FlowKey<'_>> {
    let (addresses, protocol) = (packet.get(12..20)?, packet[9]);
    let is_whole = u16::from_be_bytes([packet[6], packet[7]]) & FRAGMENT == 0;
    let transport = usize::from(packet[0] & 0x0f) * 4;
    let ports = if is_whole { ports(packet, transport, protocol) } else { &[] };
    Some(FlowKey { addresses, protocol, ports })
}

fn v6(packet: &[u8]) -> Option<FlowKey<'_>> {
    let (addresses, protocol) = (packet.get(8..40)?, packet[6]);
    Some(FlowKey { addresses, protocol, ports: ports(packet, 40, protocol) })
}

/// Source and destination port, which begin the headers of all protocols that have them.
fn ports(packet: &[u8], transport: usize, protocol: u8) -> &[u8] {
    let has_ports = matches!(protocol, TCP | UDP | DCCP | SCTP | UDP_LITE);
    let ports = packet.get(transport..transport + 4).filter(|_| has_ports);
    ports.unwrap_or_default()
}

/// "More fragments" and the offset.
const FRAGMENT: u16 = 0x3fff;
const TCP: u8 = 6;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
const URG: u8 = 0x20;
const UDP: u8 = 17;
const DCCP: u8 = 33;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TRANSPORT: [usize; 2] = [20, 40];
    const PROTOCOL: [usize; 2] = [9, 6];

    /// Headers of both IP versions and 8 bytes of a transport header, with all bytes different
    /// except flags and offset.
    fn both(protocol: u8) -> [Vec<u8>; 2] {
        [0, 1].map(|version| {
            let mut packet: Vec<u8> = (0..TRANSPORT[version] as u8 + 8).collect();
            packet[0] = [0x45, 0x60][version];
            packet[6..8].fill(0);
            packet[PROTOCOL[version]] = protocol;
            packet
        })
    }

    #[test]
    fn packets_of_one_flow_share_a_key_and_others_do_not() {
        for (version, transport) in TRANSPORT.into_iter().enumerate() {
            let packet = &both(UDP)[version];
            let mut next = packet.clone();
            *next.last_mut().unwrap() ^= 1;
            assert_eq!(FlowKey::of(packet), FlowKey::of(&next));
            // A port of each side, the protocol, an address of each.
            let first = [12, 8][version];
            for at in [transport + 1, transport + 3, PROTOCOL[version], first, transport - 1] {
                let mut other = packet.clone();
                other[at] ^= 3;
                assert_ne!(FlowKey::of(packet), FlowKey::of(&other), "byte {at}");
            }
        }
    }

    #[test]
    fn only_whole_packets_of_tcp_are_of_a_connection() {
        for (version, transport) in TRANSPORT.into_iter().enumerate() {
            for (protocol, is_tcp) in [(TCP, true), (UDP, false), (SCTP, false), (1, false)] {
                assert_eq!(FlowKey::of(&both(protocol)[version]).is_tcp(), is_tcp, "{protocol}");
            }
            for length in 0..transport + 4 {
                assert!(!FlowKey::of(&both(TCP)[version][..length]).is_tcp(), "{length} bytes");
            }
        }
    }

    #[test]
    fn only_a_segment_that_says_nothing_else_is_an_acknowledgement() {
        let segment = |version: usize, options: usize, flags: u8, data: usize| {
            let mut packet = both(TCP)[version][..TRANSPORT[version] + 8].to_vec();
            let words = 5 + options as u8;
            packet.extend([0, 0, 0, 0, words << 4, flags, 0, 0, 0, 0, 0, 0]);
            packet.resize(TRANSPORT[version] + usize::from(words) * 4 + data, 0);
            packet
        };
        for version in [0, 1] {
            for (options, flags, data, expected) in [
                (0, ACK, 0, true),
                (3, ACK, 0, true),
                (3, ACK | 0xc8, 0, true),
                (3, ACK, 1, false),
                (0, ACK | FIN, 0, false),
                (5, ACK | SYN, 0, false),
                (0, ACK | RST, 0, false),
                (0, 0, 0, false),
            ] {
                let packet = segment(version, options, flags, data);
                assert_eq!(is_acknowledgement(&packet), expected, "{flags:#x} {options} {data}");
                for length in 0..TRANSPORT[version] + 14 {
                    assert!(!is_acknowledgement(&packet[..length]), "{length} bytes");
                }
            }
        }
    }

    #[test]
    fn fragments_and_extension_headers_hide_ports() {
        let [v4, v6] = both(TCP);
        let fragment = |high, low| {
            let mut packet = v4.clone();
            packet[6..8].copy_from_slice(&[high, low]);
            packet
        };
        let (first, second) = (fragment(0x20, 0), fragment(0, 9));
        assert_eq!(FlowKey::of(&first), FlowKey::of(&second));
        assert!(FlowKey::of(&first).ports.is_empty() && !FlowKey::of(&first).is_tcp());
        assert!(FlowKey::of(&fragment(0x40, 0)).is_tcp(), "don't fragment");
        let mut extended = v6;
        // Hop-by-hop options, routing, fragment, destination options.
        for header in [0, 43, 44, 60] {
            extended[6] = header;
            assert!(FlowKey::of(&extended).ports.is_empty());
        }
    }

    #[test]
    fn options_move_the_ports() {
        let mut packet = both(TCP)[0].clone();
        packet[0] = 0x46;
        packet.splice(20..20, [1; 4]);
        assert_eq!(FlowKey::of(&packet), FlowKey::of(&both(TCP)[0]));
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_key(
            mut bytes in prop::collection::vec(any::<u8>(), 0..80), first in prop::sample::select(
                vec![0x40u8, 0x45, 0x4f, 0x60, 0x6f, 0x00]),
        ) {
            if let Some(byte) = bytes.first_mut() {
                *byte = first;
            }
            let key = FlowKey::of(&bytes);
            is_acknowledgement(&bytes);
            prop_assert!(key.ports.is_empty() || key.ports.len() == 4);
        }
    }
}
