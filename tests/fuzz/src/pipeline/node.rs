//! A node, and its invariants for any input: every packet has one outcome, no frame leaks, timers
//! do not spin, no call emits without bound.

use std::cell::RefCell;
use std::collections::VecDeque;

use recoded_pipeline::egress::{Answer, Egress, HandOver, NoKeys, Origin, Outer};
use recoded_pipeline::memory::HeapFrames;
use recoded_pipeline::open::{OpenRequest, Opener};
use recoded_pipeline::params::{
    FlowCode, FlowParams, Nanos, PeerId, Role, ShardId, Share, Snapshot, TunnelId,
};
use recoded_pipeline::plan::{PlanMaker, PlanRequest};
use recoded_pipeline::{Datagram, Pipeline};
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::{Header, PacketType, write_link_sequence};
use recoded_wire::shard::SHARDS_MAX;
use recoded_wire::stream::parse_stream;

use super::FLOW;

const FRAME_BYTES: usize = 1536;

/// Most packets that one call may emit: the plans of a full table, or a report's repairs.
const BURST_MAX: usize = 4096;

/// Calls for the same moment until a node must be content.
const TICKS_MAX: usize = 300;

/// Capacity of a worker's queue of packets.
const QUEUE_PACKETS: usize = 16;

/// Largest stage that fits into memory.
const STAGE_BYTES_MAX: usize = 48 << 20;

thread_local! {
    /// Computes the plans that nodes request from another thread.
    static PLAN_MAKER: RefCell<PlanMaker> = RefCell::new(PlanMaker::new());
}

/// Threads of a node in addition to its first worker, by the bits of a script's first byte.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Threads {
    pub workers: usize,
    /// Plans are computed by another thread, and arrive when the script decides.
    pub plans: bool,
    /// The same for stages; every sixth is refused.
    pub stages: bool,
}

/// Collects the output of a node, released after the call.
struct Sent {
    threads: Threads,
    settings: FlowParams,
    /// The worker that is called.
    worker: usize,
    packets: Vec<(usize, PeerId, Span)>,
    delivered: Vec<Vec<u8>>,
    /// The pending request for a plan, and the worker that made it.
    planning: Option<(usize, PlanRequest)>,
    /// Questions for stages that wait for theirs.
    opening: VecDeque<(usize, OpenRequest)>,
    /// The worker that owns a shard, or requested it first.
    owners: [Option<usize>; SHARDS_MAX],
    /// Packets for another worker.
    handed_over: VecDeque<(usize, PeerId, Vec<u8>)>,
}

impl Sent {
    fn has_memory(&self, request: &OpenRequest) -> bool {
        self.settings.with(request.sizes).memory_bytes() <= STAGE_BYTES_MAX
    }
}

impl Egress for Sent {
    type Keys = NoKeys;

    fn transmit(&mut self, hop: PeerId, span: Span, _outer: Outer) {
        self.packets.push((self.worker, hop, span));
    }

    fn deliver(&mut self, _tunnel: TunnelId, packet: &[u8]) {
        assert!(!packet.is_empty());
        self.delivered.push(packet.to_vec());
    }

    fn open(&mut self, request: &OpenRequest) -> Answer {
        let owner = &mut self.owners[usize::from(request.shard.shard)];
        if *owner.get_or_insert(self.worker) != self.worker {
            return Answer::Busy;
        }
        if !self.threads.stages && self.has_memory(request) {
            return Answer::Here;
        }
        self.opening.push_back((self.worker, *request));
        Answer::Elsewhere
    }

    fn hand_over(&mut self, shard: ShardId, origin: Origin, payload: &[u8]) -> HandOver {
        let owner = self.owners[usize::from(shard.shard)].filter(|owner| *owner != self.worker);
        let Some(owner) = owner else { return HandOver::Unowned };
        if self.handed_over.len() == QUEUE_PACKETS {
            return HandOver::Full;
        }
        self.handed_over.push_back((owner, origin.peer, payload.to_vec()));
        HandOver::Taken
    }

    fn plan(&mut self, request: &PlanRequest) -> Answer {
        if !self.threads.plans {
            return Answer::Here;
        }
        if self.planning.is_some() {
            return Answer::Busy;
        }
        self.planning = Some((self.worker, request.clone()));
        Answer::Elsewhere
    }
}

/// A worker: its pipeline, its frames, and packets handed in.
struct Worker {
    pipeline: Pipeline,
    frames: HeapFrames,
    received: u64,
}

/// One node with one flow.
pub(super) struct Node {
    workers: Vec<Worker>,
    frame_count: usize,
    sent: Sent,
    opener: Opener,
    /// Stages opened or refused.
    opened: usize,
    edition: u64,
    /// Key that maps shards to the workers' queues.
    hash_key: u8,
}

impl Node {
    pub(super) fn new(params: &FlowParams, frame_count: usize, threads: Threads) -> Self {
        let snapshot = Snapshot { edition: 1, flows: vec![params.clone()] };
        let workers = threads.workers;
        let worker = |worker| Worker {
            pipeline: Pipeline::of_worker(Share { worker, workers }, &snapshot, 1 + worker as u64),
            frames: HeapFrames::new(frame_count, FRAME_BYTES),
            received: 0,
        };
        let mut owners = [None; SHARDS_MAX];
        if matches!(params.role, Role::Source { .. }) {
            for shard in 0..params.shards {
                owners[usize::from(shard)] = Some(Share { worker: 0, workers }.owner(shard));
            }
        }
        Self {
            workers: (0..workers).map(worker).collect(),
            frame_count,
            sent: Sent {
                threads,
                settings: params.clone(),
                worker: 0,
                packets: Vec::new(),
                delivered: Vec::new(),
                planning: None,
                opening: VecDeque::new(),
                owners,
                handed_over: VecDeque::new(),
            },
            opener: Opener::new(1),
            opened: 0,
            edition: 1,
            hash_key: 0,
        }
    }

    /// Calls the pipeline of a worker.
    fn call<T>(
        &mut self,
        worker: usize,
        work: impl FnOnce(&mut Pipeline, &mut HeapFrames, &mut Sent) -> T,
    ) -> T {
        self.sent.worker = worker;
        let Worker { pipeline, frames, .. } = &mut self.workers[worker];
        work(pipeline, frames, &mut self.sent)
    }

    /// Hands a packet from `peer` in; a receive ring without frames drops it.
    pub(super) fn receive(&mut self, peer: Option<PeerId>, packet: &[u8], now: Nanos) {
        let shard = Header::parse(packet).map_or(0, |header| header.shard);
        let worker = usize::from(shard.wrapping_mul(5) ^ self.hash_key) % self.workers.len();
        self.receive_at(worker, peer, packet, now);
        while let Some((worker, peer, packet)) = self.sent.handed_over.pop_front() {
            self.receive_at(worker, Some(peer), &packet, now);
        }
    }

    fn receive_at(&mut self, worker: usize, peer: Option<PeerId>, packet: &[u8], now: Nanos) {
        let Some(span) = self.workers[worker].frames.receive(packet) else { return };
        self.workers[worker].received += 1;
        self.call(worker, |pipeline, frames, sent| {
            pipeline.receive(frames, sent, Datagram::best_effort(peer, span), now);
        });
    }

    /// From now on shards arrive at the queues of other workers.
    pub(super) fn rehash(&mut self, key: u8) {
        self.hash_key = key;
    }

    pub(super) fn ingress(&mut self, shard: u8, packet: &[u8], now: Nanos) {
        let worker = Share { worker: 0, workers: self.workers.len() }.owner(shard);
        let shard = ShardId { flow: FLOW, shard };
        self.call(worker, |pipeline, frames, sent| {
            pipeline.ingress(frames, sent, shard, packet, now);
        });
    }

    /// Whether an IP packet of a shard may enter.
    pub(super) fn is_open(&mut self, shard: u8, now: Nanos) -> bool {
        let worker = Share { worker: 0, workers: self.workers.len() }.owner(shard);
        let shard = ShardId { flow: FLOW, shard };
        self.workers[worker].pipeline.opens_at(shard, now).is_ok()
    }

    /// Whether the next unit of a source would replace an unacknowledged one.
    pub(super) fn is_full(&self, shard: u8) -> bool {
        let settings = &self.sent.settings;
        let units = match &settings.code {
            FlowCode::Bats(code) => settings.blocks(code),
            _ => settings.generations,
        };
        self.held(shard) >= units
    }

    /// Units of a shard that it holds.
    pub(super) fn held(&self, shard: u8) -> usize {
        let reports = self.workers.iter().map(|worker| worker.pipeline.report());
        let flows = reports.flat_map(|report| report.flows);
        flows.filter(|flow| flow.shard == shard).map(|flow| flow.held).sum()
    }

    pub(super) fn apply(&mut self, params: &FlowParams, now: Nanos) {
        self.edition += 1;
        self.sent.settings = params.clone();
        let snapshot = Snapshot { edition: self.edition, flows: vec![params.clone()] };
        for worker in 0..self.workers.len() {
            self.call(worker, |pipeline, frames, sent| {
                pipeline.apply(&snapshot, frames, sent, now)
            });
        }
    }

    /// Answers the pending request for a plan and the oldest one for a stage, if any; the
    /// parameters may have changed since.
    pub(super) fn answer(&mut self, now: Nanos) {
        if let Some((worker, request)) = self.sent.planning.take() {
            let reply = PLAN_MAKER.with_borrow_mut(|maker| maker.make(&request));
            self.workers[worker].pipeline.planned(reply);
        }
        let Some((worker, request)) = self.sent.opening.pop_front() else { return };
        self.opened += 1;
        if self.opened.is_multiple_of(6) || !self.sent.has_memory(&request) {
            self.call(worker, |pipeline, frames, _| pipeline.refused(frames, request.shard));
            return;
        }
        let opened = self.opener.open(&request, &self.sent.settings);
        self.call(worker, |pipeline, frames, sent| {
            drop(pipeline.opened(frames, sent, opened, now));
        });
    }

    /// Runs the timers of each worker once; returns when the next is due, if not now.
    pub(super) fn tick(&mut self, now: Nanos) -> Option<Nanos> {
        let workers = 0..self.workers.len();
        let tick = |worker| {
            self.call(worker, |pipeline, frames, sent| {
                drop(pipeline.retire(frames, now));
                pipeline.tick(frames, sent, now)
            })
        };
        workers.filter_map(tick).min()
    }

    /// Runs timers until none is due, and returns when the next one is. A node must not request
    /// calls forever.
    pub(super) fn settle(&mut self, now: Nanos) -> Option<Nanos> {
        for _ in 0..TICKS_MAX {
            self.let_go();
            let due = self.tick(now);
            if due.is_none_or(|due| due > now) {
                self.let_go();
                return due;
            }
        }
        panic!("the node requests immediate calls without end");
    }

    /// Packets sent by the node, as hops and UDP payloads.
    pub(super) fn take_sent(&mut self) -> Vec<(PeerId, Vec<u8>)> {
        let packets =
            self.sent.packets.iter().map(|(worker, hop, span)| {
                (*hop, self.workers[*worker].frames.bytes(*span).to_vec())
            });
        let packets = packets.collect();
        self.let_go();
        packets
    }

    /// Packets delivered by the node.
    pub(super) fn take_delivered(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.sent.delivered)
    }

    /// Releases the frames of sent packets.
    fn let_go(&mut self) {
        let count = self.sent.packets.len();
        assert!(count <= BURST_MAX, "{count} packets at once");
        for (worker, _, span) in self.sent.packets.drain(..) {
            self.workers[worker].frames.release(span.frame);
        }
    }

    /// Ends the node and checks the final invariants.
    pub(super) fn finish(&mut self, now: Nanos) {
        for worker in 0..self.workers.len() {
            self.call(worker, |pipeline, frames, sent| pipeline.drain(frames, sent, now));
        }
        self.let_go();
        for Worker { pipeline, frames, received } in &mut self.workers {
            pipeline.release(frames);
            let packets = pipeline.report().packets;
            let kept = packets.forwarded + packets.consumed + packets.handed_over;
            let fates = kept + packets.dropped.iter().sum::<u64>();
            assert_eq!((packets.received, fates), (*received, *received));
            assert_eq!(frames.free(), self.frame_count, "frames leaked");
        }
    }
}

/// Numbers packets as the sender of a link does, separately for each shard.
#[derive(Default)]
pub(super) struct Stamps {
    data: [u32; SHARDS_MAX],
    feedback: [u32; SHARDS_MAX],
}

impl Stamps {
    /// Writes the next link sequence number into a packet, replacing the old one.
    pub(super) fn stamp(&mut self, packet: &mut [u8]) {
        let Ok(header) = Header::parse(packet) else { return };
        let numbers = match header.packet_type {
            PacketType::Feedback | PacketType::Link => &mut self.feedback,
            _ => &mut self.data,
        };
        let next = &mut numbers[usize::from(header.shard)];
        *next = next.wrapping_add(1);
        write_link_sequence(packet, *next);
    }

    /// As [`Stamps::stamp`], for a packet that a node sent. Packets of streams keep their numbers,
    /// which link reports refer to. Keepalives of other codes are restamped, because the packets of
    /// those codes are too.
    pub(super) fn pass(&mut self, packet: &mut [u8]) {
        match parse_stream(packet).map(|packet| packet.header) {
            Ok(header) if !header.is_of_other_code() => {
                self.data[usize::from(header.common.shard)] = header.common.link_sequence;
            }
            _ => self.stamp(packet),
        }
    }
}
