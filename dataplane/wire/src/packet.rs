//! Header walk from the first byte of an Ethernet frame to the payload of its UDP datagram.
//!
//! Shared by the XDP program, which must decide in a few dozen instructions whose packet this is,
//! and by user space, which needs the same answer for a received frame. Both run this code, so they
//! cannot disagree; only the way a byte is read differs ([`PacketBytes`]).
//!
//! ```text
//!  0        12   14            (18 with a tag of priority)
//!  +--------+----+- - - - - -+-----------------+----------+---------+- - - - +
//!  | MACs   |type| tag       | IPv4 | IPv6     | UDP      | payload | padding|
//!  +--------+----+- - - - - -+-----------------+----------+---------+- - - - +
//!                            ^ ip_offset       ^ udp_offset         ^ end by the IP length
//! ```
//!
//! A frame with a VLAN number belongs to another network than that of the interface, so its
//! addresses are meaningless here. If a NIC strips tags before anything sees the frame, this cannot
//! see them either.
//!
//! Bounds: no loop, at most one tag, every offset below 14 + 4 + 60 + 8 = 86 bytes, so the verifier
//! can follow it. Nothing is modified, and no checksum is verified: the UDP checksum may be absent
//! or partial here, and the coded header is checked by the pipeline.
//!
//! Not done here: reassembling fragments, following IPv6 extension headers, looking into tunnels.
//! Linux handles such packets ([`NotUdp`] names the case).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Reads of big-endian integers at byte offsets; `None` when any byte lies beyond the end.
pub trait PacketBytes {
    /// Bytes in the frame, from the first byte of the destination MAC address.
    fn len_bytes(&self) -> usize;
    /// The byte at `offset`.
    fn u8_at(&self, offset: usize) -> Option<u8>;
    /// The two bytes from `offset`, in host order.
    fn u16_at(&self, offset: usize) -> Option<u16>;
    /// The four bytes from `offset`, in host order.
    fn u32_at(&self, offset: usize) -> Option<u32>;
}

impl PacketBytes for [u8] {
    #[inline(always)]
    fn len_bytes(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn u8_at(&self, offset: usize) -> Option<u8> {
        self.get(offset).copied()
    }

    #[inline(always)]
    fn u16_at(&self, offset: usize) -> Option<u16> {
        Some(u16::from_be_bytes(*self.get(offset..)?.first_chunk()?))
    }

    #[inline(always)]
    fn u32_at(&self, offset: usize) -> Option<u32> {
        Some(u32::from_be_bytes(*self.get(offset..)?.first_chunk()?))
    }
}

/// Why a frame holds no readable UDP datagram.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum NotUdp {
    /// Neither IPv4 nor IPv6 by its EtherType: ARP, LLDP, MPLS and others.
    NotIp,
    /// A VLAN number, or more than one tag.
    Tagged,
    /// IP, but another protocol: TCP, ICMP, ICMPv6 with neighbour discovery, and others.
    OtherProtocol,
    /// IPv6 with an extension header in front of its payload.
    ExtensionHeader,
    /// A fragment, the first one included.
    Fragment,
    /// Ends, by the frame's or the IP header's length, before the last byte of the UDP header.
    Truncated,
    /// An IP version that contradicts the EtherType, or an IPv4 header shorter than 20 bytes.
    Malformed,
    /// A UDP header whose length field, or the IP length above it, exceeds the available bytes, or
    /// is smaller than the UDP header itself. Only [`locate`] reports it: see
    /// [`UdpHeader::payload`].
    UdpLength,
}

/// Version of the Internet Protocol of a packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum IpVersion {
    /// IPv4, with or without options.
    V4,
    /// IPv6 without extension headers.
    V6,
}

/// An address as four words in host order, the first one first; an IPv4 address as IPv6 maps it
/// (`::ffff:a.b.c.d`).
pub type AddressWords = [u32; 4];

/// The words of an address.
pub fn address_words(address: IpAddr) -> AddressWords {
    let bytes = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    let (words, _) = bytes.as_chunks::<4>();
    [0, 1, 2, 3].map(|word: usize| u32::from_be_bytes(words[word]))
}

/// The address of these words.
pub fn words_address(words: AddressWords) -> IpAddr {
    let [a, b, c, d] = words.map(u128::from);
    Ipv6Addr::from_bits(a << 96 | b << 64 | c << 32 | d).to_canonical()
}

/// A UDP header found by [`find_udp`]; offsets in bytes from the start of the frame.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct UdpHeader {
    /// Protocol of the header at `ip_offset`.
    pub ip: IpVersion,
    /// Start of the IP header: 14, or 18 after a priority tag.
    pub ip_offset: usize,
    /// Start of the UDP header.
    pub udp_offset: usize,
    /// First byte after the IP packet, by its own length field; may lie beyond the frame.
    pub ip_end: usize,
    /// UDP source port: the batch's entropy.
    pub source_port: u16,
    /// UDP destination port.
    pub destination_port: u16,
    /// UDP length field: header and payload, not yet checked.
    pub udp_bytes: u16,
}

/// Position of the payload of a received UDP datagram, and its addresses.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct UdpLocation {
    /// First byte of the UDP payload, in bytes from the start of the frame.
    pub payload_offset: usize,
    /// Bytes of the UDP payload; all of them lie within the frame. Ethernet padding is not counted.
    pub payload_len: usize,
    /// Sender.
    pub source: SocketAddr,
    /// Receiver.
    pub destination: SocketAddr,
    /// DSCP and ECN bits of the IP header: TOS in IPv4, traffic class in IPv6.
    pub traffic_class: u8,
}

impl UdpHeader {
    /// Offset and length of the payload, in bytes, or `None` when a length field is wrong: shorter
    /// than the UDP header, longer than the IP packet, or the IP packet longer than the frame.
    ///
    /// Separate from [`find_udp`], so that the XDP program can look at the port first: a bad length
    /// on another port is handled by Linux.
    #[inline(always)]
    pub fn payload<P: PacketBytes + ?Sized>(&self, packet: &P) -> Option<(usize, usize)> {
        let udp_bytes = usize::from(self.udp_bytes);
        if udp_bytes < UDP_BYTES
            || self.udp_offset + udp_bytes > self.ip_end
            || self.ip_end > packet.len_bytes()
        {
            return None;
        }
        Some((self.udp_offset + UDP_BYTES, udp_bytes - UDP_BYTES))
    }

    /// Source address; `None` when the frame ends before it.
    #[inline(always)]
    pub fn source<P: PacketBytes + ?Sized>(&self, packet: &P) -> Option<AddressWords> {
        match self.ip {
            IpVersion::V4 => words_v4(packet, self.ip_offset + 12),
            IpVersion::V6 => words_v6(packet, self.ip_offset + 8),
        }
    }

    /// Destination address.
    #[inline(always)]
    pub fn destination<P: PacketBytes + ?Sized>(&self, packet: &P) -> Option<AddressWords> {
        match self.ip {
            IpVersion::V4 => words_v4(packet, self.ip_offset + 16),
            IpVersion::V6 => words_v6(packet, self.ip_offset + 24),
        }
    }
}

#[inline(always)]
fn words_v4<P: PacketBytes + ?Sized>(packet: &P, offset: usize) -> Option<AddressWords> {
    Some([0, 0, 0xffff, packet.u32_at(offset)?])
}

#[inline(always)]
fn words_v6<P: PacketBytes + ?Sized>(packet: &P, offset: usize) -> Option<AddressWords> {
    Some([
        packet.u32_at(offset)?,
        packet.u32_at(offset + 4)?,
        packet.u32_at(offset + 8)?,
        packet.u32_at(offset + 12)?,
    ])
}

/// Finds the UDP payload of a received frame, its addresses included.
///
/// # Errors
/// [`NotUdp`] with the reason when there is no usable one.
pub fn locate(bytes: &[u8]) -> Result<UdpLocation, NotUdp> {
    let udp = find_udp(bytes)?;
    let (payload_offset, payload_len) = udp.payload(bytes).ok_or(NotUdp::UdpLength)?;
    let addresses = match udp.ip {
        IpVersion::V4 => addresses_v4(bytes, udp.ip_offset),
        IpVersion::V6 => addresses_v6(bytes, udp.ip_offset),
    };
    let (source, destination) = addresses.ok_or(NotUdp::Truncated)?;
    let (first, second) = (bytes[udp.ip_offset], bytes[udp.ip_offset + 1]);
    Ok(UdpLocation {
        payload_offset,
        payload_len,
        source: SocketAddr::new(source, udp.source_port),
        destination: SocketAddr::new(destination, udp.destination_port),
        traffic_class: match udp.ip {
            IpVersion::V4 => second,
            IpVersion::V6 => first << 4 | second >> 4,
        },
    })
}

/// Walks to the UDP header of a frame. The UDP length field is not checked here.
///
/// # Errors
/// [`NotUdp`] with the reason when there is none.
#[inline(always)]
pub fn find_udp<P: PacketBytes + ?Sized>(packet: &P) -> Result<UdpHeader, NotUdp> {
    let mut ip_offset = ETHERNET_BYTES;
    let mut ether_type = read_u16(packet, ETHER_TYPE_OFFSET)?;
    if is_vlan(ether_type) {
        // A tag is 2 bytes of priority and VLAN number, then the EtherType of the rest. Number 0
        // means no VLAN: the tag carries only a priority (IEEE 802.1Q, 9.6).
        if read_u16(packet, ip_offset)? & VLAN_NUMBER != 0 {
            return Err(NotUdp::Tagged);
        }
        ether_type = read_u16(packet, ip_offset + 2)?;
        ip_offset += VLAN_TAG_BYTES;
    }
    match ether_type {
        ETHER_TYPE_IPV4 => find_udp_v4(packet, ip_offset),
        ETHER_TYPE_IPV6 => find_udp_v6(packet, ip_offset),
        _ if is_vlan(ether_type) => Err(NotUdp::Tagged),
        _ => Err(NotUdp::NotIp),
    }
}

#[inline(always)]
fn find_udp_v4<P: PacketBytes + ?Sized>(packet: &P, ip: usize) -> Result<UdpHeader, NotUdp> {
    let version_and_length = read_u8(packet, ip)?;
    let header_bytes = usize::from(version_and_length & 0x0f) * 4;
    if version_and_length >> 4 != 4 || header_bytes < IPV4_BYTES_MIN {
        return Err(NotUdp::Malformed);
    }
    let total_bytes = usize::from(read_u16(packet, ip + 2)?);
    // "More fragments" or a non-zero offset (RFC 791, 3.1). The first fragment is left to Linux
    // too: half a coded packet is useless, and coded packets are never sent fragmented.
    if read_u16(packet, ip + 6)? & 0x3fff != 0 {
        return Err(NotUdp::Fragment);
    }
    if read_u8(packet, ip + 9)? != PROTOCOL_UDP {
        return Err(NotUdp::OtherProtocol);
    }
    read_udp(packet, IpVersion::V4, ip, ip + header_bytes, ip + total_bytes)
}

#[inline(always)]
fn find_udp_v6<P: PacketBytes + ?Sized>(packet: &P, ip: usize) -> Result<UdpHeader, NotUdp> {
    if read_u8(packet, ip)? >> 4 != 6 {
        return Err(NotUdp::Malformed);
    }
    let payload_bytes = usize::from(read_u16(packet, ip + 4)?);
    match read_u8(packet, ip + 6)? {
        PROTOCOL_UDP => {}
        EXTENSION_FRAGMENT => return Err(NotUdp::Fragment),
        EXTENSION_HOP_BY_HOP
        | EXTENSION_ROUTING
        | EXTENSION_ESP
        | EXTENSION_AUTHENTICATION
        | EXTENSION_DESTINATION
        | EXTENSION_MOBILITY
        | EXTENSION_HIP
        | EXTENSION_SHIM6 => return Err(NotUdp::ExtensionHeader),
        _ => return Err(NotUdp::OtherProtocol),
    }
    let udp = ip + IPV6_BYTES;
    read_udp(packet, IpVersion::V6, ip, udp, udp + payload_bytes)
}

#[inline(always)]
fn read_udp<P: PacketBytes + ?Sized>(
    packet: &P,
    ip: IpVersion,
    ip_offset: usize,
    udp_offset: usize,
    ip_end: usize,
) -> Result<UdpHeader, NotUdp> {
    // The last field is read first: the header is there as a whole or not at all.
    read_u16(packet, udp_offset + 6)?;
    if udp_offset + UDP_BYTES > ip_end {
        return Err(NotUdp::Truncated);
    }
    Ok(UdpHeader {
        ip,
        ip_offset,
        udp_offset,
        ip_end,
        source_port: read_u16(packet, udp_offset)?,
        destination_port: read_u16(packet, udp_offset + 2)?,
        udp_bytes: read_u16(packet, udp_offset + 4)?,
    })
}

fn addresses_v4(bytes: &[u8], ip: usize) -> Option<(IpAddr, IpAddr)> {
    let source = Ipv4Addr::from_bits(bytes.u32_at(ip + 12)?);
    let destination = Ipv4Addr::from_bits(bytes.u32_at(ip + 16)?);
    Some((source.into(), destination.into()))
}

fn addresses_v6(bytes: &[u8], ip: usize) -> Option<(IpAddr, IpAddr)> {
    let (source, rest) = bytes.get(ip + 8..)?.split_first_chunk::<16>()?;
    let destination = rest.first_chunk::<16>()?;
    Some((Ipv6Addr::from(*source).into(), Ipv6Addr::from(*destination).into()))
}

#[inline(always)]
fn read_u8<P: PacketBytes + ?Sized>(packet: &P, offset: usize) -> Result<u8, NotUdp> {
    packet.u8_at(offset).ok_or(NotUdp::Truncated)
}

#[inline(always)]
fn read_u16<P: PacketBytes + ?Sized>(packet: &P, offset: usize) -> Result<u16, NotUdp> {
    packet.u16_at(offset).ok_or(NotUdp::Truncated)
}

#[inline(always)]
fn is_vlan(ether_type: u16) -> bool {
    ether_type == ETHER_TYPE_VLAN || ether_type == ETHER_TYPE_SERVICE_VLAN
}

const ETHERNET_BYTES: usize = 14;
const ETHER_TYPE_OFFSET: usize = 12;
const ETHER_TYPE_IPV4: u16 = 0x0800;
const ETHER_TYPE_IPV6: u16 = 0x86dd;
/// Customer tag, IEEE 802.1Q.
const ETHER_TYPE_VLAN: u16 = 0x8100;
/// Service tag, IEEE 802.1ad.
const ETHER_TYPE_SERVICE_VLAN: u16 = 0x88a8;
const VLAN_TAG_BYTES: usize = 4;
const VLAN_NUMBER: u16 = 0x0fff;

const IPV4_BYTES_MIN: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
const PROTOCOL_UDP: u8 = 17;

// IPv6 extension headers, IANA "IPv6 Extension Header Types".
const EXTENSION_HOP_BY_HOP: u8 = 0;
const EXTENSION_ROUTING: u8 = 43;
const EXTENSION_FRAGMENT: u8 = 44;
const EXTENSION_ESP: u8 = 50;
const EXTENSION_AUTHENTICATION: u8 = 51;
const EXTENSION_DESTINATION: u8 = 60;
const EXTENSION_MOBILITY: u8 = 135;
const EXTENSION_HIP: u8 = 139;
const EXTENSION_SHIM6: u8 = 140;

#[cfg(test)]
mod tests {
    use super::*;

    const PAYLOAD: [u8; 24] = *b"twenty-four bytes inside";
    const MACS: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    const FRAME_BYTES_MAX: usize = 256;

    #[test]
    fn words_of_an_address_name_it() {
        for address in ["192.0.2.7", "2001:db8::9", "::"] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(words_address(address_words(address)), address);
        }
    }

    /// A frame built from parts on the stack: this crate has no allocator.
    struct Frame {
        bytes: [u8; FRAME_BYTES_MAX],
        len: usize,
    }

    impl Frame {
        fn new() -> Self {
            let mut frame = Self { bytes: [0; FRAME_BYTES_MAX], len: 0 };
            frame.push(&MACS);
            frame
        }

        fn push(&mut self, part: &[u8]) -> &mut Self {
            self.bytes[self.len..self.len + part.len()].copy_from_slice(part);
            self.len += part.len();
            self
        }

        fn u16(&mut self, value: u16) -> &mut Self {
            self.push(&value.to_be_bytes())
        }

        fn udp(&mut self) -> &mut Self {
            self.u16(40000).u16(9426).u16(8 + PAYLOAD.len() as u16).u16(0).push(&PAYLOAD)
        }

        fn ipv4(&mut self, option_words: u8, fragment: u16, protocol: u8) -> &mut Self {
            let total = 20 + 4 * u16::from(option_words) + 8 + PAYLOAD.len() as u16;
            self.push(&[0x45 + option_words, 0]).u16(total).u16(7).u16(fragment);
            self.push(&[64, protocol, 0, 0]).push(&[10, 0, 0, 1]).push(&[10, 0, 0, 2]);
            for _ in 0..option_words {
                self.push(&[1; 4]);
            }
            self
        }

        fn ipv6(&mut self, next_header: u8) -> &mut Self {
            self.push(&[0x60, 0, 0, 0]).u16(8 + PAYLOAD.len() as u16).push(&[next_header, 64]);
            self.push(&Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).octets());
            self.push(&Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2).octets())
        }

        fn as_bytes(&self) -> &[u8] {
            &self.bytes[..self.len]
        }

        fn locate(&self) -> Result<UdpLocation, NotUdp> {
            locate(self.as_bytes())
        }
    }

    fn plain_v4() -> Frame {
        let mut frame = Frame::new();
        frame.u16(0x0800).ipv4(0, 0, 17).udp();
        frame
    }

    fn plain_v6() -> Frame {
        let mut frame = Frame::new();
        frame.u16(0x86dd).ipv6(17).udp();
        frame
    }

    #[track_caller]
    fn assert_payload(frame: &Frame) -> UdpLocation {
        let found = frame.locate().expect("a UDP datagram");
        let payload = &frame.as_bytes()[found.payload_offset..][..found.payload_len];
        assert_eq!(payload, PAYLOAD);
        found
    }

    #[test]
    fn locate_ipv4_reports_payload_and_addresses() {
        let found = assert_payload(&plain_v4());
        assert_eq!(found.payload_offset, 42);
        assert_eq!(found.source, "10.0.0.1:40000".parse().unwrap());
        assert_eq!(found.destination, "10.0.0.2:9426".parse().unwrap());
    }

    #[test]
    fn locate_reads_the_traffic_class_of_both_ip_versions() {
        let mut v4 = plain_v4();
        v4.bytes[15] = 0xB9;
        assert_eq!(v4.locate().map(|found| found.traffic_class), Ok(0xB9));
        let mut v6 = plain_v6();
        (v6.bytes[14], v6.bytes[15]) = (0x6B, 0x97);
        assert_eq!(v6.locate().map(|found| found.traffic_class), Ok(0xB9));
    }

    #[test]
    fn locate_ipv6_reports_payload_and_addresses() {
        let found = assert_payload(&plain_v6());
        assert_eq!(found.payload_offset, 62);
        assert_eq!(found.source, "[fd00::1]:40000".parse().unwrap());
        assert_eq!(found.destination, "[fd00::2]:9426".parse().unwrap());
    }

    #[test]
    fn locate_ipv4_every_option_length_finds_payload() {
        for words in 0..=10 {
            let mut frame = Frame::new();
            frame.u16(0x0800).ipv4(words, 0, 17).udp();
            assert_eq!(assert_payload(&frame).payload_offset, 42 + 4 * usize::from(words));
        }
    }

    #[test]
    fn locate_tag_of_priority_found_and_any_vlan_refused() {
        for ether_type in [0x8100u16, 0x88a8] {
            for (tag, refused) in
                [(0, false), (0xe000, false), (0x1000, false), (1, true), (0xe02a, true)]
            {
                let mut frame = Frame::new();
                frame.u16(ether_type).u16(tag).u16(0x86dd).ipv6(17).udp();
                let expected = if refused { Err(NotUdp::Tagged) } else { Ok(66) };
                assert_eq!(frame.locate().map(|found| found.payload_offset), expected, "{tag:#x}");
            }
        }
        let mut frame = Frame::new();
        frame.u16(0x88a8).u16(0).u16(0x8100).u16(0).u16(0x0800).ipv4(0, 0, 17).udp();
        assert_eq!(frame.locate(), Err(NotUdp::Tagged), "two tags");
    }

    #[test]
    fn locate_fragment_refused_and_dont_fragment_accepted() {
        for (fragment, refused) in
            [(0x2000, true), (0x0001, true), (0x1fff, true), (0x4000, false), (0x8000, false)]
        {
            let mut frame = Frame::new();
            frame.u16(0x0800).ipv4(0, fragment, 17).udp();
            assert_eq!(frame.locate() == Err(NotUdp::Fragment), refused, "{fragment:#06x}");
        }
    }

    #[test]
    fn locate_other_protocols_name_the_reason() {
        let mut arp = Frame::new();
        arp.u16(0x0806).push(&[0; 28]);
        assert_eq!(arp.locate(), Err(NotUdp::NotIp));

        let mut tcp = Frame::new();
        tcp.u16(0x0800).ipv4(0, 0, 6).udp();
        assert_eq!(tcp.locate(), Err(NotUdp::OtherProtocol));

        for (next_header, reason) in [
            (58, NotUdp::OtherProtocol),
            (0, NotUdp::ExtensionHeader),
            (43, NotUdp::ExtensionHeader),
            (60, NotUdp::ExtensionHeader),
            (44, NotUdp::Fragment),
        ] {
            let mut frame = Frame::new();
            frame.u16(0x86dd).ipv6(next_header).udp();
            assert_eq!(frame.locate(), Err(reason));
        }
    }

    #[test]
    fn locate_version_against_ether_type_is_malformed() {
        let mut frame = Frame::new();
        frame.u16(0x0800).ipv6(17).udp();
        assert_eq!(frame.locate(), Err(NotUdp::Malformed));
        let mut frame = Frame::new();
        frame.u16(0x86dd).ipv4(0, 0, 17).udp();
        assert_eq!(frame.locate(), Err(NotUdp::Malformed));
        let mut frame = plain_v4();
        frame.bytes[14] = 0x44; // a header of 16 bytes
        assert_eq!(frame.locate(), Err(NotUdp::Malformed));
    }

    #[test]
    fn locate_every_truncation_is_refused() {
        for (frame, udp_end) in [(plain_v4(), 42), (plain_v6(), 62)] {
            for len in 0..frame.len {
                let reason = if len < udp_end { NotUdp::Truncated } else { NotUdp::UdpLength };
                assert_eq!(locate(&frame.bytes[..len]), Err(reason), "{len} bytes");
            }
        }
    }

    #[test]
    fn locate_length_fields_that_lie_are_refused() {
        // (offset of the field, value, reason): IPv4 total length at 16, UDP length at 38.
        for (offset, value, reason) in [
            (16, 27, NotUdp::Truncated), // no room for a UDP header
            (16, 28, NotUdp::UdpLength), // the UDP datagram is longer than its packet
            (16, 53, NotUdp::UdpLength), // the packet is longer than its frame
            (38, 7, NotUdp::UdpLength),  // shorter than a UDP header
            (38, 33, NotUdp::UdpLength), // one more than available
            (38, 0, NotUdp::UdpLength),
            (38, 0xffff, NotUdp::UdpLength),
        ] {
            let mut frame = plain_v4();
            frame.bytes[offset..offset + 2].copy_from_slice(&u16::to_be_bytes(value));
            assert_eq!(frame.locate(), Err(reason), "{value} at {offset}");
        }
    }

    #[test]
    fn locate_ethernet_padding_is_not_payload() {
        let mut frame = plain_v4();
        frame.push(&[0xee; 18]);
        assert_payload(&frame);
    }

    #[test]
    fn locate_empty_payload_is_found() {
        let mut frame = plain_v4();
        frame.bytes[16..18].copy_from_slice(&28u16.to_be_bytes());
        frame.bytes[38..40].copy_from_slice(&8u16.to_be_bytes());
        assert_eq!(frame.locate().map(|found| found.payload_len), Ok(0));
    }
}
