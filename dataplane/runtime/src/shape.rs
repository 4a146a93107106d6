//! The fields of an IP packet that decide whether it merges with others ([`crate::merge`]). Pure.

use crate::checksum::{fold, sum};

/// The fields of a packet that decide whether it merges.
#[derive(Copy, Clone, Debug)]
pub(crate) struct PacketLayout {
    /// Offsets of the transport header and of the payload.
    pub(crate) transport: usize,
    pub(crate) payload: usize,
    pub(crate) protocol: Protocol,
    /// Whether the packet may begin a run or continue one.
    pub(crate) is_mergeable: bool,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
}

impl PacketLayout {
    /// `None` for protocols other than TCP and UDP, and for layouts that are not merged.
    #[inline]
    pub(crate) fn of(packet: &[u8], merges_udp: bool) -> Option<PacketLayout> {
        let (transport, number) = match packet.first()? >> 4 {
            4 => v4(packet)?,
            6 => v6(packet)?,
            _ => return None,
        };
        let segment = &packet[transport..];
        let (protocol, header_bytes, may_merge) = match number {
            PROTOCOL_TCP if segment.len() >= TCP_BYTES_MIN => {
                let flags = segment[TCP_FLAGS];
                let is_plain = flags & !TCP_PSH == TCP_ACK;
                (Protocol::Tcp, usize::from(segment[TCP_OFFSET] >> 4) * 4, is_plain)
            }
            PROTOCOL_UDP if segment.len() >= UDP_BYTES => {
                let has_checksum = segment[UDP_CHECKSUM..UDP_BYTES] != [0, 0];
                let is_whole = usize::from(word(segment, 4)) == segment.len();
                (Protocol::Udp, UDP_BYTES, merges_udp && has_checksum && is_whole)
            }
            _ => return None,
        };
        if protocol == Protocol::Tcp && header_bytes < TCP_BYTES_MIN {
            return None;
        }
        let payload = transport + header_bytes;
        let mut shape = PacketLayout { transport, payload, protocol, is_mergeable: false };
        shape.is_mergeable = may_merge
            && payload < packet.len()
            && fold(pseudo_sum(packet, &shape, number) + sum(segment)) == 0xffff;
        Some(shape)
    }

    pub(crate) fn is_v4(&self) -> bool {
        self.transport == IPV4_BYTES
    }

    /// The range of source and destination address.
    pub(crate) fn addresses(&self) -> std::ops::Range<usize> {
        if self.is_v4() { 12..20 } else { 8..40 }
    }

    pub(crate) fn sequence(&self, packet: &[u8]) -> u32 {
        let at = self.transport + 4;
        u32::from_be_bytes([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]])
    }

    pub(crate) fn has_psh(&self, packet: &[u8]) -> bool {
        self.protocol == Protocol::Tcp && packet[self.transport + TCP_FLAGS] & TCP_PSH != 0
    }
}

/// Checks for an IPv4 packet without options that is no fragment; returns where its payload begins,
/// and its protocol.
fn v4(packet: &[u8]) -> Option<(usize, u8)> {
    let is_plain = packet.len() >= IPV4_BYTES
        && packet[0] == 0x45
        && usize::from(word(packet, 2)) == packet.len()
        && word(packet, 6) & IPV4_FRAGMENT == 0
        // Merging would replace a wrong sum by a valid one.
        && fold(sum(&packet[..IPV4_BYTES])) == 0xffff;
    is_plain.then(|| (IPV4_BYTES, packet[9]))
}

/// An IPv6 packet without extension headers.
fn v6(packet: &[u8]) -> Option<(usize, u8)> {
    let is_plain = packet.len() >= IPV6_BYTES
        && usize::from(word(packet, 4)) + IPV6_BYTES == packet.len()
        && packet.len() <= PACKET_BYTES_MAX;
    is_plain.then(|| (IPV6_BYTES, packet[6]))
}

/// Sum of the pseudo-header (RFC 9293, 3.1, and RFC 8200, 8.1).
pub(crate) fn pseudo_sum(packet: &[u8], shape: &PacketLayout, number: u8) -> u64 {
    let length = packet.len() - shape.transport;
    sum(&packet[shape.addresses()]) + length as u64 + u64::from(number)
}

pub(crate) fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The longest IP packet.
pub(crate) const PACKET_BYTES_MAX: usize = 65_535;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
/// "More fragments" and the offset.
const IPV4_FRAGMENT: u16 = 0x3fff;
pub(crate) const IPV4_DONT_FRAGMENT: u8 = 0x40;
pub(crate) const PROTOCOL_TCP: u8 = 6;
pub(crate) const PROTOCOL_UDP: u8 = 17;
const UDP_BYTES: usize = 8;
pub(crate) const UDP_CHECKSUM: usize = 6;
const TCP_BYTES_MIN: usize = 20;
const TCP_OFFSET: usize = 12;
pub(crate) const TCP_FLAGS: usize = 13;
pub(crate) const TCP_CHECKSUM: usize = 16;
const TCP_ACK: u8 = 0x10;
const TCP_PSH: u8 = 0x08;
