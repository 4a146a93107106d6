//! What an attack on the first version found, one test for each fault. A *blind* attacker knows flow id,
//! port and destination; an *informed* one the present generation number and epoch as well.

mod common;

use common::{FLOW, Node, ip_packet, params};
use recoded_pipeline::params::{FlowParams, HOPS_MAX, Role, TunnelId};
use recoded_wire::feedback::{HopReport, Item, Writer};
use recoded_wire::header::{Flags, Header, PacketType};

const MILLI: u64 = 1_000_000;
const SOURCE: Role = Role::Source { tunnel: TunnelId(0) };

/// A feedback packet with `items`, from `travelled` links away.
fn feedback(travelled: u8, number: u32, items: &[Item<'_>]) -> Vec<u8> {
    let header = Header {
        packet_type: PacketType::Feedback,
        flags: Flags(0),
        epoch: 0,
        size: 1,
        flow: FLOW,
        generation: number,
        hop_index: travelled,
        key_id: 0,
        planned: 0,
        link_sequence: 99,
    };
    let mut bytes = vec![0; 1432];
    header.write(&mut bytes);
    let mut writer = Writer::new(&mut bytes);
    for item in items {
        assert!(writer.push(*item), "one packet holds them all");
    }
    let length = writer.finish();
    bytes.truncate(length);
    bytes
}

fn hop(hop: u8, loss: f32) -> Item<'static> {
    Item::Hop(HopReport { hop, loss, burst_mean: 1.0 })
}

/// Every code that a source may have.
fn codes() -> Vec<FlowParams> {
    let mut window = params(SOURCE);
    common::window(&mut window);
    vec![
        params(SOURCE),
        window,
        #[cfg(feature = "bats")]
        FlowParams { code: common::bats(40), ..params(SOURCE) },
    ]
}

/// Three blind packets that named 256 hops once ended the daemon: plans were made in an array of 255.
#[test]
fn feedback_that_names_every_hop_index_is_bounded() {
    for params in codes() {
        let mut node = Node::new(params, 1);
        node.ingress(&ip_packet(100, 0), 0);
        for (number, first) in [0u8, 90, 180].into_iter().enumerate() {
            let hops: Vec<u8> = (first..=first.saturating_add(89)).collect();
            for travelled in [0, first, u8::MAX] {
                let items: Vec<Item<'_>> = hops.iter().map(|index| hop(*index, 0.6)).collect();
                node.receive(&feedback(travelled, number as u32, &items), MILLI);
            }
        }
        // A report for each hop by itself, from where it could come from.
        for index in 0..=u8::MAX {
            node.receive(&feedback(index, 10 + u32::from(index), &[hop(index, 0.6)]), 2 * MILLI);
        }
        for number in 0..40 {
            node.ingress(&ip_packet(400, number), 3 * MILLI);
        }
        node.tick(10 * MILLI);
        assert!(node.flow().hops.len() <= HOPS_MAX);
        assert_eq!(node.leaked(), 0);
    }
}
