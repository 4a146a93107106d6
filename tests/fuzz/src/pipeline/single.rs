//! One node of any role and code under hostile input: nearly valid packets, invalid bytes,
//! feedback, IP packets, time, silences, other parameters, plans and stages for outdated
//! parameters.

use recoded_pipeline::params::{FlowCode, FlowParams, Nanos, PeerId};
use recoded_wire::coded::{
    BLOCK_SYMBOLS_MAX, Block, CodedHeader, PLANNED_MAX, coding_offset, log2_ceil, vector_bytes,
    write_index,
};
use recoded_wire::header::{Flags, Header, PacketType, VERSION};
use recoded_wire::shard::SHARDS_MAX;
use recoded_wire::stream::{Combination, StreamHeader, StreamSymbol};

use super::node::{Node, Stamps, Threads};
use super::{DOWN, FLOW, SHARDS, UP, forge, params, role};
use crate::Input;

const FRAMES: usize = 160;

/// Types of packets by number. Numbers 2 and 4 are the same, as scripts in the corpus count eight.
const TYPES: [PacketType; 8] = [
    PacketType::Bats,
    PacketType::Generation,
    PacketType::Stream,
    PacketType::Feedback,
    PacketType::Stream,
    PacketType::Link,
    PacketType::Handshake,
    PacketType::Announcement,
];

struct Run {
    params: FlowParams,
    node: Node,
    is_spread: bool,
    now: Nanos,
    stamps: Stamps,
    /// The newest data packet.
    newest: Vec<u8>,
}

/// Parameters, then events.
pub(super) fn run(first: u8, input: &mut Input<'_>) {
    let params = params(role(first), input);
    let is_spread = first & 0x20 != 0;
    let params = FlowParams { shards: if is_spread { SHARDS } else { 1 }, ..params };
    let threads = Threads {
        workers: if is_spread { 3 } else { 1 },
        plans: first & 0x40 != 0,
        stages: first & 0x10 != 0,
    };
    let mut run = Run {
        node: Node::new(&params, FRAMES, threads),
        is_spread,
        params,
        now: 0,
        stamps: Stamps::default(),
        newest: Vec::new(),
    };
    while !input.is_empty() {
        run.step(input);
    }
    run.node.finish(run.now);
}

impl Run {
    fn step(&mut self, input: &mut Input<'_>) {
        let operation = input.byte();
        match operation % 8 {
            0..=2 => {
                let packet = self.coded(input);
                self.receive(&packet);
            }
            3 => {
                let length = usize::from(input.u16()) % 700;
                let packet = input.bytes(length).to_vec();
                let peer = [None, Some(UP), Some(DOWN), Some(PeerId(7))][packet.len() % 4];
                self.node.receive(peer, &packet, self.now);
                self.node.settle(self.now);
            }
            4 => {
                let packet = forge::feedback(input);
                self.receive_next(packet);
            }
            5 => {
                let mut packet = vec![0x45; 4 + input.below(256)];
                let length = packet.len() as u16;
                packet[2..4].copy_from_slice(&length.to_be_bytes());
                let shard = self.shard(input);
                self.node.ingress(shard, &packet, self.now);
                self.node.settle(self.now);
            }
            6 => self.pass(u64::from(input.u16()) * 10_000),
            _ => match operation / 8 % 8 {
                0 => self.apply(input),
                1 => self.pass(u64::from(input.byte()) * 100_000_000),
                2 => forge::hops(input).into_iter().for_each(|packet| self.receive_next(packet)),
                3 => {
                    let packet = forge::nacks(&self.newest, input);
                    self.receive_next(packet);
                }
                4 => self.strike(input),
                5 => self.node.answer(self.now),
                6 => {
                    let packet = forge::link(&self.newest, input);
                    self.receive_next(packet);
                }
                _ => self.node.rehash(input.byte()),
            },
        }
    }

    fn pass(&mut self, nanos: Nanos) {
        self.now += nanos;
        self.node.settle(self.now);
    }

    /// Packets of other units than the newest one.
    fn strike(&mut self, input: &mut Input<'_>) {
        let mut strike = forge::Strike::read(input);
        for distance in strike.distances() {
            let Some(mut packet) = strike.forge(&self.newest, distance, true) else { return };
            if !strike.is_unstamped() {
                self.stamps.stamp(&mut packet);
            }
            self.receive(&packet);
        }
    }

    /// A valid packet of the flow, except for the defects that the script adds.
    fn coded(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let (wrong, place) = (input.byte(), input.byte());
        let packet_type = match (wrong & 0xF0, &self.params.code) {
            (0xF0, _) => TYPES[input.below(TYPES.len())],
            (_, code) => code.packet_type(),
        };
        let is_systematic = place & 1 == 0;
        let ends = place & 2 != 0;
        let size = if wrong & 1 == 0 { self.params.generation_size } else { 1 + input.below(256) };
        let field = if wrong & 2 == 0 { self.params.field.code() } else { input.byte() & 3 };
        let bytes = if wrong & 4 == 0 { self.params.symbol_bytes } else { input.below(64) };
        let generation = if wrong & 8 == 0 { u32::from(place >> 2) } else { input.u32() };
        let common = Header {
            packet_type,
            flags: Flags(field),
            epoch: if wrong & 16 == 0 { 0 } else { input.byte() },
            shard: self.shard(input),
            flow: FLOW,
            link_sequence: 0,
            hop_index: 0,
        };
        let common =
            Header { flags: common.flags.with(Flags::SYSTEMATIC, is_systematic), ..common };
        let mut packet = match packet_type {
            PacketType::Stream => self.stream(common, place, bytes, wrong, input),
            _ => {
                let header = CodedHeader {
                    common,
                    size: size as u16,
                    full_log2: if wrong & 1 == 0 { log2_ceil(size) } else { input.byte() % 16 },
                    planned: if wrong & 32 == 0 { size as u16 } else { input.u16() & PLANNED_MAX },
                    generation,
                };
                let header = header.with(Flags::END, ends);
                self.batch(header, bytes, wrong, place, input)
            }
        };
        if packet_type == PacketType::Feedback {
            packet[0] = VERSION << 4 | PacketType::Feedback as u8;
        }
        if wrong & 64 == 0 {
            self.stamps.stamp(&mut packet);
        }
        self.newest.clone_from(&packet);
        packet
    }

    /// A symbol of a stream, its packet from the script, or a keepalive.
    fn stream(
        &mut self,
        common: Header,
        place: u8,
        bytes: usize,
        wrong: u8,
        input: &mut Input<'_>,
    ) -> Vec<u8> {
        let (is_symbol, is_repair) = (place & 1 == 0, place & 2 != 0);
        let flags = match is_symbol {
            true => Flags(Flags::SYSTEMATIC).with(Flags::REPAIR, is_repair),
            false => Flags(Flags::END),
        };
        let is_open_loop = wrong & 128 != 0;
        let flags = flags.with(Flags::OPEN_LOOP, is_open_loop);
        let window_log2 = if wrong & 1 == 0 { 6 } else { 6 + input.byte() % 10 };
        let round_trips = if wrong & 2 == 0 { 0 } else { input.u16() };
        let number = if wrong & 8 == 0 { u32::from(place >> 2) } else { input.u32() };
        let after = u16::from(if wrong & 32 == 0 { place >> 2 & 1 } else { input.byte() % 64 });
        let header = StreamHeader { common: Header { flags, ..common }, window_log2, round_trips };
        let bytes = bytes.max(1);
        if place & 5 == 5 {
            let flags = Flags(0).with(Flags::OPEN_LOOP, is_open_loop);
            let common = Header { flags, ..common };
            let header = StreamHeader { common, window_log2, round_trips };
            let (count, key) = (1 + u16::from(place >> 3), u16::from(place));
            let combination = Combination { first: number, count, key };
            return forge::combination(&header, &combination, &input.filled(bytes));
        }
        let low = number as u16;
        let symbol = StreamSymbol { number, after, place: low, bytes: bytes as u16 };
        let mut packet = forge::stream(&header, is_symbol.then_some(symbol));
        if is_symbol {
            let at = packet.len() - bytes;
            packet[at..].copy_from_slice(&input.filled(bytes));
        }
        packet
    }

    /// A packet of a generation or of a batch.
    fn batch(
        &mut self,
        header: CodedHeader,
        bytes: usize,
        wrong: u8,
        place: u8,
        input: &mut Input<'_>,
    ) -> Vec<u8> {
        let (size, flags) = (usize::from(header.size), header.common.flags);
        let is_bats = header.common.packet_type == PacketType::Bats;
        let is_systematic = flags.has(Flags::SYSTEMATIC);
        let vector = if is_systematic { 4 } else { vector_bytes(size, flags.field_code()) };
        let at = coding_offset(is_bats);
        let mut packet = vec![0; at + vector + bytes];
        header.write(&mut packet);
        if let (true, FlowCode::Bats(bats)) = (is_bats, &self.params.code) {
            let (number, batch) = (u16::from(place >> 5), u16::from(place >> 2 & 7));
            let right = Block {
                number,
                batch,
                source_symbols: bats.source_symbols as u16,
                full_log2: log2_ceil(bats.source_symbols),
                profile: bats.profile.code(),
                generator_bits: bats.generator_bits,
                interleave: 1,
            };
            let block = if wrong & 128 == 0 { right } else { block(input, right) };
            block.write(&mut packet);
        }
        let noise = input.filled(packet.len() - at);
        packet[at..].copy_from_slice(&noise);
        if is_systematic {
            let index = noise.first().copied().unwrap_or(0);
            write_index(&mut packet, is_bats, index);
        }
        packet
    }

    /// A shard of the flow, rarely one that it does not have.
    fn shard(&self, input: &mut Input<'_>) -> u8 {
        match self.is_spread {
            true => match input.byte() {
                byte @ 0..0xF0 => byte % SHARDS,
                byte => byte % SHARDS_MAX as u8,
            },
            false => 0,
        }
    }

    /// Receives a packet from the neighbour that would send it.
    fn receive(&mut self, packet: &[u8]) {
        let header = Header::parse(packet);
        let peer = match header.map(|header| header.packet_type) {
            Ok(PacketType::Feedback | PacketType::Link) => DOWN,
            _ => UP,
        };
        self.node.receive(Some(peer), packet, self.now);
        self.node.settle(self.now);
    }

    /// As [`Run::receive`], of the packet that its neighbour sends next.
    fn receive_next(&mut self, mut packet: Vec<u8>) {
        self.stamps.stamp(&mut packet);
        self.receive(&packet);
    }

    fn apply(&mut self, input: &mut Input<'_>) {
        let _role = input.byte(); // a node keeps it
        let shards = self.params.shards;
        self.params = FlowParams { shards, ..params(self.params.role.clone(), input) };
        self.node.apply(&self.params, self.now);
        self.node.settle(self.now);
    }
}

/// A block word with one thing other than `right`.
fn block(input: &mut Input<'_>, right: Block) -> Block {
    match input.below(6) {
        0 => Block { number: input.u16(), ..right },
        1 => Block { batch: input.u16(), ..right },
        2 => Block { source_symbols: 1 + input.u16() % BLOCK_SYMBOLS_MAX, ..right },
        3 => Block { profile: input.byte() % 16, ..right },
        4 => Block { generator_bits: input.byte() % 16, ..right },
        _ => Block { interleave: input.byte(), ..right },
    }
}
