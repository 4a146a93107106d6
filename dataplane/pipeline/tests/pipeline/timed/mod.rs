//! A line of nodes in virtual time: links with a rate, a queue, a delay and losses, and sources
//! that send as fast as they may, or evenly.

pub mod beside;
pub mod cellular;
pub mod keys;
mod leave;
mod link;
mod socket;
mod stall;
mod tcp;
mod wires;

use keys::Keys;
use link::Channel;
pub use link::Link;
use recoded_pipeline::memory::HeapFrames;
use recoded_pipeline::params::{
    FlowCode, FlowParams, Nanos, PeerId, Role, ShardId, Snapshot, StreamParams, TunnelId,
};
use recoded_pipeline::recorder::{Recorder, Sent};
use recoded_pipeline::report::{FlowReport, PacketCounters};
use recoded_pipeline::{Datagram, Pipeline};
use recoded_wire::header::{Header, PacketType};
use recoded_wire::stream::KEEPALIVE_BYTES;
use std::collections::{BTreeMap, VecDeque};
use wires::{DOWN, UP, Wires};

pub const MILLI: Nanos = 1_000_000;
pub const SECOND: Nanos = 1_000_000_000;

const FLOW: u32 = 7;
/// Flow of acknowledgements, in the opposite direction.
const BACK: u32 = 8;

/// Bytes of an IP packet of a sparse flow next to a load.
const SPARSE_BYTES: usize = 228;

/// Wake-up delay of a sleeping worker, and its time per packet.
const WAKE_NANOS: Nanos = 60_000;

enum What {
    Arrive {
        node: usize,
        peer: PeerId,
        payload: Vec<u8>,
    },
    Wake {
        node: usize,
    },
    Ingress,
    /// Competing TCP: an acknowledgement, or a timer.
    Beside {
        index: usize,
        acked: Option<u64>,
    },
}

struct Node {
    pipeline: Pipeline,
    frames: HeapFrames,
    outputs: Recorder<Keys>,
    wakes_at: Option<Nanos>,
    params: FlowParams,
    back: Option<FlowParams>,
    /// Until then its worker is stalled.
    stalled_until: Nanos,
}

impl Node {
    fn snapshot(&self, edition: u64) -> Snapshot {
        let flows = [Some(self.params.clone()), self.back.clone()];
        Snapshot { edition, flows: flows.into_iter().flatten().collect() }
    }
}

/// Traffic that enters the source.
#[derive(Copy, Clone, Debug)]
pub struct Load {
    /// Bytes of an IP packet.
    pub bytes: usize,
    /// Packets per second; `None`: as many as the source takes.
    pub rate: Option<f64>,
    /// Whether they are of one TCP flow.
    pub ordered: bool,
}

/// A delivered packet.
#[derive(Copy, Clone, Debug)]
pub struct Delivered {
    /// The node that delivered it.
    pub node: usize,
    pub number: u32,
    pub at: Nanos,
    /// Delay since it entered.
    pub took: Nanos,
}

/// Change that a link, or a lying relay, makes to a packet of a sender.
type Tamper = Box<dyn FnMut(usize, &mut Vec<u8>)>;

/// The line, or several that part at the source and meet at the sink, or any graph.
pub struct Line {
    nodes: Vec<Node>,
    wires: Wires,
    down: Vec<Channel>,
    up: Vec<Channel>,
    /// Pending events, by time and creation order.
    queue: BTreeMap<(Nanos, u64), What>,
    serial: u64,
    pub now: Nanos,
    pub load: Load,
    entered: Vec<Nanos>,
    /// Packets that wait for the source to take them, as in a tunnel; `None`: it takes them at
    /// once.
    waiting: Option<VecDeque<u32>>,
    ingress_at: Option<Nanos>,
    pub delivered: Vec<Delivered>,
    /// The newest packet with a symbol that the source sent.
    newest: Vec<u8>,
    /// Link sequence number of the newest packet that was sent to each node, by the first neighbour
    /// that it sends to.
    newest_back: Vec<u32>,
    /// Delivered packets per acknowledgement, which returns in a flow of its own.
    acknowledged: Option<usize>,
    seed: u64,
    /// One in this many packets is a short datagram of a flow of its own; 0: none.
    pub sparse: u32,
    /// Changes to packets that a node sends towards the sink, by the node, if it lies.
    pub tamper: Option<Tamper>,
    /// The same for packets that it sends towards the source.
    pub tamper_back: Option<Tamper>,
    beside: Vec<beside::Beside>,
    /// Index of the one that is inside.
    inside: Option<usize>,
}

pub fn params(role: Role, next_hops: Vec<PeerId>) -> FlowParams {
    params_of(FLOW, role, next_hops)
}

fn params_of(flow: u32, role: Role, next_hops: Vec<PeerId>) -> FlowParams {
    let mut params = FlowParams::new(flow, role, next_hops);
    params.code = FlowCode::Stream(StreamParams::new(32_768));
    params.symbol_bytes = 1430;
    params
}

impl Line {
    /// A line over these links; the return path has the same ones.
    pub fn new(links: &[Link], load: Load, seed: u64) -> Line {
        Line::with(links, load, seed, |_| ())
    }

    /// Like [`Line::new`]; `change` edits the parameters of every node.
    pub fn with(links: &[Link], load: Load, seed: u64, change: impl Fn(&mut FlowParams)) -> Line {
        Line::paths(&[links], load, seed, change)
    }

    /// Lines from one source to one sink, with the links of the first, then those of the second,
    /// and so on; nodes are numbered likewise.
    pub fn paths(
        paths: &[&[Link]],
        load: Load,
        seed: u64,
        change: impl Fn(&mut FlowParams),
    ) -> Line {
        let links: Vec<Link> = paths.iter().flat_map(|links| links.iter().copied()).collect();
        let counts: Vec<usize> = paths.iter().map(|links| links.len()).collect();
        let edges = wires::lines(&counts);
        let links: Vec<_> = edges.into_iter().zip(links).collect();
        Line::graph(&links, load, seed, |_, params| change(params))
    }

    /// A graph of links, each from a node to one with a higher number. The source is node 0; nodes
    /// without outgoing links are sinks.
    pub fn graph(
        links: &[((usize, usize), Link)],
        load: Load,
        seed: u64,
        change: impl Fn(usize, &mut FlowParams),
    ) -> Line {
        eprintln!("seed {seed}");
        let edges: Vec<(usize, usize)> = links.iter().map(|(edge, _)| *edge).collect();
        let wires = wires::wires(&edges);
        let last = edges.iter().map(|edge| edge.1).max().unwrap_or(0);
        let role = |index: usize| match index {
            0 => Role::Source { tunnel: TunnelId(0) },
            _ if edges.iter().all(|edge| edge.0 != index) => {
                Role::Sink { tunnel: TunnelId(0), upstream: UP }
            }
            _ => Role::Relay { upstream: UP },
        };
        let node = |index: usize| {
            let peers = |is_up| {
                let from =
                    wires.iter().filter(move |(at, wire)| at.0 == index && wire.is_up == is_up);
                from.map(|(at, _)| at.1).collect::<Vec<PeerId>>()
            };
            let mut params = params(role(index), peers(false));
            params.further_upstreams = peers(true).into_iter().skip(1).collect();
            change(index, &mut params);
            let is_jumbo = params.symbol_bytes > 1800;
            let (frames, frame_bytes) = if is_jumbo { (8192, 10240) } else { (16384, 2048) };
            let snapshot = Snapshot { edition: 1, flows: vec![params.clone()] };
            Node {
                pipeline: Pipeline::new(&snapshot, seed + index as u64),
                frames: HeapFrames::new(frames, frame_bytes),
                outputs: Recorder::with_keys(Keys::new(1)),
                wakes_at: None,
                params,
                back: None,
                stalled_until: 0,
            }
        };
        let channel = |index: usize, link: Link, way: u64| {
            Channel::new(link, seed << 16 | (index as u64) << 1 | way)
        };
        let channels = |way| {
            let links = links.iter().enumerate();
            links.map(|(index, (_, link))| channel(index, *link, way)).collect()
        };
        let mut line = Line {
            nodes: (0..=last).map(node).collect(),
            wires: Wires::new(),
            down: channels(0),
            up: channels(1),
            queue: BTreeMap::new(),
            serial: 0,
            now: SECOND,
            load,
            entered: Vec::new(),
            waiting: None,
            ingress_at: None,
            delivered: Vec::new(),
            newest: Vec::new(),
            newest_back: vec![0; last + 1],
            acknowledged: None,
            seed,
            sparse: 0,
            tamper: None,
            tamper_back: None,
            beside: Vec::new(),
            inside: None,
        };
        line.wires = wires;
        line.ingress(SECOND);
        line
    }

    /// From now on the sink acknowledges every `packets` packets, as TCP does, in a return flow.
    pub fn acknowledge(&mut self, packets: usize) {
        let hops = self.nodes.len() - 1;
        let tunnel = TunnelId(0);
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let (role, next) = match index {
                0 => (Role::Sink { tunnel, upstream: DOWN }, vec![]),
                _ if index == hops => (Role::Source { tunnel }, vec![UP]),
                _ => (Role::Relay { upstream: DOWN }, vec![UP]),
            };
            node.back = Some(params_of(BACK, role, next));
            let snapshot = node.snapshot(node.pipeline.report().edition + 1);
            node.pipeline.apply(&snapshot, &mut node.frames, &mut node.outputs, self.now);
        }
        self.acknowledged = Some(packets);
    }

    fn push(&mut self, at: Nanos, what: What) {
        self.serial += 1;
        self.queue.insert((at, self.serial), what);
    }

    fn ingress(&mut self, at: Nanos) {
        if self.ingress_at.is_none_or(|planned| at < planned) {
            self.ingress_at = Some(at);
            self.push(at, What::Ingress);
        }
    }

    /// Changes both directions of a link.
    pub fn set(&mut self, hop: usize, link: Link) {
        (self.down[hop].link, self.up[hop].link) = (link, link);
    }

    /// Changes the return direction of a link.
    pub fn set_back(&mut self, hop: usize, link: Link) {
        self.up[hop].link = link;
    }

    /// Stops traffic from entering, and lets packets in flight arrive.
    pub fn stop(&mut self, nanos: Nanos) {
        self.load.rate = Some(1e-9);
        self.ingress_at = Some(Nanos::MAX);
        self.run(nanos);
    }

    /// Lets traffic enter again after [`Line::stop`], at the mean rate until now, stop included.
    pub fn resume(&mut self) {
        self.load.rate = Some(self.entered.len() as f64 * 1e9 / (self.now - SECOND) as f64);
        self.ingress_at = None;
        self.ingress(self.now);
    }

    /// Changes the parameters of the source, as a live change does.
    pub fn change_source(&mut self, edit: impl FnOnce(&mut FlowParams)) {
        self.change(0, edit);
    }

    /// Changes the parameters of a node, as a live change does.
    pub fn change(&mut self, index: usize, edit: impl FnOnce(&mut FlowParams)) {
        let node = &mut self.nodes[index];
        edit(&mut node.params);
        let snapshot = node.snapshot(node.pipeline.report().edition + 1);
        node.pipeline.apply(&snapshot, &mut node.frames, &mut node.outputs, self.now);
        self.turn(index);
    }

    /// A node loses all state.
    pub fn restart(&mut self, index: usize) {
        self.seed += 100;
        let node = &mut self.nodes[index];
        node.pipeline.release(&mut node.frames);
        node.pipeline = Pipeline::new(&node.snapshot(1), self.seed);
    }

    /// The first link.
    pub fn link(&self) -> Link {
        self.down[0].link
    }

    /// Packets sent over a link in each direction, and those that its queue had no place for.
    pub fn sent(&self, hop: usize) -> (u64, u64, u64) {
        let (down, up) = (&self.down[hop], &self.up[hop]);
        (down.sent, up.sent, down.overflowed + up.overflowed)
    }

    /// Bytes sent over a link towards the sink, headers included.
    pub fn bytes(&self, hop: usize) -> u64 {
        self.down[hop].bytes
    }

    /// The longest queueing delay of a packet before a link since the last call.
    pub fn longest_wait(&mut self, hop: usize) -> Nanos {
        std::mem::take(&mut self.down[hop].longest)
    }

    /// The most bytes sent at once over a link since the last call, headers included.
    pub fn most_at_once(&mut self, hop: usize) -> u64 {
        std::mem::take(&mut self.down[hop].most_at_once)
    }

    pub fn lacks_paths(&mut self) -> bool {
        self.nodes[0].pipeline.lacks_paths(ShardId { flow: FLOW, shard: 0 })
    }

    pub fn flow(&self, index: usize) -> FlowReport {
        self.nodes[index].pipeline.report().flows[0].clone()
    }

    /// Outcomes of the packets that a node received.
    pub fn packets(&self, index: usize) -> PacketCounters {
        self.nodes[index].pipeline.report().packets
    }

    /// How often a node requested new keys for a neighbour.
    pub fn distrusted(&self, index: usize) -> usize {
        self.nodes[index].outputs.distrusted
    }

    pub fn entered(&self) -> usize {
        self.entered.len()
    }

    /// From now on packets wait until the source takes them.
    pub fn wait_for_source(&mut self) {
        self.waiting = Some(VecDeque::new());
    }

    /// Lets time pass.
    pub fn run(&mut self, nanos: Nanos) {
        let end = self.now + nanos;
        while let Some(first) = self.queue.first_entry()
            && first.key().0 <= end
        {
            let ((at, _), what) = first.remove_entry();
            self.now = at;
            let Some(what) = self.unless_stalled(what) else { continue };
            match what {
                What::Arrive { node, peer, payload } => self.arrive(node, peer, &payload),
                What::Wake { node } => {
                    if self.nodes[node].wakes_at == Some(at) {
                        self.nodes[node].wakes_at = None;
                        self.turn(node);
                        // A source waits for a window that timers may open.
                        if node == 0 && self.ingress_at.is_none() {
                            self.enter();
                        }
                    }
                }
                What::Beside { index, acked: Some(number) } => self.acked_beside(index, number),
                What::Beside { index, acked: None } => self.turn_beside(index),
                What::Ingress => {
                    if self.ingress_at == Some(at) {
                        self.ingress_at = None;
                        self.enter();
                    }
                }
            }
        }
        self.now = end;
    }

    fn arrive(&mut self, index: usize, peer: PeerId, payload: &[u8]) {
        let node = &mut self.nodes[index];
        if let Some(span) = node.frames.receive(payload) {
            let datagram = Datagram::best_effort(Some(peer), span);
            node.pipeline.receive(&mut node.frames, &mut node.outputs, datagram, self.now);
        }
        self.turn(index);
        if index == 0 && self.load.rate.is_none() && self.inside.is_none() {
            self.enter();
        } else if index == 0 {
            self.take_waiting();
        }
    }

    /// The newest symbol of the source, as it was sent.
    pub fn newest(&self) -> &[u8] {
        &self.newest
    }

    /// Link sequence number of the newest packet that was sent to the source.
    pub fn newest_back(&self) -> u32 {
        self.newest_back_to(0)
    }

    /// Link sequence number of the newest packet that was sent to a node, by the first neighbour
    /// that it sends to.
    pub fn newest_back_to(&self, node: usize) -> u32 {
        self.newest_back[node]
    }

    /// Injects a forged packet into a node, from the neighbour that sends such packets.
    pub fn inject(&mut self, node: usize, payload: &[u8]) {
        let Ok(header) = Header::parse(payload) else { return };
        let is_up = matches!(header.packet_type, PacketType::Feedback | PacketType::Link);
        self.arrive(node, if is_up { DOWN } else { UP }, payload);
    }

    fn enter(&mut self) {
        let id = ShardId { flow: FLOW, shard: 0 };
        match self.load.rate {
            _ if self.inside.is_some() => self.take_waiting(),
            Some(rate) => {
                self.one(id);
                let next = (self.entered.len() as f64 * 1e9 / rate) as Nanos;
                self.ingress((SECOND + next).max(self.now));
            }
            None => {
                for _ in 0..64 {
                    match self.nodes[0].pipeline.opens_at(id, self.now) {
                        Ok(()) => self.one(id),
                        Err(Some(at)) => {
                            self.ingress(at.max(self.now) + WAKE_NANOS);
                            break;
                        }
                        Err(None) => break,
                    }
                }
                if self.nodes[0].pipeline.opens_at(id, self.now).is_ok() {
                    self.ingress(self.now + WAKE_NANOS);
                }
            }
        }
        self.turn(0);
    }

    fn one(&mut self, id: ShardId) {
        let number = self.entered.len() as u32;
        self.entered.push(self.now);
        match &mut self.waiting {
            Some(waiting) => {
                waiting.push_back(number);
                self.take_waiting();
            }
            None => self.ingress_of(id, number),
        }
    }

    fn ingress_of(&mut self, id: ShardId, number: u32) {
        let is_sparse = self.is_sparse(number);
        let bytes = if is_sparse { SPARSE_BYTES } else { self.load.bytes };
        let mut packet = vec![0xA5; bytes];
        packet[..20].fill(0);
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&(bytes as u16).to_be_bytes());
        packet[9] = if self.load.ordered && !is_sparse { 6 } else { 17 };
        packet[20..24].fill(9);
        packet[24..28].copy_from_slice(&number.to_be_bytes());
        let node = &mut self.nodes[0];
        node.pipeline.ingress(&mut node.frames, &mut node.outputs, id, &packet, self.now);
    }

    /// Whether a packet is one of the short datagrams.
    pub fn is_sparse(&self, number: u32) -> bool {
        self.sparse > 0 && number.is_multiple_of(self.sparse)
    }

    /// Runs the timers of a node, and distributes its outputs.
    fn turn(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let due = node.pipeline.tick(&mut node.frames, &mut node.outputs, self.now);
        if let Some(due) = due {
            let at = due.max(self.now) + WAKE_NANOS;
            if node.wakes_at.is_none_or(|wakes| at < wakes || wakes < self.now) {
                node.wakes_at = Some(at);
                self.push(at, What::Wake { node: index });
            }
        }
        let node = &mut self.nodes[index];
        let delivered = std::mem::take(&mut node.outputs.delivered);
        for packet in delivered {
            if packet[20..24] != [9; 4] {
                continue; // forged, or an acknowledgement
            }
            let number = u32::from_be_bytes(packet[24..28].try_into().unwrap());
            let took = self.now - self.entered[number as usize];
            self.delivered.push(Delivered { node: index, number, at: self.now, took });
            self.came_inside(number);
            if self.acknowledged.is_some_and(|packets| self.delivered.len().is_multiple_of(packets))
            {
                let node = &mut self.nodes[index];
                let (id, packet) = (ShardId { flow: BACK, shard: 0 }, acknowledgement());
                node.pipeline.ingress(&mut node.frames, &mut node.outputs, id, &packet, self.now);
            }
        }
        let sent = std::mem::take(&mut self.nodes[index].outputs.sent);
        let mut left = &sent[..];
        while let Some(Sent { hop, .. }) = left.first() {
            let count = left.iter().take_while(|sent| sent.hop == *hop).count();
            self.leave(index, *hop, &left[..count]);
            left = &left[count..];
        }
    }

    /// IP bytes per second delivered since a time.
    pub fn goodput(&self, since: Nanos) -> f64 {
        let packets = self.delivered.iter().filter(|packet| packet.at >= since).count();
        (packets * self.load.bytes) as f64 / ((self.now - since) as f64 / 1e9)
    }

    /// The longest time without a delivery since a time.
    pub fn longest_gap(&self, since: Nanos) -> Nanos {
        let recent = self.delivered.iter().map(|packet| packet.at).filter(|at| *at >= since);
        let ends = [since].into_iter().chain(recent).chain([self.now]);
        let ends: Vec<Nanos> = ends.collect();
        ends.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
    }

    /// Delay that the share `share` of deliveries since a time did not exceed.
    pub fn delay(&self, since: Nanos, share: f64) -> Nanos {
        let recent = self.delivered.iter().filter(|packet| packet.at >= since);
        let mut took: Vec<Nanos> = recent.map(|packet| packet.took).collect();
        took.sort_unstable();
        took[((took.len() - 1) as f64 * share) as usize]
    }
}

/// A TCP acknowledgement, without data.
fn acknowledgement() -> [u8; 52] {
    let mut packet = [0; 52];
    (packet[0], packet[3], packet[9]) = (0x45, 52, 6);
    (packet[32], packet[33]) = (0x80, 0x10);
    packet
}
