//! Hostile and random input: every packet ends in exactly one outcome, no frame leaks, nothing
//! panics, output per input stays bounded.

use crate::common;
use crate::common::{DOWN, FLOW, Node, UP, coded, header, params};
use proptest::prelude::*;
use recoded_pipeline::params::{FlowParams, Recoding, Role, TunnelId};
use recoded_pipeline::report::DropReason;
use recoded_wire::coded::{Block, CodedHeader, coding_offset, vector_bytes, write_index};
use recoded_wire::feedback::FeedbackHeader;
use recoded_wire::header::{Flags, Header, PacketType};

fn role(kind: u8) -> Role {
    match kind {
        0 => Role::Source { tunnel: TunnelId(0) },
        1 => Role::Relay { upstream: UP },
        _ => Role::Sink { tunnel: TunnelId(0), upstream: UP },
    }
}

/// A packet that is well formed in parts: far likelier to reach deep states than random bytes.
fn plausible() -> impl Strategy<Value = Vec<u8>> {
    let numbers = (0u32..6, prop_oneof![3 => 1u16..=16, 1 => 1u16..=256], any::<u8>(), 0u8..3);
    let rest = (prop_oneof![Just(FLOW), Just(8u32)], any::<u16>(), any::<u32>(), 1usize..60);
    (numbers, rest, prop::sample::select(&PacketType::ALL[..]), any::<[u8; 32]>()).prop_map(
        |((generation, size, flags, epoch), (flow, planned, sequence, symbol), kind, noise)| {
            let meant = match kind {
                PacketType::Generation => !0x0C,
                PacketType::Bats => !(0x0C | Flags::REPAIR),
                PacketType::Stream => Flags::SYSTEMATIC | Flags::END | Flags::REPAIR,
                PacketType::Feedback
                | PacketType::Link
                | PacketType::Handshake
                | PacketType::Announcement => 0,
            };
            let common = Header {
                epoch,
                flow,
                hop_index: noise[0],
                ..header(kind, flags & meant, sequence)
            };
            let header = CodedHeader { planned: planned % 64, ..coded(common, generation, size) };
            let systematic = common.flags.has(Flags::SYSTEMATIC);
            let vector = if systematic {
                4
            } else {
                vector_bytes(usize::from(size), common.flags.field_code())
            };
            let coding = coding_offset(kind == PacketType::Bats) + vector;
            let mut bytes: Vec<u8> =
                noise.iter().copied().cycle().take(coding + symbol % 3 + 30).collect();
            if kind == PacketType::Feedback {
                FeedbackHeader { common, node: 9, number: generation }.write(&mut bytes);
                return bytes;
            }
            header.write(&mut bytes);
            if kind == PacketType::Bats {
                // Mostly blocks that agree with one another, and occasionally one that does not.
                Block {
                    number: u16::from(noise[2] % 3),
                    batch: u16::from(noise[3] % 5),
                    source_symbols: 1 + u16::from(if noise[4] < 230 { 19 } else { noise[4] }),
                    full_log2: 6,
                    profile: if noise[5] < 200 { 2 } else { noise[5] % 16 },
                    generator_bits: if noise[6] < 230 { 8 } else { noise[6] % 16 },
                    interleave: noise[7] % 5,
                }
                .write(&mut bytes);
            }
            if systematic {
                write_index(&mut bytes, kind == PacketType::Bats, noise[1] % size.min(255) as u8);
            }
            bytes
        },
    )
}

fn input() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => plausible(),
        2 => (plausible(), any::<prop::sample::Index>())
            .prop_map(|(bytes, end)| bytes[..end.index(bytes.len())].to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..600),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_packet_has_one_fate_and_no_frame_leaks(
        kind in 0u8..3,
        random in any::<bool>(),
        generations in 1usize..8,
        code in 0u8..3,
        sealed in any::<bool>(),
        packets in prop::collection::vec((input(), 0u64..30_000_000), 1..200),
    ) {
        let mut params = params(role(kind));
        match code {
            0 => {}
            #[cfg(feature = "bats")]
            1 => params.code = common::bats(40),
            _ => params.code = common::stream(),
        }
        params.generations = generations;
        params.sealed = sealed;
        params.redundancy_max = 2.0;
        params.recoding = if random { Recoding::Random } else { Recoding::Systematic };
        let mut node = Node::new(params, 3);
        let (mut now, mut sent, mut input) = (0, 0, 0);
        for (bytes, wait) in &packets {
            now += wait;
            input += 1;
            // A packet in seven comes with an arbitrary link sequence number.
            let out = if input % 7 == 0 { node.receive(bytes, now) } else { node.receive_next(bytes, now) };
            sent += out.iter().filter(|(hop, _)| *hop == DOWN).count();
            sent += node.tick(now).iter().filter(|(hop, _)| *hop == DOWN).count();
        }
        let counters = node.packets();
        let ends = counters.forwarded + counters.consumed + counters.dropped.iter().sum::<u64>();
        prop_assert_eq!(counters.received, input);
        prop_assert_eq!(counters.received, ends);
        // Each packet opens at most one generation, which sends at most twice its size.
        prop_assert!(sent as u64 <= input * 2 * 16 + input);
        prop_assert_eq!(node.leaked(), 0);
        prop_assert!(!sealed || node.delivered.is_empty());
    }
}

/// A sink once took a packet whose generation is half the number space away, neither before nor
/// after those it holds, into an entry that it had not opened.
#[test]
fn a_generation_half_the_number_space_away_is_another_life_of_the_source() {
    for role_kind in [1, 2] {
        let mut node = Node::new(FlowParams { generations: 7, ..params(role(role_kind)) }, 5);
        let far = 9u32 + (1 << 31);
        for (sequence, generation) in [9, far, far + 1, far + 2, far + 1, 9].iter().enumerate() {
            node.receive(&systematic(*generation, sequence as u32), 0);
        }
        let packets = node.packets();
        let strays = packets.dropped[DropReason::Stray as usize];
        assert_eq!(packets.dropped.iter().sum::<u64>(), strays, "{packets:?}");
        assert_eq!(node.leaked(), 0);
    }
}

fn systematic(generation: u32, link_sequence: u32) -> Vec<u8> {
    let common = header(PacketType::Generation, 2 | Flags::SYSTEMATIC, link_sequence);
    let header = coded(common, generation, 16);
    let mut bytes = vec![0; 224];
    header.write(&mut bytes);
    bytes
}

#[cfg(feature = "bats")]
#[test]
fn a_flood_of_blocks_holds_no_more_than_the_table() {
    for kind in [1, 2] {
        let flow = FlowParams { code: common::bats(40), ..params(role(kind)) };
        let recoded_pipeline::params::FlowCode::Bats(bats) = flow.code else { unreachable!() };
        let most = if kind == 1 { flow.generations } else { flow.blocks(&bats) };
        let mut node = Node::new(flow, 5);
        for number in 0..50_000u32 {
            let common = header(PacketType::Bats, 2 | Flags::SYSTEMATIC, number);
            let header = coded(common, number.wrapping_mul(0x9E37_79B1), 16);
            let block = Block {
                number: (number.wrapping_mul(0x9E37_79B1) >> 16) as u16,
                batch: (number % 7) as u16,
                source_symbols: (1 + number % 40) as u16,
                full_log2: 6,
                profile: (number % 3) as u8,
                generator_bits: 8,
                interleave: (number % 256) as u8,
            };
            let mut bytes = vec![number as u8; 232];
            header.write(&mut bytes);
            block.write(&mut bytes);
            write_index(&mut bytes, true, (number % 16) as u8);
            node.receive(&bytes, u64::from(number) * 1000);
        }
        assert!(node.flow().held <= most, "{} held of {most}", node.flow().held);
        assert_eq!(node.leaked(), 0);
    }
}

#[test]
fn a_flood_of_generations_holds_no_more_than_the_table() {
    let mut node = Node::new(params(role(1)), 4);
    for generation in 0..100_000u32 {
        let bytes = systematic(generation.wrapping_mul(0x9E37_79B1), generation);
        node.receive(&bytes, u64::from(generation) * 1000);
    }
    assert!(node.flow().held <= 64);
    assert_eq!(node.leaked(), 0);
}
