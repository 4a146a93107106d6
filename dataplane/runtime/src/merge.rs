//! Merges consecutive delivered packets, so that a tunnel takes them in few writes.
//!
//! Consecutive packets of one TCP or UDP flow that differ only in fields Linux can recompute
//! (lengths, sequence numbers, checksums) become one large packet behind a virtio header, which
//! Linux treats like one that a NIC merged (GRO). Other packets are written unchanged.
//!
//! ```text
//!  push: | IP TCP seq 0 | a |   | IP TCP seq 1 | b |   | IP TCP seq 2 | c |
//!  run:  | virtio | IP TCP seq 0 | a | b | c |                              -> one write
//! ```
//!
//! - **Order**: a run only grows at its end, and a packet of the same flow that does not fit there
//!   first flushes the run. Packets of one flow leave in the order they came.
//! - **Delay**: a packet that came alone, or with PSH, leaves at the end of the worker's round. A
//!   run of several is a flow that sends without pause; it may wait for more, up to the limit that
//!   the caller sets ([`Merger::settle`]).
//! - **Checksums**: the writer of a merged packet vouches for its bytes, since Linux computes
//!   their checksum again. Only packets whose checksum holds are merged; Linux sees and drops the
//!   others.
//! - **Memory**: a fixed number of runs of 64 KiB, made at start. When all are in use, the
//!   oldest is flushed.
//!
//! Pure. The crate `tun-rs` merges, too; it allocates for each packet, needs a buffer of 64 KiB for
//! each, and writes a packet that ends a run (FIN, a duplicate acknowledgement) in front of data
//! that came before it.

use crate::checksum::{fold, sum};
use crate::segments::VIRTIO_NET_HDR_F_NEEDS_CSUM;
use crate::shape::{
    IPV4_DONT_FRAGMENT, PACKET_BYTES_MAX, PROTOCOL_TCP, PROTOCOL_UDP, PacketLayout, Protocol,
    TCP_CHECKSUM, TCP_FLAGS, UDP_CHECKSUM, pseudo_sum, word,
};
use tun_rs::{
    VIRTIO_NET_HDR_GSO_TCPV4, VIRTIO_NET_HDR_GSO_TCPV6, VIRTIO_NET_HDR_GSO_UDP_L4,
    VIRTIO_NET_HDR_LEN, VirtioNetHdr,
};

/// Receives the packets to write: a virtio header, an IP packet, and the number of packets and
/// bytes merged into it.
pub(crate) trait Write {
    /// Writes one packet, merged or not.
    fn write(&mut self, virtio: &[u8], packet: &[u8], packets: u64, bytes: u64);
}

/// Runs of one tunnel that are being merged.
pub(crate) struct Merger {
    runs: Vec<Run>,
    /// Runs in use, oldest first, and free ones; indices of `runs`.
    open: Vec<usize>,
    free: Vec<usize>,
    merges_udp: bool,
}

/// A packet, or several merged into one.
struct Run {
    bytes: Box<[u8; PACKET_BYTES_MAX]>,
    len: usize,
    shape: PacketLayout,
    /// Payload of every packet except the last.
    segment_bytes: usize,
    packets: u64,
    /// Bytes of the packets before they were merged.
    packet_bytes: u64,
    /// Sequence number that continues the run.
    next_sequence: u32,
    /// The run is complete: a short packet or one with PSH ended it.
    is_closed: bool,
}

impl Merger {
    /// Allocates all runs. `merges_udp` says whether Linux accepts merged UDP packets.
    pub(crate) fn new(merges_udp: bool) -> Merger {
        Merger {
            runs: (0..RUNS).map(|_| Run::new()).collect(),
            open: Vec::with_capacity(RUNS),
            free: (0..RUNS).rev().collect(),
            merges_udp,
        }
    }

    /// Accepts a packet; writes it if it is not kept, after the packets that must precede it.
    #[inline]
    pub(crate) fn push(&mut self, packet: &[u8], out: &mut impl Write) {
        let Some(shape) = PacketLayout::of(packet, self.merges_udp) else {
            // Unknown flow (fragments, tunnels in tunnels): it must not overtake others.
            self.flush(out);
            write_single(packet, out);
            return;
        };
        let found = self.open.iter().position(|run| self.runs[*run].is_of_flow(packet, &shape));
        if let Some(place) = found {
            let run = &mut self.runs[self.open[place]];
            if shape.is_mergeable && run.append(packet, &shape) {
                return;
            }
            self.close(place, out);
        }
        if !shape.is_mergeable {
            write_single(packet, out);
            return;
        }
        if self.free.is_empty() {
            self.close(0, out);
        }
        if let Some(index) = self.free.pop() {
            self.runs[index].begin(packet, shape);
            self.open.push(index);
        }
    }

    /// Writes the runs that need not wait: complete ones, and single packets. Returns whether
    /// others remain.
    #[inline]
    pub(crate) fn settle(&mut self, out: &mut impl Write) -> bool {
        let mut place = 0;
        while let Some(index) = self.open.get(place) {
            let run = &self.runs[*index];
            if run.is_closed || run.packets == 1 {
                self.close(place, out);
            } else {
                place += 1;
            }
        }
        !self.open.is_empty()
    }

    /// Writes all remaining runs, oldest first.
    #[inline]
    pub(crate) fn flush(&mut self, out: &mut impl Write) {
        while !self.open.is_empty() {
            self.close(0, out);
        }
    }

    fn close(&mut self, place: usize, out: &mut impl Write) {
        let index = self.open.remove(place);
        self.runs[index].write(out);
        self.free.push(index);
    }
}

impl Run {
    fn new() -> Run {
        let shape =
            PacketLayout { transport: 0, payload: 0, protocol: Protocol::Tcp, is_mergeable: false };
        Run {
            bytes: Box::new([0; PACKET_BYTES_MAX]),
            len: 0,
            shape,
            segment_bytes: 0,
            packets: 0,
            packet_bytes: 0,
            next_sequence: 0,
            is_closed: false,
        }
    }

    fn begin(&mut self, packet: &[u8], shape: PacketLayout) {
        self.bytes[..packet.len()].copy_from_slice(packet);
        self.len = packet.len();
        self.shape = shape;
        self.segment_bytes = packet.len() - shape.payload;
        self.packets = 1;
        self.packet_bytes = packet.len() as u64;
        self.is_closed = shape.has_psh(packet);
        if shape.protocol == Protocol::Tcp {
            self.next_sequence = shape.sequence(packet).wrapping_add(self.segment_bytes as u32);
        }
    }

    fn packet(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Whether a packet has the run's addresses and ports.
    fn is_of_flow(&self, packet: &[u8], shape: &PacketLayout) -> bool {
        let (ours, at) = (self.packet(), shape.transport);
        // Equal offsets of the transport header imply the same IP version.
        self.shape.protocol == shape.protocol
            && self.shape.transport == at
            && ours[at..at + 4] == packet[at..at + 4]
            && ours[shape.addresses()] == packet[shape.addresses()]
    }

    /// Appends a packet of the same flow; false if it does not fit.
    fn append(&mut self, packet: &[u8], shape: &PacketLayout) -> bool {
        let payload = &packet[shape.payload..];
        if self.is_closed
            || shape.payload != self.shape.payload
            || payload.len() > self.segment_bytes
            || self.len + payload.len() > PACKET_BYTES_MAX
            || !self.headers_agree(packet, shape)
        {
            return false;
        }
        let has_psh = shape.has_psh(packet);
        match shape.protocol {
            Protocol::Tcp if shape.sequence(packet) != self.next_sequence => return false,
            Protocol::Tcp => {
                self.next_sequence = self.next_sequence.wrapping_add(payload.len() as u32);
                self.bytes[shape.transport + TCP_FLAGS] |= packet[shape.transport + TCP_FLAGS];
            }
            Protocol::Udp if self.packets >= UDP_PACKETS_MAX => return false,
            Protocol::Udp => {}
        }
        self.bytes[self.len..self.len + payload.len()].copy_from_slice(payload);
        self.len += payload.len();
        self.packets += 1;
        self.packet_bytes += packet.len() as u64;
        self.is_closed = has_psh || payload.len() < self.segment_bytes;
        true
    }

    /// Whether all fields that Linux repeats in each packet are equal. Addresses and ports are.
    fn headers_agree(&self, packet: &[u8], shape: &PacketLayout) -> bool {
        let (ours, at) = (self.packet(), shape.transport);
        let equal = |range: std::ops::Range<usize>| ours[range.clone()] == packet[range];
        let network = if shape.is_v4() {
            // Version and class of service; flags, time to live. Without "do not fragment" the
            // identifications must be those that splitting assigns.
            equal(0..2)
                && equal(6..9)
                && (packet[6] & IPV4_DONT_FRAGMENT != 0
                    || word(packet, 4) == word(ours, 4).wrapping_add(self.packets as u16))
        } else {
            // Version, traffic class and flow label; next header and hop limit.
            equal(0..4) && equal(6..8)
        };
        let transport = match shape.protocol {
            // Acknowledgement, length; flags are ACK and perhaps PSH; window; urgent pointer,
            // options.
            Protocol::Tcp => {
                equal(at + 8..at + TCP_FLAGS)
                    && equal(at + 14..at + 16)
                    && equal(at + 18..shape.payload)
            }
            Protocol::Udp => true,
        };
        network && transport
    }

    fn write(&mut self, out: &mut impl Write) {
        let (packets, bytes) = (self.packets, self.packet_bytes);
        if packets == 1 {
            write_single(self.packet(), out);
            return;
        }
        let PacketLayout { transport, payload, protocol, .. } = self.shape;
        let is_v4 = self.shape.is_v4();
        let packet = &mut self.bytes[..self.len];
        let segment_len = (packet.len() - transport) as u16;
        if is_v4 {
            let total = packet.len() as u16;
            packet[2..4].copy_from_slice(&total.to_be_bytes());
            packet[10..12].fill(0);
            let checksum = !fold(sum(&packet[..transport]));
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        } else {
            packet[4..6].copy_from_slice(&segment_len.to_be_bytes());
        }
        let (gso_type, number, offset) = match (protocol, is_v4) {
            (Protocol::Tcp, true) => (VIRTIO_NET_HDR_GSO_TCPV4, PROTOCOL_TCP, TCP_CHECKSUM),
            (Protocol::Tcp, false) => (VIRTIO_NET_HDR_GSO_TCPV6, PROTOCOL_TCP, TCP_CHECKSUM),
            (Protocol::Udp, _) => (VIRTIO_NET_HDR_GSO_UDP_L4, PROTOCOL_UDP, UDP_CHECKSUM),
        };
        if protocol == Protocol::Udp {
            packet[transport + 4..transport + 6].copy_from_slice(&segment_len.to_be_bytes());
        }
        // Linux expects the sum of the pseudo-header here, and adds the rest when needed.
        let pseudo = pseudo_sum(packet, &self.shape, number);
        let at = transport + offset;
        packet[at..at + 2].copy_from_slice(&fold(pseudo).to_be_bytes());
        let header = VirtioNetHdr {
            flags: VIRTIO_NET_HDR_F_NEEDS_CSUM,
            gso_type,
            hdr_len: payload as u16,
            gso_size: self.segment_bytes as u16,
            csum_start: transport as u16,
            csum_offset: offset as u16,
        };
        let mut virtio = [0; VIRTIO_NET_HDR_LEN];
        // Fails only if the buffer is too short.
        let _ = header.encode(&mut virtio);
        out.write(&virtio, packet, packets, bytes);
    }
}

fn write_single(packet: &[u8], out: &mut impl Write) {
    out.write(&[0; VIRTIO_NET_HDR_LEN], packet, 1, packet.len() as u64);
}

/// Flows merged concurrently. More cost memory (64 KiB each, per tunnel and worker) and a longer
/// search per packet; with fewer, alternating flows end each other's runs.
const RUNS: usize = 16;
/// Linux's own bound for UDP (`UDP_GRO_CNT_MAX`).
const UDP_PACKETS_MAX: u64 = 64;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::inner::Inner;
    use crate::segments::Segments;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// Written packets: virtio header and packet, and the packets and bytes in it.
    #[derive(Default)]
    struct Written(Vec<(Vec<u8>, u64, u64)>);

    impl Write for Written {
        fn write(&mut self, virtio: &[u8], packet: &[u8], packets: u64, bytes: u64) {
            self.0.push(([virtio, packet].concat(), packets, bytes));
        }
    }

    impl Written {
        /// The packets that Linux splits it into.
        fn split(&self) -> Vec<Vec<u8>> {
            let mut split = Vec::new();
            for (bytes, packets, packet_bytes) in &self.0 {
                let mut bytes = bytes.clone();
                let before = split.len();
                let mut segments = Segments::new();
                segments.start(&mut bytes).unwrap();
                while let Some(range) = segments.next(&mut bytes) {
                    split.push(bytes[range].to_vec());
                }
                assert_eq!((split.len() - before) as u64, *packets);
                let lengths = split[before..].iter().map(|packet| packet.len() as u64);
                assert_eq!(lengths.sum::<u64>(), *packet_bytes);
            }
            split
        }
    }

    fn merged(packets: &[Vec<u8>], merges_udp: bool) -> Written {
        let mut merger = Merger::new(merges_udp);
        let mut written = Written::default();
        for packet in packets {
            merger.push(packet, &mut written);
        }
        merger.flush(&mut written);
        written
    }

    /// Packets merged into each write.
    fn counts(packets: &[Inner]) -> Vec<u64> {
        let bytes: Vec<_> = packets.iter().map(Inner::bytes).collect();
        let written = merged(&bytes, true);
        written.split();
        written.0.iter().map(|(_, packets, _)| *packets).collect()
    }

    /// Groups packets by addresses and ports, without the fields that splitting may reset: the
    /// identification of a packet that may not be fragmented, which has no meaning (RFC 6864), and
    /// the checksum of the header that it is part of.
    fn by_flow(packets: &[Vec<u8>]) -> HashMap<Vec<u8>, Vec<Vec<u8>>> {
        let mut flows: HashMap<_, Vec<_>> = HashMap::new();
        for packet in packets {
            let mut packet = packet.clone();
            let flow = match packet[0] >> 4 {
                4 => [&packet[9..10], &packet[12..24]].concat(),
                _ => [&packet[6..7], &packet[8..44]].concat(),
            };
            if packet[0] >> 4 == 4 && packet[6] & 0x40 != 0 {
                packet[4..6].fill(0);
                packet[10..12].fill(0);
            }
            flows.entry(flow).or_default().push(packet);
        }
        flows
    }

    /// Bursts of a few flows: mostly in order, with an occasional packet that ends a run.
    fn burst() -> impl Strategy<Value = Vec<Inner>> {
        let step = (
            (0u8..20, any::<bool>(), any::<bool>(), 0u8..12),
            prop_oneof![4 => Just(1300usize), 1 => 0usize..1400],
            prop_oneof![8 => Just(0x10u8), 1 => Just(0x18), 1 => Just(0x11), 1 => Just(0x50)],
        );
        proptest::collection::vec(step, 1..120).prop_map(|steps| {
            let mut next: HashMap<_, (u32, u16)> = HashMap::new();
            let mut packets = Vec::new();
            for ((flow, is_v4, is_tcp, chance), length, flags) in steps {
                let (sequence, id) =
                    next.entry((flow, is_v4, is_tcp)).or_insert((u32::MAX - 9000, 0));
                let payload: Vec<u8> = (0..length).map(|byte| byte as u8 ^ flow).collect();
                let mut inner =
                    Inner { is_v4, is_tcp, ..Inner::tcp(flow % 5, *sequence, &payload) };
                (inner.flags, inner.id, inner.dont_fragment) = (flags, *id, flow % 2 == 0);
                match chance {
                    0 => inner.sequence = inner.sequence.wrapping_add(1),
                    1 => inner.class = 2,
                    2 => inner.options = vec![1; 12],
                    3 => inner.window = 9,
                    4 => inner.acknowledgement = 78,
                    5 => inner.id = 1000,
                    _ => {}
                }
                *sequence = sequence.wrapping_add(length as u32);
                *id = id.wrapping_add(1);
                packets.push(inner);
            }
            packets
        })
    }

    proptest! {
        #[test]
        fn merged_packets_split_into_what_came_in_the_order_of_each_flow(
            burst in burst(), merges_udp: bool,
        ) {
            let packets: Vec<_> = burst.iter().map(Inner::bytes).collect();
            let written = merged(&packets, merges_udp);
            prop_assert_eq!(by_flow(&written.split()), by_flow(&packets));
        }

        #[test]
        fn any_bytes_come_out_as_they_are(
            packets in proptest::collection::vec(
                proptest::collection::vec(any::<u8>(), 1..100), 1..20),
        ) {
            // No checksum here is valid, except by a chance of 2^-32.
            let written = merged(&packets, true);
            let mut expected = packets.clone();
            let mut bytes: Vec<_> =
                written.0.iter().map(|(bytes, ..)| bytes[VIRTIO_NET_HDR_LEN..].to_vec()).collect();
            bytes.sort();
            expected.sort();
            prop_assert_eq!(bytes, expected);
        }
    }

    #[test]
    fn bulk_of_two_flows_is_written_twice() {
        let packet = |number: u32| {
            Inner::tcp(1 + (number % 2) as u8, number / 2 * 1300, &[number as u8; 1300])
        };
        let packets: Vec<_> = (0..80).map(packet).collect();
        assert_eq!(counts(&packets), [40, 40]);
        let datagrams: Vec<_> = (0..80).map(|n| Inner::udp(1 + n % 2, &[n; 1000])).collect();
        assert_eq!(counts(&datagrams), [40, 40]);
    }

    #[test]
    fn run_ends_at_64_kib_and_udp_after_64_packets() {
        let packets: Vec<_> = (0..60).map(|n| Inner::tcp(1, n * 1300, &[1; 1300])).collect();
        assert_eq!(counts(&packets), [50, 10]);
        let datagrams: Vec<_> = (0..70).map(|_| Inner::udp(1, &[1; 100])).collect();
        assert_eq!(counts(&datagrams), [64, 6]);
    }

    #[test]
    fn short_packet_and_psh_end_a_run() {
        let tcp = |sequence, length| Inner::tcp(1, sequence, &vec![1; length]);
        assert_eq!(counts(&[tcp(0, 100), tcp(100, 50), tcp(150, 100)]), [2, 1]);
        let mut pushed = tcp(100, 100);
        pushed.flags = 0x18;
        assert_eq!(counts(&[tcp(0, 100), pushed, tcp(200, 100)]), [2, 1]);
    }

    #[test]
    fn settle_leaves_only_what_may_go_on() {
        let mut merger = Merger::new(true);
        let mut written = Written::default();
        let mut pushed = Inner::tcp(2, 100, &[1; 100]);
        pushed.flags = 0x18;
        let flows = [
            Inner::tcp(1, 0, &[1; 100]),
            Inner::tcp(2, 0, &[1; 100]),
            pushed,
            Inner::tcp(3, 0, &[1; 100]),
            Inner::tcp(3, 100, &[1; 100]),
        ];
        flows.iter().for_each(|inner| merger.push(&inner.bytes(), &mut written));
        assert!(written.0.is_empty());
        assert!(merger.settle(&mut written), "flow 3 waits");
        assert_eq!(written.0.iter().map(|(_, packets, _)| *packets).collect::<Vec<_>>(), [1, 2]);
        merger.push(&Inner::tcp(3, 200, &[1; 50]).bytes(), &mut written);
        assert!(!merger.settle(&mut written), "a short packet ended it");
        assert_eq!(written.0.len(), 3);
    }

    #[test]
    fn acknowledgement_does_not_overtake_data_of_its_flow() {
        let packets = [
            Inner::tcp(1, 0, &[1; 100]),
            Inner::tcp(1, 100, &[2; 100]),
            Inner::tcp(1, 200, &[]),
            Inner::tcp(1, 200, &[3; 100]),
        ];
        let bytes: Vec<_> = packets.iter().map(Inner::bytes).collect();
        let written = merged(&bytes, true);
        assert_eq!(by_flow(&written.split()), by_flow(&bytes));
        assert_eq!(written.0.len(), 3);
    }

    #[test]
    fn wrong_checksum_is_never_made_right() {
        let mut bytes: Vec<_> = (0..3).map(|n| Inner::tcp(1, n * 100, &[1; 100]).bytes()).collect();
        bytes[1][60] ^= 1;
        let written = merged(&bytes, true);
        let plain: Vec<_> =
            written.0.iter().map(|(bytes, ..)| bytes[VIRTIO_NET_HDR_LEN..].to_vec()).collect();
        assert_eq!(plain, bytes);
    }

    #[test]
    fn more_flows_than_runs_are_all_written() {
        let flows: Vec<_> = (0..3 * RUNS as u8).map(|flow| Inner::tcp(flow, 0, &[1; 9])).collect();
        assert_eq!(counts(&flows).len(), 3 * RUNS);
    }
}
