//! Redundant packets from a neighbour with full rights: they cost another neighbour's stream
//! nothing, and they are not multiplied.

use crate::common::{DOWN, Node, UP, ip_packet, params};
use recoded_pipeline::Datagram;
use recoded_pipeline::params::{FlowCode, FlowParams, PeerId, Role, StreamParams, TunnelId};
use recoded_wire::header::{Header, PacketType, write_link_sequence};

/// The neighbour that repeats the other one's packets.
const OTHER: PeerId = PeerId(5);

const PACKETS: u32 = 1000;

/// Copies of each packet.
const COPIES: usize = 20;

fn stream(role: Role) -> Node {
    let is_source = matches!(role, Role::Source { .. });
    let code = FlowCode::Stream(StreamParams::new(1024));
    let further_upstreams = if is_source { vec![] } else { vec![OTHER] };
    Node::new(FlowParams { code, further_upstreams, ..params(role) }, 3)
}

fn receive(node: &mut Node, peer: PeerId, payload: &[u8], now: u64) -> Vec<(PeerId, Vec<u8>)> {
    let span = node.frames.receive(payload).expect("a frame");
    let packets = node.run(|pipeline, frames, out| {
        pipeline.receive(frames, out, Datagram::best_effort(Some(peer), span), now)
    });
    [packets, node.tick(now)].concat()
}

/// Sends a stream to a node, with each packet repeated by another neighbour. Returns the number of
/// packets sent towards the sink.
fn flood(node: &mut Node, copies: usize) -> usize {
    let mut source = stream(Role::Source { tunnel: TunnelId(0) });
    let (mut number_of_other, mut sent, mut now) = (7, 0, 1_000_000);
    for number in 0..PACKETS {
        now += 250_000;
        let mut leaving = source.ingress(&ip_packet(150, number), now);
        leaving.extend(source.tick(now));
        for (_, packet) in leaving.into_iter().filter(|(hop, _)| *hop == DOWN) {
            let mut back = receive(node, UP, &packet, now);
            for _ in 0..copies {
                let mut copy = packet.clone();
                write_link_sequence(&mut copy, number_of_other);
                number_of_other += 1;
                back.extend(receive(node, OTHER, &copy, now));
            }
            for (peer, bytes) in back {
                let kind = Header::parse(&bytes).expect("a packet").packet_type;
                let is_report = matches!(kind, PacketType::Link | PacketType::Feedback);
                sent += usize::from(!is_report);
                if is_report && peer == UP {
                    source.receive(&bytes, now);
                }
            }
        }
    }
    assert_eq!(source.flow().counters.ingress_dropped, 0, "the source was not held up");
    sent
}

#[test]
fn copies_of_another_neighbour_cost_a_sink_nothing() {
    let mut sink = stream(Role::Sink { tunnel: TunnelId(0), upstream: UP });
    flood(&mut sink, COPIES);
    assert_eq!(sink.delivered.len(), PACKETS as usize);
    assert!(
        sink.delivered.iter().zip(0..).all(|(packet, number)| *packet == ip_packet(150, number))
    );
    let counters = sink.flow().counters;
    println!("{} innovative, {} redundant", counters.innovative, counters.redundant);
    assert!(counters.redundant >= u64::from(PACKETS) * COPIES as u64, "{}", counters.redundant);
    assert_eq!(sink.leaked(), 0);
}

#[test]
fn copies_of_another_neighbour_are_not_passed_on_by_a_relay() {
    let sent = [0, COPIES].map(|copies| {
        let mut relay = stream(Role::Relay { upstream: UP });
        let sent = flood(&mut relay, copies);
        assert_eq!(relay.leaked(), 0);
        sent
    });
    println!("{sent:?} packets leave without copies and with them");
    assert!(sent[1] <= sent[0] + sent[0] / 10, "{sent:?}");
}
