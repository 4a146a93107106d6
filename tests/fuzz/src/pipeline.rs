//! A node of any role and code, and what may come to it: packets that are nearly right, bytes that are
//! not, feedback, IP packets, time, other parameters.

use recoded_gf::FieldOrder;
use recoded_pipeline::Pipeline;
use recoded_pipeline::egress::Egress;
use recoded_pipeline::memory::HeapFrames;
use recoded_pipeline::params::{
    BatsParams, FlowCode, FlowParams, HopId, Interleave, Nanos, Profile, Recoding, Redundancy,
    Role, Snapshot, TunnelId, WindowParams,
};
use recoded_wire::feedback::{FlowReport, HopReport, Item, RepairRequest, Writer};
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::{Block, Flags, Header, PacketType, vector_bytes, write_index};

use crate::Input;

const FLOW: u32 = 7;
const FRAMES: usize = 160;
const FRAME_BYTES: usize = 1536;
const SYMBOL_BYTES: usize = 40;

/// Most packets that one call may emit: the plans of a full table, or a report's repairs.
const BURST_MAX: usize = 4096;

/// Calls for the same moment until a node must be content.
const TICKS_MAX: usize = 300;

/// Takes what a node emits, to be let go after the call.
#[derive(Default)]
struct Sent(Vec<Span>);

impl Egress for Sent {
    fn transmit(&mut self, _hop: HopId, span: Span, _source_port: u16) {
        self.0.push(span);
    }

    fn deliver(&mut self, _tunnel: TunnelId, packet: &[u8]) {
        assert!(!packet.is_empty());
    }
}

struct Run {
    params: FlowParams,
    pipeline: Pipeline,
    frames: HeapFrames,
    sent: Sent,
    edition: u64,
    now: Nanos,
    received: u64,
    sequence: u32,
}

/// Parameters, then what happens.
pub fn target(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut run = Run::new(&mut input);
    while !input.is_empty() {
        run.step(&mut input);
    }
    run.finish();
}

fn code(input: &mut Input<'_>) -> FlowCode {
    match input.below(3) {
        0 => FlowCode::Rlnc,
        1 => FlowCode::Bats(BatsParams {
            source_symbols: match 1 + input.below(48) {
                48 => 200, // more than the largest batch
                symbols => symbols,
            },
            profile: Profile::ALL[input.below(Profile::ALL.len())],
            generator_bits: [1, 2, 3, 4, 8][input.below(5)],
            interleave: match input.below(8) {
                0 => Interleave::Auto,
                depth => Interleave::Fixed(depth as u8),
            },
        }),
        _ => FlowCode::Window(WindowParams {
            window_symbols: 1 + input.below(20),
            density: input.byte() % 16,
        }),
    }
}

fn params(input: &mut Input<'_>) -> FlowParams {
    let role = match input.below(3) {
        0 => Role::Source { tunnel: TunnelId(0) },
        1 => Role::Relay { upstream: HopId(1) },
        _ => Role::Sink { tunnel: TunnelId(0), upstream: HopId(1) },
    };
    let code = code(input);
    let sizes = if matches!(code, FlowCode::Bats(_)) { [1, 4, 16, 128] } else { [1, 3, 20, 256] };
    let switches = input.byte();
    FlowParams {
        code,
        field: FieldOrder::ALL[input.below(FieldOrder::ALL.len())],
        generation_size: sizes[input.below(4)],
        symbol_bytes: 4 + input.below(SYMBOL_BYTES),
        redundancy: if switches & 1 == 0 { Redundancy::Auto } else { Redundancy::Fixed(1.5) },
        redundancy_max: 1.0 + f64::from(switches >> 6),
        recoding: if switches & 2 == 0 { Recoding::Systematic } else { Recoding::Random },
        adaptive: switches & 4 != 0,
        repair: switches & 8 != 0,
        batches: 1 + input.below(6),
        ..FlowParams::new(FLOW, role, vec![HopId(0)])
    }
}

impl Run {
    fn new(input: &mut Input<'_>) -> Self {
        let params = params(input);
        let snapshot = Snapshot { edition: 1, flows: vec![params.clone()] };
        Self {
            params,
            pipeline: Pipeline::new(&snapshot, 1),
            frames: HeapFrames::new(FRAMES, FRAME_BYTES),
            sent: Sent::default(),
            edition: 1,
            now: 0,
            received: 0,
            sequence: 0,
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(8) {
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
                let packet = self.feedback(input);
                self.receive(&packet);
            }
            5 => {
                let mut packet = vec![0x45; 4 + input.below(256)];
                let length = packet.len() as u16;
                packet[2..4].copy_from_slice(&length.to_be_bytes());
                let (frames, sent) = (&mut self.frames, &mut self.sent);
                self.pipeline.ingress(frames, sent, FLOW, &packet, self.now);
                self.settle();
            }
            6 => {
                self.now += u64::from(input.u16()) * 10_000;
                self.settle();
            }
            _ => self.apply(input),
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
        self.sequence = self.sequence.wrapping_add(1);
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
            link_sequence: if wrong & 64 == 0 { self.sequence } else { input.u32() },
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
        packet
    }

    fn feedback(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let header = Header {
            packet_type: PacketType::Feedback,
            flags: Flags::default().with(Flags::END, input.byte() & 1 != 0),
            epoch: input.byte(),
            size: 1,
            flow: FLOW,
            generation: u32::from(input.byte()),
            hop_index: input.byte(),
            key_id: 0,
            planned: 0,
            link_sequence: u32::from(input.byte()),
        };
        let mut packet = vec![0; 600];
        header.write(&mut packet);
        let mut writer = Writer::new(&mut packet);
        for _ in 0..input.below(6) {
            let item = match input.below(5) {
                0 => Item::Hop(HopReport {
                    hop: input.byte(),
                    loss: f32::from_bits(input.u32()),
                    burst_mean: f32::from_bits(input.u32()),
                }),
                1 => Item::Repair(RepairRequest {
                    generation: u32::from(input.u16()),
                    missing: input.u16(),
                    round: input.byte() % 6,
                }),
                2 => Item::Flow(FlowReport {
                    newest: input.u32(),
                    complete: input.u32(),
                    failed: input.u32(),
                }),
                3 => Item::Enough(input.u16()),
                _ => {
                    let ranks = 1 + input.below(17);
                    let counts: Vec<u32> = (0..ranks).map(|_| input.u32()).collect();
                    writer.push_ranks(input.byte(), counts.into_iter());
                    continue;
                }
            };
            writer.push(item);
        }
        let length = writer.finish();
        packet.truncate(length);
        packet
    }

    fn receive(&mut self, packet: &[u8]) {
        let Some(span) = self.frames.receive(packet) else { return };
        self.received += 1;
        self.pipeline.receive(&mut self.frames, &mut self.sent, span, self.now);
        self.settle();
    }

    fn apply(&mut self, input: &mut Input<'_>) {
        let role = self.params.role.clone();
        self.params = FlowParams { role, ..params(input) };
        self.edition += 1;
        let snapshot = Snapshot { edition: self.edition, flows: vec![self.params.clone()] };
        self.pipeline.apply(&snapshot, &mut self.frames, &mut self.sent, self.now);
        self.settle();
    }

    /// Lets timers act until none is due; a node must not ask for ever.
    fn settle(&mut self) {
        for _ in 0..TICKS_MAX {
            self.complete();
            let due = self.pipeline.tick(&mut self.frames, &mut self.sent, self.now);
            if due.is_none_or(|due| due > self.now) {
                self.complete();
                return;
            }
        }
        panic!("the node asks to be called again at once, for ever");
    }

    /// What was sent leaves.
    fn complete(&mut self) {
        assert!(self.sent.0.len() <= BURST_MAX, "{} packets at once", self.sent.0.len());
        for span in self.sent.0.drain(..) {
            self.frames.release(span.frame);
        }
    }

    fn finish(&mut self) {
        self.pipeline.drain(&mut self.frames, &mut self.sent, self.now);
        self.complete();
        let packets = self.pipeline.report().packets;
        let fates = packets.forwarded + packets.consumed + packets.dropped.iter().sum::<u64>();
        assert_eq!((packets.received, fates), (self.received, self.received));
        self.pipeline.release(&mut self.frames);
        assert_eq!(self.frames.free(), FRAMES, "frames leaked");
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
