//! Which flow an IP packet belongs to: its addresses, protocol and ports (RFC 8290, section 4.1.1).
//!
//! Never fails, whatever the bytes: packets that are cut short or no IP form one flow. Fragments,
//! and IPv6 packets with extension headers, are told apart by addresses and protocol alone, so that
//! all fragments of a packet are of one flow.

/// What packets of one flow have in common.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default, Debug)]
pub(super) struct Key<'a> {
    addresses: &'a [u8],
    protocol: u8,
    ports: &'a [u8],
}

impl Key<'_> {
    #[inline]
    pub(super) fn of(packet: &[u8]) -> Key<'_> {
        match packet.first().map(|first| first >> 4) {
            Some(4) => v4(packet),
            Some(6) => v6(packet),
            _ => None,
        }
        .unwrap_or_default()
    }
}

fn v4(packet: &[u8]) -> Option<Key<'_>> {
    let (addresses, protocol) = (packet.get(12..20)?, packet[9]);
    let is_whole = u16::from_be_bytes([packet[6], packet[7]]) & FRAGMENT == 0;
    let transport = usize::from(packet[0] & 0x0f) * 4;
    let ports = if is_whole { ports(packet, transport, protocol) } else { &[] };
    Some(Key { addresses, protocol, ports })
}

fn v6(packet: &[u8]) -> Option<Key<'_>> {
    let (addresses, protocol) = (packet.get(8..40)?, packet[6]);
    Some(Key { addresses, protocol, ports: ports(packet, 40, protocol) })
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
const UDP: u8 = 17;
const DCCP: u8 = 33;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inner::Inner;
    use proptest::prelude::*;

    /// Packets of UDP to port 80 of both IP versions.
    fn both(flow: u8) -> [Vec<u8>; 2] {
        [true, false].map(|is_v4| Inner { is_v4, ..Inner::udp(flow, &[1; 30]) }.bytes())
    }

    #[test]
    fn packets_of_one_flow_share_a_key_and_others_do_not() {
        for version in 0..2 {
            let packet = &both(1)[version];
            let mut next = packet.clone();
            *next.last_mut().unwrap() ^= 1;
            assert_eq!(Key::of(packet), Key::of(&next));
            let transport = [20, 40][version];
            let protocol = [9, 6][version];
            // A port of each side, the protocol, an address.
            for at in [transport + 1, transport + 3, protocol, transport - 1] {
                let mut other = packet.clone();
                other[at] ^= 3;
                assert_ne!(Key::of(packet), Key::of(&other), "byte {at}");
            }
        }
    }

    #[test]
    fn fragments_and_extension_headers_hide_ports() {
        let [v4, v6] = both(1);
        let fragment = |high, low| {
            let mut packet = v4.clone();
            packet[6..8].copy_from_slice(&[high, low]);
            packet
        };
        let (first, second) = (fragment(0x20, 0), fragment(0, 9));
        assert_eq!(Key::of(&first), Key::of(&second));
        assert!(Key::of(&first).ports.is_empty());
        let mut extended = v6;
        // Hop-by-hop options, routing, fragment, destination options.
        for header in [0, 43, 44, 60] {
            extended[6] = header;
            assert!(Key::of(&extended).ports.is_empty());
        }
    }

    #[test]
    fn options_move_the_ports() {
        let mut packet = both(1)[0].clone();
        packet[0] = 0x46;
        packet.splice(20..20, [1; 4]);
        assert_eq!(Key::of(&packet), Key::of(&both(1)[0]));
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
            let key = Key::of(&bytes);
            prop_assert!(key.ports.is_empty() || key.ports.len() == 4);
        }
    }
}
