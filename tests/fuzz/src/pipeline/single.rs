//! One node of any role and code, and what may come to it: packets that are nearly right, bytes
//! that are not, feedback, IP packets, time, silences, other parameters, plans for parameters that
//! have changed.

use recoded_pipeline::params::{FlowCode, FlowParams, Nanos};
use recoded_wire::header::{Block, Flags, Header, PacketType, vector_bytes, write_index};

use super::node::{Node, Stamps};
use super::{FLOW, forge, params, role};
use crate::Input;

const FRAMES: usize = 160;

struct Run {
    params: FlowParams,
    node: Node,
    now: Nanos,
    stamps: Stamps,
    /// The newest data packet.
    newest: Vec<u8>,
}

/// Parameters, then what happens.
pub(super) fn run(first: u8, input: &mut Input<'_>) {
    let params = params(role(first), input);
    let mut run = Run {
        node: Node::new(&params, FRAMES, first & 0x40 != 0),
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
                self.receive(&packet);
            }
            4 => {
                let packet = forge::feedback(input);
                self.receive(&packet);
            }
            5 => {
                let mut packet = vec![0x45; 4 + input.below(256)];
                let length = packet.len() as u16;
                packet[2..4].copy_from_slice(&length.to_be_bytes());
                self.node.ingress(&packet, self.now);
                self.node.settle(self.now);
            }
            6 => self.pass(u64::from(input.u16()) * 10_000),
            _ => match operation / 8 % 6 {
                0 => self.apply(input),
                1 => self.pass(u64::from(input.byte()) * 100_000_000),
                2 => forge::hops(input).iter().for_each(|packet| self.receive(packet)),
                3 => {
                    let packet = forge::requests(&self.newest, input);
                    self.receive(&packet);
                }
                4 => self.strike(input),
                _ => self.node.answer(),
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

    /// A packet of the flow that is right but for what the script makes wrong.
    fn coded(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let (wrong, place) = (input.byte(), input.byte());
        let packet_type = match (wrong & 0xF0, &self.params.code) {
            (0xF0, _) => PacketType::ALL[input.below(PacketType::ALL.len())],
            (_, FlowCode::Rlnc) => PacketType::Generation,
            (_, FlowCode::Bats(_)) => PacketType::Bats,
            (_, FlowCode::Window(_)) => PacketType::Window,
        };
        let is_systematic = place & 1 == 0;
        let ends = place & 2 != 0;
        let size = if wrong & 1 == 0 { self.params.generation_size } else { 1 + input.below(256) };
        let field = if wrong & 2 == 0 { self.params.field.code() } else { input.byte() & 3 };
        let bytes = if wrong & 4 == 0 { self.params.symbol_bytes } else { input.below(64) };
        let generation = if wrong & 8 == 0 { u32::from(place >> 2) } else { input.u32() };
        let header = Header {
            packet_type,
            flags: Flags(field).with(Flags::SYSTEMATIC, is_systematic).with(Flags::END, ends),
            epoch: if wrong & 16 == 0 { 0 } else { input.byte() },
            size: size as u16,
            flow: FLOW,
            generation,
            hop_index: 0,
            key_id: 0,
            planned: if wrong & 32 == 0 { size as u16 } else { input.u16() },
            link_sequence: if wrong & 64 == 0 { 0 } else { input.u32() },
        };
        let vector = if is_systematic { 4 } else { vector_bytes(size, field) };
        let mut packet = vec![0; packet_type.coding_offset() + vector + bytes];
        header.write(&mut packet);
        if let (PacketType::Bats, FlowCode::Bats(bats)) = (packet_type, &self.params.code) {
            let (number, batch) = (u16::from(place >> 5), u16::from(place >> 2 & 7));
            let right = Block {
                number,
                batch,
                source_symbols: bats.source_symbols as u32,
                profile: bats.profile.code(),
                generator_bits: bats.generator_bits,
                interleave: 1,
            };
            let block = if wrong & 128 == 0 { right } else { block(input, right) };
            block.write(&mut packet);
        }
        let at = packet_type.coding_offset();
        let noise = input.filled(packet.len() - at);
        packet[at..].copy_from_slice(&noise);
        if is_systematic {
            write_index(&mut packet, packet_type, noise[0]);
        }
        if wrong & 64 == 0 {
            self.stamps.stamp(&mut packet);
        }
        self.newest.clone_from(&packet);
        packet
    }

    fn receive(&mut self, packet: &[u8]) {
        self.node.receive(packet, self.now);
        self.node.settle(self.now);
    }

    fn apply(&mut self, input: &mut Input<'_>) {
        let _role = input.byte(); // a node keeps it
        self.params = params(self.params.role.clone(), input);
        self.node.apply(&self.params, self.now);
        self.node.settle(self.now);
    }
}

/// A block word with one thing other than `right`.
fn block(input: &mut Input<'_>, right: Block) -> Block {
    match input.below(6) {
        0 => Block { number: input.u16(), ..right },
        1 => Block { batch: input.u16(), ..right },
        2 => Block { source_symbols: 1 + u32::from(input.u16()), ..right },
        3 => Block { profile: input.byte() % 16, ..right },
        4 => Block { generator_bits: input.byte() % 16, ..right },
        _ => Block { interleave: input.byte(), ..right },
    }
}
