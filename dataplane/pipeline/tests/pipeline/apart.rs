//! Flows that share the frames of a worker: nothing that one carries gets into the packets that
//! another sends or delivers, whatever frames they reuse from each other, not even as a
//! combination.
//!
//! Two runs differ only in the payload of one flow. All other bytes that any node sends in one run
//! must be the same in the other.

use crate::common;
use crate::common::{DOWN, Node, UP, codes};
use recoded_pipeline::params::{
    FlowCode, FlowParams, Nanos, PeerId, Role, ShardId, Snapshot, TunnelId,
};
use recoded_wire::header::Header;
use std::collections::VecDeque;

/// The flow whose payload differs, and the one that must not reveal it.
const FLOWS: [u32; 2] = [7, 8];

/// Few enough that both flows reuse them many times.
const FRAMES: usize = 512;

const HOPS: usize = 2;
const PACKETS: u32 = 3000;
const STEP_NANOS: Nanos = 250_000;

/// One packet in this many is lost on every link.
const LOST: usize = 9;

fn params(flow: u32, role: Role, code: FlowCode) -> FlowParams {
    FlowParams { id: flow, code, symbol_bytes: 620, ..common::params(role) }
}

/// An IP packet of a flow, whose payload depends on a secret.
fn packet(flow: u32, number: u32, secret: u8) -> Vec<u8> {
    let bytes = 60 + (number as usize * 37 + flow as usize) % 500;
    let mut packet = vec![0; bytes];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(bytes as u16).to_be_bytes());
    packet[12] = flow as u8;
    packet[20..24].copy_from_slice(&number.to_be_bytes());
    let noise = |at: usize| (at as u32).wrapping_mul(number | 1).wrapping_mul(0x9E37_79B1) >> 24;
    (24..bytes).for_each(|at| packet[at] = noise(at) as u8 ^ secret);
    packet
}

/// Everything that a node sent or delivered, by flow.
struct Seen([Vec<Vec<u8>>; 2]);

struct Line {
    nodes: Vec<Node>,
    now: Nanos,
    carried: usize,
    seen: Seen,
}

impl Line {
    fn new(codes: [FlowCode; 2]) -> Line {
        let node = |index: usize| {
            let tunnel = |flow| TunnelId((flow != FLOWS[0]).into());
            let role = |flow| match index {
                0 => Role::Source { tunnel: tunnel(flow) },
                HOPS => Role::Sink { tunnel: tunnel(flow), upstream: UP },
                _ => Role::Relay { upstream: UP },
            };
            let flows = [0, 1].map(|at| params(FLOWS[at], role(FLOWS[at]), codes[at]));
            let mut node = Node::new(flows[0].clone(), index as u64);
            node.set_frames(FRAMES);
            node.apply(&Snapshot { edition: 2, flows: flows.into() }, 0);
            node
        };
        let nodes = (0..=HOPS).map(node).collect();
        Line { nodes, now: 0, carried: 0, seen: Seen([vec![], vec![]]) }
    }

    fn note(&mut self, flow: u32, bytes: &[u8]) {
        let at = FLOWS.iter().position(|known| *known == flow).expect("a flow of this line");
        self.seen.0[at].push(bytes.to_vec());
    }

    fn carry(&mut self, from: usize, packets: Vec<(PeerId, Vec<u8>)>) {
        let of = |from| move |(hop, bytes)| (from, hop, bytes);
        let mut queue: VecDeque<(usize, PeerId, Vec<u8>)> =
            packets.into_iter().map(of(from)).collect();
        while let Some((from, hop, bytes)) = queue.pop_front() {
            self.note(Header::parse(&bytes).expect("a header").flow, &bytes);
            self.carried += 1;
            if self.carried.is_multiple_of(LOST) {
                continue;
            }
            let to = if hop == DOWN { from + 1 } else { from - 1 };
            queue.extend(self.nodes[to].receive(&bytes, self.now).into_iter().map(of(to)));
        }
    }

    fn pass(&mut self) {
        self.now += STEP_NANOS;
        for index in 0..self.nodes.len() {
            let out = self.nodes[index].tick(self.now);
            self.carry(index, out);
        }
        for bytes in std::mem::take(&mut self.nodes[HOPS].delivered) {
            self.note(bytes[12].into(), &bytes);
        }
    }
}

fn run(codes: [FlowCode; 2], secret: u8) -> Seen {
    let mut line = Line::new(codes);
    for number in 0..PACKETS {
        for (flow, secret) in FLOWS.into_iter().zip([secret, 0]) {
            let (id, packet) = (ShardId { flow, shard: 0 }, packet(flow, number, secret));
            let now = line.now;
            let out = line.nodes[0].run(|pipeline, frames, outputs| {
                pipeline.ingress(frames, outputs, id, &packet, now);
            });
            line.carry(0, out);
        }
        line.pass();
    }
    (0..2000).for_each(|_| line.pass());
    line.seen
}

#[test]
fn nothing_of_one_flow_is_in_what_another_sends_or_delivers() {
    for mine in codes() {
        for other in codes() {
            let [first, second] = [0x00, 0xA7].map(|secret| run([mine, other], secret));
            let names = (mine.name(), other.name());
            assert!(first.0[1] == second.0[1], "{names:?}: what one carries shows in the other");
            assert!(first.0[0] != second.0[0], "{names:?}: the payloads were to differ");
            let is_whole = |bytes: &&Vec<u8>| bytes[0] == 0x45 && bytes[12] == FLOWS[1] as u8;
            let delivered = second.0[1].iter().filter(is_whole).count();
            println!("{names:?}: {delivered} of {PACKETS} of the other flow delivered");
            assert!(delivered * 10 > PACKETS as usize * 9, "{names:?}: {delivered}");
        }
    }
}
