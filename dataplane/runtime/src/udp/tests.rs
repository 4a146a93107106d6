//! Two sockets on the loopback interface, and no privilege.

use super::*;
use crate::encap::Encap;
use crate::topology::{Backend, HopConfig, Idle, LinkConfig, Topology};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, sendto, socket};
use proptest::prelude::*;
use recoded_wire::frames::FrameId;
use recoded_wire::header::{FLOW_OFFSET, PacketType, VERSION};
use recoded_wire::packet::{AddressWords, address_words};
use recoded_wire::steer::{Tables, decide};
use recoded_xsk::{FrameSize, ModePreference};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

const FLOW: u32 = 7;
const FRAMES: u32 = 4096;

fn topology(local: &str, neighbour: &str, port: u16) -> Topology {
    let link = LinkConfig {
        name: "loop".into(),
        interface: "lo".into(),
        local: local.parse().unwrap(),
        backend: Backend::Udp,
        rate_mbit: None,
    };
    Topology {
        private_key: None,
        edges: Vec::new(),
        groups: Vec::new(),
        relayed: Vec::new(),
        workers: 1,
        tunnel_queues: 1,
        flow_memory_bytes: 1 << 20,
        cores: None,
        idle: Idle::Adaptive,
        frames_per_worker: FRAMES,
        frame_size: FrameSize::SMALL,
        port,
        xdp_mode: ModePreference::Auto,
        links: vec![link],
        hops: vec![HopConfig {
            link: 0,
            address: neighbour.parse().unwrap(),
            key: None,
            roams: false,
            path: 0,
        }],
        tunnels: Vec::new(),
    }
}

/// A socket with its frames.
struct Side {
    socket: UdpSocket,
    umem: Umem,
    counters: LinkCounters,
}

impl Side {
    fn open(local: &str, neighbour: &str, port: u16) -> Side {
        let (mut socket, _) = UdpSocket::open(&topology(local, neighbour, port), 0).unwrap();
        socket.accept([FLOW].into_iter());
        Side {
            socket,
            umem: Umem::unshared(FRAMES, FrameSize::SMALL).unwrap(),
            counters: LinkCounters::default(),
        }
    }

    fn send(&mut self, packet: &[u8], traffic_class: u8) {
        let frame = self.umem.take().expect("a free frame");
        let payload = Span { frame, offset: HEADROOM_BYTES as u16, len: packet.len() as u16 };
        self.umem.bytes_mut(payload).copy_from_slice(packet);
        assert!(self.socket.transmit(&mut self.umem, payload, PeerId(0), traffic_class));
    }

    fn flush(&mut self) {
        let end = Instant::now() + PATIENCE;
        while self.socket.pending() > 0 && Instant::now() < end {
            self.socket.flush(&mut self.umem, &mut self.counters);
        }
        assert_eq!(self.umem.gauge().free, FRAMES, "sent frames are free");
    }

    /// Packets with their traffic class, until there are `count` or none arrives.
    fn receive(&mut self, count: usize) -> Vec<(Vec<u8>, u8)> {
        let (mut all, mut arrived) = (Vec::new(), Vec::with_capacity(BURST_PACKETS));
        let end = Instant::now() + PATIENCE;
        while all.len() < count && Instant::now() < end {
            self.socket.receive(&mut self.umem, &mut self.counters, &mut arrived);
            for Arrived { payload, traffic_class, .. } in arrived.drain(..) {
                all.push((self.umem.bytes(payload).to_vec(), traffic_class));
                self.umem.release(payload.frame);
            }
        }
        all
    }

    /// Reads this many times, and drops the packets.
    fn receive_at_most(&mut self, times: usize) {
        let mut arrived = Vec::with_capacity(BURST_PACKETS);
        for _ in 0..times {
            self.socket.receive(&mut self.umem, &mut self.counters, &mut arrived);
            arrived.drain(..).for_each(|packet| self.umem.release(packet.payload.frame));
        }
    }

    fn verdict(&self, verdict: Verdict) -> u64 {
        self.socket.verdicts[verdict as usize]
    }
}

const PATIENCE: Duration = Duration::from_secs(5);

/// A coded packet of the flow, with the fields that a verdict reads.
fn packet(number: usize, len: usize) -> Vec<u8> {
    let mut packet = vec![number as u8; len.max(HEADER_BYTES)];
    packet[0] = VERSION << 4 | PacketType::Generation as u8;
    packet[FLOW_OFFSET..FLOW_OFFSET + 4].copy_from_slice(&FLOW.to_be_bytes());
    packet
}

fn all_arrive(left: &str, right: &str, port: u16) {
    let mut sender = Side::open(left, right, port);
    let mut receiver = Side::open(right, left, port);
    // Runs of equal size, ends of runs, longer ones after shorter ones, and classes in between.
    let sizes = [1400, 1400, 1400, 600, 600, 1400, 20, 1500, 1500, 1500, 16, 16, 16, 17, 900];
    let sent: Vec<(Vec<u8>, u8)> = (0..1000)
        .map(|number| (packet(number, sizes[number / 3 % sizes.len()]), (number / 50 % 4) as u8))
        .collect();
    for part in sent.chunks(200) {
        part.iter().for_each(|(packet, class)| sender.send(packet, *class));
        sender.flush();
        let received = receiver.receive(part.len());
        assert_eq!(received.len(), part.len(), "{:?}", receiver.socket.statistics);
        for (index, (received, sent)) in received.iter().zip(part).enumerate() {
            assert_eq!(received, sent, "packet {index}");
        }
    }
    assert_eq!(receiver.verdict(Verdict::Redirected), 1000);
    assert_eq!(receiver.counters.rx_packets, 1000);
    assert_eq!(receiver.umem.gauge().free, FRAMES);
    let LinkCounters { tx_full, tx_oversize, tx_no_neighbour, .. } = sender.counters;
    assert_eq!((tx_full, tx_oversize, tx_no_neighbour), (0, 0, 0));
}

#[test]
fn packets_of_all_sizes_and_classes_arrive_in_order_over_ipv4() {
    all_arrive("127.0.0.1", "127.0.0.2", 29426);
}

#[test]
fn packet_to_an_address_arrives_whole_after_bursts_of_shorter_ones() {
    let mut sender = Side::open("127.0.0.1", "127.0.0.2", 29_434);
    let mut receiver = Side::open("127.0.0.2", "127.0.0.1", 29_434);
    let burst: Vec<_> = (0..8).map(|number| packet(number, 54)).collect();
    burst.iter().for_each(|packet| sender.send(packet, 3));
    sender.flush();
    let letters = [packet(8, 460), packet(9, 102), packet(10, 20)];
    for letter in &letters {
        assert!(sender.socket.send_to(letter, "127.0.0.2:29434".parse().unwrap()));
    }
    burst.iter().for_each(|packet| sender.send(packet, 3));
    sender.flush();
    let sent: Vec<_> = burst.iter().map(|packet| (packet.clone(), 3)).collect();
    let whole = letters.map(|letter| (letter, 0));
    assert_eq!(receiver.receive(19), [&sent[..], &whole, &sent].concat());
}

#[test]
fn packets_to_oneself_over_ipv6_arrive() {
    // The loopback interface has one such address, so the neighbour is the socket itself.
    let mut side = Side::open("::1", "::1", 29427);
    for number in 0..100 {
        side.send(&packet(number, 1200), 2);
    }
    side.flush();
    let received = side.receive(100);
    assert!(received.iter().map(|(bytes, _)| bytes[1] as usize).eq(0..100));
    assert!(received.iter().all(|(bytes, class)| bytes.len() == 1200 && *class == 2));
}

/// Bursts from a neighbour that are split in the wrong places end merging after some, and packets
/// are received as before. The same from an outsider, and some among many valid ones, change
/// nothing.
#[test]
fn bursts_that_are_merged_wrongly_end_merging() {
    let mut receiver = Side::open("127.0.0.2", "127.0.0.1", 29433);
    let sender = |from: &str| std::net::UdpSocket::bind(from).unwrap();
    let (neighbour, outsider) = (sender("127.0.0.1:0"), sender("127.0.0.3:0"));
    let whole: Vec<u8> = (0..4).flat_map(|number| packet(number, 500)).collect();
    let send = |receiver: &mut Side, from: &std::net::UdpSocket, segment: i32| {
        setsockopt(from, sockopt::UdpGsoSegment, &segment).unwrap();
        from.send_to(&whole, "127.0.0.2:29433").unwrap();
        let before = receiver.socket.verdicts.iter().sum::<u64>();
        let expected = before + whole.len().div_ceil(segment as usize) as u64;
        let end = Instant::now() + PATIENCE;
        while receiver.socket.verdicts.iter().sum::<u64>() < expected && Instant::now() < end {
            receiver.receive_at_most(1);
        }
    };
    (0..50).for_each(|_| send(&mut receiver, &outsider, 400));
    assert!(!receiver.socket.merges_wrongly(), "an outsider ended it");
    (0..10).for_each(|_| send(&mut receiver, &neighbour, 400));
    (0..2000).for_each(|_| send(&mut receiver, &neighbour, 500));
    (0..10).for_each(|_| send(&mut receiver, &neighbour, 400));
    assert!(!receiver.socket.merges_wrongly());
    (0..20).for_each(|_| send(&mut receiver, &neighbour, 400));
    assert!(receiver.socket.merges_wrongly());
    receiver.socket.end_merging();
    assert!(!receiver.socket.merges_wrongly(), "it has ended");
    let before = receiver.verdict(Verdict::Redirected);
    (0..20).for_each(|_| send(&mut receiver, &neighbour, 500));
    assert_eq!(receiver.verdict(Verdict::Redirected), before + 80);
    assert!(!receiver.socket.message.is_burst && receiver.socket.message.segment >= 500);
    assert_eq!(receiver.umem.gauge().free, FRAMES);
}

/// Linux drops packets that a NIC damaged, and counts them with those that found no room; intact
/// ones after them arrive.
#[test]
fn packets_with_a_wrong_checksum_are_counted_and_not_taken() {
    let (flags, protocol) = (SockFlag::empty(), SockProtocol::Raw);
    let Ok(raw) = socket(AddressFamily::Inet, SockType::Raw, flags, protocol) else {
        assert!(std::env::var_os("RECODED_REQUIRE_ALL").is_none(), "cannot run: no CAP_NET_RAW");
        return println!("skipped: no CAP_NET_RAW");
    };
    let mut receiver = Side::open("127.0.0.2", "127.0.0.1", 29_435);
    let neighbour = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    // Linux writes lengths and the checksum of the IP header, and leaves that of UDP.
    let payload = packet(1, 500);
    let ip = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 2];
    let mut damaged = Vec::from(ip);
    damaged.extend(neighbour.local_addr().unwrap().port().to_be_bytes());
    damaged.extend(29_435u16.to_be_bytes());
    damaged.extend((8 + payload.len() as u16).to_be_bytes());
    // By whatever port: at least one of two checksums is wrong.
    for checksum in [0x1234u16, 0x4321].repeat(50) {
        let mut sent = damaged.clone();
        sent.extend(checksum.to_be_bytes());
        sent.extend(&payload);
        let to = SockaddrStorage::from(SocketAddr::from(([127, 0, 0, 2], 0)));
        sendto(raw.as_raw_fd(), &sent, &to, MsgFlags::empty()).unwrap();
    }
    receiver.receive_at_most(10);
    let taken = receiver.verdict(Verdict::Redirected);
    assert!(taken <= 50, "{taken} damaged packets were taken");
    neighbour.send_to(&payload, "127.0.0.2:29435").unwrap();
    assert_eq!(receiver.receive(1).len(), 1);
    assert!(receiver.socket.statistics.rx_ring_full >= 50, "{:?}", receiver.socket.statistics);
}

/// One message for a run needs fewer calls than packets; without it, all still arrive.
#[test]
fn runs_become_messages_and_without_segments_each_packet_is_one() {
    let mut sender = Side::open("127.0.0.1", "127.0.0.2", 29428);
    let mut receiver = Side::open("127.0.0.2", "127.0.0.1", 29428);
    (0..100).for_each(|number| sender.send(&packet(number, 1000), 0));
    let burst = sender.socket.sender.burst(0);
    // 64 KiB hold 65 of these, and a message has 64 segments.
    assert_eq!((burst.messages, &burst.packets[..2]), (2, &[64, 36][..]));
    sender.socket.sender.splits = false;
    assert_eq!(sender.socket.sender.burst(0).packets, [1; 16]);
    sender.socket.sender.splits = true;
    sender.socket.send_single(true);
    assert_eq!(sender.socket.sender.burst(0).packets, [1; 16], "for a comparison");
    sender.socket.send_single(false);
    assert_eq!(sender.socket.sender.burst(0).messages, 2);
    sender.socket.end_bursts();
    assert!(!sender.socket.has_bursts());
    sender.flush();
    assert_eq!(receiver.receive(100).len(), 100);
}

#[test]
fn packets_cost_no_allocation() {
    let mut sender = Side::open("127.0.0.1", "127.0.0.2", 29432);
    let mut receiver = Side::open("127.0.0.2", "127.0.0.1", 29432);
    let packets: Vec<Vec<u8>> = (0..100).map(|number| packet(number, 20 + number * 7)).collect();
    let mut arrived = Vec::with_capacity(BURST_PACKETS);
    let mut round = || {
        for (index, packet) in packets.iter().enumerate() {
            sender.send(packet, (index / 30) as u8);
        }
        sender.flush();
        let (end, mut came) = (Instant::now() + PATIENCE, 0);
        while came < packets.len() && Instant::now() < end {
            let Side { socket, umem, counters } = &mut receiver;
            socket.receive(umem, counters, &mut arrived);
            came += arrived.len();
            arrived.drain(..).for_each(|packet| umem.release(packet.payload.frame));
        }
        assert_eq!(came, packets.len());
    };
    // The first packet of a thread allocates the headers of messages.
    round();
    let counted = allocation_counter::measure(round);
    assert_eq!(counted.count_total, 0, "{counted:?}");
}

#[test]
fn packets_that_are_not_of_a_neighbour_and_a_flow_end_and_are_counted() {
    let mut side = Side::open("127.0.0.1", "127.0.0.2", 29429);
    let neighbour = std::net::UdpSocket::bind("127.0.0.2:0").unwrap();
    let outsider = std::net::UdpSocket::bind("127.0.0.3:0").unwrap();
    let good = packet(0, 100);
    let mut version = good.clone();
    version[0] = 0x11;
    let mut kind = good.clone();
    kind[0] = VERSION << 4;
    let mut flow = good.clone();
    flow[FLOW_OFFSET] = 9;
    for (from, bytes) in [
        (&neighbour, &good[..]),
        (&outsider, &good[..]),
        (&neighbour, &[]),
        (&neighbour, &good[..HEADER_BYTES - 1]),
        (&neighbour, &version),
        (&neighbour, &kind),
        (&neighbour, &flow),
        (&neighbour, &packet(0, 1900)),
        (&neighbour, &good[..]),
    ] {
        from.send_to(bytes, "127.0.0.1:29429").unwrap();
    }
    assert_eq!(side.receive(2).len(), 2);
    for (verdict, count) in [
        (Verdict::Redirected, 3),
        (Verdict::DropNotNeighbour, 1),
        (Verdict::DropTruncated, 2),
        (Verdict::DropVersion, 1),
        (Verdict::DropType, 1),
        (Verdict::DropUnknownFlow, 1),
    ] {
        assert_eq!(side.verdict(verdict), count, "{verdict:?}");
    }
    assert_eq!(side.socket.statistics.rx_dropped, 1, "longer than AF_XDP would take");
    assert_eq!((side.counters.rx_packets, side.umem.gauge().held), (2, 0));
}

/// Recorded packets of version 2, of every type: each is dropped and counted for its neighbour, and
/// none gets an answer. Of another sender, only the address is noted.
#[test]
fn packets_of_an_older_version_are_counted_for_their_neighbour_and_not_answered() {
    let text = include_str!("../../../../tests/vectors/older/version2.json");
    let older: serde_json::Value = serde_json::from_str(text).unwrap();
    let digit = |at: &[u8]| u8::from_str_radix(std::str::from_utf8(at).unwrap(), 16).unwrap();
    let packets = older["packets"].as_array().unwrap().iter();
    let packets = packets.map(|it| it.as_str().unwrap().as_bytes().chunks(2).map(digit).collect());
    let packets: Vec<Vec<u8>> = packets.collect();
    let types = packets.iter().map(|packet| packet[0]).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(Vec::from_iter(types), [0x21, 0x22, 0x24, 0x25, 0x26, 0x27, 0x28]);
    let mut side = Side::open("127.0.0.1", "127.0.0.2", 29435);
    let neighbour = std::net::UdpSocket::bind("127.0.0.2:29435").unwrap();
    let outsider = std::net::UdpSocket::bind("127.0.0.3:29435").unwrap();
    for packet in &packets {
        neighbour.send_to(packet, "127.0.0.1:29435").unwrap();
        outsider.send_to(packet, "127.0.0.1:29435").unwrap();
    }
    neighbour.send_to(&self::packet(0, 100), "127.0.0.1:29435").unwrap();
    assert_eq!(side.receive(1).len(), 1, "the packet of this version");
    let count = packets.len();
    assert_eq!(side.verdict(Verdict::DropVersion), 2 * count as u64);
    let others = side.socket.other_versions();
    let of = |last| others.of(std::net::Ipv4Addr::new(127, 0, 0, last).into());
    assert_eq!((of(2).version(), of(2).packets()), (Some(2), count as u32));
    assert_eq!(of(3).version(), None);
    assert_eq!(side.socket.not_neighbour(), Some(std::net::Ipv4Addr::new(127, 0, 0, 3).into()));
    for socket in [neighbour, outsider] {
        socket.set_nonblocking(true).unwrap();
        assert!(socket.recv(&mut [0; 2048]).is_err(), "an answer");
    }
}

#[test]
fn receiving_leaves_frames_to_send_with() {
    let mut sender = Side::open("127.0.0.1", "127.0.0.2", 29430);
    let mut receiver = Side::open("127.0.0.2", "127.0.0.1", 29430);
    let mut held: Vec<FrameId> = std::iter::from_fn(|| receiver.umem.take()).collect();
    held.drain(..FRAMES as usize / 4).for_each(|frame| receiver.umem.release(frame));
    sender.send(&packet(0, 500), 0);
    sender.flush();
    let end = Instant::now() + PATIENCE;
    let mut arrived = Vec::with_capacity(BURST_PACKETS);
    while !receiver.socket.receive(&mut receiver.umem, &mut receiver.counters, &mut arrived) {
        assert!(Instant::now() < end, "it does not arrive");
    }
    assert!(arrived.is_empty());
    assert_eq!(receiver.socket.statistics.rx_fill_ring_empty, 1);
    assert_eq!(receiver.umem.gauge().free, FRAMES / 4);
}

#[test]
fn socket_at_a_port_that_is_taken_is_refused_with_its_cure() {
    let _first = Side::open("127.0.0.1", "127.0.0.2", 29431);
    let topology = topology("127.0.0.1", "127.0.0.2", 29431);
    let error = UdpSocket::open(&topology, 0).map(drop).unwrap_err().to_string();
    assert!(error.contains("127.0.0.1:29431") && error.contains("ss -ulnp"), "{error}");
    let absent = Topology {
        links: vec![LinkConfig { interface: "nosuch0".into(), ..topology.links[0].clone() }],
        ..topology
    };
    assert!(UdpSocket::open(&absent, 0).is_err());
}

/// The tables of an XDP program.
struct Pinned {
    local: AddressWords,
    neighbour: AddressWords,
}

impl Tables for Pinned {
    fn port(&self) -> u16 {
        9426
    }

    fn local(&self) -> AddressWords {
        self.local
    }

    fn is_neighbour(&self, source: AddressWords) -> bool {
        source == self.neighbour
    }

    fn is_known(&self, flow: u32) -> bool {
        flow == FLOW
    }

    fn count_other_version(&self, _: AddressWords, _: u8) {}
}

proptest! {
    #[test]
    fn verdicts_are_those_of_the_xdp_program(
        first in prop_oneof![Just(0x37), any::<u8>()],
        flags in prop_oneof![Just(0x80), any::<u8>()],
        flow in prop_oneof![Just(FLOW), any::<u32>()], host in 1u8..4, len in 0usize..40,
    ) {
        let (local, source) = (Ipv4Addr::new(10, 0, 0, 9), Ipv4Addr::new(10, 0, 0, host));
        let neighbour = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
        let mut payload = packet(0, 40);
        (payload[0], payload[1]) = (first, flags);
        payload[FLOW_OFFSET..FLOW_OFFSET + 4].copy_from_slice(&flow.to_be_bytes());
        payload.truncate(len);
        let encap = Encap::new([2; 6], [4; 6], source.into(), local.into(), 9426).unwrap();
        let mut frame = [&vec![0; encap.header_bytes()][..], &payload[..]].concat();
        encap.write(&mut frame, 50000, 0);
        let tables =
            Pinned { local: address_words(local.into()), neighbour: address_words(neighbour) };
        let judged = judge(&payload, |_| IpAddr::from(source) == neighbour, &[FLOW]);
        prop_assert_eq!(judged, decide(&frame[..], &tables));
    }
}
