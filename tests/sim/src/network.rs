//! The network at work: a queue of events in virtual time.
//!
//! ```text
//!  Ingress ─► node 0 ─► channel ─► Arrive at node 1 ─► ... ─► sink ─► its oracle
//!               ▲          ◄─────── feedback, hop by hop ◄───────┘
//!  Wake ────────┘ timers of any worker          Change ─► parameters, links, restarts
//!  HandOver: between workers of a node          Open ─► a stage that a worker asked for
//! ```
//!
//! Simultaneous events happen in order of creation, so that the run depends only on the scenario.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use recoded_pipeline::open::Opened;
use recoded_pipeline::params::{FlowParams, Nanos, PeerId, Role, ShardId};
use recoded_wire::header::Header;
use recoded_wire::shard::{SHARDS_MAX, source_port};

use crate::attack::{Attacker, Knowledge};
use crate::code::Bounds;
use crate::graph::Wires;
use crate::hop_tags::HopKeys;
use crate::liar::LiarAtWork;
use crate::link::{Channel, Link};
use crate::node::{Make, Node};
use crate::oracle::Oracle;
use crate::results::{HandedOver, Results, Sent};
use crate::run_report::RunReport;
use crate::scenario::{Change, Scenario};
use crate::trace::Step;
use crate::traffic::{FLOW, is_up};
use crate::violation::Violation;

/// Time after the last input within which everything must come to rest: four rounds of repair and
/// the longest hold timeout fit many times.
const REST_NANOS: Nanos = 60_000_000_000;

/// Events per symbol and node that traffic may cause in a healthy network, plus a constant: four
/// times the packets, as many repairs, twice on every link, and timers.
const EVENTS_PER_SYMBOL: u64 = 64;
const EVENTS_MIN: u64 = 100_000;

/// Interval of each node's reports per shard. They pass every link up to the source, in up to four
/// copies that are sent and received.
const REPORT_NANOS: Nanos = 20_000_000;
const EVENTS_PER_REPORT: u64 = 8;

/// Factor for unhealthy networks: relays close generations that the source still fills, and send
/// the plan of a whole generation for a part of it.
const PLANS_PER_PACKET: u64 = 4;

/// Events per node that a forged packet may cause: redundancy for its rank, copies of its requests
/// or reports, timers.
const EVENTS_PER_FORGED: u64 = 64;

/// Packets that wait for a stopped node: the descriptors of a receive ring.
const RECEIVE_RING: usize = 2048;

/// How long a packet stays in the tunnel if the source does not report when it may enter.
const TUNNEL_NANOS: Nanos = 500_000;

/// Longest that it stays there: then the tunnel drops it.
const TUNNEL_MAX_NANOS: Nanos = 5_000_000_000;

/// Time from one worker of a node to another.
const HAND_OVER_NANOS: Nanos = 5_000;

enum What {
    /// The next packet enters.
    Ingress,
    /// A packet reaches a node.
    Arrive { node: usize, peer: PeerId, source_port: u16, payload: Vec<u8> },
    /// A packet reaches another worker of its node, in the life of that.
    HandOver { node: usize, start: u32, packet: HandedOver },
    /// A worker gets a stage, or is refused for lack of memory.
    Open { node: usize, worker: usize, start: u32, shard: ShardId, opened: Option<Box<Opened>> },
    /// Timers of a worker of a node are due.
    Wake { node: usize, worker: usize },
    /// Entry of the scenario's changes.
    Change { index: usize },
    /// Entry of the scenario's attacks strikes.
    Strike { index: usize },
}

/// A stopped node: the time when it resumes, and the number of waiting packets.
#[derive(Copy, Clone, Default)]
struct Stopped {
    until: Nanos,
    waiting: usize,
}

/// Nodes, links, packets in flight, and an oracle for each sink.
pub(crate) struct Network<'a> {
    scenario: &'a Scenario,
    nodes: Vec<Node>,
    wires: Wires,
    /// By hop: towards the sink, towards the source.
    channels: Vec<(Channel, Channel)>,
    attackers: Vec<Attacker<'a>>,
    liars: Vec<LiarAtWork>,
    /// By node.
    stopped: Vec<Stopped>,
    /// Pending events, by time and order of creation.
    queue: BTreeMap<(Nanos, u64), What>,
    serial: u64,
    now: Nanos,
    events: u64,
    /// The next packet to enter.
    next: u32,
    /// By node, at sinks.
    oracles: Vec<Option<Oracle>>,
    hasher: DefaultHasher,
    watch: &'a mut dyn FnMut(Nanos, &Step<'_>),
    results: Results,
    packet: Vec<u8>,
}

impl<'a> Network<'a> {
    pub(crate) fn new(
        scenario: &'a Scenario,
        watch: &'a mut dyn FnMut(Nanos, &Step<'_>),
    ) -> Network<'a> {
        assert_eq!(scenario.edges.len(), scenario.hops.len(), "ends of every link");
        let most = scenario.edges.iter().map(|(from, to)| from.max(to) + 1).max();
        assert_eq!(Some(scenario.nodes.len()), most, "parameters of every node");
        assert_eq!(scenario.nodes.len(), scenario.workers.len(), "workers of every node");
        let seed = scenario.seed;
        let nodes = scenario.nodes.iter().enumerate();
        let bounds = bounds(scenario);
        let make = |index| Make {
            index,
            workers: scenario.workers[index],
            frames: scenario.frames,
            threads: scenario.threads,
            bounds,
            hop_tags: scenario.hop_tags,
            seed,
        };
        let keys = scenario.hop_tags.then(|| HopKeys::new(seed));
        let channel = |link: Link, hop, is_up| {
            let mut channel = Channel::new(link, seed, hop, is_up);
            channel.tags = keys.as_ref().map(|keys| keys.of(seed, hop, is_up));
            channel
        };
        let hops = scenario.hops.iter().enumerate();
        let attacks = scenario.attacks.iter().enumerate();
        let oracle = |params: &FlowParams| {
            let is_sink = matches!(params.role, Role::Sink { .. });
            is_sink.then(|| Oracle::new(seed, &scenario.traffic, &scenario.promise))
        };
        let mut network = Network {
            scenario,
            wires: Wires::new(&scenario.edges),
            nodes: nodes.map(|(index, params)| Node::new(make(index), 0, params.clone())).collect(),
            channels: hops
                .map(|(hop, link)| (channel(link.down, hop, false), channel(link.up, hop, true)))
                .collect(),
            attackers: attacks.map(|(index, attack)| Attacker::new(attack, seed, index)).collect(),
            liars: scenario.liars.iter().copied().map(LiarAtWork::new).collect(),
            stopped: vec![Stopped::default(); scenario.nodes.len()],
            queue: BTreeMap::new(),
            serial: 0,
            now: 0,
            events: 0,
            next: 0,
            oracles: scenario.nodes.iter().map(oracle).collect(),
            hasher: DefaultHasher::new(),
            watch,
            results: Results::default(),
            packet: Vec::new(),
        };
        for (index, (at, _)) in scenario.changes.iter().enumerate() {
            network.schedule(*at, What::Change { index });
        }
        for (index, attack) in scenario.attacks.iter().enumerate() {
            if attack.knowledge == Knowledge::Informed {
                network.channels[attack.hop].0.listen();
            }
            network.plot(index);
        }
        if scenario.traffic.packets > 0 {
            network.schedule(scenario.traffic.due(0), What::Ingress);
        }
        network
    }

    /// Runs until no events are left.
    pub(crate) fn run(mut self) -> Result<RunReport, Violation> {
        let traffic = &self.scenario.traffic;
        let changes = self.scenario.changes.iter().map(|(at, change)| match change {
            Change::Stop { nanos, .. } => at + nanos,
            _ => *at,
        });
        let attacks = self.scenario.attacks.iter().map(|attack| attack.during.end);
        let rest =
            changes.chain(attacks).fold(traffic.end(), Nanos::max).saturating_add(REST_NANOS);
        let events_max = self.events_max();
        while let Some(((at, _), what)) = self.queue.pop_first() {
            self.now = at;
            self.events += 1;
            self.handle(what)?;
            if self.events > events_max + self.reports_max() {
                return Err(Violation::Storm { events: self.events, at: self.now });
            }
            if self.now > rest {
                if self.asks_in_vain() {
                    break;
                }
                return Err(Violation::Restless { at: self.now });
            }
        }
        self.finish()
    }

    /// Whether a next hop of a stream is silent: it is queried until it answers.
    fn asks_in_vain(&self) -> bool {
        let reports = self.nodes.iter().map(Node::report);
        reports.flat_map(|report| report.flows).any(|flow| {
            let mut hops = flow.next_hops.iter();
            hops.any(|hop| hop.is_silent())
        })
    }

    /// Limit of events apart from reports; more are a storm.
    fn events_max(&self) -> u64 {
        let Scenario { nodes, traffic, promise, changes, attacks, .. } = self.scenario;
        let changed = changes.iter().filter_map(|(_, change)| match change {
            Change::Params { node: 0, params } => Some(params.symbol_bytes),
            _ => None,
        });
        let smallest = changed.fold(nodes[0].symbol_bytes, usize::min).max(1);
        let sink = &nodes[nodes.len() - 1];
        let plan = (sink.redundancy_max * sink.generation_size as f64).ceil() as u64;
        let mut each = EVENTS_PER_SYMBOL
            * ((traffic.bytes.end() + nodes[0].sealing_bytes()) / smallest + 2) as u64;
        if promise.delivered.is_none() {
            each += PLANS_PER_PACKET * plan;
        }
        let forged: u64 = attacks.iter().map(|attack| u64::from(attack.packets)).sum();
        let all = each * u64::from(traffic.packets) + EVENTS_PER_FORGED * forged;
        EVENTS_MIN + all * nodes.len() as u64
    }

    fn reports_max(&self) -> u64 {
        let nodes = self.nodes.len() as u64;
        let shards = if self.scenario.is_genuine() {
            u64::from(self.scenario.nodes[0].shards)
        } else {
            SHARDS_MAX as u64
        };
        EVENTS_PER_REPORT * nodes * nodes * shards * (1 + self.now / REPORT_NANOS)
    }

    fn finish(mut self) -> Result<RunReport, Violation> {
        let reports: Vec<_> = self.nodes.iter().map(Node::report).collect();
        let ended = self.now;
        // The results of a shutdown are not used.
        let mut results = Results::default();
        for node in &mut self.nodes {
            node.drain(ended, &mut results)?;
            node.check()?;
        }
        let mut oracles: Vec<Oracle> = self.oracles.into_iter().flatten().collect();
        oracles.iter_mut().try_for_each(Oracle::finish)?;
        for report in &reports {
            format!("{report:?}").hash(&mut self.hasher);
        }
        let starved = self.nodes.iter().map(Node::starved).collect();
        let channels = self.channels.iter().flat_map(|(down, up)| [down, up]);
        let refused = channels.filter_map(|it| Some(it.tags.as_ref()?.refused)).sum();
        let counters = self.channels.into_iter().map(|(down, up)| (down.counters, up.counters));
        Ok(RunReport {
            hash: self.hasher.finish(),
            events: self.events,
            ended_nanos: ended,
            links: counters.collect(),
            reports,
            starved,
            refused,
            delivered: oracles.iter().map(|sink| sink.delivered).min().unwrap_or(0),
            missing: oracles.iter().map(|sink| sink.missing).max().unwrap_or(0),
            repeated: oracles.iter().map(|sink| sink.repeated).sum(),
            foreign: oracles.iter().map(|sink| sink.foreign).sum(),
            delays: oracles.into_iter().next().map_or_else(Default::default, |sink| sink.delays),
        })
    }

    fn schedule(&mut self, at: Nanos, what: What) {
        self.queue.insert((at, self.serial), what);
        self.serial += 1;
    }

    /// Reports an event to the observer, and adds it to the hash of the run.
    fn note(&mut self, step: &Step<'_>) {
        (self.now, step).hash(&mut self.hasher);
        (self.watch)(self.now, step);
    }

    /// Postpones an event of a stopped node until it resumes.
    fn postpone(&mut self, what: What) -> Option<What> {
        let node = match what {
            What::Ingress => 0,
            What::Arrive { node, .. }
            | What::HandOver { node, .. }
            | What::Open { node, .. }
            | What::Wake { node, .. } => node,
            What::Change { .. } | What::Strike { .. } => return Some(what),
        };
        let Stopped { until, waiting } = &mut self.stopped[node];
        if self.now >= *until {
            *waiting = 0;
            return Some(what);
        }
        let until = *until;
        match what {
            What::Wake { worker, .. } => {
                let wakes_at = &mut self.nodes[node].workers[worker].wakes_at;
                if *wakes_at == Some(self.now) {
                    *wakes_at = None;
                    self.wake(node, worker, until);
                }
            }
            What::Arrive { .. } if *waiting == RECEIVE_RING => {}
            _ => {
                *waiting += usize::from(matches!(what, What::Arrive { .. }));
                self.schedule(until, what);
            }
        }
        None
    }

    fn handle(&mut self, what: What) -> Result<(), Violation> {
        let Some(what) = self.postpone(what) else { return Ok(()) };
        match what {
            What::Ingress => self.ingress(),
            What::Arrive { node, peer, source_port, mut payload } => {
                if !self.admit(node, peer, &mut payload)? {
                    return Ok(());
                }
                let worker = self.nodes[node].steer(peer, source_port);
                self.note(&Step::Arrived { node, worker, payload: &payload });
                self.nodes[node].receive(worker, peer, &payload, self.now, &mut self.results)?;
                self.settle(node, worker)
            }
            What::HandOver { node, start, packet } => self.hand_over(node, start, packet),
            What::Open { node, worker, start, shard, opened } => {
                self.open(node, worker, start, shard, opened)
            }
            What::Wake { node, worker } => {
                // An earlier wake-up replaced this one.
                let wakes_at = &mut self.nodes[node].workers[worker].wakes_at;
                if *wakes_at != Some(self.now) {
                    return Ok(());
                }
                *wakes_at = None;
                self.note(&Step::Woke { node, worker });
                self.tick(node, worker)
            }
            What::Change { index } => self.change(index),
            What::Strike { index } => {
                self.strike(index);
                Ok(())
            }
        }
    }

    /// Verifies a packet where hops have keys. False where it ends here.
    fn admit(
        &mut self,
        node: usize,
        peer: PeerId,
        payload: &mut Vec<u8>,
    ) -> Result<bool, Violation> {
        let (down, up) = &mut self.channels[self.wires.edge(node, peer)];
        let channel = if is_up(peer) { down } else { up };
        channel.tags.as_mut().map_or(Ok(true), |tags| tags.open(payload, self.now))
    }

    /// Gives a worker a packet that another one handed over, unless the node has restarted since.
    fn hand_over(&mut self, node: usize, start: u32, packet: HandedOver) -> Result<(), Violation> {
        if self.nodes[node].start != start {
            return Ok(());
        }
        let worker = packet.worker;
        self.note(&Step::Arrived { node, worker, payload: &packet.payload });
        self.nodes[node].take_over(packet, self.now, &mut self.results)?;
        self.settle(node, worker)
    }

    /// Gives a worker the stage it requested, unless the node has restarted since.
    fn open(
        &mut self,
        node: usize,
        worker: usize,
        start: u32,
        shard: ShardId,
        opened: Option<Box<Opened>>,
    ) -> Result<(), Violation> {
        if self.nodes[node].start != start {
            return Ok(());
        }
        let is_refused = opened.is_none();
        self.note(&Step::Opened { node, worker, shard: shard.shard, is_refused });
        let opened = opened.map(|opened| *opened);
        self.nodes[node].opened(worker, shard, opened, self.now, &mut self.results)?;
        self.settle(node, worker)
    }

    /// Plans an attacker's next burst.
    fn plot(&mut self, index: usize) {
        if let Some(at) = self.attackers[index].next(self.now) {
            self.schedule(at, What::Strike { index });
        }
    }

    /// An attacker's burst reaches its node.
    fn strike(&mut self, index: usize) {
        let attacker = &mut self.attackers[index];
        let (hop, is_up) = (attacker.attack.hop, attacker.attack.is_up);
        let (node, peer) = self.wires.end(hop, is_up);
        for payload in attacker.strike(self.channels[hop].0.seen()) {
            let (down, up) = &mut self.channels[hop];
            let tags = if is_up { &mut up.tags } else { &mut down.tags };
            let payload = match tags {
                Some(tags) => tags.forge(payload),
                None => payload,
            };
            self.note(&Step::Forged { node, payload: &payload });
            // Neighbour that sends packets of the shard.
            let shard = Header::parse(&payload).map_or(0, |header| header.shard);
            let source_port = source_port(FLOW, shard);
            self.schedule(self.now, What::Arrive { node, peer, source_port, payload });
        }
        self.plot(index);
    }

    fn ingress(&mut self) -> Result<(), Violation> {
        let traffic = &self.scenario.traffic;
        let number = self.next;
        let shard = traffic.flow(number) % u32::from(self.scenario.nodes[0].shards.max(1));
        if let Err(at) = self.nodes[0].opens_at(shard as u8, self.now) {
            return self.hold(at);
        }
        self.next += 1;
        if let Some(oracle) = self.oracles.iter().flatten().next() {
            oracle.packet(number, &mut self.packet);
        }
        let bytes = self.packet.len();
        self.note(&Step::Entered { number, bytes });
        let (source, results) = (&mut self.nodes[0], &mut self.results);
        let worker = source.ingress(shard as u8, &self.packet, self.now, results)?;
        if self.next < traffic.packets {
            let due = traffic.due(self.next);
            self.schedule(due.max(self.now), What::Ingress);
        }
        self.settle(0, worker)
    }

    /// The source does not accept the next packet before `at`: it waits in the tunnel, and is
    /// eventually dropped there.
    fn hold(&mut self, at: Option<Nanos>) -> Result<(), Violation> {
        let traffic = &self.scenario.traffic;
        let until = traffic.due(self.next) + TUNNEL_MAX_NANOS;
        if self.now < until {
            let at = at.unwrap_or(self.now + TUNNEL_NANOS);
            self.schedule(at.clamp(self.now + 1, until), What::Ingress);
            return Ok(());
        }
        self.next += 1;
        if self.next < traffic.packets {
            let due = traffic.due(self.next);
            self.schedule(due.max(self.now), What::Ingress);
        }
        Ok(())
    }

    fn change(&mut self, index: usize) -> Result<(), Violation> {
        let scenario = self.scenario;
        let (_, change) = &scenario.changes[index];
        self.note(&Step::Changed { change });
        match change {
            Change::Params { node, params } => {
                let params = FlowParams::clone(params);
                self.nodes[*node].apply(params, self.now, &mut self.results)?;
                (0..self.nodes[*node].workers.len())
                    .try_for_each(|worker| self.settle(*node, worker))
            }
            Change::Rehash { node } => {
                self.nodes[*node].rehash();
                Ok(())
            }
            Change::Restart { node } => {
                if let Some(oracle) = &mut self.oracles[*node] {
                    oracle.sink_forgot();
                }
                if *node == 0 {
                    let settled = scenario.settled_at(self.now);
                    self.oracles.iter_mut().flatten().for_each(|it| it.source_forgot(settled));
                    self.nodes.iter_mut().for_each(Node::renew_tags);
                }
                self.nodes[*node].restart()
            }
            Change::Stop { node, nanos } => {
                self.stopped[*node].until = self.now + nanos;
                Ok(())
            }
            Change::Link { hop, link } => {
                let (down, up) = &mut self.channels[*hop];
                down.change(link.down);
                up.change(link.up);
                Ok(())
            }
        }
    }

    /// Completes an input: its results leave, and the worker checks its timers now or soon.
    fn settle(&mut self, node: usize, worker: usize) -> Result<(), Violation> {
        match self.scenario.poll_nanos {
            0 => self.tick(node, worker),
            poll => {
                self.dispatch(node)?;
                self.wake(node, worker, self.now + poll);
                Ok(())
            }
        }
    }

    fn tick(&mut self, node: usize, worker: usize) -> Result<(), Violation> {
        let due = self.nodes[node].tick(worker, self.now, &mut self.results)?;
        self.dispatch(node)?;
        if let Some(due) = due {
            self.wake(node, worker, due.max(self.now + self.scenario.poll_nanos));
        }
        Ok(())
    }

    fn wake(&mut self, node: usize, worker: usize, at: Nanos) {
        let wakes_at = &mut self.nodes[node].workers[worker].wakes_at;
        if wakes_at.is_none_or(|planned| at < planned) {
            *wakes_at = Some(at);
            self.schedule(at, What::Wake { node, worker });
        }
    }

    /// Puts a node's packets on its links, passes delivered packets to the oracle, and forwards
    /// requests of workers to each other and to the thread that creates stages.
    fn dispatch(&mut self, node: usize) -> Result<(), Violation> {
        let Results { mut sent, mut delivered, mut handed_over, mut asked } =
            std::mem::take(&mut self.results);
        let start = self.nodes[node].start;
        for packet in delivered.drain(..) {
            let Some(oracle) = &mut self.oracles[node] else { continue };
            let number = oracle.deliver(&packet, self.now)?;
            self.note(&Step::Delivered { number, bytes: packet.len() });
        }
        for packet in sent.drain(..) {
            self.send(node, packet);
        }
        for packet in handed_over.drain(..) {
            let at = self.now + HAND_OVER_NANOS;
            self.schedule(at, What::HandOver { node, start, packet });
        }
        for (worker, request) in asked.drain(..) {
            let (opened, takes) = self.nodes[node].make(&request);
            let (shard, opened) = (request.shard, opened.map(Box::new));
            let what = What::Open { node, worker, start, shard, opened };
            self.schedule(self.now + takes, what);
        }
        self.results = Results { sent, delivered, handed_over, asked };
        Ok(())
    }

    fn send(&mut self, node: usize, Sent { hop, source_port, mut payload }: Sent) {
        let is_up = is_up(hop);
        let liar = self.liars.iter_mut().find(|it| it.liar.node == node);
        let late = liar.map_or(Some(0), |liar| liar.change(self.now, is_up, &mut payload));
        let Some(late) = late else { return };
        self.note(&Step::Sent { node, is_up, payload: &payload });
        let edge = self.wires.edge(node, hop);
        let (to, peer) = self.wires.end(edge, is_up);
        let (down, up) = &mut self.channels[edge];
        let channel = if is_up { up } else { down };
        let (queue, serial) = (&mut self.queue, &mut self.serial);
        channel.send(self.now + late, payload, |arrival| {
            let what = What::Arrive { node: to, peer, source_port, payload: arrival.payload };
            queue.insert((arrival.at, *serial), what);
            *serial += 1;
        });
    }
}

/// The bounds from the parameters of a scenario.
fn bounds(scenario: &Scenario) -> Bounds {
    let changed = scenario.changes.iter().filter_map(|(_, change)| match change {
        Change::Params { params, .. } => Some(&**params),
        _ => None,
    });
    Bounds::of(scenario.nodes.iter().chain(changed), scenario.is_genuine())
}
