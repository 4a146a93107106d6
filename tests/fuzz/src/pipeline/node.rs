//! A node, and what must hold of it whatever comes: every packet has one fate, no frame leaks,
//! timers do not spin, no call emits without bound.

use std::cell::RefCell;

use recoded_pipeline::Pipeline;
use recoded_pipeline::egress::{Egress, Planning};
use recoded_pipeline::memory::HeapFrames;
use recoded_pipeline::params::{FlowParams, Nanos, PeerId, Snapshot, TunnelId};
use recoded_pipeline::plan::{PlanMaker, PlanRequest};
use recoded_wire::entropy::{BUCKETS, bucket_of};
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::{Block, Header, PacketType};

use super::FLOW;

const FRAME_BYTES: usize = 1536;

/// Most packets that one call may emit: the plans of a full table, or a report's repairs.
const BURST_MAX: usize = 4096;

/// Calls for the same moment until a node must be content.
const TICKS_MAX: usize = 300;

thread_local! {
    /// Makes the plans that nodes ask for elsewhere.
    static PLAN_MAKER: RefCell<PlanMaker> = RefCell::new(PlanMaker::new());
}

/// Takes what a node emits, to be let go after the call.
#[derive(Default)]
struct Sent {
    packets: Vec<(PeerId, Span)>,
    delivered: Vec<Vec<u8>>,
    /// Whether plans are made elsewhere, and the question that waits for its answer.
    plans_elsewhere: bool,
    asked: Option<PlanRequest>,
}

impl Egress for Sent {
    fn transmit(&mut self, hop: PeerId, span: Span, _source_port: u16) {
        self.packets.push((hop, span));
    }

    fn deliver(&mut self, _tunnel: TunnelId, packet: &[u8]) {
        assert!(!packet.is_empty());
        self.delivered.push(packet.to_vec());
    }

    fn plan(&mut self, request: &PlanRequest) -> Planning {
        if !self.plans_elsewhere {
            return Planning::Here;
        }
        if self.asked.is_some() {
            return Planning::Busy;
        }
        self.asked = Some(request.clone());
        Planning::Elsewhere
    }
}

/// One node with one flow.
pub(super) struct Node {
    pipeline: Pipeline,
    frames: HeapFrames,
    frame_count: usize,
    sent: Sent,
    edition: u64,
    received: u64,
}

impl Node {
    pub(super) fn new(params: &FlowParams, frame_count: usize, plans_elsewhere: bool) -> Self {
        let snapshot = Snapshot { edition: 1, flows: vec![params.clone()] };
        Self {
            pipeline: Pipeline::new(&snapshot, 1),
            frames: HeapFrames::new(frame_count, FRAME_BYTES),
            frame_count,
            sent: Sent { plans_elsewhere, ..Sent::default() },
            edition: 1,
            received: 0,
        }
    }

    /// Hands a packet in; a receive ring without frames drops it.
    pub(super) fn receive(&mut self, packet: &[u8], now: Nanos) {
        let Some(span) = self.frames.receive(packet) else { return };
        self.received += 1;
        self.pipeline.receive(&mut self.frames, &mut self.sent, span, now);
    }

    pub(super) fn ingress(&mut self, packet: &[u8], now: Nanos) {
        self.pipeline.ingress(&mut self.frames, &mut self.sent, FLOW, packet, now);
    }

    pub(super) fn apply(&mut self, params: &FlowParams, now: Nanos) {
        self.edition += 1;
        let snapshot = Snapshot { edition: self.edition, flows: vec![params.clone()] };
        self.pipeline.apply(&snapshot, &mut self.frames, &mut self.sent, now);
    }

    /// Answers the question for a plan that waits, if one does: for parameters that may be others
    /// by now.
    pub(super) fn answer(&mut self) {
        if let Some(request) = self.sent.asked.take() {
            let reply = PLAN_MAKER.with_borrow_mut(|maker| maker.make(&request));
            self.pipeline.planned(reply);
        }
    }

    /// One call of the timers; when the next is due, if not now.
    pub(super) fn tick(&mut self, now: Nanos) -> Option<Nanos> {
        self.pipeline.tick(&mut self.frames, &mut self.sent, now)
    }

    /// Lets timers act until none is due; a node must not ask for ever. When the next one is due.
    pub(super) fn settle(&mut self, now: Nanos) -> Option<Nanos> {
        for _ in 0..TICKS_MAX {
            self.let_go();
            let due = self.tick(now);
            if due.is_none_or(|due| due > now) {
                self.let_go();
                return due;
            }
        }
        panic!("the node asks to be called again at once, for ever");
    }

    /// What the node sent, as hops and UDP payloads.
    pub(super) fn take_sent(&mut self) -> Vec<(PeerId, Vec<u8>)> {
        let packet = |(hop, span): &(PeerId, Span)| (*hop, self.frames.bytes(*span).to_vec());
        let packets = self.sent.packets.iter().map(packet).collect();
        self.let_go();
        packets
    }

    /// What the node delivered.
    pub(super) fn take_delivered(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.sent.delivered)
    }

    /// What was sent leaves.
    fn let_go(&mut self) {
        let count = self.sent.packets.len();
        assert!(count <= BURST_MAX, "{count} packets at once");
        for (_, span) in self.sent.packets.drain(..) {
            self.frames.release(span.frame);
        }
    }

    /// Ends the node and checks what must hold then.
    pub(super) fn finish(&mut self, now: Nanos) {
        self.pipeline.drain(&mut self.frames, &mut self.sent, now);
        self.let_go();
        let packets = self.pipeline.report().packets;
        let fates = packets.forwarded + packets.consumed + packets.dropped.iter().sum::<u64>();
        assert_eq!((packets.received, fates), (self.received, self.received));
        self.pipeline.release(&mut self.frames);
        assert_eq!(self.frames.free(), self.frame_count, "frames leaked");
    }
}

/// Numbers packets as the sender of a link does.
#[derive(Default)]
pub(super) struct Stamps([u32; BUCKETS]);

impl Stamps {
    /// Writes the next link sequence number into a data packet, whatever number it has.
    pub(super) fn stamp(&mut self, packet: &mut [u8]) {
        let Ok(header) = Header::parse(packet) else { return };
        if header.packet_type == PacketType::Feedback {
            return;
        }
        let block = Block::read(packet).filter(|_| header.packet_type == PacketType::Bats);
        let next = &mut self.0[bucket_of(&header, block.as_ref())];
        *next += 1;
        Header { link_sequence: *next, ..header }.write(packet);
    }
}
