//! Two stages of one shard side by side, after a change of sizes.

use crate::common::{Node, UP, coded, header, ip_packet, params};
use recoded_pipeline::params::{FlowParams, Role, TunnelId};
use recoded_wire::coded::{CODED_BYTES, CodedHeader, INDEX_BYTES, write_index};
use recoded_wire::header::{Flags, PacketType};

const MILLI: u64 = 1_000_000;

/// Source symbol `index` of a generation.
fn symbol(epoch: u8, generation: u32, size: u16, full_log2: u8, index: u8) -> Vec<u8> {
    let mut common = header(PacketType::Generation, Flags::SYSTEMATIC | 3, 0);
    common.epoch = epoch;
    let mut packet = vec![0; CODED_BYTES + INDEX_BYTES + 40];
    CodedHeader { full_log2, ..coded(common, generation, size) }.write(&mut packet);
    write_index(&mut packet, false, index);
    packet
}

/// Both stages once counted ranks in one histogram, sized for the newer one's generations: a
/// generation of the older one that ended with a higher rank caused a panic.
#[test]
fn a_stage_of_before_a_change_counts_ranks_by_itself() {
    let sink = Role::Sink { tunnel: TunnelId(0), upstream: UP };
    let mut node = Node::new(params(sink), 1);
    for generation in [7, 8] {
        node.receive_next(&symbol(0, generation, 16, 4, 0), 0);
    }
    // Another stage, for generations of up to 256; the next ones have a single symbol.
    node.receive_next(&symbol(1, 900, 64, 8, 0), MILLI);
    for generation in [901, 902] {
        node.receive_next(&symbol(2, generation, 1, 8, 0), MILLI);
    }
    assert_eq!(node.flow().counters.rank_histogram, [0, 2]);
    // Packets still in flight to the previous stage: its generation ends at rank 5.
    for index in 1..5 {
        node.receive_next(&symbol(0, 8, 16, 4, index), 2 * MILLI);
    }
    node.tick(60 * MILLI);
    let mut ranks = [0; 17];
    (ranks[1], ranks[5]) = (1, 1);
    assert_eq!(node.flow().counters.rank_histogram, ranks);
    assert_eq!(node.leaked(), 0);
}

/// After two seconds of silence, packets once went to a stage that only a forged packet had
/// requested, and it delivered packets again that it had not seen.
#[test]
fn a_stage_opened_by_a_forged_packet_does_not_take_an_idle_flow_over() {
    let sink = Role::Sink { tunnel: TunnelId(0), upstream: UP };
    let mut node = Node::new(params(sink), 1);
    for generation in [7, 8] {
        node.receive_next(&symbol(0, generation, 1, 4, 0), 0);
    }
    let idle = 3000 * MILLI;
    node.receive_next(&symbol(77, 100, 200, 8, 0), idle);
    node.receive_next(&symbol(0, 8, 1, 4, 0), idle + MILLI);
    let counters = node.flow().counters;
    assert_eq!((counters.generations_complete, counters.redundant), (2, 1));
    assert_eq!(node.leaked(), 0);
}

/// A short generation of a new epoch once went to the previous stage, and all later ones of that
/// epoch were dropped as mismatch.
#[test]
fn a_short_generation_does_not_keep_larger_ones_of_its_epoch_out() {
    let sink = Role::Sink { tunnel: TunnelId(0), upstream: UP };
    for role in [sink, Role::Relay { upstream: UP }] {
        let mut node = Node::new(params(role), 1);
        node.receive_next(&symbol(0, 7, 16, 4, 0), 0);
        node.receive_next(&symbol(1, 8, 1, 8, 0), MILLI);
        for index in 0..200 {
            node.receive_next(&symbol(1, 9, 200, 8, index), 2 * MILLI);
        }
        assert_eq!(node.flow().counters.innovative, 202);
        assert_eq!(node.packets().dropped.iter().sum::<u64>(), 0);
        assert_eq!(node.leaked(), 0);
    }
}

/// Two forged packets of other epochs and sizes once replaced the stage of an idle flow.
#[test]
fn forged_packets_do_not_replace_a_stage_that_has_delivered() {
    let change = |role| FlowParams { generation_size: 1, ..params(role) };
    let mut source = Node::new(change(Role::Source { tunnel: TunnelId(0) }), 1);
    let mut sink = Node::new(change(Role::Sink { tunnel: TunnelId(0), upstream: UP }), 2);
    let units: Vec<_> = (0..3)
        .map(|number| {
            let now = u64::from(number) * MILLI;
            let mut sent = source.ingress(&ip_packet(100, number), now);
            sent.append(&mut source.tick(now + MILLI));
            sent.swap_remove(0).1
        })
        .collect();
    let epoch = units[0][2];
    units[..2].iter().for_each(|unit| drop(sink.receive_next(unit, 10 * MILLI)));
    for (place, (other, size, full_log2)) in
        [(50, 1, 4), (72, 64, 6), (99, 200, 8)].into_iter().enumerate()
    {
        let forged = symbol(epoch.wrapping_add(other), 1 << 20, size, full_log2, 0);
        sink.receive_next(&forged, (3 + place as u64) * 1000 * MILLI);
    }
    units[1..].iter().for_each(|unit| drop(sink.receive_next(unit, 6000 * MILLI)));
    assert_eq!(sink.delivered, [0, 1, 2].map(|number| ip_packet(100, number)));
    assert_eq!((source.leaked(), sink.leaked()), (0, 0));
}

/// A forged packet of the flow's own epoch, but of larger sizes, once opened a stage for an idle
/// flow that took all of its packets from then on.
#[test]
fn forged_sizes_in_the_epoch_of_an_idle_flow_do_not_take_it_over() {
    let change = |role| FlowParams { generation_size: 1, ..params(role) };
    let mut source = Node::new(change(Role::Source { tunnel: TunnelId(0) }), 1);
    let mut sink = Node::new(change(Role::Sink { tunnel: TunnelId(0), upstream: UP }), 2);
    let mut send = |sink: &mut Node, number: u32, now: u64| {
        let mut sent = source.ingress(&ip_packet(100, number), now);
        sent.append(&mut source.tick(now + MILLI));
        let unit = sent.swap_remove(0).1;
        drop(sink.receive_next(&unit, now + MILLI));
        unit[2]
    };
    let epoch = send(&mut sink, 0, 0);
    send(&mut sink, 1, 2 * MILLI);
    for index in 0..2 {
        let forged = symbol(epoch, 1 << 20, 64, 6, index);
        sink.receive_next(&forged, 3000 * MILLI);
    }
    for number in 2..8 {
        send(&mut sink, number, 3001 * MILLI + u64::from(number) * MILLI);
    }
    let expected: Vec<Vec<u8>> = (0..8).map(|number| ip_packet(100, number)).collect();
    assert_eq!(sink.delivered, expected);
    assert_eq!((source.leaked(), sink.leaked()), (0, 0));
}
