//! Two stages of one shard, beside each other after a change of sizes.

mod common;

use common::{Node, UP, coded, header, params};
use recoded_pipeline::params::{Role, TunnelId};
use recoded_wire::coded::{CODED_BYTES, CodedHeader, INDEX_BYTES, write_index};
use recoded_wire::header::{Flags, PacketType};

const MILLI: u64 = 1_000_000;

/// Source symbol `index` of a generation.
fn symbol(epoch: u8, (generation, size, full_log2): (u32, u16, u8), index: u8) -> Vec<u8> {
    let mut common = header(PacketType::Generation, Flags::SYSTEMATIC | 3, 0);
    common.epoch = epoch;
    let mut packet = vec![0; CODED_BYTES + INDEX_BYTES + 40];
    CodedHeader { full_log2, ..coded(common, generation, size) }.write(&mut packet);
    write_index(&mut packet, false, index);
    packet
}

/// Both stages once counted ranks in one histogram, which was as long as the newer one's
/// generations are large: a generation of the older one that ended with a higher rank was a panic.
#[test]
fn a_stage_of_before_a_change_counts_ranks_by_itself() {
    let sink = Role::Sink { tunnel: TunnelId(0), upstream: UP };
    let mut node = Node::new(params(sink), 1);
    for generation in [7, 8] {
        node.receive_next(&symbol(0, (generation, 16, 4), 0), 0);
    }
    // Another stage, for generations of up to 256; the next ones have a single symbol.
    node.receive_next(&symbol(1, (900, 64, 8), 0), MILLI);
    for generation in [901, 902] {
        node.receive_next(&symbol(2, (generation, 1, 8), 0), MILLI);
    }
    assert_eq!(node.flow().counters.rank_histogram, [0, 2]);
    // What was still on its way to the stage of before: it ends at rank 5.
    for index in 1..5 {
        node.receive_next(&symbol(0, (8, 16, 4), index), 2 * MILLI);
    }
    node.tick(60 * MILLI);
    let mut ranks = [0; 17];
    (ranks[1], ranks[5]) = (1, 1);
    assert_eq!(node.flow().counters.rank_histogram, ranks);
    assert_eq!(node.leaked(), 0);
}

/// After two seconds of silence, packets once went to a stage that nothing but a forged packet had
/// asked for, which delivered again what it had not seen.
#[test]
fn a_stage_opened_by_a_forged_packet_does_not_take_an_idle_flow_over() {
    let sink = Role::Sink { tunnel: TunnelId(0), upstream: UP };
    let mut node = Node::new(params(sink), 1);
    for generation in [7, 8] {
        node.receive_next(&symbol(0, (generation, 1, 4), 0), 0);
    }
    let idle = 3000 * MILLI;
    node.receive_next(&symbol(77, (100, 200, 8), 0), idle);
    node.receive_next(&symbol(0, (8, 1, 4), 0), idle + MILLI);
    let counters = node.flow().counters;
    assert_eq!((counters.generations_complete, counters.redundant), (2, 1));
    assert_eq!(node.leaked(), 0);
}
