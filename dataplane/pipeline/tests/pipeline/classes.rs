//! DSCP and ECN bits: coded packets have those of the packets they carry, and congestion marks
//! reach the delivered packets, through relays that recode.

use crate::common;
use crate::common::{DOWN, Node, Outputs, SHARD, UP, ip_packet, params};
use recoded_pipeline::Datagram;
use recoded_pipeline::params::{FlowCode, FlowParams, Role, StreamParams, TunnelId};
use recoded_wire::frames::Frames;
use recoded_wire::stream::KEEPALIVE_BYTES;
use std::collections::VecDeque;

/// Expedited forwarding, ECT(0).
const CLASS: u8 = 0xB8 | 2;
const CE: u8 = 3;

/// Packets sent, with their class.
type Sent = Vec<(u8, Vec<u8>)>;

/// Packets delivered.
type Delivered = Vec<Vec<u8>>;

/// Runs a node. Returns the packets that it sent, as (class, bytes), and those that it delivered.
fn run(node: &mut Node, work: impl FnOnce(&mut Node, &mut Outputs)) -> (Sent, Delivered) {
    let mut outputs = Outputs { keys: node.keys.take(), ..Outputs::default() };
    work(node, &mut outputs);
    node.keys = outputs.keys;
    let sent = outputs.sent.into_iter().map(|common::Sent { span, outer, .. }| {
        let bytes = node.frames.bytes(span).to_vec();
        node.frames.release(span.frame);
        (outer.traffic_class, bytes)
    });
    (sent.collect(), outputs.delivered)
}

/// An IP packet of that class, with the checksum of its header.
fn marked_packet(number: u32, class: u8) -> Vec<u8> {
    let mut packet = ip_packet(150, number);
    packet[1] = class;
    packet[10..12].fill(0);
    let sum = header_sum(&packet);
    packet[10..12].copy_from_slice(&(!sum).to_be_bytes());
    packet
}

fn header_sum(packet: &[u8]) -> u16 {
    let words =
        packet[..20].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xFFFF) + (sum >> 16);
    (sum + (sum >> 16)) as u16
}

fn receive(node: &mut Node, bytes: &[u8], class: u8, now: u64) -> (Sent, Delivered) {
    let payload = node.frames.receive(bytes).expect("a frame");
    let peer = Some(common::sender(bytes));
    let datagram = Datagram { peer, payload, traffic_class: class };
    run(node, |node, outputs| {
        node.pipeline.receive(&mut node.frames, outputs, datagram, now);
        node.pipeline.tick(&mut node.frames, outputs, now);
    })
}

#[test]
fn coded_packets_have_the_class_of_what_they_carry_and_marks_are_delivered() {
    let codes = [
        FlowCode::Rlnc,
        #[cfg(feature = "bats")]
        common::bats(40),
    ];
    // The class of a sealed packet is sent unencrypted with it.
    for (code, sealed) in codes.into_iter().flat_map(|code| [(code, false), (code, true)]) {
        let node = |role| Node::new(FlowParams { code, sealed, ..params(role) }, 3);
        let mut source = node(Role::Source { tunnel: TunnelId(0) });
        let mut relay = node(Role::Relay { upstream: UP });
        let mut sink = node(Role::Sink { tunnel: TunnelId(0), upstream: UP });
        let (mut sent, mut marked, mut delivered) = (0, 0, Vec::new());
        for number in 0..400 {
            let now = u64::from(number) * 1_000_000;
            let packet = marked_packet(number, CLASS);
            let (out, _) = run(&mut source, |node, outputs| {
                node.pipeline.ingress(&mut node.frames, outputs, SHARD, &packet, now);
                node.pipeline.tick(&mut node.frames, outputs, now);
            });
            // Keepalives carry nothing.
            for (class, bytes) in out.into_iter().filter(|out| out.1.len() > KEEPALIVE_BYTES) {
                sent += 1;
                assert_eq!(class, CLASS, "{}", code.name());
                // A router before the relay marks a packet in ten; one in seven is lost.
                let met = if sent % 10 == 0 { class | CE } else { class };
                if sent % 7 == 0 {
                    continue;
                }
                marked += u32::from(met & CE == CE);
                for (class, bytes) in receive(&mut relay, &bytes, met, now).0 {
                    if class == 0 {
                        continue; // feedback
                    }
                    assert_eq!(class & !CE, CLASS & !CE, "{}", code.name());
                    delivered.extend(receive(&mut sink, &bytes, class, now).1);
                }
            }
        }
        assert!(delivered.len() >= 300, "{} delivered", delivered.len());
        for packet in &delivered {
            assert_eq!(header_sum(packet), 0xFFFF, "a wrong checksum");
        }
        let with_mark = delivered.iter().filter(|packet| packet[1] & CE == CE).count() as u32;
        println!(
            "{}, sealed {sealed}: {marked} marks came, {with_mark} of {} packets",
            code.name(),
            delivered.len()
        );
        assert!(with_mark <= marked && with_mark + 70 >= marked && with_mark > 20);
        assert_eq!(u64::from(with_mark), sink.flow().counters.delivered_marked);
        for node in [&mut source, &mut relay, &mut sink] {
            assert_eq!(node.leaked(), 0);
        }
    }
}

/// A flow that is not ECN-capable gets no marks, and its coded packets are not marked but dropped.
#[test]
fn packets_that_are_not_ecn_capable_stay_so() {
    let mut source = Node::new(params(Role::Source { tunnel: TunnelId(0) }), 3);
    let mut sink = Node::new(params(Role::Sink { tunnel: TunnelId(0), upstream: UP }), 4);
    let mut delivered = Vec::new();
    for number in 0..100 {
        let packet = marked_packet(number, 0xB8);
        let (out, _) = run(&mut source, |node, outputs| {
            let now = u64::from(number) * 1000;
            node.pipeline.ingress(&mut node.frames, outputs, SHARD, &packet, now);
        });
        for (class, bytes) in out {
            assert_eq!(class, 0xB8);
            // A router that marks it anyway breaks the rules.
            delivered.extend(receive(&mut sink, &bytes, class | CE, u64::from(number) * 1000).1);
        }
    }
    assert!(delivered.len() > 50);
    assert!(delivered.iter().all(|packet| packet[1] == 0xB8));
}

/// A stream takes the class of a packet from the symbol that it keeps, at the source and at a relay
/// without keys, also for combinations; marks apply to opened packets.
#[test]
fn streams_have_the_class_of_what_they_carry_sealed_and_tagged_or_not() {
    for (sealed, has_tags) in [(false, false), (true, false), (true, true)] {
        let code = FlowCode::Stream(StreamParams::new(1024));
        let node = |role| {
            let tagged = has_tags && !matches!(role, Role::Relay { .. });
            Node::new(FlowParams { code, sealed, tagged, ..params(role) }, 3)
        };
        let mut source = node(Role::Source { tunnel: TunnelId(0) });
        let mut relay = node(Role::Relay { upstream: UP });
        let mut sink = node(Role::Sink { tunnel: TunnelId(0), upstream: UP });
        let (mut met, mut delivered) = (0, Vec::new());
        // Reports of the relay take 20 ms: combinations are for losses whose retransmission takes
        // long.
        let mut back: VecDeque<(u64, Vec<u8>)> = VecDeque::new();
        for number in 0..400 {
            let now = u64::from(number) * 1_000_000;
            let packet = marked_packet(number, CLASS);
            let (mut out, _) = run(&mut source, |node, outputs| {
                node.pipeline.ingress(&mut node.frames, outputs, SHARD, &packet, now);
                node.pipeline.tick(&mut node.frames, outputs, now);
            });
            while let Some((_, report)) = back.pop_front_if(|(at, _)| *at <= now) {
                out.extend(receive(&mut source, &report, 0, now).0);
            }
            for (class, bytes) in out.into_iter().filter(|(_, bytes)| bytes.len() > packet.len()) {
                assert_eq!(class, CLASS, "sealed {sealed}");
                met += 1;
                let class = if met % 10 == 0 { class | CE } else { class };
                for (class, bytes) in receive(&mut relay, &bytes, class, now).0 {
                    if common::sender(&bytes) == DOWN {
                        back.push_back((now + 20_000_000, bytes));
                    } else if bytes.len() > packet.len() {
                        assert_eq!(class & !CE, CLASS & !CE, "sealed {sealed}");
                        delivered.extend(receive(&mut sink, &bytes, class, now).1);
                    }
                }
            }
        }
        let combinations = source.flow().counters.sent_coded;
        assert!(combinations > 10, "{combinations} combinations");
        assert!(delivered.len() > 150, "{} delivered", delivered.len());
        assert!(delivered.iter().all(|packet| header_sum(packet) == 0xFFFF), "a wrong checksum");
        let marked = delivered.iter().filter(|packet| packet[1] & CE == CE).count() as u64;
        assert!(marked > 10 && marked == sink.flow().counters.delivered_marked, "{marked}");
    }
}
