//! Splits the result of one read of a tunnel into packets, in place.
//!
//! With offloads Linux delivers a run of TCP or UDP packets as one: headers once, then the payloads
//! of all, and a virtio header with the length of each (virtio 1.2, 5.1.6). The packets are
//! produced one at a time, so that the caller can stop between any two of them. Each is formed in
//! place: its headers overwrite the end of the previous payload, which has been returned by then.
//!
//! ```text
//!  read:      | virtio | IP TCP | payload 0 | payload 1 | payload 2 |
//!  packet 0:           | IP TCP   payload 0 |
//!  packet 1:                       | IP TCP | payload 1 |
//! ```
//!
//! Pure. The crate `tun-rs` can split, too, but all at once into one buffer per packet, which
//! copies every byte and would take 64 KiB from a tunnel even if its link has budget for only one
//! packet.

use crate::checksum::{fold, sum};
use std::ops::Range;
use tun_rs::{
    VIRTIO_NET_HDR_GSO_TCPV4, VIRTIO_NET_HDR_GSO_TCPV6, VIRTIO_NET_HDR_GSO_UDP_L4,
    VIRTIO_NET_HDR_LEN, VirtioNetHdr,
};

/// Flag of a virtio header (virtio 1.2, 5.1.6): the checksum is still to be computed.
pub(crate) const VIRTIO_NET_HDR_F_NEEDS_CSUM: u8 = 1;
/// Kind of a virtio header: one packet.
const VIRTIO_NET_HDR_GSO_NONE: u8 = 0;
/// Bit next to the kind: the first packet has CWR set.
const VIRTIO_NET_HDR_GSO_ECN: u8 = 0x80;

/// Bytes of a buffer that holds the result of any one read.
pub(crate) const READ_BYTES_MAX: usize = VIRTIO_NET_HDR_LEN + PACKET_BYTES_MAX;

/// The unreturned part of one read.
pub(crate) struct Segments {
    /// IP and transport header of the first packet.
    header: [u8; HEADER_BYTES_MAX],
    header_bytes: usize,
    /// Offset of the transport header.
    transport: usize,
    protocol: Protocol,
    /// Sum of the pseudo-header without its length.
    pseudo_sum: u64,
    segment_bytes: usize,
    /// Number of the next packet.
    index: usize,
    /// Remaining payload, as a range of the buffer.
    rest: Range<usize>,
}

/// The virtio header contradicts the packet behind it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Malformed;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Protocol {
    /// One packet, returned unchanged.
    Whole,
    Tcp,
    Udp,
}

impl Segments {
    /// Nothing to split.
    pub(crate) fn new() -> Segments {
        Segments {
            header: [0; HEADER_BYTES_MAX],
            header_bytes: 0,
            transport: 0,
            protocol: Protocol::Whole,
            pseudo_sum: 0,
            segment_bytes: 0,
            index: 0,
            rest: 0..0,
        }
    }

    /// Whether all packets were returned.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Begins to split `read`, a virtio header and the packet behind it.
    ///
    /// # Errors
    /// [`Malformed`]; no packets are left then.
    pub(crate) fn start(&mut self, read: &mut [u8]) -> Result<(), Malformed> {
        self.rest = 0..0;
        let header = VirtioNetHdr::decode(read).map_err(|_| Malformed)?;
        let packet = &mut read[VIRTIO_NET_HDR_LEN..];
        let needs_sum = header.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM != 0;
        if header.gso_type == VIRTIO_NET_HDR_GSO_NONE {
            if needs_sum {
                complete_checksum(packet, header.csum_start.into(), header.csum_offset.into())?;
            }
            self.whole(VIRTIO_NET_HDR_LEN..read.len());
            return Ok(());
        }
        if !needs_sum || header.gso_size == 0 {
            return Err(Malformed);
        }
        let version = packet.first().ok_or(Malformed)? >> 4;
        let protocol = match (header.gso_type & !VIRTIO_NET_HDR_GSO_ECN, version) {
            (VIRTIO_NET_HDR_GSO_TCPV4, 4) | (VIRTIO_NET_HDR_GSO_TCPV6, 6) => Protocol::Tcp,
            (VIRTIO_NET_HDR_GSO_UDP_L4, 4 | 6) => Protocol::Udp,
            _ => return Err(Malformed),
        };
        self.take_header(packet, protocol, usize::from(header.csum_start))?;
        self.segment_bytes = usize::from(header.gso_size);
        self.index = 0;
        self.rest = VIRTIO_NET_HDR_LEN + self.header_bytes..read.len();
        Ok(())
    }

    /// One packet, returned unchanged from the buffer.
    pub(crate) fn whole(&mut self, packet: Range<usize>) {
        self.protocol = Protocol::Whole;
        self.rest = packet;
    }

    /// The range of the next packet in `read`, the buffer given to [`Segments::start`].
    #[inline]
    pub(crate) fn next(&mut self, read: &mut [u8]) -> Option<Range<usize>> {
        if self.rest.is_empty() {
            return None;
        }
        if self.protocol == Protocol::Whole {
            return Some(std::mem::replace(&mut self.rest, 0..0));
        }
        let payload = self.rest.start..self.rest.end.min(self.rest.start + self.segment_bytes);
        self.rest.start = payload.end;
        let range = payload.start - self.header_bytes..payload.end;
        let packet = &mut read[range.clone()];
        packet[..self.header_bytes].copy_from_slice(&self.header[..self.header_bytes]);
        self.write_network_header(packet);
        self.write_transport_header(packet);
        self.index += 1;
        Some(range)
    }

    /// Keeps the headers of the first packet, and the sum of the pseudo-header.
    fn take_header(
        &mut self,
        packet: &[u8],
        protocol: Protocol,
        transport: usize,
    ) -> Result<(), Malformed> {
        let is_v4 = packet[0] >> 4 == 4;
        let network_bytes_min = if is_v4 { IPV4_BYTES } else { IPV6_BYTES };
        // Linux's length covers all headers only if Linux built the packet itself, so it is read
        // from the packet.
        let transport_bytes = match protocol {
            Protocol::Tcp => {
                usize::from(*packet.get(transport + TCP_OFFSET).ok_or(Malformed)? >> 4) * 4
            }
            _ => UDP_BYTES,
        };
        let header_bytes = transport + transport_bytes;
        let is_too_short = protocol == Protocol::Tcp && transport_bytes < TCP_BYTES_MIN;
        if transport < network_bytes_min
            || is_too_short
            || header_bytes > HEADER_BYTES_MAX
            || header_bytes >= packet.len()
        {
            return Err(Malformed);
        }
        self.header[..header_bytes].copy_from_slice(&packet[..header_bytes]);
        self.header_bytes = header_bytes;
        self.transport = transport;
        self.protocol = protocol;
        // Linux leaves the sum of the pseudo-header in the checksum field, with the length of
        // everything; each packet has its own length.
        let at = transport + self.checksum_offset();
        let with_length = u64::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
        let length = length_16(packet.len() - transport);
        self.pseudo_sum = with_length + u64::from(!length);
        self.header[at..at + 2].fill(0);
        if is_v4 {
            self.header[10..12].fill(0);
        }
        Ok(())
    }

    fn write_network_header(&self, packet: &mut [u8]) {
        let length = packet.len();
        if packet[0] >> 4 == 6 {
            packet[4..6].copy_from_slice(&length_16(length - IPV6_BYTES).to_be_bytes());
            return;
        }
        packet[2..4].copy_from_slice(&length_16(length).to_be_bytes());
        let id = u16::from_be_bytes([packet[4], packet[5]]).wrapping_add(self.index as u16);
        packet[4..6].copy_from_slice(&id.to_be_bytes());
        let checksum = !fold(sum(&packet[..self.transport]));
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    }

    fn write_transport_header(&self, packet: &mut [u8]) {
        let segment = &mut packet[self.transport..];
        let length = length_16(segment.len());
        if self.protocol == Protocol::Tcp {
            let first = u32::from_be_bytes([segment[4], segment[5], segment[6], segment[7]]);
            let sequence = first.wrapping_add((self.index * self.segment_bytes) as u32);
            segment[4..8].copy_from_slice(&sequence.to_be_bytes());
            if self.index > 0 {
                segment[TCP_FLAGS] &= !TCP_CWR;
            }
            if !self.rest.is_empty() {
                segment[TCP_FLAGS] &= !(TCP_FIN | TCP_PSH);
            }
        } else {
            segment[4..6].copy_from_slice(&length.to_be_bytes());
        }
        let checksum = match !fold(self.pseudo_sum + u64::from(length) + sum(segment)) {
            // Zero would mean: no checksum (RFC 768).
            0 if self.protocol == Protocol::Udp => 0xffff,
            checksum => checksum,
        };
        let at = self.checksum_offset();
        segment[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }

    fn checksum_offset(&self) -> usize {
        if self.protocol == Protocol::Tcp { TCP_CHECKSUM } else { UDP_CHECKSUM }
    }
}

/// Finishes a checksum from the pseudo-header's part in the packet.
fn complete_checksum(packet: &mut [u8], start: usize, offset: usize) -> Result<(), Malformed> {
    let covered = packet.get_mut(start..).ok_or(Malformed)?;
    if covered.len() < offset + 2 {
        return Err(Malformed);
    }
    let checksum = match !fold(sum(covered)) {
        // Linux's own rule (`skb_checksum_help`): zero means "none" to UDP, and the two are equal
        // to all other receivers.
        0 => 0xffff,
        checksum => checksum,
    };
    covered[offset..offset + 2].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// Lengths in a buffer of [`READ_BYTES_MAX`] bytes.
fn length_16(bytes: usize) -> u16 {
    assert!(bytes <= PACKET_BYTES_MAX, "packet of {bytes} bytes");
    bytes as u16
}

/// The longest IP packet.
const PACKET_BYTES_MAX: usize = 65_535;
/// IPv6 with 150 bytes of extension headers, and the longest TCP header. Linux leaves no longer
/// headers to be split.
const HEADER_BYTES_MAX: usize = 256;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
const UDP_CHECKSUM: usize = 6;
const TCP_BYTES_MIN: usize = 20;
const TCP_OFFSET: usize = 12;
const TCP_FLAGS: usize = 13;
const TCP_CHECKSUM: usize = 16;
const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inner::Inner;
    use proptest::prelude::*;

    /// Linux's read result for `inner`, to be split into payloads of `segment_bytes`.
    fn read(inner: &Inner, segment_bytes: usize) -> Vec<u8> {
        let mut packet = inner.bytes();
        let transport = if inner.is_v4 { 20 } else { 40 };
        let (gso_type, at, number) = match (inner.is_tcp, inner.is_v4) {
            (true, true) => (VIRTIO_NET_HDR_GSO_TCPV4, 16, 6),
            (true, false) => (VIRTIO_NET_HDR_GSO_TCPV6, 16, 6),
            (false, _) => (VIRTIO_NET_HDR_GSO_UDP_L4, 6, 17),
        };
        let addresses = if inner.is_v4 { 12..20 } else { 8..40 };
        let length = (packet.len() - transport) as u64;
        let partial = fold(sum(&packet[addresses]) + length + number);
        packet[transport + at..transport + at + 2].copy_from_slice(&partial.to_be_bytes());
        let header = VirtioNetHdr {
            flags: VIRTIO_NET_HDR_F_NEEDS_CSUM,
            gso_type,
            // As Linux leaves it for forwarded packets: not to be trusted.
            hdr_len: packet.len() as u16,
            gso_size: segment_bytes as u16,
            csum_start: transport as u16,
            csum_offset: at as u16,
        };
        let mut read = vec![0; VIRTIO_NET_HDR_LEN];
        header.encode(&mut read).unwrap();
        read.extend_from_slice(&packet);
        read
    }

    fn split(mut read: Vec<u8>) -> Result<Vec<Vec<u8>>, Malformed> {
        let mut segments = Segments::new();
        segments.start(&mut read)?;
        let mut packets = Vec::new();
        while let Some(range) = segments.next(&mut read) {
            packets.push(read[range].to_vec());
        }
        assert!(segments.is_empty());
        Ok(packets)
    }

    proptest! {
        #[test]
        fn split_gives_the_packets_that_linux_would_have_sent(
            is_v4: bool, is_tcp: bool, id: u16, sequence: u32, options in 0usize..4,
            payload in proptest::collection::vec(any::<u8>(), 1..20_000),
            segment_bytes in 1usize..1500,
        ) {
            let whole = Inner {
                is_v4, is_tcp, id, flags: 0x99, options: vec![1; options * 4],
                ..Inner::tcp(1, sequence, &payload)
            };
            let packets = split(read(&whole, segment_bytes)).unwrap();
            let chunks = payload.chunks(segment_bytes);
            prop_assert_eq!(packets.len(), chunks.len());
            let last = packets.len() - 1;
            for (index, (packet, chunk)) in packets.iter().zip(chunks).enumerate() {
                // CWR belongs to the first, FIN and PSH belong to the last.
                let flags = 0x10
                    | if index == 0 { 0x80 } else { 0 }
                    | if index == last { 0x09 } else { 0 };
                let expected = Inner {
                    id: id.wrapping_add(index as u16),
                    sequence: sequence.wrapping_add((index * segment_bytes) as u32),
                    flags,
                    payload: chunk.to_vec(),
                    ..whole.clone()
                };
                prop_assert_eq!(packet, &expected.bytes());
            }
        }

        #[test]
        fn start_on_any_bytes_splits_within_the_buffer(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..300), gso_type in 0u8..6,
            version in prop_oneof![Just(0x45u8), Just(0x60u8)], size in 0u16..40, start in 0u16..60,
        ) {
            let header = VirtioNetHdr {
                flags: 1, gso_type, hdr_len: 0, gso_size: size, csum_start: start, csum_offset: 16,
            };
            if bytes.len() > VIRTIO_NET_HDR_LEN {
                header.encode(&mut bytes).unwrap();
                bytes[VIRTIO_NET_HDR_LEN] = version;
            }
            let total = bytes.len();
            if let Ok(packets) = split(bytes) {
                prop_assert!(packets.iter().all(|packet| packet.len() <= total));
            }
        }
    }

    #[test]
    fn single_packet_gets_its_checksum_and_nothing_else() {
        for inner in [Inner::tcp(1, 5, b"abc"), Inner::udp(1, b"abcd")] {
            let mut read = read(&inner, 0);
            read[1] = VIRTIO_NET_HDR_GSO_NONE;
            assert_eq!(split(read).unwrap(), [inner.bytes()]);
            let mut plain = vec![0; VIRTIO_NET_HDR_LEN];
            plain.extend_from_slice(&inner.bytes());
            assert_eq!(split(plain).unwrap(), [inner.bytes()]);
        }
    }

    #[test]
    fn contradictions_are_malformed() {
        let good = read(&Inner::tcp(1, 5, &[7; 100]), 10);
        assert!(split(good.clone()).is_ok());
        // No flag for the checksum; kind of the other IP version, unknown kind; size 0; a transport
        // header within the IP header, or behind the end.
        for (at, value) in [(0, 0), (1, 4), (1, 3), (4, 0), (6, 12), (6, 200)] {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(split(bad), Err(Malformed), "byte {at} = {value}");
        }
        assert_eq!(split(vec![0; 5]), Err(Malformed));
    }
}
