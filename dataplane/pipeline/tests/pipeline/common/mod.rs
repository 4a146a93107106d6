//! A line of pipelines joined by lossy links, in memory.

pub use crate::timed::keys;

use keys::Keys;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_pipeline::memory::HeapFrames;
#[cfg(feature = "bats")]
use recoded_pipeline::params::{BatsParams, Interleave, Profile};
use recoded_pipeline::params::{
    FlowCode, FlowParams, Nanos, PeerId, Role, ShardId, Snapshot, StreamParams, TunnelId,
};
pub use recoded_pipeline::recorder::{Recorder, Sent};
use recoded_pipeline::report::{FlowReport, PacketCounters};
use recoded_pipeline::{Datagram, Pipeline};
use recoded_wire::coded::CodedHeader;
use recoded_wire::header::{Flags, Header, PacketType, write_link_sequence};

pub const FLOW: u32 = 7;
pub const SHARD: ShardId = ShardId { flow: FLOW, shard: 0 };
pub const DOWN: PeerId = PeerId(0);
pub const UP: PeerId = PeerId(1);
const FRAMES: usize = 4096;
const TICKS_MAX: usize = 1000;

/// Outputs of a pipeline.
pub type Outputs = Recorder<Keys>;

/// One node.
pub struct Node {
    pub pipeline: Pipeline,
    pub frames: HeapFrames,
    pub delivered: Vec<Vec<u8>>,
    /// Those of the ends of a sealed or tagged flow.
    pub keys: Option<Keys>,
    /// Number of frames.
    frames_total: usize,
    /// Link sequence number of the next packet that [`Node::receive_next`] takes.
    link_sequence: u32,
}

impl Node {
    /// Replaces the frames of a node that holds none.
    pub fn set_frames(&mut self, count: usize) {
        self.frames = HeapFrames::new(count, 2048);
        self.frames_total = count;
    }

    pub fn new(params: FlowParams, seed: u64) -> Node {
        let is_end = !matches!(params.role, Role::Relay { .. });
        let keys = ((params.sealed || params.tagged) && is_end).then(|| Keys::new(1).of(&params));
        let snapshot = Snapshot { edition: 1, flows: vec![params] };
        Node {
            keys,
            pipeline: Pipeline::new(&snapshot, seed),
            frames: HeapFrames::new(FRAMES, 2048),
            delivered: Vec::new(),
            frames_total: FRAMES,
            link_sequence: 1,
        }
    }

    /// Runs `work`, then returns the packets that the node sent as (hop, UDP payload).
    pub fn run(
        &mut self,
        work: impl FnOnce(&mut Pipeline, &mut HeapFrames, &mut Outputs),
    ) -> Vec<(PeerId, Vec<u8>)> {
        let mut outputs = Outputs { keys: self.keys.take(), ..Outputs::default() };
        work(&mut self.pipeline, &mut self.frames, &mut outputs);
        self.keys = outputs.keys.take();
        self.delivered.append(&mut outputs.delivered);
        outputs.take_sent(&mut self.frames)
    }

    pub fn receive(&mut self, payload: &[u8], now: Nanos) -> Vec<(PeerId, Vec<u8>)> {
        // A receive ring without frames drops.
        let Some(span) = self.frames.receive(payload) else { return Vec::new() };
        let peer = Some(sender(payload));
        self.run(|pipeline, frames, outputs| {
            pipeline.receive(frames, outputs, Datagram::best_effort(peer, span), now);
        })
    }

    /// Like [`Node::receive`], for the next data packet of its neighbour, with any number.
    pub fn receive_next(&mut self, payload: &[u8], now: Nanos) -> Vec<(PeerId, Vec<u8>)> {
        let mut payload = payload.to_vec();
        if Header::parse(&payload).is_ok() && sender(&payload) == UP {
            write_link_sequence(&mut payload, self.link_sequence);
            self.link_sequence += 1;
        }
        self.receive(&payload, now)
    }

    pub fn tick(&mut self, now: Nanos) -> Vec<(PeerId, Vec<u8>)> {
        self.run(|pipeline, frames, outputs| {
            // A deadline that has passed requires another call.
            for _ in 0..TICKS_MAX {
                if pipeline.tick(frames, outputs, now).is_none_or(|deadline| deadline > now) {
                    return;
                }
            }
        })
    }

    pub fn ingress(&mut self, packet: &[u8], now: Nanos) -> Vec<(PeerId, Vec<u8>)> {
        self.run(|pipeline, frames, outputs| {
            pipeline.ingress(frames, outputs, SHARD, packet, now);
        })
    }

    pub fn apply(&mut self, snapshot: &Snapshot, now: Nanos) -> Vec<(PeerId, Vec<u8>)> {
        self.run(|pipeline, frames, outputs| pipeline.apply(snapshot, frames, outputs, now))
    }

    pub fn flow(&self) -> FlowReport {
        self.pipeline.report().flows[0].clone()
    }

    pub fn packets(&self) -> PacketCounters {
        self.pipeline.report().packets
    }

    /// Frames still held after everything was released: must be none.
    pub fn leaked(&mut self) -> usize {
        self.pipeline.release(&mut self.frames);
        self.frames_total - self.frames.free()
    }
}

/// The neighbour that sends such packets.
pub fn sender(payload: &[u8]) -> PeerId {
    match Header::parse(payload).map(|header| header.packet_type) {
        Ok(PacketType::Feedback | PacketType::Link) => DOWN,
        _ => UP,
    }
}

/// The header of a packet that a source has just formed.
pub fn header(packet_type: PacketType, flags: u8, link_sequence: u32) -> Header {
    Header {
        packet_type,
        flags: Flags(flags),
        epoch: 0,
        shard: 0,
        flow: FLOW,
        link_sequence,
        hop_index: 0,
    }
}

/// The header of a packet of a generation or batch of `size`, with as many packets planned.
pub fn coded(common: Header, generation: u32, size: u16) -> CodedHeader {
    CodedHeader { common, size, full_log2: 4, planned: size, generation }
}

/// Source parameters the tests start from.
pub fn params(role: Role) -> FlowParams {
    FlowParams { symbol_bytes: 200, ..FlowParams::new(FLOW, role, vec![DOWN]) }
}

/// BATS over blocks of up to `source_symbols`.
#[cfg(feature = "bats")]
pub fn bats(source_symbols: usize) -> FlowCode {
    FlowCode::Bats(BatsParams {
        source_symbols,
        profile: Profile::CyclicShift,
        generator_bits: 8,
        interleave: Interleave::Auto,
    })
}

/// Makes a flow one of 256 generations.
pub fn rlnc(params: &mut FlowParams) {
    (params.code, params.generations) = (FlowCode::Rlnc, 256);
}

/// Makes a flow one of BATS, with blocks of up to 256 symbols.
#[cfg(feature = "bats")]
pub fn blocks(params: &mut FlowParams) {
    (params.code, params.generations) = (bats(256), 256);
}

/// Every code, with symbols that hold a packet.
pub fn codes() -> Vec<FlowCode> {
    vec![
        FlowCode::Rlnc,
        stream(),
        #[cfg(feature = "bats")]
        bats(40),
    ]
}

/// A stream of a window that packets of tests do not fill.
pub fn stream() -> FlowCode {
    FlowCode::Stream(StreamParams::new(1024))
}

/// Effect of a link, or of a lying relay, on a packet of a sender.
pub type Tamper = Box<dyn FnMut(usize, Vec<u8>) -> Vec<Vec<u8>>>;

/// Source, relays, sink, and the links between them.
pub struct Line {
    pub nodes: Vec<Node>,
    pub now: Nanos,
    pub loss: f64,
    /// Losses on the return path.
    pub loss_up: f64,
    /// Mean run of losses; up to 1, losses are independent.
    pub burst_mean: f64,
    /// Replacement for a packet that travels towards the sink, by its sender.
    pub tamper: Option<Tamper>,
    /// Links (by sender and direction) in the bad state.
    bad: std::collections::BTreeSet<(usize, bool)>,
    random: ChaCha8Rng,
}

impl Line {
    /// A line of `hops` lossy links; `change` edits every node's parameters.
    pub fn new(hops: usize, loss: f64, seed: u64, change: impl Fn(&mut FlowParams)) -> Line {
        println!("seed {seed}");
        let nodes = (0..=hops)
            .map(|index| {
                let role = match index {
                    0 => Role::Source { tunnel: TunnelId(0) },
                    _ if index == hops => Role::Sink { tunnel: TunnelId(0), upstream: UP },
                    _ => Role::Relay { upstream: UP },
                };
                let mut params = params(role);
                change(&mut params);
                Node::new(params, seed + index as u64)
            })
            .collect();
        Line {
            nodes,
            now: 0,
            loss,
            loss_up: loss,
            burst_mean: 1.0,
            tamper: None,
            bad: Default::default(),
            random: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    fn chance(&mut self, probability: f64) -> bool {
        f64::from(self.random.next_u32()) < probability * 4_294_967_296.0
    }

    fn is_lost(&mut self, link: (usize, bool), loss: f64) -> bool {
        if self.burst_mean <= 1.0 {
            return self.chance(loss);
        }
        let is_bad = self.bad.contains(&link);
        let end = 1.0 / self.burst_mean;
        if is_bad && self.chance(end) {
            self.bad.remove(&link);
        } else if !is_bad && self.chance(loss * end / (1.0 - loss)) {
            self.bad.insert(link);
        }
        is_bad
    }

    /// Carries packets sent by node `from` until none is in flight, in order.
    pub fn carry(&mut self, from: usize, packets: Vec<(PeerId, Vec<u8>)>) {
        let mut queue: std::collections::VecDeque<(usize, PeerId, Vec<u8>)> =
            packets.into_iter().map(|(hop, bytes)| (from, hop, bytes)).collect();
        while let Some((from, hop, bytes)) = queue.pop_front() {
            let (to, loss) =
                if hop == DOWN { (from + 1, self.loss) } else { (from - 1, self.loss_up) };
            if self.is_lost((from, hop == DOWN), loss) {
                continue;
            }
            let arriving = match &mut self.tamper {
                Some(tamper) if hop == DOWN => tamper(from, bytes),
                _ => vec![bytes],
            };
            for bytes in arriving {
                let next = self.nodes[to].receive(&bytes, self.now);
                queue.extend(next.into_iter().map(|(hop, bytes)| (to, hop, bytes)));
            }
            let next = self.nodes[to].tick(self.now);
            queue.extend(next.into_iter().map(|(hop, bytes)| (to, hop, bytes)));
        }
    }

    /// Passes an IP packet into the source.
    pub fn send(&mut self, packet: &[u8]) {
        let out = self.nodes[0].ingress(packet, self.now);
        self.carry(0, out);
    }

    /// Lets time pass in steps of a millisecond.
    pub fn pass(&mut self, millis: u64) {
        for _ in 0..millis {
            self.now += 1_000_000;
            for index in 0..self.nodes.len() {
                let out = self.nodes[index].tick(self.now);
                self.carry(index, out);
            }
        }
    }

    /// Packets that the sink delivered.
    pub fn delivered(&self) -> &[Vec<u8>] {
        &self.nodes[self.nodes.len() - 1].delivered
    }

    /// Checks invariants at the end of any run.
    pub fn check(&mut self) {
        for node in &mut self.nodes {
            let packets = node.packets();
            let ends = packets.forwarded + packets.consumed + packets.dropped.iter().sum::<u64>();
            assert_eq!(packets.received, ends, "a packet has no fate, or two: {packets:?}");
            assert_eq!(node.leaked(), 0, "frames leaked");
        }
    }
}

/// An IPv4 packet of `bytes` that carries `number`.
pub fn ip_packet(bytes: usize, number: u32) -> Vec<u8> {
    let mut packet = vec![number as u8; bytes.max(24)];
    packet[0] = 0x45;
    let length = packet.len() as u16;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[20..24].copy_from_slice(&number.to_be_bytes());
    packet
}

/// Sends packets of mixed sizes and checks that all arrive in order, except up to `missing_max`,
/// within `settle_millis` after the last.
pub fn transfer(line: &mut Line, count: u32, missing_max: usize, settle_millis: u64) {
    let size = |number: u32| 24 + (number as usize * 37) % 500;
    for number in 0..count {
        line.send(&ip_packet(size(number), number));
        if number % 8 == 0 {
            line.pass(1);
        }
    }
    line.pass(settle_millis);
    let numbers: Vec<u32> = line
        .delivered()
        .iter()
        .map(|packet| {
            let number = u32::from_be_bytes(packet[20..24].try_into().unwrap());
            assert_eq!(*packet, ip_packet(size(number), number), "packet {number} was altered");
            number
        })
        .collect();
    assert!(numbers.is_sorted(), "packets out of order");
    let missing = count as usize - numbers.len();
    assert!(missing <= missing_max, "{missing} of {count} packets missing");
}
