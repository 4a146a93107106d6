//! The dataplane's sink: the real pipeline, from UDP payloads in frames to IP packets.

use std::cell::Cell;
use std::rc::Rc;

use recoded_gf::{FieldOrder, Kernel};
use recoded_pipeline::memory::HeapFrames;
use recoded_pipeline::params::{FlowParams, Nanos, PeerId, Role, ShardId, Snapshot, TunnelId};
use recoded_pipeline::recorder::{Recorder, Sent};
use recoded_pipeline::{Datagram, Pipeline};
use recoded_wire::coded::{CODED_BYTES, CodedHeader, PackedCoding, log2_ceil, parse_coded};
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::{Flags, Header, PacketType};

use crate::decode::wrong;
use crate::error::BenchError;
use crate::kernels::contest::{Contestant, Role as Part};
use crate::kernels::rows::Decoding;

/// A generation as a source forms it.
pub struct Generation {
    /// Its symbols.
    pub symbols: Vec<&'static [u8]>,
    /// The IP packets in them.
    packets: Vec<Vec<u8>>,
}

/// Output of the sink, counted during measurement.
#[derive(Clone, Default)]
pub struct Delivery {
    generations: Rc<Cell<u64>>,
    packets: Rc<Cell<u64>>,
    packets_per_generation: u64,
}

impl Delivery {
    /// Empty counters for a sink that delivers `packets_per_generation` packets per generation.
    pub fn of(packets_per_generation: u64) -> Delivery {
        Delivery { packets_per_generation, ..Delivery::default() }
    }

    /// Counts a generation; `packets` is the total number of packets delivered.
    pub fn count(&self, packets: u64) {
        self.generations.set(self.generations.get() + 1);
        self.packets.set(packets);
    }

    /// Whether every packet of every generation was delivered.
    pub fn is_complete(&self) -> bool {
        self.generations.get() * self.packets_per_generation == self.packets.get()
    }
}

/// Has the real source form one generation of `n` symbols.
///
/// # Errors
/// [`BenchError::Wrong`] if it fails.
pub fn generation(n: usize, bytes: usize) -> Result<Generation, BenchError> {
    let tunnel = TunnelId(0);
    let mut pipeline = pipeline(n, bytes, Role::Source { tunnel });
    let mut frames = HeapFrames::new(FRAMES, FRAME_BYTES);
    let (mut outputs, mut symbols, mut packets) = (<Recorder>::default(), Vec::new(), Vec::new());
    while symbols.len() < n && packets.len() < n * bytes {
        let packet = ip_packet(packets.len());
        pipeline.ingress(&mut frames, &mut outputs, SHARD, &packet, 0);
        packets.push(packet);
        for Sent { span, .. } in outputs.sent.drain(..) {
            // Until the generation is complete, no packet is of another.
            if let Ok(coded) = parse_coded(frames.bytes(span))
                && matches!(coded.coding, PackedCoding::Systematic(_))
                && symbols.len() < n
            {
                let symbol = &frames.bytes(span)[coded.symbol_offset..];
                symbols.push(&*symbol.to_vec().leak());
            }
            frames.release(span.frame);
        }
    }
    if symbols.len() < n {
        return Err(wrong("source", n, bytes));
    }
    Ok(Generation { symbols, packets })
}

/// The sink and its input, which can be received repeatedly.
struct Sink {
    pipeline: Pipeline,
    frames: HeapFrames,
    outputs: Recorder,
    /// The coded packets of a generation, in frames that are kept.
    arriving: Vec<Span>,
    generation: u32,
    /// Next link sequence number.
    link_sequence: u32,
    now: Nanos,
}

impl Sink {
    fn new(job: &Decoding) -> Option<Sink> {
        let n = job.n();
        let role = Role::Sink { tunnel: TunnelId(0), upstream: UPSTREAM };
        let mut frames = HeapFrames::new(FRAMES, FRAME_BYTES);
        let arriving = job.matrix.chunks(n).zip(&job.received).map(|(vector, symbol)| {
            let mut payload = vec![0; CODED_BYTES];
            header(n).write(&mut payload);
            payload.extend_from_slice(vector);
            payload.resize(payload.len().next_multiple_of(4), 0);
            payload.extend_from_slice(symbol);
            frames.receive(&payload)
        });
        let arriving = arriving.collect::<Option<Vec<Span>>>()?;
        Some(Sink {
            pipeline: pipeline(n, job.bytes(), role),
            frames,
            outputs: Recorder::counting(FRAMES, None),
            arriving,
            generation: 0,
            link_sequence: 0,
            now: 0,
        })
    }

    /// Receives one generation. Its packets already lie in their frames, as after reception by
    /// AF_XDP; only generation and link sequence number (`docs/protocol/packets.md`)
    /// are written into their headers.
    fn receive(&mut self) {
        let Sink { pipeline, frames, outputs, arriving, .. } = self;
        for &span in arriving.iter() {
            let bytes = frames.bytes_mut(span);
            bytes[8..12].copy_from_slice(&self.link_sequence.to_be_bytes());
            bytes[16..20].copy_from_slice(&self.generation.to_be_bytes());
            self.link_sequence = self.link_sequence.wrapping_add(1);
        }
        for &span in arriving.iter() {
            // The pipeline consumes one reference; the other keeps the packet.
            frames.retain(span.frame);
            let datagram = Datagram::best_effort(Some(UPSTREAM), span);
            pipeline.receive(frames, outputs, datagram, self.now);
        }
        // A generation's packets are delivered in portions, as time passes.
        let mut before = u64::MAX;
        while before != outputs.delivered_count {
            before = outputs.delivered_count;
            self.now += TICK_NANOS;
            pipeline.tick(frames, outputs, self.now);
        }
        outputs.release(frames);
        self.generation = self.generation.wrapping_add(1);
    }
}

/// The sink as a contestant for `job`.
///
/// # Errors
/// [`BenchError::Wrong`] if delivered packets differ from the sent ones.
pub fn contestant(
    job: &Decoding,
    source: &Generation,
) -> Result<(Contestant, Delivery), BenchError> {
    let error = || wrong("dataplane", job.n(), job.bytes());
    let mut sink = Sink::new(job).ok_or_else(error)?;
    sink.outputs.copies = true;
    sink.receive();
    sink.outputs.copies = false;
    let packets = std::mem::take(&mut sink.outputs.delivered);
    // A packet that does not fit into the generation continues in the next one.
    if packets.is_empty() || !source.packets.starts_with(&packets) {
        return Err(error());
    }
    let delivery = Delivery::of(packets.len() as u64);
    let counted = delivery.clone();
    sink.outputs.delivered_count = 0;
    let job_done = move || {
        sink.receive();
        counted.count(sink.outputs.delivered_count);
    };
    let name = Kernel::best().name();
    Ok((Contestant::new(Part::Ours, name, job.gigabits(), job_done), delivery))
}

/// A coded packet of the flow.
fn header(n: usize) -> CodedHeader {
    let common = Header {
        packet_type: PacketType::Generation,
        flags: Flags(FIELD.code()),
        epoch: 0,
        shard: SHARD.shard,
        flow: SHARD.flow,
        link_sequence: 0,
        hop_index: 0,
    };
    let (size, full_log2) = (n as u16, log2_ceil(n));
    CodedHeader { common, size, full_log2, planned: size, generation: 0 }
}

fn pipeline(n: usize, bytes: usize, role: Role) -> Pipeline {
    Pipeline::new(&Snapshot { edition: 1, flows: vec![flow(n, bytes, role)] }, 1)
}

/// The daemon's defaults, except for the sizes.
fn flow(generation_size: usize, symbol_bytes: usize, role: Role) -> FlowParams {
    let flow = FlowParams::new(SHARD.flow, role, vec![PeerId(0)]);
    FlowParams { field: FIELD, generation_size, symbol_bytes, ..flow }
}

/// An IPv4 packet that a tunnel accepts.
pub fn ip_packet(number: usize) -> Vec<u8> {
    let bytes = (0..PACKET_BYTES).map(|at| (((number * PACKET_BYTES + at) * 31) >> 3) as u8);
    let mut packet: Vec<u8> = bytes.collect();
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(PACKET_BYTES as u16).to_be_bytes());
    packet
}

/// Flow and shard of everything here.
pub const SHARD: ShardId = ShardId { flow: 7, shard: 0 };
/// The neighbour that sends to the sink.
pub const UPSTREAM: PeerId = PeerId(0);
const FIELD: FieldOrder = FieldOrder::TwoFiftySix;
/// Packet size that fits a tunnel on Ethernet.
pub const PACKET_BYTES: usize = 1400;
/// The generation, its coded symbols, and reports.
pub const FRAMES: usize = 4096;
/// Bytes of each.
pub const FRAME_BYTES: usize = 2048;
/// Interval of timer checks.
const TICK_NANOS: Nanos = 1_000_000;
