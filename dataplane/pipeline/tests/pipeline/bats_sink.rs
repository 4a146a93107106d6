//! The sink of a BATS flow, tested with packets built directly from the code's definition.

use crate::common::*;
use recoded_code::bats::{Batch, Code, Operand, Params, Profile, Rows};
use recoded_code::vector;
use recoded_gf::{FieldOrder, Kernel};
use recoded_pipeline::Datagram;
use recoded_pipeline::params::{FlowParams, Role, TunnelId};
use recoded_pipeline::report::DropReason;
use recoded_wire::coded::{Block, CODED_BYTES, CodedHeader, coding_offset, vector_bytes};
use recoded_wire::feedback::{Item, Nack, items};
use recoded_wire::frames::Frames;
use recoded_wire::header::PacketType;

const SYMBOL_BYTES: usize = 200;
const MILLI: u64 = 1_000_000;

fn sink() -> FlowParams {
    let role = Role::Sink { tunnel: TunnelId(0), upstream: UP };
    FlowParams { code: bats(64), ..params(role) }
}

/// A block of IP packets as a source would send it.
struct HandMade {
    number: u16,
    code: Code,
    rows: Rows,
    packets: Vec<Vec<u8>>,
    link_sequence: u32,
}

impl HandMade {
    fn new(number: u16, source_symbols: usize, profile: Profile) -> HandMade {
        let params = Params { source_symbols, profile, ..Params::default() };
        let code = Code::new(params).expect("valid parameters");
        let count = source_symbols * SYMBOL_BYTES / 102;
        let packets: Vec<Vec<u8>> =
            (0..count as u32).map(|nth| ip_packet(100, u32::from(number) << 16 | nth)).collect();
        let mut stream = Vec::new();
        for packet in &packets {
            stream.extend_from_slice(&(packet.len() as u16).to_be_bytes());
            stream.extend_from_slice(packet);
        }
        stream.resize(source_symbols * SYMBOL_BYTES, 0);
        let mut rows = Rows::new(SYMBOL_BYTES);
        for (index, symbol) in stream.chunks(SYMBOL_BYTES).enumerate() {
            rows.set(Operand::Symbol(index as u16), symbol);
        }
        let Ok(()) = code.precode_symbols(&mut rows);
        HandMade { number, code, rows, packets, link_sequence: 0 }
    }

    fn block(&self, batch: u16) -> Block {
        let params = self.code.params();
        Block {
            number: self.number,
            batch,
            source_symbols: params.source_symbols as u16,
            full_log2: 6,
            profile: params.profile.code(),
            generator_bits: params.generator_bits,
            interleave: 1,
        }
    }

    /// A packet of a batch, with a coding vector of its own.
    fn packet(&mut self, batch: u16, elements: &[u8]) -> Vec<u8> {
        let mut contents = Batch::new();
        self.code.batch(batch, &mut contents);
        let mut factors = vec![0; contents.degree()];
        Kernel::best().reduce(&mut factors, elements, contents.generator(), contents.degree());
        let mut symbol = vec![0; SYMBOL_BYTES];
        for (&factor, &index) in factors.iter().zip(contents.indices()) {
            let row = self.rows.get(Operand::Symbol(index)).expect("an encoded symbol");
            Kernel::best().madd(&mut symbol, factor, row);
        }
        let field = FieldOrder::TwoFiftySix;
        let common = header(PacketType::Bats, field.code(), self.link_sequence);
        let generation = u32::from(self.number) * 1000 + u32::from(batch);
        let header = coded(common, generation, elements.len() as u16);
        self.link_sequence += 1;
        let at = coding_offset(true);
        let packed = vector_bytes(elements.len(), field.code());
        let mut bytes = vec![0; at + packed];
        header.write(&mut bytes);
        self.block(batch).write(&mut bytes);
        vector::pack(field, elements, &mut bytes[at..]);
        bytes.extend_from_slice(&symbol);
        bytes
    }
}

fn unit(index: usize) -> Vec<u8> {
    (0..16).map(|at| u8::from(at == index)).collect()
}

/// Requests of the sink in these packets, which are copied on lossy links.
fn requests(sent: &[(recoded_pipeline::params::PeerId, Vec<u8>)]) -> Vec<Nack> {
    let bodies = sent.iter().flat_map(|(_, packet)| items(packet));
    let asked = bodies.filter_map(|item| match item {
        Item::Nack(request) => Some(request),
        _ => None,
    });
    let mut asked: Vec<_> = asked.collect();
    asked.dedup();
    asked
}

/// Lets 50 ms pass, during which a block is delivered in parts.
fn settle(node: &mut Node, since_millis: u64) {
    for millis in since_millis..since_millis + 50 {
        node.tick(millis * MILLI);
    }
}

#[test]
fn blocks_of_every_profile_are_delivered_in_order() {
    for profile in Profile::ALL {
        let mut node = Node::new(sink(), 1);
        let mut expected = Vec::new();
        for (number, source_symbols) in [(u16::MAX, 64), (0, 1), (1, 17), (2, 64)] {
            let mut block = HandMade::new(number, source_symbols, profile);
            expected.extend(block.packets.iter().cloned());
            for batch in 0..20 {
                for index in (0..16).filter(|index| (index + batch) % 7 != 0) {
                    let packet = block.packet(batch as u16, &unit(index));
                    node.receive_next(&packet, MILLI);
                }
            }
        }
        node.tick(MILLI);
        assert!(node.delivered == expected, "{profile}: delivered something else");
        let counters = node.flow().counters;
        assert_eq!((counters.generations_complete, counters.generations_failed), (4, 0));
        assert_eq!(counters.source_symbols, 64 + 1 + 17 + 64);
        assert_eq!(node.leaked(), 0);
    }
}

/// Two blocks that waited for their last batch at the point where numbers wrap around once lost
/// their places to blocks 0 and 1: stale symbols were decoded as theirs, and delivery stalled.
#[test]
fn blocks_that_wait_where_numbers_wrap_around_keep_their_places() {
    let mut node = Node::new(sink(), 9);
    let mut expected = Vec::new();
    let numbers = [u16::MAX - 1, u16::MAX, 0, 1, 2];
    let mut blocks = numbers.map(|number| HandMade::new(number, 64, Profile::CyclicShift));
    for block in &mut blocks {
        expected.extend(block.packets.iter().cloned());
        let batches = if block.number > 2 { 3 } else { 8 };
        for batch in 0..batches {
            for index in 0..16 {
                node.receive_next(&block.packet(batch, &unit(index)), MILLI);
            }
        }
    }
    for block in &mut blocks[..2] {
        for (batch, index) in (3..8).flat_map(|batch| (0..16).map(move |index| (batch, index))) {
            node.receive_next(&block.packet(batch, &unit(index)), 2 * MILLI);
        }
    }
    settle(&mut node, 2);
    assert!(node.delivered == expected, "{} of {}", node.delivered.len(), expected.len());
    assert_eq!(node.flow().counters.generations_complete, 5);
    assert_eq!(node.leaked(), 0);
}

/// Blocks are numbered by 16 bits: one restart in 64 begins slightly behind the previous run.
#[test]
fn source_that_restarts_behind_itself_is_followed() {
    let mut node = Node::new(sink(), 7);
    let mut expected = Vec::new();
    // A different epoch; the same one by chance, seconds later.
    let lives = [(900, 3, 0), (901, 3, 0), (880, 77, 50), (881, 77, 50), (840, 77, 3000)];
    for (number, epoch, millis) in lives {
        let mut block = HandMade::new(number, 40, Profile::CyclicShift);
        expected.extend(block.packets.iter().cloned());
        for batch in 0..4 {
            for index in 0..16 {
                let mut packet = block.packet(batch, &unit(index));
                let mut header = CodedHeader::parse(&packet).expect("a header");
                header.common.epoch = epoch;
                header.write(&mut packet);
                node.receive_next(&packet, millis * MILLI);
            }
        }
        node.tick(millis * MILLI);
    }
    assert!(node.delivered == expected, "{} of {} packets", node.delivered.len(), expected.len());
    assert_eq!(node.leaked(), 0);
}

#[test]
fn short_block_asks_for_what_it_lacks_and_takes_further_batches() {
    let mut node = Node::new(sink(), 2);
    let mut block = HandMade::new(5, 64, Profile::CyclicShift);
    for batch in 0..3 {
        for index in 0..16 {
            let packet = block.packet(batch, &unit(index));
            node.receive(&packet, MILLI);
        }
    }
    assert!(requests(&node.tick(10 * MILLI)).is_empty(), "asked before the silence");
    let asked = requests(&node.tick(22 * MILLI));
    assert_eq!(asked, [Nack { unit: 5, missing: 16, round: 0 }]);
    for index in 0..16 {
        assert!(node.delivered.len() < block.packets.len());
        let packet = block.packet(3, &unit(index));
        node.receive(&packet, 30 * MILLI);
    }
    settle(&mut node, 30);
    assert!(node.delivered == block.packets, "delivered something else");
    assert_eq!(node.leaked(), 0);
}

#[test]
fn block_whose_batches_never_suffice_is_given_up_and_leaves_nothing() {
    let mut node = Node::new(sink(), 3);
    let mut block = HandMade::new(9, 64, Profile::CyclicShift);
    for batch in 0..3 {
        let packet = block.packet(batch, &unit(0));
        node.receive(&packet, MILLI);
    }
    let mut asked = 0;
    for milli in 2..600 {
        asked += requests(&node.tick(milli * MILLI)).len();
    }
    let counters = node.flow().counters;
    assert_eq!((counters.generations_failed, counters.generations_complete), (1, 0));
    assert!((3..=12).contains(&asked), "asked {asked} times");
    assert_eq!(node.flow().held, 0);
    assert_eq!(node.leaked(), 0);
}

#[test]
fn packets_that_contradict_their_block_are_dropped_by_reason() {
    let mut node = Node::new(sink(), 4);
    let mut block = HandMade::new(1, 40, Profile::CyclicShift);
    let good = block.packet(0, &unit(0));
    node.receive(&good, MILLI);
    let mut send = |change: fn(&mut Block), reason: DropReason| {
        let before = node.packets().dropped[reason as usize];
        let mut bytes = good.clone();
        let mut word = Block::read(&bytes).expect("a block word");
        change(&mut word);
        word.write(&mut bytes);
        node.receive_next(&bytes, MILLI);
        assert_eq!(node.packets().dropped[reason as usize], before + 1, "{word:?}");
    };
    send(|word| word.source_symbols = 41, DropReason::Mismatch);
    send(|word| word.profile = 1, DropReason::Mismatch);
    send(|word| word.generator_bits = 2, DropReason::Mismatch);
    send(|word| word.interleave = 7, DropReason::Mismatch);
    send(|word| word.source_symbols = 65, DropReason::Mismatch);
    send(|word| word.profile = 3, DropReason::Malformed);
    send(|word| word.generator_bits = 5, DropReason::Malformed);
    send(|word| word.batch = u16::MAX, DropReason::BatchesExhausted);
    let mut shorter = good.clone();
    shorter.truncate(CODED_BYTES + 30);
    node.receive_next(&shorter, MILLI);
    assert_eq!(node.packets().dropped[DropReason::Mismatch as usize], 6);
    assert_eq!(node.leaked(), 0);
}

#[test]
fn block_gives_way_when_frames_run_out() {
    let mut node = Node::new(sink(), 5);
    let mut block = HandMade::new(3, 64, Profile::CyclicShift);
    for index in 0..16 {
        let packet = block.packet(0, &unit(index));
        node.receive(&packet, MILLI);
    }
    let last = block.packet(1, &unit(0));
    let span = node.frames.receive(&last).expect("a frame");
    let hoard: Vec<_> = std::iter::from_fn(|| node.frames.take()).collect();
    node.run(|pipeline, frames, outputs| {
        pipeline.receive(frames, outputs, Datagram::best_effort(Some(UP), span), 2 * MILLI);
    });
    assert_eq!(node.flow().counters.generations_evicted, 1);
    hoard.into_iter().for_each(|frame| node.frames.release(frame));
    assert_eq!(node.leaked(), 0);
}
