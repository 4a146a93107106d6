//! Writes Ethernet, IP and UDP headers in front of a coded payload, in place.
//!
//! A next hop's headers hardly differ between packets, so they are kept as a template; per packet
//! only lengths, source port, traffic class and checksums change.
//!
//! ```text
//!  IPv4: | Ethernet 14 | IPv4 20 | UDP 8 | payload      DF set, TTL 64, UDP checksum 0
//!  IPv6: | Ethernet 14 | IPv6 40 | UDP 8 | payload      hop limit 64, UDP checksum computed
//! ```
//!
//! Pure: no memory of its own beyond the template, no I/O. Never fragments: the caller compares
//! with the MTU.

use crate::checksum::{fold, sum};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An Ethernet address.
pub type Mac = [u8; 6];

/// Ethernet header bytes, which a link's rate counts and its MTU does not.
pub const ETHERNET_BYTES: usize = 14;

/// Headers of each hop, by `PeerId`; `None` while it is unresolved.
pub(crate) type NextHops = Vec<Option<Encap>>;

/// The headers of one next hop.
#[derive(Clone, PartialEq, Debug)]
pub struct Encap {
    template: [u8; HEADER_BYTES_MAX],
    header_bytes: usize,
    /// IPv4: sum of the IP header's words with length and checksum zero. IPv6: sum of the words of
    /// the pseudo-header and the UDP header that do not change.
    fixed_sum: u32,
}

/// Bytes of Ethernet, IP and UDP header in front of a payload sent to `address`.
pub fn header_bytes(address: IpAddr) -> usize {
    match address {
        IpAddr::V4(_) => HEADER_BYTES_V4,
        IpAddr::V6(_) => HEADER_BYTES_MAX,
    }
}

impl Encap {
    /// Headers from (`source_mac`, `source`) to (`destination_mac`, `destination`), UDP port
    /// `port`.
    ///
    /// `None` when the addresses are not of one IP version.
    pub fn new(
        source_mac: Mac,
        destination_mac: Mac,
        source: IpAddr,
        destination: IpAddr,
        port: u16,
    ) -> Option<Encap> {
        let mut template = [0; HEADER_BYTES_MAX];
        template[..6].copy_from_slice(&destination_mac);
        template[6..12].copy_from_slice(&source_mac);
        let mut encap = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => v4(template, source, destination),
            (IpAddr::V6(source), IpAddr::V6(destination)) => v6(template, source, destination),
            _ => return None,
        };
        let udp = encap.header_bytes - UDP_BYTES;
        encap.template[udp + 2..udp + 4].copy_from_slice(&port.to_be_bytes());
        if encap.is_v6() {
            encap.fixed_sum += u32::from(port) + u32::from(PROTOCOL_UDP);
        }
        Some(encap)
    }

    /// Bytes in front of the payload.
    pub fn header_bytes(&self) -> usize {
        self.header_bytes
    }

    /// Fills in the headers of `packet`, which is [`Encap::header_bytes`] of room and the payload.
    /// `traffic_class` is the byte of DSCP and ECN bits, which both IP versions have (RFC 2474 and
    /// RFC 3168).
    ///
    /// # Panics
    /// When `packet` is shorter than the headers, or longer than IP's 16-bit length allows: the
    /// caller's frames are 2048 bytes.
    pub fn write(&self, packet: &mut [u8], source_port: u16, traffic_class: u8) {
        let (headers, payload) = packet.split_at_mut(self.header_bytes);
        headers.copy_from_slice(&self.template[..self.header_bytes]);
        let (ip, udp) = headers[ETHERNET_BYTES..].split_at_mut(self.ip_bytes());
        let udp_length = length_16(UDP_BYTES + payload.len());
        udp[..2].copy_from_slice(&source_port.to_be_bytes());
        udp[4..6].copy_from_slice(&udp_length.to_be_bytes());
        if self.is_v6() {
            // It lies between the version and the flow label and shares no bit with them.
            ip[0] |= traffic_class >> 4;
            ip[1] |= traffic_class << 4;
            ip[4..6].copy_from_slice(&udp_length.to_be_bytes());
            // The length counts twice: in the pseudo-header and in the UDP header (RFC 8200, 8.1).
            let total = u64::from(self.fixed_sum)
                + 2 * u64::from(udp_length)
                + u64::from(source_port)
                + sum(payload);
            let checksum = match !fold(total) {
                0 => 0xffff,
                checksum => checksum,
            };
            udp[6..8].copy_from_slice(&checksum.to_be_bytes());
        } else {
            let total = length_16(IPV4_BYTES + usize::from(udp_length));
            ip[1] = traffic_class;
            ip[2..4].copy_from_slice(&total.to_be_bytes());
            let varying = u64::from(total) + u64::from(traffic_class);
            let checksum = !fold(u64::from(self.fixed_sum) + varying);
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
    }

    fn is_v6(&self) -> bool {
        self.header_bytes == HEADER_BYTES_MAX
    }

    fn ip_bytes(&self) -> usize {
        self.header_bytes - ETHERNET_BYTES - UDP_BYTES
    }
}

fn v4(mut template: [u8; HEADER_BYTES_MAX], source: Ipv4Addr, destination: Ipv4Addr) -> Encap {
    template[12..14].copy_from_slice(&[0x08, 0x00]);
    let ip = &mut template[ETHERNET_BYTES..ETHERNET_BYTES + IPV4_BYTES];
    ip[0] = 0x45;
    // "Do not fragment"; with it the identification may stay 0 (RFC 6864).
    ip[6] = 0x40;
    ip[8] = HOP_LIMIT;
    ip[9] = PROTOCOL_UDP;
    ip[12..16].copy_from_slice(&source.octets());
    ip[16..20].copy_from_slice(&destination.octets());
    let fixed_sum = u32::from(fold(sum(ip)));
    Encap { template, header_bytes: HEADER_BYTES_V4, fixed_sum }
}

fn v6(mut template: [u8; HEADER_BYTES_MAX], source: Ipv6Addr, destination: Ipv6Addr) -> Encap {
    template[12..14].copy_from_slice(&[0x86, 0xdd]);
    let ip = &mut template[ETHERNET_BYTES..ETHERNET_BYTES + IPV6_BYTES];
    ip[0] = 0x60;
    ip[6] = PROTOCOL_UDP;
    ip[7] = HOP_LIMIT;
    ip[8..24].copy_from_slice(&source.octets());
    ip[24..40].copy_from_slice(&destination.octets());
    let fixed_sum = u32::from(fold(sum(&ip[8..40])));
    Encap { template, header_bytes: HEADER_BYTES_MAX, fixed_sum }
}

/// Frames are far below 64 KiB; see the panic note of [`Encap::write`].
fn length_16(bytes: usize) -> u16 {
    assert!(bytes <= usize::from(u16::MAX), "packet of {bytes} bytes");
    bytes as u16
}

const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
const HEADER_BYTES_V4: usize = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES;
const HEADER_BYTES_MAX: usize = ETHERNET_BYTES + IPV6_BYTES + UDP_BYTES;
const PROTOCOL_UDP: u8 = 17;
/// Linux's default, which RFC 1700 recommends.
const HOP_LIMIT: u8 = 64;

// A frame's headroom must hold the headers.
const _: () = assert!(HEADER_BYTES_MAX <= recoded_wire::frames::HEADROOM_BYTES);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use recoded_wire::packet::locate;

    const US: Mac = [2, 0, 0, 0, 0, 1];
    const THEM: Mac = [2, 0, 0, 0, 0, 2];

    fn packet(
        source: IpAddr,
        destination: IpAddr,
        port: u16,
        traffic_class: u8,
        payload: &[u8],
    ) -> Vec<u8> {
        let encap = Encap::new(US, THEM, source, destination, port).unwrap();
        // Stale bytes in the headroom must not leak into the packet.
        let mut packet = vec![0xa5; encap.header_bytes()];
        packet.extend_from_slice(payload);
        encap.write(&mut packet, 50000, traffic_class);
        packet
    }

    /// RFC 768 and RFC 8200, 8.1, written as plainly as possible.
    fn udp_v6_checksum_holds(packet: &[u8]) -> bool {
        let ip = &packet[ETHERNET_BYTES..];
        let mut data = ip[8..40].to_vec();
        data.extend_from_slice(&[0, 0, ip[4], ip[5], 0, 0, 0, PROTOCOL_UDP]);
        data.extend_from_slice(&ip[40..]);
        plain_sum(&data) == 0xffff
    }

    fn plain_sum(data: &[u8]) -> u32 {
        let mut sum = 0u32;
        for pair in data.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum
    }

    proptest! {
        #[test]
        fn write_v4_is_found_again_with_a_right_ip_checksum(
            source: Ipv4Addr, destination: Ipv4Addr, port: u16, class: u8,
            payload in proptest::collection::vec(any::<u8>(), 0..1500),
        ) {
            let packet = packet(source.into(), destination.into(), port, class, &payload);
            let found = locate(&packet).unwrap();
            prop_assert_eq!(&packet[found.payload_offset..][..found.payload_len], &payload[..]);
            prop_assert_eq!(found.source, (source, 50000).into());
            prop_assert_eq!(found.destination, (destination, port).into());
            prop_assert_eq!(plain_sum(&packet[14..34]), 0xffff);
            prop_assert_eq!(packet[15], class);
            prop_assert_eq!(&packet[40..42], &[0, 0], "UDP checksum absent");
            prop_assert_eq!(&packet[..12], &[THEM, US].concat()[..]);
        }

        #[test]
        fn write_v6_is_found_again_with_a_right_udp_checksum(
            source: Ipv6Addr, destination: Ipv6Addr, port: u16, class: u8,
            payload in proptest::collection::vec(any::<u8>(), 0..1500),
        ) {
            let packet = packet(source.into(), destination.into(), port, class, &payload);
            let found = locate(&packet).unwrap();
            prop_assert_eq!(&packet[found.payload_offset..][..found.payload_len], &payload[..]);
            prop_assert_eq!(found.source, (source, 50000).into());
            prop_assert_eq!(found.destination, (destination, port).into());
            let first = u32::from_be_bytes(packet[14..18].try_into().unwrap());
            prop_assert_eq!(first, 6 << 28 | u32::from(class) << 20, "version, class, no label");
            prop_assert!(udp_v6_checksum_holds(&packet));
            prop_assert_ne!(&packet[60..62], &[0, 0], "zero would mean: no checksum");
        }
    }

    #[test]
    fn new_mixed_families_is_none() {
        let v4: IpAddr = Ipv4Addr::LOCALHOST.into();
        let v6: IpAddr = Ipv6Addr::LOCALHOST.into();
        assert_eq!(Encap::new(US, THEM, v4, v6, 1), None);
        assert_eq!(Encap::new(US, THEM, v6, v4, 1), None);
    }
}
